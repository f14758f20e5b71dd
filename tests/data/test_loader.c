#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/augment.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "harness.h"

enum { BATCH = 7 };

static sh_data open_data(const char *name) {
    sh_data_options options = {.train = (char *)(uintptr_t)name, .context = 16};
    sh_data data;
    CHECK_OK(sh_data_open(&options, NULL, &data));
    return data;
}

/* The bytes of `count` batches behind one another; sh_free it. */
static char *run(const sh_dataset *dataset, sh_loader_options options, size_t count,
                 size_t *bytes_out) {
    sh_loader *loader = NULL;
    CHECK_OK(sh_loader_create(dataset, &options, &loader));
    size_t x_bytes = sh_shape_count(&dataset->info.sample) * 4;
    size_t y_bytes = dataset->info.tokens ? x_bytes : 4;
    char *all = sh_alloc(count * options.batch, x_bytes + y_bytes);
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        const sh_batch *batch = NULL;
        CHECK_OK(sh_loader_next(loader, &batch));
        assert_non_null(batch);
        memcpy(all + used, batch->x, batch->count * x_bytes);
        used += batch->count * x_bytes;
        memcpy(all + used, batch->y, batch->count * y_bytes);
        used += batch->count * y_bytes;
        sh_loader_release(loader, batch);
    }
    sh_loader_destroy(loader);
    *bytes_out = used;
    return all;
}

static void check_equal_runs(const sh_dataset *dataset, sh_loader_options a, sh_loader_options b,
                             size_t count) {
    size_t bytes_a, bytes_b;
    char *run_a = run(dataset, a, count, &bytes_a), *run_b = run(dataset, b, count, &bytes_b);
    assert_int_equal(bytes_a, bytes_b);
    assert_memory_equal(run_a, run_b, bytes_a);
    sh_free(run_a);
    sh_free(run_b);
}

TEST(loader, gives_equal_batches_at_any_depth) {
    const char *names[] = {"synthetic:classes=4,shape=3x8x8,count=50",
                           "synthetic:tokens=30,context=16,count=50"};
    for (size_t i = 0; i < SH_COUNT(names); i++) {
        sh_data data = open_data(names[i]);
        sh_loader_options options = {.batch = BATCH, .seed = 5, .shuffle = true};
        if (i == 0) options.crop = 2, options.flip = true;
        sh_loader_options deep = options;
        deep.depth = 3;
        check_equal_runs(data.train, options, deep, 20);
        sh_data_close(&data);
    }
}

TEST(loader, resumes_anywhere_with_the_batches_that_would_have_come) {
    sh_data data = open_data("digits");
    sh_loader_options options = {
        .batch = 64, .seed = 9, .shuffle = true, .crop = 1, .flip = true, .depth = 2};
    size_t per_epoch = 24, total = 3 * per_epoch, whole_bytes;
    char *whole = run(data.train, options, total, &whole_bytes);
    for (size_t start = 0; start < total; start += 5) {
        sh_loader_options later = options;
        later.epoch = (int64_t)(start / per_epoch);
        later.index = (int64_t)(start % per_epoch);
        size_t bytes;
        char *rest = run(data.train, later, total - start, &bytes);
        assert_memory_equal(rest, whole + whole_bytes - bytes, bytes);
        sh_free(rest);
    }
    sh_loader_options end = options, next = options;
    end.index = (int64_t)per_epoch;  // the end of an epoch is the start of the next
    next.epoch = 1;
    check_equal_runs(data.train, end, next, 3);
    sh_free(whole);
    sh_data_close(&data);
}

TEST(loader, shows_every_sample_once_an_epoch_in_another_order) {
    sh_data data = open_data("digits");
    sh_loader_options options = {.batch = 32, .seed = 1, .shuffle = true, .epochs = 2, .depth = 2};
    sh_loader *loader = NULL;
    CHECK_OK(sh_loader_create(data.train, &options, &loader));
    assert_int_equal(sh_loader_batches(loader), 47);
    int label_count[2][10] = {{0}};
    float first[2] = {0};
    size_t seen = 0;
    const sh_batch *batch = NULL;
    for (;;) {
        CHECK_OK(sh_loader_next(loader, &batch));
        if (batch == NULL) break;
        assert_int_equal(batch->position, batch->index * 32);
        assert_int_equal(batch->count, batch->index == 46 ? 1500 % 32 : 32);
        for (size_t i = 0; i < batch->count; i++) {
            label_count[batch->epoch][((int32_t *)batch->y)[i]]++;
            for (int k = 0; k < 64; k++)
                first[batch->epoch] += ((float *)batch->x)[i * 64 + k] * (float)(seen % 97);
            seen++;
        }
        sh_loader_release(loader, batch);
    }
    assert_int_equal(seen, 3000);
    assert_memory_equal(label_count[0], label_count[1], sizeof label_count[0]);
    assert_true(first[0] != first[1]);
    sh_loader_destroy(loader);
    sh_data_close(&data);
}

TEST(loader, keeps_file_order_when_not_shuffling) {
    sh_data data = open_data("digits");
    sh_loader_options options = {.batch = 100, .epochs = 1, .drop_last = true, .depth = 1};
    sh_loader *loader = NULL;
    CHECK_OK(sh_loader_create(data.test, &options, &loader));
    assert_int_equal(sh_loader_batches(loader), 2);
    const sh_batch *batch = NULL;
    CHECK_OK(sh_loader_next(loader, &batch));
    for (size_t i = 0; i < batch->count; i++) {
        float x[64];
        int32_t y;
        data.test->get(data.test, i, x, &y);
        assert_memory_equal(x, (float *)batch->x + 64 * i, sizeof x);
        assert_int_equal(y, ((int32_t *)batch->y)[i]);
    }
    sh_loader_release(loader, batch);
    sh_loader_destroy(loader);  // while the task waits for a free batch
    sh_data_close(&data);
}

TEST(loader, covers_text_side_by_side_when_not_shuffling) {
    sh_data data = open_data("synthetic:tokens=30,context=16,count=50");
    sh_loader_options options = {.batch = 8, .epochs = 1};
    sh_loader *loader = NULL;
    CHECK_OK(sh_loader_create(data.train, &options, &loader));
    int32_t last = -1;
    size_t samples = 0;
    const sh_batch *batch = NULL;
    for (;;) {
        CHECK_OK(sh_loader_next(loader, &batch));
        if (batch == NULL) break;
        const int32_t *x = batch->x, *y = batch->y;
        for (size_t i = 0; i < batch->count; i++) {
            if (last >= 0) assert_int_equal(x[i * 16], last);  // goes on where the last one ended
            last = y[i * 16 + 15];
        }
        samples += batch->count;
        sh_loader_release(loader, batch);
    }
    assert_int_equal(samples, 50);
    sh_loader_destroy(loader);
    sh_data_close(&data);
}

TEST(loader, allocates_nothing_per_batch) {
    sh_data data = open_data("digits");
    sh_loader_options options = {.batch = 64, .shuffle = true, .flip = true, .depth = 2};
    sh_loader *loader = NULL;
    CHECK_OK(sh_loader_create(data.train, &options, &loader));
    uint64_t before = sh_alloc_calls();
    for (int i = 0; i < 100; i++) {
        const sh_batch *batch = NULL;
        CHECK_OK(sh_loader_next(loader, &batch));
        sh_loader_release(loader, batch);
    }
    assert_int_equal(sh_alloc_calls(), before);
    sh_loader_destroy(loader);
    sh_data_close(&data);
}

TEST(loader, refuses_what_cannot_be) {
    sh_data data = open_data("digits");
    sh_loader *loader = NULL;
    sh_loader_options none = {.batch = 0};
    CHECK_FAILS(SH_E_USAGE, "at least one", sh_loader_create(data.train, &none, &loader));
    sh_loader_options large = {.batch = 2000, .drop_last = true};
    CHECK_FAILS(SH_E_USAGE, "larger than", sh_loader_create(data.train, &large, &loader));
    sh_loader_options far = {.batch = 1500, .index = 2};
    CHECK_FAILS(SH_E_USAGE, "cannot start", sh_loader_create(data.train, &far, &loader));
    sh_loader_options crop = {.batch = 10, .crop = 8};
    CHECK_FAILS(SH_E_USAGE, "does not fit", sh_loader_create(data.train, &crop, &loader));
    assert_null(loader);
    sh_data_close(&data);
    data = open_data("synthetic:tokens=5,context=16,count=9");
    sh_loader_options flip = {.batch = 1, .flip = true};
    CHECK_FAILS(SH_E_USAGE, "for images", sh_loader_create(data.train, &flip, &loader));
    sh_data_close(&data);
}

/* The parts of three workers, behind one another, are the batches of one. */
TEST(loader, shares_add_up_to_the_batch) {
    sh_data data = open_data("synthetic:classes=4,shape=3x8x8,count=53");  // 53 = 7 * 7 + 4
    sh_loader_options options = {.batch = BATCH, .seed = 5, .shuffle = true, .crop = 1};
    sh_loader *whole = NULL, *part[3] = {NULL};
    CHECK_OK(sh_loader_create(data.train, &options, &whole));
    for (uint32_t r = 0; r < 3; r++) {
        sh_loader_options mine = options;
        mine.share = (sh_batch_share){r, r + 1, 3};
        CHECK_OK(sh_loader_create(data.train, &mine, &part[r]));
    }
    size_t x_bytes = sh_shape_count(&data.train->info.sample) * 4;
    for (int i = 0; i < 20; i++) {
        const sh_batch *all, *some;
        CHECK_OK(sh_loader_next(whole, &all));
        size_t seen = 0;
        for (int r = 0; r < 3; r++) {
            CHECK_OK(sh_loader_next(part[r], &some));
            assert_int_equal(some->whole, all->count);
            assert_int_equal(some->position, all->position + seen);
            assert_memory_equal(some->x, (char *)all->x + seen * x_bytes, some->count * x_bytes);
            assert_memory_equal(some->y, (char *)all->y + seen * 4, some->count * 4);
            seen += some->count;
            sh_loader_release(part[r], some);
        }
        assert_int_equal(seen, all->count);
        sh_loader_release(whole, all);
    }
    sh_loader_destroy(whole);
    for (int r = 0; r < 3; r++) sh_loader_destroy(part[r]);
    sh_data_close(&data);
}

static void check_counted(const char *name, int64_t ignore) {
    sh_data_options open = {.train = (char *)(uintptr_t)name, .context = 16, .ignore = &ignore};
    sh_data data;
    CHECK_OK(sh_data_open(&open, NULL, &data));
    assert_true(data.train->info.ignores);
    sh_loader_options options = {.batch = BATCH, .seed = 5, .shuffle = true, .ignore = &ignore};
    sh_loader *whole = NULL, *part[3] = {NULL};
    CHECK_OK(sh_loader_create(data.train, &options, &whole));
    for (uint32_t r = 0; r < 3; r++) {
        options.share = (sh_batch_share){r, r + 1, 3};
        CHECK_OK(sh_loader_create(data.train, &options, &part[r]));
    }
    size_t rows = data.train->info.tokens ? 16 : 1, seen = 0, counted = 0;
    for (size_t i = 0; i < 2 * sh_loader_batches(whole); i++) {
        const sh_batch *all, *some;
        size_t wanted = 0;
        CHECK_OK(sh_loader_next(whole, &all));
        for (size_t k = 0; k < all->count * rows; k++) wanted += ((int32_t *)all->y)[k] != ignore;
        assert_int_equal((size_t)all->counted, wanted);
        seen += all->count * rows;
        counted += wanted;
        sh_loader_release(whole, all);
        for (int r = 0; r < 3; r++) {
            CHECK_OK(sh_loader_next(part[r], &some));
            assert_int_equal((size_t)some->counted, wanted);
            sh_loader_release(part[r], some);
        }
    }
    assert_in_range(counted, 1, seen - 1);
    sh_loader_destroy(whole);
    for (int r = 0; r < 3; r++) sh_loader_destroy(part[r]);
    sh_data_close(&data);
}

TEST(loader, counts_the_labels_of_the_whole_batch_for_every_share) {
    check_counted("digits", 9);  // 1500 = 7 * 214 + 2: two shares of the last batch hold a sample
    check_counted("synthetic:tokens=5,context=16,count=50", 3);
}

enum { RANKS = 3 };

/* `count` samples whose single feature is their number, first to last over the parts. */
static float numbers[4096];

static void get_number(const sh_dataset *dataset, size_t index, void *x, void *y) {
    size_t first = 0;
    for (int r = 0; r < dataset->parts.rank; r++) first += dataset->parts.sizes[r];
    *(float *)x = numbers[first + index];
    *(int32_t *)y = (int32_t)(first + index);
}

static sh_dataset part_of(const size_t sizes[RANKS], int rank) {
    for (size_t i = 0; i < SH_COUNT(numbers); i++) numbers[i] = (float)i;
    return (sh_dataset){.info = {.count = sizes[rank],
                                 .sample = SH_SHAPE(1),
                                 .target = SH_TARGET_CLASS,
                                 .classes = (int64_t)SH_COUNT(numbers)},
                        .parts = {rank, RANKS, sizes},
                        .get = get_number};
}

typedef struct tally {
    int times[4096], positions[4096];  // how often a sample, a position came
    size_t whole, largest, smallest;   // samples, and the sizes of global batches
} tally;

/* Takes all workers through one epoch, side by side. */
static void take_epoch(const size_t sizes[RANKS], sh_loader_options options, tally *seen) {
    sh_dataset parts[RANKS];
    sh_loader *loader[RANKS];
    *seen = (tally){.smallest = SIZE_MAX};
    options.epochs = options.epoch + 1;
    for (int r = 0; r < RANKS; r++) {
        parts[r] = part_of(sizes, r);
        CHECK_OK(sh_loader_create(&parts[r], &options, &loader[r]));
        assert_int_equal(sh_loader_batches(loader[r]), sh_loader_batches(loader[0]));
    }
    for (size_t b = 0; b <= sh_loader_batches(loader[0]); b++) {
        size_t together = 0, whole = 0;
        for (int r = 0; r < RANKS; r++) {
            const sh_batch *batch = NULL;
            size_t known[2], known_count = sh_loader_sizes(loader[r], known);
            CHECK_OK(sh_loader_next(loader[r], &batch));
            assert_int_equal(batch == NULL, b == sh_loader_batches(loader[r]));
            if (batch == NULL) continue;
            if (r > 0) assert_int_equal(batch->whole, whole);
            whole = batch->whole;
            together += batch->count;
            bool is_known = batch->count == 0;
            for (size_t i = 0; i < known_count; i++) is_known |= known[i] == batch->count;
            assert_true(is_known);
            for (size_t i = 0; i < batch->count; i++) {
                seen->times[((int32_t *)batch->y)[i]]++;
                seen->positions[batch->position + i]++;
            }
            sh_loader_release(loader[r], batch);
        }
        assert_int_equal(together, whole);
        if (whole == 0) continue;
        seen->whole += whole;
        if (whole > seen->largest) seen->largest = whole;
        if (whole < seen->smallest) seen->smallest = whole;
    }
    for (int r = 0; r < RANKS; r++) sh_loader_destroy(loader[r]);
}

TEST(loader, deals_parts_of_any_sizes_out_over_an_epoch) {
    const size_t cases[][RANKS] = {{53, 20, 7}, {1, 1, 78}, {700, 1, 2}, {33, 33, 33}};
    static tally seen;
    for (size_t k = 0; k < SH_COUNT(cases); k++)
        for (size_t batch = 1; batch < 40; batch += 3) {
            const size_t *sizes = cases[k], count = sizes[0] + sizes[1] + sizes[2];
            take_epoch(sizes, (sh_loader_options){.batch = batch, .seed = 3, .shuffle = true},
                       &seen);
            assert_int_equal(seen.whole, count);
            for (size_t i = 0; i < count; i++) {
                assert_int_equal(seen.times[i], 1);
                assert_int_equal(seen.positions[i], 1);
            }
            bool equal = sizes[0] == sizes[1] && sizes[1] == sizes[2];
            assert_true(seen.largest - seen.smallest <= (equal ? 1 : RANKS));
            if (equal) assert_true(seen.largest <= batch);
        }
}

TEST(loader, drops_the_last_batch_of_parts_evenly) {
    const size_t sizes[RANKS] = {53, 20, 26};  // 99: one batch of 50, and nearly another
    static tally first, second;
    sh_loader_options options = {.batch = 50, .seed = 3, .shuffle = true, .drop_last = true};
    take_epoch(sizes, options, &first);
    assert_in_range(first.whole, 50 - RANKS + 1, 50);
    options.epoch = 1;
    take_epoch(sizes, options, &second);
    assert_memory_not_equal(first.times, second.times, sizeof first.times);
    for (size_t i = 0; i < 99; i++) assert_in_range(first.times[i], 0, 1);
}

TEST(loader, shuffles_parts_of_equal_sizes_differently) {
    const size_t sizes[RANKS] = {40, 40, 40};
    sh_dataset parts[2] = {part_of(sizes, 0), part_of(sizes, 1)};
    sh_loader_options options = {.batch = 120, .seed = 3, .shuffle = true};
    int32_t order[2][40];
    for (int r = 0; r < 2; r++) {
        sh_loader *loader = NULL;
        const sh_batch *batch = NULL;
        CHECK_OK(sh_loader_create(&parts[r], &options, &loader));
        CHECK_OK(sh_loader_next(loader, &batch));
        for (int i = 0; i < 40; i++) order[r][i] = ((int32_t *)batch->y)[i] - 40 * r;
        sh_loader_destroy(loader);
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    sh_loader *loader = NULL;
    options.shifts = true;
    CHECK_FAILS(SH_E_USAGE, "lies in parts", sh_loader_create(&parts[0], &options, &loader));
}

TEST(augment, moves_and_mirrors) {
    const float image[6] = {1, 2, 3, 4, 5, 6};  // (1, 2, 3)
    float out[6];
    sh_augment_apply((sh_augment_move){.down = 1, .right = -1}, 1, 2, 3, image, out);
    assert_memory_equal(out, ((float[]){0, 4, 5, 0, 0, 0}), sizeof out);
    sh_augment_apply((sh_augment_move){.right = 1, .flip = true}, 1, 2, 3, image, out);
    assert_memory_equal(out, ((float[]){0, 3, 2, 0, 6, 5}), sizeof out);
    sh_augment_apply((sh_augment_move){0}, 1, 2, 3, image, out);
    assert_memory_equal(out, image, sizeof out);
}

TEST(augment, draws_every_move_about_equally) {
    sh_rng rng = sh_rng_stream(3, SH_RNG_AUGMENT, 0, 0);
    int down[5] = {0}, right[5] = {0}, flips = 0;
    for (uint64_t i = 0; i < 5000; i++) {
        sh_augment_move move = sh_augment_draw(&rng, i, 2, true);
        down[move.down + 2]++;
        right[move.right + 2]++;
        flips += move.flip;
    }
    for (int i = 0; i < 5; i++) {  // 1000 expected, deviation 28
        assert_in_range(down[i], 850, 1150);
        assert_in_range(right[i], 850, 1150);
    }
    assert_in_range(flips, 2300, 2700);
}

TEST(loader, another_share_holds_from_the_batch_that_was_named) {
    enum { WHOLE = 60, FROM = 5 };
    sh_data data = open_data("digits");
    sh_loader_options options = {.batch = WHOLE,
                                 .share = {.low = 0, .high = 1, .of = 3},
                                 .seed = 9,
                                 .shuffle = true,
                                 .shifts = true};
    for (size_t depth = 0; depth < 3; depth += 2) {
        options.depth = depth;
        sh_loader *loader = NULL;
        CHECK_OK(sh_loader_create(data.train, &options, &loader));
        sh_loader_set_share(loader, (sh_batch_share){.low = 1, .high = 4, .of = 4}, 0, FROM);
        for (int i = 0; i < 9; i++) {
            const sh_batch *batch = NULL;
            CHECK_OK(sh_loader_next(loader, &batch));
            assert_int_equal(batch->whole, WHOLE);
            assert_int_equal(batch->count, i < FROM ? WHOLE / 3 : WHOLE * 3 / 4);
            // The samples of the share lie behind those of the others.
            assert_int_equal(batch->position, i * WHOLE + (i < FROM ? 0 : WHOLE / 4));
            sh_loader_release(loader, batch);
        }
        sh_loader_destroy(loader);
    }
    sh_data_close(&data);
}
