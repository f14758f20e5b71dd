# Workers that die while a run's files begin or a checkpoint is written: a run that ends with exit code 0 has
# its final model, and nothing of an older run is taken for it.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

common=(--model mlp --data digits --threads 1 --seed 3 --kernels default --batch 48 --lr 0.05)
worker() { pgrep -P "$parent" | sed -n "$1p"; }
finish() { # CODE
    local code=0
    wait "$parent" || code=$?
    [ "$code" -eq "$1" ] || { cat "$name.err"; fail "$name: exit $code, expected $1"; }
}

# hold STEP NAME FLAGS...   a run in the background, whose worker 0 stands still in the middle of the checkpoint of
# that step: its model is written, but not in its place.
hold() {
    local step=$1
    name=$2
    shift 2
    rm -f held
    HOLD=$(printf 'model-%08d.safetensors' "$step") HELD=$WORK/held LD_PRELOAD=$WORK/hold.so \
        "$SHOAL" train "${common[@]}" --eval-every 1000000 --out "$name" "$@" >"$name.out" 2>"$name.err" &
    parent=$!
    wait_until test -e held || fail "$name: nobody writes the model of step $step: $(cat "$name.err")"
}

prepare() {
    # The first process that would rename a file to $HOLD... stands still in the middle of it, and $HELD is there.
    cat >hold.c <<'END'
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int rename(const char *from, const char *to) {
    int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    if (strstr(to, getenv("HOLD")) != NULL && open(getenv("HELD"), O_CREAT | O_EXCL, 0644) >= 0)
        for (;;) pause();
    return real(from, to);
}
END
    "${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o hold.so hold.c
}

# Worker 0 dies in the middle of the last checkpoint: the others write it.
case_others_write_the_last_checkpoint_of_a_dead_worker() {
    for scheme in local:4 adacomm:4 diloco:4 post-local:4 gossip adpsgd sgp:1 async ssp:2 softsync:2 easgd:4; do
        hold 60 "last-${scheme/:/-}" -n 3 --sync "$scheme" --steps 60 --checkpoint-every 1000000
        sleep 0.3 # for the others to do whatever they do meanwhile
        kill -KILL "$(worker 1)"
        finish 0
        expect_file "$name/checkpoints/model-00000060.safetensors"
        expect_exit 0 "$SHOAL" eval "$name" --quiet
        expect_exit 0 "$SHOAL" train "$name" --resume
        expect_text "nothing to do"
    done
}

# And one on the way: the others write that checkpoint, and go on.
case_others_write_a_checkpoint_on_the_way_and_go_on() {
    hold 40 midway -n 3 --sync gossip --steps 80 --checkpoint-every 40
    kill -KILL "$(worker 1)"
    finish 0
    for step in 40 80; do expect_exit 0 "$SHOAL" eval "midway/checkpoints/manifest-000000$step.json" --quiet; done
}

# A worker dies before the first step of a run that is to overwrite another: it begins again, and the other is not
# taken for it. The worker is stopped while the run starts; a try that finds the old files gone came too late.
case_overwritten_run_is_not_taken_for_the_new_one() {
    old=over/checkpoints/manifest-00000040.json
    grown() { [ "$(stat -c %s over/log.txt)" -gt "$1" ]; } # BYTES
    # catch SCHEME   such a run in the background, with a worker stopped before the old files went.
    catch() {
        local size
        rm -rf over "$XDG_CACHE_HOME" # without the latter, starting is too quick
        expect_exit 0 "$SHOAL" train "${common[@]}" --steps 40 --out over --quiet
        size=$(stat -c %s over/log.txt)
        "$SHOAL" train "${common[@]}" --kernels measure -n 3 --sync "$1" --steps 30 --overwrite --out over \
            >over.out 2>over.err &
        parent=$! name=over
        until grown "$size" || gone "$parent"; do :; done
        kill -STOP "$(worker 2)"
        sleep 0.2
        [ -e "$old" ] && return
        kill -KILL "$parent"
        wait "$parent" || true
        return 1
    }
    for scheme in bsp gossip; do
        for try in 1 2 3 4 5 6 7 8 9 10; do ! catch "$scheme" || break; done
        [ -e "$old" ] || fail "no worker could be stopped in time in $try tries"
        kill -KILL "$(worker 2)"
        finish 0
        expect_text "restart 1 of 3, from the beginning, with 3 workers" over.err
        expect_no_file "$old"
        expect_exit 0 "$SHOAL" eval over/checkpoints/manifest-00000030.json --quiet
    done
}

# A worker dies after a resume from an earlier checkpoint, before the next one: the run goes on from that one, not
# from a later one of the branch that it left.
case_death_after_resume_goes_on_from_the_resumed_branch() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --steps 60 --checkpoint-every 20 --out branch --quiet
    hold 30 branch -n 2 --resume branch/checkpoints/manifest-00000020.json --steps 30 --checkpoint-every 10 --sync bsp
    kill -KILL "$(worker 2)"
    finish 0
    [ "$(grep -c 'resumed after step 20' branch/log.txt)" -eq 2 ] || fail "$(cat branch/log.txt)"
    for step in 20 30 40 60; do expect_exit 0 "$SHOAL" eval "branch/checkpoints/manifest-000000$step.json" --quiet; done
}

# No checkpoint can be read when a worker dies: the run ends and says so, and all of them stay.
case_unreadable_checkpoints_end_the_run_and_stay() {
    name=unread
    "$SHOAL" train "${common[@]}" -n 2 --steps 1000000 --eval-every 1000000 --checkpoint-every 200 --out unread \
        >unread.out 2>unread.err &
    parent=$!
    wait_until has_checkpoint unread || fail "no checkpoint: $(cat unread.err)"
    mapfile -t workers < <(pgrep -P "$parent")
    kill -STOP "${workers[@]}"
    for file in unread/checkpoints/model-*.safetensors; do
        printf 'x' | dd of="$file" bs=1 seek=3000 conv=notrunc status=none
    done
    (cd unread/checkpoints && sha256sum ./*) >before
    kill -KILL "${workers[1]}"
    finish 1
    expect_text "all are damaged" unread.err
    expect_text "all are damaged" unread/log.txt
    expect_text "was ended by signal 9" unread.err
    expect_no_text "restart 1" unread.err
    (cd unread/checkpoints && sha256sum -c --quiet "$WORK/before") || fail "checkpoints were removed or replaced"
}

# A folder with files of the same names that no manifest knows: they are the user's, and stay.
case_foreign_files_stay_and_foreign_checkpoints_refuse() {
    mkdir -p foreign/checkpoints other/checkpoints
    for part in model optimizer; do echo mine >"foreign/checkpoints/$part-00000001.safetensors"; done
    expect_exit 0 "$SHOAL" train "${common[@]}" --steps 20 --checkpoint-every 5 --checkpoint-keep 1 --out foreign --quiet
    for part in model optimizer; do grep -qx mine "foreign/checkpoints/$part-00000001.safetensors"; done
    expect_no_file foreign/checkpoints/manifest-00000015.json
    # And one with checkpoints, but without the run file of the run that wrote them.
    cp foreign/checkpoints/*-00000020.* other/checkpoints
    expect_complaint 2 "'other' already holds checkpoints" "$SHOAL" train "${common[@]}" --steps 5 --out other
    expect_file other/checkpoints/manifest-00000020.json
}

# Of those that the run itself would write, none is written over.
case_no_file_of_others_is_written_over() {
    mkdir -p mine/checkpoints
    echo mine >mine/checkpoints/model-00000020.safetensors
    expect_complaint 2 "model-00000020.safetensors' is there, and this run would write over it" \
        "$SHOAL" train "${common[@]}" --steps 20 --out mine
    grep -qx mine mine/checkpoints/model-00000020.safetensors
}

# Nor is anything written through a link.
case_checkpoints_are_not_written_through_a_link() {
    mkdir -p linked elsewhere
    ln -s ../elsewhere linked/checkpoints
    expect_complaint 1 "'linked/checkpoints' is a link" "$SHOAL" train "${common[@]}" --steps 5 --out linked
    [ -z "$(ls elsewhere)" ] || fail "something was written through the link"
}
