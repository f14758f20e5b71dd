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

expect_no_offer() {
    local unwanted=$1
    shift
    complete_words "$@" >"$WORK/offered"
    ! grep -qxF -- "$unwanted" "$WORK/offered" || fail "'$*' offers '$unwanted'"
}

case_every_command_is_offered() {
    mapfile -t commands < <("$SHOAL" list commands | sed -nE 's/^  ([a-z]+) .*/\1/p')
    [ "${#commands[@]}" -ge 10 ] || fail "commands: ${commands[*]}"
    for command in "${commands[@]}"; do
        expect_offer "$command" shoal ""
        expect_offer "$command" shoal help "${command:0:1}"
    done
}

case_words_that_fit_the_place_are_offered() {
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
}

# What a benchmark is about decides its flags.
case_benchmark_decides_its_flags() {
    expect_offer --sizes shoal bench allreduce --si
    expect_no_offer --model shoal bench allreduce --
    expect_offer --zipf shoal bench hogwild --z
    expect_offer --bench-steps shoal bench train --be
    expect_offer ring shoal bench allreduce --algorithm ri
    expect_offer --no-overlap shoal train --no
}

# Values are names where there are names, and files only where there can be files.
case_values_are_names_or_files_as_the_flag_takes_them() {
    touch mine.csv sums trace measures useful
    expect_offer mnist shoal train --data m
    expect_offer mine.csv shoal train --data m
    expect_offer mnist shoal train --test-data m
    expect_offer ssp shoal train --sync s
    expect_no_offer sums shoal train --sync s
    expect_offer terngrad shoal train --compress t
    expect_no_offer trace shoal train --compress t
    expect_offer none shoal train --compress n
    expect_offer measure shoal train --kernels m
    expect_no_offer measures shoal train --kernels m
    expect_offer unit shoal train --normalise u
    expect_no_offer useful shoal train --normalise u
    expect_offer halving-doubling shoal train --allreduce ha
    expect_offer adamw shoal train --optimizer ad
    expect_offer off shoal simulate --numerics o
    expect_offer bsp,local shoal compare --sync bsp,lo
    expect_offer mine.csv shoal train --labels m
    expect_no_offer trace shoal help t
    expect_offer train shoal help t
    expect_offer shakespeare shoal data get s
}
