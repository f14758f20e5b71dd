/* All ranks of a group start the same calls in the same order, and whoever does not is told at once
 * what its peer started instead.
 *
 * Calls are numbered per group. What a call is (sh_stamp) travels with each of its messages and
 * lies in each announcement. A receiver looks at every message that comes in, wanted or not: it
 * compares the stamp with its own call of that number, or keeps it until it starts that call. Two
 * ranks may also wait for each other without any message between them, so a rank that has waited
 * for some time tells the peer it waits for what it is in: a notice, an empty message that only
 * this file sees. Whoever finds a difference tells its peer before it fails, so that both can name
 * both.
 *
 * Cost: two words per message, some nanoseconds per call; notices only while nothing moves. */
#include <inttypes.h>
#include <stdio.h>

#include "comm/engine_internal.h"

static const uint32_t no_call = SH_NO_CALL;
static const uint64_t tag_notice = UINT64_C(1) << 47;

unsigned sh_stamp_how(const sh_algorithm *algorithm) {
    unsigned index = 0;
    while (sh_algorithm_at(index) != algorithm) index++;
    return SH_WAYS + index;
}

uint64_t sh_call_tag(const sh_group *group, uint32_t number) {
    return (uint64_t)group->id << 40 | (uint64_t)(number & SH_CALL_MASK) << 20;
}

/* ---- In words -------------------------------------------------------------------------------- */

static const char *how_name(unsigned how) {
    if (how < SH_WAYS) return "direct";
    const sh_algorithm *algorithm = sh_algorithm_at(how - SH_WAYS);
    return algorithm != NULL ? algorithm->name : "unknown";
}

/* "allreduce ring of bucket 2, 4096 bytes (float32, sum)" */
static void tell(const sh_group *group, sh_stamp stamp, char *text_out, size_t size) {
    static const char *const types[SH_DTYPES] = {"float32", "float64", "int32", "int64",
                                                 "float16", "bf16",    "bytes"};
    static const char *const ops[SH_REDUCE_OPS] = {"sum", "mean", "max", "min", "product"};
    sh_collective what = (sh_collective)(stamp.kind & 0xFF);
    unsigned dtype = stamp.kind >> 16 & 0xFF, op = stamp.kind >> 24 & 0xFF;
    if ((unsigned)what >= SH_COLLECTIVES || dtype >= SH_DTYPES || op >= SH_REDUCE_OPS) {
        snprintf(text_out, size, "something of another program");
        return;
    }
    int bucket = (int)(int32_t)(stamp.kind >> 32), root = (int)(stamp.extent >> 44);
    uint64_t bytes = (stamp.extent & ((UINT64_C(1) << 44) - 1)) * sh_dtype_bytes((sh_dtype)dtype);
    char of[32] = "", detail[64] = "";
    if (bucket >= 0) snprintf(of, sizeof of, "bucket %d, ", bucket);
    if (what == SH_ALLREDUCE || what == SH_REDUCE_SCATTER)
        snprintf(detail, sizeof detail, " (%s, %s)", types[dtype], ops[op]);
    else if (what == SH_BROADCAST)
        snprintf(detail, sizeof detail, " (%s, from rank %d)", types[dtype],
                 root < group->ranks ? sh_group_member(group, root) : root);
    else if (what != SH_BARRIER)
        snprintf(detail, sizeof detail, " (%s)", types[dtype]);
    snprintf(text_out, size, "%s %s of %s%" PRIu64 " bytes%s", sh_collective_name(what),
             how_name(stamp.kind >> 8 & 0xFF), of, bytes, detail);
}

/* ---- Differences ----------------------------------------------------------------------------- */

void sh_agree_differ(sh_engine *engine, sh_group *group, sh_started theirs, sh_started ours) {
    if (engine->mismatch.group != NULL) return;  // the first is what is told
    engine->mismatch = (sh_mismatch){.group = group, .theirs = theirs, .ours = ours};
}

void sh_agree_tell(sh_engine *engine, const sh_group *group, int peer, const sh_started *said,
                   sh_message *notice_out) {
    *notice_out = (sh_message){
        .peer = peer, .tag = sh_call_tag(group, said->number) | tag_notice, .stamp = said->stamp};
    if (sh_send(engine->transport, notice_out) != SH_OK) notice_out->state = SH_MESSAGE_FAILED;
}

sh_status sh_agree_settle(sh_engine *engine) {
    const sh_mismatch *mismatch = &engine->mismatch;
    if (mismatch->group == NULL) return SH_OK;
    if (engine->status != SH_OK) return sh_error_adopt(&engine->error);
    // Peers that announce see it themselves.
    bool tells = mismatch->ours.rank == engine->transport->rank &&
                 mismatch->ours.number != no_call && engine->notice.state != SH_MESSAGE_PENDING;
    if (tells)
        sh_agree_tell(engine, mismatch->group, mismatch->theirs.rank, &mismatch->ours,
                      &engine->notice);
    char theirs[160], ours[160];
    tell(mismatch->group, mismatch->theirs.stamp, theirs, sizeof theirs);
    tell(mismatch->group, mismatch->ours.stamp, ours, sizeof ours);
    SH_FAIL(SH_E_SHAPE, "rank %d started %s where rank %d started %s", mismatch->theirs.rank,
            theirs, mismatch->ours.rank, ours);
    return sh_engine_fail(
        engine, sh_error_hint("all ranks of a group must start the same calls in the same order"));
}

sh_status sh_engine_health(sh_engine *engine) {
    sh_status status = sh_transport_health(engine->transport);
    // A peer that left may have said before that it started something else: the better answer.
    if (engine->mismatch.group != NULL) return sh_agree_settle(engine);
    return status;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

void sh_agree_init(sh_group *group) {
    for (int i = 0; i < SH_RECENT; i++) group->own[i].number = group->early[i].number = no_call;
}

void sh_agree_compare(sh_engine *engine, sh_group *group, sh_started own) {
    sh_started *early = &group->early[own.number % SH_RECENT];
    if (!sh_stamp_equal(early->stamp, own.stamp)) sh_agree_differ(engine, group, *early, own);
    early->number = no_call;
}

static bool is_ahead(const sh_group *group, uint32_t number) {
    return ((number - group->calls) & SH_CALL_MASK) < SH_RECENT;
}

static bool on_arrival(void *user, int peer, uint64_t tag, sh_stamp stamp) {
    sh_engine *engine = user;
    if ((tag & SH_TAG_ENGINE) == SH_TAG_ENGINE) return false;
    bool notice = (tag & tag_notice) != 0;
    sh_group *group = engine->groups;
    while (group != NULL && group->id != (int)(tag >> 40 & 0x7F)) group = group->next;
    if (group == NULL) return notice;
    uint32_t number = tag >> 20 & SH_CALL_MASK;
    sh_started said = {.number = number, .rank = peer, .stamp = stamp};
    sh_started *own = &group->own[number % SH_RECENT], *early = &group->early[number % SH_RECENT];
    if (own->number == number) {
        if (!sh_stamp_equal(own->stamp, said.stamp)) sh_agree_differ(engine, group, said, *own);
    } else if (is_ahead(group, number)) {
        if (early->number != number)
            *early = said;
        else if (!sh_stamp_equal(early->stamp, said.stamp))
            sh_agree_differ(engine, group, said, *early);
    }
    return notice;
}

void sh_agree_watch(sh_engine *engine) {
    engine->transport->on_arrival = on_arrival;
    engine->transport->on_arrival_user = engine;
}
