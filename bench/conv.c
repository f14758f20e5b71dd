/* What our convolutions take, by their definition and by Winograd's algorithm:
 *
 *   cmake --build build/release --target bench_conv && build/release/bench_conv
 *
 * The processor time of one thread, best of ROUNDS, since other work on the machine only ever adds
 * to it; a table in Markdown. docs/kernels.md uses the result. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tensor/kernels/conv_blocked.h"
#include "tensor/kernels/conv_weight.h"
#include "tensor/kernels/conv_winograd.h"

enum { ROUNDS = 7, DIRECTIONS = 3, WAYS = 2 };

typedef struct layer {
    const char *name;
    int64_t n, ic, oc, side, taps;
} layer;

static const layer layers[] = {
    {"LeNet", 128, 32, 64, 14, 5},      {"AlexNet", 32, 64, 192, 27, 5},
    {"AlexNet", 32, 192, 384, 13, 3},   {"ResNet-18", 64, 64, 64, 32, 3},
    {"ResNet-18", 64, 128, 128, 16, 3}, {"ResNet-18", 64, 256, 256, 8, 3},
    {"ResNet-18", 64, 512, 512, 4, 3},  {"ResNet-18", 32, 512, 512, 4, 3},
    {"ResNet-18", 8, 512, 512, 4, 3},   {"VGG", 8, 256, 256, 56, 3},
};

typedef struct rig {
    sh_conv_shape shape;
    float *x, *y, *w, *dw, *scratch;
} rig;

static float *memory(size_t floats) {
    size_t bytes = (floats * sizeof(float) + 63) / 64 * 64;
    float *block = aligned_alloc(64, bytes);
    if (block == NULL) {
        fprintf(stderr, "bench_conv: out of memory for %zu bytes\n", bytes);
        exit(1);
    }
    for (size_t i = 0; i < floats; i++) block[i] = (float)(i % 17) * 0.1f - 0.8f;
    return block;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t scratch_bytes(const sh_conv_shape *s) {
    size_t bytes = sh_conv_weight()->scratch_bytes(s, true, 1);
    bytes = larger(bytes, sh_conv_winograd_weight()->scratch_bytes(s, 1));
    for (int gradient = 0; gradient < 2; gradient++) {
        bytes = larger(bytes, sh_conv_blocked()->scratch_bytes(s, gradient == 1, 1));
        bytes = larger(bytes, sh_conv_winograd()->scratch_bytes(s, gradient == 1, 1));
    }
    return bytes;
}

static rig rig_make(const layer *l) {
    rig r = {.shape = {.n = l->n, .ic = l->ic, .oc = l->oc, .groups = 1}};
    sh_conv_shape *s = &r.shape;
    s->ih = s->iw = s->oh = s->ow = l->side;
    s->kh = s->kw = l->taps, s->pad_h = s->pad_w = l->taps / 2;
    s->stride_h = s->stride_w = s->dilation_h = s->dilation_w = 1;
    r.x = memory((size_t)(l->n * l->ic * l->side * l->side));
    r.y = memory((size_t)(l->n * l->oc * l->side * l->side));
    r.w = memory((size_t)(l->oc * l->ic * l->taps * l->taps));
    r.dw = memory((size_t)(l->oc * l->ic * l->taps * l->taps));
    r.scratch = memory(scratch_bytes(s) / sizeof(float));
    return r;
}

static void rig_free(rig *r) { free(r->x), free(r->y), free(r->w), free(r->dw), free(r->scratch); }

/* Forward, input gradient, weight gradient. */
static void run(const rig *r, int direction, bool winograd) {
    if (direction == 2) {
        sh_conv_weight_call call = {.shape = &r->shape, .x = r->x, .dy = r->y, .dw = r->dw};
        call.scratch = r->scratch, call.threads = 1, call.x_blocked = true;
        (winograd ? sh_conv_winograd_weight()->run : sh_conv_weight()->run)(&call);
        return;
    }
    sh_conv_blocked_call call = {.shape = &r->shape, .w = r->w, .scratch = r->scratch};
    call.threads = 1, call.input_gradient = direction == 1;
    call.in = direction == 1 ? r->y : r->x, call.out = direction == 1 ? r->x : r->y;
    (winograd ? sh_conv_winograd()->run : sh_conv_blocked()->run)(&call);
}

static double thread_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void measure(const layer *l) {
    rig r = rig_make(l);
    double best[WAYS][DIRECTIONS];
    for (int round = 0; round < ROUNDS; round++)
        for (int way = 0; way < WAYS; way++)
            for (int d = 0; d < DIRECTIONS; d++) {
                double begin = thread_ms();
                run(&r, d, way == 1);
                double took = thread_ms() - begin;
                if (round == 0 || took < best[way][d]) best[way][d] = took;
            }
    printf("| %s, %ld to %ld, %ld × %ld, %ld × %ld | %ld", l->name, (long)l->ic, (long)l->oc,
           (long)l->taps, (long)l->taps, (long)l->side, (long)l->side, (long)l->n);
    for (int d = 0; d < DIRECTIONS; d++) printf(" | %.1f → %.1f", best[0][d], best[1][d]);
    printf(" |\n");
    fflush(stdout);
    rig_free(&r);
}

int main(void) {
    printf("| layer | batch | forward | input gradient | weight gradient |\n");
    printf("|---|--:|--:|--:|--:|\n");
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) measure(&layers[i]);
    return 0;
}
