/* Kernel choices by measurement. Candidates take turns, so that a disturbance meets all alike; the
 * fastest of several runs counts, and a later candidate must win by two percent, so that ties stay
 * with the usual one. Choices are remembered per machine and recorded in the manifest: a resumed
 * run uses its own, whatever this machine would choose, because another kernel may give other bits.
 */
#include "tensor/kernels/tuner.h"

#include <stdio.h>
#include <string.h>

#include "base/index.h"
#include "base/json.h"
#include "base/memory.h"

typedef struct choice {
    char *key;
    char *candidate;  // NULL: of this run none is known
    bool used;        // asked for in this run
    bool measured;    // the candidate is this machine's
    char *machine;    // what this machine measured, for other runs; NULL: nothing. A run that is
                      // resumed brings choices of its own, and these stay what they are
} choice;

struct sh_tuner {
    sh_tuner_options options;
    choice *choices;
    size_t count, capacity;
    sh_index by_key;
    bool changed;
    bool paused;
};

sh_status sh_tuner_create(const sh_tuner_options *options, sh_tuner **tuner_out) {
    sh_tuner *tuner = sh_alloc(1, sizeof *tuner);
    if (tuner == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for kernel choices");
    tuner->options = *options;
    *tuner_out = tuner;
    return SH_OK;
}

void sh_tuner_destroy(sh_tuner *tuner) {
    if (tuner == NULL) return;
    for (size_t i = 0; i < tuner->count; i++) {
        sh_free(tuner->choices[i].key);
        sh_free(tuner->choices[i].candidate);
        sh_free(tuner->choices[i].machine);
    }
    sh_free(tuner->choices);
    sh_index_fini(&tuner->by_key);
    sh_free(tuner);
}

int sh_tuner_threads(const sh_tuner *tuner) { return tuner->options.threads; }
bool sh_tuner_is_direct(const sh_tuner *tuner) { return tuner->options.direct; }
bool sh_tuner_changed(const sh_tuner *tuner) { return tuner->changed; }

static const char *key_at(const void *choices, size_t at) {
    return ((const choice *)choices)[at].key;
}

/* By hash: a large net asks hundreds of times. */
static choice *find(const sh_tuner *tuner, const char *key) {
    size_t at = sh_index_find(&tuner->by_key, tuner->choices, key_at, key);
    return at != SH_INDEX_NONE ? &tuner->choices[at] : NULL;
}

/* The place of a choice among the candidates; -1 for none, or for a name from another build. */
static int place(const choice *known, const char *const *candidates, int count) {
    for (int i = 0; known != NULL && known->candidate != NULL && i < count; i++)
        if (strcmp(candidates[i], known->candidate) == 0) return i;
    return -1;
}

/* While paused everything unknown takes the first candidate. */
static bool is_measuring(const sh_tuner *tuner) { return tuner->options.measure && !tuner->paused; }

void sh_tuner_forbid(sh_tuner *tuner) { tuner->options.measure = false; }

void sh_tuner_pause(sh_tuner *tuner, bool paused) { tuner->paused = paused; }

bool sh_tuner_knows(const sh_tuner *tuner, const char *key, const char *const *candidates,
                    int count) {
    return !is_measuring(tuner) || place(find(tuner, key), candidates, count) >= 0;
}

static sh_status no_memory(void) {
    return SH_FAIL(SH_E_MEMORY, "out of memory for kernel choices");
}

static sh_status set_text(char **text, const char *value) {
    char *copy = sh_strdup(value);
    if (copy == NULL) return no_memory();
    sh_free(*text);
    *text = copy;
    return SH_OK;
}

/* A new entry without a candidate. */
static sh_status add_key(sh_tuner *tuner, const char *key, choice **choice_out) {
    SH_TRY(sh_grow((void **)&tuner->choices, &tuner->capacity, tuner->count + 1,
                   sizeof *tuner->choices));
    choice *added = &tuner->choices[tuner->count];
    *added = (choice){.key = sh_strdup(key)};
    if (added->key == NULL) return no_memory();
    sh_status status = sh_index_add(&tuner->by_key, tuner->choices, key_at, tuner->count);
    if (status != SH_OK) {
        sh_free(added->key);
        return status;
    }
    tuner->count++;
    *choice_out = added;
    return SH_OK;
}

/* Sets or replaces the choice of a key; `flags` carries used and measured. */
static sh_status put(sh_tuner *tuner, const char *key, const char *candidate, choice flags) {
    choice *known = find(tuner, key);
    if (known == NULL) SH_TRY(add_key(tuner, key, &known));
    if (flags.measured) SH_TRY(set_text(&known->machine, candidate));
    SH_TRY(set_text(&known->candidate, candidate));
    known->used |= flags.used;
    known->measured = flags.measured;
    return SH_OK;
}

enum { CANDIDATES_MOST = 8 };

/* What the runs of one candidate took so far. */
typedef struct timing {
    int64_t best_ns, spent_ns;
    int runs;
} timing;

/* The first run also warms caches, and another process may take the processor away in any one: a
 * candidate that is quick enough is run three times at least. */
static bool wants_more(const timing *t) {
    const int64_t long_ns = 60000000, budget_ns = 6000000;
    return t->spent_ns < budget_ns || (t->runs < 3 && t->spent_ns < long_ns);
}

static void time_once(const sh_clock *clock, void (*run)(void *, int), void *context, int candidate,
                      timing *t) {
    int64_t begin = sh_clock_now_ns(clock);
    run(context, candidate);
    int64_t took = sh_clock_now_ns(clock) - begin;
    if (t->runs == 0 || took < t->best_ns) t->best_ns = took;
    t->spent_ns += took > 1000 ? took : 1000;
    t->runs++;
}

/* Best of a few, since noise only ever adds time; in turns, so that it meets all alike. */
static int measure(const sh_tuner *tuner, int count, void (*run)(void *, int), void *context) {
    timing timings[CANDIDATES_MOST] = {0};
    SH_ASSERT(count <= CANDIDATES_MOST);
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < count; i++) {
            if (!wants_more(&timings[i])) continue;
            time_once(tuner->options.clock, run, context, i, &timings[i]);
            more = true;
        }
    }
    int winner = 0;
    for (int i = 1; i < count; i++) {
        int64_t least = timings[winner].best_ns;
        // A later candidate must win clearly: ties stay with the usual one.
        if (timings[i].best_ns < least - least / 50) winner = i;
    }
    return winner;
}

int sh_tuner_choose(sh_tuner *tuner, const char *key, const char *const *candidates, int count,
                    void (*run)(void *context, int candidate), void *context) {
    choice *known = find(tuner, key);
    if (known != NULL) known->used = true;
    int remembered = place(known, candidates, count);
    if (remembered >= 0) return remembered;
    bool measures = is_measuring(tuner);
    int winner = measures ? measure(tuner, count, run, context) : 0;
    choice decided = {.used = true, .measured = measures};
    if (put(tuner, key, candidates[winner], decided) == SH_OK && measures) tuner->changed = true;
    return winner;
}

const char *sh_tuner_recall(sh_tuner *tuner, const char *key) {
    choice *known = find(tuner, key);
    if (known == NULL) return NULL;
    known->used = true;
    return known->candidate;
}

sh_status sh_tuner_keep(sh_tuner *tuner, const char *key, const char *figures) {
    SH_TRY(put(tuner, key, figures, (choice){.used = true, .measured = true}));
    tuner->changed = true;
    return SH_OK;
}

bool sh_tuner_measured(const sh_tuner *tuner, const char *key) {
    const choice *known = find(tuner, key);
    return known != NULL && known->measured;
}

const char *sh_tuner_find(const sh_tuner *tuner, const char *beginning) {
    for (size_t i = 0; i < tuner->count; i++)
        if (strncmp(tuner->choices[i].key, beginning, strlen(beginning)) == 0)
            return tuner->choices[i].key;
    return NULL;
}

bool sh_tuner_measures(const sh_tuner *tuner) { return is_measuring(tuner); }

sh_status sh_tuner_load(sh_tuner *tuner, const char *source, const char *json, size_t bytes,
                        bool measured) {
    char fault[SH_JSON_FAULT];
    json_t *root = sh_json_read_map(json, bytes, fault);
    if (root == NULL) return SH_FAIL(SH_E_FORMAT, "kernel choices in '%s': %s", source, fault);
    sh_status status = SH_OK;
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
        if (json_is_string(value))
            status = put(tuner, key, json_string_value(value), (choice){.measured = measured});
        if (status != SH_OK) break;
    }
    json_decref(root);
    return status;
}

int sh_choices_threads(const char *json, size_t bytes) {
    char fault[SH_JSON_FAULT];
    json_t *root = sh_json_read_map(json, bytes, fault), *value;
    const char *key;
    int threads = 0;
    json_object_foreach(root, key, value) {
        const char *last = strrchr(key, ' ');
        int count = 0, end = 0;
        if (last != NULL && sscanf(last, " t%5d%n", &count, &end) == 1 && last[end] == '\0')
            threads = count;
    }
    json_decref(root);
    return threads > 0 ? threads : 0;
}

char *sh_tuner_print(const sh_tuner *tuner, bool used_only) {
    json_t *root = json_object();
    for (size_t i = 0; i < tuner->count; i++) {
        const choice *known = &tuner->choices[i];
        const char *text = used_only ? known->used ? known->candidate : NULL : known->machine;
        if (text != NULL) json_object_set_new(root, known->key, json_string(text));
    }
    char *dumped = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
    json_decref(root);
    return dumped;
}
