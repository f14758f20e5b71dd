# Runs whose workers have different layers: bits of one worker, any schedule, resumed either way, and what is refused.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

loud=(--model mlp --data digits --kernels default --threads 1 --optimizer momentum)
common=("${loud[@]}" --quiet)
pipe=(--layout pipe=2 --micro-batches 4)
same_checkpoint() { # FOLDER FOLDER STEP
    local file
    for file in model optimizer; do
        expect_same "$1/checkpoints/$file-$(printf %08d "$3").safetensors" \
            "$2/checkpoints/$file-$(printf %08d "$3").safetensors"
    done
}

prepare() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 50 --steps 30 --accumulate 4 --out one
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 64 --epochs 2 --accumulate 5 --out short
}

case_every_schedule_has_the_bits_of_one_worker() {
    for schedule in naive gpipe 1f1b interleaved:2; do
        expect_exit 0 "$SHOAL" train "${common[@]}" --batch 50 --steps 30 "${pipe[@]}" \
            --pipe-schedule "$schedule" --out "$schedule"
        same_checkpoint "$PREPARED/one" "$schedule" 30
        is_close "$(train_loss "$PREPARED/one")" "$(train_loss "$schedule")" || fail "another loss"
    done
}

# 1500 samples in batches of 64: the last of an epoch has 28, and parts differ in size.
case_short_batches_and_uneven_micro_batches_work() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 64 --epochs 2 --layout pipe=3 --micro-batches 5 --out three
    same_checkpoint "$PREPARED/short" three 48
}

# More micro-batches than the short batch of an epoch has samples, and more stages than micro-batches.
case_any_number_of_micro_batches_works() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 31 --epochs 1 --accumulate 20 --out alone
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 31 --epochs 1 --layout pipe=3 --micro-batches 20 --out many
    same_checkpoint alone many 49
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 50 --steps 30 --accumulate 2 --out alone2
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 50 --steps 30 --layout pipe=3 --micro-batches 2 --out few
    same_checkpoint alone2 few 30
}

case_a_run_resumes_with_another_layout() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 50 --steps 20 "${pipe[@]}" --out out
    expect_exit 0 "$SHOAL" train --resume out --steps 30 --layout data=1 -n 1 --accumulate 4 --quiet
    same_checkpoint "$PREPARED/one" out 30
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 50 --steps 20 --accumulate 4 --out in
    expect_exit 0 "$SHOAL" train --resume in --steps 30 -n 2 "${pipe[@]}" --accumulate 1 --quiet
    same_checkpoint "$PREPARED/one" in 30
}

# The cut that a run prints is the cut that it takes.
case_the_cut_is_printed_and_read_back() {
    expect_exit 0 "$SHOAL" train "${loud[@]}" --batch 50 --steps 30 "${pipe[@]}" --out free
    cut=$(sed -nE 's/.*; --cut ([a-z0-9,]+)$/\1/p' stderr | head -n 1)
    [ -n "$cut" ] || fail "no cut is printed: $(cat stderr)"
    expect_exit 0 "$SHOAL" train "${loud[@]}" --batch 50 --steps 30 "${pipe[@]}" --cut "$cut" --out given
    expect_text "; --cut $cut" stderr
    same_checkpoint free given 30
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 50 --steps 30 "${pipe[@]}" --cut fc1 --out first
    same_checkpoint free first 30
}

# Rank 0 measures layers and kernels for all; tied embeddings are summed; norms are clipped.
case_a_gpt_with_tied_embeddings_follows_one_worker() {
    gpt=(--model "{name: gpt, layers: 3, heads: 2, width: 16, dropout: 0.1}" --data "synthetic:tokens=31,context=16,count=4000"
        --threads 1 --optimizer adamw --lr 1e-3 --clip-norm 1 --batch 12 --steps 20 --quiet)
    expect_exit 0 "$SHOAL" train "${gpt[@]}" --accumulate 3 --out gpt1
    expect_exit 0 "$SHOAL" train "${gpt[@]}" --layout pipe=2 --micro-batches 3 --out gpt2
    awk -v a="$(train_loss gpt1)" -v b="$(train_loss gpt2)" 'BEGIN { d = a - b; exit !(d * d < 1e-8 * a * a) }' ||
        fail "loss $(train_loss gpt2) instead of $(train_loss gpt1)"
}

# Two pipelines share the batch: as one worker, but for the order of sums. Short batches leave one without samples.
case_pipelines_beside_each_other_follow_one_worker() {
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 50 --steps 30 --layout data=2,pipe=2 --micro-batches 2 --out grid
    expect_loss "$(train_loss "$PREPARED/one")" grid
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 1499 --epochs 3 --out tall
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 1499 --epochs 3 --layout data=2,pipe=2 --micro-batches 2 --out wide
    expect_loss "$(train_loss tall)" wide
    expect_complaint 2 "is for 4 workers, not 6" "$SHOAL" train "${common[@]}" --layout data=2,pipe=2 -n 6 --out bad
}

# A stage that dies cannot be replaced by the others: the run starts again from its checkpoint.
case_a_run_goes_on_from_its_checkpoint_when_a_stage_dies() {
    "$SHOAL" train "${common[@]}" --batch 50 --epochs 200 --checkpoint-every 100 "${pipe[@]}" --out killed >log 2>&1 &
    run=$!
    wait_until has_checkpoint killed || fail "no checkpoint: $(cat log)"
    kill -KILL "$(pgrep -P "$run" | tail -n 1)"
    wait "$run" || fail "$(cat log)"
    expect_text "restart 1 of 3" log
    expect_exit 0 "$SHOAL" train "${common[@]}" --batch 50 --epochs 200 --checkpoint-every 100 "${pipe[@]}" --out whole
    same_checkpoint whole killed 6000
}

case_what_does_not_go_along_is_refused() {
    refused() { # TEXT FLAGS...
        local text=$1
        shift
        expect_complaint 2 "$text" "$SHOAL" train "${common[@]}" --batch 50 --steps 3 --out bad "$@"
        expect_no_file bad
    }
    refused "a multiple of 3 workers, not 4" --layout pipe=3 -n 4
    refused "dimensions are" --layout pips=2
    refused "named twice" --layout pipe=2,pipe=2
    refused "whole numbers from 1" --layout pipe=0
    refused "does not go with --sync" --layout pipe=2 --sync async
    refused "does not go with --exact" --layout pipe=2 --exact
    refused "does not go with --compress" --layout pipe=2 --compress fp16
    refused "does not go with --shard-optimizer" --layout pipe=2 --shard-optimizer
    refused "micro-batches" --layout pipe=2 --accumulate 2
    refused "1000 micro-batches" --layout pipe=2 --micro-batches 1000
    refused "no pipeline schedule" --layout pipe=2 --pipe-schedule 1f2b
    expect_complaint 2 "no layer 'foo'" "$SHOAL" train "${common[@]}" --layout pipe=2 --cut foo --out cut --restarts 0
    expect_complaint 2 "50 stages, but the net has" "$SHOAL" train "${common[@]}" --layout pipe=50 --out cut --restarts 0
}
