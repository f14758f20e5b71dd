/* A snapshot's manifest: what checkpoint.h promises, as JSON with a checksum of its own. It says of
 * every file how long it is and what its checksum is, and names the checksum of every tensor, so
 * that damage can be told by tensor. */
#ifndef SH_CKPT_MANIFEST_H
#define SH_CKPT_MANIFEST_H

#include "base/hash.h"
#include "ckpt/checkpoint.h"

enum {
    SH_MANIFEST_NAME = 64,                    // a file name with its zero
    SH_MANIFEST_TENSOR = SH_PARAM_NAME + 64,  // NAME.SLOT
    SH_MANIFEST_DIGEST = 33,                  // 32 hexadecimal digits: tells tensors apart, no more
};

typedef struct sh_manifest_tensor {
    char name[SH_MANIFEST_TENSOR];
    char digest[SH_MANIFEST_DIGEST];  // how the BLAKE2b of its bytes begins
} sh_manifest_tensor;

typedef struct sh_manifest_file {
    char name[SH_MANIFEST_NAME];  // beside the manifest; empty: there is no such file
    int64_t bytes;
    char checksum[SH_BLAKE2_HEX];
    sh_manifest_tensor *tensors;  // NULL: the manifest is older than this part of it
    size_t tensor_count;
} sh_manifest_file;

typedef struct sh_manifest {
    sh_checkpoint_info info;
    sh_manifest_file model, optimizer;  // optimizer.name is empty without slots
} sh_manifest;

/* What a manifest says of the safetensors file at `path`, which will be called `name`. Caller
 * finishes it. */
sh_status sh_manifest_describe(const char *path, const char *name, sh_manifest_file *file_out);
/* Fails where the file at `path` is not what the manifest says; names the tensors that differ. */
sh_status sh_manifest_check(const char *path, const sh_manifest_file *file);
void sh_manifest_file_fini(sh_manifest_file *file);
/* The texts of its info too. */
void sh_manifest_fini(sh_manifest *manifest);

sh_status sh_manifest_write(const char *path, const sh_manifest *manifest);
/* Caller finishes the manifest. */
sh_status sh_manifest_read(const char *path, sh_manifest *manifest_out);
sh_status sh_manifest_parse(const char *source, const char *text, size_t bytes,
                            sh_manifest *manifest_out);

#endif
