/* The options that a federated server decides for its clients, as the text of a run file. The list
 * in `exchange` is the whole list: what is not in it never leaves a machine, nor can a server set
 * it. */
#include "fed/shared_config.h"

#include "base/memory.h"

/* Exchanges the shared options of two configs, so that each text and tree keeps one owner. */
static void exchange(sh_config *a, sh_config *b) {
#define EXCHANGE(field)                       \
    do {                                      \
        __typeof__(a->field) kept = a->field; \
        a->field = b->field;                  \
        b->field = kept;                      \
    } while (0)
    EXCHANGE(model);
    EXCHANGE(loss);
    EXCHANGE(optim);
    EXCHANGE(schedule);
    EXCHANGE(clip_norm);
    EXCHANGE(clip_value);
    EXCHANGE(batch);
    EXCHANGE(accumulate);
    EXCHANGE(seed);
    EXCHANGE(epochs);
    EXCHANGE(steps);
    EXCHANGE(data.crop);
    EXCHANGE(data.flip);
    EXCHANGE(data.context);
#undef EXCHANGE
}

/* Exchanged into an initial config, so that no other option is printed with its value. */
sh_status sh_fed_config_print(const sh_config *config, int64_t epochs, int64_t steps,
                              char **text_out) {
    sh_config shared, copy;
    SH_TRY(sh_config_init(&shared));  // initial values: printed only where they differ
    sh_status status = sh_config_copy(config, &copy);
    if (status == SH_OK) {
        exchange(&shared, &copy);
        shared.epochs = epochs;  // of the clients' training, not of the server's run
        shared.steps = steps;
        *text_out = sh_options_print(sh_config_table(), &shared);
        if (*text_out == NULL) status = SH_FAIL(SH_E_MEMORY, "out of memory for options");
        sh_config_fini(&copy);  // also frees what exchange put there
    }
    sh_config_fini(&shared);
    return status;
}

/* Parsed as any run file, so that options of a server meet the same limits. */
sh_status sh_fed_config_take(const char *text, size_t bytes, sh_config *mine) {
    sh_config theirs;
    sh_node *node = NULL;
    SH_TRY(sh_config_init(&theirs));
    sh_status status = sh_node_parse("the server's options", text, bytes, &node);
    if (status == SH_OK) status = sh_options_apply(sh_config_table(), node, &theirs, NULL);
    if (status == SH_OK && theirs.model == NULL)
        status = SH_FAIL(SH_E_FORMAT, "the server's options name no model");
    if (status == SH_OK) exchange(&theirs, mine);  // all or nothing: after every check
    sh_node_destroy(node);
    sh_config_fini(&theirs);
    return status;
}
