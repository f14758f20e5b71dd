/* What the parent and its workers share: rolls, states, notes and fabrics of the generations. */
#include "host/generations.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

static sh_config config;

static void set(const char *key, const char *value) {
    CHECK_OK(sh_options_set(sh_config_table(), key, value, &config));
}

/* A team of `workers`, whose scheme survives a death or not. */
static sh_generations *team_of(const char *workers, const char *scheme, const char *restarts) {
    sh_generations *generations = NULL;
    CHECK_OK(sh_config_init(&config));
    set("workers", workers);
    set("sync.name", scheme);
    set("restarts", restarts);
    CHECK_OK(sh_generations_create(&config, &generations));
    return generations;
}

static void end(sh_generations *generations) {
    sh_generations_destroy(generations);
    sh_config_fini(&config);
}

TEST(generations, two_for_every_restart_where_the_scheme_survives) {
    sh_generations *g = team_of("3", "gossip", "2");
    assert_true(sh_generations_survive(g));
    assert_int_equal(sh_generations_most(g), 5);  // without the dead one, and with the new one
    end(g);
    g = team_of("3", "bsp", "2");
    assert_false(sh_generations_survive(g));
    assert_int_equal(sh_generations_most(g), 1);
    end(g);
}

TEST(generations, are_limited_however_many_restarts_there_may_be) {
    sh_generations *g = team_of("2", "async", "1000");
    assert_int_equal(sh_generations_most(g), 33);
    end(g);
}

TEST(generations, exact_runs_begin_again_instead) {
    CHECK_OK(sh_config_init(&config));
    set("workers", "2");
    set("sync.name", "ps");
    set("exact", "true");
    set("restarts", "3");
    sh_generations *g = NULL;
    CHECK_OK(sh_generations_create(&config, &g));
    assert_false(sh_generations_survive(g));
    end(g);
}

TEST(generations, the_roll_gives_ranks_to_slots_and_back) {
    sh_generations *g = team_of("4", "gossip", "3");
    assert_int_equal(sh_generations_newest(g), -1);
    sh_generations_publish(g, (int[]){0, 1, 2, 3}, 4);
    const int slots[] = {3, 0, 2};
    sh_generations_publish(g, slots, 3);
    assert_int_equal(sh_generations_newest(g), 1);
    assert_int_equal(sh_generation_ranks(g, 0), 4);
    assert_int_equal(sh_generation_ranks(g, 1), 3);
    for (int rank = 0; rank < 3; rank++) {
        int slot = sh_generation_slot(g, 1, rank);
        assert_int_equal(slot, slots[rank]);
        assert_int_equal(sh_generation_rank(g, 1, slot), rank);
    }
    assert_int_equal(sh_generation_rank(g, 1, 1), -1);  // it is not in this one
    assert_int_equal(sh_generation_rank(g, 0, 1), 1);   // and still in the one before
    end(g);
}

TEST(generations, the_next_roll_leaves_the_one_before_whole) {
    sh_generations *g = team_of("4", "gossip", "3");
    sh_generations_publish(g, (int[]){0, 1, 2, 3}, 4);
    sh_generations_publish(g, (int[]){1, 2}, 2);
    for (int rank = 0; rank < 4; rank++) assert_int_equal(sh_generation_slot(g, 0, rank), rank);
    assert_int_equal(sh_generation_ranks(g, 0), 4);
    end(g);
}

TEST(generations, servers_of_their_own_have_the_ranks_behind_the_workers) {
    CHECK_OK(sh_config_init(&config));
    set("workers", "3");
    set("sync.name", "async");
    set("sync.servers", "2");
    set("sync.server_ranks", "own");
    sh_generations *g = NULL;
    CHECK_OK(sh_generations_create(&config, &g));
    sh_generations_publish(g, (int[]){0, 1, 2}, 3);
    sh_generations_publish(g, (int[]){2, 0}, 2);
    for (int server = 0; server < 2; server++) {
        assert_int_equal(sh_generation_rank(g, 0, 3 + server), 3 + server);
        assert_int_equal(sh_generation_rank(g, 1, 3 + server), 2 + server);
        assert_int_equal(sh_generation_slot(g, 1, 2 + server), 3 + server);
    }
    // The watchdog's board has them, too.
    assert_int_equal(sh_generation_board(g, 1)->ranks, 4);
    assert_int_equal(sh_generation_board(g, 1)->servers, 2);
    end(g);
}

TEST(generations, a_fabric_has_as_many_ranks_as_the_roll) {
    sh_generations *g = team_of("4", "gossip", "3");
    sh_generations_publish(g, (int[]){0, 1, 2, 3}, 4);
    sh_generations_publish(g, (int[]){1, 3}, 2);
    assert_int_equal(sh_generation_board(g, 0)->ranks, 4);
    assert_int_equal(sh_generation_board(g, 1)->ranks, 2);
    assert_non_null(sh_generation_mail(g, 1));
    end(g);
    g = team_of("2", "bsp", "3");
    sh_generations_publish(g, (int[]){0, 1}, 2);
    assert_null(sh_generation_mail(g, 0));  // nobody writes any
    end(g);
}

TEST(generations, state_and_generation_of_a_slot_belong_together) {
    sh_generations *g = team_of("2", "gossip", "3");
    for (int told = SH_MEMBER_GONE; told <= SH_MEMBER_WAITS; told++)
        for (int generation = 0; generation < 7; generation += 3) {
            sh_slot_set(g, 1, (sh_member_state)told, generation);
            assert_int_equal(sh_slot_get(g, 1), told);
            assert_int_equal(sh_slot_generation(g, 1), generation);
        }
    assert_int_equal(sh_slot_get(g, 0), SH_MEMBER_GONE);  // the neighbour is left alone
    end(g);
}

TEST(generations, a_child_sees_what_the_parent_publishes_and_answers) {
    sh_generations *g = team_of("2", "gossip", "3");
    sh_generations_publish(g, (int[]){0, 1}, 2);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        while (!sh_generations_wished(g)) usleep(1000);
        sh_slot_set(g, 1, SH_MEMBER_READY, sh_generations_newest(g));
        _exit(0);
    }
    sh_generations_publish(g, (int[]){1}, 1);
    sh_generations_wish(g, true);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(sh_slot_get(g, 1), SH_MEMBER_READY);
    assert_int_equal(sh_slot_generation(g, 1), 1);
    end(g);
}

TEST(generations, a_wish_ends_with_the_next_generation) {
    sh_generations *g = team_of("2", "gossip", "3");
    sh_generations_publish(g, (int[]){0, 1}, 2);
    assert_false(sh_generations_wished(g));
    sh_generations_wish(g, true);
    assert_true(sh_generations_wished(g));
    sh_generations_publish(g, (int[]){0}, 1);
    assert_false(sh_generations_wished(g));
    end(g);
}

TEST(generations, is_over_when_the_parent_says_so_or_the_next_has_begun) {
    sh_generations *g = team_of("2", "gossip", "3");
    sh_generations_publish(g, (int[]){0, 1}, 2);
    assert_false(sh_generation_is_over(g, 0));
    sh_generations_end(g);
    assert_true(sh_generation_is_over(g, 0));
    sh_generations_publish(g, (int[]){0}, 1);
    assert_false(sh_generation_is_over(g, 1));
    sh_generations_publish(g, (int[]){0, 1}, 2);
    assert_true(sh_generation_is_over(g, 1));  // nobody had to say it
    assert_false(sh_generation_is_over(g, 2));
    end(g);
}

TEST(generations, notes_are_recalled_in_order_by_everyone_at_a_place_of_his_own) {
    sh_generations *g = team_of("2", "gossip", "3");
    const double first[] = {3, 1, 4}, second[] = {1.5};
    double values[3] = {0};
    size_t early = 0, late = 0;
    assert_false(sh_generations_recall(g, &early, values, 3));  // nothing is noted yet
    sh_generations_note(g, first, 3);
    assert_true(sh_generations_recall(g, &early, values, 3));
    assert_memory_equal(values, first, sizeof first);
    sh_generations_note(g, second, 1);
    assert_true(sh_generations_recall(g, &early, values, 1));
    assert_true(values[0] == 1.5);
    assert_false(sh_generations_recall(g, &early, values, 1));
    assert_true(sh_generations_recall(g, &late, values, 3));
    assert_memory_equal(values, first, sizeof first);
    // Another length than was noted: the newcomer has other data, and must not join.
    assert_false(sh_generations_recall(g, &late, values, 2));
    assert_true(sh_generations_recall(g, &late, values, 1));
    end(g);
}

TEST(generations, notes_that_have_no_room_are_left_out_whole) {
    sh_generations *g = team_of("2", "gossip", "3");
    size_t count = 6u << 20, place = 0;
    double *values = calloc(count, sizeof *values);
    assert_non_null(values);
    values[count - 1] = 7;
    sh_generations_note(g, values, count);
    sh_generations_note(g, values, count);  // there is room for 8 Mi values
    values[count - 1] = 0;
    assert_true(sh_generations_recall(g, &place, values, count));
    assert_true(values[count - 1] == 7);
    assert_false(sh_generations_recall(g, &place, values, count));
    free(values);
    end(g);
}

TEST(generations, forgotten_ones_are_given_back_and_the_newest_stays) {
    sh_generations *g = team_of("2", "gossip", "3");
    sh_generations_publish(g, (int[]){0, 1}, 2);
    sh_generations_publish(g, (int[]){1}, 1);
    sh_generations_forget(g, 1);
    sh_generations_forget(g, 1);       // once is enough, twice no harm
    sh_generation_mark_dead(g, 0, 1);  // there is nobody to tell any more
    assert_int_equal(sh_generation_board(g, 1)->ranks, 1);
    end(g);
}
