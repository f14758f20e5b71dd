# How threads wait for each other, and how many there are by default.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

unset OMP_WAIT_POLICY GOMP_SPINCOUNT
net=(--model mlp --data digits --steps 2 --batch 16 --kernels default)

# The run-time's own words about its settings, of the program as it computes in the end.
spins() { sed -n "s/.*GOMP_SPINCOUNT = '\(.*\)'/\1/p" "$WORK/stderr" | tail -n 1; }

case_threads_spin_as_long_as_they_should() {
    expect_exit 0 env OMP_DISPLAY_ENV=verbose "$SHOAL" --version
    if [ -n "$(spins)" ]; then  # GCC's run-time
        expect_exit 0 env OMP_DISPLAY_ENV=verbose "$SHOAL" train "${net[@]}" --out bounded
        [ "$(spins)" = 1000 ] || fail "threads spin $(spins) times"
        # What the user sets holds.
        expect_exit 0 env OMP_DISPLAY_ENV=verbose GOMP_SPINCOUNT=77 "$SHOAL" train "${net[@]}" --out own
        [ "$(spins)" = 77 ] || fail "threads spin $(spins) times, and the user said 77"
        expect_exit 0 env OMP_DISPLAY_ENV=verbose OMP_WAIT_POLICY=passive "$SHOAL" train "${net[@]}" --out passive
        [ "$(spins)" = 0 ] || fail "threads spin $(spins) times, and the user said passive"
    fi
}

# Arguments with blanks, a name found on PATH, and a start through the dynamic linker.
case_program_starts_again_with_its_arguments() {
    expect_exit 0 env PATH="${SHOAL%/*}:$PATH" "${SHOAL##*/}" train "${net[@]}" --out "with a blank"
    expect_file "with a blank/run.yaml"
    linker=$(readelf -lW "$SHOAL" | sed -n 's/.*interpreter: \(.*\)].*/\1/p')
    expect_exit 0 "$linker" "$SHOAL" train "${net[@]}" --out linker
    expect_file linker/run.yaml
}

# Simulated workers compute with one thread each, unless told otherwise.
case_simulated_workers_have_one_thread_each() {
    expect_exit 0 "$SHOAL" simulate "${net[@]}" -n 2 --compute 1ms --out simulated
    expect_text "2 workers of 1 thread," stderr
    expect_exit 0 "$SHOAL" simulate "${net[@]}" -n 2 --compute 1ms --threads 2 --out threads
    expect_text "2 workers of 2 threads," stderr
}
