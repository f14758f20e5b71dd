/* A snapshot's manifest: what checkpoint.h promises, as JSON with a checksum of its own. */
#ifndef SH_CKPT_MANIFEST_H
#define SH_CKPT_MANIFEST_H

#include "base/hash.h"
#include "ckpt/checkpoint.h"

enum { SH_MANIFEST_NAME = 64 };

typedef struct sh_manifest_file {
    char name[SH_MANIFEST_NAME];  // beside the manifest; empty: there is no such file
    int64_t bytes;
    char checksum[SH_BLAKE2_HEX];
} sh_manifest_file;

typedef struct sh_manifest {
    sh_checkpoint_info info;
    sh_manifest_file model, optimizer;
} sh_manifest;

sh_status sh_manifest_write(const char *path, const sh_manifest *manifest);
/* Caller finishes manifest->info. */
sh_status sh_manifest_read(const char *path, sh_manifest *manifest_out);
sh_status sh_manifest_parse(const char *source, const char *text, size_t bytes,
                            sh_manifest *manifest_out);

#endif
