# Every command explains itself, and what machines read is what they expect.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

python=$(command -v python3 || true)

case_no_command_shows_the_help() {
    expect_exit 0 "$SHOAL"
    cp stdout overview
    expect_exit 0 "$SHOAL" --help
    expect_same overview stdout
    expect_exit 0 "$SHOAL" --version
    grep -qE '^shoal [0-9]+\.[0-9]+' stdout || fail "$(cat stdout)"
}

case_every_command_explains_itself() {
    "$SHOAL" >overview
    expect_exit 0 "$SHOAL" list commands
    mapfile -t commands < <(sed -nE 's/^  ([a-z]+)  .*/\1/p' stdout)
    [ "${#commands[@]}" -ge 11 ] || fail "commands: ${commands[*]}"
    for command in "${commands[@]}"; do
        expect_text "  $command " overview
        expect_exit 0 "$SHOAL" "$command" --help
        expect_text "  shoal $command" stdout
        expect_text "--quiet" stdout
        [ ! -s stderr ] || fail "help of $command wrote to stderr"
        cp stdout help
        expect_exit 0 "$SHOAL" help "$command"
        expect_same help stdout
        expect_text "Cm $command" "$SRC/docs/man/shoal.1"
    done
    expect_exit 0 "$SHOAL" train --help
    for flag in --model --data --epochs --batch --lr --resume --out --threads; do expect_text "$flag " stdout; done
}

# The registry: each kind alone, all kinds, and as JSON.
case_registry_is_listed_by_kind_and_as_json() {
    expect_exit 0 "$SHOAL" list models
    for model in mlp lenet resnet18 gpt; do expect_text "  $model " stdout; done
    expect_no_text "optimizers" stdout
    expect_exit 0 "$SHOAL" list optimizers
    expect_text "  adamw " stdout
    expect_exit 0 "$SHOAL" list --json
    if [ -n "$python" ]; then
        "$python" -c 'import json,sys
kinds = json.load(open("stdout"))
assert {"models", "layers", "commands"} <= set(kinds), kinds.keys()
assert all(row["name"] for rows in kinds.values() for row in rows)' || fail "list --json"
    fi
}

case_doctor_names_versions_npm_and_cores() {
    expect_exit 0 "$SHOAL" doctor
    for library in oneDNN OpenBLAS OpenMP libyaml jansson libcurl libsodium zlib; do
        grep -qE "^$library +.*[0-9]+\.[0-9]+" stdout || fail "no version of $library: $(cat stdout)"
    done
    # npm is looked for where the shell would, and cores are those that a run may use.
    printf '#!/bin/sh\n' >npm
    chmod +x npm
    PATH="$WORK:$PATH" expect_exit 0 "$SHOAL" doctor
    grep -qx "npm  *$WORK/npm" stdout || fail "npm: $(cat stdout)"
    PATH=/nowhere expect_exit 0 "$SHOAL" doctor
    expect_text "missing" <(grep '^npm' stdout)
    core=$(taskset -cp $$ | sed -E 's/.*: ([0-9]+).*/\1/')
    expect_exit 0 taskset -c "$core" "$SHOAL" doctor
    grep -qE '^cores +1( of|$)' stdout || fail "cores: $(cat stdout)"
}

case_builtin_data_is_there() {
    expect_exit 0 "$SHOAL" doctor
    expect_exit 0 "$SHOAL" data info digits
    expect_text "297" stdout
    expect_exit 0 "$SHOAL" data get digits
}

case_json_of_doctor_and_data_info_is_complete() {
    if [ -n "$python" ]; then
        expect_exit 0 "$SHOAL" doctor --json
        "$python" -c 'import json
seen = json.load(open("stdout"))
assert seen["cores"] >= 1 and seen["memory_bytes"] > 1 << 20 and seen["onednn"], seen
assert seen["data"]["digits"] is True and "path" in seen["cache_folder"], seen
assert all(type(seen[mpi]["loads"]) is bool and seen[mpi]["text"] for mpi in ("openmpi", "mpich")), seen' ||
            fail "doctor --json: $(cat stdout)"
        expect_exit 0 "$SHOAL" data info digits --json
        "$python" -c 'import json
parts = [json.loads(line) for line in open("stdout")]
for seen, part, count in zip(parts, ("train", "test"), (1500, 297), strict=True):
    assert (seen["path"], seen["part"], seen["format"]) == ("digits", part, "built in"), seen
    assert (seen["samples"], seen["shape"], seen["range"]) == (count, [1, 8, 8], [0, 16]), seen
    assert (seen["target"], seen["classes"], sum(seen["per_class"])) == ("classes", 10, count), seen' ||
            fail "data info --json: $(cat stdout)"
    fi
}

# What workers cost is told where there are several, or where --exact is asked for.
case_explain_tells_the_cost_of_workers_where_it_matters() {
    expect_exit 0 "$SHOAL" explain --model mlp --data digits --kernels default
    expect_no_text "worker"
    # Its table is as wide as its words, and no line ends in blanks.
    grep -qx 'fc3  *dense  *10  *2010 .*' stdout || fail "$(cat stdout)"
    ! grep -n ' $' stdout || fail "blanks at the end of a line"
    expect_exit 0 "$SHOAL" explain --model mlp --data digits --kernels default --exact
    expect_text "--exact takes"
    expect_exit 0 "$SHOAL" explain --model mlp --data digits --kernels default -n 2
    expect_text "with 2 workers"
    expect_text "--exact would take"
}

# Run files of examples/ are valid, and explain shows their layers.
case_run_files_of_the_examples_are_valid() {
    for file in "$SRC"/examples/*.yaml; do
        data=()
        grep -q 'train: mnist' "$file" && data=(--data "synthetic:classes=10,shape=1x28x28,count=256")
        grep -q 'train: shakespeare' "$file" && data=(--data "synthetic:tokens=65,context=64,count=256")
        expect_exit 0 "$SHOAL" explain "$file" "${data[@]}" --kernels default
        expect_text " parameters" stdout
    done
}

case_bench_train_measures_and_leaves_no_run() {
    expect_exit 0 "$SHOAL" bench train --model mlp --data digits --bench-steps 5 --json --quiet
    for key in net ms p10 p90 samples_s rss_mib cold_s threads batch; do expect_text "\"$key\":" stdout; done
    expect_text '"net":"mlp"' stdout
    expect_text '"batch":128' stdout
    expect_no_text null stdout
    expect_exit 0 "$SHOAL" bench train --model mlp --data digits --bench-steps 5 --threads 1 --batch 16
    expect_text "mlp, batch 16, 1 worker of 1 thread" stdout
    expect_no_file runs # neither of these leaves a run behind
}

case_bench_allreduce_measures() {
    expect_exit 0 "$SHOAL" bench allreduce --sizes 4,1K,100000 --seconds 0.01 -n 3
    expect_text "1 KiB  direct" stdout
    expect_exit 0 "$SHOAL" bench allreduce --sizes 64K --seconds 0.01 --algorithm ring --private --json
    for key in bytes ranks algorithm us p10 p90 gb_s samples; do expect_text "\"$key\":" stdout; done
    expect_text '"bytes":65536' stdout
    expect_text '"algorithm":"ring"' stdout
}
