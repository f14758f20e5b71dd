# Data from outside: files with and without labels, in parts, named, misspelt and broken.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

net=(--model "[{dense: 2}]" --batch 4 --quiet)

# Two features and a class, and the same without the class.
awk 'BEGIN { print "a,b,kind"; for (i = 0; i < 40; i++) print i % 7 "," i % 5 "," (i % 7 > i % 5) }' >kinds.csv
cut -d, -f1,2 kinds.csv >bare.csv

case_predicting_needs_no_labels_and_training_does() {
    for column in kind 2; do
        expect_exit 0 "$SHOAL" train "${net[@]}" --data kinds.csv --label-column $column --out "by-$column"
        expect_exit 0 "$SHOAL" predict "by-$column" --data kinds.csv --quiet
        mv stdout labelled
        expect_exit 0 "$SHOAL" predict "by-$column" --data bare.csv --quiet
        expect_same labelled stdout
        expect_complaint 1 "the test data 'bare.csv' has no labels" "$SHOAL" eval "by-$column" --data bare.csv --quiet
        expect_text "try: "
    done
    expect_complaint 1 "the test data 'bare.csv' has no labels" "$SHOAL" train "${net[@]}" --data kinds.csv \
        --test-data bare.csv --out fresh
    expect_no_file fresh
}

# Every part is described and checked.
case_every_part_is_described_and_checked() {
    expect_exit 0 "$SHOAL" data check digits
    expect_text "digits (train): 1500 samples, no fault found" stdout
    expect_text "digits (test): 297 samples, no fault found" stdout
    expect_exit 0 "$SHOAL" data info kinds.csv
    for line in "part:      all" "format:    csv" "range:     0 to 6" "per class: 20 20"; do
        expect_text "$line" stdout
    done
}

case_named_data_is_checked_whole_cut_and_packed() {
    mkdir cache-mnist
    export SHOAL_DATA=$WORK/cache-mnist
    for part in train t10k; do # 9 images of 3 x 3
        { printf '\0\0\x08\x03\0\0\0\x09\0\0\0\x03\0\0\0\x03' && head -c 81 /dev/zero; } >"$SHOAL_DATA/$part-images-idx3-ubyte"
        { printf '\0\0\x08\x01\0\0\0\x09' && head -c 9 /dev/zero; } >"$SHOAL_DATA/$part-labels-idx1-ubyte"
    done
    expect_exit 0 "$SHOAL" data check mnist
    expect_text "mnist (test): 9 samples" stdout
    cp -r "$SHOAL_DATA" whole
    truncate -s 50 "$SHOAL_DATA/train-images-idx3-ubyte"
    expect_complaint 1 "train-images-idx3-ubyte' ends after 3 of 9 samples" "$SHOAL" data check mnist
    cp whole/* "$SHOAL_DATA"
    # Named data may lie packed in its folder.
    gzip "$SHOAL_DATA"/*-ubyte
    expect_exit 0 "$SHOAL" data check mnist
    expect_exit 0 "$SHOAL" doctor
    grep -Eq '^mnist +there$' stdout || fail "doctor does not see packed files"
}

# A label to ignore is no class and counts for nothing: neither in the loss, nor in the mean, nor in the accuracy.
case_ignored_labels_count_for_nothing() {
    awk -F, 'NR == 1 || NR % 4 { print; next } { print $1 "," $2 ",-100" }' kinds.csv >ignored.csv
    grep -v -- -100 ignored.csv >kept.csv
    full=(--model "[dense]" --normalise none --batch 40 --epochs 20 --lr 0.1 --quiet)
    expect_exit 0 "$SHOAL" data info ignored.csv
    expect_text "classes:   2" stdout
    expect_text "ignored:   10 samples" stdout
    expect_exit 0 "$SHOAL" train "${full[@]}" --data kept.csv --test-data kept.csv --out kept
    expect_exit 0 "$SHOAL" eval kept --quiet
    head -n 2 stdout | cut -c -14 >wanted # the loss to four digits, and the accuracy
    sed 's/-100/255/' ignored.csv >ignored255.csv
    same() { # FLAG...
        expect_exit 0 "$SHOAL" train "${full[@]}" --out ignored --overwrite "$@"
        expect_exit 0 "$SHOAL" eval ignored --quiet
        head -n 2 stdout | cut -c -14 >got
        expect_same wanted got
    }
    same --data ignored.csv --test-data ignored.csv
    same --data ignored.csv --test-data ignored.csv -n 2
    same --data ignored.csv --test-data ignored.csv --exact
    same --data ignored255.csv --test-data ignored255.csv --ignore 255
    # ... also where only one worker's part has it.
    { head -n 1 kept.csv && sed -n 2,21p kept.csv; } >part-0.csv
    { head -n 1 kept.csv && sed -n '22,$p' kept.csv && grep -- -100 ignored.csv; } >part-1.csv
    same --data part-%r.csv --test-data ignored.csv -n 2
    # Schemes that do not sum every step cannot count the labels of other parts, and say so.
    expect_exit 0 "$SHOAL" train "${full[@]}" --data part-%r.csv --test-data ignored.csv -n 2 --sync local:2 --out said
    expect_text "cannot count the labels of other parts" said/log.txt
    expect_exit 0 "$SHOAL" train "${full[@]}" --data ignored.csv --test-data ignored.csv -n 2 --sync local:2 --out unsaid
    expect_no_text "cannot count the labels" unsaid/log.txt
}

# Text holds out its end unless told otherwise; 0 means nothing.
case_text_holds_out_its_end() {
    printf 'To be, or not to be, that is the question. %.0s' {1..60} >plays.txt
    plays=("$SHOAL" train --model "[embedding: 8, dense]" --data plays.txt --context 8 --steps 1 --batch 4 --overwrite --out text)
    expect_exit 0 "${plays[@]}"
    expect_text "validation: 250 windows"
    expect_exit 0 "${plays[@]}" --hold-out 0
    expect_no_text "validation"
    expect_text "train: 2572 windows"
}

# A first line of words and numbers is no header to pass over.
case_first_line_of_words_and_numbers_is_no_header() {
    printf '1,x,0\n1,2,0\n' >mixed.csv
    expect_complaint 1 "'mixed.csv', line 1, column 2: 'x' is not a number" "$SHOAL" data check mixed.csv
    expect_text "try: write numbers for words"
}

# Every fault says what to do next.
case_every_fault_says_what_to_do_next() {
    advised() { # TEXT NEXT FLAG...
        local text=$1 next=$2
        shift 2
        expect_complaint "${code:-1}" "$text" "$SHOAL" data info "$@"
        expect_text "  $next"
    }
    advised "cannot open 'mnis'" "did you mean 'mnist'?" mnis
    advised "cannot open 'digist:test'" "did you mean 'digits'?" digist:test
    advised "cannot open 'sintetic:count=8'" "did you mean 'synthetic'?" sintetic:count=8
    advised "cannot open 'there/is.none'" "try: give the path of a file, or a name of 'shoal list data'" there/is.none
    code=2 advised "has no column 'kinds'" "did you mean 'kind'?" kinds.csv --label-column kinds
    code=2 advised "has no column 'size'" "try: name one of the header, or an index from 0 to 2" kinds.csv --label-column size
    : >empty.csv
    advised "'empty.csv' is empty" "try: the file is damaged: fetch or write it again" empty.csv
    printf '1,2\n3,nan\n' >nan.csv
    advised "nan is not a finite float" "try: remove or replace values that are not finite" nan.csv
    printf '1,2\n3,\n' >gap.csv
    advised "column 2: the field is empty" "try: give it a number" gap.csv
    printf '1,2\n3\n' >short.csv
    advised "1 columns where 2 are expected" "try: every line needs as many columns" short.csv
    printf '\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff' >huge-idx3-ubyte
    advised "an absurd shape" "try: the file is damaged" huge-idx3-ubyte
}

# What a look at sparse rows costs depends on what they store: 400,000 dense rows of 4,194,304 features take
# most of an hour.
case_sparse_rows_cost_what_they_store() {
    awk 'BEGIN { for (i = 0; i < 400000; i++) print i % 2, i % 900 + 1 ":" i % 7 - 3, 4194304 - i ":2.5" }' >wide.libsvm
    expect_exit 0 "$SHOAL" data info wide.libsvm
    expect_text "sample:    4194304 floats" stdout
    expect_text "range:     -3 to 3" stdout
    expect_text "per class: 200000 200000" stdout
    awk 'BEGIN { for (i = 0; i < 2000; i++) print i % 2, i % 900 + 1 ":" 1 + i % 7, 4194304 - i ":2.5" }' >positive.libsvm
    expect_exit 0 "$SHOAL" data info positive.libsvm
    expect_text "range:     0 to 7" stdout
    expect_exit 0 "$SHOAL" data check wide.libsvm
    expect_text "400000 samples, no fault found" stdout
}
