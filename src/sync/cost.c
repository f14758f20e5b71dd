#include "sync/cost.h"

sh_status sh_sync_cost_of(const sh_sync_load *load, sh_sync_cost *cost_out) {
    const sh_sync_kind *kind = load->scheme.kind;
    *cost_out = (sh_sync_cost){0};
    if (!sh_sync_acts(load->options, load->workers)) return SH_OK;  // nobody to send anything to
    if (kind->family->cost == NULL)
        return SH_FAIL(SH_E_UNSUPPORTED, "what a step of scheme '%s' sends has no closed form",
                       kind->name);
    *cost_out = kind->family->cost(load);
    return SH_OK;
}

double sh_codec_message_bytes(const sh_codec *codec, const sh_param_list *params) {
    double bytes = 0;
    for (size_t i = 0; i < params->count; i++) {
        sh_codec_tensor tensor = {.count = params->items[i].count};
        sh_codec_matrix(&params->items[i].shape, &tensor.rows, &tensor.columns);
        for (int round = 0; round < (codec->kind != NULL ? codec->kind->rounds : 1); round++)
            bytes += (double)sh_codec_bytes(codec, &tensor, round);
    }
    return bytes;
}

/* Weights and slots are read and written, gradients read. */
double sh_optim_traffic_bytes(const sh_optim *optim, size_t total) {
    return (3.0 + 2.0 * optim->slot_count) * (double)total * sizeof(float);
}

double sh_cost_model_bytes(const sh_sync_load *load) {
    return (double)load->params->total * sizeof(float);
}

/* Every rank sends 2 (P - 1) / P of the buffer: ring, and halving and doubling. */
sh_sync_cost sh_cost_sum(const sh_sync_load *load, double bytes) {
    double others = load->workers - 1, part = bytes / load->workers;
    const sh_link *link = &load->link;
    return (sh_sync_cost){
        .sent_bytes = 2 * others * bytes,
        .seconds = others * (2 * (link->alpha_s + part * link->beta_s) + part * link->gamma_s)};
}

sh_sync_cost sh_cost_gather(const sh_sync_load *load, double bytes) {
    double others = load->workers - 1;
    return (sh_sync_cost){.sent_bytes = load->workers * others * bytes,
                          .seconds = others * (load->link.alpha_s + bytes * load->link.beta_s)};
}

sh_sync_cost sh_cost_model_mean(const sh_sync_load *load, double period, sh_momentum usual) {
    bool averages = sh_sync_momentum(load->options, usual) == SH_MOMENTUM_AVERAGE;
    int slots = averages && load->optim != NULL ? load->optim->slot_count : 0;
    sh_sync_cost one = sh_cost_sum(load, sh_cost_model_bytes(load));
    return (sh_sync_cost){.sent_bytes = one.sent_bytes * (1 + slots) / period,
                          .seconds = one.seconds * (1 + slots) / period};
}
