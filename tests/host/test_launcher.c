/* Who started this process, and what that means for the transport. */
#include <string.h>

#include "harness.h"
#include "host/launch.h"

static bool under_mpi(const shoal_launcher *launcher, const char *transport) {
    bool mpi = false;
    CHECK_OK(sh_launcher_check(launcher, transport, &mpi));
    return mpi;
}

TEST(launcher, a_user_trains_on_shared_memory_unless_mpi_is_asked_for) {
    assert_false(under_mpi(NULL, "auto"));
    assert_false(under_mpi(NULL, "shm"));
    assert_true(under_mpi(NULL, "mpi"));
    assert_false(under_mpi(&(shoal_launcher){0}, "auto"));
}

TEST(launcher, several_ranks_of_any_mpi_are_one_team) {
    assert_true(under_mpi(&(shoal_launcher){.ompi_size = "2"}, "auto"));
    assert_true(under_mpi(&(shoal_launcher){.pmi_size = "64"}, "auto"));
    assert_true(under_mpi(&(shoal_launcher){.ompi_size = "3", .pmix_rank = "0"}, "mpi"));
}

TEST(launcher, one_rank_alone_needs_no_mpi) {
    assert_false(under_mpi(&(shoal_launcher){.ompi_size = "1"}, "auto"));
    assert_false(under_mpi(&(shoal_launcher){.pmi_size = "1"}, "shm"));
    assert_true(under_mpi(&(shoal_launcher){.ompi_size = "1"}, "mpi"));
}

TEST(launcher, several_ranks_that_would_each_train_alone_are_refused) {
    bool mpi = false;
    CHECK_FAILS(SH_E_USAGE, "--transport shm, but a launcher of",
                sh_launcher_check(&(shoal_launcher){.ompi_size = "4"}, "shm", &mpi));
    assert_non_null(strstr(sh_error_last()->hint, "shoal train -n 4"));
    assert_false(mpi);
}

TEST(launcher, tasks_of_srun_that_were_told_nothing_of_each_other_are_refused) {
    bool mpi = false;
    CHECK_FAILS(SH_E_USAGE, "srun started 3 tasks, but told them nothing of each other",
                sh_launcher_check(&(shoal_launcher){.slurm_tasks = "3"}, "auto", &mpi));
    assert_true(sh_error_last()->hint[0] != '\0');
    assert_false(under_mpi(&(shoal_launcher){.slurm_tasks = "1"}, "auto"));
    // With a size from its plugin srun has told them.
    assert_true(under_mpi(&(shoal_launcher){.slurm_tasks = "3", .pmi_size = "3"}, "auto"));
}

TEST(launcher, a_launcher_that_does_not_tell_how_many_it_started_means_mpi) {
    assert_true(under_mpi(&(shoal_launcher){.pmix_rank = "0"}, "auto"));
    bool mpi = false;
    CHECK_FAILS(SH_E_USAGE, "each would train alone",
                sh_launcher_check(&(shoal_launcher){.pmix_rank = "0"}, "shm", &mpi));
    assert_non_null(strstr(sh_error_last()->hint, "-n 2"));
}
