/* Text for the caller of a public function: a FILE whose content goes to a sink. */
#ifndef SH_API_SINK_H
#define SH_API_SINK_H

#include <stdio.h>

#include "base/log.h"
#include "run/need.h"

/* Borrows the sink until the close. */
sh_status sh_sink_open(const shoal_sink *sink, FILE **file_out);
/* Hands over what is still in the file. `status`: of what was written to it, and returned unless
 * the sink has failed where all else went well. */
shoal_status sh_sink_close(FILE *file, sh_status status);

/* A log whose lines go to the caller. */
sh_log sh_log_to_hooks(const shoal_hooks *hooks);

/* Refuses what is no sink, by the argument's name. */
#define SHOAL_NEED_SINK(sink) \
    SHOAL_NEED(sink);         \
    SHOAL_NEED((sink)->write)

#endif
