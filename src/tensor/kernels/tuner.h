/* Which library serves which shape: chosen by measurement once, remembered per machine, recorded in
 * the run's manifest so that a resume uses the same (and noise cannot change bits).
 *
 * A key names the work and the thread count ("gemm nt 128x512x784 t2"), a choice names a candidate.
 */
#ifndef SH_TENSOR_KERNELS_TUNER_H
#define SH_TENSOR_KERNELS_TUNER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/status.h"

typedef struct sh_tuner sh_tuner;

typedef struct sh_tuner_options {
    const sh_clock *clock;
    bool measure;  // false: unknown keys take the first candidate, which is the usual winner
    bool direct;   // convolutions by their definition only
    int threads;
} sh_tuner_options;

sh_status sh_tuner_create(const sh_tuner_options *options, sh_tuner **tuner_out);
void sh_tuner_destroy(sh_tuner *tuner);
int sh_tuner_threads(const sh_tuner *tuner);
bool sh_tuner_is_direct(const sh_tuner *tuner);

/* Turns measuring off for shapes that are met rarely (evaluation, the last batch), and on again.
 * What is decided without measuring belongs to this run only. */
void sh_tuner_pause(sh_tuner *tuner, bool paused);
/* No measuring from here on: another rank decides. */
void sh_tuner_forbid(sh_tuner *tuner);

/* Returns the index of the candidate for `key`. An unknown key is measured: `run(context, i)` does
 * the work once by candidate i; the fastest of few repetitions wins and is remembered. */
int sh_tuner_choose(sh_tuner *tuner, const char *key, const char *const *candidates, int count,
                    void (*run)(void *context, int candidate), void *context);

/* Other figures that are measured once per machine (what messages cost): as they were kept, NULL:
 * never; and kept from now on. */
const char *sh_tuner_recall(sh_tuner *tuner, const char *key);
sh_status sh_tuner_keep(sh_tuner *tuner, const char *key, const char *figures);
/* Whether they were measured on this machine; false too for those of a run that is resumed, which
 * must stay what they are. */
bool sh_tuner_measured(const sh_tuner *tuner, const char *key);
/* The first key that begins so, in the order they were kept; NULL: none. */
const char *sh_tuner_find(const sh_tuner *tuner, const char *beginning);
bool sh_tuner_measures(const sh_tuner *tuner);

/* Whether sh_tuner_choose would answer without measuring. A choice that names none of the
 * candidates (of another build) does not count as known. */
bool sh_tuner_knows(const sh_tuner *tuner, const char *key, const char *const *candidates,
                    int count);

/* Choices as a JSON object {key: candidate}; loading adds to what is known, later loads win.
 * `used_only` prints what this run asked for, otherwise everything that was measured. sh_free the
 * text. */
sh_status sh_tuner_load(sh_tuner *tuner, const char *source, const char *json, size_t bytes,
                        bool measured);
char *sh_tuner_print(const sh_tuner *tuner, bool used_only);
/* The thread count that the keys of printed choices end with; 0: there is none. */
int sh_choices_threads(const char *json, size_t bytes);
bool sh_tuner_changed(const sh_tuner *tuner);  // something was measured since creation

#endif
