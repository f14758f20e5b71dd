/* oneDNN's convolutions behind plain weights. For each direction the library is asked for a kernel
 * with the caller's layouts, then with others; what the kernel wants differently is reordered in
 * scratch memory before and after. Primitives are created once; running allocates nothing of ours.
 */
#include "tensor/kernels/conv_library.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* The memory descriptions of x, w and y, and of the bias. */
typedef struct descriptions {
    dnnl_memory_desc_t at[SH_CONV_TENSORS], bias;
} descriptions;

/* The layout of images as oneDNN names it. */
static dnnl_format_tag_t image_tag(int block, sh_conv_layout layout) {
    if (layout == SH_CONV_LAYOUT_ANY) return dnnl_format_tag_any;
    if (layout == SH_CONV_LAYOUT_CHANNELS_LAST) return dnnl_nhwc;
    return block == 8 && layout == SH_CONV_LAYOUT_GIVEN ? dnnl_nChw8c : dnnl_nchw;
}

/* What the caller has (`plain_weights`), or what the kernel is asked for. */
static sh_status describe(const sh_conv_options *o, sh_conv_layout layout, bool plain_weights,
                          descriptions *d) {
    const sh_conv_shape *s = &o->shape;
    dnnl_dims_t x = {s->n, s->ic, s->ih, s->iw}, y = {s->n, s->oc, s->oh, s->ow}, bias = {s->oc};
    SH_ONEDNN(dnnl_memory_desc_init_by_tag(&d->at[SH_CONV_X], 4, x, dnnl_f32,
                                           image_tag(o->x_block, layout)));
    SH_ONEDNN(dnnl_memory_desc_init_by_tag(&d->at[SH_CONV_Y], 4, y, dnnl_f32,
                                           image_tag(o->y_block, layout)));
    SH_ONEDNN(dnnl_memory_desc_init_by_tag(&d->bias, 1, bias, dnnl_f32, dnnl_a));
    bool groups = s->groups > 1;
    dnnl_dims_t w = {s->oc, s->ic, s->kh, s->kw};
    dnnl_dims_t grouped = {s->groups, s->oc / s->groups, s->ic / s->groups, s->kh, s->kw};
    dnnl_format_tag_t plain = groups ? dnnl_goihw : dnnl_oihw;
    SH_ONEDNN(dnnl_memory_desc_init_by_tag(&d->at[SH_CONV_W], groups ? 5 : 4, groups ? grouped : w,
                                           dnnl_f32, plain_weights ? plain : dnnl_format_tag_any));
    return SH_OK;
}

/* Strides, dilations (from 0 in oneDNN) and padding on both sides. */
typedef struct geometry {
    dnnl_dims_t strides, dilates, before, after;
} geometry;

/* Padding below and right, which the shape only implies. */
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

static sh_status describe_operation(const sh_conv_options *o, const descriptions *d,
                                    sh_conv_direction direction,
                                    dnnl_convolution_desc_t *operation) {
    const dnnl_memory_desc_t *x = &d->at[SH_CONV_X], *w = &d->at[SH_CONV_W], *y = &d->at[SH_CONV_Y];
    const dnnl_memory_desc_t *bias = o->bias ? &d->bias : NULL;
    geometry g = geometry_of(&o->shape);
    if (direction == SH_CONV_FORWARD)
        SH_ONEDNN(dnnl_dilated_convolution_forward_desc_init(
            operation, o->backward ? dnnl_forward_training : dnnl_forward_inference,
            dnnl_convolution_direct, x, w, bias, y, g.strides, g.dilates, g.before, g.after));
    else if (direction == SH_CONV_INPUT_GRADIENT)
        SH_ONEDNN(dnnl_dilated_convolution_backward_data_desc_init(
            operation, dnnl_convolution_direct, x, w, y, g.strides, g.dilates, g.before, g.after));
    else
        SH_ONEDNN(dnnl_dilated_convolution_backward_weights_desc_init(
            operation, dnnl_convolution_direct, x, w, bias, y, g.strides, g.dilates, g.before,
            g.after));
    return SH_OK;
}

/* Scratch memory is the caller's; relu is fused. */
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

static sh_status make(const sh_conv_options *options, sh_conv_direction direction,
                      sh_conv_layout layout, dnnl_primitive_desc_t hint,
                      dnnl_primitive_desc_t *description_out) {
    descriptions d;
    dnnl_convolution_desc_t operation;
    SH_TRY(describe(options, layout, false, &d));
    SH_TRY(describe_operation(options, &d, direction, &operation));
    dnnl_primitive_attr_t attr = NULL;
    SH_ONEDNN(attributes(options->relu && direction == SH_CONV_FORWARD, &attr));
    dnnl_status_t made =
        dnnl_primitive_desc_create(description_out, &operation, attr, sh_onednn_engine(), hint);
    dnnl_primitive_attr_destroy(attr);
    if (made != dnnl_success) return sh_onednn_failed(made, "this convolution", __FILE__, __LINE__);
    return SH_OK;
}

/* oneDNN wants the forward description as a hint for a backward one. */
static sh_status make_with_hint(const sh_conv_options *options, sh_conv_direction direction,
                                sh_conv_layout layout, dnnl_primitive_desc_t *description_out) {
    if (direction == SH_CONV_FORWARD)
        return make(options, direction, layout, NULL, description_out);
    dnnl_primitive_desc_t hint = NULL;
    SH_TRY(make(options, SH_CONV_FORWARD, layout, NULL, &hint));
    sh_status status = make(options, direction, layout, hint, description_out);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

/* The library's name of a kernel: "jit:avx2". */
static const char *name_of(dnnl_primitive_desc_t description) {
    const char *name = "?";
    dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name);
    return name;
}

static bool starts_with(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static sh_status find_kernel(const sh_conv_options *options, sh_conv_direction direction,
                             sh_conv_layout layout, dnnl_primitive_desc_t *description_out) {
    SH_TRY(make_with_hint(options, direction, layout, description_out));
    if (layout != SH_CONV_LAYOUT_GIVEN) return SH_OK;
    for (int other = SH_CONV_LAYOUT_ANY; other <= SH_CONV_LAYOUT_PLAIN; other++) {
        if (!starts_with(name_of(*description_out), "ref")) break;
        dnnl_primitive_desc_t better = NULL;
        if (make_with_hint(options, direction, (sh_conv_layout)other, &better) != SH_OK) continue;
        bool found = !starts_with(name_of(better), "ref");
        dnnl_primitive_desc_destroy(found ? *description_out : better);
        if (found) *description_out = better;
    }
    return SH_OK;
}

/* What oneDNN calls x, w, y and the bias, and the one that is written. */
static const struct role {
    int args[SH_CONV_TENSORS], bias;
    dnnl_query_t queries[SH_CONV_TENSORS];
    int result;
} roles[SH_CONV_DIRECTIONS] = {
    [SH_CONV_FORWARD] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                         DNNL_ARG_BIAS,
                         {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
                         SH_CONV_Y},
    [SH_CONV_INPUT_GRADIENT] = {{DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                0,
                                {dnnl_query_diff_src_md, dnnl_query_weights_md,
                                 dnnl_query_diff_dst_md},
                                SH_CONV_X},
    [SH_CONV_WEIGHT_GRADIENT] = {{DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
                                 DNNL_ARG_DIFF_BIAS,
                                 {dnnl_query_src_md, dnnl_query_diff_weights_md,
                                  dnnl_query_diff_dst_md},
                                 SH_CONV_W},
};

/* The larger of two sizes. */
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Room for one tensor in the kernel's layout, and its reorder; the pad is shared by all calls. */
static sh_status add_tensor(sh_conv_library *l, int tensor, const dnnl_memory_desc_t *caller,
                            const dnnl_memory_desc_t *kernel) {
    bool result = tensor == roles[l->direction].result;
    bool adds = result && l->direction == SH_CONV_WEIGHT_GRADIENT;
    l->moved[tensor] = !dnnl_memory_desc_equal(caller, kernel);
    l->copy[tensor] = l->scratch_bytes;
    if (l->moved[tensor] || adds)
        l->scratch_bytes += sh_round_up(dnnl_memory_desc_get_size(kernel), SH_ALIGN);
    if (l->moved[tensor])
        SH_TRY(sh_onednn_reorder_init(&l->reorder[tensor], result ? kernel : caller,
                                      result ? caller : kernel, false));
    return adds ? sh_onednn_reorder_init(&l->add, kernel, caller, true) : SH_OK;
}

static sh_status add_tensors(sh_conv_library *l, const sh_conv_options *options,
                             const dnnl_memory_desc_t *kernel) {
    descriptions caller;
    const struct role *role = &roles[l->direction];
    SH_TRY(describe(options, SH_CONV_LAYOUT_GIVEN, true, &caller));
    for (int i = 0; i < SH_CONV_TENSORS; i++) {
        SH_TRY(sh_onednn_call_arg(&l->kernel, role->args[i], &kernel[i]));
        SH_TRY(add_tensor(l, i, &caller.at[i], &kernel[i]));
    }
    if (options->bias && role->bias != 0)
        SH_TRY(sh_onednn_call_arg(&l->kernel, role->bias, &caller.bias));
    l->oc = options->shape.oc;
    l->bias_copy = l->scratch_bytes;
    l->pad = l->bias_copy + sh_round_up((size_t)l->oc * sizeof(float), SH_ALIGN);
    size_t pad = larger(l->kernel.scratch_bytes, l->add.scratch_bytes);
    for (int i = 0; i < SH_CONV_TENSORS; i++) pad = larger(pad, l->reorder[i].scratch_bytes);
    l->scratch_bytes = l->pad + pad;
    return SH_OK;
}

sh_status sh_conv_library_init(sh_conv_library *library, const sh_conv_options *options,
                               sh_conv_direction direction, sh_conv_layout layout) {
    *library = (sh_conv_library){.direction = direction};
    dnnl_primitive_desc_t description = NULL;
    SH_TRY(find_kernel(options, direction, layout, &description));
    snprintf(library->name, sizeof library->name, "%s", name_of(description));
    dnnl_memory_desc_t kernel[SH_CONV_TENSORS];
    for (int i = 0; i < SH_CONV_TENSORS; i++)
        kernel[i] = *dnnl_primitive_desc_query_md(description, roles[direction].queries[i], 0);
    sh_status status = sh_onednn_call_init(&library->kernel, description);
    if (status == SH_OK) status = add_tensors(library, options, kernel);
    if (status != SH_OK) sh_conv_library_fini(library);
    return status;
}

void sh_conv_library_fini(sh_conv_library *library) {
    sh_onednn_call_fini(&library->kernel);
    sh_onednn_call_fini(&library->add);
    for (int i = 0; i < SH_CONV_TENSORS; i++) sh_onednn_call_fini(&library->reorder[i]);
    *library = (sh_conv_library){0};
}

bool sh_conv_library_is_direct(const sh_conv_library *library) {
    return !starts_with(library->name, "ref") && strstr(library->name, "gemm") == NULL;
}

bool sh_conv_library_reorders(const sh_conv_library *library) {
    return library->moved[SH_CONV_X] || library->moved[SH_CONV_Y];
}

/* Reorders, runs, reorders back or adds. */
void sh_conv_library_run(sh_conv_library *l, const sh_conv_tensors *tensors, void *scratch) {
    int result = roles[l->direction].result;
    bool adds = tensors->accumulate && result == SH_CONV_W;
    float *bias_copy = (float *)(void *)((char *)scratch + l->bias_copy);
    float *bias = adds || tensors->bias == NULL ? bias_copy : tensors->bias;
    void *pad = (char *)scratch + l->pad, *at[SH_CONV_TENSORS];
    for (int i = 0; i < SH_CONV_TENSORS; i++) {
        bool copied = l->moved[i] || (adds && i == result);
        at[i] = copied ? (char *)scratch + l->copy[i] : (char *)tensors->at[i];
        if (copied && i != result)
            sh_onednn_call_run(&l->reorder[i], (void *[]){pad, tensors->at[i], at[i]});
    }
    sh_onednn_call_run(&l->kernel, (void *[]){pad, at[0], at[1], at[2], bias});
    if (at[result] != (void *)tensors->at[result])
        sh_onednn_call_run(adds ? &l->add : &l->reorder[result],
                           (void *[]){pad, at[result], tensors->at[result]});
    if (adds && tensors->bias != NULL)
        for (int64_t i = 0; i < l->oc; i++) tensors->bias[i] += bias_copy[i];
}
