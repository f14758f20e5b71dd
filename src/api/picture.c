/* A sample as an image inside a page: written as an uncompressed bitmap (BMP), which every browser
 * shows and which needs no library, and encoded in base64 as a data URI. */
#include "api/picture.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "tensor/shape.h"

/* Bytes of both BMP headers; the longest side of a sample that counts as a picture. */
enum { BMP_HEADER = 54, SIDE_MOST = 256 };

/* BMP numbers are little endian, whatever the machine is. */
static void put_u32(unsigned char *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> (8 * i));
}

/* Headers of an uncompressed 24-bit bitmap. Offsets are those of the format: 2 file size, 10 start
 * of the pixels, 14 size of the second header, 18 width, 22 height, 26 planes, 28 bits per pixel.
 */
static void put_header(unsigned char *bmp, size_t bytes, int64_t width, int64_t height) {
    bmp[0] = 'B';
    bmp[1] = 'M';
    put_u32(bmp + 2, (uint32_t)bytes);
    put_u32(bmp + 10, BMP_HEADER);
    put_u32(bmp + 14, 40);  // the second header's size
    put_u32(bmp + 18, (uint32_t)width);
    put_u32(bmp + 22, (uint32_t)height);
    bmp[26] = 1;   // one plane
    bmp[28] = 24;  // bits a pixel
}

/* Pixels of x (C, H, W): values stretched to 0..255, rows from the bottom up, blue first, each row
 * padded to four bytes. One channel is repeated, which gives grey. */
static void put_pixels(unsigned char *pixels, const float *x, const sh_shape *shape) {
    int64_t channels = shape->dim[0], height = shape->dim[1], width = shape->dim[2];
    size_t stride = sh_round_up((size_t)width * 3, 4);
    float low = x[0], high = x[0];
    for (int64_t i = 1; i < channels * height * width; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    float scale = high > low ? 255 / (high - low) : 0;  // a constant sample becomes black
    for (int64_t row = 0; row < height; row++)
        for (int64_t column = 0; column < width; column++)
            for (int64_t c = 0; c < 3; c++) {
                int64_t channel = channels == 3 ? 2 - c : 0;
                float value = x[(channel * height + (height - 1 - row)) * width + column];
                pixels[(size_t)row * stride + (size_t)column * 3 + (size_t)c] =
                    (unsigned char)((value - low) * scale);
            }
}

/* `prefix` followed by the bytes in base64, padded with '='. Caller frees; NULL: no memory. */
static char *base64(const char *prefix, const unsigned char *data, size_t bytes) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t at = strlen(prefix);
    char *text = sh_alloc(at + (bytes + 2) / 3 * 4 + 1, 1);
    if (text == NULL) return NULL;
    for (size_t i = 0; i < at; i++) text[i] = prefix[i];
    for (size_t i = 0; i < bytes; i += 3) {
        size_t left = bytes - i;
        uint32_t word = (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                        (left > 2 ? data[i + 2] : 0);
        for (size_t k = 0; k < 4; k++)
            text[at++] = k <= left ? letters[word >> (18 - 6 * k) & 63] : '=';
    }
    return text;
}

/* Whether a sample can be shown: one or three channels, and not too large for a page. */
static bool is_image(const sh_data_info *info) {
    const sh_shape *shape = &info->sample;
    return !info->tokens && shape->rank == 3 && (shape->dim[0] == 1 || shape->dim[0] == 3) &&
           shape->dim[1] <= SIDE_MOST && shape->dim[2] <= SIDE_MOST;
}

/* The sample is read as the data set gives it, and put_pixels stretches its values, whatever their
 * scale. */
char *sh_picture_of_sample(const sh_dataset *dataset, size_t index) {
    const sh_shape *shape = &dataset->info.sample;
    if (!is_image(&dataset->info)) return NULL;
    size_t stride = sh_round_up((size_t)shape->dim[2] * 3, 4);
    size_t bytes = BMP_HEADER + stride * (size_t)shape->dim[1];
    float *x = sh_alloc(sh_shape_count(shape), sizeof *x);
    unsigned char *bmp = sh_alloc(bytes, 1);
    char *text = NULL;
    if (x != NULL && bmp != NULL) {
        dataset->get(dataset, index, x, NULL);
        put_header(bmp, bytes, shape->dim[2], shape->dim[1]);
        put_pixels(bmp + BMP_HEADER, x, shape);
        text = base64("data:image/bmp;base64,", bmp, bytes);
    }
    sh_free(x);
    sh_free(bmp);
    return text;
}
