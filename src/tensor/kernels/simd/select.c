/* Finding the largest elements of a gradient for the sparse codecs. A threshold is guessed
 * elsewhere; one pass collects what exceeds it. Bound by memory, as large elements are rare. */
#include "tensor/kernels/select.h"

#include "tensor/kernels/simd/lanes.h"

/* Large elements are rare: PIECE elements are looked at together, and only a piece that has one is
 * looked at element by element. */
enum { PIECE = 4 * LANES, BLOCK = 4096 };

/* Tells whether one of PIECE elements has a magnitude of `least_size` (as integer bits) or more. */
LANE_FUNCTION bool has_large(const float *y, int32_t least_size) {
    vi found = {0};
    for (int k = 0; k < 4; k++) found |= ((vi)vf_load(y + k * LANES) & 0x7FFFFFFF) >= least_size;
    uint64_t halves[sizeof found / 8], any = 0;
    memcpy(halves, &found, sizeof found);
    for (size_t i = 0; i < sizeof found / 8; i++) any |= halves[i];
    return any != 0;
}

/* Appends the large elements of a piece without branches: every element is written, and
 * overwritten by the next unless it counts. Needs room for one more than it keeps. */
LANE_FUNCTION size_t append(const float *y, size_t at, size_t count, uint32_t least_size,
                            uint32_t *indices, float *values, size_t found) {
    for (size_t i = 0; i < count; i++) {
        indices[found] = (uint32_t)(at + i);
        values[found] = y[at + i];
        found += sh_magnitude(y[at + i]) >= least_size;
    }
    return found;
}

/* The same with a test per element, near the end of the room. capacity + 1 means that there are
 * more. */
static size_t append_last(const float *y, size_t at, size_t count, uint32_t least_size,
                          size_t capacity, uint32_t *indices, float *values, size_t found) {
    for (size_t i = at; i < at + count; i++) {
        if (sh_magnitude(y[i]) < least_size) continue;
        if (found == capacity) return capacity + 1;
        indices[found] = (uint32_t)i;
        values[found++] = y[i];
    }
    return found;
}

/* Collects all elements of magnitude `least_size` or more in ascending order of their indices;
 * capacity + 1 if they do not fit. */
static size_t collect(const float *y, size_t count, uint32_t least_size, size_t capacity,
                      uint32_t *indices, float *values) {
    size_t found = 0;
    for (size_t at = 0; at < count && found <= capacity; at += PIECE) {
        size_t n = least(PIECE, count - at);
        if (n == PIECE && !has_large(y + at, (int32_t)least_size)) continue;
        if (capacity - found > PIECE)
            found = append(y, at, n, least_size, indices, values, found);
        else
            found = append_last(y, at, n, least_size, capacity, indices, values, found);
    }
    return found;
}

/* Momentum correction of deep gradient compression (Lin et al. 2018): u = mu u + g, v += u; with
 * Nesterov v += g + mu u. */
static void dgc_block(sh_dgc_update d, size_t at, size_t count) {
    const float *restrict g = d.g + at;
    float *restrict u = d.u + at, *restrict v = d.v + at;
    // Both variants without a branch: v gains u, or g + mu u.
    float from_g = d.nesterov ? 1 : 0;
    float from_u = d.nesterov ? d.momentum : 1;
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        float next = d.momentum * u[i] + g[i];
        u[i] = next;
        v[i] = (d.keep ? v[i] : 0) + (from_u * next + from_g * g[i]);
    }
}

/* Blocks over threads; elements are independent. */
static void dgc(const sh_dgc_update *update) {
    size_t count = update->count;
#pragma omp parallel for schedule(static) if (count >= PARALLEL_LEAST)
    for (size_t at = 0; at < count; at += BLOCK) dgc_block(*update, at, least(BLOCK, count - at));
}

const sh_select_kernels SH_SIMD(sh_select_table) = {.collect = collect, .dgc = dgc};
