# Completion offers the program's own commands, and its own flags for each.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

PATH=$(dirname "$SHOAL"):$PATH
# shellcheck source=completions/shoal.bash
. "$SRC/completions/shoal.bash"

# complete_words WORD...   what completion offers for the last word, one per line.
complete_words() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _shoal shoal "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf '%s\n' "${COMPREPLY[@]}"
}

expect_offer() {
    local wanted=$1
    shift
    complete_words "$@" >"$WORK/offered"
    grep -qxF -- "$wanted" "$WORK/offered" || fail "'$*' does not offer '$wanted'"
}

for command in train eval predict explain bench compare list data doctor; do
    expect_offer "$command" shoal ""
done
expect_offer train shoal tr
[ -z "$(complete_words shoal xyz)" ] || fail "offers something for 'shoal xyz'"
expect_offer --epochs shoal train --ep
expect_offer --model shoal train --
touch lenet.yaml
expect_offer lenet.yaml shoal train len
expect_offer lenet shoal train --model le
expect_offer mse shoal train --loss m
expect_offer cosine shoal train --schedule co
expect_offer models shoal list mo
expect_offer train shoal bench ""
expect_offer allreduce shoal bench a
expect_offer allreduce shoal explain all
expect_offer all-to-all shoal explain all
expect_offer gossip shoal explain gos
expect_offer torus shoal explain gossip --graph to
expect_offer lenet.yaml shoal explain len
expect_offer halving-doubling shoal explain allreduce --algorithm hal
expect_offer --per-node shoal explain allreduce --per
expect_offer --model shoal explain --mo
