/* The part of a run's options that a federated server decides for its clients: model, loss,
 * optimizer, batch, clipping, augmentation, seed and local epochs or steps. Where data lies, what
 * is written and how many threads compute is each client's own business, and a server cannot touch
 * it.
 */
#ifndef SH_FED_SHARED_CONFIG_H
#define SH_FED_SHARED_CONFIG_H

#include "run/config.h"

/* As a run file; sh_free it. `epochs` and `steps` are those of a round. */
sh_status sh_fed_config_print(const sh_config *config, int64_t epochs, int64_t steps,
                              char **text_out);
/* Takes the shared part of a server's text over into `mine`, which keeps the rest. */
sh_status sh_fed_config_take(const char *text, size_t bytes, sh_config *mine);

#endif
