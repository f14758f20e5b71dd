/* Independent data-parallel groups inside one world train what runs of their own do. */
#include <stdio.h>
#include <string.h>

#include "comm/engines.h"
#include "harness.h"
#include "run/groups.h"
#include "sim/simulated.h"

typedef struct world {
    const char *scheme, *folder;
    sh_shm *mail[GROUPS];  // threads; the simulator has mail of its own
} world;

typedef struct member {
    const world *world;
    int group, rank;
} member;

/* ---- Shared memory ----------------------------------------------------------------------------
 */

static sh_status open_mail(void *self, int endpoint, sh_transport **mail_out) {
    const member *m = self;
    return sh_shm_attach(m->world->mail[m->group], endpoint, 1, mail_out);
}

static group_worker worker_of(member *m, sh_engine *engine) {
    m->rank = sh_engine_rank(engine);
    m->group = group_of(m->rank);
    return (group_worker){.scheme = m->world->scheme,
                          .folder = m->world->folder,
                          .group = m->group,
                          .place = group_place_of(m->rank),
                          .env = {.engine = engine, .mesh = group_mesh(), .self = m}};
}

static sh_status train_thread(sh_engine *engine, void *argument) {
    member m = {.world = argument};
    group_worker worker = worker_of(&m, engine);
    worker.env.open_mail = open_mail;
    return group_train(&worker);
}

static void folders(const char *name, const char *scheme, char together[4096], char apart[4096]) {
    char text[128];
    snprintf(text, sizeof text, "groups-%s-%s", name, scheme);
    snprintf(together, 4096, "%s", sh_test_folder(text));
    snprintf(text, sizeof text, "groups-%s-%s-apart", name, scheme);
    snprintf(apart, 4096, "%s", sh_test_folder(text));
}

TEST(groups, of_a_world_on_shared_memory_have_the_bits_of_runs_of_their_own) {
    for (size_t i = 0; group_schemes[i] != NULL; i++) {
        char together[4096], apart[4096];
        folders("shm", group_schemes[i], together, apart);
        world w = {.scheme = group_schemes[i], .folder = together};
        for (int group = 0; group < GROUPS; group++)
            CHECK_OK(sh_shm_create(GROUP_ENDPOINTS, &w.mail[group]));
        CHECK_OK(run_engines(GROUP_WORLD, NULL, train_thread, &w));
        for (int group = 0; group < GROUPS; group++) sh_shm_destroy(w.mail[group]);
        CHECK_OK(groups_apart(w.scheme, apart));
        CHECK_OK(groups_compare(together, apart));
    }
}

/* ---- The simulator ----------------------------------------------------------------------------
 */

/* The mail of a group is that of a team whose members sit where the group's do. */
static sh_status open_simulated_mail(void *self, int endpoint, sh_transport **mail_out) {
    const member *m = self;
    return sh_sim_attach_team_mail(simulated(), 1 + m->group, endpoint, mail_out);
}

static void spend(void *self, int64_t step, double part) {
    const member *m = self;
    double ns = (double)sh_sim_compute_ns(simulated(), m->rank, step) * part;
    (void)sh_sim_spend(simulated(), (int64_t)ns);
}

static void spend_unless(void *self, int64_t step, sh_transport *mail, bool (*ends)(void *who),
                         void *who) {
    const member *m = self;
    int64_t ns = sh_sim_compute_ns(simulated(), m->rank, step);
    (void)sh_sim_spend_unless(simulated(), ns, mail, ends, who);
}

static sh_status train_simulated(sh_engine *engine, void *argument) {
    member m = {.world = argument};
    group_worker worker = worker_of(&m, engine);
    if (m.rank == 0)
        for (int group = 0; group < GROUPS; group++) {
            const int hosts[] = {group, GROUPS + group};
            sh_sim_begin_team(simulated(), 1 + group, hosts, GROUP_WORKERS, GROUP_ENDPOINTS);
        }
    SH_TRY(sh_engine_barrier(engine));
    worker.env.open_mail = open_simulated_mail;
    worker.env.spend = spend;
    worker.env.spend_unless = spend_unless;
    worker.env.clock = sh_sim_clock(simulated());
    return group_train(&worker);
}

TEST(groups, of_a_simulated_world_have_the_bits_of_runs_of_their_own) {
    for (size_t i = 0; group_schemes[i] != NULL; i++) {
        char together[4096], apart[4096];
        folders("sim", group_schemes[i], together, apart);
        world w = {.scheme = group_schemes[i], .folder = together};
        const sh_sim_options options = {.mail = GROUP_WORLD,
                                        .teams = GROUPS,
                                        .seed = 1,
                                        .links = simulated_links(),
                                        .compute = {.mean_s = 1e-3}};
        CHECK_OK(run_simulated_engines(GROUP_WORLD, &options, NULL, train_simulated, &w));
        CHECK_OK(groups_apart(w.scheme, apart));
        CHECK_OK(groups_compare(together, apart));
    }
}
