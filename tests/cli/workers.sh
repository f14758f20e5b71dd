# Several workers: the result of one, whatever happens to them.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

common=(--model mlp --data digits --threads 1 --seed 3 --kernels default)
large=(--model '{name: mlp, hidden: [1600, 1400]}' --data digits --threads 1 --seed 3 --kernels default)

# start NAME FLAGS...   a long run in the background; returns once it has a checkpoint.
start() {
    local name=$1
    shift
    # Not from a subshell that ignores SIGINT: the signals below are SIGTERM.
    "$SHOAL" train "${common[@]}" --epochs 200000 --eval-every 1000000 --checkpoint-every 200 -n 3 \
        --out "$name" "$@" >"$name.out" 2>"$name.err" &
    parent=$!
    wait_until has_checkpoint "$name" && return
    cat "$name.err"
    fail "$name wrote no checkpoint"
}
# The process of a rank.
worker() {
    local pid
    for pid in $(pgrep -P "$parent"); do
        [ "$(cat "/proc/$pid/comm")" != "shoal-$1" ] || echo "$pid"
    done
}
wait_for() {
    wait_until grep -qF -- "$1" "$2" && return
    cat "$2"
    fail "no \"$1\" in $2"
}
stop() {
    kill -TERM "$parent"
    local code=0
    wait "$parent" || code=$?
    [ "$code" -eq 143 ] || fail "exit $code after SIGTERM"
}
stopped_at() { sed -n 's/^stopped after step \([0-9]*\) of.*/\1/p' "$1" | tail -n 1; } # FILE

prepare() {
    # Batches of 50 leave 12 samples for the 30th step: uneven shares, and with 16 workers empty ones.
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 49 --epochs 2 --out one
}

case_any_count_gives_the_result_of_one() {
    one=$(train_loss one)
    for workers in 2 3 16; do
        expect_exit 0 "$SHOAL" train "${common[@]}" --batch 49 --epochs 2 -n "$workers" --out "w$workers"
        expect_text "$workers workers of 1 thread"
        expect_loss "$one" "w$workers"
    done
    expect_text "worker 15: data"
}

# Every all-reduce, and no overlap.
case_every_all_reduce_gives_the_result_of_one() {
    one=$(train_loss one)
    for allreduce in ring halving-doubling tree hierarchical direct; do
        expect_exit 0 "$SHOAL" train "${common[@]}" --batch 49 --epochs 2 -n 3 --allreduce "$allreduce" \
            --no-overlap --bucket-mb 0.05 --out "a-$allreduce"
        expect_loss "$one" "a-$allreduce"
    done
    expect_complaint 2 "allreduce" "$SHOAL" train "${common[@]}" -n 2 --allreduce rign --out bad
}

# A bucket has a parameter at least.
case_bucket_has_a_parameter_at_least() {
    one=$(train_loss one)
    expect_exit 0 timeout "$PATIENCE" "$SHOAL" train "${common[@]}" --batch 49 --epochs 2 -n 2 --bucket-mb 1e-7 --out tiny
    expect_loss "$one" tiny
}

# A run of several workers repeats bit for bit, and a resumed one too, also on its own folder.
case_runs_repeat_and_resume_bit_for_bit() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 4 -n 3 --optimizer adamw --out whole
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 2 -n 3 --optimizer adamw --out half
    expect_exit 0 "$SHOAL" train half --resume --epochs 4
    for file in model optimizer; do
        expect_same "whole/checkpoints/$file-00000048.safetensors" "half/checkpoints/$file-00000048.safetensors"
    done
}

case_fused_updates_have_the_bits_of_updates_at_the_end() {
    # So many parameters are updated on the way of their sums, by whoever waits; a norm that clips nothing puts the
    # updates at the end. Also resumed, also with a sharded optimizer.
    for rule in "momentum --lr 0.05" "adamw"; do
        for workers in 2 3; do
            # shellcheck disable=SC2086
            expect_exit 0 "$SHOAL" train "${large[@]}" --steps 12 -n $workers --optimizer $rule --overwrite \
                --clip-norm 1e9 --out clipped
            # shellcheck disable=SC2086
            expect_exit 0 "$SHOAL" train "${large[@]}" --steps 12 -n $workers --optimizer $rule --overwrite \
                --out spread
            # shellcheck disable=SC2086
            expect_exit 0 "$SHOAL" train "${large[@]}" --steps 5 -n $workers --optimizer $rule --overwrite \
                --shard-optimizer --bucket-mb 0.1 --out spread-half
            expect_exit 0 "$SHOAL" train spread-half --resume --steps 12
            for file in model optimizer; do
                expect_same "clipped/checkpoints/$file-00000012.safetensors" "spread/checkpoints/$file-00000012.safetensors"
                expect_same "clipped/checkpoints/$file-00000012.safetensors" \
                    "spread-half/checkpoints/$file-00000012.safetensors"
            done
        done
    done
}

case_explain_tells_of_fused_updates() {
    expect_exit 0 "$SHOAL" explain "${large[@]}" -n 2 --optimizer momentum
    grep -q "one optimizer state of 9.0 MiB for all" stdout || fail "$(cat stdout)"
    for other in "--model mlp" "--sync local:4" "--clip-norm 1" "--optimizer lamb" "--allreduce ring" "--compress fp16"; do
        # shellcheck disable=SC2086
        expect_exit 0 "$SHOAL" explain "${large[@]}" -n 2 $other
        ! grep -q "one optimizer state" stdout || fail "$other: $(cat stdout)"
    done
}

# A killed worker is named, and the run goes on from its last checkpoint.
case_dead_worker_is_named_and_the_run_goes_on() {
    start killed
    kill -KILL "$(worker 1)"
    wait_for "worker 1 (pid" killed.err
    wait_for "ended by signal 9 (Killed)" killed.err
    wait_for "restart 1 of 3, from the last checkpoint, with 3 workers" killed.err
    wait_for "resumed after step" killed.err
    expect_file killed/flight.txt
    stop
    # What is shown of the speed begins anew with the restart.
    ! grep -E "^epoch .* -[0-9.]+ samples/s" killed.err || fail "a negative speed"
    grep -qF "go on with" killed.err || fail "nothing says how to go on"
    expect_text "sent by worker 0: " killed.err
}

case_elastic_run_goes_on_with_one_less() {
    start elastic --elastic
    kill -KILL "$(worker 0)"
    wait_for "with 2 workers" elastic.err
    wait_for "2 workers of 1 thread" elastic.err
    stop
}

case_without_restarts_a_death_fails_the_run() {
    start final --restarts 0
    kill -SEGV "$(worker 2)"
    code=0
    wait "$parent" || code=$?
    [ "$code" -eq 1 ] || fail "exit $code after a death without restarts"
    expect_text "signal 11" final.err
    expect_text "'shoal train final --resume' goes on from the last checkpoint" final.err
}

# One that finds no more memory is named with what it wanted, and the run goes on as after a death.
case_worker_without_memory_is_named() {
    if command -v prlimit >/dev/null; then
        start starved --eval-every 50
        prlimit --pid "$(worker 1)" --as=1000000
        wait_for "ran out of memory" starved.err
        wait_for "restart 1 of 3" starved.err
        wait_for "resumed after step" starved.err
        stop
        # A run that is stopped tells where the time went, too.
        wait_for "worker 2: data" starved.err
    fi
}

# A worker that hangs is named by the watchdog, and every rank says for whom it waits.
case_hanging_worker_is_named_by_the_watchdog() {
    start stopped --watchdog 10
    kill -STOP "$(worker 2)"
    wait_until grep -qE "rank 0: [a-z]+ [0-9]+, waits for rank 2" stopped.err || fail "$(cat stopped.err)"
    wait_for "worker 2 (pid" stopped.err
    wait_for "is stopped" stopped.err
    wait_for "restart 1 of 3" stopped.err
    expect_text "allreduce" stopped/flight.txt
    expect_text "is stopped" stopped/log.txt
    expect_text "restart 1 of 3" stopped/log.txt
    stop
}

# A whole team that is stopped and goes on (Ctrl-Z and fg, a suspended job) is no team that hangs.
case_suspended_team_goes_on_and_keeps_its_folder() {
    start suspended --watchdog 10
    mapfile -t team < <(pgrep -P "$parent")
    kill -STOP "$parent" "${team[@]}"
    sleep 12
    kill -CONT "${team[@]}" "$parent"
    lines=$(wc -l <suspended/metrics.jsonl)
    grew() { [ "$(wc -l <suspended/metrics.jsonl)" -gt "$((lines + 1))" ]; }
    wait_until grew || fail "it did not go on: $(cat suspended.err)"
    expect_no_text "restart" suspended.err
    # While it lives, nobody else may write into its folder.
    expect_complaint 2 "another run writes into 'suspended'" "$SHOAL" train suspended --resume
    expect_complaint 2 "another run writes into 'suspended'" "$SHOAL" train "${common[@]}" --out suspended --overwrite
    stop
}

# Runs that start at the same time without a name take folders of their own.
case_runs_that_start_together_take_folders_of_their_own() {
    pids=()
    for _ in 1 2 3; do
        "$SHOAL" train "${common[@]}" --epochs 2 --quiet >/dev/null 2>>together.err &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || fail "$(cat together.err)"; done
    for folder in runs/mlp runs/mlp-2 runs/mlp-3; do
        [ "$(grep -c '"event":"end"' "$folder/metrics.jsonl")" -eq 1 ] || fail "$folder: $(ls runs)"
    done
}

# The parent's death ends its children.
case_death_of_the_parent_ends_its_children() {
    start orphans
    mapfile -t children < <(pgrep -P "$parent")
    [ "${#children[@]}" -eq 3 ] || fail "${#children[@]} children"
    kill -KILL "$parent"
    wait "$parent" 2>/dev/null || true
    wait_until gone "${children[@]}" || fail "workers outlive their parent"
}

# Nor does memory: killed in a world whose /dev/shm is its own and empty, a run leaves it empty.
case_killed_run_leaves_no_shared_memory() {
    own=(unshare --mount)
    [ "$(id -u)" -eq 0 ] || own+=(--map-root-user)
    if "${own[@]}" mount -t tmpfs tmpfs /dev/shm 2>/dev/null; then
        cat >memory.sh <<'SH'
mount -t tmpfs tmpfs /dev/shm && . "$SRC/tests/cli/lib.sh"
"$SHOAL" train "$@" --steps 100000000 --checkpoint-every 20 -n 3 --out memory --quiet &
parent=$!
wait_until has_checkpoint memory || fail "no checkpoint"
mapfile -t children < <(pgrep -P "$parent")
kill -KILL "$parent"
wait_until gone "${children[@]}" || fail "workers outlive their parent"
[ -z "$(ls -A /dev/shm)" ] || fail "in /dev/shm: $(ls -A /dev/shm)"
SH
        expect_exit 0 "${own[@]}" bash memory.sh "${common[@]}"
    else
        echo "not tested: /dev/shm after a kill, as nothing may be mounted here"
    fi
}

# Killed while it writes a checkpoint (after every step there is one), rank 0 leaves the one before whole;
# whatever happened, the run ends with the bits of one that nobody killed.
case_killed_saves_leave_the_checkpoint_before_whole() {
    resumed() { [ "$(grep -c "^resumed after step" "$2")" -eq "$1" ]; } # TIMES FILE
    start writes --checkpoint-every 1 --restarts 20
    for deaths in 1 2 3 4; do
        sleep "0.$((RANDOM % 10))"
        kill -KILL "$(worker 0)"
        wait_for "restart $deaths of 20" writes.err
        wait_until resumed "$deaths" writes.err || fail "no resume after death $deaths: $(cat writes.err)"
    done
    grep -q "(Killed); rank 0: checkpoint " writes.err || echo "note: no death met a checkpoint this time"
    stop
    expect_no_text "damaged" writes.err
    last=$(stopped_at writes.err)
    expect_exit 0 "$SHOAL" train "${common[@]}" -n 3 --steps "$last" --eval-every 1000000 \
        --checkpoint-every 1000000 --out undisturbed
    name=$(printf 'model-%08d.safetensors' "$last")
    expect_same "writes/checkpoints/$name" "undisturbed/checkpoints/$name"
    [ -z "$(find writes/checkpoints -name '*.tmp.*')" ] || fail "unfinished files stay behind"
}

# A folder that is renamed or removed under the run: a warning, and it can still be continued.
case_renamed_folder_is_made_anew() {
    start renamed
    mv renamed elsewhere
    wait_for "'renamed' is gone and is made anew" renamed.err
    wait_until has_checkpoint renamed || fail "no checkpoint in the new folder"
    stop
    last=$(stopped_at renamed.err)
    expect_exit 0 "$SHOAL" train renamed --resume --steps "$((last + 5))"
    expect_text "resumed after step $last"
}

# A failure of one rank is told once, by the rank that understood it.
case_failure_of_a_rank_is_told_once() {
    expect_exit 1 "$SHOAL" train "${common[@]}" -n 3 --lr 100000 --epochs 3 --out nan
    expect_text "the loss is"
    [ "$(grep -c "the loss is" stderr)" -eq 1 ] || fail "said twice: $(cat stderr)"
    # Rank 0 writes it into the run's files if it saw it too, the parent if another rank did.
    expect_text "the loss is" nan/log.txt
    expect_text '"event":"stopped"' nan/metrics.jsonl
    expect_text "lower --lr"
}

# A sharded optimizer gives what a whole one does, for every kind of rule, also resumed.
case_sharded_optimizer_gives_what_a_whole_one_does() {
    for rule in "adamw" "lamb --lr 0.01" "lars --lr 0.5 --clip-norm 1"; do
        # shellcheck disable=SC2086
        expect_exit 0 "$SHOAL" train "${common[@]}" --optimizer $rule --epochs 2 -n 3 --out dense --overwrite
        dense=$(train_loss dense)
        # shellcheck disable=SC2086
        expect_exit 0 "$SHOAL" train "${common[@]}" --optimizer $rule --epochs 2 -n 3 --shard-optimizer \
            --bucket-mb 0.05 --out "shard-${rule%% *}"
        expect_loss "$dense" "shard-${rule%% *}"
        # shellcheck disable=SC2086
        expect_exit 0 "$SHOAL" train "${common[@]}" --optimizer $rule --epochs 1 -n 3 --shard-optimizer \
            --bucket-mb 0.05 --out "again-${rule%% *}"
        expect_exit 0 "$SHOAL" train "again-${rule%% *}" --resume --epochs 2
        for file in model optimizer; do
            expect_same "shard-${rule%% *}/checkpoints/$file-00000024.safetensors" \
                "again-${rule%% *}/checkpoints/$file-00000024.safetensors"
        done
    done
}

# Batchnorm over the whole batch gives what one worker computes; each for itself does not.
case_synchronised_batchnorm_gives_what_one_worker_computes() {
    cat >bn.yaml <<'YAML'
model: [{conv: {channels: 8, kernel: 3}}, batchnorm, relu, globalpool, {dense: 16}, batchnorm, relu, {dense: 10}]
data: {train: digits, batch: 100}
optimizer: {name: momentum, lr: 0.1}
epochs: 2
threads: 1
kernels: default
YAML
    expect_exit 0 "$SHOAL" train bn.yaml --out bn1
    alone=$(train_loss bn1)
    expect_exit 0 "$SHOAL" train bn.yaml -n 3 --sync-batchnorm --out bn3
    expect_loss "$alone" bn3
    expect_exit 0 "$SHOAL" train bn.yaml -n 3 --out bn-local
    ! is_close "$alone" "$(train_loss bn-local)" || fail "local batchnorm cannot give the result of the whole batch"
    expect_complaint 2 "accumulate" "$SHOAL" train bn.yaml -n 3 --sync-batchnorm --accumulate 2 --out bad
    # Who has no sample of a batch meets the others all the same: of 1500 samples the last batch has one.
    expect_exit 0 "$SHOAL" train bn.yaml --batch 1499 --epochs 3 --out bn-last
    expect_exit 0 "$SHOAL" train bn.yaml -n 4 --batch 1499 --epochs 3 --sync-batchnorm --out bn-last4
    expect_loss "$(train_loss bn-last)" bn-last4
}

# Shares that follow the speed of the workers leave the weighting alone.
case_balanced_shares_leave_the_weighting_alone() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 49 --epochs 6 --out even
    even=$(train_loss even)
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 49 --epochs 6 -n 3 --balance --out balanced
    expect_loss "$even" balanced
}
