/* Who started this process: a user, or mpirun or srun beside others. */
#include <string.h>

#include "comm/transports/mpi.h"
#include "host/launch.h"

static sh_status detect(const shoal_launcher *launcher, sh_mpi_flavour *flavour_out,
                        int *ranks_out) {
    static const shoal_launcher none;
    if (launcher == NULL) launcher = &none;
    sh_mpi_launch launch = {.ompi_size = launcher->ompi_size,
                            .pmi_size = launcher->pmi_size,
                            .pmix_rank = launcher->pmix_rank,
                            .slurm_tasks = launcher->slurm_tasks};
    return sh_mpi_detect(&launch, flavour_out, ranks_out);
}

sh_status sh_launcher_check(const shoal_launcher *launcher, const char *transport, bool *mpi_out) {
    sh_mpi_flavour flavour = SH_MPI_NONE;
    int ranks = 0;
    SH_TRY(detect(launcher, &flavour, &ranks));
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

sh_status sh_launcher_join(const shoal_launcher *launcher, int apart, double limit_s,
                           sh_transport **transport_out) {
    sh_mpi_options options = {
        .module = launcher != NULL ? launcher->module : NULL, .apart = apart, .limit_s = limit_s};
    SH_TRY(detect(launcher, &options.flavour, &options.ranks));
    return sh_mpi_open(&options, transport_out);
}
