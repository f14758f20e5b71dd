/* The codecs: one file and one row each; fp16 and bf16 are rows of half.c. */
#ifndef SH_CODEC_LIST_H
#define SH_CODEC_LIST_H

#include "codec/codec.h"

#define SH_CODEC_LIST(X) \
    X(fp16)              \
    X(bf16)              \
    X(int8)              \
    X(qsgd)              \
    X(terngrad)          \
    X(onebit)            \
    X(topk)              \
    X(randk)             \
    X(dgc)               \
    X(powersgd)

#define X(name) extern const sh_codec_kind sh_codec_##name;
SH_CODEC_LIST(X)
#undef X

#endif
