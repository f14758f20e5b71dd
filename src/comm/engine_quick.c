/* The quick way: a small all-reduce or barrier that is run, not started, and finds nothing else
 * under way. The same stages without queues, and the clock is not read. */
#include "base/task.h"
#include "comm/engine_direct.h"

static bool is_quick(const sh_engine *engine, const sh_group *group, const sh_call *call,
                     size_t bytes) {
    const sh_direct *direct = &group->direct;
    bool plain = call->algorithm == NULL && engine->forced == NULL && engine->status == SH_OK &&
                 sh_way_of(call, bytes) != SH_WAY_PARTS &&
                 (call->what == SH_ALLREDUCE || call->what == SH_BARRIER) &&
                 bytes <= SH_QUICK_BYTES && (call->shared != NULL || bytes <= SH_SMALL_BYTES);
    return plain && direct->area != NULL && direct->first == NULL &&
           direct->ended == direct->announced && call->dtype != SH_DTYPE_BYTE;
}

/* Spins a while for `reached`; most peers of a small call are there at once. With fewer cores than
 * ranks a peer may need this core, so it is offered instead. */
#define SPIN_FOR(engine, reached)                                 \
    ({                                                            \
        bool crowded_ = (engine)->transport->ranks_per_core > 1;  \
        int tries_ = crowded_ ? SH_QUICK_YIELDS : SH_QUICK_SPINS; \
        bool reached_ = (reached);                                \
        for (; !reached_ && tries_ > 0; tries_--) {               \
            if (crowded_)                                         \
                sh_task_yield();                                  \
            else                                                  \
                sh_pause();                                       \
            reached_ = (reached);                                 \
        }                                                         \
        reached_;                                                 \
    })

/* Both stages of a piece as far as peers are there; true: it has ended. */
static bool pass_quickly(sh_engine *engine, sh_group *group, sh_piece *piece, uint64_t number) {
    sh_direct *direct = &group->direct;
    if (!SPIN_FOR(engine, sh_all_arrived(group, number) > 0)) return false;
    direct->arrived_at = 0;
    sh_direct_use(engine, group, piece, number);
    direct->reduced = number;
    sh_tell_done(engine, group, number);
    if (piece->way == SH_WAY_SMALL) return true;
    sh_engine_wake(engine, group);
    return SPIN_FOR(engine, sh_all_done(group, number));
}

bool sh_direct_quick(sh_engine *engine, sh_call *call) {
    sh_group *group = sh_call_group(engine, call);
    sh_direct *direct = &group->direct;
    size_t bytes = call->count * sh_dtype_bytes(call->dtype);
    if (!is_quick(engine, group, call, bytes)) return false;
    uint64_t number = direct->announced + 1, offset = 0;
    if (!sh_announcement_is_free(direct, group, number)) return false;
    sh_way way = sh_way_of(call, bytes);
    if (way == SH_WAY_MAPPED) {
        offset = (uint64_t)((char *)call->data - call->shared->base[engine->transport->rank]);
        if (offset > call->shared->bytes || bytes > call->shared->bytes - offset) return false;
    }
    sh_stamp stamp = sh_stamp_of(call, way);
    if (way == SH_WAY_SMALL)
        sh_announce_small(engine, group, number, stamp, call);
    else
        sh_publish(engine, group, number, stamp, offset);
    // Peers see the announcement first: books are kept while it travels.
    sh_agree_begin(engine, group, stamp);
    sh_piece *piece = sh_piece_at(direct, number);
    *piece = (sh_piece){
        .call = call, .count = call->count, .stamp = stamp, .chunk = -1, .way = way, .last = true};
    direct->announced = number;
    call->sent_bytes = call->messages = 0;
    call->status = SH_OK;
    call->start_ns = engine->now_ns;
    call->done = false;
    engine->under_way++;
    bool ended = pass_quickly(engine, group, piece, number);
    // Afterwards, as it waits for all stores to be visible.
    sh_call_record(engine, call, NULL);
    if (!ended) return true;
    direct->ended = number;
    sh_count_traffic(call, group, piece);
    sh_call_finish(engine, call, SH_OK);
    return true;
}
