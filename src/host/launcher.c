/* Who started this process: a user, or mpirun or srun beside others. */
#include <string.h>

#include "comm/transports/mpi.h"
#include "host/launch.h"

/* A variable as the hooks tell it; NULL: it is unset, or there is no such hook. */
static const char *variable(const shoal_hooks *hooks, const char *name) {
    return hooks->environment != NULL ? hooks->environment(hooks->user, name) : NULL;
}

/* Variables come through the hooks, as only the command line reads the environment. */
static sh_status detect(const shoal_hooks *hooks, sh_mpi_flavour *flavour_out, int *ranks_out) {
    sh_mpi_launch launch = {.ompi_size = variable(hooks, "OMPI_COMM_WORLD_SIZE"),
                            .pmi_size = variable(hooks, "PMI_SIZE"),
                            .pmix_rank = variable(hooks, "PMIX_RANK"),
                            .slurm_tasks = variable(hooks, "SLURM_STEP_NUM_TASKS")};
    return sh_mpi_detect(&launch, flavour_out, ranks_out);
}

sh_status sh_launcher_check(const shoal_hooks *hooks, const char *transport, bool *mpi_out) {
    sh_mpi_flavour flavour = SH_MPI_NONE;
    int ranks = 0;
    SH_TRY(detect(hooks, &flavour, &ranks));
    // One rank under a launcher is an ordinary process; 0 means that the launcher does not tell,
    // which is taken for several.
    bool many = flavour != SH_MPI_NONE && ranks != 1;
    if (many && strcmp(transport, "shm") == 0) {
        SH_FAIL(SH_E_USAGE,
                "--transport shm, but a launcher of %s started several processes, and each would "
                "train alone",
                sh_mpi_flavour_name(flavour));
        return sh_error_hint("leave --transport out, or start one process: shoal train -n %d",
                             ranks > 1 ? ranks : 2);
    }
    *mpi_out = many || strcmp(transport, "mpi") == 0;
    return SH_OK;
}

sh_status sh_launcher_join(const shoal_hooks *hooks, int apart, double limit_s,
                           sh_transport **transport_out) {
    const char *module = variable(hooks, "SHOAL_MPI");  // of a site's own MPI
    sh_mpi_options options = {.module = module != NULL && *module != '\0' ? module : NULL,
                              .apart = apart,
                              .limit_s = limit_s};
    SH_TRY(detect(hooks, &options.flavour, &options.ranks));
    return sh_mpi_open(&options, transport_out);
}
