/* What messages and sums cost here. The first two ranks that share a node, and the first two that
 * do not, play ping-pong while the others wait; what the first of each pair measured is broadcast,
 * so that all ranks choose alike from then on. Algorithms that should cost nearly the same for
 * long buffers are then tried, since they differ by what the model leaves out: how well segments
 * overlap, and what a protocol makes of their messages. */
#include <math.h>
#include <string.h>

#include "comm/engine_internal.h"

enum {
    SMALL_BYTES = 8,
    SMALL_TRIPS = 64,
    WARM_TRIPS = 16,
    FIRST_BYTES = 64 << 10,  // a slow link shows itself here
    LONG_BYTES = 1 << 20,
    LONG_TRIPS = 4,
    SUM_ROUNDS = 16,
};
static const int64_t slow_trip_ns = 4000000;
static const double trial_most_s = 0.04;  // of one all-reduce; slower links are not tried

typedef struct calibration {
    sh_costs *costs_out;
    char *buffer;  // (2, LONG_BYTES)
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
static sh_status time_trips(sh_engine *engine, int peer, bool first, char *data, size_t bytes,
                            int trips, double *seconds_out) {
    double least = INFINITY;
    for (int i = 0; i < trips; i++) {
        int64_t start = sh_engine_now(engine);
        SH_TRY(round_trip(engine, peer, first, data, bytes));
        least = fmin(least, (double)(sh_engine_now(engine) - start) * 0.5e-9);
    }
    *seconds_out = least;
    return SH_OK;
}

static sh_status time_link(sh_engine *engine, int peer, bool first, char *data, sh_link *link) {
    double alpha = 0, slow = 0, fast = 0;
    for (int i = 0; i < WARM_TRIPS; i++) SH_TRY(round_trip(engine, peer, first, data, SMALL_BYTES));
    SH_TRY(time_trips(engine, peer, first, data, SMALL_BYTES, SMALL_TRIPS, &alpha));
    // The first rank decides how long the next messages are and says so.
    SH_TRY(time_trips(engine, peer, first, data, FIRST_BYTES, 2, &slow));
    int64_t bytes = slow * 1e9 > (double)slow_trip_ns ? FIRST_BYTES : LONG_BYTES;
    memcpy(data, &bytes, sizeof bytes);
    SH_TRY(round_trip(engine, peer, first, data, sizeof bytes));
    memcpy(&bytes, data, sizeof bytes);
    if (bytes != FIRST_BYTES) bytes = LONG_BYTES;
    int trips = bytes == FIRST_BYTES ? 2 : LONG_TRIPS;
    SH_TRY(time_trips(engine, peer, first, data, (size_t)bytes, trips, &fast));
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

static sh_status measure(sh_engine *engine, char *buffer, bool one_node, sh_link *link_inout) {
    int first, second, rank = engine->transport->rank;
    sh_link link = {0};
    if (!find_pair(engine->transport, one_node, &first, &second)) return SH_OK;
    if (rank == first || rank == second) {
        SH_TRY(time_link(engine, rank == first ? second : first, rank == first, buffer, &link));
        link.gamma_s = time_sum(engine, buffer);
    }
    double numbers[] = {link.alpha_s, link.beta_s, link.gamma_s};
    sh_call call = {.what = SH_BROADCAST,
                    .data = numbers,
                    .count = SH_COUNT(numbers),
                    .dtype = SH_DTYPE_F64,
                    .root = first,
                    .bucket = -1};
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
                                double *seconds_out) {
    sh_call meet = {.what = SH_BARRIER, .bucket = -1};
    SH_TRY(sh_engine_begin(engine, &meet));
    SH_TRY(sh_engine_await(engine, &meet));
    int64_t start = sh_engine_now(engine);
    sh_call call = {.what = SH_ALLREDUCE,
                    .algorithm = algorithm->name,
                    .data = buffer,
                    .count = 2 * LONG_BYTES / sizeof(float),
                    .bucket = -1};
    SH_TRY(sh_engine_begin(engine, &call));
    SH_TRY(sh_engine_await(engine, &call));
    double seconds = (double)(sh_engine_now(engine) - start) * 1e-9;
    sh_call slowest = {.what = SH_ALLREDUCE,
                       .algorithm = "tree",
                       .data = &seconds,
                       .count = 1,
                       .dtype = SH_DTYPE_F64,
                       .op = SH_MAX,
                       .bucket = -1};
    SH_TRY(sh_engine_begin(engine, &slowest));
    SH_TRY(sh_engine_await(engine, &slowest));
    *seconds_out = seconds;
    return SH_OK;
}

/* Algorithms with one rank per node: a hierarchy is then its ring. */
static bool is_worth_trying(const sh_algorithm *algorithm, const sh_topology *topology,
                            const sh_links *links, double cheapest) {
    if (algorithm->does != SH_ALLREDUCE || algorithm->native) return false;
    bool flat = topology->places->nodes == topology->ranks;
    if (flat && strcmp(algorithm->name, "hierarchical") == 0) return false;
    return sh_algorithm_price(algorithm, topology, 2 * LONG_BYTES, links) <= cheapest * SH_ALIKE;
}

/* The better of two runs; what was tried before stays unless it is beaten clearly. */
static sh_status try_one(sh_engine *engine, const sh_algorithm *algorithm, char *buffer,
                         double *best_inout) {
    double first, second;
    SH_TRY(time_allreduce(engine, algorithm, buffer, &first));
    SH_TRY(time_allreduce(engine, algorithm, buffer, &second));
    double seconds = first < second ? first : second;
    if (engine->options.costs.large != NULL && seconds > *best_inout * 0.98) return SH_OK;
    *best_inout = seconds;
    engine->options.costs.large = algorithm;
    return SH_OK;
}

/* Between nodes: first what the model prefers. */
static sh_status try_large(sh_engine *engine, char *buffer) {
    sh_costs *costs = &engine->options.costs;
    const sh_group *world = engine->world;
    costs->large = NULL;
    if (world->places == NULL) return SH_OK;
    double cheapest = 0, best_s = 0;
    const sh_algorithm *usual = sh_engine_choice(engine, world, 2 * LONG_BYTES, false, &cheapest);
    if (cheapest > trial_most_s) return SH_OK;
    sh_topology topology = {.ranks = world->ranks, .places = world->places};
    sh_links links = {.between = costs->link, .inside = costs->node_link};
    memset(buffer, 0, 2 * (size_t)LONG_BYTES);
    SH_TRY(try_one(engine, usual, buffer, &best_s));
    const sh_algorithm *algorithm;
    for (size_t i = 0; (algorithm = sh_algorithm_at(i)) != NULL; i++)
        if (algorithm != usual && is_worth_trying(algorithm, &topology, &links, cheapest))
            SH_TRY(try_one(engine, algorithm, buffer, &best_s));
    return SH_OK;
}

static sh_status calibrate(sh_engine *engine, void *argument) {
    calibration *job = argument;
    SH_TRY(sh_engine_drain(engine));
    SH_TRY(measure(engine, job->buffer, true, &engine->options.costs.node_link));
    SH_TRY(measure(engine, job->buffer, false, &engine->options.costs.link));
    SH_TRY(try_large(engine, job->buffer));
    for (sh_group *group = engine->groups; group != NULL; group = group->next)
        memset(group->choices, 0, sizeof group->choices);
    *job->costs_out = engine->options.costs;
    return SH_OK;
}

sh_status sh_engine_calibrate(sh_engine *engine, sh_costs *costs_out) {
    calibration job = {.costs_out = costs_out};
    job.buffer = sh_alloc(2, LONG_BYTES);
    if (job.buffer == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a calibration");
    sh_status status = sh_engine_job(engine, calibrate, &job);
    sh_free(job.buffer);
    return status;
}
