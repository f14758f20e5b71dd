# Data in parts, one for each worker: 240 images of 4x4 bytes in files of 150, 60 and 30.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

# `put FIRST COUNT NAME` writes samples FIRST.. as NAME-images and NAME-labels. Row c of an image of
# class c is bright; from sample 210 on there are only classes 0 and 1.
put() {
    local escapes
    # The texts come with octal escapes, which printf's format turns into bytes.
    for what in images labels; do
        escapes=$(awk -v first="$1" -v count="$2" -v what="$what" '
            function byte(n) { printf "\\%03o", n }
            BEGIN {
                byte(0); byte(0); byte(8); byte(what == "images" ? 3 : 1)
                byte(0); byte(0); byte(0); byte(count)
                for (i = 0; i < 8 && what == "images"; i++) byte(i % 4 == 3 ? 4 : 0)
                for (s = first; s < first + count; s++) {
                    class = s < 210 ? s % 4 : s % 2
                    if (what == "labels") { byte(class); continue }
                    for (k = 0; k < 16; k++) {
                        seed = (s * 16 + k + 1) * 7919 % 10007
                        byte(seed % 120 + (int(k / 4) == class ? 120 : 0))
                    }
                }
            }')
        # shellcheck disable=SC2059
        printf "$escapes" >"$3-$what"
    done
}
mlp=(--model "{name: mlp, hidden: [16], dropout: 0.1}" --test-data test-images --batch 24 --lr 0.02
    --optimizer adamw --kernels default --threads 1 --quiet)
parts=("${mlp[@]}" --data %r-images -n 3)

# The last value of a field of the metrics.
last() { grep -o "\"$2\":[0-9.e-]*" "$1/metrics.jsonl" | tail -n 1 | cut -d: -f2; }
at_least() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a >= b) }' || fail "$1 is below $2"; }
same_end() {
    for part in model optimizer; do
        expect_same {"$1","$2"}"/checkpoints/$part-00000040.safetensors"
    done
}

prepare() {
    put 0 240 whole
    put 0 150 0
    put 150 60 1
    put 210 30 2
    put 3 100 test
    expect_exit 0 "$SHOAL" train "${mlp[@]}" --data whole-images --epochs 4 --out whole
    expect_exit 0 "$SHOAL" train "${parts[@]}" --no-quiet --epochs 4 --out parts
    expect_text "3 parts have 240 samples"
}

case_parts_train_as_well_as_one_file() {
    for run in whole parts; do
        [ "$(last $run step)" -eq 40 ] || fail "$run has taken $(last $run step) steps"
        [ "$(last $run samples)" -eq 960 ] || fail "$run has seen $(last $run samples) samples"
        at_least "$(last $run test_accuracy)" 0.95
    done
}

# Running statistics of batchnorm are those of all samples, however unequal the parts: at rate 0 the test loss
# differs from one worker's by the noise of batches alone. Synchronised, all meet in every batch.
case_batchnorm_statistics_are_those_of_all_samples() {
    normed=("${mlp[@]}" --model "[flatten, {dense: 16}, batchnorm, relu, dense]" --lr 0 --epochs 20)
    expect_exit 0 "$SHOAL" train "${normed[@]}" --data whole-images --out normed
    for how in --no-sync-batchnorm --sync-batchnorm; do
        expect_exit 0 "$SHOAL" train "${normed[@]}" --data %r-images -n 3 "$how" --out "normed$how"
        awk -v a="$(last normed test_loss)" -v b="$(last "normed$how" test_loss)" \
            'BEGIN { d = (a - b) / a; print a, b; exit !(d * d < 0.01 * 0.01) }' || fail "biased statistics"
    done
}

# Labels elsewhere, and parts of the test data; the same bits whether the labels are found or named.
case_labels_and_test_data_may_lie_elsewhere() {
    mkdir labels
    for r in 0 1 2; do mv "$r-labels" labels/; done
    expect_exit 0 "$SHOAL" train "${parts[@]}" --labels labels/%r-labels --epochs 4 --out labelled
    same_end parts labelled
    mv labels/* .
    expect_exit 0 "$SHOAL" train "${parts[@]}" --test-data %r-images --epochs 4 --out tested
    same_end parts tested
    at_least "$(last tested test_accuracy)" 0.95
    expect_exit 0 "$SHOAL" train "${parts[@]}" --hold-out 0.2 --epochs 4 --batch 20 --accumulate 2 --out held
    at_least "$(last held validation_accuracy)" 0.9
}

# One process alone sees all parts, so that a checkpoint is measured as it was in training.
case_one_process_sees_all_parts() {
    expect_exit 0 "$SHOAL" train "${parts[@]}" --test-data %r-images --epochs 4 --out tested
    for run in parts tested; do
        expect_exit 0 "$SHOAL" eval "$run" --json
        loss=$(grep -o '"loss":[0-9.e-]*' stdout | cut -d: -f2)
        at_least "$loss" "$(awk -v l="$(last $run test_loss)" 'BEGIN { print l * 0.9999 }')"
        at_least "$(last $run test_loss)" "$(awk -v l="$loss" 'BEGIN { print l * 0.9999 }')"
    done
}

# In two halves: the same bits. On another number of parts, or on other parts: refused.
case_resume_wants_the_same_parts() {
    expect_exit 0 "$SHOAL" train "${parts[@]}" --epochs 2 --out halves
    expect_complaint 2 "was trained on 3 parts, one for each worker; this run has 2" \
        "$SHOAL" train "${parts[@]}" -n 2 --epochs 4 --out halves --resume
    expect_text "-n 3"
    expect_complaint 2 "this run's data is not in parts" \
        "$SHOAL" train "${mlp[@]}" --data whole-images --epochs 4 --out halves --resume
    cp -r halves changed
    expect_exit 0 "$SHOAL" train "${parts[@]}" --epochs 4 --out halves --resume
    same_end parts halves
    mkdir kept
    mv 1-* kept/
    put 151 60 1
    expect_complaint 2 "was trained on other data" \
        "$SHOAL" train "${parts[@]}" --epochs 4 --out changed --resume
    mv kept/* .
}

# Every worker maps its own file and no other.
case_every_worker_maps_its_own_file() {
    "$SHOAL" train "${parts[@]}" --steps 100000000 --log-every 1 --eval-every 1000000 \
        --checkpoint-every 1000000 --out long >"$WORK/stdout" 2>"$WORK/stderr" </dev/null &
    process=$!
    wait_until grep -q '"step":5,' long/metrics.jsonl || fail "no 5 steps: $(cat stderr)"
    workers=0
    for pid in $(pgrep -P "$process"); do
        rank=$(sed 's/^shoal-//' "/proc/$pid/comm")
        workers=$((workers + 1))
        mapped=$(grep -o '[^/]*-images$' "/proc/$pid/maps" | sort -u | tr '\n' ' ')
        [ "$mapped" = "$rank-images test-images " ] || fail "worker $rank has opened $mapped"
    done
    [ "$workers" -eq 3 ] || fail "$workers workers"
    kill -s TERM "$process"
    wait "$process" || true
}

# What is missing or wrong is named, with the rank.
case_missing_and_wrong_parts_are_named_with_the_rank() {
    for r in 0 1 2; do
        mv "$r-images" hidden
        expect_complaint 1 "there is no '$r-images', the part of data.train for rank $r" \
            "$SHOAL" train "${parts[@]}" --out missing
        mv hidden "$r-images"
    done
    expect_complaint 2 "elastic" "$SHOAL" train "${parts[@]}" --elastic --out wrong
    expect_complaint 2 "data.train: '%d-images' holds '%d'" \
        "$SHOAL" train "${mlp[@]}" --data %d-images --out wrong
    expect_complaint 2 "data.test: 'test%'" "$SHOAL" train "${parts[@]}" --test-data test% --out wrong
    expect_complaint 2 "not in data.labels" "$SHOAL" train "${parts[@]}" --labels whole-labels --out wrong
    for r in 0 1 2; do cp "$SRC/README.md" "$r.txt"; done
    expect_complaint 1 "is text, which cannot lie in parts" \
        "$SHOAL" train --model "{name: gpt, layers: 1}" --data %r.txt -n 3 --out wrong
    cp 0-images 0%-images
    cp 0-labels 0%-labels
    expect_exit 0 "$SHOAL" train "${mlp[@]}" --data 0%%-images --epochs 1 --out percent
}

# A worker dies, and its part with it: the others go on with theirs, an epoch is still ten steps. It
# comes back, with a part that has two of the four classes, and learns the rest from what was agreed
# at the start.
case_dead_worker_takes_its_part_and_comes_back_with_it() {
    "$SHOAL" train "${parts[@]}" --no-quiet --sync local:4 --steps 30000 --eval-every 1000000 \
        --checkpoint-every 100 --out dies >dies.out 2>dies.err &
    parent=$!
    until compgen -G "dies/checkpoints/manifest-*.json" >/dev/null; do
        kill -0 "$parent" || fail "$(cat dies.err)"
        sleep 0.1
    done
    kill -KILL "$(pgrep -P "$parent" | sed -n 3p)"
    wait "$parent" || fail "$(cat dies.err)"
    expect_text "the team goes on with 2 workers" dies.err
    expect_text "the team goes on with 3 workers" dies.err
    expect_no_text "from the last checkpoint" dies.err
    [ "$(last dies step)" -eq 30000 ] || fail "it has taken $(last dies step) steps"
    [ "$(last dies epoch)" -eq 3000 ] || fail "it ends in epoch $(last dies epoch)"
    at_least "$(last dies test_accuracy)" 0.95
}
