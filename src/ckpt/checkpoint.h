/* Checkpoints. A snapshot at step S is up to three files in one folder:
 *
 *   model-S.safetensors      parameters and untrained state, plain layout, names like PyTorch's
 *   optimizer-S.safetensors  the optimizer's slots, named PARAMETER.SLOT; absent without slots
 *   manifest-S.json          everything else, and the size and checksum of the other two
 *
 * The manifest is written last: a snapshot exists only if its manifest does and the checksums hold.
 * Equal content gives equal bytes. Nothing depends on the number of workers, but for what a codec
 * keeps: a single worker has none. */
#ifndef SH_CKPT_CHECKPOINT_H
#define SH_CKPT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "base/status.h"
#include "nn/param.h"

/* What a run needs beside its blocks. Random numbers are a function of seed and step, so the seed
 * is their whole state. Texts may be NULL. */
typedef struct sh_checkpoint_info {
    int64_t step;      // finished steps
    int64_t epoch;     // epoch in progress, from 0
    int64_t batch;     // finished batches of that epoch
    int64_t samples;   // seen so far
    int64_t of_batch;  // samples of a global batch, which batches are counted in; 0: unknown
    uint64_t seed;
    double best;      // best metric so far, NAN: none
    int64_t workers;  // whose residuals the slots hold; 0: none
    char *data;       // fingerprint of the training data
    char *model;      // the model as YAML; also a note in the model file
    char *kernels;    // kernel choices, opaque
    char *facts;      // of the training data, opaque; a note in the model file alone
} sh_checkpoint_info;

/* Frees the texts of an info that was read. */
void sh_checkpoint_info_fini(sh_checkpoint_info *info);

/* A block of run state beside the weights: an optimizer's slot or a codec's residual. */
typedef struct sh_checkpoint_slot {
    const char *name;             // "momentum", "residual"
    float *values;                // a whole block, (params->total)
    const sh_param_list *params;  // NULL: the model's
    bool optional;                // stays as it is where a file has none, or one of other shapes
    const char *instead;          // and so it does where the file has this slot; NULL: none
} sh_checkpoint_slot;

/* Everything is borrowed, except the texts of `info` after a load. */
typedef struct sh_checkpoint {
    const sh_param_list *params;
    float *weights;              // (params->total)
    const sh_param_list *state;  // NULL or empty: none
    float *state_values;         // (state->total)
    const sh_checkpoint_slot *slots;
    size_t slot_count;
    const char *const *left_out;  // slots that a file may have beside these, up to a NULL; or NULL
    sh_checkpoint_info info;      // position of the run; its texts are the caller's after a load
} sh_checkpoint;

/* Layout of a slot: its own, or that of the model's parameters. */
static inline const sh_param_list *sh_checkpoint_slot_params(const sh_checkpoint *checkpoint,
                                                             size_t slot) {
    const sh_param_list *own = checkpoint->slots[slot].params;
    return own != NULL ? own : checkpoint->params;
}

/* Writes a snapshot, then removes all but the newest `keep` (0: keeps all) up to this step, and
 * temporary files that dead writers left behind. When it fails, those that were there are
 * untouched. One writer per folder at a time. */
sh_status sh_checkpoint_save(const char *folder, const sh_checkpoint *checkpoint, int keep);

/* Parameters, state, the model's text and the facts alone, as one file. */
sh_status sh_checkpoint_save_model(const char *path, const sh_checkpoint *checkpoint);

/* The manifest to go on from. `path` is a run's folder, its checkpoints folder or a manifest. In a
 * folder, the newest whole snapshot is taken, and damaged ones are skipped with a warning; a
 * damaged manifest that was named itself is an error. Caller frees `manifest_out` with sh_free and,
 * unless NULL, finishes `info_out`. */
sh_status sh_checkpoint_find(const char *path, const sh_log *log, char **manifest_out,
                             sh_checkpoint_info *info_out);

/* The same of a folder, among the snapshots up to a step. */
sh_status sh_checkpoint_find_before(const char *folder, int64_t step, const sh_log *log,
                                    char **manifest_out);

/* Finds a snapshot as above and fills the blocks and `into->info` (caller finishes it). Every name
 * and shape is compared with the model first; nothing is written unless all fit. A warning names
 * the slots that start anew and those that were left out. */
sh_status sh_checkpoint_load(const char *path, const sh_log *log, sh_checkpoint *into);

/* Parameters and state alone, for evaluation, prediction and fine-tuning: from a model file of
 * Shoal's or PyTorch's making, or from anything that sh_checkpoint_find takes. A file that is not
 * what the manifest beside it says is refused. */
sh_status sh_checkpoint_load_model(const char *path, const sh_log *log, const sh_param_list *params,
                                   float *weights, const sh_param_list *state, float *state_values);

/* The model's YAML that a model file (or a snapshot) carries. sh_free it. */
sh_status sh_checkpoint_model_text(const char *path, const sh_log *log, char **text_out);
/* The facts of its training data, and the name of the model file; NULL both where it has none, as
 * older ones and those of other programs. sh_free them. */
sh_status sh_checkpoint_facts_text(const char *path, const sh_log *log, char **text_out,
                                   char **file_out);

#endif
