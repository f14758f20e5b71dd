/* Codecs: gradients made smaller before they travel. One file and one row each (codec/list.h).
 *
 * A codec sees one parameter at a time, as a real, unpadded matrix (rows, columns); a bucket is the
 * concatenation of its parameters' messages. How ranks combine them is one of two ways:
 *
 *   gather   every rank gets every rank's message and adds all of them up, in rank order, so that
 *            all end with equal bits (sparse and quantised forms)
 *   sum      messages are vectors that an all-reduce adds (fp16, bf16; PowerSGD's factors), in one
 *            or more rounds
 *
 * Message sizes depend on shape and options only, never on the values. Everything received is
 * checked: a hostile message fails, it does not write outside. Residuals (what a biased codec left
 * out) have the layout of the gradient block. */
#ifndef SH_CODEC_CODEC_H
#define SH_CODEC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/status.h"
#include "comm/engine.h"

typedef struct sh_codec_options {
    char name[24];
    double amount;         // BITS, RANK, or R as a fraction; 0 where the codec has none
    bool error_feedback;   // default as the kind says; off to see what happens without
    double momentum;       // dgc: of the optimizer, which then must not apply its own
    double clip;           // dgc: gradient norm over all ranks, 0: none
    int64_t warmup_steps;  // dgc: the ratio falls exponentially from 25 % over these
} sh_codec_options;

/* One parameter on its way. */
typedef struct sh_codec_tensor {
    size_t rows, columns;  // the parameter as a matrix: (out, everything else); a vector is 1 row
    size_t count;          // rows * columns
    float *state[2];       // kind->states blocks at this parameter's place: residual, velocity
    float *factors;        // powersgd: the warm-started Q (columns, rank), kept between steps
    sh_rng rng;            // keyed by (seed, parameter, step, rank)
} sh_codec_tensor;

typedef struct sh_codec sh_codec;

typedef struct sh_codec_kind {
    const char *name, *help;
    const char *amount;  // "BITS", "R", "RANK"; NULL: none
    double amount_least, amount_most;
    bool biased;     // error feedback by default
    int states;      // blocks of state per parameter element with these options, at most
    int rounds;      // 1; powersgd 2
    bool gathers;    // else sums
    sh_dtype dtype;  // what a sum adds
    /* Bytes of the message of round `round`. */
    size_t (*bytes)(const sh_codec *codec, const sh_codec_tensor *tensor, int round);
    /* Writes the message of a round. Round 0 reads the gradient `x` (count) and updates the
     * states; later rounds read what `decode` of the round before left. */
    void (*encode)(const sh_codec *codec, sh_codec_tensor *tensor, int round, const float *x,
                   void *message);
    /* gather: adds one rank's message, times `scale`, to `x`. sum: takes the summed message; in the
     * last round writes x := scale * decoded. Fails on a malformed message. */
    sh_status (*decode)(const sh_codec *codec, sh_codec_tensor *tensor, int round,
                        const void *message, size_t bytes, float scale, float *x);
} sh_codec_kind;

struct sh_codec {
    const sh_codec_kind *kind;
    sh_codec_options options;
    int64_t step;  // of the run, for warm-up; set by the caller
    int ranks;
};

const sh_codec_kind *sh_codec_find(const char *name);  // NULL: unknown
const sh_codec_kind *sh_codec_at(size_t index);        // NULL: past the end

/* Reads "none", "fp16", "qsgd:4", "topk:1%", "dgc:0.1%". "none" leaves kind NULL. */
sh_status sh_codec_parse(const char *text, sh_codec *codec_out);
/* Floats of `factors` that a parameter of this shape keeps (powersgd), 0 for the others. */
size_t sh_codec_factors(const sh_codec *codec, size_t rows, size_t columns);

#endif
