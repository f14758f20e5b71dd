/* Files in kernels/simd/ are compiled once per instruction set, each giving tables of functions
 * whose names carry the set's suffix; sh_simd_level picks at start. Portable C with GCC vector
 * types: no intrinsics, so a new processor is one more line in CMakeLists.txt. */
#ifndef SH_TENSOR_KERNELS_SIMD_H
#define SH_TENSOR_KERNELS_SIMD_H

/* SH_SIMD_SUFFIX is `base`, `avx2` or `avx512`, given by the build. SH_SIMD(x) names x for this
 * build. */
#define SH_SIMD_PASTE2(name, suffix) name##_##suffix
#define SH_SIMD_PASTE(name, suffix)  SH_SIMD_PASTE2(name, suffix)
#define SH_SIMD(name)                SH_SIMD_PASTE(name, SH_SIMD_SUFFIX)

typedef enum sh_simd_level {
    SH_SIMD_BASE,
    SH_SIMD_AVX2,
    SH_SIMD_AVX512,
    SH_SIMD_MOST = SH_SIMD_AVX512,
} sh_simd_level;

/* The best level of this processor that the build has; sh_simd_limit lowers it (for tests). */
sh_simd_level sh_simd_level_get(void);
void sh_simd_limit(sh_simd_level most);
const char *sh_simd_name(sh_simd_level level);

/* Builds for x86-64 have all levels, others the first. */
#if defined(SH_HAVE_AVX2)
#define SH_SIMD_PICK(table)                                  \
    (sh_simd_level_get() == SH_SIMD_AVX512 ? &table##_avx512 \
     : sh_simd_level_get() == SH_SIMD_AVX2 ? &table##_avx2   \
                                           : &table##_base)
#define SH_SIMD_DECLARE(type, table) extern const type table##_base, table##_avx2, table##_avx512
#else
#define SH_SIMD_PICK(table)          (&table##_base)
#define SH_SIMD_DECLARE(type, table) extern const type table##_base
#endif

#endif
