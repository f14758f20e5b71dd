/* The folder that holds snapshots: names, listing, and what may be removed. */
#ifndef SH_CKPT_FOLDER_H
#define SH_CKPT_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* The files of a snapshot, in the order in which they get their names: the manifest last. */
typedef enum sh_snapshot_part {
    SH_SNAPSHOT_MODEL,
    SH_SNAPSHOT_OPTIMIZER,
    SH_SNAPSHOT_MANIFEST,
    SH_SNAPSHOT_PARTS,
} sh_snapshot_part;

enum { SH_SNAPSHOT_NAME = 64 };  // a file name with its zero

/* "manifest-00001234.json" and its siblings. Returns name_out. */
const char *sh_snapshot_name(sh_snapshot_part part, int64_t step, char name_out[SH_SNAPSHOT_NAME]);

/* True for "model-00001234.safetensors" and its siblings. */
bool sh_snapshot_parse(const char *name, sh_snapshot_part *part_out, int64_t *step_out);

/* Steps that have a manifest, newest first. sh_free the list. */
sh_status sh_snapshots_list(const char *folder, int64_t **steps_out, size_t *count_out);

/* After `step` is complete: removes all but the newest `keep` snapshots up to it (0: keeps all),
 * and temporary files. A file that belongs to no manifest may be the user's own, and stays, as does
 * what cannot be removed. */
void sh_snapshots_prune(const char *folder, int64_t step, int keep);

/* Before a run writes snapshots there, at every `every`-th step and at step `last`. Refuses a
 * folder that is a link, which snapshots would be written and removed through; and, if the run is
 * `fresh`, one with files that it would write over though no manifest says that they are a run's. A
 * folder that is not there yet is fine. */
sh_status sh_snapshots_check(const char *folder, int64_t every, int64_t last, bool fresh);

/* Removes every snapshot: the run that wrote them is to be started afresh. */
sh_status sh_snapshots_remove_all(const char *folder);

#endif
