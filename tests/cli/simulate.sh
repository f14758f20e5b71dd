# shoal simulate: the workers' own code on a virtual clock, the same bits every time, and theory.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

mlp=(--model "{name: mlp, hidden: [32]}" --data digits --batch 64 --optimizer momentum --lr 0.05
    --epochs 3 --quiet)
world=(--link "1Gbit,100us" --compute exp:20ms --straggler 3:4x)

# Samples that were learnt from: short batches are short, and broken off gradients do not count.
samples() { sed -n 's/.*"event":"end".*"samples":\([0-9]*\).*/\1/p' "$1/metrics.jsonl"; }

# The same seed gives the same metrics and the same checkpoint; another one does not.
case_same_seed_gives_the_same_bits() {
    expect_exit 0 "$SHOAL" simulate "${mlp[@]}" "${world[@]}" -n 4 --out first
    expect_text "virtual time" stdout
    expect_exit 0 "$SHOAL" simulate "${mlp[@]}" "${world[@]}" -n 4 --out second
    cmp first/metrics.jsonl second/metrics.jsonl || fail "metrics differ"
    for file in first/checkpoints/*; do
        cmp "$file" "second/checkpoints/$(basename "$file")" || fail "$file differs"
    done
    expect_exit 0 "$SHOAL" simulate "${mlp[@]}" "${world[@]}" -n 4 --seed 2 --out other
    ! cmp -s first/metrics.jsonl other/metrics.jsonl || fail "the seed changes nothing"
}

# Simulated workers compute what real ones do: exact runs agree to the last bit.
case_simulated_workers_compute_what_real_ones_do() {
    expect_exit 0 "$SHOAL" train "${mlp[@]}" -n 2 --exact --out real
    expect_exit 0 "$SHOAL" simulate "${mlp[@]}" -n 3 --exact --compute 1ms --out simulated
    cmp real/checkpoints/model-*72.safetensors simulated/checkpoints/model-*72.safetensors ||
        fail "simulated workers compute something else"
}

# A straggler costs time in lockstep, and not what is learnt.
case_straggler_costs_time_and_changes_no_loss() {
    loss() { awk '/^train loss/ { print $3 }' "$1"; }
    seconds() { awk '/^virtual time/ { print $3 }' "$1"; }
    expect_exit 0 "$SHOAL" simulate "${mlp[@]}" -n 4 --compute 20ms --out even
    cp stdout even.txt
    expect_exit 0 "$SHOAL" simulate "${mlp[@]}" -n 4 --compute 20ms --straggler 3:4x --out uneven
    cp stdout uneven.txt
    [ "$(loss even.txt)" = "$(loss uneven.txt)" ] || fail "the straggler changed the loss"
    awk -v a="$(seconds even.txt)" -v b="$(seconds uneven.txt)" 'BEGIN { exit !(b > 3.9 * a) }' ||
        fail "a 4x straggler: $(seconds even.txt) s, then $(seconds uneven.txt) s"
}

# Schemes run on it; only time passes with --numerics off, and as much of it.
case_time_alone_passes_without_numerics() {
    expect_exit 0 "$SHOAL" simulate "${mlp[@]}" -n 4 --sync local:8 "${world[@]}" --out local
    expect_exit 0 "$SHOAL" simulate "${mlp[@]}" -n 4 --sync local:8 "${world[@]}" --numerics off
    expect_no_text "train loss" stdout
}

# Asynchronous workers repeat too, bit for bit.
case_asynchronous_runs_repeat_bit_for_bit() {
    for sync in async gossip-pull:2 gossip-push; do
        for out in free1 free2; do
            expect_exit 0 "$SHOAL" simulate "${mlp[@]}" -n 4 --sync "$sync" "${world[@]}" --overwrite --out "$out"
        done
        cmp free1/metrics.jsonl free2/metrics.jsonl || fail "runs of $sync differ"
        for file in free1/checkpoints/*; do
            cmp "$file" "free2/checkpoints/$(basename "$file")" || fail "$file of $sync differs"
        done
    done
}

# Free links and exponential times of mean 1: the time of a step is known. $1 scheme, $2 workers, $3
# seconds: H(P) where all are waited for, H(P) - H(P - K) where K are, 1 where each goes its way (a
# step is P updates).
case_time_of_a_step_is_that_of_theory() {
    takes() {
        local servers=(--servers 1)
        [ "$1" != bsp ] || servers=()
        expect_exit 0 "$SHOAL" simulate --model "{name: mlp, hidden: [8]}" --data digits --batch 64 \
            --steps 30000 -n "$2" "${servers[@]}" --sync "$1" --compute exp:1s --numerics off --json --quiet
        local step
        step=$(sed 's/.*"seconds_per_step": \([0-9.e+-]*\).*/\1/' stdout)
        awk -v s="$step" -v w="$3" 'BEGIN { exit !(s > 0.99 * w && s < 1.01 * w) }' ||
            fail "a step of $2 workers with $1 takes $step s, not $3"
    }
    takes bsp 2 1.5
    takes bsp 8 2.717857
    takes ps 4 2.083333
    takes async 4 1
    takes ksync:1 2 0.5
    takes ksync:2 4 0.583333
    takes ksync:4 8 0.634524
    takes ksync:8 16 0.662872
    takes backup:1 2 0.5
    takes backup:2 4 0.583333
    takes backup:4 8 0.634524
    takes backup:8 16 0.662872
}

# A first worker that does no step between two meetings.
case_worker_without_steps_tells_the_loss_of_the_others() {
    expect_exit 0 "$SHOAL" simulate "${mlp[@]}" -n 4 --sync async --compute 10ms --straggler 0:500x --out idle
    grep -q '"event":"step".*"train_loss":[0-9]' idle/metrics.jsonl || fail "no loss is told"
    ! grep '"train_loss":null' idle/metrics.jsonl || fail "a loss of nobody is told"
}

# Every step has one line at most, with a loss; the last one has one, and so has every epoch.
case_every_step_has_one_line_at_most() {
    lines() { sed -n 's/.*"event":"step","step":\([0-9]*\).*/\1/p' "$1/metrics.jsonl"; }
    for sync in bsp local:8 gossip ps async ssp:2 softsync:2 ksync:2 backup:1 easgd:4 easgd:10 adpsgd \
        gossip-pull gossip-push:3; do
        expect_exit 0 "$SHOAL" simulate "${mlp[@]}" -n 4 --sync "$sync" --compute exp:10ms --log-every 5 \
            --eval-every 7 --out lines
        [ -z "$(lines lines | uniq -d)" ] || fail "$sync tells of steps twice: $(lines lines | uniq -d | xargs)"
        lines lines | sort -nc || fail "$sync: steps are out of order"
        ! grep '"train_loss":null' lines/metrics.jsonl || fail "$sync tells a loss of nobody"
        for step in 24 48 72; do lines lines | grep -qx "$step" || fail "$sync tells nothing of step $step"; done
        [ "$(lines lines | wc -l)" -ge 10 ] || fail "$sync tells of few steps: $(lines lines | xargs)"
        rm -r lines
    done
}

case_samples_are_counted_once() {
    expect_exit 0 "$SHOAL" simulate "${mlp[@]}" -n 4 --out lockstep --compute 10ms
    for sync in ps local:8 gossip; do
        expect_exit 0 "$SHOAL" simulate "${mlp[@]}" -n 4 --sync "$sync" --compute exp:10ms --out counted
        [ "$(samples counted)" -eq "$(samples lockstep)" ] ||
            fail "$sync counts $(samples counted) samples, bsp $(samples lockstep)"
        rm -r counted
    done
    expect_exit 0 "$SHOAL" simulate "${mlp[@]}" -n 4 --sync ksync:1 --compute exp:10ms --out counted
    awk -v k="$(samples counted)" -v all="$(samples lockstep)" 'BEGIN { exit !(k > 0 && k < 0.5 * all) }' ||
        fail "ksync:1 of 4 workers counts $(samples counted) of $(samples lockstep) samples"
}

# One worker needs no scheme, simulated or not.
case_one_worker_needs_no_scheme() {
    expect_exit 0 "$SHOAL" simulate "${mlp[@]}" -n 1 --compute 1ms --out one
    for scheme in adpsgd gossip-pull gossip-push:2 backup:1 ksync:2 easgd diloco gossip sgp:1; do
        expect_exit 0 timeout "$PATIENCE" "$SHOAL" simulate "${mlp[@]}" -n 1 --sync "$scheme" --compute 1ms --out "one-${scheme%:*}"
        expect_same one/checkpoints/model-*72.safetensors "one-${scheme%:*}"/checkpoints/model-*72.safetensors
        expect_exit 0 timeout "$PATIENCE" "$SHOAL" simulate "${mlp[@]}" -n 1 --sync "$scheme" --compute 1ms --numerics off
        expect_text "messages       0," stdout
    done
}

# What does not go together is refused also where only time passes.
case_refusals_hold_where_only_time_passes() {
    for refused in backup:4 ksync:8 softsync:100 "adpsgd --graph exponential" "async --push-every 5"; do
        # shellcheck disable=SC2086
        expect_exit 2 timeout "$PATIENCE" "$SHOAL" simulate "${mlp[@]}" -n 4 --compute 1ms --numerics off --sync $refused
        expect_text "try: " stderr
    done
}

# Without --compute it is measured, and said so.
case_measured_compute_time_is_said() {
    expect_exit 0 "$SHOAL" simulate "${mlp[@]:0:${#mlp[@]}-1}" -n 2 --steps 3 --out measured
    expect_text "makes this run repeatable" stderr
}

# Deaths, deadlocks and nonsense end with words.
case_deaths_and_deadlocks_end_with_words() {
    expect_complaint 1 "rank 1 has left" "$SHOAL" simulate "${mlp[@]}" -n 3 --compute 10ms \
        --die 1@50ms --out dead
    for flags in "--sync bsp" "--sync bsp --numerics off" "--sync ps" "--sync local:4"; do
        # shellcheck disable=SC2086
        expect_complaint 1 "all workers who had the model have died" "$SHOAL" simulate "${mlp[@]}" -n 2 \
            --compute 10ms --die 0@50ms,1@50ms $flags --out all-dead --overwrite
        expect_text "try: leave one of them out of --die" stderr
    done
    expect_complaint 1 "deadlock at" "$SHOAL" simulate "${mlp[@]}" -n 3 --compute 10ms \
        --cut 0-1@50ms-100s --out cut
}

case_nonsense_is_refused() {
    expect_complaint 2 "--straggler '9:4x'" "$SHOAL" simulate "${mlp[@]}" -n 3 --straggler 9:4x
    expect_complaint 2 "--compute" "$SHOAL" simulate "${mlp[@]}" -n 3 --compute soon
    expect_complaint 2 "neither on nor off" "$SHOAL" simulate "${mlp[@]}" -n 3 --numerics maybe
    expect_complaint 2 "does not go with --balance" "$SHOAL" simulate "${mlp[@]}" -n 3 \
        --compute 1ms --numerics off --balance
}
