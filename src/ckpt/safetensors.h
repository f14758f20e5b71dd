/* The safetensors format (https://github.com/huggingface/safetensors): an 8-byte little-endian
 * length, that many bytes of JSON, and the tensors' bytes one after another without gaps.
 *
 * Writing gives the same bytes for the same content and replaces the file as a whole. Reading maps
 * the file and believes nothing: what it returns lies inside the file, fits its shape and covers
 * the data exactly once. */
#ifndef SH_CKPT_SAFETENSORS_H
#define SH_CKPT_SAFETENSORS_H

#include <stddef.h>

#include "base/file.h"
#include "base/status.h"
#include "tensor/shape.h"

typedef enum sh_tensor_type {
    SH_TENSOR_BOOL,
    SH_TENSOR_U8,
    SH_TENSOR_I8,
    SH_TENSOR_F8_E5M2,
    SH_TENSOR_F8_E4M3,
    SH_TENSOR_I16,
    SH_TENSOR_U16,
    SH_TENSOR_F16,
    SH_TENSOR_BF16,
    SH_TENSOR_I32,
    SH_TENSOR_U32,
    SH_TENSOR_F32,
    SH_TENSOR_F64,
    SH_TENSOR_I64,
    SH_TENSOR_U64,
} sh_tensor_type;

const char *sh_tensor_type_name(sh_tensor_type type);  // "F32"
size_t sh_tensor_type_bytes(sh_tensor_type type);      // of one element

typedef struct sh_tensor_entry {
    const char *name;
    sh_tensor_type type;
    sh_shape shape;
    const void *data;  // after reading: perhaps unaligned, so copy it out
    size_t bytes;      // set by reading, ignored by writing
} sh_tensor_entry;

/* A text of "__metadata__". */
typedef struct sh_tensor_note {
    const char *key, *value;
} sh_tensor_note;

/* Writes the tensors in the given order. Names must be distinct UTF-8 and not "__metadata__". */
sh_status sh_safetensors_write(const char *path, const sh_tensor_entry *entries, size_t count,
                               const sh_tensor_note *notes, size_t note_count);

typedef struct sh_safetensors {
    sh_tensor_entry *entries;  // in the order of their data; names and data borrowed from here
    size_t count;
    sh_tensor_note *notes;  // the file's "__metadata__"
    size_t note_count;
    sh_mapped file;  // empty when parsed from memory
    void *header;    // the JSON that owns names and notes
} sh_safetensors;

/* Caller closes. At most six dimensions a tensor, 16 MiB of header. */
sh_status sh_safetensors_open(const char *path, sh_safetensors *tensors_out);
/* The same from memory, which must outlive the result. `source` names it in messages. */
sh_status sh_safetensors_parse(const char *source, const void *data, size_t bytes,
                               sh_safetensors *tensors_out);
void sh_safetensors_close(sh_safetensors *tensors);

const sh_tensor_entry *sh_safetensors_find(const sh_safetensors *tensors, const char *name);
/* The value of a note, NULL when there is none. */
const char *sh_safetensors_note(const sh_safetensors *tensors, const char *key);

#endif
