/* The options of losses, as a run file has them. */
#include "nn/loss.h"

static const char *loss_choice(size_t index) {
    return index == 0 ? "auto" : sh_loss_name_at(index - 1);
}

/* Initial values are repeated in loss.c (check_options), which refuses options that do nothing. */
static const sh_option rows[] = {
    SH_TEXT_ROW(sh_loss_options, name, "loss.name", "auto",
                "auto: cross-entropy for classes, mse for values", .flag = "loss-name",
                .alias = "loss", .choices = loss_choice),
    SH_REAL_ROW(sh_loss_options, smoothing, "loss.smoothing", "0", 0, 0.999,
                "label smoothing of cross-entropy"),
    SH_INT_ROW(sh_loss_options, ignore_index, "loss.ignore", "-100", -2147483648.0, 2147483647.0,
               "label that does not count", .value = "LABEL"),
    SH_REAL_ROW(sh_loss_options, delta, "loss.delta", "1", 1e-9, 1e9,
                "where the Huber loss turns linear"),
};

const sh_option_table sh_loss_table = {rows, SH_COUNT(rows)};
