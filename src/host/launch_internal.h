/* Between the files of the parent: launch.c starts the workers, listens to them and takes their
 * ends; launch_team.c sees to it that the living go on. */
#ifndef SH_HOST_LAUNCH_INTERNAL_H
#define SH_HOST_LAUNCH_INTERNAL_H

#include <sys/types.h>

#include "host/membership.h"
#include "host/launch.h"
#include "comm/watchdog.h"

/* One attempt: from the first fork to the last wait. */
typedef struct launch_attempt {
    const sh_job *job;
    const sh_config *config;
    sh_generations *generations;
    _Atomic int *stop;
    pid_t *pids;         // per slot, and behind them per server; 0: has ended
    sh_membership team;  // what follows from what happens to them
    pid_t ending;        // it hung and was killed; 0: nobody
    int64_t over_ns;     // since then the newest generation is over, and the next waits for its
                         // servers to end; 0: it is not
    int slots, servers;  // servers: services with processes of their own
    int left;
    int notes_fd, notes_write_fd;
    int64_t *restarts;  // so far
    sh_outcome *outcome;
    sh_watch watch;
    bool over;       // all of the team have ended well: who waits to join is not needed
    bool failed;     // nobody needs to go on
    bool died;       // a worker left without a word, or hung: worth another attempt
    sh_error error;  // of the first that failed; code SH_OK: none yet
} launch_attempt;

static inline int launch_newest(const launch_attempt *a) {
    return sh_generations_newest(a->generations);
}

static inline sh_status_board *launch_board(const launch_attempt *a) {
    return sh_generation_board(a->generations, launch_newest(a));
}

/* On the board, of the team as it is now; -1: the slot's worker has not joined. */
static inline int launch_rank(const launch_attempt *a, int slot) {
    return sh_generation_rank(a->generations, launch_newest(a), slot);
}

static inline int launch_processes(const launch_attempt *a) { return a->slots + a->servers; }

/* launch.c: `user` is the attempt. */
void launch_warn(void *user, const char *text);
void launch_fail(launch_attempt *a, sh_status code, const char *text, const char *hint);

/* The board of a generation that ends says which checkpoint was written last. */
void launch_take_saved(launch_attempt *a);

/* "worker 2": by its slot, which it keeps whatever its rank is. Returns name_out. */
const char *launch_name(const launch_attempt *a, int slot, char name_out[SH_BOARD_NAME]);
/* A worker, or a server behind the slots; `joins`: a team that is under way. */
sh_status launch_fork(launch_attempt *a, int slot, bool joins);
/* Passes what the workers have written on their boards since to the membership. */
void launch_read_boards(launch_attempt *a);
/* A death that the others survive costs one restart, that of the worker; with --elastic none takes
 * its place. Another server begins with the next generation. */
void launch_replace(launch_attempt *a, int slot);
/* Does what follows for the team: ends and begins generations, and tells workers that somebody
 * waits to join. */
void launch_tend(launch_attempt *a);

#endif
