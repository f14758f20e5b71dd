/* The simulator: ranks as coroutines in one thread, on a virtual clock. The third transport: tasks
 * that sh_sim_spawn starts open it with sh_sim_attach and run the code that runs on shm and MPI.
 * Time passes while they compute (sh_sim_spend) and wait, never while they execute; the same
 * options give the same history, bit for bit.
 *
 *   sh_sim_create(&options, &sim);
 *   for (int rank = 0; rank < ranks; rank++) sh_sim_spawn(sim, rank, "worker", body, &job[rank]);
 *   status = sh_sim_run(sim);  // until all have ended
 *
 * What is modelled and what is not: docs/simulator.md. */
#ifndef SH_SIM_SIM_H
#define SH_SIM_SIM_H

#include "base/task.h"
#include "comm/transport.h"
#include "sim/compute.h"
#include "sim/faults.h"
#include "sim/network.h"

typedef struct sh_sim sh_sim;

/* A message up to this size is done for its sender at once; a longer one when its receiver has it,
 * as in MPI. */
enum { SH_SIM_EAGER_BYTES = 64 << 10 };

typedef struct sh_sim_options {
    int ranks;         // what every transport says
    int services;      // further endpoints, above the ranks: servers
    const int *hosts;  // per endpoint: the rank whose wires it shares; NULL: each has its own
    int mail;          // endpoints of a second set of transports (sh_sim_attach_mail), 0: none
    int teams;         // further ones of both sets, for sh_sim_begin_team; 0: none
    uint64_t seed;
    sh_sim_links links;
    sh_sim_compute compute;
    sh_sim_faults faults;
    size_t stack_bytes;  // of a task; 0: enough for numerics
    double patience_s;   // nothing but waiting for so long is a deadlock; 0: 60
    /* A planned death has happened; and somebody takes the place of a rank that died: `home` is an
     * endpoint for sh_sim_spawn. Outside of all tasks. NULL: nobody asks. */
    void (*died)(void *who, int rank);
    void (*returns)(void *who, int rank, int home);
    void *who;
} sh_sim_options;

typedef struct sh_sim_counts {
    uint64_t events, messages, bytes, lost;
} sh_sim_counts;

sh_status sh_sim_create(const sh_sim_options *options, sh_sim **sim_out);
/* Not while it runs. Transports are gone with it. */
void sh_sim_destroy(sh_sim *sim);

/* The first task of a rank or one more; before or while the simulation runs. A task that fails is a
 * rank that left: its peers are told. Keeps `argument` until the task ends. */
sh_status sh_sim_spawn(sh_sim *sim, int rank, const char *name, sh_task_body body, void *argument);
/* Until all tasks have ended. Returns the failure that explains the others, but none of ranks whose
 * death was planned. A deadlock fails and says who waits for whom. */
sh_status sh_sim_run(sh_sim *sim);

/* From a task of the rank (or before the run). sh_transport_close ends it; it can be opened again.
 */
sh_status sh_sim_attach(sh_sim *sim, int rank, sh_transport **transport_out);

/* The mail of schemes: endpoints 0 .. ranks - 1 are the ranks' own, the others are services;
 * service s sits on rank s mod ranks, or on the endpoint of that number where the options have
 * services. Mail shares the wires of who it sits on. */
sh_status sh_sim_attach_mail(sh_sim *sim, int endpoint, sh_transport **transport_out);

/* Teams: as ranks die and come back, others sit at the table. Team 0 is there from the start; team
 * 1, 2, ... begins when its members are known, with messages of its own: its rank r, and the mail
 * of it, sits on rank hosts[r] of team 0; services with endpoints of their own stay where they
 * are. */
void sh_sim_begin_team(sh_sim *sim, int team, const int *hosts, int ranks, int mail);
/* Waits for ranks of this team fail with SH_E_PEER from now on, though all of them may live. */
void sh_sim_end_team(sh_sim *sim, int team);
sh_status sh_sim_attach_team(sh_sim *sim, int team, int rank, sh_transport **transport_out);
sh_status sh_sim_attach_team_mail(sh_sim *sim, int team, int endpoint,
                                  sh_transport **transport_out);

/* The calling task computes for so long. Fails if its rank dies meanwhile. */
sh_status sh_sim_spend(sh_sim *sim, int64_t ns);
/* The same of work that may become void: asks `ends` first and whenever something happens to
 * `transport` (a message that it asked for, a ring), one of the task's own, and ends early when it
 * says so. */
sh_status sh_sim_spend_unless(sh_sim *sim, int64_t ns, sh_transport *transport,
                              bool (*ends)(void *self), void *self);
/* How long the rank computes in a step: drawn from the distribution, slow phases included. */
int64_t sh_sim_compute_ns(const sh_sim *sim, int rank, int64_t step);

/* A virtual clock that starts at one second, so that no time is 0. */
const sh_clock *sh_sim_clock(const sh_sim *sim);
double sh_sim_seconds(const sh_sim *sim);  // since the start
sh_sim_counts sh_sim_counted(const sh_sim *sim);
sh_status_board *sh_sim_board(sh_sim *sim);
/* The rank dies now, in all teams. From a task of the simulation or before the run. */
void sh_sim_kill(sh_sim *sim, int rank);
bool sh_sim_is_dead(const sh_sim *sim, int rank);

#endif
