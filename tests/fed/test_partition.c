/* Every sample is dealt once, and as unevenly as was asked for. */
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fed/partition.h"

static sh_data digits(void) {
    sh_data data;
    static char name[] = "digits", how[] = "auto";
    sh_data_options options = {.train = name, .normalise = how, .hold_out = 0};
    CHECK_OK(sh_data_open(&options, NULL, &data));
    return data;
}

static void check_dealt_once(const sh_fed_partition *partition, size_t count) {
    bool *seen = sh_alloc(count, sizeof *seen);
    assert_int_equal(partition->begin[partition->clients], count);
    for (size_t i = 0; i < count; i++) {
        assert_true(partition->order[i] < count && !seen[partition->order[i]]);
        seen[partition->order[i]] = true;
    }
    for (size_t c = 0; c < partition->clients; c++)
        assert_true(sh_fed_partition_size(partition, c) > 0);
    sh_free(seen);
}

static size_t classes_of(const sh_data *data, const sh_fed_partition *partition, size_t client) {
    bool has[10] = {0};
    size_t count = 0;
    for (size_t i = partition->begin[client]; i < partition->begin[client + 1]; i++) {
        int32_t label;
        data->train->get(data->train, partition->order[i], NULL, &label);
        count += !has[label];
        has[label] = true;
    }
    return count;
}

TEST(partition, deals_every_sample_once_in_every_way) {
    static const char *const ways[] = {"iid", "shards:2", "shards:7", "dirichlet:0.05",
                                       "dirichlet:100"};
    sh_data data = digits();
    for (size_t i = 0; i < SH_COUNT(ways); i++)
        for (size_t clients = 1; clients <= 150; clients += 37) {
            sh_fed_partition partition, again;
            CHECK_OK(sh_fed_partition_make(data.train, ways[i], clients, 3, &partition));
            CHECK_OK(sh_fed_partition_make(data.train, ways[i], clients, 3, &again));
            check_dealt_once(&partition, data.train->info.count);
            assert_memory_equal(partition.order, again.order,
                                data.train->info.count * sizeof *again.order);
            sh_fed_partition_fini(&partition);
            sh_fed_partition_fini(&again);
        }
    sh_data_close(&data);
}

TEST(partition, in_two_shards_gives_few_classes_and_iid_all) {
    sh_data data = digits();
    sh_fed_partition shards, iid;
    CHECK_OK(sh_fed_partition_make(data.train, "shards:2", 10, 1, &shards));
    CHECK_OK(sh_fed_partition_make(data.train, "iid", 10, 1, &iid));
    for (size_t c = 0; c < 10; c++) {
        assert_true(classes_of(&data, &shards, c) <= 4);  // a shard may span two classes
        assert_int_equal(classes_of(&data, &iid, c), 10);
    }
    sh_fed_partition_fini(&shards);
    sh_fed_partition_fini(&iid);
    sh_data_close(&data);
}

/* Sizes of clients differ more the smaller the concentration is. */
TEST(partition, by_dirichlet_is_more_uneven_for_smaller_numbers) {
    static const char *const ways[] = {"dirichlet:0.1", "dirichlet:1", "dirichlet:1000"};
    double spread[3];
    sh_data data = digits();
    for (int i = 0; i < 3; i++) {
        sh_fed_partition partition;
        size_t largest = 0;
        CHECK_OK(sh_fed_partition_make(data.train, ways[i], 10, 1, &partition));
        for (size_t c = 0; c < 10; c++)
            if (sh_fed_partition_size(&partition, c) > largest)
                largest = sh_fed_partition_size(&partition, c);
        spread[i] = (double)largest / 150;
        sh_fed_partition_fini(&partition);
    }
    assert_true(spread[0] > spread[1] && spread[1] > spread[2]);
    assert_true(spread[2] < 1.2);
    sh_data_close(&data);
}

TEST(partition, opens_a_client_with_the_normalisation_of_all) {
    sh_data data = digits();
    sh_fed_partition partition;
    sh_dataset *own = NULL;
    float a[64], b[64];
    int32_t label_a, label_b;
    CHECK_OK(sh_fed_partition_make(data.train, "dirichlet:0.5", 7, 1, &partition));
    CHECK_OK(sh_fed_partition_open(&partition, &data, 3, 1, 2, &own));
    own->get(own, 1, a, &label_a);
    data.train->get(data.train, partition.order[partition.begin[3] + 2], b, &label_b);
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(label_a, label_b);
    sh_dataset_destroy(own);
    sh_fed_partition_fini(&partition);
    sh_data_close(&data);
}

TEST(partition, refuses_what_it_does_not_know) {
    static const char *const wrong[] = {
        "",           "iids",        "shards:",     "shards:0",
        "shards:1.5", "dirichlet:0", "dirichlet:x", "dirichlet:nan"};
    sh_data data = digits();
    sh_fed_partition partition;
    for (size_t i = 0; i < SH_COUNT(wrong); i++)
        CHECK_FAILS(SH_E_USAGE, "no partition",
                    sh_fed_partition_make(data.train, wrong[i], 3, 1, &partition));
    CHECK_FAILS(SH_E_USAGE, "cannot be dealt",
                sh_fed_partition_make(data.train, "iid", 5000, 1, &partition));
    CHECK_FAILS(SH_E_USAGE, "shards",
                sh_fed_partition_make(data.train, "shards:200", 100, 1, &partition));
    sh_data_close(&data);
}
