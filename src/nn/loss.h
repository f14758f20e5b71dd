/* Losses: one file and one row each (nn/losses/list.h). A loss turns the last layer's output and
 * the targets into a sum over rows and, in training, the gradient of that sum times a scale. */
#ifndef SH_NN_LOSS_H
#define SH_NN_LOSS_H

#include "base/option.h"
#include "data/dataset.h"
#include "tensor/shape.h"

typedef struct sh_loss_options {
    char *name;
    double smoothing;      // cross-entropy: label smoothing
    int64_t ignore_index;  // cross-entropy: label that does not count
    double delta;          // Huber
} sh_loss_options;

typedef struct sh_loss_result {
    double sum;        // over the rows counted
    int64_t counted;   // samples, or tokens
    int64_t correct;   // where the target is a class; -1 otherwise
    sh_status status;  // of a loss that workers evaluate together
} sh_loss_result;

typedef struct sh_loss sh_loss;

/* A loss over rows that are split over workers: each has some of the outputs of every row and gets
 * their gradient; all get the result of the whole rows (parallel/split_loss.h). */
struct sh_peers;  // parallel/peers.h
typedef struct sh_split_loss sh_split_loss;
struct sh_split_loss {
    sh_loss_result (*evaluate)(sh_split_loss *self, const sh_loss *loss,
                               const struct sh_peers *peers, const float *prediction,
                               const int32_t *target, int64_t rows, double scale, float *gradient);
};

typedef struct sh_loss_kind {
    const char *name, *help;
    bool classes;                   // wants class targets (int32); otherwise float values
    bool any_target;                // looks at no targets, which may be of any kind
    bool has_smoothing, has_delta;  // which options it takes; `ignore` all on classes
    /* prediction (rows, width); target int32 (rows) or float (rows, width). `gradient` may be NULL
     * or the prediction itself. */
    sh_loss_result (*evaluate)(const sh_loss *loss, const float *prediction, const void *target,
                               int64_t rows, int64_t width, double scale, float *gradient);
} sh_loss_kind;

struct sh_loss {
    const sh_loss_kind *kind;
    sh_loss_options options;  // name not owned
    sh_split_loss *split;     // borrowed; NULL: rows are whole
};

extern const sh_option_table sh_loss_table;  // for sh_loss_options; loss_options.c

const sh_loss_kind *sh_loss_find(const char *name);
const sh_loss_kind *sh_loss_at(size_t index);
const char *sh_loss_name_at(size_t index);

/* Checks that the loss fits the targets and the net's output (shape without batch), and that it has
 * every option that is set: one without effect would be believed to have one. */
sh_status sh_loss_init(sh_loss *loss, const sh_loss_options *options, const sh_data_info *data,
                       const sh_shape *output);

#endif
