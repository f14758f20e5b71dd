/* What a comparison makes of its lists and of the metrics of its runs. */
#include "api/compare.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "harness.h"

static sh_variant row;

static sh_status read_text(const char *text, double target) {
    char *path = sh_path_join(sh_test_folder("compare"), "metrics.jsonl");
    CHECK_OK(sh_file_write(path, text, strlen(text)));
    sh_free(row.points);
    row = (sh_variant){0};
    sh_compare_clear(&row);
    sh_status status = sh_compare_read(path, target, &row);
    sh_free(path);
    return status;
}

#define EVAL(step, time, accuracy)                              \
    "{\"event\":\"eval\",\"step\":" #step ",\"train_s\":" #time \
    ",\"test_loss\":1,"                                         \
    "\"test_accuracy\":" #accuracy "}\n"

TEST(compare, takes_its_numbers_from_the_metrics) {
    CHECK_OK(read_text(
        EVAL(10, 1.5, 0.8) EVAL(20, 3, 0.95) EVAL(
            30, 4.5, 0.9) "{\"event\":\"end\",\"step\":30,\"train_s\":4.75,\"updates\":60,"
                          "\"all_sent_bytes\":1000,\"staleness_mean\":1.5,\"staleness_most\":3}\n",
        0.9));
    assert_int_equal(row.seen.point_count, 3);
    assert_int_equal(row.seen.points[1].step, 20);
    assert_true(row.seen.points[1].train_s == 3 && row.seen.points[1].accuracy == 0.95);
    assert_true(row.seen.seconds == 4.75 && row.seen.steps == 30 && row.seen.updates == 60);
    assert_true(row.seen.sent_bytes == 1000 && row.seen.staleness_mean == 1.5);
    assert_true(row.seen.staleness_most == 3 && row.seen.accuracy == 0.9);
    assert_true(row.seen.target_s == 3);  // the first evaluation that reached it
}

TEST(compare, a_run_that_was_killed_shows_what_it_had) {
    CHECK_OK(read_text(EVAL(10, 1.5, 0.8) EVAL(20, 3, 0.95) "{\"event\":\"eval\",\"st", 0.99));
    assert_int_equal(row.seen.point_count, 2);
    assert_true(row.seen.seconds == 3 && row.seen.steps == 20);
    assert_true(isnan(row.seen.updates) && isnan(row.seen.target_s));
    CHECK_OK(read_text("", 0));
    assert_int_equal(row.seen.point_count, 0);
    assert_true(isnan(row.seen.seconds) && isnan(row.seen.accuracy));
}

TEST(compare, time_goes_on_after_a_restart) {
    CHECK_OK(read_text(EVAL(10, 4, 0.5) EVAL(20, 8, 0.6) EVAL(30, 4, 0.7) EVAL(40, 8, 0.8), 0));
    assert_true(row.seen.points[2].train_s == 12 && row.seen.points[3].train_s == 16);
    assert_true(row.seen.seconds == 16);
}

TEST(compare, hostile_metrics_are_faults_or_unknown) {
    CHECK_FAILS(SH_E_FORMAT, "metrics.jsonl:2:", read_text("{}\nnot json\n", 0));
    CHECK_FAILS(SH_E_FORMAT, "metrics.jsonl:1:", read_text("[1]\n", 0));
    CHECK_OK(
        read_text("{\"event\":7,\"step\":\"x\"}\n{\"event\":\"eval\",\"train_s\":\"soon\"}\n"
                  "{\"event\":\"end\",\"updates\":[],\"all_sent_bytes\":1e300}\n",
                  0.5));
    assert_int_equal(row.seen.point_count, 1);
    assert_true(isnan(row.seen.accuracy) && isnan(row.seen.updates) && isnan(row.seen.seconds));
    shoal_comparison comparison = {.title = "t", .folder = "f", .rows = &row, .count = 1};
    FILE *file = fopen("/dev/null", "w");
    assert_non_null(file);
    CHECK_OK(sh_compare_table(&comparison, file));
    CHECK_OK(sh_compare_json(&comparison, file));
    CHECK_OK(sh_compare_picture(&comparison, file));
    fclose(file);
}

static sh_status list(const char *sync, const char *compress, const char *workers,
                      shoal_comparison *comparison) {
    sh_config config;
    CHECK_OK(sh_config_init(&config));
    *comparison = (shoal_comparison){0};
    shoal_compare_options options = {.sync = sync, .compress = compress, .workers = workers};
    sh_status status = sh_compare_list(&config, &options, comparison);
    sh_config_fini(&config);
    return status;
}

TEST(compare, every_combination_is_a_row_with_its_own_folder) {
    shoal_comparison c;
    CHECK_OK(list("bsp,local:4", "none,topk:1%", "1,2", &c));
    assert_int_equal(c.count, 8);
    assert_string_equal(c.rows[0].seen.name, "bsp, 1 worker");
    assert_string_equal(c.rows[7].seen.name, "local:4 topk:1%, 2 workers");
    assert_string_equal(c.rows[7].seen.folder, "local-4-topk-1%-2-workers");
    assert_int_equal(c.rows[7].seen.workers, 2);
    for (size_t i = 0; i < c.count; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(c.rows[i].seen.folder, c.rows[k].seen.folder);
    sh_free(c.rows);
    CHECK_OK(list(NULL, NULL, NULL, &c));
    assert_int_equal(c.count, 1);
    assert_string_equal(c.rows[0].seen.name, "bsp");
    sh_free(c.rows);
}

TEST(compare, refuses_lists_it_cannot_read) {
    shoal_comparison c;
    CHECK_FAILS(SH_E_USAGE, "there is no scheme 'bps'", list("bsp,bps", NULL, NULL, &c));
    CHECK_FAILS(SH_E_USAGE, "'bsp' twice", list("bsp,local,bsp", NULL, NULL, &c));
    CHECK_FAILS(SH_E_USAGE, "--sync: ''", list("bsp,,local", NULL, NULL, &c));
    CHECK_FAILS(SH_E_USAGE, "--sync: ''", list("", NULL, NULL, &c));
    CHECK_FAILS(SH_E_USAGE, "zip", list(NULL, "zip", NULL, &c));
    CHECK_FAILS(SH_E_USAGE, "--workers: '0'", list(NULL, NULL, "1,0", &c));
    CHECK_FAILS(SH_E_USAGE, "--workers: '2x'", list(NULL, NULL, "2x", &c));
    CHECK_FAILS(SH_E_USAGE, "--workers", list(NULL, NULL, "99999999999999999999", &c));
}

/* ---- A comparison as a whole, on simulated workers ---- */

static int begun, ended;
static char order[256];

static void hear_begin(void *user, size_t index, size_t count, const char *name) {
    (void)user;
    assert_int_equal(index, begun++);
    assert_int_equal(count, 3);
    strncat(order, name, sizeof order - strlen(order) - 2);
    strcat(order, ",");
}

static void hear_end(void *user, const shoal_variant *seen) {
    (void)user;
    assert_string_not_equal(seen->outcome, "not run");
    ended++;
}

static shoal_config *small_run(const char *folder) {
    const char *settings[][2] = {{"model", "{name: mlp, hidden: [8]}"},
                                 {"data", "digits"},
                                 {"data.batch", "100"},
                                 {"epochs", "2"},
                                 {"threads", "1"},
                                 {"kernels", "default"},
                                 {"target", "0.2"},
                                 {"optimizer.lr", "0.1"},
                                 {"workers", "4"},
                                 {"out", folder}};
    shoal_config *config = NULL;
    assert_int_equal(shoal_config_create(&config), SHOAL_OK);
    for (size_t i = 0; i < SH_COUNT(settings); i++)
        if (shoal_config_set(config, settings[i][0], settings[i][1]) != SHOAL_OK)
            fail_msg("%s", shoal_error_text());
    return config;
}

static const shoal_simulation world = {
    .size = sizeof world, .compute = "10ms", .link = "1Gbit,100us"};

TEST(compare, variants_run_in_order_and_those_that_cannot_are_rows_too) {
    shoal_config *config = small_run(sh_test_folder("compare-run"));
    shoal_compare_options options = {.sync = "bsp,local:4,sgp:1",
                                     .compress = "topk:10%",
                                     .simulation = &world,
                                     .begin = hear_begin,
                                     .end = hear_end};
    shoal_comparison *comparison = NULL;
    begun = ended = 0;
    order[0] = '\0';
    if (shoal_compare(config, NULL, &options, &comparison) != SHOAL_OK)
        fail_msg("%s", shoal_error_text());
    assert_int_equal(begun, 3);
    assert_int_equal(ended, 3);
    assert_string_equal(order, "bsp topk:10%,local:4 topk:10%,sgp:1 topk:10%,");
    const shoal_variant *bsp = shoal_comparison_at(comparison, 0);
    const shoal_variant *local = shoal_comparison_at(comparison, 1);
    const shoal_variant *sgp = shoal_comparison_at(comparison, 2);
    assert_null(shoal_comparison_at(comparison, 3));
    assert_string_equal(bsp->outcome, "done");
    assert_true(bsp->steps == 30 && bsp->updates == 30 && local->updates == 120);
    assert_true(bsp->virtual_s >= 0.3 && bsp->virtual_s < 0.4 && local->virtual_s >= 0.3);
    assert_true(bsp->sent_bytes > local->sent_bytes && local->sent_bytes > 0);
    assert_true(bsp->target_s > 0 && bsp->target_s <= bsp->virtual_s);
    assert_true(bsp->points[bsp->point_count - 1].accuracy == bsp->accuracy);
    assert_string_equal(sgp->outcome, "refused");  // push-sum goes with no codec that drops values
    assert_true(sgp->reason[0] != '\0' && sgp->hint[0] != '\0' && isnan(sgp->accuracy));
    shoal_comparison_destroy(comparison);
    // Nobody's comparison is overwritten unasked.
    comparison = NULL;
    assert_int_equal(shoal_compare(config, NULL, &options, &comparison), SHOAL_E_USAGE);
    assert_null(comparison);
    assert_non_null(strstr(shoal_error_text(), "already holds a comparison"));
    shoal_config_destroy(config);
}

TEST(compare, where_all_are_refused_the_first_refusal_is_the_result) {
    shoal_config *config = small_run(sh_test_folder("compare-refused"));
    shoal_compare_options options = {
        .sync = "sgp:1,adpsgd", .compress = "topk:10%", .simulation = &world};
    shoal_comparison *comparison = NULL;
    assert_int_equal(shoal_compare(config, NULL, &options, &comparison), SHOAL_E_USAGE);
    assert_non_null(strstr(shoal_error_text(), "sgp:1 topk:10% refused: "));
    assert_non_null(comparison);
    assert_string_equal(shoal_comparison_at(comparison, 1)->outcome, "refused");
    shoal_comparison_destroy(comparison);
    shoal_config_destroy(config);
}

static bool stop_now(void *user) {
    (void)user;
    return true;
}

TEST(compare, what_a_stop_leaves_out_is_not_run) {
    shoal_config *config = small_run(sh_test_folder("compare-stopped"));
    const shoal_hooks hooks = {.size = sizeof hooks, .stop = stop_now};
    shoal_compare_options options = {.sync = "bsp,local:4", .simulation = &world};
    shoal_comparison *comparison = NULL;
    assert_int_equal(shoal_compare(config, &hooks, &options, &comparison), SHOAL_E_INTERRUPTED);
    assert_string_equal(shoal_comparison_at(comparison, 1)->outcome, "not run");
    shoal_comparison_destroy(comparison);
    shoal_config_destroy(config);
}
