/* Who started this process, and what that means for the transport. */
#include <string.h>

#include "harness.h"
#include "host/launch.h"

/* The value behind a name in a list that ends with NULL. */
static const char *look_up(void *user, const char *name) {
    for (const char *const *at = user; *at != NULL; at += 2)
        if (strcmp(*at, name) == 0) return at[1];
    return NULL;
}

/* Hooks of a process with this environment: name, value, ... */
#define STARTED(...) \
    (&(const shoal_hooks){.user = (const char *[]){__VA_ARGS__, NULL}, .environment = look_up})

static bool under_mpi(const shoal_hooks *hooks, const char *transport) {
    bool mpi = false;
    CHECK_OK(sh_launcher_check(hooks, transport, &mpi));
    return mpi;
}

TEST(launcher, a_user_trains_on_shared_memory_unless_mpi_is_asked_for) {
    assert_false(under_mpi(STARTED(NULL), "auto"));
    assert_false(under_mpi(STARTED(NULL), "shm"));
    assert_true(under_mpi(STARTED(NULL), "mpi"));
    assert_false(under_mpi(&(shoal_hooks){0}, "auto"));
}

TEST(launcher, several_ranks_of_any_mpi_are_one_team) {
    assert_true(under_mpi(STARTED("OMPI_COMM_WORLD_SIZE", "2"), "auto"));
    assert_true(under_mpi(STARTED("PMI_SIZE", "64"), "auto"));
    assert_true(under_mpi(STARTED("OMPI_COMM_WORLD_SIZE", "3", "PMIX_RANK", "0"), "mpi"));
}

TEST(launcher, one_rank_alone_needs_no_mpi) {
    assert_false(under_mpi(STARTED("OMPI_COMM_WORLD_SIZE", "1"), "auto"));
    assert_false(under_mpi(STARTED("PMI_SIZE", "1"), "shm"));
    assert_true(under_mpi(STARTED("OMPI_COMM_WORLD_SIZE", "1"), "mpi"));
}

TEST(launcher, several_ranks_that_would_each_train_alone_are_refused) {
    bool mpi = false;
    CHECK_FAILS(SH_E_USAGE, "--transport shm, but a launcher of",
                sh_launcher_check(STARTED("OMPI_COMM_WORLD_SIZE", "4"), "shm", &mpi));
    assert_non_null(strstr(sh_error_last()->hint, "shoal train -n 4"));
    assert_false(mpi);
}

TEST(launcher, tasks_of_srun_that_were_told_nothing_of_each_other_are_refused) {
    bool mpi = false;
    CHECK_FAILS(SH_E_USAGE, "srun started 3 tasks, but told them nothing of each other",
                sh_launcher_check(STARTED("SLURM_STEP_NUM_TASKS", "3"), "auto", &mpi));
    assert_true(sh_error_last()->hint[0] != '\0');
    assert_false(under_mpi(STARTED("SLURM_STEP_NUM_TASKS", "1"), "auto"));
    // With a size from its plugin srun has told them.
    assert_true(under_mpi(STARTED("SLURM_STEP_NUM_TASKS", "3", "PMI_SIZE", "3"), "auto"));
}

TEST(launcher, a_launcher_that_does_not_tell_how_many_it_started_means_mpi) {
    assert_true(under_mpi(STARTED("PMIX_RANK", "0"), "auto"));
    bool mpi = false;
    CHECK_FAILS(SH_E_USAGE, "each would train alone",
                sh_launcher_check(STARTED("PMIX_RANK", "0"), "shm", &mpi));
    assert_non_null(strstr(sh_error_last()->hint, "-n 2"));
}
