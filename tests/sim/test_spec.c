#include "sim/spec.h"

#include <math.h>
#include <string.h>

#include "harness.h"

static sh_sim_spec spec;

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * fabs(b); }

static sh_status parse(sh_sim_texts texts) { return sh_sim_spec_parse(&texts, 8, 0, &spec); }

TEST(spec, reads_links_of_pairs) {
    CHECK_OK(parse((sh_sim_texts){.pairs = "0-3:100Mbit,5ms/7-2:1Gbit,1ms"}));
    const sh_sim_links *links = &spec.options.links;
    assert_int_equal(links->pair_count, 2);
    assert_int_equal(links->pairs[0].a, 0);
    assert_int_equal(links->pairs[0].b, 3);
    assert_true(near(links->pairs[0].link.alpha_s, 5e-3));
    assert_true(near(links->pairs[0].link.beta_s, 8e-8));
    assert_int_equal(links->pairs[1].a, 7);
    assert_true(near(links->pairs[1].link.alpha_s, 1e-3));
    static const char *const wrong[] = {"0-3", "0-3:",           "0-0:1Gbit,1ms", "0-8:1Gbit,1ms",
                                        "x",   "0-3:1Gbit,1ms/", "0-3:1Gbit",     "0-3:1Gbit,1ms,"};
    for (size_t i = 0; i < SH_COUNT(wrong); i++)
        CHECK_FAILS(SH_E_USAGE, "--pairs", parse((sh_sim_texts){.pairs = wrong[i]}));
    char many[64 * 20 + 32] = "";
    for (int i = 0; i < 65; i++) strcat(many, i == 0 ? "0-1:1Gbit,1ms" : "/0-1:1Gbit,1ms");
    CHECK_FAILS(SH_E_USAGE, "is not understood", parse((sh_sim_texts){.pairs = many}));
}

TEST(spec, says_where_a_text_ends_too_early) {
    CHECK_FAILS(SH_E_USAGE, "--straggler '3' ends too early",
                parse((sh_sim_texts){.straggler = "3"}));
    CHECK_FAILS(SH_E_USAGE, "--cut '0' ends too early", parse((sh_sim_texts){.cut = "0"}));
    CHECK_FAILS(SH_E_USAGE, "--die '9@1s' is not understood from '@1s' on",
                parse((sh_sim_texts){.die = "9@1s"}));
}

TEST(spec, reads_links_racks_and_sites) {
    CHECK_OK(parse((sh_sim_texts){
        .link = "1Gbit,100us", .racks = "4,10Gbit,20us", .sites = "2,100Mbit,30ms"}));
    const sh_sim_links *links = &spec.options.links;
    assert_true(near(links->rank.alpha_s, 100e-6) && near(links->rank.beta_s, 8e-9));
    assert_int_equal(links->rack_ranks, 4);
    assert_true(near(links->rack.alpha_s, 20e-6));
    assert_int_equal(links->site_racks, 2);
    assert_true(near(links->site.alpha_s, 30e-3));
}

TEST(spec, reads_compute_times) {
    const sh_sim_compute *compute = &spec.options.compute;
    CHECK_OK(parse((sh_sim_texts){.compute = "20ms"}));
    assert_true(compute->law == SH_LAW_CONSTANT && near(compute->mean_s, 20e-3));
    CHECK_OK(parse((sh_sim_texts){.compute = "exp:1.5s"}));
    assert_true(compute->law == SH_LAW_EXPONENTIAL && near(compute->mean_s, 1.5));
    CHECK_OK(parse((sh_sim_texts){.compute = "lognormal:2ms,0.25"}));
    assert_true(compute->law == SH_LAW_LOGNORMAL && compute->sigma == 0.25);
}

TEST(spec, reads_lists) {
    CHECK_OK(parse((sh_sim_texts){.straggler = "3:4x,*:1.5x@10s-20s",
                                  .cut = "0-1@5s-9s,2-*@0s-1ms",
                                  .pause = "3@5s-7s",
                                  .die = "7@12s,6@1.5s",
                                  .jitter = "50us"}));
    const sh_sim_options *o = &spec.options;
    assert_int_equal(o->compute.slow_count, 2);
    assert_true(o->compute.slow[0].rank == 3 && o->compute.slow[0].factor == 4);
    assert_true(o->compute.slow[1].rank == -1 && o->compute.slow[1].until_s == 20);
    assert_int_equal(o->faults.cut_count, 2);
    assert_true(o->faults.cuts[0].b == 1 && o->faults.cuts[1].b == -1);
    assert_true(o->faults.stops[0].at_s == 5 && o->faults.stops[0].for_s == 2);
    assert_int_equal(o->faults.death_count, 2);
    assert_true(o->faults.deaths[1].rank == 6 && o->faults.deaths[1].at_s == 1.5);
    assert_true(near(o->faults.delay_s, 50e-6));
}

TEST(spec, refuses_what_it_does_not_understand) {
    CHECK_FAILS(SH_E_USAGE, "--link", parse((sh_sim_texts){.link = "fast"}));
    CHECK_FAILS(SH_E_USAGE, "--racks", parse((sh_sim_texts){.racks = "10Gbit,20us"}));
    CHECK_FAILS(SH_E_USAGE, "--sites", parse((sh_sim_texts){.sites = "2,1Gbit,1ms"}));
    CHECK_FAILS(SH_E_USAGE, "--compute", parse((sh_sim_texts){.compute = "gauss:20ms"}));
    CHECK_FAILS(SH_E_USAGE, "--compute", parse((sh_sim_texts){.compute = "20"}));
    CHECK_FAILS(SH_E_USAGE, "--compute", parse((sh_sim_texts){.compute = "lognormal:20ms"}));
    CHECK_FAILS(SH_E_USAGE, "--straggler '8:4x'", parse((sh_sim_texts){.straggler = "8:4x"}));
    CHECK_FAILS(SH_E_USAGE, "--straggler", parse((sh_sim_texts){.straggler = "3:4"}));
    CHECK_FAILS(SH_E_USAGE, "'!' does not", parse((sh_sim_texts){.straggler = "3:4x!"}));
    CHECK_FAILS(SH_E_USAGE, "--straggler", parse((sh_sim_texts){.straggler = "3:0x"}));
    CHECK_FAILS(SH_E_USAGE, "--cut", parse((sh_sim_texts){.cut = "0-1"}));
    CHECK_FAILS(SH_E_USAGE, "--pause", parse((sh_sim_texts){.pause = "1@7s-5s"}));
    CHECK_FAILS(SH_E_USAGE, "--die", parse((sh_sim_texts){.die = "1@"}));
    CHECK_FAILS(SH_E_USAGE, "--jitter", parse((sh_sim_texts){.jitter = "x"}));
}
