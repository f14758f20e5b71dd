/* The digits that come with the library, as text. */
#ifndef SH_DATA_DIGITS_TABLE_H
#define SH_DATA_DIGITS_TABLE_H

enum { SH_DIGITS_COUNT = 1797, SH_DIGITS_SIDE = 8, SH_DIGITS_TEXT = 66 };

extern const char sh_digits_table[SH_DIGITS_COUNT][SH_DIGITS_TEXT];

#endif
