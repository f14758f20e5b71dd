/* Data in parts: %r in a file name stands for the worker's rank, and each worker reads its own
 * file. Workers tell each other what they found (shapes, targets, widths, counts), so that all
 * agree on one description, or all fail with the same message. One worker alone can read all parts
 * behind one another, which a resume on fewer workers needs. */
#include "data/parts.h"

#include <string.h>

#include "base/memory.h"

/* Tells whether a name holds %r; %% is a percent sign and skipped as a pair. */
bool sh_part_named(const char *name) {
    for (const char *at = name; at != NULL && (at = strchr(at, '%')) != NULL && at[1] != '\0';
         at += 2)
        if (at[1] == 'r') return true;
    return false;
}

/* Replaces %r by the rank and %% by a percent sign. Any other %x is refused, as it is a typing
 * error. */
sh_status sh_part_name(const char *key, const char *name, int rank, char **name_out) {
    size_t room = 1;
    for (const char *at = name; *at != '\0'; at++) room += *at == '%' ? 12 : 1;
    char *made = sh_alloc(room, 1), *to = made;
    if (made == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for names");
    for (const char *at = name; *at != '\0'; at++) {
        if (*at != '%') {
            *to++ = *at;
        } else if (*++at == 'r') {
            to += snprintf(to, 12, "%d", rank);
        } else if (*at == '%') {
            *to++ = '%';
        } else {
            SH_FAIL(SH_E_USAGE, "%s: '%s' holds '%%%.1s', which stands for nothing", key, name, at);
            sh_free(made);
            return sh_error_hint("%%r stands for the rank of a worker, %%%% for a percent sign");
        }
    }
    *name_out = made;
    return SH_OK;
}

/* What must fit together, as numbers that a team can exchange. */
enum {
    AXES,  // 0: this rank has no such data
    DIM,
    DIMS_MOST = 3,
    TARGET = DIM + DIMS_MOST,
    CLASSES,
    VALUES,
    CELL,
    IGNORES,
    SIGNS,  // labels -1 and +1 were made classes 0 and 1
    PLAIN,  // there are labels that cannot have been made so
    FACTS,
};

/* The parts that this process opens, and the facts of all. */
typedef struct pieces {
    const sh_read *read;
    const char *key;
    const sh_data_team *team;  // NULL: alone
    int first, count, ranks;   // the parts opened here, and all of them
    sh_source **sources;       // (count)
    double *facts;             // (ranks, FACTS)
    bool has_parts;
} pieces;

/* Facts of a rank. */
static double *facts_of(const pieces *p, int rank) { return p->facts + (size_t)rank * FACTS; }

/* A source in numbers, for the exchange. */
static void take_facts(const sh_source *source, double *facts) {
    if (source == NULL) return;
    const sh_data_info *info = &source->info;
    SH_ASSERT(info->sample.rank <= DIMS_MOST);
    facts[AXES] = info->sample.rank;
    for (int i = 0; i < info->sample.rank; i++) facts[DIM + i] = (double)info->sample.dim[i];
    facts[TARGET] = info->target;
    facts[CLASSES] = (double)info->classes;
    facts[VALUES] = (double)info->values;
    facts[CELL] = source->cell;
    facts[IGNORES] = info->ignores;
    facts[SIGNS] = source->signs;
    bool plain = info->target == SH_TARGET_CLASS && !source->signs && info->classes > 2;
    for (size_t i = 0; info->target == SH_TARGET_CLASS && i < source->stored && !plain; i++)
        plain = !source->signs && source->labels[i] == 0;
    facts[PLAIN] = plain;
}

/* Everyone's facts to everyone. */
static sh_status exchange(pieces *p) {
    memset(p->facts, 0, (size_t)p->ranks * FACTS * sizeof *p->facts);
    for (int i = 0; i < p->count; i++) take_facts(p->sources[i], facts_of(p, p->first + i));
    return p->team != NULL ? p->team->sum(p->team->self, p->facts, (size_t)p->ranks * FACTS)
                           : SH_OK;
}

static sh_status fail_missing(const pieces *p, int rank, const char *file) {
    SH_FAIL(SH_E_IO, "there is no '%s', the part of %s for rank %d", file, p->key, rank);
    return sh_error_hint("'%s' needs a file for each of the ranks 0 to %d", p->read->path,
                         p->ranks - 1);
}

/* Samples and labels of one rank's part. */
static sh_status open_names(pieces *p, int rank, sh_read *read, sh_source **source_out) {
    sh_status status = sh_source_open(read, &p->has_parts, source_out);
    if (status == SH_E_IO && !sh_file_exists(read->path)) return fail_missing(p, rank, read->path);
    if (status == SH_E_IO && read->labels != NULL && !sh_file_exists(read->labels))
        return fail_missing(p, rank, read->labels);
    SH_TRY(status);
    const sh_source *source = *source_out;
    if (source == NULL || (!source->info.tokens && source->period == 0)) return SH_OK;
    SH_FAIL(SH_E_UNSUPPORTED, "%s: '%s' is %s, which cannot lie in parts", p->key, read->path,
            source->info.tokens ? "text" : "synthetic");
    return sh_error_hint("give all workers the same data: each takes its share of every batch");
}

/* Opens one of the parts, or opens it again; `target` and `width` as in sh_read. */
static sh_status open_piece(pieces *p, int i, sh_target target, int64_t width) {
    sh_read read = *p->read;
    char *path = NULL, *labels = NULL;
    int rank = p->first + i;
    sh_status status;
    sh_source_release(p->sources[i]);
    p->sources[i] = NULL;
    SH_TRY_OUT(sh_part_name(p->key, p->read->path, rank, &path));
    if (p->read->labels != NULL)
        SH_TRY_OUT(sh_part_name("data.labels", p->read->labels, rank, &labels));
    read.path = path;
    read.labels = labels;
    read.target = target;
    read.width = width;
    SH_TRY_OUT(open_names(p, rank, &read, &p->sources[i]));
out:
    sh_free(path);
    sh_free(labels);
    return status;
}

/* Labels are values as soon as those of one part are, and sparse rows are as wide as the widest:
 * parts that were read otherwise are read again. */
static sh_status widen(pieces *p) {
    bool values = false, again = false;
    double width = 0;
    for (int r = 0; r < p->ranks; r++) {
        const double *facts = facts_of(p, r);
        if (facts[TARGET] == SH_TARGET_VALUES) values = true;
        if (facts[AXES] == 1 && facts[DIM] > width) width = facts[DIM];
    }
    for (int r = 0; r < p->ranks; r++) {
        const double *facts = facts_of(p, r);
        bool narrow = facts[AXES] == 1 && facts[DIM] < width;
        if (!narrow && !(values && facts[TARGET] == SH_TARGET_CLASS)) continue;
        again = true;
        if (r < p->first || r >= p->first + p->count) continue;
        sh_target target = values ? SH_TARGET_VALUES : p->read->target;
        SH_TRY(open_piece(p, r - p->first, target, narrow ? (int64_t)width : p->read->width));
    }
    return again ? exchange(p) : SH_OK;
}

/* Why the part of a rank does not go with rank 0's; NULL: it does. Every rank has all facts, so
 * all come to the same verdict. */
static const char *misfit(const pieces *p, int rank) {
    const double *a = facts_of(p, 0), *b = facts_of(p, rank);
    if (a[AXES] != b[AXES] && a[AXES] * b[AXES] == 0)
        return b[AXES] == 0 ? "it has no such samples" : "only this one has such samples";
    for (int i = AXES; i < TARGET; i++)
        if (a[i] != b[i]) return "samples of another shape";
    if (a[TARGET] != b[TARGET])
        return b[TARGET] == SH_TARGET_NONE ? "it has no labels" : "another kind of target";
    if (a[VALUES] != b[VALUES]) return "another number of targets per sample";
    if (a[CELL] != b[CELL]) return "one holds bytes, the other does not";
    bool plain = false;
    for (int r = 0; r < p->ranks; r++) plain = plain || facts_of(p, r)[PLAIN] != 0;
    return b[SIGNS] != 0 && plain ? "labels -1 and +1 among labels from 0" : NULL;
}

/* Fails on all ranks if one part does not fit; the rank itself names its file. */
static sh_status compare(const pieces *p) {
    for (int i = 0; i < p->count; i++) {
        const char *why = misfit(p, p->first + i);
        if (why == NULL) continue;
        const sh_source *source = p->sources[i];
        SH_FAIL(SH_E_SHAPE, "%s: the part of rank %d%s%s%s does not fit the other ranks': %s",
                p->key, p->first + i, source != NULL ? ", '" : "",
                source != NULL ? source->name : "", source != NULL ? "'," : "", why);
        return sh_error_hint("'shoal data info' shows what a file holds");
    }
    for (int r = 0; r < p->ranks; r++)
        if (misfit(p, r) != NULL)
            return SH_FAIL(SH_E_PEER, "%s: the part of rank %d does not fit", p->key, r);
    return SH_OK;
}

/* Sets the number of classes to the largest of all parts: one worker may not see the rarest
 * class. */
static void set_classes(const pieces *p) {
    double classes = 0;
    bool ignores = false;
    for (int r = 0; r < p->ranks; r++) {
        const double *facts = facts_of(p, r);
        if (facts[CLASSES] > classes) classes = facts[CLASSES];
        ignores = ignores || facts[IGNORES] != 0;
    }
    for (int i = 0; i < p->count; i++) {
        if (p->sources[i] == NULL) continue;
        p->sources[i]->info.classes = (int64_t)classes;
        p->sources[i]->info.ignores = ignores;
    }
}

/* Remembers which parts a source holds, since the hold-out is drawn for each of them. */
static sh_status note_parts(const pieces *p, sh_source *source) {
    source->part_sizes = sh_alloc((size_t)p->count, sizeof *source->part_sizes);
    if (source->part_sizes == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for parts");
    for (int i = 0; i < p->count; i++) source->part_sizes[i] = p->sources[i]->stored;
    source->first_part = p->first;
    source->part_count = p->count;
    return SH_OK;
}

/* Copies a part behind the others in the joined source. */
static void copy_part(const sh_source *from, size_t at, sh_source *to) {
    size_t sample = sh_shape_count(&from->info.sample) * sh_cell_bytes(from->cell);
    size_t values = (size_t)from->info.values;
    memcpy((char *)to->memory[0] + at * sample, from->cells, from->stored * sample);
    if (from->info.target == SH_TARGET_CLASS)
        memcpy((int32_t *)to->memory[1] + at, from->labels, from->stored * sizeof(int32_t));
    if (from->info.target == SH_TARGET_VALUES)
        memcpy((float *)to->memory[1] + at * values, from->values,
               from->stored * values * sizeof(float));
}

/* Joins all parts into one source, in the order of the ranks. */
static sh_status join(const pieces *p, sh_source **source_out) {
    const sh_source *like = p->sources[0];
    sh_source *source = NULL;
    size_t count = 0;
    for (int i = 0; i < p->count; i++) {
        count += p->sources[i]->stored;
        if (p->sources[i]->sparse.rows == 0) continue;
        SH_FAIL(SH_E_UNSUPPORTED, "'%s' is sparse, and one worker cannot join sparse parts",
                p->sources[i]->name);
        return sh_error_hint("give it one file, or each part to a worker (-n %d)", p->ranks);
    }
    SH_TRY(sh_source_create(p->read->path, &source));
    bool classes = like->info.target == SH_TARGET_CLASS;
    size_t per_target = classes ? sizeof(int32_t) : (size_t)like->info.values * sizeof(float);
    // compare() has made sure that all parts agree.
    source->info = like->info;
    source->info.count = source->stored = count;
    source->cell = like->cell;
    source->memory[0] =
        sh_alloc(count, sh_shape_count(&like->info.sample) * sh_cell_bytes(like->cell));
    source->memory[1] = sh_alloc(count, per_target + 1);
    sh_status status = note_parts(p, source);
    if (status == SH_OK && (source->memory[0] == NULL || source->memory[1] == NULL))
        status =
            SH_FAIL(SH_E_MEMORY, "out of memory for the %zu samples of '%s'", count, p->read->path);
    if (status != SH_OK) {
        sh_source_release(source);
        return status;
    }
    source->cells = source->memory[0];
    source->labels = source->memory[1];
    source->values = source->memory[1];
    for (size_t i = 0, at = 0; i < (size_t)p->count; at += p->sources[i++]->stored)
        copy_part(p->sources[i], at, source);
    *source_out = source;
    return SH_OK;
}

/* Opens the pieces of this process, exchanges their facts and checks that all go together. */
static sh_status open_pieces(pieces *p, sh_source **source_out) {
    p->sources = sh_alloc((size_t)p->count, sizeof(sh_source *));
    p->facts = sh_alloc((size_t)p->ranks * FACTS, sizeof *p->facts);
    if (p->sources == NULL || p->facts == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %d parts", p->ranks);
    for (int i = 0; i < p->count; i++) SH_TRY(open_piece(p, i, p->read->target, p->read->width));
    SH_TRY(exchange(p));
    SH_TRY(widen(p));
    SH_TRY(compare(p));
    if (p->sources[0] == NULL) return SH_OK;  // nor has any other
    set_classes(p);
    if (p->team == NULL) return join(p, source_out);
    SH_TRY(note_parts(p, p->sources[0]));
    *source_out = p->sources[0];
    p->sources[0] = NULL;
    return SH_OK;
}

/* Opens one file: the data has no parts, or one worker, whose part is the first. */
static sh_status open_single(const sh_read *read, const char *key, bool *has_parts_out,
                             sh_source **source_out) {
    char *path = NULL, *labels = NULL;
    sh_read single = *read;
    sh_status status;
    SH_TRY_OUT(sh_part_name(key, read->path, 0, &path));
    if (read->labels != NULL) SH_TRY_OUT(sh_part_name("data.labels", read->labels, 0, &labels));
    single.path = path;
    single.labels = labels;
    SH_TRY_OUT(sh_source_open(&single, has_parts_out, source_out));
out:
    sh_free(path);
    sh_free(labels);
    return status;
}

/* Opens one file, this rank's part, or all parts joined, as name and team ask for. */
sh_status sh_parts_open(const sh_read *read, const char *key, bool *has_parts_out,
                        sh_source **source_out) {
    const sh_data_team *team = read->options->team;
    int ranks = team != NULL ? team->ranks : read->options->parts;
    bool named = sh_part_named(read->path);
    if (read->labels != NULL && sh_part_named(read->labels) != named) {
        SH_FAIL(SH_E_USAGE, "%%r stands in %s and not in %s", named ? key : "data.labels",
                named ? "data.labels" : key);
        return sh_error_hint("every part has labels of its own: use %%r in both");
    }
    if (!named || ranks <= 1) return open_single(read, key, has_parts_out, source_out);
    pieces p = {.read = read,
                .key = key,
                .team = team,
                .first = team != NULL ? team->rank : 0,
                .count = team != NULL ? 1 : ranks,
                .ranks = ranks};
    sh_status status = open_pieces(&p, source_out);
    for (int i = 0; p.sources != NULL && i < p.count; i++) sh_source_release(p.sources[i]);
    sh_free(p.sources);
    sh_free(p.facts);
    if (has_parts_out != NULL) *has_parts_out = p.has_parts;
    return status;
}

/* Tells whether the data lies in parts of which others hold the rest. */
bool sh_source_is_part(const sh_source *source, const sh_data_team *team) {
    return team != NULL && source != NULL && source->part_count > 0;
}

/* Makes every rank know the sizes of all parts, which the loader needs to deal batches evenly. One
 * sum: each rank fills in its own places. */
sh_status sh_parts_exchange_sizes(const sh_data_team *team, sh_dataset *const datasets[],
                                  size_t count, size_t **sizes_out) {
    size_t ranks = (size_t)team->ranks, rank = (size_t)team->rank;
    double *all = sh_alloc(count * ranks, sizeof *all);
    size_t *sizes = sh_alloc(count * ranks, sizeof *sizes);
    sh_status status = SH_OK;
    if (all == NULL || sizes == NULL) SH_TRY_OUT(SH_FAIL(SH_E_MEMORY, "out of memory for parts"));
    for (size_t i = 0; i < count; i++)
        if (datasets[i] != NULL) all[i * ranks + rank] = (double)datasets[i]->info.count;
    SH_TRY_OUT(team->sum(team->self, all, count * ranks));
    for (size_t i = 0; i < count * ranks; i++) sizes[i] = (size_t)all[i];
    for (size_t i = 0; i < count; i++)
        if (datasets[i] != NULL)
            datasets[i]->parts = (sh_parts){team->rank, team->ranks, sizes + i * ranks};
    *sizes_out = sizes;
    sizes = NULL;
out:
    sh_free(all);
    sh_free(sizes);
    return status;
}

/* Fingerprint over those of all parts, in rank order: a resume on other files is refused. */
sh_status sh_parts_fingerprint(const sh_data_team *team, uint64_t *fingerprint_inout) {
    size_t ranks = (size_t)team->ranks;
    double *halves = sh_alloc(2 * ranks, sizeof *halves);  // 32 bits each: exact in a double
    if (halves == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for parts");
    halves[2 * (size_t)team->rank] = (double)(*fingerprint_inout >> 32);
    halves[2 * (size_t)team->rank + 1] = (double)(*fingerprint_inout & UINT32_MAX);
    sh_status status = team->sum(team->self, halves, 2 * ranks);
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < 2 * ranks; i++)
        hash = (hash ^ (uint64_t)halves[i]) * 0x100000001b3;  // NOLINT FNV-1a, by words
    sh_free(halves);
    if (status == SH_OK) *fingerprint_inout = hash;
    return status;
}
