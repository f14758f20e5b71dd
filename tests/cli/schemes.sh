# Every scheme with parameter servers trains, tells its staleness, and what does not go together is
# refused before training.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

common=(--model mlp --data digits --threads 1 --seed 3 --kernels default --batch 48 --lr 0.1 -n 3)

# What the order of messages decides differs from run to run, and more so on a loaded machine; guessing gives 0.1.
accuracy() { sed -n 's/^test accuracy *0\.//p' "$WORK/stdout"; }

# What counts is the same for all: labels to ignore are left out of the mean over the whole batch, and running
# statistics are weighted by samples, however unequal the shares. So these schemes agree with one worker, and with
# `bsp`, but for rounding.
uneven=("${common[@]}" --batch 50 --lr 0.05 --epochs 1)
like_bsp=(ps ssp:0 local:1 "gossip --graph complete --no-overlap")

case_every_scheme_learns_and_tells_its_staleness() {
    for scheme in ps async ssp:0 ssp:2 softsync:1 softsync:3 ksync:2 backup:1 easgd:4; do
        expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 6 --sync "$scheme" --out "${scheme/:/-}"
        [ "$(accuracy)" -ge 6000 ] || fail "$scheme reaches only 0.$(accuracy)"
        grep -q '"event":"staleness".*"counts":\[' "${scheme/:/-}/metrics.jsonl" ||
            fail "$scheme: no histogram of the staleness"
    done
    # Workers of easgd take the steps themselves: 3 of them, 192 each in the mean.
    grep -q '"event":"end".*"updates":576,' easgd-4/metrics.jsonl || fail "easgd does not count the workers' own updates"
}

# In step, servers do what bulk-synchronous workers do, with any number of servers and placement. They
# add up in another order, so the losses agree but for rounding (with --exact every bit does).
case_lockstep_servers_do_what_bsp_does() {
    loss() { sed -n 's/^test loss *//p' "$WORK/stdout"; }
    alike() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d < 0.01 && d > -0.01) }'; }
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 6 --optimizer adam --lr 0.002 --out bsp
    bsp=$(loss)
    for servers in 1 2 5; do
        for placement in range variable; do
            expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 6 --optimizer adam --lr 0.002 \
                --sync ps --servers "$servers" --placement "$placement" --out "ps-$servers-$placement"
            alike "$(loss)" "$bsp" || fail "ps ends with loss $(loss) and bsp with $bsp"
        done
    done
}

case_ignored_labels_are_left_out_of_the_whole_mean() {
    expect_exit 0 "$SHOAL" train "${uneven[@]}" --ignore 9 -n 1 --out counts-alone
    for scheme in "${like_bsp[@]}"; do
        # shellcheck disable=SC2086
        expect_exit 0 "$SHOAL" train "${uneven[@]}" --ignore 9 --out "counts-${scheme%%[: ]*}" --sync $scheme
        expect_loss "$(train_loss counts-alone)" "counts-${scheme%%[: ]*}"
    done
}

case_running_statistics_are_weighted_by_samples() {
    normed=("${common[@]}" --model "[flatten, {dense: 12}, batchnorm, relu, {dense: 10}]" --batch 5 --lr 0 --steps 60)
    test_loss() { grep -o '"test_loss":[^,}]*' "$1/metrics.jsonl" | tail -n 1 | cut -d: -f2; }
    expect_exit 0 "$SHOAL" train "${normed[@]}" --out normed-bsp
    for scheme in "${like_bsp[@]}"; do
        # shellcheck disable=SC2086
        expect_exit 0 "$SHOAL" train "${normed[@]}" --out "normed-${scheme%%[: ]*}" --sync $scheme
        is_close "$(test_loss normed-bsp)" "$(test_loss "normed-${scheme%%[: ]*}")" ||
            fail "$scheme: test loss $(test_loss "normed-${scheme%%[: ]*}") instead of $(test_loss normed-bsp)"
    done
}

# Lines of metrics where epochs end between meetings, with fewer samples than a batch and none of worker 0's. Every
# epoch has its line; the last one tells the loss of all workers, and the speed is never below 0.
case_every_epoch_has_its_line_of_metrics() {
    lines=("${common[@]}" --batch 7 --lr 0.05 --epochs 3 --eval-every 301 --checkpoint-every 1000)
    of_lines() { grep '"event":"step"' "$2/metrics.jsonl" | grep -o "\"$1\":[^,}]*" | cut -d: -f2; }
    expect_exit 0 "$SHOAL" train "${lines[@]}" --log-every 1000 --out lines-bsp
    for scheme in ps ssp:0 local:1; do
        expect_exit 0 "$SHOAL" train "${lines[@]}" --log-every 1000 --sync "$scheme" --out "lines-${scheme/:/-}"
        [ "$(of_lines step "lines-${scheme/:/-}" | xargs)" = "215 430 645" ] || fail "$(cat "lines-${scheme/:/-}/metrics.jsonl")"
        expect_loss "$(train_loss lines-bsp)" "lines-${scheme/:/-}"
    done
    for scheme in ps ssp:2 async ksync:2 local:3 gossip adpsgd; do
        expect_exit 0 "$SHOAL" train "${common[@]}" --batch 1000 --epochs 8 --eval-every 5 --checkpoint-every 100 \
            --log-every 1 --sync "$scheme" --out "speed-${scheme/:/-}"
        of_lines samples_per_s "speed-${scheme/:/-}" | awk '!($1 > 0) { exit 1 }' ||
            fail "$scheme: $(of_lines samples_per_s "speed-${scheme/:/-}" | xargs) samples a second"
    done
}

# The optimizer's state that the servers hold goes into the checkpoint.
case_optimizer_state_of_servers_is_saved() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 4 --optimizer momentum --sync ps --out whole
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 2 --optimizer momentum --sync ps --out half
    expect_exit 0 "$SHOAL" train half --resume --epochs 4
    expect_same whole/checkpoints/model-00000128.safetensors half/checkpoints/model-00000128.safetensors
}

# So does what error feedback keeps of the workers' gradients. Where the first K gradients of a step
# count, it is virtual time that always makes the same worker the last.
case_error_feedback_of_workers_is_saved() {
    resumes() { # COMMAND FLAGS...
        local command=$1 name="r$((++resumed))"
        shift
        expect_exit 0 "$SHOAL" "$command" "${common[@]}" --optimizer momentum --steps 40 --checkpoint-every 20 \
            "$@" --out "$name"
        mkdir -p "$name-half/checkpoints"
        cp "$name/run.yaml" "$name-half"
        cp "$name"/checkpoints/*-00000020.* "$name-half/checkpoints"
        local world=()
        [ "$command" != simulate ] || world=(--compute 5ms --straggler 2:4x)
        expect_exit 0 "$SHOAL" "$command" "$name-half" --resume "${world[@]}"
        for file in model optimizer; do
            expect_same "$name/checkpoints/$file-00000040.safetensors" "$name-half/checkpoints/$file-00000040.safetensors"
        done
    }
    resumed=0
    for codec in topk:1% onebit; do
        resumes train --sync ps --compress "$codec"
        resumes train --sync ssp:0 --compress "$codec" --servers 2 --placement variable
        resumes train --sync ksync:3 --compress "$codec"
        for scheme in backup:1 ksync:2; do
            resumes simulate --sync "$scheme" --compress "$codec" --compute 5ms --straggler 2:4x
        done
    done
}

# So it does in runs whose order is left to chance.
case_error_feedback_of_free_schemes_is_saved() {
    for scheme in async ssp:2 softsync:2; do
        expect_exit 0 "$SHOAL" train "${common[@]}" --steps 20 --sync "$scheme" --compress topk:1% --out "c-${scheme/:/-}"
        grep -qa 'weight.residual"' "c-${scheme/:/-}/checkpoints/optimizer-00000020.safetensors" ||
            fail "$scheme: no residual in the checkpoint"
        expect_exit 0 "$SHOAL" train "c-${scheme/:/-}" --resume --steps 30
        expect_no_text residual
    done
}

case_compensation_and_periods_learn() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 6 --sync async --compensation 0.1 \
        --lr 0.05 --out compensated
    [ "$(accuracy)" -ge 6000 ] || fail "with compensation it reaches only 0.$(accuracy)"

    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 6 --sync async --fetch-every 4 --push-every 2 --out periods
    [ "$(accuracy)" -ge 6000 ] || fail "with periods it reaches only 0.$(accuracy)"
}

# Both ways are compressed, and what a codec cannot do here is refused.
case_both_ways_are_compressed() {
    for codec in fp16 topk:10% onebit qsgd:4; do
        expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 6 --sync async --compress "$codec" --out "c-${codec%%:*}"
        [ "$(accuracy)" -ge 6000 ] || fail "async with $codec reaches only 0.$(accuracy)"
    done
}

case_what_does_not_go_together_is_refused() {
    expect_complaint 2 "does not go with scheme 'async'" \
        "$SHOAL" train "${common[@]}" --sync async --compress powersgd --out bad
    expect_complaint 2 "did not move" \
        "$SHOAL" train "${common[@]}" --sync async --compress fp16 --fetch-every 2 --out bad
    expect_complaint 2 "in its own rhythm" "$SHOAL" train "${common[@]}" --sync ps --fetch-every 2 --out bad

    expect_complaint 2 "too much for 3 workers" "$SHOAL" train "${common[@]}" --sync ksync:4 --out bad
    expect_complaint 2 "too much for 3 workers" "$SHOAL" train "${common[@]}" --sync backup:3 --out bad
    expect_complaint 2 "whole tensors" "$SHOAL" train "${common[@]}" --sync async --optimizer lars --out bad
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 1 --sync easgd:4 --optimizer lamb --lr 0.01 --out lamb
    expect_complaint 2 "no step of 'adam'" \
        "$SHOAL" train "${common[@]}" --sync async --fetch-every 4 --optimizer adam --out bad
    expect_complaint 2 "leave out --compensation or --fetch-every" \
        "$SHOAL" train "${common[@]}" --sync async --fetch-every 4 --compensation 0.1 --out bad
    expect_complaint 2 "no delay to compensate" \
        "$SHOAL" train "${common[@]}" --sync ps --compensation 1 --out bad
    expect_complaint 2 "does not go with --exact" "$SHOAL" train "${common[@]}" --sync async --exact --out bad
}

# Options that mean nothing to a scheme are refused, and the schemes that read them named; one worker
# ignores them with the scheme, and a comparison gives each scheme its own.
case_options_that_a_scheme_does_not_read_are_refused() {
    for unread in "bsp --compensation 1" "bsp --fetch-every 2" "bsp --staleness on" "bsp --servers 2" \
        "bsp --placement variable" "bsp --graph ring" "bsp --mixing 0.5" "local:4 --sync-switch 0.2" \
        "async --graph ring" "async --outer-lr 0.5" "async --sync-momentum keep" "easgd --staleness on" \
        "ps --snapshot-every 7"; do
        # shellcheck disable=SC2086
        expect_complaint 2 "means nothing to scheme '${unread%%[: ]*}'" \
            "$SHOAL" train "${common[@]}" --out bad --sync $unread
        expect_text "use a scheme that reads it: "
    done
    expect_complaint 2 "there is none" "$SHOAL" train "${common[@]}" --sync gossip --mixing 0.5 --out bad
    expect_exit 0 "$SHOAL" train "${common[@]}" -n 1 --epochs 1 --graph ring --compensation 1 --out ignored
    expect_exit 0 "$SHOAL" compare "${common[@]}" --epochs 1 --sync bsp,async,gossip --compensation 0.1 --graph ring \
        --quiet --out side
    ! grep -q refused stdout || fail "$(cat stdout)"
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 1 --sync asp --out asp
}
