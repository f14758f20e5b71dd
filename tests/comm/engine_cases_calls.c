/* The other collectives, on all ranks and on groups, and many calls under way. */
#include <string.h>

#include "base/memory.h"
#include "comm/engine_cases.h"

#define EXPECT(condition, ...) \
    if (!(condition)) return SH_FAIL(SH_E_NUMERIC, __VA_ARGS__)

enum { MOST = 20000 };  // elements; above what travels inside an announcement
static const size_t sizes[] = {0, 1, 17, 1000, 19999};

/* The memory that one collective works on; private, or this rank's part of `shared`. */
typedef struct place {
    int64_t *data, *source;
    const sh_shared *shared;
    sh_group *group;
    const int *member;  // NULL: all ranks
    int rank, ranks;    // in the group
} place;

static int member_of(const place *p, int rank) {
    return p->member != NULL ? p->member[rank] : rank;
}

static sh_call call_of(const place *p, sh_collective what, const char *algorithm, size_t count) {
    return (sh_call){.what = what,
                     .algorithm = algorithm,
                     .group = p->group,
                     .data = p->data,
                     .source = p->source,
                     .count = count,
                     .dtype = SH_DTYPE_I64,
                     .shared = p->shared,
                     .bucket = -1};
}

static sh_status reduce_scatter(sh_engine *engine, const place *p, const char *name, size_t count) {
    sh_range own = sh_block_range(count, p->ranks, p->rank);
    for (int op = SH_SUM; op <= SH_PRODUCT; op++) {
        engine_fill(p->data, SH_DTYPE_I64, (sh_reduce_op)op, member_of(p, p->rank), count);
        sh_call call = call_of(p, SH_REDUCE_SCATTER, name, count);
        call.op = (sh_reduce_op)op;
        SH_TRY(sh_engine_run(engine, &call));
        SH_TRY(engine_check(p->data, SH_DTYPE_I64, (sh_reduce_op)op, p->member, p->ranks, own.first,
                            own.count, "reduce-scatter"));
    }
    return SH_OK;
}

static sh_status allgather(sh_engine *engine, const place *p, const char *name, size_t count) {
    sh_range own = sh_block_range(count, p->ranks, p->rank);
    memset(p->data, 0xAA, count * sizeof *p->data);
    for (size_t i = 0; i < own.count; i++) p->data[own.first + i] = (int64_t)(own.first + i) * 3;
    sh_call call = call_of(p, SH_ALLGATHER, name, count);
    SH_TRY(sh_engine_run(engine, &call));
    for (size_t i = 0; i < count; i++)
        EXPECT(p->data[i] == (int64_t)i * 3, "allgather: element %zu of %zu", i, count);
    return SH_OK;
}

static sh_status broadcast(sh_engine *engine, const place *p, const char *name, size_t count) {
    for (int root = 0; root < p->ranks; root += 2) {
        for (size_t i = 0; i < count; i++) p->data[i] = (int64_t)i + 1000 * p->rank;
        sh_call call = call_of(p, SH_BROADCAST, name, count);
        call.root = root;
        SH_TRY(sh_engine_run(engine, &call));
        for (size_t i = 0; i < count; i++)
            EXPECT(p->data[i] == (int64_t)i + 1000 * root, "broadcast from %d: element %zu of %zu",
                   root, i, count);
    }
    return SH_OK;
}

static sh_status alltoall(sh_engine *engine, const place *p, const char *name, size_t count) {
    size_t each = count / (size_t)p->ranks;
    count = each * (size_t)p->ranks;
    for (size_t i = 0; i < count; i++) p->source[i] = (int64_t)i + 1000000 * p->rank;
    memset(p->data, 0xAA, count * sizeof *p->data);
    sh_call call = call_of(p, SH_ALLTOALL, name, count);
    SH_TRY(sh_engine_run(engine, &call));
    for (size_t i = 0; i < count; i++) {
        int from = (int)(i / each);
        int64_t wanted = (int64_t)((size_t)p->rank * each + i % each) + 1000000 * from;
        EXPECT(p->data[i] == wanted, "alltoall: element %zu of %zu", i, count);
    }
    return SH_OK;
}

static sh_status barrier(sh_engine *engine, const place *p, const char *name, size_t count) {
    (void)count;
    sh_call call = call_of(p, SH_BARRIER, name, 0);
    return sh_engine_run(engine, &call);
}

static sh_status collective(sh_engine *engine, const place *p, sh_collective what, const char *name,
                            size_t count) {
    switch (what) {
        case SH_REDUCE_SCATTER:
            return reduce_scatter(engine, p, name, count);
        case SH_ALLGATHER:
            return allgather(engine, p, name, count);
        case SH_BROADCAST:
            return broadcast(engine, p, name, count);
        case SH_ALLTOALL:
            return alltoall(engine, p, name, count);
        case SH_BARRIER:
            return barrier(engine, p, name, count);
        case SH_ALLREDUCE:
            break;
    }
    return SH_OK;
}

/* Every algorithm, and the engine's own choice, on every size. */
static sh_status all_collectives(sh_engine *engine, const place *p) {
    const sh_algorithm *algorithm;
    for (size_t a = 0; (algorithm = sh_algorithm_at(a)) != NULL; a++)
        for (size_t s = 0; !algorithm->native && s < SH_COUNT(sizes); s++)
            SH_TRY(collective(engine, p, algorithm->does, algorithm->name, sizes[s]));
    for (int what = 0; what < SH_COLLECTIVES; what++)
        for (size_t s = 0; s < SH_COUNT(sizes); s++)
            SH_TRY(collective(engine, p, (sh_collective)what, NULL, sizes[s]));
    return SH_OK;
}

/* On private and on shared memory. */
static sh_status everywhere(sh_engine *engine, const place *where) {
    sh_shared shared;
    SH_TRY(sh_engine_share(engine, 2 * MOST * sizeof(int64_t), &shared));
    int64_t *private = sh_alloc(2 * MOST, sizeof *private);
    int64_t *mine = (int64_t *)(void *)shared.base[sh_engine_rank(engine)];
    SH_ASSERT(private != NULL);
    sh_status status = SH_OK;
    if (where->ranks > 0) {
        place p = *where;
        p.data = private;
        p.source = private + MOST;
        SH_TRY_OUT(all_collectives(engine, &p));
        p.data = mine;
        p.source = mine + MOST;
        p.shared = &shared;
        SH_TRY_OUT(all_collectives(engine, &p));
    }
    SH_TRY_OUT(sh_engine_barrier(engine));
out:
    sh_free(private);
    if (status == SH_OK) sh_engine_unshare(engine, &shared);
    return status;
}

sh_status engine_collectives(sh_engine *engine, void *argument) {
    (void)argument;
    return everywhere(engine,
                      &(place){.rank = sh_engine_rank(engine), .ranks = sh_engine_ranks(engine)});
}

/* Two groups side by side, and a third of ranks of both, in another order. */
sh_status engine_groups(sh_engine *engine, void *argument) {
    (void)argument;
    static const int even[] = {0, 2, 4}, odd[] = {3, 1}, mixed[] = {4, 1, 0, 3};
    int rank = sh_engine_rank(engine);
    for (int round = 0; round < 3; round++) {
        sh_group *half = NULL, *cross = NULL;
        const int *member = rank % 2 == 0 ? even : odd;
        int count = rank % 2 == 0 ? 3 : 2;
        SH_TRY(sh_group_create(engine, member, count, &half));
        SH_TRY(sh_group_create(engine, mixed, 4, &cross));
        EXPECT((cross == NULL) == (rank == 2), "rank %d and the group it is not in", rank);
        place p = {.group = half, .member = member, .ranks = count};
        while (member[p.rank] != rank) p.rank++;
        SH_TRY(everywhere(engine, &p));
        p = (place){.group = cross, .member = mixed, .ranks = cross != NULL ? 4 : 0};
        while (cross != NULL && mixed[p.rank] != rank) p.rank++;
        SH_TRY(everywhere(engine, &p));
        sh_group_destroy(cross);
        // The first round's id is taken again, the second's stays in use.
        if (round != 1) sh_group_destroy(half);
    }
    return SH_OK;
}

/* Neighbours on a ring of five, then four of them: a rank is in two groups or three. */
enum { RING = 5, OVERLAPS = RING + 1, OVERLAP_SUM = 300, OVERLAP_TIMEOUT_S = 20 };

typedef struct overlap {
    sh_group *group;
    int member[4], count;
    int64_t data[OVERLAP_SUM];
    sh_call call;
} overlap;

static sh_status make_overlap(sh_engine *engine, int index, overlap *made) {
    static const int wide[] = {4, 2, 0, 1};
    made->count = index < RING ? 2 : 4;
    for (int i = 0; i < made->count; i++)
        made->member[i] = index < RING ? (index + i) % RING : wide[i];
    return sh_group_create(engine, made->member, made->count, &made->group);
}

/* A call of every group under way at once, on every rank in the order of the groups; then more
 * calls, of some groups more than of others. */
static sh_status sum_overlaps(sh_engine *engine, overlap groups[OVERLAPS]) {
    static const char *const names[] = {NULL, "ring", NULL, "tree"};
    for (int n = 0; n < 4 + OVERLAPS; n++) {
        for (int i = n < 4 ? 0 : n - 4; i < OVERLAPS; i++) {
            overlap *o = &groups[i];
            if (o->group == NULL) continue;
            engine_fill(o->data, SH_DTYPE_I64, SH_SUM, sh_engine_rank(engine), OVERLAP_SUM);
            o->call = (sh_call){.what = SH_ALLREDUCE,
                                .algorithm = names[n % 4],
                                .group = o->group,
                                .data = o->data,
                                .count = OVERLAP_SUM,
                                .dtype = SH_DTYPE_I64,
                                .bucket = -1};
            SH_TRY(sh_engine_start(engine, &o->call));
        }
        for (int i = n < 4 ? 0 : n - 4; i < OVERLAPS; i++) {
            overlap *o = &groups[i];
            if (o->group == NULL) continue;
            SH_TRY(sh_engine_wait(engine, &o->call));
            SH_TRY(engine_check(o->data, SH_DTYPE_I64, SH_SUM, o->member, o->count, 0, OVERLAP_SUM,
                                "a sum of one of several groups"));
        }
    }
    return SH_OK;
}

/* Which ids are free differs from rank to rank, in each round in another way. */
sh_status engine_overlapping_groups(sh_engine *engine, void *argument) {
    (void)argument;
    overlap groups[OVERLAPS];
    memset(groups, 0, sizeof groups);
    sh_engine_set_timeout(engine, OVERLAP_TIMEOUT_S * INT64_C(1000000000));
    for (int round = 0; round < 4; round++) {
        for (int k = 0; k < OVERLAPS; k++) {
            int index = (round * 2 + k) % OVERLAPS;
            if (round == 0 || index % 2 == round % 2)
                SH_TRY(make_overlap(engine, index, &groups[index]));
        }
        SH_TRY(sum_overlaps(engine, groups));
        for (int i = 0; i < OVERLAPS; i++) {
            if (round < 3 && i % 2 == round % 2) continue;
            sh_group_destroy(groups[i].group);
            groups[i].group = NULL;
        }
    }
    return sh_engine_barrier(engine);
}

enum { CALLS = 40 };

sh_status engine_many_at_once(sh_engine *engine, void *argument) {
    bool polls = *(bool *)argument;
    int rank = sh_engine_rank(engine), ranks = sh_engine_ranks(engine);
    static const char *const names[] = {NULL, "ring", "tree", "direct", "halving-doubling"};
    sh_shared shared;
    SH_TRY(sh_engine_share(engine, CALLS * 3000 * sizeof(float), &shared));
    float *data = (float *)(void *)shared.base[rank];
    sh_call calls[CALLS];
    for (int i = 0; i < CALLS; i++) {
        size_t count = (size_t)i * 70;
        engine_fill(data + i * 3000, SH_DTYPE_F32, SH_SUM, rank, count);
        calls[i] = (sh_call){.what = SH_ALLREDUCE,
                             .algorithm = names[i % (int)SH_COUNT(names)],
                             .data = data + i * 3000,
                             .count = count,
                             .shared = i % 3 == 0 ? &shared : NULL,
                             .step = 7,
                             .bucket = i};
        SH_TRY(sh_engine_start(engine, &calls[i]));
        if (polls && rank % 2 == 0) sh_engine_poll(engine);
    }
    // Each rank ends them in another order.
    for (int k = 0; k < CALLS; k++) {
        int i = (k * 7 + rank * 11) % CALLS;
        while (polls && !sh_engine_test(engine, &calls[i])) sh_engine_poll(engine);
        SH_TRY(sh_engine_wait(engine, &calls[i]));
        SH_TRY(engine_check(data + i * 3000, SH_DTYPE_F32, SH_SUM, NULL, ranks, 0, calls[i].count,
                            "one of many"));
        EXPECT(calls[i].status == SH_OK && calls[i].end_ns >= calls[i].start_ns, "call %d", i);
    }
    SH_TRY(sh_engine_barrier(engine));
    sh_engine_unshare(engine, &shared);
    return SH_OK;
}
