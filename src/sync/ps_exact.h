/* Exact runs on parameter servers: the gradient of a worker is integers of a scale that all have
 * agreed on (tensor/kernels/fixed.h), so a server may add them up in any order, and has the bits of
 * any other number of workers and servers.
 *
 * A worker's step asks shard 0 for what all must know before there are integers: the largest
 * exponents (a maximum), and afterwards the sum of running statistics, which belong to no server.
 * Then it pushes, to each server,
 *
 *   the notes of its tensors, the rows that the mean is over, and the integers of its shard */
#ifndef SH_SYNC_PS_EXACT_H
#define SH_SYNC_PS_EXACT_H

#include "sync/ps_server.h"
#include "sync/ps_worker.h"

/* Of a push. */
static inline size_t ps_exact_bytes(const sh_ps_shard *shard) {
    return (shard->params.count + 1 + shard->params.total) * sizeof(int64_t);
}

/* ---- A worker's side ---- */

/* The push of a shard. */
void ps_exact_pack(const sh_ps_shard *shard, const sh_param_list *params,
                   const sh_fixed_gradient *gradient, int64_t *push_out);
/* Fits sh_replica_hooks.combine. */
sh_status ps_exact_combine(void *who, sh_reduce_op op, int64_t *values, size_t count,
                           bool *over_out);

/* ---- A server's side ---- */

/* What the clients pushed becomes the gradient in server->sum. */
sh_status ps_exact_sum(ps_server *server);
/* Numbers that all clients brought to be combined, into server->combined. */
sh_status ps_exact_answer(ps_server *server);

#endif
