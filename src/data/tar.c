/* Members of a tar archive in memory, ustar format: enough for npm packages. Sizes and names are
 * checked against the archive; links and devices are passed over. */
#include "data/tar.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 512 };

/* Parses octal digits with spaces around them; false for anything else. */
static bool take_octal(const uint8_t *at, size_t length, uint64_t *number_out) {
    uint64_t number = 0;
    size_t i = 0;
    while (i < length && at[i] == ' ') i++;
    for (; i < length && at[i] >= '0' && at[i] <= '7'; i++) {
        if (number >> 60 != 0) return false;
        number = number * 8 + (uint64_t)(at[i] - '0');
    }
    *number_out = number;
    return i == length || at[i] == ' ' || at[i] == '\0';
}

/* Compares the header's checksum, which counts its own field as spaces. */
static bool checksum_fits(const uint8_t *header) {
    uint64_t sum = 0, wanted;
    for (size_t i = 0; i < BLOCK; i++) sum += i >= 148 && i < 156 ? ' ' : header[i];
    return take_octal(header + 148, 8, &wanted) && wanted == sum;
}

/* Joins prefix and name: the prefix field holds the front of long names. */
static void take_name(sh_tar *tar, const uint8_t *header) {
    bool has_prefix = memcmp(header + 257, "ustar", 5) == 0 && header[345] != '\0';
    snprintf(tar->name, sizeof tar->name, "%.*s%s%.100s", has_prefix ? 155 : 0,
             (const char *)header + 345, has_prefix ? "/" : "", (const char *)header);
}

/* Finds the next regular file; its bytes are borrowed from the archive. */
sh_status sh_tar_next(sh_tar *tar, sh_tar_file *file_out) {
    while (tar->bytes - tar->at >= BLOCK && tar->data[tar->at] != '\0') {
        const uint8_t *header = tar->data + tar->at;
        uint64_t size;
        size_t left = tar->bytes - tar->at - BLOCK;
        if (!checksum_fits(header) || !take_octal(header + 124, 12, &size))
            return SH_FAIL(SH_E_FORMAT, "'%s' is not a tar archive, or damaged, at byte %zu",
                           tar->source, tar->at);
        if (size > left)
            return SH_FAIL(SH_E_FORMAT, "'%s' ends within a file that starts at byte %zu",
                           tar->source, tar->at);
        uint64_t padded = (size + BLOCK - 1) / BLOCK * BLOCK;
        tar->at += BLOCK + (padded < left ? (size_t)padded : left);
        if (header[156] != '0' && header[156] != '\0') continue;  // folders, links, extensions
        take_name(tar, header);
        *file_out = (sh_tar_file){tar->name, header + BLOCK, (size_t)size};
        return SH_OK;
    }
    *file_out = (sh_tar_file){0};
    return SH_OK;
}
