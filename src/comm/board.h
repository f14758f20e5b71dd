/* The board: what every rank is doing, kept where its peers and the parent can read it at any time,
 * also after the rank has died. It is the flight recorder (the last 32 operations), the source of
 * "who waits for whom", and how a worker's last words reach the parent.
 *
 * A rank writes only its own entry; of its tasks the main and the comm task do. Readers may see an
 * entry that is being written: texts are fixed-size and always end, so the worst is a mixed line in
 * a report about a crash. */
#ifndef SH_COMM_BOARD_H
#define SH_COMM_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { SH_BOARD_OPERATIONS = 32, SH_BOARD_TEXT = 512, SH_BOARD_WAITS = 64 };

typedef enum sh_phase {
    SH_PHASE_START,
    SH_PHASE_STEP,
    SH_PHASE_EVALUATE,
    SH_PHASE_CHECKPOINT,
    SH_PHASE_END,  // finished or failed: nobody waits for it any more
} sh_phase;

typedef struct sh_operation {
    char what[24];  // "allreduce ring", "send", "barrier"
    int64_t step;
    int32_t bucket;  // -1: none
    int32_t peer;    // -1: all
    uint64_t sequence;
    int64_t bytes;
    int64_t start_ns, end_ns;  // end 0: under way
} sh_operation;

typedef struct sh_rank_status {
    _Alignas(64) _Atomic int64_t beat_ns;  // last sign of life; relaxed: only its age matters
    _Atomic int phase;                     // sh_phase
    _Atomic int64_t step;
    _Atomic int64_t saved;  // step of the newest checkpoint that it has written; 0: none; relaxed
    _Atomic uint64_t waits_for;  // bit r: waits for rank r (the first 64 ranks), in a collective
    _Atomic uint64_t mail_from;  // the same, for its mail; another task may write it
    _Atomic bool dead;           // set by the parent
    _Atomic uint64_t count;      // operations so far; the newest is operations[(count - 1) % 32]
    sh_operation operations[SH_BOARD_OPERATIONS];
    int32_t pid;
    int32_t status;  // sh_status of the failure
    char error[SH_BOARD_TEXT], hint[SH_BOARD_TEXT];
} sh_rank_status;

typedef struct sh_status_board {
    int ranks;
    int servers;  // so many of the last are parameter servers, the others workers
    _Alignas(64) sh_rank_status rank[];
} sh_status_board;

static inline size_t sh_board_bytes(int ranks) {
    return sizeof(sh_status_board) + (size_t)ranks * sizeof(sh_rank_status);
}

/* For whom a rank waits, whatever for. */
static inline uint64_t sh_board_waits(const sh_rank_status *board) {
    return atomic_load_explicit(&board->waits_for, memory_order_relaxed) |
           atomic_load_explicit(&board->mail_from, memory_order_relaxed);
}

/* Notes the start of an operation and returns its entry, to be ended with sh_board_end. */
sh_operation *sh_board_begin(sh_rank_status *board, int64_t now_ns, const char *what, int64_t step,
                             int bucket, int peer, int64_t bytes);
void sh_board_end(sh_rank_status *board, sh_operation *operation, int64_t now_ns);
void sh_board_phase(sh_rank_status *board, sh_phase phase, int64_t now_ns);
const char *sh_phase_name(int phase);
/* "worker 2", "server 0". Returns text_out. */
enum { SH_BOARD_NAME = 24 };
const char *sh_board_name(const sh_status_board *board, int rank, char text_out[SH_BOARD_NAME]);

/* One line: "rank 2: step 118, allreduce ring of bucket 3, waits for rank 0 since 5.2 s". */
void sh_board_line(const sh_rank_status *board, int rank, int64_t now_ns, char *text_out,
                   size_t size);
/* The last operations of one rank, oldest first. */
void sh_board_print(const sh_rank_status *board, int rank, int64_t now_ns, FILE *file);

#endif
