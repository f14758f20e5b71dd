/* Inside the simulator:
 *
 *   sim.c        tasks, the loop over events, the clock
 *   events.c     what happens when          network.c   how long messages take
 *   compute.c    how long steps take        faults.c    what goes wrong
 *   transport.c  the functions of a rank's transport, and waiting
 *   post.c       messages under way, their match with receives
 *   end.c        ranks that leave, deadlocks
 *   team.c       endpoints, also of later teams
 *   pool.c       memory of messages */
#ifndef SH_SIM_SIM_INTERNAL_H
#define SH_SIM_SIM_INTERNAL_H

#include "base/fiber.h"
#include "base/memory.h"
#include "sim/events.h"
#include "sim/pool.h"
#include "sim/sim.h"

enum { SH_SIM_CLASSES = 11 };  // payloads of 64 bytes to 64 KiB

typedef enum sh_sim_kind {
    SH_SIM_LANDS,    // a message's first byte is at the receiver
    SH_SIM_ARRIVES,  // its last one is
    SH_SIM_WAKES,    // a task slept long enough
    SH_SIM_RESUMES,  // a rank that stood still goes on
    SH_SIM_DIES,     // a planned death
    SH_SIM_RETURNS,  // somebody takes the dead one's place
    // Soft kinds: when nothing else happens for long, nothing will.
    SH_SIM_LOOKS,   // a rank that waits looks up
    SH_SIM_YIELDS,  // a task gave way for a moment
} sh_sim_kind;

/* A message under way, or arrived and not asked for. */
typedef struct sh_flight {
    sh_event event;          // first: one pointer is the other
    int from, to;            // endpoints
    int peer;                // the sender, as the receiver knows it
    struct sh_flight *next;  // of those that came to a rank
    uint64_t tag;
    sh_stamp stamp;
    size_t bytes;
    void *payload;                              // a copy, from the pool of its class; or NULL
    sh_message *message;                        // the sender's, who waits for the receiver; or NULL
    uint64_t number;                            // in the order of the sends
    struct sh_flight *long_next, *long_before;  // of one sender, who waits for the receivers
    struct sh_flight *air_next, *air_before;    // on the way to one rank, where faults reorder
    bool held;                                  // landed before one that it must not overtake
    bool dropped;                               // the sender took it back
} sh_flight;

/* A task that sleeps. */
typedef struct sh_sleep {
    sh_event event;  // first
    sh_fiber *fiber;
    struct sh_sleep *next, *before;  // of the same rank
} sh_sleep;

/* A planned death (sh_sim_faults) and the return that may follow; its event is queued for one,
 * then for the other. */
typedef struct sh_death {
    sh_event event;  // first
    int rank;
    int home;         // the endpoint of who takes its place,
    int64_t back_ns;  // so much later; 0: nobody does
} sh_death;

/* The timer of an endpoint that idles: it looks up now and then though no message came, at longer
 * and longer intervals, so that time limits and wishes to stop are seen. */
typedef struct sh_sim_look {
    bool queued;    // `event` is in sh_sim.looks
    int fruitless;  // looks since the last news; each doubles the interval
    int64_t at_ns;  // when the waiter wants to look up; `event` may fire earlier and is put off
    sh_event event;
} sh_sim_look;

/* Polls without news at one virtual time: who polls for ever would stop the clock. */
typedef struct sh_sim_polls {
    int count;
    int64_t at_ns;
} sh_sim_polls;

/* One endpoint. */
typedef struct sh_sim_rank {
    sh_transport base;  // first
    sh_sim *sim;
    int first, peers;    // endpoints of its set of transports: peer p is endpoint first + p
    int host;            // the rank that it is, or sits on
    sh_message *posted;  // receives that wait, in the order they were started
    sh_message **posted_end;
    sh_flight *come;  // unexpected-message queue: arrived before a receive, in order of arrival
    sh_flight **come_end;
    sh_fiber *waiter;  // the task that idles
    bool news;         // since the last progress
    bool dead, planned;
    bool over;  // its team is: whoever waits for a peer fails
    sh_sim_look look;
    sh_event resume;
    int64_t died_ns;
    int air_count;          // messages of this rank under way
    sh_flight *first_air;   // to this rank, where faults reorder
    sh_flight *first_long;  // long messages of this rank that their receivers do not have yet
    sh_sleep *sleeps;
    int tasks;
    int vain;  // idles of the dead
    sh_sim_polls polls;
} sh_sim_rank;

/* The whole simulation. All tasks are fibers of the thread that calls sh_sim_run, so no field
 * needs a guard. */
struct sh_sim {
    sh_sim_options options;
    int endpoints;
    sh_world *world;
    sh_network network;
    sh_events events, looks;
    uint64_t order;
    int64_t now_ns;
    int64_t moved_ns;  // when something other than a look happened
    sh_clock clock;
    sh_sim_rank *ranks;  // (endpoints)
    sh_arena memory;
    sh_status_board *board;
    int *node;  // (endpoints): racks, or each its own
    struct sh_places *places;
    sh_pool flights, sleeps, payloads[SH_SIM_CLASSES];
    sh_death *deaths;
    int dead;  // ranks
    bool reorders;
    bool stuck;  // a deadlock, or no memory: everything fails with `cause`
    sh_error cause;
    sh_sim_counts counts;
};

extern const sh_transport_ops sh_sim_ops;

/* Virtual time of the start. Not 0, which stands for "never" in fields that hold times. */
static const int64_t SH_SIM_START_NS = 1000000000;

/* Virtual nanoseconds and seconds; to nanoseconds rounds to the nearest. */
static inline double sh_sim_to_s(int64_t ns) { return (double)ns * 1e-9; }
static inline int64_t sh_sim_to_ns(double s) { return (int64_t)(s * 1e9 + 0.5); }

/* Queues an event; without memory the simulation is stuck. */
void sh_sim_queue(sh_sim *sim, sh_event *event, sh_sim_kind kind, int64_t at_ns);

/* post.c */
sh_status sh_sim_send(sh_transport *transport, sh_message *message);
sh_status sh_sim_receive(sh_transport *transport, sh_message *message);
void sh_sim_cancel(sh_transport *transport, sh_message *message);
void sh_post_lands(sh_sim *sim, sh_flight *flight);
void sh_post_arrives(sh_sim *sim, sh_flight *flight);
/* Everything that the rank waits for fails, and what came to it is dropped. */
void sh_post_abandon(sh_sim_rank *rank);
/* Long messages that the rank waits to be taken fail: their memory is about to go. */
void sh_post_recall_all(sh_sim_rank *rank);
/* All receives of one rank from another fail. */
void sh_post_fail_from(sh_sim_rank *rank, int peer);

/* team.c */
int sh_sim_main_endpoints(const sh_sim *sim);
int sh_sim_endpoints(const sh_sim_options *options);
void sh_sim_set_up_endpoints(sh_sim *sim);
int sh_sim_home(const sh_sim *sim, int death);
/* The first endpoint of a team's ranks. */
int sh_sim_team_first(const sh_sim *sim, int team);
/* It sits on the rank from now on. */
void sh_sim_place(sh_sim *sim, int endpoint, int host);

/* transport.c */
void sh_sim_news(sh_sim_rank *rank);  // wakes the rank's waiter
void sh_sim_looks(sh_sim_rank *rank);
/* Wakes the fiber at that time (kind WAKES or YIELDS), or when its rank dies. */
sh_sleep *sh_sim_sleep(sh_sim_rank *rank, sh_fiber *fiber, sh_sim_kind kind, int64_t until_ns);
void sh_sim_wakes(sh_sleep *sleep);
void sh_sim_wake_early(sh_sim *sim, sh_sleep *sleep);
void sh_sim_wake_all(sh_sim_rank *rank);  // the tasks of a rank that sleep

/* end.c */
sh_status sh_sim_health(sh_transport *transport);
/* All that a dead endpoint had sent was delivered: receives from it fail. */
void sh_sim_silence(sh_sim *sim, int endpoint);
/* Nothing will ever happen: makes the error, and all that waits fail. */
void sh_sim_stuck(sh_sim *sim);
/* Keeps the failure that explains the others. */
void sh_sim_keep_cause(sh_sim *sim, sh_status status);

#endif
