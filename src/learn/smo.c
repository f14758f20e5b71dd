/* Sequential minimal optimisation over several workers (smo.h). Each worker has the variables of
 * its own rows; the pair of a step is elected by two gathers, every worker computes the same move,
 * and adds it to its own part of the gradient. */
#include "learn/smo.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "learn/exact_sum.h"

static const double TAU = 1e-12;  // curvature below which a pair counts as flat

/* One variable, as all workers see it. */
typedef struct candidate {
    double value;                 // that it is chosen by, the greatest wins
    int64_t id;                   // 2 row + 1 for the second variable of a row; -1: none
    double a, gradient, most, y;  // value, gradient, upper bound and label of the variable
    double diagonal, with_i;      // K(x, x) and K(x_i, x)
    double low;                   // the greatest y G among those that may go down
} candidate;
enum { CANDIDATE_WORDS = sizeof(candidate) / sizeof(int64_t) };

/* Rows of the kernel matrix, (count) of this worker's part each; the oldest one makes room. All
 * workers hold the same rows at any time. */
typedef struct cache {
    size_t slots;
    // Slots are two at least, for the rows i and j of a step.
    float *values;                // (slots, count)
    int64_t *row;                 // (slots): -1: free
    int32_t *newer, *older, *at;  // (slots) a list, and (all rows): the slot, -1: none
    int32_t newest, oldest;
} cache;

typedef struct solver {
    sh_smo_problem *problem;
    sh_learn_team *team;
    size_t count, variables;
    // Gradient of the dual, |x|^2, the row that has just travelled.
    double *gradient, *square, *x;  // (variables), (rows of the data), (width)
    double *diagonal;               // (count): K(x, x)
    float *row;                     // (width) as it travels
    size_t *first;                  // (ranks + 1): where rows of a worker begin
    int64_t *gathered;              // (ranks, CANDIDATE_WORDS)
    cache cache;
    int64_t misses;
} solver;

/* ---- The cache ---- */

/* A list by age, and an index by row: finding, taking and evicting are O(1). */
static sh_status cache_init(cache *c, size_t slots, size_t count, size_t total) {
    *c = (cache){.slots = slots, .newest = -1, .oldest = -1};
    c->values = sh_alloc(slots * (count > 0 ? count : 1), sizeof *c->values);
    c->row = sh_alloc(slots, sizeof *c->row);
    c->newer = sh_alloc(slots, sizeof *c->newer);
    c->older = sh_alloc(slots, sizeof *c->older);
    c->at = sh_alloc(total + 1, sizeof *c->at);  // slot of each row of the data, over all workers
    if (!c->values || !c->row || !c->newer || !c->older || !c->at)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a kernel cache of %zu rows", slots);
    for (size_t i = 0; i < slots; i++) c->row[i] = -1;
    for (size_t i = 0; i < total; i++) c->at[i] = -1;
    return SH_OK;
}

static void cache_fini(cache *c) {
    sh_free(c->values);
    sh_free(c->row);
    sh_free(c->newer);
    sh_free(c->older);
    sh_free(c->at);
}

/* Takes a slot out of the list by age. */
static void cache_unlink(cache *c, int32_t slot) {
    int32_t newer = c->newer[slot], older = c->older[slot];
    *(newer >= 0 ? &c->older[newer] : &c->newest) = older;
    *(older >= 0 ? &c->newer[older] : &c->oldest) = newer;
}

/* The slot becomes the newest. */
static void cache_link(cache *c, int32_t slot) {
    c->newer[slot] = -1;
    c->older[slot] = c->newest;
    *(c->newest >= 0 ? &c->newer[c->newest] : &c->oldest) = slot;
    c->newest = slot;
}

/* The slot of a row, the newest from now on; `*has_out`: its values are there. Slots are taken in
 * order until there is none left. */
static int32_t cache_take(cache *c, int64_t row, int64_t taken, bool *has_out) {
    int32_t slot = c->at[row];
    *has_out = slot >= 0;
    if (slot >= 0) {
        cache_unlink(c, slot);
    } else if ((size_t)taken < c->slots) {
        slot = (int32_t)taken;
    } else {
        slot = c->oldest;
        // A full cache evicts the row that was used longest ago.
        cache_unlink(c, slot);
        c->at[c->row[slot]] = -1;
    }
    c->at[row] = slot;
    c->row[slot] = row;
    cache_link(c, slot);
    return slot;
}

/* ---- Rows of the kernel matrix ---- */

/* The worker that has a row, by binary search over where workers' rows begin. */
static int owner_of(const solver *s, size_t row) {
    int low = 0, high = s->team->ranks - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (row < s->first[middle + 1])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The row's kernel values with this worker's variables. On a miss its owner broadcasts the data
 * row; all caches miss at the same steps, as they are filled alike, so that all take part. */
static sh_status kernel_row(solver *s, int64_t row, const float **row_out) {
    const sh_rows *rows = s->problem->rows;
    bool has;
    int32_t slot = cache_take(&s->cache, row, s->misses, &has);
    float *values = s->cache.values + (size_t)slot * s->count;
    *row_out = values;
    if (has) return SH_OK;
    s->misses++;  // also the number of slots taken until the cache is full
    int owner = owner_of(s, (size_t)row);
    if (owner == s->team->rank) {
        const float *x = sh_rows_at(rows, (size_t)row - rows->first, s->row);
        if (x != s->row) memcpy(s->row, x, rows->width * sizeof *x);
    }
    // Collective: caches are equal, so all workers miss together.
    SH_TRY(sh_learn_broadcast(s->team, owner, s->row, rows->width * sizeof *s->row));
    double square = 0;
    for (size_t i = 0; i < rows->width; i++) {
        s->x[i] = (double)s->row[i];
        square += s->x[i] * s->x[i];
    }
    sh_kernel_row(&s->problem->kernel, rows, s->square, s->problem->list, s->count, s->x, square,
                  s->team->threads, values);
    return SH_OK;
}

/* ---- Choosing two variables ---- */

/* Variables 0 .. count - 1 are the rows; in regression count .. 2 count - 1 the same rows again. */
static size_t row_of(const solver *s, size_t variable) {
    size_t at = variable < s->count ? variable : variable - s->count;
    return s->problem->list != NULL ? s->problem->list[at] : at;
}

/* A number for a variable that does not depend on the worker: ties are broken by it. */
static int64_t id_of(const solver *s, size_t variable) {
    size_t row = s->problem->rows->first + row_of(s, variable);
    return (int64_t)(2 * row + (variable >= s->count));
}

/* y a may still rise: libsvm's I_up. */
static bool may_rise(const solver *s, size_t t) {
    const sh_smo_problem *p = s->problem;
    return p->y[t] > 0 ? p->a[t] < p->most[t] : p->a[t] > 0;
}

/* y a may still fall: libsvm's I_low. */
static bool may_fall(const solver *s, size_t t) {
    const sh_smo_problem *p = s->problem;
    return p->y[t] > 0 ? p->a[t] > 0 : p->a[t] < p->most[t];
}

/* Everything that other workers need to compute the move themselves. */
static candidate describe(const solver *s, size_t t, double value, const float *row_i) {
    size_t at = t < s->count ? t : t - s->count;
    return (candidate){.value = value,
                       .id = id_of(s, t),
                       .a = s->problem->a[t],
                       .gradient = s->gradient[t],
                       .most = s->problem->most[t],
                       .y = s->problem->y[t],
                       .diagonal = s->diagonal[at],
                       .with_i = row_i != NULL ? (double)row_i[at] : 0};
}

/* Greater value, then lower id: a total order, so that ranks do not matter. */
static bool wins(const candidate *a, const candidate *b) {
    if (a->id < 0 || b->id < 0) return a->id >= 0;
    return a->value > b->value || (a->value == b->value && a->id < b->id);
}

/* The best of all workers, and the greatest `low`. */
static sh_status elect(solver *s, candidate *own) {
    if (s->team->ranks == 1) return SH_OK;
    int64_t words[CANDIDATE_WORDS];
    memcpy(words, own, sizeof words);
    // One gather, (ranks, CANDIDATE_WORDS).
    SH_TRY(sh_learn_gather(s->team, words, CANDIDATE_WORDS, s->gathered));
    double low = own->low;
    for (int rank = 0; rank < s->team->ranks; rank++) {
        candidate theirs;
        memcpy(&theirs, s->gathered + rank * CANDIDATE_WORDS, sizeof theirs);
        low = fmax(low, theirs.low);
        if (wins(&theirs, own)) *own = theirs;
    }
    own->low = low;
    return SH_OK;
}

/* The maximal violator: the greatest -y G among variables whose y a may rise. */
static sh_status choose_i(solver *s, candidate *i_out) {
    size_t at = s->variables;  // none yet
    double most = -INFINITY;
    for (size_t t = 0; t < s->variables; t++) {
        if (!may_rise(s, t)) continue;
        double value = -s->problem->y[t] * s->gradient[t];
        if (value > most || (value == most && id_of(s, t) < id_of(s, at))) {
            most = value;
            at = t;
        }
    }
    *i_out = at < s->variables ? describe(s, at, most, NULL) : (candidate){.id = -1};
    i_out->low = -INFINITY;
    return elect(s, i_out);
}

/* Of the objective along the pair. Not positive for kernels that are not positive definite, or
 * equal rows. */
static double curvature(double ii, double tt, double it) {
    double quad = ii + tt - 2 * it;
    return quad > 0 ? quad : TAU;
}

/* Second-order choice (Fan, Chen, Lin 2005): the greatest gap^2 / curvature among those that
 * violate with i. */
static sh_status choose_j(solver *s, const candidate *i, const float *row_i, candidate *j_out) {
    size_t best = s->variables;
    double most = -INFINITY, low = -INFINITY;
    for (size_t t = 0; t < s->variables; t++) {
        if (!may_fall(s, t)) continue;
        double fall = s->problem->y[t] * s->gradient[t], gap = i->value + fall;
        if (fall > low) low = fall;
        if (gap <= 0) continue;
        size_t at = t < s->count ? t : t - s->count;
        double gain = gap * gap / curvature(i->diagonal, s->diagonal[at], (double)row_i[at]);
        if (gain > most || (gain == most && id_of(s, t) < id_of(s, best))) {
            most = gain;
            best = t;
        }
    }
    *j_out = best < s->variables ? describe(s, best, most, row_i) : (candidate){.id = -1};
    j_out->low = low;  // also of workers without a candidate: the stopping rule needs it
    return elect(s, j_out);
}

/* ---- One step ---- */

/* Both variables at their new values, inside their boxes (libsvm's Solver::Solve). */
static void move_pair(candidate *i, candidate *j) {
    double quad = curvature(i->diagonal, j->diagonal, j->with_i);
    if (i->y != j->y) {
        double delta = (-i->gradient - j->gradient) / quad, diff = i->a - j->a;
        i->a += delta;
        j->a += delta;
        // The pair moves along a line; it ends at the first side of the box that it meets.
        if (diff > 0 && j->a < 0) {
            j->a = 0;
            i->a = diff;
        } else if (diff <= 0 && i->a < 0) {
            i->a = 0;
            j->a = -diff;
        }
        if (diff > i->most - j->most && i->a > i->most) {
            i->a = i->most;
            j->a = i->most - diff;
        } else if (diff <= i->most - j->most && j->a > j->most) {
            j->a = j->most;
            i->a = j->most + diff;
        }
        return;
    }
    double delta = (i->gradient - j->gradient) / quad, sum = i->a + j->a;
    i->a -= delta;
    j->a += delta;
    if (sum > i->most && i->a > i->most) {
        i->a = i->most;
        j->a = sum - i->most;
    } else if (sum <= i->most && j->a < 0) {  // equal labels: the sum of both is constant
        j->a = 0;
        i->a = sum;
    }
    if (sum > j->most && j->a > j->most) {
        j->a = j->most;
        i->a = sum - j->most;
    } else if (sum <= j->most && i->a < 0) {
        i->a = 0;
        j->a = sum;
    }
}

/* Where this worker has the variable, it gets its value. */
static void store(solver *s, const candidate *c) {
    const sh_rows *rows = s->problem->rows;
    size_t row = (size_t)c->id / 2, low = 0, high = s->count;
    if (row < rows->first || row >= rows->first + rows->count) return;  // another worker's row
    row -= rows->first;
    while (low < high) {  // lists are in order
        size_t middle = (low + high) / 2, at = row_of(s, middle);
        if (at < row)
            low = middle + 1;
        else
            high = middle;
    }
    s->problem->a[low + (c->id % 2 != 0 ? s->count : 0)] = c->a;
}

/* G_t += y_t sum of (change of y a) K: keeps the gradient current in O(count). */
static void add_kernel_rows(solver *s, double by_i, const float *row_i, double by_j,
                            const float *row_j) {
    const double *y = s->problem->y;
    // Both variables of a row share its kernel values.
    for (size_t half = 0; half < s->variables; half += s->count) {
        double *g = s->gradient + half;
        for (size_t t = 0; t < s->count; t++)
            g[t] += y[half + t] * (by_i * (double)row_i[t] + by_j * (double)row_j[t]);
        if (s->count == 0) break;
    }
}

/* All workers move the same pair; the owners of i and j store the new values. */
static sh_status take_step(solver *s, const candidate *i, const float *row_i, const candidate *j) {
    candidate to_i = *i, to_j = *j;
    const float *row_j;
    SH_TRY(kernel_row(s, j->id / 2, &row_j));
    move_pair(&to_i, &to_j);
    add_kernel_rows(s, (to_i.a - i->a) * i->y, row_i, (to_j.a - j->a) * j->y, row_j);
    store(s, &to_i);
    store(s, &to_j);
    return SH_OK;
}

/* ---- Begin and end ---- */

/* A start that is not zero: every variable's part of the gradient, in the order of their ids. */
static sh_status warm_gradient(solver *s) {
    const sh_smo_problem *p = s->problem;
    typedef struct part {
        int64_t row;
        double by;
    } part;
    part *own = sh_alloc(s->count + 1, sizeof *own), *all = NULL;
    if (own == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a warm start");
    size_t parts = 0, bytes = 0;
    for (size_t t = 0; t < s->count; t++) {
        double by = p->a[t] * p->y[t];
        // A row's two variables in regression: one kernel row serves both.
        if (p->twice) by += p->a[s->count + t] * p->y[s->count + t];
        if (by != 0) own[parts++] = (part){(int64_t)(p->rows->first + row_of(s, t)), by};
    }
    void *collected = NULL;
    sh_status status = sh_learn_collect(s->team, own, parts * sizeof *own, &collected, &bytes);
    all = collected;
    for (size_t k = 0; status == SH_OK && k < bytes / sizeof *all; k++) {
        const float *row;
        // Collective: in the order of all[], equal on all workers.
        status = kernel_row(s, all[k].row, &row);
        if (status == SH_OK) add_kernel_rows(s, all[k].by, row, 0, row);
    }
    sh_free(own);
    sh_free(all);
    return status;
}

/* The threshold: the mean of y G over variables inside their boxes, or the middle of what the
 * others allow. */
static sh_status find_rho(const solver *s, sh_smo_result *result) {
    const sh_smo_problem *p = s->problem;
    // Bounds: the maximum of -upper is minus the least upper.
    double bounds[3] = {-INFINITY, -INFINITY, 1}, sums[3];  // -upper, lower, |terms|
    for (size_t t = 0; t < s->variables; t++) {
        double yg = p->y[t] * s->gradient[t];
        bounds[2] =
            fmax(bounds[2], fmax(fabs(yg), p->a[t] * (fabs(s->gradient[t]) + fabs(p->linear[t]))));
        bool full = p->a[t] >= p->most[t], empty = p->a[t] <= 0;
        if ((full && p->y[t] < 0) || (empty && p->y[t] > 0)) bounds[0] = fmax(bounds[0], -yg);
        if ((full && p->y[t] > 0) || (empty && p->y[t] < 0)) bounds[1] = fmax(bounds[1], yg);
    }
    SH_TRY(sh_learn_max(s->team, bounds, SH_COUNT(bounds)));  // collective
    sh_exact_sum sum;
    SH_TRY(sh_exact_sum_init(&sum, SH_COUNT(sums), bounds[2]));
    for (size_t t = 0; t < s->variables; t++) {
        bool inside = p->a[t] > 0 && p->a[t] < p->most[t];
        double yg = p->y[t] * s->gradient[t];
        sh_exact_sum_add(&sum, (const double[]){inside ? yg : 0, inside,
                                                p->a[t] * (s->gradient[t] + p->linear[t])});
    }
    sh_status status = sh_exact_sum_meet(&sum, s->team, sums);
    sh_exact_sum_fini(&sum);
    result->objective = sums[2] / 2;  // a^T (G + p) / 2, the dual objective
    // no variable bounds rho from above: take the other side
    double upper = isinf(bounds[0]) ? bounds[1] : -bounds[0];
    double lower = isinf(bounds[1]) ? upper : bounds[1];
    result->rho = sums[1] > 0 ? sums[0] / sums[1] : (upper + lower) / 2;
    if (!isfinite(result->rho)) result->rho = 0;  // no rows at all
    return status;
}

/* Ends when no pair violates by more than the tolerance: m(a) - M(a) in libsvm's terms. */
static sh_status iterate(solver *s, sh_smo_result *result) {
    const sh_smo_problem *p = s->problem;
    enum { ASK_EVERY = 256 };
    double tolerance = p->tolerance > 0 ? p->tolerance : 1e-3;
    for (result->steps = 0;; result->steps++) {
        candidate i, j;
        const float *row_i;
        SH_TRY(choose_i(s, &i));
        if (i.id < 0) return SH_OK;  // no variable can rise: optimal
        SH_TRY(kernel_row(s, i.id / 2, &row_i));
        SH_TRY(choose_j(s, &i, row_i, &j));
        result->violation = i.value + j.low;
        if (j.id < 0 || result->violation < tolerance) return SH_OK;
        // Equal steps on all workers, as `stop` has to agree.
        bool asks = p->stop != NULL && result->steps % ASK_EVERY == ASK_EVERY - 1;
        result->stopped =
            (p->steps_most > 0 && result->steps >= p->steps_most) || (asks && p->stop(p->user));
        if (result->stopped) return SH_OK;
        SH_TRY(take_step(s, &i, row_i, &j));
    }
}

static sh_status find_owners(solver *s) {
    int64_t own = (int64_t)s->problem->rows->first;
    int64_t *first = sh_alloc((size_t)s->team->ranks, sizeof *first);
    if (first == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for workers");
    sh_status status = sh_learn_gather(s->team, &own, 1, first);
    for (int rank = 0; rank < s->team->ranks; rank++) s->first[rank] = (size_t)first[rank];
    s->first[s->team->ranks] = s->problem->rows->total;  // sentinel behind the last worker
    sh_free(first);
    return status;
}

/* As many rows as the worker with most of them can keep, two at least. */
static sh_status open_cache(solver *s) {
    double count = (double)(s->count > 0 ? s->count : 1);
    SH_TRY(sh_learn_max(s->team, &count, 1));
    // Floats of a kernel row on the worker with most rows.
    double slots = (double)s->problem->cache_bytes / (count * sizeof(float));
    slots = fmin(fmax(slots, 2), (double)s->problem->rows->total);
    if (slots < 2) slots = 2;
    return sh_learn_agree(s->team,
                          cache_init(&s->cache, (size_t)slots, s->count, s->problem->rows->total));
}

/* The gradient starts at p, as for a = 0. Diagonals are rounded to float like cached values. */
static sh_status take_memory(solver *s) {
    const sh_rows *rows = s->problem->rows;
    s->gradient = sh_alloc(s->variables + 1, sizeof *s->gradient);
    s->square = sh_alloc(rows->count + 1, sizeof *s->square);
    s->diagonal = sh_alloc(s->count + 1, sizeof *s->diagonal);
    s->x = sh_alloc(rows->width, sizeof *s->x);
    s->row = sh_alloc(rows->width, sizeof *s->row);
    // One more: where the last worker's rows end.
    s->first = sh_alloc((size_t)s->team->ranks + 1, sizeof *s->first);
    s->gathered = sh_alloc((size_t)s->team->ranks * CANDIDATE_WORDS, sizeof *s->gathered);
    if (!s->gradient || !s->square || !s->diagonal || !s->x || !s->row || !s->first || !s->gathered)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu variables", s->variables);
    for (size_t i = 0; i < rows->count; i++) s->square[i] = sh_rows_square(rows, i);
    for (size_t t = 0; t < s->count; t++) {
        double square = s->square[row_of(s, t)];
        s->diagonal[t] =
            (double)(float)sh_kernel_value(&s->problem->kernel, square, square, square);
    }
    for (size_t t = 0; t < s->variables; t++) s->gradient[t] = s->problem->linear[t];
    return SH_OK;
}

/* The caller owns `problem`; its `a` holds the solution. Collective. */
sh_status sh_smo_solve(sh_smo_problem *problem, sh_learn_team *team, sh_smo_result *result_out) {
    solver s = {.problem = problem, .team = team, .count = problem->count};
    s.variables = problem->twice ? 2 * s.count : s.count;
    sh_smo_result result = {0};
    sh_status status = sh_learn_agree(team, take_memory(&s));
    if (status == SH_OK) status = find_owners(&s);
    if (status == SH_OK) status = open_cache(&s);
    if (status == SH_OK && problem->warm) status = warm_gradient(&s);
    if (status == SH_OK) status = iterate(&s, &result);
    if (status == SH_OK) status = find_rho(&s, &result);
    result.misses = s.misses;
    cache_fini(&s.cache);
    sh_free(s.gradient);
    sh_free(s.square);
    sh_free(s.diagonal);
    sh_free(s.x);
    sh_free(s.row);
    sh_free(s.first);
    sh_free(s.gathered);
    if (status == SH_OK) *result_out = result;
    return status;
}
