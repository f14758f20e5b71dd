# Workers that die at random points: in schemes that survive it the others go on, and one that takes
# the dead one's place joins them. SEED=N repeats the choices (not the timing).
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

echo "SEED=$SEED"

common=(--model mlp --data digits --threads 1 --seed 3 --kernels default --batch 48 --lr 0.1)

wait_for() { # TEXT FILE
    wait_until grep -qF -- "$1" "$2" && return
    cat "$2"
    fail "no \"$1\" in $2"
}

# start NAME FLAGS...   a run in the background; returns once it trains.
start() {
    name=$1
    shift
    "$SHOAL" train "${common[@]}" --steps 6000 --eval-every 1000000 --checkpoint-every 100 \
        --out "$name" "$@" >"$name.out" 2>"$name.err" &
    parent=$!
    wait_until has_checkpoint "$name" && return
    cat "$name.err"
    fail "$name wrote no checkpoint"
}
worker() { pgrep -P "$parent" | sed -n "$1p"; }
pause() { sleep "0.$((RANDOM % 50 + 10))"; }
finish() { # CODE
    local code=0
    wait "$parent" || code=$?
    [ "$code" -eq "$1" ] || { cat "$name.err"; fail "$name: exit $code, expected $1"; }
}
# What the order of messages decides differs from run to run, and more so on a loaded machine; guessing gives 0.1.
accuracy() { sed -n 's/^test accuracy *0\.//p' "$name.out"; }

# The run has all its steps, has learned, and left files that others can read.
check_run() {
    finish 0
    grep -q '^steps *6000' "$name.out" || fail "$name: $(grep '^steps' "$name.out")"
    [ "$(accuracy)" -ge 6000 ] || fail "$name reaches only 0.$(accuracy)"
    ! grep -v '^{.*}$' "$name/metrics.jsonl" || fail "$name: broken lines in the metrics"
    [ "$(tail -n 1 "$name/metrics.jsonl" | cut -c1-14)" = '{"event":"end"' ] || fail "$name: no end"
    sed -n 's/.*"event":"step","step":\([0-9]*\),.*/\1/p' "$name/metrics.jsonl" | sort -nc ||
        fail "$name: steps go back"
    expect_exit 0 "$SHOAL" eval "$name" --quiet
}

# survives SCHEME   any worker dies, at any time: the others keep their processes, and the new one joins them.
survives() {
    local scheme=$1
    start "any-${scheme/:/-}" -n 3 --sync "$scheme" --lr 0.05
    pause
    before=$(pgrep -P "$parent")
    victim=$(worker "$((RANDOM % 3 + 1))")
    kill -KILL "$victim"
    wait_for "the team goes on with 3 workers" "$name.err"
    for pid in $before; do
        [ "$pid" = "$victim" ] || kill -0 "$pid" || fail "$name: worker $pid is gone, too"
    done
    expect_text "(pid $victim) was ended by signal 9 (Killed)" "$name.err"
    expect_text "restart 1 of 3: the others go on" "$name.err"
    expect_text "the team goes on with 2 workers" "$name.err"
    expect_no_text "from the last checkpoint" "$name.err"
    check_run
    [ "$(grep -c '"event":"regroup"' "$name/metrics.jsonl")" -eq 2 ] || fail "$name: not two regroups"
    grep -q '"regroups":2' "$name/metrics.jsonl" || fail "$name: the end does not tell"
}
case_async_goes_on_after_a_death() { survives async; }
case_ssp_2_goes_on_after_a_death() { survives ssp:2; }
case_easgd_4_goes_on_after_a_death() { survives easgd:4; }
case_local_4_goes_on_after_a_death() { survives local:4; }
case_diloco_8_goes_on_after_a_death() { survives diloco:8; }
case_gossip_goes_on_after_a_death() { survives gossip; }
case_adpsgd_goes_on_after_a_death() { survives adpsgd; }
case_gossip_pull_goes_on_after_a_death() { survives gossip-pull; }
case_gossip_push_goes_on_after_a_death() { survives gossip-push; }
case_sgp_1_goes_on_after_a_death() { survives sgp:1; }

# What a dead server had not saved is counted, and the same everywhere. One that dies while all meet
# for a checkpoint has saved everything: then once more.
case_lost_updates_of_a_dead_server_are_counted() {
    for _ in 1 2 3 4 5; do
        rm -rf lost
        start lost -n 3 --sync async --snapshot-every 1000000 --checkpoint-every 1000
        goes_on lost || fail "no step since the checkpoint, with which servers save"
        kill -KILL "$(worker 2)"
        wait_for "server 1 was restored from its snapshot at update" lost.err
        check_run
        lost=$(sed -n 's/.*server 1 was restored.*; \([0-9]*\) updates\? .* lost/\1/p' lost.err)
        [ "$lost" -eq 0 ] || break
    done
    [ "$lost" -gt 0 ] || fail "no update is lost though none was saved"
    grep -q "\"event\":\"regroup\".*\"lost_updates\":$lost," lost/metrics.jsonl || fail "metrics do not tell $lost"
    grep -q "\"event\":\"end\".*\"lost_updates\":${lost}[,}]" lost/metrics.jsonl || fail "the end does not tell $lost"
}

# Servers with processes of their own. A worker dies: the servers of the next generation go on from
# what the last ones left, all of it. (Who takes its place may be ready as soon as these are.)
case_own_servers_lose_nothing_when_a_worker_dies() {
    start own-worker -n 3 --sync async --server-ranks own --servers 2 --lr 0.05
    pause
    kill -KILL "$(worker 2)"
    wait_for "the team goes on with 3 workers" "$name.err"
    expect_no_text "was restored from its snapshot" "$name.err"
    expect_no_text "from the last checkpoint" "$name.err"
    check_run
    grep -q '"event":"end".*"lost_updates":0[,}]' own-worker/metrics.jsonl || fail "$name: updates are lost"
}

# A server dies: its part comes from its snapshot, what came after is lost, no worker ends.
case_own_server_dies_and_comes_back_from_its_snapshot() {
    loses() { grep -q '"event":"end".*"lost_updates":[1-9]' own-server/metrics.jsonl; }
    for _ in 1 2 3 4 5; do
        rm -rf own-server
        start own-server -n 2 --sync ssp:2 --server-ranks own --servers 2 --snapshot-every 1000000 \
            --checkpoint-every 1000 --lr 0.05
        goes_on "$name" || fail "no step since the checkpoint, with which servers save"
        before="$(worker 1) $(worker 2)"
        kill -KILL "$(worker 4)"
        wait_for "server 1 was restored from its snapshot at update" "$name.err"
        for pid in $before; do kill -0 "$pid" || fail "$name: worker $pid is gone, too"; done
        expect_text "server 1 (pid" "$name.err"
        expect_text "restart 1 of 3: server 1 starts again from its snapshot" "$name.err"
        expect_no_text "server 0 was restored" "$name.err"
        check_run
        ! loses || break
    done
    loses || fail "$name: nothing is lost"
}

# A server that hangs is ended, and another takes its place. One worker is enough.
case_hanging_server_is_replaced() {
    start own-hung -n 1 --sync async --server-ranks own --servers 1 --watchdog 10
    stopped=$(worker 2)
    kill -STOP "$stopped"
    wait_for "(pid $stopped) is stopped" own-hung.err
    wait_for "server 0 starts again from its snapshot" own-hung.err
    check_run
}

# Rank 0, who writes the files; then who came after it.
case_rank_0_dies_twice() {
    start first -n 3 --sync gossip
    kill -KILL "$(worker 1)"
    wait_for "goes on with 3 workers" first.err
    kill -KILL "$(worker 1)"
    wait_for "restart 2 of 3: the others go on" first.err
    check_run
    expect_text "goes on with 2 workers" first/log.txt
    [ "$(grep -c 'goes on with 3 workers' first/log.txt)" -ge 1 ] || fail "the log is not continued"
}

# The run ends before the new one is ready: it is not waited for, nor missed.
case_run_that_ends_first_does_not_wait_for_the_new_worker() {
    start short -n 3 --sync local:4 --steps 200
    kill -KILL "$(worker 2)" || true
    finish 0
    [ "$(grep -c 'starts again' short.err)" -le 1 ] || fail "who came too late is started again and again"
}

# Two at once, out of four.
case_two_of_four_die_at_once() {
    start two -n 4 --sync local:4
    pause
    kill -KILL "$(worker 2)" "$(worker 4)"
    wait_for "goes on with 4 workers" two.err
    check_run
}

# One that is left alone goes on alone, until the other is back; with --elastic to the end.
case_one_that_is_left_goes_on_alone() {
    start pair -n 2 --sync ssp:1
    kill -KILL "$(worker 1)"
    wait_for "goes on with 2 workers" pair.err
    expect_text "goes on with 1 worker" pair.err
    check_run
}

case_elastic_run_goes_on_alone_to_the_end() {
    start alone -n 2 --sync adpsgd --elastic
    kill -KILL "$(worker 2)"
    wait_for "the others go on without worker 1" alone.err
    check_run
    expect_no_text "goes on with 2 workers" alone.err
}

# In step a death ends the attempt, and the next has a worker less: one alone needs no scheme, and K
# and B were for more workers than are left.
case_lockstep_team_begins_again_with_a_worker_less() {
    for scheme in "backup:1 -n 2" "ksync:3 -n 3" "backup:1 -n 2 --servers 1 --server-ranks own"; do
        # shellcheck disable=SC2086
        start "fewer-${scheme//[: ]/-}" --elastic --sync $scheme
        kill -KILL "$(worker 1)"
        finish 0
        expect_text "restart 1 of 3" "$name.err"
        [ "$(accuracy)" -ge 6000 ] || fail "$scheme reaches only 0.$(accuracy)"
    done
}

case_elastic_run_whose_workers_all_die_begins_again() {
    start both -n 2 --sync adpsgd --elastic
    mapfile -t pids < <(pgrep -P "$parent")
    kill -KILL "${pids[@]}"
    finish 0
    expect_text "with 1 worker" both.err
}

# A worker that hangs is ended, and the others go on.
case_hanging_worker_is_replaced() {
    start hung -n 3 --sync async --watchdog 10
    stopped=$(worker 3)
    kill -STOP "$stopped"
    wait_for "worker 2 (pid $stopped) is stopped" hung.err
    wait_for "goes on with 3 workers" hung.err
    check_run
}

# All of them: the run starts again from its checkpoint. Without restarts it fails.
case_team_that_dies_begins_again_from_its_checkpoint() {
    start all -n 3 --sync local:4
    # shellcheck disable=SC2046
    kill -KILL $(pgrep -P "$parent")
    wait_for "from the last checkpoint, with 3 workers" all.err
    check_run
}

case_without_restarts_a_death_fails_the_run() {
    start none -n 3 --sync async --restarts 0
    kill -KILL "$(worker 2)"
    finish 1
    expect_text "was ended by signal 9" none.err
}

# While it starts nobody can go on: from the beginning.
case_death_during_the_start_begins_again() {
    "$SHOAL" train "${common[@]}" --steps 6000 --eval-every 1000000 --checkpoint-every 1000000 -n 3 \
        --sync gossip --out early >early.out 2>early.err &
    parent=$! name=early
    has_worker() { [ -n "$(worker "$1")" ]; }
    wait_until has_worker 2 || fail "no worker was started"
    kill -KILL "$(worker 2)"
    wait_for "restart 1 of 3" early.err
    check_run
}

# SIGTERM leaves a checkpoint also after a death.
case_sigterm_after_a_death_leaves_a_checkpoint() {
    start stop -n 3 --sync async --steps 100000000
    kill -KILL "$(worker 2)"
    wait_for "goes on with 3 workers" stop.err
    kill -TERM "$parent"
    finish 143
    expect_text "stopped after step" stop.err
    expect_exit 0 "$SHOAL" eval stop --quiet
}
