#include "sim/simulated.h"

#include "base/memory.h"

typedef struct rank_job {
    int rank;
    sh_rank_body body;
    void *argument;
    const sh_engine_options *engine_options;  // NULL: the body gets the bare transport
    sh_engine_body engine_body;
} rank_job;

static sh_sim *running;
static double last_seconds;
static sh_sim_counts last_counts;

sh_sim *simulated(void) { return running; }
double simulated_seconds(void) { return last_seconds; }
sh_sim_counts simulated_counts(void) { return last_counts; }

sh_sim_links simulated_links(void) {
    return (sh_sim_links){.rank = {.alpha_s = 50e-6, .beta_s = 8e-9}};
}

static sh_status run_engine(sh_transport *transport, const rank_job *job) {
    sh_engine *engine = NULL;
    SH_TRY(sh_engine_create(transport, job->engine_options, &engine));
    sh_status status = job->engine_body(engine, job->argument);
    sh_error error = *sh_error_last();
    sh_engine_destroy(engine);
    return status == SH_OK ? SH_OK : sh_error_adopt(&error);
}

static sh_status run_rank(void *argument) {
    const rank_job *job = argument;
    sh_transport *transport = NULL;
    SH_TRY(sh_sim_attach(running, job->rank, &transport));
    if (job->engine_body != NULL) return run_engine(transport, job);
    sh_status status = job->body(transport, job->argument);
    sh_transport_close(transport);
    return status;
}

static sh_status run(int ranks, const sh_sim_options *options, const rank_job *like) {
    sh_sim_options own = options != NULL ? *options : (sh_sim_options){.links = simulated_links()};
    own.ranks = ranks;
    SH_TRY(sh_sim_create(&own, &running));
    int endpoints = ranks + own.services;
    rank_job *jobs = sh_alloc((size_t)endpoints, sizeof *jobs);
    SH_ASSERT(jobs != NULL);
    sh_status status = SH_OK;
    for (int rank = 0; status == SH_OK && rank < endpoints; rank++) {
        jobs[rank] = *like;
        jobs[rank].rank = rank;
        status =
            sh_sim_spawn(running, rank, rank < ranks ? "worker" : "server", run_rank, &jobs[rank]);
    }
    if (status == SH_OK) status = sh_sim_run(running);
    last_seconds = sh_sim_seconds(running);
    last_counts = sh_sim_counted(running);
    sh_sim_destroy(running);
    running = NULL;
    sh_free(jobs);
    return status;
}

sh_status run_simulated(int ranks, const sh_sim_options *options, sh_rank_body body,
                        void *argument) {
    return run(ranks, options, &(rank_job){.body = body, .argument = argument});
}

sh_status run_simulated_engines(int ranks, const sh_sim_options *options,
                                const sh_engine_options *engine_options, sh_engine_body body,
                                void *argument) {
    sh_engine_options none = {0};
    return run(ranks, options,
               &(rank_job){.engine_options = engine_options != NULL ? engine_options : &none,
                           .engine_body = body,
                           .argument = argument});
}
