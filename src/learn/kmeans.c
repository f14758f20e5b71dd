/* Lloyd's iteration with Hamerly's bounds (2010): a row whose distance to its own centre is
 * certainly below that to any other keeps its centre and is not looked at. The others are compared
 * with all centres by a matrix product, gathered first.
 *
 *   upper[i] >= |x_i - c_own|,   lower[i] <= |x_i - c_j| for all other j
 *
 * Sums of rows are kept from one iteration to the next: only rows that change their cluster move
 * from one sum to another. Integers make that exact, and inertia comes from the sums alone:
 *
 *   sum over i of |x_i - c|^2 = sum |x_i|^2 + sum over j of n_j |c_j|^2 - 2 c_j.S_j */
#include "learn/kmeans.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "learn/exact_sum.h"

enum { CHUNK_ROWS = 1024 };  // looked through by one thread at a time

struct sh_kmeans {
    sh_kmeans_options options;
    sh_rows *rows;
    sh_learn_team *team;
    size_t k, width;
    float *mean;     // (width), taken off dense rows
    float *where;    // (k, width): the centres where the data lies; all else follows from them
    float *centres;  // (k, width), without the mean
    sh_centres seen;
    double scale;           // integer = value scale
    double square_sum;      // of all rows
    int64_t *sums;          // (k, width + 1): of all workers; behind each sum the number of rows
    int64_t *moved;         // (k, width + 1): what an iteration adds, then over all workers; and
                            // one more: rows that changed
    int64_t *thread_moved;  // (threads, k (width + 1))
    int32_t *cluster;       // (rows), -1: none yet
    double *upper, *lower;  // (rows), see above
    double *drift;          // (k): how far a centre moved last
    float *seen_rows;       // (k): mini-batch, rows a centre has met
    int64_t iteration;
};

static size_t sum_words(const sh_kmeans *m) { return m->k * (m->width + 1); }

/* ---- Integers ---- */

/* Moves row `x` (width) from one integer sum to another in O(width); `from` -1: from none. The
 * same integer leaves the one and enters the other, so the total over clusters is invariant. */
static void move_row(const sh_kmeans *m, const float *x, int32_t from, int32_t to, int64_t *sums) {
    size_t stride = m->width + 1;
    int64_t *into = sums + (size_t)to * stride;
    into[m->width]++;
    if (from < 0) {
        for (size_t i = 0; i < m->width; i++) into[i] += sh_to_whole((double)x[i] * m->scale);
        return;
    }
    int64_t *out = sums + (size_t)from * stride;
    out[m->width]--;
    for (size_t i = 0; i < m->width; i++) {
        int64_t value = sh_to_whole((double)x[i] * m->scale);
        into[i] += value;
        out[i] -= value;
    }
}

/* ---- Centring ---- */

/* Takes the mean of all workers' rows off dense rows, in place: smaller numbers lose less in the
 * float products of nearest.c. Sparse rows would lose their zeros, so they stay. Collective. */
static sh_status take_mean(sh_kmeans *m) {
    sh_rows *rows = m->rows;
    if (rows->x == NULL || rows->total == 0) return SH_OK;
    double scale = sh_whole_scale(rows->greatest, rows->total);
    int64_t *sums = sh_alloc(m->width, sizeof *sums);
    if (sums == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a mean");
    for (size_t i = 0; i < rows->count; i++)
        for (size_t j = 0; j < m->width; j++)
            sums[j] += sh_to_whole((double)rows->x[i * m->width + j] * scale);
    sh_status status = sh_learn_sum(m->team, sums, m->width);
    for (size_t j = 0; j < m->width; j++)
        m->mean[j] = (float)((double)sums[j] / scale / (double)rows->total);
    sh_free(sums);
    SH_TRY(status);
    rows->greatest = 0;  // anew: the bound of centred values
    for (size_t i = 0; i < rows->count; i++)
        for (size_t j = 0; j < m->width; j++) {
            float *x = &rows->x[i * m->width + j];
            *x -= m->mean[j];
            if (fabs((double)*x) > rows->greatest) rows->greatest = fabs((double)*x);
        }
    // Collective, as integer scales derived from `greatest` must agree.
    return sh_learn_max(m->team, &rows->greatest, 1);
}

/* Sum of |x_i|^2 over all workers: inertia's part that no centre changes. Collective. */
static sh_status sum_squares(sh_kmeans *m) {
    double bound = sh_rows_square_most(m->rows);
    SH_TRY(sh_learn_max(m->team, &bound, 1));
    sh_exact_sum sum;
    SH_TRY(sh_exact_sum_init(&sum, 1, bound));
    for (size_t i = 0; i < m->rows->count; i++)
        sh_exact_sum_add_one(&sum, 0, sh_rows_square(m->rows, i));
    sh_status status = sh_exact_sum_meet(&sum, m->team, &m->square_sum);
    sh_exact_sum_fini(&sum);
    return status;
}

/* ---- Assignment ---- */

/* Bounds are rounded outwards by 2^-40, far more than a double operation rounds: a bound too
 * tight would skip a row that has to change its cluster. */
static double slack_up(double x) { return x * (1 + 0x1p-40); }
static double slack_down(double x) { return x * (1 - 0x1p-40); }

/* Half the distance from each centre to the nearest other one: a row closer than that stays. */
static void half_gaps(const sh_kmeans *m, double *gap_out) {
#pragma omp parallel for num_threads(m->team->threads) schedule(dynamic)
    for (size_t a = 0; a < m->k; a++) {
        double least = INFINITY;
        for (size_t b = 0; b < m->k; b++) {
            if (b == a) continue;
            double d = sh_distance(m->centres + a * m->width, m->centres + b * m->width, m->width);
            if (d < least) least = d;
        }
        gap_out[a] = slack_down(sqrt(least) / 2);
    }
}

/* The row certainly keeps its centre. `near` is then its distance, made exact if it had to be. */
static bool stays(sh_kmeans *m, size_t row, const double *gap, float *buffer) {
    int32_t own = m->cluster[row];
    if (own < 0 || m->options.plain) return false;  // plain Lloyd, the oracle of the bounds
    // the better of two lower bounds of any other distance
    double other = gap[own] > m->lower[row] ? gap[own] : m->lower[row];
    if (m->upper[row] < other) return true;  // O(1): no distance is taken
    const float *x = sh_rows_at(m->rows, row, buffer);
    double d = sh_distance(x, m->centres + (size_t)own * m->width, m->width);
    m->upper[row] = slack_up(sqrt(d));
    return m->upper[row] < other;
}

/* Triangle inequality: the own centre came at most drift[own] away, any other at most the
 * greatest drift closer. If own moved farthest, the others moved by the second greatest at most. */
static void drift_bounds(sh_kmeans *m, size_t row, double first, double second, int32_t farthest) {
    int32_t own = m->cluster[row];
    if (own < 0) return;
    m->upper[row] = slack_up(m->upper[row] + m->drift[own]);
    double moved = own == farthest ? second : first;
    m->lower[row] = slack_down(m->lower[row] - slack_up(moved));
}

/* Bounds after a full comparison are those distances; a row with another nearest centre moves
 * between sums. */
static void settle(sh_kmeans *m, size_t row, const sh_neighbour *near, const float *x,
                   int64_t *sums, int64_t *changed) {
    m->upper[row] = slack_up(sqrt(near->distance));
    m->lower[row] = slack_down(sqrt(near->second));
    if (near->index == m->cluster[row]) return;
    move_row(m, x, m->cluster[row], near->index, sums);
    m->cluster[row] = near->index;
    ++*changed;
}

typedef struct look {
    const double *gap;          // (k)
    double first, second;       // the greatest moves of centres
    int32_t farthest;           // that moved farthest
    int64_t changed, compared;  // over the threads
} look;

/* One thread looks through a chunk of rows. */
static void look_through(sh_kmeans *m, const look *l, size_t first, sh_nearest_work *work,
                         uint32_t *list, sh_neighbour *near, int64_t *sums, int64_t *changed,
                         int64_t *compared) {
    size_t end = first + CHUNK_ROWS < m->rows->count ? first + CHUNK_ROWS : m->rows->count;
    size_t count = 0;
    for (size_t row = first; row < end; row++) {
        drift_bounds(m, row, l->first, l->second, l->farthest);
        if (!stays(m, row, l->gap, work->row)) list[count++] = (uint32_t)row;
    }
    // NULL list: dense rows are used in place, without a copy.
    sh_nearest_find(m->rows, &m->seen, first, count == end - first ? NULL : list, count, work,
                    near);
    for (size_t i = 0; i < count; i++)
        settle(m, list[i], &near[i], sh_rows_at(m->rows, list[i], work->row), sums, changed);
    *compared += (int64_t)count;
}

/* Assigns all rows of this worker; sends nothing. Each thread has its own integer sums, so that
 * dynamic scheduling changes no bit. */
static sh_status assign(sh_kmeans *m, look *l) {
    sh_status status = SH_OK;
    size_t words = sum_words(m), chunks = (m->rows->count + CHUNK_ROWS - 1) / CHUNK_ROWS;
    int64_t changed = 0, compared = 0;
#pragma omp parallel num_threads(m->team->threads) reduction(+ : changed, compared)
    {
        int64_t *sums = m->thread_moved + (size_t)omp_get_thread_num() * words;
        memset(sums, 0, words * sizeof *sums);
        uint32_t *list = sh_alloc(CHUNK_ROWS, sizeof *list);
        sh_neighbour *near = sh_alloc(CHUNK_ROWS, sizeof *near);
        sh_nearest_work work = {0};
        bool ready =
            sh_nearest_work_init(&work, m->width, m->k) == SH_OK && list != NULL && near != NULL;
        // A thread without memory still enters the loop below: a worksharing loop needs the whole
        // team.
        if (!ready) {
#pragma omp atomic write
            status = SH_E_MEMORY;
        }
#pragma omp for schedule(dynamic)
        for (size_t chunk = 0; chunk < chunks; chunk++)
            if (ready)
                look_through(m, l, chunk * CHUNK_ROWS, &work, list, near, sums, &changed,
                             &compared);
        sh_nearest_work_fini(&work);
        sh_free(list);
        sh_free(near);
    }
    l->changed = changed;
    l->compared = compared;
    if (status != SH_OK) return SH_FAIL(SH_E_MEMORY, "out of memory for %zu clusters", m->k);
    memset(m->moved, 0, (words + 2) * sizeof *m->moved);  // two more: rows changed, rows compared
    for (int thread = 0; thread < m->team->threads; thread++)
        for (size_t i = 0; i < words; i++)
            m->moved[i] += m->thread_moved[(size_t)thread * words + i];
    m->moved[words] = changed;
    m->moved[words + 1] = compared;
    return SH_OK;
}

/* ---- Empty clusters ---- */

/* Rows of a cluster over all workers, the number behind its sum. */
static int64_t rows_of(const sh_kmeans *m, size_t cluster) {
    return m->sums[cluster * (m->width + 1) + m->width];
}

/* Farther than rounding alone puts a row from the mean of rows that all equal it. */
static bool is_apart(const sh_kmeans *m, double distance) {
    double grain = m->rows->greatest * 0x1p-22;
    return distance > (double)m->width * grain * grain;
}

/* The farthest row from its own centre, of clusters that keep another row. */
static sh_status find_farthest(sh_kmeans *m, sh_learn_best *best_out) {
    float *buffer = sh_alloc(m->width, sizeof *buffer);
    if (buffer == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a row");
    sh_learn_best best = {.row = -1};
    for (size_t row = 0; row < m->rows->count; row++) {
        size_t own = (size_t)m->cluster[row];
        if (rows_of(m, own) < 2) continue;  // a donor must not become empty itself
        const float *x = sh_rows_at(m->rows, row, buffer);
        sh_learn_best it = {sh_distance(x, m->centres + own * m->width, m->width),
                            (int64_t)(m->rows->first + row)};
        if (sh_learn_beats(it, best)) best = it;
    }
    sh_free(buffer);
    SH_TRY(sh_learn_best_of(m->team, &best));
    *best_out = best;
    return SH_OK;
}

/* Misuse, not numerics: k centres need k different rows. */
static sh_status too_few(const sh_kmeans *m, size_t empty) {
    SH_FAIL(SH_E_USAGE, "%zu clusters, but the data holds only %zu different rows", m->k,
            m->k - empty);
    return sh_error_hint("take k %zu or less", m->k - empty);
}

/* Each empty cluster takes the row farthest from its own centre, at the cost of one election and
 * one sum. All workers hold equal sums, so all take the same branches. Collective. */
static sh_status refill(sh_kmeans *m, int64_t *refilled_out) {
    size_t empty = 0, words = sum_words(m);
    for (size_t j = 0; j < m->k; j++) empty += rows_of(m, j) == 0;
    *refilled_out = (int64_t)empty;
    for (size_t j = 0; j < m->k && empty > 0; j++) {
        if (rows_of(m, j) != 0) continue;
        sh_learn_best best;
        SH_TRY(find_farthest(m, &best));
        if (best.row < 0 || !is_apart(m, best.value)) return too_few(m, empty);
        memset(m->moved, 0, words * sizeof *m->moved);
        size_t row = (size_t)best.row - m->rows->first;  // wraps around for rows of lower ranks
        // The owner of the row alone moves it; all others add zeros to the sum.
        if ((size_t)best.row >= m->rows->first && row < m->rows->count) {
            float *buffer = sh_alloc(m->width, sizeof *buffer);
            if (buffer == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a row");
            move_row(m, sh_rows_at(m->rows, row, buffer), m->cluster[row], (int32_t)j, m->moved);
            sh_free(buffer);
            m->cluster[row] = (int32_t)j;
            // Infinite bounds: the next iteration compares the row with all centres.
            m->upper[row] = INFINITY;
            m->lower[row] = 0;
        }
        SH_TRY(sh_learn_sum(m->team, m->moved, words));
        for (size_t i = 0; i < words; i++) m->sums[i] += m->moved[i];
        empty--;
    }
    return SH_OK;
}

/* ---- Centres ---- */

/* Inertia by the formula on top, in O(k width), for the centres that rows were assigned to.
 * Rounding can bring it below 0. */
static double inertia_of(const sh_kmeans *m) {
    double inertia = m->square_sum;
    for (size_t j = 0; j < m->k; j++) {
        const float *c = m->centres + j * m->width;
        const int64_t *sum = m->sums + j * (m->width + 1);
        double square = 0, product = 0;
        for (size_t i = 0; i < m->width; i++) {
            square += (double)c[i] * (double)c[i];
            product += (double)c[i] * ((double)sum[i] / m->scale);
        }
        inertia += (double)sum[m->width] * square - 2 * product;
    }
    return inertia > 0 ? inertia : 0;
}

/* To `to`, (width), without the mean. Centres are rounded where the data lies, so that a saved
 * centre is the very one that an uninterrupted run goes on from. */
static double move_centre(sh_kmeans *m, size_t j, float *to) {
    float *c = m->centres + j * m->width, *where = m->where + j * m->width;
    for (size_t i = 0; i < m->width; i++) {
        where[i] = (float)((double)to[i] + (double)m->mean[i]);
        to[i] = (float)((double)where[i] - (double)m->mean[i]);
    }
    double moved = sh_distance(c, to, m->width);
    memcpy(c, to, m->width * sizeof *c);
    m->drift[j] = slack_up(sqrt(moved));
    return moved;
}

/* Every centre goes to the mean of its rows. */
static double to_means(sh_kmeans *m, float *mean) {
    double shift = 0;
    for (size_t j = 0; j < m->k; j++) {
        const int64_t *sum = m->sums + j * (m->width + 1);
        double rows = (double)sum[m->width];
        for (size_t i = 0; i < m->width; i++) mean[i] = (float)((double)sum[i] / m->scale / rows);
        shift += move_centre(m, j, mean);
    }
    sh_centres_set(&m->seen, m->centres);
    return shift;
}

/* The greatest and second greatest drift, for drift_bounds. */
static look look_of(const sh_kmeans *m, const double *gap) {
    look l = {.gap = gap, .farthest = -1};
    for (size_t j = 0; j < m->k; j++) {
        if (m->drift[j] > l.first) {
            l.second = l.first;
            l.first = m->drift[j];
            l.farthest = (int32_t)j;
        } else if (m->drift[j] > l.second) {
            l.second = m->drift[j];
        }
    }
    return l;
}

/* One Lloyd iteration: assign, sum over workers, refill, update. Its inertia is that before the
 * update. Collective. */
static sh_status lloyd(sh_kmeans *m, double *gap, float *mean, sh_kmeans_step *step_out) {
    size_t words = sum_words(m);
    if (!m->options.plain) half_gaps(m, gap);
    look l = look_of(m, gap);
    SH_TRY(
        sh_learn_agree(m->iteration == 0 ? m->team : &(sh_learn_team){.ranks = 1}, assign(m, &l)));
    // The only message, unless a cluster is empty.
    SH_TRY(sh_learn_sum(m->team, m->moved, words + 2));
    *step_out = (sh_kmeans_step){.changed = m->moved[words], .compared = m->moved[words + 1]};
    for (size_t i = 0; i < words; i++) m->sums[i] += m->moved[i];
    step_out->inertia = inertia_of(m);
    SH_TRY(refill(m, &step_out->refilled));
    step_out->changed += step_out->refilled;
    step_out->shift = to_means(m, mean);
    return SH_OK;
}

/* ---- Mini-batches (Sculley, 2010) ---- */

/* The rows of a batch are drawn by (seed, step, place); each worker takes those that it has. A
 * centre goes to the mean of all rows that it has met. */
static sh_status mini_batch(sh_kmeans *m, float *mean, sh_kmeans_step *step_out) {
    size_t words = sum_words(m), count = 0, batch = (size_t)m->options.batch;
    uint32_t *list = sh_alloc(batch, sizeof *list);
    sh_neighbour *near = sh_alloc(batch, sizeof *near);
    sh_nearest_work work = {0};
    sh_exact_sum cost = {0};
    sh_status status = SH_OK;
    if (list == NULL || near == NULL)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for a batch of %zu rows", batch);
    if (status == SH_OK) status = sh_nearest_work_init(&work, m->width, m->k);
    double greatest = 2 * m->rows->greatest;  // a row and a centre differ by no more in any column
    if (status == SH_OK)
        status = sh_exact_sum_init(&cost, 1, (double)m->width * greatest * greatest * 1.01);
    if (status != SH_OK) goto out;
    sh_rng draws = sh_rng_stream(m->options.seed, SH_RNG_LEARN, 1U << 16, (uint64_t)m->iteration);
    for (size_t i = 0; i < batch; i++) {
        // Rows of lower ranks wrap around to large numbers.
        size_t row = (size_t)sh_rng_below(&draws, m->rows->total) - m->rows->first;
        if (row < m->rows->count) list[count++] = (uint32_t)row;
    }
    sh_nearest_find(m->rows, &m->seen, 0, list, count, &work, near);
    memset(m->moved, 0, (words + 2) * sizeof *m->moved);
    for (size_t i = 0; i < count; i++) {
        move_row(m, sh_rows_at(m->rows, list[i], work.row), -1, near[i].index, m->moved);
        sh_exact_sum_add_one(&cost, 0, near[i].distance);
    }
    SH_TRY_OUT(sh_learn_sum(m->team, m->moved, words + 2));
    *step_out = (sh_kmeans_step){.changed = (int64_t)batch, .compared = (int64_t)batch};
    SH_TRY_OUT(sh_exact_sum_meet(&cost, m->team, &step_out->inertia));
    step_out->inertia *= (double)m->rows->total / (double)batch;  // estimate for all rows
    for (size_t j = 0; j < m->k; j++) {
        const int64_t *sum = m->moved + j * (m->width + 1);
        double met = (double)sum[m->width];
        if (met == 0) continue;  // a centre that no row of the batch met
        m->seen_rows[j] += (float)met;
        for (size_t i = 0; i < m->width; i++) {
            double c = (double)m->centres[j * m->width + i];
            mean[i] = (float)(c + ((double)sum[i] / m->scale - met * c) / (double)m->seen_rows[j]);
        }
        step_out->shift += move_centre(m, j, mean);
    }
    sh_centres_set(&m->seen, m->centres);
out:
    sh_exact_sum_fini(&cost);
    sh_nearest_work_fini(&work);
    sh_free(list);
    sh_free(near);
    return status;
}

/* The iteration counts even if it fails: training ends then. */
sh_status sh_kmeans_iterate(sh_kmeans *kmeans, sh_kmeans_step *step_out) {
    double *gap = sh_alloc(kmeans->k, sizeof *gap);
    float *mean = sh_alloc(kmeans->width, sizeof *mean);
    sh_status status = SH_OK;
    if (gap == NULL || mean == NULL)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for %zu clusters", kmeans->k);
    else
        status = kmeans->options.batch > 0 ? mini_batch(kmeans, mean, step_out)
                                           : lloyd(kmeans, gap, mean, step_out);
    kmeans->iteration++;
    sh_free(gap);
    sh_free(mean);
    return status;
}

/* ---- Life ---- */

void sh_kmeans_destroy(sh_kmeans *kmeans) {
    if (kmeans == NULL) return;
    sh_centres_fini(&kmeans->seen);
    sh_free(kmeans->mean);
    sh_free(kmeans->where);
    sh_free(kmeans->centres);
    sh_free(kmeans->sums);
    sh_free(kmeans->moved);
    sh_free(kmeans->thread_moved);
    sh_free(kmeans->cluster);
    sh_free(kmeans->upper);
    sh_free(kmeans->lower);
    sh_free(kmeans->drift);
    sh_free(kmeans->seen_rows);
    sh_free(kmeans);
}

static sh_status take_memory(sh_kmeans *m) {
    // One more, so that no allocation is empty.
    size_t words = sum_words(m), rows = m->rows->count + 1;
    m->mean = sh_alloc(m->width, sizeof *m->mean);
    m->where = sh_alloc(m->k * m->width, sizeof *m->where);
    m->centres = sh_alloc(m->k * m->width, sizeof *m->centres);
    m->sums = sh_alloc(words, sizeof *m->sums);
    m->moved = sh_alloc(words + 2, sizeof *m->moved);
    m->thread_moved = sh_alloc(words * (size_t)m->team->threads, sizeof *m->thread_moved);
    m->cluster = sh_alloc(rows, sizeof *m->cluster);
    m->upper = sh_alloc(rows, sizeof *m->upper);
    m->lower = sh_alloc(rows, sizeof *m->lower);
    m->drift = sh_alloc(m->k, sizeof *m->drift);
    m->seen_rows = sh_alloc(m->k, sizeof *m->seen_rows);
    bool all = m->mean && m->where && m->centres && m->sums && m->moved && m->thread_moved &&
               m->cluster && m->upper && m->lower && m->drift && m->seen_rows;
    if (!all) return SH_FAIL(SH_E_MEMORY, "out of memory for %zu clusters", m->k);
    // -1: the first iteration compares every row.
    for (size_t i = 0; i < rows; i++) m->cluster[i] = -1;
    return sh_centres_init(&m->seen, m->k, m->width);
}

/* The centres without the mean follow from those where the data lies. */
static void place_centres(sh_kmeans *m) {
    for (size_t j = 0; j < m->k; j++)
        for (size_t i = 0; i < m->width; i++)
            m->centres[j * m->width + i] =
                (float)((double)m->where[j * m->width + i] - (double)m->mean[i]);
    sh_centres_set(&m->seen, m->centres);
}

/* All workers come to the same verdict, so that it needs no message. */
static sh_status check(const sh_kmeans_options *options, const sh_rows *rows) {
    if (options->k < 1)
        return SH_FAIL(SH_E_USAGE, "k %ld: there is at least one cluster", (long)options->k);
    if ((uint64_t)options->k > rows->total) {
        SH_FAIL(SH_E_USAGE, "%ld clusters, but the data has only %zu rows", (long)options->k,
                rows->total);
        return sh_error_hint("take k %zu or less", rows->total);
    }
    return SH_OK;
}

/* Seeds drawn from rows lack the mean, which is added; given centres lie in the data's own
 * space. */
static sh_status first_centres(sh_kmeans *m) {
    if (m->options.seeds == SH_SEEDS_GIVEN) {
        memcpy(m->where, m->options.given, m->k * m->width * sizeof *m->where);
        return SH_OK;
    }
    SH_TRY(sh_kmeans_seed(&m->options, m->rows, m->team, m->where));
    for (size_t j = 0; j < m->k; j++)
        for (size_t i = 0; i < m->width; i++) m->where[j * m->width + i] += m->mean[i];
    return SH_OK;
}

/* Order matters: the mean changes rows; squares, bounds and the integer scale follow from
 * centred rows. */
sh_status sh_kmeans_create(const sh_kmeans_options *options, sh_rows *rows, sh_learn_team *team,
                           sh_kmeans **kmeans_out) {
    SH_TRY(check(options, rows));
    sh_kmeans *m = sh_alloc(1, sizeof *m);
    if (m == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for k-means");
    *m = (sh_kmeans){.options = *options,
                     .rows = rows,
                     .team = team,
                     .k = (size_t)options->k,
                     .width = rows->width};
    sh_status status = sh_learn_agree(team, take_memory(m));
    if (status == SH_OK) status = take_mean(m);
    if (status == SH_OK) status = sh_learn_agree(team, sh_rows_keep_squares(rows));
    if (status == SH_OK) status = sum_squares(m);
    m->scale = sh_whole_scale(rows->greatest, rows->total);
    if (status == SH_OK) status = first_centres(m);
    if (status != SH_OK) {
        sh_kmeans_destroy(m);
        return status;
    }
    place_centres(m);
    *kmeans_out = m;
    return SH_OK;
}

const float *sh_kmeans_centres(const sh_kmeans *kmeans) { return kmeans->where; }
const float *sh_kmeans_rows_met(const sh_kmeans *kmeans) { return kmeans->seen_rows; }

/* Bounds and sums are not saved: the first iteration afterwards compares every row and sums
 * anew, with the same bits. */
void sh_kmeans_restore(sh_kmeans *kmeans, const float *centres, const float *rows_met,
                       int64_t iteration) {
    memcpy(kmeans->where, centres, kmeans->k * kmeans->width * sizeof *kmeans->where);
    memcpy(kmeans->seen_rows, rows_met, kmeans->k * sizeof *kmeans->seen_rows);
    kmeans->iteration = iteration;
    place_centres(kmeans);
    for (size_t i = 0; i < kmeans->rows->count; i++) kmeans->cluster[i] = -1;
    memset(kmeans->sums, 0, sum_words(kmeans) * sizeof *kmeans->sums);
}

const int32_t *sh_kmeans_clusters(const sh_kmeans *kmeans) { return kmeans->cluster; }

/* Two passes over rows: the greatest distance is the bound of the exact sum. */
sh_status sh_kmeans_inertia(const sh_rows *rows, const float *centres, size_t k,
                            sh_learn_team *team, double *inertia_out) {
    sh_centres seen = {0};
    sh_exact_sum sum = {0};
    sh_neighbour *near = sh_alloc(rows->count + 1, sizeof *near);
    sh_status status = near != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for distances");
    if (status == SH_OK) status = sh_centres_init(&seen, k, rows->width);
    if (status == SH_OK) {
        sh_centres_set(&seen, centres);
        status = sh_nearest_all(rows, &seen, team->threads, near);
    }
    double bound = 0;
    for (size_t i = 0; status == SH_OK && i < rows->count; i++)
        if (near[i].distance > bound) bound = near[i].distance;
    status = sh_learn_agree(team, status);
    if (status == SH_OK) status = sh_learn_max(team, &bound, 1);
    if (status == SH_OK) status = sh_exact_sum_init(&sum, 1, bound);
    for (size_t i = 0; status == SH_OK && i < rows->count; i++)
        sh_exact_sum_add_one(&sum, 0, near[i].distance);
    if (status == SH_OK) status = sh_exact_sum_meet(&sum, team, inertia_out);
    sh_exact_sum_fini(&sum);
    sh_centres_fini(&seen);
    sh_free(near);
    return status;
}
