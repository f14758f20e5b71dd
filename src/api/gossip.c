/* shoal_explain_gossip: checks the options, finds the graph, and has explain/gossip.h print its
 * mixing matrix and how fast models agree. */
#include "explain/gossip.h"
#include "api/sink.h"
#include "shoal/tools.h"

/* Workers: default, and the most that the matrix is computed for. */
enum { RANKS_DEFAULT = 4, RANKS_MOST = 4096 };

/* The sink is opened only for a graph that exists. */
shoal_status shoal_explain_gossip(const shoal_gossip_options *options, const shoal_sink *sink) {
    SHOAL_NEED(options);
    SHOAL_NEED_SINK(sink);
    int64_t ranks = options->ranks != 0 ? options->ranks : RANKS_DEFAULT;
    if (ranks < 2 || ranks > RANKS_MOST)
        return (shoal_status)SH_FAIL(SH_E_USAGE, "%ld workers are not between 2 and %d",
                                     (long)ranks, RANKS_MOST);
    sh_graph graph;
    sh_status status =
        sh_graph_find(options->graph != NULL ? options->graph : "ring", (int)ranks, &graph);
    FILE *file = NULL;
    if (status == SH_OK) status = sh_sink_open(sink, &file);
    SHOAL_TRY(status);
    return sh_sink_close(file, (options->json ? sh_gossip_json : sh_gossip_text)(&graph, file));
}
