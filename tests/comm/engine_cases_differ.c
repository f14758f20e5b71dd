/* Ranks that do not start the same calls: every pair that could meet on different ways. */
#include <stdio.h>
#include <string.h>

#include "comm/engine_cases.h"

enum { MOST = 100000 };  // floats

#define ALLREDUCE(name, n, b) \
    { .what = SH_ALLREDUCE, .algorithm = (name), .count = (n), .bucket = (b) }
#define BROADCAST(name, n, r) \
    { .what = SH_BROADCAST, .algorithm = (name), .count = (n), .root = (r), .bucket = -1 }

const engine_difference engine_differences[] = {
    // The first messages meet.
    {"all-reduce and broadcast",
     {ALLREDUCE("ring", MOST, 2), BROADCAST("tree", 10, 1)},
     {false, false},
     {"allreduce ring of bucket 2, 400000 bytes (float32, sum)",
      "broadcast tree of 40 bytes (float32, from rank 1)"}},
    {"two algorithms",
     {ALLREDUCE("ring", 1000, 0), ALLREDUCE("halving-doubling", 1000, 0)},
     {false, false},
     {"allreduce ring of bucket 0, 4000 bytes", "allreduce halving-doubling of bucket 0"}},
    {"two sizes",
     {ALLREDUCE("ring", 1000, 1), ALLREDUCE("ring", 1002, 1)},
     {false, false},
     {"of bucket 1, 4000 bytes", "of bucket 1, 4008 bytes"}},
    // The same messages in every way, but for what they mean.
    {"two buckets",
     {ALLREDUCE("ring", 1000, 2), ALLREDUCE("ring", 1000, 3)},
     {false, false},
     {"ring of bucket 2", "ring of bucket 3"}},
    {"two types",
     {ALLREDUCE("tree", 1000, 2),
      {.what = SH_ALLREDUCE,
       .algorithm = "tree",
       .count = 1000,
       .dtype = SH_DTYPE_I32,
       .bucket = 2}},
     {false, false},
     {"(float32, sum)", "(int32, sum)"}},
    {"two operators",
     {ALLREDUCE("tree", 1000, 2),
      {.what = SH_ALLREDUCE, .algorithm = "tree", .count = 1000, .op = SH_MAX, .bucket = 2}},
     {false, false},
     {"(float32, sum)", "(float32, max)"}},
    // Each waits for the other, and nobody sends.
    {"two that receive first",
     {BROADCAST("tree", MOST, 1), BROADCAST("tree", MOST, 0)},
     {false, false},
     {"from rank 1", "from rank 0"}},
    // Nobody waits for anybody.
    {"two that only send",
     {BROADCAST("tree", 10, 0), BROADCAST("tree", 10, 1)},
     {false, false},
     {"from rank 0", "from rank 1"}},
    // Through mapped memory.
    {"two buckets through memory",
     {ALLREDUCE("direct", MOST, 2), ALLREDUCE("direct", MOST, 3)},
     {true, true},
     {"allreduce direct of bucket 2, 400000 bytes", "allreduce direct of bucket 3"}},
    {"two small ones through memory",
     {ALLREDUCE(NULL, 100, -1), ALLREDUCE(NULL, 99, -1)},
     {false, false},
     {"of 400 bytes", "of 396 bytes"}},
    // One through memory, one by messages.
    {"memory and messages that come",
     {ALLREDUCE("direct", MOST, 2), ALLREDUCE("ring", MOST, 2)},
     {true, false},
     {"allreduce direct", "allreduce ring"}},
    {"memory and messages that do not come",
     {ALLREDUCE("direct", MOST, 2), BROADCAST("tree", MOST, 0)},
     {true, false},
     {"allreduce direct", "broadcast tree"}},
    {0},
};

sh_status engine_differs(sh_engine *engine, void *argument) {
    engine_dispute *job = argument;
    int rank = sh_engine_rank(engine), side = rank == 1;
    sh_shared shared;
    SH_TRY(sh_engine_share(engine, MOST * sizeof(float), &shared));
    sh_call call = job->row->call[side];
    call.data = shared.base[rank];
    call.shared = job->row->shared[side] ? &shared : NULL;
    sh_status status = sh_engine_run(engine, &call);
    // Whoever had nothing to wait for hears of it in the next call.
    sh_call next = SH_CALL(.what = SH_BARRIER, .algorithm = "dissemination");
    if (status == SH_OK) status = sh_engine_run(engine, &next);
    if (status != SH_OK)
        snprintf(job->text[rank], sizeof job->text[rank], "%s", sh_error_last()->text);
    // Under MPI that is collective, and a failed job ends as a whole anyway.
    bool alone = strcmp(sh_engine_transport(engine), "shm") == 0;
    if (status == SH_OK || alone) sh_engine_unshare(engine, &shared);
    return status;
}
