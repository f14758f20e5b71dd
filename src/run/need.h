/* Arguments of the public functions: a NULL that the header does not allow is the caller's mistake,
 * which the function refuses by the argument's name; and structs of callers, which may have been
 * compiled with another version of the header. */
#ifndef SH_RUN_NEED_H
#define SH_RUN_NEED_H

#include "base/status.h"
#include "shoal/shoal.h"

/* SH_TRY for the public functions, whose codes are the internal ones under another name. */
#define SHOAL_TRY(expression)                               \
    do {                                                    \
        sh_status status_ = (sh_status)(expression);        \
        if (status_ != SH_OK) return (shoal_status)status_; \
    } while (0)

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

/* Declares `name`, a whole struct of `type`, from the caller's `from` (NULL: all zero). */
#define SHOAL_TAKE(type, name, from) \
    type name;                       \
    SHOAL_TRY(sh_struct_take((from), &name, sizeof name, #type))

/* Copies the caller's struct, whose first member is its size, to `to` of `bytes`: members that the
 * caller does not know are 0, and members that this library does not know must be. */
sh_status sh_struct_take(const void *from, void *to, size_t bytes, const char *type);
/* Refuses a struct for results whose size was not set. */
sh_status sh_struct_check(const void *out, const char *type);
/* The way back: fills as much of the caller's checked struct as it has room for. */
void sh_struct_give(const void *from, size_t bytes, void *out);

#endif
