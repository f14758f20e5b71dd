# Every codec trains, counts its bytes, and resumes with the same bits.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

common=(--model mlp --data digits --threads 1 --seed 3 --kernels default --optimizer momentum --lr 0.02)

accuracy() { sed -n 's/^test accuracy *0\.//p' "$WORK/stdout"; }

case_every_codec_trains_and_resumes_with_equal_bits() {
    expect_exit 0 "$SHOAL" list codecs
    codecs=$(awk 'NR > 1 {print $1}' "$WORK/stdout")
    [ "$(wc -w <<<"$codecs")" -ge 10 ] || fail "only these codecs: $codecs"
    for codec in $codecs; do
        [ "$codec" != randk ] || codec=randk:30%
        [ "$codec" != dgc ] || codec=dgc:1%
        expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 8 -n 3 --compress "$codec" --out "${codec%%:*}"
        [ "$(accuracy)" -ge 8000 ] || fail "$codec reaches only 0.$(accuracy)"
        expect_text "sent by worker 0"
        expect_text "times less than uncompressed"
        # What is left out for later belongs to the checkpoint.
        expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 4 -n 3 --steps 96 --compress "$codec" \
            --checkpoint-every 24 --out "w-${codec%%:*}"
        expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 4 -n 3 --steps 96 --compress "$codec" \
            --checkpoint-every 24 --resume "w-${codec%%:*}/checkpoints/manifest-00000048.json" \
            --out "r-${codec%%:*}"
        expect_same "w-${codec%%:*}/checkpoints/model-00000096.safetensors" \
            "r-${codec%%:*}/checkpoints/model-00000096.safetensors"
    done
}

# Clipping takes place before a codec keeps what it leaves out, and loses nothing of it.
case_clipping_loses_nothing_that_a_codec_leaves_out() {
    for codec in dgc:1% topk:1%; do
        expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 8 --batch 48 -n 4 --compress "$codec" --clip-norm 0.3 \
            --overwrite --out clipped
        [ "$(accuracy)" -ge 8500 ] || fail "$codec with clipping reaches only 0.$(accuracy)"
    done
}

# Without a codec there is nothing to be smaller than.
case_without_codec_no_saving_is_told() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --steps 3 -n 2 --out dense
    expect_text "sent by worker 0"
    expect_no_text "less than uncompressed"
}

# Another number of workers goes on from the residuals of the first.
case_residuals_go_on_with_fewer_workers() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 8 -n 3 --compress topk --out topk
    expect_exit 0 "$SHOAL" train topk --resume --epochs 9 -n 2
    expect_text "resumed after step 96"
}

# What a codec keeps comes and goes with it and with the workers, as a single one has none: it starts
# anew or is left out, and a line says so. So it is with momentum, which dgc takes over.
case_codec_state_comes_and_goes_with_the_codec() {
    at4() { # NAME OPTIONS...   a run of 4 steps
        expect_exit 0 "$SHOAL" train "${common[@]}" --steps 4 --out "$@"
    }
    goes_on() { # TEXT FROM OPTIONS...   4 more steps of it
        expect_exit 0 "$SHOAL" train "${common[@]}" --steps 8 --overwrite --out on \
            --resume "$2/checkpoints/manifest-00000004.json" "${@:3}"
        expect_text "resumed after step 4"
        [ -z "$1" ] || expect_text "$1"
        [ -n "$1" ] || expect_no_text "of another codec"
    }
    at4 one -n 1
    at4 plain -n 4
    for codec in topk:1% int8 onebit powersgd dgc:1%; do
        kept=residual momentum=
        [ "$codec" != powersgd ] || kept="residual, factors"
        [ "$codec" != dgc:1% ] || kept="residual, velocity" momentum=momentum
        at4 "f-${codec%%:*}" -n 4 --compress "$codec"
        goes_on "" "f-${codec%%:*}" -n 2 --compress "$codec"
        goes_on "starts anew: ${momentum:-nothing}; left out: $kept" "f-${codec%%:*}" -n 1 --compress "$codec"
        goes_on "starts anew: ${momentum:-nothing}; left out: $kept" "f-${codec%%:*}" -n 4
        goes_on "starts anew: $kept; left out: ${momentum:-nothing}" one -n 4 --compress "$codec"
        goes_on "starts anew: $kept; left out: ${momentum:-nothing}" plain -n 4 --compress "$codec"
    done
    goes_on "starts anew: velocity; left out: momentum" f-topk -n 2 --compress dgc:1%
    goes_on "starts anew: momentum; left out: velocity" f-dgc -n 2 --compress topk:1%
    goes_on "starts anew: factors; left out: factors" f-powersgd -n 2 --compress powersgd:1
    expect_complaint 1 "is missing" "$SHOAL" train "${common[@]}" --steps 8 --optimizer adam --out no \
        --resume f-dgc/checkpoints/manifest-00000004.json
}

case_misuse_is_refused() {
    expect_complaint 2 "topkk" "$SHOAL" train "${common[@]}" -n 2 --compress topkk --out bad
    expect_complaint 2 "sharded" "$SHOAL" train "${common[@]}" -n 2 --compress topk --shard-optimizer --out bad
    expect_complaint 2 "goes with sgd" "$SHOAL" train --model mlp --data digits --optimizer adam -n 2 \
        --compress dgc --out bad
}
