# What users get wrong on the command line and in run files: exit 2, what and where, and a way on.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

case_misspelt_commands_and_flags_get_a_suggestion() {
    expect_complaint 2 "there is no command 'trian'" "$SHOAL" trian
    expect_text "did you mean 'shoal train'?"
    expect_complaint 2 "there is no flag '--nothing'" "$SHOAL" --nothing
    expect_complaint 2 "there is no command 'bnech'" "$SHOAL" help bnech
    expect_text "shoal bench"
    expect_complaint 2 "unknown flag '--epoch'" "$SHOAL" train --epoch 3
    expect_text "did you mean '--epochs'?"
    expect_complaint 2 "unknown flag '--jsn'" "$SHOAL" list --jsn
    expect_text "did you mean '--json'?"
    expect_complaint 2 "unknown flag '--bench-step'" "$SHOAL" bench train --bench-step 3
    expect_text "did you mean '--bench-steps'?"
    expect_complaint 2 "needs a value" "$SHOAL" train --lr
    expect_complaint 2 "--epochs" "$SHOAL" train --epochs many
    expect_complaint 2 "no model is given" "$SHOAL" train
    expect_complaint 2 "no data is given" "$SHOAL" train --model mlp
    expect_complaint 2 "one argument too many" "$SHOAL" train a.yaml b.yaml
    expect_complaint 2 "an argument is missing" "$SHOAL" eval
    expect_text "try: shoal eval --help"
    expect_complaint 2 "there is no kind 'model'" "$SHOAL" list model
    expect_text "did you mean 'models'?"
}

case_bad_values_are_named_with_a_next_step() {
    expect_complaint 2 "there is no 'data gte'" "$SHOAL" data gte mnist
    expect_complaint 2 "there is no benchmark 'eval'" "$SHOAL" bench eval
    expect_complaint 2 "found 'x'" "$SHOAL" bench allreduce --sizes 1K,x
    expect_complaint 2 "whole floats" "$SHOAL" bench allreduce --sizes 6
    expect_complaint 2 "there is no all-reduce 'star'" "$SHOAL" bench allreduce --algorithm star
    expect_text "shoal list collectives"
    expect_complaint 2 "'adamm'" "$SHOAL" train --model mlp --data digits --optimizer adamm
    expect_complaint 2 "there is no model 'lenett'" "$SHOAL" train --model lenett --data digits --quiet
    expect_text "lenet"
    expect_complaint 2 "there is no layer 'convv'" "$SHOAL" explain --data digits --quiet \
        --model '[{convv: 3}]'
    expect_complaint 2 "loss 'hinge' has no option 'smoothing'" "$SHOAL" train --model mlp --data digits --quiet \
        --loss hinge --smoothing 0.1
    expect_text "leave 'loss.smoothing' (--smoothing) out"
    expect_complaint 2 "all-reduce 'mpi' needs MPI" "$SHOAL" train --model mlp --data digits --quiet -n 2 --allreduce mpi
    expect_complaint 2 "has no work for 9 workers" "$SHOAL" train --model mlp --data digits -n 9 --batch 8
    expect_complaint 2 "holds no run" "$SHOAL" explain "$HOME"
    for flag in --load --resume; do
        expect_complaint 1 "cannot open 'none'" "$SHOAL" train --model mlp --data digits --quiet $flag none --out bad
        expect_text "try: give a run's folder" stderr
    done
    expect_complaint 1 "cannot open 'none.yaml'" "$SHOAL" train none.yaml
    expect_text "try: name a run file, or leave it out" stderr
    for command in train simulate "compare --sync bsp,local:4"; do
        # shellcheck disable=SC2086
        expect_complaint 2 "--out '' names no folder" "$SHOAL" $command --model mlp --data digits --out "" --quiet
        expect_text "try: --out runs/NAME" stderr
    done
    expect_complaint 2 "a batch of 128 cannot be cut into 1000 parts" "$SHOAL" train --model mlp --data digits --accumulate 1000
    expect_text "try: use --accumulate 128 or less" stderr
}

# A benchmark is refused what this machine cannot measure, with what it can instead.
case_benchmark_beyond_the_machine_says_what_fits() {
    expect_complaint 2 "4096 workers on " taskset -c "$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')" \
        "$SHOAL" bench allreduce -n 4096
    expect_text "try: -n 32 at most; what a sum between 4096 would cost, 'shoal explain allreduce -n 4096' computes"
    expect_complaint 1 "not enough memory" "$SHOAL" bench allreduce --sizes 1024G
    expect_text "in a benchmark smaller --sizes" stderr
}

# run TEXT CODE WORDS...   a run file with this text is refused with these words.
case_bad_run_files_are_refused_with_line_and_column() {
    run() {
        local text=$1 code=$2
        shift 2
        printf '%b' "$text" >bad.yaml
        expect_exit "$code" "$SHOAL" train bad.yaml --out bad --quiet
        expect_text "shoal: train: " stderr
        for words in "$@"; do expect_text "$words" stderr; done
        [ ! -s stdout ] || fail "wrote to stdout"
        expect_no_file bad
    }
    run 'model: mlp\ndata: digits\nepochs: lots\n' 2 "bad.yaml:3:1" "lots"
    run 'model: mlp\ndata: digits\noptimizer:\n  lr: [1]\n' 2 "bad.yaml:4:3"
    run 'model: mlp\ndata: digits\nepoch: 3\n' 2 "bad.yaml:3:1" "unknown key 'epoch'" "did you mean 'epochs'?"
    run 'model: mlp\ndata: digits\nlr: 3\n' 2 "unknown key 'lr'" "did you mean 'optimizer.lr'?"
    run 'model: [mlp\n' 2 "bad.yaml:"
    run 'model: mlp\nmodel: mlp\n' 2 "bad.yaml:2:1"
    run 'model: &a mlp\ndata: *a\n' 2 "bad.yaml:"
    run '- a\n- b\n' 2 "bad.yaml:"
    run 'model: mlp\ndata: digits\nepochs: 1e30\n' 2 "bad.yaml:3:1"
    run 'model: [flatten, {dense: 10}, {add: , from: [nobody]}]\ndata: digits\n' 2 "bad.yaml:1:" "nobody"
    run 'data: digits\nmodel:\n  - {dense: 10}\n' 1 "bad.yaml:3:" "put a flatten before it"
    run '' 2 "no model is given"
    awk -v seed="$SEED" 'BEGIN { srand(seed); for (i = 0; i < 4096; i++) printf "%c", int(256 * rand()) }' >noise.yaml
    expect_exit 2 "$SHOAL" train noise.yaml
    expect_complaint 1 "none.yaml" "$SHOAL" train none.yaml
}

# Standard streams that are closed: nothing of what would be said there gets into a file of the run.
case_closed_streams_put_no_words_into_files() {
    for workers in 1 2; do
        code=0
        "$SHOAL" train --model mlp --data digits --threads 1 --steps 30 --log-every 5 -n $workers --out "mute$workers" \
            <&- >&- 2>&- || code=$?
        [ "$code" -eq 1 ] || fail "exit $code with closed streams"
        ! grep -v '^{.*}$' "mute$workers/metrics.jsonl" || fail "words among the metrics"
        expect_no_file "mute$workers"/*.tmp.*
    done
}

# Nor does what a file holds command the terminal.
case_values_in_a_file_command_no_terminal() {
    printf 'A \033c 2\nB 1 2\n' >hostile.txt
    expect_complaint 1 "is no number: '\\x1bc'" "$SHOAL" explain allreduce --values hostile.txt
}
