/* The public options of federated training with their defaults filled in, checked. */
#ifndef SH_FED_SETTINGS_H
#define SH_FED_SETTINGS_H

#include "fed/personal.h"
#include "fed/server.h"
#include "shoal/tools.h"

typedef struct sh_fed_settings {
    sh_fed_options server;
    size_t clients;
    const char *partition;
    double dropout, held_out;
    sh_fed_personalise personalise;
    bool secure;
    double secure_clip;  // values are cut to it before they are rounded
    int64_t local_epochs, local_steps;
} sh_fed_settings;

/* Borrows texts of `options`. */
sh_status sh_fed_settings_make(const shoal_fed_options *options, uint64_t seed,
                               sh_fed_settings *settings_out);

#endif
