/* Who is in the team: what follows when a worker dies, hangs, comes back or has ended. One pure
 * state machine, fed by the parent of processes (host/launch.c) and by the simulator
 * (sim/simulate_team.c): events go in, and sh_membership_move says what is to be done.
 *
 *   a worker's states            starts ──▶ ready ──▶ trains ◀──▶ waits
 *                                   ╲         ╲         │  dies    ╱
 *                                    ╲──────────╲──────▶ gone ◀───╱
 *
 *   a generation                 begins ──▶ (a member dies, or all members wait) ──▶ over
 *                                  ▲            the servers of the generation end      │
 *                                  ╰──────────────── another one begins ◀──────────────╯
 *
 * A generation is the team between two events of that kind, with ranks of its own. Its ranks are
 * first those who hold the model, in the order they had, then those who are ready to join. */
#ifndef SH_HOST_MEMBERSHIP_H
#define SH_HOST_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum sh_member_state {
    SH_MEMBER_GONE,    // no worker has this slot
    SH_MEMBER_STARTS,  // nobody can count on it yet
    SH_MEMBER_READY,   // waits to be let in
    SH_MEMBER_TRAINS,  // holds the model
    SH_MEMBER_WAITS,   // holds the model, has left a generation and waits for the next
} sh_member_state;

typedef enum sh_server_state {
    SH_SERVER_GONE,    // there is no place for it
    SH_SERVER_IDLE,    // begins with the next generation
    SH_SERVER_SERVES,  // serves the newest generation
} sh_server_state;

typedef struct sh_membership_options {
    int slots;    // workers
    int servers;  // services with a process or a wire of their own; slots behind the workers'
    int generations_most;  // 1: nobody can go on after a death
    int64_t restarts_most;
    bool elastic;  // nobody takes the place of a worker that died
} sh_membership_options;

typedef struct sh_member {
    sh_member_state state;
    int generation;  // that it said so in
} sh_member;

typedef struct sh_membership {
    sh_membership_options options;
    sh_member *member;        // (slots)
    sh_server_state *server;  // (servers)
    int *roll;                // (slots): the slots of the newest generation, by rank
    int ranks;                // of it
    int newest;               // generations are counted from 0
    bool over;                // the newest one is
    bool announced;           // and the host has been told so
    bool done;                // all members of it have ended in order
    int64_t restarts;         // that were granted
} sh_membership;

/* What the host is to do next. */
typedef enum sh_team_move {
    SH_TEAM_STAYS,   // nothing
    SH_TEAM_ENDS,    // tell everybody that the newest generation is over, and its servers to end
    SH_TEAM_BEGINS,  // start the generation that roll, ranks and newest describe, with its servers
    SH_TEAM_DONE,    // end those who wait to join: all members have ended in order
    SH_TEAM_LOST,    // fail: everybody who had the model has died
    SH_TEAM_SPENT,   // fail: there may be no further generation
} sh_team_move;

/* What takes the place of somebody who died. */
typedef enum sh_replacement {
    SH_REPLACED_BY_NOBODY,          // the restarts are used up
    SH_REPLACED_BY_NONE_ASKED_FOR,  // elastic: the others go on without it
    SH_REPLACED_BY_SERVER,          // a server, with the next generation
    SH_REPLACED_BY_WORKER,          // a worker that is to be started now and joins
} sh_replacement;

/* Generation 0 has begun: a rank for each slot, all of them starting, all servers serving. */
sh_status sh_membership_init(sh_membership *team, const sh_membership_options *options);
void sh_membership_fini(sh_membership *team);

/* ---- Events ---- */

/* The worker of a slot tells its state. Of one that is gone it is an echo, and ignored. */
void sh_membership_tells(sh_membership *team, int slot, sh_member_state state, int generation);
/* A worker or server has ended in order. Of a server that died it is an echo, and ignored. */
void sh_membership_ended(sh_membership *team, int slot);
/* A worker or server has died. False: the others cannot go on without it. */
bool sh_membership_died(sh_membership *team, int slot);
/* After a death that the others survive: who takes the place. Counts the restart. The new worker
 * starts; the new server is idle until the next generation. */
sh_replacement sh_membership_replace(sh_membership *team, int slot);
/* A worker has been started that is to join, or there is a place for a server again. */
void sh_membership_returns(sh_membership *team, int slot);
/* What follows from the events so far; to be called until it says SH_TEAM_STAYS. */
sh_team_move sh_membership_move(sh_membership *team);

/* ---- Questions ---- */

/* The rank of a slot in the newest generation; -1: it has none. */
int sh_membership_rank(const sh_membership *team, int slot);
static inline bool sh_membership_holds(const sh_membership *team, int slot) {
    return team->member[slot].state >= SH_MEMBER_TRAINS;
}
/* Somebody waits to join, and can: the members should meet soon. */
bool sh_membership_wished(const sh_membership *team);
/* The others would go on if this worker or server were killed. */
bool sh_membership_can_lose(const sh_membership *team, int slot);

#endif
