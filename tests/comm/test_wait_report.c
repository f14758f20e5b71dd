/* Waits that are reported while they last. */
#include "comm/watchdog.h"

#include <stdatomic.h>
#include <string.h>

#include "base/task.h"
#include "comm/engines.h"
#include "harness.h"
#include "sync/mail.h"

static const int64_t second_ns = 1000000000;

typedef struct heard {
    char text[512];
    _Atomic int lines;
} heard;

/* Keeps the first line: on a crowded machine others may wait as long. */
static void hear(void *user, const char *text) {
    heard *all = user;
    if (atomic_fetch_add(&all->lines, 1) == 0) strncpy(all->text, text, sizeof all->text - 1);
}

TEST(wait_report, comes_after_some_time_and_then_after_twice_as_long) {
    sh_wait_report report = {.line = hear, .after_ns = 5 * second_ns};
    const int seconds[] = {5, 10, 20, 40};
    for (int told = 0; told < 4; told++) {
        assert_false(sh_wait_report_is_due(&report, seconds[told] * second_ns - 1, told));
        assert_true(sh_wait_report_is_due(&report, seconds[told] * second_ns, told));
    }
}

TEST(wait_report, stays_out_where_nobody_listens_or_waits_are_usual) {
    assert_false(sh_wait_report_is_due(NULL, 1000 * second_ns, 0));
    assert_false(sh_wait_report_is_due(&(sh_wait_report){.after_ns = 1}, 1000 * second_ns, 0));
    assert_false(sh_wait_report_is_due(&(sh_wait_report){.line = hear}, 1000 * second_ns, 0));
}

static void check_text(uint64_t ranks, const char *what, const char *wanted) {
    heard all = {.lines = 0};
    sh_wait_report report = {.line = hear, .user = &all, .after_ns = second_ns};
    sh_wait_report_tell(&report, 5 * second_ns, ranks, what);
    assert_string_equal(all.text, wanted);
}

TEST(wait_report, says_for_whom_in_what_and_how_long) {
    check_text(1u << 3, "allreduce (step 7)", "waiting for rank 3 in allreduce (step 7) for 5 s");
    check_text(1u << 3 | UINT64_C(1) << 63, "pull", "waiting for ranks 3, 63 in pull for 5 s");
    check_text(0, "barrier", "waiting for the others in barrier for 5 s");
}

/* The last rank comes to the sum only when a wait for it has been reported. */
static sh_status come_after_report(sh_engine *engine, void *argument) {
    heard *all = argument;
    float x = 1;
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = &x,
                    .count = 1,
                    .dtype = SH_DTYPE_F32,
                    .op = SH_SUM,
                    .step = 12,
                    .bucket = 3};
    while (sh_engine_rank(engine) == 1 && atomic_load(&all->lines) == 0) sh_task_yield();
    SH_TRY(sh_engine_run(engine, &call));
    return x == 2 ? SH_OK : SH_FAIL(SH_E_FORMAT, "the sum is %g", (double)x);
}

TEST(wait_report, tells_whom_a_comm_task_waits_for) {
    heard all = {.lines = 0};
    sh_wait_report report = {.line = hear, .user = &all, .after_ns = second_ns / 2};
    const sh_engine_options options = {.task = true, .wait_report = &report};
    CHECK_OK(run_engines(2, &options, come_after_report, &all));
    assert_non_null(strstr(all.text, "waiting for rank 1 in allreduce (bucket 3, step 12) for "));
}

static sh_status send_after_report(sh_transport *transport, void *argument) {
    heard *all = argument;
    sh_wait_report report = {.line = hear, .user = all, .after_ns = second_ns / 20};
    sh_mail mail = {.transport = transport,
                    .workers = 2,
                    .timeout_ns = 600 * second_ns,
                    .wait_report = &report};
    int64_t value = 5;
    if (transport->rank == 0) return sh_mail_take(&mail, 1, 1, &value, sizeof value, "pull");
    while (atomic_load(&all->lines) == 0) sh_task_yield();
    return sh_mail_put(&mail, 0, 1, &value, sizeof value, "push");
}

TEST(wait_report, tells_whose_mail_is_waited_for) {
    heard all = {.lines = 0};
    CHECK_OK(run_ranks(2, send_after_report, &all));
    assert_non_null(strstr(all.text, "waiting for rank 1 in pull for "));
}
