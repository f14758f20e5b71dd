/* Names a run file can use in place of a path. Their files live in the cache folder. */
#include <string.h>

#include "base/memory.h"
#include "data/reader.h"

/* `file` or `file`.gz in the cache folder; NULL and a message when neither is there. */
static sh_status cached(const sh_read *read, const char *name, const char *file, char **path_out) {
    const char *folder =
        read->options != NULL && read->options->folder != NULL ? read->options->folder : ".";
    char *path = sh_path_join(folder, file);
    char *packed = path != NULL ? sh_format("%s.gz", path) : NULL;
    if (packed == NULL) {
        sh_free(path);
        return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", name);
    }
    if (!sh_file_exists(path) && sh_file_exists(packed)) {
        char *kept = path;
        path = packed;
        packed = kept;
    }
    sh_free(packed);
    if (sh_file_exists(path)) {
        *path_out = path;
        return SH_OK;
    }
    SH_FAIL(SH_E_IO, "'%s' is not in the data folder: there is no '%s'", name, path);
    sh_free(path);
    return sh_error_hint("fetch it with 'shoal data get %s', or put the file there", name);
}

static sh_status open_with(const sh_reader *reader, const sh_read *read, const char *name,
                           const char *file, sh_source **source_out) {
    char *path = NULL;
    SH_TRY(cached(read, name, file, &path));
    sh_read inner = *read;
    inner.path = path;
    sh_status status = reader->open(&inner, source_out);
    sh_free(path);
    return status;
}

extern const sh_reader sh_reader_idx, sh_reader_text;

static sh_status mnist_open(const sh_read *read, sh_source **source_out) {
    const char *file =
        read->part == SH_PART_TEST ? "t10k-images-idx3-ubyte" : "train-images-idx3-ubyte";
    sh_read inner = *read;
    inner.labels = NULL;  // they are known
    SH_TRY(open_with(&sh_reader_idx, &inner, "mnist", file, source_out));
    if ((*source_out)->info.target != SH_TARGET_NONE) return SH_OK;
    sh_source_release(*source_out);
    *source_out = NULL;
    SH_FAIL(SH_E_IO, "the labels of mnist are not beside '%s' in the data folder", file);
    return sh_error_hint("'shoal data get mnist' fetches all four files");
}

/* One text: its held-out part is split off later, so there is no test part here. */
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

/* "mnist", "mnist:train" or "mnist:test"; a part in the name wins over the one asked for. */
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

sh_status sh_source_open(const sh_read *read, bool *has_parts_out, sh_source **source_out) {
    sh_read inner = *read;
    const sh_data_name *name = find_name(read->path, &inner.part);
    const sh_reader *reader = NULL;
    if (name == NULL) SH_TRY(sh_reader_find(read->path, &reader));
    *source_out = NULL;
    SH_TRY(name != NULL ? name->open(&inner, source_out) : reader->open(&inner, source_out));
    // "mnist:train" asks for just that part.
    bool whole = strchr(read->path, ':') == NULL || name == NULL;
    if (has_parts_out != NULL)
        *has_parts_out = whole && (name != NULL ? name->has_parts : reader->has_parts);
    return SH_OK;
}
