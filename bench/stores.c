/* What a store costs on a line that another core has read, plain and past the caches:
 *
 *   gcc -O3 -march=native -fopenmp bench/stores.c -o /tmp/stores && /tmp/stores
 *
 * Two threads write 16 MiB, each its half, then each reads its own half or the other's; the writes
 * are timed, the best of 28 rounds. docs/kernels.md uses the result. */
#include <immintrin.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 4 << 20, ROUNDS = 30 };

static void write_half(float *x, float value, bool streams) {
    for (size_t i = 0; i < COUNT / 2; i += 8) {
        if (streams)
            _mm256_stream_ps(x + i, _mm256_set1_ps(value));
        else
            _mm256_store_ps(x + i, _mm256_set1_ps(value));
    }
    _mm_sfence();
}

static float read_half(const float *x) {
    __m256 sum[4] = {0};
    for (size_t i = 0; i < COUNT / 2; i += 32)
        for (int k = 0; k < 4; k++) sum[k] = _mm256_add_ps(sum[k], _mm256_load_ps(x + i + 8 * k));
    return sum[0][0] + sum[1][0] + sum[2][0] + sum[3][0];
}

static double best_of(float *x, bool streams, bool crosses) {
    double best = 1;
    float sums[2];
    for (int round = 0; round < ROUNDS; round++) {
        double begin = omp_get_wtime(), end = 0;
#pragma omp parallel num_threads(2)
        {
            int self = omp_get_thread_num();
            write_half(x + self * (COUNT / 2), (float)round, streams);
#pragma omp barrier
            if (self == 0) end = omp_get_wtime();
            sums[self] = read_half(x + (crosses ? 1 - self : self) * (COUNT / 2));
        }
        if (round > 1 && end - begin < best) best = end - begin;
    }
    if (sums[0] != sums[1]) puts("the threads read different numbers");
    return best;
}

int main(void) {
    float *x = aligned_alloc(2 << 20, COUNT * sizeof *x);
    if (x == NULL) return 1;
    memset(x, 0, COUNT * sizeof *x);
    puts("| 16 MiB, written by two threads | ms | GB/s |\n|---|--:|--:|");
    for (int streams = 0; streams < 2; streams++)
        for (int crosses = 0; crosses < 2; crosses++) {
            double seconds = best_of(x, streams != 0, crosses != 0);
            printf("| %s, after the %s core has read it | %.2f | %.0f |\n",
                   streams ? "past the caches" : "plain stores", crosses ? "other" : "same",
                   seconds * 1e3, COUNT * sizeof *x / seconds * 1e-9);
        }
    free(x);
    return 0;
}
