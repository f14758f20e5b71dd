/* Optimizers: one file and one row each. State lives in `slots` blocks of the parameters' layout,
 * so a server's or a rank's shard of it is a range. A step updates whole parameters [first, first +
 * count): buckets are updated as their gradients arrive. */
#ifndef SH_OPTIM_OPTIM_H
#define SH_OPTIM_OPTIM_H

#include <stdint.h>

#include "base/memory.h"
#include "base/option.h"
#include "nn/param.h"

typedef struct sh_optim_options {
    char *name;
    double lr, momentum, beta1, beta2, epsilon, weight_decay, dampening, trust, rho;
    bool decay_all;    // weight decay on biases and norms too
    sh_own_block own;  // of single optimizers
} sh_optim_options;

typedef struct sh_optim_step {
    const sh_param_list *params;
    size_t first, count;  // parameters to update
    bool windowed;        // of them only elements low .. high - 1 of the block
    size_t low, high;
    /* Sums over those who hold the other elements, for norms of whole parameters. NULL: nobody. */
    void (*sum)(void *self, double *values, size_t count);
    void *sum_self;
    const bool *unused;  // per parameter of the net: left as they are; NULL: none
    bool shared;         // others update the weights at the same time: only where the kind shares
    float *weights;      // whole blocks
    const float *gradients;
    float gradient_scale;  // applied to gradients as they are read (clipping, averaging)
    double lr;             // of this step, after the schedule
    int64_t step;          // from 1
} sh_optim_step;

typedef struct sh_optim_kind {
    const char *name, *help;
    int slots;                  // state floats per parameter element, at most
    bool adaptive;              // a parameter with a trust ratio is updated as a whole
    bool momentum_slot;         // the last slot serves momentum and is left out when that is 0
    bool momentum_sgd;          // w -= lr u, with u a running sum of gradients, or g alone
    bool nesterov;              // of that, looking one step ahead
    bool shares;                // can update weights that others write at the same time (Hogwild)
    const char *slot_names[2];  // in checkpoints: "momentum", "exp_avg", "exp_avg_sq"
    sh_own_options own;         // options that it alone has: sh_optim_own
    sh_optim_options initial;   // defaults of the paper; NAN: the option has no meaning here
    void (*step)(const sh_optim_options *options, const sh_optim_step *step, float *const *slots);
} sh_optim_kind;

/* Further rows, which a program defines that has optimizers of its own; ends with NULL. */
extern const sh_optim_kind *const sh_optim_more[] __attribute__((weak, visibility("hidden")));
extern const sh_option_table sh_optim_table;  // for sh_optim_options; options.c

const sh_own_options *sh_optim_own_at(size_t index);  // sh_own_at of this registry
/* The struct of a kind's own options. */
const void *sh_optim_own(const sh_optim_options *options, const sh_optim_kind *kind);

const sh_optim_kind *sh_optim_find(const char *name);  // NULL: unknown
const sh_optim_kind *sh_optim_at(size_t index);        // NULL: past the end
const sh_optim_kind *sh_optim_plain(void);             // gradient descent, the usual one

typedef struct sh_optim {
    const sh_optim_kind *kind;
    sh_optim_options options;  // complete; name is the kind's own
    float *slots[2];           // whole blocks, NULL where unused
    int slot_count;            // slots in use with these options
    size_t total;              // elements of a block
    sh_arena arena;            // holds the slots
} sh_optim;

/* `options` fields that are NAN take the kind's default. A set option that the kind does not have
 * is refused by name. Slots are zeroed. Keeps `options->name`'s meaning, not its memory. */
sh_status sh_optim_init(sh_optim *optim, const sh_optim_options *options, size_t total);
/* The numbers of `options_inout` that were left to the kind; those it does not have stay NAN. */
void sh_optim_resolve(const sh_optim *optim, sh_optim_options *options_inout);
/* The kind and options of another, for a block of another size; slots are zeroed. */
sh_status sh_optim_init_like(sh_optim *optim, const sh_optim *other, size_t total);
/* Floats that the slots take one behind the other. */
size_t sh_optim_floats(const sh_optim *optim);
/* From now on the slots are those in `memory` (64-byte aligned, borrowed), with what is in it. */
void sh_optim_place(sh_optim *optim, float *memory);
void sh_optim_fini(sh_optim *optim);
void sh_optim_apply(sh_optim *optim, const sh_optim_step *step);

/* A stretch of parameters that one kernel call updates. */
typedef struct sh_optim_run {
    size_t at, count;  // elements
    bool decays;       // weight decay applies
    bool adapts;       // trust ratios apply
} sh_optim_run;

/* The next stretch of `step` from parameter `*next_inout` on, which moves past it; start with
 * step->first. False at the end. Neighbours that are treated alike are one stretch, so that many
 * small tensors cost few calls; with `adaptive`, parameters with a trust ratio stand alone. */
bool sh_optim_next_run(const sh_optim_options *options, const sh_optim_step *step, bool adaptive,
                       size_t *next_inout, sh_optim_run *run_out);

/* Clipping: returns the factor that gradients are to be scaled by (1 when the norm is below
 * `most`); `norm_out` gets the norm before. By value: clamps in place. */
double sh_clip_squares(const float *gradients, size_t count);  // of a part: parts add up
double sh_clip_factor(double squares, double most, double *norm_out);
double sh_clip_norm(const float *gradients, size_t count, double most, double *norm_out);
void sh_clip_value(float *gradients, size_t count, float most);

#endif
