# Hogwild: any net without a lock and with one; sparse data with sparse steps; what it refuses.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

common=(--model mlp --data digits --threads 1 --seed 3 --kernels default --lr 0.1 --epochs 6)

accuracy() { awk '/^test accuracy/ { printf "%d", $3 * 10000 }' "$WORK/stdout"; }  # in 1/10000
sparse=(--model logistic --data "synthetic:features=2000,nonzeros=20,count=20000" --seed 3 --batch 16
    --lr 2 --schedule linear --epochs 8 --threads 1)

# One worker is plain SGD.
case_one_worker_is_plain_sgd() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --out serial
    expect_exit 0 "$SHOAL" train "${common[@]}" --sync hogwild --out alone
    expect_same serial/checkpoints/model-00000072.safetensors alone/checkpoints/model-00000072.safetensors
}

case_with_and_without_locks_it_learns_and_resumes() {
    for scheme in hogwild hogwild-locked; do
        expect_exit 0 "$SHOAL" train "${common[@]}" --sync "$scheme" -n 3 --out "$scheme"
        [ "$(accuracy)" -ge 8000 ] || fail "$scheme reaches only $(accuracy)"
        expect_exit 0 "$SHOAL" train "$scheme" --resume --epochs 7 -n 2
        expect_text "resumed after step 72"
    done
}

case_momentum_goes_along() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --optimizer momentum --lr 0.02 --sync hogwild -n 2 --out momentum
    [ "$(accuracy)" -ge 8000 ] || fail "momentum reaches only $(accuracy)"
}

case_what_does_not_go_along_is_refused() {
    expect_complaint 2 "optimizer 'adam'" "$SHOAL" train "${common[@]}" --optimizer adam --sync hogwild -n 2 --out bad
    expect_complaint 2 "--compress" "$SHOAL" train "${common[@]}" --compress topk --sync hogwild -n 2 --out bad
    expect_complaint 2 "does not clip" "$SHOAL" train "${common[@]}" --clip-norm 1 --sync hogwild -n 2 --out bad
    expect_complaint 2 "needs every step's sum" "$SHOAL" train "${common[@]}" --exact --sync hogwild -n 2 --out bad
}

case_sparse_steps_touch_the_features_that_occur() {
    expect_exit 0 "$SHOAL" train "${sparse[@]}" --out sparse1
    expect_text "sparse steps: 20.0 of 2000 features"
    serial=$(accuracy)
    [ "$serial" -ge 8000 ] || fail "sparse rows are not learnt: $serial"
    for scheme in hogwild hogwild-locked; do
        expect_exit 0 "$SHOAL" train "${sparse[@]}" --sync "$scheme" -n 2 --out "sparse-$scheme"
        expect_text "sparse steps"
        [ "$(accuracy)" -ge "$((serial - 300))" ] || fail "$scheme reaches $(accuracy), alone $serial"
    done
}

# The dense layer does the same by whole gradients, up to rounding. (Value clipping far above any
# gradient changes nothing but the path.)
case_sparse_steps_have_the_loss_of_dense_ones() {
    expect_exit 0 "$SHOAL" train "${sparse[@]}" --lr 1 --steps 20 --out few
    few=$(train_loss few)
    expect_exit 0 "$SHOAL" train "${sparse[@]}" --lr 1 --steps 20 --clip-value 1e6 --out dense
    expect_no_text "sparse steps"
    expect_loss "$few" dense
}

case_libsvm_rows_train_by_sparse_steps() {
    awk 'BEGIN { srand(5); for (r = 0; r < 600; r++) { a = 1 + int(rand() * 100); b = 101 + int(rand() * 300)
        print (a <= 50 ? "+1" : "-1"), a ":1", b ":0.5" } }' >rows.libsvm
    expect_exit 0 "$SHOAL" train --model logistic --data rows.libsvm --hold-out 0.2 --batch 8 --lr 2 \
        --epochs 20 --sync hogwild -n 2 --out file
    expect_text "sparse steps: 2.0 of"
    [ "$(accuracy)" -ge 9000 ] || fail "rows.libsvm: only $(accuracy)"
}

case_data_that_is_not_sparse_is_refused() {
    expect_complaint 2 "not sparse" "$SHOAL" train --model logistic --data synthetic:features=100,nonzeros=73 --out bad
    expect_complaint 2 "bad value" "$SHOAL" train --model logistic --data synthetic:features=100,zipf=9 --out bad
}

case_bench_hogwild_measures_every_case() {
    expect_exit 0 "$SHOAL" bench hogwild --rows 200 --epochs 1 --repeat 3 --json
    [ "$(wc -l <"$WORK/stdout")" = 14 ] || fail "bench hogwild prints $(wc -l <"$WORK/stdout") lines"
    expect_exit 0 "$SHOAL" bench hogwild --rows 50 --epochs 1 --repeat 1
    expect_text "uniform features: "
    expect_text "(goal 2.00)"
    expect_text "apart"
    expect_complaint 2 "from 2 to 64" "$SHOAL" bench hogwild -n 1
}
