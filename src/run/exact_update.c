/* The optimizer's step of an exact run, range by range. Every rule is element-wise, or takes norms
 * of whole parameters in an order of their length alone, so the bits do not depend on who does
 * what. */
#include "run/exact_internal.h"

enum { RANGE = 1 << 15 };

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
    for (size_t i = 0; i < params->count; i++) {
        const sh_param *param = &params->items[i];
        size_t range = whole && param->decays ? param->count : RANGE;
        for (size_t at = 0; at < param->count; at += range) {
            size_t left = param->count - at;
            SH_TRY(add_range(cuts, param, i, at, left < range ? left : range));
        }
    }
    cuts->list.total = params->total;
    return SH_OK;
}

void sh_cuts_fini(sh_cuts *cuts) {
    sh_param_list_fini(&cuts->list);
    sh_free(cuts->param);
    *cuts = (sh_cuts){0};
}

/* An optimizer step, range by range. */
typedef struct updating {
    sh_exact *exact;
    sh_optim_step step;
} updating;

static void update_piece(void *user, int member, size_t piece) {
    (void)member;
    const updating *u = user;
    sh_exact *exact = u->exact;
    if (exact->unused[exact->updates.param[piece]]) return;
    sh_optim_step step = u->step;
    step.first = piece;
    step.count = 1;
    sh_optim_apply(&exact->run->optim, &step);
}

void sh_exact_update(sh_exact *exact) {
    shoal_run *run = exact->run;
    const sh_blocks *blocks = &run->model.blocks;
    const size_t total = run->model.net->params.total;
    double scale = 1.0;
    if (run->config.clip_value > 0)
        sh_clip_value(blocks->gradients, total, (float)run->config.clip_value);
    if (run->config.clip_norm > 0)
        scale =
            sh_clip_norm(blocks->gradients, total, run->config.clip_norm, &run->stats.grad_norm);
    updating u = {
        .exact = exact,
        .step = {.params = &exact->updates.list,
                 .weights = blocks->weights,
                 .gradients = blocks->gradients,
                 .gradient_scale = (float)scale,
                 .lr = sh_schedule_lr(&run->schedule, run->at.step),
                 .step = run->at.step + 1},
    };
    sh_thread_pool_run(exact->pool, update_piece, &u, exact->updates.list.count);
}
