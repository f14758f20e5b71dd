/* What the parent does for the team: workers die and are replaced, and the living go on
 * (run/regroup.h), as the state machine of membership says (host/membership.h). */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "host/launch_internal.h"

const char *launch_name(const launch_attempt *a, int slot, char name_out[SH_BOARD_NAME]) {
    bool works = slot < a->slots;
    snprintf(name_out, SH_BOARD_NAME, "%s %d", works ? "worker" : "server",
             works ? slot : slot - a->slots);
    return name_out;
}

sh_status launch_fork(launch_attempt *a, int slot, bool joins) {
    char name[SH_BOARD_NAME];
    if (slot < a->slots) sh_slot_set(a->generations, slot, SH_MEMBER_STARTS, launch_newest(a));
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return SH_FAIL(SH_E_IO, "cannot start %s: %s", launch_name(a, slot, name), strerror(errno));
    // The child does not return: sh_worker_main ends its process.
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

void launch_read_boards(launch_attempt *a) {
    for (int slot = 0; slot < a->slots; slot++)
        if (a->pids[slot] != 0)
            sh_membership_tells(&a->team, slot, sh_slot_get(a->generations, slot),
                                sh_slot_generation(a->generations, slot));
}

static int64_t now(void) { return sh_clock_now_ns(&sh_clock_real); }

/* Ends the attempt. `died` lets sh_launch make another one from the last checkpoint. */
static void fail_team(launch_attempt *a, const char *text) {
    launch_fail(a, SH_E_PEER, text, "");
    a->died = a->failed = true;
}

static void begin_generation(launch_attempt *a) {
    const sh_membership *team = &a->team;
    a->over_ns = 0;
    launch_take_saved(a);
    sh_generations_publish(a->generations, team->roll, team->ranks);
    // The watchdog must name and time a worker that has not reached its new board yet, so the
    // parent fills in pid and phase.
    sh_status_board *board = launch_board(a);
    for (int rank = 0; rank < team->ranks; rank++) {
        board->rank[rank].pid = a->pids[team->roll[rank]];
        sh_board_phase(&board->rank[rank], SH_PHASE_START, now());
    }
    for (int slot = a->slots; slot < launch_processes(a); slot++)
        if (launch_fork(a, slot, false) != SH_OK) fail_team(a, sh_error_last()->text);
    // Workers that leave the previous generation may still wait in it for somebody who dies now.
    sh_generations_forget(a->generations, launch_newest(a) - 1);
}

/* Servers of a generation that is over are told so, or see the death that is its cause; one that
 * does neither is ended, and what it had not saved is lost: not before even a crowded machine let
 * it run. */
static void hurry_servers(launch_attempt *a) {
    static const int64_t patience_ns = 30000000000;
    if (a->over_ns == 0 || now() - a->over_ns < patience_ns) return;
    for (int slot = a->slots; slot < launch_processes(a); slot++)
        if (a->pids[slot] != 0) kill(a->pids[slot], SIGKILL);
}

void launch_replace(launch_attempt *a, int slot) {
    char text[160];
    const long most = (long)a->config->restarts;
    sh_replacement who = sh_membership_replace(&a->team, slot);
    *a->restarts = a->team.restarts;
    const long used = (long)*a->restarts;
    switch (who) {
        case SH_REPLACED_BY_NOBODY:
            snprintf(text, sizeof text, "worker %d does not come back: its restarts are used up",
                     slot);
            break;
        case SH_REPLACED_BY_SERVER:
            snprintf(text, sizeof text,
                     "restart %ld of %ld: server %d starts again from its snapshot", used, most,
                     slot - a->slots);
            break;
        case SH_REPLACED_BY_NONE_ASKED_FOR:
            snprintf(text, sizeof text, "restart %ld of %ld: the others go on without worker %d",
                     used, most, slot);
            break;
        case SH_REPLACED_BY_WORKER:
            if (launch_fork(a, slot, true) != SH_OK) {
                sh_membership_ended(&a->team, slot);
                launch_warn(a, sh_error_last()->text);
                return;
            }
            snprintf(text, sizeof text,
                     "restart %ld of %ld: the others go on, worker %d starts again (pid %d) and "
                     "joins them",
                     used, most, slot, (int)a->pids[slot]);
            break;
    }
    launch_warn(a, text);
}

/* The run has ended before they could join. */
static void end_newcomers(launch_attempt *a) {
    a->over = true;
    for (int slot = 0; slot < a->slots; slot++)
        if (a->pids[slot] != 0 && launch_rank(a, slot) < 0) kill(a->pids[slot], SIGKILL);
}

/* False: nothing is left to do for now. */
static bool do_next(launch_attempt *a) {
    switch (sh_membership_move(&a->team)) {
        case SH_TEAM_STAYS:
            return false;
        case SH_TEAM_ENDS:
            sh_generations_end(a->generations);
            a->over_ns = now();
            return true;
        case SH_TEAM_BEGINS:
            begin_generation(a);
            return !a->failed;
        case SH_TEAM_DONE:
            end_newcomers(a);
            return true;
        case SH_TEAM_LOST:
            fail_team(a, "all workers who had the model have died");
            return false;
        case SH_TEAM_SPENT:
            fail_team(a, "the workers lost each other too often");
            return false;
    }
    return false;
}

void launch_tend(launch_attempt *a) {
    launch_read_boards(a);
    hurry_servers(a);
    while (do_next(a)) continue;
    sh_generations_wish(a->generations, sh_membership_wished(&a->team));
}
