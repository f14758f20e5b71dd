/* Nearest centres: a float matrix product of a block of rows with all centres proposes, double
 * distances decide among those that rounding leaves open (nearest.h has the bound). */
#include "learn/nearest.h"

#include <math.h>
#include <stdlib.h>
#include <omp.h>
#include <string.h>

#include "base/memory.h"
#include "tensor/kernels/packed_gemm.h"

sh_status sh_centres_init(sh_centres *centres, size_t count, size_t width) {
    *centres = (sh_centres){.count = count, .width = width};
    centres->square = sh_alloc(count, sizeof *centres->square);
    return centres->square != NULL ? SH_OK
                                   : SH_FAIL(SH_E_MEMORY, "out of memory for %zu centres", count);
}

/* |c|^2 is computed once for each centre. Squares are rounded to float, an error that the bound e
 * includes. */
void sh_centres_set(sh_centres *centres, const float *x) {
    centres->x = x;
    centres->square_most = 0;
    for (size_t j = 0; j < centres->count; j++) {
        const float *c = x + j * centres->width;
        double square = 0;
        for (size_t i = 0; i < centres->width; i++) square += (double)c[i] * (double)c[i];
        centres->square[j] = (float)square;
        if (square > centres->square_most) centres->square_most = square;
    }
}

void sh_centres_fini(sh_centres *centres) {
    sh_free(centres->square);
    *centres = (sh_centres){0};
}

/* Blocks of at most 256 rows and 4 MiB, so that a block stays in cache. */
sh_status sh_nearest_work_init(sh_nearest_work *work, size_t width, size_t centres) {
    enum { BLOCK_MOST = 256, BLOCK_FLOATS = 1 << 20 };
    size_t block = BLOCK_FLOATS / (width + 1);  // rows that fit into 4 MiB
    block = block > BLOCK_MOST ? BLOCK_MOST : block < 1 ? 1 : block;
    size_t packed =
        sh_packed_gemm()->scratch_bytes((int64_t)block, (int64_t)centres, (int64_t)width, 1);
    *work = (sh_nearest_work){
        .block = block,
        .rows = sh_alloc(block * width, sizeof *work->rows),
        .dots = sh_alloc(block * centres, sizeof *work->dots),
        .row = sh_alloc(width, sizeof *work->row),
        .packed = aligned_alloc(SH_ALIGN, sh_round_up(packed + SH_ALIGN, SH_ALIGN)),
    };
    if (work->rows != NULL && work->dots != NULL && work->row != NULL && work->packed != NULL)
        return SH_OK;
    sh_nearest_work_fini(work);
    return SH_FAIL(SH_E_MEMORY, "out of memory for %zu centres of %zu numbers", centres, width);
}

void sh_nearest_work_fini(sh_nearest_work *work) {
    sh_free(work->rows);
    sh_free(work->dots);
    sh_free(work->row);
    free(work->packed);
    *work = (sh_nearest_work){0};
}

/* The nearest centre of one row, given its products with all centres. */
static sh_neighbour decide(const sh_centres *centres, const float *x, double square,
                           const float *dots) {
    double e = 2 * (double)(centres->width + 4) * 0x1p-24 *
               (sqrt(square * centres->square_most) + centres->square_most);
    double least = INFINITY;
    for (size_t j = 0; j < centres->count; j++) {
        double near = (double)centres->square[j] - 2 * (double)dots[j];
        if (near < least) least = near;
    }
    sh_neighbour found = {.index = -1, .distance = INFINITY, .second = INFINITY};
    for (size_t j = 0; j < centres->count; j++) {
        double near = (double)centres->square[j] - 2 * (double)dots[j], other;
        if (near <= least + 2 * e) {  // within rounding of the least: the exact distance decides
            double distance = sh_distance(x, centres->x + j * centres->width, centres->width);
            bool nearer = distance < found.distance;
            other = nearer ? found.distance : distance;
            if (nearer) {
                found.distance = distance;
                found.index = (int32_t)j;
            }
        } else {
            other = near + square - e;  // certainly not the nearest: a lower bound serves `second`
        }
        if (other < found.second) found.second = other;
    }
    if (found.second < 0) found.second = 0;
    return found;
}

/* Dense neighbours are used where they lie; listed or sparse rows are gathered into the block
 * first. */
void sh_nearest_find(const sh_rows *rows, const sh_centres *centres, size_t first,
                     const uint32_t *list, size_t count, sh_nearest_work *work,
                     sh_neighbour *nearest_out) {
    size_t width = rows->width;
    for (size_t done = 0; done < count; done += work->block) {
        size_t block = count - done < work->block ? count - done : work->block;
        const float *x = work->rows;
        if (list == NULL && rows->x != NULL)
            x = rows->x + (first + done) * width;
        else
            for (size_t i = 0; i < block; i++) {
                size_t row = list != NULL ? list[done + i] : first + done + i;
                const float *at = sh_rows_at(rows, row, work->rows + i * width);
                if (at != work->rows + i * width)
                    memcpy(work->rows + i * width, at, width * sizeof *at);
            }
        sh_gemm_args product = {.m = (int64_t)block,
                                .n = (int64_t)centres->count,
                                .k = (int64_t)width,
                                .tb = true,  // rows times centres^T: (block, count)
                                .a = x,
                                .b = centres->x,
                                .c = work->dots};
        sh_packed_gemm()->run(&product, work->packed, 1);
        for (size_t i = 0; i < block; i++) {
            size_t row = list != NULL ? list[done + i] : first + done + i;
            nearest_out[done + i] = decide(centres, x + i * width, sh_rows_square(rows, row),
                                           work->dots + i * centres->count);
        }
    }
}

/* Threads take tiles dynamically: a row's result does not depend on its tile. The last error of any
 * thread is the error. */
sh_status sh_nearest_all(const sh_rows *rows, const sh_centres *centres, int threads,
                         sh_neighbour *nearest_out) {
    sh_status status = SH_OK;
    sh_error error = {0};
#pragma omp parallel num_threads(threads)
    {
        sh_nearest_work work;
        sh_status mine = sh_nearest_work_init(&work, rows->width, centres->count);
        if (mine != SH_OK) {
#pragma omp critical(learn_error)
            {
                status = mine;
                error = *sh_error_last();  // errors are thread-local: handed to the caller's thread
            }
        }
#pragma omp for schedule(dynamic)
        for (size_t tile = 0; tile < sh_rows_tiles(rows); tile++) {
            size_t first = tile * SH_TILE_ROWS;
            size_t count = rows->count - first < SH_TILE_ROWS ? rows->count - first : SH_TILE_ROWS;
            if (mine == SH_OK)
                sh_nearest_find(rows, centres, first, NULL, count, &work, nearest_out + first);
        }
        if (mine == SH_OK) sh_nearest_work_fini(&work);
    }
    return status == SH_OK ? SH_OK : sh_error_adopt(&error);
}
