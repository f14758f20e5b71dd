/* How much memory a data set may take: half of what its process can have (base/capacity.h). Files
 * that are mapped as they are take none of it; unpacked bytes and numbers made of text do. */
#ifndef SH_DATA_ROOM_H
#define SH_DATA_ROOM_H

#include <stddef.h>
#include <stdint.h>

#include "base/capacity.h"
#include "base/status.h"

/* The room for a data set that has `taken` bytes of it by now. */
sh_capacity sh_room_now(size_t taken);
/* Fails where `name` would take `more` bytes beside those that it has, and there is no room. */
sh_status sh_room_check(const char *name, size_t taken, uint64_t more);
/* The failure of one of whom it is only known that it takes more than there is room for. */
sh_status sh_room_fail_above(const char *name, const sh_capacity *room);

#endif
