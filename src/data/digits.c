/* 1797 digits of 8 x 8 pixels that come with the library (the test part of the UCI optical
 * recognition set, as in scikit-learn): a first run needs no download. The first 1500 train, the
 * rest test. */
#include "base/memory.h"
#include "data/digits_table.h"
#include "data/reader.h"

enum { TRAIN_COUNT = 1500, CELLS = SH_DIGITS_SIDE * SH_DIGITS_SIDE };

/* Opens the bundled digits. The table is text, one character per pixel: readable in the source,
 * and small. */
sh_status sh_digits_open(const sh_read *read, sh_source **source_out) {
    bool is_test = read->part == SH_PART_TEST;
    size_t first = is_test ? TRAIN_COUNT : 0;
    size_t count = is_test ? SH_DIGITS_COUNT - TRAIN_COUNT : TRAIN_COUNT;
    sh_source *source = NULL;
    SH_TRY(sh_source_create(is_test ? "digits:test" : "digits:train", &source));
    uint8_t *cells = sh_alloc(count, CELLS);
    int32_t *labels = sh_alloc(count, sizeof *labels);
    source->memory[0] = cells;
    source->memory[1] = labels;
    if (cells == NULL || labels == NULL) {
        sh_source_release(source);
        return SH_FAIL(SH_E_MEMORY, "out of memory for the digits");
    }
    for (size_t i = 0; i < count; i++) {
        const char *text = sh_digits_table[first + i];
        labels[i] = text[0] - '0';  // the first character is the digit
        for (size_t k = 0; k < CELLS; k++) cells[i * CELLS + k] = (uint8_t)(text[1 + k] - 'a');
    }
    source->cells = cells;
    source->labels = labels;
    source->stored = count;
    source->info = (sh_data_info){.count = count,
                                  .sample = SH_SHAPE(1, SH_DIGITS_SIDE, SH_DIGITS_SIDE),
                                  .target = SH_TARGET_CLASS,
                                  .classes = 10};
    *source_out = source;
    return SH_OK;
}
