/* Room for data in memory: half of what the process may have. The other half is for the model, its
 * activations and everybody else; a data set that does not fit is refused when it is opened, with
 * the numbers, instead of being killed half way. */
#include "data/room.h"

#include "base/text.h"

/* Memory limit of a data set. `taken` is what it holds already and counts as free. */
sh_capacity sh_room_now(size_t taken) {
    sh_capacity capacity = sh_capacity_now(taken);
    capacity.bytes /= 2;
    return capacity;
}

/* A size in MiB or GiB. */
static const char *bytes_text(uint64_t bytes, char text_out[32]) {
    const double mib = (double)bytes / 1048576;
    sh_snprintf(text_out, 32, "%.1f %s", mib < 1024 ? mib : mib / 1024, mib < 1024 ? "MiB" : "GiB");
    return text_out;
}

/* Reports the size, the limit and whose limit it is: machine, container or ulimit. */
static sh_status fail(const char *name, const char *above, uint64_t bytes,
                      const sh_capacity *room) {
    char taken[32], most[32];
    SH_FAIL(SH_E_MEMORY, "'%s' takes %s%s of memory; a data set may take %s, half of the %s", name,
            above, bytes_text(bytes, taken), bytes_text(room->bytes, most), room->what);
    return sh_error_hint(
        "cut it into parts, one for each worker ('data: {train: part%%r.csv}'), or give the "
        "process more memory");
}

/* Checks before an allocation whose size is known. */
sh_status sh_room_check(const char *name, size_t taken, uint64_t more) {
    sh_capacity room = sh_room_now(taken);
    if (taken <= room.bytes && more <= room.bytes - taken) return SH_OK;
    return fail(name, "", taken + more, &room);
}

/* Fails while a file is read whose size shows only at its end. */
sh_status sh_room_fail_above(const char *name, const sh_capacity *room) {
    return fail(name, "more than ", room->bytes, room);
}
