/* Messages read back as they were written, and nothing else is read. */
#include "harness.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "fed/message.h"

static sh_fed_writer task_bytes(const sh_fed_task *task) {
    sh_fed_writer writer = {0};
    sh_fed_write_task(&writer, task);
    assert_false(writer.failed);
    return writer;
}

static const sh_fed_task sample = {.action = SH_FED_TRAIN,
                                   .round = 7,
                                   .attempt = 3,
                                   .counted = 5,
                                   .wait_ms = 1500,
                                   .model = {1, 2, 3},
                                   .proximal = 0.25,
                                   .vectors = 2,
                                   .holds = true};

TEST(message, of_a_task_comes_back) {
    sh_fed_writer writer = task_bytes(&sample);
    sh_fed_task read;
    CHECK_OK(sh_fed_read_task(writer.data, writer.bytes, &read));
    assert_int_equal(read.action, SH_FED_TRAIN);
    assert_int_equal(read.round, 7);
    assert_int_equal(read.attempt, 3);
    assert_int_equal(read.counted, 5);
    assert_int_equal(read.wait_ms, 1500);
    assert_memory_equal(read.model, sample.model, SH_FED_HASH);
    assert_true(read.proximal == 0.25 && read.vectors == 2 && read.holds && !read.takes_late);
    sh_fed_writer_fini(&writer);
}

/* docs/federated-protocol.md shows these bytes. */
TEST(message, of_a_task_has_the_documented_bytes) {
    static const unsigned char head[] = {'S', 'F', 'E', 'D', 1, 0, 1, 0, 70, 0, 0, 0, 1,
                                         7,   0,   0,   0,   0, 0, 0, 0, 3,  0, 0, 0};
    sh_fed_writer writer = task_bytes(&sample);
    assert_int_equal(writer.bytes, 82);
    assert_memory_equal(writer.data, head, sizeof head);
    assert_int_equal(writer.data[81], 1);
    sh_fed_writer_fini(&writer);
}

TEST(message, of_an_update_comes_back_with_its_values) {
    const float values[] = {1, -2, 0.5f, 4, 5, 6};
    sh_fed_update update = {.round = 9,
                            .attempt = 2,
                            .samples = 600,
                            .steps = 12.5,
                            .loss = 0.5,
                            .accuracy = NAN,
                            .vectors = 2,
                            .count = 3,
                            .values = values};
    sh_fed_writer writer = {0};
    sh_fed_write_update(&writer, &update);
    assert_int_equal(writer.bytes, sh_fed_update_bytes(6));
    float room[6];
    sh_fed_update read;
    CHECK_OK(sh_fed_read_update(writer.data, writer.bytes, room, 6, &read));
    assert_int_equal(read.samples, 600);
    assert_true(read.steps == 12.5 && isnan(read.accuracy));
    assert_memory_equal(room, values, sizeof values);
    CHECK_FAILS(SH_E_SHAPE, "room for 5",
                sh_fed_read_update(writer.data, writer.bytes, room, 5, &read));
    sh_fed_writer_fini(&writer);
}

TEST(message, of_a_receipt_comes_back_with_its_reason) {
    sh_fed_receipt receipt = {.verdict = SH_FED_REFUSED, .round = 4, .reason = "too large"};
    sh_fed_receipt read;
    sh_fed_writer writer = {0};
    sh_fed_write_receipt(&writer, &receipt);
    CHECK_OK(sh_fed_read_receipt(writer.data, writer.bytes, &read));
    assert_string_equal(read.reason, "too large");
    assert_int_equal(read.verdict, SH_FED_REFUSED);
    sh_fed_writer_fini(&writer);
}

TEST(message, cut_anywhere_or_longer_is_refused) {
    sh_fed_writer writer = task_bytes(&sample);
    sh_fed_task read;
    for (size_t bytes = 0; bytes < writer.bytes; bytes++)
        CHECK_FAILS(SH_E_FORMAT, "", sh_fed_read_task(writer.data, bytes, &read));
    sh_fed_put_number(&writer, 0, 1);
    CHECK_FAILS(SH_E_FORMAT, "body", sh_fed_read_task(writer.data, writer.bytes, &read));
    sh_fed_writer_fini(&writer);
}

TEST(message, of_another_version_or_kind_is_refused_by_name) {
    sh_fed_writer writer = task_bytes(&sample);
    sh_fed_task read;
    writer.data[4] = 2;
    CHECK_FAILS(SH_E_FORMAT, "version 2", sh_fed_read_task(writer.data, writer.bytes, &read));
    writer.data[4] = 1;
    writer.data[6] = 3;
    CHECK_FAILS(SH_E_FORMAT, "kind 3", sh_fed_read_task(writer.data, writer.bytes, &read));
    writer.data[6] = 1;
    writer.data[12] = 9;
    CHECK_FAILS(SH_E_FORMAT, "action 9", sh_fed_read_task(writer.data, writer.bytes, &read));
    sh_fed_writer_fini(&writer);
}

TEST(message, that_counts_more_values_than_it_has_is_refused) {
    const float value = 1;
    sh_fed_update update = {
        .round = 1, .samples = 1, .steps = 1, .vectors = 1, .count = 1, .values = &value};
    sh_fed_writer writer = {0};
    float room[4];
    sh_fed_update read;
    sh_fed_write_update(&writer, &update);
    size_t count_at = writer.bytes - sizeof(float) - 8;
    writer.data[count_at] = 3;
    CHECK_FAILS(SH_E_FORMAT, "says 1 x 3",
                sh_fed_read_update(writer.data, writer.bytes, room, 4, &read));
    memset(writer.data + count_at, 0xff, 8);  // a product that would wrap around
    CHECK_FAILS(SH_E_SHAPE, "room", sh_fed_read_update(writer.data, writer.bytes, room, 4, &read));
    sh_fed_writer_fini(&writer);
}
