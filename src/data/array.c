/* Arrays of any numeric type as samples and targets. Bytes and aligned little-endian floats stay
 * where they are in the mapped file; everything else is converted once to float. */
#include "data/array.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "data/reader.h"

/* Bytes of one element, by type. */
static const uint8_t type_bytes[] = {
    [SH_ARRAY_U8] = 1,  [SH_ARRAY_I8] = 1,  [SH_ARRAY_U16] = 2, [SH_ARRAY_I16] = 2,
    [SH_ARRAY_U32] = 4, [SH_ARRAY_I32] = 4, [SH_ARRAY_U64] = 8, [SH_ARRAY_I64] = 8,
    [SH_ARRAY_F32] = 4, [SH_ARRAY_F64] = 8,
};

/* Loads one element byte by byte, since elements of a mapped file have any alignment and either
 * byte order. */
static uint64_t load_word(const uint8_t *at, size_t bytes, bool big_endian) {
    uint64_t word = 0;
    for (size_t i = 0; i < bytes; i++)
        word |= (uint64_t)at[big_endian ? bytes - 1 - i : i] << (8 * i);
    return word;
}

/* 64-bit integers above 2^53 lose their low digits, which no float target would keep either. */
double sh_array_at(const sh_array *array, size_t index) {
    size_t bytes = type_bytes[array->type];
    uint64_t word = load_word(array->data + index * bytes, bytes, array->big_endian);
    switch (array->type) {
        case SH_ARRAY_I8:
            return (int8_t)word;
        case SH_ARRAY_I16:
            return (int16_t)word;
        case SH_ARRAY_I32:
            return (int32_t)word;
        case SH_ARRAY_I64:
            return (double)(int64_t)word;
        case SH_ARRAY_F32: {
            uint32_t half = (uint32_t)word;
            float value;
            memcpy(&value, &half, sizeof value);
            return value;
        }
        case SH_ARRAY_F64: {
            double value;
            memcpy(&value, &word, sizeof value);
            return value;
        }
        default:
            return (double)word;
    }
}

/* Bytes of all elements; the product is bounded, since the dimensions come from a file. */
sh_status sh_array_bytes(const sh_array *array, const char *name, uint64_t *bytes_out) {
    char text[SH_SHAPE_TEXT];
    size_t count;
    if (!sh_shape_count_checked(&array->shape, &count)) {
        SH_FAIL(SH_E_FORMAT, "'%s': its header promises an absurd shape, %s", name,
                sh_shape_text(&array->shape, text));
        return sh_hint_damaged();
    }
    *bytes_out = (uint64_t)count * type_bytes[array->type];
    return SH_OK;
}

/* Checks that the elements fill `bytes` exactly. A file that is too short is reported in whole
 * samples; one that is too long is refused too, as its header is then wrong. */
sh_status sh_array_check(const sh_array *array, const char *name, size_t offset, size_t bytes) {
    uint64_t all = 0;
    SH_TRY(sh_array_bytes(array, name, &all));
    size_t wanted = (size_t)all;
    int64_t first = array->shape.rank > 0 ? array->shape.dim[0] : 1;
    if (bytes < wanted) {
        size_t sample_bytes = first > 0 ? wanted / (size_t)first : 1;
        SH_FAIL(SH_E_FORMAT, "'%s' ends after %zu of %lld samples (byte %zu, wanted %zu)", name,
                bytes / sample_bytes, (long long)first, offset + bytes, offset + wanted);
        return sh_error_hint("the file is cut short: fetch or write it again");
    }
    if (bytes > wanted) {
        SH_FAIL(SH_E_FORMAT, "'%s' has %zu bytes too many after its %lld samples (byte %zu)", name,
                bytes - wanted, (long long)first, offset + wanted);
        return sh_hint_damaged();
    }
    return SH_OK;
}

/* Shape of one sample. Images with the channels last are recognised by their sizes and refused,
 * since they would train without an error and learn badly. */
static sh_status sample_shape(const sh_source *source, const sh_array *x, sh_shape *shape_out) {
    const int64_t *dim = x->shape.dim;
    char text[SH_SHAPE_TEXT];
    switch (x->shape.rank) {
        case 1:
            *shape_out = SH_SHAPE(1);
            return SH_OK;
        case 2:
            *shape_out = SH_SHAPE(dim[1]);
            return SH_OK;
        case 3:
            *shape_out = SH_SHAPE(1, dim[1], dim[2]);
            return SH_OK;
        case 4:
            if (dim[1] > 4 && (dim[3] == 1 || dim[3] == 3)) {
                SH_FAIL(SH_E_SHAPE, "'%s' has shape %s, with the channels last", source->name,
                        sh_shape_text(&x->shape, text));
                return sh_error_hint("images are (N, C, H, W); transpose(0, 3, 1, 2) and save");
            }
            *shape_out = SH_SHAPE(dim[1], dim[2], dim[3]);
            return SH_OK;
        default:
            SH_FAIL(SH_E_SHAPE, "'%s' has %d dimensions", source->name, x->shape.rank);
            return sh_error_hint("samples are (N, F), (N, H, W) or (N, C, H, W)");
    }
}

/* Uses the bytes in place, or converts them once to float. Floats are checked to be finite, as one
 * NaN would spoil all weights. */
static sh_status take_samples(sh_source *source, const sh_array *x) {
    SH_TRY(sample_shape(source, x, &source->info.sample));
    source->info.count = source->stored = (size_t)x->shape.dim[0];
    SH_TRY(sh_source_check(source));
    if (x->type == SH_ARRAY_U8) {
        source->cell = SH_CELL_U8;
        source->cells = x->data;
        return SH_OK;
    }
    size_t count = sh_shape_count(&x->shape);
    source->cell = SH_CELL_F32;
    source->cells = x->data;
    bool in_place = x->type == SH_ARRAY_F32 && !x->big_endian &&
                    (uintptr_t)x->data % sizeof(float) == 0 &&
                    __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
    if (!in_place) {
        SH_TRY(sh_source_room(source, count * sizeof(float)));
        float *cells = sh_alloc(count, sizeof *cells);
        if (cells == NULL)
            return SH_FAIL(SH_E_MEMORY, "out of memory for %zu numbers of '%s'", count,
                           source->name);
        for (size_t i = 0; i < count; i++) cells[i] = (float)sh_array_at(x, i);
        source->memory[0] = cells;
        source->cells = cells;
    }
    size_t bad = sh_find_not_finite(source->cells, count);
    if (bad == count) return SH_OK;
    size_t sample = count / source->stored;
    SH_ASSERT(sample > 0);
    SH_FAIL(SH_E_NUMERIC, "'%s': value %zu of sample %zu is %g", source->name, bad % sample,
            bad / sample, sh_array_at(x, bad));
    return sh_hint_not_finite();
}

/* Targets (N, V): V float values per sample. */
static sh_status take_rows(sh_source *source, const sh_array *y) {
    size_t count = sh_shape_count(&y->shape);
    SH_TRY(sh_source_room(source, count * sizeof(float)));
    float *values = sh_alloc(count, sizeof *values);
    if (values == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu targets of '%s'", count, source->name);
    source->memory[1] = values;
    for (size_t i = 0; i < count; i++) values[i] = (float)sh_array_at(y, i);
    size_t bad = sh_find_not_finite(values, count), width = (size_t)y->shape.dim[1];
    if (bad < count) {
        SH_FAIL(SH_E_NUMERIC, "'%s': target %zu of sample %zu is %g", source->name, bad % width,
                bad / width, sh_array_at(y, bad));
        return sh_hint_not_finite();
    }
    source->values = values;
    source->info.target = SH_TARGET_VALUES;
    source->info.values = (int64_t)width;
    return SH_OK;
}

/* Targets of one number per sample become classes or values; of several, values. */
static sh_status take_targets(sh_source *source, const sh_array *y, sh_read read) {
    bool is_row = y->shape.rank == 2 && y->shape.dim[1] > 1;
    if (y->shape.rank > 2 || y->shape.rank < 1 || (y->shape.rank == 2 && y->shape.dim[1] < 1)) {
        char text[SH_SHAPE_TEXT];
        return SH_FAIL(SH_E_SHAPE, "'%s': labels of shape %s; they must be (N) or (N, values)",
                       source->name, sh_shape_text(&y->shape, text));
    }
    if ((size_t)y->shape.dim[0] != source->stored) {
        SH_FAIL(SH_E_SHAPE, "'%s' has %zu samples but %lld labels", source->name, source->stored,
                (long long)y->shape.dim[0]);
        return sh_error_hint("check that both files belong together");
    }
    if (is_row) return take_rows(source, y);
    SH_TRY(sh_source_room(source, source->stored * (sizeof(double) + sizeof(int32_t))));
    double *targets = sh_alloc(source->stored, sizeof *targets);
    if (targets == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for the labels of '%s'", source->name);
    for (size_t i = 0; i < source->stored; i++) targets[i] = sh_array_at(y, i);
    // The type of the array says what is meant, unless training has decided already.
    if (read.target == SH_TARGET_NONE && sh_array_is_float(y)) read.target = SH_TARGET_VALUES;
    sh_status status = sh_source_set_targets(source, targets, &read);
    sh_free(targets);
    return status;
}

/* The source owns the bytes of both. */
sh_status sh_source_take_arrays(sh_source *source, const sh_array *x, const sh_array *y,
                                const sh_read *read) {
    SH_TRY(take_samples(source, x));
    return y != NULL ? take_targets(source, y, *read) : SH_OK;
}
