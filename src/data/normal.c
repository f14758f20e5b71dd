/* Normalisation, measured on the training set. Sums of bytes are exact integers; sums of floats go
 * through doubles in two passes, so that a large mean does not eat a small deviation. Where the set
 * lies in parts, the sums are those of all ranks. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "data/view.h"

/* Sums per channel. They lie in one block in this order, so that one collective sums `sum` to
 * `cells` and another takes the maximum of `minus` and `most`. */
typedef struct moments {
    double *sum, *square;    // (channels) sums of (x - origin) and its square, then means of both
    double *cells;           // (1) cells per channel, behind the sums
    double *origin;          // (channels)
    double *minus, *most;    // (channels) the least value, negated, and the largest
    size_t channels, inner;  // inner: cells per channel
    double *memory;
} moments;

/* Allocates the sums: per channel of images, per feature of vectors. */
static sh_status moments_init(moments *m, const sh_dataset *dataset) {
    const sh_shape *sample = &dataset->info.sample;
    m->channels = (size_t)sample->dim[0];
    m->inner = sh_shape_count(sample) / m->channels;
    m->memory = sh_alloc(m->channels * 5 + 1, sizeof *m->memory);
    if (m->memory == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for the normalisation");
    m->sum = m->memory;
    m->square = m->sum + m->channels;
    m->cells = m->square + m->channels;
    m->origin = m->cells + 1;
    m->minus = m->origin + m->channels;
    m->most = m->minus + m->channels;
    for (size_t c = 0; c < m->channels; c++) m->minus[c] = m->most[c] = -DBL_MAX;
    return SH_OK;
}

/* Sums of at most 32768 bytes: 32768 * 255^2 still fits 32 bits. */
static void sum_bytes(const uint8_t *from, size_t count, uint32_t *sum_out, uint32_t *square_out) {
    uint32_t sum = 0, square = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t value = from[i];
        sum += value;
        square += value * value;
    }
    *sum_out = sum;
    *square_out = square;
}

/* Adds one sample of bytes. Integer sums are exact, hence the same in any order. */
static void add_bytes(moments *m, const uint8_t *from) {
    enum { BLOCK = 32768 };
    if (m->inner == 1) {
        for (size_t c = 0; c < m->channels; c++) {
            m->sum[c] += from[c];
            m->square[c] += (double)from[c] * from[c];
        }
        return;
    }
    for (size_t c = 0; c < m->channels; c++)
        for (size_t start = 0; start < m->inner; start += BLOCK) {
            size_t count = m->inner - start < BLOCK ? m->inner - start : BLOCK;
            uint32_t sum, square;
            sum_bytes(from + c * m->inner + start, count, &sum, &square);
            m->sum[c] += sum;  // exact: integers below 2^53
            m->square[c] += square;
        }
}

/* Adds one sample of floats, each reduced by the origin: 0 in the first pass, the mean in the
 * second. */
static void add_floats(moments *m, const float *from) {
    for (size_t c = 0; c < m->channels; c++)
        for (size_t i = 0; i < m->inner; i++) {
            double raw = from[c * m->inner + i], value = raw - m->origin[c];
            m->sum[c] += value;
            m->square[c] += value * value;
            if (-raw > m->minus[c]) m->minus[c] = -raw;
            if (raw > m->most[c]) m->most[c] = raw;
        }
}

/* Adds all samples of the view. */
static void add_all(moments *m, const sh_dataset *dataset) {
    const sh_source *source = sh_view_source(dataset);
    size_t cells = m->channels * m->inner, count = dataset->info.count;
    // Samples that repeat need not be counted twice.
    if (source->period != 0 && count > source->period) count = source->period;
    for (size_t c = 0; c < m->channels; c++) m->sum[c] = m->square[c] = 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = sh_view_at(dataset, i) * cells;
        if (source->cell == SH_CELL_U8)
            add_bytes(m, (const uint8_t *)source->cells + at);
        else
            add_floats(m, (const float *)source->cells + at);
    }
    *m->cells = (double)count * (double)m->inner;
}

/* Means of x - origin and of its square, over all ranks where the data lies in parts. */
static sh_status take_means(moments *m, const sh_dataset *dataset, const sh_data_team *team) {
    add_all(m, dataset);
    if (team != NULL) SH_TRY(team->sum(team->self, m->sum, 2 * m->channels + 1));
    for (size_t c = 0; c < m->channels; c++) {
        // E[x] and E[x^2] - E[x]^2, both relative to the origin, so little cancels.
        m->sum[c] /= *m->cells;
        m->square[c] = fmax(0, m->square[c] / *m->cells - m->sum[c] * m->sum[c]);
    }
    return SH_OK;
}

/* One pass for bytes, whose sums are exact; two for floats, the second around the mean. */
static sh_status measure(moments *m, const sh_dataset *dataset, const sh_data_team *team) {
    SH_TRY(take_means(m, dataset, team));
    if (sh_view_source(dataset)->cell == SH_CELL_U8) return SH_OK;
    for (size_t c = 0; c < m->channels; c++) m->origin[c] = m->sum[c];
    SH_TRY(take_means(m, dataset, team));  // again around the means just found
    return team != NULL ? team->max(team->self, m->minus, 2 * m->channels) : SH_OK;
}

/* Mean and 1 / deviation per channel. A channel without deviation is only centred, as 1 / 0 would
 * spoil it. */
static void fill_auto(const moments *m, sh_normal *normal) {
    for (size_t c = 0; c < m->channels; c++) {
        double mean = m->origin[c] + m->sum[c];
        bool varies = m->square[c] > 1e-12 * (mean * mean + 1e-12);
        normal->mean[c] = (float)mean;
        normal->scale[c] = varies ? (float)(1 / sqrt(m->square[c])) : 1;
    }
}

/* Maps bytes 0..255, or floats from least to largest, to 0..1. */
static void fill_unit(const moments *m, bool is_bytes, sh_normal *normal) {
    for (size_t c = 0; c < m->channels; c++) {
        double least = is_bytes ? 0 : -m->minus[c], range = is_bytes ? 255 : m->most[c] - least;
        normal->mean[c] = (float)least;
        normal->scale[c] = range > FLT_MIN ? (float)(1 / range) : 1;
    }
}

/* Mean and scale by the way that was asked for. */
static void fill(const moments *m, const sh_dataset *dataset, bool is_auto, sh_normal *normal) {
    if (is_auto)
        fill_auto(m, normal);
    else
        fill_unit(m, sh_view_source(dataset)->cell == SH_CELL_U8, normal);
}

/* Tokens and sparse rows get no normalisation: `count` is 0. */
sh_status sh_view_measure(const sh_dataset *dataset, const char *how, const sh_data_team *team,
                          sh_normal *normal_out) {
    sh_normal normal = {0};
    bool is_auto = how == NULL || strcmp(how, "auto") == 0;
    bool is_unit = how != NULL && strcmp(how, "unit") == 0;
    if (!is_auto && !is_unit && strcmp(how, "none") != 0) {
        SH_FAIL(SH_E_USAGE, "unknown normalisation '%s'", how);
        return sh_error_hint("use auto, unit or none");
    }
    const sh_source *source = sh_view_source(dataset);
    if (is_unit && source->sparse.rows > 0) {
        SH_FAIL(SH_E_UNSUPPORTED, "'%s' is sparse, and normalising to unit would fill its zeros",
                source->name);
        return sh_error_hint("use --normalise none, and scale the features in the file");
    }
    if (dataset->info.tokens || source->sparse.rows > 0 || (!is_auto && !is_unit)) {
        *normal_out = normal;
        return SH_OK;
    }
    moments m = {0};
    sh_status status;
    SH_TRY(moments_init(&m, dataset));
    normal.mean = sh_alloc(m.channels, sizeof *normal.mean);
    normal.scale = sh_alloc(m.channels, sizeof *normal.scale);
    normal.count = m.channels;
    if (normal.mean == NULL || normal.scale == NULL)
        SH_TRY_OUT(SH_FAIL(SH_E_MEMORY, "out of memory for the normalisation"));
    bool is_bytes = sh_view_source(dataset)->cell == SH_CELL_U8;
    if (is_auto || !is_bytes) SH_TRY_OUT(measure(&m, dataset, team));
    fill(&m, dataset, is_auto, &normal);
    *normal_out = normal;
    normal = (sh_normal){0};
    status = SH_OK;
out:
    sh_free(normal.mean);
    sh_free(normal.scale);
    sh_free(m.memory);
    return status;
}
