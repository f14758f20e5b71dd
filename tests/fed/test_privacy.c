/* Central differential privacy: what is added, what is cut, and that the budget is charged first.
 */
#include "harness.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "fed/privacy.h"
#include "fed/server.h"

enum { COUNT = 4, MANY = 20000 };

static sh_fed_privacy budget(const char *text) {
    sh_fed_privacy privacy;
    CHECK_OK(sh_fed_privacy_parse(text, 1, 10, &privacy));
    sh_fed_privacy_seed_key(&privacy, 5);
    return privacy;
}

TEST(privacy, noise_has_its_deviation_and_is_another_in_every_round) {
    sh_fed_privacy p = budget("epsilon=1,delta=1e-5,clip=2,noise=1.5");
    sh_fed_sum a, b;
    CHECK_OK(sh_fed_sum_init(&a, MANY));
    CHECK_OK(sh_fed_sum_init(&b, MANY));
    CHECK_OK(sh_fed_privacy_add_noise(&p, 1, 1, 3, &a));
    CHECK_OK(sh_fed_privacy_add_noise(&p, 2, 1, 3, &b));
    double mean = 0, squares = 0, product = 0;
    for (size_t i = 0; i < MANY; i++) {
        double x = (double)a.total[i] * 0x1p-40 / 3, y = (double)b.total[i] * 0x1p-40 / 3;
        mean += x / MANY;
        squares += x * x / MANY;
        product += x * y / MANY;
    }
    assert_true(fabs(mean) < 0.1 && fabs(sqrt(squares) - 3) < 0.1 && fabs(product) < 0.3);
    sh_fed_sum_clear(&b);
    CHECK_OK(sh_fed_privacy_add_noise(&p, 1, 1, 3, &b));
    assert_memory_equal(a.total, b.total, MANY * sizeof *a.total);
    sh_fed_sum_fini(&a);
    sh_fed_sum_fini(&b);
}

TEST(privacy, budgets_are_read_and_checked) {
    sh_fed_privacy p = budget("epsilon=8,delta=1e-5");
    assert_true(p.clip == 1 && p.noise > 0.5 && p.noise < 5);
    CHECK_FAILS(SH_E_USAGE, "no privacy budget", sh_fed_privacy_parse("epsilon=8", 1, 1, &p));
    CHECK_FAILS(SH_E_USAGE, "no privacy budget", sh_fed_privacy_parse("", 1, 1, &p));
    CHECK_FAILS(SH_E_USAGE, "no privacy budget",
                sh_fed_privacy_parse("epsilon=8,,delta=1e-5", 1, 1, &p));
    CHECK_FAILS(SH_E_USAGE, "there is no 'sigma'",
                sh_fed_privacy_parse("epsilon=8,delta=1e-5,sigma=1", 1, 1, &p));
    CHECK_FAILS(SH_E_USAGE, "delta is 2", sh_fed_privacy_parse("epsilon=8,delta=2", 1, 1, &p));
}

TEST(privacy, draws_each_client_by_itself) {
    sh_fed_privacy p = budget("epsilon=8,delta=1e-5");
    size_t drawn = 0, both = 0;
    for (size_t c = 0; c < MANY; c++) {
        bool first = sh_fed_privacy_draws(&p, 1, 1, c, 0.3);
        drawn += first;
        both += first && sh_fed_privacy_draws(&p, 2, 1, c, 0.3);
    }
    assert_true(fabs((double)drawn / MANY - 0.3) < 0.02);
    assert_true(fabs((double)both / MANY - 0.09) < 0.02);
}

typedef struct ledger {
    int charges, commits;
    bool fails;
} ledger;

static sh_status charge(void *self, uint64_t round, double rate, double noise) {
    ledger *l = self;
    assert_true(rate == 1 && noise > 0 && round == (uint64_t)l->commits + 1);
    if (l->fails) return SH_FAIL(SH_E_IO, "the disk is full");
    l->charges++;
    return SH_OK;
}

static sh_status commit(void *self, const sh_fed_server *server, const sh_fed_report *report) {
    ledger *l = self;
    (void)server;
    l->commits++;
    assert_int_equal(l->charges, l->commits);  // charged before
    assert_true(isnan(report->loss));          // which is nobody's business
    return SH_OK;
}

static sh_fed_server *start(ledger *l, const char *text, int64_t rounds, int64_t clients) {
    sh_fed_options options = {.rounds = rounds,
                              .fraction = 1,
                              .clients_min = clients,
                              .over = 1,
                              .quorum = 0.5,
                              .deadline_ms = 1000,
                              .presence_ms = 1000000,
                              .charge = charge};
    sh_fed_server *server = NULL;
    CHECK_OK(sh_fed_rule_parse("fedavg", &options.rule));
    options.privacy = budget(text);
    CHECK_OK(sh_fed_server_create(&options, COUNT, COUNT, commit, l, &server));
    for (int64_t c = 0; c < clients; c++) sh_fed_server_add(server);
    sh_fed_server_begin(server);
    return server;
}

static sh_status give_all(sh_fed_server *server, size_t clients, float value) {
    float values[COUNT] = {value, 0, 0, 0};
    sh_fed_task task;
    for (size_t c = 0; c < clients; c++) sh_fed_server_heard(server, 0, c);
    for (size_t c = 0; c < clients; c++) {
        SH_TRY(sh_fed_server_ask(server, 0, c, &task));
        if (task.action != SH_FED_TRAIN) continue;
        sh_fed_update update = {.round = task.round,
                                .attempt = task.attempt,
                                .samples = 1000000,
                                .steps = 1,
                                .vectors = 1,
                                .count = COUNT,
                                .values = values};
        memcpy(update.model, task.model, SH_FED_HASH);
        sh_fed_receipt receipt;
        SH_TRY(sh_fed_server_take(server, 0, c, &update, &receipt));
    }
    return SH_OK;
}

/* Whatever one client sends, a round moves the model by no more than the clip, shared by all. */
TEST(privacy, cuts_updates_to_the_clip_and_weighs_all_alike) {
    ledger l = {0};
    sh_fed_server *server = start(&l, "epsilon=1e6,delta=1e-5,clip=0.5,noise=0.001", 1, 4);
    CHECK_OK(give_all(server, 4, 1000));
    assert_int_equal(l.commits, 1);
    float *model = sh_fed_server_model(server);
    assert_true(fabsf(model[0] - 0.5f) < 0.005f && fabsf(model[1]) < 0.005f && model[1] != 0);
    sh_fed_server_destroy(server);
}

TEST(privacy, budget_that_is_spent_ends_the_training) {
    ledger l = {0};
    sh_fed_server *server = start(&l, "epsilon=3,delta=1e-5,noise=2", 1000, 3);
    for (int i = 0; i < 100 && !sh_fed_server_view(server, 0).over; i++)
        CHECK_OK(give_all(server, 3, 1));
    sh_fed_view view = sh_fed_server_view(server, 0);
    assert_true(view.over && view.closed > 0 && view.closed < 100);
    assert_true(view.epsilon <= 3);
    sh_fed_accountant more = {0};  // one round more would have been too many
    sh_fed_accountant_add(&more, 1, 2, (double)view.closed + 1);
    assert_true(sh_fed_accountant_epsilon(&more, 1e-5) > 3);
    sh_fed_server_destroy(server);
    l = (ledger){0};  // and a server that begins again remembers
    server = start(&l, "epsilon=3,delta=1e-5,noise=2", 1000, 3);
    for (uint64_t i = 0; i < view.closed; i++) sh_fed_server_restore_charge(server, 1, 2);
    CHECK_OK(give_all(server, 3, 1));
    assert_true(sh_fed_server_view(server, 0).over && l.commits == 0);
    sh_fed_server_destroy(server);
}

TEST(privacy, that_cannot_be_charged_opens_no_sum) {
    ledger l = {.fails = true};
    static const float zeros[COUNT];
    sh_fed_server *server = start(&l, "epsilon=8,delta=1e-5", 5, 2);
    CHECK_FAILS(SH_E_IO, "disk is full", give_all(server, 2, 1));
    assert_memory_equal(sh_fed_server_model(server), zeros, sizeof zeros);
    assert_int_equal(l.commits, 0);
    CHECK_FAILS(SH_E_IO, "", sh_fed_server_tick(server, 1));  // and nothing goes on
    sh_fed_server_destroy(server);
}
