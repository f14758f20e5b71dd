/* Mail: the messages of a scheme (sync/sync.h), from one endpoint, in one task. Waiting is noted on
 * the board, so that a report of a hanging run says who waits for whom, and for what; it ends with
 * SH_E_PEER once the peer has left. Tags are the scheme's alone, below 2^39: no engine uses the
 * endpoints. */
#ifndef SH_SYNC_MAIL_H
#define SH_SYNC_MAIL_H

#include "comm/watchdog.h"
#include "comm/transport.h"

typedef struct sh_mail {
    sh_transport *transport;  // NULL: the scheme has no mail
    int workers;              // endpoints 0 .. workers - 1; services are behind them
    bool apart;               // services have ranks of their own, behind those of the workers
    int64_t step;             // for the board
    int64_t timeout_ns;       // a longer wait fails and says for whom it was; 0: somebody else
                              // watches over it
    const sh_wait_report *wait_report;  // of waits with a timeout; borrowed; NULL: nothing is said
    uint64_t sent_bytes;
} sh_mail;

/* The rank on which an endpoint sits. */
static inline int sh_mail_host(int endpoint, int workers, bool apart) {
    return endpoint < workers || apart ? endpoint : (endpoint - workers) % workers;
}

/* Start; the message is the caller's until it is done. */
sh_status sh_mail_send(sh_mail *mail, sh_message *message);
sh_status sh_mail_receive(sh_mail *mail, sh_message *message);
/* Makes progress; true once the message is done or has failed: its state tells. */
bool sh_mail_test(sh_mail *mail, const sh_message *message);
/* `what` the caller waits for, in a word or two: "pull", "average". */
sh_status sh_mail_wait(sh_mail *mail, sh_message *message, const char *what);
/* Send and wait. `data` NULL: a size without contents. */
sh_status sh_mail_put(sh_mail *mail, int peer, uint64_t tag, const void *data, size_t bytes,
                      const char *what);
/* Receive and wait; exactly `bytes`, or it fails. */
sh_status sh_mail_take(sh_mail *mail, int peer, uint64_t tag, void *data, size_t bytes,
                       const char *what);

#endif
