# Signals while a run computes: no handler interrupts it, and each does what a user expects.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

common=(--model mlp --data digits --seed 3 --eval-every 1000000 --checkpoint-every 1000000 --log-every 1 -q)
one=("${common[@]}" --threads 1)

# begin FOLDER FLAGS...   a long run in the background, once it has done some steps.
begin() {
    local folder=$1
    shift
    # A shell starts background jobs with SIGINT ignored.
    env --default-signal=INT "$SHOAL" train --epochs 1000000 --out "$folder" "$@" \
        >"$folder.out" 2>"$folder.err" </dev/null &
    process=$!
    wait_until has_told "$folder" 3 || fail "no step: $(cat "$folder.err")"
}

# end CODE   the run in the background ends, with this code.
end() {
    local code=0
    timeout 180 tail --pid="$process" -f /dev/null || fail "the run goes on"
    wait "$process" || code=$?
    [ "$code" -eq "$1" ] || fail "exit $code, expected $1"
}

# has_signal MASK SIGNAL   whether a mask of /proc/PID/status, in hexadecimal, holds it.
has_signal() { (((0x$1 >> ($(kill -l "$2") - 1)) & 1)); }
mask() { sed -n "s/^$2:\t//p" "$1/status"; } # FOLDER NAME
kinds=(INT TERM USR1 HUP ALRM USR2 CHLD WINCH TSTP CONT PROF IO)

# A handler could run in the midst of a product: there is none, in the program and in its workers. The
# signals are blocked in every thread but the one that takes them.
case_no_handler_interrupts_what_computes() {
    begin masks "${common[@]}" --threads 2
    for kind in "${kinds[@]}"; do
        ! has_signal "$(mask "/proc/$process" SigCgt)" "$kind" || fail "there is a handler of SIG$kind"
        for thread in "/proc/$process/task"/*; do
            name=$(cat "$thread/comm") takes=yes wanted=no
            ! has_signal "$(mask "$thread" SigBlk)" "$kind" || takes=no
            [ "$name" != signals ] || wanted=yes
            [ "$takes" = "$wanted" ] || fail "thread $name takes SIG$kind: $takes"
        done
    done
    [ "$(cat "/proc/$process/task"/*/comm | grep -cx signals)" -eq 1 ] || fail "no thread takes signals"

    # In it the others do what they always do (Ctrl-Z stops the program).
    kill -ALRM "$process"
    end $((128 + $(kill -l ALRM)))
}

case_second_interrupt_does_not_wait_for_stopped_workers() {
    begin workers "${one[@]}" -n 2
    for worker in $(pgrep -P "$process"); do
        for kind in "${kinds[@]}"; do
            ! has_signal "$(mask "/proc/$worker" SigCgt)" "$kind" || fail "a worker has a handler of SIG$kind"
        done
        for kind in TSTP QUIT ALRM; do
            ! has_signal "$(mask "/proc/$worker" SigBlk)" "$kind" || fail "SIG$kind does not reach a worker"
        done
    done
    # A second Ctrl-C does not wait for a worker that cannot stop; no worker stays behind.
    mapfile -t team < <(pgrep -P "$process")
    kill -STOP "${team[1]}"
    kill -INT "$process"
    is_taken() { ! has_signal "$(mask "/proc/$process" ShdPnd)" INT; }
    wait_until is_taken || fail "nobody takes SIGINT"
    kill -INT "$process"
    end $((128 + $(kill -l INT)))
    wait_until gone "${team[@]}" || fail "workers stay behind"
}

# What the parent ignores stays ignored (nohup).
case_ignored_signals_stay_ignored() {
    env --ignore-signal=HUP "$SHOAL" train --epochs 1000000 --out nohup "${one[@]}" >nohup.out 2>nohup.err </dev/null &
    process=$!
    wait_until has_told nohup 3 || fail "no step: $(cat nohup.err)"
    kill -HUP "$process"
    goes_on nohup || fail "a signal that is ignored stops the run"
    kill -USR1 "$process"
    end $((128 + $(kill -l USR1)))
}

# Stops in the midst of oneDNN's products end in order, every time.
case_stops_during_products_of_onednn_end_in_order() {
    expect_exit 0 "$SHOAL" train "${one[@]}" --steps 1 --out tuned
    sed -i 's/: "\(packed\|openblas\)"/: "onednn"/' "$XDG_CACHE_HOME"/shoal/kernels-*.json
    for signal in INT TERM USR1 HUP; do
        rm -rf storm
        begin storm "${one[@]}"
        grep -q onednn storm/run.yaml storm/log.txt "$XDG_CACHE_HOME"/shoal/kernels-*.json || fail "oneDNN does not serve"
        kill -s "$signal" "$process"
        end $((128 + $(kill -l "$signal")))
        has_checkpoint storm || fail "no checkpoint after SIG$signal: $(cat storm.err)"
    done
}
