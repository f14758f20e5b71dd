#include "tensor/kernels/conv.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "tensor/kernels/conv_weight.h"
#include "tensor/kernels/onednn.h"

struct sh_conv {
    sh_conv_options options;
    sh_onednn_call forward, input_gradient, weight_gradient;
    sh_onednn_call to_forward, to_input_gradient;  // plain weights to what the kernel likes
    sh_onednn_call from_gradient, add_gradient;    // and back; used only where layouts differ
    bool forward_plain, input_gradient_plain, weight_gradient_plain;
    size_t weight_bytes;  // room for one blocked copy of the weights
    bool own_weight_gradient;
    int threads;
    size_t scratch_bytes, own_bytes;
    char kernels[128];
};

/* The five memory descriptions of a convolution. */
typedef struct descriptions {
    dnnl_memory_desc_t x, y, bias, plain_weights, any_weights;
} descriptions;

static sh_status describe(const sh_conv_options *options, descriptions *d) {
    const sh_conv_shape *s = &options->shape;
    dnnl_dims_t x = {s->n, s->ic, s->ih, s->iw}, y = {s->n, s->oc, s->oh, s->ow}, bias = {s->oc};
    dnnl_format_tag_t x_tag = options->x_block == 8 ? dnnl_nChw8c : dnnl_nchw;
    dnnl_format_tag_t y_tag = options->y_block == 8 ? dnnl_nChw8c : dnnl_nchw;
    SH_ONEDNN(dnnl_memory_desc_init_by_tag(&d->x, 4, x, dnnl_f32, x_tag));
    SH_ONEDNN(dnnl_memory_desc_init_by_tag(&d->y, 4, y, dnnl_f32, y_tag));
    SH_ONEDNN(dnnl_memory_desc_init_by_tag(&d->bias, 1, bias, dnnl_f32, dnnl_a));
    if (s->groups == 1) {
        dnnl_dims_t w = {s->oc, s->ic, s->kh, s->kw};
        SH_ONEDNN(dnnl_memory_desc_init_by_tag(&d->plain_weights, 4, w, dnnl_f32, dnnl_oihw));
        SH_ONEDNN(
            dnnl_memory_desc_init_by_tag(&d->any_weights, 4, w, dnnl_f32, dnnl_format_tag_any));
    } else {
        dnnl_dims_t w = {s->groups, s->oc / s->groups, s->ic / s->groups, s->kh, s->kw};
        SH_ONEDNN(dnnl_memory_desc_init_by_tag(&d->plain_weights, 5, w, dnnl_f32, dnnl_goihw));
        SH_ONEDNN(
            dnnl_memory_desc_init_by_tag(&d->any_weights, 5, w, dnnl_f32, dnnl_format_tag_any));
    }
    return SH_OK;
}

/* Strides, dilations (from 0 in oneDNN) and padding on both sides. */
typedef struct geometry {
    dnnl_dims_t strides, dilates, before, after;
} geometry;

static int64_t pad_after(int64_t in, int64_t out, int64_t k, int64_t stride, int64_t dilation,
                         int64_t pad) {
    return (out - 1) * stride + (k - 1) * dilation + 1 - in - pad;
}

static geometry geometry_of(const sh_conv_shape *s) {
    return (geometry){
        .strides = {s->stride_h, s->stride_w},
        .dilates = {s->dilation_h - 1, s->dilation_w - 1},
        .before = {s->pad_h, s->pad_w},
        .after = {pad_after(s->ih, s->oh, s->kh, s->stride_h, s->dilation_h, s->pad_h),
                  pad_after(s->iw, s->ow, s->kw, s->stride_w, s->dilation_w, s->pad_w)},
    };
}

static dnnl_status_t attributes(bool relu, dnnl_primitive_attr_t *attr_out) {
    dnnl_status_t made = dnnl_primitive_attr_create(attr_out);
    if (made != dnnl_success) return made;
    dnnl_primitive_attr_set_scratchpad_mode(*attr_out, dnnl_scratchpad_mode_user);
    if (!relu) return dnnl_success;
    dnnl_post_ops_t post;
    made = dnnl_post_ops_create(&post);
    if (made != dnnl_success) return made;
    dnnl_post_ops_append_eltwise(post, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
    dnnl_primitive_attr_set_post_ops(*attr_out, post);
    return dnnl_post_ops_destroy(post);
}

static sh_status make(const void *operation, bool relu, dnnl_primitive_desc_t hint,
                      dnnl_primitive_desc_t *description_out) {
    dnnl_primitive_attr_t attr = NULL;
    SH_ONEDNN(attributes(relu, &attr));
    dnnl_status_t made =
        dnnl_primitive_desc_create(description_out, operation, attr, sh_onednn_engine(), hint);
    dnnl_primitive_attr_destroy(attr);
    if (made != dnnl_success) return sh_onednn_failed(made, "this convolution", __FILE__, __LINE__);
    return SH_OK;
}

static void note_kernel(sh_conv *conv, dnnl_primitive_desc_t description) {
    const char *name = "?";
    dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name);
    size_t at = strlen(conv->kernels);
    snprintf(conv->kernels + at, sizeof conv->kernels - at, "%s%s", at ? " / " : "", name);
}

static dnnl_memory_desc_t queried(dnnl_primitive_desc_t description, dnnl_query_t what) {
    return *dnnl_primitive_desc_query_md(description, what, 0);
}

static void remember_size(sh_conv *conv, const dnnl_memory_desc_t *weights) {
    size_t bytes = sh_round_up(dnnl_memory_desc_get_size(weights), SH_ALIGN);
    if (bytes > conv->weight_bytes) conv->weight_bytes = bytes;
}

static sh_status create_forward(sh_conv *conv, const descriptions *d, const geometry *g,
                                dnnl_primitive_desc_t *hint_out) {
    dnnl_convolution_desc_t operation;
    const sh_conv_options *o = &conv->options;
    SH_ONEDNN(dnnl_dilated_convolution_forward_desc_init(
        &operation, o->backward ? dnnl_forward_training : dnnl_forward_inference,
        dnnl_convolution_direct, &d->x, &d->any_weights, o->bias ? &d->bias : NULL, &d->y,
        g->strides, g->dilates, g->before, g->after));
    dnnl_primitive_desc_t description;
    SH_TRY(make(&operation, o->relu, NULL, &description));
    note_kernel(conv, description);
    dnnl_memory_desc_t weights = queried(description, dnnl_query_weights_md);
    dnnl_status_t cloned = dnnl_primitive_desc_clone(hint_out, description);
    SH_TRY(sh_onednn_call_init(&conv->forward, description));
    SH_ONEDNN(cloned);
    SH_TRY(sh_onednn_call_arg(&conv->forward, DNNL_ARG_SRC, &d->x));
    SH_TRY(sh_onednn_call_arg(&conv->forward, DNNL_ARG_WEIGHTS, &weights));
    SH_TRY(sh_onednn_call_arg(&conv->forward, DNNL_ARG_DST, &d->y));
    if (o->bias) SH_TRY(sh_onednn_call_arg(&conv->forward, DNNL_ARG_BIAS, &d->bias));
    conv->forward_plain = dnnl_memory_desc_equal(&weights, &d->plain_weights);
    remember_size(conv, &weights);
    return sh_onednn_reorder_init(&conv->to_forward, &d->plain_weights, &weights, false);
}

static sh_status create_input_gradient(sh_conv *conv, const descriptions *d, const geometry *g,
                                       dnnl_primitive_desc_t hint) {
    dnnl_convolution_desc_t operation;
    SH_ONEDNN(dnnl_dilated_convolution_backward_data_desc_init(
        &operation, dnnl_convolution_direct, &d->x, &d->any_weights, &d->y, g->strides, g->dilates,
        g->before, g->after));
    dnnl_primitive_desc_t description;
    SH_TRY(make(&operation, false, hint, &description));
    note_kernel(conv, description);
    dnnl_memory_desc_t weights = queried(description, dnnl_query_weights_md);
    SH_TRY(sh_onednn_call_init(&conv->input_gradient, description));
    SH_TRY(sh_onednn_call_arg(&conv->input_gradient, DNNL_ARG_DIFF_DST, &d->y));
    SH_TRY(sh_onednn_call_arg(&conv->input_gradient, DNNL_ARG_WEIGHTS, &weights));
    SH_TRY(sh_onednn_call_arg(&conv->input_gradient, DNNL_ARG_DIFF_SRC, &d->x));
    conv->input_gradient_plain = dnnl_memory_desc_equal(&weights, &d->plain_weights);
    remember_size(conv, &weights);
    return sh_onednn_reorder_init(&conv->to_input_gradient, &d->plain_weights, &weights, false);
}

static sh_status create_weight_gradient(sh_conv *conv, const descriptions *d, const geometry *g,
                                        dnnl_primitive_desc_t hint) {
    dnnl_convolution_desc_t operation;
    const sh_conv_options *o = &conv->options;
    SH_ONEDNN(dnnl_dilated_convolution_backward_weights_desc_init(
        &operation, dnnl_convolution_direct, &d->x, &d->any_weights, o->bias ? &d->bias : NULL,
        &d->y, g->strides, g->dilates, g->before, g->after));
    dnnl_primitive_desc_t description;
    SH_TRY(make(&operation, false, hint, &description));
    note_kernel(conv, description);
    dnnl_memory_desc_t weights = queried(description, dnnl_query_diff_weights_md);
    SH_TRY(sh_onednn_call_init(&conv->weight_gradient, description));
    SH_TRY(sh_onednn_call_arg(&conv->weight_gradient, DNNL_ARG_SRC, &d->x));
    SH_TRY(sh_onednn_call_arg(&conv->weight_gradient, DNNL_ARG_DIFF_DST, &d->y));
    SH_TRY(sh_onednn_call_arg(&conv->weight_gradient, DNNL_ARG_DIFF_WEIGHTS, &weights));
    if (o->bias) SH_TRY(sh_onednn_call_arg(&conv->weight_gradient, DNNL_ARG_DIFF_BIAS, &d->bias));
    conv->weight_gradient_plain = dnnl_memory_desc_equal(&weights, &d->plain_weights);
    remember_size(conv, &weights);
    SH_TRY(sh_onednn_reorder_init(&conv->from_gradient, &weights, &d->plain_weights, false));
    return sh_onednn_reorder_init(&conv->add_gradient, &weights, &d->plain_weights, true);
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Scratch: a blocked copy of the weights, a bias gradient aside, then the kernel's own pad. */
static size_t bias_bytes(const sh_conv *conv) {
    return sh_round_up((size_t)conv->options.shape.oc * sizeof(float), SH_ALIGN);
}

static void *pad_of(const sh_conv *conv, void *scratch) {
    return (char *)scratch + conv->weight_bytes + bias_bytes(conv);
}

static void run_own(const sh_conv *conv, const float *x, const float *dy, float *dw, float *dbias,
                    bool accumulate, void *scratch) {
    sh_conv_weight()->run(&(sh_conv_weight_call){
        .shape = &conv->options.shape,
        .x = x,
        .dy = dy,
        .dw = dw,
        .db = dbias,
        .scratch = scratch,
        .threads = conv->threads,
        .x_blocked = conv->options.x_block == 8,
        .accumulate = accumulate,
    });
}

static void *mutable(const float *pointer) { return (void *)(uintptr_t)pointer; }

static void run_library(sh_conv *conv, const float *x, const float *dy, float *dw, float *dbias,
                        bool accumulate, void *scratch) {
    bool direct = conv->weight_gradient_plain && !accumulate;
    float *aside = (float *)((char *)scratch + conv->weight_bytes);
    void *pad = pad_of(conv, scratch);
    float *bias_to = accumulate ? aside : dbias;
    sh_onednn_call_run(&conv->weight_gradient, (void *[]){pad, mutable(x), mutable(dy),
                                                          direct ? (void *)dw : scratch, bias_to});
    if (!direct)
        sh_onednn_call_run(accumulate ? &conv->add_gradient : &conv->from_gradient,
                           (void *[]){pad, scratch, dw});
    if (accumulate && dbias != NULL)
        for (int64_t i = 0; i < conv->options.shape.oc; i++) dbias[i] += aside[i];
}

typedef struct trial {
    sh_conv *conv;
    float *x, *dy, *dw, *dbias;
    void *scratch;
} trial;

static const char *const weight_candidates[] = {"own", "onednn"};

static void run_trial(void *context, int candidate) {
    const trial *t = context;
    float *dbias = t->conv->options.bias ? t->dbias : NULL;
    if (candidate == 0)
        run_own(t->conv, t->x, t->dy, t->dw, dbias, false, t->scratch);
    else
        run_library(t->conv, t->x, t->dy, t->dw, dbias, false, t->scratch);
}

/* Own kernel or oneDNN's for the weight gradient, by measurement. */
static sh_status choose_weight_gradient(sh_conv *conv, sh_tuner *tuner) {
    const sh_conv_shape *s = &conv->options.shape;
    bool blocked = conv->options.x_block == 8;
    if (conv->options.y_block != 8 || !sh_conv_weight()->supports(s, blocked)) return SH_OK;
    conv->own_bytes = sh_conv_weight()->scratch_bytes(s, blocked, conv->threads);
    conv->scratch_bytes = larger(conv->scratch_bytes, conv->own_bytes);

    char key[128];
    snprintf(key, sizeof key, "conv-weights n%ld %ldx%ldx%ld to %ldx%ldx%ld k%ldx%ld s%ld t%d",
             (long)s->n, (long)s->ic, (long)s->ih, (long)s->iw, (long)s->oc, (long)s->oh,
             (long)s->ow, (long)s->kh, (long)s->kw, (long)s->stride_h, conv->threads);
    trial t = {.conv = conv};
    sh_arena arena = {0};
    if (!sh_tuner_knows(tuner, key, weight_candidates, SH_COUNT(weight_candidates))) {
        size_t x = (size_t)(s->n * s->ic * s->ih * s->iw),
               y = (size_t)(s->n * s->oc * s->oh * s->ow);
        size_t w = (size_t)(s->oc * s->ic * s->kh * s->kw);
        SH_TRY(sh_arena_init(
            &arena, "kernel measurement",
            (x + y + w + (size_t)s->oc) * sizeof(float) + conv->scratch_bytes + 5 * SH_ALIGN));
        t.x = sh_arena_take(&arena, x * sizeof(float));
        t.dy = sh_arena_take(&arena, y * sizeof(float));
        t.dw = sh_arena_take(&arena, w * sizeof(float));
        t.dbias = sh_arena_take(&arena, (size_t)s->oc * sizeof(float));
        t.scratch = sh_arena_take(&arena, conv->scratch_bytes);
        for (size_t i = 0; i < x; i++) t.x[i] = 1.0f;
        for (size_t i = 0; i < y; i++) t.dy[i] = 1.0f;
    }
    conv->own_weight_gradient =
        sh_tuner_choose(tuner, key, weight_candidates, 2, run_trial, &t) == 0;
    sh_arena_fini(&arena);
    return SH_OK;
}

static sh_status create_all(sh_conv *conv, sh_tuner *tuner) {
    descriptions d;
    SH_TRY(describe(&conv->options, &d));
    geometry g = geometry_of(&conv->options.shape);
    dnnl_primitive_desc_t hint = NULL;
    sh_status status = create_forward(conv, &d, &g, &hint);
    if (status == SH_OK && conv->options.backward && conv->options.input_gradient)
        status = create_input_gradient(conv, &d, &g, hint);
    if (status == SH_OK && conv->options.backward)
        status = create_weight_gradient(conv, &d, &g, hint);
    if (hint != NULL) dnnl_primitive_desc_destroy(hint);
    SH_TRY(status);

    const sh_onednn_call *calls[] = {
        &conv->forward,           &conv->input_gradient, &conv->weight_gradient, &conv->to_forward,
        &conv->to_input_gradient, &conv->from_gradient,  &conv->add_gradient};
    size_t pad = 0;
    for (size_t i = 0; i < SH_COUNT(calls); i++) pad = larger(pad, calls[i]->scratch_bytes);
    conv->scratch_bytes = conv->weight_bytes + bias_bytes(conv) + pad;
    if (!conv->options.backward) return SH_OK;
    SH_TRY(choose_weight_gradient(conv, tuner));
    if (conv->own_weight_gradient) strcpy(strrchr(conv->kernels, '/') + 2, "own");
    return SH_OK;
}

sh_status sh_conv_create(const sh_conv_options *options, sh_tuner *tuner, sh_conv **conv_out) {
    sh_conv *conv = sh_alloc(1, sizeof *conv);
    if (conv == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a convolution");
    conv->options = *options;
    conv->threads = sh_tuner_threads(tuner);
    sh_status status = create_all(conv, tuner);
    if (status != SH_OK)
        sh_conv_destroy(conv);
    else
        *conv_out = conv;
    return status;
}

void sh_conv_destroy(sh_conv *conv) {
    if (conv == NULL) return;
    sh_onednn_call *calls[] = {&conv->forward,     &conv->input_gradient,    &conv->weight_gradient,
                               &conv->to_forward,  &conv->to_input_gradient, &conv->from_gradient,
                               &conv->add_gradient};
    for (size_t i = 0; i < SH_COUNT(calls); i++) sh_onednn_call_fini(calls[i]);
    sh_free(conv);
}

size_t sh_conv_scratch_bytes(const sh_conv *conv) { return conv->scratch_bytes; }
const char *sh_conv_kernels(const sh_conv *conv) { return conv->kernels; }

void sh_conv_forward(sh_conv *conv, const float *x, const float *w, const float *bias, float *y,
                     void *scratch) {
    void *pad = pad_of(conv, scratch);
    if (!conv->forward_plain)
        sh_onednn_call_run(&conv->to_forward, (void *[]){pad, mutable(w), scratch});
    sh_onednn_call_run(
        &conv->forward,
        (void *[]){pad, mutable(x), conv->forward_plain ? mutable(w) : scratch, y, mutable(bias)});
}

void sh_conv_input_gradient(sh_conv *conv, const float *dy, const float *w, float *dx,
                            void *scratch) {
    void *pad = pad_of(conv, scratch);
    if (!conv->input_gradient_plain)
        sh_onednn_call_run(&conv->to_input_gradient, (void *[]){pad, mutable(w), scratch});
    sh_onednn_call_run(
        &conv->input_gradient,
        (void *[]){pad, mutable(dy), conv->input_gradient_plain ? mutable(w) : scratch, dx});
}

void sh_conv_weight_gradient(sh_conv *conv, const float *x, const float *dy, float *dw,
                             float *dbias, bool accumulate, void *scratch) {
    if (conv->own_weight_gradient)
        run_own(conv, x, dy, dw, dbias, accumulate, scratch);
    else
        run_library(conv, x, dy, dw, dbias, accumulate, scratch);
}
