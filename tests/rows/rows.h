/* Rows that only a test has, each in a file of its own: what a new part must be able to do. */
#ifndef SH_TESTS_ROWS_H
#define SH_TESTS_ROWS_H

#include "codec/codec.h"
#include "optim/optim.h"
#include "sync/sync.h"

extern const sh_codec_kind row_signum;
extern const sh_optim_kind row_lion;
extern const sh_sync_kind row_drift;

#endif
