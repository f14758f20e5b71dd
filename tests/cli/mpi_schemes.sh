# Schemes with mail under mpirun: they learn, those that repeat have the bits of shared memory, and
# they end in order, or say for whom they wait.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"
. "$SRC/tests/cli/mpi_lib.sh"

short=("${common[@]}" --batch 48 --lr 0.1 --epochs 6 --overwrite)
accuracy() { sed -n 's/^test accuracy *0\.//p' "$WORK/stdout"; }
model=checkpoints/model-00000192.safetensors

# What workers and servers do in a fixed order does not depend on who carries the messages.
for scheme in ps gossip sgp; do
    expect_exit 0 "$SHOAL" train "${short[@]}" --sync "$scheme" --allreduce ring -n 3 --out "shm-$scheme"
done
expect_exit 0 "$SHOAL" train "${short[@]}" --sync ps --servers 5 --placement variable \
    --optimizer adam --lr 0.002 -n 3 --out shm-five

for flavour in openmpi mpich; do
    variable=MPIRUN_${flavour^^}
    [ -n "${!variable:-}" ] || { echo "no module for $flavour: not tested"; continue; }
    echo "$flavour"
    use "$flavour"

    for scheme in async ssp:2 softsync:1 ksync:2 backup:1 easgd:4 adpsgd; do
        expect_exit 0 ranks 3 "$SHOAL" train "${short[@]}" --sync "$scheme" --out "$flavour"
        [ "$(accuracy)" -ge 8000 ] || fail "$flavour $scheme reaches only 0.$(accuracy)"
    done

    for scheme in ps gossip sgp; do
        expect_exit 0 ranks 3 "$SHOAL" train "${short[@]}" --sync "$scheme" --allreduce ring --out "$flavour"
        expect_same "shm-$scheme/$model" "$flavour/$model"
    done
    expect_exit 0 ranks 3 "$SHOAL" train "${short[@]}" --sync ps --servers 5 --placement variable \
        --optimizer adam --lr 0.002 --out "$flavour"
    expect_same "shm-five/$model" "$flavour/$model"

    # Mail moves on while MPI's own all-reduce waits for a rank that still waits for mail.
    expect_exit 0 ranks 3 "$SHOAL" train "${short[@]}" --sync gossip --allreduce mpi --out "$flavour"
    [ "$(accuracy)" -ge 8000 ] || fail "$flavour: gossip with MPI's all-reduce reaches only 0.$(accuracy)"
    expect_exit 0 ranks 3 "$SHOAL" train "${short[@]}" --sync async --allreduce mpi --out "$flavour"
    [ "$(accuracy)" -ge 8000 ] || fail "$flavour: async with MPI's all-reduce reaches only 0.$(accuracy)"

    # A signal to the launcher: the workers meet, and there is a checkpoint of it.
    for scheme in async gossip; do
        start "$flavour-$scheme" --sync "$scheme"
        kill -TERM "$job"
        timeout 30 tail --pid="$job" -f /dev/null || fail "$flavour $scheme goes on after SIGTERM"
        wait "$job" || true # launchers differ in what they return
        stopped=$(sed -n 's/.*stopped after step \([0-9]*\) .*/\1/p' "$flavour-$scheme/log.txt")
        [ -n "$stopped" ] || fail "$flavour $scheme: SIGTERM did not stop the run in order"
        expect_file "$flavour-$scheme/checkpoints/$(printf 'manifest-%08d.json' "$stopped")"
    done
done

# A rank that stands still: the others say that they wait for it, and in what.
for scheme in async gossip; do
    start "hangs-$scheme" --watchdog 1 --sync "$scheme"
    hung=$(rank_pids | sed -n 2p)
    kill -STOP "$hung"
    expect_end "hangs-$scheme"
    expect_text "rank 0 waited" "hangs-$scheme.err"
    grep -qE "rank 0: [a-z]+ [0-9]+, waits for rank 1" "hangs-$scheme.err" ||
        fail "nothing says for whom rank 0 waits"
    expect_text "worker 1 (pid $hung) is stopped" "hangs-$scheme.err"
    [ "$scheme" = gossip ] && what=gossip || what=pull
    expect_text "$what with rank 1" "hangs-$scheme/flight-0.txt"
done
