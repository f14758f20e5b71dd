# Random deaths and returns in the simulator: every run ends, and counts what it lost. A few hundred of
# the ten thousand schedules of bench/faults; SEED moves where they begin.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

case_random_deaths_and_returns_end_and_are_counted() {
    SEEDS=300 FIRST=$((SEED * 1000)) "$SRC/bench/faults" "$SHOAL" >table 2>faults ||
        fail "$(cat faults) (FIRST=$((SEED * 1000)) bench/faults)"
    expect_text "300 schedules" table
}

# Schedules that once hung, crashed or counted wrongly.
case_schedules_that_once_failed_pass() {
    for seed in 118 1019 1228 1418 3014 4413; do
        SEEDS=1 FIRST=$seed "$SRC/bench/faults" "$SHOAL" >table 2>faults || fail "seed $seed: $(cat faults)"
    done
}
