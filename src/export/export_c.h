/* C source under way: what the rows of layers print into. */
#ifndef SH_EXPORT_EXPORT_C_H
#define SH_EXPORT_EXPORT_C_H

#include <stdio.h>

#include "export/export.h"

enum { SH_C_NAME = 64 };  // an identifier with its zero

typedef struct sh_c_source {
    const sh_trained *trained;
    FILE *file;
    const char *name;  // prefix of every identifier that the source defines
    size_t *place;     // (layers + 1) first float of a value in the working memory; the last: input
    size_t memory_count;    // floats of working memory
    size_t constant_bytes;  // printed so far
} sh_c_source;

/* A layer that can be written as C: `helper` is the function that computes it, printed once, and
 * `call` prints one call of it. */
typedef struct sh_c_row {
    const sh_layer_kind *kind;  // rows are found by it
    const char *helper;         // C text of the function; NULL: none is needed
    bool libm;                  // the helper calls functions of <math.h>
    /* Constants of the layer that are not parameters of the net; NULL: none. */
    void (*constants)(sh_c_source *source, const sh_layer *layer);
    /* x: the inputs' expressions, y: the output's. NULL: nothing to compute. */
    void (*call)(sh_c_source *source, const sh_layer *layer, const char *const *x, const char *y);
} sh_c_row;

/* NULL: a layer of this kind cannot leave. */
const sh_c_row *sh_c_row_of(const sh_layer_kind *kind);

/* A parameter's name as an identifier: "fc1_weight". Returns name_out. */
const char *sh_c_param_name(const sh_c_source *source, const sh_layer *layer, int param,
                            char name_out[SH_C_NAME]);
/* static const float NAME[COUNT] = {...}; to the bit. */
void sh_c_constant(sh_c_source *source, const char *name, const float *values, size_t count);

#endif
