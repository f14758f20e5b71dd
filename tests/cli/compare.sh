# Several ways to train one run, side by side.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

common=(--model mlp --data digits --threads 1 --kernels default --lr 0.1 --quiet)

prepare() {
    # The same samples for each, though the target was reached early; 20 evaluations; JSON on stdout.
    expect_exit 0 "$SHOAL" compare "${common[@]}" --epochs 10 --sync bsp,local:4 --workers 1,2 --target 0.5 \
        --out second --json
    cp stdout second.json
}

# A table, its numbers and a picture; what does not go together is a row that says so.
case_table_has_a_row_for_every_variant() {
    expect_exit 0 "$SHOAL" compare "${common[@]}" --epochs 6 -n 2 --sync bsp,local:4 --compress none,topk:1% \
        --shard-optimizer --target 0.5 --out first
    expect_text "| bsp             | done    |" stdout
    expect_text "| bsp topk:1%     | refused |" stdout
    expect_text "| local:4         | refused |" stdout
    grep -q "^- local:4 refused: .*scheme 'local' does not go with --shard-optimizer" stdout || fail "$(cat stdout)"
    expect_text "time to 50 %" stdout
    for file in compare.md compare.json compare.svg report.html bsp/metrics.jsonl; do expect_file "first/$file"; done
    expect_no_file first/local-4/metrics.jsonl
    grep '^|' stdout >printed
    grep '^|' first/compare.md >written
    expect_same printed written
    python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' first/compare.svg
}

case_variants_see_the_same_samples() {
    expect_same second.json second/compare.json
    python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' second/compare.svg
    python3 - <<'END'
import json
whole = json.load(open("second.json"))
rows = {row["name"]: row for row in whole["rows"]}
assert list(rows) == ["bsp, 1 worker", "bsp, 2 workers", "local:4, 1 worker", "local:4, 2 workers"], rows.keys()
assert whole["target"] == 0.5 and not whole["simulated"]
for name, row in rows.items():
    assert row["outcome"] == "done" and row["steps"] == 120, row
    assert len(row["points"]) == (20 if "bsp" in name else 15), (name, len(row["points"]))
    assert row["points"][-1]["test_accuracy"] == row["test_accuracy"] > 0.5
    assert 0 < row["target_s"] <= row["seconds"]
    first = next(p for p in row["points"] if p["test_accuracy"] >= 0.5)
    assert row["target_s"] == first["train_s"]
    lines = [json.loads(line) for line in open("second/" + row["folder"] + "/metrics.jsonl")]
    assert lines[-1]["event"] == "end", lines[-1]
    assert row["updates"] == lines[-1]["updates"] and row["sent_bytes"] == lines[-1]["all_sent_bytes"]
# One worker is one worker, whatever the scheme; two of them have each their own model.
assert rows["bsp, 1 worker"]["test_accuracy"] == rows["local:4, 1 worker"]["test_accuracy"]
assert rows["bsp, 2 workers"]["updates"] == 120 and rows["local:4, 2 workers"]["updates"] == 240
# Four steps apart, a quarter is sent: sums of gradients against means of models.
assert rows["bsp, 2 workers"]["sent_bytes"] == 4 * rows["local:4, 2 workers"]["sent_bytes"] > 0
assert rows["bsp, 1 worker"]["sent_bytes"] == 0
END
}

# A variant is the run that `train` makes of the same settings.
case_variant_is_the_run_that_train_makes() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 10 --sync local:4 -n 2 --eval-every 8 \
        --checkpoint-every 1000000 --out alone
    expect_same alone/checkpoints/model-00000120.safetensors \
        second/local-4-2-workers/checkpoints/model-00000120.safetensors
}

# What is wrong with the command itself ends it before anything runs.
case_misuse_ends_it_before_anything_runs() {
    expect_complaint 2 "there is no scheme 'bps'" "$SHOAL" compare "${common[@]}" --sync bsp,bps --out bad
    expect_complaint 2 "'bsp' twice" "$SHOAL" compare "${common[@]}" --sync bsp,bsp --out bad
    expect_complaint 2 "cannot be resumed" "$SHOAL" compare "${common[@]}" --sync bsp --resume second
    expect_complaint 2 "already holds a comparison" "$SHOAL" compare "${common[@]}" --sync bsp --out second
    expect_no_file bad
    expect_exit 2 "$SHOAL" compare --quiet --model mlp --sync bsp,local:4 --out nodata
    expect_text "no data is given"
}

# Numbers that fail are a result; a run that fails is a failure, and the next one still has its turn.
case_diverged_and_failed_runs_are_rows_too() {
    expect_exit 0 "$SHOAL" compare "${common[@]}" --epochs 1 --sync bsp --lr 1e6 --clip-value 0 --optimizer sgd \
        --out wild
    expect_text "diverged" stdout
    mkdir -p broken/bsp
    touch broken/bsp/metrics.jsonl.tmp broken/bsp/checkpoints # a file where a folder should be
    expect_exit 1 "$SHOAL" compare "${common[@]}" --epochs 1 --sync bsp,local:4 -n 2 --out broken
    expect_text "| bsp     | failed  |" stdout
    expect_text "| local:4 | done    |" stdout
    expect_text "shoal: compare: bsp failed" stderr
}

# A stop ends the step under way, prints what is there and leaves the rest.
case_stop_prints_what_is_there_and_overwrite_begins_afresh() {
    "$SHOAL" compare --model mlp --data digits --threads 1 --kernels default --sync bsp,local:4,local:8 -n 2 \
        --epochs 1000000 --eval-every 1000 --out stopped >stop.out 2>stop.err &
    parent=$!
    wait_until grep -qs '"event":"eval"' stopped/bsp/metrics.jsonl || fail "no evaluation: $(cat stop.err)"
    mapfile -t workers < <(pgrep -P "$parent")
    [ "${#workers[@]}" -eq 2 ] || fail "${#workers[@]} workers"
    kill -TERM "$parent"
    code=0
    wait "$parent" || code=$?
    [ "$code" -eq 143 ] || fail "exit $code after SIGTERM"
    expect_text "| bsp     | stopped |" stop.out
    expect_text "| local:8 | not run |" stop.out
    expect_text "stopped after step" stop.out
    expect_text '"outcome": "stopped"' stopped/compare.json
    gone "${workers[@]}" || fail "workers outlive a stopped comparison"

    # Afresh in the same folder.
    expect_exit 0 "$SHOAL" compare "${common[@]}" --epochs 1 --sync bsp,local:4 -n 2 --out stopped --overwrite
    expect_text "| bsp     | done    |" stdout
    expect_no_text '"outcome": "stopped"' stopped/compare.json
}

# Simulated workers: virtual time, and the same of it every time.
case_simulated_variants_repeat() {
    world=(--simulate --link "1Gbit,100us" --compute 10ms --straggler 1:4x)
    for out in once twice; do
        expect_exit 0 "$SHOAL" compare "${common[@]}" --epochs 4 --sync bsp,local:4 -n 4 "${world[@]}" --out "$out"
    done
    expect_text "virtual time" stdout
    python3 - <<'END'
import json
once, twice = (json.load(open(name + "/compare.json")) for name in ("once", "twice"))
assert once["simulated"]
for a, b in zip(once["rows"], twice["rows"]):
    assert a["outcome"] == "done" and a["virtual_s"] > 0, a
    assert a["virtual_s"] == b["virtual_s"] and a["points"] == b["points"], (a, b)
bsp, local = once["rows"]
# Every one of 48 steps waits for the straggler's 40 ms; averaging less often cannot be slower.
assert bsp["virtual_s"] >= 48 * 0.04 and local["virtual_s"] <= bsp["virtual_s"], once
END
    expect_complaint 2 "--straggler describes simulated workers" "$SHOAL" compare "${common[@]}" --sync bsp \
        --straggler 1:4x --out real
}
