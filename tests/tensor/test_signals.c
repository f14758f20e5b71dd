/* Computing under a storm of signals whose handler runs on the normal stack. */
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/time.h>

#include "base/signals.h"
#include "base/task.h"
#include "harness.h"
#include "tensor/kernels/gemm.h"

enum { SIDE = 192, STORM_US = 200, SIGNALS_LEAST = 500, ROUNDS_MOST = 200000 };

static volatile sig_atomic_t taken;

static void count_signal(int number) { taken += number == SIGALRM; }

static void set_storm(suseconds_t every_us) {
    const struct itimerval timer = {{0, every_us}, {0, every_us}};
    assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

static float *ones(void) {
    float *x = aligned_alloc(64, SIDE * SIDE * sizeof *x);
    assert_non_null(x);
    for (int i = 0; i < SIDE * SIDE; i++) x[i] = 1;
    return x;
}

/* Products of ones by oneDNN, until enough signals have come; each element must be SIDE. */
static void multiply_in_storm(int threads) {
    float *a = ones(), *b = ones(), *c = ones();
    sh_gemm gemm = {.m = SIDE, .n = SIDE, .k = SIDE, .library = SH_GEMM_ONEDNN, .threads = threads};
    struct sigaction before, action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    sh_signals_start_team(threads);
    taken = 0;
    bool right = true;
    set_storm(STORM_US);
    for (int round = 0; round < ROUNDS_MOST && taken < SIGNALS_LEAST && right; round++) {
        sh_gemm_run(&gemm, (sh_gemm_args){.a = a, .b = b, .c = c}, NULL);
        for (int i = 0; i < SIDE * SIDE; i++) right = right && c[i] == SIDE;
    }
    set_storm(0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    assert_true(right);
    assert_true(taken >= SIGNALS_LEAST);
    free(a), free(b), free(c);
}

TEST(storm, leaves_products_of_onednn_alone) { multiply_in_storm(1); }
TEST(storm, leaves_products_of_several_threads_alone) { multiply_in_storm(2); }

static bool blocks(int number) {
    sigset_t mask;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
    return sigismember(&mask, number) == 1;
}

static sh_status note_mask(void *blocked_out) {
    bool *blocked = blocked_out;
    sigset_t before;
    blocked[0] = blocks(SIGALRM) && blocks(SIGINT) && blocks(SIGUSR1);
    blocked[1] = blocks(SIGSEGV) || blocks(SIGPIPE);  // what it does itself reaches it
    blocked[2] = sh_signals_hold(&before);            // nothing is left to hold
    return SH_OK;
}

TEST(signals, do_not_reach_tasks) {
    bool blocked[3] = {false, true, true};
    sh_task *task = NULL;
    CHECK_OK(sh_task_spawn("masked", note_mask, blocked, &task));
    CHECK_OK(sh_task_wait(task));
    assert_true(blocked[0]);
    assert_false(blocked[1]);
    assert_false(blocked[2]);
    assert_false(blocks(SIGALRM));  // the caller's are its own business
}

TEST(signals, do_not_reach_the_team) {
    int reached = 0, members = 0;
    sh_signals_start_team(3);
#pragma omp parallel reduction(+ : reached, members)
    {
        members++;
        if (omp_get_thread_num() != 0) reached += !blocks(SIGALRM) || !blocks(SIGTERM);
    }
    assert_int_equal(members, 3);
    assert_int_equal(reached, 0);
    assert_false(blocks(SIGTERM));
}

TEST(signals, that_came_while_they_were_held_arrive_at_the_release) {
    struct sigaction before, action = {.sa_handler = count_signal};
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    taken = 0;
    sigset_t mask;
    assert_true(sh_signals_hold(&mask));
    assert_int_equal(raise(SIGALRM), 0);
    assert_int_equal(taken, 0);
    sh_signals_release(&mask);
    assert_int_equal(taken, 1);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
}
