/* What a model has to know of the data it learned from, to be used where that data is not: shape
 * and kind of its samples, classes, normalisation, characters. A checkpoint carries it as JSON:
 *
 *   {"version": 1, "sample": [1, 28, 28], "target": "classes", "outputs": 10,
 *    "mean": [33.3], "scale": [0.0127]}
 *
 * "target" is classes, values or tokens; "mean" and "scale" have a number for each channel or
 * feature, or are absent; "vocabulary" is there for text in characters. */
#ifndef SH_DATA_FACTS_H
#define SH_DATA_FACTS_H

#include "data/dataset.h"

/* sh_free the text; NULL without an error where a normalisation is too wide to be kept. Floats keep
 * their bits. */
sh_status sh_facts_print(const sh_data *data, char **text_out);

/* Believes nothing: what it gives is finite and of sizes that go together. No part of the data is
 * open then. `source` names it in messages. Caller closes. */
sh_status sh_facts_parse(const char *source, const char *text, size_t bytes, sh_data *data_out);

sh_status sh_facts_copy(const sh_data *from, sh_data *to);

#endif
