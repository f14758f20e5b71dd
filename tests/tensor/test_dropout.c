#include "tensor/kernels/dropout.h"

#include <math.h>

#include "settings.h"

static void streams_for(sh_rng *streams, size_t samples) {
    for (size_t s = 0; s < samples; s++)
        streams[s] = sh_rng_stream(42, SH_RNG_DROPOUT, 3, (uint64_t)7 << 32 | s);
}

static void mask(void) {
    const size_t counts[] = {1, 3, 4, 63, 64, 65, 4096, 9001};
    sh_rng streams[5];
    streams_for(streams, 5);
    for (size_t c = 0; c < SH_COUNT(counts); c++) {
        size_t n = counts[c];
        float *x = filled(5 * n, 1, 1), *y = filled(5 * n, 2, 1), p = 0.3f;
        sh_dropout()->apply(x, y, 5, n, p, streams);
        for (size_t i = 0; i < 5 * n; i++) {
            size_t e = i % n;
            uint32_t word = sh_rng_at(&streams[i / n], e / 4).word[e % 4];
            float want = (double)sh_u32_to_unit(word) < (double)p - 0x1p-25 ? 0 : x[i] / (1 - p);
            assert_true(fabsf(y[i] - want) <= 1e-6f);
        }
        sh_dropout()->apply(x, x, 5, n, p, streams);
        assert_memory_equal(x, y, 5 * n * sizeof *x);
        free(x), free(y);
    }
}

TEST(dropout, draws_its_mask_from_the_stream_of_each_sample) { each_setting(mask); }

TEST(dropout, keeps_the_mean) {
    enum { N = 200000 };
    sh_rng stream;
    streams_for(&stream, 1);
    float *x = filled(N, 1, 1);
    for (size_t i = 0; i < N; i++) x[i] = 1;
    sh_dropout()->apply(x, x, 1, N, 0.25f, &stream);
    double sum = 0;
    for (size_t i = 0; i < N; i++) sum += (double)x[i];
    assert_true(fabs(sum / N - 1) < 0.01);
    free(x);
}

TEST(dropout, of_zero_changes_nothing) {
    sh_rng stream;
    streams_for(&stream, 1);
    float *x = filled(100, 1, 1), y[100];
    sh_dropout()->apply(x, y, 1, 100, 0, &stream);
    assert_memory_equal(x, y, sizeof y);
    free(x);
}
