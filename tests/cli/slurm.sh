# A Slurm of its own, with one node: srun starts ranks, and a batch job is stopped and goes on.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"
. "$SRC/tests/cli/mpi_lib.sh"

PATH=$PATH:/usr/sbin:/sbin
for program in slurmctld slurmd srun munged mungekey; do
    command -v $program >/dev/null && continue
    echo "skipped: no $program here; Debian: slurmctld slurmd slurm-client munge"
    exit 77
done

# Sockets want a short path, and munged folders that nobody else may write to.
home=$(mktemp -d -p /tmp shoal-slurm.XXXXXX)
daemons=()
stop() {
    [ ${#daemons[@]} -eq 0 ] || kill "${daemons[@]}" 2>/dev/null || true
    wait
    rm -rf "$home"
}
trap stop EXIT
run_daemon() {
    "$@" >>"$home/daemons.log" 2>&1 </dev/null &
    daemons+=($!)
}

host=$(hostname -s) me=$(id -un) port=$((20000 + $$ % 20000))
export SLURM_CONF=$home/slurm.conf
cat >"$SLURM_CONF" <<CONF
ClusterName=shoal
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$me
SlurmdUser=$me
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$home/munge.socket
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES OverSubscribe=YES State=UP
CONF
mkdir "$home/state" "$home/spool"
mungekey -c -k "$home/munge.key"
run_daemon munged --foreground --force --key-file="$home/munge.key" --socket="$home/munge.socket" \
    --pid-file="$home/munged.pid" --log-file="$home/munged.log" --seed-file="$home/munged.seed"
wait_until test -S "$home/munge.socket" || fail "munged does not start: $(cat "$home/daemons.log")"
run_daemon slurmctld -D
run_daemon slurmd -D
is_idle() { [ "$(sinfo -h -o %T)" = idle ]; }
if ! wait_until is_idle; then
    tail -n 20 "$home/daemons.log"
    echo "skipped: Slurm does not start here"
    exit 77
fi

slurm() { timeout "$PATIENCE" srun --overcommit -n "$@"; }

# How srun speaks to an MPI.
case_srun_starts_ranks_with_the_bits_of_shared_memory() {
    "$SHOAL" train "${common[@]}" --exact -n 3 --out shm >/dev/null 2>&1
    declare -A plugins=([openmpi]=pmix [mpich]=pmi2)
    for flavour in ${MPIRUN_OPENMPI:+openmpi} ${MPIRUN_MPICH:+mpich}; do
        plugin=${plugins[$flavour]}
        if ! srun --mpi=list 2>&1 | grep -qw "$plugin"; then
            echo "left out: this Slurm has no $plugin"
            continue
        fi
        # The bits of three workers that share memory; a rank that fails ends the job with its code.
        expect_exit 0 slurm 3 --mpi="$plugin" "$SHOAL" train "${common[@]}" --exact --out "$flavour"
        expect_text "3 workers of 1 thread"
        expect_same shm/checkpoints/model-00000012.safetensors "$flavour/checkpoints/model-00000012.safetensors"
        expect_exit 2 slurm 2 --mpi="$plugin" "$SHOAL" train "${common[@]}" --lr=-1 --out refused
        expect_text "shoal: train: "

        # Slurm warns a job before its time is up. It stops after a checkpoint; the same script goes on.
        cat >batch.sh <<SCRIPT
#!/bin/bash
srun --overcommit -n 2 --mpi=$plugin "$SHOAL" train ${common[*]} --epochs 200000 \
    --eval-every 1000000 --checkpoint-every 100 --out "$WORK/batch-$flavour" --resume auto
SCRIPT
        for turn in first second; do
            job=$(sbatch --parsable --output="$WORK/batch-$turn.out" batch.sh)
            wait_until has_checkpoint "batch-$flavour" || fail "no checkpoint: $(cat "batch-$turn.out")"
            goes_on "batch-$flavour" || fail "the $turn job takes no steps: $(cat "batch-$turn.out")"
            scancel --signal=USR1 "$job"
            wait_until is_idle || fail "the $turn job does not stop"
            expect_text "stopped after step" "batch-$turn.out"
        done
        expect_text "resumed" "batch-$flavour/log.txt"
    done
}

# Tasks that were told nothing of each other would each train alone.
case_tasks_that_know_nothing_of_each_other_are_refused() {
    expect_exit 2 slurm 2 --mpi=none "$SHOAL" train "${common[@]}" --out alone
    expect_text "srun started 2 tasks, but told them nothing of each other"
    expect_no_file alone
}
