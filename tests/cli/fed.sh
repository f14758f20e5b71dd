# Federated training in one process, as a user meets it.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

digits=(--model "{name: mlp, hidden: [16]}" --data digits --optimizer sgd --lr 0.1 --batch 32 --threads 1 --kernels default)

prepare() {
    expect_exit 0 "$SHOAL" fed simulate "${digits[@]}" --clients 12 --rounds 6 --fraction 0.5 --partition dirichlet:0.5 --out a
    cp stdout a.stdout
}

case_a_run_leaves_metrics_log_and_model() {
    for file in run.yaml metrics.jsonl log.txt checkpoints/model-00000006.safetensors; do expect_file "a/$file"; done
    expect_text "rounds         6" a.stdout
    expect_text "updates        36" a.stdout
    [ "$(grep -c '"event":"step"' a/metrics.jsonl)" -eq 6 ] || fail "$(cat a/metrics.jsonl)"
    [ "$(grep -c '"event":"eval"' a/metrics.jsonl)" -eq 6 ] || fail "$(cat a/metrics.jsonl)"
    expect_text '"clients":6' a/metrics.jsonl
}

case_the_model_serves_as_that_of_any_run() {
    told=$(sed -nE 's/^test accuracy  (.*)/\1/p' a.stdout)
    expect_exit 0 "$SHOAL" eval a/checkpoints/model-00000006.safetensors --data digits
    [ "$(sed -nE 's/^accuracy  (.*)/\1/p' stdout | LC_ALL=C awk '{ printf "%.4f", $1 }')" = "$told" ] || fail "$told: $(cat stdout)"
}

case_the_seed_fixes_every_bit() {
    expect_exit 0 "$SHOAL" fed simulate "${digits[@]}" --clients 12 --rounds 6 --fraction 0.5 --partition dirichlet:0.5 --out b
    expect_same a/checkpoints/model-00000006.safetensors b/checkpoints/model-00000006.safetensors
    expect_exit 0 "$SHOAL" fed simulate "${digits[@]}" --clients 12 --rounds 6 --fraction 0.5 --partition dirichlet:0.5 --out c --seed 5
    ! cmp -s a/checkpoints/model-00000006.safetensors c/checkpoints/model-00000006.safetensors || fail "the seed has no effect"
}

case_rounds_without_quorum_begin_again_and_a_target_ends_the_run() {
    expect_exit 0 "$SHOAL" fed simulate "${digits[@]}" --clients 10 --rounds 3 --dropout 0.6 --quorum 0.8 --out d --json
    grep -qE '"restarted":[1-9]' stdout || fail "$(cat stdout)"
    expect_exit 0 "$SHOAL" fed simulate "${digits[@]}" --clients 10 --rounds 200 --target 0.8 --out e --json
    grep -qE '"target_round":[1-9]' stdout || fail "$(cat stdout)"
    expect_exit 0 "$SHOAL" fed simulate "${digits[@]}" --clients 10 --rounds 4 --held-out 0.2 --rule scaffold --out f
    expect_text '"client_accuracy_least"' f/metrics.jsonl
}

# A budget is kept: the training ends before it is overspent, and says what was spent.
case_a_privacy_budget_is_kept() {
    expect_exit 0 "$SHOAL" fed simulate "${digits[@]}" --clients 50 --rounds 20 --fraction 0.2 --private epsilon=8,delta=1e-3 --out p --json
    grep -qE '"rounds":20,.*"epsilon":(7\.9|8)' stdout || fail "$(cat stdout)"
    expect_text '"epsilon":' p/metrics.jsonl
    expect_exit 0 "$SHOAL" fed simulate "${digits[@]}" --clients 50 --rounds 20 --private epsilon=2,delta=1e-3,noise=5 --out q
    local rounds
    rounds=$(sed -nE 's/^rounds +([0-9]+).*/\1/p' stdout)
    (( rounds > 0 && rounds < 20 )) || fail "$rounds rounds"
    expect_exit 2 "$SHOAL" fed simulate "${digits[@]}" --rule median --private epsilon=8,delta=1e-3 --out r
    expect_text "--private does not go with median"
    expect_exit 2 "$SHOAL" fed simulate "${digits[@]}" --private epsilon=8 --out r
    expect_text "no privacy budget"
}

case_secure_sums_need_no_trust_in_the_server() {
    expect_exit 0 "$SHOAL" fed simulate "${digits[@]}" --clients 10 --rounds 8 --secure --dropout 0.2 --out s --json
    grep -qE '"rounds":8,' stdout || fail "$(cat stdout)"
    expect_exit 0 "$SHOAL" fed simulate "${digits[@]}" --clients 10 --rounds 8 --secure --dropout 0.2 --out t
    expect_same s/checkpoints/model-00000008.safetensors t/checkpoints/model-00000008.safetensors
    expect_exit 2 "$SHOAL" fed simulate "${digits[@]}" --secure --rule krum --out u
    expect_text "--secure does not go with krum, which needs every update by itself"
    expect_exit 2 "$SHOAL" fed simulate "${digits[@]}" --secure --private epsilon=8,delta=1e-5 --out u
    expect_text "--secure does not go with --private"
    expect_exit 2 "$SHOAL" fed simulate "${digits[@]}" --secure --clients 2 --out u
    expect_text "3 to 1024 take part"
}

case_misuse_is_told_with_the_next_step() {
    expect_exit 2 "$SHOAL" fed
    expect_text "say what to do"
    expect_exit 2 "$SHOAL" fed simulat
    expect_text "did you mean 'shoal fed simulate'?"
    expect_exit 2 "$SHOAL" fed simulate "${digits[@]}" --rule fedavgg --out g
    expect_text "did you mean 'fedavg'?"
    expect_exit 2 "$SHOAL" fed simulate "${digits[@]}" --partition shard:2 --out g
    expect_text "there is no partition 'shard:2'"
    expect_exit 2 "$SHOAL" fed simulate "${digits[@]}" -n 2 --out g
    expect_text "several workers"
    expect_exit 2 "$SHOAL" fed simulate "${digits[@]}" --out a
    expect_text "already holds a run"
    expect_no_file g
    expect_exit 0 "$SHOAL" list rules
    for rule in fedavg scaffold krum fedbuff; do expect_text "  $rule " stdout; done
}
