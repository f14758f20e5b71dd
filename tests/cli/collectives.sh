# shoal explain of collectives: steps, numbers, cost, picture; and what users get wrong.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

# The ring A-B-D-C of docs/collectives.md.
case_ring_of_the_docs_is_explained_step_by_step() {
    expect_exit 0 "$SHOAL" explain allreduce --algorithm ring --values "$SRC/examples/ring.txt" \
        --svg ring.svg --quiet
    [ ! -s stderr ] || fail "--quiet, and words on stderr"
    expect_text "24 in all, 6 sent by each rank" stdout
    expect_text "96 B in all, 24 B sent by each rank" stdout
    expect_text "result     37 37 36 43  on every rank" stdout
    expect_text "   2     B     D        0        4 B  reduce  12 + 22 = 34" stdout
    expect_text "   2     A     B        3        4 B  reduce  14 + 17 = 31" stdout
    [ "$(grep -cE '^ +[1-6] +[A-D] +[A-D] +[0-3] ' stdout)" -eq 24 ] || fail "not 24 messages"
    expect_file ring.svg
    [ "$(grep -c marker-end ring.svg)" -eq 24 ] || fail "not 24 arrows"
    expect_same ring.svg "$SRC/docs/ring.svg"
    if [ -n "$(command -v xmllint || true)" ]; then xmllint --noout ring.svg; fi
}

# Random values at other rank counts: every algorithm gives the sum that awk gives.
case_every_algorithm_gives_the_sum() {
    RANDOM=$((SEED + 6))
    for ranks in 1 2 3 5 8 13; do
        for ((r = 0; r < ranks; r++)); do
            echo "r$r $((RANDOM % 100)) $((RANDOM % 100 - 50)) $((RANDOM % 100)) $((RANDOM % 9)) $RANDOM"
        done >random.txt
        sums=$(awk '{for (i = 2; i <= NF; i++) s[i] += $i} END {for (i = 2; i <= NF; i++) printf " %d", s[i]}' random.txt)
        for algorithm in ring halving-doubling tree hierarchical direct; do
            expect_exit 0 "$SHOAL" explain allreduce --algorithm "$algorithm" --values random.txt --per-node 3
            expect_text "result    $sums" stdout
        done
    done
}

# Every collective and algorithm explains itself, as text, as JSON and as a picture.
case_every_collective_explains_itself_as_text_json_and_picture() {
    expect_exit 0 "$SHOAL" list collectives
    mapfile -t rows < <(sed -nE 's/^  ([a-z-]+ [a-z-]+)  .*/\1/p' stdout)
    [ "${#rows[@]}" -ge 17 ] || fail "only ${#rows[@]} rows"
    for row in "${rows[@]}"; do
        read -r collective algorithm <<<"$row"
        expect_exit 0 "$SHOAL" explain "$collective" --algorithm "$algorithm" -n 6
        expect_text "$collective by $algorithm, 6 ranks" stdout
        cp stdout once
        expect_exit 0 "$SHOAL" explain "$collective" --algorithm "$algorithm" -n 6
        expect_same once stdout
        expect_exit 0 "$SHOAL" explain "$collective" --algorithm "$algorithm" -n 6 --json
        expect_text "\"algorithm\":\"$algorithm\"" stdout
        [ "$algorithm" = mpi ] && continue
        expect_exit 0 "$SHOAL" explain "$collective" --algorithm "$algorithm" -n 6 --svg "$algorithm.svg"
        expect_text "drawn: $algorithm.svg" stderr
        expect_text "</svg>" "$algorithm.svg"
    done
    expect_exit 0 "$SHOAL" explain all-reduce -n 2 # dashes are free
    expect_exit 0 "$SHOAL" explain -n 3 --json alltoall
    expect_text '"collective":"all-to-all"' stdout
}

# Who wins where, on the user's own links.
case_links_decide_which_algorithm_wins() {
    expect_exit 0 "$SHOAL" explain allreduce -n 6 --size 64k --link 100Mbit,1ms
    expect_text "64 KiB" stdout
    expect_text "100 Mbit/s, 1 ms between nodes" stdout
    expect_text "6 messages in a row, not 10 as ring" stdout
    expect_text "1.67 n bytes, not 3.5 n as halving-doubling" stdout
    expect_exit 0 "$SHOAL" explain allreduce -n 12 --per-node 4 --algorithm hierarchical
    expect_text "node 2: 8 9 10 11" stdout
    expect_exit 0 "$SHOAL" explain allreduce --algorithm ring -n 1000
    expect_text "too many to list" stdout
    expect_text "1998000 in all, 1998 sent by each rank" stdout
    expect_exit 0 "$SHOAL" explain allreduce --help
    expect_text "--per-node" stdout
    expect_exit 0 "$SHOAL" explain --help
    expect_text "shoal explain allreduce" stdout
}

# What a run of as many workers measured stands for their links, unless the user names others.
case_measured_links_stand_unless_others_are_named() {
    expect_exit 0 "$SHOAL" explain allreduce -n 3 --per-node 3
    expect_no_text "as measured" stdout
    expect_exit 0 "$SHOAL" train --model mlp --data digits --threads 1 -n 3 --steps 2 --out links
    expect_text "links measured" links/log.txt
    expect_exit 0 "$SHOAL" explain allreduce -n 3 --per-node 3
    expect_text "as measured between 3 ranks on 1 node, shm" stdout
    sed -i 's/"link [^"]*"/"link 1e-3 8e-8 1e-9 node 2e-3 4e-8 1e-9 large ring"/' "$XDG_CACHE_HOME"/shoal/kernels-*.json
    expect_exit 0 "$SHOAL" explain allreduce -n 3 --per-node 3
    expect_text "200 Mbit/s, 2 ms" stdout
    expect_text "From 1 MiB workers take ring" stdout
    expect_exit 0 "$SHOAL" explain allreduce -n 3 --per-node 3 --node-link 10Gbit,1us
    expect_no_text "as measured" stdout
    expect_exit 0 "$SHOAL" explain allreduce -n 4 --per-node 4
    expect_no_text "as measured" stdout
    rm -r "$XDG_CACHE_HOME"
}

# Misuse.
case_misuse_is_refused_with_a_next_step() {
    expect_complaint 2 "there is no algorithm 'rign' for allreduce" "$SHOAL" explain allreduce --algorithm rign
    expect_text "did you mean 'ring'?"
    expect_complaint 2 "there is no algorithm 'ring' for broadcast" "$SHOAL" explain broadcast --algorithm ring
    expect_complaint 2 "unknown flag '--algoritm'" "$SHOAL" explain allreduce --algoritm ring
    expect_text "did you mean '--algorithm'?"
    expect_complaint 2 "from 1 to 4096, found '0'" "$SHOAL" explain allreduce -n 0
    expect_complaint 2 "from 1 to 4096, found '5000'" "$SHOAL" explain allreduce -n 5000
    expect_complaint 2 "the root 4 is none of the 4 ranks" "$SHOAL" explain broadcast --root 4
    expect_complaint 2 "multiple of 4" "$SHOAL" explain allreduce --size 6
    expect_complaint 2 "--link 'fast'" "$SHOAL" explain allreduce --link fast
    expect_complaint 2 "too much for a picture" "$SHOAL" explain allreduce -n 100 --svg big.svg
    expect_no_file big.svg
    expect_complaint 2 "moves no values" "$SHOAL" explain barrier --values "$SRC/examples/ring.txt"
    expect_complaint 2 "holds 4 ranks, but 3 were asked for" "$SHOAL" explain allreduce -n 3 \
        --values "$SRC/examples/ring.txt"
    expect_complaint 1 "cannot" "$SHOAL" explain allreduce --svg nowhere/ring.svg
    expect_complaint 1 "it names no file" "$SHOAL" explain allreduce --svg ""
    expect_complaint 1 "'/dev/full': No space left on device" "$SHOAL" explain allreduce --svg /dev/full
    expect_text "try: make room there, or write elsewhere" stderr
    expect_complaint 1 "none.txt" "$SHOAL" explain allreduce --values none.txt
    expect_text "try: --values FILE, with a line for each rank" stderr
    expect_exit 0 "$SHOAL" explain allreduce -n 1
    expect_text "one rank has nobody to send to" stdout
    expect_no_text "on ;" stdout
    printf 'A 1 2\nB 3\n' >uneven.txt
    expect_complaint 1 "uneven.txt:2: rank 'B' has 1 values" "$SHOAL" explain allreduce --values uneven.txt
    printf 'A 1 two\n' >word.txt
    expect_complaint 1 "word.txt:1: value 2 of rank 'A' is no number: 'two'" "$SHOAL" explain allreduce --values word.txt
    printf 'A 1 2 3\nB 3 4 5\n' >odd.txt
    expect_complaint 1 "no multiple of the 2 ranks" "$SHOAL" explain all-to-all --values odd.txt
}

# docs/collectives.md shows what the program prints: every console block is run again.
case_every_console_block_of_the_docs_is_current() {
    PATH=$(dirname "$SHOAL"):$PATH
    awk -v folder="$WORK" '
        /^```console$/ { block++; file = folder "/doc." block; printf "" > (file ".want"); inside = 1; next }
        /^```/ { inside = 0 }
        inside && /^\$ / { print substr($0, 3) > (file ".run"); next }
        inside { print > (file ".want") }' "$SRC/docs/collectives.md"
    blocks=("$WORK"/doc.*.run)
    [ "${#blocks[@]}" -ge 20 ] || fail "only ${#blocks[@]} console blocks in docs/collectives.md"
    for block in "${blocks[@]}"; do
        (cd "$SRC" && bash "$block") >"$WORK/got"
        diff "${block%.run}.want" "$WORK/got" || fail "docs/collectives.md is out of date: $(cat "$block")"
    done
}
