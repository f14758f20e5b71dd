/* The team: the workers of a run, seen from one of them. Rank 0 reads and writes all files; the
 * others get its state at the start and send it what it reports. */
#ifndef SH_RUN_TEAM_H
#define SH_RUN_TEAM_H

#include <sched.h>

#include "comm/engine.h"
#include "data/loader.h"
#include "parallel/mesh.h"
#include "parallel/peers.h"
#include "sync/sync.h"
#include "run/config.h"
#include "comm/watchdog.h"

struct shoal_run;

/* Of a bucket, unless the run file says it: measured with LeNet and GPT on two workers
 * (docs/data-parallel.md). */
static const double SH_BUCKET_MIB = 4.0;

typedef struct sh_worker_env sh_worker_env;

/* How a worker's team goes on without those who die and with those who come back. A generation is
 * the team between two such events, with ranks of its own (run/regroup.h). */
typedef struct sh_regroup_ops {
    /* Waits for the next generation and opens its engine; the env's mail is that of the new one
     * from now on. The generation before stays until `joined`. */
    sh_status (*next)(void *self, sh_worker_env *env_out);
    /* Memory of this generation that outlives who took it, zeroed, at the same address for all
     * workers and services. It stays until the next one is joined. NULL: there is not enough. */
    void *(*keep)(void *self, size_t bytes);
    /* This worker holds the model in this generation; what is left of the one before goes. */
    void (*joined)(void *self);
    bool (*moved)(void *self);   // this generation is over: it has lost somebody
    bool (*wished)(void *self);  // somebody waits to join: the workers should meet soon
    /* What the first generation agrees on while it opens its data, rank 0 notes; who joins later
     * recalls it in the same order. NULL: workers share one memory. */
    void (*note)(void *self, const double *values, size_t count);
    sh_status (*recall)(void *self, double *values_out, size_t count);
    bool (*gone)(void *self);  // simulated: this worker is dead and writes nothing more; or NULL
} sh_regroup_ops;

/* Where a worker sits. */
struct sh_worker_env {
    sh_engine *engine;       // borrowed; NULL: it is to join a team that is under way
    sh_mesh_shape mesh;      // of all ranks of the engine; zeros: they only share the batch
    sh_rank_status *board;   // borrowed
    int slot, slots;         // its place among those of all workers, whatever its rank
    int planned;             // workers that the run began with; 0: as many as there are
    int threads;             // that this worker computes with
    const cpu_set_t *cores;  // borrowed, of all workers; NULL: this one is not bound to its part
    sh_wait_limits *wait_limits;  // borrowed; NULL: a parent watches over the workers
    const sh_clock *clock;        // NULL: the real one
    const sh_data *data;  // borrowed, where workers share one memory; NULL: it opens its own
    /* Opens an endpoint of the mail that schemes use; NULL: the run's scheme uses none. */
    sh_status (*open_mail)(void *self, int endpoint, sh_transport **mail_out);
    /* In the simulator: lets the time pass that this part (0 to 1) of a step's forward and backward
     * takes. NULL: it passes by itself. */
    void (*spend)(void *self, int64_t step, double part);
    /* The same for a whole step that may become void: `ends` is asked whenever there is mail. */
    void (*spend_unless)(void *self, int64_t step, sh_transport *mail, bool (*ends)(void *who),
                         void *who);
    bool timing_only;               // nothing is computed: there are no weights
    const sh_regroup_ops *regroup;  // NULL: a death ends the run
    void *self;
};

/* Server snapshots of a generation, in memory that outlives its services. */
typedef struct sh_server_snapshots {
    char *base;    // NULL: there is none, or it was read
    size_t bytes;  // of one service
    int workers, services;
    bool counted;  // what the services counted is known from elsewhere
} sh_server_snapshots;

/* Blocks of the model that lie where the workers of one node may map them; base NULL: private. */
typedef struct sh_team_blocks {
    sh_shared gradients, weights;
    sh_shared slots;  // the optimizer's state, one block behind the other
} sh_team_blocks;

/* Shares of the batch that follow speed (team_balance.c). */
typedef struct sh_team_balance_state {
    uint32_t *cuts;               // the shares now, and those thought of; 2 (ranks + 1)
    double *speeds;               // (ranks)
    int64_t samples, compute_ns;  // since the last look
} sh_team_balance_state;

/* Rank, group, mesh and snapshots are those of a generation and change when the team regroups;
 * `holds`, `lost` and `spare` last as long as the run. */
typedef struct sh_team {
    sh_engine *engine;  // of the whole run; NULL: it has one worker
    sh_mesh mesh;       // of all its ranks
    sh_group *group;    // its workers that hold copies of the same parameters: those along the
                        // dimension `data`; NULL: this one alone. `rank` and `ranks` are there
    int rank, ranks;
    int threads;                  // 0: all cores
    sh_rank_status *board;        // NULL: one worker
    sh_wait_limits *wait_limits;  // NULL: somebody else's
    sh_call written;    // where there is wait_limits: a barrier that rank 0 comes to when its
                        // files are written
    bool writes;        // it is under way
    sh_worker_env env;  // as it was given; zeros: one worker
    sh_team_blocks blocks;
    sh_step_options steps;  // how workers that step together do it
    sh_team_balance_state balance;
    bool stops;                     // a rank was asked to stop: all do after this step
    bool regroups;                  // somebody waits to join: all regroup after this step
    bool holds;                     // this worker has the model, or the whole of its part of it
    bool joined;                    // it trains in this generation
    sh_server_snapshots snapshots;  // of this generation
    sh_server_snapshots left;       // of the last one that it trained in, until it was read
    float *spare;    // where the team can regroup: sums are made here, so that none is left torn
    char *costs;     // of messages, as rank 0 told them; NULL: defaults
    int generation;  // how often it has regrouped
    int64_t step;    // where this generation began
    int64_t lost;    // updates that dead servers took with them
} sh_team;

static inline bool sh_team_leads(const sh_team *team) { return team->rank == 0; }
/* Collective over the engine: the mesh that the env asks for, and this worker's place in it. */
sh_status sh_team_form(sh_team *team);
/* This worker's part of every batch. */
sh_batch_share sh_team_share(const sh_team *team);

/* Before the model takes gradients: these come from memory that the peers map. */
void sh_team_attach(struct shoal_run *run);
/* Refuses ranks whose run file, program or data differ from rank 0's, naming the difference. */
sh_status sh_team_compare(struct shoal_run *run);
/* Rank 0's parameters, states, optimizer, position and kernel choices to everyone. */
sh_status sh_team_broadcast_state(struct shoal_run *run);
/* Everyone learns where rank 0 writes the run's files. */
sh_status sh_team_broadcast_folder(struct shoal_run *run);
/* The codec of the run; dgc takes the momentum over from the optimizer. */
sh_status sh_team_codec(const struct shoal_run *run, sh_codec *codec_out);
/* Collective, before the scheme is opened: the blocks of the model move to where peers can map
 * them, if its scheme wants that, and team->steps says how steps are taken together. */
sh_status sh_team_place_blocks(struct shoal_run *run);
/* Where workers of one thread map each other's memory they update this run's parameters while they
 * sum gradients, whoever waits, on one optimizer state for all. Not by a rule that needs norms of
 * whole parameters, and not what fits into the caches, where it better stays with its worker. */
bool sh_team_may_fuse_update(const struct shoal_run *run, int workers);
/* What messages cost: as remembered, or measured once. Rank 0 decides for all. */
sh_status sh_team_take_costs(struct shoal_run *run);
/* The same figures for another generation of the team. */
sh_status sh_team_keep_costs(struct shoal_run *run);

/* Rank 0's bytes to everyone. */
sh_status sh_team_broadcast(sh_team *team, void *data, size_t bytes);
/* Rank 0's kernel choices to everyone. */
sh_status sh_team_broadcast_kernels(struct shoal_run *run);
/* Rank 0's text to everyone; sh_free it. Rank 0 gives its own, which stays its own. */
sh_status sh_team_tell(sh_team *team, const char *text, char **text_out);
/* Sums doubles over the ranks; one worker: nothing to do. */
sh_status sh_team_sum(sh_team *team, double *values, size_t count);
/* The most of the ranks, one by one. */
sh_status sh_team_max(sh_team *team, double *values, size_t count);
/* What data in parts needs of the team; of a worker that joins: of the team as it first was.
 * Borrows it. */
sh_data_team sh_team_for_data(sh_team *team);
/* Every check_every steps: a replica whose parameters drifted is named. */
sh_status sh_team_check_replicas(struct shoal_run *run);
/* Where the time went, per worker, what was sent and who left, into the log. */
sh_status sh_team_report(struct shoal_run *run);

/* After a step: notes how fast this worker is, and now and then gives everyone another share. */
sh_status sh_team_balance(struct shoal_run *run, int64_t samples, int64_t compute_ns);

/* A phase begins: the board says so, and waits get its limit. */
void sh_team_phase(sh_team *team, sh_phase phase, int64_t step);
/* Rank 0 begins to write a checkpoint, all have done their part in it. Until it has written,
 * whoever waits for it is patient; a wait for anybody else is one of a step. */
void sh_team_writing(sh_team *team, int64_t step);
/* Rank 0 has written a checkpoint, or the files of a run that begins. The others call it when they
 * have done their part. Where a parent watches over the workers they wait for rank 0: should it die
 * first, they owe the checkpoint. Elsewhere a death ends the job, so they go on at once, and are as
 * patient as with a checkpoint until it is there. */
sh_status sh_team_wrote(sh_team *team, int64_t step);
/* On rank 0: the checkpoint of this step is on disk. The board says so, for who restarts the run.
 */
void sh_team_saved(const sh_team *team, int64_t step);
/* A sign of life, in the middle of long work. */
void sh_team_beat(const sh_team *team);
void sh_team_fini(sh_team *team);

#endif
