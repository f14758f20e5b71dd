#include "learn/team.h"

#include <string.h>

#include "base/memory.h"

/* A team without an engine: every collective returns at once. */
sh_learn_team sh_learn_alone(int threads) {
    return (sh_learn_team){.ranks = 1, .threads = threads};
}

/* Borrows the engine, which must outlive the team. */
sh_learn_team sh_learn_team_of(sh_engine *engine, int threads) {
    return (sh_learn_team){.engine = engine,
                           .rank = sh_engine_rank(engine),
                           .ranks = sh_engine_ranks(engine),
                           .threads = threads};
}

/* Runs a collective in place and counts its bytes. Every worker of the team calls it. */
static sh_status run(sh_learn_team *team, sh_collective what, void *data, size_t count,
                     sh_dtype dtype, sh_reduce_op op) {
    if (team->ranks == 1) return SH_OK;
    sh_call call = SH_CALL(.what = what, .group = team->group, .data = data, .count = count,
                           .dtype = dtype, .op = op);
    SH_TRY(sh_engine_run(team->engine, &call));
    team->sent_bytes += call.sent_bytes;
    return SH_OK;
}

/* Sum of 64-bit integers; callers choose scales that keep it from overflowing. */
sh_status sh_learn_sum(sh_learn_team *team, int64_t *values, size_t count) {
    return run(team, SH_ALLREDUCE, values, count, SH_DTYPE_I64, SH_SUM);
}

/* Maximum per element; associative, so that the order of ranks changes no bit. */
sh_status sh_learn_max(sh_learn_team *team, double *values, size_t count) {
    return run(team, SH_ALLREDUCE, values, count, SH_DTYPE_F64, SH_MAX);
}

sh_status sh_learn_gather(sh_learn_team *team, const int64_t *own, size_t words, int64_t *all_out) {
    // All-gather in place: own words at their place.
    memcpy(all_out + (size_t)team->rank * words, own, words * sizeof *own);
    return run(team, SH_ALLGATHER, all_out, words * (size_t)team->ranks, SH_DTYPE_I64, SH_SUM);
}

/* Where this worker's bytes begin among those of all, and how many these are. */
static sh_status place(sh_learn_team *team, size_t bytes, size_t *first_out, size_t *all_out) {
    int64_t own = (int64_t)bytes, *counts = sh_alloc((size_t)team->ranks, sizeof *counts);
    if (counts == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %d workers", team->ranks);
    sh_status status = sh_learn_gather(team, &own, 1, counts);
    size_t all = 0;
    for (int rank = 0; rank < team->ranks; rank++) {
        if (rank == team->rank) *first_out = all;
        all += (size_t)counts[rank];
    }
    *all_out = all;
    sh_free(counts);
    return status;
}

/* Workers have different amounts, so each adds its own words to zeros. */
sh_status sh_learn_collect(sh_learn_team *team, const void *own, size_t bytes, void **all_out,
                           size_t *bytes_out) {
    size_t first = 0, total = 0;
    SH_ASSERT(bytes % sizeof(int32_t) == 0);  // summed as 32-bit words
    SH_TRY(place(team, bytes, &first, &total));
    char *all = sh_alloc(total > 0 ? total : 1, 1);
    sh_status status =
        all != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for %zu bytes", total);
    status = sh_learn_agree(team, status);
    if (status == SH_OK && bytes > 0) memcpy(all + first, own, bytes);
    if (status == SH_OK && total > 0)
        // A sum with zeros keeps the bits, whatever type they are.
        status = run(team, SH_ALLREDUCE, all, total / sizeof(int32_t), SH_DTYPE_I32, SH_SUM);
    if (status != SH_OK) {
        sh_free(all);
        return status;
    }
    *all_out = all;
    *bytes_out = total;
    return SH_OK;
}

/* Bytes travel as 32-bit words, hence the multiple of four. */
sh_status sh_learn_broadcast(sh_learn_team *team, int root, void *data, size_t bytes) {
    if (team->ranks == 1) return SH_OK;
    sh_call call = SH_CALL(.what = SH_BROADCAST, .group = team->group, .data = data,
                           .count = bytes / sizeof(int32_t), .dtype = SH_DTYPE_I32, .root = root);
    SH_TRY(sh_engine_run(team->engine, &call));
    team->sent_bytes += call.sent_bytes;
    return SH_OK;
}

/* A total order, as rows differ: all workers elect the same one. */
bool sh_learn_beats(sh_learn_best a, sh_learn_best b) {
    if (a.row < 0 || b.row < 0) return a.row >= 0;
    return a.value > b.value || (a.value == b.value && a.row < b.row);
}

sh_status sh_learn_best_of(sh_learn_team *team, sh_learn_best *best_inout) {
    enum { WORDS = 2 };
    if (team->ranks == 1) return SH_OK;
    int64_t own[WORDS] = {0, best_inout->row};  // a double's bits travel as an integer
    memcpy(&own[0], &best_inout->value, sizeof own[0]);
    int64_t *all = sh_alloc(WORDS * (size_t)team->ranks, sizeof *all);
    if (all == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %d workers", team->ranks);
    sh_status status = sh_learn_gather(team, own, WORDS, all);
    for (int rank = 0; status == SH_OK && rank < team->ranks; rank++) {
        sh_learn_best theirs = {.row = all[rank * WORDS + 1]};
        memcpy(&theirs.value, &all[rank * WORDS], sizeof theirs.value);
        if (sh_learn_beats(theirs, *best_inout)) *best_inout = theirs;
    }
    sh_free(all);
    return status;
}

/* Parentheses keep the macro of team.h, for the analyzer, from renaming the definition. */
sh_status(sh_learn_agree)(sh_learn_team *team, sh_status status) {
    double failed = status != SH_OK;
    if (team->ranks == 1) return status;
    sh_error error = *sh_error_last();  // kept: the collective may overwrite the last error
    SH_TRY(sh_learn_max(team, &failed, 1));
    if (status != SH_OK) return sh_error_adopt(&error);
    return failed > 0 ? SH_FAIL(SH_E_PEER, "another worker cannot go on") : SH_OK;
}
