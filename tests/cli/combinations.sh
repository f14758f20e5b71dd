# Whatever is combined with whatever: it trains, or it is refused as misuse, with a reason and a next step, before it
# begins. A part of the table; the rest of it differs by values alone.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

run=(--data digits --batch 32 --steps 3 --lr 0.01 --quiet)
mlp=(--model "{name: mlp, hidden: [8]}")
norm=(--model "[flatten, {dense: 8}, batchnorm, relu, {dense: 10}]")
schemes=(bsp local:2 post-local:2 adacomm:2 diloco:2 gossip sgp:1 adpsgd gossip-pull gossip-push:2 ps async
    ssp:2 softsync:1 ksync:1 backup:1 easgd:2 hogwild hogwild-locked)

# The rest is a command that ends well or with a reason. Refused: nothing was written.
trained=0 refused=0
works_or_says_why() {
    local code=0
    timeout "$PATIENCE" "$SHOAL" "$@" >stdout 2>stderr </dev/null || code=$?
    case $code in
    0) trained=$((trained + 1)) ;;
    2)
        refused=$((refused + 1))
        grep -q '^shoal: ' stderr || fail "no reason: $*"
        expect_no_text ": rank " stderr  # it is nobody's alone
        grep -q '^  try: ' stderr || fail "no next step: $*: $(cat stderr)"
        expect_no_file run/checkpoints
        ;;
    *)
        cat stderr
        fail "exit $code: $*"
        ;;
    esac
    rm -rf run
}

# Simulated workers are quick to start, and refuse what real ones do (but for hogwild, which they lack).
case_simulated_workers_train_or_say_why_not() {
    simulate() { works_or_says_why simulate "${run[@]}" -n 4 --compute 1ms "$@"; }
    for sync in "${schemes[@]}"; do
        for codec in topk:10% powersgd:2 dgc:10%; do
            simulate "${mlp[@]}" --sync "$sync" --compress "$codec" --optimizer momentum --out run
        done
        for more in --exact --shard-optimizer --balance "--accumulate 2 --clip-value 1" "--exact --clip-norm 1" \
            "--server-ranks own --servers 1"; do
            # shellcheck disable=SC2086
            simulate "${mlp[@]}" --sync "$sync" --optimizer adam $more --out run
        done
        for more in "--compress int8" "--compress dgc" "--server-ranks own --servers 1 --clip-norm 1"; do
            # shellcheck disable=SC2086
            simulate "${mlp[@]}" --sync "$sync" --optimizer lamb $more --numerics off
        done
        simulate "${norm[@]}" --sync "$sync" --sync-batchnorm --out run
    done
    [ "$trained" -ge 50 ] || fail "only $trained trained"
    [ "$refused" -ge 50 ] || fail "only $refused were refused"
}

# And real ones.
case_real_workers_train_or_say_why_not() {
    for sync in "${schemes[@]}"; do
        works_or_says_why train "${run[@]}" "${mlp[@]}" -n 2 --sync "$sync" --optimizer lamb --compress topk:10% --out run
    done
    for sync in easgd:2 hogwild async; do
        works_or_says_why train "${run[@]}" "${mlp[@]}" -n 2 --sync "$sync" --optimizer adam --clip-norm 1 --out run
    done
}
