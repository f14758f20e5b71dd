/* The MPI transport as its users see it: starting and ending MPI, the memory that a node's ranks
 * share from the start (wake-up words and boards), MPI's own all-reduce, and what `shoal doctor`
 * asks.
 *
 * MPI belongs to the process as a whole and can be started once, so what is known of it is the one
 * piece of state that does not hang on an object (`process`). */
#include "comm/transports/mpi.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/engine.h"
#include "comm/transports/mpi_internal.h"

/* Inside a node MPI copies a message of any length in one go. Between nodes it would first ask the
 * receiver whether it is ready, and the answer waits behind all data that is queued in the other
 * direction: at 1 Gbit/s that halved the rate of a ring. Parts so short that they are sent over TCP
 * without asking reach the rate of the wire: with Open MPI below 64 KiB, with MPICH over UCX half
 * of that. */
enum { NEAR_PART_BYTES = 1 << 30, FAR_PART_BYTES = 60 << 10, FAR_PART_MPICH_BYTES = 32 << 10 };

/* MPI starts once per process and belongs to it as a whole. */
static struct {
    bool used;
    const sh_mpi_module *open;  // NULL: not started, or ended in order
    int rank;
    double lost_s;  // so long MPI's start or end was waited for in vain; 0: neither was
} process;

/* Every MPI error is final: pending receives fail, mail fails, and health says why from then on. */
sh_status sh_mpi_fail(sh_mpi *mpi, int error, const char *what) {
    char text[256] = "";
    if (error != 0) mpi->module->error_text(error, text, sizeof text);
    snprintf(mpi->failure, sizeof mpi->failure, "MPI failed at %s%s%s", what,
             error != 0 ? ": " : "", text);
    mpi->failed = true;
    sh_mpi_mail_queue_fail(mpi);
    for (int b = 0; b < SH_MPI_BUCKETS; b++) {
        sh_mpi_bucket *bucket = &mpi->buckets[b];
        for (sh_message *message = bucket->receives; message != NULL; message = message->next)
            message->state = SH_MESSAGE_FAILED;
        bucket->receives = NULL;
        bucket->receives_end = &bucket->receives;
    }
    return SH_FAIL(SH_E_PEER, "%s", mpi->failure);
}

/* Asked before every send and receive: after a failure nothing starts. */
static sh_status health(sh_transport *transport) {
    sh_mpi *mpi = (sh_mpi *)transport;
    return mpi->failed ? SH_FAIL(SH_E_PEER, "%s", mpi->failure) : SH_OK;
}

/* ---- MPI's own all-reduce ---- */

static bool type_of(int dtype, int *type_out, size_t *bytes_out) {
    static const struct {
        int dtype, type;
        size_t bytes;
    } types[] = {{SH_DTYPE_F32, SH_MPI_F32, 4},
                 {SH_DTYPE_F64, SH_MPI_F64, 8},
                 {SH_DTYPE_I32, SH_MPI_I32, 4},
                 {SH_DTYPE_I64, SH_MPI_I64, 8}};
    for (size_t i = 0; i < SH_COUNT(types); i++) {
        if (types[i].dtype != dtype) continue;
        *type_out = types[i].type;
        *bytes_out = types[i].bytes;
        return true;
    }
    return false;
}

/* SH_MEAN is a sum that is divided afterwards. */
static int op_of(int op) {
    switch (op) {
        case SH_MAX:
            return SH_MPI_MAX;
        case SH_MIN:
            return SH_MPI_MIN;
        case SH_PRODUCT:
            return SH_MPI_PRODUCT;
        default:
            return SH_MPI_SUM;
    }
}

static void divide(void *data, size_t count, int dtype, int ranks) {
    for (size_t i = 0; i < count; i++) {
        if (dtype == SH_DTYPE_F32) ((float *)data)[i] /= (float)ranks;
        if (dtype == SH_DTYPE_F64) ((double *)data)[i] /= ranks;
        if (dtype == SH_DTYPE_I32) ((int32_t *)data)[i] /= ranks;
        if (dtype == SH_DTYPE_I64) ((int64_t *)data)[i] /= ranks;
    }
}

/* A rank may come to the sum only when it has its mail, which moves on while this one waits. */
static void meanwhile(void *self) {
    if (!sh_mpi_progress(self)) sched_yield();
}

static sh_status allreduce(sh_transport *transport, void *data, size_t count, int dtype, int op) {
    sh_mpi *mpi = (sh_mpi *)transport;
    int type = 0;
    size_t element_bytes = 0;
    if (!type_of(dtype, &type, &element_bytes))
        return SH_FAIL(SH_E_UNSUPPORTED, "MPI reduces float32, float64, int32 and int64 only");
    SH_TRY(health(transport));
    size_t part = (size_t)1 << 28;  // elements; MPI counts in int
    for (size_t at = 0; at < count; at += part) {
        size_t rest = count - at;
        int error = mpi->module->allreduce((char *)data + at * element_bytes,
                                           (int)(rest < part ? rest : part), type, op_of(op),
                                           mpi->mails ? meanwhile : NULL, transport);
        if (error != 0) return sh_mpi_fail(mpi, error, "an all-reduce");
    }
    if (op == SH_MEAN) divide(data, count, dtype, transport->ranks);
    mpi->active_ns = sh_clock_now_ns(transport->clock);
    return SH_OK;
}

/* ---- opening and closing ---- */

static sh_status end(void *self) {
    sh_mpi *mpi = self;
    int error = mpi->module->barrier();  // whatever travels to this rank has come in
    sh_mpi_unshare(&mpi->base, &mpi->page);
    if (error == 0) error = mpi->module->finalize();
    return error == 0 ? SH_OK : SH_FAIL(SH_E_PEER, "MPI failed at its end (%d)", error);
}

void sh_mpi_limit_end(sh_transport *transport, double limit_s) {
    ((sh_mpi *)transport)->options.limit_s = limit_s;
}

sh_status sh_mpi_ended(void) {
    if (process.lost_s == 0) return SH_OK;
    return SH_FAIL(SH_E_PEER, "rank %d waited %.1f s for the others in MPI's end", process.rank,
                   process.lost_s);
}

/* MPI stays open after a failure: its end would wait for ranks that wait for this one. */
static void mpi_close(sh_transport *transport) {
    sh_mpi *mpi = (sh_mpi *)transport;
    if (mpi->failed || transport->board->status != SH_OK) return;  // memory stays MPI's, too
    bool late;
    sh_status status = sh_mpi_starter_run(mpi->starter, end, mpi, mpi->options.limit_s, &late);
    if (late) process.lost_s = mpi->options.limit_s;
    if (late || status != SH_OK) return;
    process.open = NULL;
    sh_mpi_starter_destroy(mpi->starter);
    sh_mpi_messages_fini(mpi);
    pthread_mutex_destroy(&mpi->queue.lock);
    sh_free(mpi->node);
    sh_free(mpi);
}

void sh_mpi_place(const sh_transport *transport, int *node_ranks_out, int *node_cores_out) {
    const sh_mpi *mpi = (const sh_mpi *)transport;
    *node_ranks_out = mpi->world.node_ranks;
    *node_cores_out = mpi->world.node_cores > 0 ? mpi->world.node_cores : 1;
}

/* The launcher passes on what a rank prints with some delay, and may drop it once the job aborts.
 */
void sh_mpi_abort(int exit_code) {
    if (process.open == NULL) return;
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    if (process.lost_s > 0) _exit(exit_code);  // its task is inside of MPI
    process.open->abort(exit_code);
}

static const sh_transport_ops mpi_ops = {
    .name = "mpi",
    .send = sh_mpi_send,
    .receive = sh_mpi_receive,
    .cancel = sh_mpi_cancel,
    .progress = sh_mpi_progress,
    .idle = sh_mpi_idle,
    .health = health,
    .share = sh_mpi_share,
    .unshare = sh_mpi_unshare,
    .wake = sh_mpi_wake,
    .allreduce = allreduce,
    .close = mpi_close,
};

static sh_status check_world(const sh_mpi *mpi, const sh_mpi_options *options) {
    const sh_mpi_world *world = &mpi->world;
    if (options->ranks > 1 && world->ranks != options->ranks) {
        char text[256];
        mpi->module->describe(text, sizeof text);
        (void)SH_FAIL(SH_E_USAGE, "the launcher started %d processes, but %s sees %d",
                      options->ranks, text, world->ranks);
        return sh_error_hint(
            "launch with the mpirun of that MPI, or load the module of the other: "
            "shoal doctor lists them");
    }
    if (world->thread_level < 2) {
        (void)SH_FAIL(SH_E_UNSUPPORTED,
                      "this MPI lets only its first thread communicate (level %d)",
                      world->thread_level);
        return sh_error_hint("Shoal needs MPI_THREAD_SERIALIZED; build MPI with threads");
    }
    return SH_OK;
}

/* The memory that a node's ranks share from the start: wake-up words and boards. All boards are
 * there only where all ranks are on one node. */
static sh_status open_page(sh_mpi *mpi) {
    int ranks = mpi->world.ranks;
    size_t wakeups_bytes = (size_t)ranks * sizeof(sh_mpi_wakeup);
    size_t bytes = wakeups_bytes + sh_board_bytes(ranks);
    bool brings = mpi->world.node_rank == 0;
    SH_TRY(sh_mpi_share_uneven(mpi, brings ? bytes : 0, bytes, &mpi->page));
    char *page = NULL;
    for (int r = 0; r < ranks && page == NULL; r++) page = mpi->page.base[r];
    SH_ASSERT(page != NULL);
    mpi->wakeups = (sh_mpi_wakeup *)page;
    sh_status_board *boards = (sh_status_board *)(page + wakeups_bytes);
    boards->ranks = ranks;
    bool all = mpi->world.node_ranks == ranks && (ranks == 1 || sh_mpi_is_mapped(&mpi->page));
    mpi->base.boards = all ? boards : NULL;
    mpi->base.board = &boards->rank[mpi->world.rank];
    return SH_OK;
}

/* Otherwise some would wait for ever in what the others do not do. */
static sh_status agree_apart(sh_mpi *mpi, int apart) {
    int32_t least[] = {apart, -apart};
    int error = mpi->module->allreduce(least, SH_COUNT(least), SH_MPI_I32, SH_MPI_MIN, NULL, NULL);
    if (error != 0) return sh_mpi_fail(mpi, error, "its start");
    if (least[0] == -least[1]) return SH_OK;
    SH_FAIL(SH_E_USAGE, "rank %d sets %d ranks apart, others from %d to %d", mpi->world.rank, apart,
            least[0], -least[1]);
    return sh_error_hint("start all ranks with the same program and run file");
}

/* The last ranks are each alone from now on, and the others a team. */
static sh_status set_apart(sh_mpi *mpi, int apart) {
    int rank = mpi->world.rank, others = mpi->world.ranks - apart;
    SH_TRY(agree_apart(mpi, apart));
    if (apart == 0 || others < 1) return SH_OK;
    if (mpi->base.boards != NULL) mpi->base.boards->servers = apart;
    bool alone = rank >= others;
    int error = mpi->module->split(alone ? rank : 0);
    if (error != 0) return sh_mpi_fail(mpi, error, "its start");
    mpi->first = alone ? rank : 0;
    mpi->base.rank = rank - mpi->first;
    mpi->base.ranks = alone ? 1 : others;
    mpi->base.node = mpi->node + mpi->first;
    return SH_OK;
}

static sh_status set_up(void *self) {
    sh_mpi *mpi = self;
    const sh_mpi_options *options = &mpi->options;
    int error = mpi->module->init(&mpi->world);
    if (error != 0) return sh_mpi_fail(mpi, error, "its start");
    SH_TRY(check_world(mpi, options));
    const sh_mpi_world *world = &mpi->world;
    process.rank = world->rank;
    int cores = world->node_cores > 0 ? world->node_cores : 1;
    mpi->base.rank = world->rank;
    mpi->base.ranks = world->ranks;
    mpi->base.ranks_per_core = (world->node_ranks + cores - 1) / cores;
    mpi->node = sh_alloc((size_t)world->ranks, sizeof *mpi->node);
    if (mpi->node == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %d ranks", world->ranks);
    error = mpi->module->nodes(mpi->node);
    if (error != 0) return sh_mpi_fail(mpi, error, "its start");
    mpi->base.node = mpi->node;
    SH_TRY(open_page(mpi));
    mpi->base.board->pid = (int32_t)getpid();
    SH_TRY(set_apart(mpi, options->apart));
    return sh_mpi_messages_init(mpi);
}

static sh_status start(sh_mpi *mpi) {
    bool late;
    SH_TRY(sh_mpi_starter_create(&mpi->starter));
    SH_TRY(sh_mpi_starter_run(mpi->starter, set_up, mpi, mpi->options.limit_s, &late));
    if (!late) return SH_OK;
    process.lost_s = mpi->options.limit_s;
    SH_FAIL(SH_E_PEER, "this rank waited %.1f s for the others in MPI's start", process.lost_s);
    return sh_error_hint(
        "see whether all ranks run, and whether MPI's network leads to them (docs/cluster.md); "
        "--watchdog waits longer");
}

sh_status sh_mpi_open(const sh_mpi_options *options, sh_transport **transport_out) {
    if (process.used)
        return SH_FAIL(SH_E_UNSUPPORTED, "MPI starts once in the life of a process, and it did");
    const sh_mpi_module *module = NULL;
    SH_TRY(sh_mpi_load(options->module, options->flavour, &module));
    sh_mpi *mpi = sh_alloc(1, sizeof *mpi);
    if (mpi == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for the MPI transport");
    mpi->module = module;
    mpi->options = *options;
    sh_mpi_mail_queue_init(&mpi->queue);
    bool given = options->part_bytes != 0;
    mpi->near_part_bytes = given ? options->part_bytes : NEAR_PART_BYTES;
    bool mpich = strcmp(module->flavour, "mpich") == 0;
    mpi->far_part_bytes = given   ? options->part_bytes
                          : mpich ? FAR_PART_MPICH_BYTES
                                  : FAR_PART_BYTES;
    mpi->base.ops = &mpi_ops;
    mpi->base.clock = options->clock != NULL ? options->clock : &sh_clock_real;
    process.used = true;
    process.open = module;
    SH_TRY(start(mpi));  // after a failure MPI and its memory wait for sh_mpi_abort
    *transport_out = &mpi->base;
    return SH_OK;
}
