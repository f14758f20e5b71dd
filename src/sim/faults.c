#include "sim/faults.h"

#include <math.h>

#include "base/rng.h"

/* Uniform in (0, 1], 53 bits. Never 0, as its logarithm is taken. */
static double unit(sh_rng *rng) { return (double)((sh_rng_u64(rng) >> 11) + 1) * 0x1p-53; }

bool sh_faults_reorder(const sh_sim_faults *faults) {
    return faults->delay_s > 0 || (faults->hold > 0 && faults->hold_s > 0);
}

double sh_faults_delay_s(const sh_sim_faults *faults, uint64_t seed, uint64_t number) {
    sh_rng rng = sh_rng_stream(seed, SH_RNG_SIM_FAULT, 0, number);
    double delay = faults->delay_s > 0 ? -log(unit(&rng)) * faults->delay_s : 0;
    if (unit(&rng) <= faults->hold) delay += unit(&rng) * faults->hold_s;
    return delay;
}

/* A message is lost by the time it leaves at, so one under way when a cut begins still arrives.
 * `until_s` is outside the cut. */
bool sh_faults_lose(const sh_sim_faults *faults, int from, int to, double now_s) {
    for (int i = 0; i < faults->cut_count; i++) {
        const sh_sim_cut *cut = &faults->cuts[i];
        if (now_s < cut->from_s || now_s >= cut->until_s) continue;
        bool theirs = cut->b < 0
                          ? from == cut->a || to == cut->a
                          : (from == cut->a && to == cut->b) || (from == cut->b && to == cut->a);
        if (theirs) return true;
    }
    return false;
}

/* Stops that adjoin are followed only if they are listed in the order of their times. */
double sh_faults_resume_s(const sh_sim_faults *faults, int rank, double at_s) {
    for (int i = 0; i < faults->stop_count; i++) {
        const sh_sim_stop *stop = &faults->stops[i];
        double end_s = stop->at_s + stop->for_s;
        if (stop->rank == rank && at_s >= stop->at_s && at_s < end_s) at_s = end_s;
    }
    return at_s;
}

/* A stop shifts the end of the computation, which may thereby run into the next stop of the
 * list. */
double sh_faults_computed_s(const sh_sim_faults *faults, int rank, double from_s, double until_s) {
    for (int i = 0; i < faults->stop_count; i++) {
        const sh_sim_stop *stop = &faults->stops[i];
        if (stop->rank == rank && stop->at_s >= from_s && stop->at_s < until_s)
            until_s += stop->for_s;
    }
    return until_s;
}
