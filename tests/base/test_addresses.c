#include "base/addresses.h"

#include <stdint.h>
#include <string.h>
#include <sys/resource.h>

#include "base/memory.h"
#include "harness.h"

/* Leaves so many bytes of addresses; sanitizers have taken terabytes already. */
static struct rlimit limit_to(size_t left) {
    struct rlimit before, now;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    now = before;
    now.rlim_cur = (rlim_t)1 << 44;
    if (now.rlim_cur > now.rlim_max || setrlimit(RLIMIT_AS, &now) != 0) skip();
    size_t used = ((size_t)1 << 44) - sh_addresses_left();
    now.rlim_cur = used + left;
    if (used > (size_t)1 << 40 || setrlimit(RLIMIT_AS, &now) != 0) {
        setrlimit(RLIMIT_AS, &before);
        print_message("addresses cannot be limited here\n");
        skip();
    }
    return before;
}

TEST(addresses, are_what_the_limit_leaves) {
    const size_t left = (size_t)512 << 20;
    struct rlimit before = limit_to(left);
    size_t first = sh_addresses_left();
    sh_arena arena;
    CHECK_OK(sh_arena_init(&arena, "a test", (size_t)100 << 20));
    size_t second = sh_addresses_left();
    sh_arena_fini(&arena);
    sh_status status = sh_arena_init(&arena, "a test", (size_t)600 << 20);
    const sh_error *error = sh_error_last();
    bool told = strstr(error->hint, "MiB of addresses: 'ulimit -v unlimited'") != NULL;
    setrlimit(RLIMIT_AS, &before);
    assert_true(first <= left && first > left - (8 << 20));
    assert_true(second <= first - ((size_t)100 << 20));
    assert_int_equal(status, SH_E_MEMORY);
    assert_true(told);
}

TEST(addresses, without_a_limit_are_not_counted) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    if (limit.rlim_cur != RLIM_INFINITY) skip();
    assert_true(sh_addresses_left() == SIZE_MAX);
    SH_FAIL(SH_E_MEMORY, "none");
    assert_int_equal(sh_addresses_hint("use less"), SH_E_MEMORY);
    assert_string_equal(sh_error_last()->hint, "use less");
}
