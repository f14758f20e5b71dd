# shoal explain of a run: as its workers have it, and of a run that has been as it was.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

mlp=(--model mlp --data digits)
head_is() { [ "$(head -n 1 "$WORK/stdout")" = "$1" ] || fail "$(head -n 1 "$WORK/stdout"), expected $1"; }
kernels() { sed -n '/^layer/,/^$/p' "$WORK/stdout"; }

prepare() {
    expect_exit 0 "$SHOAL" train "${mlp[@]}" -n 2 --threads 3 --batch 100 --steps 3 --out run --quiet
    sed -i 's/^threads: 3$/threads: 0/' run/run.yaml
}

# A worker takes its share of a batch, and computes it in parts where it accumulates.
case_share_and_accumulation_of_a_worker_are_shown() {
    expect_exit 0 "$SHOAL" explain "${mlp[@]}" --kernels default --threads 1 --batch 1000
    head_is "sample 1x8x8, batch 1000, 2 steps per epoch, 1 thread"
    one=$(sed -n 's/^memory.* scratch \([0-9.]*\) .*/\1/p' stdout)
    expect_exit 0 "$SHOAL" explain "${mlp[@]}" --kernels default --threads 1 --batch 1000 -n 3 --accumulate 4
    head_is "sample 1x8x8, batch 1000, 334 on each worker, 84 at a time, 2 steps per epoch, 3 workers of 1 thread"
    expect_text "memory of each worker, MiB: parameters 0.2,"
    several=$(sed -n 's/^memory.* scratch \([0-9.]*\) .*/\1/p' stdout)
    awk "BEGIN { exit !($several < $one / 4) }" || fail "84 samples take $several MiB, 1000 took $one"
    expect_exit 0 "$SHOAL" explain "${mlp[@]}" --kernels default --threads 2 --batch 100 -n 3 --exact --shards 8
    head_is "sample 1x8x8, batch 100, 39 on each worker, 13 at a time, 15 steps per epoch, 3 workers of 2 threads"
}

# Of 600 samples in two parts each worker deals its 300 to the five steps of an epoch.
case_parts_are_dealt_over_the_steps() {
    for part in 0 1; do
        awk -v part=$part 'BEGIN { for (i = 0; i < 300; i++) print i * 7 % 11 "," (i + part) % 5 "," i % 2 }' >part-$part.csv
    done
    cp part-0.csv test.csv
    expect_exit 0 "$SHOAL" explain --model mlp --data part-%r.csv --test-data test.csv -n 2 --threads 1 --kernels default
    head_is "sample 2, batch 128, 60 on each worker, 5 steps per epoch, 2 workers of 1 thread"
}

# The run file leaves them open: they are those the run had, not those it would have now.
case_threads_are_those_of_the_run() {
    expect_exit 0 "$SHOAL" explain run
    head_is "sample 1x8x8, batch 100, 50 on each worker, 15 steps per epoch, 2 workers of 3 threads"
    expect_text "at the peak of the last run"
}

# Whatever this machine has come to prefer since.
case_kernels_are_those_of_the_run() {
    expect_exit 0 "$SHOAL" explain run
    kernels >before
    other=openblas
    ! grep -q '^fc1 .* openblas / ' before || other=onednn
    sed -i "/\"gemm/s/: \"[a-z]*\"/: \"$other\"/" "$XDG_CACHE_HOME"/shoal/kernels-*.json
    expect_exit 0 "$SHOAL" explain run
    kernels >after
    expect_same before after
    expect_exit 0 "$SHOAL" explain "${mlp[@]}" -n 2 --threads 3 --batch 100
    kernels >now
    grep -q "^fc1 .* $other / $other" now || fail "$(cat now)"
}

# Flags make another run of it.
case_flags_make_another_run() {
    expect_exit 0 "$SHOAL" explain run -n 1 --threads 1 --batch 60
    head_is "sample 1x8x8, batch 60, 25 steps per epoch, 1 thread"
}

# Without a whole checkpoint only the run file is left.
case_without_checkpoint_the_run_file_is_left() {
    rm run/checkpoints/model-*
    expect_exit 0 "$SHOAL" explain run
    expect_text "all are damaged: threads and kernels are those that a run would have now" stderr
    expect_text ", 50 on each worker, 15 steps per epoch, 2 workers of " stdout
    rm -r run/checkpoints
    expect_exit 0 "$SHOAL" explain run
    expect_text "there is no checkpoint in" stderr
}
