# docs/run-file.md holds the options as the program itself prints them.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

case_table_of_options_is_current() {
    expect_exit 0 "$SHOAL" train --help-markdown
    cp stdout options.md
    sed -n '/<!-- options -->/,/<!-- end of options -->/p' "$SRC/docs/run-file.md" | sed '1d;$d' >documented.md
    [ -s documented.md ] || fail "docs/run-file.md has no table between its marks"
    if ! diff documented.md options.md; then
        fail "docs/run-file.md is out of date; run: tools/update-docs build/release/shoal"
    fi
}

# What the pages show of explain's collectives, graphs and pipelines is what it prints.
case_blocks_of_explain_are_current() {
    PATH="$(dirname "$SHOAL"):$PATH"
    count=0
    for page in collectives schemes pipeline planning; do
        rm -f block-*
        awk '/^```/ { open = !open; if (open) file = "block-" ++n; next } open { print > file }' "$SRC/docs/$page.md"
        for block in block-*; do
            command=$(sed -n '1s/^\$ \(shoal explain .*\)/\1/p' "$block")
            if [ -z "$command" ] || [ "$(grep -c '^\$ ' "$block")" -ne 1 ]; then continue; fi
            (cd "$SRC" && bash -c "$command") >shown
            sed 1d "$block" | diff - shown || fail "docs/$page.md: $command"
            count=$((count + 1))
        done
    done
    [ "$count" -ge 15 ] || fail "only $count commands were found"
}
