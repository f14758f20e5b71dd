/* Synchronised batch normalisation: workers with parts of a batch give what one worker gives with
 * the whole of it. */
#include "comm/engines.h"
#include "nn/rig.h"
#include "parallel/peers.h"

enum { RANKS = 3, BATCH = 7 };

static const char *const net_text =
    "[{conv: 4, padding: 1}, {batchnorm: , name: b}, relu, flatten, {dense: 5}, batchnorm, dense]";

static sh_net *synchronised_net(const char *text, sh_net_input input) {
    sh_node *node = NULL;
    sh_net_spec spec;
    sh_net *net = NULL;
    CHECK_OK(sh_node_parse("net", text, strlen(text), &node));
    CHECK_OK(sh_net_spec_read(node, &input, &spec));
    sh_sync_batchnorms(&spec);
    CHECK_OK(sh_net_build(&spec, &net));
    sh_node_destroy(node);
    return net;
}

/* Rank r has samples [BATCH r / RANKS, BATCH (r + 1) / RANKS); shares are uneven. */
static int64_t first_of(int rank) { return BATCH * rank / RANKS; }

static sh_status step_of_rank(sh_engine *engine, void *argument) {
    rig *r = (rig *)argument + sh_engine_rank(engine);
    sh_peers peers = {.engine = engine};
    r->step.peers = &peers;
    SH_TRY(sh_executor_forward(r->executor, &r->step, r->x));
    sh_executor_loss(r->executor, r->y, 1.0);
    return sh_executor_backward(r->executor, NULL, NULL);
}

static void take_samples(rig *part, const rig *whole, int rank) {
    size_t x = whole->executor->input->count / BATCH, y = whole->executor->output->count / BATCH;
    memcpy(part->x, (const float *)whole->x + (size_t)first_of(rank) * x,
           part->executor->input->count * sizeof(float));
    memcpy(part->y, whole->y + (size_t)first_of(rank) * y,
           part->executor->output->count * sizeof(float));
}

TEST(sync_batchnorm, of_parts_of_a_batch_is_that_of_the_whole) {
    sh_net_input image = RIG_IMAGE(2, 5, 4);
    rig whole = rig_make(net_text, image, BATCH), parts[RANKS];
    for (int r = 0; r < RANKS; r++) {
        parts[r] = rig_make_with(
            synchronised_net(net_text, image),
            &(sh_executor_options){.batch = first_of(r + 1) - first_of(r), .training = true});
        take_samples(&parts[r], &whole, r);
    }
    rig_step(&whole);
    CHECK_OK(run_engines(RANKS, NULL, step_of_rank, parts));

    size_t total = whole.net->params.total;
    float *sum = sh_alloc(total, sizeof *sum);
    for (int r = 0; r < RANKS; r++) {
        for (size_t i = 0; i < total; i++) sum[i] += parts[r].blocks.gradients[i];
        CHECK_CLOSE(whole.blocks.states, parts[r].blocks.states, whole.net->states.total, 1e-6);
    }
    CHECK_CLOSE(whole.blocks.gradients, sum, total, 1e-5);
    sh_free(sum);
    for (int r = 0; r < RANKS; r++) rig_free(&parts[r]);
    rig_free(&whole);
}

TEST(sync_batchnorm, without_peers_gives_the_bits_of_batchnorm) {
    sh_net_input image = RIG_IMAGE(2, 5, 4);
    rig plain = rig_make(net_text, image, BATCH);
    rig alone = rig_make_with(synchronised_net(net_text, image),
                              &(sh_executor_options){.batch = BATCH, .training = true});
    rig_step(&plain);
    rig_step(&alone);
    assert_memory_equal(plain.blocks.gradients, alone.blocks.gradients,
                        plain.net->params.total * sizeof(float));
    rig_free(&plain);
    rig_free(&alone);
}

/* A worker without samples takes part with one of zeros that counts nowhere. */
TEST(sync_batchnorm, counts_nothing_of_a_worker_that_stands_in) {
    sh_net_input image = RIG_IMAGE(2, 5, 4);
    rig whole = rig_make(net_text, image, BATCH), parts[2];
    parts[0] = rig_make_with(synchronised_net(net_text, image),
                             &(sh_executor_options){.batch = BATCH, .training = true});
    parts[1] = rig_make_with(synchronised_net(net_text, image),
                             &(sh_executor_options){.batch = 1, .training = true});
    memcpy(parts[0].x, whole.x, whole.executor->input->count * sizeof(float));
    memcpy(parts[0].y, whole.y, whole.executor->output->count * sizeof(float));
    parts[1].step.stands_in = true;
    memset(parts[1].y, 0, parts[1].executor->output->count * sizeof(float));
    rig_step(&whole);
    CHECK_OK(run_engines(2, NULL, step_of_rank, parts));
    CHECK_CLOSE(whole.blocks.gradients, parts[0].blocks.gradients, whole.net->params.total, 1e-5);
    CHECK_CLOSE(whole.blocks.states, parts[1].blocks.states, whole.net->states.total, 1e-6);
    const sh_param *conv = sh_param_list_find(&parts[1].net->params, "conv1.weight");
    assert_true(rig_norm(parts[1].blocks.gradients + conv->offset, conv->count) == 0);
    for (int r = 0; r < 2; r++) rig_free(&parts[r]);
    rig_free(&whole);
}

/* Ops between the start and the finish of an exchange do not disturb it: two branches, of which the
 * second is computed while the statistics of the first travel. */
TEST(sync_batchnorm, travels_while_another_branch_is_computed) {
    static const char *const branches =
        "[{conv: 4, padding: 1, name: a}, {batchnorm: , name: b}, {conv: {channels: 4, padding: 1, "
        "kernel: 3}, from: input, name: c}, {conv: {channels: 4, padding: 1}, name: d}, {add: , "
        "from: [b, d]}, flatten, dense]";
    sh_net_input image = RIG_IMAGE(2, 5, 4);
    rig whole = rig_make(branches, image, BATCH), parts[RANKS];
    for (int r = 0; r < RANKS; r++) {
        parts[r] = rig_make_with(
            synchronised_net(branches, image),
            &(sh_executor_options){.batch = first_of(r + 1) - first_of(r), .training = true});
        take_samples(&parts[r], &whole, r);
    }
    int between = 0;
    for (size_t i = 0; i < parts[0].executor->op_count; i++) {
        const sh_op *op = parts[0].executor->ops[i];
        if (strcmp(op->kind->name, "sync-batchnorm") == 0)
            between = op->flight.finish - op->flight.start;
    }
    assert_true(between > 2);  // it is under way during c and d
    rig_step(&whole);
    for (int r = 0; r < RANKS; r++)
        rig_poison(parts[r].memory.base, parts[r].executor->memory_bytes);
    CHECK_OK(run_engines(RANKS, NULL, step_of_rank, parts));
    size_t total = whole.net->params.total;
    float *sum = sh_alloc(total, sizeof *sum);
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < total; i++) sum[i] += parts[r].blocks.gradients[i];
    CHECK_CLOSE(whole.blocks.gradients, sum, total, 1e-5);
    sh_free(sum);
    for (int r = 0; r < RANKS; r++) rig_free(&parts[r]);
    rig_free(&whole);
}
