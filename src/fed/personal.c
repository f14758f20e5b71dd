/* Personal models: the shared one, fine-tuned on the client's own data without the corrections of
 * the federated rule, which would pull it back. */
#include "fed/personal.h"

#include <math.h>
#include <string.h>

/* NULL or nothing: no personal model. */
sh_status sh_fed_personalise_parse(const char *text, sh_fed_personalise *way_out) {
    *way_out = SH_FED_SHARED_ONLY;
    if (text == NULL) return SH_OK;
    if (strcmp(text, "finetune") == 0)
        *way_out = SH_FED_FINETUNE;
    else if (strcmp(text, "head") == 0)
        *way_out = SH_FED_HEAD;
    else {
        SH_FAIL(SH_E_USAGE, "there is no way '%.40s' to make a model personal", text);
        return sh_error_hint("finetune or head");
    }
    return SH_OK;
}

/* Accuracy on held-out data that neither training has seen. */
static sh_status measure(shoal_run *run, const sh_dataset *held_out, double *accuracy_out) {
    shoal_result result = {.accuracy = NAN};
    if (held_out != NULL) SH_TRY(sh_run_evaluate(run, held_out, &result));
    *accuracy_out = result.accuracy;
    return SH_OK;
}

sh_status sh_fed_personal_make(shoal_run *run, sh_fed_personalise way, const sh_dataset *train,
                               const sh_dataset *held_out, const sh_fed_local_options *options,
                               const float *model, float *room, sh_fed_personal *personal_out) {
    sh_fed_local_options own = *options;
    sh_fed_trained trained;
    own.head_only = way == SH_FED_HEAD;  // all layers but the last stay as received
    own.proximal = 0;
    own.server_control = own.own_control = NULL;
    sh_fed_local_set(run, model);
    // Before training: the shared model on the client's own data.
    SH_TRY(measure(run, held_out, &personal_out->shared));
    SH_TRY(sh_fed_local_train(run, train, &own, model, room, &trained));
    return measure(run, held_out, &personal_out->personal);
}
