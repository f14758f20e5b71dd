/* Data in parts, one for each worker: their names, and what they must agree on to be one data set.
 * A worker opens its own part and learns the rest as numbers from its team. A process alone that
 * looks at the run of several workers (to evaluate, to explain) opens all parts, joined. */
#ifndef SH_DATA_PARTS_H
#define SH_DATA_PARTS_H

#include "data/reader.h"

/* Whether a name holds %r. */
bool sh_part_named(const char *name);
/* The name of a rank's part: %r becomes the rank, %% a percent sign, any other % is an error that
 * names `key`. sh_free it. */
sh_status sh_part_name(const char *key, const char *name, int rank, char **name_out);

/* As sh_source_open for a name in the run file; read->path and read->labels may hold %r. In a team
 * it is collective where the path does. */
sh_status sh_parts_open(const sh_read *read, const char *key, bool *has_parts_out,
                        sh_source **source_out);
/* Whether the source is this worker's part of a team's data. */
bool sh_source_is_part(const sh_source *source, const sh_data_team *team);

/* Collective: fills `parts` of those datasets that hold a part (the others are NULL). sh_free the
 * sizes when the datasets are gone. */
sh_status sh_parts_exchange_sizes(const sh_data_team *team, sh_dataset *const datasets[],
                                  size_t count, size_t **sizes_out);
/* Collective: one fingerprint made of those of all ranks, in their order. */
sh_status sh_parts_fingerprint(const sh_data_team *team, uint64_t *fingerprint_inout);

#endif
