/* Meshes: where ranks sit, who their peers are, and that sums stay within a group. */
#include "parallel/mesh.h"

#include "comm/engines.h"
#include "harness.h"

enum { PEERS_MOST = 64 };

static const sh_mesh_shape shapes[] = {
    {{1, 1, 1, 1}}, {{4, 1, 1, 1}}, {{1, 3, 1, 1}}, {{2, 3, 1, 1}},
    {{2, 1, 2, 1}}, {{2, 3, 4, 2}}, {{3, 1, 1, 5}}, {{1, 2, 2, 2}},
};

TEST(mesh, every_rank_has_a_place_of_its_own_and_comes_back_from_it) {
    for (size_t s = 0; s < SH_COUNT(shapes); s++)
        for (int rank = 0; rank < sh_mesh_ranks(&shapes[s]); rank++) {
            sh_mesh_place place = sh_mesh_place_of(&shapes[s], rank);
            for (int axis = 0; axis < SH_AXES; axis++)
                assert_in_range(place.at[axis], 0, shapes[s].size[axis] - 1);
            assert_int_equal(sh_mesh_rank_at(&shapes[s], &place), rank);
        }
}

TEST(mesh, neighbouring_ranks_are_neighbours_in_the_last_dimension) {
    const sh_mesh_shape shape = {{2, 1, 3, 2}};
    sh_mesh_place second = sh_mesh_place_of(&shape, 1), last = sh_mesh_place_of(&shape, 11);
    assert_int_equal(second.at[SH_AXIS_SPACE], 1);
    assert_int_equal(second.at[SH_AXIS_TENSOR], 0);
    assert_int_equal(last.at[SH_AXIS_DATA], 1);
    assert_int_equal(last.at[SH_AXIS_TENSOR], 2);
    assert_int_equal(sh_mesh_rank_at(&shape, &(sh_mesh_place){{1, 0, 0, 0}}), 6);
}

/* Peers, by the definition: all ranks whose places agree outside the set. */
static int peers_by_search(const sh_mesh_shape *shape, int rank, unsigned axes, int *found) {
    int count = 0;
    const sh_mesh_place own = sh_mesh_place_of(shape, rank);
    for (int other = 0; other < sh_mesh_ranks(shape); other++) {
        const sh_mesh_place place = sh_mesh_place_of(shape, other);
        bool agrees = true;
        for (int axis = 0; axis < SH_AXES; axis++)
            agrees = agrees && ((axes & SH_AXIS_BIT(axis)) || place.at[axis] == own.at[axis]);
        if (agrees) found[count++] = other;
    }
    return count;
}

TEST(mesh, peers_differ_along_the_asked_dimensions_alone) {
    for (size_t s = 0; s < SH_COUNT(shapes); s++)
        for (int rank = 0; rank < sh_mesh_ranks(&shapes[s]); rank++)
            for (unsigned axes = 0; axes < 1u << SH_AXES; axes++) {
                int peers[PEERS_MOST], found[PEERS_MOST];
                int count = peers_by_search(&shapes[s], rank, axes, found);
                assert_int_equal(sh_mesh_peer_count(&shapes[s], axes), count);
                sh_mesh_peers(&shapes[s], rank, axes, peers);
                assert_memory_equal(peers, found, (size_t)count * sizeof *peers);
            }
}

TEST(mesh, sizes_must_multiply_to_the_workers) {
    CHECK_OK(sh_mesh_check(&(sh_mesh_shape){{2, 1, 3, 1}}, 6));
    CHECK_FAILS(SH_E_USAGE, "the mesh data 2 x tensor 3 has 6 places for 8 workers",
                sh_mesh_check(&(sh_mesh_shape){{2, 1, 3, 1}}, 8));
    CHECK_FAILS(SH_E_USAGE, "size 0 along pipe", sh_mesh_check(&(sh_mesh_shape){{2, 0, 1, 1}}, 2));
    CHECK_FAILS(SH_E_USAGE, "places for 1 workers",
                sh_mesh_check(&(sh_mesh_shape){{1 << 20, 1 << 20, 1 << 20, 1 << 20}}, 1));
}

/* Each rank brings its number; every group's sum is that of its members. */
static sh_status sum_along(sh_group *group, const sh_mesh_shape *shape, int rank, unsigned axes) {
    int peers[PEERS_MOST], expected = 0;
    sh_mesh_peers(shape, rank, axes, peers);
    for (int i = 0; i < sh_mesh_peer_count(shape, axes); i++) expected += peers[i];
    double sum = rank;
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = &sum,
                    .count = 1,
                    .dtype = SH_DTYPE_F64,
                    .op = SH_SUM,
                    .bucket = -1};
    SH_TRY(sh_group_run(group, &call));
    if (sum == expected) return SH_OK;
    return SH_FAIL(SH_E_NUMERIC, "rank %d, dimensions %u: %g is not %d", rank, axes, sum, expected);
}

static sh_status sum_everywhere(sh_engine *engine, void *argument) {
    const sh_mesh_shape *shape = argument;
    sh_mesh mesh;
    sh_group *both = NULL;
    bool owns = false;
    int rank = sh_engine_rank(engine);
    SH_TRY(sh_mesh_init(shape, engine, &mesh));
    for (int axis = 0; axis < SH_AXES; axis++) {
        const sh_dimension *along = &mesh.along[axis];
        if (along->group == NULL && along->size > 1)
            return SH_FAIL(SH_E_FORMAT, "no group along %s", sh_axis_name((sh_axis)axis));
        if (along->group == NULL) continue;
        if (sh_group_rank(along->group) != along->at || sh_group_ranks(along->group) != along->size)
            return SH_FAIL(SH_E_FORMAT, "rank %d of %d along %s", sh_group_rank(along->group),
                           sh_group_ranks(along->group), sh_axis_name((sh_axis)axis));
        SH_TRY(sum_along(along->group, shape, rank, SH_AXIS_BIT(axis)));
    }
    unsigned axes = SH_AXIS_BIT(SH_AXIS_DATA) | SH_AXIS_BIT(SH_AXIS_TENSOR);
    SH_TRY(sh_mesh_join(&mesh, engine, axes, &both, &owns));
    if (both != NULL) SH_TRY(sum_along(both, shape, rank, axes));
    if (owns) sh_group_destroy(both);
    sh_mesh_fini(&mesh);
    return SH_OK;
}

TEST(mesh, a_sum_along_a_dimension_is_that_of_its_workers) {
    const sh_mesh_shape meshes[] = {{{4, 1, 1, 1}}, {{2, 1, 2, 1}}, {{2, 2, 1, 1}}, {{2, 1, 2, 2}}};
    for (size_t i = 0; i < SH_COUNT(meshes); i++)
        CHECK_OK(run_engines(sh_mesh_ranks(&meshes[i]), NULL, sum_everywhere,
                             (void *)(uintptr_t)&meshes[i]));
}

static sh_status refuse(sh_engine *engine, void *argument) {
    (void)argument;
    sh_mesh mesh;
    return sh_mesh_init(&(sh_mesh_shape){{3, 1, 1, 1}}, engine, &mesh);
}

TEST(mesh, of_another_size_than_the_run_is_refused) {
    CHECK_FAILS(SH_E_USAGE, "the mesh data 3 has 3 places for 2 workers",
                run_engines(2, NULL, refuse, NULL));
}

TEST(mesh, of_one_worker_needs_no_engine) {
    sh_mesh mesh;
    const sh_mesh_shape one = sh_mesh_of_data(1);
    CHECK_OK(sh_mesh_init(&one, NULL, &mesh));
    for (int axis = 0; axis < SH_AXES; axis++) assert_null(mesh.along[axis].group);
    sh_mesh_fini(&mesh);
}
