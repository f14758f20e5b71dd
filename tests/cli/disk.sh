# A disk that is full when several workers write a checkpoint: the run ends, the checkpoints before stay
# whole, and with room again it goes on. The disk is a small one of our own, gone with the test.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

mkdir -p disk
if [ -z "${OWN_MOUNTS:-}" ]; then
    own=(unshare --mount)
    [ "$(id -u)" -eq 0 ] || own+=(--map-root-user)
    reason=$("${own[@]}" mount -t tmpfs -o size=1m tmpfs disk 2>&1) || {
        echo "skipped: nothing may be mounted here: $reason"
        exit 77
    }
    OWN_MOUNTS=yes exec "${own[@]}" "${RERUN[@]}"
fi
mount -t tmpfs -o size=4m tmpfs disk

common=(--model mlp --data digits --threads 1 --seed 3 --kernels default --eval-every 1000000)

case_checkpoints_stay_whole_on_a_full_disk() {
    for flags in "" "--shard-optimizer --optimizer adamw"; do
        rm -rf disk/*
        # shellcheck disable=SC2086
        "$SHOAL" train "${common[@]}" $flags --epochs 200000 --checkpoint-every 50 -n 3 --out disk/run \
            >full.out 2>full.err </dev/null &
        parent=$!
        wait_until has_checkpoint disk/run || fail "no checkpoint: $(cat full.err)"
        mapfile -t workers < <(pgrep -P "$parent")
        # Again and again, as old checkpoints make room for new ones.
        (while sleep 0.05; do head -c 8M /dev/zero >>disk/filler || true; done) 2>/dev/null &
        filler=$!
        code=0
        wait "$parent" || code=$?
        kill "$filler"
        wait "$filler" || true
        [ "$code" -eq 1 ] || fail "exit $code on a full disk: $(cat full.err)"
        expect_text "No space left on device" full.err
        grep -q "^shoal: train: cannot write 'disk/run/" full.err || fail "$(cat full.err)"
        gone "${workers[@]}" || fail "workers outlive the run"
        expect_no_text "restart" full.err

        # Every checkpoint that is there is whole, the newest included, on the full disk.
        [ -z "$(find disk/run/checkpoints -name '*.tmp.*')" ] || fail "unfinished files take the room"
        for manifest in disk/run/checkpoints/manifest-*.json; do
            expect_exit 0 "$SHOAL" eval "$manifest" --quiet
        done
        expect_exit 0 "$SHOAL" eval disk/run
        expect_no_text warning
        last=$((10#$(basename "$manifest" .json | cut -d- -f2)))

        # With room again it goes on, with the bits of a run that never met the full disk.
        rm disk/filler
        expect_exit 0 "$SHOAL" train disk/run --resume --steps "$((last + 30))"
        expect_text "resumed after step $last"
        # shellcheck disable=SC2086
        expect_exit 0 "$SHOAL" train "${common[@]}" $flags -n 3 --steps "$((last + 30))" --overwrite \
            --checkpoint-every 1000000 --out plain
        name=$(printf 'model-%08d.safetensors' "$((last + 30))")
        expect_same "plain/checkpoints/$name" "disk/run/checkpoints/$name"
    done
}
