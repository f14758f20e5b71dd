#include "base/memory.h"

#include <string.h>

#include "harness.h"

/* Under the address sanitizer a request that cannot be met ends the program unless told so. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

TEST(memory, is_zeroed_and_refuses_overflow) {
    unsigned char *bytes = sh_alloc(1000, 1);
    assert_non_null(bytes);
    for (int i = 0; i < 1000; i++) assert_int_equal(bytes[i], 0);
    sh_free(bytes);
    volatile size_t huge = SIZE_MAX / 2;  // hidden from the compiler, which would warn
    assert_null(sh_alloc(huge, 4));
    assert_null(sh_realloc(NULL, huge, 4));
}

TEST(memory, counts_every_call) {
    uint64_t before = sh_alloc_calls();
    void *first = sh_alloc(1, 8);
    first = sh_realloc(first, 2, 8);
    char *second = sh_strdup("a");
    char *third = sh_format("%d", 3);
    sh_arena arena;
    CHECK_OK(sh_arena_init(&arena, "test", 100));
    assert_int_equal(sh_alloc_calls() - before, 5);
    assert_string_equal(second, "a");
    assert_string_equal(third, "3");
    sh_free(first);
    sh_free(second);
    sh_free(third);
    sh_arena_fini(&arena);
    assert_int_equal(sh_alloc_calls() - before, 5);
}

TEST(memory, grow_keeps_contents_and_doubles) {
    void *items = NULL;
    size_t capacity = 0;
    for (size_t count = 1; count <= 1000; count++) {
        size_t before = capacity;
        CHECK_OK(sh_grow(&items, &capacity, count, sizeof(int)));
        assert_true(capacity >= count);
        assert_true(capacity == before || before == 0 || capacity == 2 * before);
        ((int *)items)[count - 1] = (int)count;
    }
    for (int i = 0; i < 1000; i++) assert_int_equal(((int *)items)[i], i + 1);
    void *kept = items;
    CHECK_FAILS(SH_E_MEMORY, "out of memory",
                sh_grow(&items, &capacity, (size_t)1 << 60, sizeof(double) * 1024));
    assert_ptr_equal(items, kept);
    sh_free(items);
}

TEST(arena, hands_out_aligned_zeroed_memory_in_order) {
    sh_arena arena;
    CHECK_OK(sh_arena_init(&arena, "test", 3 << 20));
    unsigned char *first = sh_arena_take(&arena, 1), *second = sh_arena_take(&arena, 65);
    assert_int_equal((uintptr_t)first % SH_ALIGN, 0);
    assert_int_equal(second - first, SH_ALIGN);
    unsigned char *third = sh_arena_take(&arena, 3 << 19);
    assert_int_equal(third - second, 2 * SH_ALIGN);
    for (size_t i = 0; i < (3 << 19); i += 4096) assert_int_equal(third[i], 0);
    memset(third, 1, 3 << 19);
    sh_arena_fini(&arena);
    assert_null(arena.base);
}

TEST(arena, gives_the_same_memory_after_a_rewind) {
    sh_arena arena;
    CHECK_OK(sh_arena_init(&arena, "test", 8192));
    sh_arena_take(&arena, 100);
    size_t mark = arena.used_bytes;
    void *first = sh_arena_take(&arena, 500);
    sh_arena_rewind(&arena, mark);
    assert_ptr_equal(sh_arena_take(&arena, 10), first);
    sh_arena_fini(&arena);
}

TEST(arena, says_how_much_it_could_not_map) {
    sh_arena arena;
    CHECK_FAILS(SH_E_MEMORY, "for the moon", sh_arena_init(&arena, "the moon", (size_t)1 << 60));
}
