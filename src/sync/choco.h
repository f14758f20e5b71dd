/* Gossip through a codec: CHOCO-SGD (Koloskova, Stich, Jaggi, ICML 2019). Every worker has a public
 * copy of its model that it and its neighbours know; what travels is how far the model has moved
 * away from it, and mixing takes place between the copies.
 *
 *   q_i <- C(w_i - p_i)
 *   p_i <- p_i + q_i                                       by i and all of its neighbours
 *   w_i <- w_i + gamma sum_j W_ij (p_j - p_i)
 *
 * What a message leaves out is still missing from the copy at the next one, so nothing is lost, and
 * W being doubly stochastic, the mean of the models stays as it is. All weights of W are equal, so
 * a worker keeps the sum of its neighbours' copies instead of each.
 *
 * C must bring the copy nearer to the model. Codecs that are right on average may overshoot, so
 * every tensor's q is scaled by <C(v), v> / |C(v)|^2, as near to v as it comes: one float of its
 * message. */
#ifndef SH_SYNC_CHOCO_H
#define SH_SYNC_CHOCO_H

#include "sync/graph.h"
#include "sync/sync.h"

typedef struct sh_choco sh_choco;

/* When all models are one. `gamma` 0: by the codec. */
sh_status sh_choco_create(const sh_replica *replica, const sh_graph *graph, double gamma,
                          sh_choco **choco_out);
void sh_choco_destroy(sh_choco *choco);
/* The models are one again, and so are the copies. */
void sh_choco_reset(sh_choco *choco);

/* Of every message. */
size_t sh_choco_bytes(const sh_choco *choco);
/* How far the model has moved: the message for all neighbours; the own copy follows. */
sh_status sh_choco_write(sh_choco *choco, const void **message_out);
/* Where the message over an edge belongs. */
void *sh_choco_room(sh_choco *choco, int edge);
/* All have come: the copies follow, and the weights are mixed. */
sh_status sh_choco_mix(sh_choco *choco);

/* For kind->check: what cannot take part. */
sh_status sh_choco_check(sh_scheme scheme, const sh_sync_terms *terms);

#endif
