/* Any bytes as each of the federated messages: what is read can be written, and is the same again.
 */
#include "fed/message.h"

#include <stdlib.h>
#include <string.h>

enum { VALUES = 64 };

static void check_task(const uint8_t *data, size_t bytes) {
    sh_fed_task task;
    sh_fed_writer writer = {0};
    if (sh_fed_read_task(data, bytes, &task) != SH_OK) return;
    sh_fed_write_task(&writer, &task);
    SH_ASSERT(writer.bytes == bytes && memcmp(writer.data, data, bytes) == 0);
    sh_fed_writer_fini(&writer);
}

static void check_update(const uint8_t *data, size_t bytes) {
    float values[VALUES];
    sh_fed_update update;
    sh_fed_writer writer = {0};
    if (sh_fed_read_update(data, bytes, values, VALUES, &update) != SH_OK) return;
    sh_fed_write_update(&writer, &update);
    SH_ASSERT(writer.bytes == bytes && memcmp(writer.data, data, bytes) == 0);
    sh_fed_writer_fini(&writer);
}

static void check_receipt(const uint8_t *data, size_t bytes) {
    sh_fed_receipt receipt;
    sh_fed_writer writer = {0};
    if (sh_fed_read_receipt(data, bytes, &receipt) != SH_OK) return;
    sh_fed_write_receipt(&writer, &receipt);
    SH_ASSERT(writer.bytes == bytes && memcmp(writer.data, data, bytes) == 0);
    sh_fed_writer_fini(&writer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    check_task(data, bytes);
    check_update(data, bytes);
    check_receipt(data, bytes);
    return 0;
}
