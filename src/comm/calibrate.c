/* What messages and sums cost here. The first two ranks that share a node, and the first two that
 * do not, play ping-pong while the others wait; what the first of each pair measured is broadcast,
 * so that all ranks choose alike from then on. */
#include <string.h>

#include "comm/engine_internal.h"

enum {
    SMALL_BYTES = 8,
    SMALL_TRIPS = 64,
    WARM_TRIPS = 16,
    FIRST_BYTES = 64 << 10,  // a slow link shows itself here
    LONG_BYTES = 1 << 20,
    LONG_TRIPS = 8,
    SUM_ROUNDS = 16,
};
static const int64_t slow_trip_ns = 4000000;

typedef struct calibration {
    sh_link *link_out, *node_link_out;
    char *buffer;  // (2, LONG_BYTES)
} calibration;

static double median(double *times, int count) {
    for (int i = 1; i < count; i++)
        for (int k = i; k > 0 && times[k] < times[k - 1]; k--) {
            double swapped = times[k];
            times[k] = times[k - 1];
            times[k - 1] = swapped;
        }
    return times[count / 2];
}

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

/* Median seconds of one way. */
static sh_status time_trips(sh_engine *engine, int peer, bool first, char *data, size_t bytes,
                            int trips, double *seconds_out) {
    double times[SMALL_TRIPS];
    SH_ASSERT(trips <= SMALL_TRIPS);
    for (int i = 0; i < trips; i++) {
        int64_t start = sh_engine_now(engine);
        SH_TRY(round_trip(engine, peer, first, data, bytes));
        times[i] = (double)(sh_engine_now(engine) - start) * 0.5e-9;
    }
    *seconds_out = median(times, trips);
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
    link->beta_s = fast > alpha ? (fast - alpha) / (double)bytes : 1e-12;
    return SH_OK;
}

/* Seconds per byte of a sum in the cache. */
static double time_sum(sh_engine *engine, char *buffer) {
    double times[SUM_ROUNDS];
    for (int i = 0; i < SUM_ROUNDS; i++) {
        int64_t start = sh_engine_now(engine);
        engine->combine->join[SH_SUM][SH_DTYPE_F32](buffer, buffer, buffer + LONG_BYTES,
                                                    LONG_BYTES / sizeof(float));
        times[i] = (double)(sh_engine_now(engine) - start) * 1e-9;
    }
    return median(times, SUM_ROUNDS) / LONG_BYTES;
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
    if (!find_pair(engine->transport, one_node, &first, &second)) return SH_OK;
    if (rank == first || rank == second) {
        SH_TRY(
            time_link(engine, rank == first ? second : first, rank == first, buffer, link_inout));
        link_inout->gamma_s = time_sum(engine, buffer);
    }
    double numbers[] = {link_inout->alpha_s, link_inout->beta_s, link_inout->gamma_s};
    sh_call call = {.what = SH_BROADCAST,
                    .data = numbers,
                    .count = SH_COUNT(numbers),
                    .dtype = SH_DTYPE_F64,
                    .root = first,
                    .bucket = -1};
    SH_TRY(sh_engine_begin(engine, &call));
    SH_TRY(sh_engine_await(engine, &call));
    *link_inout = (sh_link){numbers[0], numbers[1], numbers[2]};
    return SH_OK;
}

static sh_status calibrate(sh_engine *engine, void *argument) {
    calibration *job = argument;
    SH_TRY(sh_engine_drain(engine));
    SH_TRY(measure(engine, job->buffer, true, &engine->options.node_link));
    SH_TRY(measure(engine, job->buffer, false, &engine->options.link));
    for (sh_group *group = engine->groups; group != NULL; group = group->next)
        memset(group->choices, 0, sizeof group->choices);
    if (job->link_out != NULL) *job->link_out = engine->options.link;
    if (job->node_link_out != NULL) *job->node_link_out = engine->options.node_link;
    return SH_OK;
}

sh_status sh_engine_calibrate(sh_engine *engine, sh_link *link_out, sh_link *node_link_out) {
    calibration job = {.link_out = link_out, .node_link_out = node_link_out};
    job.buffer = sh_alloc(2, LONG_BYTES);
    if (job.buffer == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a calibration");
    sh_status status = sh_engine_job(engine, calibrate, &job);
    sh_free(job.buffer);
    return status;
}
