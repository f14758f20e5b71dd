/* Training of support vector machines (svm.h): which problems there are, who solves which, and how
 * the support vectors of all workers come together in one model. */
#include "learn/svm.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

/* As options name them, in the order of sh_svm_solver. */
static const char *const solver_names[SH_SVM_SOLVERS] = {"smo", "cascade", "dc",      "dc-filter",
                                                         "cp",  "ca-bkm",  "ca-fcfs", "ca-random"};

const char *sh_svm_solver_name(sh_svm_solver solver) { return solver_names[solver]; }

/* One-against-one: a decision for each pair of classes; a regression has one output. */
size_t sh_svm_outputs(size_t classes) { return classes < 2 ? 1 : classes * (classes - 1) / 2; }

/* ---- One problem: two classes, or a regression ---- */

/* Rows of this worker that take part, and what they begin with. */
typedef struct problem {
    const sh_svm_options *options;
    const sh_rows *rows;
    size_t a, b;  // classes; of a regression none
    bool regression;
    uint32_t *list;
    size_t count;
    double *numbers;  // y, linear, most, solution: (2 count) each
} problem;

static void problem_fini(problem *p) {
    sh_free(p->list);
    sh_free(p->numbers);
}

/* (2 count), the last quarter of `numbers`. */
static double *solution_of(const problem *p) { return p->numbers + 6 * p->count; }

/* `keep` (rows) NULL: all rows of the two classes; else those it does not say 0 for. */
static sh_status problem_init(problem *p, const uint8_t *keep) {
    const sh_rows *rows = p->rows;
    p->list = sh_alloc(rows->count + 1, sizeof *p->list);
    if (p->list == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %zu rows", rows->count);
    for (size_t i = 0; i < rows->count; i++) {
        size_t label = p->regression ? 0 : (size_t)rows->target[i];
        bool takes_part = p->regression || label == p->a || label == p->b;
        if (takes_part && (keep == NULL || keep[i])) p->list[p->count++] = (uint32_t)i;
    }
    p->numbers = sh_alloc(8 * p->count + 1, sizeof *p->numbers);
    if (p->numbers == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %zu rows", p->count);
    double *y = p->numbers, *linear = y + 2 * p->count, *most = linear + 2 * p->count;
    for (size_t t = 0; t < p->count; t++) {
        double target = rows->target[p->list[t]];
        double weight = rows->weight != NULL ? rows->weight[p->list[t]] : 1;
        // C times the row's weight, for both variables of a row.
        most[t] = most[p->count + t] = p->options->c * weight;
        y[t] = p->regression || (size_t)target == p->a ? 1 : -1;
        y[p->count + t] = -1;
        // Linear terms of epsilon-SVR: epsilon - y and epsilon + y.
        linear[t] = p->regression ? p->options->epsilon - target : -1;
        linear[p->count + t] = p->options->epsilon + target;
    }
    return SH_OK;
}

/* Rows of each side, over all workers. */
static sh_status count_sides(const problem *p, sh_learn_team *team, int64_t sides[2]) {
    sides[0] = sides[1] = 0;
    // `numbers` begin with y.
    for (size_t t = 0; t < p->count; t++) sides[p->numbers[t] > 0 ? 0 : 1]++;
    return sh_learn_sum(team, sides, 2);
}

/* The solution stays in the problem. With one class alone nothing is solved: it wins. */
static sh_status solve(problem *p, bool warm, sh_learn_team *team, sh_smo_result *result) {
    int64_t sides[2];
    SH_TRY(count_sides(p, team, sides));
    // Of one class alone: every decision is that class.
    *result = (sh_smo_result){.rho = sides[0] > 0 ? -1 : sides[1] > 0 ? 1 : 0};
    if (!p->regression && (sides[0] == 0 || sides[1] == 0)) return SH_OK;
    sh_smo_problem asked = {.rows = p->rows,
                            .list = p->list,
                            .count = p->count,
                            .twice = p->regression,
                            .y = p->numbers,
                            .linear = p->numbers + 2 * p->count,
                            .most = p->numbers + 4 * p->count,
                            .a = solution_of(p),
                            .warm = warm,
                            .kernel = p->options->kernel,
                            .tolerance = p->options->tolerance,
                            .cache_bytes = p->options->cache_bytes,
                            .stop = p->options->beat,
                            .user = p->options->user};
    return sh_smo_solve(&asked, team, result);
}

/* ---- What a model is made of, with the worker that has the rows ---- */

/* Factors of this worker's rows for some outputs, and these outputs' thresholds. */
typedef struct factors {
    const sh_rows *rows;
    size_t outputs;
    // Factors y a; 0: no support vector.
    double *factor;  // (rows, outputs)
    double *rho;     // (outputs)
    double objective;
    int64_t steps;
} factors;

static sh_status factors_init(factors *f, const sh_rows *rows, size_t outputs) {
    *f = (factors){.rows = rows, .outputs = outputs};
    f->factor = sh_alloc(rows->count * outputs + 1, sizeof *f->factor);
    f->rho = sh_alloc(outputs, sizeof *f->rho);
    return f->factor != NULL && f->rho != NULL ? SH_OK
                                               : SH_FAIL(SH_E_MEMORY, "out of memory for factors");
}

static void factors_fini(factors *f) {
    sh_free(f->factor);
    sh_free(f->rho);
}

/* Factors y a; in regression a - a*, one per row. Rows that are no support vectors have 0. */
static void take_solution(factors *f, size_t output, const problem *p, const sh_smo_result *r) {
    const double *a = solution_of(p), *y = p->numbers;
    for (size_t t = 0; t < p->count; t++) {
        double factor = a[t] * y[t];
        if (p->regression) factor -= a[p->count + t];
        f->factor[p->list[t] * f->outputs + output] = factor;  // rows that take no part keep 0
    }
    f->rho[output] = r->rho;
    f->objective += r->objective;
    f->steps += r->steps;
}

/* 0: regression. */
static size_t classes_of(const sh_rows *rows) { return (size_t)rows->classes; }

/* ---- Parts ---- */

/* A row that goes on from a part, and its factor there. Of a part with one class, where no row is
 * needed, all go on: elsewhere they may be. */
typedef struct told {
    int64_t row;
    double factor;
} told;

/* The rows of `all` that are in a part, as rows of one worker alone. */
static sh_status pick(const sh_rows *all, const int32_t *part, int32_t which, sh_rows *rows_out,
                      uint32_t **list_out) {
    // `greatest` of all rows: a valid bound for some of them.
    sh_rows rows = {.width = all->width, .classes = all->classes, .greatest = all->greatest};
    size_t values = 0, at = 0;
    uint32_t *list = sh_alloc(all->count + 1, sizeof *list);
    if (list == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a part");
    for (size_t i = 0; i < all->count; i++) {
        if (part[i] != which) continue;
        list[rows.count++] = (uint32_t)i;
        if (all->x == NULL) values += all->sparse.start[i + 1] - all->sparse.start[i];
    }
    rows.total = rows.count;  // a part is the whole data of its team of one
    rows.target = sh_alloc(rows.count + 1, sizeof *rows.target);
    sh_status status = rows.target != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory");
    if (status == SH_OK && all->x == NULL)
        status = sh_sparse_init(&rows.sparse, rows.count + 1, rows.width, values);
    if (status == SH_OK && all->x != NULL) {
        rows.x = sh_alloc(rows.count * rows.width + 1, sizeof *rows.x);
        if (rows.x == NULL) status = SH_FAIL(SH_E_MEMORY, "out of memory for a part");
    }
    for (size_t i = 0; status == SH_OK && i < rows.count; i++) {
        rows.target[i] = all->target[list[i]];
        if (all->x != NULL) {
            memcpy(rows.x + i * rows.width, all->x + list[i] * rows.width,
                   rows.width * sizeof *rows.x);
            continue;
        }
        size_t start = all->sparse.start[list[i]];
        size_t stored = all->sparse.start[list[i] + 1] - start;
        memcpy(rows.sparse.index + at, all->sparse.index + start, stored * sizeof(uint32_t));
        memcpy(rows.sparse.value + at, all->sparse.value + start, stored * sizeof(float));
        rows.sparse.start[i + 1] = at += stored;
    }
    if (status != SH_OK) {
        sh_rows_fini(&rows);
        sh_free(list);
        return status;
    }
    *rows_out = rows;
    *list_out = list;
    return SH_OK;
}

/* Solves one part alone, from `start` (all rows, NULL: zeros), and adds what it found to `found`.
 */
static sh_status solve_part(const sh_svm_options *options, const sh_rows *all, const int32_t *part,
                            int32_t which, size_t a, size_t b, const double *start, int threads,
                            told **found, size_t *found_count, size_t *found_capacity,
                            sh_smo_result *result) {
    sh_learn_team alone = sh_learn_alone(threads);  // no message while a part is solved
    sh_rows rows;
    uint32_t *list;
    SH_TRY(pick(all, part, which, &rows, &list));
    problem p = {
        .options = options, .rows = &rows, .a = a, .b = b, .regression = all->classes == 0};
    sh_status status = problem_init(&p, NULL);
    for (size_t t = 0; status == SH_OK && start != NULL && t < p.count; t++) {
        double factor = start[list[p.list[t]]], *solution = solution_of(&p);
        // The factor y a gives a: for a class y is known, in regression one of a, a* is 0.
        solution[t] = p.regression ? fmax(factor, 0) : fabs(factor);
        if (p.regression) solution[p.count + t] = fmax(-factor, 0);
    }
    if (status == SH_OK) status = solve(&p, start != NULL, &alone, result);
    int64_t sides[2] = {1, 1};
    if (status == SH_OK) status = count_sides(&p, &alone, sides);
    bool keeps_all = !p.regression && (sides[0] == 0 || sides[1] == 0);
    for (size_t t = 0; status == SH_OK && t < p.count; t++) {
        double factor = solution_of(&p)[t] * p.numbers[t];
        if (p.regression) factor -= solution_of(&p)[p.count + t];
        if (factor == 0 && !keeps_all) continue;
        void *items = *found;
        status = sh_grow(&items, found_capacity, *found_count + 1, sizeof **found);
        *found = items;
        if (status == SH_OK)
            (*found)[(*found_count)++] = (told){.row = (int64_t)list[p.list[t]], .factor = factor};
    }
    problem_fini(&p);
    sh_rows_fini(&rows);
    sh_free(list);
    return status;
}

/* Every worker solves its share of the parts, and all learn the factors of all rows. */
static sh_status solve_parts(const sh_svm_options *options, const sh_rows *all, const int32_t *part,
                             size_t parts, size_t a, size_t b, const double *start,
                             sh_learn_team *team, double *factor_out, uint8_t *kept_out,
                             int64_t *steps) {
    told *found = NULL;
    size_t count = 0, capacity = 0, bytes = 0;
    sh_status status = SH_OK;
    // Parts are dealt to workers in turn.
    for (size_t which = (size_t)team->rank; status == SH_OK && which < parts;
         which += (size_t)team->ranks) {
        sh_smo_result result = {0};
        status = solve_part(options, all, part, (int32_t)which, a, b, start, team->threads, &found,
                            &count, &capacity, &result);
        *steps += result.steps;
    }
    // Before the exchange: a failed worker would leave others waiting.
    status = sh_learn_agree(team, status);
    void *told_all = NULL;
    if (status == SH_OK)
        status = sh_learn_collect(team, found, count * sizeof *found, &told_all, &bytes);
    const told *each = told_all;
    memset(factor_out, 0, all->count * sizeof *factor_out);
    memset(kept_out, 0, all->count);
    // Each row is in one part: no entry meets another.
    for (size_t i = 0; status == SH_OK && i < bytes / sizeof *each; i++) {
        factor_out[each[i].row] = each[i].factor;
        kept_out[each[i].row] = 1;
    }
    sh_free(told_all);
    sh_free(found);
    return status;
}

/* Up the tree: the support vectors of two neighbouring parts become one part. */
static sh_status climb(const sh_svm_options *options, const sh_rows *all, int32_t *part,
                       size_t parts, size_t a, size_t b, sh_learn_team *team, double *factor,
                       uint8_t *kept, int64_t *steps) {
    SH_TRY(solve_parts(options, all, part, parts, a, b, NULL, team, factor, kept, steps));
    while (parts > 2) {
        parts = (parts + 1) / 2;
        // -1: the row is no support vector and takes no further part.
        for (size_t i = 0; i < all->count; i++) part[i] = kept[i] ? part[i] / 2 : -1;
        // Warm start from both parts' solutions.
        SH_TRY(solve_parts(options, all, part, parts, a, b, factor, team, factor, kept, steps));
    }
    return SH_OK;
}

/* The whole problem, begun with what the parts gave; `kept`: on these rows of all alone. */
static sh_status finish_whole(const sh_svm_options *options, const sh_rows *rows, size_t output,
                              size_t a, size_t b, const double *factor, const uint8_t *kept,
                              sh_learn_team *team, factors *f) {
    problem p = {
        .options = options, .rows = rows, .a = a, .b = b, .regression = rows->classes == 0};
    sh_status status = problem_init(&p, kept != NULL ? kept + rows->first : NULL);
    for (size_t t = 0; status == SH_OK && t < p.count; t++) {
        double is = factor[rows->first + p.list[t]], *solution = solution_of(&p);
        solution[t] = p.regression ? fmax(is, 0) : fabs(is);
        if (p.regression) solution[p.count + t] = fmax(-is, 0);
    }
    sh_smo_result result = {0};
    status = sh_learn_agree(team, status);
    if (status == SH_OK) status = solve(&p, true, team, &result);
    if (status == SH_OK) take_solution(f, output, &p, &result);
    problem_fini(&p);
    return status;
}

/* ---- One model of all rows ---- */

/* One decision (or the regression): solved on all rows, or in parts first, whose support vectors
 * begin or bound the whole problem. */
static sh_status train_output(const sh_svm_options *options, const sh_rows *rows,
                              const sh_rows *all, const int32_t *part, size_t parts, size_t output,
                              size_t a, size_t b, sh_learn_team *team, factors *f) {
    if (options->solver == SH_SVM_SMO || parts < 2) {
        problem p = {
            .options = options, .rows = rows, .a = a, .b = b, .regression = rows->classes == 0};
        sh_smo_result result = {0};
        sh_status status = sh_learn_agree(team, problem_init(&p, NULL));
        if (status == SH_OK) status = solve(&p, false, team, &result);
        if (status == SH_OK) take_solution(f, output, &p, &result);
        problem_fini(&p);
        return status;
    }
    SH_ASSERT(part != NULL);
    uint8_t *kept = sh_alloc(all->count, 1);
    double *factor = sh_alloc(all->count, sizeof *factor);
    // A copy: climb() renumbers parts, and other outputs need them as they were.
    int32_t *own = sh_alloc(all->count, sizeof *own);
    sh_status status = factor != NULL && own != NULL && kept != NULL
                           ? SH_OK
                           : SH_FAIL(SH_E_MEMORY, "out of memory for %zu rows", all->count);
    status = sh_learn_agree(team, status);
    if (own != NULL) memcpy(own, part, all->count * sizeof *own);
    if (status == SH_OK && options->solver == SH_SVM_CASCADE)
        status = climb(options, all, own, parts, a, b, team, factor, kept, &f->steps);
    else if (status == SH_OK)
        status = solve_parts(options, all, own, parts, a, b, NULL, team, factor, kept, &f->steps);
    if (status == SH_OK)
        status = finish_whole(options, rows, output, a, b, factor,
                              // Solver dc solves on all rows, the others on support vectors alone.
                              options->solver != SH_SVM_DC ? kept : NULL, team, f);
    sh_free(factor);
    sh_free(own);
    sh_free(kept);
    return status;
}

/* One against one: classes (classes - 1) / 2 problems, in the order of the outputs. */
static sh_status train_outputs(const sh_svm_options *options, const sh_rows *rows,
                               const sh_rows *all, const int32_t *part, size_t parts,
                               sh_learn_team *team, factors *f) {
    size_t classes = classes_of(rows), output = 0;
    if (classes == 0) return train_output(options, rows, all, part, parts, 0, 0, 0, team, f);
    for (size_t a = 0; a < classes; a++)
        for (size_t b = a + 1; b < classes; b++, output++)
            SH_TRY(train_output(options, rows, all, part, parts, output, a, b, team, f));
    return SH_OK;
}

/* ---- The model, with every worker ---- */

static sh_status no_memory(void) { return SH_FAIL(SH_E_MEMORY, "out of memory for a model"); }

/* Rows that any output needs, with their factors: `block` of `blocks` outputs are this worker's. */
static sh_status gather_rows(const factors *f, size_t block, sh_svm_model *model,
                             sh_learn_team *team) {
    const sh_rows *rows = f->rows;
    size_t all_outputs = model->parts * model->outputs, count = 0, bytes = 0;
    float *x = sh_alloc(rows->count * rows->width + 1, sizeof *x);
    double *factor = sh_alloc(rows->count * all_outputs + 1, sizeof *factor);
    sh_status status = x != NULL && factor != NULL ? SH_OK : no_memory();
    for (size_t i = 0; status == SH_OK && i < rows->count; i++) {
        bool needed = false;
        for (size_t o = 0; o < f->outputs; o++) needed |= f->factor[i * f->outputs + o] != 0;
        if (!needed) continue;
        const float *at = sh_rows_at(rows, i, x + count * rows->width);
        if (at != x + count * rows->width)
            // Dense rows are returned in place, sparse ones expanded into x.
            memcpy(x + count * rows->width, at, rows->width * sizeof *x);
        memcpy(factor + count * all_outputs + block * f->outputs, f->factor + i * f->outputs,
               f->outputs * sizeof *factor);
        count++;
    }
    void *all_x = NULL, *all_factor = NULL;
    status = sh_learn_agree(team, status);
    if (status == SH_OK)
        status = sh_learn_collect(team, x, count * rows->width * sizeof *x, &all_x, &bytes);
    size_t vectors = bytes / (rows->width * sizeof *x);
    if (status == SH_OK)
        status = sh_learn_collect(team, factor, count * all_outputs * sizeof *factor, &all_factor,
                                  &bytes);
    sh_free(x);
    sh_free(factor);
    size_t before = model->vectors;
    // Collected rows come in rank order, so that all workers hold the same model.
    float *grown_x = status == SH_OK ? sh_realloc(model->x, (before + vectors) * rows->width + 1,
                                                  sizeof *grown_x)
                                     : NULL;
    double *grown =
        status == SH_OK
            ? sh_realloc(model->factor, (before + vectors) * all_outputs + 1, sizeof *grown)
            : NULL;
    if (grown_x != NULL) model->x = grown_x;
    if (grown != NULL) model->factor = grown;
    if (status == SH_OK && (grown_x == NULL || grown == NULL)) status = no_memory();
    if (status == SH_OK) {
        memcpy(model->x + before * rows->width, all_x, vectors * rows->width * sizeof(float));
        memcpy(model->factor + before * all_outputs, all_factor, bytes);
        model->vectors += vectors;
    }
    sh_free(all_x);
    sh_free(all_factor);
    return status;
}

/* From (vectors, outputs) to (outputs, vectors). */
static sh_status turn_factors(sh_svm_model *model) {
    size_t outputs = model->parts * model->outputs, vectors = model->vectors;
    double *turned = sh_alloc(outputs * vectors + 1, sizeof *turned);
    if (turned == NULL) return no_memory();
    for (size_t v = 0; v < vectors; v++)
        for (size_t o = 0; o < outputs; o++)
            turned[o * vectors + v] = model->factor[v * outputs + o];
    sh_free(model->factor);
    model->factor = turned;
    return SH_OK;
}

/* Bytes are counted apart for training and gathering, as CA-SVM compares them. */
static sh_status train_one(const sh_svm_options *options, const sh_rows *rows, const sh_rows *all,
                           const int32_t *part, size_t parts, sh_learn_team *team,
                           sh_svm_model *model) {
    factors f;
    uint64_t sent = team->sent_bytes;
    sh_status status = sh_learn_agree(team, factors_init(&f, rows, model->outputs));
    if (status == SH_OK) status = train_outputs(options, rows, all, part, parts, team, &f);
    // This worker's, by difference of the team's counter.
    model->training_bytes = team->sent_bytes - sent;
    sent = team->sent_bytes;
    if (status == SH_OK) status = gather_rows(&f, 0, model, team);
    model->gathering_bytes = team->sent_bytes - sent;
    if (status == SH_OK) memcpy(model->rho, f.rho, model->outputs * sizeof *f.rho);
    model->objective = f.objective;
    model->steps = f.steps;
    factors_fini(&f);
    return status;
}

/* A model for each part, alone: what is sent comes after it. */
static sh_status train_each(const sh_svm_options *options, const sh_rows *all, const int32_t *part,
                            sh_learn_team *team, sh_svm_model *model) {
    size_t parts = model->parts;
    sh_rows *rows = sh_alloc(parts, sizeof *rows);
    factors *f = sh_alloc(parts, sizeof *f);
    sh_status status = rows != NULL && f != NULL ? SH_OK : no_memory();
    sh_learn_team alone = sh_learn_alone(team->threads);
    uint64_t sent = team->sent_bytes;
    // Parts in turn, as in solve_parts.
    for (size_t p = (size_t)team->rank; status == SH_OK && p < parts; p += (size_t)team->ranks) {
        uint32_t *list = NULL;
        status = pick(all, part, (int32_t)p, &rows[p], &list);
        sh_free(list);
        if (status == SH_OK) status = factors_init(&f[p], &rows[p], model->outputs);
        if (status == SH_OK)
            // Without `part` the rows are one problem.
            status = train_outputs(options, &rows[p], NULL, NULL, 1, &alone, &f[p]);
    }
    model->training_bytes = team->sent_bytes - sent;
    sent = team->sent_bytes;
    status = status == SH_OK && rows == NULL ? no_memory() : sh_learn_agree(team, status);
    double *rho = sh_alloc(parts * (model->outputs + 1), sizeof *rho);
    if (status == SH_OK && rho == NULL) status = no_memory();
    for (size_t p = 0; status == SH_OK && p < parts; p++) {
        // Workers without the part give no rows, but take part in the exchange.
        sh_rows none = {.width = all->width};
        factors nothing = {.rows = &none, .outputs = model->outputs};
        bool mine = p % (size_t)team->ranks == (size_t)team->rank;
        status = gather_rows(mine ? &f[p] : &nothing, p, model, team);
        double *own = rho + p * (model->outputs + 1);
        if (!mine) continue;
        memcpy(own, f[p].rho, model->outputs * sizeof *own);
        own[model->outputs] = f[p].objective;  // travels behind the thresholds
        model->steps += f[p].steps;
    }
    // Each number is one worker's: bits are added to zeros.
    if (status == SH_OK)
        status = sh_learn_sum(team, (int64_t *)(void *)rho, parts * (model->outputs + 1));
    for (size_t p = 0; status == SH_OK && p < parts; p++) {
        memcpy(model->rho + p * model->outputs, rho + p * (model->outputs + 1),
               model->outputs * sizeof *rho);
        model->objective += rho[p * (model->outputs + 1) + model->outputs];
    }
    model->gathering_bytes = team->sent_bytes - sent;
    for (size_t p = 0; p < parts && rows != NULL && f != NULL; p++) {
        factors_fini(&f[p]);
        sh_rows_fini(&rows[p]);
    }
    sh_free(rho);
    sh_free(rows);
    sh_free(f);
    return status;
}

void sh_svm_model_fini(sh_svm_model *model) {
    sh_free(model->x);
    sh_free(model->factor);
    sh_free(model->rho);
    sh_free(model->centre);
    *model = (sh_svm_model){0};
}

/* Collective: a label that is no class on one worker fails on all. */
static sh_status check(const sh_svm_options *options, const sh_rows *rows, sh_learn_team *team) {
    if (rows->target == NULL) return SH_FAIL(SH_E_USAGE, "the data has no targets to learn from");
    if (rows->total == 0) return SH_FAIL(SH_E_USAGE, "the data has no rows");
    if (options->parts > (int64_t)rows->total)  // some part would be empty
        return SH_FAIL(SH_E_USAGE, "%ld parts of %zu rows", (long)options->parts, rows->total);
    int64_t *seen = sh_alloc((size_t)rows->classes + 1, sizeof *seen);
    if (seen == NULL) return no_memory();
    sh_status status = SH_OK;
    for (size_t i = 0; i < rows->count && rows->classes > 0; i++) {
        if (rows->target[i] >= 0 && rows->target[i] < (double)rows->classes)
            seen[(size_t)rows->target[i]]++;
        else
            status = SH_FAIL(SH_E_USAGE, "row %zu has label %g, which is no class", rows->first + i,
                             rows->target[i]);
    }
    status = sh_learn_agree(team, status);
    if (status == SH_OK) status = sh_learn_sum(team, seen, (size_t)rows->classes);
    size_t present = 0;
    for (int64_t k = 0; k < rows->classes; k++) present += seen[k] > 0;
    sh_free(seen);
    SH_TRY(status);
    if (present == 1 && rows->classes > 0) {
        SH_FAIL(SH_E_USAGE, "all rows are of one class: there is nothing to tell apart");
        return sh_error_hint("look at the labels: shoal data info FILE");
    }
    return SH_OK;
}

/* Cutting sends nothing: every worker computes the same parts. */
sh_status sh_svm_train(const sh_svm_options *options, const sh_rows *rows, const sh_rows *all,
                       sh_learn_team *team, sh_svm_model *model_out) {
    SH_TRY(check(options, rows, team));
    size_t parts = options->parts > 0 ? (size_t)options->parts : (size_t)team->ranks;
    // Solvers from cp on keep a model for each part.
    bool cuts = options->solver != SH_SVM_SMO && parts > 1, each = options->solver >= SH_SVM_CP;
    sh_svm_model model = {.width = rows->width, .classes = classes_of(rows), .parts = 1};
    if (cuts && each) model.parts = parts;
    model.outputs = sh_svm_outputs(model.classes);
    model.rho = sh_alloc(model.parts * model.outputs, sizeof *model.rho);
    int32_t *part = cuts ? sh_alloc(all->count + 1, sizeof *part) : NULL;
    float *centre = cuts ? sh_alloc(parts * rows->width, sizeof *centre) : NULL;
    sh_status status = SH_OK;
    if (model.rho == NULL || (cuts && (part == NULL || centre == NULL))) status = no_memory();
    uint64_t sent = team->sent_bytes;  // 0 unless cutting came to send something
    if (status == SH_OK && cuts)
        status = sh_svm_part(options, all, parts, team->threads, part, centre);
    model.parting_bytes = team->sent_bytes - sent;
    status = sh_learn_agree(team, status);
    if (status == SH_OK)
        status = model.parts > 1 ? train_each(options, all, part, team, &model)
                                 : train_one(options, rows, all, part, parts, team, &model);
    if (status == SH_OK) status = turn_factors(&model);
    if (model.parts > 1) {  // prediction finds the part by it
        model.centre = centre;
        centre = NULL;
    }
    sh_free(part);
    sh_free(centre);
    if (status != SH_OK) {
        sh_svm_model_fini(&model);
        return status;
    }
    *model_out = model;
    return SH_OK;
}

/* ---- Decisions ---- */

/* Routes a sample to the model of the nearest centre; of equal distances the first part. 0 where
 * there is one part. */
static size_t nearest_part(const sh_svm_model *model, const float *x) {
    size_t best = 0;
    double least = INFINITY;
    for (size_t p = 0; p < model->parts && model->parts > 1; p++) {
        double d = sh_distance(x, model->centre + p * model->width, model->width);
        if (d >= least) continue;
        least = d;
        best = p;
    }
    return best;
}

/* A decision without the net, in doubles: the model as training left it. */
void sh_svm_decide(const sh_svm_model *model, const sh_kernel *kernel, const float *x,
                   double *outputs_out) {
    size_t first = nearest_part(model, x) * model->outputs;
    double x_square = 0;
    for (size_t i = 0; i < model->width; i++) x_square += (double)x[i] * (double)x[i];
    // Decision = sum of factor K - rho.
    for (size_t o = 0; o < model->outputs; o++) outputs_out[o] = -model->rho[first + o];
    for (size_t v = 0; v < model->vectors; v++) {
        const float *at = model->x + v * model->width;
        double dot = 0, square = 0;
        bool needed = false;
        for (size_t o = 0; o < model->outputs; o++)
            needed |= model->factor[(first + o) * model->vectors + v] != 0;
        if (!needed) continue;  // vectors of other parts cost no kernel value
        for (size_t i = 0; i < model->width; i++) {
            dot += (double)at[i] * (double)x[i];
            square += (double)at[i] * (double)at[i];
        }
        double value = sh_kernel_value(kernel, dot, x_square, square);
        for (size_t o = 0; o < model->outputs; o++)
            outputs_out[o] += value * model->factor[(first + o) * model->vectors + v];
    }
}

/* Votes of one-against-one decisions. The arrays hold 1024 decisions, enough for 45 classes. */
double sh_svm_predict(const sh_svm_model *model, const sh_kernel *kernel, const float *x) {
    enum { CLASSES_MOST = 256 };
    double outputs[CLASSES_MOST * 4] = {0};
    int votes[CLASSES_MOST] = {0};
    SH_ASSERT(model->outputs <= SH_COUNT(outputs));
    sh_svm_decide(model, kernel, x, outputs);
    if (model->classes == 0) return outputs[0];
    size_t o = 0, best = 0;
    for (size_t a = 0; a < model->classes; a++)
        for (size_t b = a + 1; b < model->classes; b++) votes[outputs[o++] > 0 ? a : b]++;
    for (size_t k = 1; k < model->classes; k++)
        if (votes[k] > votes[best]) best = k;
    return (double)best;
}
