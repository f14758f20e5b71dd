#include "sync/statistics.h"

void sh_statistics_weigh(const sh_statistics *statistics, int64_t samples, double *sums_out) {
    const size_t count = statistics->count;
    const float *values = statistics->values;
    if (count > 0) sums_out[0] = (double)samples;
    for (size_t i = 0; values != NULL && i < count; i++)
        sums_out[1 + i] = samples > 0 ? (double)samples * (double)values[i] : 0;
}

void sh_statistics_take(const sh_statistics *statistics, const double *sums) {
    const size_t count = statistics->count;
    float *values = statistics->values;
    for (size_t i = 0; values != NULL && i < count && sums[0] > 0; i++)
        values[i] = (float)(sums[1 + i] / sums[0]);
}
