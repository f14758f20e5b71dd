/* The mesh as users write it. */
#include "harness.h"
#include "parallel/mesh.h"

static void check(const char *text, int64_t workers, int data, int pipe, int tensor, int space) {
    sh_mesh_shape shape;
    CHECK_OK(sh_mesh_parse(text, workers, &shape));
    assert_int_equal(shape.size[SH_AXIS_DATA], data);
    assert_int_equal(shape.size[SH_AXIS_PIPE], pipe);
    assert_int_equal(shape.size[SH_AXIS_TENSOR], tensor);
    assert_int_equal(shape.size[SH_AXIS_SPACE], space);
}

TEST(mesh_parse, data_takes_what_is_left_of_the_workers) {
    check("pipe=2", 0, 1, 2, 1, 1);
    check("pipe=2", 8, 4, 2, 1, 1);
    check("tensor=2,pipe=4", 8, 1, 4, 2, 1);
    check("data=2,space=3,pipe=1", 6, 2, 1, 1, 3);
    check("data=4", 4, 4, 1, 1, 1);
}

TEST(mesh_parse, wrong_texts_are_refused_with_what_is_wrong) {
    static const char *const bad[][2] = {
        {"", "DIMENSION=WORKERS"},
        {"pipe", "DIMENSION=WORKERS"},
        {"pipe=2,", "DIMENSION=WORKERS"},
        {"pips=2", "dimensions are"},
        {"=2", "dimensions are"},
        {"pipe=2,pipe=2", "named twice"},
        {"pipe=0", "whole numbers"},
        {"pipe=-1", "whole numbers"},
        {"pipe=2x", "whole numbers"},
        {"pipe=", "whole numbers"},
        {"pipe=99999999999", "whole numbers"},
        {"pipe=1000000,data=1000000", "too many"},
    };
    sh_mesh_shape shape;
    for (size_t i = 0; i < SH_COUNT(bad); i++)
        CHECK_FAILS(SH_E_USAGE, bad[i][1], sh_mesh_parse(bad[i][0], 0, &shape));
    CHECK_FAILS(SH_E_USAGE, "is for a multiple of 3 workers, not 4",
                sh_mesh_parse("pipe=3", 4, &shape));
    CHECK_FAILS(SH_E_USAGE, "is for 6 workers, not 4", sh_mesh_parse("pipe=3,data=2", 4, &shape));
}
