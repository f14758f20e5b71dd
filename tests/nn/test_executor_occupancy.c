#include "nn/executor_occupancy.h"

#include "base/rng.h"
#include "harness.h"

typedef struct box {
    int start, end;
    size_t offset, bytes;
} box;

static bool meet(const box *a, const box *b) {
    return a->start <= b->end && b->start <= a->end && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* Past every box in the way, until there is none. */
static size_t lowest(const box *boxes, size_t count, box placed) {
    for (size_t i = 0; i < count;) {
        if (meet(&boxes[i], &placed)) {
            placed.offset = boxes[i].offset + boxes[i].bytes;
            i = 0;
        } else {
            i++;
        }
    }
    return placed.offset;
}

TEST(occupancy, finds_the_lowest_free_place) {
    enum { BOXES = 150, TIMES = 37 };
    for (uint32_t seed = 0; seed < 60; seed++) {
        sh_rng rng = sh_rng_stream(seed, SH_RNG_INIT, 0, 0);
        sh_occupancy occupancy;
        box boxes[BOXES];
        CHECK_OK(sh_occupancy_init(&occupancy, TIMES));
        for (size_t i = 0; i < BOXES; i++) {
            box b = {.start = (int)sh_rng_below(&rng, TIMES),
                     .offset = sh_rng_below(&rng, 8),
                     .bytes = 1 + sh_rng_below(&rng, 20)};
            b.end = b.start + (int)sh_rng_below(&rng, (uint64_t)(TIMES - b.start));
            size_t found = sh_occupancy_find(&occupancy, b.start, b.end, b.offset, b.bytes);
            assert_int_equal(found, lowest(boxes, i, b));
            b.offset = found;
            // Boxes that overlap others are taken too, as gradients and what lies in them.
            if (i % 5 == 0) b.offset = sh_rng_below(&rng, 60);
            CHECK_OK(sh_occupancy_take(&occupancy, b.start, b.end, b.offset, b.bytes));
            boxes[i] = b;
        }
        sh_occupancy_fini(&occupancy);
    }
}
