/* Which learner a model has. */
#include "run/learner.h"

#include <string.h>

#include "nn/spec.h"

/* A model is a name, a map with one, or a list of layers, which is of no kind: NULL. */
const sh_model_kind *sh_model_kind_of(const sh_node *model) {
    if (model == NULL) return NULL;
    const sh_node *name = model->kind == SH_NODE_MAP ? sh_node_find(model, "name") : model;
    if (name == NULL || name->kind != SH_NODE_SCALAR) return NULL;
    return sh_model_find(name->text);
}

/* The option `solver` of a model, as it is set or by default; NULL: it has none. */
static const char *solver_of(const sh_model_kind *kind, const sh_node *model) {
    const sh_node *set = model->kind == SH_NODE_MAP ? sh_node_find(model, "solver") : NULL;
    if (set != NULL && set->kind == SH_NODE_SCALAR) return set->text;
    for (size_t i = 0; i < kind->options.count; i++)
        if (strcmp(kind->options.rows[i].key, "solver") == 0) return kind->options.rows[i].initial;
    return NULL;
}

const sh_learner_kind *sh_learner_of(const sh_node *model) {
#define X(name) &sh_learner_##name,
    static const sh_learner_kind *const kinds[] = {SH_LEARNER_LIST(X)};
#undef X
    const sh_model_kind *kind = sh_model_kind_of(model);
    if (kind == NULL || kind->learner == NULL) return &sh_learner_net;
    const char *solver = solver_of(kind, model);
    // Such a model is trained by gradients, as a net.
    if (solver != NULL && strcmp(solver, "sgd") == 0) return &sh_learner_net;
    for (size_t i = 0; i < SH_COUNT(kinds); i++)
        if (strcmp(kinds[i]->name, kind->learner) == 0) return kinds[i];
    return &sh_learner_net;
}
