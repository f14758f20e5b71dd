/* The network: when a message that leaves now is there.
 *
 * Every rank has a wire out and a wire in; messages pass a wire one after the other, so senders and
 * receivers share bandwidth (many workers that send to one server wait for its wire). A message of
 * n bytes that finds its wires free takes
 *
 *   alpha + n beta
 *
 * With racks, those of other racks also pass the wires of both racks, and with sites the wires of
 * both sites: alpha is then that of the farthest level passed, and the slowest wire passed sets the
 * rate. Ranks that are on one host (a server beside a worker) reach each other at once. */
#ifndef SH_SIM_NETWORK_H
#define SH_SIM_NETWORK_H

#include <stdint.h>

#include "base/status.h"
#include "comm/schedule.h"

enum { SH_SIM_LEVELS = 3 };  // rank, rack, site

/* Between these two, both ways, the link is another one. */
typedef struct sh_sim_pair {
    int a, b;
    sh_link link;
} sh_sim_pair;

typedef struct sh_sim_links {
    sh_link rank;              // alpha_s and beta_s of every rank's wires; zeros: free
    int rack_ranks;            // ranks per rack; 0: no racks
    sh_link rack;              // the wires of a rack
    int site_racks;            // racks per site; 0: one site
    sh_link site;              // the wires of a site: wide area
    const sh_sim_pair *pairs;  // borrowed for the call that takes it
    int pair_count;
} sh_sim_links;

typedef struct sh_wire {
    int64_t out_ns, in_ns;  // busy until
} sh_wire;

typedef struct sh_network {
    sh_sim_links links;
    int64_t alpha_ns[SH_SIM_LEVELS];
    double beta_ns[SH_SIM_LEVELS];
    int ranks;                      // endpoints
    int *host;                      // per endpoint: the rank whose wires it uses
    sh_wire *wires[SH_SIM_LEVELS];  // by rank, rack, site; NULL: the level does not exist
    sh_sim_pair *pairs;             // sorted
} sh_network;

/* `host` per endpoint, borrowed for the call; NULL: each its own. */
sh_status sh_network_init(sh_network *network, const sh_sim_links *links, int ranks,
                          const int *host);
void sh_network_fini(sh_network *network);

/* A message leaves: takes the sender's wires, and tells when its first byte is at the receiver's.
 */
int64_t sh_network_depart(sh_network *network, int from, int to, size_t bytes, int64_t now_ns);
/* Its first byte is there: takes the receiver's wires, and tells when its last byte is. */
int64_t sh_network_arrive(sh_network *network, int from, int to, size_t bytes, int64_t now_ns);
/* The rack of an endpoint; without racks, each host is its own. */
int sh_network_rack(const sh_network *network, int rank);

#endif
