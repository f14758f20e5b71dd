/* shoal_explain_collective: checks and completes the options of an explanation (ranks, nodes,
 * size, links, algorithm), then has explain/collective.h print it. Order matters: the number of
 * ranks comes from the values, nodes from the ranks, the size from the values, and the algorithm
 * from size and links. */
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/option.h"
#include "explain/collective.h"
#include "explain/units.h"
#include "shoal/tools.h"
#include "run/costs.h"
#include "api/sink.h"

/* What options that are 0 or NULL mean; tools.h and the command's help name the same. */
enum { RANKS_DEFAULT = 4 };
static const char LINK_DEFAULT[] = "1Gbit,50us", NODE_LINK_DEFAULT[] = "5GB,1us";
/* Bytes of the whole buffer: default and limit. */
static const size_t SIZE_DEFAULT = 1 << 20, SIZE_MOST = (size_t)1 << 50;

bool shoal_is_collective(const char *name) {
    SHOAL_NEED_OR(name, false);
    sh_collective does;
    return sh_collective_find(name, &does);
}

/* Names of all collectives, for sh_nearest. */
static const char *collective_name(const void *names, size_t index) {
    (void)names;
    return index < SH_COLLECTIVES ? sh_collective_name((sh_collective)index) : NULL;
}

/* Unknown collective: names the nearest one. */
static sh_status refuse_collective(const char *name) {
    SH_FAIL(SH_E_USAGE, "there is no collective '%s'", name);
    const char *near = sh_nearest(name, collective_name, NULL);
    if (near != NULL) return sh_error_hint("did you mean '%s'?", near);
    return sh_error_hint("shoal list collectives");
}

/* Name of the index-th algorithm of one collective, among the rows of all; NULL past the end. Has
 * the signature that sh_nearest wants. */
static const char *algorithm_name(const void *does_pointer, size_t index) {
    const sh_collective *does = does_pointer;
    const sh_algorithm *row;
    for (size_t i = 0; (row = sh_algorithm_at(i)) != NULL; i++)
        if (row->does == *does && index-- == 0) return row->name;
    return NULL;
}

/* Unknown algorithm: lists those of the collective, as the names of others may exist. */
static sh_status refuse_algorithm(sh_collective does, const char *name) {
    char all[256] = "";
    const char *row;
    for (size_t i = 0; (row = algorithm_name(&does, i)) != NULL; i++) {
        if (i > 0) strncat(all, ", ", sizeof all - strlen(all) - 1);
        strncat(all, row, sizeof all - strlen(all) - 1);
    }
    SH_FAIL(SH_E_USAGE, "there is no algorithm '%s' for %s: %s", name, sh_collective_name(does),
            all);
    const char *near = sh_nearest(name, algorithm_name, &does);
    if (near != NULL) return sh_error_hint("did you mean '%s'?", near);
    return sh_error_hint("--algorithm %s", algorithm_name(&does, 0));
}

/* Everything that lives as long as one explanation. `shown` points into the other members. */
typedef struct explained {
    sh_shown shown;               // what explain/ prints
    sh_costs costs;               // link costs that runs have measured; shown.tried points into it
    char measured[SH_COSTS_KEY];  // between whom they were measured; shown.measured
    sh_values values;             // the user's numbers; owned
    sh_places *places;            // which ranks share a node; owned
    int *node;                    // (ranks): the node of each; owned
} explained;

/* Frees what an explanation has, at whatever point it failed. */
static void fini(explained *e) {
    sh_values_fini(&e->values);
    sh_places_destroy(e->places);
    sh_free(e->node);
}

/* Ranks and root. A file of values decides the number of ranks; another number beside it is
 * refused. */
static sh_status set_ranks(explained *e, const shoal_collective_options *options,
                           sh_collective does) {
    int64_t ranks = options->ranks;
    if (options->values != NULL) {
        if (does == SH_BARRIER)
            return SH_FAIL(SH_E_USAGE, "a barrier moves no values: leave out --values");
        sh_status status = sh_values_read(options->values, &e->values);
        if (status == SH_E_IO)
            return sh_error_hint("--values FILE, with a line for each rank such as 'A 17 11 1 9'");
        SH_TRY(status);
        e->shown.values = &e->values;
        if (ranks != 0 && ranks != e->values.ranks)
            return SH_FAIL(SH_E_USAGE, "'%s' holds %d ranks, but %ld were asked for",
                           options->values, e->values.ranks, (long)ranks);
        ranks = e->values.ranks;
    }
    if (ranks == 0) ranks = RANKS_DEFAULT;
    if (ranks < 1 || ranks > SH_SHOWN_RANKS)
        return SH_FAIL(SH_E_USAGE, "%ld ranks are not between 1 and %d", (long)ranks,
                       SH_SHOWN_RANKS);
    if (options->root < 0 || options->root >= ranks)
        return SH_FAIL(SH_E_USAGE, "the root %ld is none of the %ld ranks", (long)options->root,
                       (long)ranks);
    e->shown.topology = (sh_topology){.ranks = (int)ranks, .root = (int)options->root};
    return SH_OK;
}

/* Deals the ranks to nodes, `per_node` neighbours on each; by default each rank is alone on its
 * node, as on separate machines. */
static sh_status set_nodes(explained *e, int64_t per_node) {
    int ranks = e->shown.topology.ranks;
    if (per_node < 0) return SH_FAIL(SH_E_USAGE, "%ld ranks per node", (long)per_node);
    if (per_node == 0) per_node = 1;
    e->node = sh_alloc((size_t)ranks, sizeof *e->node);
    if (e->node == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %d ranks", ranks);
    for (int r = 0; r < ranks; r++) e->node[r] = (int)(r / per_node);
    SH_TRY(sh_places_create(e->node, ranks, &e->places));
    e->shown.topology.places = e->places;
    return SH_OK;
}

/* Elements of the whole buffer. A barrier has none. Values decide the size; in an all-gather each
 * rank's values are one part of the result. An all-to-all needs a multiple of the ranks: given
 * values must be one, a given size is rounded up to one. */
static sh_status set_size(explained *e, int64_t bytes, sh_collective does) {
    sh_shown *shown = &e->shown;
    size_t ranks = (size_t)shown->topology.ranks;
    if (does == SH_BARRIER) return SH_OK;
    if (shown->values != NULL) {
        shown->elements = does == SH_ALLGATHER ? ranks * e->values.count : e->values.count;
        if (does == SH_ALLTOALL && shown->elements % ranks != 0)
            return SH_FAIL(SH_E_SHAPE, "%zu values are no multiple of the %zu ranks",
                           shown->elements, ranks);
        if (bytes == 0) return SH_OK;
        SH_FAIL(SH_E_USAGE, "the values give the size: %zu bytes", shown->elements * 4);
        return sh_error_hint("leave out --size or --values");
    }
    size_t wanted = bytes == 0 ? SIZE_DEFAULT : (size_t)bytes;
    if (bytes < 0 || wanted > SIZE_MOST || wanted % 4 != 0)
        return SH_FAIL(SH_E_USAGE,
                       "--size %ld: float32 values take a multiple of 4 bytes, to 1 PiB",
                       (long)bytes);
    shown->elements = wanted / 4;
    if (does == SH_ALLTOALL) shown->elements = sh_round_up(shown->elements, ranks);
    return SH_OK;
}

/* Links between nodes and inside one. If the user named neither and runs of as many ranks and
 * nodes have measured them on this machine, those costs are used, with the algorithm that was the
 * fastest when large buffers were tried. */
static sh_status set_links(explained *e, const shoal_collective_options *options) {
    const char *link = options->link != NULL ? options->link : LINK_DEFAULT;
    const char *node = options->node_link != NULL ? options->node_link : NODE_LINK_DEFAULT;
    SH_TRY(sh_link_parse(link, "link", &e->shown.links.between));
    SH_TRY(sh_link_parse(node, "node-link", &e->shown.links.inside));
    const sh_places *places = e->shown.topology.places;
    if (options->link != NULL || options->node_link != NULL || options->cache_folder == NULL ||
        !sh_costs_recall(options->cache_folder, e->shown.topology.ranks, places->nodes, &e->costs,
                         e->measured))
        return SH_OK;
    e->shown.links = (sh_links){.between = e->costs.link, .inside = e->costs.node_link};
    e->shown.measured = e->measured;
    e->shown.tried = e->costs.large;
    e->shown.tried_bytes = SH_TRIED_BYTES;
    return SH_OK;
}

/* The named algorithm, or what a run would choose: for large all-reduces the one that was the
 * fastest when tried, otherwise the cheapest by the cost formula. */
static sh_status set_algorithm(explained *e, const char *name, sh_collective does) {
    sh_shown *shown = &e->shown;
    shown->chosen = name == NULL || strcmp(name, "auto") == 0;
    bool tried =
        shown->tried != NULL && does == SH_ALLREDUCE && sh_shown_bytes(shown) >= shown->tried_bytes;
    if (shown->chosen && tried)
        shown->algorithm = shown->tried;
    else if (shown->chosen)
        shown->algorithm =
            sh_cheapest(does, &shown->topology, sh_shown_bytes(shown), &shown->links);
    else
        shown->algorithm = sh_algorithm_find(does, name);
    return shown->algorithm != NULL ? SH_OK : refuse_algorithm(does, name);
}

/* The picture is written through a temporary file: it is whole or not there. */
static sh_status write_svg(const sh_shown *shown, const char *path) {
    sh_writer writer;
    SH_TRY(sh_writer_open_through(&writer, path));
    sh_status status = sh_collective_svg(shown, writer.file);
    if (status == SH_OK) return sh_writer_commit(&writer);
    sh_writer_abandon(&writer);
    return status;
}

/* Completes the explanation and prints it. Nothing is printed before everything is valid. */
static sh_status explain(explained *e, const shoal_collective_options *options, FILE *file) {
    sh_collective does;
    if (!sh_collective_find(options->collective, &does))
        return refuse_collective(options->collective);
    SH_TRY(set_ranks(e, options, does));
    SH_TRY(set_nodes(e, options->per_node));
    SH_TRY(set_size(e, options->size_bytes, does));
    SH_TRY(set_links(e, options));
    SH_TRY(set_algorithm(e, options->algorithm, does));
    if (options->svg != NULL) SH_TRY(write_svg(&e->shown, options->svg));
    return options->json ? sh_collective_json(&e->shown, file)
                         : sh_collective_text(&e->shown, file);
}

shoal_status shoal_explain_collective(const shoal_collective_options *options,
                                      const shoal_sink *sink) {
    SHOAL_NEED(options);
    SHOAL_NEED(options->collective);
    SHOAL_NEED_SINK(sink);
    FILE *file;
    SHOAL_TRY(sh_sink_open(sink, &file));
    explained e = {0};
    sh_status status = explain(&e, options, file);
    fini(&e);
    return sh_sink_close(file, status);
}
