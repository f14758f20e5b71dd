/* Messages between a federated server and its clients. docs/federated-protocol.md describes every
 * byte; this is the only code that reads and writes them.
 *
 * A message is a header of 12 bytes (magic "SFED", version, kind, length of the body) and a body of
 * exactly that length. Anything else is refused with SH_E_FORMAT. */
#ifndef SH_FED_MESSAGE_H
#define SH_FED_MESSAGE_H

#include "fed/bytes.h"

enum {
    SH_FED_VERSION = 1,
    SH_FED_HASH = 32,     // bytes of a SHA-256
    SH_FED_REASON = 200,  // characters of a reason, with the final zero
    SH_FED_HEADER = 12,   // bytes before the body
    SH_FED_VECTORS_MOST = 2,
};

typedef enum sh_fed_kind {
    SH_FED_TASK = 1,  // server to client: what to do next
    SH_FED_UPDATE,    // client to server: what training changed
    SH_FED_RECEIPT,   // server to client: what became of an update
} sh_fed_kind;

typedef enum sh_fed_action {
    SH_FED_WAIT,   // ask again after wait_ms
    SH_FED_TRAIN,  // train `model` and send the update of this round
    SH_FED_OVER,   // the training has ended
    SH_FED_ACTIONS,
} sh_fed_action;

typedef struct sh_fed_task {
    sh_fed_action action;
    uint64_t round;    // the round that is open, or comes next; from 1
    uint32_t attempt;  // of that round; rises when a round begins again
    uint64_t counted;  // the last round that this client's update went into; 0: none
    uint32_t wait_ms;
    unsigned char model[SH_FED_HASH];  // what to train, or the newest model
    double proximal;                   // strength of the pull to `model` (fedprox); 0: none
    uint32_t vectors;                  // in an update: 2 with control variates (scaffold), else 1
    bool holds;                        // this client's update is in the sum of the open round
    bool takes_late;                   // updates of closed rounds are still taken
} sh_fed_task;

typedef struct sh_fed_update {
    uint64_t round;
    uint32_t attempt;
    unsigned char model[SH_FED_HASH];  // what was trained
    uint64_t samples;                  // that were trained on; the weight
    double steps;     // optimizer steps, as fednova counts them (momentum makes them more)
    double loss;      // mean training loss
    double accuracy;  // of `model` on the client's held-out data; NaN: unknown
    uint32_t vectors;
    uint64_t count;       // elements of a vector
    const float *values;  // (vectors, count); where a message was read: not aligned
} sh_fed_update;

typedef enum sh_fed_verdict {
    SH_FED_COUNTED,    // it is in the sum of the open round
    SH_FED_DUPLICATE,  // it was there already
    SH_FED_NOT_NOW,    // it is not taken at the moment: the next task says what to do with it
    SH_FED_LATE,       // its round is closed, and it will never be taken
    SH_FED_REFUSED,    // it is faulty: `reason` says why
    SH_FED_VERDICTS,
} sh_fed_verdict;

typedef struct sh_fed_receipt {
    sh_fed_verdict verdict;
    uint64_t round;
    uint32_t attempt;
    char reason[SH_FED_REASON];
} sh_fed_receipt;

/* Append a whole message; writer->failed tells of missing memory. */
void sh_fed_write_task(sh_fed_writer *writer, const sh_fed_task *task);
void sh_fed_write_update(sh_fed_writer *writer, const sh_fed_update *update);
void sh_fed_write_receipt(sh_fed_writer *writer, const sh_fed_receipt *receipt);

/* Read a message of exactly `bytes`. An update's values are copied to `values_out`, which has room
 * for `room` floats; more, or other than vectors * count, is refused. */
sh_status sh_fed_read_task(const void *data, size_t bytes, sh_fed_task *task_out);
sh_status sh_fed_read_update(const void *data, size_t bytes, float *values_out, size_t room,
                             sh_fed_update *update_out);
sh_status sh_fed_read_receipt(const void *data, size_t bytes, sh_fed_receipt *receipt_out);

/* Bytes of an update message with so many values. */
size_t sh_fed_update_bytes(size_t values);

#endif
