/* Direct collectives, as engine_direct.c (the protocol: announce, reduce, end) and engine_ways.c
 * (where the data of a piece lies and what a rank does with it) share them. */
#ifndef SH_COMM_ENGINE_DIRECT_H
#define SH_COMM_ENGINE_DIRECT_H

#include "comm/engine_internal.h"

static inline sh_announcement *sh_announcement_at(const sh_direct *direct, int id, int rank,
                                                  uint64_t number) {
    return &direct->area[rank]->flags[id].announcement[number % SH_PIECES];
}

static inline sh_piece *sh_piece_at(sh_direct *direct, uint64_t number) {
    return &direct->piece[number % SH_PIECES];
}

/* How a call's data reaches the peers through mapped memory. Nothing outside engine_ways.c tests
 * which way it is: a row says what differs. */
struct sh_way {
    unsigned number;   // in the stamp: all ranks must go the same way
    bool one_flag;     // data travels in the announcement: once all arrived, the piece is done
    bool shares_work;  // ranks take parts of the work while they wait; who polls leaves them
    bool quick;        // a small call that is run may skip the queues
    bool (*serves)(const sh_engine *engine, const sh_call *call);
    /* Makes this rank's data readable for its peers: `*offset_out` from the start of its memory.
     * May shorten the piece. False: no room yet. */
    bool (*prepare)(sh_engine *engine, sh_group *group, sh_piece *piece, uint64_t number,
                    uint64_t *offset_out);
    /* A rank's data of the piece, in this rank's address space. */
    char *(*data)(const sh_group *group, const sh_piece *piece, uint64_t number, int rank);
    /* This rank's work, once all have announced the piece. */
    void (*work)(const sh_engine *engine, sh_group *group, const sh_piece *piece, uint64_t number);
    /* NULL: the result is where it belongs when all ranks are done. */
    void (*finish)(sh_engine *engine, const sh_piece *piece);
};

const sh_way *sh_way_of(const sh_call *call);
/* With shares_work: all parts are taken, so waiting ranks find nothing to do. */
bool sh_parts_taken(const sh_group *group, const sh_piece *piece, uint64_t number);
/* `bytes` from `data` on lie in this rank's part of the memory. */
bool sh_shared_holds(const sh_engine *engine, const sh_shared *shared, const char *data,
                     size_t bytes);
/* Adds what crossed between the ranks to the call's figures. */
void sh_count_traffic(sh_call *call, const sh_group *group, const sh_piece *piece);

#endif
