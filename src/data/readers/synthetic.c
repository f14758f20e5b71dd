/* Data made from the seed, for benchmarks and tests.
 *
 *   synthetic:classes=10,shape=3x32x32,count=4096      images of bytes, one pattern per class
 *   synthetic:tokens=65,context=256,count=4096         windows of random tokens
 *   synthetic:features=47236,nonzeros=73,zipf=1.1      sparse rows of two classes (data/sparse.h)
 *
 * A modest pool is filled once and repeats, so that making data costs no training time. Images are
 * the mean of their class's pattern and of noise, so that a network can learn them. */
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/reader.h"
#include "data/room.h"

static const char prefix[] = "synthetic:";
/* Bounds: the image pool has 8 MiB but at least 16 samples, so that large images are not all
 * alike; a context has at most 2^20 tokens. */
enum { POOL_BYTES = 8 << 20, POOL_SAMPLES_LEAST = 16, CONTEXT_MOST = 1 << 20 };

/* The parsed specification. `features` > 0 asks for sparse rows, else `tokens` > 0 for text, else
 * images. */
typedef struct recipe {
    // `tokens` is the vocabulary size, `nonzeros` those of a sparse row.
    int64_t classes, count, tokens, context, features, nonzeros;
    double zipf;     // exponent of the feature frequencies; 0: uniform
    sh_shape shape;  // of an image: channels, height, width
} recipe;

/* Reports a bad specification with the place of the fault and examples of good ones. */
static sh_status fail_spec(const char *spec, const char *at, const char *why) {
    SH_FAIL(SH_E_USAGE, "'%s': %s at '%s'", spec, why, at);
    return sh_error_hint(
        "for example synthetic:classes=10,shape=3x32x32,count=4096 or "
        "synthetic:tokens=65,context=256,count=4096 or synthetic:features=47236,nonzeros=73");
}

/* Takes an integer in [1, most] that ends at a comma, an x or the end. The bound is checked per
 * digit, so the number cannot overflow. */
static bool take_number(const char **at_inout, int64_t most, int64_t *number_out) {
    int64_t number = 0;
    const char *at = *at_inout;
    if (*at < '0' || *at > '9') return false;
    for (; *at >= '0' && *at <= '9'; at++) {
        number = number * 10 + (*at - '0');
        if (number > most) return false;
    }
    if (number == 0 || (*at != ',' && *at != 'x' && *at != '\0')) return false;
    *at_inout = at;
    *number_out = number;
    return true;
}

/* Takes a Zipf exponent from 0 to 2: one digit, a point and at most four decimals. */
static bool take_exponent(const char **at_inout, double *number_out) {
    const char *at = *at_inout;
    size_t whole = strspn(at, "0123456789"), all = whole;
    if (at[whole] == '.') all += 1 + strspn(at + whole + 1, "0123456789");
    if (whole != 1 || all > 6) return false;
    *number_out = sh_strtod(at, NULL);
    *at_inout = at + all;
    return *number_out <= 2;
}

/* Takes an image shape: CxHxW, HxW (one channel), or a single number for vectors. At most 2^28
 * cells. */
static bool take_shape(const char **at_inout, sh_shape *shape_out) {
    sh_shape shape = {0};
    for (;;) {
        if (shape.rank == 3) return false;
        if (!take_number(at_inout, 1 << 24, &shape.dim[shape.rank])) return false;
        shape.rank++;
        if (**at_inout != 'x') break;
        (*at_inout)++;
    }
    if (shape.rank == 2) shape = SH_SHAPE(1, shape.dim[0], shape.dim[1]);  // HxW: one channel
    *shape_out = shape;
    size_t cells;
    return sh_shape_count_checked(&shape, &cells) && cells <= (size_t)1 << 28;
}

/* Takes "key=" if it stands at `*at_inout`; otherwise leaves the position alone. */
static bool take_key(const char **at_inout, const char *key) {
    size_t length = strlen(key);
    if (strncmp(*at_inout, key, length) != 0 || (*at_inout)[length] != '=') return false;
    *at_inout += length + 1;
    return true;
}

/* Parses key=value pairs in any order. Each value has its own bound, so that no later product
 * overflows. */
static sh_status parse(const char *spec, recipe *recipe_out) {
    recipe p = {
        .nonzeros = 73, .classes = 10, .count = 4096, .shape = SH_SHAPE(1, 28, 28), .context = 0};
    const char *at = spec + strlen(prefix);
    while (*at != '\0') {
        const char *start = at;
        bool good;
        if (take_key(&at, "classes"))
            good = take_number(&at, SH_CLASSES_MOST, &p.classes);
        else if (take_key(&at, "count"))
            good = take_number(&at, (int64_t)1 << 31, &p.count);
        else if (take_key(&at, "tokens"))
            good = take_number(&at, 65536, &p.tokens);
        else if (take_key(&at, "context"))
            good = take_number(&at, CONTEXT_MOST, &p.context);
        else if (take_key(&at, "features"))
            good = take_number(&at, 1 << 22, &p.features);
        else if (take_key(&at, "nonzeros"))
            good = take_number(&at, 1024, &p.nonzeros);
        else if (take_key(&at, "zipf"))
            good = take_exponent(&at, &p.zipf);
        else if (take_key(&at, "shape"))
            good = take_shape(&at, &p.shape);
        else
            return fail_spec(spec, start, "unknown key");
        if (!good || (*at != ',' && *at != '\0')) return fail_spec(spec, start, "bad value");
        if (*at == ',') at++;
    }
    *recipe_out = p;
    return SH_OK;
}

/* Fills `out` with random bytes, 16 per Philox block. The generator is counter-based: block i
 * depends on the stream and i alone. */
static void random_bytes(sh_rng rng, uint8_t *out, size_t count) {
    for (size_t i = 0; i < count; i += 16) {
        sh_philox_block block = sh_rng_at(&rng, i / 16);
        memcpy(out + i, block.word, count - i < 16 ? count - i : 16);
    }
}

/* Checks the memory limit before anything is allocated, with a hint about which keys to lower. */
static sh_status check_room(const sh_read *read, uint64_t bytes) {
    if (sh_room_check(read->path, 0, bytes) == SH_OK) return SH_OK;
    return sh_error_hint("ask for less: lower its shape, count, features or nonzeros");
}

/* Makes a pool of images; image i of the pool has label i modulo the classes. Each image is the
 * mean of its class's pattern and of noise. Patterns come from the seed alone and noise from the
 * part too, so that training and test data share what there is to learn. */
static sh_status make_images(const sh_read *read, const recipe *p, sh_source *source) {
    size_t cells = sh_shape_count(&p->shape), pool = POOL_BYTES / cells;
    if (pool < POOL_SAMPLES_LEAST) pool = POOL_SAMPLES_LEAST;
    if (pool > source->info.count) pool = source->info.count;
    SH_TRY(check_room(read, (pool + 1) * cells + pool * sizeof(int32_t)));
    uint8_t *bytes = sh_alloc(pool + 1, cells);  // the last one is scratch for a pattern
    int32_t *labels = sh_alloc(pool, sizeof *labels);
    source->memory[0] = bytes;
    source->memory[1] = labels;
    if (bytes == NULL || labels == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", read->path);
    uint8_t *pattern = bytes + pool * cells;  // (C, H, W) of the current class
    uint64_t seed = read->options != NULL ? read->options->seed : 0;
    // Class by class, so that one pattern buffer suffices.
    for (size_t c = 0; c < (size_t)p->classes && c < pool; c++) {
        random_bytes(sh_rng_stream(seed, SH_RNG_SYNTHETIC, 0, c), pattern, cells);
        for (size_t i = c; i < pool; i += (size_t)p->classes) {
            uint8_t *image = bytes + i * cells;
            random_bytes(sh_rng_stream(seed, SH_RNG_SYNTHETIC, 1 + read->part, i), image, cells);
            for (size_t k = 0; k < cells; k++) image[k] = (uint8_t)((image[k] + pattern[k]) / 2);
            labels[i] = (int32_t)c;
        }
    }
    source->info.sample = p->shape;
    source->info.target = SH_TARGET_CLASS;
    source->info.classes = p->classes;
    source->cell = SH_CELL_U8;
    source->cells = bytes;
    source->labels = labels;
    source->stored = source->period = pool;
    return SH_OK;
}

/* Makes `count` windows side by side: count * context + 1 tokens, of which only a pool of 2^20 is
 * stored and repeats. */
static sh_status make_tokens(const sh_read *read, const recipe *p, sh_source *source) {
    size_t context = (size_t)p->context, count = source->info.count;
    size_t total = count * context + 1, pool = (size_t)1 << 20;
    if (pool > total) pool = total;
    // A window may start at the pool's end: the tail behind the pool repeats its start.
    size_t kept = pool + context + 1;
    uint16_t *tokens = sh_alloc(kept, sizeof *tokens);
    if (tokens == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", read->path);
    source->memory[0] = tokens;
    uint64_t seed = read->options != NULL ? read->options->seed : 0;
    sh_rng rng = sh_rng_stream(seed, SH_RNG_SYNTHETIC, 1 + read->part, 0);
    for (size_t i = 0; i < kept; i++)
        // (random 32 bits) * tokens / 2^32: a draw without a division.
        tokens[i] = i < pool ? (uint16_t)((uint64_t)sh_rng_u32(&rng) * (uint64_t)p->tokens >> 32)
                             : tokens[i - pool];
    source->info.sample = SH_SHAPE(p->context);
    source->info.tokens = true;
    source->info.target = SH_TARGET_TOKENS;
    source->info.classes = p->tokens;
    source->info.count = total - context;  // one window at each token offset
    source->cell = SH_CELL_U16;
    source->cells = tokens;
    source->stored = total;
    source->period = pool;
    return SH_OK;
}

/* Makes sparse rows of two classes. Training and test rows are two random streams under one hidden
 * linear model, so that a model trained on one can be tested on the other. */
static sh_status make_sparse(const sh_read *read, const recipe *p, sh_source *source) {
    const sh_sparse_spec rows = {.rows = source->info.count,
                                 .width = (size_t)p->features,
                                 .nonzeros = (size_t)p->nonzeros,
                                 .zipf = p->zipf,
                                 .seed = read->options != NULL ? read->options->seed : 0,
                                 // Other rows for testing, same hidden model.
                                 .stream = read->part};
    SH_TRY(check_room(read, sh_sparse_make_bytes(&rows) + rows.rows * sizeof(int32_t)));
    int32_t *labels = sh_alloc(rows.rows, sizeof *labels);
    if (labels == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", read->path);
    source->memory[1] = labels;
    SH_TRY(sh_sparse_make(&rows, &source->sparse, labels));
    source->info.sample = SH_SHAPE(p->features);
    source->info.target = SH_TARGET_CLASS;
    source->info.classes = 2;
    source->cell = SH_CELL_F32;
    source->labels = labels;
    source->stored = rows.rows;
    return SH_OK;
}

/* Opens a "synthetic:" specification. The test part has an eighth as many samples, at least one. A
 * context in the specification wins over the run's option. */
static sh_status synthetic_open(const sh_read *read, sh_source **source_out) {
    recipe p;
    SH_TRY(parse(read->path, &p));
    // The specification's context wins over the run's option.
    if (p.context == 0)
        p.context =
            read->options != NULL && read->options->context > 0 ? read->options->context : 256;
    if (p.context > CONTEXT_MOST) return fail_spec(read->path, "context", "too long a context");
    sh_source *source = NULL;
    SH_TRY(sh_source_create(read->path, &source));
    source->info.count = (size_t)(read->part == SH_PART_TEST ? (p.count + 7) / 8 : p.count);
    sh_status status = p.features > 0 ? make_sparse(read, &p, source)
                       : p.tokens > 0 ? make_tokens(read, &p, source)
                                      : make_images(read, &p, source);
    if (status == SH_OK) status = sh_source_check(source);
    if (status != SH_OK) {
        sh_source_release(source);
        return status;
    }
    *source_out = source;
    return SH_OK;
}

/* Recognises the prefix; no file is touched. */
static bool synthetic_detects(const char *path, __attribute__((unused)) const uint8_t *head,
                              __attribute__((unused)) size_t head_bytes) {
    return strncmp(path, prefix, strlen(prefix)) == 0;
}

extern const sh_reader sh_reader_synthetic;
const sh_reader sh_reader_synthetic = {
    .name = "synthetic",
    .help = "made from the seed: synthetic:classes=10,shape=3x32x32,count=4096 or :tokens=65,...",
    .detects = synthetic_detects,
    .open = synthetic_open,
    .has_parts = true,
};
