#include "run/states.h"

void sh_states_weigh(const shoal_run *run, int64_t samples, double *sums_out) {
    const size_t total = run->model.net->states.total;
    const float *states = run->model.blocks.states;
    if (total > 0) sums_out[0] = (double)samples;
    for (size_t i = 0; i < total; i++)
        sums_out[1 + i] = samples > 0 ? (double)samples * (double)states[i] : 0;
}

void sh_states_take(shoal_run *run, const double *sums) {
    const size_t total = run->model.net->states.total;
    float *states = run->model.blocks.states;
    for (size_t i = 0; i < total && sums[0] > 0; i++) states[i] = (float)(sums[1 + i] / sums[0]);
}
