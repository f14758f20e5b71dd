#include "tensor/kernels/distance.h"

enum { LANES = 8 };

static double add_lanes(const double lane[LANES]) {
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

double sh_distance(const float *a, const float *b, size_t width) {
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int j = 0; j < LANES; j++) {
            double d = (double)a[i + (size_t)j] - (double)b[i + (size_t)j];
            lane[j] += d * d;
        }
    for (; i < width; i++) lane[0] += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return add_lanes(lane);
}

double sh_dot(const float *a, const float *b, size_t width) {
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)a[i + (size_t)j] * (double)b[i + (size_t)j];
    for (; i < width; i++) lane[0] += (double)a[i] * (double)b[i];
    return add_lanes(lane);
}
