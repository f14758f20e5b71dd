# A model of text continues a text.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

prepare() {
    for _ in $(seq 40); do echo "the quick brown fox jumps over the lazy dog."; done >fox.txt
    expect_exit 0 "$SHOAL" train --model '{name: gpt, layers: 2, width: 32, heads: 2}' --data fox.txt --context 16 \
        --batch 16 --steps 150 --optimizer adamw --lr 0.01 --threads 1 --kernels default --out runs/fox --quiet
}

case_a_text_learnt_by_heart_is_continued() {
    expect_exit 0 "$SHOAL" generate runs/fox --prompt "the quick brown " --tokens 28 --temperature 0
    [ "$(cat stdout)" = "the quick brown fox jumps over the lazy dog." ] || fail "$(cat stdout)"
    expect_text "28 tokens" stderr
}

case_the_seed_decides_and_the_likeliest_needs_none() {
    for run in a b; do
        expect_exit 0 "$SHOAL" generate runs/fox --prompt "the " --tokens 60 --temperature 3 --seed 5 --quiet
        cp stdout "$run"
    done
    expect_same a b
    expect_exit 0 "$SHOAL" generate runs/fox --prompt "the " --tokens 60 --temperature 3 --seed 6 --quiet
    ! cmp -s a stdout || fail "another seed, the same text"
    expect_exit 0 "$SHOAL" generate runs/fox --prompt "the " --tokens 30 --temperature 0
    cp stdout greedy
    expect_exit 0 "$SHOAL" generate runs/fox --prompt "the " --tokens 30 --temperature 5 --top-k 1 --seed 9
    expect_same greedy stdout
}

case_prompts_and_texts_longer_than_the_context_go_on() {
    expect_exit 0 "$SHOAL" generate runs/fox --prompt "$(head -c 300 fox.txt)" --tokens 100 --temperature 0
    [ "$(wc -c <stdout)" -eq 401 ] || fail "$(wc -c <stdout) bytes"
    expect_exit 0 "$SHOAL" generate runs/fox --tokens 5
}

case_misuse_is_told() {
    expect_exit 2 "$SHOAL" generate runs/fox --prompt "the Quick"
    expect_text "no 'Q' (byte 4" stderr
    expect_exit 2 "$SHOAL" generate runs/fox --temperature -1
    expect_exit 1 "$SHOAL" generate runs/nothing
    expect_exit 0 "$SHOAL" train --model mlp --data digits --steps 1 --out runs/digits --quiet
    expect_exit 2 "$SHOAL" generate runs/digits
    expect_text "reads no text" stderr
}
