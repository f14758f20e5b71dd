/* The nearest name, for "did you mean". Optimal string alignment: insertions, deletions,
 * substitutions and swaps of neighbours cost one each. */
#include "base/option.h"

#include <ctype.h>
#include <string.h>

enum { WORD_MAX = 64 };  // longer words are no names

/* Letter for comparison: case does not matter, and - and _ are one letter, since users mix them
 * up. */
static int letter_of(char c) { return c == '_' ? '-' : tolower((unsigned char)c); }

/* The smaller of two costs. */
static int least_of(int a, int b) { return a < b ? a : b; }

/* Optimal string alignment distance, O(|a| |b|) time and three rows of memory. Both words have at
 * most WORD_MAX letters. */
static int distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    int rows[3][WORD_MAX + 1];  // the rows i-2, i-1 and i of the table
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b_length; j++) last[j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        now[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            bool same = letter_of(a[i - 1]) == letter_of(b[j - 1]);
            now[j] = least_of(last[j - 1] + !same, least_of(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && letter_of(a[i - 1]) == letter_of(b[j - 2]) &&
                letter_of(a[i - 2]) == letter_of(b[j - 1]))
                now[j] = least_of(now[j], before[j - 2] + 1);
        }
        int *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[b_length];
}

/* Compares by letter_of. */
static bool begins(const char *text, const char *start, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (letter_of(text[i]) != letter_of(start[i])) return false;
    return true;
}

/* The cheapest name below a bound that grows with the word's length; NULL if all are farther
 * away. */
const char *sh_nearest(const char *word, const char *(*name)(const void *names, size_t index),
                       const void *names) {
    size_t length = strlen(word);
    if (length == 0 || length > WORD_MAX) return NULL;
    const char *best = NULL, *candidate;
    // One slip in a short word, more in a longer one; a name that differs wholly is no help.
    int best_cost = (int)(length + 5) / 3;
    if (best_cost > (int)length) best_cost = (int)length;
    for (size_t i = 0; (candidate = name(names, i)) != NULL; i++) {
        size_t candidate_length = strlen(candidate);
        if (candidate_length > WORD_MAX) continue;
        int cost = distance(word, length, candidate, candidate_length);
        // An abbreviation (`mom` for `momentum`) is as good as one slip, the first word (`clip` for
        // `clip-norm`) better than one.
        if (length >= 3 && candidate_length > length && begins(candidate, word, length))
            cost = letter_of(candidate[length]) == '-' ? 0 : least_of(cost, 1);
        if (cost < best_cost) {
            best = candidate;
            best_cost = cost;
        }
    }
    return best;
}
