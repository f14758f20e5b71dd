/* Benchmarks of all-reduces and of Hogwild: rows for what was asked, and what is refused. */
#include "rig.h"

#include <math.h>

static shoal_status sums(shoal_allreduce_options options, shoal_allreduce_timing *timings) {
    if (options.seconds == 0) options.seconds = 0.002;
    return shoal_bench_allreduce(&options, timings);
}

TEST(bench, every_size_has_a_row_with_its_figures) {
    const int64_t sizes[] = {4, 4096, 1 << 20};
    shoal_allreduce_timing rows[3] = {{0}};
    SUCCEEDS(sums((shoal_allreduce_options){.ranks = 3, .sizes = sizes, .size_count = 3}, rows));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rows[i].size_bytes, sizes[i]);
        assert_int_equal(rows[i].ranks, 3);
        assert_true(rows[i].samples >= 5);
        assert_true(rows[i].p10_us > 0 && rows[i].p10_us <= rows[i].median_us);
        assert_true(rows[i].median_us <= rows[i].p90_us);
        double gb_s = (double)sizes[i] / rows[i].median_us * 1e-3;
        assert_true(fabs(rows[i].gb_s - gb_s) <= 1e-6 * gb_s);
    }
}

TEST(bench, the_algorithm_that_was_asked_for_is_the_one_that_sums) {
    static const char *const names[] = {"ring", "tree", "halving-doubling", "direct"};
    const int64_t size = 8192;
    for (size_t i = 0; i < SH_COUNT(names); i++) {
        shoal_allreduce_timing row = {0};
        SUCCEEDS(
            sums((shoal_allreduce_options){.sizes = &size, .size_count = 1, .algorithm = names[i]},
                 &row));
        assert_string_equal(row.algorithm, names[i]);
        assert_int_equal(row.ranks, 2);  // unless others are asked for
    }
}

TEST(bench, private_memory_is_summed_as_well) {
    static const char *const names[] = {"ring", "direct"};
    const int64_t size = 65536;
    for (size_t i = 0; i < SH_COUNT(names); i++) {
        shoal_allreduce_timing row = {0};
        SUCCEEDS(sums((shoal_allreduce_options){.sizes = &size,
                                                .size_count = 1,
                                                .ranks = 3,
                                                .algorithm = names[i],
                                                .private_memory = true},
                      &row));
        assert_true(row.samples >= 5);
    }
}

TEST(bench, what_cannot_be_summed_is_refused) {
    const int64_t odd = 6, none = 0, fine = 64;
    shoal_allreduce_timing row;
    REFUSED(SHOAL_E_USAGE, "whole floats",
            sums((shoal_allreduce_options){.sizes = &odd, .size_count = 1}, &row));
    if (sums((shoal_allreduce_options){.sizes = &none, .size_count = 1}, &row) != SHOAL_E_USAGE)
        fail_msg("a sum of nothing is measured");
    REFUSED(SHOAL_E_USAGE, "there is no all-reduce 'star'",
            sums((shoal_allreduce_options){.sizes = &fine, .size_count = 1, .algorithm = "star"},
                 &row));
    if (sums((shoal_allreduce_options){.sizes = &fine, .size_count = 65}, &row) != SHOAL_E_USAGE)
        fail_msg("more sizes than there is room for");
    REFUSED(
        SHOAL_E_USAGE, "workers",
        sums((shoal_allreduce_options){.ranks = 100000, .sizes = &fine, .size_count = 1}, &row));
}

TEST(bench, hogwild_has_a_row_for_one_worker_and_for_all_of_every_scheme) {
    shoal_hogwild_options options = {.workers = 2,
                                     .rows = 200,
                                     .features = 50,
                                     .nonzeros = 5,
                                     .epochs = 1,
                                     .repeat = 1,
                                     .lr = 0.1,
                                     .seed = 3};
    shoal_hogwild_timing rows[SHOAL_HOGWILD_CASES];
    SUCCEEDS(shoal_bench_hogwild(&options, rows));
    int alone = 0, together = 0;
    for (int i = 0; i < SHOAL_HOGWILD_CASES; i++) {
        alone += rows[i].workers == 1;
        together += rows[i].workers == 2;
        bool apart = strcmp(rows[i].scheme, "apart") == 0;
        assert_true(rows[i].updates_per_s > 0);
        assert_true(rows[i].least <= rows[i].updates_per_s &&
                    rows[i].updates_per_s <= rows[i].most);
        assert_true(apart ? isnan(rows[i].loss) : isfinite(rows[i].loss));
        if (!apart) assert_true(rows[i].accuracy > 0.5);
    }
    assert_int_equal(alone, 3);
    assert_int_equal(together, 4);
}

TEST(bench, hogwild_needs_two_workers_and_rows) {
    shoal_hogwild_timing rows[SHOAL_HOGWILD_CASES];
    shoal_hogwild_options options = {.workers = 1,
                                     .rows = 200,
                                     .features = 50,
                                     .nonzeros = 5,
                                     .epochs = 1,
                                     .repeat = 1,
                                     .lr = 0.1};
    REFUSED(SHOAL_E_USAGE, "no such measurement", shoal_bench_hogwild(&options, rows));
    options.workers = 2;
    options.nonzeros = 51;
    if (shoal_bench_hogwild(&options, rows) != SHOAL_E_USAGE)
        fail_msg("more non-zeros than features");
}
