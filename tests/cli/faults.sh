# Files and disks that fail: exit 1, the file and the place, and nothing good is lost.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

train=("$SHOAL" train --model "{name: mlp, hidden: [16]}" --batch 4 --quiet --out fresh)
refused() { # TEXT FLAG...
    local text=$1
    shift
    expect_complaint 1 "$text" "${train[@]}" "$@"
    expect_no_file fresh
}
digits=("$SHOAL" train --model "{name: mlp, hidden: [16]}" --data digits --batch 32 --quiet)
newest=run/checkpoints/model-00000094.safetensors

prepare() {
    expect_exit 0 "${digits[@]}" --epochs 2 --out run
    cp "$newest" whole
}

case_bad_data_is_named_with_its_place() {
    refused none.csv --data none.csv
    refused "mnist" --data mnist
    expect_text "try: fetch it with 'shoal data get mnist'"
    printf '\0\0\x08\x03\0\0\0\x10\0\0\0\x04\0\0\0\x04' >cut-idx3-ubyte
    head -c 30 /dev/zero >>cut-idx3-ubyte
    refused cut-idx3-ubyte --data cut-idx3-ubyte
    expect_complaint 1 cut-idx3-ubyte "$SHOAL" data check cut-idx3-ubyte
    printf 'a,b,label\n1,2,0\n3,nan,1\n1,4,0\n2,2,1\n' >nan.csv
    refused nan.csv --data nan.csv
    expect_text "line 3, column 2"
    printf 'a,b,label\n1,2,0\n3,4,1\n1,4,0\n2,2,1\n' >good.csv
    printf 'a,b,label\n1,2,0\n3,4,7\n' >high.csv
    refused "label 7" --data good.csv --test-data high.csv
    printf 'a,b,label\n1,2,0\n3,4\n' >ragged.csv
    refused ragged.csv --data ragged.csv
    : >empty.csv
    refused empty.csv --data empty.csv
    expect_exit 0 "${train[@]}" --data good.csv --test-data good.csv --out good
    expect_exit 0 "$SHOAL" data check good.csv
    expect_exit 0 "$SHOAL" data info good.csv
}

# The data folder is the one the user names.
case_data_folder_is_the_one_that_the_user_names() {
    mkdir elsewhere
    SHOAL_DATA=$WORK/elsewhere refused "$WORK/elsewhere/train-images-idx3-ubyte" --data mnist
    refused "$WORK/cache/shoal/train-images-idx3-ubyte" --data mnist
    XDG_CACHE_HOME='' refused "$HOME/.cache/shoal/train-images-idx3-ubyte" --data mnist
    XDG_CACHE_HOME='' expect_exit 0 env -u HOME "$SHOAL" doctor
    printf 'To be, or not to be, that is the question. %.0s' {1..60} >elsewhere/tinyshakespeare.txt
    SHOAL_DATA=$WORK/elsewhere expect_exit 0 "$SHOAL" data info shakespeare
}

case_missing_checkpoint_is_named() {
    expect_complaint 1 "nothing-here" "$SHOAL" eval nothing-here
}

# With a NaN in it, cut short, or with a length that cannot be.
case_bad_model_files_are_not_loaded() {
    size=$(stat -c %s whole)
    head -c $((size - 4)) whole >nan.safetensors
    printf '\0\0\300\177' >>nan.safetensors
    expect_complaint 1 "holds a NaN" "$SHOAL" eval nan.safetensors --model "{name: mlp, hidden: [16]}" --data digits -q
    expect_complaint 1 "holds a NaN" "${digits[@]}" --load nan.safetensors --out poisoned
    head -c 2000 whole >cut.safetensors
    expect_complaint 1 cut.safetensors "$SHOAL" eval cut.safetensors --model mlp --data digits --quiet
    printf '\xff\xff\xff\xff\xff\xff\xff\x7f{}' >hostile.safetensors
    expect_complaint 1 hostile.safetensors "$SHOAL" eval hostile.safetensors --model mlp --data digits -q
}

# A damaged snapshot is skipped for the one before it, with a warning.
case_damaged_snapshot_is_skipped_with_a_warning() {
    printf 'x' | dd of=$newest bs=1 seek=3000 conv=notrunc status=none
    expect_exit 0 "$SHOAL" eval run
    expect_text "warning: " "$WORK/stderr"
    expect_text "tensor 'fc1.weight' is not what was written" "$WORK/stderr"
    # One that is named itself is not used.
    expect_complaint 1 "tensor 'fc1.weight' is not what was written" "$SHOAL" eval $newest --data digits -q
    expect_complaint 1 "$newest' is damaged" "$SHOAL" predict $newest --data digits -q
    expect_complaint 1 "$newest' is damaged" "${digits[@]}" --load $newest --out poisoned
    expect_no_file poisoned
    cp whole $newest
    expect_exit 0 "$SHOAL" eval $newest --data digits -q
}

# Numbers that fail stop the run at that step, name the layer and keep the last good checkpoint.
case_diverged_run_keeps_the_last_good_checkpoint() {
    expect_complaint 1 "step " "${digits[@]}" --out run --resume --epochs 3 --lr 1e6 --weight-decay 1 \
        --checkpoint-every 1000000
    expect_text "fc"
    expect_same whole $newest
    expect_exit 0 "$SHOAL" eval run --quiet
}

# A disk that is full: what was saved before stays whole.
case_full_disk_leaves_older_checkpoints_whole() {
    expect_exit 0 "${digits[@]}" --epochs 1 --out small
    rm -rf kept && cp -r small/checkpoints kept
    code=0
    (ulimit -f 4 && trap '' XFSZ && "${digits[@]}" --epochs 3 --out small --resume) >stdout 2>stderr || code=$?
    [ "$code" -eq 1 ] || fail "exit $code on a full disk: $(cat stderr)"
    expect_text "shoal: train: " stderr
    for file in kept/*; do expect_same "$file" "small/checkpoints/${file##*/}"; done
    expect_exit 0 "${digits[@]}" --epochs 3 --out small --resume
}

case_full_standard_output_is_a_failure() {
    (expect_exit 1 sh -c "'$SHOAL' list >/dev/full")
    expect_text "cannot write to standard output"
}

# A folder that may not be written.
case_folder_that_cannot_be_written_is_named() {
    if [ "$(id -u)" -ne 0 ]; then
        mkdir locked && chmod a-w locked
        expect_complaint 1 locked "${digits[@]}" --out locked/run
    fi
    touch file
    expect_complaint 1 file "${digits[@]}" --out file/run
}
