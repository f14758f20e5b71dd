/* Views: datasets over a part of a source. Splits, normalisation and the fast `get`. */
#ifndef SH_DATA_VIEW_H
#define SH_DATA_VIEW_H

#include "data/source.h"

/* Samples first .. first+count-1, or those listed in `index` (kept, freed by the view; NULL: a
 * range). For tokens the range counts tokens, and there are count - T windows. Holds the source. */
sh_status sh_view_create(sh_source *source, size_t first, size_t count, uint32_t *index,
                         sh_dataset **dataset_out);

/* Mean and deviation of what the view holds: per channel for images, per feature for vectors.
 * `how` is "auto", "unit" (bytes to 0..1, else as auto by least and most) or "none". With a team,
 * of what the views of all ranks hold. A
 * mean taken off sparse rows would fill them: "auto" leaves these as they are, "unit" is refused.
 */
sh_status sh_view_measure(const sh_dataset *dataset, const char *how, const sh_data_team *team,
                          sh_normal *normal_out);
/* Copies the normalisation in. Fails when its size fits neither channels nor features. */
sh_status sh_view_normalise(sh_dataset *dataset, const sh_normal *normal);

/* A hash of the sizes and of evenly spaced samples. */
uint64_t sh_view_fingerprint(const sh_dataset *dataset);
/* A hash of the sizes and of every cell, label and value: reads all of it. */
uint64_t sh_view_checksum(const sh_dataset *dataset);

const sh_source *sh_view_source(const sh_dataset *dataset);
/* The stored sample behind sample `index` of the view. */
size_t sh_view_at(const sh_dataset *dataset, size_t index);

#endif
