/* Fetching well-known data into the cache folder: `shoal data get mnist`. Whatever the source, a
 * file is kept only if its SHA-256 is the known one. */
#ifndef SH_DATA_FETCH_H
#define SH_DATA_FETCH_H

#include "base/log.h"
#include "base/status.h"
#include "http/client.h"

/* Fetches `name` (mnist, shakespeare; digits need nothing) unless it is there. Creates the folder.
 * `progress` may be NULL. Fails with SH_E_IO when nothing answers, SH_E_FORMAT when what came is
 * not what was asked for. */
sh_status sh_data_get(const char *name, const char *folder, const sh_log *log,
                      const sh_http_progress *progress);

/* Is all of `name` in the folder (by presence, not by checksum)? */
bool sh_data_has(const char *name, const char *folder);

#endif
