#include "explain/cost.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "explain/units.h"

/* Grid of workers that this layer runs on: convolutions and the remaining layers may have
 * different ones. */
static const sh_cost_grid *grid_of(const sh_cost_page *page, const sh_cost_layer *layer) {
    return layer->image ? &page->layout.image : &page->layout.dense;
}

/* Communication in seconds of one layer if all workers used `grid`: one kind of parallelism alone,
 * for comparison with the layout. */
static double alone(const sh_cost_page *page, const sh_cost_layer *layer, sh_cost_grid grid) {
    sh_cost_layout layout = {.image = grid, .dense = grid};
    return sh_cost_layer_seconds(layer, &layout, page->batch, &page->link);
}

/* Number of workers. Both grids of a layout have the same product, so one of them suffices. */
static int64_t workers_of(const sh_cost_page *page) {
    return sh_cost_grid_workers(&page->layout.image);
}

/* Seconds under batch (data) parallelism alone. */
static double batch_seconds(const sh_cost_page *page, const sh_cost_layer *layer) {
    return alone(page, layer,
                 (sh_cost_grid){.data = workers_of(page), .tensor = 1, .space = {1, 1}});
}

/* Seconds under model (tensor) parallelism alone. */
static double model_seconds(const sh_cost_page *page, const sh_cost_layer *layer) {
    return alone(page, layer,
                 (sh_cost_grid){.data = 1, .tensor = workers_of(page), .space = {1, 1}});
}

/* Seconds under domain (space) parallelism alone, the image cut by rows. NAN: not an image layer,
 * or fewer rows than workers. */
static double domain_seconds(const sh_cost_page *page, const sh_cost_layer *layer) {
    int64_t workers = workers_of(page);
    if (!layer->image || layer->y.dim[0] < 1 || layer->x.dim[1] < workers) return NAN;
    // The output needs a row for each worker too.
    if (layer->y.rank == 3 && layer->y.dim[1] < workers) return NAN;
    return alone(page, layer, (sh_cost_grid){.data = 1, .tensor = 1, .space = {workers, 1}});
}

/* ---- Text ------------------------------------------------------------------------------------ */

/* Milliseconds with three decimals; "-" for NAN. */
static const char *ms_text(double seconds, char text_out[SH_UNIT_TEXT]) {
    if (isnan(seconds))
        snprintf(text_out, SH_UNIT_TEXT, "-");
    else
        sh_snprintf(text_out, SH_UNIT_TEXT, "%.3f", 1e3 * seconds);
    return text_out;
}

/* Width of the column of layer names. */
static int name_width(const sh_cost_page *page) {
    size_t width = 5;
    for (size_t i = 0; i < page->net->count; i++)
        if (strlen(page->net->layers[i].name) > width) width = strlen(page->net->layers[i].name);
    return (int)width;
}

/* Prints what the table assumes: batch, workers, layout, and alpha and beta in seconds. b is per
 * float32, as in the formulas, hence 4 beta. */
static void print_head(const sh_cost_page *page, FILE *file) {
    char layout[SH_COST_LAYOUT_TEXT], link[3 * SH_UNIT_TEXT], a[SH_UNIT_TEXT], b[SH_UNIT_TEXT];
    int64_t workers = workers_of(page);
    sh_fprintf(file, "communication of a step: batch %.0f, %lld worker%s, layout %s\n", page->batch,
               (long long)workers, workers == 1 ? "" : "s",
               sh_cost_layout_text(&page->layout, layout));
    fprintf(file, "link %s: a = %s per message, b = %s per float32\n",
            sh_link_text(&page->link, link), sh_seconds_text(page->link.alpha_s, a),
            sh_seconds_text(4 * page->link.beta_s, b));
}

/* Prints one row: sizes, then seconds under each kind of parallelism alone and under the layout. */
static void print_layer(const sh_cost_page *page, const sh_cost_layer *l, int width, FILE *file) {
    char batch[SH_UNIT_TEXT], model[SH_UNIT_TEXT], domain[SH_UNIT_TEXT], layout[SH_UNIT_TEXT];
    char name[SH_ESCAPED], below[SH_UNIT_TEXT] = "-";  // names come from the user's model file
    if (l->dense) sh_snprintf(below, sizeof below, "%.0f", sh_cost_model_wins_below(l));
    sh_fprintf(file, "%-*s  %11.0f  %9.0f  %9.0f  %9s  %9s  %9s  %9s  %11s\n", width,
               sh_escaped(l->name, name), l->weights, l->in, l->out,
               ms_text(batch_seconds(page, l), batch), ms_text(model_seconds(page, l), model),
               ms_text(domain_seconds(page, l), domain),
               ms_text(sh_cost_layer_seconds(l, &page->layout, page->batch, &page->link), layout),
               below);
}

/* Prints the table of layers with weights and its totals. Poolings have no weights and are left
 * out; their halos count in the total of the layout. */
static void print_layers(const sh_cost_page *page, int width, FILE *file) {
    double weights = 0, batch = 0, model = 0;
    fprintf(file, "\n%-*s  %11s  %9s  %9s  %9s  %9s  %9s  %9s  %11s\n", width, "layer", "|W|",
            "d in", "d out", "batch ms", "model ms", "domain ms", "layout ms", "model below");
    for (size_t i = 0; i < page->net->count; i++) {
        const sh_cost_layer *l = &page->net->layers[i];
        if (!l->weighted) continue;  // a pooling: it has halos only
        print_layer(page, l, width, file);
        weights += l->weights;
        batch += batch_seconds(page, l);
        model += model_seconds(page, l);
    }
    double layout = sh_cost_net_seconds(page->net, &page->layout, page->batch, &page->link);
    sh_fprintf(file, "%-*s  %11.0f  %9s  %9s  %9.2f  %9.2f  %9s  %9.2f\n", width, "total", weights,
               "", "", 1e3 * batch, 1e3 * model, "", 1e3 * layout);
    fprintf(file,
            "batch, model, domain: that parallelism alone over all workers; domain needs a row of "
            "the\nimage for each. model below: model parallelism costs less than batch "
            "parallelism below so\nmany samples, 2 |W| / (d out + 2 d in)\n");
}

/* Prints one communication of a layer with its formula. Where a halo differs from the documents'
 * formula, theirs follows in brackets. */
static void print_term(const sh_cost_page *page, const char *name, const sh_cost_term *term,
                       int width, FILE *file) {
    char text[SH_COST_TERM_TEXT], ms[SH_UNIT_TEXT];
    fprintf(file, "%-*s  %-16s  %9s  %s", width, name, term->what,
            ms_text(sh_cost_seconds(term, &page->link), ms), sh_cost_term_text(term, text));
    if (term->documents > 0)
        sh_fprintf(file, "   [documents: a + %.9g * %.12g b]", term->batch, term->documents);
    fputc('\n', file);
}

/* Prints every communication of every layer under the layout, and the redistribution between the
 * two grids, which the formulas leave out. */
static void print_terms(const sh_cost_page *page, int width, FILE *file) {
    fprintf(file, "\n%-*s  %-16s  %9s  formula\n", width, "layer", "communication", "ms");
    for (size_t i = 0; i < page->net->count; i++) {
        const sh_cost_layer *l = &page->net->layers[i];
        sh_cost_term terms[SH_COST_TERMS_MOST];
        char name[SH_ESCAPED];
        int count = sh_cost_terms(l, grid_of(page, l), page->batch, terms);
        for (int k = 0; k < count; k++)
            print_term(page, sh_escaped(l->name, name), &terms[k], width, file);
    }
    sh_cost_term between;  // redistribution between the two grids
    if (!sh_cost_between(page->net, &page->layout, page->batch, &between)) return;
    fprintf(file, "\nbeside the formulas, from the layout of convolutions to that of the rest:\n");
    print_term(page, "", &between, width, file);
}

/* One worker communicates nothing, so its page ends with the table. */
void sh_cost_text(const sh_cost_page *page, FILE *file) {
    int width = name_width(page);
    print_head(page, file);
    print_layers(page, width, file);
    if (workers_of(page) > 1) print_terms(page, width, file);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* One communication as JSON; NULL when out of memory. Jansson's functions accept NULL, so only the
 * root is checked. */
static json_t *term_json(const sh_cost_page *page, const sh_cost_term *term) {
    char text[SH_COST_TERM_TEXT];
    return json_pack("{s:s, s:s, s:f}", "what", term->what, "formula",
                     sh_cost_term_text(term, text), "seconds", sh_cost_seconds(term, &page->link));
}

/* One layer as JSON: the table's columns and its terms. */
static json_t *layer_json(const sh_cost_page *page, const sh_cost_layer *l) {
    sh_cost_term terms[SH_COST_TERMS_MOST];
    int count = sh_cost_terms(l, grid_of(page, l), page->batch, terms);
    double domain = domain_seconds(page, l);
    json_t *list = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(list, term_json(page, &terms[i]));
    json_t *root =
        json_pack("{s:o, s:f, s:f, s:f, s:f, s:f, s:o, s:f, s:o}", "layer", sh_json_string(l->name),
                  "weights", l->weights, "d_in", l->in, "d_out", l->out, "batch_s",
                  batch_seconds(page, l), "model_s", model_seconds(page, l), "domain_s",
                  isnan(domain) ? json_null() : json_real(domain), "layout_s",
                  sh_cost_layer_seconds(l, &page->layout, page->batch, &page->link), "terms", list);
    if (root != NULL && l->dense)
        json_object_set_new(root, "model_below", json_real(sh_cost_model_wins_below(l)));
    return root;
}

/* Prints one JSON object on one line, with the same numbers as the text. */
sh_status sh_cost_json(const sh_cost_page *page, FILE *file) {
    char layout[SH_COST_LAYOUT_TEXT];
    json_t *layers = json_array();
    for (size_t i = 0; i < page->net->count; i++)
        json_array_append_new(layers, layer_json(page, &page->net->layers[i]));
    json_t *root = json_pack(
        "{s:f, s:I, s:s, s:f, s:f, s:f, s:o}", "batch", page->batch, "workers",
        (json_int_t)workers_of(page), "layout", sh_cost_layout_text(&page->layout, layout),
        "alpha_s", page->link.alpha_s, "beta_s_per_byte", page->link.beta_s, "layout_s",
        sh_cost_net_seconds(page->net, &page->layout, page->batch, &page->link), "layers", layers);
    sh_cost_term between;
    if (root != NULL && sh_cost_between(page->net, &page->layout, page->batch, &between))
        json_object_set_new(root, "redistribution", term_json(page, &between));
    int written =
        root != NULL ? json_dumpf(root, file, JSON_COMPACT | JSON_REAL_PRECISION(12)) : -1;
    json_decref(root);
    if (written != 0) return SH_FAIL(SH_E_MEMORY, "out of memory for the costs' JSON");
    fputc('\n', file);
    return SH_OK;
}
