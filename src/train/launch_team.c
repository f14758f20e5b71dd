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
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return SH_FAIL(SH_E_IO, "cannot start %s: %s", launch_name(a, slot, name), strerror(errno));
    if (pid == 0) {
        close(a->notes_fd);
        sh_worker_main(&(sh_worker){.job = a->job,
                                    .config = a->config,
                                    .generations = a->generations,
                                    .parent = parent,
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

static int64_t now(void) { return sh_clock_now_ns(&sh_clock_real); }

static void fail_team(launch_attempt *a, const char *text) {
    launch_fail(a, SH_E_PEER, text, "");
    a->died = a->failed = true;
}

static void begin_generation(launch_attempt *a) {
    int count;
    if (launch_roll(a, &count) == 0) {
        fail_team(a, "all workers who had the model have died");
        return;
    }
    a->over_ns = 0;
    launch_take_saved(a);
    sh_generations_publish(a->generations, a->roll, count);
    sh_board *board = launch_board(a);
    for (int rank = 0; rank < count; rank++) {
        board->rank[rank].pid = a->pids[a->roll[rank]];
        sh_board_phase(&board->rank[rank], SH_PHASE_START, now());
    }
    for (int slot = a->slots; slot < launch_processes(a); slot++)
        if (launch_fork(a, slot, false) != SH_OK) fail_team(a, sh_error_last()->text);
    // Those who leave the one before may still wait there for somebody who dies now.
    sh_generations_forget(a->generations, launch_newest(a) - 1);
}

/* What servers leave in their snapshots is what the others go on with, so the next generation waits
 * until none lives. They hear of the end, or see the death that is its cause; one that does neither
 * is ended, and what it had not saved is lost: not before even a crowded machine let it run. */
static void follow(launch_attempt *a) {
    static const int64_t patience_ns = 30000000000;
    bool hurries = now() - a->over_ns > patience_ns, works = false, serves = false;
    for (int slot = 0; slot < a->slots; slot++) works = works || a->pids[slot] != 0;
    for (int slot = a->slots; slot < launch_processes(a); slot++) {
        if (a->pids[slot] != 0 && hurries) kill(a->pids[slot], SIGKILL);
        serves = serves || a->pids[slot] != 0;
    }
    if (works && !serves) begin_generation(a);
}

static void end_generation(launch_attempt *a) {
    sh_generations_end(a->generations);
    if (a->over_ns == 0) a->over_ns = now();
    follow(a);
}

bool launch_go_on(launch_attempt *a) {
    int count, ranks = sh_generation_ranks(a->generations, launch_newest(a));
    if (!a->job->restarts || *a->restarts >= a->config->restarts) return false;
    if (sh_generations_spent(a->generations) || launch_roll(a, &count) == 0) return false;
    for (int rank = 0; rank < ranks; rank++) {
        int slot = sh_generation_slot(a->generations, launch_newest(a), rank);
        if (a->pids[slot] != 0 && sh_slot_get(a->generations, slot) == SH_SLOT_STARTS) return false;
    }
    end_generation(a);
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
    if (slot >= a->slots) {
        snprintf(text, sizeof text, "restart %ld of %ld: server %d starts again from its snapshot",
                 (long)*a->restarts, (long)most, slot - a->slots);
        launch_warn(a, text);
    } else if (a->config->elastic) {
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
    int living = 0;
    if (a->over_ns != 0) {
        follow(a);
        return;
    }
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
    if (spent)
        fail_team(a, "the workers lost each other too often");
    else
        end_generation(a);
}
