/* shoal_explain_cost: what a step's communication costs by the alpha-beta formulas of plan/cost.h.
 * Opens the data for its shapes, describes the net without building it, and has explain/cost.h
 * print the page. */
#include "api/sink.h"
#include "explain/cost.h"
#include "explain/units.h"
#include "run/run.h"
#include "shoal/tools.h"

/* Link between workers unless the caller names one; tools.h promises it. */
static const char LINK_DEFAULT[] = "1Gbit,50us";

/* The net of a config as a spec. Of the data only shapes and classes matter, so it is closed at
 * once. Caller frees the spec. */
static sh_status describe(const sh_config *config, const shoal_hooks *hooks,
                          sh_net_spec *spec_out) {
    sh_log log = sh_log_to_hooks(hooks);
    sh_data_options options = config->data;
    options.folder = (char *)(uintptr_t)hooks->data_folder;
    options.seed = (uint64_t)config->seed;
    options.ignore = &config->loss.ignore_index;
    // A run alone: one part of the data has the shapes of all.
    options.parts = 1;
    sh_data data = {0};
    SH_TRY(sh_data_open(&options, &log, &data));
    sh_net_input input = sh_model_input(&data.info);
    sh_status status = sh_net_spec_read(config->model, &input, spec_out);
    sh_data_close(&data);
    return status;
}

/* Options are parsed before data is opened, so that a typing error costs no time. */
static sh_status explain(const sh_config *config, const shoal_cost_options *options,
                         const shoal_hooks *hooks, FILE *file) {
    sh_cost_page page = {.batch = (double)config->batch};
    const char *link = options->link != NULL ? options->link : LINK_DEFAULT;
    SH_TRY(sh_link_parse(link, "link", &page.link));
    // 0: the layout says how many workers there are.
    int64_t workers = config->workers > 1 ? config->workers : 0;
    SH_TRY(sh_cost_layout_parse(options->layout, workers, &page.layout));
    sh_net_spec spec;
    SH_TRY(describe(config, hooks, &spec));
    sh_cost_net net;
    sh_status status = sh_cost_net_init(&net, &spec);
    page.net = &net;
    if (status == SH_OK && options->json) status = sh_cost_json(&page, file);
    if (status == SH_OK && !options->json) sh_cost_text(&page, file);
    sh_cost_net_fini(&net);
    sh_net_spec_fini(&spec);
    return status;
}

shoal_status shoal_explain_cost(const shoal_config *config, const shoal_cost_options *options,
                                const shoal_hooks *hooks, const shoal_sink *sink) {
    SHOAL_NEED(config);
    SHOAL_NEED(options);
    SHOAL_NEED_SINK(sink);
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    SHOAL_TRY(sh_config_check(&config->config));
    FILE *file;
    SHOAL_TRY(sh_sink_open(sink, &file));
    return sh_sink_close(file, explain(&config->config, options, &whole, file));
}
