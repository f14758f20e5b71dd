/* The tables behind `shoal list layers`, `losses` and `models`. */
#include <string.h>

#include "nn/layer.h"
#include "nn/layers/options.h"
#include "nn/loss.h"
#include "nn/losses/list.h"
#include "nn/models/list.h"
#include "nn/spec.h"

/* A table per list, ended by NULL, so that a linear search needs no count. Tens of rows: no index.
 */
#define ROW(name) &sh_layer_kind_##name,
static const sh_layer_kind *const layers[] = {SH_LAYER_LIST(ROW) NULL};
#undef ROW

#define ROW(name)     &sh_loss_kind_##name,
#define DECLARE(name) extern const sh_loss_kind sh_loss_kind_##name;
SH_LOSS_LIST(DECLARE)
static const sh_loss_kind *const losses[] = {SH_LOSS_LIST(ROW) NULL};
#undef ROW
#undef DECLARE

#define ROW(name)     &sh_model_kind_##name,
#define DECLARE(name) extern const sh_model_kind sh_model_kind_##name;
SH_MODEL_LIST(DECLARE)
static const sh_model_kind *const models[] = {SH_MODEL_LIST(ROW) NULL};
#undef ROW
#undef DECLARE

/* The same three functions for each registry. */
#define REGISTRY(prefix, table)                                     \
    const prefix##_kind *prefix##_at(size_t index) {                \
        return index < SH_COUNT(table) ? table[index] : NULL;       \
    }                                                               \
    const char *prefix##_name_at(size_t index) {                    \
        const prefix##_kind *kind = prefix##_at(index);             \
        return kind != NULL ? kind->name : NULL;                    \
    }                                                               \
    const prefix##_kind *prefix##_find(const char *name) {          \
        for (size_t i = 0; table[i] != NULL; i++)                   \
            if (strcmp(table[i]->name, name) == 0) return table[i]; \
        return NULL;                                                \
    }

REGISTRY(sh_layer, layers)
REGISTRY(sh_loss, losses)
REGISTRY(sh_model, models)
