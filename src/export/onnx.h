/* An ONNX graph under way: what the rows of layers add nodes to. Values and constants have names;
 * layer i's value is "L<i>" ("input" and "output" at the ends). */
#ifndef SH_EXPORT_ONNX_H
#define SH_EXPORT_ONNX_H

#include "base/protobuf.h"
#include "export/export.h"

enum { SH_ONNX_NAME = 112 };  // a value's name with its zero

typedef struct sh_onnx {
    const sh_trained *trained;
    sh_proto graph;  // its `failed` tells that memory ran out
    sh_proto node;   // the node between sh_onnx_begin and sh_onnx_end
    sh_proto part;   // the attribute or tensor being written
    int made;        // names that sh_onnx_fresh has given
} sh_onnx;

/* A node: begin, attributes in any number, end. Inputs and outputs are lists of names that end in
 * NULL; an empty name is an input that is left out. */
void sh_onnx_begin(sh_onnx *onnx, const char *type, const char *const *inputs,
                   const char *const *outputs);
void sh_onnx_int(sh_onnx *onnx, const char *attribute, int64_t value);
void sh_onnx_float(sh_onnx *onnx, const char *attribute, double value);
void sh_onnx_ints(sh_onnx *onnx, const char *attribute, const int64_t *values, size_t count);
void sh_onnx_end(sh_onnx *onnx);
/* A node without attributes. */
void sh_onnx_node(sh_onnx *onnx, const char *type, const char *const *inputs,
                  const char *const *outputs);

/* Constants. Shape of rank 0: a single number. */
void sh_onnx_floats(sh_onnx *onnx, const char *name, const sh_shape *shape, const float *values);
void sh_onnx_numbers(sh_onnx *onnx, const char *name, const int64_t *values, size_t count);
/* A name nobody has: "t0", "t1", ... Returns name_out. */
const char *sh_onnx_fresh(sh_onnx *onnx, char name_out[SH_ONNX_NAME]);

/* How a layer is said in standard operators. NULL: it is its input. */
typedef struct sh_onnx_row {
    const sh_layer_kind *kind;
    void (*add)(sh_onnx *onnx, const sh_layer *layer, const char *const *x, const char *y);
} sh_onnx_row;

const sh_onnx_row *sh_onnx_row_of(const sh_layer_kind *kind);  // NULL: cannot leave

#endif
