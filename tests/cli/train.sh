# From nothing to a trained model: train, the run's folder, eval and predict that agree with it.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

# Results are compared to the last bit, so that no kernel may be chosen by the clock.
mlp=(--model "{name: mlp, hidden: [64]}" --data digits --batch 32 --optimizer momentum --lr 0.05
    --kernels default)

# of_training KEY   what the run of `prepare` said at its end.
of_training() { sed -n "s/^$1 *\([^ ]*\).*/\1/p" trained.out; }

prepare() {
    expect_exit 0 "$SHOAL" train "${mlp[@]}" --epochs 6 --out run
    mv stdout trained.out
    mv stderr trained.err
}

case_training_learns_and_leaves_its_files() {
    expect_text "epoch 6/6" trained.err
    expect_no_text $'\r' trained.err # no live line where there is no terminal
    accuracy=$(of_training "test accuracy")
    awk -v a="$accuracy" 'BEGIN { exit !(a > 0.9) }' || fail "test accuracy $accuracy"
    expect_file "$(of_training model)"
    for file in run.yaml metrics.jsonl log.txt; do expect_file "run/$file"; done
    [ "$(grep -c '"test_accuracy"' run/metrics.jsonl)" -eq 6 ] || fail "not one evaluation per epoch"
}

# eval gives the accuracy that training ended with, from the folder and from the model file.
case_eval_agrees_with_training() {
    accuracy=$(of_training "test accuracy")
    model=$(of_training model)
    expect_exit 0 "$SHOAL" eval run --json
    grep -qE '^\{"checkpoint":"run","part":"test","loss":[0-9.e-]+,"accuracy":[0-9.]+,"samples":297\}$' \
        stdout || fail "eval --json: $(cat stdout)"
    awk -F'"accuracy":' -v a="$accuracy" '{ d = $2 - a; exit !(d < 1e-3 && d > -1e-3) }' stdout ||
        fail "eval disagrees with $accuracy"
    cp stdout eval.json
    for checkpoint in "$model" run/checkpoints; do
        expect_exit 0 "$SHOAL" eval "$checkpoint" --json
        [ "$(sed 's/.*"part"//' stdout)" = "$(sed 's/.*"part"//' eval.json)" ] || fail "$checkpoint"
    done
}

# A model file on its own knows which model it is, and needs data.
case_model_file_alone_knows_its_model() {
    model=$(of_training model)
    expect_exit 0 "$SHOAL" eval run --json
    cp stdout eval.json
    cp "$model" alone.safetensors
    expect_complaint 2 "no data is given" "$SHOAL" eval alone.safetensors --quiet
    for told in "" "--model={name: mlp, hidden: [64]}"; do
        expect_exit 0 "$SHOAL" eval alone.safetensors ${told:+"$told"} --data digits --json --batch 32 --kernels default
        [ "$(sed 's/.*"part"//' stdout)" = "$(sed 's/.*"part"//' eval.json)" ] || fail "alone"
    done
    expect_complaint 1 "fc1.weight" "$SHOAL" eval alone.safetensors --model mlp --data digits --quiet
}

# predict: as many classes right as eval says; the files hold what stdout shows.
case_predict_writes_the_outputs() {
    expect_exit 0 "$SHOAL" predict run --quiet
    [ "$(wc -l <stdout)" -eq 298 ] || fail "predict wrote $(wc -l <stdout) lines"
    [ "$(head -n 1 stdout | cut -d, -f1-3)" = "sample,class,output0" ] || fail "heading of the CSV"
    awk -F, 'NR > 1 { best = 3; for (i = 4; i <= NF; i++) if ($i > $best) best = i
        if (best - 3 != $2) exit 1 }' stdout || fail "a class is not the largest output"
    cp stdout predicted.csv
    expect_exit 0 "$SHOAL" predict run --quiet -o file.csv
    expect_same predicted.csv file.csv
    expect_exit 0 "$SHOAL" predict run --quiet --classes
    [ "$(tail -n +2 stdout)" = "$(tail -n +2 predicted.csv | cut -d, -f1,2)" ] || fail "--classes"
    expect_exit 0 "$SHOAL" predict run --quiet -o file.npy
    [ "$(head -c 6 file.npy | od -An -tx1 | tr -d ' ')" = 934e554d5059 ] || fail "NPY magic"
    expect_text "'shape': (297, 10)" file.npy
    [ "$(stat -c %s file.npy)" -eq $((128 + 297 * 10 * 4)) ] || fail "size of the NPY"
    first=$(od -An -tf4 -j128 -N4 file.npy | tr -d ' ')
    awk -F, -v f="$first" 'NR == 2 { d = $3 - f; exit !(d < 1e-5 && d > -1e-5) }' predicted.csv ||
        fail "NPY and CSV differ"
    expect_complaint 2 "neither .csv nor .npy" "$SHOAL" predict run -o file.txt
    expect_no_file file.txt
}

# The resolved run file gives the same run, bit for bit.
case_resolved_run_file_gives_the_same_run() {
    model=$(of_training model)
    expect_exit 0 "$SHOAL" train run/run.yaml --out again --quiet
    expect_same "$model" "again/${model#run/}"
}

# A folder that holds a run is not overwritten unasked; without --out a new one is taken.
case_run_is_not_overwritten_unasked() {
    model=$(of_training model)
    cp "$model" before
    expect_complaint 2 "already holds a run" "$SHOAL" train "${mlp[@]}" --out run --quiet
    expect_same before "$model"
    expect_exit 0 "$SHOAL" train "${mlp[@]}" --steps 2 --out run --overwrite --quiet
    expect_no_file "$model"
    expect_exit 0 "$SHOAL" train "${mlp[@]}" --steps 2 --quiet
    expect_exit 0 "$SHOAL" train "${mlp[@]}" --steps 2 --quiet
    expect_file runs/mlp/run.yaml
    expect_file runs/mlp-2/run.yaml
}

# Named by its run file, with flags that win over it wherever they stand.
case_run_is_named_by_its_run_file() {
    printf 'model: mlp\ndata: digits\nepochs: 9\n' >little.yaml
    expect_exit 0 "$SHOAL" train --epochs 1 little.yaml --quiet
    expect_text "epochs: 1" runs/little/run.yaml
}

# Whole numbers are classes, unless the user says that they are values to regress on: y = 3 a + 2 b + 1.
case_whole_numbers_may_be_values() {
    awk 'BEGIN { print "a,b,y"; for (i = 0; i < 400; i++) { a = i % 8; b = int(i / 8) % 10; print a "," b "," 3 * a + 2 * b + 1 } }' \
        >whole.csv
    line=(--model "[{dense: 1}]" --data whole.csv --test-data whole.csv --batch 16 --lr 0.05 --epochs 40 --quiet)
    expect_complaint 2 "wants float targets, but the data has class labels" "$SHOAL" train "${line[@]}" \
        --model "[dense]" --loss mse --out line
    expect_text "--targets values"
    expect_exit 0 "$SHOAL" train "${line[@]}" --targets values --out line
    expect_text "targets: values" line/run.yaml
    expect_exit 0 "$SHOAL" eval line --json
    awk -F'"loss":' '{ exit !($2 + 0 < 1e-3) }' stdout || fail "regression on whole numbers: $(cat stdout)"
    expect_exit 0 "$SHOAL" data info whole.csv --targets values --json
    expect_text '"target":"values","classes":0,"values":1,"target_range":[1.0,40.0]' stdout
    expect_complaint 2 "has classes as its targets, not values" "$SHOAL" train "${mlp[@]}" --targets values --out no
    printf 'a,y\n1,0\n2,0.5\n' >half.csv
    expect_complaint 1 "sample 1 has label 0.5, which is not a class" "$SHOAL" data info half.csv --targets classes
}

# A batch is cut into as many parts as --accumulate says, also where they cannot be equal.
case_accumulation_cuts_a_batch_into_uneven_parts() {
    expect_exit 0 "$SHOAL" train --model linear --data digits --batch 9 --accumulate 4 --steps 1 --trace --out cut -q
    [ "$(grep -c '"name":"fc","cat":"backward"' cut/trace.json)" = 4 ] || fail "9 samples are not cut into 4 parts"
}
