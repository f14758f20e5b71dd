# What others may put in the way of a run: pipes and devices in place of files, links in its folder, names that command
# a terminal. Nothing waits, nothing is written elsewhere, and what is shown is harmless.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

# A command that waited for a pipe would wait for ever; the limit is for a loaded machine.
at_once() { timeout "$PATIENCE" "$@"; }
common=(--model mlp --data digits --steps 3 --threads 1 --quiet)

prepare() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --out run
}

case_pipes_and_devices_are_no_input() {
    mkfifo pipe
    for not in pipe /dev/zero; do
        what=pipe
        [ "$not" = pipe ] || what=device
        expect_complaint 1 "'$not' is a $what, not a regular file" at_once "$SHOAL" train "$not"
        expect_complaint 1 "is a $what" at_once "$SHOAL" train "${common[@]}" --load "$not" --out none
        expect_complaint 1 "is a $what" at_once "$SHOAL" data check "$not"
        expect_complaint 1 "is a $what" at_once "$SHOAL" train --model mlp --data "$not" --out none
        expect_complaint 1 "is a $what" at_once "$SHOAL" eval "$not"
        expect_complaint 1 "is a $what" at_once "$SHOAL" explain allreduce --values "$not"
    done
    expect_no_file none
}

case_pipes_in_a_runs_folder_are_refused() {
    mv run/checkpoints/manifest-00000003.json manifest
    mkfifo run/checkpoints/manifest-00000003.json
    expect_complaint 1 "all are damaged" at_once "$SHOAL" eval run
    mv manifest run/checkpoints/manifest-00000003.json
    for name in log.txt metrics.jsonl trace.json run.yaml; do
        rm -rf taken
        mkdir taken
        mkfifo "taken/$name"
        expect_complaint 1 "'taken/$name' is a pipe" at_once "$SHOAL" train "${common[@]}" --trace --out taken --overwrite
    done
}

# As the cache of kernel choices: nothing is remembered, and the run goes on.
case_pipe_as_cache_of_kernel_choices_is_passed_over() {
    cache=$(compgen -G "$XDG_CACHE_HOME/shoal/kernels-*.json")
    rm "$cache"
    mkfifo "$cache"
    expect_exit 0 at_once "$SHOAL" train "${common[@]}" --out uncached
    expect_text "is a pipe"
    rm "$cache"
}

# A link in a run's folder leads nothing elsewhere; the folder itself may be one.
case_links_in_a_runs_folder_lead_nothing_elsewhere() {
    for name in log.txt metrics.jsonl trace.json; do
        rm -rf taken
        mkdir taken
        echo precious >elsewhere
        ln -s ../elsewhere "taken/$name"
        expect_complaint 1 "'taken/$name' is a link" at_once "$SHOAL" train "${common[@]}" --trace --out taken --overwrite
        [ "$(cat elsewhere)" = precious ] || fail "$name was written through a link"
    done
    rm -rf taken
    mkdir -p taken/checkpoints
    for name in run.yaml checkpoints/model-00000003.safetensors checkpoints/manifest-00000003.json; do
        ln -s "$WORK/elsewhere" "taken/$name"
    done
    expect_exit 0 "$SHOAL" train "${common[@]}" --out taken --overwrite
    [ "$(cat elsewhere)" = precious ] || fail "a run's file was written through a link"
    expect_exit 0 "$SHOAL" eval taken
    mkdir real
    ln -s real linked
    expect_exit 0 "$SHOAL" train "${common[@]}" --out linked
    expect_file real/metrics.jsonl
    # What the user names is written where it leads.
    echo >real/answers.csv
    ln -s real/answers.csv answers.csv
    expect_exit 0 "$SHOAL" predict taken --data digits --output answers.csv
    grep -q '^0,' real/answers.csv || fail "an answer was not written through the user's link"
    expect_exit 0 "$SHOAL" explain allreduce --ranks 4 --svg /dev/stdout --quiet
    expect_text "</svg>"
}

# Names that command the terminal, as a file's, a column's, a run's, a layer's and a key.
case_names_command_no_terminal() {
    plain() { ! LC_ALL=C grep -q $'[\x01-\x08\x0b-\x1f\x7f]' "$@" || fail "control characters in $*"; }
    name=$'x\e]0;y\a\nshoal: all is well'
    printf 'a,b\e[2J,y\n1,2,0\n3,4,1\n' >"$name.csv"
    run() { # EXIT-CODE COMMAND...
        expect_exit "$@"
        plain stdout stderr
    }
    run 0 "$SHOAL" data info "$name.csv"
    run 0 "$SHOAL" data info "$name.csv" --json
    python3 -c 'import json; json.load(open("stdout"))'
    run 0 "$SHOAL" data check "$name.csv"
    expect_text "x\\x1b]0;y\\x07\\nshoal: all is well.csv (all): 2 samples"
    run 2 "$SHOAL" data info "$name.csv" --label-column c
    run 1 "$SHOAL" data check "$name"
    run 2 "$SHOAL" train "${common[@]}" --optimizer "$name"
    run 2 "$SHOAL" "$name"
    run 0 "$SHOAL" train --model mlp --data "$name.csv" --batch 2 --steps 2 --threads 1 --out "$name"
    plain "$name/log.txt" "$name/metrics.jsonl"
    run 0 "$SHOAL" explain "$name"
    printf 'model: [flatten, {dense: 4, name: "l\\e[2Jx"}, {dense: 10}]\ndata: digits\n"k\\e[2J": 1\n' >bad.yaml
    run 2 "$SHOAL" train bad.yaml
    sed -i '$d' bad.yaml
    run 0 "$SHOAL" explain bad.yaml
    expect_text "l\\x1b[2Jx"
}
