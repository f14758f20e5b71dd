/* One option's value: from a node into its field, and back. Private to the option tables. */
#ifndef SH_BASE_OPTION_VALUE_H
#define SH_BASE_OPTION_VALUE_H

#include "base/option.h"

/* Sets the row's field from a node, after checking type, range and choices. `shown` is what
 * messages call it: the key, or the flag as it was typed. A node without source has no place. */
sh_status sh_option_set(const sh_option *row, const char *shown, const sh_node *value,
                        void *target);
/* The same from text: a flag's value, or the row's initial one. */
sh_status sh_option_set_text(const sh_option *row, const char *shown, const char *text,
                             void *target);
/* true, yes, on, and their opposites; false: it is none of them. */
bool sh_option_read_bool(const char *text, bool *value_out);
/* The field zeroed, what it owned freed. */
void sh_option_clear(const sh_option *row, void *target);

/* The field as a new node without key, or NULL in `*node_out` where it is to be left out. */
sh_status sh_option_get(const sh_option *row, const void *target, sh_node **node_out);

/* A scalar node that owns its text; NULL: out of memory. */
sh_node *sh_option_scalar(const char *text);

enum { SH_OPTION_CLIP = 96 };
/* A text fit for a message: cut to a line's length, without control characters. */
const char *sh_option_clip(const char *text, char clipped_out[SH_OPTION_CLIP]);

#endif
