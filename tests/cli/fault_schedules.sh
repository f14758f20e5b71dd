#!/bin/bash
# Random deaths and returns in the simulator: every run ends, and counts what it lost. A few hundred of
# the ten thousand schedules of bench/faults; SEED moves where they begin.
. "$SRC/tests/cli/lib.sh"

SEEDS=300 FIRST=$((SEED * 1000)) "$SRC/bench/faults" "$SHOAL" >table 2>faults ||
    fail "$(cat faults) (FIRST=$((SEED * 1000)) bench/faults)"
expect_text "300 schedules" table

# Schedules that once hung, crashed or counted wrongly.
for seed in 118 1019 1228 1418 3014 4413; do
    SEEDS=1 FIRST=$seed "$SRC/bench/faults" "$SHOAL" >table 2>faults || fail "seed $seed: $(cat faults)"
done
