/* Every worker's share of the batch follows its measured speed (sync/balance.h). */
#include <string.h>

#include "sync/balance.h"
#include "run/run.h"

enum {
    EVERY = 20,  // steps between looks
    AHEAD = 6,   // batches from a decision to its effect: more than the loader makes ahead
};
static const double least_gain = 0.05;  // a new share means new executors: it must be worth it

/* From the batch that comes AHEAD of the current one, which is the same on all ranks. */
static void set_share(shoal_run *run, const uint32_t *cuts) {
    int rank = run->team.rank;
    sh_batch_share share = {cuts[rank], cuts[rank + 1], (uint32_t)run->config.batch};
    int64_t epoch = run->at.epoch, index = run->at.batch + AHEAD;
    while (index >= run->length.steps_per_epoch) {
        index -= run->length.steps_per_epoch;
        epoch++;
    }
    sh_loader_set_share(run->loader, share, epoch, index);
}

/* Collective. Every rank cuts the batch by the same speeds, so all shares fit together without
 * another message. */
static sh_status look(shoal_run *run, double *speed, uint32_t *cuts, uint32_t *now_cuts) {
    sh_team *team = &run->team;
    memset(speed, 0, (size_t)team->ranks * sizeof *speed);
    speed[team->rank] = (double)team->balance.samples / ((double)team->balance.compute_ns * 1e-9);
    team->balance.samples = team->balance.compute_ns = 0;
    SH_TRY(sh_team_sum(team, speed, (size_t)team->ranks));
    sh_balance_cut(speed, team->ranks, (uint32_t)run->config.batch, cuts);
    double before = sh_balance_time(speed, team->ranks, now_cuts);
    double after = sh_balance_time(speed, team->ranks, cuts);
    if (after > before * (1 - least_gain)) return SH_OK;
    memcpy(now_cuts, cuts, ((size_t)team->ranks + 1) * sizeof *cuts);
    set_share(run, cuts);
    if (sh_team_leads(team))
        SH_INFO(&run->log,
                "balance: worker 0 takes %u of %ld samples from step %ld on; steps %.0f "
                "%% shorter",
                cuts[1] - cuts[0], (long)run->config.batch, (long)run->at.step + AHEAD + 1,
                100 * (1 - after / before));
    return SH_OK;
}

sh_status sh_team_balance(shoal_run *run, int64_t samples, int64_t compute_ns) {
    sh_team *team = &run->team;
    if (team->group == NULL || !run->config.balance) return SH_OK;
    team->balance.samples += samples;
    team->balance.compute_ns += compute_ns;
    // The first look has seen executors being made; it only starts the clock.
    if (run->at.step % EVERY != 0) return SH_OK;
    if (run->at.step == EVERY || team->balance.samples == 0 || team->balance.compute_ns == 0) {
        team->balance.samples = team->balance.compute_ns = 0;
        if (run->at.step == EVERY) return SH_OK;
        team->balance.samples = team->balance.compute_ns =
            1;  // it had none: any speed keeps it in step
    }
    // The first cuts are even, as the batch is divided until they change.
    size_t ranks = (size_t)team->ranks;
    if (team->balance.cuts == NULL) {
        team->balance.cuts = sh_alloc(2 * (ranks + 1), sizeof *team->balance.cuts);
        team->balance.speeds = sh_alloc(ranks, sizeof *team->balance.speeds);
        if (team->balance.cuts == NULL || team->balance.speeds == NULL)
            return SH_FAIL(SH_E_MEMORY, "out of memory for shares");
        for (uint32_t r = 0; r <= ranks; r++)
            team->balance.cuts[r] = (uint32_t)((uint64_t)run->config.batch * r / ranks);
    }
    return look(run, team->balance.speeds, team->balance.cuts + ranks + 1, team->balance.cuts);
}
