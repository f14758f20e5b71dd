/* Groups of ranks. The ranks of a new group agree on its id: the lowest that is free on all of
 * them, so no rank is ever in two groups of one id, and tags and flags of the id are the group's
 * own. They also agree where the numbers of its pieces go on, because its flags keep what earlier
 * groups of its id left there. */
#include <string.h>

#include "comm/engine_internal.h"

/* What ranks tell each other; joining twice changes nothing. */
typedef struct agreement {
    uint64_t used;   // ids: a bit is set if any rank uses it
    uint64_t piece;  // the highest number in any flags, over all ids
} agreement;

/* Dissemination: after round k everyone knows what 2^(k+1) ranks before it know. */
static sh_status agree(sh_engine *engine, const sh_group *group, agreement *own) {
    uint32_t hash = 2166136261u;
    for (int i = 0; i < group->ranks; i++)
        hash = (hash ^ (uint32_t)sh_group_member(group, i)) * 16777619u;
    for (int far = 1; far < group->ranks; far *= 2) {
        agreement sent = *own, got = {0};
        int to = (group->rank + far) % group->ranks;
        int from = (group->rank + group->ranks - far) % group->ranks;
        sh_message receive = {.peer = sh_group_member(group, from),
                              .tag = SH_TAG_ENGINE | hash,
                              .data = &got,
                              .bytes = sizeof got};
        sh_message send = {.peer = sh_group_member(group, to),
                           .tag = SH_TAG_ENGINE | hash,
                           .data = &sent,
                           .bytes = sizeof sent};
        SH_TRY(sh_receive(engine->transport, &receive));
        sh_status status = sh_send(engine->transport, &send);
        if (status != SH_OK) sh_cancel(engine->transport, &receive);
        SH_TRY(status);
        status = sh_engine_await_message(engine, &receive);
        if (status != SH_OK) sh_cancel(engine->transport, &send);
        SH_TRY(status);
        SH_TRY(sh_engine_await_message(engine, &send));
        own->used |= got.used;
        if (got.piece > own->piece) own->piece = got.piece;
    }
    return SH_OK;
}

static void link_group(sh_engine *engine, sh_group *group, int id) {
    group->id = id;
    engine->group_ids |= UINT64_C(1) << id;
    group->next = engine->groups;
    engine->groups = group;
}

static sh_status find_places(const sh_engine *engine, sh_group *group) {
    const sh_transport *transport = engine->transport;
    group->lent_places =
        group->member == NULL && transport->places != NULL && group->ranks == transport->ranks;
    if (group->lent_places) {
        group->places = transport->places->nodes > 1 ? transport->places : NULL;
        return SH_OK;
    }
    int *node = sh_alloc((size_t)group->ranks, sizeof *node);
    if (node == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a group");
    bool one = true;
    for (int i = 0; i < group->ranks; i++) {
        node[i] = engine->transport->node[sh_group_member(group, i)];
        one &= node[i] == node[0];
    }
    sh_status status = SH_OK;
    sh_places *places = NULL;
    if (!one) status = sh_places_create(node, group->ranks, &places);
    group->places = places;
    sh_free(node);
    return status;
}

static void free_group(sh_group *group) {
    if (!group->lent_places) sh_places_destroy((sh_places *)(uintptr_t)group->places);
    sh_free(group->direct.area);
    sh_free(group->member);
    sh_free(group);
}

/* A simulated rank must not cost memory that grows with their number, so all ranks are not listed.
 */
static sh_status list_members(const sh_engine *engine, const int *ranks, sh_group *group) {
    if (ranks == NULL) {
        group->rank = engine->transport->rank;
        return SH_OK;
    }
    size_t count = (size_t)group->ranks;
    group->member = sh_alloc(count, sizeof *group->member);
    if (group->member == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a group of %d ranks", group->ranks);
    memcpy(group->member, ranks, count * sizeof *ranks);
    for (int i = 0; i < group->ranks; i++)
        if (ranks[i] == engine->transport->rank) group->rank = i;
    return SH_OK;
}

static sh_status make_group(sh_engine *engine, const int *ranks, int count, sh_group **group_out) {
    sh_group *group = sh_alloc(1, sizeof *group);
    if (group == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a group");
    group->engine = engine;
    sh_agree_init(group);
    group->ranks = count;
    group->rank = -1;
    sh_status status = list_members(engine, ranks, group);
    if (status == SH_OK) status = find_places(engine, group);
    if (status == SH_OK) status = sh_direct_join(engine, group);
    if (status != SH_OK) {
        free_group(group);
        return status;
    }
    *group_out = group;
    return SH_OK;
}

sh_status sh_group_init(sh_engine *engine, const int *ranks, int count, int id, sh_group **out) {
    sh_group *group;
    SH_TRY(make_group(engine, ranks, count, &group));
    link_group(engine, group, id);
    *out = group;
    return SH_OK;
}

void sh_group_free(sh_group *group) {
    sh_engine *engine = group->engine;
    sh_group **at = &engine->groups;
    while (*at != group) at = &(*at)->next;
    *at = group->next;
    engine->group_ids &= ~(UINT64_C(1) << group->id);
    if (group->direct.announced > engine->pieces) engine->pieces = group->direct.announced;
    free_group(group);
}

typedef struct create_job {
    const int *ranks;
    int count;
    sh_group *group;
} create_job;

static sh_status create(sh_engine *engine, void *argument) {
    create_job *job = argument;
    sh_group *group;
    SH_TRY(sh_engine_drain(engine));
    SH_TRY(make_group(engine, job->ranks, job->count, &group));
    agreement own = {.used = engine->group_ids, .piece = engine->pieces};
    sh_status status = agree(engine, group, &own);
    int id = 0;
    while (id < SH_GROUPS && own.used >> id & 1) id++;
    if (status == SH_OK && id == SH_GROUPS)
        status = SH_FAIL(SH_E_UNSUPPORTED, "a rank can be in %d groups at most", SH_GROUPS);
    if (status != SH_OK) {
        free_group(group);
        return status;
    }
    link_group(engine, group, id);
    group->direct.announced = group->direct.reduced = group->direct.ended = own.piece;
    group->direct.all_done = own.piece;
    if (group->direct.area != NULL)
        atomic_store_explicit(&engine->area->flags[id].done, own.piece, memory_order_release);
    job->group = group;
    return SH_OK;
}

static sh_status check_ranks(const sh_engine *engine, const int *ranks, int count) {
    int most = sh_engine_ranks(engine);
    if (count < 1 || count > most)
        return SH_FAIL(SH_E_USAGE, "a group of %d of %d ranks", count, most);
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= most)
            return SH_FAIL(SH_E_USAGE, "rank %d in a group of a run of %d ranks", ranks[i], most);
        for (int k = 0; k < i; k++)
            if (ranks[k] == ranks[i])
                return SH_FAIL(SH_E_USAGE, "rank %d is twice in a group", ranks[i]);
    }
    return SH_OK;
}

sh_status sh_group_create(sh_engine *engine, const int *ranks, int count, sh_group **group_out) {
    SH_TRY(check_ranks(engine, ranks, count));
    bool inside = false;
    for (int i = 0; i < count; i++) inside |= ranks[i] == sh_engine_rank(engine);
    create_job job = {.ranks = ranks, .count = count};
    if (inside) SH_TRY(sh_engine_job(engine, create, &job));
    *group_out = job.group;
    return SH_OK;
}

sh_status sh_group_twin(const sh_group *group, sh_group **twin_out) {
    size_t count = (size_t)group->ranks;
    int *ranks = sh_alloc(count, sizeof *ranks);
    if (ranks == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a group of %zu ranks", count);
    for (size_t i = 0; i < count; i++) ranks[i] = sh_group_member(group, (int)i);
    sh_status status = sh_group_create(group->engine, ranks, (int)count, twin_out);
    sh_free(ranks);
    return status;
}

static sh_status destroy(sh_engine *engine, void *argument) {
    (void)engine;
    sh_group_free(argument);
    return SH_OK;
}

void sh_group_destroy(sh_group *group) {
    if (group != NULL) sh_engine_job(group->engine, destroy, group);
}

sh_group *sh_engine_world(const sh_engine *engine) { return engine->world; }

int sh_group_rank(const sh_group *group) { return group->rank; }

int sh_group_ranks(const sh_group *group) { return group->ranks; }

sh_engine *sh_group_engine(const sh_group *group) { return group->engine; }

sh_status sh_group_start(sh_group *group, sh_call *call) {
    call->group = group;
    return sh_engine_start(group->engine, call);
}

sh_status sh_group_run(sh_group *group, sh_call *call) {
    call->group = group;
    return sh_engine_run(group->engine, call);
}

sh_status sh_group_barrier(sh_group *group) {
    sh_call call = SH_CALL(.what = SH_BARRIER);
    return sh_group_run(group, &call);
}

bool sh_group_test(sh_group *group, sh_call *call) { return sh_engine_test(group->engine, call); }

sh_status sh_group_wait(sh_group *group, sh_call *call) {
    return sh_engine_wait(group->engine, call);
}

/* ---- Memory of a group ------------------------------------------------------------------------
 */

static bool is_whole(const sh_group *group) { return group == group->engine->world; }

static sh_status take_private(const sh_group *group, size_t bytes, sh_shared *shared_out) {
    const sh_transport *transport = group->engine->transport;
    char **base = sh_alloc((size_t)transport->ranks, sizeof *base);
    char *own = sh_alloc(bytes > 0 ? bytes : 1, 1);
    if (base == NULL || own == NULL) {
        sh_free(base);
        sh_free(own);
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu bytes of a group", bytes);
    }
    base[transport->rank] = own;
    *shared_out = (sh_shared){.bytes = bytes, .base = base};
    return SH_OK;
}

sh_status sh_group_share(sh_group *group, size_t bytes, sh_shared *shared_out) {
    if (is_whole(group)) return sh_engine_share(group->engine, bytes, shared_out);
    return take_private(group, bytes, shared_out);
}

void sh_group_unshare(sh_group *group, sh_shared *shared) {
    if (shared->base == NULL) return;
    if (shared->own != NULL) {
        sh_engine_unshare(group->engine, shared);
        return;
    }
    sh_free(shared->base[group->engine->transport->rank]);
    sh_free(shared->base);
    *shared = (sh_shared){0};
}

void *sh_group_memory(const sh_group *group, const sh_shared *shared) {
    return shared->base[group->engine->transport->rank];
}

const sh_shared *sh_group_mapped(const sh_shared *shared) {
    return shared->base != NULL && shared->own != NULL ? shared : NULL;
}

bool sh_group_maps(const sh_group *group) {
    return is_whole(group) && sh_engine_maps(group->engine);
}
