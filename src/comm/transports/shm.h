/* Shared memory joins the processes of one machine, or the threads of one process. The parent
 * creates the fabric, forks, and every worker attaches as one rank:
 *
 *   SH_TRY(sh_shm_create(ranks, &fabric));
 *   if (fork() == 0) { SH_TRY(sh_shm_attach(fabric, rank, cores, &transport)); ... }
 *
 * All memory lies in one nameless file (memfd), so nothing is left behind whoever dies. Messages
 * travel through one bounded ring per ordered pair of ranks: a sender waits once its ring is full.
 * What a receiver did not ask for yet stays in the ring, unless it waits for something that may lie
 * behind it; then it goes to the unexpected-message queue. */
#ifndef SH_COMM_TRANSPORTS_SHM_H
#define SH_COMM_TRANSPORTS_SHM_H

#include "comm/transport.h"

enum { SH_SHM_RANKS_MAX = 4096 };

typedef struct sh_shm sh_shm;

/* Before any fork. Virtual memory only: a pair of ranks costs pages once it has talked. */
sh_status sh_shm_create(int ranks, sh_shm **fabric_out);
/* The same for one of several fabrics of this process, which share its addresses where these are
 * limited (ulimit -v). */
sh_status sh_shm_create_of(int fabrics, int ranks, sh_shm **fabric_out);
/* Before anyone attaches, in every process that will, and in the parent: only so many ranks take
 * part. */
void sh_shm_limit(sh_shm *fabric, int ranks);
/* After all transports of this process are closed. */
void sh_shm_destroy(sh_shm *fabric);

/* In the worker (or thread) that is `rank`; once per rank. `cores` are those of all ranks together:
 * with fewer cores than ranks nobody spins. Borrows the fabric; sh_transport_close ends it. */
sh_status sh_shm_attach(sh_shm *fabric, int rank, int cores, sh_transport **transport_out);

/* The parent's word that a rank will do nothing more. Wakes everybody: pending messages with it
 * fail, after what it had sent was delivered. What is known of its end belongs on the board first
 * (`error`), so that its peers can tell. Any thread or process of the fabric. */
void sh_shm_mark_dead(sh_shm *fabric, int rank);
/* The parent's word that the team is over: waits for its ranks fail with SH_E_PEER, though all of
 * them may live. */
void sh_shm_end(sh_shm *fabric);

/* Memory at one address in all processes of the fabric, zeroed, which goes with the fabric. NULL:
 * there is not enough. */
void *sh_shm_export(sh_shm *fabric, size_t bytes);

/* Readable by the parent at any time, also after a rank died. */
sh_status_board *sh_shm_board(sh_shm *fabric);

#endif
