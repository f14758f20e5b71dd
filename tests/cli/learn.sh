# Learners that are not nets: training, evaluation, prediction and resuming, at several numbers of workers.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

train() { "$SHOAL" train --data digits --threads 1 --quiet "$@"; }

# The newest model of a run.
model() { find "$1/checkpoints" -name 'model-*.safetensors' | sort | tail -n 1; }

# 700 rows of three features and a value.
write_values() {
    awk 'BEGIN { print "a,b,c,y"; for (i = 0; i < 700; i++) { a = i * 7 % 111; b = i * 5 % 13; c = i * i % 17
        print a "," b "," c "," 2 * a - b + i % 3 + 0.5 } }' >values.csv
}

# `same_at_any_count MODEL`
same_at_any_count() {
    for workers in 1 2 3 5; do
        expect_exit 0 train --model "$1" -n $workers --out "at$workers"
        expect_same "$(model at1)" "$(model "at$workers")"
    done
}

case_kmeans_has_the_same_bits_at_any_worker_count() { same_at_any_count '{name: kmeans, k: 10}'; }
case_minibatches_have_too() {
    same_at_any_count '{name: kmeans, k: 10, solver: minibatch, iterations: 20}'
}
case_logistic_has_too() { same_at_any_count '{name: logistic, solver: newton}'; }
case_l2svm_has_too() { same_at_any_count '{name: l2svm, tolerance: 0.1}'; }
case_least_squares_has_too() {
    write_values
    for solver in auto tsqr newton; do
        rm -rf at*
        for workers in 1 2 3; do
            expect_exit 0 train --data values.csv --model "{name: linear, solver: $solver, l2: 1}" \
                -n $workers --out "at$workers"
            expect_same "$(model at1)" "$(model "at$workers")"
        done
    done
}

case_bounds_change_no_bit() {
    expect_exit 0 train --model '{name: kmeans, k: 20}' --out bounded
    expect_exit 0 train --model '{name: kmeans, k: 20, solver: plain}' -n 2 --out plain
    # The files differ in the text of the model; the centres come last.
    cmp <(tail -c $((20 * 64 * 4)) "$(model bounded)") <(tail -c $((20 * 64 * 4)) "$(model plain)") ||
        fail "the centres differ"
}

case_a_saved_model_evaluates_and_predicts() {
    expect_exit 0 train --model '{name: kmeans, k: 10}' --out clusters
    expect_exit 0 "$SHOAL" eval clusters
    expect_text "loss      19.6"
    expect_exit 0 "$SHOAL" predict clusters --classes -o clusters.csv
    [ "$(wc -l <clusters.csv)" -eq 298 ] || fail "a row is missing"
    [ "$(cut -d, -f2 clusters.csv | tail -n +2 | sort -u | wc -l)" -eq 10 ] || fail "a cluster is missing"
    expect_exit 0 train --model '{name: logistic, solver: newton}' --out classes
    expect_exit 0 "$SHOAL" eval "$(model classes)" --data digits
    expect_text "accuracy  0.9"
}

case_a_resumed_run_ends_with_the_same_bits() {
    for m in '{name: kmeans, k: 10}' '{name: kmeans, k: 10, solver: minibatch, iterations: 12}' \
        '{name: logistic, solver: newton, tolerance: 1e-6}' '{name: l2svm, tolerance: 0.1}'; do
        rm -rf whole resumed
        expect_exit 0 train --model "$m" --checkpoint-every 3 --checkpoint-keep 100 -n 2 --out whole
        expect_exit 0 train --model "$m" -n 3 --resume whole/checkpoints/manifest-00000003.json --out resumed
        expect_same "$(model whole)" "$(model resumed)"
    done
}

case_sgd_learns_what_it_did() {
    expect_exit 0 train --model logistic --epochs 1 --out plain
    expect_exit 0 train --model '{name: logistic, solver: sgd}' --epochs 1 --out named
    cmp <(tail -c 2600 "$(model plain)") <(tail -c 2600 "$(model named)") || fail "the weights differ"
    expect_exit 0 train --model '{name: kmeans, k: 10, solver: sgd}' --lr 0.001 --epochs 1 -n 2 --out sgd
}

case_what_cannot_be_is_refused_by_name() {
    expect_exit 2 train --model '{name: kmeans, k: 1501}' -n 2 --out no
    expect_text "1501 clusters, but the data has only 1500 rows"
    expect_exit 2 train --model '{name: kmeans, seeds: given}' --out no
    expect_text "no file of centres is"
    expect_exit 2 train --model '{name: linear, solver: auto}' --out no
    expect_text "wants one value for each row, but the data has class labels"
    expect_exit 2 train --model l2svm --sync local:4 -n 2 --out no
    expect_text "a scheme other than bsp says nothing here"
    write_values
    expect_exit 2 train --model '{name: linear, solver: newton, l1: 1}' --data values.csv --out no
    expect_text "take solver auto"
    printf 'a,y\n1,5\n2,5\n3,5\n' >one.csv
    expect_exit 2 "$SHOAL" train --model l2svm --data one.csv --targets classes --out no
    expect_text "all rows are of one class"
}

case_columns_made_up_of_others_are_named() {
    awk 'BEGIN { print "a,b,c,y"; for (i = 0; i < 60; i++) { a = i * 7 % 11; b = i * 5 % 13
        print a "," b "," a + b "," 2 * a - b + 1 + 0.5 } }' >sums.csv
    expect_exit 0 "$SHOAL" train --model '{name: linear, solver: auto}' --data sums.csv --data.normalise none \
        -n 2 --out sums
    expect_text "1 column (first: 2) are made up of others"
    expect_text "R2 1.000000"
}

case_svm_has_the_same_bits_at_any_worker_count() {
    for solver in smo cascade dc-filter ca-fcfs; do
        rm -rf at*
        same_at_any_count "{name: svm, c: 4, solver: $solver, parts: 4}"
    done
}

case_a_saved_svm_evaluates_and_predicts() {
    expect_exit 0 train --model '{name: svm, c: 4}' -n 2 --out svm
    expect_exit 0 "$SHOAL" eval svm
    expect_text "accuracy  0.9"
    expect_exit 0 "$SHOAL" eval "$(model svm)" --data digits
    expect_text "accuracy  0.9"
    expect_exit 0 "$SHOAL" predict svm --classes -o svm.csv
    [ "$(wc -l <svm.csv)" -eq 298 ] || fail "a row is missing"
    write_values
    expect_exit 0 "$SHOAL" train --model '{name: svm, c: 10}' --data values.csv -n 2 --quiet --out values
    expect_exit 0 "$SHOAL" eval values --part train
    expect_exit 1 "$SHOAL" train --model "{name: svm, c: 4}" --data digits --load "$(model svm)" --out no
    expect_text "does not fit the model"
}

case_svm_parts_send_nothing_in_training() {
    for solver in cp ca-bkm ca-fcfs ca-random; do
        expect_exit 0 train --model "{name: svm, solver: $solver, parts: 3}" -n 3 --out $solver
        grep -q '"training_bytes":0,' $solver/metrics.jsonl || fail "$solver sent something"
    done
    expect_exit 0 train --model '{name: svm}' -n 3 --out smo
    ! grep -q '"training_bytes":0,' smo/metrics.jsonl || fail "smo sent nothing"
}
