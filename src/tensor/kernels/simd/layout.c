/* Images between plain (N, C, H, W) and blocked (N, C / block, H, W, block) layout. A
 * transposition of small matrices, bound by memory. */
#include "tensor/kernels/layout.h"

#include "base/status.h"
#include "tensor/kernels/simd/lanes.h"

/* Tiles of TILE positions keep the rows of both sides in the first cache. */
enum { TILE = 64 };

/* One group of channels to blocked layout: reads `block` streams, writes one. */
LANE_FUNCTION void gather(const float *restrict plain, size_t area, size_t block,
                          float *restrict blocked) {
    for (size_t at = 0; at < area; at++)
        for (size_t c = 0; c < block; c++) blocked[at * block + c] = plain[c * area + at];
}

/* One group of channels to plain layout, tile by tile. */
LANE_FUNCTION void scatter(const float *restrict blocked, size_t area, size_t block,
                           float *restrict plain) {
    for (size_t tile = 0; tile < area; tile += TILE)
        for (size_t c = 0; c < block; c++)
            for (size_t at = tile; at < least(area, tile + TILE); at++)
                plain[c * area + at] = blocked[at * block + c];
}

/* Groups of channels over threads. Common block sizes are passed as constants, so that the
 * compiler unrolls the inner loop. */
static void to_blocked(const float *plain, size_t N, size_t C, size_t area, size_t block,
                       float *blocked) {
    SH_ASSERT(block > 0 && C % block == 0);
    size_t group = area * block;
#pragma omp parallel for schedule(static) if (N * C * area >= PARALLEL_LEAST)
    for (size_t i = 0; i < N * (C / block); i++) {
        const float *from = plain + i * group;
        if (block == 8)
            gather(from, area, 8, blocked + i * group);
        else if (block == 16)
            gather(from, area, 16, blocked + i * group);
        else
            gather(from, area, block, blocked + i * group);
    }
}

/* The inverse, in the same way. */
static void to_plain(const float *blocked, size_t N, size_t C, size_t area, size_t block,
                     float *plain) {
    SH_ASSERT(block > 0 && C % block == 0);
    size_t group = area * block;
#pragma omp parallel for schedule(static) if (N * C * area >= PARALLEL_LEAST)
    for (size_t i = 0; i < N * (C / block); i++) {
        const float *from = blocked + i * group;
        if (block == 8)
            scatter(from, area, 8, plain + i * group);
        else if (block == 16)
            scatter(from, area, 16, plain + i * group);
        else
            scatter(from, area, block, plain + i * group);
    }
}

const sh_layout_kernels SH_SIMD(sh_layout_table) = {.to_blocked = to_blocked, .to_plain = to_plain};
