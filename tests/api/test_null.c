/* NULL arguments of the public functions: refused by name where shoal.h does not allow them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "harness.h"
#include "shoal/tools.h"

static char called[1 << 14];  // the calls that were made, as text

static void note(const char *call) {
    size_t length = strlen(called);
    assert_true(length + strlen(call) + 2 < sizeof called);
    snprintf(called + length, sizeof called - length, "%s\n", call);
}

static void refuses(shoal_status status, const char *call) {
    char name[64];
    note(call);
    snprintf(name, sizeof name, "%.*s: '", (int)strcspn(call, "("), call);
    if (status != SHOAL_E_USAGE) fail_msg("%s gives %d", call, (int)status);
    if (strncmp(shoal_error_text(), name, strlen(name)) != 0 ||
        strstr(shoal_error_text(), "' is NULL") == NULL)
        fail_msg("%s says '%s'", call, shoal_error_text());
}

static void nothing(bool is_nothing, const char *call) {
    note(call);
    if (!is_nothing) fail_msg("%s gives something", call);
}

#define REFUSES(call) refuses((call), #call)
/* A function without a status returns what is false: NULL, 0 or false. */
#define NOTHING(call) nothing(!(call), #call)
#define RETURNS(call) ((call), note(#call))

static void take_row(void *user, int64_t index, const float *output, int64_t width) {
    (void)user, (void)index, (void)output, (void)width;
}

static void take_name(void *user, const char *name, const char *help) {
    (void)user, (void)name, (void)help;
}

static bool take_text(void *user, const char *text, size_t bytes) {
    (void)user, (void)text, (void)bytes;
    return true;
}

static const shoal_sink sink = {.write = take_text}, silent = {0};

static void take_line(void *user, const char *line) { (void)user, (void)line; }

/* Stands for any object: what is refused is not looked at. */
static char object[4096];
#define ANY ((void *)object)

static void options_of_a_run(void) {
    int index = 0;
    REFUSES(shoal_config_create(NULL));
    REFUSES(shoal_config_read(NULL, "run.yaml"));
    REFUSES(shoal_config_read(ANY, NULL));
    REFUSES(shoal_config_set(NULL, "epochs", "1"));
    REFUSES(shoal_config_set(ANY, NULL, "1"));
    REFUSES(shoal_config_flag(NULL, 1, ANY, &index));
    REFUSES(shoal_config_flag(ANY, 1, NULL, &index));
    REFUSES(shoal_config_flag(ANY, 1, ANY, NULL));
    NOTHING(shoal_config_print(NULL));
    REFUSES(shoal_config_help(false, NULL));
    REFUSES(shoal_config_help(false, &silent));
    RETURNS(shoal_config_destroy(NULL));
    RETURNS(shoal_free(NULL));
}

static void runs(void) {
    shoal_result result = {.size = sizeof result};
    shoal_timing timing;
    REFUSES(shoal_run_open(NULL, NULL, ANY));
    REFUSES(shoal_run_open(ANY, NULL, NULL));
    REFUSES(shoal_run_open_saved(NULL, "run", NULL, ANY));
    REFUSES(shoal_run_open_saved(ANY, NULL, NULL, ANY));
    REFUSES(shoal_run_open_saved(ANY, "run", NULL, NULL));
    RETURNS(shoal_run_close(NULL));
    REFUSES(shoal_run_train(NULL));
    NOTHING(shoal_run_folder(NULL));
    NOTHING(shoal_run_classes(NULL));
    REFUSES(shoal_train(NULL, NULL, NULL));
    REFUSES(shoal_simulate(NULL, NULL, NULL, NULL, NULL));
    REFUSES(shoal_run_evaluate(NULL, "test", &result));
    REFUSES(shoal_run_evaluate(ANY, NULL, &result));
    REFUSES(shoal_run_evaluate(ANY, "test", NULL));
    REFUSES(shoal_run_load(NULL, "model"));
    REFUSES(shoal_run_load(ANY, NULL));
    REFUSES(shoal_run_save(NULL, "model"));
    REFUSES(shoal_run_save(ANY, NULL));
    REFUSES(shoal_run_predict(NULL, "test", take_row, NULL));
    REFUSES(shoal_run_predict(ANY, NULL, take_row, NULL));
    REFUSES(shoal_run_predict(ANY, "test", NULL, NULL));
    REFUSES(shoal_run_explain(NULL, &sink));
    REFUSES(shoal_run_explain(ANY, NULL));
    REFUSES(shoal_explain(NULL, NULL, NULL, &sink));
    REFUSES(shoal_explain(ANY, NULL, NULL, NULL));
    REFUSES(shoal_run_bench(NULL, 1, 1, 1, &timing));
    REFUSES(shoal_run_bench(ANY, 1, 1, 1, NULL));
    REFUSES(shoal_bench(NULL, NULL, 1, 1, 1, &timing));
    REFUSES(shoal_bench(ANY, NULL, 1, 1, 1, NULL));
    REFUSES(shoal_compare(NULL, NULL, NULL, ANY));
    REFUSES(shoal_compare(ANY, NULL, NULL, NULL));
    RETURNS(shoal_comparison_destroy(NULL));
    NOTHING(shoal_comparison_folder(NULL));
    NOTHING(shoal_comparison_at(NULL, 0));
    REFUSES(shoal_comparison_print(NULL, false, &sink));
    REFUSES(shoal_comparison_print(ANY, false, NULL));
}

static void models(void) {
    const shoal_model_options options = {.size = sizeof options, .sample_rank = 1, .outputs = 2};
    shoal_result result = {.size = sizeof result};
    float x[2] = {0};
    REFUSES(shoal_model_create(NULL, ANY));
    REFUSES(shoal_model_create(&options, NULL));
    REFUSES(shoal_model_open(NULL, NULL, ANY));
    REFUSES(shoal_model_open("model", NULL, NULL));
    REFUSES(shoal_model_generate(NULL, ANY, ANY));
    REFUSES(shoal_model_generate(ANY, NULL, ANY));
    REFUSES(shoal_model_generate(ANY, ANY, NULL));
    REFUSES(shoal_model_export_c(NULL, NULL, "model.c"));
    REFUSES(shoal_model_export_c(ANY, NULL, NULL));
    REFUSES(shoal_model_export_onnx(NULL, NULL, "model.onnx"));
    REFUSES(shoal_model_export_onnx(ANY, NULL, NULL));
    RETURNS(shoal_model_destroy(NULL));
    NOTHING(shoal_model_sample(NULL, ANY));
    NOTHING(shoal_model_outputs(NULL));
    NOTHING(shoal_model_vocabulary(NULL));
    NOTHING(shoal_model_param_count(NULL));
    REFUSES(shoal_model_step(NULL, x, x, 1, NULL));
    REFUSES(shoal_model_step(ANY, NULL, x, 1, NULL));
    REFUSES(shoal_model_step(ANY, x, NULL, 1, NULL));
    REFUSES(shoal_model_evaluate(NULL, x, x, 1, &result));
    REFUSES(shoal_model_evaluate(ANY, NULL, x, 1, &result));
    REFUSES(shoal_model_evaluate(ANY, x, NULL, 1, &result));
    REFUSES(shoal_model_evaluate(ANY, x, x, 1, NULL));
    REFUSES(shoal_model_predict(NULL, x, 1, x));
    REFUSES(shoal_model_predict(ANY, NULL, 1, x));
    REFUSES(shoal_model_predict(ANY, x, 1, NULL));
    REFUSES(shoal_model_save(NULL, "model"));
    REFUSES(shoal_model_save(ANY, NULL));
    REFUSES(shoal_model_load(NULL, "model"));
    REFUSES(shoal_model_load(ANY, NULL));
}

static void tools(void) {
    const int64_t sizes[] = {4};
    const shoal_allreduce_options sums = {.sizes = sizes, .size_count = 1},
                                  none = {.size_count = 1};
    const shoal_collective_options collective = {.collective = "barrier"}, unnamed = {0};
    const shoal_gossip_options gossip = {0};
    const shoal_hogwild_options hogwild = {0};
    NOTHING(shoal_is_collective(NULL));
    REFUSES(shoal_explain_collective(NULL, &sink));
    REFUSES(shoal_explain_collective(&unnamed, &sink));
    REFUSES(shoal_explain_collective(&collective, NULL));
    REFUSES(shoal_explain_gossip(NULL, &sink));
    REFUSES(shoal_explain_gossip(&gossip, NULL));
    const shoal_cost_options cost = {0};
    REFUSES(shoal_explain_cost(NULL, &cost, NULL, &sink));
    REFUSES(shoal_explain_cost(ANY, NULL, NULL, &sink));
    REFUSES(shoal_explain_cost(ANY, &cost, NULL, NULL));
    const shoal_fed_options fed = {0};
    REFUSES(shoal_fed_simulate(NULL, NULL, &fed, NULL, NULL));
    REFUSES(shoal_fed_simulate(ANY, NULL, NULL, NULL, NULL));
    const shoal_fed_serve_options serve = {0};
    const shoal_fed_join_options join = {0};
    REFUSES(shoal_fed_serve(NULL, NULL, &serve, NULL));
    REFUSES(shoal_fed_serve(ANY, NULL, NULL, NULL));
    REFUSES(shoal_fed_invite(NULL, 1, 1, take_line, NULL));
    REFUSES(shoal_fed_invite("fed", 1, 1, NULL, NULL));
    REFUSES(shoal_fed_revoke(NULL, 1));
    REFUSES(shoal_fed_clients(NULL, false, &sink));
    REFUSES(shoal_fed_clients("fed", false, NULL));
    REFUSES(shoal_fed_status(NULL, false, &sink));
    REFUSES(shoal_fed_status("fed", false, NULL));
    REFUSES(shoal_fed_join(NULL, NULL, &join, NULL));
    REFUSES(shoal_fed_join(ANY, NULL, NULL, NULL));
    const char *no_folder = NULL;
    REFUSES(shoal_runs(NULL, false, NULL));
    REFUSES(shoal_runs_diff(NULL, "b", false, ANY));
    REFUSES(shoal_runs_diff("a", NULL, false, ANY));
    REFUSES(shoal_runs_diff("a", "b", false, NULL));
    REFUSES(shoal_report(NULL, 1, false, NULL, NULL));
    REFUSES(shoal_report(&no_folder, 1, false, NULL, NULL));
    const shoal_pipeline_options pipeline = {0};
    REFUSES(shoal_explain_pipeline(NULL, &sink));
    REFUSES(shoal_explain_pipeline(&pipeline, NULL));
    REFUSES(shoal_bench_allreduce(NULL, ANY));
    REFUSES(shoal_bench_allreduce(&none, ANY));
    REFUSES(shoal_bench_allreduce(&sums, NULL));
    REFUSES(shoal_bench_hogwild(NULL, ANY));
    REFUSES(shoal_bench_hogwild(&hogwild, NULL));
    REFUSES(shoal_list(NULL, take_name, NULL));
    REFUSES(shoal_list("models", NULL, NULL));
    REFUSES(shoal_data_get(NULL, NULL));
    REFUSES(shoal_data_info(NULL, "digits", NULL, false, &sink));
    REFUSES(shoal_data_info(ANY, NULL, NULL, false, &sink));
    REFUSES(shoal_data_info(ANY, "digits", NULL, false, NULL));
    REFUSES(shoal_data_check(NULL, "digits", NULL, &sink));
    REFUSES(shoal_data_check(ANY, NULL, NULL, &sink));
    REFUSES(shoal_data_check(ANY, "digits", NULL, NULL));
    REFUSES(shoal_doctor(NULL, false, NULL));
}

/* What takes no pointer has nothing to refuse. */
static bool takes_a_pointer(const char *declaration) {
    const char *end = strchr(declaration, ';'), *open = strchr(declaration, '(');
    return memchr(open, '*', (size_t)(end - open)) != NULL ||
           memchr(open, '[', (size_t)(end - open)) != NULL;
}

/* Every function of a header is called above, so that a new one is not forgotten. */
static int check_header(const char *path) {
    sh_mapped header;
    CHECK_OK(sh_file_map(path, &header));
    char *text = strndup((const char *)header.data, header.bytes);
    sh_file_unmap(&header);
    int found = 0;
    for (char *at = text; (at = strstr(at, "\nSHOAL_API ")) != NULL; at++) {
        char *open = strchr(at, '('), call[64];
        char *name = open;
        while (name[-1] == '_' || (name[-1] >= 'a' && name[-1] <= 'z')) name--;
        snprintf(call, sizeof call, "%.*s(", (int)(open - name), name);
        found++;
        if (takes_a_pointer(at) && strstr(called, call) == NULL)
            fail_msg("%s) is not tested", call);
    }
    free(text);
    return found;
}

TEST(null, is_refused_by_the_name_of_the_argument) {
    called[0] = '\0';
    options_of_a_run();
    runs();
    models();
    tools();
    assert_true(check_header(SHOAL_SOURCE "/include/shoal/shoal.h") > 30);
    assert_true(check_header(SHOAL_SOURCE "/include/shoal/tools.h") > 15);
}

TEST(null, leaves_a_model_without_dimensions_unmade) {
    const shoal_model_options options = {.size = sizeof options, .sample_rank = 1, .outputs = 2};
    shoal_model *model = NULL;
    assert_int_equal(shoal_model_create(&options, &model), SHOAL_E_USAGE);
    assert_non_null(strstr(shoal_error_text(), "dimensions"));
    assert_null(model);
}

TEST(null, is_welcome_where_the_header_says_so) {
    const int64_t sample[] = {3};
    const float x[] = {1, 2, 3};
    const int32_t y[] = {1};
    shoal_model *model = NULL;
    assert_int_equal(shoal_model_create(&(shoal_model_options){.size = sizeof(shoal_model_options),
                                                               .sample = sample,
                                                               .sample_rank = 1,
                                                               .outputs = 2,
                                                               .threads = 1},
                                        &model),
                     SHOAL_OK);
    assert_int_equal(shoal_model_sample(model, NULL), 1);
    assert_int_equal(shoal_model_step(model, x, y, 1, NULL), SHOAL_OK);
    assert_null(shoal_model_vocabulary(model));
    shoal_model_destroy(model);

    shoal_config *config = NULL;
    assert_int_equal(shoal_config_create(&config), SHOAL_OK);
    assert_int_equal(shoal_config_set(config, "epochs", NULL), SHOAL_OK);
    assert_int_equal(shoal_config_set(config, "model", "mlp"), SHOAL_OK);
    assert_int_equal(shoal_config_set(config, "data", "digits"), SHOAL_OK);
    assert_int_equal(shoal_config_set(config, "steps", "1"), SHOAL_OK);
    assert_int_equal(shoal_config_set(config, "out", sh_test_folder("null")), SHOAL_OK);
    assert_int_equal(shoal_config_set(config, "threads", "1"), SHOAL_OK);
    assert_int_equal(shoal_config_set(config, "kernels", "default"), SHOAL_OK);
    assert_int_equal(shoal_simulate(config, NULL, NULL, NULL, NULL), SHOAL_OK);
    shoal_config_destroy(config);
}

TEST(null, is_nothing_behind_the_last_argument) {
    char *argv[] = {"--epochs", NULL};
    shoal_config *config = NULL;
    assert_int_equal(shoal_config_create(&config), SHOAL_OK);
    int index = 1;
    assert_int_equal(shoal_config_flag(config, 1, argv, &index), SHOAL_E_USAGE);
    index = -1;
    assert_int_equal(shoal_config_flag(config, 1, argv, &index), SHOAL_E_USAGE);
    shoal_config_destroy(config);
}
