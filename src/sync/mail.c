#include "sync/mail.h"

sh_status sh_mail_send(sh_mail *mail, sh_message *message) {
    message->tag |= SH_MAIL_TAG;
    mail->sent_bytes += message->bytes;
    return sh_send(mail->transport, message);
}

sh_status sh_mail_receive(sh_mail *mail, sh_message *message) {
    message->tag |= SH_MAIL_TAG;
    return sh_receive(mail->transport, message);
}

bool sh_mail_test(sh_mail *mail, const sh_message *message) {
    if (message->state == SH_MESSAGE_PENDING) sh_transport_progress(mail->transport);
    return message->state != SH_MESSAGE_PENDING;
}

static uint64_t bit_of(const sh_mail *mail, int peer) {
    int host = peer >= 0 ? sh_mail_host(mail, peer) : SH_BOARD_WAITS;
    return host < SH_BOARD_WAITS ? UINT64_C(1) << host : 0;
}

static void await(sh_mail *mail, sh_message *message, const char *what) {
    sh_transport *transport = mail->transport;
    sh_board_rank *board = transport->board;
    int64_t bytes = (int64_t)message->bytes;
    sh_operation *operation = sh_board_begin(board, sh_clock_now_ns(transport->clock), what,
                                             mail->step, -1, message->peer, bytes);
    // Relaxed: only reports read it.
    atomic_store_explicit(&board->waits_for, bit_of(mail, message->peer), memory_order_relaxed);
    // Once anybody has left, those who live may have stopped to answer, too.
    while (message->state == SH_MESSAGE_PENDING) {
        if (sh_transport_progress(transport)) continue;
        if (sh_transport_health(transport) != SH_OK) break;
        sh_transport_idle(transport);
    }
    if (message->state == SH_MESSAGE_PENDING) sh_cancel(transport, message);
    atomic_store_explicit(&board->waits_for, 0, memory_order_relaxed);
    sh_board_end(board, operation, sh_clock_now_ns(transport->clock));
}

sh_status sh_mail_wait(sh_mail *mail, sh_message *message, const char *what) {
    if (message->state == SH_MESSAGE_PENDING) sh_transport_progress(mail->transport);
    if (message->state == SH_MESSAGE_PENDING) await(mail, message, what);
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
