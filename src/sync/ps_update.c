#include <string.h>

#include "base/memory.h"
#include "sync/ps_elastic.h"
#include "sync/ps_exact.h"
#include "tensor/kernels/peer_copy.h"
#include "tensor/kernels/vector.h"

static sh_status out_of_memory(void) {
    return SH_FAIL(SH_E_MEMORY, "out of memory for a parameter server");
}

static float *new_block(const ps_server *server) {
    return sh_alloc(server->shard.params.total + 1, sizeof(float));
}

/* ---- Versions of the weights ---- */

ps_block *ps_acquire(ps_server *server) {
    if (!server->computes) return NULL;
    server->blocks.current->users++;
    return server->blocks.current;
}

void ps_release(ps_block *block) {
    if (block != NULL) block->users--;
}

static ps_block *free_block(ps_server *server) {
    for (int i = 0; i < server->blocks.count; i++)
        if (server->blocks.items[i].users == 0 &&
            &server->blocks.items[i] != server->blocks.current)
            return &server->blocks.items[i];
    return NULL;
}

/* The weights of a version are sent to workers from where they lie. */
static sh_status take_block(const ps_server *server, ps_block *block) {
    block->data =
        sh_export_acquire(server->service->mail.transport, sh_ps_shard_bytes(&server->shard));
    block->exported = block->data != NULL;
    if (!block->exported) block->data = new_block(server);
    return block->data != NULL ? SH_OK : out_of_memory();
}

static void give_block(const ps_server *server, ps_block *block) {
    if (block->exported)
        sh_export_release(server->service->mail.transport, block->data);
    else
        sh_free(block->data);
}

/* Each client reads at most two, so there is always a free one. */
sh_status ps_next_block(ps_server *server, ps_block **next_out) {
    ps_block *next = server->blocks.current;
    if (next->users > 0) next = free_block(server);
    SH_ASSERT(next != NULL);
    if (next->data == NULL) SH_TRY(take_block(server, next));
    SH_ASSERT(next->data != NULL);
    *next_out = next;
    return SH_OK;
}

sh_status ps_write_lag(ps_server *server, ps_client *client) {
    int rank = (int)(client - server->clients);
    sh_ps_encode_lag(&server->pull, rank, server->version, server->blocks.current->data,
                     client->copy.weights, server->lag);
    memcpy(client->copy.packet, server->pull.message, server->pull.bytes);
    SH_TRY(sh_ps_decode(&server->pull, rank, server->version, client->copy.packet, server->lag));
    sh_vector()->add_to(client->copy.weights, server->lag, server->shard.params.total);
    return SH_OK;
}

/* ---- Updates ---- */

/* Of the step that the first gradient of the update belongs to. */
static double rate_of(const ps_server *server) {
    const sh_service *service = server->service;
    int64_t step =
        server->policy->rounds ? server->version : server->group.first / service->workers;
    return sh_schedule_lr(service->schedule, step) * server->policy->rate;
}

/* Where the weights move to another block, a window at a time: what was copied is still in the
 * cache as it is updated. Norms need all weights of a parameter. */
enum { WINDOW = 8192 };

static void apply(ps_server *server, sh_optim_step *step) {
    const float *current = server->blocks.current->data;
    size_t total = server->shard.params.total;
    size_t window = server->optim.kind->adaptive ? total : WINDOW;
    if (step->weights == current) {
        sh_optim_apply(&server->optim, step);
        return;
    }
    step->windowed = true;
    for (step->low = 0; step->low < total; step->low = step->high) {
        step->high = total - step->low < window ? total : step->low + window;
        sh_copy_shared(step->weights + step->low, current + step->low,
                       (step->high - step->low) * sizeof(float));
        sh_optim_apply(&server->optim, step);
    }
}

/* One step of the optimizer with `scale` times the gradient, at `factor` times the rate. */
static sh_status update(ps_server *server, const float *gradient, double scale, double factor) {
    server->updates++;
    server->service->counts.updates++;
    if (server->computes && server->shard.params.total > 0) {
        ps_block *next = NULL;
        SH_TRY(ps_next_block(server, &next));
        sh_optim_step step = {
            .params = &server->shard.params,
            .count = server->shard.params.count,
            .high = server->shard.params.total,
            .unused = server->exact.unused,
            .weights = next->data,
            .gradients = gradient,
            .gradient_scale = (float)scale,
            .lr = rate_of(server) * factor,
            .step = server->updates,
        };
        apply(server, &step);
        server->blocks.current = next;
    }
    server->version++;
    return SH_OK;
}

/* How much a gradient counts (Zhang, Gupta, Lian, Liu 2016), and its staleness is counted: updates
 * that were not in the weights it was computed with. A worker's copy has its own since the pull. */
static double weigh(ps_server *server, const ps_client *client) {
    int64_t tau = server->version - client->request.version - client->own_updates;
    sh_staleness_add(&server->service->counts.staleness, (uint64_t)tau);
    double delay = (double)tau / server->policy->per;
    return server->policy->staleness && delay > 1 ? 1 / delay : 1;
}

/* Delay compensation (DC-ASGD; Zheng et al. 2017): g + lambda g g (w_now - w_then), a diagonal
 * approximation of what the gradient would be at the weights as they are now. */
static void compensate(ps_server *server, ps_client *client) {
    if (client->computed_with == NULL && client->copy.weights == NULL) return;
    const float *now = server->blocks.current->data;
    const float *then =
        client->copy.weights != NULL ? client->copy.weights : client->computed_with->data;
    float *g = client->pushed.gradient, lambda = (float)server->policy->compensation;
    for (size_t i = 0; i < server->shard.params.total; i++)
        g[i] += lambda * g[i] * g[i] * (now[i] - then[i]);
    ps_release(client->computed_with);
    client->computed_with = NULL;
}

/* ---- Pushes are taken as they come ---- */

static sh_status end_group(ps_server *server) {
    if (server->group.members == 0) return SH_OK;
    SH_TRY(update(server, server->group.sum, 1 / server->group.weight,
                  server->group.weight / server->group.members));
    if (server->computes) sh_vector()->fill(server->group.sum, 0, server->shard.params.total);
    server->group.members = 0;
    server->group.weight = 0;
    return SH_OK;
}

/* The weights scale the gradients against each other, and their mean the rate: for SGD it is the
 * same as scaling each gradient, and it is right for optimizers that normalise as well. */
static sh_status push_now(ps_server *server, ps_client *client, const float *gradient) {
    double weight = weigh(server, client);
    if (server->computes) compensate(server, client);
    double sum = (double)client->request.sum;  // as many steps at once, with their mean
    if (server->group.members == 0) server->group.first = server->pushes - client->request.sum;
    if (server->policy->group == 1) {
        client->own_updates++;
        return update(server, gradient, 1 / sum, weight * sum);
    }
    if (server->computes)
        sh_vector()->axpy((float)weight, gradient, server->group.sum, server->shard.params.total);
    server->group.weight += weight;
    return ++server->group.members == server->policy->group ? end_group(server) : SH_OK;
}

/* ---- Pushes belong to rounds ---- */

static bool fits(const ps_server *server, const ps_client *client) {
    return client->pushed.waits && client->request.round == server->version;
}

/* The sum over the round's clients in the order of their ranks, so that it does not depend on who
 * came first. */
static sh_status end_round(ps_server *server) {
    const float *sum = NULL;
    double weight = 0;
    int members = 0;
    for (int i = 0; i < server->service->workers && members < server->policy->group; i++) {
        ps_client *client = &server->clients[i];
        if (!fits(server, client)) continue;
        double own = weigh(server, client);
        client->pushed.waits = false;
        weight += own;
        members++;
        if (!server->computes || server->exact.on) continue;
        if (own < 1)
            sh_vector()->scale(client->pushed.gradient, (float)own, server->shard.params.total);
        if (sum != NULL)
            sh_vector()->add_to(client->pushed.gradient, sum, server->shard.params.total);
        sum = client->pushed.gradient;
    }
    if (server->exact.on) {
        SH_TRY(ps_exact_sum(server));
        return update(server, server->group.sum, 1, 1);
    }
    return update(server, sum, 1 / weight, weight / members);
}

/* Gradients of earlier rounds are dropped; those of a later one (of a worker that shard 0 let go
 * on) wait for it. */
static sh_status push_to_round(ps_server *server) {
    for (;;) {
        int members = 0;
        for (int i = 0; i < server->service->workers; i++) {
            ps_client *client = &server->clients[i];
            if (fits(server, client)) members++;
            if (!client->pushed.waits || client->request.round >= server->version) continue;
            client->pushed.waits = false;
            server->service->counts.dropped++;
        }
        if (members < server->policy->group) return SH_OK;
        SH_TRY(end_round(server));
    }
}

static sh_status take_push(ps_server *server, ps_client *client) {
    client->pushes++;
    server->pushes += client->request.sum;
    int rank = (int)(client - server->clients);
    const float *pushed = client->mail.payload.data;
    if (client->pushed.packet != NULL && !server->exact.on) {
        SH_TRY(sh_ps_decode(&server->push, rank, client->request.step, client->mail.payload.data,
                            client->pushed.gradient));
        pushed = client->pushed.gradient;
    }
    if (server->policy->elastic > 0) {
        weigh(server, client);
        return ps_elastic_push(server, client, pushed);
    }
    if (!server->policy->rounds) return push_now(server, client, pushed);
    client->pushed.waits = true;
    return push_to_round(server);
}

sh_status ps_push(ps_server *server, ps_client *client) {
    SH_TRY(take_push(server, client));
    ps_snapshot_note(server);
    return SH_OK;
}

sh_status ps_settle(ps_server *server) {
    for (int i = 0; i < server->service->workers; i++) {
        ps_client *client = &server->clients[i];
        if (client->pushed.waits) server->service->counts.dropped++;
        client->pushed.waits = false;
    }
    return end_group(server);
}

/* ---- Memory ---- */

static sh_status init_optim(ps_server *server) {
    const sh_optim *given = server->service->optim;
    SH_TRY(sh_optim_init_like(&server->optim, given, server->shard.params.total));
    server->has_optim = true;
    for (int i = 0; i < server->optim.slot_count; i++)
        if (given->slots[i] != NULL)
            sh_ps_shard_take(&server->shard, given->slots[i], server->optim.slots[i]);
    return SH_OK;
}

static sh_status init_known(ps_server *server, ps_client *client) {
    bool elastic = server->policy->elastic > 0 && server->push.codec.kind != NULL;
    if (server->pull.codec.kind == NULL && !elastic) return SH_OK;
    client->copy.weights = new_block(server);
    client->copy.packet = sh_alloc(server->pull.bytes + 1, 1);
    if (client->copy.weights == NULL || client->copy.packet == NULL) return out_of_memory();
    sh_vector()->copy(server->blocks.current->data, client->copy.weights,
                      server->shard.params.total);
    return SH_OK;
}

static sh_status init_clients(ps_server *server) {
    server->lag = new_block(server);
    if (server->lag == NULL) return out_of_memory();
    for (int i = 0; i < server->service->workers; i++) {
        ps_client *client = &server->clients[i];
        if (!server->exact.on) client->pushed.gradient = new_block(server);
        if (!server->exact.on && client->pushed.gradient == NULL) return out_of_memory();
        SH_TRY(init_known(server, client));
        if (server->push.codec.kind == NULL && !server->exact.on) continue;
        client->pushed.packet = sh_alloc(server->packet_bytes + 1, 1);
        if (client->pushed.packet == NULL) return out_of_memory();
    }
    return SH_OK;
}

static sh_status init_coders(ps_server *server) {
    const sh_service *service = server->service;
    const sh_codec push = sh_ps_push_codec(server->policy, service->codec);
    const sh_codec pull = sh_ps_pull_codec(service->codec);
    SH_TRY(sh_ps_coder_init(&server->push, &push, &server->shard, service->seed, server->computes));
    server->packet_bytes = server->push.bytes;
    return sh_ps_coder_init(&server->pull, &pull, &server->shard, ~service->seed, server->computes);
}

/* Pushes are integers; shard 0 also takes what workers combine. */
static sh_status init_exact(ps_server *server) {
    const sh_service *service = server->service;
    size_t combined_bytes = service->combined_most * sizeof(int64_t);
    server->exact.on = combined_bytes > 0;
    if (!server->exact.on) return SH_OK;
    server->push.bytes = server->packet_bytes = ps_exact_bytes(&server->shard);
    server->exact.unused = sh_alloc(server->shard.params.count + 1, sizeof *server->exact.unused);
    if (server->exact.unused == NULL) return out_of_memory();
    if (service->index != 0) return SH_OK;
    if (combined_bytes > server->packet_bytes) server->packet_bytes = combined_bytes;
    server->exact.combined = sh_alloc(1, combined_bytes);
    return server->exact.combined != NULL ? SH_OK : out_of_memory();
}

sh_status ps_update_init(ps_server *server) {
    const sh_service *service = server->service;
    server->blocks.count = 2 * service->workers + 2;
    server->blocks.items = sh_alloc((size_t)server->blocks.count, sizeof *server->blocks.items);
    if (server->blocks.items == NULL) return out_of_memory();
    server->blocks.current = server->blocks.items;
    server->computes = service->weights != NULL;
    server->pushes = server->granted = service->step * service->workers;
    server->version = server->updates =
        sh_ps_version_at(server->policy, service->step, service->workers);
    SH_TRY(init_coders(server));
    if (!server->computes) return SH_OK;
    SH_TRY(init_exact(server));
    SH_TRY(take_block(server, server->blocks.current));
    server->group.sum = new_block(server);
    if (server->group.sum == NULL) return out_of_memory();
    sh_ps_shard_take(&server->shard, service->weights, server->blocks.current->data);
    SH_TRY(init_clients(server));
    bool updates = server->policy->elastic == 0 && server->shard.params.total > 0;
    return updates ? init_optim(server) : SH_OK;
}

static void free_client(ps_client *client) {
    sh_free(client->pushed.gradient);
    sh_free(client->pushed.packet);
    sh_free(client->copy.packet);
    sh_free(client->copy.weights);
}

void ps_update_fini(ps_server *server) {
    for (int i = 0; server->blocks.items != NULL && i < server->blocks.count; i++)
        give_block(server, &server->blocks.items[i]);
    for (int i = 0; server->clients != NULL && i < server->service->workers; i++)
        free_client(&server->clients[i]);
    sh_ps_coder_fini(&server->push);
    sh_ps_coder_fini(&server->pull);
    if (server->has_optim) sh_optim_fini(&server->optim);
    sh_free(server->group.sum);
    sh_free(server->exact.unused);
    sh_free(server->exact.combined);
    sh_free(server->lag);
    sh_free(server->blocks.items);
}
