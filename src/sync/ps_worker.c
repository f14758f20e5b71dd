/* A worker's side of the schemes with parameter servers. */
#include "base/memory.h"
#include "sync/ps_elastic.h"
#include "sync/ps_exact.h"
#include "tensor/kernels/vector.h"

static sh_status out_of_memory(void) {
    return SH_FAIL(SH_E_MEMORY, "out of memory for a worker of parameter servers");
}

/* Of the one model: worker 0 counts them for all, by shard 0's versions. With elastic averaging
 * each counts the steps of its own optimizer. */
static void count_updates(sh_replica *replica, ps_worker *w) {
    int64_t version = w->links[0].reply.version;
    if (replica->rank == 0 && w->policy.elastic == 0) replica->counts.updates = version - w->first;
}

/* ---- Gradients that nobody wants ---- */

static sh_status expect_over(sh_sync *sync, ps_worker *w) {
    return ps_start(sync->replica, &w->over, false, 0, SH_PS_OVER, &w->over_version,
                    sizeof w->over_version);
}

/* Fits sh_replica.unwanted. A word about an earlier round came too late to matter. */
static bool is_unwanted(void *who) {
    const sh_sync *sync = who;
    const ps_worker *w = sync->own;
    return sh_mail_test(&sync->replica->mail, &w->over) && w->over.state == SH_MESSAGE_DONE &&
           w->over.bytes == sizeof w->over_version && w->over_version > w->round;
}

/* The reply to a worker that was told says so: the word is taken, and the next one expected. */
static sh_status take_over(sh_sync *sync, ps_worker *w) {
    if (w->links[0].reply.told == 0) return SH_OK;
    if (!sh_ps_breaks_off(&w->policy, sync->replica->ranks))
        return SH_FAIL(SH_E_FORMAT, "server 0 says that it told what nobody asked");
    SH_TRY(sh_mail_wait(&sync->replica->mail, &w->over, "end of a round"));
    return expect_over(sync, w);
}

/* ---- Between two pulls ---- */

/* Downpour: the worker's own copy moves on while the gradients are added up, at the full rate,
 * since nobody else's updates are in it. */
static void move_own_copy(sh_sync *sync, ps_worker *w) {
    sh_replica *replica = sync->replica;
    size_t total = replica->params->total;
    if (w->sum != NULL) sh_vector()->add_to(w->sum, replica->gradients, total);
    if (w->policy.push_every > 1) w->summed++;
    if (w->since == w->policy.period || replica->weights == NULL) return;
    double lr =
        sh_schedule_lr(replica->schedule, replica->all.done / replica->ranks) * w->policy.rate;
    sh_vector()->axpy((float)-lr, replica->gradients, replica->weights, total);
}

/* What the worker asks for when it has done its next step. */
static uint32_t next_request(const ps_worker *w) {
    if (w->since + 1 >= w->policy.period) return SH_PS_PUSH | SH_PS_PULL;
    bool pushes = w->policy.elastic == 0 && w->summed + 1 >= w->policy.push_every;
    return pushes ? SH_PS_PUSH : SH_PS_STEP;
}

/* What it has done is not all with the servers. */
static bool owes(const ps_worker *w) { return w->policy.elastic > 0 || w->summed > 0; }

/* ---- Permits ---- */

static bool pulls(const ps_worker *w) { return w->links[0].request.what & SH_PS_PULL; }

/* A request without a pull has been answered. */
static sh_status end_request(sh_sync *sync, ps_worker *w) {
    bool pushed = w->links[0].request.what & SH_PS_PUSH;
    for (int i = 0; i < w->count; i++) {
        ps_link *link = &w->links[i];
        if (!link->asked) continue;
        if (i > 0) SH_TRY(ps_read_head(sync, link, i));
        if (pushed) SH_TRY(sh_mail_wait(&sync->replica->mail, &link->pushed, "push"));
        link->asked = false;
    }
    if (pushed) ps_forget_sum(sync, w);
    w->asked = false;
    return SH_OK;
}

/* Shard 0's word on the step that was asked for. */
static sh_status read_permit(sh_sync *sync, ps_worker *w, bool *goes_on_out) {
    sh_replica *replica = sync->replica;
    const sh_ps_reply *reply = &w->links[0].reply;
    SH_TRY(ps_read_head(sync, &w->links[0], 0));
    SH_TRY(take_over(sync, w));
    w->round = reply->version;
    replica->all.done = reply->done;
    count_updates(replica, w);
    *goes_on_out = reply->granted > 0;
    return pulls(w) ? SH_OK : end_request(sync, w);
}

/* Waits for the permit to compute, and for the weights to compute with. A meeting ends a period
 * early: then the worker pushes and pulls before it. */
static sh_status wait_for_permit(sh_sync *sync, ps_worker *w, bool *meets_out) {
    bool goes_on;
    if (!w->asked) SH_TRY(ps_ask(sync, w, SH_PS_PULL));
    SH_TRY(read_permit(sync, w, &goes_on));
    if (!goes_on && !pulls(w) && owes(w)) {
        SH_TRY(ps_ask(sync, w, SH_PS_PUSH | SH_PS_PULL));
        SH_TRY(read_permit(sync, w, &goes_on));
    }
    *meets_out = !goes_on;  // then other servers may wait for those who are behind: later
    if (*meets_out || !pulls(w)) return SH_OK;
    bool pushed = w->links[0].request.what & SH_PS_PUSH;
    SH_TRY(ps_finish_pull(sync, w));
    if (w->policy.elastic > 0 && pushed) ps_elastic_move(sync, w);
    return SH_OK;
}

/* ---- The scheme's calls ---- */

static sh_status take_permit(sh_sync *sync, ps_worker *w, bool *meets_out) {
    sh_replica *replica = sync->replica;
    int64_t begin = sh_clock_now_ns(replica->clock);
    sh_status status = wait_for_permit(sync, w, meets_out);
    replica->counts.waited_ns += sh_clock_now_ns(replica->clock) - begin;
    return status;
}

static sh_status step(sh_sync *sync, ps_worker *w, sh_loss_result *result_out, bool *meets_out) {
    sh_replica *replica = sync->replica;
    if (w->met) ps_elastic_restore_own(sync, w);
    w->met = false;
    SH_TRY(take_permit(sync, w, meets_out));
    if (*meets_out) return SH_OK;
    const uint32_t next = next_request(w);
    if (next == SH_PS_STEP) SH_TRY(ps_ask(sync, w, next));  // the answer comes while it computes
    SH_TRY(replica->ops.compute(replica->ops.self, SH_MEAN_OWN, result_out));
    if (replica->batch.broke_off) return ps_ask(sync, w, SH_PS_PULL | SH_PS_VOID);
    w->since++;
    if (w->policy.elastic > 0)
        sh_replica_update(replica);
    else
        move_own_copy(sync, w);
    return next == SH_PS_STEP ? SH_OK : ps_ask(sync, w, next);
}

sh_status sh_ps_step(sh_sync *sync, sh_loss_result *result_out, bool *meets_out) {
    ps_worker *w = sync->own;
    sync->replica->mail.step = sync->replica->step;
    sh_status status = step(sync, w, result_out, meets_out);
    if (status != SH_OK) w->failed = true;
    return status;
}

static sh_status say(sh_sync *sync, ps_worker *w, uint32_t what) {
    for (int i = 0; i < w->count; i++) {
        ps_link *link = &w->links[i];
        link->last = (sh_ps_request){.magic = SH_PS_MAGIC, .what = what};
        SH_TRY(ps_start(sync->replica, &link->last_ask, true, i, SH_PS_ASK, &link->last,
                        sizeof link->last));
    }
    return SH_OK;
}

/* The optimizer's state goes to rank 0, which saves it. */
static sh_status expect_slots(sh_sync *sync, ps_worker *w, int server) {
    sh_replica *replica = sync->replica;
    ps_link *link = &w->links[server];
    if (replica->rank != 0 || w->policy.elastic > 0) return SH_OK;
    for (int i = 0; i < replica->optim->slot_count; i++) {
        float *data = ps_place_of(link, replica->optim->slots[i], link->pulls);
        SH_TRY(ps_start(replica, &link->slot[i], false, server, SH_PS_SLOT, data,
                        sh_ps_shard_bytes(&link->shard)));
        if (link->shard.straight) continue;
        SH_TRY(sh_mail_wait(&replica->mail, &link->slot[i], "meeting"));
        if (data != NULL) sh_ps_shard_give(&link->shard, data, replica->optim->slots[i]);
    }
    for (int i = 0; i < replica->optim->slot_count; i++)
        SH_TRY(sh_mail_wait(&replica->mail, &link->slot[i], "meeting"));
    return SH_OK;
}

static sh_status meet(sh_sync *sync, ps_worker *w) {
    sh_replica *replica = sync->replica;
    SH_TRY(say(sync, w, SH_PS_MEET));
    if (w->asked) SH_TRY(ps_finish_pull(sync, w));
    w->since = 0;
    ps_elastic_save_own(sync, w);
    for (int i = 0; i < w->count; i++) SH_TRY(ps_expect(sync, w, i, replica->weights, false));
    for (int i = 0; i < w->count; i++) {
        SH_TRY(ps_read_head(sync, &w->links[i], i));
        SH_TRY(ps_read_values(sync, &w->links[i], i, replica->weights, false));
        SH_TRY(expect_slots(sync, w, i));
    }
    replica->all.done = w->links[0].reply.done;
    count_updates(replica, w);
    w->met = true;
    return ps_residual_settle(sync, w);
}

sh_status sh_ps_meet(sh_sync *sync) {
    ps_worker *w = sync->own;
    int64_t begin = sh_clock_now_ns(sync->replica->clock);
    sh_status status = meet(sync, w);
    sync->replica->counts.waited_ns += sh_clock_now_ns(sync->replica->clock) - begin;
    if (status != SH_OK) w->failed = true;
    return status;
}

static sh_status init_coders(const sh_replica *replica, const ps_worker *w, ps_link *link) {
    bool computes = replica->weights != NULL;
    const sh_codec push = sh_ps_push_codec(&w->policy, replica->codec);
    const sh_codec pull = sh_ps_pull_codec(replica->codec);
    SH_TRY(sh_ps_coder_init(&link->push, &push, &link->shard, replica->seed, computes));
    SH_TRY(sh_ps_coder_init(&link->pull, &pull, &link->shard, ~replica->seed, computes));
    if (!computes || replica->codec->kind == NULL) return SH_OK;
    link->lag = sh_alloc(link->shard.params.total + 1, sizeof *link->lag);
    return link->lag != NULL ? SH_OK : out_of_memory();
}

static sh_status init_integers(ps_link *link) {
    link->push.bytes = ps_exact_bytes(&link->shard);
    link->integers = sh_alloc(1, link->push.bytes);
    return link->integers != NULL ? SH_OK : out_of_memory();
}

static sh_status init_link(sh_sync *sync, ps_worker *w, int server) {
    ps_link *link = &w->links[server];
    SH_TRY(sh_ps_shard_init(&link->shard, sync->replica->params, sync->options->placement, server,
                            w->count));
    SH_TRY(init_coders(sync->replica, w, link));
    if (sync->replica->fixed != NULL) SH_TRY(init_integers(link));
    if (sync->replica->weights == NULL || link->shard.straight) return SH_OK;
    link->pushes = sh_alloc(link->shard.params.total + 1, sizeof *link->pushes);
    link->pulls = sh_alloc(link->shard.params.total + 1, sizeof *link->pulls);
    return link->pushes != NULL && link->pulls != NULL ? SH_OK : out_of_memory();
}

static sh_status init_blocks(sh_sync *sync, ps_worker *w) {
    size_t total = sync->replica->params->total;
    if (w->policy.push_every > 1 && sync->replica->weights != NULL) {
        w->sum = sh_alloc(total + 1, sizeof *w->sum);
        if (w->sum == NULL) return out_of_memory();
    }
    return ps_elastic_init(sync, w);
}

sh_status sh_ps_create(sh_sync *sync) {
    ps_worker *w = sync->own = sh_alloc(1, sizeof *w);
    if (w == NULL) return out_of_memory();
    int ranks = sync->replica->ranks;
    w->policy = sync->scheme.kind->policy(sync->scheme, sync->options, ranks);
    w->first = sh_ps_version_at(&w->policy, sync->replica->step, ranks);
    w->failed = true;  // until all of it is there
    w->count = sh_ps_services(sync->scheme, sync->options, ranks);
    w->links = sh_alloc((size_t)w->count, sizeof *w->links);
    if (w->links == NULL) return out_of_memory();
    for (int i = 0; i < w->count; i++) SH_TRY(init_link(sync, w, i));
    SH_TRY(init_blocks(sync, w));
    ps_residual_take(sync, w);
    if (sh_ps_breaks_off(&w->policy, ranks)) {
        SH_TRY(expect_over(sync, w));
        sync->replica->hooks.unwanted = is_unwanted;
    }
    if (sync->replica->fixed != NULL) sync->replica->hooks.combine = ps_exact_combine;
    sync->replica->hooks.who = sync;
    w->failed = false;
    w->ready = true;
    return SH_OK;
}

static void send_end(sh_sync *sync, ps_worker *w) {
    if (w->failed || sync->failed || say(sync, w, SH_PS_END) != SH_OK) return;
    for (int i = 0; i < w->count; i++)
        if (sh_mail_wait(&sync->replica->mail, &w->links[i].last_ask, "end") != SH_OK) return;
}

/* Nothing is written or read any more when the memory is gone. */
static void abandon(sh_replica *replica, ps_link *link) {
    sh_message *messages[] = {&link->ask,      &link->pushed,  &link->head,   &link->values,
                              &link->last_ask, &link->slot[0], &link->slot[1]};
    for (size_t i = 0; i < SH_COUNT(messages); i++)
        if (messages[i]->state == SH_MESSAGE_PENDING)
            sh_cancel(replica->mail.transport, messages[i]);
}

void sh_ps_destroy(sh_sync *sync) {
    ps_worker *w = sync->own;
    if (w == NULL) return;
    send_end(sync, w);
    if (w->ready) ps_residual_give(sync, w);
    sync->replica->hooks.unwanted = NULL;
    sync->replica->hooks.combine = NULL;
    if (w->over.state == SH_MESSAGE_PENDING) sh_cancel(sync->replica->mail.transport, &w->over);
    for (int i = 0; w->links != NULL && i < w->count; i++) {
        abandon(sync->replica, &w->links[i]);
        sh_ps_coder_fini(&w->links[i].push);
        sh_ps_coder_fini(&w->links[i].pull);
        sh_ps_shard_fini(&w->links[i].shard);
        sh_free(w->links[i].lag);
        sh_free(w->links[i].pushes);
        sh_free(w->links[i].pulls);
        sh_free(w->links[i].integers);
    }
    sh_free(w->links);
    sh_free(w->sum);
    ps_elastic_fini(w);
    sh_free(w);
    sync->own = NULL;
}
