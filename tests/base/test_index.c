#include "base/index.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "harness.h"

typedef struct thing {
    char name[16];
} thing;

static const char *name_at(const void *list, size_t at) { return ((const thing *)list)[at].name; }

TEST(index, finds_every_name_while_the_list_moves) {
    enum { COUNT = 5000 };
    sh_index index = {0};
    thing *things = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_OK(sh_grow((void **)&things, &capacity, i + 1, sizeof *things));
        snprintf(things[i].name, sizeof things[i].name, "layer%zu", i);
        assert_true(sh_index_find(&index, things, name_at, things[i].name) == SH_INDEX_NONE);
        CHECK_OK(sh_index_add(&index, things, name_at, i));
    }
    for (size_t i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer%zu", i);
        assert_int_equal(sh_index_find(&index, things, name_at, name), i);
    }
    assert_true(sh_index_find(&index, things, name_at, "layer") == SH_INDEX_NONE);
    assert_true(sh_index_find(&index, things, name_at, "layer5000") == SH_INDEX_NONE);
    sh_index_fini(&index);
    sh_free(things);
}

TEST(index, of_nothing_finds_nothing) {
    sh_index index = {0};
    assert_true(sh_index_find(&index, NULL, name_at, "") == SH_INDEX_NONE);
    sh_index_fini(&index);
}
