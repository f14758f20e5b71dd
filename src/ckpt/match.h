/* A file's tensors against the blocks they are to fill: every range must have its tensor of the
 * same name and shape, every tensor its range. Copying comes last, so a misfit changes nothing. */
#ifndef SH_CKPT_MATCH_H
#define SH_CKPT_MATCH_H

#include "ckpt/safetensors.h"
#include "nn/param.h"

typedef struct sh_match_pair {
    const sh_tensor_entry *entry;
    float *values;
    size_t count;
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
/* Fails when a tensor is left over. PyTorch's count of batches in a batchnorm may be. */
sh_status sh_match_end(const sh_match *match);
void sh_match_copy(const sh_match *match);
void sh_match_fini(sh_match *match);

#endif
