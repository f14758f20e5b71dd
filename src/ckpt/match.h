/* A file's tensors against the blocks they are to fill: every range must have its tensor of the
 * same name and shape, every tensor its range. Copying comes last, so a misfit changes nothing. */
#ifndef SH_CKPT_MATCH_H
#define SH_CKPT_MATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt/safetensors.h"
#include "nn/param.h"

/* A tensor of the file and the range that it will fill. */
typedef struct sh_match_pair {
    const sh_tensor_entry *entry;
    float *values;
    size_t count;  // floats
} sh_match_pair;

typedef struct sh_match {
    const char *source;  // the file's name, for messages
    const sh_safetensors *tensors;
    sh_match_pair *pairs;
    size_t count, capacity;
} sh_match;

/* Pairs every range of `list` (NULL: none) with its tensor, called NAME or NAME.SLOT. */
sh_status sh_match_list(sh_match *match, const sh_param_list *list, const char *slot,
                        float *values);
/* Whether sh_match_list would find all of them. */
bool sh_match_has(const sh_match *match, const sh_param_list *list, const char *slot);
/* Fails when a tensor paired so far holds a NaN or an infinity. */
sh_status sh_match_check_finite(const sh_match *match);
/* Fails when a tensor is left over. PyTorch's count of batches in a batchnorm may be, and tensors
 * of the slots `left_out` (up to a NULL; NULL: none): bit i of `found_out` tells of left_out[i]. */
sh_status sh_match_end(const sh_match *match, const char *const *left_out, uint32_t *found_out);
void sh_match_copy(const sh_match *match);
void sh_match_fini(sh_match *match);

#endif
