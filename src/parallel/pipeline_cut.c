/* Cutting a net into stages by dynamic programming: best(s, l), the least figure of stages 0..s
 * that end before layer l, from best(s - 1, first) over all layers where stage s may begin. Prefix
 * sums make the figure of one stage O(1). */
#include "parallel/pipeline_cut.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/option.h"

/* Sums over the layers before each. */
typedef struct sums {
    const sh_cut_problem *problem;
    double *time, *fixed, *live;
} sums;

/* Entry i is the sum over layers before i, so that a range is a difference of two. */
static sh_status add_up(sums *s, const sh_cut_problem *problem) {
    size_t count = (size_t)problem->layer_count + 1;
    *s = (sums){.problem = problem, .time = sh_alloc(3 * count, sizeof(double))};
    if (s->time == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %d layers", problem->layer_count);
    s->fixed = s->time + count;  // one block for three arrays
    s->live = s->fixed + count;
    for (int i = 0; i < problem->layer_count; i++) {
        const sh_cut_layer *l = &problem->layers[i];
        s->time[i + 1] = s->time[i] + l->forward_s + l->data_s + l->weight_s;
        s->fixed[i + 1] = s->fixed[i] + l->fixed_bytes;
        s->live[i + 1] = s->live[i] + l->live_bytes;
    }
    return SH_OK;
}

/* Of the stage with layers [first, last). Its inputs are live with the rest. */
static double memory_of(const sums *s, int stage, int first, int last) {
    const sh_pipeline *pipeline = s->problem->pipeline;
    // The schedule's bound of live micro-batches.
    int live = sh_pipeline_live_most(pipeline, stage % pipeline->ranks);
    if (live > pipeline->micros) live = pipeline->micros;  // of one of several chunks
    // values that cross the border before the stage
    double inputs = first > 0 ? s->problem->layers[first].border_bytes : 0;
    return s->fixed[last] - s->fixed[first] + live * (s->live[last] - s->live[first] + inputs);
}

/* What one stage adds to the figure that a search minimises. */
typedef struct search {
    const sums *sums;
    // Time of the slowest, memory of the largest, fewest border bytes.
    enum { SLOWEST, LARGEST, FEWEST } goal;
    double time_most, memory_most;  // of a stage that is taken
} search;

/* INFINITY excludes a stage that exceeds a bound. */
static double value_of(const search *q, int stage, int first, int last) {
    const sums *s = q->sums;
    double time = s->time[last] - s->time[first], memory = memory_of(s, stage, first, last);
    // Sums of equal numbers in another order may differ in their last bits.
    // tolerance: the second search must find the first one's cut
    if (time > q->time_most * (1 + 1e-12) || memory > q->memory_most) return INFINITY;
    if (q->goal == SLOWEST) return time;
    if (q->goal == LARGEST) return memory;
    return first > 0 ? s->problem->layers[first].border_bytes : 0;
}

/* Bytes of borders add up; times and memories are those of the worst stage. */
static double joined(const search *q, double before, double own) {
    return q->goal == FEWEST ? before + own : fmax(before, own);
}

/* Layers that form one op with the layer before (pipeline_profile.h) cannot begin a stage. */
static bool may_begin(const sh_cut_problem *problem, int layer) {
    return layer == 0 || problem->layers[layer].begins;
}

/* The best of stages 0 to `stage` that end before layer `last`; `from_out`: where the last of them
 * begins. */
static double best_end(const search *q, const double *before, int stage, int last, int *from_out) {
    double best = INFINITY;
    *from_out = -1;
    for (int first = stage; first < last; first++) {  // stage s needs s layers before it
        if (!may_begin(q->sums->problem, first) || (stage == 0 && first > 0)) continue;
        double rest = stage == 0 ? 0 : before[first];
        if (isinf(rest)) continue;  // no cut reaches this layer
        double value = joined(q, rest, value_of(q, stage, first, last));
        if (value >= best) continue;  // strict: of equal cuts the earliest border
        best = value;
        *from_out = first;
    }
    return best;
}

/* The least figure, INFINITY where no cut is allowed; `cut_out` NULL: it alone. */
static sh_status minimise(const search *q, int *cut_out, double *value_out) {
    const sh_cut_problem *problem = q->sums->problem;
    // O(stages layers^2) time.
    int layers = problem->layer_count, stages = sh_pipeline_stages(problem->pipeline);
    size_t row = (size_t)layers + 1;
    // Two rows of the table: this stage's and the one before.
    double *values = sh_alloc(2 * row, sizeof *values);
    int *from = sh_alloc((size_t)stages * row, sizeof *from);
    sh_status status =
        values != NULL && from != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for a cut");
    double *before = values, *now = values + row;
    for (int s = 0; s < stages && status == SH_OK; s++) {
        for (int last = 0; last <= layers; last++)
            now[last] = best_end(q, before, s, last, &from[(size_t)s * row + (size_t)last]);
        double *swap = before;
        before = now;
        now = swap;
    }
    if (status == SH_OK) *value_out = before[layers];
    if (status == SH_OK && cut_out != NULL && isfinite(before[layers])) {
        cut_out[stages] = layers;
        for (int s = stages - 1; s >= 0; s--)
            // Backwards from the last border.
            cut_out[s] = from[(size_t)s * row + (size_t)cut_out[s + 1]];
    }
    sh_free(values);
    sh_free(from);
    return status;
}

/* Before the search, as its answer would only be "none". */
static sh_status check(const sh_cut_problem *problem) {
    int stages = sh_pipeline_stages(problem->pipeline), begins = 1;
    // Places where exact cuts exist.
    for (int i = 1; i < problem->layer_count; i++) begins += problem->layers[i].begins;
    if (stages <= begins && problem->layer_count > 0) return SH_OK;
    SH_FAIL(SH_E_USAGE, "%d stages, but the net has %d places where one may begin", stages, begins);
    return sh_error_hint("pipe=%d, or fewer chunks", begins);
}

/* Searches once more, for the least memory that any cut needs, to name it. */
static sh_status refuse_memory(const search *q, double bound) {
    search by_memory = {.sums = q->sums, .goal = LARGEST, .time_most = INFINITY};
    by_memory.memory_most = INFINITY;
    double least = INFINITY;
    SH_TRY(minimise(&by_memory, NULL, &least));
    SH_FAIL(SH_E_MEMORY,
            "no cut into %d stages keeps each of them below %.1f MiB: the best needs %.1f MiB",
            sh_pipeline_stages(q->sums->problem->pipeline), bound / 0x1p20, least / 0x1p20);
    return sh_error_hint("more stages, or smaller micro-batches");
}

/* First the time of the slowest stage, then the fewest bytes of all cuts that are as fast. */
static sh_status find(const sums *s, int *cut_out) {
    const sh_cut_problem *problem = s->problem;
    search q = {.sums = s, .goal = SLOWEST, .time_most = INFINITY};
    // A rank holds `chunks` stages.
    q.memory_most = problem->memory_bytes / problem->pipeline->chunks;
    double slowest, bytes;
    SH_TRY(minimise(&q, NULL, &slowest));
    if (isinf(slowest)) return refuse_memory(&q, q.memory_most);
    q.goal = FEWEST;
    q.time_most = slowest;
    SH_TRY(minimise(&q, cut_out, &bytes));
    SH_ASSERT(isfinite(bytes));  // the cut found first is allowed
    return SH_OK;
}

/* The figures of a finished cut, found or given. */
static sh_cut_result judge(const sums *s, const int *cut) {
    sh_cut_result result = {0};
    for (int k = 0; k < sh_pipeline_stages(s->problem->pipeline); k++) {
        double time = s->time[cut[k + 1]] - s->time[cut[k]];
        result.slowest_s = fmax(result.slowest_s, time);
        result.memory_bytes = fmax(result.memory_bytes, memory_of(s, k, cut[k], cut[k + 1]));
        if (k > 0) result.border_bytes += s->problem->layers[cut[k]].border_bytes;
    }
    return result;
}

sh_status sh_cut_find(const sh_cut_problem *problem, int *cut_out, sh_cut_result *result_out) {
    SH_TRY(check(problem));
    sums s;
    SH_TRY(add_up(&s, problem));
    sh_status status = find(&s, cut_out);
    if (status == SH_OK) *result_out = judge(&s, cut_out);
    sh_free(s.time);
    return status;
}

/* For a cut that the user gave: nothing is searched, and no bound is checked. */
sh_status sh_cut_judge(const sh_cut_problem *problem, const int *cut, sh_cut_result *result_out) {
    sums s;
    SH_TRY(add_up(&s, problem));
    *result_out = judge(&s, cut);
    sh_free(s.time);
    return SH_OK;
}

/* ---- Borders --------------------------------------------------------------------------------- */

/* Whether a layer from `layer` on reads the value: then it crosses the border before `layer`. */
static bool is_read_from(const sh_net *net, int value, int layer) {
    for (int i = layer; i < (int)net->layer_count; i++)
        for (int k = 0; k < net->layers[i]->input_count; k++)
            if (net->layers[i]->inputs[k] == value) return true;
    return false;
}

double sh_cut_border_bytes(const sh_net *net, int layer) {
    double values = 0;
    for (int i = SH_NET_INPUT; i < layer; i++)  // from the input on, which is "layer" SH_NET_INPUT
        if (is_read_from(net, i, layer))
            values += (double)sh_shape_count(i == SH_NET_INPUT ? &net->input.sample
                                                               : &net->layers[i]->out);
    return values * sizeof(float);
}

/* ---- Text ------------------------------------------------------------------------------------ */

/* Adapter for sh_nearest. */
static const char *layer_name_at(const void *net_pointer, size_t index) {
    const sh_net *net = net_pointer;
    return index < net->layer_count ? net->layers[index]->name : NULL;
}

static int find_layer(const sh_net *net, const char *name, size_t length) {
    for (size_t i = 0; i < net->layer_count; i++)
        if (strlen(net->layers[i]->name) == length &&
            strncmp(net->layers[i]->name, name, length) == 0)
            return (int)i;
    return -1;
}

/* Copies the name, which may not end in a zero byte, up to the longest name a layer has. */
static sh_status refuse_layer(const sh_net *net, const char *name, size_t length) {
    char word[SH_LAYER_NAME + 1];
    snprintf(word, sizeof word, "%.*s", (int)(length < SH_LAYER_NAME ? length : SH_LAYER_NAME),
             name);
    SH_FAIL(SH_E_USAGE, "cut: the net has no layer '%s'", word);
    const char *near = sh_nearest(word, layer_name_at, net);
    if (near != NULL) return sh_error_hint("did you mean '%s'?", near);
    return sh_error_hint("shoal explain shows the layers of a run");
}

static sh_status refuse_count(int begun, int stages) {
    SH_FAIL(SH_E_USAGE, "cut: it begins %d stages behind the first, but there are %d", begun,
            stages - 1);
    return sh_error_hint("name the first layer of each stage but the first, such as conv3,fc6");
}

/* Names must be in the order of layers, so that no stage is empty. */
sh_status sh_cut_parse(const sh_net *net, const char *text, int stages, int *cut_out) {
    int named = *text != '\0';  // names are commas and one
    for (const char *at = text; *at != '\0'; at++) named += *at == ',';
    if (named != stages - 1) return refuse_count(named, stages);
    cut_out[0] = 0;
    cut_out[stages] = (int)net->layer_count;
    for (int stage = 1; stage < stages; stage++) {
        size_t length = strcspn(text, ",");
        cut_out[stage] = find_layer(net, text, length);
        if (cut_out[stage] < 0) return refuse_layer(net, text, length);
        // A border no later than the one before leaves an empty stage.
        if (cut_out[stage] <= cut_out[stage - 1])
            return SH_FAIL(SH_E_USAGE, "cut: stage %d begins with '%s', so stage %d has no layers",
                           stage, net->layers[cut_out[stage]]->name, stage - 1);
        text += length + 1;
    }
    return SH_OK;
}

/* Inverse of sh_cut_parse; the caller frees it. NULL: out of memory. */
char *sh_cut_text(const sh_net *net, const int *cut, int stages) {
    char *text = sh_strdup("");
    for (int s = 1; s < stages && text != NULL; s++) {
        char *longer = sh_format("%s%s%s", text, s > 1 ? "," : "", net->layers[cut[s]]->name);
        sh_free(text);
        text = longer;
    }
    return text;
}
