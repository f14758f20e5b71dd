#include "base/task.h"

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
