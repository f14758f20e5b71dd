/* One rank under mpirun: what the MPI transport promises, by name.
 *   under_mpi FLAVOUR RANKS conformance [PART_BYTES]   the suite that all transports pass
 *   under_mpi FLAVOUR RANKS allreduce                  MPI's own all-reduce
 *   under_mpi FLAVOUR RANKS engine                     what an engine does on any transport
 *   under_mpi FLAVOUR RANKS engine counts              all-reduces on groups of every size
 *   under_mpi FLAVOUR RANKS engine DIFFERENCE          rank 1 starts another call
 *   under_mpi FLAVOUR RANKS mail                       the suite over endpoints, two on rank 0
 *   under_mpi FLAVOUR 4 groups FOLDER                  two runs as groups of one world
 *   under_mpi FLAVOUR RANKS fails | dies               the last rank leaves
 * Exit 0: fine. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/task.h"
#include "comm/conformance.h"
#include "comm/engine_cases.h"
#include "comm/transports/mpi.h"
#include "run/groups.h"

#define EXPECT(condition, ...) \
    if (!(condition)) return SH_FAIL(SH_E_FORMAT, __VA_ARGS__)

static sh_status conformance(sh_transport *transport) {
    for (const conformance_case *row = conformance_cases; row->name != NULL; row++) {
        if (transport->rank == 0) fprintf(stderr, "%s\n", row->name);
        SH_TRY(row->body(transport, NULL));
    }
    return SH_OK;
}

/* One to each rank by its number: sum, mean, maximum, minimum and product are plain to tell. */
static double expected(sh_reduce_op op, int ranks) {
    double sum = 0, product = 1;
    for (int r = 1; r <= ranks; r++) {
        sum += r;
        product *= r;
    }
    return op == SH_SUM    ? sum
           : op == SH_MEAN ? sum / ranks
           : op == SH_MAX  ? ranks
           : op == SH_MIN  ? 1
                           : product;
}

static double value_at(const void *data, sh_dtype dtype, size_t i) {
    return dtype == SH_DTYPE_F32   ? (double)((const float *)data)[i]
           : dtype == SH_DTYPE_F64 ? ((const double *)data)[i]
           : dtype == SH_DTYPE_I32 ? ((const int32_t *)data)[i]
                                   : (double)((const int64_t *)data)[i];
}

static void set_at(void *data, sh_dtype dtype, size_t i, int value) {
    if (dtype == SH_DTYPE_F32) ((float *)data)[i] = (float)value;
    if (dtype == SH_DTYPE_F64) ((double *)data)[i] = value;
    if (dtype == SH_DTYPE_I32) ((int32_t *)data)[i] = value;
    if (dtype == SH_DTYPE_I64) ((int64_t *)data)[i] = value;
}

static sh_status reduce_once(sh_transport *transport, sh_dtype dtype, sh_reduce_op op) {
    enum { COUNT = 1001 };
    static int64_t data[COUNT];  // room for any type
    for (size_t i = 0; i < COUNT; i++) set_at(data, dtype, i, transport->rank + 1);
    SH_TRY(transport->ops->allreduce(transport, data, COUNT, (int)dtype, (int)op));
    double wanted = expected(op, transport->ranks);
    if (dtype == SH_DTYPE_I32 || dtype == SH_DTYPE_I64) wanted = (double)(int64_t)wanted;
    for (size_t i = 0; i < COUNT; i++)
        EXPECT(value_at(data, dtype, i) == wanted, "type %d, operator %d: %g, not %g", (int)dtype,
               (int)op, value_at(data, dtype, i), wanted);
    return SH_OK;
}

static sh_status allreduce(sh_transport *transport) {
    for (int dtype = SH_DTYPE_F32; dtype <= SH_DTYPE_I64; dtype++)
        for (int op = SH_SUM; op <= SH_PRODUCT; op++)
            SH_TRY(reduce_once(transport, (sh_dtype)dtype, (sh_reduce_op)op));
    char byte = 0;
    EXPECT(
        transport->ops->allreduce(transport, &byte, 1, SH_DTYPE_BYTE, SH_SUM) == SH_E_UNSUPPORTED,
        "bytes were summed");
    return SH_OK;
}

static sh_status cases(sh_engine *engine) {
    size_t small = 777, large = 300007;
    bool polls = true, waits = false;
    SH_TRY(engine_all_reduces(engine, &(engine_ways){.native = true}));
    SH_TRY(engine_all_reduces(engine, &(engine_ways){.native = true, .every_pair = true}));
    SH_TRY(engine_equal_bits(engine, &small));
    SH_TRY(engine_equal_bits(engine, &large));
    SH_TRY(engine_collectives(engine, NULL));
    if (sh_engine_ranks(engine) == 5) SH_TRY(engine_groups(engine, NULL));
    SH_TRY(engine_many_at_once(engine, &polls));
    return engine_many_at_once(engine, &waits);
}

#define NATIVE(...) \
    { .what = SH_ALLREDUCE, .algorithm = "mpi", .bucket = 2, __VA_ARGS__ }

/* In MPI's own all-reduce, where nobody could hear of it. */
static const engine_difference native_differences[] = {
    {.name = "MPI's own and another",
     .call = {NATIVE(.count = 1000),
              {.what = SH_ALLREDUCE, .algorithm = "ring", .count = 1000, .bucket = 2}}},
    {.name = "MPI's own, two sizes", .call = {NATIVE(.count = 1000), NATIVE(.count = 1002)}},
    {.name = "MPI's own, two types",
     .call = {NATIVE(.count = 1000), NATIVE(.count = 1000, .dtype = SH_DTYPE_I32)}},
    {.name = "MPI's own, two operators",
     .call = {NATIVE(.count = 1000), NATIVE(.count = 1000, .op = SH_MAX)}},
    {0},
};

static const engine_difference *find(const engine_difference *row, const char *name) {
    while (row->name != NULL && strcmp(row->name, name) != 0) row++;
    return row->name != NULL ? row : NULL;
}

static sh_status differs(sh_engine *engine, const char *name) {
    engine_dispute job = {.row = find(engine_differences, name)};
    if (job.row == NULL) job.row = find(native_differences, name);
    if (job.row == NULL) return SH_FAIL(SH_E_USAGE, "no difference '%s'", name);
    return engine_differs(engine, &job);
}

/* Closes the transport, unless it fails. */
static sh_status engine(sh_transport *transport, const char *what) {
    sh_engine *engine = NULL;
    // Small segments, so that several are under way.
    sh_engine_options options = {.task = true, .segment_bytes = 100000, .timeout_ns = 60000000000};
    SH_TRY(sh_engine_create(transport, &options, &engine));
    if (what == NULL)
        SH_TRY(cases(engine));
    else if (strcmp(what, "counts") == 0)
        SH_TRY(engine_every_count(engine, NULL));
    else
        SH_TRY(differs(engine, what));
    sh_engine_destroy(engine);
    return SH_OK;
}

/* ---- Groups: two data-parallel runs in one world of four ------------------------------------- */

typedef struct mesh_member {
    sh_transport *transport;
    sh_engine *engine;
    int hosts[GROUP_ENDPOINTS];  // of the mail of this rank's group
} mesh_member;

static sh_status open_group_mail(void *self, int endpoint, sh_transport **mail_out) {
    const mesh_member *m = self;
    SH_TRY(sh_engine_keep_polling(m->engine, sh_mpi_start_mail));
    return sh_mpi_open_mail(m->transport, m->hosts, GROUP_ENDPOINTS, endpoint, mail_out);
}

static sh_status train_group(mesh_member *m, const char *scheme, const char *folder) {
    int rank = m->transport->rank;
    for (int i = 0; i < GROUP_ENDPOINTS; i++)  // services sit on the workers in turn
        m->hosts[i] = i % GROUP_WORKERS * GROUPS + group_of(rank);
    SH_TRY(group_train(&(group_worker){
        .scheme = scheme,
        .folder = folder,
        .group = group_of(rank),
        .place = group_place_of(rank),
        .env = {
            .engine = m->engine, .mesh = group_mesh(), .open_mail = open_group_mail, .self = m}}));
    return sh_engine_barrier(m->engine);
}

/* Rank 0 repeats them on shared memory, each as a run of its own. */
static sh_status groups(sh_transport *transport, const char *folder) {
    mesh_member m = {.transport = transport};
    EXPECT(transport->ranks == GROUP_WORLD, "%d ranks, not %d", transport->ranks, GROUP_WORLD);
    const sh_engine_options options = {.task = true, .timeout_ns = 60000000000};
    SH_TRY(sh_engine_create(transport, &options, &m.engine));
    for (size_t i = 0; group_schemes[i] != NULL; i++) {
        char together[1024], apart[1024];
        snprintf(together, sizeof together, "%s/%s", folder, group_schemes[i]);
        snprintf(apart, sizeof apart, "%s/%s-apart", folder, group_schemes[i]);
        SH_TRY(train_group(&m, group_schemes[i], together));
        if (transport->rank > 0) continue;
        fprintf(stderr, "%s\n", group_schemes[i]);
        SH_TRY(groups_apart(group_schemes[i], apart));
        SH_TRY(groups_compare(together, apart));
    }
    sh_engine_destroy(m.engine);
    return SH_OK;
}

/* ---- Mail: endpoints of tasks beside the engine's ------------------------------------------- */

enum { ENDPOINTS_MOST = 16 };

typedef struct member {
    sh_transport *transport, *mail;
    sh_engine *engine;
    sh_task *task;
    int endpoint, endpoints;
} member;

/* Endpoint e sits on rank e mod ranks: one more than ranks, so that rank 0 has two. */
static int hosts[ENDPOINTS_MOST];

/* Mail shares no memory: what the suite says of that is not for it. */
static bool is_about_sharing(const conformance_case *row) {
    return strcmp(row->name, "memory is shared") == 0 ||
           strcmp(row->name, "too much memory is refused") == 0;
}

static sh_status member_body(void *argument) {
    member *m = argument;
    for (const conformance_case *row = conformance_cases; row->name != NULL; row++) {
        if (is_about_sharing(row)) continue;
        if (m->endpoint == 0) fprintf(stderr, "%s\n", row->name);
        SH_TRY(row->body(m->mail, NULL));
    }
    return SH_OK;
}

/* While the endpoints talk, sums go over the same transport, MPI's own among them. */
static sh_status sum_meanwhile(sh_engine *engine) {
    static const char *const ways[] = {"ring", "direct", "mpi", "tree"};
    static float data[4097];
    for (int i = 0; i < 40; i++) {
        for (size_t k = 0; k < SH_COUNT(data); k++) data[k] = (float)(k % 7);
        sh_call call = SH_CALL(.what = SH_ALLREDUCE, .algorithm = ways[i % 4], .data = data,
                               .count = SH_COUNT(data), .dtype = SH_DTYPE_F32, .op = SH_SUM);
        SH_TRY(sh_engine_run(engine, &call));
        for (size_t k = 0; k < SH_COUNT(data); k++)
            EXPECT(data[k] == (float)(k % 7) * (float)sh_engine_ranks(engine), "sum %d: %g", i,
                   (double)data[k]);
    }
    return SH_OK;
}

static sh_status close_members(member *members, int count) {
    sh_status status = SH_OK;
    for (int i = 0; i < count; i++) {
        sh_status ended = sh_task_wait(members[i].task);
        if (status == SH_OK) status = ended;
    }
    for (int i = 0; i < count && status == SH_OK; i++) sh_transport_close(members[i].mail);
    return status;
}

static sh_status mail(sh_transport *transport) {
    sh_engine *engine = NULL;
    sh_engine_options options = {.task = true, .timeout_ns = 120000000000};
    SH_TRY(sh_engine_create(transport, &options, &engine));
    member members[ENDPOINTS_MOST] = {0};
    int ranks = transport->ranks, endpoints = ranks + 1, count = 0;
    for (int e = 0; e < endpoints; e++) hosts[e] = e % ranks;
    SH_TRY(sh_engine_keep_polling(engine, sh_mpi_start_mail));
    for (int e = transport->rank; e < endpoints; e += ranks) {
        member *m = &members[count++];
        *m = (member){.transport = transport, .endpoint = e, .endpoints = endpoints};
        SH_TRY(sh_mpi_open_mail(transport, hosts, endpoints, e, &m->mail));
        SH_TRY(sh_task_spawn("endpoint", member_body, m, &m->task));
    }
    SH_TRY(sum_meanwhile(engine));
    SH_TRY(close_members(members, count));
    SH_TRY(sh_engine_barrier(engine));
    sh_engine_destroy(engine);
    return SH_OK;
}

/* The last rank leaves, the others wait for it: the launcher must end them. */
static sh_status leaves(sh_transport *transport, bool is_killed) {
    SH_TRY(meet_ranks(transport, 1));
    if (transport->rank == transport->ranks - 1) {
        if (is_killed) raise(SIGKILL);
        return SH_FAIL(SH_E_NUMERIC, "rank %d gave up", transport->rank);
    }
    char byte = 0;
    sh_message message = {.peer = transport->ranks - 1, .tag = 2, .data = &byte, .bytes = 1};
    SH_TRY(sh_receive(transport, &message));
    return wait_message(transport, &message);
}

static sh_status run(sh_transport *transport, const char *what) {
    if (strcmp(what, "conformance") == 0) return conformance(transport);
    if (strcmp(what, "allreduce") == 0) return allreduce(transport);
    if (strcmp(what, "fails") == 0) return leaves(transport, false);
    if (strcmp(what, "dies") == 0) return leaves(transport, true);
    return SH_FAIL(SH_E_USAGE, "no test '%s'", what);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    bool mails = strcmp(argv[3], "mail") == 0, trains = strcmp(argv[3], "groups") == 0;
    bool takes = mails || trains || strcmp(argv[3], "engine") == 0;
    if (trains && argc < 5) return 2;
    sh_mpi_options options = {
        .module = SHOAL_BINARY,
        .flavour = strcmp(argv[1], "mpich") == 0 ? SH_MPI_MPICH : SH_MPI_OPENMPI,
        .part_bytes = argc > 4 && !takes ? strtoull(argv[4], NULL, 10) : 0,
        .ranks = (int)strtol(argv[2], NULL, 10),
    };
    sh_transport *transport = NULL;
    sh_status status = sh_mpi_open(&options, &transport);
    if (status == SH_OK && mails)
        status = mail(transport);
    else if (status == SH_OK && trains)
        status = groups(transport, argv[4]);
    else if (status == SH_OK)
        status = takes ? engine(transport, argc > 4 ? argv[4] : NULL) : run(transport, argv[3]);
    if (status != SH_OK)
        fprintf(stderr, "under_mpi: %s\n  try: %s\n", sh_error_last()->text, sh_error_last()->hint);
    if (transport != NULL && !takes) {
        transport->board->status = (int32_t)status;
        sh_transport_close(transport);
    }
    sh_mpi_abort(3);  // which does nothing where MPI was closed in order
    return status == SH_OK ? 0 : 3;
}
