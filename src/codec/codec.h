/* Codecs: gradients made smaller before they travel. One file and one row each (codec/list.h).
 *
 * A codec sees one parameter at a time, as a real, unpadded matrix (rows, columns); a bucket is the
 * concatenation of its parameters' messages. How ranks combine them is one of two ways:
 *
 *   gather   every rank gets every rank's message and adds all of them up, in rank order, so that
 *            all end with equal bits (sparse and quantised forms)
 *   sum      messages are vectors that an all-reduce adds (fp16, bf16, values at common indices;
 *            PowerSGD's factors), in one or more rounds
 *
 * Message sizes depend on shape, options and step only, never on the values. A parameter whose
 * messages would be no smaller than its floats goes dense: as it is. Everything received is
 * checked: a hostile message fails, it does not write outside. Residuals (what a biased codec left
 * out) have the layout of the gradient block.
 *
 * Gradients are scaled by the caller so that their sum over the ranks is wanted. */
#ifndef SH_CODEC_CODEC_H
#define SH_CODEC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"
#include "base/rng.h"
#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

enum { SH_CODEC_TEXT = 48 };

typedef struct sh_codec_options {
    char name[24];
    double amount;         // BITS, RANK, or R as a fraction; 0 where the codec has none
    bool error_feedback;   // default as the kind says; off to see what happens without
    double momentum;       // dgc: of the optimizer, which then must not apply its own
    bool nesterov;         // dgc: momentum of that form
    double clip;           // terngrad: in standard deviations; 0: none
    int64_t warmup_steps;  // dgc: the ratio falls exponentially from 25 % over these
    size_t dense_below;    // parameters of fewer elements go as they are
} sh_codec_options;

/* The rows of the group "compress" in the options of a run. */
typedef struct sh_codec_settings {
    char *name;        // with its amount, as sh_codec_parse reads it
    bool feedback;     // of what a biased codec left out
    double warmup;     // dgc: steps, or below 1 a part of the run
    sh_own_block own;  // of single codecs
} sh_codec_settings;

extern const sh_option_table sh_codec_table;  // for sh_codec_settings; options.c

/* One parameter on its way. */
typedef struct sh_codec_tensor {
    const char *name;  // for messages, like the rank that a message is from
    int from;
    size_t rows, columns;  // the parameter as a matrix: (out, everything else); a vector is 1 row
    size_t count;          // rows * columns, below 2^32
    float *state[2];       // sh_codec_states blocks at this parameter's place: residual, velocity
    float *factors;        // powersgd: the warm-started Q (rank, columns), kept between steps
    float *between;        // sh_codec_between floats, kept between the rounds of a step
    void *work;            // sh_codec_work_bytes, 64-byte aligned, during one call
    sh_rng own, common;    // keyed by (seed, parameter, step), and own by the rank as well
} sh_codec_tensor;

typedef struct sh_codec sh_codec;

typedef enum sh_feedback {
    SH_FEEDBACK_NEVER,   // the codec is right on average, and feedback would only add noise
    SH_FEEDBACK_OPTION,  // possible; off unless asked for
    SH_FEEDBACK_USUAL,   // the codec is biased: on unless switched off
} sh_feedback;

typedef struct sh_codec_kind {
    const char *name, *help;
    const char *amount;  // "BITS", "R", "RANK"; NULL: none
    double amount_least, amount_most, amount_initial;
    bool amount_whole;    // a whole number; otherwise a fraction, also written as a percentage
    double clip_initial;  // options.clip as sh_codec_parse leaves it
    size_t dense_below;   // and options.dense_below
    sh_own_options own;   // options that it alone has: sh_codec_own(codec)
    sh_feedback feedback;
    bool owns_momentum;          // the caller sets options.momentum and its optimizer applies none
    bool keeps_states;           // has its states without feedback too
    int states;                  // blocks of state, at most
    const char *state_names[2];  // in checkpoints
    int rounds;                  // 1; powersgd 2
    bool gathers;                // else sums
    sh_dtype dtype;              // what a sum adds
    /* Bytes of the message of round `round`, a multiple of the dtype's size. */
    size_t (*bytes)(const sh_codec *codec, const sh_codec_tensor *tensor, int round);
    /* Bytes of `work`, floats of `between` and of `factors`; NULL: none. */
    size_t (*work_bytes)(const sh_codec *codec, const sh_codec_tensor *tensor);
    size_t (*between)(const sh_codec *codec, const sh_codec_tensor *tensor);
    size_t (*factors)(const sh_codec *codec, size_t rows, size_t columns);
    /* Adds the gradient `x` to the states and returns what is to be sent: state[0], or x itself.
     * NULL: the residual of error feedback (codec/feedback.h). */
    const float *(*take)(const sh_codec *codec, sh_codec_tensor *tensor, const float *x);
    /* Writes the message of a round for `y`, which `take` returned, and leaves in the states what
     * is not in the message. */
    void (*encode)(const sh_codec *codec, sh_codec_tensor *tensor, int round, const float *y,
                   void *message);
    /* gather: adds one rank's message, times `scale`, to `x`. sum: takes the summed message; in the
     * last round writes x := scale * decoded. `bytes` is right; the contents may be anything. */
    sh_status (*decode)(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                        const void *message, float scale, float *x);
} sh_codec_kind;

struct sh_codec {
    const sh_codec_kind *kind;  // NULL: none, gradients travel as they are
    sh_codec_options options;
    sh_own_block own;  // the struct of the kind's own options
    int64_t step;      // of the run, for warm-up; set by the caller
    int ranks;
};

/* Further rows, which a program defines that has codecs of its own; ends with NULL. */
extern const sh_codec_kind *const sh_codec_more[] __attribute__((weak, visibility("hidden")));

const sh_codec_kind *sh_codec_find(const char *name);  // NULL: unknown
const sh_codec_kind *sh_codec_at(size_t index);        // NULL: past the end

/* Reads "none", "fp16", "qsgd:4", "topk:1%", "dgc:0.1%"; an amount left out takes the kind's
 * default. "none" leaves kind NULL. */
sh_status sh_codec_parse(const char *text, sh_codec *codec_out);
/* The same with what the options of a run say of it. */
sh_status sh_codec_make(const sh_codec_settings *settings, sh_codec *codec_out);
const sh_own_options *sh_codec_own_at(size_t index);  // sh_own_at of this registry
/* The struct of the kind's own options. */
static inline const void *sh_codec_own(const sh_codec *codec) { return codec->own.bytes; }
/* Options that were set after parsing fit the kind. */
sh_status sh_codec_check(const sh_codec *codec);
/* "topk:1%", as sh_codec_parse reads it. Returns text_out. */
const char *sh_codec_text(const sh_codec *codec, char text_out[SH_CODEC_TEXT]);

/* The names that checkpoints may hold states of codecs under, of all rows, up to a NULL. A momentum
 * that a codec owns is called velocity; with `momentum` the list begins with the optimizer's,
 * whose place it takes. */
const char *const *sh_codec_state_names(bool momentum);
/* Blocks of state with these options. */
int sh_codec_states(const sh_codec *codec);
/* The matrix that a codec sees in a parameter of this shape. */
void sh_codec_matrix(const sh_shape *shape, size_t *rows_out, size_t *columns_out);

/* A message was refused: "'conv1.weight' from rank 2: WHAT". Returns the code. */
sh_status sh_codec_refuse(const sh_codec_tensor *tensor, sh_status code, const char *what);

/* The calls below decide what goes dense and check sizes; they are what an exchange uses. */
bool sh_codec_is_dense(const sh_codec *codec, const sh_codec_tensor *tensor);
size_t sh_codec_bytes(const sh_codec *codec, const sh_codec_tensor *tensor, int round);
/* The most that any step of a run needs. */
size_t sh_codec_bytes_most(const sh_codec *codec, const sh_codec_tensor *tensor, int round);
size_t sh_codec_work_bytes(const sh_codec *codec, const sh_codec_tensor *tensor);
size_t sh_codec_between(const sh_codec *codec, const sh_codec_tensor *tensor);
size_t sh_codec_factors(const sh_codec *codec, size_t rows, size_t columns);
/* Round 0 reads the gradient `x` (count) and updates the states; later rounds are given the same x
 * again and read what `decode` of the round before left. */
void sh_codec_encode(const sh_codec *codec, sh_codec_tensor *tensor, int round, const float *x,
                     void *message);
/* As kind->decode; fails on a message that is malformed or has another size. */
sh_status sh_codec_decode(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                          const void *message, size_t bytes, float scale, float *x);

#endif
