#include "base/crew.h"

#include <stdatomic.h>

#include "base/memory.h"
#include "base/task.h"

/* One call of sh_crew_run, on the caller's stack. */
typedef struct job {
    sh_crew_work work;
    void *user;
    size_t pieces;
    atomic_size_t next;  // relaxed: only hands out numbers; the queues order everything else
} job;

typedef struct member {
    sh_crew *crew;
    int index;
    sh_task *task;
} member;

struct sh_crew {
    int count;
    void (*enter)(void);
    sh_queue *jobs, *done;
    member members[];  // [0] is the caller and has no task
};

static void take_pieces(job *from, int index) {
    for (;;) {
        size_t piece = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
        if (piece >= from->pieces) return;
        from->work(from->user, index, piece);
    }
}

static sh_status member_main(void *argument) {
    const member *self = argument;
    sh_crew *crew = self->crew;
    if (crew->enter != NULL) crew->enter();
    void *called;
    while (sh_queue_pop(crew->jobs, &called)) {
        take_pieces(called, self->index);
        sh_queue_push(crew->done, called);
    }
    return SH_OK;
}

static sh_status start(sh_crew *crew, const char *name) {
    SH_TRY(sh_queue_create((size_t)crew->count, &crew->jobs));
    SH_TRY(sh_queue_create((size_t)crew->count, &crew->done));
    for (int i = 1; i < crew->count; i++) {
        crew->members[i] = (member){.crew = crew, .index = i};
        SH_TRY(sh_task_spawn(name, member_main, &crew->members[i], &crew->members[i].task));
    }
    return SH_OK;
}

sh_status sh_crew_create(const char *name, int members, void (*enter)(void), sh_crew **crew_out) {
    SH_ASSERT(members >= 1);
    sh_crew *crew = sh_alloc(1, sizeof *crew + (size_t)members * sizeof crew->members[0]);
    if (crew == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %d tasks", members);
    crew->count = members;
    crew->enter = enter;
    sh_status status = start(crew, name);
    if (status != SH_OK)
        sh_crew_destroy(crew);
    else
        *crew_out = crew;
    return status;
}

void sh_crew_destroy(sh_crew *crew) {
    if (crew == NULL) return;
    if (crew->jobs != NULL) sh_queue_close(crew->jobs);
    for (int i = 1; i < crew->count; i++) sh_task_wait(crew->members[i].task);
    sh_queue_destroy(crew->jobs);
    sh_queue_destroy(crew->done);
    sh_free(crew);
}

int sh_crew_members(const sh_crew *crew) { return crew->count; }

void sh_crew_run(sh_crew *crew, sh_crew_work work, void *user, size_t pieces) {
    job all = {.work = work, .user = user, .pieces = pieces};
    int called = 0;
    for (int i = 1; i < crew->count && (size_t)i < pieces; i++, called++)
        sh_queue_push(crew->jobs, &all);
    take_pieces(&all, 0);
    // The job must outlive its last reader.
    for (void *finished; called > 0; called--) sh_queue_pop(crew->done, &finished);
}
