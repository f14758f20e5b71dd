#!/usr/bin/env python3
"""Writes src/data/digits_table.c from scikit-learn's digits.csv.gz.

usage: tools/make_digits.py digits.csv.gz > src/data/digits_table.c

Each row of the input is 64 grey values (0..16) and the label. Each string of the output is the label
and 64 characters, 'a' + value.
"""
import csv
import gzip
import sys

HEAD = """/* Made by tools/make_digits.py; do not edit.
 *
 * Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine Learning
 * Repository (https://doi.org/10.24432/C50P49), CC BY 4.0; its test part of 1,797 images, in the
 * order of scikit-learn. Per image the label, then 8 rows of 8 grey values 0..16 as 'a' + value. */
#include "data/digits_table.h"

// clang-format off
const char sh_digits_table[SH_DIGITS_COUNT][SH_DIGITS_TEXT] = {"""


def main():
    with gzip.open(sys.argv[1], "rt") as file:
        rows = [[int(float(cell)) for cell in row] for row in csv.reader(file)]
    assert len(rows) == 1797 and all(len(row) == 65 for row in rows)
    assert all(0 <= value <= 16 for row in rows for value in row[:64])
    print(HEAD)
    for row in rows:
        print('"%d%s",' % (row[64], "".join(chr(97 + value) for value in row[:64])))
    print("};")


main()
