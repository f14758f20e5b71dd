/* Normalisation, measured on the training set. Sums of bytes are exact integers; sums of floats go
 * through doubles in two passes, so that a large mean does not eat a small deviation. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "data/view.h"

typedef struct moments {
    double *sum, *square;    // (channels) sums of (x - origin) and its square
    double *origin;          // (channels)
    double *least, *most;    // (channels)
    size_t channels, inner;  // inner: cells per channel
    double *memory;
} moments;

static sh_status moments_init(moments *m, const sh_dataset *dataset) {
    const sh_shape *sample = &dataset->info.sample;
    m->channels = (size_t)sample->dim[0];
    m->inner = sh_shape_count(sample) / m->channels;
    m->memory = sh_alloc(m->channels * 5, sizeof *m->memory);
    if (m->memory == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for the normalisation");
    m->sum = m->memory;
    m->square = m->sum + m->channels;
    m->origin = m->square + m->channels;
    m->least = m->origin + m->channels;
    m->most = m->least + m->channels;
    for (size_t c = 0; c < m->channels; c++) {
        m->least[c] = DBL_MAX;
        m->most[c] = -DBL_MAX;
    }
    return SH_OK;
}

/* At most 32768 bytes, so that the sum of squares fits 32 bits. */
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

static void add_floats(moments *m, const float *from) {
    for (size_t c = 0; c < m->channels; c++)
        for (size_t i = 0; i < m->inner; i++) {
            double raw = from[c * m->inner + i], value = raw - m->origin[c];
            m->sum[c] += value;
            m->square[c] += value * value;
            if (raw < m->least[c]) m->least[c] = raw;
            if (raw > m->most[c]) m->most[c] = raw;
        }
}

static void add_all(moments *m, const sh_dataset *dataset) {
    const sh_source *source = sh_view_source(dataset);
    size_t cells = m->channels * m->inner, count = dataset->info.count;
    // Samples that repeat need not be counted twice.
    if (source->period != 0 && count > source->period) count = source->period;
    for (size_t i = 0; i < count; i++) {
        size_t at = sh_view_at(dataset, i) * cells;
        if (source->cell == SH_CELL_U8)
            add_bytes(m, (const uint8_t *)source->cells + at);
        else
            add_floats(m, (const float *)source->cells + at);
    }
    double n = (double)count * (double)m->inner;
    for (size_t c = 0; c < m->channels; c++) {
        m->sum[c] /= n;
        m->square[c] = fmax(0, m->square[c] / n - m->sum[c] * m->sum[c]);
    }
}

static void measure(moments *m, const sh_dataset *dataset) {
    add_all(m, dataset);
    if (sh_view_source(dataset)->cell == SH_CELL_F32) {  // again around the means just found
        for (size_t c = 0; c < m->channels; c++) {
            m->origin[c] = m->sum[c];
            m->sum[c] = m->square[c] = 0;
        }
        add_all(m, dataset);
    }
}

static void fill_auto(const moments *m, sh_normal *normal) {
    for (size_t c = 0; c < m->channels; c++) {
        double mean = m->origin[c] + m->sum[c];
        bool varies = m->square[c] > 1e-12 * (mean * mean + 1e-12);
        normal->mean[c] = (float)mean;
        normal->scale[c] = varies ? (float)(1 / sqrt(m->square[c])) : 1;
    }
}

static void fill_unit(const moments *m, bool is_bytes, sh_normal *normal) {
    for (size_t c = 0; c < m->channels; c++) {
        double least = is_bytes ? 0 : m->least[c], range = is_bytes ? 255 : m->most[c] - least;
        normal->mean[c] = (float)least;
        normal->scale[c] = range > FLT_MIN ? (float)(1 / range) : 1;
    }
}

sh_status sh_view_measure(const sh_dataset *dataset, const char *how, sh_normal *normal_out) {
    sh_normal normal = {0};
    bool is_auto = how == NULL || strcmp(how, "auto") == 0;
    bool is_unit = how != NULL && strcmp(how, "unit") == 0;
    if (!is_auto && !is_unit && strcmp(how, "none") != 0) {
        SH_FAIL(SH_E_USAGE, "unknown normalisation '%s'", how);
        return sh_error_hint("use auto, unit or none");
    }
    if (dataset->info.tokens || (!is_auto && !is_unit)) {
        *normal_out = normal;
        return SH_OK;
    }
    moments m = {0};
    SH_TRY(moments_init(&m, dataset));
    normal.mean = sh_alloc(m.channels, sizeof *normal.mean);
    normal.scale = sh_alloc(m.channels, sizeof *normal.scale);
    normal.count = m.channels;
    if (normal.mean == NULL || normal.scale == NULL) {
        sh_free(normal.mean);
        sh_free(normal.scale);
        sh_free(m.memory);
        return SH_FAIL(SH_E_MEMORY, "out of memory for the normalisation");
    }
    bool is_bytes = sh_view_source(dataset)->cell == SH_CELL_U8;
    if (is_auto || !is_bytes) measure(&m, dataset);
    if (is_auto)
        fill_auto(&m, &normal);
    else
        fill_unit(&m, is_bytes, &normal);
    sh_free(m.memory);
    *normal_out = normal;
    return SH_OK;
}
