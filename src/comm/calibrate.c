/* What messages and sums cost here. The first two ranks that share a node, and the first two that
 * do not, play ping-pong while the others wait; what the first of each pair measured is broadcast,
 * so that all ranks choose alike from then on. Algorithms that should cost nearly the same for
 * long buffers are then tried, since they differ by what the model leaves out: how well segments
 * overlap, and what a protocol makes of their messages. A probe plays fewer rounds of the same game
 * between two nodes, which is enough to see that the network is not the one of last time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/engine_internal.h"

enum {
    SMALL_BYTES = 8,
    FIRST_BYTES = 64 << 10,  // a slow link shows itself here, and is spared the long ones
    LONG_BYTES = 1 << 20,
    SUM_ROUNDS = 16,
    TRIAL_BYTES = 8 << 20,        // long enough to tell algorithms apart on a busy machine
    SHORT_TRIAL_BYTES = 2 << 20,  // on slow links
    TRIAL_ROUNDS = 5,
    TRIED_MOST = 8,
};
static const double long_message_s = 0.1;
static const double trial_s = 1.2;  // of all rounds together; where one takes longer there is none

/* How often messages go there and back. */
typedef struct round_trips {
    int warm, small, large;
} round_trips;
static const round_trips thorough = {.warm = 16, .small = 64, .large = 4};
static const round_trips quick = {.warm = 4, .small = 16, .large = 1};

typedef struct calibration {
    sh_costs *costs_out;
    sh_link *probe_out;  // NULL: everything is measured
    char *buffer;        // [TRIAL_BYTES]
} calibration;

/* There and back; the first rank sends first. */
static sh_status round_trip(sh_engine *engine, int peer, bool first, char *data, size_t bytes) {
    for (int leg = 0; leg < 2; leg++) {
        sh_message message = {.peer = peer, .tag = SH_TAG_ENGINE, .data = data, .bytes = bytes};
        bool sends = first == (leg == 0);
        SH_TRY(sends ? sh_send(engine->transport, &message)
                     : sh_receive(engine->transport, &message));
        SH_TRY(sh_engine_await_message(engine, &message));
    }
    return SH_OK;
}

/* Seconds of one way: the least, since whatever else the machine does only makes a time longer. */
static sh_status time_round_trips(sh_engine *engine, int peer, bool first, char *data, size_t bytes,
                                  int count, double *seconds_out) {
    double least = INFINITY;
    for (int i = 0; i < count; i++) {
        int64_t start = sh_engine_now(engine);
        SH_TRY(round_trip(engine, peer, first, data, bytes));
        least = fmin(least, (double)(sh_engine_now(engine) - start) * 0.5e-9);
    }
    *seconds_out = least;
    return SH_OK;
}

static sh_status time_link(sh_engine *engine, int peer, bool first, char *data,
                           const round_trips *often, sh_link *link) {
    double alpha = 0, slow = 0, fast = 0;
    for (int i = 0; i < often->warm; i++)
        SH_TRY(round_trip(engine, peer, first, data, SMALL_BYTES));
    SH_TRY(time_round_trips(engine, peer, first, data, SMALL_BYTES, often->small, &alpha));
    // The first rank decides how long the next messages are and says so.
    SH_TRY(time_round_trips(engine, peer, first, data, FIRST_BYTES, 2, &slow));
    int64_t bytes = (int64_t)fmin(long_message_s / slow * FIRST_BYTES, LONG_BYTES);
    memcpy(data, &bytes, sizeof bytes);
    SH_TRY(round_trip(engine, peer, first, data, sizeof bytes));
    memcpy(&bytes, data, sizeof bytes);
    if (bytes < FIRST_BYTES || bytes > LONG_BYTES) bytes = FIRST_BYTES;
    SH_TRY(time_round_trips(engine, peer, first, data, (size_t)bytes, often->large, &fast));
    link->alpha_s = alpha;
    link->beta_s = fast > alpha ? (fast - alpha) / (double)bytes : 0;
    return SH_OK;
}

/* Seconds per byte of a sum in the cache. */
static double time_sum(sh_engine *engine, char *buffer) {
    double least = INFINITY;
    for (int i = 0; i < SUM_ROUNDS; i++) {
        int64_t start = sh_engine_now(engine);
        engine->combine->join[SH_SUM][SH_DTYPE_F32](buffer, buffer, buffer + LONG_BYTES,
                                                    LONG_BYTES / sizeof(float));
        least = fmin(least, (double)(sh_engine_now(engine) - start) * 1e-9);
    }
    return least / LONG_BYTES;
}

/* The first two ranks on one node, or on two; false: there are none. */
static bool find_pair(const sh_transport *transport, bool one_node, int *a_out, int *b_out) {
    for (int a = 0; a < transport->ranks; a++)
        for (int b = a + 1; b < transport->ranks; b++) {
            if ((transport->node[a] == transport->node[b]) != one_node) continue;
            *a_out = a;
            *b_out = b;
            return true;
        }
    return false;
}

static sh_status measure(sh_engine *engine, char *buffer, bool one_node, const round_trips *often,
                         sh_link *link_inout) {
    int first, second, rank = engine->transport->rank;
    sh_link link = {0};
    if (!find_pair(engine->transport, one_node, &first, &second)) return SH_OK;
    if (rank == first || rank == second) {
        int peer = rank == first ? second : first;
        SH_TRY(time_link(engine, peer, rank == first, buffer, often, &link));
        link.gamma_s = time_sum(engine, buffer);
    }
    double numbers[] = {link.alpha_s, link.beta_s, link.gamma_s};
    sh_call call = SH_CALL(.what = SH_BROADCAST, .data = numbers, .count = SH_COUNT(numbers),
                           .dtype = SH_DTYPE_F64, .root = first);
    SH_TRY(sh_engine_begin(engine, &call));
    SH_TRY(sh_engine_await(engine, &call));
    // A long message that is no slower than a short one was disturbed: what was known stays.
    if (numbers[1] > 0) *link_inout = (sh_link){numbers[0], numbers[1], numbers[2]};
    return SH_OK;
}

/* ---- Trying what should cost alike ------------------------------------------------------------
 */

/* One all-reduce of the buffer, its slowest rank's seconds; the same on all ranks. */
static sh_status time_allreduce(sh_engine *engine, const sh_algorithm *algorithm, char *buffer,
                                size_t bytes, double *seconds_out) {
    sh_call meet = SH_CALL(.what = SH_BARRIER);
    SH_TRY(sh_engine_begin(engine, &meet));
    SH_TRY(sh_engine_await(engine, &meet));
    int64_t start = sh_engine_now(engine);
    sh_call call = SH_CALL(.what = SH_ALLREDUCE, .algorithm = algorithm->name, .data = buffer,
                           .count = bytes / sizeof(float));
    SH_TRY(sh_engine_begin(engine, &call));
    SH_TRY(sh_engine_await(engine, &call));
    double seconds = (double)(sh_engine_now(engine) - start) * 1e-9;
    sh_call slowest = SH_CALL(.what = SH_ALLREDUCE, .algorithm = "tree", .data = &seconds,
                              .count = 1, .dtype = SH_DTYPE_F64, .op = SH_MAX);
    SH_TRY(sh_engine_begin(engine, &slowest));
    SH_TRY(sh_engine_await(engine, &slowest));
    *seconds_out = seconds;
    return SH_OK;
}

typedef struct trial {
    size_t bytes;
    int rounds, count;
    const sh_algorithm *algorithm[TRIED_MOST];  // what the model prefers comes first
    double seconds[TRIED_MOST][TRIAL_ROUNDS];
} trial;

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* With one rank per node a hierarchy is its ring; and between nodes no memory is mapped. */
static bool is_worth_trying(const sh_algorithm *algorithm, const sh_topology *topology) {
    if (algorithm->does != SH_ALLREDUCE || algorithm->native || algorithm->maps) return false;
    return topology->places->nodes < topology->ranks || !algorithm->by_node;
}

/* What should cost alike, and how often there is time for it. */
static trial make_trial(const sh_engine *engine, size_t bytes) {
    const sh_costs *costs = &engine->options.costs;
    const sh_group *world = engine->world;
    sh_topology topology = {.ranks = world->ranks, .places = world->places};
    sh_links links = {.between = costs->link, .inside = costs->node_link};
    double cheapest_s = 0;
    trial t = {.bytes = bytes, .count = 1};
    t.algorithm[0] = sh_engine_choice(engine, world, bytes, false, &cheapest_s);
    const sh_algorithm *algorithm;
    for (size_t i = 0; t.count < TRIED_MOST && (algorithm = sh_algorithm_at(i)) != NULL; i++) {
        if (algorithm == t.algorithm[0] || !is_worth_trying(algorithm, &topology)) continue;
        double seconds = sh_algorithm_price(algorithm, &topology, (double)bytes, &links);
        if (seconds <= cheapest_s * SH_ALIKE) t.algorithm[t.count++] = algorithm;
    }
    if (t.count > 1) t.rounds = (int)fmin(trial_s / (cheapest_s * t.count), TRIAL_ROUNDS);
    return t;
}

/* In turns, so that what disturbs the machine meets all alike. The median counts, not the least: an
 * algorithm whose messages get into each other's way is fast now and then. */
static sh_status run_trial(sh_engine *engine, char *buffer, trial *t, int *best_out) {
    int best = 0, middle = (t->rounds - 1) / 2;
    memset(buffer, 0, t->bytes);
    for (int round = 0; round < t->rounds; round++)
        for (int i = 0; i < t->count; i++)
            SH_TRY(
                time_allreduce(engine, t->algorithm[i], buffer, t->bytes, &t->seconds[i][round]));
    for (int i = 0; i < t->count; i++) {
        qsort(t->seconds[i], (size_t)t->rounds, sizeof t->seconds[i][0], by_time);
        if (t->seconds[i][middle] < t->seconds[best][middle]) best = i;
    }
    *best_out = best;
    return SH_OK;
}

/* Between nodes only. */
static sh_status try_large(sh_engine *engine, char *buffer) {
    engine->options.costs.large = NULL;
    if (engine->world->places == NULL) return SH_OK;
    trial t = make_trial(engine, TRIAL_BYTES);
    if (t.rounds < 2) t = make_trial(engine, SHORT_TRIAL_BYTES);
    if (t.rounds == 0) return SH_OK;
    int best;
    SH_TRY(run_trial(engine, buffer, &t, &best));
    engine->options.costs.large = t.algorithm[best];
    return SH_OK;
}

static sh_status calibrate(sh_engine *engine, void *argument) {
    calibration *job = argument;
    SH_TRY(sh_engine_drain(engine));
    if (job->probe_out != NULL) return measure(engine, job->buffer, false, &quick, job->probe_out);
    SH_TRY(measure(engine, job->buffer, true, &thorough, &engine->options.costs.node_link));
    SH_TRY(measure(engine, job->buffer, false, &thorough, &engine->options.costs.link));
    SH_TRY(try_large(engine, job->buffer));
    for (sh_group *group = engine->groups; group != NULL; group = group->next)
        memset(group->choices, 0, sizeof group->choices);
    *job->costs_out = engine->options.costs;
    return SH_OK;
}

static sh_status run_calibration(sh_engine *engine, calibration job) {
    job.buffer = sh_alloc(TRIAL_BYTES, 1);
    if (job.buffer == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a calibration");
    sh_status status = sh_engine_job(engine, calibrate, &job);
    sh_free(job.buffer);
    return status;
}

sh_status sh_engine_calibrate(sh_engine *engine, sh_costs *costs_out) {
    return run_calibration(engine, (calibration){.costs_out = costs_out});
}

sh_status sh_engine_probe(sh_engine *engine, sh_link *link_inout) {
    return run_calibration(engine, (calibration){.probe_out = link_inout});
}
