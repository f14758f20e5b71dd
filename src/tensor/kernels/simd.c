/* Which instruction set this process uses: the best that processor and build have, unless a test
 * lowers it. Asked at each pick of a kernel table, so it must be cheap. */
#include "tensor/kernels/simd.h"

#include <stdatomic.h>

static _Atomic int limit = SH_SIMD_MOST;  // relaxed: set before any kernel runs

/* The instructions that CMakeLists.txt lets the compiler use for each level. */
static sh_simd_level detect(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return SH_SIMD_BASE;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return SH_SIMD_AVX512;
    return SH_SIMD_AVX2;
#else
    return SH_SIMD_BASE;
#endif
}

sh_simd_level sh_simd_level_get(void) {
    int most = atomic_load_explicit(&limit, memory_order_relaxed);
    sh_simd_level found = detect();
    return (int)found < most ? found : (sh_simd_level)most;
}

void sh_simd_limit(sh_simd_level most) {
    atomic_store_explicit(&limit, (int)most, memory_order_relaxed);
}

const char *sh_simd_name(sh_simd_level level) {
    static const char *const names[] = {
        [SH_SIMD_BASE] = "base", [SH_SIMD_AVX2] = "avx2+fma", [SH_SIMD_AVX512] = "avx512"};
    return names[level];
}
