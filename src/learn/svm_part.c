/* How rows are cut into parts for the ladder of CA-SVM. Every worker cuts all rows for itself, by
 * chance that is a function of (seed, row), never of the order of the file's parts among workers;
 * so nothing is sent. Parts of equal size take ceil(rows / parts) rows at most, with `ratio` of
 * each class for itself. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "learn/kmeans.h"
#include "learn/svm.h"

enum { DRAW_ORDER = 1 << 17, DRAW_CENTRES };  // streams of draws, apart from those of kmeans.c

static sh_status no_memory(void) { return SH_FAIL(SH_E_MEMORY, "out of memory for parts"); }

/* The order in which rows are served or dealt: a function of the seed. */
static void order_rows(const sh_svm_options *options, size_t count, uint32_t *order_out) {
    sh_rng draws = sh_rng_stream(options->seed, SH_RNG_LEARN, DRAW_ORDER, 0);
    sh_rng_shuffle(&draws, order_out, count);
}

/* Every part's centre is the mean of its rows; one without rows keeps what it has. */
static void to_means(const sh_rows *all, const int32_t *part, size_t parts, float *centre,
                     double *sum, size_t *rows, float *buffer) {
    memset(sum, 0, parts * all->width * sizeof *sum);
    memset(rows, 0, parts * sizeof *rows);
    for (size_t i = 0; i < all->count; i++) {
        size_t p = (size_t)part[i];
        const float *x = sh_rows_at(all, i, buffer);
        for (size_t j = 0; j < all->width; j++) sum[p * all->width + j] += (double)x[j];
        rows[p]++;
    }
    for (size_t p = 0; p < parts; p++)
        for (size_t j = 0; j < all->width && rows[p] > 0; j++)
            centre[p * all->width + j] = (float)(sum[p * all->width + j] / (double)rows[p]);
}

/* k-means of all rows by this worker alone. Its rows are centred, so it gets a copy. */
static sh_status find_centres(const sh_svm_options *options, const sh_rows *all, size_t parts,
                              int threads, float *centre_out) {
    enum { ITERATIONS = 20 };
    sh_learn_team alone = sh_learn_alone(threads);
    sh_rows copy = *all;  // shares all but x with the rows; x is centred in place
    copy.x = NULL;
    copy.square = NULL;
    if (all->x != NULL) {
        copy.x = sh_alloc(all->count * all->width, sizeof *copy.x);
        if (copy.x == NULL) return no_memory();
        memcpy(copy.x, all->x, all->count * all->width * sizeof *copy.x);
    }
    sh_kmeans_options asked = {.k = (int64_t)parts, .seed = options->seed};
    sh_kmeans *kmeans = NULL;
    sh_status status = sh_kmeans_create(&asked, &copy, &alone, &kmeans);
    sh_kmeans_step step = {.shift = 1};  // not 0, so that the loop begins
    // shift 0: a fixed point
    for (int i = 0; status == SH_OK && i < ITERATIONS && step.shift > 0; i++)
        status = sh_kmeans_iterate(kmeans, &step);
    if (status == SH_OK)
        memcpy(centre_out, sh_kmeans_centres(kmeans), parts * all->width * sizeof *centre_out);
    sh_kmeans_destroy(kmeans);
    sh_free(copy.square);
    sh_free(copy.x);
    return status;
}

/* Rows drawn by chance, without looking at distances: cheaper than k-means, and centres move to
 * means afterwards. */
static void draw_centres(const sh_svm_options *options, const sh_rows *all, const uint32_t *order,
                         size_t parts, float *centre_out, float *buffer) {
    (void)options;
    for (size_t p = 0; p < parts; p++)  // the first of the order are rows drawn by chance
        memcpy(centre_out + p * all->width, sh_rows_at(all, order[p], buffer),
               all->width * sizeof *centre_out);
}

/* Room in each part for each class, or for all rows alike. */
static void make_room(const sh_svm_options *options, const sh_rows *all, size_t parts,
                      size_t *room_out) {
    size_t classes = (size_t)all->classes;
    bool splits = options->ratio && classes > 0;
    for (size_t k = 0; k < (splits ? classes : 1); k++) {
        size_t rows = 0;
        for (size_t i = 0; i < all->count; i++) rows += !splits || (size_t)all->target[i] == k;
        // ceil(rows / parts): room for all.
        for (size_t p = 0; p < parts; p++) room_out[k * parts + p] = (rows + parts - 1) / parts;
    }
}

/* In the order given, each row goes to the nearest centre that has room; NULL room: to the nearest.
 */
static void serve(const sh_svm_options *options, const sh_rows *all, const uint32_t *order,
                  const float *centre, size_t parts, size_t *room, float *buffer,
                  int32_t *part_out) {
    bool splits = options->ratio && all->classes > 0;
    for (size_t i = 0; i < all->count; i++) {
        size_t row = order[i], k = splits ? (size_t)all->target[row] : 0;
        const float *x = sh_rows_at(all, row, buffer);
        double least = INFINITY;
        for (size_t p = 0; p < parts; p++) {
            if (room != NULL && room[k * parts + p] == 0) continue;
            double d = sh_distance(x, centre + p * all->width, all->width);
            if (d >= least) continue;  // ties go to the lower part
            least = d;
            part_out[row] = (int32_t)p;
        }
        // Room is made for all rows, so that some part was found.
        if (room != NULL) room[k * parts + (size_t)part_out[row]]--;
    }
}

/* In turn, with `ratio` the rows of each class for themselves. */
static void deal(const sh_svm_options *options, const sh_rows *all, const uint32_t *order,
                 size_t parts, size_t *next, int32_t *part_out) {
    bool splits = options->ratio && all->classes > 0;
    for (size_t i = 0; i < all->count; i++) {
        size_t k = splits ? (size_t)all->target[order[i]] : 0;
        // Round robin in random order: sizes differ by one at most.
        part_out[order[i]] = (int32_t)(next[k]++ % parts);
    }
}

/* Memory of one cut, taken together so that a failure has one place. */
typedef struct scratch {
    uint32_t *order;
    size_t *room, *rows;
    double *sum;
    float *buffer;
} scratch;

static void scratch_fini(scratch *s) {
    sh_free(s->order);
    sh_free(s->room);
    sh_free(s->rows);
    sh_free(s->sum);
    sh_free(s->buffer);
}

static sh_status scratch_init(scratch *s, const sh_rows *all, size_t parts) {
    *s = (scratch){.order = sh_alloc(all->count + 1, sizeof *s->order),
                   .room = sh_alloc(((size_t)all->classes + 1) * parts, sizeof *s->room),
                   .rows = sh_alloc(parts, sizeof *s->rows),
                   .sum = sh_alloc(parts * all->width, sizeof *s->sum),
                   .buffer = sh_alloc(all->width, sizeof *s->buffer)};
    return s->order && s->room && s->rows && s->sum && s->buffer ? SH_OK : no_memory();
}

/* Cuts `all` (rows) into `parts`; `centre` (parts, width) are means at the end, cascade
 * excepted. */
static sh_status cut(const sh_svm_options *options, const sh_rows *all, size_t parts, int threads,
                     scratch *s, int32_t *part, float *centre) {
    sh_svm_solver solver = options->solver;
    bool by_means = solver == SH_SVM_DC || solver == SH_SVM_DC_FILTER || solver == SH_SVM_CP ||
                    solver == SH_SVM_CA_BKM;
    bool equal = solver == SH_SVM_CA_BKM || solver == SH_SVM_CA_FCFS;
    order_rows(options, all->count, s->order);
    if (solver == SH_SVM_CASCADE) {
        // In file order, as the cascade was published.
        for (size_t i = 0; i < all->count; i++) part[i] = (int32_t)(i * parts / all->count);
        return SH_OK;
    }
    if (solver == SH_SVM_CA_RANDOM) {  // `room` counts rows dealt, zeros at first
        deal(options, all, s->order, parts, s->room, part);
    } else {
        if (by_means)
            SH_TRY(find_centres(options, all, parts, threads, centre));
        else
            draw_centres(options, all, s->order, parts, centre, s->buffer);
        make_room(options, all, parts, s->room);
        serve(options, all, s->order, centre, parts, equal ? s->room : NULL, s->buffer, part);
    }
    to_means(all, part, parts, centre, s->sum, s->rows, s->buffer);
    return SH_OK;
}

sh_status sh_svm_part(const sh_svm_options *options, const sh_rows *all, size_t parts, int threads,
                      int32_t *part_out, float *centre_out) {
    scratch s;
    sh_status status = scratch_init(&s, all, parts);
    if (status == SH_OK) status = cut(options, all, parts, threads, &s, part_out, centre_out);
    scratch_fini(&s);
    return status;
}
