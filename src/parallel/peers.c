/* Starting an exchange of an op: a call that belongs to no bucket of gradients (-1). */
#include "parallel/peers.h"

sh_status sh_peer_call_start(sh_peer_call *own, const sh_peers *peers, const sh_call *call) {
    own->call = *call;
    own->call.bucket = -1;
    SH_TRY(sh_engine_start(peers->engine, &own->call));
    own->under_way = true;
    return SH_OK;
}

/* Idempotent: without a call under way it does nothing. */
sh_status sh_peer_call_finish(sh_peer_call *own, const sh_peers *peers) {
    if (!own->under_way) return SH_OK;
    own->under_way = false;
    return sh_engine_wait(peers->engine, &own->call);
}

/* Called between kernels, so that the exchange advances while the worker computes. */
void sh_peer_call_progress(sh_peer_call *own, const sh_peers *peers) {
    if (own->under_way)
        (void)sh_engine_test(peers->engine, &own->call);  // the finish has its status
}
