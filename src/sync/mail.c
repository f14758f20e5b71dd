#include "sync/mail.h"

#include <inttypes.h>

sh_status sh_mail_send(sh_mail *mail, sh_message *message) {
    mail->sent_bytes += message->bytes;
    return sh_send(mail->transport, message);
}

sh_status sh_mail_receive(sh_mail *mail, sh_message *message) {
    return sh_receive(mail->transport, message);
}

bool sh_mail_test(sh_mail *mail, const sh_message *message) {
    if (message->state == SH_MESSAGE_PENDING) sh_transport_progress(mail->transport);
    return message->state != SH_MESSAGE_PENDING;
}

static int host_of(const sh_mail *mail, int peer) {
    return peer >= 0 ? sh_mail_host(peer, mail->workers, mail->apart) : SH_ANY_RANK;
}

static uint64_t bit_of(int host) {
    return host >= 0 && host < SH_BOARD_WAITS ? UINT64_C(1) << host : 0;
}

/* What the board says of the wait stays: reports come after this. */
static sh_status fail_late(const sh_mail *mail, const sh_message *message, int64_t waited_ns,
                           const char *what) {
    return SH_FAIL(SH_E_PEER, "rank %d waited %.1f s for rank %d in %s (step %" PRId64 ")",
                   host_of(mail, mail->transport->rank), (double)waited_ns * 1e-9,
                   host_of(mail, message->peer), what, mail->step);
}

static sh_status await(const sh_mail *mail, sh_message *message, const char *what) {
    sh_transport *transport = mail->transport;
    sh_rank_status *board = transport->board;
    int host = host_of(mail, message->peer);
    int64_t begin_ns = sh_clock_now_ns(transport->clock), since_ns = begin_ns, looked_ns = begin_ns;
    int told = 0;
    sh_operation *operation =
        sh_board_begin(board, begin_ns, what, mail->step, -1, host, (int64_t)message->bytes);
    // Relaxed: only reports read it.
    atomic_store_explicit(&board->mail_from, bit_of(host), memory_order_relaxed);
    while (message->state == SH_MESSAGE_PENDING) {
        if (sh_transport_progress(transport)) continue;
        // Once anybody has left, those who live may have stopped to answer, too.
        if (sh_transport_health(transport) != SH_OK) break;
        sh_transport_idle(transport);
        if (mail->timeout_ns <= 0) continue;
        int64_t now_ns = sh_clock_now_ns(transport->clock);
        if (sh_was_stopped(looked_ns, now_ns)) since_ns = now_ns;
        looked_ns = now_ns;
        if (sh_wait_report_is_due(mail->wait_report, now_ns - since_ns, told)) {
            sh_wait_report_tell(mail->wait_report, now_ns - since_ns, bit_of(host), what);
            told++;
        }
        if (now_ns - since_ns <= mail->timeout_ns) continue;
        sh_cancel(transport, message);  // it may lie on the caller's stack
        return fail_late(mail, message, now_ns - since_ns, what);
    }
    if (message->state == SH_MESSAGE_PENDING) sh_cancel(transport, message);
    atomic_store_explicit(&board->mail_from, 0, memory_order_relaxed);
    sh_board_end(board, operation, sh_clock_now_ns(transport->clock));
    return SH_OK;
}

sh_status sh_mail_wait(sh_mail *mail, sh_message *message, const char *what) {
    if (message->state == SH_MESSAGE_PENDING) sh_transport_progress(mail->transport);
    if (message->state == SH_MESSAGE_PENDING) SH_TRY(await(mail, message, what));
    if (message->state == SH_MESSAGE_DONE) return SH_OK;
    SH_TRY(sh_transport_health(mail->transport));
    return SH_FAIL(SH_E_PEER, "%s with rank %d failed: it has left, or sent more than was expected",
                   what, message->peer);
}

sh_status sh_mail_put(sh_mail *mail, int peer, uint64_t tag, const void *data, size_t bytes,
                      const char *what) {
    // A transport reads what it sends, through a pointer that receives have too.
    sh_message message = {
        .peer = peer, .tag = tag, .data = (void *)(uintptr_t)data, .bytes = bytes};
    SH_TRY(sh_mail_send(mail, &message));
    return sh_mail_wait(mail, &message, what);
}

sh_status sh_mail_take(sh_mail *mail, int peer, uint64_t tag, void *data, size_t bytes,
                       const char *what) {
    sh_message message = {.peer = peer, .tag = tag, .data = data, .bytes = bytes};
    SH_TRY(sh_mail_receive(mail, &message));
    SH_TRY(sh_mail_wait(mail, &message, what));
    if (message.bytes == bytes) return SH_OK;
    return SH_FAIL(SH_E_PEER, "%s: rank %d sent %zu bytes where %zu belong", what, peer,
                   message.bytes, bytes);
}
