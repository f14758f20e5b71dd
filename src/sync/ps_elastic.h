/* Elastic averaging through a codec (sync/easgd.c), both sides.
 *
 * Worker and server both have the same copy k of the centre, bit for bit, as the last
 * reply told it. With the codec C:
 *
 *   the worker sends  C(x - k)           and both know of its weights  x' = k + C(x - k)
 *   the server sends  C(c - k)           and both know of the centre   c' = k + C(c - k)
 *   c <- c + alpha (x' - c')             x <- x - alpha (x' - c')      k <- c'
 *
 * Both apply one and the same force, so what a worker gives is what the centre gets, whatever the
 * codec leaves out; with a codec that leaves nothing out it is plain elastic averaging. There is no
 * error feedback: what was left out is still in the difference of the next time, and a residual
 * would count it twice. Codecs that are right on average only serve the push; then c' = c. */
#ifndef SH_SYNC_PS_ELASTIC_H
#define SH_SYNC_PS_ELASTIC_H

#include "sync/ps_server.h"
#include "sync/ps_worker.h"

/* The worker's blocks; nothing for other schemes. */
sh_status ps_elastic_init(const sh_sync *sync, ps_worker *w);
void ps_elastic_fini(ps_worker *w);
/* Through a codec: the message of a push, into link->push. */
sh_status ps_elastic_write(const sh_sync *sync, ps_worker *w, ps_link *link);
/* The reply to a push is here: the worker's weights move. */
void ps_elastic_move(const sh_sync *sync, const ps_worker *w);
/* At a meeting, before the weights become the centre's, and after it. */
void ps_elastic_save_own(const sh_sync *sync, ps_worker *w);
void ps_elastic_restore_own(const sh_sync *sync, const ps_worker *w);

/* The server's side of a push, of the worker's weights or of their message, decoded. */
sh_status ps_elastic_push(ps_server *server, ps_client *client, const float *pushed);

#endif
