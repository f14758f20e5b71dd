# Addresses are limited (ulimit -v): workers take fewer of them, and what does not fit says what to do.
# So it is with the sizes of files, of which shared memory is one (ulimit -f).
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

if [ -n "${SANITIZED:-}" ] && [ "$SANITIZED" != OFF ]; then
    echo "sanitizers take terabytes of addresses"
    exit 77
fi

limited() { # MIB COMMAND...   A library that finds no memory may try for ever.
    (
        ulimit -v $(($1 << 10))
        shift
        exec timeout -k 10 "$PATIENCE" "$@"
    )
}

train=("$SHOAL" train --data digits --threads 1 --kernels default --steps 20 -n 2 --quiet --overwrite)

case_workers_take_fewer_addresses_where_they_are_limited() {
    for scheme in bsp async gossip "async --server-ranks own"; do
        # shellcheck disable=SC2086 # two words where there are two
        expect_exit 0 limited 2000 "${train[@]}" --model mlp --sync $scheme --out run
    done
    # As much as the machine has memory, which one fabric alone would take.
    expect_exit 0 limited $(($(awk '/^MemTotal/ { print $2 }' /proc/meminfo) / 1024 + 2000)) \
        "${train[@]}" --model mlp --sync async --out run
}

case_model_beyond_the_address_limit_says_so() {
    expect_complaint 1 "cannot map" limited 1000 "${train[@]}" --model "{name: mlp, hidden: [12000, 12000]}" --out large
    expect_text "limited to 1000 MiB of addresses: 'ulimit -v unlimited'"
}

case_file_limit_is_named() {
    in_small_files() { (ulimit -f 100 && exec "$@"); } # KiB
    expect_complaint 1 "shared memory of 2 workers: File too large" in_small_files "${train[@]}" --model mlp --out small
    expect_text "'ulimit -f unlimited'"
    expect_complaint 1 "File too large" in_small_files "${train[@]}" --model mlp -n 1 --out small
    expect_text "choose another folder with --out"
}
