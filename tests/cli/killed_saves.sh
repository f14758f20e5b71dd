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

# hold STEP NAME FLAGS...   a run in the background, whose worker 0 stands still in the middle of writing the model
# of that step: the file that it writes to is a pipe, which takes only 64 KiB as long as nobody reads.
hold() {
    local step=$1
    name=$2
    shift 2
    local file
    file=$name/checkpoints/$(printf 'model-%08d.safetensors.tmp.whole' "$step")
    mkdir -p "$name/checkpoints"
    mkfifo "$file"
    exec 3<>"$file"
    "$SHOAL" train "${common[@]}" --eval-every 1000000 --out "$name" "$@" >"$name.out" 2>"$name.err" 3<&- &
    parent=$!
    head -c 1 <&3 >"$name.byte"
    rm "$file"
}

# Worker 0 dies in the middle of the last checkpoint: the others write it.
for scheme in local:4 adacomm:4 diloco:4 post-local:4 gossip adpsgd sgp:1 async ssp:2 softsync:2 easgd:4; do
    hold 60 "last-${scheme/:/-}" -n 3 --sync "$scheme" --steps 60 --checkpoint-every 1000000
    sleep 0.3 # for the others to do whatever they do meanwhile
    kill -KILL "$(worker 1)"
    exec 3<&-
    finish 0
    expect_file "$name/checkpoints/model-00000060.safetensors"
    expect_exit 0 "$SHOAL" eval "$name" --quiet
    expect_exit 0 "$SHOAL" train "$name" --resume
    expect_text "nothing to do"
done

# And one on the way: the others write that checkpoint, and go on.
hold 40 midway -n 3 --sync gossip --steps 80 --checkpoint-every 40
kill -KILL "$(worker 1)"
exec 3<&-
finish 0
for step in 40 80; do expect_exit 0 "$SHOAL" eval "midway/checkpoints/manifest-000000$step.json" --quiet; done
