#include "sim/compute.h"

#include <math.h>

#include "base/rng.h"

/* Uniform in (0, 1], 53 bits. */
static double unit(sh_rng *rng) { return (double)((sh_rng_u64(rng) >> 11) + 1) * 0x1p-53; }

/* A standard normal draw by Box and Muller. The second one of the pair is dropped, so that a
 * draw leaves no state behind. */
static double normal(sh_rng *rng) {
    double radius = sqrt(-2.0 * log(unit(rng)));
    return radius * cos(2.0 * 3.14159265358979323846 * unit(rng));
}

/* Every law has the mean `mean_s`: runs under different laws compare at the same load. */
static double draw(const sh_sim_compute *compute, sh_rng *rng) {
    switch (compute->law) {
        case SH_LAW_CONSTANT:
            break;
        case SH_LAW_EXPONENTIAL:
            return -log(unit(rng)) * compute->mean_s;
        case SH_LAW_LOGNORMAL:  // shifted so that the mean is the mean
            return compute->mean_s *
                   exp(compute->sigma * normal(rng) - compute->sigma * compute->sigma / 2);
    }
    return compute->mean_s;
}

double sh_compute_seconds(const sh_sim_compute *compute, uint64_t seed, int rank, int64_t step,
                          double now_s) {
    sh_rng rng = sh_rng_stream(seed, SH_RNG_SIM_COMPUTE, (uint32_t)rank, (uint64_t)step);
    double seconds = draw(compute, &rng);
    // Where slow phases overlap, their factors multiply.
    for (int i = 0; i < compute->slow_count; i++) {
        const sh_sim_slow *slow = &compute->slow[i];
        bool always = slow->from_s == 0 && slow->until_s == 0;
        bool now = always || (now_s >= slow->from_s && now_s < slow->until_s);
        if (now && (slow->rank < 0 || slow->rank == rank)) seconds *= slow->factor;
    }
    return seconds;
}
