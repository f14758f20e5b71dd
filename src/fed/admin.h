/* What the owner of a server's folder may ask and do, also while the server runs. */
#ifndef SH_FED_ADMIN_H
#define SH_FED_ADMIN_H

#include <stdio.h>

#include "fed/store.h"

enum { SH_FED_LINE = 512 };

/* "shoal join https://host:8443 TOKEN --ca sha256:..." with a new token. */
sh_status sh_fed_invitation(sh_fed_store *store, int64_t unix_s, double hours,
                            char line_out[SH_FED_LINE]);

/* Hands `count` such lines out. */
sh_status sh_fed_invite(const char *folder, int64_t count, double hours,
                        void (*line)(void *user, const char *line), void *user);
sh_status sh_fed_revoke(const char *folder, int64_t client);
/* With `json` an object a line. */
sh_status sh_fed_print_clients(const char *folder, bool json, FILE *file);
sh_status sh_fed_print_status(const char *folder, bool json, FILE *file);

#endif
