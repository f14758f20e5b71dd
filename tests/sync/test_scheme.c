#include <string.h>

#include "harness.h"
#include "sync/sync.h"

TEST(scheme, every_row_reads_back_what_it_prints) {
    const sh_sync_kind *kind;
    for (size_t i = 0; (kind = sh_sync_at(i)) != NULL; i++) {
        sh_scheme scheme = {kind, kind->amount != NULL ? kind->amount_least : 0}, again;
        char text[SH_SCHEME_TEXT];
        CHECK_OK(sh_scheme_parse(sh_scheme_text(scheme, text), &again));
        assert_ptr_equal(again.kind, kind);
        assert_true(again.amount == scheme.amount);
    }
}

TEST(scheme, an_amount_left_out_is_the_rows_own) {
    sh_scheme scheme;
    CHECK_OK(sh_scheme_parse("local", &scheme));
    assert_true(scheme.amount == scheme.kind->amount_initial);
}

TEST(scheme, refuses_other_names_and_amounts) {
    sh_scheme scheme;
    CHECK_FAILS(SH_E_USAGE, "no scheme 'locl'", sh_scheme_parse("locl:3", &scheme));
    assert_non_null(strstr(sh_error_last()->hint, "'local'"));
    CHECK_FAILS(SH_E_USAGE, "no scheme ''", sh_scheme_parse("", &scheme));
    CHECK_FAILS(SH_E_USAGE, "takes no amount", sh_scheme_parse("bsp:2", &scheme));
    const char *const wrong[] = {"local:",   "local:0",    "local:-1", "local:1.5",
                                 "local:3x", "local:1e99", "local:nan"};
    for (size_t i = 0; i < SH_COUNT(wrong); i++)
        CHECK_FAILS(SH_E_USAGE, "scheme 'local': H is", sh_scheme_parse(wrong[i], &scheme));
}

TEST(scheme, a_very_long_name_is_cut) {
    char name[5000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    sh_scheme scheme;
    CHECK_FAILS(SH_E_USAGE, "there is no scheme", sh_scheme_parse(name, &scheme));
}

TEST(scheme, what_needs_every_steps_sum_is_refused) {
    sh_scheme local, bsp;
    CHECK_OK(sh_scheme_parse("local:4", &local));
    CHECK_OK(sh_scheme_parse("bsp", &bsp));
    const sh_sync_options options = {0};
    const sh_codec codec = {0};
    sh_sync_terms terms = {.workers = 2, .codec = &codec, .exact = true};
    CHECK_FAILS(SH_E_USAGE, "--exact", sh_scheme_check(local, &options, &terms));
    CHECK_OK(sh_scheme_check(bsp, &options, &terms));
    terms = (sh_sync_terms){.workers = 2, .codec = &codec, .balance = true};
    CHECK_FAILS(SH_E_USAGE, "--balance", sh_scheme_check(local, &options, &terms));
    terms.workers = 1;  // alone there is nothing to agree on
    CHECK_OK(sh_scheme_check(local, &options, &terms));
}

TEST(staleness, counts_sums_and_keeps_the_most) {
    sh_staleness staleness = {0};
    const uint64_t taus[] = {0, 3, 3, 1000};
    for (size_t i = 0; i < SH_COUNT(taus); i++) sh_staleness_add(&staleness, taus[i]);
    assert_int_equal(staleness.updates, 4);
    assert_int_equal(staleness.sum, 1006);
    assert_int_equal(staleness.most, 1000);
    assert_int_equal(staleness.count[3], 2);
    assert_int_equal(staleness.count[SH_STALENESS_MOST], 1);
}
