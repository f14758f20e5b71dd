/* Answers to HTTPS requests: the paths of docs/federated-protocol.md. Whatever a request says is
 * checked here before the state machine or the store sees it. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "fed/serve_internal.h"

/* Bounds what a stranger can make the server allocate. */
enum { REQUEST_MOST = 16 << 10, CERTIFICATE_DAYS = 30 };
static const int64_t DAY_S = 24 * 3600;

static bool starts(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* Asked before a body is received: strangers may send a join request and nothing else. */
size_t sh_fed_body_most(void *self, const char *method, const char *path, const char *client) {
    (void)self;
    bool posts = strcmp(method, "POST") == 0;
    if (posts && strcmp(path, "/v1/join") == 0) return REQUEST_MOST;
    if (client == NULL) return 0;  // no certificate, no body
    if (posts && strcmp(path, "/v1/renew") == 0) return REQUEST_MOST;
    if (strcmp(method, "PUT") == 0 && starts(path, "/v1/update/")) return SH_FED_CHUNK;
    return 0;
}

/* A constant text, which the reply borrows. */
static void say(sh_http_reply *reply, int code, const char *text) {
    reply->code = code;
    reply->type = "text/plain; charset=utf-8";
    reply->data = text;
    reply->bytes = strlen(text);
}

static void free_memory(void *owner) { sh_free(owner); }

/* Hands memory over to the reply. */
static void give(sh_http_reply *reply, const char *type, void *data, size_t bytes) {
    reply->code = 200;
    reply->type = type;
    reply->data = data;
    reply->bytes = bytes;
    reply->release = free_memory;
    reply->owner = data;
}

static void give_message(sh_http_reply *reply, sh_fed_writer *writer) {
    if (writer->failed) {
        sh_fed_writer_fini(writer);
        say(reply, 503, "out of memory\n");
        return;
    }
    give(reply, NULL, writer->data, writer->bytes);
}

/* The server cannot go on: it says so to this client, and ends. */
static void give_up(sh_fed_serving *s, sh_http_reply *reply) {
    s->failed = *sh_error_last();
    say(reply, 500, "the server has failed\n");
}

/* What the record of this thread says, as an answer. */
static void refuse(sh_http_reply *reply, int code) {
    size_t size = strlen(sh_error_last()->text) + 2;
    char *text = sh_alloc(size, 1);
    if (text == NULL) {
        say(reply, code, "refused\n");
        return;
    }
    snprintf(text, size, "%s\n", sh_error_last()->text);
    give(reply, "text/plain; charset=utf-8", text, size - 1);
    reply->code = code;
}

/* Exactly 64 hexadecimal digits; `end_out` is what follows. */
static bool read_hash(const char *hex, unsigned char hash_out[SH_FED_HASH], const char **end_out) {
    size_t bytes = 0;
    const char *end;
    // sodium_hex2bin would read beyond a shorter text.
    if (strlen(hex) < 2 * SH_FED_HASH) return false;
    if (sodium_hex2bin(hash_out, SH_FED_HASH, hex, 2 * SH_FED_HASH, NULL, &bytes, &end) != 0 ||
        bytes != SH_FED_HASH)
        return false;
    *end_out = hex + 2 * SH_FED_HASH;
    return true;
}

/* A number up to 10^15 without sign or zeros in front, and what follows it. */
static bool read_number(const char *text, size_t *number_out, const char **end_out) {
    size_t digits = strspn(text, "0123456789");
    // 15 digits fit; one spelling for each number.
    if (digits == 0 || digits > 15 || (digits > 1 && text[0] == '0')) return false;
    *number_out = (size_t)strtoull(text, NULL, 10);
    *end_out = text + digits;
    return true;
}

/* "client-12" is the state machine's client 11. */
static bool read_client(const char *name, size_t *client_out) {
    const char *end;
    size_t number;
    if (name == NULL || !starts(name, "client-") || !read_number(name + 7, &number, &end))
        return false;
    *client_out = number - 1;
    return *end == '\0' && number >= 1;  // 0 is no client
}

/* The name in the certificate is the server's choice; what the request says of itself is ignored.
 */
static sh_status sign(sh_fed_serving *s, const char *request, int64_t number, char **pem_out) {
    char name[SH_FED_NAME];
    snprintf(name, sizeof name, "client-%lld", (long long)number);
    return sh_certificate_sign(&s->authority, request, name, CERTIFICATE_DAYS * DAY_S, pem_out);
}

/* The body: the token, a newline, the certificate request. */
static sh_status join(sh_fed_serving *s, const char *body, char **pem_out) {
    char token[SH_FED_TOKEN], *unused = NULL;
    int64_t number = 0;
    const char *end = strchr(body, '\n');
    if (end == NULL || (size_t)(end - body) != SH_FED_TOKEN - 1)
        return SH_FAIL(SH_E_FORMAT, "a token and a certificate request are expected");
    memcpy(token, body, SH_FED_TOKEN - 1);
    token[SH_FED_TOKEN - 1] = '\0';
    SH_TRY(sign(s, end + 1, 0, &unused));  // a faulty request uses no token up
    sh_free(unused);
    SH_TRY(sh_fed_store_redeem(s->store, token, end + 1, sh_fed_unix_s(), &number));
    // The state machine follows the store, which gives numbers.
    while (sh_fed_server_clients(s->server) < (size_t)number)
        if (sh_fed_server_add(s->server) < 0)
            return SH_FAIL(SH_E_MEMORY, "there are too many clients");
    return sign(s, end + 1, number, pem_out);
}

static void answer_join(sh_fed_serving *s, const sh_http_request *request, sh_http_reply *reply) {
    char *body = sh_alloc(request->body_bytes + 1, 1), *pem = NULL;
    // With a zero at the end, as PEM is text.
    if (body != NULL) memcpy(body, request->body, request->body_bytes);
    sh_status status = body != NULL ? join(s, body, &pem) : SH_FAIL(SH_E_MEMORY, "out of memory");
    sh_free(body);
    if (status != SH_OK)
        // A refused token is final; a store that fails may be asked again.
        refuse(reply, status == SH_E_USAGE ? 403 : status == SH_E_IO ? 503 : 400);
    else
        give(reply, "application/x-pem-file", pem, strlen(pem));
}

static void answer_renew(sh_fed_serving *s, const sh_http_request *request, size_t client,
                         sh_http_reply *reply) {
    char *body = sh_alloc(request->body_bytes + 1, 1), *pem = NULL;
    if (body != NULL) memcpy(body, request->body, request->body_bytes);
    // The name is that of the certificate it came with.
    sh_status status = body != NULL ? sign(s, body, (int64_t)client + 1, &pem)
                                    : SH_FAIL(SH_E_MEMORY, "out of memory");
    sh_free(body);
    if (status != SH_OK)
        refuse(reply, 400);
    else
        give(reply, "application/x-pem-file", pem, strlen(pem));
}

/* A failure here is the store's or memory's, never the client's: it ends the server. */
static void answer_task(sh_fed_serving *s, size_t client, sh_http_reply *reply) {
    sh_fed_task task;
    sh_fed_writer writer = {0};
    if (sh_fed_server_ask(s->server, sh_fed_now_ms(), client, &task) != SH_OK) {
        give_up(s, reply);
        return;
    }
    sh_fed_write_task(&writer, &task);
    give_message(reply, &writer);
}

/* The last download frees the bytes, after newer models have replaced them. */
void sh_fed_release_handout(void *self) {
    sh_fed_handout *handout = self;
    sh_fed_serving *s = handout->owner;
    pthread_mutex_lock(&s->lock);
    bool last = --handout->holders == 0;
    pthread_mutex_unlock(&s->lock);
    if (!last) return;
    sh_free(handout->values);
    sh_free(handout);
}

/* A copy: the state machine changes its model in place, while downloads of the old one go on. */
sh_status sh_fed_hand_out(sh_fed_serving *s) {
    sh_fed_handout *old = s->handout, *next = sh_alloc(1, sizeof *next);
    size_t values = sh_fed_server_values(s->server);
    if (next != NULL) next->values = sh_alloc(values, sizeof *next->values);
    if (next == NULL || next->values == NULL) {
        sh_free(next);
        return SH_FAIL(SH_E_MEMORY, "out of memory for a model");
    }
    next->bytes = values * sizeof *next->values;
    next->holders = 1;  // the server itself holds the newest model
    next->owner = s;
    memcpy(next->values, sh_fed_server_model(s->server), next->bytes);
    sodium_bin2hex(next->hash, sizeof next->hash, sh_fed_server_hash(s->server), SH_FED_HASH);
    s->handout = next;
    if (old == NULL || --old->holders > 0) return SH_OK;  // downloads still hold the old one
    sh_free(old->values);
    sh_free(old);
    return SH_OK;
}

/* By hash, so that a client never gets another model than its task named. Ranges let a cut download
 * go on. */
static void answer_model(sh_fed_serving *s, const char *hash, sh_http_reply *reply) {
    if (s->handout == NULL || strcmp(hash, s->handout->hash) != 0) {
        say(reply, 404, "this is not the newest model: ask for a task\n");
        return;
    }
    s->handout->holders++;  // released when the download has ended
    *reply = (sh_http_reply){.code = 200,
                             .data = s->handout->values,
                             .bytes = s->handout->bytes,
                             .ranges = true,
                             .release = sh_fed_release_handout,
                             .owner = s->handout};
}

/* PUT /v1/update/WHOLE/TOTAL/INDEX/HASH with the chunk as body. */
static void put_chunk(sh_fed_serving *s, const sh_http_request *request, size_t client,
                      sh_http_reply *reply) {
    const char *at = request->path + strlen("/v1/update/");
    sh_fed_chunk chunk = {.data = request->body, .bytes = request->body_bytes};
    // Nothing may follow the last hash.
    bool reads = read_hash(at, chunk.whole, &at) && *at++ == '/' &&
                 read_number(at, &chunk.total, &at) && *at++ == '/' &&
                 read_number(at, &chunk.index, &at) && *at++ == '/' &&
                 read_hash(at, chunk.hash, &at) && *at == '\0';
    if (!reads || request->body == NULL) {
        say(reply, 404, "no such path\n");
        return;
    }
    // Sending a large update is a sign of life.
    sh_fed_server_heard(s->server, sh_fed_now_ms(), client);
    sh_status status = sh_fed_uploads_put(&s->uploads, client, sh_fed_now_ms(), &chunk);
    s->received_bytes += (int64_t)request->body_bytes;
    if (status == SH_OK) {
        say(reply, 200, "taken\n");
        return;
    }
    refuse(reply, status == SH_E_MEMORY ? 503 : 400);
    // The budget is full for now: to be tried again.
    reply->retry_s = status == SH_E_MEMORY ? 2 : 0;
}

/* POST /v1/update/WHOLE: the complete update is judged; the answer is a receipt. */
static void take_update(sh_fed_serving *s, size_t client, const unsigned char whole[SH_FED_HASH],
                        sh_http_reply *reply) {
    const void *data;
    size_t bytes;
    sh_fed_update update;
    sh_fed_receipt receipt;
    sh_fed_writer writer = {0};
    sh_status status = sh_fed_uploads_whole(&s->uploads, client, whole, &data, &bytes);
    if (status != SH_OK) {
        refuse(reply, status == SH_E_USAGE ? 409 : 400);
        return;
    }
    status = sh_fed_read_update(data, bytes, s->values, sh_fed_server_values(s->server), &update);
    sh_fed_uploads_drop(&s->uploads, client);  // whatever the verdict, its bytes leave the budget
    if (status != SH_OK) {
        refuse(reply, 400);
        return;
    }
    status = sh_fed_server_take(s->server, sh_fed_now_ms(), client, &update, &receipt);
    // One update in the clear, no longer than needed.
    sodium_memzero(s->values, sh_fed_server_values(s->server) * sizeof *s->values);
    if (status != SH_OK) {
        give_up(s, reply);
        return;
    }
    sh_fed_write_receipt(&writer, &receipt);
    give_message(reply, &writer);
}

/* PUT a chunk, GET how many are there, POST to have the whole judged. */
static void answer_update(sh_fed_serving *s, const sh_http_request *request, size_t client,
                          sh_http_reply *reply) {
    unsigned char whole[SH_FED_HASH];
    const char *end;
    if (strcmp(request->method, "PUT") == 0) {
        put_chunk(s, request, client, reply);
        return;
    }
    if (!read_hash(request->path + strlen("/v1/update/"), whole, &end) || *end != '\0') {
        say(reply, 404, "no such path\n");
        return;
    }
    if (strcmp(request->method, "POST") == 0) {
        take_update(s, client, whole, reply);
        return;
    }
    sh_fed_writer writer = {0};  // GET: chunks that are there without a gap
    sh_fed_put_number(&writer, sh_fed_uploads_have(&s->uploads, client, whole), 4);
    give_message(reply, &writer);
}

/* For clients that are known by their certificate. */
static void answer_known(sh_fed_serving *s, const sh_http_request *request, size_t client,
                         sh_http_reply *reply) {
    const char *path = request->path;
    bool gets = strcmp(request->method, "GET") == 0, posts = strcmp(request->method, "POST") == 0;
    bool puts = strcmp(request->method, "PUT") == 0;
    if (gets && strcmp(path, "/v1/task") == 0)
        answer_task(s, client, reply);
    else if (gets && starts(path, "/v1/model/"))
        answer_model(s, path + strlen("/v1/model/"), reply);
    else if (gets && strcmp(path, "/v1/run") == 0)
        say(reply, 200, s->shared_text);
    else if (gets && strcmp(path, "/v1/facts") == 0)
        say(reply, 200, s->facts);
    else if (posts && strcmp(path, "/v1/renew") == 0)
        answer_renew(s, request, client, reply);
    else if ((gets || posts || puts) && starts(path, "/v1/update/"))
        answer_update(s, request, client, reply);
    else
        say(reply, 404, "no such path\n");
}

/* From the least trusted to the most: public paths, unknown clients, revoked ones, known ones. */
static void handle_locked(sh_fed_serving *s, const sh_http_request *request, sh_http_reply *reply) {
    size_t client = 0;
    bool gets = strcmp(request->method, "GET") == 0;
    if (s->failed.code != SH_OK)  // a store that cannot be written must not promise anything
        say(reply, 503, "the server ends\n");
    else if (gets && strcmp(request->path, "/v1/ca") == 0)
        say(reply, 200, s->authority.certificate);
    else if (strcmp(request->method, "POST") == 0 && strcmp(request->path, "/v1/join") == 0)
        answer_join(s, request, reply);
    else if (!read_client(request->client, &client))
        say(reply, 401, "this needs a client's certificate: shoal join\n");
    else if (client >= sh_fed_server_clients(s->server) ||
             // Asked each time: another process may have revoked it.
             sh_fed_store_is_revoked(s->store, (int64_t)client + 1))
        say(reply, 403, "this client is revoked\n");
    else
        answer_known(s, request, client, reply);
}

/* One lock for everything that requests and the main task share. */
void sh_fed_handle(void *self, const sh_http_request *request, sh_http_reply *reply) {
    sh_fed_serving *s = self;
    pthread_mutex_lock(&s->lock);
    handle_locked(s, request, reply);
    pthread_mutex_unlock(&s->lock);
}
