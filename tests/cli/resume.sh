# Training in one go, in two parts, or interrupted anywhere: the checkpoints are the same bytes.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

mlp=(--model "{name: mlp, hidden: [64], dropout: 0.2}" --data digits --batch 32 --optimizer adamw --lr 0.001
    --kernels default --quiet)

same_end() {
    for part in model optimizer; do
        local last
        last=$(find whole/checkpoints -name "$part-*.safetensors" | sort | tail -n 1)
        expect_same "$last" "$1/${last#whole/}"
    done
}

# Signals: exit 128 + number, a checkpoint, and the command that goes on, which is then obeyed.
# `interrupt SIGNAL FOLDER` does so once training is under way.
interrupt() {
    local signal=$1 folder=$2 code=0
    # A shell starts background jobs with SIGINT ignored.
    env --default-signal=INT "$SHOAL" train "${mlp[@]}" --no-quiet --steps 1000000 --log-every 1 \
        --checkpoint-every 1000000 --eval-every 1000000 --out "$folder" \
        >"$WORK/stdout" 2>"$WORK/stderr" </dev/null &
    local process=$!
    wait_until grep -q '"step":20,' "$folder/metrics.jsonl" || fail "no 20 steps: $(cat stderr)"
    kill -s "$signal" "$process"
    wait "$process" || code=$?
    [ "$code" -eq $((128 + $(kill -l "$signal"))) ] || fail "exit $code after SIG$signal: $(cat stderr)"
    expect_text "  shoal train $folder --resume" "$WORK/stderr"
    expect_no_text "shoal: train:" "$WORK/stderr"
}

plain=("$SHOAL" train --model "{name: mlp, hidden: [16]}" --data digits --kernels default --quiet)

# Batchnorm's running statistics belong to the bits as well: with any number of workers, where a batch is not cut
# into equal parts, at whatever step a run stopped, and however often the whole one evaluates and saves.
cat >normed.yaml <<'END'
model: [flatten, {dense: 12}, batchnorm, relu, {dense: 10}]
data: {train: digits, batch: 47}
threads: 1
kernels: default
END
stops_anywhere() { # OPTIONS...
    local stop
    expect_exit 0 "$SHOAL" train normed.yaml --quiet --steps 40 --out normed --overwrite "$@" --eval-every 40 \
        --checkpoint-every 40
    expect_exit 0 "$SHOAL" train normed.yaml --quiet --steps 40 --out often --overwrite "$@" --eval-every 3 \
        --checkpoint-every 4
    expect_same {normed,often}/checkpoints/model-00000040.safetensors
    for stop in 1 26; do
        expect_exit 0 "$SHOAL" train normed.yaml --quiet --steps "$stop" --out stopped --overwrite "$@"
        expect_exit 0 "$SHOAL" train stopped --quiet --resume --steps 40
        expect_same {normed,stopped}/checkpoints/model-00000040.safetensors
    done
}

prepare() {
    expect_exit 0 "$SHOAL" train "${mlp[@]}" --epochs 4 --out whole
}

case_two_halves_are_a_whole() {
    expect_exit 0 "$SHOAL" train "${mlp[@]}" --epochs 2 --out halves
    expect_exit 0 "$SHOAL" train "${mlp[@]}" --epochs 4 --out halves --resume
    same_end halves
}

# The folder alone is enough, and a further run there has nothing left to do.
case_folder_alone_is_enough() {
    expect_exit 0 "$SHOAL" train "${mlp[@]}" --epochs 2 --out folder
    expect_exit 0 "$SHOAL" train folder --resume --epochs 4 --quiet
    same_end folder
    cp folder/checkpoints/manifest-*.json .
    expect_exit 0 "$SHOAL" train --resume folder
    expect_text "nothing to do"
    same_end folder
    expect_complaint 2 "is a folder" "$SHOAL" train folder
    expect_text "shoal train folder --resume"
}

case_signals_leave_a_checkpoint_and_the_next_command() {
    for signal in INT TERM; do
        interrupt "$signal" "$signal"
        manifest=$(find "$signal/checkpoints" -name 'manifest-*.json' | sort | tail -n 1)
        step=$((10#$(basename "$manifest" .json | cut -d- -f2)))
        expect_text "stopped after step $step of" "$WORK/stderr"
        [ "$(grep -c "stopped after step" "$WORK/stderr")" -eq 1 ] || fail "said twice: $(cat stderr)"
        expect_text "stopped after step $step of" "$signal/log.txt"
        expect_exit 0 "$SHOAL" train "$signal" --resume --steps $((step + 30)) --quiet
        expect_exit 0 "$SHOAL" train "${mlp[@]}" --steps $((step + 30)) --checkpoint-every 1000000 --eval-every 1000000 --out "plain-$signal"
        name=$(printf %08d $((step + 30)))
        for part in model optimizer; do
            expect_same {"plain-$signal","$signal"}"/checkpoints/$part-$name.safetensors"
        done
    done
}

# Another model cannot go on where this one stopped, and nothing is lost by trying.
case_another_model_cannot_go_on_and_loses_nothing() {
    cp -r whole before
    expect_complaint 1 "fc1" "$SHOAL" train "${mlp[@]}" --model "{name: mlp, hidden: [32]}" --out whole \
        --resume --epochs 9
    diff -r before/checkpoints whole/checkpoints || fail "a refused resume changed the checkpoints"
    expect_exit 1 "$SHOAL" train "${mlp[@]}" --resume --out nowhere
}

# A batch job is launched alike at first and later: `auto` goes on if there is something to go on from.
case_auto_goes_on_where_there_is_something() {
    expect_exit 0 "$SHOAL" train "${mlp[@]}" --no-quiet --epochs 1 --out batch --resume auto
    expect_text "has no checkpoint yet: from the beginning"
    expect_exit 0 "$SHOAL" train "${mlp[@]}" --no-quiet --epochs 4 --out batch --resume auto
    expect_text "resumed after step 47"
    same_end batch
}

# Neither the run file nor metrics nor checkpoints.
case_refused_resume_changes_nothing() {
    expect_exit 0 "${plain[@]}" --steps 5 --batch 32 --out kept
    cp -r kept untouched
    unchanged() { # of the log nothing is asked: it tells of the attempts
        for file in run.yaml metrics.jsonl checkpoints; do
            diff -r "untouched/$file" "kept/$file" || fail "$file changed"
        done
    }
    expect_complaint 2 "batch 32, this run has 64" "$SHOAL" train kept --resume --batch 64 --steps 9
    unchanged
    expect_complaint 2 "seed" "$SHOAL" train kept --resume --seed 99 --steps 9
    unchanged
    expect_complaint 1 "GiB" "$SHOAL" train --model '[{conv: 65536, kernel: 1}, flatten, dense]' --data digits \
        --batch 1500 --out kept --overwrite
    unchanged
    expect_exit 0 "$SHOAL" train kept --resume --steps 5 # nothing to do
    unchanged
    expect_complaint 1 "nothing-here" "${plain[@]}" --resume nothing-here --out nowhere
    expect_no_file nowhere
}

# A run file of a run that was told to overwrite does not overwrite by itself.
case_overwrite_is_not_remembered() {
    expect_exit 0 "${plain[@]}" --steps 5 --out kept --overwrite
    expect_no_text "overwrite: true" kept/run.yaml
    expect_complaint 2 "already holds a run" "$SHOAL" train kept/run.yaml --out kept
}

# It says what the optimizer and the loss were, not what they are by default.
case_run_file_says_what_optimizer_and_loss_were() {
    expect_exit 0 "${plain[@]}" --steps 5 --optimizer adamw --out resolved
    expect_text "lr: 0.001" resolved/run.yaml
    expect_text "weight_decay: 0.01" resolved/run.yaml
    expect_text "name: cross-entropy" resolved/run.yaml
    expect_exit 0 "$SHOAL" train resolved/run.yaml --out again
    expect_same resolved/checkpoints/model-00000005.safetensors again/checkpoints/model-00000005.safetensors
}

case_batchnorm_resumes_bit_for_bit_at_any_step() {
    for workers in 2 3; do
        stops_anywhere -n "$workers"
        stops_anywhere -n "$workers" --sync-batchnorm
    done
}

# So it is in schemes that work in step, where the whole run has met at the same steps.
case_batchnorm_resumes_bit_for_bit_in_lockstep_schemes() {
    for scheme in ps local:3 gossip; do
        meets=(-n 3 --sync "$scheme" --eval-every 10 --checkpoint-every 10)
        expect_exit 0 "$SHOAL" train normed.yaml --quiet --steps 40 --out normed --overwrite "${meets[@]}"
        for stop in 10 30; do
            expect_exit 0 "$SHOAL" train normed.yaml --quiet --steps "$stop" --out stopped --overwrite "${meets[@]}"
            expect_exit 0 "$SHOAL" train stopped --quiet --resume --steps 40
            expect_same {normed,stopped}/checkpoints/model-00000040.safetensors
        done
    done
}
