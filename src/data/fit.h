/* Whether the parts of a run's data go together: each has to fit the training set, or what a model
 * remembers of it. */
#ifndef SH_DATA_FIT_H
#define SH_DATA_FIT_H

#include "data/reader.h"

/* What the others have to fit. Borrowed. */
typedef struct sh_learned {
    const sh_data_info *info;
    const char *name, *vocabulary;  // NULL: a model knows it, no file is named
} sh_learned;

sh_learned sh_learned_of(const sh_source *train);
sh_learned sh_learned_from(const sh_data *known);

/* What the user says that targets are; NONE: the reader decides. */
sh_target sh_wanted_target(const sh_data_options *options);
/* Data that comes with its kind of target (a text, a data set by name) cannot be asked for another.
 */
sh_status sh_check_target(const sh_source *source, sh_target wanted);

/* How to read what is to be used beside the training data. */
sh_read sh_read_beside(const sh_data_options *options, const char *path, const sh_learned *train);
/* Fails where a part (NULL is welcome) does not fit, and gives it the classes of training. */
sh_status sh_check_part(const sh_data_options *options, const sh_learned *train, sh_source *part);
/* Opens and checks a part that the run file names by `key`; NULL: `path` has none. */
sh_status sh_open_part(const sh_data_options *options, const char *key, const char *path,
                       const sh_learned *train, sh_source **source_out);

#endif
