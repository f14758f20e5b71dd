#include <math.h>
#include <pthread.h>

#include "base/memory.h"
#include "base/task.h"
#include "data/loader.h"
#include "data/parts.h"
#include "files.h"

enum { RANKS = 3 };

/* Ranks are tasks of this process, which meet in one table of numbers. A rank that has left makes
 * the others fail, as on a real transport. */
typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t change;
    double values[2][4096];    // of even and odd rounds: some still read one while others add here
    int arrived, round, gone;  // guarded by lock
} meeting;

typedef struct worker {
    meeting *meeting;
    sh_data_options options;
    sh_data_team team;
    sh_data data;
    sh_status status;
    sh_error error;
} worker;

static sh_status reduce(meeting *m, double *values, size_t count, bool takes_largest) {
    SH_ASSERT(count <= SH_COUNT(m->values[0]));
    pthread_mutex_lock(&m->lock);
    int round = m->round;
    double *all = m->values[round % 2];
    for (size_t i = 0; i < count; i++) {
        if (m->arrived == 0 || (takes_largest && values[i] > all[i]))
            all[i] = values[i];
        else if (!takes_largest)
            all[i] += values[i];
    }
    if (++m->arrived == RANKS) {
        m->arrived = 0;
        m->round++;
        pthread_cond_broadcast(&m->change);
    }
    while (m->round == round && m->gone == 0) pthread_cond_wait(&m->change, &m->lock);
    bool done = m->round != round;
    memcpy(values, all, count * sizeof *values);
    pthread_mutex_unlock(&m->lock);
    return done ? SH_OK : SH_FAIL(SH_E_PEER, "a rank has left");
}

static sh_status sum(void *self, double *values, size_t count) {
    return reduce(self, values, count, false);
}

static sh_status largest(void *self, double *values, size_t count) {
    return reduce(self, values, count, true);
}

static sh_status work(void *argument) {
    worker *w = argument;
    w->status = sh_data_open(&w->options, NULL, &w->data);
    if (w->status == SH_OK) return SH_OK;
    w->error = *sh_error_last();
    pthread_mutex_lock(&w->meeting->lock);
    w->meeting->gone++;
    pthread_cond_broadcast(&w->meeting->change);
    pthread_mutex_unlock(&w->meeting->lock);
    return SH_OK;
}

static void open_team(sh_data_options options, worker workers[RANKS]) {
    static meeting m;
    sh_task *tasks[RANKS];
    m = (meeting){0};
    pthread_mutex_init(&m.lock, NULL);
    pthread_cond_init(&m.change, NULL);
    for (int r = 0; r < RANKS; r++) {
        workers[r] = (worker){.meeting = &m, .options = options};
        workers[r].team = (sh_data_team){r, RANKS, sum, largest, &m};
        workers[r].options.team = &workers[r].team;
    }
    for (int r = 0; r < RANKS; r++) CHECK_OK(sh_task_spawn("rank", work, &workers[r], &tasks[r]));
    for (int r = 0; r < RANKS; r++) CHECK_OK(sh_task_wait(tasks[r]));
}

static void close_team(worker workers[RANKS]) {
    for (int r = 0; r < RANKS; r++)
        if (workers[r].status == SH_OK) sh_data_close(&workers[r].data);
}

/* Opening fails with `code` and `text` on that rank, and for want of it on the others. */
static void check_refused(sh_data_options options, int rank, sh_status code, const char *text) {
    worker workers[RANKS];
    open_team(options, workers);
    for (int r = 0; r < RANKS; r++) {
        if (r != rank) {
            assert_int_equal(workers[r].status, SH_E_PEER);
            continue;
        }
        if (strstr(workers[r].error.text, text) == NULL)
            fail_msg("'%s' does not say '%s'", workers[r].error.text, text);
        assert_int_equal(workers[r].status, code);
    }
    close_team(workers);
}

static const uint32_t sizes[RANKS] = {53, 20, 7};

/* 80 images of 3 x 5 bytes in one file and the same in three; only the largest part has labels up
 * to 6. */
static void put_images(void) {
    static uint8_t images[80 * 15], labels[80];
    uint8_t file[16 + sizeof images];
    char name[64];
    for (size_t i = 0; i < sizeof images; i++) images[i] = (uint8_t)(i * i * 7 + i / 31);
    for (size_t i = 0; i < sizeof labels; i++) labels[i] = (uint8_t)(i < 53 ? i % 7 : i % 3);
    for (int r = -1; r < RANKS; r++) {  // -1: the whole
        uint32_t first = r <= 0 ? 0 : r == 1 ? 53 : 73, count = r < 0 ? 80 : sizes[r];
        uint8_t head[] = {0, 0, 8, 3, 0, 0, 0, (uint8_t)count, 0, 0, 0, 3, 0, 0, 0, 5};
        memcpy(file, head, 16);
        memcpy(file + 16, images + first * 15, count * 15);
        snprintf(name, sizeof name, r < 0 ? "whole-images" : "%d-images", r);
        put_file(name, file, 16 + count * 15);
        head[3] = 1;
        memcpy(file, head, 8);
        memcpy(file + 8, labels + first, count);
        snprintf(name, sizeof name, r < 0 ? "whole-labels" : "%d-labels", r);
        put_file(name, file, 8 + count);
    }
}

TEST(parts, have_names_made_of_the_rank) {
    char *name = NULL;
    CHECK_OK(sh_part_name("data.train", "a/%r/part-%r-100%%.idx", 12, &name));
    assert_string_equal(name, "a/12/part-12-100%.idx");
    sh_free(name);
    assert_true(sh_part_named("x%%%r"));
    assert_false(sh_part_named("x%%r"));
    assert_false(sh_part_named(NULL));
    const char *bad[] = {"x%d", "x%", "%%%", "100% r"};
    for (size_t i = 0; i < SH_COUNT(bad); i++)
        CHECK_FAILS(SH_E_USAGE, "data.test: ", sh_part_name("data.test", bad[i], 0, &name));
}

TEST(parts, are_scaled_and_labelled_as_the_whole) {
    use_folder("parts_bytes");
    put_images();
    const char *how[] = {"auto", "unit"};
    for (size_t k = 0; k < SH_COUNT(how); k++) {
        sh_data whole;
        sh_data_options options = {.train = test_path("whole-images"),
                                   .normalise = (char *)(uintptr_t)how[k]};
        CHECK_OK(sh_data_open(&options, NULL, &whole));
        options.train = test_path("%r-images");
        worker workers[RANKS];
        open_team(options, workers);
        for (size_t r = 0, at = 0; r < RANKS; r++) {
            CHECK_OK(workers[r].status);
            const sh_dataset *part = workers[r].data.train;
            assert_int_equal(part->info.classes, 7);
            assert_int_equal(part->info.count, sizes[r]);
            assert_int_equal(part->parts.ranks, RANKS);
            for (size_t q = 0; q < RANKS; q++) assert_int_equal(part->parts.sizes[q], sizes[q]);
            assert_true(workers[r].data.fingerprint == workers[0].data.fingerprint);
            for (size_t i = 0; i < part->info.count; i++, at++) {
                float x[15], y[15];
                int32_t label, wanted;
                part->get(part, i, x, &label);
                whole.train->get(whole.train, at, y, &wanted);
                assert_memory_equal(x, y, sizeof x);  // sums of bytes are exact
                assert_int_equal(label, wanted);
            }
        }
        close_team(workers);
        sh_data_close(&whole);
    }
}

TEST(parts, of_other_content_have_another_fingerprint) {
    use_folder("parts_fingerprint");
    put_images();
    worker workers[RANKS];
    sh_data_options options = {.train = test_path("%r-images")};
    open_team(options, workers);
    uint64_t before = workers[0].data.fingerprint;
    close_team(workers);
    put_idx("2-images", 3, (uint32_t[]){7, 3, 5}, 3, 199);
    open_team(options, workers);
    assert_true(workers[0].data.fingerprint != before);
    close_team(workers);
}

/* Sparse rows: the last features occur in one part alone, and so do labels that are not whole. */
TEST(parts, of_sparse_rows_are_as_wide_as_the_widest) {
    use_folder("parts_svm");
    put_text("0.svm", "1 1:0.25 3:1e4\n0 1:-3\n2 2:0.125 3:10001\n");
    put_text("1.svm", "0 5:2\n1 1:7\n");
    put_text("2.svm", "1 2:-1\n");
    put_text("whole.svm", "1 1:0.25 3:1e4\n0 1:-3\n2 2:0.125 3:10001\n0 5:2\n1 1:7\n1 2:-1\n");
    for (int values = 0; values < 2; values++) {
        if (values == 1) {
            put_text("2.svm", "1.5 2:-1\n");
            put_text("whole.svm",
                     "1 1:0.25 3:1e4\n0 1:-3\n2 2:0.125 3:10001\n0 5:2\n1 1:7\n1.5 2:-1\n");
        }
        sh_data whole;
        sh_data_options options = {.train = test_path("whole.svm")};
        CHECK_OK(sh_data_open(&options, NULL, &whole));
        options.train = test_path("%r.svm");
        worker workers[RANKS];
        open_team(options, workers);
        for (size_t r = 0; r < RANKS; r++) {
            CHECK_OK(workers[r].status);
            const sh_data_info *info = &workers[r].data.train->info;
            assert_true(sh_shape_equal(&info->sample, &SH_SHAPE(5)));
            assert_int_equal(info->target, values ? SH_TARGET_VALUES : SH_TARGET_CLASS);
            assert_int_equal(info->classes, values ? 0 : 3);
            CHECK_CLOSE(workers[r].data.normal.mean, whole.normal.mean, 5, 1e-7);
            CHECK_CLOSE(workers[r].data.normal.scale, whole.normal.scale, 5, 1e-7);
        }
        close_team(workers);
        sh_data_close(&whole);
    }
}

TEST(parts, hold_out_and_test_parts_are_parts_too) {
    use_folder("parts_held");
    put_images();
    sh_data_options options = {.train = test_path("%r-images"), .hold_out = 0.2, .seed = 4};
    options.test = options.train;
    worker workers[RANKS];
    open_team(options, workers);
    const size_t held[] = {11, 4, 1};
    for (size_t r = 0; r < RANKS; r++) {
        CHECK_OK(workers[r].status);
        const sh_data *data = &workers[r].data;
        assert_int_equal(data->validation->info.count, held[r]);
        for (size_t q = 0; q < RANKS; q++) {
            assert_int_equal(data->train->parts.sizes[q], sizes[q] - held[q]);
            assert_int_equal(data->validation->parts.sizes[q], held[q]);
            assert_int_equal(data->test->parts.sizes[q], sizes[q]);
        }
    }
    // One process that looks at the same run sees the same samples held out.
    sh_data alone;
    options.parts = RANKS;
    CHECK_OK(sh_data_open(&options, NULL, &alone));
    assert_int_equal(alone.train->info.count, 80 - 16);
    assert_int_equal(alone.test->info.count, 80);
    assert_int_equal(alone.train->parts.ranks, 0);
    for (size_t r = 0, at = 0; r < RANKS; r++)
        for (size_t i = 0; i < held[r]; i++, at++) {
            float x[15], y[15];
            int32_t a, b;
            const sh_dataset *part = workers[r].data.validation;
            part->get(part, i, x, &a);
            alone.validation->get(alone.validation, at, y, &b);
            assert_memory_equal(x, y, sizeof x);
            assert_int_equal(a, b);
        }
    sh_data_close(&alone);
    close_team(workers);
}

TEST(parts, of_one_worker_are_the_first) {
    use_folder("parts_one");
    put_images();
    sh_data data;
    sh_data_options options = {.train = test_path("%r-images"), .parts = 1};
    CHECK_OK(sh_data_open(&options, NULL, &data));
    assert_int_equal(data.train->info.count, 53);
    assert_int_equal(data.train->parts.ranks, 0);
    sh_data_close(&data);
}

TEST(parts, that_do_not_fit_are_named) {
    use_folder("parts_bad");
    put_images();
    sh_data_options options = {.train = test_path("%r-images")};
    assert_int_equal(remove(test_path("1-images")), 0);
    check_refused(options, 1, SH_E_IO, "the part of data.train for rank 1");
    check_refused(options, 1, SH_E_IO, "1-images',");
    put_idx("1-images", 3, (uint32_t[]){20, 5, 3}, 3, 199);
    check_refused(options, 1, SH_E_SHAPE, "samples of another shape");
    put_text("0.csv", "1,2,0\n3,4,1\n");
    put_text("1.csv", "1,2,0\n");
    put_text("2.csv", "1,2,-1\n5,6,1\n");
    options.train = test_path("%r.csv");
    check_refused(options, 2, SH_E_SHAPE, "labels -1 and +1 among labels from 0");
    put_text("0.csv", "1,2,-1\n3,4,1\n");  // all are signs, or 1: classes 0 and 1
    put_text("1.csv", "1,2,1\n");
    worker workers[RANKS];
    open_team(options, workers);
    int32_t label;
    float x[2];
    CHECK_OK(workers[1].status);
    workers[1].data.train->get(workers[1].data.train, 0, x, &label);
    assert_int_equal(label, 1);
    assert_int_equal(workers[1].data.train->info.classes, 2);
    close_team(workers);
}

TEST(parts, of_text_are_refused) {
    use_folder("parts_text");
    put_text("0.txt", "to be or not to be, that is the question");
    sh_data_options options = {.train = test_path("%r.txt"), .context = 4, .parts = 2};
    sh_data data;
    CHECK_FAILS(SH_E_UNSUPPORTED, "is text", sh_data_open(&options, NULL, &data));
    options.labels = test_path("labels.idx");
    CHECK_FAILS(SH_E_USAGE, "data.train and not in data.labels",
                sh_data_open(&options, NULL, &data));
}

/* Thirty samples in each part, whose first cell says which they are. */
static void put_numbered(void) {
    enum { COUNT = 30 };
    char name[64];
    for (int r = 0; r < RANKS; r++) {
        uint8_t file[16 + COUNT] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, 1, 0, 0, 0, 1};
        uint8_t labels[8 + COUNT] = {0, 0, 8, 1, 0, 0, 0, COUNT};
        for (int i = 0; i < COUNT; i++) file[16 + i] = (uint8_t)i;
        for (int i = 0; i < COUNT; i++) labels[8 + i] = (uint8_t)(i % 2);
        snprintf(name, sizeof name, "%d-images", r);
        put_file(name, file, sizeof file);
        snprintf(name, sizeof name, "%d-labels", r);
        put_file(name, labels, sizeof labels);
    }
}

TEST(parts, are_each_shuffled_in_an_order_of_their_own) {
    enum { COUNT = 30 };
    static char none[] = "none";
    use_folder("parts_order");
    put_numbered();
    worker workers[RANKS];
    float order[RANKS][COUNT];
    open_team((sh_data_options){.train = test_path("%r-images"), .normalise = none}, workers);
    for (int r = 0; r < RANKS; r++) {
        sh_loader *loader = NULL;
        CHECK_OK(workers[r].status);
        sh_loader_options options = {.batch = 9, .seed = 5, .shuffle = true};
        CHECK_OK(sh_loader_create(workers[r].data.train, &options, &loader));
        size_t at = 0;
        while (at < COUNT) {
            const sh_batch *batch = NULL;
            CHECK_OK(sh_loader_next(loader, &batch));
            memcpy(order[r] + at, batch->x, batch->count * sizeof(float));
            at += batch->count;
            sh_loader_release(loader, batch);
        }
        sh_loader_destroy(loader);
    }
    close_team(workers);
    for (int r = 1; r < RANKS; r++) {
        int alike = 0;
        for (int i = 0; i < COUNT; i++) alike += order[r][i] == order[r - 1][i];
        if (alike > 10)
            fail_msg("%d of %d samples of ranks %d and %d alike", alike, COUNT, r - 1, r);
    }
}
