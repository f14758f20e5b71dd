# Parameter servers with processes of their own: the result of those that sit on workers, and the
# parent watches over them as over workers.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

common=(--model mlp --data digits --threads 1 --seed 3 --kernels default --batch 48 --lr 0.1 --overwrite)
own=(--server-ranks own)
model=checkpoints/model-00000064.safetensors
# What the order of messages decides differs from run to run, and more so on a loaded machine; guessing gives 0.1.
accuracy() { sed -n 's/^test accuracy *0\.//p' "$WORK/stdout"; }

# start NAME FLAGS...   a long run in the background, once it has a checkpoint; `server`: its last
# process.
start() {
    local name=$1
    shift
    "$SHOAL" train "${common[@]}" --epochs 200000 --eval-every 1000000 --checkpoint-every 100 \
        --sync async -n 2 --servers 2 "${own[@]}" --out "$name" "$@" >"$name.out" 2>"$name.err" </dev/null &
    job=$!
    wait_until has_checkpoint "$name" || fail "$name wrote no checkpoint: $(cat "$name.err")"
    [ "$(pgrep -c -P "$job")" -eq 4 ] || fail "$name has not four processes"
    server=$(pgrep -P "$job" -x shoal-3)
}
ended() { timeout "$PATIENCE" tail --pid="$job" -f /dev/null || fail "$1 goes on"; }

# In step nothing depends on where the servers are.
case_place_of_the_servers_changes_no_bit() {
    for servers in 1 2 5; do
        expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 2 --optimizer adam --lr 0.002 --sync ps \
            --servers "$servers" --placement variable -n 3 --out shared
        expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 2 --optimizer adam --lr 0.002 --sync ps \
            --servers "$servers" --placement variable -n 3 "${own[@]}" --out own
        expect_text "3 workers of 1 thread and $servers server process"
        expect_same "shared/$model" "own/$model"
    done
}

# So exact runs have the bits of one worker there too.
case_exact_runs_have_the_bits_of_one_worker() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 2 --exact --out exact
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 2 --exact --sync ps --servers 2 -n 3 "${own[@]}" --out own
    expect_same "exact/$model" "own/$model"
}

# What the servers count comes back to worker 0.
case_counts_of_the_servers_come_back() {
    for scheme in async ssp:2 easgd:4; do
        expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 6 --sync "$scheme" -n 3 --servers 2 "${own[@]}" --out own
        [ "$(accuracy)" -ge 6000 ] || fail "$scheme reaches only 0.$(accuracy)"
        grep -q '"event":"staleness".*"counts":\[' own/metrics.jsonl ||
            fail "$scheme: no histogram of the staleness"
    done
}

case_one_worker_and_one_server_train() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 2 --sync async --compress fp16 -n 1 "${own[@]}" --out alone
    expect_text "1 worker of 1 thread and 1 server process"
    expect_exit 0 timeout "$PATIENCE" "$SHOAL" train "${common[@]}" --epochs 1 --sync ksync:1 -n 1 "${own[@]}" --out alone
    expect_complaint 2 "use more workers (-n 2)" \
        "$SHOAL" train "${common[@]}" --sync backup:1 -n 1 "${own[@]}" --out bad
    expect_complaint 2 "'ksync:3' is too much for 1 worker" \
        "$SHOAL" train "${common[@]}" --sync ksync:3 -n 1 "${own[@]}" --out bad
}

# They take up the optimizer's state of a checkpoint, and go home where there is nothing to do.
case_servers_take_up_the_optimizer_state_of_a_checkpoint() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 2 --optimizer momentum --sync ps -n 3 --out whole
    expect_exit 0 "$SHOAL" train "${common[@]}" --epochs 1 --optimizer momentum --sync ps -n 3 \
        --servers 2 "${own[@]}" --out half
    expect_exit 0 timeout "$PATIENCE" "$SHOAL" train half --resume --epochs 2
    expect_same "whole/$model" "half/$model"
    expect_exit 0 timeout "$PATIENCE" "$SHOAL" train half --resume --epochs 2
    expect_text "nothing to do"
}

case_sigterm_stops_servers_too() {
    start stops
    kill -TERM "$job"
    ended stops
    expect_text "stopped after step" stops/log.txt
}

case_dead_server_is_named() {
    start dies --restarts 0
    kill -KILL "$server"
    ended dies
    expect_text "server 1 (pid $server) was ended by signal 9" dies.err
}

case_hanging_server_is_named() {
    start hangs --restarts 0 --watchdog 10
    kill -STOP "$server"
    ended hangs
    expect_text "server 1 (pid $server) is stopped" hangs.err
    grep -qE "rank 0: step [0-9]+, waits for rank 3; in pull with rank 3" hangs.err ||
        fail "nothing says for whom rank 0 waits"
    ! pgrep -P "$job" || fail "processes stay behind"
}

# The simulator gives them wires of their own, and repeats.
case_simulated_servers_have_wires_of_their_own() {
    simulate=("$SHOAL" simulate "${common[@]}" --sync async -n 4 --servers 2 --link "1Gbit,100us" --compute 5ms)
    virtual() { sed -n 's/^virtual time *//p' "$WORK/stdout"; }
    expect_exit 0 "${simulate[@]}" --out sim-shared
    shared=$(virtual)
    expect_exit 0 "${simulate[@]}" "${own[@]}" --out sim-1
    first=$(virtual)
    expect_exit 0 "${simulate[@]}" "${own[@]}" --out sim-2
    [ "$(virtual)" = "$first" ] || fail "$(virtual) of virtual time, and $first before"
    [ "$shared" != "$first" ] || fail "servers share the workers' wires"
    expect_same sim-1/metrics.jsonl sim-2/metrics.jsonl
    expect_exit 0 "${simulate[@]}" "${own[@]}" --numerics off
}

case_schemes_without_servers_refuse_them() {
    expect_complaint 2 "has no parameter servers" \
        "$SHOAL" train "${common[@]}" --sync gossip -n 3 "${own[@]}" --out bad
    expect_complaint 2 "has no parameter servers" "$SHOAL" train "${common[@]}" -n 3 "${own[@]}" --out bad
}
