#include "codec/sparse.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "tensor/kernels/select.h"

/* Selection in three steps, all O(n):
 *   1. a sample of n/64 elements guesses a magnitude that somewhat more than k elements reach;
 *   2. a vector pass collects those candidates (index and value);
 *   3. the exact k-th magnitude among them is found digit by digit (radix selection).
 * A guess that lets through too few or too many falls back to radix selection on everything, so the
 * result is exact whatever the values are. */
enum { SAMPLE_LEAST = 1024, SAMPLE_MOST = 32768, BINS = 2048 };

typedef struct estimate {
    size_t sample;    // elements, 0: too few to be worth it
    size_t wanted;    // the guess is the sample's element of this rank
    size_t capacity;  // candidates
} estimate;

/* The smaller of two counts. */
static size_t least_of(size_t a, size_t b) { return a < b ? a : b; }

size_t sh_sparse_kept(double ratio, size_t count) {
    size_t kept = (size_t)llround(ratio * (double)count);
    return least_of(kept > 1 ? kept : 1, count);
}

/* The sample holds e = k sample / n of the wanted elements, give or take sqrt(e); three of those
 * and a few more make too low a guess rare. */
static estimate estimate_of(size_t count, size_t kept) {
    if (count < 4 * SAMPLE_LEAST || kept > count / 4) return (estimate){0};
    size_t sample = count / 64;
    if (sample < SAMPLE_LEAST) sample = SAMPLE_LEAST;
    if (sample > SAMPLE_MOST) sample = SAMPLE_MOST;
    double expected = (double)kept * (double)sample / (double)count;
    size_t wanted = (size_t)(expected + 3 * sqrt(expected) + 4);
    size_t candidates = (size_t)((double)wanted * (double)count / (double)sample);
    if (2 * candidates > count / 2) return (estimate){0};
    return (estimate){
        .sample = sample, .wanted = wanted, .capacity = 2 * candidates + SAMPLE_LEAST};
}

size_t sh_sparse_work_bytes(size_t count, size_t kept) {
    estimate p = estimate_of(count, kept);
    size_t candidates = p.capacity * (sizeof(uint32_t) + sizeof(float));
    size_t sample = p.sample * sizeof(float);  // taken before there are candidates
    return sh_round_up(candidates > sample ? candidates : sample, SH_ALIGN);
}

typedef struct cut {
    uint32_t magnitude;  // elements above it are all kept
    size_t equal;        // and so many of those equal to it, in order
} cut;

/* The magnitude of rank `kept` >= 1 among y: the digit (11, 10, 10 bits) of each place is found by
 * counting the elements that agree in the digits before. */
static cut cut_of(const float *y, size_t count, size_t kept) {
    static const int shifts[] = {20, 10, 0};
    uint32_t prefix = 0, mask = 0;
    for (size_t place = 0; place < SH_COUNT(shifts); place++) {
        uint32_t bins[BINS] = {0};
        int shift = shifts[place];
        uint32_t digits = place == 0 ? BINS - 1 : BINS / 2 - 1;
        for (size_t i = 0; i < count; i++) {
            uint32_t size = sh_magnitude(y[i]);
            if ((size & mask) == prefix) bins[size >> shift & digits]++;
        }
        uint32_t digit = digits;
        for (; digit > 0 && bins[digit] < kept; digit--) kept -= bins[digit];
        prefix |= digit << shift;
        mask |= digits << shift;
    }
    return (cut){.magnitude = prefix, .equal = kept};
}

/* One element from every stretch of n / sample, at a place that is different in each: columns of a
 * matrix must not line up with the stretches. */
static uint32_t guess(const float *y, size_t count, const estimate *p, float *sample) {
    size_t stretch = count / p->sample;
    uint32_t place = 0x9E3779B9;
    for (size_t i = 0; i < p->sample; i++) {
        place = place * 1664525 + 1013904223;
        sample[i] = y[i * stretch + ((uint64_t)place * stretch >> 32)];
    }
    return cut_of(sample, p->sample, p->wanted).magnitude;
}

/* Writes the kept ones of `count` elements; `indices` NULL: element i has index i. */
static void write_kept(const float *y, const uint32_t *indices, size_t count, cut c, size_t kept,
                       uint32_t *indices_out, float *values_out) {
    size_t at = 0;
    for (size_t i = 0; i < count && at < kept; i++) {
        uint32_t size = sh_magnitude(y[i]);
        if (size < c.magnitude || (size == c.magnitude && c.equal == 0)) continue;
        if (size == c.magnitude) c.equal--;
        indices_out[at] = indices != NULL ? indices[i] : (uint32_t)i;
        values_out[at++] = y[i];
    }
    SH_ASSERT(at == kept);
}

/* The guess decides the speed only: candidates are used if they certainly hold all kept
 * elements. */
void sh_sparse_write(const float *y, size_t count, size_t kept, void *work, void *message) {
    uint32_t *indices = message;
    float *values = (float *)(indices + kept);
    estimate p = estimate_of(count, kept);
    if (p.sample > 0) {
        uint32_t *candidate = work;
        float *value = (float *)(candidate + p.capacity);
        uint32_t floor = guess(y, count, &p, work);
        size_t found = sh_select()->collect(y, count, floor, p.capacity, candidate, value);
        if (found >= kept && found <= p.capacity) {
            write_kept(value, candidate, found, cut_of(value, found, kept), kept, indices, values);
            return;
        }
    }
    write_kept(y, NULL, count, cut_of(y, count, kept), kept, indices, values);
}

void sh_sparse_clear(const void *message, size_t kept, float *y) {
    const uint32_t *indices = message;
    for (size_t i = 0; i < kept; i++) y[indices[i]] = 0;
}

sh_status sh_sparse_add(const sh_codec_tensor *tensor, const void *message, size_t kept,
                        float scale, float *x) {
    const uint32_t *indices = message;
    const float *values = (const float *)(indices + kept);
    // Ascending and the last below the count: then all are.
    bool ascends = true;
    for (size_t i = 1; i < kept; i++) ascends &= indices[i - 1] < indices[i];
    if (!ascends) return sh_codec_refuse(tensor, SH_E_FORMAT, "indices of a message do not ascend");
    if (kept > 0 && indices[kept - 1] >= tensor->count)
        return sh_codec_refuse(tensor, SH_E_FORMAT, "a message has an index behind the last");
    for (size_t i = 0; i < kept; i++) x[indices[i]] += scale * values[i];
    return SH_OK;
}
