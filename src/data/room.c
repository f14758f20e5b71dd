#include "data/room.h"

#include "base/text.h"

sh_capacity sh_room_now(size_t taken) {
    sh_capacity capacity = sh_capacity_now(taken);
    capacity.bytes /= 2;
    return capacity;
}

static const char *bytes_text(uint64_t bytes, char text_out[32]) {
    const double mib = (double)bytes / 1048576;
    sh_snprintf(text_out, 32, "%.1f %s", mib < 1024 ? mib : mib / 1024, mib < 1024 ? "MiB" : "GiB");
    return text_out;
}

static sh_status fail(const char *name, const char *above, uint64_t bytes,
                      const sh_capacity *room) {
    char taken[32], most[32];
    SH_FAIL(SH_E_MEMORY, "'%s' takes %s%s of memory; a data set may take %s, half of the %s", name,
            above, bytes_text(bytes, taken), bytes_text(room->bytes, most), room->what);
    return sh_error_hint(
        "cut it into parts, one for each worker ('data: {train: part%%r.csv}'), or give the "
        "process more memory");
}

sh_status sh_room_check(const char *name, size_t taken, uint64_t more) {
    sh_capacity room = sh_room_now(taken);
    if (taken <= room.bytes && more <= room.bytes - taken) return SH_OK;
    return fail(name, "", taken + more, &room);
}

sh_status sh_room_fail_above(const char *name, const sh_capacity *room) {
    return fail(name, "more than ", room->bytes, room);
}
