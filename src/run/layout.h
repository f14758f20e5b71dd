/* The layout of a run: which dimensions its workers form a mesh along, and what goes with it. */
#ifndef SH_RUN_LAYOUT_H
#define SH_RUN_LAYOUT_H

#include "parallel/mesh.h"
#include "run/config.h"

/* The rows of sh_pipe_options. */
extern const sh_option_table sh_pipe_table;

/* The mesh that the config asks for. `workers` as in sh_mesh_parse. */
sh_status sh_config_mesh(const sh_config *config, int64_t workers, sh_mesh_shape *shape_out);
/* Its workers have different layers; false where the layout is not valid. */
bool sh_config_pipes(const sh_config *config);
/* One model is on several workers, as layers, parts of layers or parts of images. */
bool sh_config_splits(const sh_config *config);
/* Its workers send mail: they need a transport for it. */
bool sh_config_mails(const sh_config *config);
/* Micro-batches of a whole batch, for so many stages. */
int64_t sh_config_micros(const sh_config *config, int stages);
/* Refuses layouts that are not valid, do not fit the workers, or do not go with the rest. */
sh_status sh_layout_check(const sh_config *config);
/* Workers of the run: as many as it says, or, where it says nothing, as its layout needs. */
sh_status sh_layout_workers(const sh_config *config, int64_t *workers_out);

#endif
