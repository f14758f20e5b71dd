/* What a checkpoint tells of its training data. */
#include <float.h>
#include <math.h>

#include "base/memory.h"
#include "data/facts.h"
#include "files.h"

static sh_status parse(const char *text, sh_data *data_out) {
    return sh_facts_parse("model", text, strlen(text), data_out);
}

static void check_equal(const sh_data *a, const sh_data *b) {
    assert_true(sh_shape_equal(&a->info.sample, &b->info.sample));
    assert_int_equal(a->info.target, b->info.target);
    assert_int_equal(a->info.tokens, b->info.tokens);
    assert_int_equal(a->info.classes, b->info.classes);
    assert_int_equal(a->info.values, b->info.values);
    assert_int_equal(a->normal.count, b->normal.count);
    size_t bytes = a->normal.count * sizeof(float);
    if (bytes > 0) assert_memory_equal(a->normal.mean, b->normal.mean, bytes);
    if (bytes > 0) assert_memory_equal(a->normal.scale, b->normal.scale, bytes);
    assert_int_equal(a->vocabulary == NULL, b->vocabulary == NULL);
    if (a->vocabulary != NULL) assert_string_equal(a->vocabulary, b->vocabulary);
}

TEST(facts, keep_every_bit) {
    float mean[] = {0.1f, -FLT_MAX, 0x1p-149f, 16777217.0f}, scale[] = {1 / 3.0f, FLT_MIN, 1, 0};
    sh_data data = {.info = {.sample = SH_SHAPE(4, 2, 3), .target = SH_TARGET_CLASS, .classes = 7},
                    .normal = {mean, scale, 4}};
    char *text = NULL;
    sh_data read;
    CHECK_OK(sh_facts_print(&data, &text));
    CHECK_OK(parse(text, &read));
    check_equal(&data, &read);
    sh_free(text);
    sh_data_close(&read);
}

TEST(facts, of_open_data_are_those_it_was_opened_with) {
    use_folder("facts_open");
    put_idx("a-images-idx3-ubyte", 3, (uint32_t[]){9, 3, 3}, 13, 251);
    put_idx("a-labels-idx1-ubyte", 1, (uint32_t[]){9}, 1, 4);
    put_text("v.csv", "1,2,0.5\n4,3,1.5\n2,8,2.25\n");
    put_text("t.txt",
             "b\xc3\xa9"
             "a\xe2\x82\xac"
             "ba, and so on, and on");
    const char *names[] = {"a-images-idx3-ubyte", "v.csv", "t.txt"};
    for (size_t i = 0; i < SH_COUNT(names); i++) {
        sh_data_options options = {.train = test_path(names[i]), .context = 4};
        sh_data data, read;
        char *text = NULL;
        CHECK_OK(sh_data_open(&options, NULL, &data));
        CHECK_OK(sh_facts_print(&data, &text));
        CHECK_OK(parse(text, &read));
        check_equal(&data, &read);
        assert_null(read.train);
        sh_free(text);
        sh_data_close(&read);
        sh_data_close(&data);
    }
}

TEST(facts, open_a_part_without_the_training_data) {
    use_folder("facts_part");
    put_text("train.csv", "1,2,0\n4,3,1\n2,8,2\n9,1,0\n");
    put_text("new.csv", "5,6,2\n7,7,1\n");
    put_text("bare.csv", "5,6\n7,7\n");
    put_text("wide.csv", "5,6,7,1\n");
    put_text("high.csv", "5,6,3\n");
    sh_data_options options = {.train = test_path("train.csv"), .test = test_path("new.csv")};
    sh_data data, known;
    CHECK_OK(sh_data_open(&options, NULL, &data));
    CHECK_OK(sh_facts_copy(&data, &known));
    assert_int_equal(remove(test_path("train.csv")), 0);
    options.known = &known;
    CHECK_OK(sh_data_open_part(&options, "test", NULL, &known));
    float x[2], y[2];
    int32_t a, b;
    for (size_t i = 0; i < 2; i++) {
        data.test->get(data.test, i, x, &a);
        known.test->get(known.test, i, y, &b);
        assert_memory_equal(x, y, sizeof x);
        assert_int_equal(a, b);
    }
    assert_int_equal(known.test->info.classes, 3);
    CHECK_FAILS(SH_E_IO, "train.csv", sh_data_open_part(&options, "validation", NULL, &known));
    assert_non_null(known.test);  // a failure leaves the rest as it was
    sh_dataset_destroy(known.test);
    known.test = NULL;
    options.test = test_path("bare.csv");
    CHECK_OK(sh_data_open_part(&options, "test", NULL, &known));
    assert_int_equal(known.test->info.target, SH_TARGET_NONE);
    sh_dataset_destroy(known.test);
    known.test = NULL;
    options.test = test_path("wide.csv");
    CHECK_FAILS(SH_E_SHAPE, "does not fit what the model was trained on",
                sh_data_open_part(&options, "test", NULL, &known));
    options.test = test_path("high.csv");
    CHECK_FAILS(SH_E_FORMAT, "has label 3", sh_data_open_part(&options, "test", NULL, &known));
    sh_data_close(&known);
    sh_data_close(&data);
}

TEST(facts, take_the_place_of_a_measurement) {
    use_folder("facts_known");
    char *path = put_text("t.csv", "1,2,0\n4,3,1\n2,8,0\n9,1,1\n5,5,0\n6,2,1\n");
    sh_data_options options = {.train = path, .hold_out_test = 0.3, .hold_out = 0.2, .seed = 3};
    sh_data data, known;
    CHECK_OK(sh_data_open(&options, NULL, &data));
    CHECK_OK(sh_facts_copy(&data, &known));
    known.normal.mean[1] = 77;  // as the model learned it, whatever the file says now
    options.known = &known;
    CHECK_OK(sh_data_open_part(&options, "test", NULL, &known));
    assert_true(known.normal.mean[1] == 77);
    assert_int_equal(known.test->info.count, data.test->info.count);
    assert_int_equal(known.train->info.count, data.train->info.count);
    float x[2], y[2];
    known.test->get(known.test, 0, x, NULL);
    data.test->get(data.test, 0, y, NULL);
    assert_true(x[0] == y[0] && x[1] != y[1]);
    sh_data_close(&known);
    sh_data_close(&data);
}

TEST(facts, of_a_text_hold_its_characters) {
    use_folder("facts_text");
    put_text("t.txt", "to be or not to be, that is the question");
    put_text("n.txt", "that is not the question to be");
    put_text("z.txt", "zounds, that is the question");
    sh_data_options options = {.train = test_path("t.txt"), .context = 4, .tokens = "chars"};
    sh_data data, known;
    CHECK_OK(sh_data_open(&options, NULL, &data));
    CHECK_OK(sh_facts_copy(&data, &known));
    assert_int_equal(remove(test_path("t.txt")), 0);
    // What the options say of contexts and tokens does not count: the model knows.
    sh_data_options other = {.test = test_path("n.txt"), .context = 9, .known = &known};
    CHECK_OK(sh_data_open_part(&other, "test", NULL, &known));
    assert_int_equal(known.test->info.sample.dim[0], 4);
    int32_t x[4], y[4];
    known.test->get(known.test, 0, x, y);
    data.train->get(data.train, 20, x, y);
    sh_dataset_destroy(known.test);
    known.test = NULL;
    other.test = test_path("z.txt");
    CHECK_FAILS(SH_E_FORMAT, "never saw at byte 0",
                sh_data_open_part(&other, "test", NULL, &known));
    sh_data_close(&known);
    sh_data_close(&data);
}

TEST(facts, refuse_what_makes_no_sense) {
    static const char *const wrong[][2] = {
        {"", "no map"},
        {"[1]", "no map"},
        {"{\"version\":2}", "version 2"},
        {"{\"version\":1}", "1 to 3 dimensions"},
        {"{\"version\":1,\"sample\":[1,2,3,4]}", "1 to 3 dimensions"},
        {"{\"version\":1,\"sample\":[0]}", "no size"},
        {"{\"version\":1,\"sample\":[-3]}", "no size"},
        {"{\"version\":1,\"sample\":[4294967296,4294967296]}", "too large"},
        {"{\"version\":1,\"sample\":[2],\"target\":\"dreams\"}", "no known kind"},
        {"{\"version\":1,\"sample\":[2],\"target\":\"classes\",\"outputs\":0}", "outputs"},
        {"{\"version\":1,\"sample\":[2],\"target\":\"classes\",\"outputs\":4294967296}", "outputs"},
        {"{\"version\":1,\"sample\":[2,2],\"target\":\"tokens\",\"outputs\":3}", "one dimension"},
        {"{\"version\":1,\"sample\":[2],\"target\":\"classes\",\"outputs\":3,\"mean\":[1,2]}",
         "for each channel"},
        {"{\"version\":1,\"sample\":[2],\"target\":\"classes\",\"outputs\":3,\"mean\":[1],"
         "\"scale\":[1]}",
         "for each channel"},
        {"{\"version\":1,\"sample\":[2],\"target\":\"classes\",\"outputs\":3,\"mean\":[1,1e39],"
         "\"scale\":[1,1]}",
         "no finite float"},
        {"{\"version\":1,\"sample\":[2],\"target\":\"classes\",\"outputs\":3,\"mean\":[1,\"2\"],"
         "\"scale\":[1,1]}",
         "no finite float"},
        {"{\"version\":1,\"sample\":[1000000],\"target\":\"classes\",\"outputs\":3,\"mean\":[],"
         "\"scale\":[]}",
         "too many means"},
        {"{\"version\":1,\"sample\":[2],\"target\":\"tokens\",\"outputs\":3,\"mean\":[1,1],"
         "\"scale\":[1,1]}",
         "no mean"},
        {"{\"version\":1,\"sample\":[2],\"target\":\"tokens\",\"outputs\":3,\"vocabulary\":\"ab\"}",
         "vocabulary"},
        {"{\"version\":1,\"sample\":[2],\"target\":\"tokens\",\"outputs\":2,\"vocabulary\":\"aa\"}",
         "vocabulary"},
        {"{\"version\":1,\"sample\":[2],\"target\":\"classes\",\"outputs\":2,\"vocabulary\":"
         "\"ab\"}",
         "vocabulary"},
    };
    for (size_t i = 0; i < SH_COUNT(wrong); i++) {
        sh_data data;
        sh_status status = parse(wrong[i][0], &data);
        assert_true(status == SH_E_FORMAT || status == SH_E_UNSUPPORTED);
        if (strstr(sh_error_last()->text, wrong[i][1]) == NULL)
            fail_msg("'%s' gave: %s", wrong[i][0], sh_error_last()->text);
    }
}
