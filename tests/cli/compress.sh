# Every codec trains, counts its bytes, and resumes with the same bits.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

common=(--model mlp --data digits --threads 1 --seed 3 --kernels default --optimizer momentum --lr 0.02)

accuracy() { sed -n 's/^test accuracy *0\.//p' "$WORK/stdout"; }

expect_exit 0 "$SHOAL" list codecs
codecs=$(awk 'NR > 1 {print $1}' "$WORK/stdout")
[ "$(wc -w <<<"$codecs")" -ge 10 ] || fail "only these codecs: $codecs"
for codec in $codecs; do
    [ "$codec" != randk ] || codec=randk:30%
    [ "$codec" != dgc ] || codec=dgc:1%
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 8 -n 3 --compress "$codec" --out "${codec%%:*}"
    [ "$(accuracy)" -ge 8000 ] || fail "$codec reaches only 0.$(accuracy)"
    expect_text "sent by worker 0"
    # What is left out for later belongs to the checkpoint.
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 4 -n 3 --steps 96 --compress "$codec" \
        --checkpoint-every 24 --out "w-${codec%%:*}"
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 4 -n 3 --steps 96 --compress "$codec" \
        --checkpoint-every 24 --resume "w-${codec%%:*}/checkpoints/manifest-00000048.json" \
        --out "r-${codec%%:*}"
    expect_same "w-${codec%%:*}/checkpoints/model-00000096.safetensors" \
        "r-${codec%%:*}/checkpoints/model-00000096.safetensors"
done

# Another number of workers goes on from the residuals of the first.
expect_exit 0 "$SHOAL" train topk --resume --epochs 9 -n 2
expect_text "resumed after step 96"

expect_complaint 2 "topkk" "$SHOAL" train "${common[@]}" -n 2 --compress topkk --out bad
expect_complaint 2 "sharded" "$SHOAL" train "${common[@]}" -n 2 --compress topk --shard-optimizer --out bad
expect_complaint 2 "goes with sgd" "$SHOAL" train --model mlp --data digits --optimizer adam -n 2 \
    --compress dgc --out bad
