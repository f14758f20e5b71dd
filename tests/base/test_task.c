#include "base/task.h"

#include <stdatomic.h>
#include <time.h>

#include "harness.h"

static sh_status failing(void *argument) {
    (void)argument;
    return SH_FAIL(SH_E_IO, "the disk said no");
}

TEST(task, hands_its_error_record_over) {
    sh_task *task = NULL;
    CHECK_OK(sh_task_spawn("failing", failing, NULL, &task));
    CHECK_FAILS(SH_E_IO, "the disk said no", sh_task_wait(task));
}

static sh_status push_numbers(void *argument) {
    static int numbers[100];
    for (int i = 0; i < 100; i++) {
        numbers[i] = i;
        if (!sh_queue_push(argument, &numbers[i])) break;
    }
    sh_queue_close(argument);
    return SH_OK;
}

TEST(queue, keeps_order_and_drains_after_close) {
    sh_queue *queue = NULL;
    sh_task *task = NULL;
    CHECK_OK(sh_queue_create(3, &queue));
    CHECK_OK(sh_task_spawn("pusher", push_numbers, queue, &task));
    void *item;
    int expected = 0;
    while (sh_queue_pop(queue, &item)) assert_int_equal(*(int *)item, expected++);
    assert_int_equal(expected, 100);
    CHECK_OK(sh_task_wait(task));
    sh_queue_destroy(queue);
}

/* A task that waits at one end of a queue, and what it was told. */
typedef struct waiter {
    sh_queue *queue;
    bool pushes, result;
    _Atomic bool begun;
} waiter;

static sh_status wait_at_queue(void *argument) {
    waiter *w = argument;
    void *item = w;
    atomic_store(&w->begun, true);
    w->result = w->pushes ? sh_queue_push(w->queue, item) : sh_queue_pop(w->queue, &item);
    return SH_OK;
}

TEST(queue, closing_ends_the_wait_of_threads_at_both_ends) {
    for (int pushes = 0; pushes < 2; pushes++) {
        waiter w = {.pushes = pushes != 0, .result = true};
        sh_task *task = NULL;
        CHECK_OK(sh_queue_create(1, &w.queue));
        if (w.pushes) assert_true(sh_queue_push(w.queue, &w));  // now it is full
        CHECK_OK(sh_task_spawn("waiter", wait_at_queue, &w, &task));
        while (!atomic_load(&w.begun)) sh_task_yield();
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);  // so that it waits, most likely
        sh_queue_close(w.queue);
        CHECK_OK(sh_task_wait(task));
        assert_false(w.result);
        sh_queue_destroy(w.queue);
    }
}
