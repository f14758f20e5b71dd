# One model on several workers: runs follow one worker's loss, and checkpoints are independent of the layout.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

# The losses of a run, to five digits.
losses() {
    sed -n 's/.*"train_loss":\([0-9.]*\).*/\1/p' "$1/metrics.jsonl" | while read -r loss; do printf '%.5f\n' "$loss"; done
}

train() {
    expect_exit 0 "$SHOAL" train --model "{name: mlp, hidden: [40, 24]}" --data digits --batch 32 --optimizer momentum \
        --lr 0.05 --kernels default --threads 1 --log-every 5 --quiet "$@"
}

case_tensor_follows_the_loss_of_one_worker() {
    train --out one --steps 40
    train --out two --steps 40 --layout tensor=2
    train --out three --steps 40 --layout tensor=3 --clip-norm 100
    [ -n "$(losses one)" ] || fail "no losses"
    [ "$(losses one)" = "$(losses two)" ] || fail "tensor=2: $(losses two) instead of $(losses one)"
    [ "$(losses one)" = "$(losses three)" ] || fail "tensor=3: $(losses three) instead of $(losses one)"
}

case_checkpoints_do_not_depend_on_the_layout() {
    train --out whole --steps 40
    train --out run --steps 15 --layout tensor=2
    train --resume run --steps 25 --layout tensor=1 -n 1
    train --resume run --steps 40 --layout tensor=3 -n 3
    [ "$(losses run | tail -1)" = "$(losses whole | tail -1)" ] || fail "$(losses run) instead of $(losses whole)"
    one=$(wc -c <whole/checkpoints/model-00000040.safetensors)
    [ "$(wc -c <run/checkpoints/model-00000040.safetensors)" = "$one" ] || fail "the checkpoints differ in size"
    expect_exit 0 "$SHOAL" eval run/checkpoints/model-00000040.safetensors --data digits
    train --out loaded --steps 5 --layout tensor=2 --load run/checkpoints/model-00000040.safetensors
    train --out again --steps 5 --load run/checkpoints/model-00000040.safetensors
    [ "$(losses loaded)" = "$(losses again)" ] || fail "--load: $(losses loaded) instead of $(losses again)"
}

case_layouts_that_do_not_fit_are_refused() {
    expect_exit 2 "$SHOAL" train --model mlp --data digits --layout tensor=2 -n 3
    expect_text "tensor" stderr
    expect_exit 2 "$SHOAL" train --model mlp --data digits --layout tensors=2
    expect_text "tensors" stderr
    expect_exit 2 "$SHOAL" train --model mlp --data digits --layout tensor=2 --exact
    expect_text "does not go with --exact" stderr
    expect_exit 2 "$SHOAL" train --model mlp --data digits --layout space=2,tensor=2
    expect_text "are run by themselves only" stderr
    expect_exit 2 "$SHOAL" train --model "[{conv: 4}, flatten, dense]" --data digits --layout space=9
    expect_text "images of 8 rows are too small for space=9" stderr
}

case_space_follows_the_loss_of_one_worker() {
    net='[{conv: {channels: 8, padding: 1}}, batchnorm, relu, {maxpool: 2}, {conv: {channels: 16, padding: 1}}, relu, flatten, dense]'
    for layout in data=1 space=2 space=3; do
        expect_exit 0 "$SHOAL" train --model "$net" --data digits --batch 32 --optimizer momentum --lr 0.05 \
            --kernels default --threads 1 --log-every 5 --quiet --steps 30 --out "$layout" --layout "$layout"
        [ -n "$(losses "$layout")" ] || fail "no losses"
        [ "$(losses "$layout" | cut -c1-6)" = "$(losses data=1 | cut -c1-6)" ] ||
            fail "$layout: $(losses "$layout") instead of $(losses data=1)"
    done
    expect_exit 0 "$SHOAL" train --resume space=2 --steps 35 --layout tensor=2 -n 2
    expect_exit 0 "$SHOAL" eval space=3/checkpoints/model-00000030.safetensors --data digits
}
