/* The readers, in the order in which they are asked whether a file is theirs. */
#include "data/reader.h"

#include <string.h>

/* Asked from the top: formats with a magic number first, text takes the rest. */
#define READERS(X) X(synthetic) X(idx) X(npy) X(npz) X(libsvm) X(csv) X(text)

#define DECLARE(name) extern const sh_reader sh_reader_##name;
READERS(DECLARE)
#define ROW(name) &sh_reader_##name,
static const sh_reader *const readers[] = {READERS(ROW)};

const sh_reader *sh_reader_at(size_t index) {
    return index < SH_COUNT(readers) ? readers[index] : NULL;
}

/* The first reader that recognises the name or the first bytes; NULL: none does. */
static const sh_reader *first_that_detects(const char *path, const uint8_t *head, size_t bytes) {
    for (size_t i = 0; i < SH_COUNT(readers); i++)
        if (readers[i]->detects(path, head, bytes)) return readers[i];
    return NULL;
}

/* Finds a reader by the name alone where that says enough, else by the first bytes. */
sh_status sh_reader_find(const char *path, const sh_reader **reader_out) {
    const sh_reader *reader = first_that_detects(path, NULL, 0);
    if (reader == NULL) {
        uint8_t head[4096];
        size_t bytes = 0;
        SH_TRY(sh_blob_head(path, head, sizeof head, &bytes));
        if (bytes == 0) {
            SH_FAIL(SH_E_FORMAT, "'%s' is empty", path);
            return sh_hint_damaged();
        }
        reader = first_that_detects(path, head, bytes);
    }
    if (reader == NULL) {
        SH_FAIL(SH_E_FORMAT, "'%s' is in no format that Shoal reads", path);
        return sh_error_hint("'shoal list readers' shows the formats");
    }
    *reader_out = reader;
    return SH_OK;
}
