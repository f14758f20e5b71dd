/* Random crops and flips: what a move does to an image, and how moves are drawn. */
#include "data/augment.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "harness.h"

enum { C = 2, H = 3 };

/* Pixel (c, h, w) of an image of this width, or 0 beside it. */
static float pixel(int64_t W, int64_t c, int64_t h, int64_t w) {
    bool inside = h >= 0 && h < H && w >= 0 && w < W;
    return inside ? (float)(100 * c + 10 * h + w + 1) : 0;
}

static void check_move(sh_augment_move move, int64_t W) {
    float from[C * H * 8], to[C * H * 8];
    for (int64_t c = 0; c < C; c++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t w = 0; w < W; w++) from[(c * H + h) * W + w] = pixel(W, c, h, w);
    sh_augment_apply(move, C, H, W, from, to);
    for (int64_t c = 0; c < C; c++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t w = 0; w < W; w++) {
                int64_t seen = move.flip ? W - 1 - w : w;
                float wanted = pixel(W, c, h + move.down, seen + move.right);
                if (to[(c * H + h) * W + w] != wanted)
                    fail_msg("width %ld, move (%ld, %ld%s): (%ld, %ld, %ld) is %g, not %g", (long)W,
                             (long)move.down, (long)move.right, move.flip ? ", flip" : "", (long)c,
                             (long)h, (long)w, (double)to[(c * H + h) * W + w], (double)wanted);
            }
}

TEST(augment, moves_and_flips_every_pixel_to_its_place) {
    for (int64_t W = 1; W <= 6; W++)
        for (int64_t down = -3; down <= 3; down++)
            for (int64_t right = -7; right <= 7; right++)
                for (int flip = 0; flip < 2; flip++)
                    check_move((sh_augment_move){down, right, flip != 0}, W);
}

TEST(augment, every_move_is_drawn_as_often_as_the_others) {
    enum { CROP = 2, SIDE = 2 * CROP + 1, DRAWS = 25000 };
    int counts[SIDE][SIDE] = {{0}}, flips = 0;
    sh_rng rng = sh_rng_stream(4, SH_RNG_AUGMENT, 0, 0);
    for (uint64_t at = 0; at < DRAWS; at++) {
        sh_augment_move move = sh_augment_draw(&rng, at, CROP, true);
        assert_true(move.down >= -CROP && move.down <= CROP);
        assert_true(move.right >= -CROP && move.right <= CROP);
        counts[move.down + CROP][move.right + CROP]++;
        flips += move.flip;
    }
    // 1000 each; the deviation is 31.
    for (int i = 0; i < SIDE; i++)
        for (int k = 0; k < SIDE; k++) assert_true(counts[i][k] > 840 && counts[i][k] < 1160);
    assert_true(abs(flips - DRAWS / 2) < 500);
}

TEST(augment, a_move_belongs_to_its_position_and_nothing_moves_unasked) {
    sh_rng rng = sh_rng_stream(4, SH_RNG_AUGMENT, 0, 0);
    for (uint64_t at = 0; at < 100; at++) {
        sh_augment_move move = sh_augment_draw(&rng, at, 3, true);
        sh_augment_move again = sh_augment_draw(&rng, at, 3, true);
        assert_true(move.down == again.down && move.right == again.right &&
                    move.flip == again.flip);
        sh_augment_move still = sh_augment_draw(&rng, at, 0, false);
        assert_true(still.down == 0 && still.right == 0 && !still.flip);
    }
}
