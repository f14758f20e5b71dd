/* Scalars as TensorBoard reads them: an event file is a row of records, each a length, its
 * checksum, a protocol-buffer message `Event`, its checksum. Records are written whole, so a reader
 * may follow the file, and a killed run leaves complete ones. One task at a time. */
#ifndef SH_OBS_TENSORBOARD_H
#define SH_OBS_TENSORBOARD_H

#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"

typedef struct sh_tensorboard sh_tensorboard;

/* Begins a file `folder`/events.out.tfevents.SECONDS.shoal; `unix_ns` is the time of day now. A
 * resumed run begins another one, as TensorBoard expects. Keeps `clock`. Caller closes. */
sh_status sh_tensorboard_open(const char *folder, const sh_clock *clock, int64_t unix_ns,
                              sh_tensorboard **board_out);
void sh_tensorboard_close(sh_tensorboard *board);  // NULL is welcome

/* One value of the line `tag`; what is not finite is written as it is. */
sh_status sh_tensorboard_scalar(sh_tensorboard *board, const char *tag, int64_t step, double value);

#endif
