# Helpers for tests of the program from outside; every script starts with
#   . "$SRC/tests/cli/lib.sh"
# tests/cli/run_case tells what a script holds and what it is given.
# shellcheck shell=bash
set -eEuo pipefail
: "${SHOAL:?the program under test}" "${WORK:?an empty folder}" "${SRC:?the source tree}"

# What a test draws comes from one number: SEED=N draws anew, and what fails says which it was.
export SEED="${SEED:-1}"
RANDOM=$SEED

# How long a command may take that should end, in seconds: a loaded machine takes its time, a hang takes for ever.
# shellcheck disable=SC2034 # the tests use it
PATIENCE=300

trap 'echo "FAILED at ${BASH_SOURCE[0]##*/}:$LINENO (SEED=$SEED): $BASH_COMMAND" >&2' ERR

# Nothing of the user's may leak in, and nothing may leak out of WORK.
export HOME="$WORK/home" XDG_CACHE_HOME="$WORK/cache" LC_ALL=C
mkdir -p "$HOME"
unset SHOAL_DATA

# The line of the script that is being run, as a helper that it calls sees it.
place() {
    local i at=
    for ((i = 1; i < ${#BASH_SOURCE[@]}; i++)); do
        [ "${BASH_SOURCE[i]}" != "${SCRIPT:-${BASH_SOURCE[-1]}}" ] || at=${BASH_SOURCE[i]##*/}:${BASH_LINENO[i - 1]}
    done
    echo "$at"
}

fail() {
    echo "FAILED at $(place) (SEED=$SEED): $*"
    exit 1
}

# expect_exit CODE COMMAND...   runs it; its output is then in $WORK/stdout and $WORK/stderr.
expect_exit() {
    local wanted=$1 code=0
    shift
    "$@" >"$WORK/stdout" 2>"$WORK/stderr" </dev/null || code=$?
    [ "$code" -eq "$wanted" ] && return
    echo "$*"
    echo "--- stdout"
    tail -n 40 "$WORK/stdout"
    echo "--- stderr"
    tail -n 40 "$WORK/stderr"
    fail "exit $code, expected $wanted"
}

# expect_text TEXT [FILE]   the last command printed it, to either stream, or FILE has it.
expect_text() {
    local files=("$WORK/stdout" "$WORK/stderr")
    [ $# -lt 2 ] || files=("$2")
    grep -qF -- "$1" "${files[@]}" && return
    tail -n 40 "${files[@]}"
    fail "no \"$1\" in ${files[*]##*/}"
}

# expect_no_text TEXT [FILE]   the opposite.
expect_no_text() {
    local files=("$WORK/stdout" "$WORK/stderr")
    [ $# -lt 2 ] || files=("$2")
    ! grep -F -- "$1" "${files[@]}" || fail "there is \"$1\" in ${files[*]##*/}"
}

expect_file() { [ -f "$1" ] || fail "no file $1"; }
expect_no_file() { [ ! -e "$1" ] || fail "there is a file $1"; }
expect_same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }

# A user's mistake: exit CODE, one message on stderr that starts with "shoal:", nothing on stdout.
expect_complaint() {
    local code=$1 text=$2
    shift 2
    expect_exit "$code" "$@"
    [ ! -s "$WORK/stdout" ] || fail "a failure wrote to stdout"
    grep -q '^shoal: ' "$WORK/stderr" || fail "no line 'shoal: ...' on stderr"
    expect_text "$text" "$WORK/stderr"
}

# The training loss at the end of a run, with all its digits.
train_loss() { grep -o '"train_loss":[^,}]*' "$1/metrics.jsonl" | tail -n 1 | cut -d: -f2; }

# is_close A B   equal but for the order in which they were summed.
is_close() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a b != "" && d * d <= 1e-10 * a * a) }'; }
expect_loss() { # WANTED FOLDER
    is_close "$1" "$(train_loss "$2")" || fail "$2: loss $(train_loss "$2") instead of $1"
}

# wait_until COMMAND...   until it succeeds, as long as there is patience.
wait_until() {
    for _ in $(seq $((PATIENCE * 10))); do
        ! "$@" 2>/dev/null || return 0
        sleep 0.1
    done
    return 1
}
has_checkpoint() { compgen -G "$1/checkpoints/manifest-*.json" >/dev/null; }
# goes_on FOLDER   its run takes more steps: two more lines of the metrics tell of some.
steps_told() { grep -c '"event":"step"' "$1/metrics.jsonl"; }
has_told() { [ "$(steps_told "$1")" -ge "$2" ]; } # FOLDER COUNT
goes_on() { wait_until has_told "$1" $(($(steps_told "$1") + 2)); }
# gone PID...   none of the processes is there any more.
gone() {
    local pid
    for pid in "$@"; do ! kill -0 "$pid" 2>/dev/null || return 1; done
}
