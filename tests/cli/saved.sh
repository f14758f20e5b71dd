# A model is used where its training data is not: eval and predict from the folder, a snapshot, or the file alone.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

net=(--model "{name: mlp, hidden: [8]}" --optimizer adam --lr 0.02 --batch 16 --epochs 4 --threads 1
    --checkpoint-keep 1 --kernels default --quiet)
use=(--batch 16 --threads 1 --kernels default --quiet) # a model file alone knows nothing of these
split=(--hold-out 0.1 --hold-out-test 0.25)

prepare() {
    # Numbers far from 0 and 1: what is not scaled as in training gives other outputs.
    awk 'BEGIN { srand(4); for (i = 0; i < 200; i++) { a = 500 * rand() + 1000; b = rand() / 100
        print a "," b "," (a > 1250) + (b > 0.005) } }' >all.csv
    head -n 150 all.csv >train.csv
    tail -n 50 all.csv >new.csv
    cut -d, -f1,2 new.csv >bare.csv
    expect_exit 0 "$SHOAL" train "${net[@]}" --data train.csv --test-data new.csv --out run
    expect_exit 0 "$SHOAL" eval run --quiet
    cp stdout eval.txt
    expect_exit 0 "$SHOAL" predict run --quiet
    cp stdout predicted.csv
    expect_exit 0 "$SHOAL" eval run --part train --quiet
    model=$(echo run/checkpoints/model-*.safetensors)
    cp "$model" alone.safetensors

    mkdir away
    mv train.csv away
}

case_model_is_used_without_its_training_data() {
    model=$(echo run/checkpoints/model-*.safetensors)
    expect_exit 0 "$SHOAL" eval run --quiet
    expect_same eval.txt stdout
    for checkpoint in run "$model" run/checkpoints/manifest-*.json alone.safetensors; do
        for data in new.csv bare.csv; do
            expect_exit 0 "$SHOAL" predict "$checkpoint" --data $data "${use[@]}"
            expect_same predicted.csv stdout
        done
    done
    expect_complaint 1 "train.csv" "$SHOAL" eval run --part train --quiet
    expect_text "name other data with --data"
    expect_complaint 1 "does not fit what the model was trained on" "$SHOAL" predict run --data digits --quiet
    expect_complaint 2 "no data is given" "$SHOAL" eval alone.safetensors --quiet
}

# A checkpoint without that knowledge, as older ones are, works as long as the training data is there.
case_older_checkpoints_need_the_training_data() {
    model=$(echo run/checkpoints/model-*.safetensors)
    cat >strip.py <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + size])
if len(sys.argv) > 3:
    head["__metadata__"]["shoal.data"] = sys.argv[3]
else:
    del head["__metadata__"]["shoal.data"]
text = json.dumps(head, separators=(",", ":")).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
PY
    if command -v python3 >/dev/null; then
        cp -r run old
        rm old/checkpoints/manifest-*.json
        file=old/checkpoints/${model##*/}
        python3 strip.py "$model" "$file"
        expect_complaint 1 "train.csv" "$SHOAL" predict "$file" --data new.csv "${use[@]}"
        mv away/train.csv .
        expect_exit 0 "$SHOAL" predict "$file" --data new.csv "${use[@]}"
        expect_same predicted.csv stdout
        mv train.csv away
        python3 strip.py "$model" "$file" '{"version":1,"sample":[2],"target":"classes","outputs":3,"mean":[1],"scale":[1]}'
        expect_complaint 1 "is not sound" "$SHOAL" predict "$file" --data new.csv "${use[@]}"
        python3 strip.py "$model" "$file" '{"version":1,"sample":[3],"target":"classes","outputs":3}'
        expect_complaint 1 "fc1.weight" "$SHOAL" predict "$file" --data new.csv "${use[@]}"
    fi
}

# Text: the characters keep their numbers, whatever the new text has.
case_characters_keep_their_numbers() {
    for i in $(seq 60); do echo "line $i: to be or not to be, that is the question"; done >plays.txt
    grep -v '[37]' plays.txt >less.txt
    text=(--model "{name: gpt, layers: 1, heads: 2, width: 16}" --context 16 --batch 8 --steps 3 --threads 1 --quiet)
    expect_exit 0 "$SHOAL" train "${text[@]}" --data plays.txt --out text
    expect_exit 0 "$SHOAL" eval text --data less.txt --quiet
    cp stdout eval.txt
    mv plays.txt away
    expect_exit 0 "$SHOAL" eval text --data less.txt --quiet
    expect_same eval.txt stdout
    echo "Zounds! No line of the text has such a character in it." >odd.txt
    expect_complaint 1 "a character that training never saw" "$SHOAL" eval text --data odd.txt --quiet
}

# One file in three parts: the held-out ones are the same for one worker and for two, and for eval.
case_held_out_parts_are_the_same_for_any_workers() {
    expect_exit 0 "$SHOAL" train "${net[@]}" --data all.csv "${split[@]}" --out one
    expect_exit 0 "$SHOAL" train "${net[@]}" --data all.csv "${split[@]}" --out two -n 2
    for run in one two; do
        for part in test:50 validation:20 train:130; do
            expect_exit 0 "$SHOAL" eval $run --part ${part%:*} --quiet
            expect_text "samples   ${part#*:}" stdout
        done
        expect_exit 0 "$SHOAL" predict $run --part test --quiet
        cut -d, -f1 stdout | wc -l >rows
        [ "$(cat rows)" -eq 51 ] || fail "predict wrote $(cat rows) rows"
    done
    expect_exit 0 "$SHOAL" eval one --data new.csv --part validation --quiet
    expect_text "samples   20" stdout
    expect_complaint 2 "and hold_out_test are given" "$SHOAL" train "${net[@]}" --data all.csv --test-data new.csv \
        --hold-out-test 0.1 --out both
    expect_complaint 2 "'digits' brings a test part" "$SHOAL" train "${net[@]}" --data digits --hold-out-test 0.1 --out both
}

# Under a launcher of several ranks rank 0 does it, once, and the others end without a word or a file.
case_rank_0_of_a_launcher_evaluates_alone() {
    expect_exit 0 "$SHOAL" train "${net[@]}" --data all.csv "${split[@]}" --out one
    expect_exit 0 "$SHOAL" eval one --quiet
    cp stdout eval.txt
    for variables in OMPI_COMM_WORLD_SIZE=3:OMPI_COMM_WORLD_RANK PMI_SIZE=3:PMI_RANK SLURM_STEP_NUM_TASKS=3:SLURM_PROCID; do
        expect_exit 0 env "${variables%:*}" "${variables#*:}=0" "$SHOAL" eval one
        expect_same eval.txt stdout
        expect_text "3 ranks were started: rank 0 does this alone" stderr
        for rank in 1 2; do
            for command in "eval one" "predict one -o spare.csv" "explain one" "data info digits" "list models" \
                "simulate --model mlp --data digits --out spare" "doctor" "--help" "evla"; do
                # shellcheck disable=SC2086
                expect_exit 0 env "${variables%:*}" "${variables#*:}=$rank" "$SHOAL" $command
                [ -z "$(cat stdout stderr)" ] || fail "rank $rank: $command: $(cat stdout stderr)"
            done
        done
    done
    expect_no_file spare
    expect_no_file spare.csv
    # One rank alone has nobody to tell of.
    expect_exit 0 env OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 "$SHOAL" eval one
    expect_no_text "ranks" stderr
}
