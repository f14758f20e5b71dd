/* Readers: one file and one row per format. A row knows a file when it sees one and opens it into a
 * source. Every reader can also parse from memory, which is what the fuzzers call. */
#ifndef SH_DATA_READER_H
#define SH_DATA_READER_H

#include "data/source.h"

typedef enum sh_part { SH_PART_TRAIN, SH_PART_TEST } sh_part;

/* What is asked of a reader. All borrowed. */
typedef struct sh_read {
    const char *path;
    sh_part part;  // for names and formats that hold both
    const sh_data_options *options;
    const char *labels;      // a label file that belongs to `path`, NULL: look beside it
    const char *vocabulary;  // text: the characters of training; NULL: build it
    sh_target target;        // what training has; NONE: the reader decides
    int64_t width;           // features that training has; 0: the file decides
    size_t unpacked;         // bytes of memory that the file takes while it is read
} sh_read;

typedef struct sh_reader {
    const char *name, *help;
    /* `head` are the first bytes of the file (unpacked), none when `path` is not a file. */
    bool (*detects)(const char *path, const uint8_t *head, size_t head_bytes);
    /* A format with parts gives SH_OK and NULL where the asked part is absent. */
    sh_status (*open)(const sh_read *read, sh_source **source_out);
    bool has_parts;
} sh_reader;

/* In the order in which they are asked; NULL past the end. */
const sh_reader *sh_reader_at(size_t index);
/* The reader of a path; fails with SH_E_IO or SH_E_FORMAT. */
sh_status sh_reader_find(const char *path, const sh_reader **reader_out);

/* Names a run file can use: mnist, digits, shakespeare. `open` is as in sh_reader. */
typedef struct sh_data_name {
    const char *name, *help;
    sh_status (*open)(const sh_read *read, sh_source **source_out);
    bool has_parts;  // of its own for training and testing
} sh_data_name;

const sh_data_name *sh_data_name_at(size_t index);

/* Opens a name, "name:train", "name:test" or a path. `*has_parts_out` (may be NULL) tells whether
 * the same name also gives a test part. */
sh_status sh_source_open(const sh_read *read, bool *has_parts_out, sh_source **source_out);

/* Parsers from memory. `name` is for messages. The array borrows `data`. */
struct sh_array;
sh_status sh_idx_size(const char *name, const uint8_t *head, size_t head_bytes,
                      uint64_t *bytes_out);  // an sh_blob_sizer
sh_status sh_idx_parse(const char *name, const uint8_t *data, size_t bytes,
                       struct sh_array *array_out);
sh_status sh_npy_size(const char *name, const uint8_t *head, size_t head_bytes,
                      uint64_t *bytes_out);  // an sh_blob_sizer
sh_status sh_npy_parse(const char *name, const uint8_t *data, size_t bytes,
                       struct sh_array *array_out);
/* The source keeps pointers into `data`. */
sh_status sh_npz_parse(const sh_read *read, const uint8_t *data, size_t bytes,
                       sh_source **source_out);
sh_status sh_csv_parse(const sh_read *read, const uint8_t *data, size_t bytes,
                       sh_source **source_out);
sh_status sh_libsvm_parse(const sh_read *read, const uint8_t *data, size_t bytes,
                          sh_source **source_out);
sh_status sh_text_parse(const sh_read *read, const uint8_t *data, size_t bytes,
                        sh_source **source_out);
/* The bundled digits: the first 1,500 are for training, the last 297 for testing. */
sh_status sh_digits_open(const sh_read *read, sh_source **source_out);

#endif
