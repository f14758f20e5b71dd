# Under mpirun: the result of one process and of shared memory, whatever happens to a rank.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"
. "$SRC/tests/cli/mpi_lib.sh"

short=("${common[@]}" --batch 49 --epochs 1 --overwrite)
tables=(--model mlp --data table.csv --test-data test.csv --threads 1)

prepare() {
    expect_exit 0 "$SHOAL" train "${short[@]}" --out one
    one=$(train_loss one)
    expect_exit 0 "$SHOAL" train "${short[@]}" -n 3 --out shm
    expect_loss "$one" shm

    expect_exit 0 "$SHOAL" train "${short[@]}" --exact --out exact

    mkdir data-a data-b
    awk 'BEGIN { for (i = 0; i < 2000; i++) print i % 7 "," i % 11 "," i % 2 }' >data-a/table.csv
    cp data-a/table.csv data-b/table.csv
    cp data-a/table.csv data-a/test.csv
    sed '$s/.$/0/' data-a/table.csv >data-b/test.csv
    # Another build: the program with one byte of its build-id changed.
    cp "$SHOAL" rebuilt
    id_at=$(readelf -SW rebuilt | sed -n 's/.*note.gnu.build-id *NOTE *[0-9a-f]* *\([0-9a-f]*\).*/\1/p')
    printf '\x5a\xa5' | dd of=rebuilt bs=1 seek=$((16#$id_at + 20)) conv=notrunc status=none
}

case_three_ranks_give_the_result_of_one() {
    one=$(train_loss one)
    for flavour in $(flavours); do
        use "$flavour"
        expect_exit 0 ranks 3 "$SHOAL" train "${short[@]}" --out "$flavour"
        expect_text "3 workers of 1 thread"
        expect_text "worker 2: data"
        expect_loss "$one" "$flavour"
        [ "$(grep -c '^run ' stdout)" -eq 1 ] || fail "not only rank 0 prints the result"
    done
}

# One rank alone, by a flag; and a run file's count gives way to the launcher's.
case_count_of_the_launcher_wins() {
    one=$(train_loss one)
    for flavour in $(flavours); do
        use "$flavour"
        expect_exit 0 ranks 1 "$SHOAL" train "${short[@]}" --transport mpi -n 5 --out "$flavour-1"
        expect_text "5 workers are asked for, and the launcher started 1"
        expect_loss "$one" "$flavour-1"
    done
}

# Each algorithm meets each MPI in tests/comm/mpi; here all of them train once.
case_every_all_reduce_trains() {
    one=$(train_loss one)
    for flavour in $(flavours); do
        use "$flavour"
        [ "$flavour" = openmpi ] && every=(ring halving-doubling tree hierarchical direct mpi) || every=(ring mpi)
        for allreduce in "${every[@]}"; do
            expect_exit 0 ranks 3 "$SHOAL" train "${short[@]}" --allreduce "$allreduce" --no-overlap \
                --bucket-mb 0.05 --out "$flavour"
            expect_loss "$one" "$flavour"
        done
    done
}

# Exact runs have the bits of one worker, whoever sums.
case_exact_runs_have_the_bits_of_one_worker() {
    for flavour in $(flavours); do
        use "$flavour"
        [ "$flavour" = openmpi ] && exact=("4 mpi" "2 hierarchical" "3 tree" "6 halving-doubling" "8 ring") ||
            exact=("4 mpi" "3 direct")
        for case in "${exact[@]}"; do
            expect_exit 0 ranks "${case% *}" "$SHOAL" train "${short[@]}" --exact --allreduce "${case#* }" --out "$flavour"
            expect_same exact/checkpoints/model-00000031.safetensors \
                "$flavour/checkpoints/model-00000031.safetensors"
        done
    done
}

# What is not trained rank 0 does alone: the result of one process, once.
case_eval_is_done_by_rank_0_alone() {
    for flavour in $(flavours); do
        use "$flavour"
        expect_exit 0 "$SHOAL" eval one
        cp stdout one.eval
        expect_exit 0 ranks 3 "$SHOAL" eval one
        expect_same one.eval stdout
        expect_text "3 ranks were started: rank 0 does this alone" stderr
        expect_exit 2 ranks 3 "$SHOAL" eval one --part all
        [ "$(grep -c '^shoal: eval' stderr)" -eq 1 ] || fail "$(cat stderr)"
    done
}

# Ranks that would train different things do not start, also if they would sum differently.
case_ranks_that_differ_do_not_start() {
    for flavour in $(flavours); do
        use "$flavour"
        for other in "--lr 0.5" "--allreduce ring"; do
            [ "$other" = "--lr 0.5" ] && key="optimizer.lr: 0.5" || key="allreduce: ring"
            # shellcheck disable=SC2086
            expect_exit 2 ranks 1 "$SHOAL" train "${common[@]}" --out "$flavour-differ" : \
                -n 1 "$SHOAL" train "${common[@]}" $other --out "$flavour-differ"
            expect_text "rank 1 differs from rank 0: '$key' instead of '"
            expect_text "1 of 2 ranks have other settings than rank 0"
        done
        # So do ranks that see other data under the same name, here by the last digit of the test set, and
        # ranks with another build of the program.
        expect_exit 2 ranks 1 -wdir "$WORK/data-a" "$SHOAL" train "${tables[@]}" --out "$WORK/$flavour-differ" : \
            -n 1 -wdir "$WORK/data-b" "$SHOAL" train "${tables[@]}" --out "$WORK/$flavour-differ"
        expect_text "rank 1 differs from rank 0: 'test data: "
        SHOAL_MPI=$(dirname "$SHOAL") expect_exit 2 ranks 1 "$SHOAL" train "${common[@]}" --out "$flavour-differ" : \
            -n 1 ./rebuilt train "${common[@]}" --out "$flavour-differ"
        expect_text "rank 1 differs from rank 0: 'program: shoal "
        expect_exit 2 ranks 2 "$SHOAL" train "${short[@]}" --transport shm --out "$flavour-shm"
        expect_text "--transport shm, but a launcher of $flavour started several processes"
    done
}

# A failure of all is told by rank 0 alone, a failure of one by that one.
case_failure_is_told_once() {
    for flavour in $(flavours); do
        use "$flavour"
        expect_exit 1 ranks 3 "$SHOAL" train "${common[@]}" --lr 100000 --out "$flavour-nan"
        expect_text "the loss is"
        expect_exit 1 ranks 1 "$SHOAL" train "${common[@]}" --out "$flavour-file" : \
            -n 1 "$SHOAL" train "${common[@]}" --data no-such-file.csv --out "$flavour-file"
        expect_text "rank 1: "
    done
}

# A killed rank ends the job; launched again it goes on, on fewer ranks if need be.
case_killed_rank_ends_the_job_and_fewer_go_on() {
    for flavour in $(flavours); do
        use "$flavour"
        start "$flavour-killed"
        kill -KILL "$(rank_pids | sed -n 2p)"
        expect_end "$flavour-killed"
        last=$(find "$flavour-killed/checkpoints" -name 'manifest-*.json' | sort | tail -n 1)
        last=$((10#$(basename "$last" .json | tr -dc 0-9)))
        expect_exit 0 ranks 2 "$SHOAL" train "$flavour-killed" --resume auto --steps $((last + 20))
        expect_text "resumed after step $last"
    done
}

case_signals_stop_it_after_a_checkpoint() {
    for flavour in $(flavours); do
        use "$flavour"
        for signal in INT TERM USR1; do stop "$flavour-$signal" "$signal"; done
    done
}

# A rank that hangs: the others say for whom they wait, in what, and leave their last operations.
# So they do when they are inside MPI's own all-reduce.
case_hanging_rank_is_named_by_the_others() {
    use_last
    for allreduce in ring direct mpi; do
        start "hangs-$allreduce" --watchdog 10 --allreduce "$allreduce"
        hung=$(rank_pids | sed -n 2p)
        kill -STOP "$hung"
        expect_end "hangs-$allreduce"
        expect_text "rank 0 waited" "hangs-$allreduce.err"
        expect_text "rank 2 waited" "hangs-$allreduce.err"
        # In a ring rank 0 may wait for rank 2, which waits for the one that hangs.
        grep -qE "rank 0: [a-z]+ [0-9]+, waits for rank [12]" "hangs-$allreduce.err" ||
            fail "nothing says for whom rank 0 waits"
        grep -qE "rank [02]: [a-z]+ [0-9]+, waits for rank 1" "hangs-$allreduce.err" ||
            fail "nobody says that rank 1 is waited for"
        expect_text "worker 1 (pid $hung) is stopped" "hangs-$allreduce.err"
        expect_text "allreduce $allreduce" "hangs-$allreduce/flight-0.txt"
        expect_text "allreduce $allreduce" "hangs-$allreduce/flight-2.txt"
        expect_text "allreduce" "hangs-$allreduce/flight-1.txt" # written by rank 0, which sees its board
    done
}

# If it is rank 0 that hangs, the next one tells, and writes its operations.
case_hanging_rank_0_is_named_by_the_next() {
    use_last
    start hangs-first --watchdog 10 --allreduce ring
    hung=$(rank_pids | sed -n 1p)
    kill -STOP "$hung"
    expect_end hangs-first
    grep -qE "rank [12]: [a-z]+ [0-9]+, waits for rank 0" hangs-first.err || fail "nobody says that rank 0 is waited for"
    expect_text "worker 0 (pid $hung) is stopped" hangs-first.err
    expect_text "allreduce ring" hangs-first/flight-0.txt
}

# MPI's own start and end wait for all ranks without a limit: the watchdog's holds there, too.
case_watchdog_limits_the_start_and_end_of_mpi() {
    cat >hang.c <<'end'
#include <unistd.h>
int HANGS(void);
int HANGS(void) { for (;;) pause(); }
end
    "$CC" -shared -fPIC -DHANGS=MPI_Init_thread -o hang-start.so hang.c
    "$CC" -shared -fPIC -DHANGS=MPI_Finalize -o hang-end.so hang.c
    for flavour in $(flavours); do
        use "$flavour"
        # Until its end a rank must have come through the start, on a machine that may be busy.
        for part in "start 4" "end 15"; do
            expect_exit 1 ranks 2 env LD_PRELOAD="$WORK/hang-${part% *}.so" "$SHOAL" train "${short[@]}" \
                --watchdog "${part#* }" --out hang
            grep -qE "waited ${part#* }.0 s for the others in MPI's ${part% *}" stderr || fail "nothing about MPI's ${part% *}: $(cat stderr)"
        done
    done
}

# What is built on the sums does not see the transport.
case_transport_does_not_change_what_sums_are_used_for() {
    use_last
    for flags in "--shard-optimizer --optimizer adamw" "--compress topk:1%" "--compress fp16 --balance"; do
        # shellcheck disable=SC2086
        expect_exit 0 "$SHOAL" train "${short[@]}" $flags -n 3 --out shm
        wanted=$(train_loss shm)
        # shellcheck disable=SC2086
        expect_exit 0 ranks 3 "$SHOAL" train "${short[@]}" $flags --out mpi
        expect_loss "$wanted" mpi
    done
}

# The benchmark counts the ranks, and only rank 0 prints.
case_benchmarks_count_the_ranks_and_rank_0_prints() {
    use_last
    expect_exit 0 ranks 2 "$SHOAL" bench train "${common[@]}" --seconds 0.1 --json
    [ "$(wc -l <stdout)" -eq 1 ] || fail "not only rank 0 prints"
    expect_text '"workers":2,"threads":1'
    expect_exit 0 ranks 2 "$SHOAL" bench allreduce --sizes 64K --seconds 0.05 --json
    [ "$(wc -l <stdout)" -eq 1 ] || fail "not only rank 0 prints"
    expect_text '"ranks":2'
}
