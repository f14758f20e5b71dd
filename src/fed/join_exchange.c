/* The requests of a client, one function each (docs/federated-protocol.md). Transfers that were cut
 * go on: downloads by byte ranges, uploads by chunks that the server says it has. */
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "fed/join_internal.h"
#include "fed/upload.h"

/* Bounds of what a server can make a client allocate. */
enum { SMALL_MOST = 64 << 10, TEXT_MOST = 4 << 20 };

/* What an answer that is none of the good ones means. */
static sh_status judge(const sh_http_answer *answer, const char *what) {
    char shown[200] = "";
    if (answer->code >= 200 && answer->code < 300) return SH_OK;  // any 2xx
    if (answer->data != NULL)
        // First line at most: it comes from outside.
        snprintf(shown, sizeof shown, ": %.*s", (int)strcspn((const char *)answer->data, "\n"),
                 (const char *)answer->data);
    // Certificate missing, unknown or revoked.
    bool unwanted = answer->code == 401 || answer->code == 403;
    SH_FAIL(unwanted ? SH_E_USAGE : SH_E_IO, "%s: the server answers %d%s", what, answer->code,
            shown);
    if (unwanted) return sh_error_hint("ask whoever runs the server for a new invitation");
    // 400 is final, other codes are tried again.
    return answer->code == 400 ? SH_FAIL(SH_E_FORMAT, "%s is refused%s", what, shown) : SH_E_IO;
}

/* The text is handed over by taking it out of the answer, without a copy. */
sh_status sh_fed_join_text(sh_fed_joining *j, const char *path, char **text_out) {
    sh_http_answer answer = {0};
    sh_status status = sh_http_session_ask(j->session, "GET", path, NULL, 0, 0, TEXT_MOST, &answer);
    if (status == SH_OK) status = judge(&answer, "the server's options");
    if (status == SH_OK && answer.data == NULL)
        status = SH_FAIL(SH_E_FORMAT, "the server's options are empty");
    if (status == SH_OK) {
        *text_out = (char *)answer.data;
        answer.data = NULL;
    }
    sh_http_answer_fini(&answer);
    return status;
}

/* A task also tells the server that this client is present. */
sh_status sh_fed_join_ask(sh_fed_joining *j, sh_fed_task *task_out) {
    sh_http_answer answer = {0};
    sh_status status =
        sh_http_session_ask(j->session, "GET", "/v1/task", NULL, 0, 0, SMALL_MOST, &answer);
    if (status == SH_OK) status = judge(&answer, "the question for a task");
    if (status == SH_OK) status = sh_fed_read_task(answer.data, answer.bytes, task_out);
    sh_http_answer_fini(&answer);
    return status;
}

/* Appends to what earlier, interrupted downloads brought. */
static sh_status keep_part(sh_fed_joining *j, const sh_http_answer *part) {
    void *data = j->model.data;
    if (part->bytes == 0) return SH_OK;
    // Grows as bytes arrive, never by what a header says.
    SH_TRY(sh_grow(&data, &j->model.capacity, j->model.bytes + part->bytes, 1));
    j->model.data = data;
    memcpy(j->model.data + j->model.bytes, part->data, part->bytes);
    j->model.bytes += part->bytes;
    return SH_OK;
}

/* By the hash of the task: a wrong or mixed download is thrown away and fetched again. */
static sh_status check_model(sh_fed_joining *j) {
    size_t bytes = j->vectors * j->count * sizeof(float);
    unsigned char hash[SH_FED_HASH];
    crypto_hash_sha256(hash, j->model.data, j->model.bytes);
    bool right = j->model.bytes == bytes && memcmp(hash, j->model_hash, SH_FED_HASH) == 0;
    size_t got = j->model.bytes;
    j->model.bytes = 0;  // next fetch begins anew, right or wrong
    if (!right)
        return SH_FAIL(SH_E_IO, "the model of %zu bytes, %zu expected, is not the one of the task",
                       got, bytes);
    memcpy(j->received, j->model.data, bytes);
    return SH_OK;
}

/* A download that was cut goes on where it was, as long as the task names the same model. */
sh_status sh_fed_join_fetch(sh_fed_joining *j) {
    char path[32 + 2 * SH_FED_HASH], hex[2 * SH_FED_HASH + 1];
    size_t bytes = j->vectors * j->count * sizeof(float);
    sh_http_answer answer = {0};
    // Another model: the bytes so far are of no use.
    if (memcmp(j->model_hash, j->client.task.model, SH_FED_HASH) != 0) j->model.bytes = 0;
    memcpy(j->model_hash, j->client.task.model, SH_FED_HASH);
    sodium_bin2hex(hex, sizeof hex, j->model_hash, SH_FED_HASH);
    snprintf(path, sizeof path, "/v1/model/%s", hex);
    size_t from = j->model.bytes;
    sh_status status =
        // Never more than is missing.
        sh_http_session_ask(j->session, "GET", path, NULL, 0, from, bytes - from, &answer);
    bool part = answer.code == 206, whole = answer.code == 200;
    if (whole) j->model.bytes = 0;  // the server ignored the range
    // kept even if the rest did not come
    sh_status kept = whole || part ? keep_part(j, &answer) : SH_OK;
    if (status == SH_OK) status = judge(&answer, "the model");
    if (status == SH_OK) status = kept;
    sh_http_answer_fini(&answer);
    // Counted as they came, used or not.
    j->result.received_bytes += (int64_t)(j->model.bytes - (whole ? 0 : from));
    return status == SH_OK ? check_model(j) : status;
}

/* An update message and the hash that names it in every path. */
typedef struct sending {
    sh_fed_writer message;
    unsigned char hash[SH_FED_HASH];
    char hex[2 * SH_FED_HASH + 1];
} sending;

/* Chunks are named by place and hash, so that sending one twice does no harm. */
static sh_status put_chunk(sh_fed_joining *j, const sending *s, size_t index) {
    size_t at = index * SH_FED_CHUNK, left = s->message.bytes - at;
    size_t bytes = left < SH_FED_CHUNK ? left : SH_FED_CHUNK;
    unsigned char hash[SH_FED_HASH];
    char hex[2 * SH_FED_HASH + 1], path[64 + 4 * SH_FED_HASH];
    sh_http_answer answer = {0};
    // The server checks it before it keeps the chunk.
    crypto_hash_sha256(hash, s->message.data + at, bytes);
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    snprintf(path, sizeof path, "/v1/update/%s/%zu/%zu/%s", s->hex, s->message.bytes, index, hex);
    sh_status status = sh_http_session_ask(j->session, "PUT", path, s->message.data + at, bytes, 0,
                                           SMALL_MOST, &answer);
    if (status == SH_OK) status = judge(&answer, "a part of the update");
    sh_http_answer_fini(&answer);
    j->result.sent_bytes += (int64_t)bytes;
    return status;
}

/* Chunks that the server has already, of a transfer that was cut. */
static sh_status have(sh_fed_joining *j, const sending *s, size_t *chunks_out) {
    char path[32 + 2 * SH_FED_HASH];
    sh_http_answer answer = {0};
    snprintf(path, sizeof path, "/v1/update/%s", s->hex);
    sh_status status =
        sh_http_session_ask(j->session, "GET", path, NULL, 0, 0, SMALL_MOST, &answer);
    if (status == SH_OK) status = judge(&answer, "the state of the update");
    sh_fed_reader reader = {.at = answer.data, .left = answer.bytes};
    // 0 if the answer is too short: reader_ends says so.
    *chunks_out = (size_t)sh_fed_take_number(&reader, 4);
    if (status == SH_OK && !sh_fed_reader_ends(&reader))
        status = SH_FAIL(SH_E_FORMAT, "the state of the update is no number");
    sh_http_answer_fini(&answer);
    return status;
}

/* Asks the server to judge the complete update; the answer is a receipt. */
static sh_status finish(sh_fed_joining *j, const sending *s, sh_fed_receipt *receipt_out) {
    char path[32 + 2 * SH_FED_HASH];
    sh_http_answer answer = {0};
    snprintf(path, sizeof path, "/v1/update/%s", s->hex);
    sh_status status = sh_http_session_ask(j->session, "POST", path, "", 0, 0, SMALL_MOST, &answer);
    if (status == SH_OK) status = judge(&answer, "the update");
    if (status == SH_OK) status = sh_fed_read_receipt(answer.data, answer.bytes, receipt_out);
    sh_http_answer_fini(&answer);
    return status;
}

/* The attempt is the newest task's: a held update also serves a round that began again. */
sh_status sh_fed_join_send(sh_fed_joining *j, sh_fed_receipt *receipt_out) {
    sending s = {0};
    size_t index = 0;
    j->made.attempt = j->client.task.attempt;
    sh_fed_write_update(&s.message, &j->made);
    sh_status status =
        s.message.failed ? SH_FAIL(SH_E_MEMORY, "out of memory for an update") : SH_OK;
    if (status == SH_OK) {
        crypto_hash_sha256(s.hash, s.message.data, s.message.bytes);
        sodium_bin2hex(s.hex, sizeof s.hex, s.hash, sizeof s.hash);
        status = have(j, &s, &index);  // chunks before this one need not be sent
    }
    for (; status == SH_OK && index * SH_FED_CHUNK < s.message.bytes; index++)
        status = put_chunk(j, &s, index);
    if (status == SH_OK) status = finish(j, &s, receipt_out);
    sh_fed_writer_fini(&s.message);
    return status;
}
