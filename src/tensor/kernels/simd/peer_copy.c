/* The loop behind sh_copy_shared, see peer_copy.h. */
#include "tensor/kernels/peer_copy.h"

#include "tensor/kernels/simd/lanes.h"

/* Four registers at a time, all loads before all stores: misses overlap, and the compiler does not
 * take the loop for a memcpy. The rest is below the size where memcpy changes its ways. */
static void copy(void *restrict to, const void *restrict from, size_t bytes) {
    enum { STEP = 4 * LANES };
    float *restrict y = to;
    const float *restrict x = from;
    size_t count = bytes / sizeof(float), i = 0;
    for (; i + STEP <= count; i += STEP) {
        vf a = vf_load(x + i), b = vf_load(x + i + LANES);
        vf c = vf_load(x + i + 2 * LANES), d = vf_load(x + i + 3 * LANES);
        vf_store(y + i, a);
        vf_store(y + i + LANES, b);
        vf_store(y + i + 2 * LANES, c);
        vf_store(y + i + 3 * LANES, d);
    }
    memcpy((char *)to + i * sizeof(float), (const char *)from + i * sizeof(float),
           bytes - i * sizeof(float));
}

const sh_peer_kernels SH_SIMD(sh_peer_table) = {.copy = copy};
