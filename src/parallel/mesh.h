/* The mesh of a run: its workers, arranged along named dimensions. Along `data` workers hold copies
 * of the same parameters and share the batch; along `pipe` they hold different layers, along
 * `tensor` parts of the same layers, and along `space` parts of the same samples. Runs that only
 * share the batch are a mesh of the one dimension data; all others have size 1.
 *
 * A rank of the run is a place in the mesh, in row-major order of the dimensions as they are
 * listed:
 *
 *   rank = ((data * pipes + pipe) * tensors + tensor) * spaces + space
 *
 * Launchers put neighbouring ranks on one node, so the dimensions that exchange values within a
 * layer (space, tensor) come last and the one that sums gradients once a step (data) comes first.
 *
 * Each worker is in one group per dimension: the workers whose place differs from its own in that
 * coordinate alone, in the order of the coordinate. Its rank in the group is its coordinate. */
#ifndef SH_PARALLEL_MESH_H
#define SH_PARALLEL_MESH_H

#include "comm/engine.h"

typedef enum sh_axis {
    SH_AXIS_DATA,
    SH_AXIS_PIPE,
    SH_AXIS_TENSOR,
    SH_AXIS_SPACE,
    SH_AXES,
} sh_axis;

const char *sh_axis_name(sh_axis axis);  // "data", "pipe", "tensor", "space"

/* Sizes of the dimensions, or coordinates of a place along them. */
typedef struct sh_mesh_shape {
    int size[SH_AXES];  // each at least 1
} sh_mesh_shape;

typedef struct sh_mesh_place {
    int at[SH_AXES];  // each from 0 to its dimension's size - 1
} sh_mesh_place;

/* A mesh of so many workers that only share the batch. */
sh_mesh_shape sh_mesh_of_data(int ranks);
int sh_mesh_ranks(const sh_mesh_shape *shape);
/* Fails, naming the sizes, unless they are positive and multiply to `ranks`. */
sh_status sh_mesh_check(const sh_mesh_shape *shape, int ranks);
/* "data 2 x tensor 4", dimensions of size 1 left out; "data 1" of one worker. Returns text_out. */
enum { SH_MESH_TEXT = 96 };
const char *sh_mesh_text(const sh_mesh_shape *shape, char text_out[SH_MESH_TEXT]);

/* From "data=2,pipe=4". Dimensions that are left out are 1, but data takes what is left of
 * `workers`; 0 workers: as many as the sizes make. Fails with SH_E_USAGE where the text is not
 * valid, or its sizes do not multiply to the workers. */
sh_status sh_mesh_parse(const char *text, int64_t workers, sh_mesh_shape *shape_out);

sh_mesh_place sh_mesh_place_of(const sh_mesh_shape *shape, int rank);
int sh_mesh_rank_at(const sh_mesh_shape *shape, const sh_mesh_place *place);

/* A set of dimensions: bit (1 << axis). */
#define SH_AXIS_BIT(axis) (1u << (axis))

/* How many ranks a group along these dimensions has. */
int sh_mesh_peer_count(const sh_mesh_shape *shape, unsigned axes);
/* The ranks that differ from `rank` along these dimensions alone, itself included, in the order of
 * ranks, into room for sh_mesh_peer_count of them. */
void sh_mesh_peers(const sh_mesh_shape *shape, int rank, unsigned axes, int *ranks_out);

/* One dimension, seen by a worker. */
typedef struct sh_dimension {
    int size, at;     // workers along it, and this worker's coordinate
    sh_group *group;  // of these workers; NULL: this worker is alone along it
    bool owns;        // the group is the mesh's, not the engine's
} sh_dimension;

typedef struct sh_mesh {
    sh_mesh_shape shape;
    sh_dimension along[SH_AXES];
} sh_mesh;

/* Collective over all ranks of the engine. Fails unless the shape has as many ranks. A dimension of
 * all ranks has the engine's own group (sh_engine_world), so that it costs nothing. `engine` NULL:
 * a run of one worker. */
sh_status sh_mesh_init(const sh_mesh_shape *shape, sh_engine *engine, sh_mesh *mesh_out);
/* Collective. The engine must still be there. */
void sh_mesh_fini(sh_mesh *mesh);

/* The group along several dimensions at once, as of all workers that hold copies or parts of one
 * gradient. Collective over the run. `*owns_out` true: the caller destroys it; NULL: it is alone.
 */
sh_status sh_mesh_join(const sh_mesh *mesh, sh_engine *engine, unsigned axes, sh_group **group_out,
                       bool *owns_out);

#endif
