/* Structs that cross the public header. The first member of each is the size that the program was
 * compiled with, which says what members it has: a struct only ever grows at its end. */
#include "run/need.h"

#include <string.h>

enum { SIZE_MOST = 1 << 16 };  // more is no size, but a member that was never set

/* Read by memcpy, as the struct may be of any public type. */
static size_t size_of(const void *of) {
    size_t bytes;
    memcpy(&bytes, of, sizeof bytes);
    return bytes;
}

/* A size that was never set is noise or 0: refused before anything is written by it. */
sh_status sh_struct_check(const void *out, const char *type) {
    size_t bytes = size_of(out);
    if (bytes >= sizeof bytes && bytes <= SIZE_MOST) return SH_OK;
    SH_FAIL(SH_E_USAGE, "the size of a %s is %zu", type, bytes);
    return sh_error_hint(".size = sizeof(%s)", type);
}

sh_status sh_struct_take(const void *from, void *to, size_t bytes, const char *type) {
    memset(to, 0, bytes);
    if (from != NULL) {
        SH_TRY(sh_struct_check(from, type));
        size_t theirs = size_of(from);
        const unsigned char *at = from;
        // A newer header may have more members. One that is set asks for what this library cannot
        // do, and is refused rather than ignored.
        for (size_t i = bytes; i < theirs; i++)
            if (at[i] != 0)
                return SH_FAIL(SH_E_UNSUPPORTED,
                               "a %s sets a member that libshoal " SHOAL_VERSION " does not have",
                               type);
        memcpy(to, from, theirs < bytes ? theirs : bytes);
    }
    memcpy(to, &bytes, sizeof bytes);
    return SH_OK;
}

void sh_struct_give(const void *from, size_t bytes, void *out) {
    size_t theirs = size_of(out);
    // Members that this library does not know are 0 for the caller, not what they were before.
    memset((unsigned char *)out + sizeof theirs, 0, theirs - sizeof theirs);
    memcpy(out, from, theirs < bytes ? theirs : bytes);
    memcpy(out, &theirs, sizeof theirs);
}
