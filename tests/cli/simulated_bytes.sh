# Where only time passes a codec sends as many bytes as it does with numbers, in every scheme.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

run=(--model "{name: mlp, hidden: [96]}" --data digits --batch 64 --optimizer momentum -n 4
    --compute exp:1ms --eval-every 1000 --checkpoint-every 1000 --compress-warmup 8 --json --quiet)

# $1 steps, the rest is given to simulate. Set-up, evaluation and checkpoints, which only a run with numbers
# has, are the same in a short and in a long run; and so is what the last meeting sends.
bytes_of() {
    expect_exit 0 timeout "$PATIENCE" "$SHOAL" simulate "${run[@]}" --steps "$@"
    sed 's/.*"bytes": \([0-9]*\).*/\1/' stdout
}
bytes_between() { echo $(($(bytes_of 40 "$@") - $(bytes_of 16 "$@"))); }

# $1 scheme, then codecs.
sends_the_same() {
    local sync=$1 codec on off
    shift
    for codec in "$@"; do
        on=$(bytes_between --sync "$sync" --compress "$codec" --overwrite --out run)
        off=$(bytes_between --sync "$sync" --compress "$codec" --numerics off)
        [ "$on" -gt 0 ] || fail "$sync with $codec sends nothing"
        [ "$on" -eq "$off" ] || fail "$sync with $codec: $on bytes with numbers, $off without"
    done
}

case_bsp_sends_the_same_bytes() {
    sends_the_same bsp none fp16 bf16 int8 qsgd:4 qsgd:2 terngrad onebit topk:1% randk:1% dgc:1% powersgd:2
}

case_local_schemes_send_the_same_bytes() {
    for sync in local:4 diloco:8; do sends_the_same "$sync" fp16 topk:1% powersgd:2; done
}

case_other_schemes_send_the_same_bytes() {
    for sync in post-local:4 gossip ps ssp:2 softsync:2 ksync:2 backup:1 easgd:4; do
        sends_the_same "$sync" none onebit
    done
    sends_the_same async qsgd:4 topk:1%
    sends_the_same easgd:4 qsgd:4
}

# What a codec cannot do is refused there as well, and before anything is simulated.
case_refusals_hold_before_anything_is_simulated() {
    off=(--compute 1ms --numerics off)
    expect_complaint 2 "does not go with scheme 'ps'" "$SHOAL" simulate "${run[@]}" "${off[@]}" --sync ps --compress dgc
    expect_complaint 2 "not with 'adam'" "$SHOAL" simulate "${run[@]}" "${off[@]}" --optimizer adam --compress dgc
    expect_complaint 2 "does not go with --exact" "$SHOAL" simulate "${run[@]}" "${off[@]}" --exact
}
