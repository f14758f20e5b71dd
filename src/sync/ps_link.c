#include "sync/ps_elastic.h"
#include "sync/ps_exact.h"
#include "tensor/kernels/vector.h"

/* ---- Asking ---- */

float *ps_pushed_block(const sh_sync *sync, const ps_worker *w) {
    if (w->sum != NULL) return w->sum;
    return w->policy.elastic > 0 ? sync->replica->weights : sync->replica->gradients;
}

float *ps_pulled_block(const sh_sync *sync, const ps_worker *w) {
    return w->policy.elastic > 0 ? w->centre : sync->replica->weights;
}

/* Where the shard lies in a block, or the link's own memory that holds it. */
float *ps_place_of(const ps_link *link, float *block, float *own) {
    if (block == NULL || link->shard.params.count == 0) return NULL;
    return link->shard.straight ? block + link->shard.origin[0] : own;
}

sh_status ps_start(sh_replica *replica, sh_message *message, bool sends, int server, uint64_t tag,
                   void *data, size_t bytes) {
    *message =
        (sh_message){.peer = replica->ranks + server, .tag = tag, .data = data, .bytes = bytes};
    return sends ? sh_mail_send(&replica->mail, message) : sh_mail_receive(&replica->mail, message);
}

sh_status ps_expect_head(sh_replica *replica, ps_link *link, int server) {
    return ps_start(replica, &link->head, false, server, SH_PS_ANSWER, &link->reply,
                    sizeof link->reply);
}

/* Receives are started before the request is sent: what comes finds its place at once. */
sh_status ps_expect(sh_sync *sync, ps_worker *w, int server, float *block, bool pulls) {
    ps_link *link = &w->links[server];
    bool coded = pulls && link->pull.codec.kind != NULL;
    sh_replica *replica = sync->replica;
    SH_TRY(ps_expect_head(replica, link, server));
    void *data = coded ? (void *)link->pull.message : (void *)ps_place_of(link, block, link->pulls);
    return ps_start(replica, &link->values, false, server, SH_PS_VALUES, data,
                    coded ? link->pull.bytes : sh_ps_shard_bytes(&link->shard));
}

/* Integers, instead of the gradient. */
static sh_status push_exact(sh_sync *sync, ps_link *link, int server) {
    sh_replica *replica = sync->replica;
    ps_exact_pack(&link->shard, replica->params, replica->fixed, link->integers);
    replica->counts.sent_bytes += link->push.bytes;
    replica->counts.dense_bytes += link->push.bytes;
    return ps_start(replica, &link->pushed, true, server, SH_PS_PUSHED, link->integers,
                    link->push.bytes);
}

/* What is pushed, as it travels. */
static sh_status write_push(const sh_sync *sync, ps_worker *w, ps_link *link, void **message_out) {
    const sh_replica *replica = sync->replica;
    bool coded = link->push.codec.kind != NULL, empty = link->shard.params.count == 0;
    float *block = ps_pushed_block(sync, w);
    float *data = ps_place_of(link, block, link->pushes);
    *message_out = coded ? (void *)link->push.message : (void *)data;
    if (block == NULL || empty) return SH_OK;
    if (w->seen != NULL) return ps_elastic_write(sync, w, link);
    if (!link->shard.straight) sh_ps_shard_take(&link->shard, block, data);
    if (coded) sh_ps_encode(&link->push, replica->rank, replica->step, data);
    return SH_OK;
}

static sh_status push(sh_sync *sync, ps_worker *w, int server) {
    ps_link *link = &w->links[server];
    if (link->integers != NULL) return push_exact(sync, link, server);
    void *message = NULL;
    SH_TRY(write_push(sync, w, link, &message));
    sync->replica->counts.sent_bytes += link->push.bytes;
    sync->replica->counts.dense_bytes += sh_ps_shard_bytes(&link->shard);
    return ps_start(sync->replica, &link->pushed, true, server, SH_PS_PUSHED, message,
                    link->push.bytes);
}

static sh_status ask_one(sh_sync *sync, ps_worker *w, int server, uint32_t what) {
    ps_link *link = &w->links[server];
    sh_replica *replica = sync->replica;
    link->request = (sh_ps_request){.magic = SH_PS_MAGIC,
                                    .what = what,
                                    .step = replica->step,
                                    .version = link->version,
                                    .round = what & (SH_PS_PUSH | SH_PS_VOID) ? w->round : -1,
                                    .goal = replica->all.goal,
                                    .sum = w->summed > 0 ? w->summed : 1};
    if (what & SH_PS_PULL)
        SH_TRY(ps_expect(sync, w, server, ps_pulled_block(sync, w), true));
    else
        SH_TRY(ps_expect_head(replica, link, server));
    link->asked = true;
    SH_TRY(ps_start(replica, &link->ask, true, server, SH_PS_ASK, &link->request,
                    sizeof link->request));
    replica->counts.sent_bytes += sizeof link->request;
    return what & SH_PS_PUSH ? push(sync, w, server) : SH_OK;
}

sh_status ps_ask(sh_sync *sync, ps_worker *w, uint32_t what) {
    w->asked = true;
    const int count = what == SH_PS_STEP ? 1 : w->count;
    for (int i = 0; i < count; i++) SH_TRY(ask_one(sync, w, i, what));
    return SH_OK;
}

/* ---- Replies ---- */

sh_status ps_read_head(sh_sync *sync, ps_link *link, int server) {
    SH_TRY(sh_mail_wait(&sync->replica->mail, &link->head, "pull"));
    const sh_ps_reply *reply = &link->reply;
    if (link->head.bytes != sizeof *reply || reply->magic != SH_PS_MAGIC)
        return SH_FAIL(SH_E_FORMAT, "server %d sent a malformed reply", server);
    if (reply->failed != SH_OK)
        return SH_FAIL((sh_status)reply->failed, "%.*s", SH_PS_TEXT - 1, reply->text);
    if (reply->version < 0 || reply->granted >> 1 != 0 || reply->done < 0 || reply->told >> 1 != 0)
        return SH_FAIL(SH_E_FORMAT, "server %d sent numbers out of range", server);
    return SH_OK;
}

/* The weights move by what the server says they lack. */
static sh_status add_lag(sh_sync *sync, ps_link *link, float *block) {
    if (block == NULL || link->shard.params.count == 0) return SH_OK;
    SH_TRY(sh_ps_decode(&link->pull, sync->replica->rank, link->reply.version, link->pull.message,
                        link->lag));
    for (size_t i = 0; i < link->shard.params.count; i++) {
        const sh_param *item = &link->shard.params.items[i];
        sh_vector()->add_to(block + link->shard.origin[i], link->lag + item->offset, item->count);
    }
    return SH_OK;
}

/* The values of a reply, into `block`. */
sh_status ps_read_values(sh_sync *sync, ps_link *link, int server, float *block, bool pulls) {
    sh_replica *replica = sync->replica;
    bool coded = pulls && link->pull.codec.kind != NULL;
    size_t bytes = coded ? link->pull.bytes : sh_ps_shard_bytes(&link->shard);
    SH_TRY(sh_mail_wait(&replica->mail, &link->values, "pull"));
    if (link->values.bytes != bytes)
        return SH_FAIL(SH_E_FORMAT, "server %d sent %zu bytes of values instead of %zu", server,
                       link->values.bytes, bytes);
    if (coded)
        SH_TRY(add_lag(sync, link, block));
    else if (block != NULL && !link->shard.straight)
        sh_ps_shard_give(&link->shard, link->pulls, block);
    link->version = link->reply.version;
    replica->counts.sent_bytes += bytes;
    replica->counts.dense_bytes += sh_ps_shard_bytes(&link->shard);
    return SH_OK;
}

void ps_forget_sum(const sh_sync *sync, ps_worker *w) {
    if (w->sum != NULL) sh_vector()->fill(w->sum, 0, sync->replica->params->total);
    w->summed = 0;
}

sh_status ps_finish_pull(sh_sync *sync, ps_worker *w) {
    for (int i = 0; i < w->count; i++) {
        ps_link *link = &w->links[i];
        if (!link->asked) continue;
        if (i > 0) SH_TRY(ps_read_head(sync, link, i));
        SH_TRY(ps_read_values(sync, link, i, ps_pulled_block(sync, w), true));
        if (link->request.what & SH_PS_PUSH)
            SH_TRY(sh_mail_wait(&sync->replica->mail, &link->pushed, "push"));
        link->asked = false;
    }
    w->asked = false;
    w->since = 0;
    ps_forget_sum(sync, w);
    return SH_OK;
}
