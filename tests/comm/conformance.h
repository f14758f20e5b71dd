/* What every transport promises, as bodies that all ranks run together. A body returns a status
 * with an error record and never asserts, so it runs in threads, in forked processes and under
 * mpirun alike. Bodies leave no message behind and end together; they may run one after another
 * over one transport. */
#ifndef SH_TESTS_COMM_CONFORMANCE_H
#define SH_TESTS_COMM_CONFORMANCE_H

#include "comm/transport.h"

typedef struct conformance_case {
    const char *name;
    sh_status (*body)(sh_transport *transport, void *argument);  // the argument is unused
    bool heavy;  // much data between the first two ranks: once is enough
} conformance_case;

/* Ends with a row without a name. They need 2 ranks or more. */
extern const conformance_case conformance_cases[];

/* The last rank calls die(die_argument) after it has sent one message to each peer. All others get
 * that message, then see their pending messages fail and health name the rank. `die` may return:
 * then the body returns SH_E_INTERRUPTED, and whoever runs it must tell the others. */
typedef struct conformance_death {
    void (*die)(void *argument);
    void *argument;
} conformance_death;
sh_status conformance_dies(sh_transport *transport, void *death);

#endif
