#include <string.h>

#include "harness.h"
#include "sync/ps.h"
#include "run/config.h"

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

static sh_status check(const char *text, const sh_sync_options *options, sh_sync_terms terms) {
    static const sh_codec none = {0};
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(text, &scheme));
    terms.codec = &none;
    if (terms.optim == NULL) terms.optim = sh_optim_find("sgd");
    return sh_scheme_check(scheme, options, &terms);
}

static sh_sync_options usual(void) {
    return (sh_sync_options){.placement = (char *)(uintptr_t) "range",
                             .staleness = (char *)(uintptr_t) "auto",
                             .fetch_every = 1,
                             .push_every = 1};
}

TEST(scheme, k_and_b_are_for_the_workers_that_a_run_began_with) {
    const sh_sync_options options = usual();
    CHECK_FAILS(SH_E_USAGE, "too much for 2 workers",
                check("ksync:3", &options, (sh_sync_terms){.workers = 2}));
    CHECK_OK(check("ksync:3", &options, (sh_sync_terms){.workers = 2, .planned = 3}));
    CHECK_FAILS(SH_E_USAGE, "too much for 3 workers",
                check("backup:3", &options, (sh_sync_terms){.workers = 2, .planned = 3}));
    const char *const schemes[] = {"ksync:3", "backup:1", "backup:2"};
    for (size_t i = 0; i < SH_COUNT(schemes); i++)
        for (int workers = 1; workers <= 3; workers++) {
            sh_scheme scheme;
            CHECK_OK(sh_scheme_parse(schemes[i], &scheme));
            sh_ps_policy policy = scheme.kind->policy(scheme, &options, workers);
            assert_in_range(policy.group, 1, workers);
        }
}

TEST(scheme, one_worker_with_servers_apart_is_checked_as_many_are) {
    sh_sync_options options = usual();
    CHECK_OK(check("backup:1", &options, (sh_sync_terms){.workers = 1}));
    options.server_ranks = (char *)(uintptr_t) "own";
    CHECK_FAILS(SH_E_USAGE, "too much for 1 worker",
                check("backup:1", &options, (sh_sync_terms){.workers = 1}));
    CHECK_OK(check("ksync:1", &options, (sh_sync_terms){.workers = 1}));
}

TEST(scheme, a_worker_that_moves_its_own_copy_needs_steps_of_lr_times_g) {
    sh_sync_options options = usual();
    options.fetch_every = 4;
    const char *const optims[] = {"sgd", "momentum", "adam", "nesterov"};
    for (size_t i = 0; i < SH_COUNT(optims); i++) {
        const sh_sync_terms terms = {.workers = 2, .optim = sh_optim_find(optims[i])};
        assert_int_equal(check("async", &options, terms) == SH_OK, i < 2);
    }
    options.compensation = 0.1;
    CHECK_FAILS(SH_E_USAGE, "--fetch-every 4",
                check("async", &options, (sh_sync_terms){.workers = 2}));
}

TEST(scheme, elastic_averaging_steps_with_whole_tensors) {
    const sh_sync_options options = usual();
    const sh_sync_terms terms = {.workers = 2, .optim = sh_optim_find("lamb")};
    CHECK_OK(check("easgd", &options, terms));
    CHECK_FAILS(SH_E_USAGE, "whole tensors", check("async", &options, terms));
}

TEST(scheme, reads_options_that_there_are) {
    const sh_sync_kind *kind;
    for (size_t i = 0; (kind = sh_sync_at(i)) != NULL; i++) {
        size_t words = kind->own.table.count, found = 0;
        for (const char *at = kind->reads; at != NULL; at = strchr(at + 1, ' ')) words++;
        for (size_t r = 0; r < sh_config_table().count; r++) {
            const char *key = sh_config_table().rows[r].key;
            found += strncmp(key, "sync.", 5) == 0 && sh_sync_reads(kind, key + 5);
        }
        assert_int_equal(found, words);
    }
    assert_false(sh_sync_reads(sh_sync_find("diloco"), "outer"));
    assert_false(sh_sync_reads(sh_sync_find("bsp"), ""));
}

TEST(scheme, asp_is_async) { assert_ptr_equal(sh_sync_find("asp"), sh_sync_find("async")); }

TEST(ps, there_are_not_as_many_servers_as_links_would_cost) {
    sh_sync_options options = usual();
    const sh_scheme async = {sh_sync_find("async"), 0};
    assert_int_equal(sh_scheme_services(async, &options, 3), 3);
    assert_int_equal(sh_scheme_services(async, &options, 1000), 16);
    options.servers = 40;
    assert_int_equal(sh_scheme_services(async, &options, 1000), 40);
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
