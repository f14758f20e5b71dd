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
common=(--model mlp --data digits --threads 1 --seed 3 --kernels default --batch 49 --overwrite)
cat >on-host <<'end'
#!/bin/bash
# The command on every host; the first one also cuts the link of the last, when a file asks for it.
if [ "$(hostname)" = h0 ]; then
    {
        until [ -e cut ]; do sleep 0.1; done
        ip netns exec switch ip link set port2 down
        until [ -e mended ]; do sleep 0.1; done
        ip netns exec switch ip link set port2 up
    } >/dev/null 2>&1 </dev/null &
fi
exec "$@"
end
chmod +x on-host
# start_link FOLDER   a long run on three hosts, once it has a checkpoint.
start_link() {
    rm -f cut mended
    "$cluster" -n 3 -- ./on-host "$SHOAL" train "${common[@]}" --epochs 100000 --checkpoint-every 50 \
        --eval-every 1000000 --log-every 10 --out "$1" >"$1.out" 2>"$1.err" </dev/null &
    job=$!
    wait_until has_checkpoint "$1" || fail "no checkpoint between three hosts: $(cat "$1.err")"
}

# Hosts have names and addresses of their own and know each other; the machine knows none of it.
case_hosts_have_names_and_addresses_of_their_own() {
    # shellcheck disable=SC2016
    expect_exit 0 "$cluster" -n 3 --direct -- sh -c 'echo "$(hostname) $RANK of $RANKS" && getent hosts h2'
    for k in 0 1 2; do expect_text "h$k $k of 3" stdout; done
    expect_text "10.77.0.3" stdout
    [ ! -e /run/netns/h0 ] || fail "a namespace stays behind"
    expect_exit 7 "$cluster" -n 2 --direct -- sh -c 'exit 7'
    expect_exit 2 "$cluster" -n 2
}

# Training between two hosts gives the result of one worker; so it does on two ranks of each host,
# where sums go through shared memory first.
case_hosts_give_the_result_of_one_worker() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --out one
    one=$(train_loss one)
    expect_exit 0 "$cluster" -n 2 --rate 1gbit -- "$SHOAL" train "${common[@]}" --out two
    expect_loss "$one" two
    expect_exit 0 "$cluster" -n 2 --ranks 2 -- "$SHOAL" train "${common[@]}" --allreduce hierarchical --out four
    expect_text "4 workers of 1 thread"
    expect_loss "$one" four
}

# The mail of a scheme travels between hosts, inside one, and inside a rank: the bits of one machine.
# And a server has the last rank for itself.
case_mail_has_the_bits_of_one_machine() {
    expect_exit 0 "$SHOAL" train "${common[@]}" -n 4 --sync ps --servers 3 --out ps-shm
    expect_exit 0 "$cluster" -n 2 --ranks 2 -- "$SHOAL" train "${common[@]}" --sync ps --servers 3 --out ps
    expect_same ps-shm/checkpoints/model-00000031.safetensors ps/checkpoints/model-00000031.safetensors
    expect_exit 0 "$cluster" -n 2 --ranks 2 -- "$SHOAL" train "${common[@]}" --lr 0.1 --epochs 4 \
        --sync async --servers 1 --server-ranks own --out async
    expect_text "3 workers of 1 thread and 1 server process"
    [ "$(sed -n 's/^test accuracy *0\.//p' "$WORK/stdout")" -ge 8000 ] || fail "async learns too little"
}

# A signal reaches the job, which stops in order.
case_signal_stops_the_job_in_order() {
    "$cluster" -n 2 -- "$SHOAL" train "${common[@]}" --epochs 100000 --checkpoint-every 50 --out stops \
        >stops.out 2>stops.err </dev/null &
    job=$!
    wait_until has_checkpoint stops || fail "no checkpoint between two hosts: $(cat stops.err)"
    kill -TERM "$job"
    wait "$job" || true
    expect_text "stopped after step" stops/log.txt
}

case_short_cut_of_a_link_is_mentioned_and_ends_nothing() {
    start_link mended-link
    touch cut
    wait_until grep -q "warning: waiting for rank [12] in allreduce" mended-link.err || fail "the cut is not mentioned"
    touch mended
    goes_on mended-link || fail "the run does not go on: $(cat mended-link.err)"
    expect_text "waiting for rank" mended-link/log.txt
    kill -TERM "$job"
    wait "$job" || true
    expect_text "stopped after step" mended-link/log.txt
}

case_link_cut_for_good_ends_the_job() {
    export OMPI_MCA_oob_tcp_keepalive_time=4 OMPI_MCA_oob_tcp_keepalive_intvl=2 OMPI_MCA_oob_tcp_keepalive_probes=3
    start_link cut-link
    touch cut
    timeout 150 tail --pid="$job" -f /dev/null || fail "a cut link does not end the job: $(cat cut-link.err)"
    code=0
    wait "$job" || code=$?
    [ "$code" -ne 0 ] || fail "a cut link: exit 0"
    unset "${!OMPI_MCA_oob_tcp_keepalive_@}"
}

# Killed, it leaves nothing behind: neither processes nor links.
case_killed_cluster_leaves_nothing_behind() {
    nap=4242.$$
    "$cluster" -n 2 -- sleep "$nap" >/dev/null 2>&1 </dev/null &
    job=$!
    naps() { [ "$(pgrep -c -f "^sleep $nap\$")" -eq "$1" ]; }
    wait_until naps 2 || fail "the command does not run on both hosts"
    kill -KILL "$job"
    wait "$job" 2>/dev/null || true
    wait_until naps 0 || fail "processes outlive the cluster"
}

# The hosts share no memory, and the link has its limit: 2 MiB cannot pass faster than the wire.
case_hosts_share_no_memory_and_links_have_a_limit() {
    expect_exit 0 "$cluster" -n 2 --rate 200mbit -- "$SHOAL" bench allreduce --sizes 2M --seconds 0.1 --json
    expect_no_text direct stdout
    us=$(sed -n 's/.*"us":\([0-9]*\).*/\1/p' stdout)
    [ "$us" -gt 65000 ] || fail "2 MiB took $us us at 200 Mbit/s"
}

# Links are measured once. When the same hosts are joined by another network the figures are measured
# anew, and `explain` shows what was remembered last.
case_links_are_measured_once_and_anew_on_another_network() {
    measured=(--model mlp --data digits --threads 1 --batch 49 --steps 2 --overwrite --out links)
    for pair in "200mbit measured:" "200mbit remembered:" "40mbit measured:" "40mbit remembered:"; do
        expect_exit 0 "$cluster" -n 2 --rate "${pair% *}" -- "$SHOAL" train "${measured[@]}"
        last=$(grep " links " links/log.txt | tail -n 1)
        [[ $last == *"${pair#* } "*" between nodes"* ]] || fail "at ${pair% *} not ${pair#* } $last"
    done
    expect_exit 0 "$SHOAL" explain allreduce -n 2
    expect_text "as measured between 2 ranks on 2 nodes, mpi" stdout
    grep -qE "on (3[5-9]|4[0-9])(\.[0-9]+)? Mbit/s" stdout || fail "no link of 40 Mbit/s: $(cat stdout)"
}
