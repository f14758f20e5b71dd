# A cluster of network namespaces: real MPI over TCP between hosts that share no memory.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

cluster=$SRC/tools/netns-cluster
if [ -z "${MPIRUN_OPENMPI:-}" ]; then
    echo "skipped: no module for Open MPI was built"
    exit 77
fi
if [ -n "${SANITIZED:-}" ]; then
    echo "skipped: MPI itself leaks, and the sanitizers would say so"
    exit 77
fi
"$cluster" --check || exit $?
export MPIRUN=$MPIRUN_OPENMPI

# Hosts have names and addresses of their own and know each other; the machine knows none of it.
# shellcheck disable=SC2016
expect_exit 0 "$cluster" -n 3 --direct -- sh -c 'echo "$(hostname) $RANK of $RANKS" && getent hosts h2'
for k in 0 1 2; do expect_text "h$k $k of 3" stdout; done
expect_text "10.77.0.3" stdout
[ ! -e /run/netns/h0 ] || fail "a namespace stays behind"
expect_exit 7 "$cluster" -n 2 --direct -- sh -c 'exit 7'
expect_exit 2 "$cluster" -n 2

# Training between two hosts gives the result of one worker; so it does on two ranks of each host,
# where sums go through shared memory first.
common=(--model mlp --data digits --threads 1 --seed 3 --kernels default --batch 49 --overwrite)
loss() { sed -n 's/^train loss *//p' "$WORK/stdout"; }
expect_exit 0 "$SHOAL" train "${common[@]}" --out one
one=$(loss)
expect_exit 0 "$cluster" -n 2 --rate 1gbit -- "$SHOAL" train "${common[@]}" --out two
[ "$(loss)" = "$one" ] || fail "two hosts: loss $(loss) instead of $one"
expect_exit 0 "$cluster" -n 2 --ranks 2 -- "$SHOAL" train "${common[@]}" --allreduce hierarchical --out four
expect_text "4 workers of 1 thread"
[ "$(loss)" = "$one" ] || fail "two hosts of two ranks: loss $(loss) instead of $one"

# The mail of a scheme travels between hosts, inside one, and inside a rank: the bits of one machine.
# And a server has the last rank for itself.
expect_exit 0 "$SHOAL" train "${common[@]}" -n 4 --sync ps --servers 3 --out ps-shm
expect_exit 0 "$cluster" -n 2 --ranks 2 -- "$SHOAL" train "${common[@]}" --sync ps --servers 3 --out ps
expect_same ps-shm/checkpoints/model-00000031.safetensors ps/checkpoints/model-00000031.safetensors
expect_exit 0 "$cluster" -n 2 --ranks 2 -- "$SHOAL" train "${common[@]}" --lr 0.1 --epochs 4 \
    --sync async --servers 1 --server-ranks own --out async
expect_text "3 workers of 1 thread and 1 server process"
[ "$(sed -n 's/^test accuracy *0\.//p' "$WORK/stdout")" -ge 8000 ] || fail "async learns too little"

# A signal reaches the job, which stops in order.
"$cluster" -n 2 -- "$SHOAL" train "${common[@]}" --epochs 100000 --checkpoint-every 50 --out stops \
    >stops.out 2>stops.err </dev/null &
job=$!
for _ in $(seq 300); do
    compgen -G "stops/checkpoints/manifest-*.json" >/dev/null && break
    sleep 0.1
done
kill -TERM "$job"
wait "$job" || true
expect_text "stopped after step" stops/log.txt

# Killed, it leaves nothing behind: neither processes nor links.
nap=4242.$$
"$cluster" -n 2 -- sleep "$nap" >/dev/null 2>&1 </dev/null &
job=$!
for _ in $(seq 100); do
    [ "$(pgrep -c -f "^sleep $nap\$")" -eq 2 ] && break
    sleep 0.1
done
[ "$(pgrep -c -f "^sleep $nap\$")" -eq 2 ] || fail "the command does not run on both hosts"
kill -KILL "$job"
wait "$job" 2>/dev/null || true
for _ in $(seq 100); do
    pgrep -f "^sleep $nap\$" >/dev/null || break
    sleep 0.1
done
! pgrep -f "^sleep $nap\$" || fail "processes outlive the cluster"

# The hosts share no memory, and the link has its limit: 2 MiB cannot pass faster than the wire.
expect_exit 0 "$cluster" -n 2 --rate 200mbit -- "$SHOAL" bench allreduce --sizes 2M --seconds 0.1 --json
expect_no_text direct stdout
us=$(sed -n 's/.*"us":\([0-9]*\).*/\1/p' stdout)
[ "$us" -gt 65000 ] || fail "2 MiB took $us us at 200 Mbit/s"
