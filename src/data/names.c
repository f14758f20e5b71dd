/* Names a run file can use in place of a path. Their files live in the cache folder. */
#include <string.h>

#include "base/memory.h"
#include "base/option.h"
#include "data/reader.h"

/* Path of a file in the cache folder; a missing one fails with the command that fetches it. */
static sh_status cached(const sh_read *read, const char *name, const char *file, char **path_out) {
    const char *folder =
        read->options != NULL && read->options->folder != NULL ? read->options->folder : ".";
    char *path = sh_blob_path(folder, file);
    if (path == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", name);
    if (sh_file_exists(path)) {
        *path_out = path;
        return SH_OK;
    }
    SH_FAIL(SH_E_IO, "'%s' is not in the data folder: there is no '%s'", name, path);
    sh_free(path);
    return sh_error_hint("fetch it with 'shoal data get %s', or put the file there", name);
}

/* Opens a named data set by the reader of its format. */
static sh_status open_with(const sh_reader *reader, const sh_read *read, const char *name,
                           const char *file, sh_source **source_out) {
    char *path = NULL;
    SH_TRY(cached(read, name, file, &path));
    sh_read inner = *read;
    inner.path = path;
    sh_status status = reader->open(&inner, source_out);
    if (status == SH_OK && *source_out != NULL) (*source_out)->format = reader->name;
    sh_free(path);
    return status;
}

extern const sh_reader sh_reader_idx, sh_reader_text;

/* MNIST as published: 60000 images train, 10000 test. */
static sh_status mnist_open(const sh_read *read, sh_source **source_out) {
    const char *file =
        read->part == SH_PART_TEST ? "t10k-images-idx3-ubyte" : "train-images-idx3-ubyte";
    sh_read inner = *read;
    inner.labels = NULL;  // they are known
    SH_TRY(open_with(&sh_reader_idx, &inner, "mnist", file, source_out));
    if (*source_out == NULL || (*source_out)->info.target != SH_TARGET_NONE) return SH_OK;
    sh_source_release(*source_out);
    *source_out = NULL;
    SH_FAIL(SH_E_IO, "the labels of mnist are not beside '%s' in the data folder", file);
    return sh_error_hint("'shoal data get mnist' fetches all four files");
}

/* One text without a test part: what is held out is split off later. */
static sh_status shakespeare_open(const sh_read *read, sh_source **source_out) {
    return open_with(&sh_reader_text, read, "shakespeare", "tinyshakespeare.txt", source_out);
}

static const sh_data_name names[] = {
    {"mnist", "70,000 handwritten digits, 28x28; 'shoal data get mnist' fetches them", mnist_open,
     true},
    {"digits", "1,797 handwritten digits, 8x8 (UCI); they come with Shoal", sh_digits_open, true},
    {"shakespeare", "1.1 MB of plays as text; 'shoal data get shakespeare' fetches them",
     shakespeare_open, false},
};

const sh_data_name *sh_data_name_at(size_t index) {
    return index < SH_COUNT(names) ? &names[index] : NULL;
}

/* Resolves "mnist", "mnist:train" or "mnist:test"; a part in the name wins over the one asked
 * for. */
static const sh_data_name *find_name(const char *text, sh_part *part_inout) {
    for (size_t i = 0; i < SH_COUNT(names); i++) {
        size_t length = strlen(names[i].name);
        if (strncmp(text, names[i].name, length) != 0) continue;
        const char *rest = text + length;
        if (strcmp(rest, ":train") == 0)
            *part_inout = SH_PART_TRAIN;
        else if (strcmp(rest, ":test") == 0)
            *part_inout = SH_PART_TEST;
        else if (*rest != '\0')
            continue;
        return &names[i];
    }
    return NULL;
}

/* Names for sh_nearest, "synthetic" among them though it is a reader. */
static const char *name_at(__attribute__((unused)) const void *none, size_t index) {
    if (index == SH_COUNT(names)) return "synthetic";
    return index < SH_COUNT(names) ? names[index].name : NULL;
}

/* Finds the reader of a path. A path without a file may be a misspelt name, hence the hint. */
static sh_status find_reader(const char *path, const sh_reader **reader_out) {
    sh_status status = sh_reader_find(path, reader_out);
    if (status != SH_E_IO || sh_file_exists(path)) return status;
    char word[32];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(path, ":"), path);
    const char *near = sh_nearest(word, name_at, NULL);
    if (near != NULL) return sh_error_hint("did you mean '%s'?", near);
    return sh_error_hint("give the path of a file, or a name of 'shoal list data'");
}

/* Tells whether some label is the one to ignore. Asked once per data set, so that steps need not
 * count labels when all of them count. */
static bool ignores_some(const sh_source *source, const int64_t *ignore) {
    if (ignore == NULL) return false;
    if (source->info.tokens) return *ignore >= 0 && *ignore < source->info.classes;
    for (size_t i = 0; source->info.target == SH_TARGET_CLASS && i < source->stored; i++)
        if (source->labels[i] == *ignore) return true;
    return false;
}

/* Opens a name, or a path whose reader is found by its first bytes. */
sh_status sh_source_open(const sh_read *read, bool *has_parts_out, sh_source **source_out) {
    sh_read inner = *read;
    const sh_data_name *name = find_name(read->path, &inner.part);
    const sh_reader *reader = NULL;
    if (name == NULL) SH_TRY(find_reader(read->path, &reader));
    *source_out = NULL;
    SH_TRY(name != NULL ? name->open(&inner, source_out) : reader->open(&inner, source_out));
    sh_source *source = *source_out;  // NULL: the part is not there
    if (source != NULL) {
        if (source->format == NULL) source->format = reader != NULL ? reader->name : "built in";
        source->info.ignores =
            ignores_some(source, read->options != NULL ? read->options->ignore : NULL);
    }
    // "mnist:train" asks for just that part.
    bool whole = strchr(read->path, ':') == NULL || name == NULL;
    if (has_parts_out != NULL)
        *has_parts_out = whole && (name != NULL ? name->has_parts : reader->has_parts);
    return SH_OK;
}
