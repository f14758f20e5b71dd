# An installed Shoal is complete: program, both libraries, headers, shoal.pc, man page, completion;
# the examples build against it with nothing but pkg-config; and the tree can be moved.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

prefix=$WORK/moved
CC=${CC:-cc}
warnings=(-std=c17 -Wall -Wextra -Werror)
if [ -d "$prefix" ]; then # in the cases: `prepare` installs it
    libdir=$(dirname "$(find "$prefix" -name libshoal.a)")
    export PKG_CONFIG_PATH=$libdir/pkgconfig
    read -ra cflags <<<"$(pkg-config --cflags shoal)"
    read -ra shared <<<"$(pkg-config --libs shoal)"
    read -ra static <<<"$(pkg-config --static --libs shoal)"
fi

prepare() {
    staged=$WORK/staged/usr # through DESTDIR first, as a packager does, then moved
    DESTDIR="$WORK/staged" expect_exit 0 cmake --install "$BUILD" --prefix /usr
    mv "$staged" "$prefix"
}

case_program_libraries_header_and_pages_are_there() {
    expect_exit 0 "$prefix/bin/shoal" --version
    expect_file "$libdir/libshoal.a"
    expect_file "$libdir/libshoal.so"
    expect_file "$prefix/include/shoal/shoal.h"
    expect_file "$prefix/include/shoal/tools.h"
    expect_file "$prefix/share/man/man1/shoal.1"
    expect_file "$prefix/share/bash-completion/completions/shoal"
}

# The MPI modules that were built are there, and the moved program finds them.
case_moved_program_finds_its_mpi_modules() {
    expect_exit 0 "$prefix/bin/shoal" doctor
    cp stdout doctor.txt
    for module in "$BUILD"/shoal-mpi-*.so; do
        [ -e "$module" ] || continue
        expect_file "$libdir/shoal/${module##*/}"
        expect_text "$libdir/shoal/${module##*/}" doctor.txt
    done
}

# `make install` knows the prefix before it compiles, as the folder of the modules depends on it.
case_make_install_sets_the_prefix_before_it_compiles() {
    expect_exit 0 make --dry-run --no-print-directory -C "$SRC" install PREFIX=/usr
    first=$(grep -m1 -E 'cmake --build|INSTALL_PREFIX' stdout)
    [[ $first == *'-DCMAKE_INSTALL_PREFIX="/usr"'* ]] || fail "compiles before it sets the prefix: $first"
}

# The SONAME names the version of the interface, and the file behind it is there.
case_soname_names_the_interface() {
    soname=$(readelf -d "$libdir/libshoal.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
    [[ $soname == libshoal.so.[0-9]* ]] || fail "SONAME '$soname'"
    expect_file "$libdir/$soname"
}

# Only the public functions are visible.
case_only_public_functions_are_exported() {
    strangers=$(nm -D --defined-only "$libdir/libshoal.so" | awk '$3 !~ /^shoal_/ { print $3 }')
    [ -z "$strangers" ] || fail "exported without being public: $strangers"
    [ -n "$(nm -D --defined-only "$libdir/libshoal.so")" ] || fail "libshoal.so exports nothing"
}

# The public header needs nothing but itself, also in strict C.
case_public_header_stands_alone_in_strict_c() {
    echo '#include <shoal/shoal.h>' >header.c
    expect_exit 0 "$CC" "${warnings[@]}" -pedantic "${cflags[@]}" -fsyntax-only header.c
}

case_examples_build_and_run_shared_and_static() {
    examples=("$SRC"/examples/*.c)
    [ -f "${examples[0]}" ] || fail "there are no examples"
    for source in "${examples[@]}"; do
        name=$(basename "$source" .c)
        echo "example $name"
        expect_exit 0 "$CC" "${warnings[@]}" "${cflags[@]}" "$source" -o "$name" "${shared[@]}" -lm
        expect_exit 0 "$CC" "${warnings[@]}" "${cflags[@]}" "$source" -o "$name-static" \
            "$(pkg-config --variable=archive shoal)" -Wl,--as-needed "${static[@]}"
        expect_exit 0 readelf -d "$name-static"
        expect_text NEEDED
        expect_no_text libshoal
        mkdir "run-$name" "run-$name-static"
        (cd "run-$name" && expect_exit 0 env LD_LIBRARY_PATH="$libdir" "../$name")
        (cd "run-$name-static" && expect_exit 0 "../$name-static")
    done
}

# So do the pieces of docs/library.md: the first is a program, the others are lines of one function.
case_pieces_of_the_docs_compile_and_run() {
    piece() { awk -v n="$1" '/^```c$/ { k++; f = 1; next } /^```/ { f = 0 } f && k == n' "$SRC/docs/library.md"; }
    piece 1 >xor.c
    expect_exit 0 "$CC" "${warnings[@]}" "${cflags[@]}" xor.c -o xor "${shared[@]}"
    expect_exit 0 env LD_LIBRARY_PATH="$libdir" ./xor
    sed -n '/&& .\/xor$/,/^```/p' "$SRC/docs/library.md" | sed '1d;$d' >xor.documented
    [ -s xor.documented ] || fail "docs/library.md does not show what its program prints"
    diff <(sed 1d xor.documented) <(sed 1d stdout) || fail "docs/library.md shows other results"
    grep -q '^82 parameters, loss 0\.00' stdout || fail "$(cat stdout)"
    {
        cat <<'C'
#include <shoal/shoal.h>
void show(void *user, const shoal_progress *progress);
bool wants_stop(void *user);
void take_row(void *user, int64_t index, const float *output, int64_t width);
void pieces(const float *x, int64_t count, float *scores, void *sink);
void pieces(const float *x, int64_t count, float *scores, void *sink) {
C
        piece 2
        piece 3
        echo '}'
    } >pieces.c
    [ "$(grep -c 'shoal_' pieces.c)" -gt 15 ] || fail "docs/library.md has lost its pieces"
    expect_exit 0 "$CC" "${warnings[@]}" "${cflags[@]}" -c pieces.c
}
