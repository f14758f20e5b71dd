/* Writing and reading of the three messages. Readers check the header, then every field, then that
 * nothing is left; values are checked for range before anybody uses them. */
#include "fed/message.h"

#include <math.h>
#include <string.h>

static const char magic[4] = {'S', 'F', 'E', 'D'};  // first bytes of every message

enum {
    UPDATE_HEAD = 8 + 4 + SH_FED_HASH + 8 + 3 * 8 + 4 + 8
};  // bytes of an update's body before its values

enum { HOLDS = 1, TAKES_LATE = 2 };  // bits of a task's flags

/* Magic (4), version (2), kind (2), bytes of the body (4). */
static void put_header(sh_fed_writer *writer, sh_fed_kind kind, size_t body_bytes) {
    sh_fed_put(writer, magic, sizeof magic);
    sh_fed_put_number(writer, SH_FED_VERSION, 2);
    sh_fed_put_number(writer, kind, 2);
    sh_fed_put_number(writer, body_bytes, 4);
}

void sh_fed_write_task(sh_fed_writer *writer, const sh_fed_task *task) {
    // Bytes of the body, in the order below.
    put_header(writer, SH_FED_TASK, 1 + 8 + 4 + 8 + 4 + SH_FED_HASH + 8 + 4 + 1);
    sh_fed_put_number(writer, task->action, 1);
    sh_fed_put_number(writer, task->round, 8);
    sh_fed_put_number(writer, task->attempt, 4);
    sh_fed_put_number(writer, task->counted, 8);
    sh_fed_put_number(writer, task->wait_ms, 4);
    sh_fed_put(writer, task->model, SH_FED_HASH);
    sh_fed_put_real(writer, task->proximal);
    sh_fed_put_number(writer, task->vectors, 4);
    // Unknown bits are refused by readers.
    sh_fed_put_number(writer, (task->holds ? HOLDS : 0) | (task->takes_late ? TAKES_LATE : 0), 1);
}

size_t sh_fed_update_bytes(size_t values) {
    return SH_FED_HEADER + UPDATE_HEAD + values * sizeof(float);
}

/* Values are little-endian floats (vectors, count) at the end, so that they can be read into place.
 */
void sh_fed_write_update(sh_fed_writer *writer, const sh_fed_update *update) {
    size_t values = update->vectors * update->count;
    put_header(writer, SH_FED_UPDATE, UPDATE_HEAD + values * sizeof(float));
    sh_fed_put_number(writer, update->round, 8);
    sh_fed_put_number(writer, update->attempt, 4);
    sh_fed_put(writer, update->model, SH_FED_HASH);
    sh_fed_put_number(writer, update->samples, 8);
    sh_fed_put_real(writer, update->steps);
    sh_fed_put_real(writer, update->loss);
    sh_fed_put_real(writer, update->accuracy);
    sh_fed_put_number(writer, update->vectors, 4);
    sh_fed_put_number(writer, update->count, 8);
    sh_fed_put_floats(writer, update->values, values);
}

/* The reason is at most as long as a receipt has room for. */
void sh_fed_write_receipt(sh_fed_writer *writer, const sh_fed_receipt *receipt) {
    put_header(writer, SH_FED_RECEIPT, 1 + 8 + 4 + 4 + strlen(receipt->reason));
    sh_fed_put_number(writer, receipt->verdict, 1);
    sh_fed_put_number(writer, receipt->round, 8);
    sh_fed_put_number(writer, receipt->attempt, 4);
    sh_fed_put_text(writer, receipt->reason);
}

/* Checks the header; the reader then stands before the body. */
static sh_status open_message(const void *data, size_t bytes, sh_fed_kind kind,
                              sh_fed_reader *reader) {
    *reader = (sh_fed_reader){.at = data, .left = bytes};
    // NULL where there are fewer bytes than a header.
    const char *start = sh_fed_take(reader, sizeof magic);
    uint64_t version = sh_fed_take_number(reader, 2), given = sh_fed_take_number(reader, 2),
             body = sh_fed_take_number(reader, 4);
    if (start == NULL || reader->failed || memcmp(start, magic, sizeof magic) != 0)
        return SH_FAIL(SH_E_FORMAT, "%zu bytes that are no federated message", bytes);
    if (version != SH_FED_VERSION) {  // before anything else of the message is interpreted
        SH_FAIL(SH_E_FORMAT, "a message of protocol version %d; this program speaks version %d",
                (int)version, SH_FED_VERSION);
        return sh_error_hint("run the same version of Shoal on both sides");
    }
    if (given != kind)
        return SH_FAIL(SH_E_FORMAT, "a message of kind %d where %d is expected", (int)given,
                       (int)kind);
    if (body != reader->left)  // truncated, or with something behind
        return SH_FAIL(SH_E_FORMAT, "a message whose body has %zu bytes and says %llu",
                       reader->left, (unsigned long long)body);
    return SH_OK;
}

/* A message with bytes left over is as wrong as one that is too short. */
static sh_status close_message(const sh_fed_reader *reader, const char *what) {
    if (sh_fed_reader_ends(reader)) return SH_OK;
    return SH_FAIL(SH_E_FORMAT, "a message of another length than %s has", what);
}

static void take_hash(sh_fed_reader *reader, unsigned char hash_out[SH_FED_HASH]) {
    const void *hash = sh_fed_take(reader, SH_FED_HASH);
    if (hash != NULL) memcpy(hash_out, hash, SH_FED_HASH);
}

/* Enumerations and flags are checked after the body has been read whole. */
sh_status sh_fed_read_task(const void *data, size_t bytes, sh_fed_task *task_out) {
    sh_fed_reader reader;
    sh_fed_task task = {0};
    SH_TRY(open_message(data, bytes, SH_FED_TASK, &reader));
    uint64_t action = sh_fed_take_number(&reader, 1);
    task.action = (sh_fed_action)action;  // checked below, before anybody switches on it
    task.round = sh_fed_take_number(&reader, 8);
    task.attempt = (uint32_t)sh_fed_take_number(&reader, 4);
    task.counted = sh_fed_take_number(&reader, 8);
    task.wait_ms = (uint32_t)sh_fed_take_number(&reader, 4);
    take_hash(&reader, task.model);
    task.proximal = sh_fed_take_real(&reader);
    task.vectors = (uint32_t)sh_fed_take_number(&reader, 4);
    uint64_t flags = sh_fed_take_number(&reader, 1);
    task.holds = (flags & HOLDS) != 0;
    task.takes_late = (flags & TAKES_LATE) != 0;
    SH_TRY(close_message(&reader, "a task"));
    if (action >= SH_FED_ACTIONS)
        return SH_FAIL(SH_E_FORMAT, "a task with the unknown action %d", (int)action);
    if (flags > (HOLDS | TAKES_LATE))
        // Flags of a later version change what a task means.
        return SH_FAIL(SH_E_FORMAT, "a task with the unknown flags %d", (int)flags);
    if (!isfinite(task.proximal) || task.proximal < 0)  // NaN would spoil every gradient
        return SH_FAIL(SH_E_FORMAT, "a task whose proximal term is no number");
    if (task.vectors < 1 || task.vectors > SH_FED_VECTORS_MOST)
        return SH_FAIL(SH_E_FORMAT, "a task that wants %u vectors", task.vectors);
    *task_out = task;
    return SH_OK;
}

/* Before any value is copied: sizes come from outside, and products of them must not overflow. */
static sh_status check_update(const sh_fed_update *update, size_t left, size_t room) {
    if (update->vectors < 1 || update->vectors > SH_FED_VECTORS_MOST)
        return SH_FAIL(SH_E_FORMAT, "an update of %u vectors", update->vectors);
    if (update->count > room / update->vectors)  // division: the product cannot overflow
        return SH_FAIL(SH_E_SHAPE, "an update of %u x %llu values, where there is room for %zu",
                       update->vectors, (unsigned long long)update->count, room);
    if (left != update->vectors * update->count * sizeof(float))
        return SH_FAIL(SH_E_FORMAT, "an update that says %u x %llu values and has %zu bytes",
                       update->vectors, (unsigned long long)update->count, left);
    if (!isfinite(update->steps) || !(update->steps > 0))  // a divisor in fednova
        return SH_FAIL(SH_E_FORMAT, "an update of no steps");
    return SH_OK;
}

/* `values_out` has room for `room` floats and is the only output that a refused message may have
 * touched. */
sh_status sh_fed_read_update(const void *data, size_t bytes, float *values_out, size_t room,
                             sh_fed_update *update_out) {
    sh_fed_reader reader;
    sh_fed_update update = {0};
    SH_TRY(open_message(data, bytes, SH_FED_UPDATE, &reader));
    update.round = sh_fed_take_number(&reader, 8);
    update.attempt = (uint32_t)sh_fed_take_number(&reader, 4);
    take_hash(&reader, update.model);
    update.samples = sh_fed_take_number(&reader, 8);
    update.steps = sh_fed_take_real(&reader);
    update.loss = sh_fed_take_real(&reader);
    update.accuracy = sh_fed_take_real(&reader);
    update.vectors = (uint32_t)sh_fed_take_number(&reader, 4);
    update.count = sh_fed_take_number(&reader, 8);
    if (reader.failed) return close_message(&reader, "an update");  // before sizes are believed
    SH_TRY(check_update(&update, reader.left, room));
    sh_fed_take_floats(&reader, values_out, update.vectors * update.count);
    SH_TRY(close_message(&reader, "an update"));
    update.values = values_out;
    *update_out = update;
    return SH_OK;
}

/* The reason is text of the server; one that is longer than a receipt has room for is refused. */
sh_status sh_fed_read_receipt(const void *data, size_t bytes, sh_fed_receipt *receipt_out) {
    sh_fed_reader reader;
    sh_fed_receipt receipt = {0};
    SH_TRY(open_message(data, bytes, SH_FED_RECEIPT, &reader));
    uint64_t verdict = sh_fed_take_number(&reader, 1);
    receipt.verdict = (sh_fed_verdict)verdict;
    receipt.round = sh_fed_take_number(&reader, 8);
    receipt.attempt = (uint32_t)sh_fed_take_number(&reader, 4);
    sh_fed_take_text(&reader, receipt.reason, sizeof receipt.reason);
    SH_TRY(close_message(&reader, "a receipt"));
    if (verdict >= SH_FED_VERDICTS)
        return SH_FAIL(SH_E_FORMAT, "a receipt with the unknown verdict %d", (int)verdict);
    *receipt_out = receipt;
    return SH_OK;
}
