/* Inside the engine, by the reader's question:
 *
 *   engine.c          what callers see: start, test, wait, poll; creation
 *   choose.c          which algorithm for which size; calibrate.c measures what that needs
 *   engine_message.c  how a call goes by messages: a state machine per segment over the steps
 *   engine_direct.c   how a call goes through mapped memory: announce, reduce, end, in pieces
 *   engine_ways.c     where the data of a piece lies and what a rank does with it
 *   engine_agree.c    whether all ranks start the same calls
 *   engine_call.c     what is noted of a call, how it ends, the first failure
 *   engine_wait.c     what the driver does while nothing moves, and the watchdog
 *   engine_task.c     the comm task that drives all this under MPI
 *   group.c           ranks that call together
 *
 * Calls go down this list's dependencies only: engine.c, group.c and engine_task.c use all others;
 * engine_wait.c uses the two ways a call travels, those use engine_agree.c, and that engine_call.c.
 * So a failure is noted where it is found (sh_engine_fail), and the calls under way end on return
 * to the top (sh_engine_end_failed). All of it runs in one task, the driver: the caller's, or the
 * comm task. */
#ifndef SH_COMM_ENGINE_INTERNAL_H
#define SH_COMM_ENGINE_INTERNAL_H

#include "base/memory.h"
#include "comm/engine.h"
#include "tensor/kernels/combine.h"

enum {
    SH_WINDOW = 4,           // segments of one call under way
    SH_SEGMENTS_MAX = 4096,  // 12 bits of the tag
    SH_GROUPS = 32,          // that one rank can be in at a time
    SH_PIECES = 8,           // pieces of a group announced and not yet finished by all
    SH_SMALL_BYTES = 4096,   // up to here data travels inside the announcement
    SH_SMALL_MAPPED_BYTES = 256,
    SH_CHUNK_BYTES = 256 << 10,
    SH_CHUNKS = 6,  // of shared scratch per rank, for private data
    SH_CHOICES = 8,
    SH_QUICK_BYTES = 64 << 10,  // up to here a call that is run and not started takes short cuts
    SH_QUICK_SPINS = 1000,
    SH_QUICK_YIELDS = 16,          // where ranks share cores
    SH_RECENT = 32,                // calls of a group that can still be compared with a peer's
    SH_CALL_MASK = (1 << 20) - 1,  // of its number, in a tag
};

static inline void sh_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Prices this near to each other are alike: the model leaves out more than that. */
static const double SH_ALIKE = 1.2;

/* Messages of the engine itself, outside all groups; low bits are free. */
static const uint64_t SH_TAG_ENGINE = UINT64_C(0xFF) << 40;

/* ---- What was started ---------------------------------------------------------------------- */

static const uint32_t SH_NO_CALL = UINT32_MAX;

/* A call as all ranks must start it. Its stamp: collective 8, how 8, type 8, operator 8, bucket 32
 * bits; elements 44, root 20. */
typedef struct sh_started {
    uint32_t number;  // in its group, in the bits that a tag has for it
    int rank;         // of the run, whose it is
    sh_stamp stamp;
} sh_started;

/* Two ranks started different things. */
typedef struct sh_mismatch {
    struct sh_group *group;  // NULL: there is none
    sh_started theirs, ours;
} sh_mismatch;

static inline bool sh_stamp_equal(sh_stamp a, sh_stamp b) {
    return a.kind == b.kind && a.extent == b.extent;
}

/* ---- By messages --------------------------------------------------------------------------- */

typedef struct sh_segment {
    sh_message send, receive;
    size_t first, count;  // elements of the call's buffer
    int index, step;
    sh_range into;    // where the receive of this step goes, relative to the segment
    sh_then then;     // what happens to it
    bool active;      // a step is under way
    bool in_scratch;  // it is received into scratch first
    bool after_send;  // and used only once the send has left, which reads the same elements
    bool received;    // and used
    char *scratch;
} sh_segment;

/* A call that goes by messages, or is the transport's own. Kept for the next call. */
typedef struct sh_message_collective {
    struct sh_message_collective *next;
    sh_call *call;
    sh_group *group;
    const sh_algorithm *algorithm;
    sh_topology topology;
    int blocks, steps;
    int segments, begun, ended;
    size_t segment_elements, element_bytes, scratch_each;
    sh_started started;
    bool told;  // the peer that it waits for knows what this is
    uint64_t tag;
    sh_segment window[SH_WINDOW];
    char *scratch;
    size_t scratch_bytes;
} sh_message_collective;

/* ---- Through mapped memory ----------------------------------------------------------------- */

/* What a rank announces: one cache line, and small data behind it. */
typedef struct sh_announcement {
    _Alignas(128) _Atomic uint64_t number;    // of the piece; release: the rest is written
    uint64_t offset;                          // of the data in the rank's part of the region
    sh_stamp stamp;                           // of its call: all ranks must agree
    _Atomic uint32_t taken;                   // the first rank's: parts that ranks have taken
    _Alignas(128) char data[SH_SMALL_BYTES];  // not in the line beside, which is prefetched
} sh_announcement;

/* One group's part of a rank's area. Only the rank writes it, but for the parts that are taken. */
typedef struct sh_group_flags {
    _Alignas(128) _Atomic uint64_t done;  // this rank has used all data of pieces up to here
    _Alignas(128) sh_announcement announcement[SH_PIECES];
} sh_group_flags;

/* A rank's area of flags. */
typedef struct sh_area {
    _Alignas(128) _Atomic uint32_t sleeps;  // this rank sleeps: wake it after announcing
    sh_group_flags flags[SH_GROUPS];
    _Alignas(4096) char chunk[SH_CHUNKS][SH_CHUNK_BYTES];
} sh_area;

typedef struct sh_way sh_way;
enum { SH_WAYS = 4 };  // numbers below name a way in stamps, the others an algorithm

/* A stretch of a call that is announced, reduced and finished as a whole. */
typedef struct sh_piece {
    sh_call *call;
    size_t first, count;  // elements
    sh_stamp stamp;
    int chunk;  // of shared scratch, where the way uses one
    const sh_way *way;
    bool last;  // of its call
} sh_piece;

/* Pieces are numbered from 1 and pass three stages in order: announced (peers may read the data),
 * reduced (this rank's slice is everywhere), ended (all slices are here). */
typedef struct sh_direct {
    sh_area **area;  // per rank of the group; NULL: this group has none
    uint64_t announced, reduced, ended;
    uint64_t all_done;  // every peer's `done` is at least this
    int arrived_at;     // peers before this one have announced piece reduced + 1
    int done_at;        // peers before this one have done piece ended + 1
    sh_piece piece[SH_PIECES];
    sh_call *first, *last;  // started, not fully announced
    size_t cursor;          // elements of `first` that are announced
} sh_direct;

/* ---- Groups and the engine ----------------------------------------------------------------- */

/* Remembered answers of the cost model. */
typedef struct sh_choice {
    size_t bytes;
    sh_collective what;
    const sh_algorithm *algorithm;  // NULL: empty
    double seconds;
} sh_choice;

struct sh_group {
    sh_engine *engine;
    sh_group *next;
    int id;    // below SH_GROUPS; no rank is in two groups of one id
    int rank;  // this rank's in the group
    int ranks;
    int *member;              // ranks of the run; NULL: rank i is rank i
    const sh_places *places;  // NULL: all on one node
    bool lent_places;         // they are the transport's
    uint32_t calls;
    sh_started own[SH_RECENT];    // the last calls of this rank
    sh_started early[SH_RECENT];  // of peers, that this rank has not started
    sh_direct direct;
    sh_choice choices[SH_CHOICES];
};

typedef struct sh_driver sh_driver;

typedef struct sh_message_collectives {
    sh_message_collective *first, *last;  // under way, in the order of their starts
    sh_message_collective *spare;         // ended, for reuse
} sh_message_collectives;

/* What the watchdog of waits remembers. */
typedef struct sh_engine_watch {
    int64_t moved_ns;   // when a wait last saw progress
    int64_t looked_ns;  // when it last looked for some
    int64_t health_ns;  // when the transport was last asked for dead peers
    uint64_t waits;     // the ranks waited for, as the board says; bit r for rank r
} sh_engine_watch;

struct sh_engine {
    sh_transport *transport;
    sh_engine_options options;
    const sh_algorithm *forced;  // for all-reduces, or NULL
    const sh_combine_kernels *combine;
    sh_group *world, *groups;  // the world is the last of the groups
    uint64_t group_ids;        // bit set: in use
    uint64_t pieces;           // the highest number of a piece of a group that is gone
    sh_shared shared;          // one sh_area per rank
    sh_area *area;             // this rank's, NULL where nobody is mapped
    uint32_t chunks;           // bit set: in use
    sh_message_collectives messages;
    int under_way;   // calls
    bool waiting;    // the caller has nothing else to do
    int64_t now_ns;  // as last read: small calls do not look at the clock
    sh_engine_watch watch;
    sh_mismatch mismatch;
    sh_message notice;  // the last that this rank sent
    sh_status status;   // the first failure; nothing starts after it
    sh_error error;
    sh_driver *driver;                                // the comm task, or NULL
    void (*ended)(sh_engine *engine, sh_call *call);  // hands a call back; NULL: sets `done`
    bool keeps_polling;  // the driver polls also while no call is under way
    // When the transport's own call began, 0: none is under way. Relaxed: a waiting task only looks
    // how long the comm task has been away.
    _Atomic int64_t away_ns;
};

static inline int64_t sh_engine_now(sh_engine *engine) {
    return engine->now_ns = sh_clock_now_ns(engine->transport->clock);
}

static inline int sh_group_member(const sh_group *group, int rank) {
    return group->member != NULL ? group->member[rank] : rank;
}

static inline sh_group *sh_call_group(const sh_engine *engine, const sh_call *call) {
    return call->group != NULL ? call->group : engine->world;
}

/* Driver only. Starts a call; it may be done on return. */
sh_status sh_engine_begin(sh_engine *engine, sh_call *call);
/* Moves everything that can move; true if anything did. */
bool sh_engine_progress(sh_engine *engine);
/* Waits for one call with the watchdog. */
sh_status sh_engine_await(sh_engine *engine, sh_call *call);
/* Waits for all calls under way, before something that only the transport sees. */
sh_status sh_engine_drain(sh_engine *engine);
/* Notes the start on the board. */
void sh_call_record(sh_engine *engine, sh_call *call, const sh_algorithm *algorithm);
void sh_call_return(sh_engine *engine, sh_call *call, sh_status status);
void sh_call_finish(sh_engine *engine, sh_call *call, sh_status status);
/* "bucket 3, step 17"; "step 17" of a call that is of no bucket. Returns text_out. */
enum { SH_PLACE_TEXT = 64 };
const char *sh_call_place(const sh_call *call, char text_out[SH_PLACE_TEXT]);
/* Notes the engine's first failure with the calling task's error record; returns `status`. */
sh_status sh_engine_fail(sh_engine *engine, sh_status status);
/* After a failure: every call under way ends with it. */
void sh_engine_end_failed(sh_engine *engine);

sh_status sh_message_collective_begin(sh_engine *engine, sh_call *call,
                                      const sh_algorithm *algorithm);
bool sh_message_collective_progress(sh_engine *engine, sh_message_collective *collective);
void sh_message_collective_end(sh_engine *engine, sh_message_collective *collective,
                               sh_status status);
/* The rank of the run that it waits for, -1: none; in which segment and step, and for what. */
int sh_message_collective_waits(const sh_message_collective *collective, int *segment_out,
                                int *step_out, bool *sends_out);
/* Tells the peer that it waits for, once, which call this is. */
void sh_message_collective_notify(sh_engine *engine, sh_message_collective *collective);
void sh_message_collectives_destroy(sh_message_collective *collective);

/* What a call is: `how` is its way through mapped memory, or sh_stamp_how of its algorithm. */
static inline sh_stamp sh_stamp_of(const sh_call *call, unsigned how) {
    bool sums = call->what == SH_ALLREDUCE || call->what == SH_REDUCE_SCATTER;
    uint64_t op = sums ? (uint64_t)call->op : 0;
    uint64_t root = call->what == SH_BROADCAST ? (uint64_t)call->root : 0;
    return (sh_stamp){
        .kind = (uint64_t)call->what | (uint64_t)how << 8 | (uint64_t)call->dtype << 16 | op << 24 |
                (uint64_t)(uint32_t)call->bucket << 32,
        .extent = (uint64_t)call->count | root << 44,
    };
}
unsigned sh_stamp_how(const sh_algorithm *algorithm);
/* The tag of a call's messages, but for segment and step. */
uint64_t sh_call_tag(const sh_group *group, uint32_t number);
void sh_agree_init(sh_group *group);
/* From here on the transport shows what comes in. */
void sh_agree_watch(sh_engine *engine);
/* A peer has said of this number what it started. */
void sh_agree_compare(sh_engine *engine, sh_group *group, sh_started own);
/* Numbers a call, and compares it with what peers have said of that number. */
static inline sh_started sh_agree_begin(sh_engine *engine, sh_group *group, sh_stamp stamp) {
    uint32_t number = group->calls++ & SH_CALL_MASK;
    sh_started own = {.number = number, .rank = engine->transport->rank, .stamp = stamp};
    group->own[number % SH_RECENT] = own;
    if (group->early[number % SH_RECENT].number == number) sh_agree_compare(engine, group, own);
    return own;
}
/* Keeps a difference, for sh_agree_settle. */
void sh_agree_differ(sh_engine *engine, sh_group *group, sh_started theirs, sh_started ours);
/* Ends everything if there is a difference, and says which. */
sh_status sh_agree_settle(sh_engine *engine);
/* Says to a rank of the run what was started; `*notice_out` is borrowed until it has left. */
void sh_agree_tell(sh_engine *engine, const sh_group *group, int peer, const sh_started *said,
                   sh_message *notice_out);
/* As the transport's, but a difference comes first. */
sh_status sh_engine_health(sh_engine *engine);

bool sh_direct_serves(const sh_engine *engine, const sh_call *call);
sh_status sh_direct_begin(sh_engine *engine, sh_call *call);
bool sh_direct_progress(sh_engine *engine, sh_group *group);
bool sh_direct_progress_all(sh_engine *engine);
void sh_direct_abandon(sh_engine *engine, sh_group *group, sh_status status);
/* Starts a small call that finds nothing else under way, and ends it if its peers are there; false:
 * take the long way. */
bool sh_direct_quick(sh_engine *engine, sh_call *call);
/* The call of the oldest piece, and a bit per rank of the run (of the first 64) that has not
 * announced it (`arrived_out` false) or not done its slice. NULL: nothing waits. */
const sh_call *sh_direct_waits(const sh_group *group, uint64_t *waits_out, bool *arrived_out);
sh_status sh_direct_join(sh_engine *engine, sh_group *group);

/* Nothing moved: spins, yields, sleeps, watches. `*turn_inout` counts the rests since something
 * moved. */
sh_status sh_engine_back_off(sh_engine *engine, int *turn_inout);
/* Waits for one message while no call is under way. */
sh_status sh_engine_await_message(sh_engine *engine, sh_message *message);
/* The wait is over: the board says so. */
void sh_engine_awake(sh_engine *engine);

/* The algorithm of a call; NULL: through mapped memory. */
sh_status sh_engine_pick(sh_engine *engine, const sh_call *call, const sh_algorithm **out);
/* `ranks` NULL: the first `count` of the run. */
sh_status sh_group_init(sh_engine *engine, const int *ranks, int count, int id, sh_group **out);
void sh_group_free(sh_group *group);

/* Runs `body` in the driver and waits for it. */
typedef sh_status (*sh_driver_job)(sh_engine *engine, void *argument);
sh_status sh_engine_job(sh_engine *engine, sh_driver_job body, void *argument);
sh_status sh_driver_create(sh_engine *engine);
void sh_driver_destroy(sh_engine *engine);
sh_status sh_driver_start(sh_engine *engine, sh_call *call);
sh_status sh_driver_wait(sh_engine *engine, sh_call *call);

#endif
