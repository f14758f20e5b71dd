/* Each direction of a convolution has up to four candidates: the own direct kernel, Winograd's
 * algorithm, oneDNN on the layouts at hand, and oneDNN on other layouts, with reorders before and
 * after. The tuner measures where there is more than one. */
#include "tensor/kernels/conv.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "tensor/kernels/conv_blocked.h"
#include "tensor/kernels/conv_plain.h"
#include "tensor/kernels/conv_library.h"
#include "tensor/kernels/conv_weight.h"
#include "tensor/kernels/conv_winograd.h"

typedef enum served_by { OWN, WINOGRAD, LIBRARY, REORDERED, CANDIDATES } served_by;

static const char *const candidate_names[CANDIDATES] = {"own", "winograd", "onednn",
                                                        "onednn-reordered"};

/* Kernels of ours need no copies of the images. */
static bool is_own(served_by candidate) { return candidate == OWN || candidate == WINOGRAD; }

/* What serves one direction; the libraries that were not chosen are empty. */
typedef struct kernel_choice {
    served_by chosen;
    bool exists[CANDIDATES];
    size_t own_bytes[LIBRARY];            // scratch of OWN and WINOGRAD
    sh_conv_library library[CANDIDATES];  // from LIBRARY on
} kernel_choice;

struct sh_conv {
    sh_conv_options options;
    kernel_choice choices[SH_CONV_DIRECTIONS];
    int threads;
    bool direct;  // Winograd's algorithm is not wanted
    size_t scratch_bytes;
    char kernels[256];
};

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* The bytes that the direct kernel wants, 0 where there is none for these shapes and layouts. */
static size_t own_bytes(const sh_conv *conv, sh_conv_direction direction) {
    const sh_conv_options *o = &conv->options;
    bool blocked = o->x_block == 8;
    if (o->y_block != 8) return 0;
    if (direction == SH_CONV_WEIGHT_GRADIENT && sh_conv_weight()->supports(&o->shape, blocked))
        return sh_conv_weight()->scratch_bytes(&o->shape, blocked, conv->threads);
    if (direction != SH_CONV_WEIGHT_GRADIENT && blocked && sh_conv_blocked()->supports(&o->shape))
        return sh_conv_blocked()->scratch_bytes(&o->shape, direction == SH_CONV_INPUT_GRADIENT,
                                                conv->threads);
    if (direction == SH_CONV_FORWARD && !blocked && sh_conv_plain()->supports(&o->shape))
        return sh_conv_plain()->scratch_bytes(&o->shape, conv->threads);
    return 0;
}

/* Blocked on both sides; which shapes, the kernel says. */
static bool winograd_fits(const sh_conv_options *o) {
    return o->x_block == 8 && o->y_block == 8 && sh_conv_winograd()->supports(&o->shape);
}

static size_t winograd_bytes(const sh_conv *conv, sh_conv_direction direction) {
    const sh_conv_options *o = &conv->options;
    if (conv->direct || !winograd_fits(o)) return 0;
    if (direction == SH_CONV_WEIGHT_GRADIENT)
        return sh_conv_winograd_weight()->scratch_bytes(&o->shape, conv->threads);
    return sh_conv_winograd()->scratch_bytes(&o->shape, direction == SH_CONV_INPUT_GRADIENT,
                                             conv->threads);
}

static void run_own_plain(const sh_conv *conv, const sh_conv_tensors *t, void *scratch) {
    sh_conv_plain()->run(&(sh_conv_plain_call){
        .shape = &conv->options.shape,
        .x = t->at[SH_CONV_X],
        .w = t->at[SH_CONV_W],
        .bias = t->bias,
        .y = t->at[SH_CONV_Y],
        .scratch = scratch,
        .threads = conv->threads,
        .relu = conv->options.relu,
    });
}

static sh_conv_blocked_call blocked_call(const sh_conv *conv, sh_conv_direction direction,
                                         const sh_conv_tensors *t, void *scratch) {
    bool forward = direction == SH_CONV_FORWARD;
    return (sh_conv_blocked_call){
        .shape = &conv->options.shape,
        .in = t->at[forward ? SH_CONV_X : SH_CONV_Y],
        .w = t->at[SH_CONV_W],
        .bias = forward ? t->bias : NULL,
        .out = t->at[forward ? SH_CONV_Y : SH_CONV_X],
        .scratch = scratch,
        .threads = conv->threads,
        .input_gradient = !forward,
        .relu = forward && conv->options.relu,
    };
}

static sh_conv_weight_call weight_call(const sh_conv *conv, const sh_conv_tensors *t,
                                       void *scratch) {
    return (sh_conv_weight_call){
        .shape = &conv->options.shape,
        .x = t->at[SH_CONV_X],
        .dy = t->at[SH_CONV_Y],
        .dw = t->at[SH_CONV_W],
        .db = t->bias,
        .scratch = scratch,
        .threads = conv->threads,
        .x_blocked = conv->options.x_block == 8,
        .accumulate = t->accumulate,
    };
}

/* By the direct kernel, or by Winograd's. */
static void run_own(const sh_conv *conv, sh_conv_direction direction, bool winograd,
                    const sh_conv_tensors *t, void *scratch) {
    if (direction == SH_CONV_WEIGHT_GRADIENT) {
        const sh_conv_weight_call call = weight_call(conv, t, scratch);
        (winograd ? sh_conv_winograd_weight()->run : sh_conv_weight()->run)(&call);
    } else if (conv->options.x_block == 8) {
        const sh_conv_blocked_call call = blocked_call(conv, direction, t, scratch);
        (winograd ? sh_conv_winograd()->run : sh_conv_blocked()->run)(&call);
    } else {
        run_own_plain(conv, t, scratch);
    }
}

/* One candidate of one direction. */
static void run(sh_conv *conv, sh_conv_direction direction, served_by candidate,
                const sh_conv_tensors *tensors, void *scratch) {
    if (is_own(candidate))
        run_own(conv, direction, candidate == WINOGRAD, tensors, scratch);
    else
        sh_conv_library_run(&conv->choices[direction].library[candidate], tensors, scratch);
}

/* One measurement: the candidates of one direction, by their place in the list. */
typedef struct trial {
    sh_conv *conv;
    sh_conv_direction direction;
    served_by candidates[CANDIDATES];
    const char *names[CANDIDATES];
    int count;
    sh_conv_tensors tensors;
    void *scratch;
    sh_arena arena;
} trial;

static void run_trial(void *context, int candidate) {
    const trial *t = context;
    run(t->conv, t->direction, t->candidates[candidate], &t->tensors, t->scratch);
}

/* Candidates in the order in which they usually win; Winograd, which rounds more, only where it was
 * measured to. */
static void trial_list(trial *t) {
    static const served_by usual[] = {OWN, REORDERED, LIBRARY, WINOGRAD};
    for (size_t i = 0; i < SH_COUNT(usual); i++) {
        if (!t->conv->choices[t->direction].exists[usual[i]]) continue;
        t->candidates[t->count] = usual[i];
        t->names[t->count++] = candidate_names[usual[i]];
    }
}

static size_t choice_bytes(const kernel_choice *s, served_by candidate) {
    return is_own(candidate) ? s->own_bytes[candidate] : s->library[candidate].scratch_bytes;
}

static sh_status trial_memory(trial *t) {
    const sh_conv_shape *s = &t->conv->options.shape;
    size_t counts[SH_CONV_TENSORS] = {
        [SH_CONV_X] = (size_t)(s->n * s->ic * s->ih * s->iw),
        [SH_CONV_W] = (size_t)(s->oc * (s->ic / s->groups) * s->kh * s->kw),
        [SH_CONV_Y] = (size_t)(s->n * s->oc * s->oh * s->ow),
    };
    size_t scratch = 0, floats = (size_t)s->oc;
    for (int i = 0; i < t->count; i++)
        scratch = larger(scratch, choice_bytes(&t->conv->choices[t->direction], t->candidates[i]));
    for (int i = 0; i < SH_CONV_TENSORS; i++) floats += counts[i];
    SH_TRY(sh_arena_init(&t->arena, "kernel measurement",
                         floats * sizeof(float) + scratch + 5 * SH_ALIGN));
    for (int i = 0; i < SH_CONV_TENSORS; i++) {
        t->tensors.at[i] = sh_arena_take(&t->arena, counts[i] * sizeof(float));
        for (size_t k = 0; k < counts[i]; k++) t->tensors.at[i][k] = 1.0f;
    }
    float *bias = sh_arena_take(&t->arena, (size_t)s->oc * sizeof(float));
    for (int64_t i = 0; i < s->oc; i++) bias[i] = 1.0f;
    if (t->conv->options.bias) t->tensors.bias = bias;
    t->scratch = sh_arena_take(&t->arena, scratch);
    return SH_OK;
}

/* Images that are enough to rank the candidates: the ranking does not change with more of them (so
 * the key leaves their number out), and a first start must not wait for it. Winograd's transform of
 * the weights, which does not grow with the images, is paid off by some 500 outputs; with fewer the
 * number of images matters and stands in the key. */
static int64_t few_images(const sh_conv *conv) {
    const sh_conv_shape *s = &conv->options.shape;
    const double work_least = 1e8;  // multiply-adds
    int64_t taps = s->ic / s->groups * s->kh * s->kw;
    double work = (double)(s->oc * s->oh * s->ow) * (double)taps;
    int64_t by_work = (int64_t)(work_least / work), by_tiles = 4 * (int64_t)conv->threads;
    int64_t few = by_work > by_tiles ? by_work : by_tiles;
    if (!winograd_fits(&conv->options)) return few;
    int64_t by_outputs = (500 + s->oh * s->ow - 1) / (s->oh * s->ow);
    return few > by_outputs ? few : by_outputs;
}

static void print_key(const sh_conv *conv, sh_conv_direction direction, char *key, size_t bytes) {
    static const char *const names[SH_CONV_DIRECTIONS] = {"conv-forward", "conv-inputs",
                                                          "conv-weights"};
    const sh_conv_shape *s = &conv->options.shape;
    int at = snprintf(key, bytes, "%s %ldx%ldx%ld to %ldx%ldx%ld k%ldx%ld s%ld", names[direction],
                      (long)s->ic, (long)s->ih, (long)s->iw, (long)s->oc, (long)s->oh, (long)s->ow,
                      (long)s->kh, (long)s->kw, (long)s->stride_h);
    if (s->dilation_h > 1)
        at += snprintf(key + at, bytes - (size_t)at, " d%ld", (long)s->dilation_h);
    if (s->groups > 1) at += snprintf(key + at, bytes - (size_t)at, " g%ld", (long)s->groups);
    bool winograd = winograd_fits(&conv->options);
    if (winograd && s->n < few_images(conv))
        at += snprintf(key + at, bytes - (size_t)at, " n%ld", (long)s->n);
    if (winograd && conv->direct) at += snprintf(key + at, bytes - (size_t)at, " direct");
    snprintf(key + at, bytes - (size_t)at, " t%d", conv->threads);
}

/* Measures every direction on few images; the tuner remembers for the whole batch. */
static sh_status measure_on_few(const sh_conv *conv, sh_tuner *tuner) {
    sh_conv_options options = conv->options;
    options.shape.n = few_images(conv);
    sh_conv *few = NULL;
    SH_TRY(sh_conv_create(&options, tuner, &few));
    sh_conv_destroy(few);
    return SH_OK;
}

/* Asks the tuner, measures where it does not know. */
static sh_status choose(sh_conv *conv, sh_conv_direction direction, sh_tuner *tuner) {
    trial t = {.conv = conv, .direction = direction};
    trial_list(&t);
    char key[256];
    print_key(conv, direction, key, sizeof key);
    if (t.count > 1 && !sh_tuner_knows(tuner, key, t.names, t.count))
        SH_TRY(conv->options.shape.n > few_images(conv) ? measure_on_few(conv, tuner)
                                                        : trial_memory(&t));
    int winner = 0;
    if (t.count > 1) winner = sh_tuner_choose(tuner, key, t.names, t.count, run_trial, &t);
    sh_arena_fini(&t.arena);

    kernel_choice *s = &conv->choices[direction];
    s->chosen = t.candidates[winner];
    for (int i = LIBRARY; i < CANDIDATES; i++)
        if (i != (int)s->chosen) sh_conv_library_fini(&s->library[i]);
    conv->scratch_bytes = larger(conv->scratch_bytes, choice_bytes(s, s->chosen));
    return SH_OK;
}

/* oneDNN on other layouts, where those have a direct kernel and the ones at hand do not. */
static sh_status create_reordered(sh_conv *conv, sh_conv_direction direction) {
    static const sh_conv_layout layouts[] = {SH_CONV_LAYOUT_ANY, SH_CONV_LAYOUT_CHANNELS_LAST};
    kernel_choice *s = &conv->choices[direction];
    if (sh_conv_library_is_direct(&s->library[LIBRARY])) return SH_OK;
    sh_conv_library *other = &s->library[REORDERED];
    for (size_t i = 0; i < SH_COUNT(layouts) && !s->exists[REORDERED]; i++) {
        SH_TRY(sh_conv_library_init(other, &conv->options, direction, layouts[i]));
        s->exists[REORDERED] = sh_conv_library_is_direct(other);
        if (!s->exists[REORDERED]) sh_conv_library_fini(other);
    }
    return SH_OK;
}

static void note_kernel(sh_conv *conv, const kernel_choice *s) {
    const sh_conv_library *library = &s->library[s->chosen];
    bool own = is_own(s->chosen);
    size_t at = strlen(conv->kernels);
    snprintf(conv->kernels + at, sizeof conv->kernels - at, "%s%s%s", at ? " / " : "",
             own ? candidate_names[s->chosen] : library->name,
             !own && sh_conv_library_reorders(library) ? " reordered" : "");
}

static sh_status create_choice(sh_conv *conv, sh_conv_direction direction, sh_tuner *tuner) {
    kernel_choice *s = &conv->choices[direction];
    s->own_bytes[OWN] = own_bytes(conv, direction);
    s->own_bytes[WINOGRAD] = winograd_bytes(conv, direction);
    for (int i = OWN; i < LIBRARY; i++) s->exists[i] = s->own_bytes[i] > 0;
    s->exists[LIBRARY] = true;
    SH_TRY(sh_conv_library_init(&s->library[LIBRARY], &conv->options, direction,
                                SH_CONV_LAYOUT_GIVEN));
    SH_TRY(create_reordered(conv, direction));
    SH_TRY(choose(conv, direction, tuner));
    note_kernel(conv, s);
    return SH_OK;
}

/* One choice per direction. */
sh_status sh_conv_create(const sh_conv_options *options, sh_tuner *tuner, sh_conv **conv_out) {
    sh_conv *conv = sh_alloc(1, sizeof *conv);
    if (conv == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a convolution");
    conv->options = *options;
    conv->threads = sh_tuner_threads(tuner);
    conv->direct = sh_tuner_is_direct(tuner);
    sh_status status = create_choice(conv, SH_CONV_FORWARD, tuner);
    if (status == SH_OK && options->backward && options->input_gradient)
        status = create_choice(conv, SH_CONV_INPUT_GRADIENT, tuner);
    if (status == SH_OK && options->backward)
        status = create_choice(conv, SH_CONV_WEIGHT_GRADIENT, tuner);
    if (status != SH_OK)
        sh_conv_destroy(conv);
    else
        *conv_out = conv;
    return status;
}

void sh_conv_destroy(sh_conv *conv) {
    if (conv == NULL) return;
    for (int d = 0; d < SH_CONV_DIRECTIONS; d++)
        for (int i = LIBRARY; i < CANDIDATES; i++)
            sh_conv_library_fini(&conv->choices[d].library[i]);
    sh_free(conv);
}

size_t sh_conv_scratch_bytes(const sh_conv *conv) { return conv->scratch_bytes; }
const char *sh_conv_kernels(const sh_conv *conv) { return conv->kernels; }

static float *mutable(const float *pointer) { return (float *)(uintptr_t)pointer; }

static void run_chosen(sh_conv *conv, sh_conv_direction direction, const sh_conv_tensors *tensors,
                       void *scratch) {
    run(conv, direction, conv->choices[direction].chosen, tensors, scratch);
}

void sh_conv_forward(sh_conv *conv, const float *x, const float *w, const float *bias, float *y,
                     void *scratch) {
    sh_conv_tensors t = {.at = {mutable(x), mutable(w), y}, .bias = mutable(bias)};
    run_chosen(conv, SH_CONV_FORWARD, &t, scratch);
}

void sh_conv_input_gradient(sh_conv *conv, const float *dy, const float *w, float *dx,
                            void *scratch) {
    sh_conv_tensors t = {.at = {dx, mutable(w), mutable(dy)}};
    run_chosen(conv, SH_CONV_INPUT_GRADIENT, &t, scratch);
}

void sh_conv_weight_gradient(sh_conv *conv, const float *x, const float *dy, float *dw,
                             float *dbias, bool accumulate, void *scratch) {
    sh_conv_tensors t = {
        .at = {mutable(x), dw, mutable(dy)}, .bias = dbias, .accumulate = accumulate};
    run_chosen(conv, SH_CONV_WEIGHT_GRADIENT, &t, scratch);
}
