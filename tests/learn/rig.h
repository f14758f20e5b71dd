/* Rows for tests of learners, shared out as a data set would be, and bodies that run on any number
 * of workers. */
#ifndef SH_TESTS_LEARN_RIG_H
#define SH_TESTS_LEARN_RIG_H

#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "comm/engines.h"
#include "harness.h"
#include "learn/rows.h"

typedef struct rig_data {
    size_t rows, width;
    float *x;        // (rows, width)
    double *target;  // (rows) or NULL
    double *weight;  // (rows) or NULL
    int64_t classes;
} rig_data;

static inline rig_data rig_data_of(size_t rows, size_t width) {
    return (rig_data){.rows = rows,
                      .width = width,
                      .x = sh_alloc(rows * width, sizeof(float)),
                      .target = sh_alloc(rows, sizeof(double))};
}

static inline void rig_data_fini(rig_data *data) {
    sh_free(data->x);
    sh_free(data->target);
    sh_free(data->weight);
}

/* `centres` points with normal coordinates of deviation `spread`, and rows around them of
 * deviation 1. The target is the point. */
static inline rig_data rig_mixture(size_t rows, size_t width, size_t centres, float spread,
                                   uint64_t seed) {
    rig_data data = rig_data_of(rows, width);
    sh_rng where = sh_rng_stream(seed, SH_RNG_TEST, 1, 0);
    sh_rng noise = sh_rng_stream(seed, SH_RNG_TEST, 2, 0);
    float *c = sh_alloc(centres * width, sizeof *c);
    for (size_t i = 0; i < centres * width; i++) c[i] = spread * sh_rng_normal(&where);
    for (size_t i = 0; i < rows; i++) {
        size_t of = (size_t)sh_rng_below(&where, centres);
        data.target[i] = (double)of;
        for (size_t j = 0; j < width; j++)
            data.x[i * width + j] = c[of * width + j] + sh_rng_normal(&noise);
    }
    data.classes = (int64_t)centres;
    sh_free(c);
    return data;
}

static inline size_t rig_least(size_t a, size_t b) { return a < b ? a : b; }

/* A worker's share, in whole tiles as sh_rows_open takes it. With `sparse` by rows. */
static inline sh_rows rig_rows(const rig_data *data, const sh_learn_team *team, bool sparse) {
    size_t tiles = (data->rows + SH_TILE_ROWS - 1) / SH_TILE_ROWS, width = data->width;
    size_t begin =
        rig_least(tiles * (size_t)team->rank / (size_t)team->ranks * SH_TILE_ROWS, data->rows);
    size_t end = rig_least(tiles * ((size_t)team->rank + 1) / (size_t)team->ranks * SH_TILE_ROWS,
                           data->rows);
    sh_rows rows = {.count = end - begin,
                    .width = width,
                    .first = begin,
                    .total = data->rows,
                    .classes = data->classes};
    const float *x = data->x + begin * width;
    for (size_t i = 0; i < data->rows * width; i++) {
        double size = (double)(data->x[i] < 0 ? -data->x[i] : data->x[i]);
        if (size > rows.greatest) rows.greatest = size;
    }
    rows.target = sh_alloc(rows.count + 1, sizeof *rows.target);
    memcpy(rows.target, data->target + begin, rows.count * sizeof *rows.target);
    if (data->weight != NULL) {
        rows.weight = sh_alloc(rows.count + 1, sizeof *rows.weight);
        memcpy(rows.weight, data->weight + begin, rows.count * sizeof *rows.weight);
    }
    if (!sparse) {
        rows.x = sh_alloc(rows.count * width + 1, sizeof *rows.x);
        memcpy(rows.x, x, rows.count * width * sizeof *rows.x);
        return rows;
    }
    size_t at = 0;
    CHECK_OK(sh_sparse_init(&rows.sparse, rows.count + 1, width, rows.count * width));
    for (size_t i = 0; i < rows.count; i++) {
        for (size_t j = 0; j < width; j++) {
            if (x[i * width + j] == 0) continue;
            rows.sparse.index[at] = (uint32_t)j;
            rows.sparse.value[at++] = x[i * width + j];
        }
        rows.sparse.start[i + 1] = at;
    }
    return rows;
}

/* Runs `body` on so many workers, each a thread with an engine of its own; one worker has none. */
typedef sh_status (*rig_body)(sh_learn_team *team, void *argument);

typedef struct rig_job {
    rig_body body;
    void *argument;
    int threads;
} rig_job;

static inline sh_status rig_worker(sh_engine *engine, void *argument) {
    rig_job *job = argument;
    sh_learn_team team = sh_learn_team_of(engine, job->threads);
    return job->body(&team, job->argument);
}

static inline sh_status rig_run(int workers, int threads, rig_body body, void *argument) {
    rig_job job = {body, argument, threads};
    if (workers > 1) return run_engines(workers, NULL, rig_worker, &job);
    sh_learn_team team = sh_learn_alone(threads);
    return body(&team, argument);
}

#endif
