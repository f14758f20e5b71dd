/* The parent of processes: what it makes of the words, deaths and restarts of its workers. */
#include "host/launch.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

/* What the workers of all attempts tell each other and the test. */
typedef struct blackboard {
    _Atomic int began[8], runs;  // by rank, and in all
    _Atomic int threads[8];
} blackboard;

/* What the hooks heard. */
typedef struct heard {
    char lines[4096];
    int warnings, progress, stops_after;
    int64_t last_step;
} heard;

static blackboard *board;
static heard ears;

static void hear_line(void *user, shoal_log_level level, const char *text) {
    heard *h = user;
    h->warnings += level >= SHOAL_LOG_WARNING;
    size_t used = strlen(h->lines);
    snprintf(h->lines + used, sizeof h->lines - used, "%s\n", text);
}

static void hear_progress(void *user, const shoal_progress *progress) {
    heard *h = user;
    h->progress++;
    h->last_step = progress->step;
}

static bool wants_stop(void *user) {
    heard *h = user;
    return h->stops_after > 0 && atomic_load(&board->runs) >= h->stops_after;
}

static const shoal_hooks hooks = {
    .user = &ears, .line = hear_line, .progress = hear_progress, .stop = wants_stop};

/* So many workers do `body` on a tiny model; further settings as key, value, ..., NULL. */
static sh_status launch(const char *workers, sh_status (*body)(shoal_run *, void *), bool restarts,
                        const char *const *more, sh_outcome *outcome) {
    sh_config config;
    const char *settings[][2] = {{"model", "{name: mlp, hidden: [4]}"},
                                 {"data", "digits"},
                                 {"kernels", "default"},
                                 {"threads", "1"},
                                 {"restarts", "2"},
                                 {"workers", workers}};
    CHECK_OK(sh_config_init(&config));
    for (size_t i = 0; i < SH_COUNT(settings); i++)
        CHECK_OK(sh_options_set(sh_config_table(), settings[i][0], settings[i][1], &config));
    for (; more != NULL && *more != NULL; more += 2)
        CHECK_OK(sh_options_set(sh_config_table(), more[0], more[1], &config));
    if (board == NULL)
        board =
            mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
    memset(board, 0, sizeof *board);
    ears = (heard){.stops_after = ears.stops_after};
    *outcome = (sh_outcome){0};
    shoal_timing timing = {0};
    sh_job job = {.config = &config,
                  .hooks = &hooks,
                  .body = body,
                  .argument = &timing,
                  .timing = &timing,
                  .restarts = restarts};
    sh_status status = sh_launch(&job, outcome);
    sh_config_fini(&config);
    return status;
}

static int rank_of(const shoal_run *run) {
    int rank = run->team.rank;
    atomic_fetch_add(&board->began[rank], 1);
    atomic_store(&board->threads[rank], sh_run_threads(run));
    atomic_fetch_add(&board->runs, 1);
    return rank;
}

static void expect_line(const char *text) {
    if (strstr(ears.lines, text) == NULL) fail_msg("no '%s' in:\n%s", text, ears.lines);
}

/* ---- Words ---- */

static sh_status speak(shoal_run *run, void *argument) {
    int rank = rank_of(run);
    ((shoal_timing *)argument)->steps = 100 + rank;
    run->hooks.line(run->hooks.user, SHOAL_LOG_INFO, "a word");
    run->hooks.line(run->hooks.user, SHOAL_LOG_WARNING, "a warning");
    run->hooks.progress(run->hooks.user, &(shoal_progress){.step = 7 + rank});
    return SH_OK;
}

TEST(launch, rank_0_speaks_for_all_and_the_others_only_warn) {
    sh_outcome outcome;
    CHECK_OK(launch("3", speak, false, NULL, &outcome));
    for (int rank = 0; rank < 3; rank++) assert_int_equal(atomic_load(&board->began[rank]), 1);
    assert_int_equal(ears.warnings, 3);
    expect_line("rank 1: a warning\n");
    expect_line("rank 2: a warning\n");
    assert_null(strstr(ears.lines, "rank 0"));
    const char *word = strstr(ears.lines, "a word");
    assert_non_null(word);
    assert_null(strstr(word + 1, "a word"));
    assert_int_equal(ears.progress, 1);
    assert_int_equal(ears.last_step, 7);
    assert_int_equal(outcome.timing.steps, 100);  // of rank 0
}

TEST(launch, each_worker_has_the_threads_that_the_run_says) {
    sh_outcome outcome;
    const char *const more[] = {"threads", "2", NULL};
    CHECK_OK(launch("2", speak, false, more, &outcome));
    for (int rank = 0; rank < 2; rank++) assert_int_equal(atomic_load(&board->threads[rank]), 2);
}

/* ---- Failures ---- */

static sh_status fail_on_rank_1(shoal_run *run, void *argument) {
    (void)argument;
    if (rank_of(run) != 1) {
        // Suffers from the other's end, which is not the cause.
        double one = 1;
        return sh_team_sum(&run->team, &one, 1);
    }
    SH_FAIL(SH_E_IO, "my disk is full");
    return sh_error_hint("make room");
}

TEST(launch, the_rank_that_fails_is_named_with_its_words_and_those_that_suffer_are_not) {
    sh_outcome outcome;
    CHECK_FAILS(SH_E_IO, "rank 1: my disk is full",
                launch("3", fail_on_rank_1, false, NULL, &outcome));
    assert_string_equal(sh_error_last()->hint, "make room");
    assert_null(strstr(ears.lines, "left"));
}

static sh_status refuse(shoal_run *run, void *argument) {
    (void)argument;
    rank_of(run);
    return SH_FAIL(SH_E_USAGE, "this cannot be");
}

TEST(launch, settings_that_are_refused_are_those_of_all) {
    sh_outcome outcome;
    launch("2", refuse, false, NULL, &outcome);
    assert_int_equal(sh_error_last()->code, SH_E_USAGE);
    assert_string_equal(sh_error_last()->text, "this cannot be");  // no rank before it
}

TEST(launch, too_many_processes_for_one_machine_are_refused) {
    sh_outcome outcome;
    const char *const more[] = {"data.batch", "8192", NULL};
    CHECK_FAILS(SH_E_USAGE, "5000 workers are too many processes",
                launch("5000", speak, false, more, &outcome));
    assert_int_equal(atomic_load(&board->runs), 0);
}

/* ---- Deaths ---- */

static sh_status die_on_rank_1(shoal_run *run, void *argument) {
    (void)argument;
    int rank = rank_of(run);
    double one = 1;
    SH_TRY(sh_team_sum(&run->team, &one, 1));  // all have begun
    if (rank == 1 && atomic_load(&board->began[1]) == 1) raise(SIGKILL);
    one = 1;
    SH_TRY(sh_team_sum(&run->team, &one, 1));
    return one == (double)run->team.ranks ? SH_OK : SH_FAIL(SH_E_NUMERIC, "the sum is %g", one);
}

TEST(launch, a_killed_worker_is_named_with_its_signal) {
    sh_outcome outcome;
    CHECK_FAILS(SH_E_PEER, "was ended by signal 9 (Killed)",
                launch("3", die_on_rank_1, false, NULL, &outcome));
    assert_non_null(strstr(sh_error_last()->text, "worker 1 (pid "));
    assert_non_null(strstr(sh_error_last()->hint, "dmesg"));
}

TEST(launch, a_job_with_restarts_begins_again_after_a_death) {
    sh_outcome outcome;
    CHECK_OK(launch("3", die_on_rank_1, true, NULL, &outcome));
    expect_line("was ended by signal 9");
    expect_line("restart 1 of 2, from the beginning, with 3 workers");
    assert_int_equal(atomic_load(&board->began[1]), 2);
    assert_int_equal(atomic_load(&board->runs), 6);
}

TEST(launch, an_elastic_job_begins_again_with_a_worker_less) {
    sh_outcome outcome;
    const char *const more[] = {"elastic", "true", NULL};
    CHECK_OK(launch("3", die_on_rank_1, true, more, &outcome));
    expect_line("restart 1 of 2, from the beginning, with 2 workers");
    assert_int_equal(atomic_load(&board->runs), 5);
}

static sh_status die_always(shoal_run *run, void *argument) {
    (void)argument;
    if (rank_of(run) == 0) raise(SIGKILL);
    double one = 1;
    return sh_team_sum(&run->team, &one, 1);
}

TEST(launch, restarts_are_counted_and_then_the_death_is_the_result) {
    sh_outcome outcome;
    CHECK_FAILS(SH_E_PEER, "signal 9", launch("2", die_always, true, NULL, &outcome));
    expect_line("restart 2 of 2");
    assert_null(strstr(ears.lines, "restart 3"));
    assert_int_equal(atomic_load(&board->began[0]), 3);
}

TEST(launch, a_stop_ends_restarts) {
    sh_outcome outcome;
    ears.stops_after = 1;
    CHECK_FAILS(SH_E_PEER, "signal 9", launch("2", die_always, true, NULL, &outcome));
    ears.stops_after = 0;
    assert_int_equal(atomic_load(&board->began[0]), 1);
}

static sh_status await_stop(shoal_run *run, void *argument) {
    (void)argument;
    rank_of(run);
    while (!run->hooks.stop(run->hooks.user)) usleep(1000);
    return SH_FAIL(SH_E_INTERRUPTED, "stopped");
}

TEST(launch, the_parents_stop_reaches_every_worker) {
    sh_outcome outcome;
    ears.stops_after = 3;
    CHECK_FAILS(SH_E_INTERRUPTED, "stopped", launch("3", await_stop, true, NULL, &outcome));
    ears.stops_after = 0;
    assert_int_equal(atomic_load(&board->runs), 3);
}

/* ---- Cores ---- */

TEST(launch, threads_are_a_part_of_the_cores_unless_set) {
    sh_config config = {.threads = 0};
    assert_int_equal(sh_threads_each(&config, 3, 8), 2);
    assert_int_equal(sh_threads_each(&config, 8, 8), 1);
    assert_int_equal(sh_threads_each(&config, 9, 8), 1);
    assert_int_equal(sh_threads_each(&config, 1, 8), 8);
    config.threads = 5;
    assert_int_equal(sh_threads_each(&config, 3, 8), 5);
}

/* In a child, whose cores are its own business: 0 if worker `rank` of `ranks` has what it should.
 */
static int cores_after(int rank, int ranks) {
    pid_t child = fork();
    if (child == 0) {
        cpu_set_t all, mine;
        if (sched_getaffinity(0, sizeof all, &all) != 0) _exit(9);
        int cores = CPU_COUNT(&all);
        sh_take_cores(rank, ranks);
        if (sched_getaffinity(0, sizeof mine, &mine) != 0) _exit(9);
        int wanted = cores >= ranks ? cores * (rank + 1) / ranks - cores * rank / ranks : cores;
        for (int core = 0; core < CPU_SETSIZE; core++)
            if (CPU_ISSET(core, &mine) && !CPU_ISSET(core, &all)) _exit(2);
        _exit(CPU_COUNT(&mine) == wanted ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

TEST(launch, workers_share_the_cores_where_there_is_one_for_each) {
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int rank = 0; rank < ranks; rank++) assert_int_equal(cores_after(rank, ranks), 0);
    assert_int_equal(cores_after(0, CPU_SETSIZE), 0);  // more workers than cores: all share all
}
