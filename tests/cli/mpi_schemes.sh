# Schemes with mail under mpirun: they learn, those that repeat have the bits of shared memory, and
# they end in order, or say for whom they wait.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"
. "$SRC/tests/cli/mpi_lib.sh"

short=("${common[@]}" --batch 48 --lr 0.1 --epochs 6 --overwrite)
# What the order of messages decides differs from run to run, and more so on a loaded machine; guessing gives 0.1.
accuracy() { sed -n 's/^test accuracy *0\.//p' "$WORK/stdout"; }
model=checkpoints/model-00000192.safetensors

# hang NAME RANK FLAGS...   a run whose RANK stands still in the midst of training: rank 0 has told of
# steps since the checkpoint, after which all ranks met in collectives.
hang() {
    local name=$1 rank=$2
    shift 2
    start "$name" --watchdog 10 --checkpoint-every 1000 "$@"
    goes_on "$name" || fail "$name does not go on"
    hung=$(rank_pids | sed -n "$((rank + 1))p")
    kill -STOP "$hung"
    expect_end "$name"
}

prepare() {
    # What workers and servers do in a fixed order does not depend on who carries the messages.
    for scheme in ps gossip sgp; do
        expect_exit 0 "$SHOAL" train "${short[@]}" --sync "$scheme" --allreduce ring -n 3 --out "shm-$scheme"
    done
    expect_exit 0 "$SHOAL" train "${short[@]}" --sync ps --servers 5 --placement variable \
        --optimizer adam --lr 0.002 -n 3 --out shm-five
    expect_exit 0 "$SHOAL" train "${short[@]}" --exact --out exact
}

case_free_schemes_learn() {
    for flavour in $(flavours); do
        use "$flavour"
        for scheme in async ssp:2 softsync:1 ksync:2 backup:1 easgd:4 adpsgd gossip-pull gossip-push:2; do
            expect_exit 0 ranks 3 "$SHOAL" train "${short[@]}" --sync "$scheme" --out "$flavour"
            [ "$(accuracy)" -ge 6000 ] || fail "$flavour $scheme reaches only 0.$(accuracy)"
        done
    done
}

case_fixed_orders_have_the_bits_of_shared_memory() {
    for flavour in $(flavours); do
        use "$flavour"
        for scheme in ps gossip sgp; do
            expect_exit 0 ranks 3 "$SHOAL" train "${short[@]}" --sync "$scheme" --allreduce ring --out "$flavour"
            expect_same "shm-$scheme/$model" "$flavour/$model"
        done
        expect_exit 0 ranks 3 "$SHOAL" train "${short[@]}" --sync ps --servers 5 --placement variable \
            --optimizer adam --lr 0.002 --out "$flavour"
        expect_same "shm-five/$model" "$flavour/$model"
    done
}

case_exact_servers_have_the_bits_of_one_worker() {
    for flavour in $(flavours); do
        use "$flavour"
        expect_exit 0 ranks 3 "$SHOAL" train "${short[@]}" --sync ps --exact --out "$flavour"
        expect_same "exact/$model" "$flavour/$model"
    done
}

# Mail moves on while MPI's own all-reduce waits for a rank that still waits for mail.
case_mail_moves_on_during_the_all_reduce_of_mpi() {
    for flavour in $(flavours); do
        use "$flavour"
        expect_exit 0 ranks 3 "$SHOAL" train "${short[@]}" --sync gossip --allreduce mpi --out "$flavour"
        [ "$(accuracy)" -ge 6000 ] || fail "$flavour: gossip with MPI's all-reduce reaches only 0.$(accuracy)"
        expect_exit 0 ranks 3 "$SHOAL" train "${short[@]}" --sync async --allreduce mpi --out "$flavour"
        [ "$(accuracy)" -ge 6000 ] || fail "$flavour: async with MPI's all-reduce reaches only 0.$(accuracy)"
    done
}

case_sigterm_stops_in_order() {
    for flavour in $(flavours); do
        use "$flavour"
        for scheme in async gossip; do stop "$flavour-$scheme" TERM --sync "$scheme"; done
    done
}

# Who waits for the rank says so, and in what; another may wait for that one.
case_hanging_worker_is_named() {
    use_last
    for scheme in async gossip; do
        hang "hangs-$scheme" 1 --sync "$scheme"
        [ "$scheme" = async ] && what="(pull|push)" || what="(gossip|allreduce [a-z]+)"
        grep -qE "rank [02] waited [0-9.]+ s for rank 1 in $what" "hangs-$scheme.err" ||
            fail "nobody waited for rank 1"
        grep -qE "rank [02]: [a-z]+ [0-9]+, waits for rank 1; in $what" "hangs-$scheme.err" ||
            fail "nothing says who waits for rank 1"
        expect_text "worker 1 (pid $hung) is stopped" "hangs-$scheme.err"
        grep -qE "$what.* under way" "hangs-$scheme"/flight-[02].txt ||
            fail "no record of what is under way"
    done
}

case_servers_on_ranks_of_their_own_train() {
    for flavour in $(flavours); do
        use "$flavour"
        own=(--servers 2 --server-ranks own)
        expect_exit 0 "$SHOAL" train "${short[@]}" --sync ps --servers 2 -n 2 --out shm-two
        expect_exit 0 ranks 4 "$SHOAL" train "${short[@]}" --sync ps "${own[@]}" --out "$flavour"
        expect_text "2 workers of 1 thread and 2 server processes"
        expect_same "shm-two/$model" "$flavour/$model"
        expect_exit 0 ranks 4 "$SHOAL" train "${short[@]}" --sync async "${own[@]}" --allreduce mpi --out "$flavour"
        [ "$(accuracy)" -ge 6000 ] || fail "$flavour: async reaches only 0.$(accuracy)"
        grep -q '"event":"staleness".*"counts":\[' "$flavour/metrics.jsonl" ||
            fail "$flavour: no histogram of the staleness"
        expect_exit 0 ranks 4 "$SHOAL" train "$flavour" --resume auto --epochs 6
        expect_text "nothing to do"
    done
}

case_misplaced_servers_are_refused() {
    own=(--servers 2 --server-ranks own)
    for flavour in $(flavours); do
        use "$flavour"
        expect_exit 2 ranks 2 "$SHOAL" train "${short[@]}" --sync ps "${own[@]}" --out "$flavour-few"
        expect_text "2 ranks were started, and 2 of them are to be servers"
        expect_exit 2 ranks 4 "$SHOAL" train "${short[@]}" --sync gossip "${own[@]}" --out "$flavour-few"
        expect_text "scheme 'gossip' has no parameter servers"
        expect_exit 2 ranks 3 "$SHOAL" train "${short[@]}" --sync ps --server-ranks own --out "$flavour-few"
        expect_text "how many of the 3 ranks are to be servers is not said"
        expect_exit 2 ranks 2 "$SHOAL" train "${short[@]}" --sync ps --servers 1 --server-ranks own \
            --out "$flavour-differ" : \
            -n 1 "$SHOAL" train "${short[@]}" --sync ps --servers 1 --server-ranks own --lr 0.5 --out "$flavour-differ"
        expect_text "server 0 has other settings than rank 0"
        expect_exit 2 ranks 2 "$SHOAL" train "${short[@]}" --sync ps --out "$flavour-differ" : \
            -n 1 "$SHOAL" train "${short[@]}" --sync ps --servers 1 --server-ranks own --out "$flavour-differ"
        expect_text "sets 1 ranks apart, others from 0 to 1"
    done
}

# Workers wait for a server that stands still, and say so.
case_hanging_server_is_named() {
    use_last
    hang hangs-server 2 --sync async --servers 1 --server-ranks own
    grep -qE "rank [01] waited [0-9.]+ s for rank 2 in (pull|push)" hangs-server.err ||
        fail "nobody waited for the server"
    grep -qE "rank 1: step [0-9]+, waits for rank 2; in (pull|push) with rank 2" hangs-server.err ||
        fail "nothing says for whom rank 1 waits"
    expect_text "server 0 (pid $hung) is stopped" hangs-server.err
}
