/* Where a net is cut into the stages of a pipeline: the slowest stage should be as fast as it can
 * be, no stage may exceed a bound on memory, and among the cuts that are left the one is taken
 * whose borders are crossed by the fewest bytes. Found by dynamic programming over the layers in
 * their order; connections that skip stages cross every border between.
 *
 * A cut is an array of stages + 1 layers: stage s has layers [cut[s], cut[s + 1]). As text it is
 * one line, the names of the layers that begin the stages behind the first: "conv3,fc6". */
#ifndef SH_PARALLEL_PIPELINE_CUT_H
#define SH_PARALLEL_PIPELINE_CUT_H

#include "nn/net.h"
#include "parallel/pipeline.h"

typedef struct sh_cut_layer {
    double forward_s, data_s, weight_s;  // of one micro-batch
    double fixed_bytes;                  // parameters, their gradients and the optimizer's state
    double live_bytes;                   // of a micro-batch between its forward and its backward
    double border_bytes;  // of a micro-batch that cross a border before this layer, one way
    bool begins;          // a stage may begin with this layer
} sh_cut_layer;

typedef struct sh_cut_problem {
    const sh_pipeline *pipeline;
    const sh_cut_layer *layers;
    int layer_count;
    double memory_bytes;  // of a rank, shared evenly by its chunks; INFINITY: no bound
} sh_cut_problem;

typedef struct sh_cut_result {
    double slowest_s;     // of the stages
    double memory_bytes;  // of the largest stage
    double border_bytes;  // of all borders
} sh_cut_result;

/* `cut_out` has room for stages + 1. Fails with SH_E_USAGE where there are fewer layers that may
 * begin a stage than stages, and with SH_E_MEMORY, naming the least bound that would do, where none
 * fits. O(stages layers^2). */
sh_status sh_cut_find(const sh_cut_problem *problem, int *cut_out, sh_cut_result *result_out);
/* The same figures for a given cut. */
sh_status sh_cut_judge(const sh_cut_problem *problem, const int *cut, sh_cut_result *result_out);

/* Bytes of a sample that cross the border before `layer`: values of layers before it, and of the
 * data, that it or a later one reads. */
double sh_cut_border_bytes(const sh_net *net, int layer);

/* From "conv3,fc6" for so many stages. */
sh_status sh_cut_parse(const sh_net *net, const char *text, int stages, int *cut_out);
/* sh_free it; NULL: out of memory. */
char *sh_cut_text(const sh_net *net, const int *cut, int stages);

#endif
