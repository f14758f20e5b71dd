/* The start and the end of MPI, with a limit: MPI itself waits for all ranks for as long as it
 * takes. MPI wants both on one thread, which is the starter's task; who waits for it goes on
 * without it once it is late, and then MPI can neither be used nor ended in this process. */
#ifndef SH_COMM_TRANSPORTS_MPI_STARTER_H
#define SH_COMM_TRANSPORTS_MPI_STARTER_H

#include <stdbool.h>

#include "base/status.h"

typedef struct sh_mpi_starter sh_mpi_starter;
typedef sh_status (*sh_mpi_starter_body)(void *argument);

sh_status sh_mpi_starter_create(sh_mpi_starter **starter_out);
/* Waits for body(argument) in the starter's task, for `limit_s` at most (0: without a limit), and
 * passes on its status and error. True in `late_out`: it goes on, for ever as it seems; it keeps
 * `argument`, and the starter must not be used or closed any more. */
sh_status sh_mpi_starter_run(sh_mpi_starter *starter, sh_mpi_starter_body body, void *argument,
                             double limit_s, bool *late_out);
void sh_mpi_starter_destroy(sh_mpi_starter *starter);

#endif
