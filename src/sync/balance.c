#include "sync/balance.h"

#include "base/status.h"

double sh_balance_time(const double *speed, int ranks, const uint32_t *cuts) {
    double longest = 0;
    for (int r = 0; r < ranks; r++) {
        double time = (double)(cuts[r + 1] - cuts[r]) / speed[r];
        if (time > longest) longest = time;
    }
    return longest;
}

/* Everyone starts with one sample; each further one goes to the worker that would have it done
 * first. That is optimal, and costs batch times ranks once in a while. */
void sh_balance_cut(const double *speed, int ranks, uint32_t batch, uint32_t *cuts_out) {
    SH_ASSERT(batch >= (uint32_t)ranks);
    uint32_t *count = cuts_out + 1;  // counts first, summed up at the end
    for (int r = 0; r < ranks; r++) count[r] = 1;
    for (uint32_t left = batch - (uint32_t)ranks; left > 0; left--) {
        int best = 0;
        for (int r = 1; r < ranks; r++)
            if ((count[r] + 1) / speed[r] < (count[best] + 1) / speed[best]) best = r;
        count[best]++;
    }
    cuts_out[0] = 0;
    for (int r = 0; r < ranks; r++) cuts_out[r + 1] += cuts_out[r];
}
