/* The only file that sees mpi.h. Compiled once per MPI into a module of its own (mpi_module.h).
 *
 * All communication goes over copies of MPI_COMM_WORLD, so that a program that embeds Shoal may
 * use MPI for itself. Errors come back as codes; nothing here prints or exits, but `abort`. */
#include "comm/transports/mpi_module.h"

#include <mpi.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum { PAGE = 4096 };

static struct {
    MPI_Comm world, team, node;
    int rank, ranks, node_rank, node_ranks;  // node: the team's part of it
    int *members;                            // (node_ranks): their ranks in the run
    bool started;  // by us: a host program that started MPI itself also ends it
    // Requests under way, dense: a complete one gives its place to the last.
    int active, capacity;
    MPI_Request *requests;  // (capacity)
    MPI_Status *statuses;   // (capacity)
    int *indices;           // (capacity)
    uintptr_t *cookies;     // (capacity)
} self;

#define TRY(expression)                           \
    do {                                          \
        int error_ = (expression);                \
        if (error_ != MPI_SUCCESS) return error_; \
    } while (0)

static void describe(char *text_out, size_t size) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\t') *c = ' ';
    text[strcspn(text, "\n")] = '\0';
    // Open MPI goes on about who built it: "Open MPI v4.1.4, package: ...".
    text[strcspn(text, ",")] = '\0';
    snprintf(text_out, size, "%s", text);
}

static void error_text(int error, char *text_out, size_t size) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0, initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized == 0 || MPI_Error_string(error, text, &length) != MPI_SUCCESS)
        snprintf(text, sizeof text, "MPI error %d", error);
    text[strcspn(text, "\n")] = '\0';
    snprintf(text_out, size, "%s", text);
}

/* Cores that the ranks of this node may run on, each counted once. */
static int node_cores(int *cores_out) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof cores, &cores) != 0) CPU_SET(0, &cores);
    TRY(MPI_Allreduce(MPI_IN_PLACE, &cores, (int)sizeof cores, MPI_BYTE, MPI_BOR, self.node));
    *cores_out = CPU_COUNT(&cores);
    return MPI_SUCCESS;
}

static int tag_max(int *tag_max_out) {
    int *bound = NULL, found = 0;
    TRY(MPI_Comm_get_attr(self.world, MPI_TAG_UB, &bound, &found));
    *tag_max_out = found != 0 ? *bound : 32767;  // what the standard promises
    return MPI_SUCCESS;
}

/* The team's communicators. Those of an earlier one stay: windows hang on them. */
static int make_team(int team) {
    TRY(MPI_Comm_split(self.world, team, self.rank, &self.team));
    TRY(MPI_Comm_set_errhandler(self.team, MPI_ERRORS_RETURN));
    TRY(MPI_Comm_split_type(self.team, MPI_COMM_TYPE_SHARED, self.rank, MPI_INFO_NULL, &self.node));
    TRY(MPI_Comm_set_errhandler(self.node, MPI_ERRORS_RETURN));
    TRY(MPI_Comm_rank(self.node, &self.node_rank));
    TRY(MPI_Comm_size(self.node, &self.node_ranks));
    free(self.members);
    self.members = calloc((size_t)self.node_ranks, sizeof *self.members);
    if (self.members == NULL) return MPI_ERR_NO_MEM;
    return MPI_Allgather(&self.rank, 1, MPI_INT, self.members, 1, MPI_INT, self.node);
}

static int make_communicators(void) {
    TRY(MPI_Comm_dup(MPI_COMM_WORLD, &self.world));
    TRY(MPI_Comm_set_errhandler(self.world, MPI_ERRORS_RETURN));
    TRY(MPI_Comm_rank(self.world, &self.rank));
    TRY(MPI_Comm_size(self.world, &self.ranks));
    return make_team(0);
}

static int init(sh_mpi_world *world_out) {
    int initialized = 0, level = MPI_THREAD_SINGLE;
    TRY(MPI_Initialized(&initialized));
    if (initialized == 0) {
        // Errors of MPI_Init itself end the process, by the standard's default.
        TRY(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level));
        self.started = true;
    } else {
        TRY(MPI_Query_thread(&level));
    }
    TRY(make_communicators());
    *world_out = (sh_mpi_world){
        .rank = self.rank,
        .ranks = self.ranks,
        .node_rank = self.node_rank,
        .node_ranks = self.node_ranks,
        .thread_level = level == MPI_THREAD_MULTIPLE     ? 3
                        : level == MPI_THREAD_SERIALIZED ? 2
                        : level == MPI_THREAD_FUNNELED   ? 1
                                                         : 0,
    };
    TRY(node_cores(&world_out->node_cores));
    return tag_max(&world_out->tag_max);
}

static int nodes(int *node_out) {
    // A node is named by its first member, then numbered in the order of ranks.
    int first = self.members[0];
    TRY(MPI_Allgather(&first, 1, MPI_INT, node_out, 1, MPI_INT, self.world));
    int count = 0;
    for (int r = 0; r < self.ranks; r++)
        // The first member has the lowest rank of its node, so its entry is numbered already.
        node_out[r] = node_out[r] == r ? count++ : node_out[node_out[r]];
    return MPI_SUCCESS;
}

static int finalize(void) {
    for (int i = 0; i < self.active; i++) {
        int complete = 0;
        MPI_Cancel(&self.requests[i]);
        MPI_Test(&self.requests[i], &complete, MPI_STATUS_IGNORE);
        if (complete == 0) MPI_Request_free(&self.requests[i]);  // a send that nobody wants
    }
    self.active = 0;
    free(self.members);
    free(self.requests);
    free(self.statuses);
    free(self.indices);
    free(self.cookies);
    TRY(MPI_Comm_free(&self.node));
    TRY(MPI_Comm_free(&self.team));
    TRY(MPI_Comm_free(&self.world));
    return self.started ? MPI_Finalize() : MPI_SUCCESS;
}

static void abort_job(int exit_code) { MPI_Abort(MPI_COMM_WORLD, exit_code); }

static int grow(void) {
    int capacity = self.capacity == 0 ? 256 : 2 * self.capacity;
    size_t count = (size_t)capacity;
    MPI_Request *requests = realloc(self.requests, count * sizeof *requests);
    if (requests != NULL) self.requests = requests;
    MPI_Status *statuses = realloc(self.statuses, count * sizeof *statuses);
    if (statuses != NULL) self.statuses = statuses;
    int *indices = realloc(self.indices, count * sizeof *indices);
    if (indices != NULL) self.indices = indices;
    uintptr_t *cookies = realloc(self.cookies, count * sizeof *cookies);
    if (cookies != NULL) self.cookies = cookies;
    if (requests == NULL || statuses == NULL || indices == NULL || cookies == NULL)
        return MPI_ERR_NO_MEM;
    self.capacity = capacity;
    return MPI_SUCCESS;
}

static int isend(const void *data, int bytes, int peer, int tag, uintptr_t cookie) {
    if (self.active == self.capacity) TRY(grow());
    TRY(MPI_Isend(data, bytes, MPI_BYTE, peer, tag, self.world, &self.requests[self.active]));
    self.cookies[self.active++] = cookie;
    return MPI_SUCCESS;
}

static int irecv(void *data, int bytes, int peer, int tag, uintptr_t cookie) {
    if (self.active == self.capacity) TRY(grow());
    int source = peer == SH_MPI_ANY_PEER ? MPI_ANY_SOURCE : peer;
    TRY(MPI_Irecv(data, bytes, MPI_BYTE, source, tag, self.world, &self.requests[self.active]));
    self.cookies[self.active++] = cookie;
    return MPI_SUCCESS;
}

static void note_done(const MPI_Status *status, uintptr_t cookie, bool failed, sh_mpi_done *done) {
    int bytes = 0, cancelled = 0;
    int error = failed ? status->MPI_ERROR : MPI_SUCCESS;
    MPI_Test_cancelled(status, &cancelled);
    if (error == MPI_SUCCESS && cancelled == 0) MPI_Get_count(status, MPI_BYTE, &bytes);
    *done = (sh_mpi_done){.cookie = cookie,
                          .peer = status->MPI_SOURCE,
                          .bytes = bytes,
                          .error = error,
                          .cancelled = cancelled};
}

/* Closes the gaps that complete requests left. */
static void drop_complete(void) {
    int kept = 0;
    for (int i = 0; i < self.active; i++) {
        if (self.requests[i] == MPI_REQUEST_NULL) continue;
        self.requests[kept] = self.requests[i];
        self.cookies[kept++] = self.cookies[i];
    }
    self.active = kept;
}

/* Looks at `count` requests from `first` on. */
static int test_some(int first, int count, sh_mpi_done *done_out, int *count_out) {
    int complete = 0;
    int result = MPI_Testsome(count, self.requests + first, &complete, self.indices, self.statuses);
    if (result != MPI_SUCCESS && result != MPI_ERR_IN_STATUS) return result;
    if (complete == MPI_UNDEFINED) complete = 0;
    for (int i = 0; i < complete; i++)
        note_done(&self.statuses[i], self.cookies[first + self.indices[i]],
                  result == MPI_ERR_IN_STATUS, &done_out[i]);
    *count_out = complete;
    return MPI_SUCCESS;
}

static int test(sh_mpi_done *done_out, int capacity, int *count_out) {
    int total = 0;
    // One call may report as many as it is shown: not more than the caller has room for.
    for (int first = 0; first < self.active && total < capacity;) {
        int count = self.active - first, room = capacity - total, complete = 0;
        if (count > room) count = room;
        TRY(test_some(first, count, done_out + total, &complete));
        total += complete;
        first += count;
    }
    if (total > 0) drop_complete();
    *count_out = total;
    return MPI_SUCCESS;
}

static int cancel(uintptr_t cookie) {
    for (int i = 0; i < self.active; i++)
        if (self.cookies[i] == cookie) return MPI_Cancel(&self.requests[i]);
    return MPI_SUCCESS;
}

static int split(int team) { return make_team(team); }

static int barrier(void) { return MPI_Barrier(self.world); }

static int allreduce(void *data, int count, int type, int op, void (*meanwhile)(void *user),
                     void *user) {
    const MPI_Datatype types[] = {[SH_MPI_F32] = MPI_FLOAT,
                                  [SH_MPI_F64] = MPI_DOUBLE,
                                  [SH_MPI_I32] = MPI_INT32_T,
                                  [SH_MPI_I64] = MPI_INT64_T};
    const MPI_Op ops[] = {[SH_MPI_SUM] = MPI_SUM,
                          [SH_MPI_MAX] = MPI_MAX,
                          [SH_MPI_MIN] = MPI_MIN,
                          [SH_MPI_PRODUCT] = MPI_PROD};
    if (meanwhile == NULL)
        return MPI_Allreduce(MPI_IN_PLACE, data, count, types[type], ops[op], self.team);
    MPI_Request request;
    TRY(MPI_Iallreduce(MPI_IN_PLACE, data, count, types[type], ops[op], self.team, &request));
    for (int complete = 0;;) {
        TRY(MPI_Test(&request, &complete, MPI_STATUS_IGNORE));
        if (complete != 0) return MPI_SUCCESS;
        meanwhile(user);
    }
}

/* Addresses of all members' parts, each moved up to its page. */
static int map_members(MPI_Win window, const int *pads, char **base_out) {
    for (int m = 0; m < self.node_ranks; m++) {
        MPI_Aint size = 0;
        int unit = 0;
        char *base = NULL;
        TRY(MPI_Win_shared_query(window, m, &size, &unit, &base));
        if (size > 0) base_out[self.members[m]] = base + pads[m];
    }
    return MPI_SUCCESS;
}

static int fill_window(MPI_Win window, char *own, size_t bytes, char **base_out) {
    // Mappings are whole pages, so a part starts at the same place of a page in every process.
    int *pads = calloc((size_t)self.node_ranks, sizeof *pads);
    if (pads == NULL) return MPI_ERR_NO_MEM;
    int pad = (int)(-(uintptr_t)own % PAGE);
    int error = MPI_Allgather(&pad, 1, MPI_INT, pads, 1, MPI_INT, self.node);
    if (error == MPI_SUCCESS) error = map_members(window, pads, base_out);
    free(pads);
    TRY(error);
    // Written first by its owner, so that the pages lie in the memory next to it.
    if (bytes > 0) memset(own + pad, 0, bytes);
    return MPI_Barrier(self.node);
}

/* Whether the node has room for it. MPI's own check lets the other ranks wait for ever. */
static int check_room(size_t bytes) {
    uint64_t wanted = bytes + PAGE;
    TRY(MPI_Allreduce(MPI_IN_PLACE, &wanted, 1, MPI_UINT64_T, MPI_SUM, self.node));
    int fits = 1;
    struct statvfs room;
    if (self.node_rank == 0 && statvfs("/dev/shm", &room) == 0)
        fits = wanted <= (uint64_t)room.f_bavail * room.f_frsize;
    TRY(MPI_Bcast(&fits, 1, MPI_INT, 0, self.node));
    return fits != 0 ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

static int share_memory(size_t bytes, char **base_out, void **handle_out) {
    TRY(check_room(bytes));
    MPI_Win *window = malloc(sizeof *window);
    if (window == NULL) return MPI_ERR_NO_MEM;
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true");
    char *own = NULL;
    MPI_Aint size = bytes == 0 ? 0 : (MPI_Aint)(bytes + PAGE);
    int error = MPI_Win_allocate_shared(size, 1, info, self.node, &own, window);
    MPI_Info_free(&info);
    if (error == MPI_SUCCESS) error = fill_window(*window, own, bytes, base_out);
    if (error != MPI_SUCCESS) {
        free(window);
        return error;
    }
    *handle_out = window;
    return MPI_SUCCESS;
}

static int unshare_memory(void *handle) {
    MPI_Win *window = handle;
    int error = MPI_Win_free(window);
    free(window);
    return error;
}

extern const sh_mpi_module shoal_mpi_module;
__attribute__((visibility("default"))) const sh_mpi_module shoal_mpi_module = {
    .version = SH_MPI_MODULE_VERSION,
    .table_size = sizeof(sh_mpi_module),
#ifdef OPEN_MPI
    .flavour = "openmpi",
#else
    .flavour = "mpich",
#endif
    .describe = describe,
    .error_text = error_text,
    .init = init,
    .nodes = nodes,
    .finalize = finalize,
    .abort = abort_job,
    .isend = isend,
    .irecv = irecv,
    .test = test,
    .cancel = cancel,
    .split = split,
    .barrier = barrier,
    .allreduce = allreduce,
    .share = share_memory,
    .unshare = unshare_memory,
};
