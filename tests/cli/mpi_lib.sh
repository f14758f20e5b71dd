# Helpers for tests under mpirun, after lib.sh; skips the test where there is no MPI to run under.
# shellcheck shell=bash
if [ -z "${MPIRUN_OPENMPI:-}${MPIRUN_MPICH:-}" ]; then
    echo "skipped: no MPI module was built, as there is no mpicc"
    exit 77
fi
if [ -n "${SANITIZED:-}" ]; then
    echo "skipped: MPI itself leaks, and the sanitizers would say so"
    exit 77
fi

common=(--model mlp --data digits --threads 1 --seed 3 --kernels default)

# use FLAVOUR, then: ranks COUNT COMMAND...
# A rank waits two seconds for Open MPI's mpirun to hear that it leaves in order; one that is slower, on
# a loaded machine, would call that a crash.
launcher=()
use() {
    case $1 in
    openmpi) launcher=("$MPIRUN_OPENMPI" --allow-run-as-root --oversubscribe
        --mca orte_allowed_exit_without_sync 1) ;;
    mpich) launcher=("$MPIRUN_MPICH") ;;
    esac
}
# The MPIs that there are modules for; each case meets all of them, but where one is enough.
flavours() {
    local flavour variable
    for flavour in openmpi mpich; do
        variable=MPIRUN_${flavour^^}
        [ -z "${!variable:-}" ] || echo "$flavour"
    done
}
use_last() { use "$(flavours | tail -n 1)"; }
ranks() { timeout "$PATIENCE" "${launcher[@]}" -n "$@"; }

# start NAME FLAGS...   a long run of three ranks in the background, once it has a checkpoint.
start() {
    local name=$1
    shift
    "${launcher[@]}" -n 3 "$SHOAL" train "${common[@]}" --epochs 200000 --eval-every 1000000 \
        --checkpoint-every 100 --out "$name" "$@" >"$name.out" 2>"$name.err" </dev/null &
    job=$!
    wait_until has_checkpoint "$name" && return
    cat "$name.err"
    fail "$name wrote no checkpoint"
}
below() {
    local child
    for child in $(pgrep -P "$1"); do
        echo "$child"
        below "$child"
    done
}
# The processes of the job that are ranks, in the order of their start.
rank_pids() {
    local pid
    for pid in $(below "$job"); do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != "$(basename "$SHOAL")" ] || echo "$pid"
    done
}
# The job ends, and not in order.
expect_end() {
    local code=0
    timeout "$PATIENCE" tail --pid="$job" -f /dev/null || { cat "$1.err"; fail "$1 goes on"; }
    wait "$job" || code=$?
    [ "$code" -ne 0 ] || fail "$1: exit 0"
}
# stop NAME SIGNAL FLAGS...   such a run whose launcher gets the signal: the step is finished, there is a
# checkpoint of it, and the launcher still passes on how to go on. After SIGTERM Open MPI kills the ranks within a second, which a loaded machine
# may not give them to finish: here it gives them four.
stop() {
    local name=$1 signal=$2 stopped
    shift 2
    OMPI_MCA_odls_base_sigkill_timeout=4 start "$name" "$@"
    kill -s "$signal" "$job"
    timeout "$PATIENCE" tail --pid="$job" -f /dev/null || fail "$name goes on after SIG$signal"
    wait "$job" || true # launchers differ in what they return
    stopped=$(sed -n 's/.*stopped after step \([0-9]*\) .*/\1/p' "$name/log.txt")
    [ -n "$stopped" ] || { tail "$name.err"; fail "$name: SIG$signal did not stop the run in order"; }
    expect_file "$name/checkpoints/$(printf 'manifest-%08d.json' "$stopped")"
    expect_text "stopped after step $stopped of" "$name.err"
    [ "$(grep -cxF "  shoal train $name --resume" "$name.err")" -eq 1 ] || fail "not said once: $(tail "$name.err")"
}
