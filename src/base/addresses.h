/* The addresses that a process may take. Large mappings cost addresses long before they cost
 * memory, and batch systems and shells may limit them (ulimit -v, RLIMIT_AS). */
#ifndef SH_BASE_ADDRESSES_H
#define SH_BASE_ADDRESSES_H

#include <stddef.h>

#include "base/status.h"

/* Bytes of addresses that this process can still take; SIZE_MAX: they are not limited. */
size_t sh_addresses_left(void);

/* After a lack of memory: the next step where addresses are limited, otherwise `hint`, unless it is
 * NULL. Ends a function as sh_error_hint does. */
sh_status sh_addresses_hint(const char *hint);

#endif
