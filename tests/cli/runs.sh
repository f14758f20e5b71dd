# The runs of a folder, and what two of them differ in.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

prepare() {
    local common=(--model mlp --data digits --threads 1 --kernels default --quiet)
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 2 --lr 0.1 --out runs/first
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 3 --lr 0.2 -n 2 --out runs/second
    expect_exit 1 "$SHOAL" train "${common[@]}" --epochs 40 --lr 1000 --out runs/diverged
    mkdir -p runs/empty
    touch runs/file
}

case_every_run_has_a_row_and_nothing_else_has() {
    expect_exit 0 "$SHOAL" runs
    [ "$(wc -l <stdout)" -eq 4 ] || fail "$(cat stdout)"
    grep -qE '^first +finished +24 +2 +1 ' stdout || fail "$(cat stdout)"
    grep -qE '^second +finished +36 +3 +2 ' stdout || fail "$(cat stdout)"
    grep -qE '^diverged +stopped ' stdout || fail "$(cat stdout)"
}

case_json_holds_what_the_metrics_say() {
    expect_exit 0 "$SHOAL" runs runs --json
    python3 - <<'END'
import json
rows = {row["name"]: row for row in json.load(open("stdout"))}
lines = [json.loads(line) for line in open("runs/second/metrics.jsonl")]
evals = [line for line in lines if line["event"] == "eval"]
assert abs(rows["second"]["test_accuracy"] - evals[-1]["test_accuracy"]) < 1e-9
assert abs(rows["second"]["best_accuracy"] - max(e["test_accuracy"] for e in evals)) < 1e-9
assert rows["diverged"]["state"] == "stopped"
END
}

case_a_run_under_way_is_running() {
    "$SHOAL" train --model mlp --data digits --epochs 100000 --out runs/busy --quiet &
    local busy=$!
    for _ in $(seq 600); do
        "$SHOAL" runs >stdout
        grep -qE '^busy +running' stdout && break
        sleep 0.1
    done
    kill -KILL "$busy"
    wait "$busy" || true
    grep -qE '^busy +running' stdout || fail "$(cat stdout)"
    "$SHOAL" runs >stdout
    grep -qE '^busy +stopped' stdout || fail "$(cat stdout)"
}

case_diff_shows_settings_that_differ_and_no_others() {
    expect_exit 0 "$SHOAL" runs diff runs/first runs/second --json
    python3 - <<'END'
import json
whole = json.load(open("stdout"))
assert whole["settings"] == {"optimizer.lr": ["0.1", "0.2"], "epochs": ["2", "3"], "workers": ["1", "2"]}, whole["settings"]
END
    expect_exit 0 "$SHOAL" runs diff runs/first runs/first
    expect_text "the settings are the same" stdout
}

case_misuse_is_told() {
    expect_exit 1 "$SHOAL" runs nothing
    expect_text "cannot list 'nothing'" stderr
    expect_exit 2 "$SHOAL" runs diff runs/first
    expect_exit 2 "$SHOAL" runs diff runs/first runs/empty
    expect_text "is no run's folder" stderr
    expect_exit 2 "$SHOAL" runs a b
}
