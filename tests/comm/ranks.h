/* Ranks as threads of one process over shared memory: run_ranks(4, body, argument). A rank that
 * fails is marked as dead, so that its peers fail too instead of waiting for it. */
#ifndef SH_TESTS_COMM_RANKS_H
#define SH_TESTS_COMM_RANKS_H

#include "comm/transport.h"
#include "comm/transports/shm.h"

/* Closing the transport is the caller's; an engine that takes it over (and closes it) must tell so:
 * see run_ranks_given. */
typedef sh_status (*sh_rank_body)(sh_transport *transport, void *argument);

/* Runs `body` as every rank and returns what went wrong first: the failure that is not a mere echo
 * of another rank's, with its error record. */
sh_status run_ranks(int ranks, sh_rank_body body, void *argument);
/* The same for bodies that close the transport themselves, or give it to something that does. */
sh_status run_ranks_given(int ranks, sh_rank_body body, void *argument);
/* The same as run_ranks with one forked process per rank. */
sh_status run_forked(int ranks, sh_rank_body body, void *argument);

/* Makes progress until the message is done. Fails if it fails, or once a peer has left. */
sh_status wait_message(sh_transport *transport, sh_message *message);
/* All ranks arrive before any leaves. */
sh_status meet_ranks(sh_transport *transport, uint64_t tag);

#endif
