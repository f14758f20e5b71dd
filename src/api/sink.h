/* What the functions of this folder hand to the caller: text through a FILE whose content goes to
 * a shoal_sink, and lines of the log through shoal_hooks. */
#ifndef SH_API_SINK_H
#define SH_API_SINK_H

#include <stdio.h>

#include "base/log.h"
#include "run/need.h"

/* Opens a FILE that writes to the sink, in buffered pieces. Borrows the sink until sh_sink_close.
 */
sh_status sh_sink_open(const shoal_sink *sink, FILE **file_out);
/* Hands over what is still buffered and closes the FILE. `status` is that of what was written: it
 * is returned unless all went well and the sink has failed, which is SHOAL_E_IO. */
shoal_status sh_sink_close(FILE *file, sh_status status);

/* A log whose lines go to hooks->line, where there is one. Borrows the hooks. */
sh_log sh_log_to_hooks(const shoal_hooks *hooks);

/* Refuses a NULL sink, or one without a function, by the argument's name. */
#define SHOAL_NEED_SINK(sink) \
    SHOAL_NEED(sink);         \
    SHOAL_NEED((sink)->write)

#endif
