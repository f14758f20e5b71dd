/* The mesh: arithmetic between ranks and coordinates, and the groups along its dimensions. The
 * arithmetic needs no engine, so plans and tests use it for any number of workers. */
#include "parallel/mesh.h"

#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"

/* In the order of sh_axis. */
static const char *const names[SH_AXES] = {"data", "pipe", "tensor", "space"};

const char *sh_axis_name(sh_axis axis) { return names[axis]; }

/* Data parallelism alone: all other dimensions have size 1. */
sh_mesh_shape sh_mesh_of_data(int ranks) { return (sh_mesh_shape){{ranks, 1, 1, 1}}; }

/* The product of the sizes. */
int sh_mesh_ranks(const sh_mesh_shape *shape) {
    int ranks = 1;
    for (int axis = 0; axis < SH_AXES; axis++) ranks *= shape->size[axis];
    return ranks;
}

/* Such as "data 2 x pipe 4"; dimensions of size 1 are left out. */
const char *sh_mesh_text(const sh_mesh_shape *shape, char text_out[SH_MESH_TEXT]) {
    size_t used = 0;
    for (int axis = 0; axis < SH_AXES; axis++) {
        if (shape->size[axis] == 1) continue;
        used += (size_t)snprintf(text_out + used, SH_MESH_TEXT - used, "%s%s %d",
                                 used > 0 ? " x " : "", names[axis], shape->size[axis]);
    }
    if (used == 0) snprintf(text_out, SH_MESH_TEXT, "data 1");
    return text_out;
}

/* The product is taken in 64 bits and left early, as sizes come from users. */
sh_status sh_mesh_check(const sh_mesh_shape *shape, int ranks) {
    char text[SH_MESH_TEXT];
    int64_t product = 1;
    for (int axis = 0; axis < SH_AXES; axis++) {
        if (shape->size[axis] < 1)
            return SH_FAIL(SH_E_USAGE, "the mesh has size %d along %s", shape->size[axis],
                           names[axis]);
        product *= shape->size[axis];
        if (product > INT32_MAX) break;
    }
    if (product == ranks) return SH_OK;
    SH_FAIL(SH_E_USAGE, "the mesh %s has %lld places for %d workers", sh_mesh_text(shape, text),
            (long long)product, ranks);
    return sh_error_hint("the sizes of its dimensions must multiply to the number of workers");
}

/* The last dimension varies fastest, so neighbours in rank are neighbours along space. */
sh_mesh_place sh_mesh_place_of(const sh_mesh_shape *shape, int rank) {
    sh_mesh_place place;
    for (int axis = SH_AXES - 1; axis >= 0; axis--) {
        place.at[axis] = rank % shape->size[axis];
        rank /= shape->size[axis];
    }
    return place;
}

/* Inverse of sh_mesh_place_of. */
int sh_mesh_rank_at(const sh_mesh_shape *shape, const sh_mesh_place *place) {
    int rank = 0;
    for (int axis = 0; axis < SH_AXES; axis++) rank = rank * shape->size[axis] + place->at[axis];
    return rank;
}

static bool has(unsigned axes, int axis) { return (axes & SH_AXIS_BIT(axis)) != 0; }

/* Workers that differ along the dimensions of the set alone: the size of such a group. */
int sh_mesh_peer_count(const sh_mesh_shape *shape, unsigned axes) {
    int count = 1;
    for (int axis = 0; axis < SH_AXES; axis++)
        if (has(axes, axis)) count *= shape->size[axis];
    return count;
}

/* In ascending order of ranks, so that all members of a group list it alike. */
void sh_mesh_peers(const sh_mesh_shape *shape, int rank, unsigned axes, int *ranks_out) {
    const int count = sh_mesh_peer_count(shape, axes);
    sh_mesh_place place = sh_mesh_place_of(shape, rank);
    for (int i = 0; i < count; i++) {
        int index = i;  // counts through the dimensions of the set, the last one fastest
        for (int axis = SH_AXES - 1; axis >= 0; axis--) {
            if (!has(axes, axis)) continue;
            place.at[axis] = index % shape->size[axis];
            index /= shape->size[axis];
        }
        ranks_out[i] = sh_mesh_rank_at(shape, &place);
    }
}

/* Collective: every worker makes the group that it is in, and all make one at the same time. */
static sh_status make_group(const sh_mesh_shape *shape, sh_engine *engine, unsigned axes,
                            sh_group **group_out) {
    const int count = sh_mesh_peer_count(shape, axes);
    int *ranks = sh_alloc((size_t)count, sizeof *ranks);
    if (ranks == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a group of %d workers", count);
    sh_mesh_peers(shape, sh_engine_rank(engine), axes, ranks);
    sh_status status = sh_group_create(engine, ranks, count, group_out);
    sh_free(ranks);
    return status;
}

/* A dimension of all ranks uses the engine's own group, one of a single rank none. */
static sh_status join(const sh_mesh_shape *shape, sh_engine *engine, unsigned axes,
                      sh_group **group_out, bool *owns_out) {
    // Members of the group that this worker is in.
    const int count = sh_mesh_peer_count(shape, axes);
    *group_out = NULL;
    *owns_out = false;
    if (engine == NULL) return SH_OK;
    if (count == sh_mesh_ranks(shape)) {       // also where the run has one worker and servers
        *group_out = sh_engine_world(engine);  // shared, so not owned
        return SH_OK;
    }
    if (count == 1) return SH_OK;
    SH_TRY(make_group(shape, engine, axes, group_out));
    *owns_out = true;
    return SH_OK;
}

/* Collective over the engine, as groups are. Destroy the group only if `*owns_out`. */
sh_status sh_mesh_join(const sh_mesh *mesh, sh_engine *engine, unsigned axes, sh_group **group_out,
                       bool *owns_out) {
    return join(&mesh->shape, engine, axes, group_out, owns_out);
}

/* Dimensions of size 1 have no group, but for data in a run of one worker, which has the engine's
 * own. */
sh_status sh_mesh_init(const sh_mesh_shape *shape, sh_engine *engine, sh_mesh *mesh_out) {
    sh_mesh mesh = {.shape = *shape};
    const int rank = engine != NULL ? sh_engine_rank(engine) : 0;
    // Before any group is made: all workers refuse alike.
    SH_TRY(sh_mesh_check(shape, engine != NULL ? sh_engine_ranks(engine) : 1));
    const sh_mesh_place place = sh_mesh_place_of(shape, rank);
    for (int axis = 0; axis < SH_AXES; axis++) {
        sh_dimension *along = &mesh.along[axis];
        *along = (sh_dimension){.size = shape->size[axis], .at = place.at[axis]};
        if (along->size == 1 && axis != SH_AXIS_DATA) continue;
        sh_status status = join(shape, engine, SH_AXIS_BIT(axis), &along->group, &along->owns);
        if (status == SH_OK) continue;
        sh_mesh_fini(&mesh);  // groups that exist already
        return status;
    }
    *mesh_out = mesh;
    return SH_OK;
}

/* Safe on a zeroed mesh and after a failed sh_mesh_init. The engine's own group stays. */
void sh_mesh_fini(sh_mesh *mesh) {
    for (int axis = 0; axis < SH_AXES; axis++) {
        if (mesh->along[axis].owns) sh_group_destroy(mesh->along[axis].group);
        mesh->along[axis].group = NULL;
        mesh->along[axis].owns = false;
    }
}
