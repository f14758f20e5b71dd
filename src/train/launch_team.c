/* The team as its parent sees it: workers die and are replaced, and the living go on
 * (train/regroup.h). */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "train/launch_internal.h"

const char *launch_name(const launch_attempt *a, int slot, char name_out[SH_BOARD_NAME]) {
    bool works = slot < a->slots;
    snprintf(name_out, SH_BOARD_NAME, "%s %d", works ? "worker" : "server",
             works ? slot : slot - a->slots);
    return name_out;
}

sh_status launch_fork(launch_attempt *a, int slot, bool joins) {
    char name[SH_BOARD_NAME];
    if (slot < a->slots) sh_slot_set(a->generations, slot, SH_SLOT_STARTS, launch_newest(a));
    pid_t pid = fork();
    if (pid < 0)
        return SH_FAIL(SH_E_IO, "cannot start %s: %s", launch_name(a, slot, name), strerror(errno));
    if (pid == 0) {
        close(a->notes_fd);
        sh_worker_main(&(sh_worker){.job = a->job,
                                    .config = a->config,
                                    .generations = a->generations,
                                    .slot = slot,
                                    .slots = a->slots,
                                    .joins = joins,
                                    .notes_fd = a->notes_write_fd,
                                    .stop = a->stop,
                                    .now = {.generation = launch_newest(a)}});
    }
    a->pids[slot] = pid;
    a->left++;
    return SH_OK;
}

/* ---- Generations ---- */

bool launch_holds(const launch_attempt *a, int slot) {
    return a->pids[slot] != 0 && sh_slot_get(a->generations, slot) >= SH_SLOT_TRAINS;
}

static bool is_ready(const launch_attempt *a, int slot) {
    return a->pids[slot] != 0 && sh_slot_get(a->generations, slot) == SH_SLOT_READY;
}

int launch_roll(launch_attempt *a, int *count_out) {
    int holders = 0, ranks = sh_generation_ranks(a->generations, launch_newest(a));
    for (int rank = 0; rank < ranks; rank++) {
        int slot = sh_generation_slot(a->generations, launch_newest(a), rank);
        if (launch_holds(a, slot)) a->roll[holders++] = slot;
    }
    *count_out = holders;
    for (int slot = 0; slot < a->slots; slot++)
        if (is_ready(a, slot)) a->roll[(*count_out)++] = slot;
    return holders;
}

static void begin_generation(launch_attempt *a, int count) {
    sh_generations_publish(a->generations, a->roll, count);
    sh_board *board = launch_board(a);
    for (int rank = 0; rank < count; rank++) {
        board->rank[rank].pid = a->pids[a->roll[rank]];
        sh_board_phase(&board->rank[rank], SH_PHASE_START, sh_clock_now_ns(&sh_clock_real));
    }
    // Those who leave the one before may still wait there for somebody who dies now.
    sh_generations_forget(a->generations, launch_newest(a) - 1);
}

bool launch_go_on(launch_attempt *a) {
    int count, ranks = sh_generation_ranks(a->generations, launch_newest(a));
    if (!a->job->restarts || *a->restarts >= a->config->restarts) return false;
    if (sh_generations_spent(a->generations) || launch_roll(a, &count) == 0) return false;
    for (int rank = 0; rank < ranks; rank++) {
        int slot = sh_generation_slot(a->generations, launch_newest(a), rank);
        if (a->pids[slot] != 0 && sh_slot_get(a->generations, slot) == SH_SLOT_STARTS) return false;
    }
    begin_generation(a, count);
    return true;
}

void launch_replace(launch_attempt *a, int slot) {
    char text[160];
    const int64_t most = a->config->restarts;
    if (*a->restarts >= most) {
        snprintf(text, sizeof text, "worker %d does not come back: its restarts are used up", slot);
        launch_warn(a, text);
        return;
    }
    ++*a->restarts;
    if (a->config->elastic) {
        snprintf(text, sizeof text, "restart %ld of %ld: the others go on without worker %d",
                 (long)*a->restarts, (long)most, slot);
        launch_warn(a, text);
    } else if (launch_fork(a, slot, true) == SH_OK) {
        snprintf(text, sizeof text,
                 "restart %ld of %ld: the others go on, worker %d starts again (pid %d) and joins "
                 "them",
                 (long)*a->restarts, (long)most, slot, (int)a->pids[slot]);
        launch_warn(a, text);
    } else {
        launch_warn(a, sh_error_last()->text);
    }
}

/* The run has ended before they could join. */
static void end_newcomers(launch_attempt *a) {
    a->over = true;
    for (int slot = 0; slot < a->slots; slot++)
        if (a->pids[slot] != 0 && launch_rank(a, slot) < 0) kill(a->pids[slot], SIGKILL);
}

void launch_tend(launch_attempt *a) {
    bool wished = false, waits = true;
    int count, living = 0;
    for (int slot = 0; slot < a->slots; slot++) {
        bool member = launch_rank(a, slot) >= 0;
        if (!member && is_ready(a, slot)) wished = true;
        if (!member || a->pids[slot] == 0) continue;
        living++;
        waits = waits && sh_slot_get(a->generations, slot) == SH_SLOT_WAITS &&
                sh_slot_generation(a->generations, slot) == launch_newest(a);
    }
    bool spent = sh_generations_spent(a->generations);
    sh_generations_wish(a->generations, wished && !spent);
    if (living == 0) end_newcomers(a);
    if (living == 0 || !waits) return;
    if (spent) {
        launch_fail(a, SH_E_PEER, "the workers lost each other too often", "");
        a->died = a->failed = true;
        return;
    }
    launch_roll(a, &count);
    begin_generation(a, count);
}
