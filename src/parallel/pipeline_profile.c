/* What layers cost, for the cut of a pipeline: estimated from their flops, or measured on executors
 * of single parts with made-up values. */
#include "parallel/pipeline_profile.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

enum { REPEATS = 3 };  // runs that are timed; the fastest counts, as others were disturbed

/* ---- Without measurements -------------------------------------------------------------------- */

static double params_of(const sh_net *net, const sh_layer *layer) {
    double count = 0;
    for (int k = 0; k < layer->param_count; k++)
        count += (double)net->params.items[layer->params[k]].count;
    return count;
}

/* The layers of a part: [first, last). */
static void describe_part(const sh_profile_options *o, int first, int last, sh_cut_layer *out) {
    const sh_net *net = o->net;
    *out = (sh_cut_layer){.begins = true};
    double samples = (double)o->samples;
    out->border_bytes = samples * sh_cut_border_bytes(net, first);
    for (int i = first; i < last; i++) {
        const sh_layer *layer = net->layers[i];
        double flops = layer->flops * samples;
        out->forward_s += flops;
        if (first > 0) out->data_s += flops;  // the first part needs no gradient of its input
        // as many flops as forward, if there is a weight
        if (layer->param_count > 0) out->weight_s += flops;
        out->fixed_bytes += params_of(net, layer) * o->param_bytes;
        // Outputs are kept for backward.
        out->live_bytes += (double)sh_shape_count(&layer->out) * samples * sizeof(float);
    }
}

/* Layers that cannot be parted exactly are one part: its figures stand at its first layer. */
sh_status sh_profile_estimate(const sh_profile_options *o, sh_cut_layer *layers_out) {
    int count = (int)o->net->layer_count, first = 0;
    for (int i = 1; i <= count; i++) {
        bool exact = true;
        if (i < count) SH_TRY(sh_net_cut_is_exact(o->net, i, &exact));
        layers_out[i - 1] = (sh_cut_layer){0};  // zero: `begins` is false inside a part
        if (i < count && !exact) continue;      // the part goes on
        describe_part(o, first, i, &layers_out[first]);
        first = i;
    }
    return SH_OK;
}

/* ---- With measurements ----------------------------------------------------------------------- */

enum { PORTS_MOST = 16 };  // values across one border

typedef struct bench {
    const sh_profile_options *options;
    sh_executor *executor;
    sh_arena memory;
    void *inputs[PORTS_MOST];  // values that cross the border
    void *targets;
} bench;

/* Small values that are neither zero nor all alike; tokens are 0. */
static void make_up(const sh_value *value, void *data) {
    float *x = data;
    for (size_t i = 0; i < value->count && !value->tokens; i++)
        x[i] = (float)(i % 17) / 17.0f - 0.47f;
}

static void close_bench(bench *b) {
    sh_executor_destroy(b->executor);
    sh_arena_fini(&b->memory);
    for (int i = 0; i < PORTS_MOST; i++) sh_free(b->inputs[i]);
    sh_free(b->targets);
    *b = (bench){0};
}

/* Memory for what other stages would send, and for targets. */
static sh_status fill_bench(bench *b) {
    sh_executor *e = b->executor;
    if (e->inputs.count > PORTS_MOST)
        return SH_FAIL(SH_E_UNSUPPORTED, "more than %d values cross a border", PORTS_MOST);
    for (size_t i = 0; i < e->inputs.count; i++) {
        b->inputs[i] = sh_alloc(e->inputs.items[i].value->count + 1, sizeof(float));
        if (b->inputs[i] == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a measurement");
        make_up(e->inputs.items[i].value, b->inputs[i]);
    }
    size_t outputs = e->output != NULL ? e->output->count : 0;
    b->targets = sh_alloc(outputs + 1, sizeof(float));  // class 0, or the value 0
    if (b->targets == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a measurement");
    SH_TRY(sh_arena_init(&b->memory, "measurement", e->memory_bytes + SH_ALIGN));
    sh_executor_bind(e, &b->options->blocks, b->memory.base);
    return SH_OK;
}

/* An executor of layers [first, last) alone. */
static sh_status open_bench(bench *b, const sh_profile_options *o, int first, int last,
                            bool input_gradients) {
    *b = (bench){.options = o};
    sh_executor_options options = {
        .batch = o->samples,
        .training = true,
        .loss = last == (int)o->net->layer_count ? o->loss : NULL,  // only the last part has a loss
        .tuner = o->tuner,
        .first = first,
        .last = last,
        .input_gradients = input_gradients,
    };
    SH_TRY(sh_executor_create(o->net, &options, &b->executor));
    return fill_bench(b);
}

static double between(int64_t begin_ns, int64_t end_ns) {
    return (double)(end_ns - begin_ns) * 1e-9;
}

/* Gradients at the border are made up, as no later stage computes them. */
static sh_status run_once(bench *b, double *forward_out, double *backward_out) {
    const sh_clock *clock = b->options->clock;
    // As in training: dropout and batchnorm behave alike.
    sh_step_context context = {.training = true, .seed = 1};
    int64_t begin_ns = sh_clock_now_ns(clock);
    SH_TRY(sh_executor_forward_range(b->executor, &context, (const void *const *)b->inputs));
    int64_t middle_ns = sh_clock_now_ns(clock);
    if (b->executor->loss != NULL)  // outside both times: loss is no layer's
        (void)sh_executor_loss(b->executor, b->targets, 1);
    else
        for (size_t i = 0; i < b->executor->outputs.count; i++) {
            const sh_value *value = b->executor->outputs.items[i].value;
            if (value->grad != NULL) make_up(value, value->grad);
        }
    int64_t back_ns = sh_clock_now_ns(clock);
    SH_TRY(sh_executor_backward(b->executor, NULL, NULL));
    *forward_out = between(begin_ns, middle_ns);
    *backward_out = between(back_ns, sh_clock_now_ns(clock));
    return SH_OK;
}

/* The fastest of a few runs behind one that warms up. */
static sh_status time_bench(bench *b, double *forward_out, double *backward_out) {
    double forward, backward;
    SH_TRY(run_once(b, &forward, &backward));
    *forward_out = *backward_out = INFINITY;
    for (int i = 0; i < REPEATS; i++) {
        SH_TRY(run_once(b, &forward, &backward));
        *forward_out = fmin(*forward_out, forward);
        *backward_out = fmin(*backward_out, backward);
    }
    return SH_OK;
}

/* Backward without the gradient of the input is the weight part; what the rest takes is the data
 * part. */
static sh_status measure_part(const sh_profile_options *o, int first, int last, sh_cut_layer *out) {
    double both = 0, again = 0;
    bench b = {0};
    sh_status status = open_bench(&b, o, first, last, first > 0);
    if (status == SH_OK) status = time_bench(&b, &out->forward_s, &both);
    if (status == SH_OK) out->live_bytes = (double)b.executor->memory_bytes;
    close_bench(&b);
    out->weight_s = both;
    out->data_s = 0;  // the first part has no data part
    if (status != SH_OK || first == 0) return status;
    status = open_bench(&b, o, first, last, false);
    if (status == SH_OK) status = time_bench(&b, &again, &out->weight_s);
    close_bench(&b);
    out->weight_s = fmin(out->weight_s, both);  // noise may not make the data part negative
    out->data_s = both - out->weight_s;
    return status;
}

/* Begins with the estimate, which says where parts begin. */
sh_status sh_profile_measure(const sh_profile_options *o, sh_cut_layer *layers_out) {
    SH_TRY(sh_profile_estimate(o, layers_out));
    int count = (int)o->net->layer_count;
    for (int first = 0; first < count;) {
        int last = first + 1;
        while (last < count && !layers_out[last].begins) last++;
        SH_TRY(measure_part(o, first, last, &layers_out[first]));
        first = last;
    }
    return SH_OK;
}
