/* The optimizer's step of an exact run, range by range. Every rule is element-wise, or takes norms
 * of whole parameters in an order of their length alone, so the bits do not depend on who does
 * what. */
#include "run/exact_internal.h"

/* Elements of a range: several threads share one large parameter, and a range still outweighs
 * the cost of handing it out. */
enum { RANGE = 1 << 15 };

/* `param` has the capacity of the list of ranges, so both grow together. */
static sh_status add_range(sh_cuts *cuts, const sh_param *param, size_t index, size_t at,
                           size_t count) {
    sh_param_list *list = &cuts->list;
    size_t before = list->capacity;
    SH_TRY(sh_grow((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items));
    if (list->capacity != before) {
        size_t *grown = sh_realloc(cuts->param, list->capacity, sizeof *grown);
        if (grown == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for ranges of parameters");
        cuts->param = grown;
    }
    list->items[list->count] =
        (sh_param){.offset = param->offset + at, .count = count, .decays = param->decays};
    cuts->param[list->count++] = index;
    return SH_OK;
}

sh_status sh_cuts_init(sh_cuts *cuts, const sh_param_list *params, bool whole) {
    cuts->begin = sh_alloc(params->count + 1, sizeof *cuts->begin);
    if (cuts->begin == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for ranges of parameters");
    for (size_t i = 0; i < params->count; i++) {
        const sh_param *param = &params->items[i];
        // A trust ratio is one of norms of a whole parameter; parameters that do not decay have
        // none.
        size_t range = whole && param->decays ? param->count : RANGE;
        for (size_t at = 0; at < param->count; at += range) {
            size_t left = param->count - at;
            SH_TRY(add_range(cuts, param, i, at, left < range ? left : range));
        }
        cuts->begin[i + 1] = cuts->list.count;
    }
    cuts->list.total = params->total;
    return SH_OK;
}

void sh_cuts_fini(sh_cuts *cuts) {
    sh_param_list_fini(&cuts->list);
    sh_free(cuts->param);
    sh_free(cuts->begin);
    *cuts = (sh_cuts){0};
}

/* An optimizer step, range by range. */
typedef struct updating {
    sh_exact *exact;
    sh_optim_step step;
    size_t first;
} updating;

/* A parameter that no shard has used keeps its weights and its optimizer state. */
static void update_piece(void *user, int member, size_t index) {
    (void)member;
    const updating *u = user;
    sh_exact *exact = u->exact;
    size_t piece = u->first + index;
    if (exact->unused[exact->updates.param[piece]]) return;
    sh_optim_step step = u->step;
    step.first = piece;
    step.count = 1;
    sh_optim_apply(&exact->run->optim, &step);
}

/* The scheme's step counts in parameters and the pool's pieces in ranges; `begin` translates.
 * Unused parameters are skipped piece by piece. */
void sh_exact_apply(shoal_run *run, const sh_optim_step *step) {
    sh_exact *exact = run->exact;
    const size_t *begin = exact->updates.begin;
    updating u = {.exact = exact, .step = *step, .first = begin[step->first]};
    u.step.params = &exact->updates.list;
    u.step.windowed = false;
    u.step.unused = NULL;
    sh_thread_pool_run(exact->pool, update_piece, &u, begin[step->first + step->count] - u.first);
}
