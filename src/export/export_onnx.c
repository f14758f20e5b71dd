/* A net as an ONNX model (github.com/onnx/onnx, onnx.proto): a graph of standard operators, the
 * parameters as its constants. The batch is a free dimension, "N". Field numbers are those of the
 * format's definition. */
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "export/onnx.h"

enum {
    IR_VERSION = 8,  // of the format, as operator set 17 came with it
    OPERATORS = 17,  // the first set with LayerNormalization
    TYPE_FLOAT = 1,  // TensorProto.DataType
    TYPE_INT32 = 6,
    TYPE_INT64 = 7,
    ATTRIBUTE_FLOAT = 1,  // AttributeProto.AttributeType
    ATTRIBUTE_INT = 2,
    ATTRIBUTE_INTS = 7,
};

/* ---- nodes ---- */

/* NodeProto: input 1, output 2, name 3, op_type 4. The node is named after its first output. */
void sh_onnx_begin(sh_onnx *onnx, const char *type, const char *const *inputs,
                   const char *const *outputs) {
    sh_proto_clear(&onnx->node);
    for (; *inputs != NULL; inputs++) sh_proto_text(&onnx->node, 1, *inputs);
    for (const char *const *name = outputs; *name != NULL; name++)
        sh_proto_text(&onnx->node, 2, *name);
    sh_proto_text(&onnx->node, 3, outputs[0]);
    sh_proto_text(&onnx->node, 4, type);
}

/* AttributeProto: name 1, type 20; the caller adds the value in the field of its type. */
static void begin_attribute(sh_onnx *onnx, const char *name, int type) {
    sh_proto_clear(&onnx->part);
    sh_proto_text(&onnx->part, 1, name);
    sh_proto_int(&onnx->part, 20, type);
}

/* AttributeProto.i is field 3; NodeProto.attribute is field 5. */
void sh_onnx_int(sh_onnx *onnx, const char *attribute, int64_t value) {
    begin_attribute(onnx, attribute, ATTRIBUTE_INT);
    sh_proto_int(&onnx->part, 3, value);
    sh_proto_message(&onnx->node, 5, &onnx->part);
}

/* AttributeProto.f is field 2. */
void sh_onnx_float(sh_onnx *onnx, const char *attribute, double value) {
    begin_attribute(onnx, attribute, ATTRIBUTE_FLOAT);
    sh_proto_float(&onnx->part, 2, (float)value);
    sh_proto_message(&onnx->node, 5, &onnx->part);
}

/* AttributeProto.ints is field 8, one entry per value. */
void sh_onnx_ints(sh_onnx *onnx, const char *attribute, const int64_t *values, size_t count) {
    begin_attribute(onnx, attribute, ATTRIBUTE_INTS);
    for (size_t i = 0; i < count; i++) sh_proto_int(&onnx->part, 8, values[i]);
    sh_proto_message(&onnx->node, 5, &onnx->part);
}

/* GraphProto.node is field 1. */
void sh_onnx_end(sh_onnx *onnx) { sh_proto_message(&onnx->graph, 1, &onnx->node); }

void sh_onnx_node(sh_onnx *onnx, const char *type, const char *const *inputs,
                  const char *const *outputs) {
    sh_onnx_begin(onnx, type, inputs, outputs);
    sh_onnx_end(onnx);
}

/* Layers are "L<i>" and parameters have names with a dot, so "t<i>" is free. */
const char *sh_onnx_fresh(sh_onnx *onnx, char name_out[SH_ONNX_NAME]) {
    snprintf(name_out, SH_ONNX_NAME, "t%d", onnx->made++);
    return name_out;
}

/* ---- constants ---- */

/* TensorProto: dims 1, data_type 2, name 8, raw_data 9 (little-endian); GraphProto.initializer is
 * field 5. */
static void add_constant(sh_onnx *onnx, const char *name, const sh_shape *shape, int type,
                         const void *values, size_t bytes) {
    sh_proto *tensor = &onnx->part;
    sh_proto_clear(tensor);
    for (int i = 0; i < shape->rank; i++) sh_proto_int(tensor, 1, shape->dim[i]);
    sh_proto_int(tensor, 2, type);
    sh_proto_text(tensor, 8, name);
    sh_proto_bytes(tensor, 9, values, bytes);
    sh_proto_message(&onnx->graph, 5, tensor);
}

void sh_onnx_floats(sh_onnx *onnx, const char *name, const sh_shape *shape, const float *values) {
    add_constant(onnx, name, shape, TYPE_FLOAT, values, sh_shape_count(shape) * sizeof *values);
}

void sh_onnx_numbers(sh_onnx *onnx, const char *name, const int64_t *values, size_t count) {
    sh_shape shape = SH_SHAPE((int64_t)count);
    add_constant(onnx, name, &shape, TYPE_INT64, values, count * sizeof *values);
}

/* Adds every parameter (or state) as a constant under its own name. */
static void add_list(sh_onnx *onnx, const sh_param_list *list, const float *values) {
    for (size_t i = 0; i < list->count; i++)
        sh_onnx_floats(onnx, list->items[i].name, &list->items[i].shape,
                       values + list->items[i].offset);
}

/* ---- the graph ---- */

/* Adds the graph's input (field 11) or output (field 12): a ValueInfoProto of shape (N,
 * sample...), where "N" is a free dimension. */
static void add_end(sh_onnx *onnx, int field, const char *name, const sh_shape *sample, int type) {
    sh_proto dimension = {0}, shape = {0}, tensor = {0}, kind = {0}, value = {0};
    sh_proto_text(&dimension, 2, "N");
    sh_proto_message(&shape, 1, &dimension);
    for (int i = 0; i < sample->rank; i++) {
        sh_proto_clear(&dimension);
        sh_proto_int(&dimension, 1, sample->dim[i]);
        sh_proto_message(&shape, 1, &dimension);
    }
    sh_proto_int(&tensor, 1, type);
    sh_proto_message(&tensor, 2, &shape);
    sh_proto_message(&kind, 1, &tensor);
    sh_proto_text(&value, 1, name);
    sh_proto_message(&value, 2, &kind);
    sh_proto_message(&onnx->graph, field, &value);
    sh_proto *const made[] = {&dimension, &shape, &tensor, &kind, &value};
    for (size_t i = 0; i < SH_COUNT(made); i++) sh_proto_fini(made[i]);
}

/* Tells whether the graph begins with the input's normalisation. */
static bool scales(const sh_trained *t) { return t->normal != NULL && t->normal->count > 0; }

/* Adds (input - mean) scale. Constants have shape (C, 1, 1), which broadcasts over batch and
 * image. */
static void add_normalisation(sh_onnx *onnx) {
    const sh_normal *normal = onnx->trained->normal;
    sh_shape shape = onnx->trained->net->input.sample;
    // One value per channel, or per feature of a vector.
    for (int i = 1; i < shape.rank; i++) shape.dim[i] = 1;
    sh_onnx_floats(onnx, "input.mean", &shape, normal->mean);
    sh_onnx_floats(onnx, "input.scale", &shape, normal->scale);
    sh_onnx_node(onnx, "Sub", (const char *[]){"input", "input.mean", NULL},
                 (const char *[]){"centred", NULL});
    sh_onnx_node(onnx, "Mul", (const char *[]){"centred", "input.scale", NULL},
                 (const char *[]){"normalised", NULL});
}

/* Name of the value that a layer's readers use; layers without operator pass their input's name
 * on. */
static const char *value_name(const sh_onnx *onnx, int layer, char name_out[SH_ONNX_NAME]) {
    const sh_net *net = onnx->trained->net;
    // A row of NULL is its input.
    while (layer != SH_NET_INPUT && sh_onnx_row_of(net->layers[layer]->kind)->add == NULL)
        layer = net->layers[layer]->inputs[0];
    if (layer == SH_NET_INPUT)
        snprintf(name_out, SH_ONNX_NAME, "%s", scales(onnx->trained) ? "normalised" : "input");
    else
        snprintf(name_out, SH_ONNX_NAME, "L%d", layer);
    return name_out;
}

/* Adds the operators of all layers, then an Identity, so that the result has the name "output"
 * whatever the last layer is. */
static void add_layers(sh_onnx *onnx) {
    const sh_net *net = onnx->trained->net;
    for (size_t i = 0; i < net->layer_count; i++) {
        const sh_layer *layer = net->layers[i];
        const sh_onnx_row *row = sh_onnx_row_of(layer->kind);
        char inputs[SH_INPUTS_MOST][SH_ONNX_NAME], output[SH_ONNX_NAME];
        const char *x[SH_INPUTS_MOST];
        for (int k = 0; k < layer->input_count; k++)
            x[k] = value_name(onnx, layer->inputs[k], inputs[k]);
        if (row->add != NULL) row->add(onnx, layer, x, value_name(onnx, (int)i, output));
    }
    char last[SH_ONNX_NAME];
    sh_onnx_node(onnx, "Identity",
                 (const char *[]){value_name(onnx, (int)net->layer_count - 1, last), NULL},
                 (const char *[]){"output", NULL});
}

/* GraphProto: name 2, initializers 5, nodes 1, input 11, output 12. Nodes must stand in
 * topological order, as the net's layers do. */
static void make_graph(sh_onnx *onnx, const char *name) {
    const sh_trained *t = onnx->trained;
    sh_proto_text(&onnx->graph, 2, name);
    add_list(onnx, &t->net->params, t->weights);
    add_list(onnx, &t->net->states, t->states);
    if (scales(t)) add_normalisation(onnx);
    add_layers(onnx);
    add_end(onnx, 11, "input", &t->net->input.sample,
            t->net->input.tokens ? TYPE_INT32 : TYPE_FLOAT);
    add_end(onnx, 12, "output", sh_net_output(t->net), TYPE_FLOAT);
}

/* ModelProto: ir_version 1, producer_name 2, producer_version 3, graph 7, opset_import 8. Written
 * through a temporary file. */
static sh_status write_model(const sh_onnx *onnx, const char *path) {
    sh_proto operators = {0}, model = {0};
    sh_proto_text(&operators, 1, "");
    sh_proto_int(&operators, 2, OPERATORS);
    sh_proto_int(&model, 1, IR_VERSION);
    sh_proto_text(&model, 2, "shoal");
    sh_proto_text(&model, 3, SHOAL_VERSION);
    sh_proto_message(&model, 7, &onnx->graph);
    sh_proto_message(&model, 8, &operators);
    // A failed append marks the message, so one check before writing suffices.
    sh_writer writer;
    sh_status status = model.failed ? SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", path)
                                    : sh_writer_open_through(&writer, path);
    if (status == SH_OK) {
        status = sh_writer_write(&writer, model.bytes, model.count);
        if (status == SH_OK)
            status = sh_writer_commit(&writer);
        else
            sh_writer_abandon(&writer);
    }
    sh_proto_fini(&operators);
    sh_proto_fini(&model);
    return status;
}

/* Refuses models that a protocol-buffer message cannot hold: its limit is 2 GiB. Room is left for
 * the graph beside the constants. */
static sh_status check_size(const sh_net *net) {
    const size_t most = (size_t)0x7f000000;
    if ((net->params.total + net->states.total) * sizeof(float) < most) return SH_OK;
    return SH_FAIL(SH_E_USAGE, "the model has %zu parameters; an ONNX file holds 2 GiB at most",
                   net->params.total);
}

/* Refuses a net with a layer that has no row, before any memory is taken. */
static sh_status check_layers(const sh_net *net) {
    for (size_t i = 0; i < net->layer_count; i++) {
        const sh_layer *layer = net->layers[i];
        if (sh_onnx_row_of(layer->kind) == NULL)
            return SH_FAIL(SH_E_USAGE, "layer '%s' (%s) cannot be said in ONNX", layer->name,
                           layer->kind->name);
    }
    return SH_OK;
}

/* The whole model is built in memory, since protocol buffers put a message's length before its
 * content. */
sh_status sh_export_onnx(const sh_trained *trained, const char *name, const char *path) {
    SH_TRY(check_layers(trained->net));
    SH_TRY(check_size(trained->net));
    SH_TRY(sh_export_check(trained));
    sh_onnx onnx = {.trained = trained};
    make_graph(&onnx, name);
    sh_status status = write_model(&onnx, path);
    sh_proto_fini(&onnx.graph);
    sh_proto_fini(&onnx.node);
    sh_proto_fini(&onnx.part);
    return status;
}
