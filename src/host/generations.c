#include "host/generations.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/addresses.h"
#include "base/memory.h"
#include "run/layout.h"

/* Each takes two file descriptors; a run that needs more starts again from its checkpoint. */
enum { GENERATIONS_MOST = 33 };

/* Shared by all processes. */
typedef struct common {
    _Atomic int newest;     // release: its roll is written
    _Atomic int over;       // relaxed, as `wished`: the newest that is over
    _Atomic bool wished;    // relaxed: a step earlier or later makes no difference
    _Atomic int entries[];  // states (slots), then rolls (generations, 1 + slots): a count, slots
} common;

/* Shared, too: lengths, each followed by as many numbers. Address space; memory comes with use. */
enum { MINUTES_MOST = 8 << 20 };
typedef struct minutes {
    _Atomic size_t used;  // release: so many are written
    double values[MINUTES_MOST];
} minutes;

struct sh_generations {
    int slots, count;
    bool apart;  // servers have processes of their own
    const sh_config *config;
    sh_scheme scheme;
    common *common;
    size_t common_bytes;
    minutes *minutes;
    sh_shm **fabrics, **mails;  // (count) of this process; NULL: not made, or given back
    bool *limited;              // (count): they know how many ranks they have
};

/* A death costs a generation without the dead and one with who takes its place. */
static int needed(const sh_config *config, sh_scheme scheme) {
    if (!scheme.kind->survives || config->exact || sh_config_pipes(config)) return 1;
    int64_t count = 1 + 2 * config->restarts;
    return count < GENERATIONS_MOST ? (int)count : GENERATIONS_MOST;
}

/* Endpoints of a generation's mail: its ranks, then the services of its scheme. */
static int endpoints(const sh_generations *g, int ranks) {
    return ranks + sh_scheme_services(g->scheme, &g->config->scheme, ranks);
}

/* The roll of a generation in the shared memory: its count of ranks, then their slots. The
 * parent writes it before it publishes the generation, and never again. */
static _Atomic int *roll_of(const sh_generations *g, int index) {
    return g->common->entries + g->slots + (size_t)index * (size_t)(1 + g->slots);
}

/* Zeroed memory that all processes forked from now on share. Nothing is reserved: of the
 * minutes only what is used takes memory. */
static void *map_shared(size_t bytes) {
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

/* Made before the first fork. Numbers of generations begin at -1: none is published, none is
 * over. */
static sh_status make_common(sh_generations *g) {
    size_t entries = (size_t)g->slots + (size_t)g->count * (size_t)(1 + g->slots);
    g->common_bytes = sizeof(common) + entries * sizeof(int);
    g->common = map_shared(g->common_bytes);
    g->minutes = map_shared(sizeof *g->minutes);
    if (g->common == NULL || g->minutes == NULL) {
        SH_FAIL(SH_E_MEMORY, "cannot share memory with %d workers: %s", g->slots, strerror(errno));
        return sh_addresses_hint(NULL);
    }
    atomic_init(&g->common->newest, -1);
    atomic_init(&g->common->over, -1);
    return SH_OK;
}

/* All fabrics that may ever be needed, each for all slots: a process that runs already could
 * not map one that is made later. */
static sh_status make_fabrics(sh_generations *g) {
    size_t count = (size_t)g->count;
    g->fabrics = sh_alloc(count, sizeof *g->fabrics);
    g->mails = sh_alloc(count, sizeof *g->mails);
    g->limited = sh_alloc(count, sizeof *g->limited);
    if (g->fabrics == NULL || g->mails == NULL || g->limited == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %d workers", g->slots);
    bool mails = sh_config_mails(g->config);
    int fabrics = mails ? 2 * g->count : g->count;
    for (int i = 0; i < g->count; i++) {
        SH_TRY(sh_shm_create_of(fabrics, g->slots, &g->fabrics[i]));
        if (mails) SH_TRY(sh_shm_create_of(fabrics, endpoints(g, g->slots), &g->mails[i]));
    }
    return SH_OK;
}

sh_status sh_generations_create(const sh_config *config, sh_generations **generations_out) {
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(config->scheme.name, &scheme));
    sh_generations *g = sh_alloc(1, sizeof *g);
    if (g == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a team");
    *g = (sh_generations){
        .slots = (int)config->workers,
        .count = needed(config, scheme),
        .apart = sh_sync_apart(&config->scheme) && scheme.kind->family->services != NULL,
        .config = config,
        .scheme = scheme};
    sh_status status = make_common(g);
    if (status == SH_OK) status = make_fabrics(g);
    if (status != SH_OK) {
        sh_generations_destroy(g);
        return status;
    }
    *generations_out = g;
    return SH_OK;
}

/* After a failed create, too: whatever was not made is NULL. */
void sh_generations_destroy(sh_generations *g) {
    if (g == NULL) return;
    if (g->fabrics != NULL && g->mails != NULL) sh_generations_forget(g, g->count);
    if (g->common != NULL) munmap(g->common, g->common_bytes);
    if (g->minutes != NULL) munmap(g->minutes, sizeof *g->minutes);
    sh_free(g->fabrics);
    sh_free(g->mails);
    sh_free(g->limited);
    sh_free(g);
}

/* Acquire pairs with the release in sh_generations_publish: whoever sees the number can read
 * the roll. */
int sh_generations_newest(const sh_generations *g) {
    return atomic_load_explicit(&g->common->newest, memory_order_acquire);
}

bool sh_generations_survive(const sh_generations *g) { return g->count > 1; }

int sh_generations_most(const sh_generations *g) { return g->count; }

int sh_generation_ranks(const sh_generations *g, int index) {
    return atomic_load_explicit(roll_of(g, index), memory_order_relaxed);
}

int sh_generation_slot(const sh_generations *g, int index, int rank) {
    int ranks = sh_generation_ranks(g, index);
    if (rank >= ranks) return g->slots + rank - ranks;
    return atomic_load_explicit(roll_of(g, index) + 1 + rank, memory_order_relaxed);
}

int sh_generation_rank(const sh_generations *g, int index, int slot) {
    int ranks = sh_generation_ranks(g, index);
    if (slot >= g->slots) return ranks + slot - g->slots;
    for (int r = 0; r < ranks; r++)
        if (sh_generation_slot(g, index, r) == slot) return r;
    return -1;
}

/* The fabrics were made for all slots. */
static void limit(sh_generations *g, int index) {
    if (g->limited[index]) return;
    int ranks = sh_generation_ranks(g, index);
    sh_shm_limit(g->fabrics[index], ranks);
    if (g->mails[index] != NULL) sh_shm_limit(g->mails[index], endpoints(g, ranks));
    g->limited[index] = true;
}

sh_shm *sh_generation_fabric(sh_generations *g, int index) {
    limit(g, index);
    return g->fabrics[index];
}

sh_shm *sh_generation_mail(sh_generations *g, int index) {
    limit(g, index);
    return g->mails[index];
}

/* Where servers have processes of their own, the mail's board has a place for them beside the
 * workers, so that the parent watches one board. */
sh_status_board *sh_generation_board(sh_generations *g, int index) {
    if (!g->apart) return sh_shm_board(sh_generation_fabric(g, index));
    sh_status_board *board = sh_shm_board(sh_generation_mail(g, index));
    board->servers = board->ranks - sh_generation_ranks(g, index);
    return board;
}

/* Unmaps in this process alone; peers that are still leaving such a generation keep their own
 * mappings. */
void sh_generations_forget(sh_generations *g, int index) {
    for (int i = 0; i < index; i++) {
        sh_shm_destroy(g->fabrics[i]);
        sh_shm_destroy(g->mails[i]);
        g->fabrics[i] = g->mails[i] = NULL;
    }
}

/* State and generation are one word, so that they belong together. */
enum { STATE_BITS = 3 };

/* Acquire pairs with the release in sh_slot_set: the parent sees what the worker wrote before
 * it told its state. */
static int slot_word(const sh_generations *g, int slot) {
    return atomic_load_explicit(&g->common->entries[slot], memory_order_acquire);
}

sh_member_state sh_slot_get(const sh_generations *g, int slot) {
    return (sh_member_state)(slot_word(g, slot) & ((1 << STATE_BITS) - 1));
}

int sh_slot_generation(const sh_generations *g, int slot) {
    return slot_word(g, slot) >> STATE_BITS;
}

void sh_slot_set(sh_generations *g, int slot, sh_member_state state, int generation) {
    atomic_store_explicit(&g->common->entries[slot], generation << STATE_BITS | (int)state,
                          memory_order_release);
}

bool sh_generations_wished(const sh_generations *g) {
    return atomic_load_explicit(&g->common->wished, memory_order_relaxed);
}

void sh_generations_wish(sh_generations *g, bool wished) {
    atomic_store_explicit(&g->common->wished, wished, memory_order_relaxed);
}

/* Rank 0 of the first generation is the only writer. Release, so that whoever sees the new
 * length can read the values. */
void sh_generations_note(sh_generations *g, const double *values, size_t count) {
    minutes *m = g->minutes;
    size_t used = atomic_load_explicit(&m->used, memory_order_relaxed);
    if (count >= MINUTES_MOST - used) return;  // nobody can recall what comes from here on
    m->values[used] = (double)count;
    memcpy(m->values + used + 1, values, count * sizeof *values);
    atomic_store_explicit(&m->used, used + 1 + count, memory_order_release);
}

/* A length other than the noted one means that this worker opens its data otherwise than the
 * first generation did: then nothing that follows would fit either. */
bool sh_generations_recall(const sh_generations *g, size_t *place, double *values_out,
                           size_t count) {
    const minutes *m = g->minutes;
    size_t used = atomic_load_explicit(&m->used, memory_order_acquire);
    if (*place >= used || m->values[*place] != (double)count) return false;
    memcpy(values_out, m->values + *place + 1, count * sizeof *values_out);
    *place += 1 + count;
    return true;
}

/* Relaxed for `over`: whoever sees it a poll later only leaves later. */
bool sh_generation_is_over(const sh_generations *g, int index) {
    return atomic_load_explicit(&g->common->over, memory_order_relaxed) >= index ||
           sh_generations_newest(g) > index;
}

void sh_generations_end(sh_generations *g) {
    int newest = sh_generations_newest(g);
    if (g->fabrics[newest] != NULL) sh_shm_end(g->fabrics[newest]);
    atomic_store_explicit(&g->common->over, sh_generations_newest(g), memory_order_relaxed);
}

/* `newest` is stored last, with release: its roll is complete for everybody who sees the
 * number. */
void sh_generations_publish(sh_generations *g, const int *slots, int count) {
    int index = sh_generations_newest(g) + 1;
    SH_ASSERT(index < g->count && count > 0);
    _Atomic int *roll = roll_of(g, index);
    atomic_store_explicit(roll, count, memory_order_relaxed);
    for (int r = 0; r < count; r++)
        atomic_store_explicit(roll + 1 + r, slots[r], memory_order_relaxed);
    atomic_store_explicit(&g->common->wished, false, memory_order_relaxed);
    atomic_store_explicit(&g->common->newest, index, memory_order_release);
}

static void mark_mail_dead(sh_generations *g, int index, int rank, int ranks) {
    sh_shm *mail = sh_generation_mail(g, index);
    if (mail == NULL) return;
    sh_shm_mark_dead(mail, rank);
    if (g->apart) return;
    for (int at = rank + ranks; at < endpoints(g, ranks); at += ranks)
        sh_shm_mark_dead(mail, at);  // a worker's services die with it
}

/* A slot that has no rank in the generation leaves nobody waiting there: the parent asks for
 * the newest one and the one before alike. */
void sh_generation_mark_dead(sh_generations *g, int index, int slot) {
    if (index < 0 || g->fabrics[index] == NULL) return;
    int rank = sh_generation_rank(g, index, slot);
    int ranks = sh_generation_ranks(g, index);
    if (rank < 0) return;
    if (rank < ranks) sh_shm_mark_dead(sh_generation_fabric(g, index), rank);
    mark_mail_dead(g, index, rank, ranks);
}
