/* LIBSVM (also SVMlight): per line a label and index:value pairs with indices from 1. Rows that are
 * mostly zeros stay sparse, others are expanded. Two passes: the first finds the sizes, the second
 * fills. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/number.h"
#include "data/reader.h"
#include "data/room.h"

/* Rows become dense below SPARSE_WIDTH features, or when more than one value in SPARSE_PART is
 * nonzero. Dense rows can be normalised and use the fast kernels of dense layers; sparse rows save
 * memory. WIDTH_MOST bounds the width, so that one wild index cannot demand gigabytes. */
enum { WIDTH_MOST = 1 << 22, SPARSE_WIDTH = 256, SPARSE_PART = 16 };

/* Parser state. Pass 1 only counts (all three outputs NULL); pass 2 stores into `targets` and
 * either `cells` or `sparse`. */
typedef struct libsvm {
    const char *name;            // file name for messages
    const uint8_t *at, *end;     // unread rest of the text
    size_t line;                 // current line, from 1, for messages
    size_t rows, width, values;  // rows so far, largest index seen, index:value pairs so far
    size_t last;                 // previous index of this row; 0 at the start of a row
    /* Outputs of the second pass; NULL in the first: */
    float *cells;       // (rows, width), zeroed: absent pairs mean 0
    sh_sparse *sparse;  // CSR rows, instead of `cells`
    double *targets;    // (rows) labels
} libsvm;

/* End of the line's data: newline, end of text, or a comment (#), which runs to the newline. */
static bool at_line_end(const libsvm *l) {
    return l->at == l->end || *l->at == '\n' || *l->at == '#';
}

/* Skips spaces, tabs and the '\r' of Windows line ends. */
static void skip_spaces(libsvm *l) {
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t' || *l->at == '\r')) l->at++;
}

/* Reports a format error with its line and up to 24 printable characters of the text: such files
 * are written by scripts, and the line finds the script's mistake. */
static sh_status fail_here(const libsvm *l, const char *why) {
    int shown = 0;
    while (shown < 24 && l->at + shown < l->end && l->at[shown] > ' ' && l->at[shown] < 127)
        shown++;
    SH_FAIL(SH_E_FORMAT, "'%s', line %zu: %s at '%.*s'", l->name, l->line, why, shown,
            (const char *)l->at);
    return sh_error_hint("a line is 'label index:value index:value ...'");
}

/* Takes a number that is finite as a float, since values are stored as floats. `what` names the
 * missing part if there is no number. */
static sh_status take_finite(libsvm *l, const char *what, double *number_out) {
    if (!sh_number_take(&l->at, l->end, number_out)) return fail_here(l, what);
    if (isfinite((float)*number_out)) return SH_OK;
    SH_FAIL(SH_E_NUMERIC, "'%s', line %zu: %g is not a finite float", l->name, l->line,
            *number_out);
    return sh_hint_not_finite();
}

/* Takes "index:" with 1 <= index <= WIDTH_MOST. The bound is checked per digit, so `index` cannot
 * overflow. On failure `at` returns to the index, so that the message quotes it. */
static sh_status take_index(libsvm *l, size_t *index_out) {
    size_t index = 0;
    const uint8_t *start = l->at;
    for (; l->at < l->end && *l->at >= '0' && *l->at <= '9'; l->at++) {
        index = index * 10 + (size_t)(*l->at - '0');
        if (index > WIDTH_MOST) {
            l->at = start;
            fail_here(l, "an index too large");
            return sh_error_hint("Shoal takes rows of at most %d features", WIDTH_MOST);
        }
    }
    if (l->at == start || l->at == l->end || *l->at != ':') {
        l->at = start;
        return fail_here(l, "no index:value pair");
    }
    if (index == 0) {
        l->at = start;
        fail_here(l, "index 0");
        return sh_error_hint("indices count from 1");
    }
    l->at++;
    *index_out = index;
    return SH_OK;
}

/* Handles one pair: pass 1 counts it and widens the rows, pass 2 stores it. Sparse rows need
 * ascending indices, since CSR consumers rely on each index occurring at most once; in dense rows
 * a repeated index simply overwrites. */
static sh_status put(libsvm *l, size_t index, float value) {
    if (l->cells != NULL) {
        l->cells[l->rows * l->width + index - 1] = value;
    } else if (l->sparse != NULL) {
        if (index <= l->last) {
            SH_FAIL(SH_E_FORMAT, "'%s', line %zu: index %zu comes after %zu", l->name, l->line,
                    index, l->last);
            return sh_error_hint("in sparse files the indices of a line must ascend");
        }
        l->sparse->index[l->values] = (uint32_t)(index - 1);
        l->sparse->value[l->values] = value;
    } else if (index > l->width) {
        l->width = index;
    }
    l->last = index;
    l->values++;
    return SH_OK;
}

/* Parses one line: a label, then its index:value pairs. */
static sh_status take_row(libsvm *l) {
    double label = 0;
    SH_TRY(take_finite(l, "no label", &label));
    if (!at_line_end(l) && *l->at != ' ' && *l->at != '\t' && *l->at != '\r')
        return fail_here(l, "no space behind the label");
    if (l->targets != NULL) l->targets[l->rows] = label;
    // The pairs; a line with a label alone is a sample of zeros.
    for (skip_spaces(l); !at_line_end(l); skip_spaces(l)) {
        size_t index = 0;
        double value = 0;
        if (l->end - l->at > 4 && memcmp(l->at, "qid:", 4) == 0) {  // a ranking group: not used
            while (!at_line_end(l) && *l->at != ' ' && *l->at != '\t') l->at++;
            continue;
        }
        SH_TRY(take_index(l, &index));
        SH_TRY(take_finite(l, "no value", &value));
        SH_TRY(put(l, index, (float)value));
    }
    l->rows++;
    l->last = 0;
    if (l->sparse != NULL) l->sparse->start[l->rows] = l->values;
    return SH_OK;
}

/* One pass over all lines. Blank lines and comment lines are no rows. Both passes run this same
 * code, so the second meets exactly the rows that the first has counted. */
static sh_status pass(libsvm *l) {
    l->rows = l->values = l->last = 0;
    for (l->line = 1; l->at < l->end; l->line++) {
        skip_spaces(l);
        if (!at_line_end(l)) SH_TRY(take_row(l));
        while (l->at < l->end && *l->at != '\n') l->at++;
        if (l->at < l->end) l->at++;
    }
    return SH_OK;
}

/* Checks the sizes found by pass 1 before memory is allocated for them. `read->width`: features
 * that training had; a wider file cannot belong to that model. */
static sh_status check_size(const libsvm *l, const sh_read *read) {
    if (l->rows == 0) return SH_FAIL(SH_E_FORMAT, "'%s' holds no samples", l->name);
    if (l->width == 0) return SH_FAIL(SH_E_FORMAT, "'%s' holds labels without features", l->name);
    if (read->width > 0 && l->width > (size_t)read->width) {
        SH_FAIL(SH_E_SHAPE, "'%s' has %zu features, training has %lld", l->name, l->width,
                (long long)read->width);
        return sh_error_hint("check that both files belong together");
    }
    return SH_OK;
}

/* Decides between CSR and dense rows; the limits stand above. */
static bool is_sparse(const libsvm *l) {
    return l->width >= SPARSE_WIDTH && l->values <= l->rows * (l->width / SPARSE_PART);
}

/* Allocates dense or CSR rows in the source, which owns them, and fills them by the second pass. */
static sh_status fill_rows(libsvm *l, const uint8_t *data, sh_source *source) {
    source->cell = SH_CELL_F32;
    l->at = data;
    if (is_sparse(l)) {
        SH_TRY(sh_sparse_init(&source->sparse, l->rows, l->width, l->values));
        l->sparse = &source->sparse;
        return pass(l);
    }
    // sh_alloc zeroes the rows, so features that a line leaves out are 0.
    source->cells = source->memory[0] = l->cells = sh_alloc(l->rows * l->width, sizeof *l->cells);
    if (l->cells != NULL) return pass(l);
    return SH_FAIL(SH_E_MEMORY, "out of memory for %zu samples of %zu features of '%s'", l->rows,
                   l->width, l->name);
}

/* Memory in bytes that the rows and targets will take; targets count twice (double here, int32
 * class in the source). */
static size_t bytes_of(const libsvm *l) {
    size_t rows = l->rows * (sizeof *l->targets + sizeof(int32_t));
    if (!is_sparse(l)) return rows + l->rows * l->width * sizeof *l->cells;
    return rows + l->rows * sizeof(size_t) + l->values * (sizeof(uint32_t) + sizeof(float));
}

/* Checks the memory limit, then fills targets and rows of `source`. `l->targets` stay the
 * parser's. */
static sh_status fill(libsvm *l, const sh_read *read, const uint8_t *data, sh_source *source) {
    SH_TRY(sh_room_check(l->name, read->unpacked, bytes_of(l)));
    l->targets = sh_alloc(l->rows, sizeof *l->targets);
    if (l->targets == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for the labels of '%s'", l->name);
    SH_TRY(fill_rows(l, data, source));
    source->stored = source->info.count = l->rows;
    source->info.sample = SH_SHAPE((int64_t)l->width);
    SH_TRY(sh_source_check(source));
    return sh_source_set_targets(source, l->targets, read);
}

/* Parses LIBSVM text from memory, for libsvm_open, the tests and the fuzzer. All values are
 * copied; `data` may be freed afterwards. */
sh_status sh_libsvm_parse(const sh_read *read, const uint8_t *data, size_t bytes,
                          sh_source **source_out) {
    libsvm l = {.name = read->path, .at = data, .end = data + bytes};
    SH_TRY(pass(&l));
    SH_TRY(check_size(&l, read));
    if (read->width > 0) l.width = (size_t)read->width;  // trailing features may be absent here
    sh_source *source = NULL;
    SH_TRY(sh_source_create(read->path, &source));
    sh_status status = fill(&l, read, data, source);
    sh_free(l.targets);
    if (status != SH_OK) {
        sh_source_release(source);
        return status;
    }
    *source_out = source;
    return SH_OK;
}

/* Opens a plain or gzip LIBSVM file; the text is released once it is parsed. */
static sh_status libsvm_open(const sh_read *read, sh_source **source_out) {
    sh_blob blob = {0};
    SH_TRY(sh_blob_open(read->path, NULL, &blob));
    sh_read unpacked = *read;
    unpacked.unpacked = sh_blob_memory(&blob);
    sh_status status = sh_libsvm_parse(&unpacked, blob.data, blob.bytes, source_out);
    sh_blob_close(&blob);
    return status;
}

/* Recognises the format by file name, or by a first line that begins with a number and
 * "index:value". Index 0 is no match, since indices count from 1. */
static bool libsvm_detects(const char *path, const uint8_t *head, size_t head_bytes) {
    static const char *const ends[] = {".libsvm",    ".svm",    ".svmlight",
                                       ".libsvm.gz", ".svm.gz", ".svmlight.gz"};
    if (head_bytes == 0) return false;
    for (size_t i = 0; i < SH_COUNT(ends); i++)
        if (sh_name_ends_in(path, ends[i])) return true;
    libsvm l = {.name = path, .at = head, .end = head + head_bytes};
    double label, value;
    size_t index = 0;
    skip_spaces(&l);
    if (!sh_number_take(&l.at, l.end, &label) || l.at == l.end || *l.at != ' ') return false;
    skip_spaces(&l);
    for (; l.at < l.end && *l.at >= '0' && *l.at <= '9' && index < WIDTH_MOST; l.at++)
        index = index * 10 + (size_t)(*l.at - '0');
    if (index == 0 || l.at == l.end || *l.at++ != ':') return false;
    return sh_number_take(&l.at, l.end, &value);
}

extern const sh_reader sh_reader_libsvm;
const sh_reader sh_reader_libsvm = {
    .name = "libsvm",
    .help =
        "label index:value ..., sparse where mostly zeros; labels -1 and +1 become classes 0 and 1",
    .detects = libsvm_detects,
    .open = libsvm_open,
};
