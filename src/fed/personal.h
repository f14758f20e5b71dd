/* A model of a client's own: the shared one, trained further on the client's data. Both are
 * measured on what the client holds out. */
#ifndef SH_FED_PERSONAL_H
#define SH_FED_PERSONAL_H

#include "fed/local.h"

typedef enum sh_fed_personalise {
    SH_FED_SHARED_ONLY,
    SH_FED_FINETUNE,  // all parameters
    SH_FED_HEAD,      // those of the last layer that has any
} sh_fed_personalise;

/* "finetune" or "head"; NULL: none. */
sh_status sh_fed_personalise_parse(const char *text, sh_fed_personalise *way_out);

typedef struct sh_fed_personal {
    double shared, personal;  // accuracies on `held_out`; NaN without one
} sh_fed_personal;

/* Trains the shared `model` on `train`; the run's model is the personal one then. `held_out` may be
 * NULL, `room` has as many floats as a vector. */
sh_status sh_fed_personal_make(shoal_run *run, sh_fed_personalise way, const sh_dataset *train,
                               const sh_dataset *held_out, const sh_fed_local_options *options,
                               const float *model, float *room, sh_fed_personal *personal_out);

#endif
