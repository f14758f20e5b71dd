/* What of the MPI transport can be seen without a launcher; the rest is in tests/comm/mpi. */
#include "comm/transports/mpi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"

static void expect_launch(sh_mpi_launch launch, sh_mpi_flavour flavour, int ranks) {
    sh_mpi_flavour found = SH_MPI_NONE;
    int count = -1;
    CHECK_OK(sh_mpi_detect(&launch, &found, &count));
    assert_string_equal(sh_mpi_flavour_name(found), sh_mpi_flavour_name(flavour));
    assert_int_equal(count, ranks);
}

TEST(mpi, knows_its_launchers) {
    expect_launch((sh_mpi_launch){0}, SH_MPI_NONE, 0);
    expect_launch((sh_mpi_launch){.ompi_size = "4"}, SH_MPI_OPENMPI, 4);
    expect_launch((sh_mpi_launch){.ompi_size = "4", .pmix_rank = "0"}, SH_MPI_OPENMPI, 4);
    expect_launch((sh_mpi_launch){.pmi_size = "3"}, SH_MPI_MPICH, 3);
    expect_launch((sh_mpi_launch){.pmix_rank = "1", .slurm_tasks = "8"}, SH_MPI_OPENMPI, 8);
    expect_launch((sh_mpi_launch){.pmi_size = "8", .slurm_tasks = "8"}, SH_MPI_MPICH, 8);
    expect_launch((sh_mpi_launch){.pmix_rank = "1"}, SH_MPI_OPENMPI, 0);
}

TEST(mpi, one_process_is_counted_too) {
    expect_launch((sh_mpi_launch){.ompi_size = "1"}, SH_MPI_OPENMPI, 1);
    expect_launch((sh_mpi_launch){.pmi_size = "1"}, SH_MPI_MPICH, 1);
    expect_launch((sh_mpi_launch){.slurm_tasks = "1"}, SH_MPI_NONE, 0);
}

TEST(mpi, garbage_in_the_environment_is_no_count) {
    expect_launch((sh_mpi_launch){.ompi_size = "four"}, SH_MPI_OPENMPI, 0);
    expect_launch((sh_mpi_launch){.pmi_size = "99999999999999999999"}, SH_MPI_MPICH, 0);
    expect_launch((sh_mpi_launch){.pmi_size = "-3"}, SH_MPI_MPICH, 0);
    expect_launch((sh_mpi_launch){.ompi_size = ""}, SH_MPI_OPENMPI, 0);
}

TEST(mpi, tasks_that_know_nothing_of_each_other_are_refused) {
    sh_mpi_flavour flavour = SH_MPI_NONE;
    int ranks = 0;
    sh_mpi_launch launch = {.slurm_tasks = "4"};
    CHECK_FAILS(SH_E_USAGE, "srun started 4 tasks", sh_mpi_detect(&launch, &flavour, &ranks));
    assert_non_null(strstr(sh_error_last()->hint, "--mpi=pmix"));
}

TEST(mpi, says_which_module_is_missing) {
    const char *folder = sh_test_folder("no_modules");
    sh_transport *transport = NULL;
    sh_mpi_options options = {.module = folder, .flavour = SH_MPI_MPICH};
    CHECK_FAILS(SH_E_UNSUPPORTED, "shoal-mpi-mpich.so", sh_mpi_open(&options, &transport));
    assert_non_null(strstr(sh_error_last()->hint, "libmpich-dev"));
    options.flavour = SH_MPI_OPENMPI;
    CHECK_FAILS(SH_E_UNSUPPORTED, "shoal-mpi-openmpi.so", sh_mpi_open(&options, &transport));
    assert_null(transport);
}

static const char *bad_module(const void *bytes, size_t count) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/shoal-mpi-openmpi.so", sh_test_folder("bad_module"));
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
    return path;
}

TEST(mpi, a_file_that_is_no_module_is_refused) {
    sh_transport *transport = NULL;
    sh_mpi_options options = {.module = bad_module("no module", 9), .flavour = SH_MPI_OPENMPI};
    CHECK_FAILS(SH_E_UNSUPPORTED, "cannot load", sh_mpi_open(&options, &transport));
}

TEST(mpi, a_library_that_is_no_module_is_refused) {
    Dl_info cmocka;
    assert_true(dladdr(dlsym(RTLD_DEFAULT, "_fail"), &cmocka) != 0);
    sh_transport *transport = NULL;
    sh_mpi_options options = {.module = cmocka.dli_fname, .flavour = SH_MPI_OPENMPI};
    CHECK_FAILS(SH_E_UNSUPPORTED, "version 0 of the module interface",
                sh_mpi_open(&options, &transport));
}

TEST(mpi, reports_what_a_module_is) {
    for (int flavour = SH_MPI_OPENMPI; flavour <= SH_MPI_MPICH; flavour++) {
        sh_mpi_report report;
        sh_mpi_probe((sh_mpi_flavour)flavour, &report);
        assert_true(report.text[0] != '\0');
        assert_int_equal(report.found, report.path[0] != '\0');
        assert_true(report.found || !report.loads);
    }
}
