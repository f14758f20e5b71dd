/* How --accumulate cuts a batch. */
#include "run/parts.h"

#include "harness.h"

TEST(parts, are_as_even_as_possible) {
    const int64_t begins[] = {0, 3, 5, 7, 9};
    assert_int_equal(sh_part_count(9, 4), 4);
    for (int64_t part = 0; part <= 4; part++)
        assert_int_equal(sh_part_begin(9, 4, part), begins[part]);
    for (int64_t count = 1; count < 40; count++)
        for (int64_t accumulate = 1; accumulate < 12; accumulate++) {
            int64_t parts = sh_part_count(count, accumulate), smallest = count / parts;
            assert_int_equal(sh_part_begin(count, parts, 0), 0);
            assert_int_equal(sh_part_begin(count, parts, parts), count);
            for (int64_t part = 0; part < parts; part++) {
                int64_t size =
                    sh_part_begin(count, parts, part + 1) - sh_part_begin(count, parts, part);
                assert_true(size > 0 && (size == smallest || size == smallest + 1));
                assert_true(size <= sh_part_most(count, accumulate));
            }
        }
}

TEST(parts, of_few_samples_are_single_samples) {
    assert_int_equal(sh_part_count(2, 4), 2);
    assert_int_equal(sh_part_begin(2, 2, 1), 1);
    assert_int_equal(sh_part_count(0, 4), 0);
}
