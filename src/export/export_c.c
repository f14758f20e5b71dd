/* A net as C99 source: constants, the functions of its layers, and one function that calls them.
 *
 * Working memory is one static array. A value lives from the layer that computes it to the last one
 * that reads it; values whose lives do not meet share places, first fit. */
#include "export/export_c.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "nn/layers/options.h"

/* ---- names and constants ---- */

/* Writes PREFIX_TEXT as a C identifier: other characters become '_'. Cut to SH_C_NAME. */
static const char *identifier(const char *prefix, const char *text, char name_out[SH_C_NAME]) {
    snprintf(name_out, SH_C_NAME, "%.15s_%.46s", prefix, text);
    for (char *at = name_out; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at)) *at = '_';
    return name_out;
}

/* The name of the constant that holds a parameter; layers that share (tie) it get the same name. */
const char *sh_c_param_name(const sh_c_source *source, const sh_layer *layer, int param,
                            char name_out[SH_C_NAME]) {
    size_t index = layer->params[param];
    char numbered[SH_C_NAME];
    // The index keeps names apart that are the same as identifiers.
    snprintf(numbered, sizeof numbered, "p%zu_%.40s", index,
             source->trained->net->params.items[index].name);
    return identifier(source->name, numbered, name_out);
}

/* Hexadecimal floats give back the same bits; decimal ones would need 9 digits and a correct
 * reader. */
void sh_c_constant(sh_c_source *source, const char *name, const float *values, size_t count) {
    fprintf(source->file, "static const float %s[%zu] = {", name, count);
    for (size_t i = 0; i < count; i++)
        sh_fprintf(source->file, "%s%af,", i % 6 == 0 ? "\n    " : " ", (double)values[i]);
    fputs("\n};\n", source->file);
    source->constant_bytes += count * sizeof(float);
}

/* Refuses names that C would not accept. 15 characters leave room for the suffixes within
 * SH_C_NAME. */
static sh_status check_name(const char *name) {
    // The first character may not be a digit.
    bool good = isalpha((unsigned char)name[0]) || name[0] == '_';
    for (const char *at = name; *at != '\0'; at++)
        good = good && (isalnum((unsigned char)*at) || *at == '_');
    if (good && strlen(name) < 16) return SH_OK;
    SH_FAIL(SH_E_USAGE, "'%s' cannot begin names of C", name);
    return sh_error_hint("at most 15 letters, digits and underscores: --name model");
}

/* Refuses a net with a layer that has no row, before any file is opened. */
static sh_status check_layers(const sh_net *net) {
    for (size_t i = 0; i < net->layer_count; i++) {
        const sh_layer *layer = net->layers[i];
        if (sh_c_row_of(layer->kind) == NULL)
            return SH_FAIL(SH_E_USAGE, "layer '%s' (%s) cannot be written as C", layer->name,
                           layer->kind->name);
    }
    return SH_OK;
}

/* ---- places of values ---- */

typedef struct life {
    size_t count, place;  // floats; the first one's place in the working memory
    int begin, end;       // layers: computes it, reads it last; -1 is the input
    bool placed;
} life;

/* Shape of one sample at a layer's output, or of the input. */
static const sh_shape *shape_of(const sh_net *net, int layer) {
    return layer == SH_NET_INPUT ? &net->input.sample : &net->layers[layer]->out;
}

/* Finds the life of every value: from the layer that computes it to the last one that reads it.
 * The entry behind the layers is the input. Values of layers that only rename take no room. */
static void find_lives(const sh_net *net, life *lives) {
    int count = (int)net->layer_count;
    for (int i = 0; i <= count; i++) {
        int layer = i == count ? SH_NET_INPUT : i;
        bool renames = sh_export_source_of(net, layer) != layer;
        lives[i] = (life){.count = renames ? 0 : sh_shape_count(shape_of(net, layer)),
                          .begin = layer,
                          .end = layer};
    }
    for (int i = 0; i < count; i++)
        for (int k = 0; k < net->layers[i]->input_count; k++) {
            int from = sh_export_source_of(net, net->layers[i]->inputs[k]);
            life *read = &lives[from == SH_NET_INPUT ? count : from];
            // Layers stand in topological order, so the last reader has the largest index.
            if (read->end < i) read->end = i;
        }
    int last = sh_export_source_of(net, count - 1);
    // The net's output must survive all layers.
    lives[last == SH_NET_INPUT ? count : last].end = count;  // copied to the caller
}

/* Lives are closed intervals: an input is still alive in the layer that reads it, so no kernel
 * writes over what it reads. */
static bool meet(const life *a, const life *b) { return a->begin <= b->end && b->begin <= a->end; }

/* First fit: the lowest place at or above `from` where the value meets no placed value in time
 * and space. Each move goes upward, so the loop ends. O(values^2) per value at worst, once per
 * export. */
static void place_one(life *lives, int count, int index, size_t from) {
    life *own = &lives[index];
    own->place = from;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < count; i++) {
            const life *other = &lives[i];
            if (!other->placed || other->count == 0 || !meet(own, other)) continue;
            // Side by side in memory: no conflict.
            if (own->place + own->count <= other->place ||
                other->place + other->count <= own->place)
                continue;
            own->place = other->place + other->count;
            moved = true;
        }
    }
    own->placed = true;
}

/* Floats at the front of the working memory for a row of attention's scores, one per token; 0
 * without attention. */
static size_t front_room(const sh_net *net) {
    size_t most = 0;
    for (size_t i = 0; i < net->layer_count; i++) {
        const sh_layer *layer = net->layers[i];
        if (layer->kind == &sh_layer_kind_attention_core && (size_t)layer->out.dim[0] > most)
            most = (size_t)layer->out.dim[0];
    }
    return most;
}

/* Gives every value its place. `source->place` and `memory_count` are the result; the caller frees
 * `place`. */
static sh_status place_values(sh_c_source *source) {
    const sh_net *net = source->trained->net;
    int count = (int)net->layer_count + 1;
    life *lives = sh_alloc((size_t)count, sizeof *lives);
    source->place = sh_alloc((size_t)count, sizeof *source->place);
    if (lives == NULL || source->place == NULL) {
        sh_free(lives);
        return SH_FAIL(SH_E_MEMORY, "out of memory for an export");
    }
    find_lives(net, lives);
    source->memory_count = front_room(net);  // values begin behind it
    size_t front = source->memory_count;
    for (int i = 0; i < count; i++) {
        place_one(lives, count, i, front);
        source->place[i] = lives[i].place;
        // The working memory reaches to the highest end of a value.
        size_t end = lives[i].place + lives[i].count;
        if (end > source->memory_count) source->memory_count = end;
    }
    sh_free(lives);
    return SH_OK;
}

/* ---- the source ---- */

/* Token inputs are int; all others are float. */
static bool reads_tokens(const sh_c_source *source) { return source->trained->net->input.tokens; }
static const char *input_type(const sh_c_source *source) {
    return reads_tokens(source) ? "int" : "float";
}

/* Tells whether the input is normalised. Normalised samples lie in the working memory; others are
 * read where the caller has them. */
static bool scales(const sh_c_source *source) {
    return source->trained->normal != NULL && source->trained->normal->count > 0;
}

enum { EXPRESSION = 96 };  // "model_memory + 123456" with room

/* Writes the C expression that points at a layer's value, resolved to the layer that computes
 * it. */
static const char *value_text(const sh_c_source *source, int layer, char text_out[EXPRESSION]) {
    const sh_net *net = source->trained->net;
    int from = sh_export_source_of(net, layer);
    if (from == SH_NET_INPUT && !scales(source))
        snprintf(text_out, EXPRESSION, "in");
    else
        snprintf(text_out, EXPRESSION, "%s_memory + %zu", source->name,
                 source->place[from == SH_NET_INPUT ? (int)net->layer_count : from]);
    return text_out;
}

/* Prints means, scales and all parameters. Without memory it leaves them out; print_source then
 * sees that constant_bytes differs and fails. */
static void print_constants(sh_c_source *source) {
    const sh_trained *t = source->trained;
    const sh_param_list *params = &t->net->params;
    char name[SH_C_NAME];
    if (scales(source)) {
        sh_c_constant(source, identifier(source->name, "mean", name), t->normal->mean,
                      t->normal->count);
        sh_c_constant(source, identifier(source->name, "scale", name), t->normal->scale,
                      t->normal->count);
    }
    bool *printed = sh_alloc(params->count + 1, sizeof *printed);  // tied ones stand once
    for (size_t i = 0; i < t->net->layer_count && printed != NULL; i++) {
        const sh_layer *layer = t->net->layers[i];
        const sh_c_row *row = sh_c_row_of(layer->kind);
        if (row->constants != NULL) row->constants(source, layer);
        for (int p = 0; p < layer->param_count && row->constants == NULL; p++) {
            const sh_param *param = &params->items[layer->params[p]];
            if (printed[layer->params[p]]) continue;
            printed[layer->params[p]] = true;
            sh_c_constant(source, sh_c_param_name(source, layer, p, name),
                          t->weights + param->offset, param->count);
        }
    }
    if (printed == NULL) source->memory_count = 0;
    sh_free(printed);
}

/* Prints each helper function once, in the order of first use. Rows share a helper by sharing the
 * string, so pointers are compared. */
static void print_helpers(const sh_c_source *source) {
    const sh_net *net = source->trained->net;
    for (size_t i = 0; i < net->layer_count; i++) {
        const char *helper = sh_c_row_of(net->layers[i]->kind)->helper;
        bool printed = helper == NULL;
        for (size_t k = 0; k < i && !printed; k++)
            printed = sh_c_row_of(net->layers[k]->kind)->helper == helper;
        if (!printed) fprintf(source->file, "\n%s", helper);
    }
}

/* Prints the loop that normalises the input by channel or feature: `count / channels` neighbours
 * share one mean and scale. */
static void print_normalisation(const sh_c_source *source) {
    char place[EXPRESSION];
    size_t channels = source->trained->normal->count;
    size_t count = sh_shape_count(&source->trained->net->input.sample);
    fprintf(source->file,
            "    for (long i = 0; i < %zu; i++)\n"
            "        (%s)[i] = (in[i] - %s_mean[i / %zu]) * %s_scale[i / %zu];\n",
            count, value_text(source, SH_NET_INPUT, place), source->name, count / channels,
            source->name, count / channels);
}

/* Prints the check of tokens against the vocabulary: a token outside would index past the
 * embedding table. */
static void print_token_check(const sh_c_source *source) {
    fprintf(source->file,
            "    for (long i = 0; i < %zu; i++)\n"
            "        if (in[i] < 0 || in[i] >= %ld) return 1;\n",
            sh_shape_count(&source->trained->net->input.sample),
            (long)source->trained->net->input.outputs);
}

/* Prints one call per layer in the net's order, which is a topological order. */
static void print_calls(sh_c_source *source) {
    const sh_net *net = source->trained->net;
    for (size_t i = 0; i < net->layer_count; i++) {
        const sh_layer *layer = net->layers[i];
        const sh_c_row *row = sh_c_row_of(layer->kind);
        if (row->call == NULL) continue;  // the layer is its input
        char inputs[SH_INPUTS_MOST][EXPRESSION], output[EXPRESSION];
        const char *x[SH_INPUTS_MOST];
        for (int k = 0; k < layer->input_count; k++)
            x[k] = value_text(source, layer->inputs[k], inputs[k]);
        fprintf(source->file, "    /* %s */\n", layer->name);
        row->call(source, layer, x, value_text(source, (int)i, output));
    }
}

/* Prints NAME_run: normalise or check, run the layers, copy the result out. */
static void print_function(sh_c_source *source) {
    const sh_net *net = source->trained->net;
    char last[EXPRESSION];  // where the net's output lies
    fprintf(source->file, "\nint %s_run(const %s *in, float *out) {\n", source->name,
            input_type(source));
    if (scales(source)) print_normalisation(source);
    if (reads_tokens(source)) print_token_check(source);
    print_calls(source);
    fprintf(
        source->file, "    for (long i = 0; i < %zu; i++) out[i] = (%s)[i];\n    return 0;\n}\n",
        sh_shape_count(sh_net_output(net)), value_text(source, (int)net->layer_count - 1, last));
}

/* Tells whether some helper calls <math.h>; embedded targets may lack it. */
static bool needs_libm(const sh_net *net) {
    for (size_t i = 0; i < net->layer_count; i++)
        if (sh_c_row_of(net->layers[i]->kind)->libm) return true;
    return false;
}

/* Known before the constants are printed, so that the reader finds them at the top. */
static size_t constant_bytes(const sh_trained *t) {
    size_t normal = t->normal != NULL ? 2 * t->normal->count : 0;
    return (t->net->params.total + normal) * sizeof(float);
}

/* Prints the .c file. */
static sh_status print_source(sh_c_source *source) {
    fprintf(source->file,
            "/* Made by shoal export. C99, no allocation, no other dependency%s.\n"
            " * Constants: %zu bytes. Static memory: %zu bytes; so one call at a time. */\n"
            "#include \"%s.h\"\n\n%s",
            needs_libm(source->trained->net) ? " than <math.h>" : "",
            constant_bytes(source->trained), source->memory_count * sizeof(float), source->name,
            needs_libm(source->trained->net) ? "#include <math.h>\n\n" : "");
    print_constants(source);
    if (source->constant_bytes != constant_bytes(source->trained))
        return SH_FAIL(SH_E_MEMORY, "out of memory for an export");
    fprintf(source->file, "\nstatic float %s_memory[%zu];\n", source->name, source->memory_count);
    print_helpers(source);
    print_function(source);
    return SH_OK;
}

/* Prints the .h file, with the sizes of the arrays that the caller provides. */
static sh_status print_header(sh_c_source *source) {
    char in[SH_SHAPE_TEXT], out[SH_SHAPE_TEXT], upper[SH_C_NAME];
    const sh_net *net = source->trained->net;
    snprintf(upper, sizeof upper, "%s", source->name);
    for (char *at = upper; *at != '\0'; at++) *at = (char)toupper((unsigned char)*at);
    fprintf(source->file,
            "/* Made by shoal export. A sample of %s in, %s out, row by row%s. Returns 0%s. */\n"
            "#ifndef %s_H\n#define %s_H\n\n"
            "#define %s_INPUTS  %zu\n#define %s_OUTPUTS %zu\n\n"
            "int %s_run(const %s *in, float *out);\n\n#endif\n",
            sh_shape_text(&net->input.sample, in), sh_shape_text(sh_net_output(net), out),
            scales(source) ? ", as the data file has it: it is normalised here" : "",
            reads_tokens(source) ? ", 1 for a token that there is not" : "", upper, upper, upper,
            sh_shape_count(&net->input.sample), upper, sh_shape_count(sh_net_output(net)),
            source->name, input_type(source));
    return SH_OK;
}

/* Writes through a temporary file, so that a failed export leaves the old file in place. */
static sh_status write_file(sh_c_source *source, const char *path,
                            sh_status (*print)(sh_c_source *)) {
    sh_writer writer;
    SH_TRY(sh_writer_open_through(&writer, path));
    source->file = writer.file;
    sh_status status = print(source);
    if (status == SH_OK) return sh_writer_commit(&writer);
    sh_writer_abandon(&writer);
    return status;
}

/* "DIR/lenet.c" and the prefix "model": the header that the source names is DIR/model.h. */
static char *header_path(const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    int folder = slash != NULL ? (int)(slash + 1 - path) : 0;
    return sh_format("%.*s%s.h", folder, path, name);
}

/* Checks first, then places the values, then writes: nothing is written for a net that cannot be
 * exported. */
sh_status sh_export_c(const sh_trained *trained, const char *name, const char *path) {
    SH_TRY(check_name(name));
    SH_TRY(check_layers(trained->net));
    SH_TRY(sh_export_check(trained));
    sh_c_source source = {.trained = trained, .name = name};
    char *header = header_path(path, name);
    sh_status status =
        header != NULL ? place_values(&source) : SH_FAIL(SH_E_MEMORY, "out of memory for a path");
    if (status == SH_OK) status = write_file(&source, path, print_source);
    if (status == SH_OK) status = write_file(&source, header, print_header);
    sh_free(source.place);
    sh_free(header);
    return status;
}
