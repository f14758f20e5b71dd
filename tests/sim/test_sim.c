/* Time, faults and ends of simulated runs. */
#include "sim/sim.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "harness.h"
#include "sim/simulated.h"

static sh_status exchange(sh_transport *t, int peer, uint64_t tag, int64_t *value_inout) {
    int64_t own = *value_inout;
    sh_message receive = {.peer = peer, .tag = tag, .data = value_inout, .bytes = 8};
    sh_message send = {.peer = peer, .tag = tag, .data = &own, .bytes = 8};
    SH_TRY(sh_receive(t, &receive));
    SH_TRY(sh_send(t, &send));
    SH_TRY(wait_message(t, &send));
    return wait_message(t, &receive);
}

static sh_status compute_and_meet(sh_transport *t, void *argument) {
    (void)argument;
    SH_TRY(sh_sim_spend(simulated(), (t->rank + 1) * INT64_C(1000000)));
    return meet_ranks(t, 1);
}

TEST(sim, time_passes_in_computing_and_waiting) {
    CHECK_OK(run_simulated(4, &(sh_sim_options){0}, compute_and_meet, NULL));
    assert_true(fabs(simulated_seconds() - 4e-3) < 1e-12);
    CHECK_OK(run_simulated(4, NULL, compute_and_meet, NULL));  // and two messages, the last in turn
    assert_true(fabs(simulated_seconds() - 4.1e-3) < 1e-6);
}

/* ---- Where mail goes ------------------------------------------------------------------------- */

typedef struct letter_job {
    sh_sim *sim;
    int endpoint;
    double seconds;  // when it came
} letter_job;

/* Endpoint 0 sends 125,000 bytes to endpoint 2, a service. */
static sh_status send_or_take(void *argument) {
    letter_job *job = argument;
    sh_transport *mail = NULL;
    SH_TRY(sh_sim_attach_mail(job->sim, job->endpoint, &mail));
    sh_message message = {.peer = 2 - job->endpoint, .tag = 1, .bytes = 125000};
    SH_TRY((job->endpoint == 0 ? sh_send : sh_receive)(mail, &message));
    SH_TRY(wait_message(mail, &message));
    job->seconds = sh_sim_seconds(job->sim);
    return SH_OK;
}

static double letter_seconds(int services) {
    sh_sim_options options = {
        .ranks = 2, .services = services, .mail = 3, .links = simulated_links()};
    sh_sim *sim = NULL;
    CHECK_OK(sh_sim_create(&options, &sim));
    letter_job jobs[] = {{.sim = sim}, {.sim = sim, .endpoint = 2}};
    CHECK_OK(sh_sim_spawn(sim, 0, "worker", send_or_take, &jobs[0]));
    CHECK_OK(sh_sim_spawn(sim, services > 0 ? 2 : 0, "service", send_or_take, &jobs[1]));
    CHECK_OK(sh_sim_run(sim));
    sh_sim_destroy(sim);
    return jobs[1].seconds;
}

TEST(sim, a_service_sits_on_a_rank_or_has_wires_of_its_own) {
    assert_true(letter_seconds(0) < 50e-6);
    assert_true(letter_seconds(1) >= 1050e-6);  // a megabit at 1 Gbit/s, and 50 us
}

/* ---- The same seed, the same history -----------------------------------------------------------
 */

/* Random partners and sizes, and a hash of what came when. */
static sh_status wander(sh_transport *t, void *argument) {
    uint64_t *hashes = argument, hash = 14695981039346656037u;
    for (int64_t step = 0; step < 40; step++) {
        SH_TRY(sh_sim_spend(simulated(), sh_sim_compute_ns(simulated(), t->rank, step)));
        sh_rng rng = sh_rng_stream(9, SH_RNG_TEST, 0, (uint64_t)step);
        int64_t value = t->rank, shift = (int64_t)sh_rng_below(&rng, (uint64_t)t->ranks);
        int peer = (int)(((shift - t->rank) % t->ranks + t->ranks) % t->ranks);
        SH_TRY(exchange(t, peer, 1 + (uint64_t)step % 3, &value));
        hash = (hash ^ (uint64_t)value) * 1099511628211u;
        hash = (hash ^ (uint64_t)sh_clock_now_ns(t->clock)) * 1099511628211u;
    }
    hashes[t->rank] = hash;
    return SH_OK;
}

static void wander_with(uint64_t seed, uint64_t hashes_out[16]) {
    static const sh_sim_slow slow[] = {{.rank = 3, .factor = 4}};
    sh_sim_options options = {.seed = seed, .links = simulated_links()};
    options.compute = (sh_sim_compute){
        .law = SH_LAW_LOGNORMAL, .mean_s = 1e-3, .sigma = 1, .slow = slow, .slow_count = 1};
    options.faults = (sh_sim_faults){.delay_s = 1e-4, .hold = 0.1, .hold_s = 1e-3};
    CHECK_OK(run_simulated(16, &options, wander, hashes_out));
}

TEST(sim, the_same_seed_gives_the_same_history) {
    uint64_t first[16], second[16], other[16];
    for (uint64_t seed = 1; seed <= 10; seed++) {
        print_message("seed %d\n", (int)seed);
        wander_with(seed, first);
        double seconds = simulated_seconds();
        wander_with(seed, second);
        assert_memory_equal(first, second, sizeof first);
        assert_true(seconds == simulated_seconds());
        wander_with(seed + 100, other);
        assert_memory_not_equal(first, other, sizeof first);
    }
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static sh_status ping_forever(sh_transport *t, void *argument) {
    int *rounds = argument;
    for (int64_t value = 0; t->rank < 2; value++) {
        SH_TRY(sh_sim_spend(simulated(), 1000000));
        SH_TRY(exchange(t, 1 - t->rank, 1, &value));
        rounds[t->rank]++;
    }
    return SH_OK;
}

TEST(sim, a_planned_death_ends_the_rank_and_its_peers_hear_of_it) {
    const sh_sim_death deaths[] = {{.rank = 1, .at_s = 0.0505}};
    sh_sim_options options = {.faults = {.deaths = deaths, .death_count = 1}};
    int rounds[3] = {0};
    CHECK_FAILS(SH_E_PEER, "rank 0: rank 1 has left",
                run_simulated(3, &options, ping_forever, rounds));
    assert_int_equal(rounds[0], 50);
    assert_int_equal(rounds[1], 50);
    assert_true(simulated_seconds() >= 0.0505 && simulated_seconds() < 0.052);
}

/* The others do not depend on the one that dies. */
static sh_status count_alone(sh_transport *t, void *argument) {
    int *rounds = argument;
    for (; rounds[t->rank] < 100; rounds[t->rank]++) SH_TRY(sh_sim_spend(simulated(), 1000000));
    return SH_OK;
}

TEST(sim, a_planned_death_is_no_failure_of_the_others) {
    const sh_sim_death deaths[] = {{.rank = 2, .at_s = 0.0305}};
    sh_sim_options options = {.faults = {.deaths = deaths, .death_count = 1}};
    int rounds[4] = {0};
    CHECK_OK(run_simulated(4, &options, count_alone, rounds));
    assert_int_equal(rounds[2], 30);
    assert_int_equal(rounds[3], 100);
}

static sh_status ping_ten(sh_transport *t, void *argument) {
    (void)argument;
    for (int64_t i = 0, value = 0; i < 10; i++) {
        SH_TRY(sh_sim_spend(simulated(), 1000000));
        SH_TRY(exchange(t, 1 - t->rank, 1, &value));
    }
    return SH_OK;
}

TEST(sim, a_rank_that_stops_delays_the_others) {
    CHECK_OK(run_simulated(2, &(sh_sim_options){0}, ping_ten, NULL));
    double plain = simulated_seconds();
    const sh_sim_stop stops[] = {{.rank = 1, .at_s = 0.0035, .for_s = 2}};
    sh_sim_options options = {.faults = {.stops = stops, .stop_count = 1}};
    CHECK_OK(run_simulated(2, &options, ping_ten, NULL));
    assert_true(fabs(simulated_seconds() - plain - 2) < 1e-9);
}

TEST(sim, messages_are_lost_with_their_link) {
    const sh_sim_cut cuts[] = {{.a = 0, .b = 1, .from_s = 0.0045, .until_s = 10}};
    sh_sim_options options = {.faults = {.cuts = cuts, .cut_count = 1}};
    CHECK_FAILS(SH_E_PEER, "deadlock at 0.005", run_simulated(2, &options, ping_ten, NULL));
    assert_int_equal(simulated_counts().lost, 2);
    assert_non_null(strstr(sh_error_last()->text, "rank 0 (worker) waits for rank 1, tag 1"));
    assert_non_null(strstr(sh_error_last()->text, "rank 1 (worker) waits for rank 0, tag 1"));
}

/* ---- Deadlocks ------------------------------------------------------------------------------- */

static sh_status one_stays_away(sh_engine *engine, void *argument) {
    (void)argument;
    if (sh_engine_rank(engine) == 2) return SH_OK;
    sh_call call = {
        .what = SH_ALLREDUCE, .algorithm = "ring", .count = 1000, .step = 7, .bucket = 3};
    return sh_engine_run(engine, &call);
}

TEST(sim, a_deadlock_says_who_waits_for_whom_in_which_operation) {
    CHECK_FAILS(SH_E_PEER, "deadlock at",
                run_simulated_engines(4, NULL, NULL, one_stays_away, NULL));
    assert_non_null(strstr(sh_error_last()->text, "rank 3 (worker) waits for rank 2"));
    assert_non_null(strstr(sh_error_last()->text, "in allreduce ring of step 7, bucket 3"));
}

static sh_status yield_for_ever(sh_transport *t, void *argument) {
    volatile bool *flag = argument;
    while (t->rank == 0 && !*flag && sh_transport_health(t) == SH_OK) sh_task_yield();
    return SH_OK;
}

TEST(sim, who_only_yields_waits_too) {
    bool flag = false;
    sh_sim_options options = {.patience_s = 1e-2};
    CHECK_FAILS(SH_E_PEER, "its next turn", run_simulated(2, &options, yield_for_ever, &flag));
}

/* The engine's watchdog works on the virtual clock. */
TEST(sim, a_time_out_comes_in_virtual_time) {
    sh_engine_options engine = {.timeout_ns = INT64_C(5000000000)};
    CHECK_FAILS(SH_E_PEER, "waited", run_simulated_engines(4, NULL, &engine, one_stays_away, NULL));
    assert_true(simulated_seconds() > 4.9 && simulated_seconds() < 10);
}

static sh_status refuse(sh_transport *t, void *argument) {
    (void)argument;
    if (t->rank == 1) return SH_FAIL(SH_E_NUMERIC, "rank 1 does not like it");
    return meet_ranks(t, 1);
}

TEST(sim, the_cause_of_a_failure_is_told_not_its_echo) {
    CHECK_FAILS(SH_E_NUMERIC, "does not like it", run_simulated(5, NULL, refuse, NULL));
}

/* ---- Tasks inside a rank ------------------------------------------------------------------------
 */

static sh_status make_batches(void *argument) {
    static int batch;
    for (int i = 0; i < 20; i++) {
        SH_TRY(sh_sim_spend(simulated(), 1000000));
        if (!sh_queue_push(argument, &batch)) return SH_OK;
    }
    sh_queue_close(argument);
    return SH_OK;
}

static sh_status use_loader(sh_transport *t, void *argument) {
    (void)argument;
    sh_queue *queue = NULL;
    sh_task *task = NULL;
    SH_TRY(sh_queue_create(2, &queue));
    SH_TRY(sh_task_spawn("loader", make_batches, queue, &task));
    int count = 0;
    for (void *item; sh_queue_pop(queue, &item); count++)
        SH_TRY(sh_sim_spend(simulated(), 1500000));
    SH_TRY(sh_task_wait(task));
    sh_queue_destroy(queue);
    if (count != 20) return SH_FAIL(SH_E_NUMERIC, "%d batches", count);
    return meet_ranks(t, 1);
}

TEST(sim, tasks_of_a_rank_share_its_virtual_time) {
    CHECK_OK(run_simulated(3, &(sh_sim_options){0}, use_loader, NULL));
    assert_true(fabs(simulated_seconds() - (1e-3 + 20 * 1.5e-3)) < 1e-9);
}

/* Servers above the ranks, one of them beside a worker. */
static sh_status ask_servers(sh_transport *t, void *argument) {
    for (int64_t i = 0; i < 4; i++) {
        int64_t value = t->rank;
        if (t->rank == 0) SH_TRY(exchange(t, t->ranks + (int)(i % 2), 1, &value));
        if (t->rank >= t->ranks && i % 2 == 0) SH_TRY(exchange(t, 0, 1, &value));
        if (t->rank == 0 && value != t->ranks + i % 2) return SH_FAIL(SH_E_NUMERIC, "not from it");
    }
    (void)argument;
    return SH_OK;
}

TEST(sim, services_have_ranks_of_their_own) {
    const int hosts[] = {0, 1, 2, 0};
    sh_sim_options options = {.services = 2, .links = simulated_links(), .hosts = hosts};
    CHECK_OK(run_simulated(2, &options, ask_servers, NULL));
    // Two exchanges over the wire, two on the host.
    assert_true(fabs(simulated_seconds() - 2 * 50.064e-6) < 1e-9);
}
