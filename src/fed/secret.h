/* Files that only their owner may read: keys. */
#ifndef SH_FED_SECRET_H
#define SH_FED_SECRET_H

#include "base/status.h"

/* Writes a text whole or not at all, readable by its owner alone. */
sh_status sh_secret_write(const char *path, const char *text);
/* Reads a small text file; sh_free it. */
sh_status sh_secret_read(const char *path, char **text_out);

#endif
