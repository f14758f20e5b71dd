/* Arguments of the public functions: a NULL that shoal.h does not allow is the caller's mistake,
 * which the function refuses by the argument's name. */
#ifndef SH_RUN_NEED_H
#define SH_RUN_NEED_H

#include "base/status.h"
#include "shoal/shoal.h"

#define SHOAL_NEED(argument)                                                                   \
    do {                                                                                       \
        if ((argument) == NULL)                                                                \
            return (shoal_status)SH_FAIL(SH_E_USAGE, "%s: '%s' is NULL", __func__, #argument); \
    } while (0)

/* For functions that return no status. */
#define SHOAL_NEED_OR(argument, result)                                         \
    do {                                                                        \
        if ((argument) == NULL) {                                               \
            (void)SH_FAIL(SH_E_USAGE, "%s: '%s' is NULL", __func__, #argument); \
            return result;                                                      \
        }                                                                       \
    } while (0)

#endif
