#include "base/fiber.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/task.h"
#include "harness.h"

static char trail[256];

static void note(const char *what) { strncat(trail, what, sizeof trail - strlen(trail) - 1); }

static void run_world(sh_world *world) {
    while (sh_world_step(world)) continue;
}

static sh_world *new_world(void) {
    sh_world *world = NULL;
    CHECK_OK(sh_world_create(&(sh_world_options){0}, &world));
    trail[0] = '\0';
    return world;
}

static void spawn(sh_world *world, const char *name, void (*body)(void *), void *argument) {
    CHECK_OK(sh_world_spawn(world, name, NULL, body, argument, NULL));
}

static void say_thrice(void *argument) {
    for (int i = 0; i < 3; i++) {
        note(argument);
        sh_fiber_yield();
    }
}

TEST(fiber, takes_turns_in_order) {
    sh_world *world = new_world();
    spawn(world, "a", say_thrice, "a");
    spawn(world, "b", say_thrice, "b");
    assert_null(sh_fiber_self());
    run_world(world);
    assert_string_equal(trail, "ababab");
    assert_int_equal(sh_world_fibers(world), 0);
    sh_world_destroy(world);
}

static void block_once(void *argument) {
    *(sh_fiber **)argument = sh_fiber_self();
    sh_fiber_block("a friend");
    note("woken");
}

TEST(fiber, says_what_it_waits_for_and_wakes_once) {
    sh_world *world = new_world();
    sh_fiber *fiber = NULL;
    spawn(world, "sleeper", block_once, &fiber);
    run_world(world);
    assert_string_equal(sh_fiber_waits(fiber), "a friend");
    assert_string_equal(sh_fiber_name(fiber), "sleeper");
    sh_fiber_wake(fiber);
    sh_fiber_wake(fiber);
    assert_null(sh_fiber_waits(fiber));
    run_world(world);
    assert_string_equal(trail, "woken");
    sh_world_destroy(world);
}

static void fail_twice(void *argument) {
    (void)SH_FAIL(SH_E_IO, "the fault of %s", (char *)argument);
    sh_fiber_yield();
    note(sh_error_last()->text);
    note(". ");
}

TEST(fiber, keeps_its_own_error_record) {
    sh_world *world = new_world();
    (void)SH_FAIL(SH_E_FORMAT, "the thread's own");
    spawn(world, "a", fail_twice, "a");
    spawn(world, "b", fail_twice, "b");
    run_world(world);
    assert_string_equal(trail, "the fault of a. the fault of b. ");
    assert_string_equal(sh_error_last()->text, "the thread's own");
    sh_world_destroy(world);
}

static double deep(int depth, double x) {
    volatile double local[32];
    for (int i = 0; i < 32; i++) local[i] = x + i;
    if (depth % 10 == 0) sh_fiber_yield();
    double below = depth > 0 ? deep(depth - 1, x * 1.0001) : 0;
    return below + local[depth % 32];
}

static void dig(void *argument) { *(double *)argument = deep(300, *(double *)argument); }

TEST(fiber, keeps_its_stack_and_registers_over_switches) {
    enum { COUNT = 100 };
    sh_world *world = new_world();
    double got[COUNT];
    for (int i = 0; i < COUNT; i++) {
        got[i] = i;
        spawn(world, "digger", dig, &got[i]);
    }
    run_world(world);
    sh_world_destroy(world);
    for (int i = 0; i < COUNT; i++) {
        double wanted = i;
        world = new_world();
        spawn(world, "alone", dig, &wanted);
        run_world(world);
        sh_world_destroy(world);
        assert_true(got[i] == wanted);
    }
}

static void nothing(void *argument) { ++*(int *)argument; }

TEST(fiber, ten_thousand_come_and_go_on_few_stacks) {
    sh_world *world = new_world();
    int count = 0;
    for (int i = 0; i < 10000; i++) {
        spawn(world, "short", nothing, &count);
        run_world(world);
    }
    assert_int_equal(count, 10000);
    sh_world_destroy(world);
}

TEST(fiber, a_world_with_unfinished_fibers_can_be_destroyed) {
    sh_world *world = new_world();
    sh_fiber *fiber = NULL;
    spawn(world, "sleeper", block_once, &fiber);
    run_world(world);
    assert_int_equal(sh_world_fibers(world), 1);
    assert_ptr_equal(sh_world_first(world), fiber);
    assert_null(sh_fiber_next(fiber));
    sh_world_destroy(world);
}

/* ---- Tasks and queues of base/task.h, inside --------------------------------------------------
 */

static sh_status push_numbers(void *argument) {
    static int numbers[100];
    for (int i = 0; i < 100; i++) {
        numbers[i] = i;
        if (!sh_queue_push(argument, &numbers[i])) break;
    }
    sh_queue_close(argument);
    return SH_FAIL(SH_E_NUMERIC, "the pusher's last word");
}

static void use_tasks(void *argument) {
    sh_status *status = argument;
    sh_queue *queue = NULL;
    sh_task *task = NULL;
    int expected = 0;
    *status = sh_queue_create(3, &queue);
    if (*status == SH_OK) *status = sh_task_spawn("pusher", push_numbers, queue, &task);
    for (void *item; *status == SH_OK && sh_queue_pop(queue, &item);)
        if (*(int *)item != expected++) *status = SH_E_FORMAT;
    if (*status == SH_OK && expected != 100) *status = SH_E_FORMAT;
    sh_status ended = sh_task_wait(task);
    if (ended != SH_E_NUMERIC) *status = SH_E_FORMAT;
    note(sh_error_last()->text);
    sh_queue_destroy(queue);
}

TEST(task, is_a_coroutine_inside_a_coroutine) {
    sh_world *world = new_world();
    sh_status status = SH_E_IO;
    spawn(world, "main", use_tasks, &status);
    run_world(world);
    assert_int_equal(status, SH_OK);
    assert_int_equal(sh_world_fibers(world), 0);
    assert_string_equal(trail, "the pusher's last word");
    sh_world_destroy(world);
}

static sh_status pop_one(void *argument) {
    void *item;
    return sh_queue_pop(argument, &item) ? SH_OK : SH_FAIL(SH_E_INTERRUPTED, "closed");
}

/* A failed assertion would jump off the coroutine's stack: what fails is noted. */
static bool works(sh_status status) {
    if (status != SH_OK) note(sh_error_last()->text);
    return status == SH_OK;
}

static void close_on_waiters(void *argument) {
    int *closed = argument;
    sh_queue *queue = NULL;
    sh_task *tasks[5] = {0};
    if (!works(sh_queue_create(1, &queue))) return;
    for (int i = 0; i < 5; i++)
        if (!works(sh_task_spawn("popper", pop_one, queue, &tasks[i]))) return;
    sh_task_yield();
    sh_queue_close(queue);
    for (int i = 0; i < 5; i++) *closed += sh_task_wait(tasks[i]) == SH_E_INTERRUPTED;
    sh_queue_destroy(queue);
}

TEST(queue, closing_wakes_every_coroutine_that_waits) {
    sh_world *world = new_world();
    int closed = 0;
    spawn(world, "main", close_on_waiters, &closed);
    run_world(world);
    assert_string_equal(trail, "");
    assert_int_equal(closed, 5);
    assert_int_equal(sh_world_fibers(world), 0);
    sh_world_destroy(world);
}
