# docs/run-file.md holds the options as the program itself prints them.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

expect_exit 0 "$SHOAL" train --help-markdown
cp stdout options.md
sed -n '/<!-- options -->/,/<!-- end of options -->/p' "$SRC/docs/run-file.md" | sed '1d;$d' >documented.md
[ -s documented.md ] || fail "docs/run-file.md has no table between its marks"
if ! diff documented.md options.md; then
    fail "docs/run-file.md is out of date; run: tools/update-docs build/release/shoal"
fi
