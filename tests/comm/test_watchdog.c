/* Time-outs that follow what was measured, and who is blamed. */
#include "comm/watchdog.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

static const int64_t second_ns = 1000000000;

TEST(wait_limits, is_long_before_anything_is_known) {
    sh_wait_limits wait_limits = {0};
    wait_limits.limit_s = sh_watch_limit(&wait_limits.watch, SH_PHASE_START);
    assert_true(wait_limits.limit_s >= 300);
    double limit_s = sh_wait_limits_turn(&wait_limits, SH_PHASE_STEP, second_ns);
    assert_true(limit_s == 0 || limit_s >= 300);
}

TEST(wait_limits, follows_the_measured_steps) {
    sh_wait_limits wait_limits = {0};
    int64_t now_ns = second_ns;
    for (int i = 0; i < 4; i++, now_ns += 5 * second_ns)
        sh_wait_limits_turn(&wait_limits, SH_PHASE_STEP, now_ns);
    assert_true(wait_limits.limit_s >= 100 && wait_limits.limit_s < 300);
    // Twenty times as slow, as when another job came to the node: more wait_limits at once.
    now_ns += 90 * second_ns;
    assert_true(sh_wait_limits_turn(&wait_limits, SH_PHASE_STEP, now_ns) > 1000);
}

/* Three short steps; returns when they are over. */
static int64_t take_steps(sh_wait_limits *wait_limits, int64_t now_ns) {
    for (int i = 0; i < 3; i++, now_ns += second_ns / 100)
        sh_wait_limits_turn(wait_limits, SH_PHASE_STEP, now_ns);
    return now_ns;
}

TEST(wait_limits, knows_that_a_checkpoint_takes_longer_than_a_step) {
    sh_wait_limits wait_limits = {0};
    int64_t now_ns = take_steps(&wait_limits, second_ns);
    double step_s = wait_limits.limit_s;
    // The first checkpoint has not been measured; and rank 0 writes it while the others have gone
    // on to the next step.
    double write_s = sh_wait_limits_turn(&wait_limits, SH_PHASE_CHECKPOINT, now_ns);
    assert_true(write_s > 2 * step_s);
    wait_limits.writes = true;
    assert_true(sh_wait_limits_turn(&wait_limits, SH_PHASE_STEP, now_ns + second_ns / 100) == 0);
    assert_true(wait_limits.limit_s == write_s);
    // After that step the checkpoint is known, and steps have their own limit again.
    wait_limits.writes = false;
    sh_wait_limits_turn(&wait_limits, SH_PHASE_STEP, now_ns + 40 * second_ns);
    assert_true(wait_limits.limit_s == step_s);
    double known_s =
        sh_wait_limits_turn(&wait_limits, SH_PHASE_CHECKPOINT, now_ns + 41 * second_ns);
    assert_true(known_s < write_s && known_s > 10 * 40);
}

TEST(wait_limits, lasts_through_all_steps_that_are_taken_while_a_checkpoint_is_written) {
    sh_wait_limits wait_limits = {0};
    int64_t now_ns = take_steps(&wait_limits, second_ns);
    double write_s = sh_wait_limits_turn(&wait_limits, SH_PHASE_CHECKPOINT, now_ns);
    wait_limits.writes = true;
    now_ns = take_steps(&wait_limits, now_ns);  // ahead of rank 0, as in ssp:2
    assert_true(wait_limits.limit_s >= 300);
    now_ns += 100 * second_ns;
    wait_limits.writes = false;
    sh_wait_limits_turn(&wait_limits, SH_PHASE_STEP, now_ns);
    assert_true(wait_limits.limit_s < write_s);
    assert_true(wait_limits.watch.longest_s[SH_PHASE_STEP] < 1);
    assert_true(wait_limits.watch.longest_s[SH_PHASE_CHECKPOINT] >= 100);
}

TEST(wait_limits, is_long_for_a_disk_that_was_quick_the_last_time) {
    sh_watch watch = {.longest_s[SH_PHASE_STEP] = 0.01, .longest_s[SH_PHASE_CHECKPOINT] = 0.01};
    assert_true(sh_watch_limit(&watch, SH_PHASE_STEP) == 30);
    assert_true(sh_watch_limit(&watch, SH_PHASE_CHECKPOINT) == 300);
}

TEST(wait_limits, is_what_the_user_says) {
    sh_wait_limits wait_limits = {.watch = {.limit_s = 2}, .limit_s = 2};
    int64_t now_ns = second_ns;
    for (int phase = SH_PHASE_STEP; phase <= SH_PHASE_CHECKPOINT; phase++, now_ns += 60 * second_ns)
        assert_true(sh_wait_limits_turn(&wait_limits, phase, now_ns) == 0);
    assert_true(wait_limits.limit_s == 2);
}

TEST(wait_limits, mentions_waits_that_are_longer_than_usual) {
    sh_wait_limits wait_limits = {0};
    sh_wait_limits_turn(&wait_limits, SH_PHASE_START, second_ns);
    assert_int_equal(wait_limits.wait_report.after_ns, 0);  // a start may take long
    int64_t now_ns = take_steps(&wait_limits, 60 * second_ns);
    assert_int_equal(wait_limits.wait_report.after_ns, 5 * second_ns);
    sh_wait_limits_turn(&wait_limits, SH_PHASE_EVALUATE, now_ns);
    assert_int_equal(wait_limits.wait_report.after_ns, 0);  // the first of its kind
    sh_wait_limits_turn(&wait_limits, SH_PHASE_STEP, now_ns + second_ns);
    sh_wait_limits_turn(&wait_limits, SH_PHASE_EVALUATE, now_ns + 2 * second_ns);
    assert_int_equal(wait_limits.wait_report.after_ns, 5 * second_ns);
    // Nobody hurries rank 0 while it writes.
    wait_limits.writes = true;
    sh_wait_limits_turn(&wait_limits, SH_PHASE_STEP, now_ns + 3 * second_ns);
    assert_int_equal(wait_limits.wait_report.after_ns, 0);
}

TEST(wait_limits, mentions_nothing_that_long_steps_bring_along) {
    sh_wait_limits wait_limits = {0};
    int64_t now_ns = second_ns;
    for (int i = 0; i < 4; i++, now_ns += 20 * second_ns)
        sh_wait_limits_turn(&wait_limits, SH_PHASE_STEP, now_ns);
    assert_int_equal(wait_limits.wait_report.after_ns, 60 * second_ns);
    // One outage does not make the next one usual.
    sh_wait_limits_turn(&wait_limits, SH_PHASE_STEP, now_ns + 180 * second_ns);
    assert_true(wait_limits.wait_report.after_ns < 120 * second_ns);
}

TEST(watch, does_not_count_the_time_in_which_it_was_stopped_itself) {
    sh_status_board *board = aligned_alloc(64, (sh_board_bytes(2) + 63) / 64 * 64);
    assert_non_null(board);
    memset(board, 0, sh_board_bytes(2));
    board->ranks = 2;
    sh_watch watch = {.limit_s = 30};
    int64_t now_ns = second_ns;
    for (int r = 0; r < 2; r++) sh_board_phase(&board->rank[r], SH_PHASE_STEP, now_ns);
    assert_false(sh_watch_hangs(&watch, board, now_ns));
    now_ns += 3600 * second_ns;  // Ctrl-Z, and fg an hour later
    assert_false(sh_watch_hangs(&watch, board, now_ns));
    // From then on silence counts, and counts in full.
    for (int i = 0; i < 29; i++) assert_false(sh_watch_hangs(&watch, board, now_ns += second_ns));
    for (int i = 0; i < 2; i++) sh_watch_hangs(&watch, board, now_ns += second_ns);
    assert_true(sh_watch_hangs(&watch, board, now_ns));
    // That hour is no silence to measure wait_limits by.
    sh_board_phase(&board->rank[0], SH_PHASE_STEP, now_ns);
    watch.limit_s = 0;
    sh_watch_hangs(&watch, board, now_ns);
    assert_true(watch.longest_s[SH_PHASE_STEP] < 60);
    free(board);
}

/* Two workers and two servers, all of them this process. */
static sh_status_board *board_of_four(void) {
    sh_status_board *board = aligned_alloc(64, (sh_board_bytes(4) + 63) / 64 * 64);
    assert_non_null(board);
    memset(board, 0, sh_board_bytes(4));
    board->ranks = 4;
    board->servers = 2;
    for (int r = 0; r < 4; r++) sh_board_phase(&board->rank[r], SH_PHASE_STEP, second_ns);
    return board;
}

TEST(blame, names_a_server_that_both_workers_wait_for) {
    sh_status_board *board = board_of_four();
    atomic_store(&board->rank[0].mail_from, 1u << 3);
    atomic_store(&board->rank[1].mail_from, 1u << 3);
    atomic_store(&board->rank[2].mail_from, 1u << 0 | 1u << 1);
    char text[512];
    sh_watch_blame(board, 9 * second_ns, text, sizeof text);
    assert_non_null(strstr(text, "server 1 (pid"));
    free(board);
}

TEST(blame, names_a_worker_that_the_servers_wait_for) {
    sh_status_board *board = board_of_four();
    atomic_store(&board->rank[0].mail_from, 1u << 2);
    atomic_store(&board->rank[2].mail_from, 1u << 1);
    atomic_store(&board->rank[3].mail_from, 1u << 0 | 1u << 1);
    char text[512];
    sh_watch_blame(board, 9 * second_ns, text, sizeof text);
    assert_non_null(strstr(text, "worker 1 (pid"));
    free(board);
}

/* A board of workers only, none of which waits for anybody; pids of processes that do not exist. */
static sh_status_board *board_of_workers(int ranks) {
    sh_status_board *board = aligned_alloc(64, (sh_board_bytes(ranks) + 63) / 64 * 64);
    assert_non_null(board);
    memset(board, 0, sh_board_bytes(ranks));
    board->ranks = ranks;
    for (int r = 0; r < ranks; r++) {
        sh_board_phase(&board->rank[r], SH_PHASE_STEP, second_ns);
        board->rank[r].pid = -1;
    }
    return board;
}

static void waits(sh_status_board *board, int rank, uint64_t for_ranks) {
    atomic_store(&board->rank[rank].waits_for, for_ranks);
}

static int blamed(const sh_status_board *board) {
    char text[512], name[SH_BOARD_NAME];
    int rank = sh_watch_blame(board, 9 * second_ns, text, sizeof text);
    sh_board_name(board, rank, name);
    assert_int_equal(strncmp(text, name, strlen(name)), 0);  // who is returned is who is named
    assert_int_equal(text[strlen(name)], ' ');
    return rank;
}

TEST(blame, names_the_one_who_waits_for_nobody_wherever_it_sits) {
    for (int cause = 0; cause < 5; cause++) {
        sh_status_board *board = board_of_workers(5);
        for (int r = 0; r < 5; r++)
            if (r != cause) waits(board, r, UINT64_C(1) << cause);
        assert_int_equal(blamed(board), cause);
        free(board);
    }
}

/* In a ring only the right neighbour waits for the cause, and the others for each other. */
TEST(blame, finds_the_cause_behind_a_chain_of_waits) {
    for (int cause = 0; cause < 4; cause++) {
        sh_status_board *board = board_of_workers(4);
        for (int r = 0; r < 4; r++)
            if (r != cause) waits(board, r, UINT64_C(1) << (r + 3) % 4);
        assert_int_equal(blamed(board), cause);
        free(board);
    }
}

/* Waiting for many does not make a rank the cause, nor does being waited for by one of those who
 * wait: who waits for nobody is. */
TEST(blame, prefers_who_waits_for_nobody_to_who_is_waited_for_by_most) {
    sh_status_board *board = board_of_workers(4);
    waits(board, 0, 1u << 1);
    waits(board, 2, 1u << 1);
    waits(board, 3, 1u << 1);
    waits(board, 1, 1u << 3);  // rank 3 waits for it in turn
    waits(board, 3, 0);        // and is busy with something else
    assert_int_equal(blamed(board), 3);
    free(board);
}

TEST(blame, takes_the_most_waited_for_where_all_wait) {
    for (int cause = 0; cause < 4; cause++) {
        sh_status_board *board = board_of_workers(4);
        for (int r = 0; r < 4; r++) waits(board, r, UINT64_C(1) << cause);
        waits(board, cause, UINT64_C(1) << (cause + 1) % 4);
        assert_int_equal(blamed(board), cause);
        free(board);
    }
}

TEST(blame, counts_mail_and_collectives_of_a_rank_once) {
    sh_status_board *board = board_of_workers(4);
    waits(board, 0, 1u << 2 | 1u << 3);
    atomic_store(&board->rank[0].mail_from, 1u << 3);
    waits(board, 1, 1u << 2);
    waits(board, 2, 1u << 3);
    waits(board, 3, 1u << 0);
    // Two wait for rank 2, and two for rank 3: the first of them.
    assert_int_equal(blamed(board), 2);
    free(board);
}

TEST(blame, takes_a_wait_for_mail_for_a_wait) {
    sh_status_board *board = board_of_workers(3);
    atomic_store(&board->rank[0].mail_from, 1u << 2);
    waits(board, 1, 1u << 0);
    assert_int_equal(blamed(board), 2);  // though somebody waits for rank 0
    // Where all wait, mail counts as much as collectives: two wait for rank 1.
    atomic_store(&board->rank[0].mail_from, 1u << 1);
    atomic_store(&board->rank[2].mail_from, 1u << 1);
    assert_int_equal(blamed(board), 1);
    free(board);
}

TEST(blame, hears_the_last_rank_too) {
    sh_status_board *board = board_of_workers(4);
    waits(board, 0, 1u << 1);
    waits(board, 1, 1u << 2);
    waits(board, 2, 1u << 3);
    waits(board, 3, 1u << 2);
    assert_int_equal(blamed(board), 2);
    free(board);
}

TEST(blame, never_names_a_rank_that_has_ended) {
    for (int ended = 0; ended < 3; ended++) {
        sh_status_board *board = board_of_workers(3);
        int cause = (ended + 1) % 3, other = (ended + 2) % 3;
        sh_board_phase(&board->rank[ended], SH_PHASE_END, second_ns);
        waits(board, cause, UINT64_C(1) << ended);
        waits(board, other, UINT64_C(1) << ended | UINT64_C(1) << cause);
        assert_int_equal(blamed(board), cause);
        free(board);
    }
}

TEST(blame, knows_of_waits_for_the_first_64_ranks_only) {
    sh_status_board *board = board_of_workers(70);
    for (int r = 0; r < 70; r++) waits(board, r, 1);
    waits(board, 69, 0);  // the only one that waits for nobody, beyond the bits
    assert_int_equal(blamed(board), 69);
    waits(board, 69, 1);
    assert_int_equal(blamed(board), 0);
    // Rank 5 has ended, and bit 5 is no bit of rank 69.
    for (int r = 0; r < 70; r++) waits(board, r, 1u << 5);
    waits(board, 8, 1u << 5 | 1u << 7);
    sh_board_phase(&board->rank[5], SH_PHASE_END, second_ns);
    assert_int_equal(blamed(board), 7);
    free(board);
}

/* A process of its own that is stopped, and waits for somebody as it is. */
TEST(blame, names_a_stopped_process_whoever_waits_for_whom) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    for (int stopped = 0; stopped < 3; stopped++) {
        sh_status_board *board = board_of_workers(3);
        int busy = (stopped + 1) % 3, other = (stopped + 2) % 3;
        board->rank[stopped].pid = child;
        waits(board, stopped, UINT64_C(1) << busy);
        waits(board, other, UINT64_C(1) << busy);
        char text[512];
        assert_int_equal(blamed(board), stopped);
        sh_watch_blame(board, 9 * second_ns, text, sizeof text);
        assert_non_null(strstr(text, "is stopped"));
        free(board);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
}

TEST(blame, tells_phase_and_silence_of_the_one_it_names) {
    sh_status_board *board = board_of_workers(2);
    waits(board, 0, 1u << 1);
    atomic_store(&board->rank[1].step, 17);
    sh_board_phase(&board->rank[1], SH_PHASE_EVALUATE, 4 * second_ns);
    char text[512];
    assert_int_equal(sh_watch_blame(board, 9 * second_ns, text, sizeof text), 1);
    assert_string_equal(
        text,
        "worker 1 (pid -1) does not answer: no sign of life for 5.0 s, in evaluation 17, "
        "and the others wait for it");
    free(board);
}

TEST(board, tells_of_mail_and_collectives_alike) {
    sh_status_board *board = board_of_four();
    atomic_store(&board->rank[1].mail_from, 1u << 2);
    atomic_store(&board->rank[1].waits_for, 1u << 0);
    char text[512];
    sh_board_line(&board->rank[1], 1, 2 * second_ns, text, sizeof text);
    assert_non_null(strstr(text, "waits for rank 0, 2"));
    free(board);
}
