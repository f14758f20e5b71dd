/* Numbers in text, from memory that does not end with a zero. Always with a decimal point, whatever
 * the locale of the program. */
#ifndef SH_DATA_NUMBER_H
#define SH_DATA_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads a decimal number (also nan, inf and hexadecimal floats) at `*at_inout` and moves past it.
 * False when there is none. */
bool sh_number_take(const uint8_t **at_inout, const uint8_t *end, double *number_out);

/* The whole range, spaces around it aside, is one number. */
bool sh_number_is(const uint8_t *at, const uint8_t *end, double *number_out);

#endif
