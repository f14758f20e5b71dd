# An installed Shoal is complete: program, both libraries, headers, shoal.pc, man page, completion;
# the examples build against it with nothing but pkg-config; and the tree can be moved.
# shellcheck shell=bash
. "$SRC/tests/cli/lib.sh"

staged=$WORK/staged/usr # through DESTDIR first, as a packager does, then moved
DESTDIR="$WORK/staged" expect_exit 0 cmake --install "$BUILD" --prefix /usr
prefix=$WORK/moved
mv "$staged" "$prefix"

libdir=$(dirname "$(find "$prefix" -name libshoal.a)")
expect_exit 0 "$prefix/bin/shoal" --version
expect_file "$libdir/libshoal.a"
expect_file "$libdir/libshoal.so"
expect_file "$prefix/include/shoal/shoal.h"
expect_file "$prefix/share/man/man1/shoal.1"
expect_file "$prefix/share/bash-completion/completions/shoal"

# The MPI modules that were built are there, and the moved program finds them.
expect_exit 0 "$prefix/bin/shoal" doctor
cp stdout doctor.txt
for module in "$BUILD"/shoal-mpi-*.so; do
    [ -e "$module" ] || continue
    expect_file "$libdir/shoal/${module##*/}"
    expect_text "$libdir/shoal/${module##*/}" doctor.txt
done

# `make install` knows the prefix before it compiles, as the folder of the modules depends on it.
expect_exit 0 make --dry-run --no-print-directory -C "$SRC" install PREFIX=/usr
first=$(grep -m1 -E 'cmake --build|INSTALL_PREFIX' stdout)
[[ $first == *'-DCMAKE_INSTALL_PREFIX="/usr"'* ]] || fail "compiles before it sets the prefix: $first"

# The SONAME names the version of the interface, and the file behind it is there.
soname=$(readelf -d "$libdir/libshoal.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
[[ $soname == libshoal.so.[0-9]* ]] || fail "SONAME '$soname'"
expect_file "$libdir/$soname"

# Only the public functions are visible.
strangers=$(nm -D --defined-only "$libdir/libshoal.so" | awk '$3 !~ /^shoal_/ { print $3 }')
[ -z "$strangers" ] || fail "exported without being public: $strangers"
[ -n "$(nm -D --defined-only "$libdir/libshoal.so")" ] || fail "libshoal.so exports nothing"

export PKG_CONFIG_PATH=$libdir/pkgconfig
CC=${CC:-cc}
read -ra cflags <<<"$(pkg-config --cflags shoal)"
read -ra shared <<<"$(pkg-config --libs shoal)"
read -ra static <<<"$(pkg-config --static --libs shoal)"
warnings=(-std=c17 -Wall -Wextra -Werror)

# The public header needs nothing but itself, also in strict C.
echo '#include <shoal/shoal.h>' >header.c
expect_exit 0 "$CC" "${warnings[@]}" -pedantic "${cflags[@]}" -fsyntax-only header.c

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
