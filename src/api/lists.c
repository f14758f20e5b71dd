/* shoal_list: the rows of all registries by kind, for `shoal list` and for help. The tables are
 * those that options are looked up in, so a list cannot differ from what is accepted. */
#include <stdio.h>
#include <string.h>

#include "codec/codec.h"
#include "comm/schedule.h"
#include "data/reader.h"
#include "fed/rule.h"
#include "shoal/tools.h"
#include "sync/graph.h"
#include "run/config.h"
#include "run/run.h"
#include "run/need.h"

/* Defines row_ID, which gives name and help of a registry's row; false past the end. Registries
 * have rows of different types, which this makes alike. */
#define ROW_FUNCTION(id, type, at)                                             \
    static bool row_##id(size_t index, const char **name, const char **help) { \
        const type *row = at(index);                                           \
        if (row == NULL) return false;                                         \
        *name = row->name;                                                     \
        *help = row->help;                                                     \
        return true;                                                           \
    }

/* One line per registry: the kind's name, the type of its rows, and the function that gives row
 * `index`. Collectives stand apart, as their rows need two names. */
ROW_FUNCTION(models, sh_model_kind, sh_model_at)
ROW_FUNCTION(layers, sh_layer_kind, sh_layer_at)
ROW_FUNCTION(losses, sh_loss_kind, sh_loss_at)
ROW_FUNCTION(optimizers, sh_optim_kind, sh_optim_at)
ROW_FUNCTION(schedules, sh_schedule_kind, sh_schedule_at)
ROW_FUNCTION(codecs, sh_codec_kind, sh_codec_at)
ROW_FUNCTION(sync, sh_sync_kind, sh_sync_at)
ROW_FUNCTION(rules, sh_fed_rule, sh_fed_rule_at)
ROW_FUNCTION(graphs, sh_graph_kind, sh_graph_at)
ROW_FUNCTION(readers, sh_reader, sh_reader_at)
ROW_FUNCTION(data, sh_data_name, sh_data_name_at)

/* Rows of collectives: several algorithms serve one collective, so a row is named by both:
 * "allreduce ring". The name is valid until the thread's next call. */
static bool row_collectives(size_t index, const char **name, const char **help) {
    static _Thread_local char text[64];
    const sh_algorithm *row = sh_algorithm_at(index);
    if (row == NULL) return false;
    snprintf(text, sizeof text, "%s %s", sh_collective_name(row->does), row->name);
    *name = text;
    *help = row->help;
    return true;
}

/* Kinds in the order of `shoal list`. tools.h names them; a new registry is one line here and one
 * above. */
static const struct {
    const char *kind;
    bool (*row)(size_t index, const char **name, const char **help);
} registries[] = {
    {"models", row_models},           {"layers", row_layers},       {"losses", row_losses},
    {"optimizers", row_optimizers},   {"schedules", row_schedules}, {"readers", row_readers},
    {"collectives", row_collectives}, {"codecs", row_codecs},       {"sync", row_sync},
    {"graphs", row_graphs},           {"data", row_data},           {"rules", row_rules},
};

const char *shoal_list_kind(size_t index) {
    return index < SH_COUNT(registries) ? registries[index].kind : NULL;
}

/* Names of the kinds, for the spelling hint when a kind is not known. */
static const char *kind_name(const void *names, size_t index) {
    (void)names;
    return shoal_list_kind(index);
}

/* Public entry: calls `row` for each row of a kind, in the registry's order. */
shoal_status shoal_list(const char *kind,
                        void (*row)(void *user, const char *name, const char *help), void *user) {
    SHOAL_NEED(kind);
    SHOAL_NEED(row);
    for (size_t i = 0; i < SH_COUNT(registries); i++) {
        if (strcmp(registries[i].kind, kind) != 0) continue;
        const char *name, *help;
        for (size_t k = 0; registries[i].row(k, &name, &help); k++) row(user, name, help);
        return SHOAL_OK;
    }
    // Without a near name the hint takes "models" as an example.
    SH_FAIL(SH_E_USAGE, "there is no list of '%s'", kind);
    const char *near = sh_nearest(kind, kind_name, NULL);
    return (shoal_status)sh_error_hint("'shoal list %s', or 'shoal list' for all",
                                       near != NULL ? near : "models");
}
