/* What a federated server keeps comes back, and a token makes one client. */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fed/store.h"

enum { PARAMS = 3, COUNT = 4 };

static sh_status ignore(void *self, const sh_fed_server *server, const sh_fed_report *report) {
    (void)self;
    (void)server;
    (void)report;
    return SH_OK;
}

static sh_fed_server *server_of(const char *rule) {
    sh_fed_options options = {.rounds = 10,
                              .fraction = 1,
                              .clients_min = 1,
                              .over = 1,
                              .quorum = 0.5,
                              .deadline_ms = 1000,
                              .presence_ms = 1000};
    sh_fed_server *server = NULL;
    CHECK_OK(sh_fed_rule_parse(rule, &options.rule));
    CHECK_OK(sh_fed_server_create(&options, PARAMS, COUNT, ignore, NULL, &server));
    return server;
}

TEST(store, gives_back_what_a_closed_round_left) {
    const char *folder = sh_test_folder("fed-store");
    sh_fed_store *store = NULL;
    sh_fed_server *server = server_of("fedadam"), *again = server_of("fedadam");
    char token[SH_FED_TOKEN];
    int64_t number, boots;
    CHECK_OK(sh_fed_store_open(folder, true, &store));
    for (int i = 1; i <= 2; i++) {
        char request[16];
        snprintf(request, sizeof request, "request %d", i);
        CHECK_OK(sh_fed_store_invite(store, 100, 50, token));
        CHECK_OK(sh_fed_store_redeem(store, token, request, 120, &number));
        assert_int_equal(number, i);
        assert_int_equal(sh_fed_server_add(server), i - 1);
    }
    for (int i = 0; i < COUNT; i++) sh_fed_server_model(server)[i] = (float)i + 0.5f;
    sh_fed_server_slot(server, 1)[2] = 7;
    sh_fed_server_restore_round(server, 4);
    sh_fed_server_restore_counted(server, 1, 4);
    sh_fed_server_begin(server);
    sh_fed_report report = {.round = 4, .counted = 1, .samples = 60, .loss = NAN};
    CHECK_OK(sh_fed_store_commit(store, server, PARAMS, &report, 1000));
    CHECK_OK(sh_fed_store_revoke(store, 1));
    CHECK_OK(sh_fed_store_boot(store, &boots));
    assert_int_equal(boots, 1);
    sh_fed_store_close(store);

    CHECK_OK(sh_fed_store_open(folder, false, &store));
    CHECK_OK(sh_fed_store_boot(store, &boots));
    assert_int_equal(boots, 2);
    CHECK_OK(sh_fed_store_restore(store, again, PARAMS));
    sh_fed_server_begin(again);
    assert_memory_equal(sh_fed_server_model(again), sh_fed_server_model(server),
                        COUNT * sizeof(float));
    assert_true(sh_fed_server_slot(again, 1)[2] == 7);
    assert_int_equal(sh_fed_server_view(again, 0).closed, 4);
    assert_int_equal(sh_fed_server_clients(again), 2);
    assert_int_equal(sh_fed_server_counted(again, 0), 0);
    assert_int_equal(sh_fed_server_counted(again, 1), 4);
    assert_true(sh_fed_store_is_revoked(store, 1) && !sh_fed_store_is_revoked(store, 2));
    assert_true(sh_fed_store_is_revoked(store, 3));  // who is not there is not let in
    sh_fed_store_close(store);
    sh_fed_server_destroy(server);
    sh_fed_server_destroy(again);
}

TEST(store, of_another_model_is_refused) {
    const char *folder = sh_test_folder("fed-store-other");
    sh_fed_store *store = NULL;
    sh_fed_server *server = server_of("fedavg"), *other = server_of("scaffold");
    sh_fed_report report = {.round = 1};
    CHECK_OK(sh_fed_store_open(folder, true, &store));
    sh_fed_server_begin(server);
    CHECK_OK(sh_fed_store_commit(store, server, PARAMS, &report, 0));
    CHECK_FAILS(SH_E_USAGE, "model of 4 values, this one 8",
                sh_fed_store_restore(store, other, PARAMS));
    sh_fed_store_close(store);
    sh_fed_server_destroy(server);
    sh_fed_server_destroy(other);
    CHECK_FAILS(SH_E_USAGE, "holds no federated training",
                sh_fed_store_open(sh_test_folder("fed-store-none"), false, &store));
}

TEST(token, makes_one_client_once_and_in_its_time) {
    sh_fed_store *store = NULL;
    char token[SH_FED_TOKEN], late[SH_FED_TOKEN];
    int64_t first, again;
    CHECK_OK(sh_fed_store_open(sh_test_folder("fed-token"), true, &store));
    CHECK_OK(sh_fed_store_invite(store, 100, 50, token));
    CHECK_OK(sh_fed_store_invite(store, 100, 50, late));
    assert_int_equal(sh_fed_store_open_invitations(store, 149), 2);
    CHECK_OK(sh_fed_store_redeem(store, token, "mine", 149, &first));
    CHECK_OK(sh_fed_store_redeem(store, token, "mine", 999, &again));  // its answer was lost
    assert_int_equal(first, again);
    CHECK_FAILS(SH_E_USAGE, "has been used",
                sh_fed_store_redeem(store, token, "another", 149, &again));
    CHECK_FAILS(SH_E_USAGE, "has expired", sh_fed_store_redeem(store, late, "mine", 150, &again));
    late[0] = late[0] == '0' ? '1' : '0';
    CHECK_FAILS(SH_E_USAGE, "not known", sh_fed_store_redeem(store, late, "mine", 120, &again));
    CHECK_FAILS(SH_E_USAGE, "no client 5", sh_fed_store_revoke(store, 5));
    sh_fed_store_close(store);
}
