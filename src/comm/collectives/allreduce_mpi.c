/* MPI's own all-reduce. MPI chooses the steps, so there are none to see here and no closed form;
 * what it costs is measured (`shoal bench allreduce`). */
#include "comm/collectives/list.h"

const sh_algorithm sh_algorithm_allreduce_mpi = {
    .name = "mpi",
    .help = "MPI_Allreduce; its steps are the library's own",
    .does = SH_ALLREDUCE,
    .native = true,
};
