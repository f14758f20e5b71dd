/* Every schedule, at every rank count and placement: right, matched, and as cheap as it says. */
#include <math.h>

#include "comm/walker.h"

enum { RANKS_MOST = 17, LAYOUTS = 6 };

/* How ranks are placed: on one node, each alone, in pairs, in fours, round robin over three, and
 * unevenly. The numbers of the nodes have gaps on purpose. */
static int node_of(int layout, int rank) {
    switch (layout) {
        case 0:
            return 0;
        case 1:
            return 100 - rank;
        case 2:
            return rank / 2 * 7;
        case 3:
            return rank / 4;
        case 4:
            return rank % 3;
        default:
            return rank * rank % 5;
    }
}

/* Calls `check` for each algorithm that shows its steps, rank count and placement. */
static void for_all(void (*check)(const sh_algorithm *algorithm, const sh_topology *topology)) {
    const sh_algorithm *algorithm;
    for (size_t i = 0; (algorithm = sh_algorithm_at(i)) != NULL; i++) {
        for (int ranks = 1; ranks <= RANKS_MOST && !algorithm->native; ranks++) {
            for (int layout = 0; layout <= LAYOUTS; layout++) {
                int node[RANKS_MOST];
                for (int r = 0; r < ranks; r++) node[r] = node_of(layout, r);
                sh_places *places = NULL;
                if (layout < LAYOUTS) CHECK_OK(sh_places_create(node, ranks, &places));
                sh_topology topology = {.ranks = ranks, .places = places};
                int roots = algorithm->does == SH_BROADCAST ? ranks : 1;
                for (; topology.root < roots; topology.root++) check(algorithm, &topology);
                sh_places_destroy(places);
            }
        }
    }
}

/* Small whole numbers, so that sums are exact in any order. */
static float *whole_numbers(int ranks, size_t elements) {
    float *values = malloc(((size_t)ranks * elements + 1) * sizeof *values);
    for (size_t i = 0; i < (size_t)ranks * elements; i++)
        values[i] = (float)((int)(i * 7919 % 201) - 100);
    return values;
}

/* What rank `rank` must hold at element `at` of block `block` when all is done. */
static bool is_defined(const walker *w, int rank, int block) {
    return w->algorithm->does != SH_REDUCE_SCATTER || block == rank;
}

static float expected(const walker *w, const float *initial, int rank, int block, size_t at) {
    size_t n = w->elements, ranks = (size_t)w->topology.ranks;
    sh_range range = sh_block_range(n, w->blocks, block);
    float sum = 0;
    switch (w->algorithm->does) {
        case SH_ALLREDUCE:
        case SH_REDUCE_SCATTER:
            for (size_t r = 0; r < ranks; r++) sum += initial[r * n + range.first + at];
            return sum;
        case SH_ALLGATHER:
            return initial[(size_t)block * n + range.first + at];
        case SH_BROADCAST:
            return initial[(size_t)w->topology.root * n + range.first + at];
        case SH_ALLTOALL:
            return initial[(size_t)block * n + sh_block_range(n, w->blocks, rank).first + at];
        default:
            return initial[(size_t)rank * n + range.first + at];
    }
}

static void check_result(const walker *w, const float *initial) {
    for (int r = 0; r < w->topology.ranks; r++) {
        for (int b = 0; b < w->blocks; b++) {
            sh_range range = sh_block_range(w->elements, w->blocks, b);
            const float *block = w->data + (size_t)r * w->elements + range.first;
            for (size_t i = 0; i < range.count && is_defined(w, r, b); i++)
                assert_float_equal(block[i], expected(w, initial, r, b, i), 0);
        }
    }
}

static void check_serial(const sh_algorithm *algorithm, const sh_topology *topology) {
    static const size_t sizes[] = {0, 1, 3, 16, 37, 1300};
    for (size_t i = 0; i < SH_COUNT(sizes); i++) {
        size_t elements = sizes[i];
        if (algorithm->does == SH_ALLTOALL) elements *= (size_t)topology->ranks;
        // Long buffers need not meet every placement and root again.
        if (elements > 100 && (topology->places != NULL || topology->root > 0)) continue;
        float *initial = whole_numbers(topology->ranks, elements);
        walker w;
        walker_init(&w, algorithm, topology, elements, initial);
        walker_run(&w);
        check_result(&w, initial);
        walker_fini(&w);
        free(initial);
    }
}

TEST(schedule, equals_the_serial_result_and_matches_every_send) { for_all(check_serial); }

static void check_bits(const sh_algorithm *algorithm, const sh_topology *topology) {
    enum { ELEMENTS = 75 };
    if (algorithm->does != SH_ALLREDUCE) return;
    float initial[RANKS_MOST * ELEMENTS];
    sh_test_fill(initial, SH_COUNT(initial), 5);
    walker w;
    walker_init(&w, algorithm, topology, ELEMENTS, initial);
    walker_run(&w);
    for (int r = 1; r < topology->ranks; r++)
        assert_memory_equal(w.data, w.data + r * ELEMENTS, ELEMENTS * sizeof(float));
    walker_fini(&w);
}

TEST(schedule, leaves_equal_bits_on_all_ranks) { for_all(check_bits); }

/* After a barrier every rank knows of every other: who has been heard of travels as a bit set. */
static void check_barrier(const sh_algorithm *algorithm, const sh_topology *topology) {
    if (algorithm->does != SH_BARRIER) return;
    uint32_t knows[RANKS_MOST], before[RANKS_MOST];
    for (int r = 0; r < topology->ranks; r++) knows[r] = 1U << r;
    for (int s = 0; s < algorithm->steps(topology); s++) {
        memcpy(before, knows, sizeof knows);
        for (int r = 0; r < topology->ranks; r++)
            knows[r] |= before[algorithm->step(topology, r, s).receive.peer];
    }
    for (int r = 0; r < topology->ranks; r++)
        assert_int_equal(knows[r], (1U << topology->ranks) - 1);
}

TEST(schedule, barrier_hears_from_all) { for_all(check_barrier); }

/* ---- Cost ------------------------------------------------------------------------------------ */

/* One step of one rank on a uniform link, priced independently of the library. */
static double step_seconds(const sh_algorithm *algorithm, const sh_topology *topology, int step,
                           double bytes, const sh_link *link) {
    double block = bytes / algorithm->blocks(topology), slowest = 0;
    for (int r = 0; r < topology->ranks; r++) {
        sh_moves moves = algorithm->step(topology, r, step);
        double sent = moves.send.peer >= 0 ? moves.send.count * block : 0;
        double received = moves.receive.peer >= 0 ? moves.receive.count * block : 0;
        double seconds = fmax(sent, received) * link->beta_s;
        if (moves.send.peer >= 0 || moves.receive.peer >= 0) seconds += link->alpha_s;
        if (moves.then == SH_THEN_REDUCE) seconds += received * link->gamma_s;
        slowest = fmax(slowest, seconds);
    }
    return slowest;
}

static void check_cost(const sh_algorithm *algorithm, const sh_topology *topology) {
    static const sh_link kinds[] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {50e-6, 8e-9, 1e-10}};
    const sh_places *places = topology->places;
    if (places != NULL && places->nodes > 1 && places->nodes < topology->ranks) return;
    for (size_t i = 0; i < SH_COUNT(kinds); i++) {
        sh_links links = {kinds[i], kinds[i]};
        double walked = 0, bytes = 1000;
        for (int s = 0; s < algorithm->steps(topology); s++)
            walked += step_seconds(algorithm, topology, s, bytes, &kinds[i]);
        double closed = algorithm->cost(topology, bytes, &links);
        assert_true(fabs(walked - closed) <= 1e-12 * (1 + walked));
        assert_true(sh_algorithm_price(algorithm, topology, bytes, &links) == closed);
    }
}

TEST(schedule, costs_what_its_closed_form_says) { for_all(check_cost); }

static void check_hierarchical(const sh_algorithm *algorithm, const sh_topology *topology) {
    if (strcmp(algorithm->name, "hierarchical") != 0) return;
    sh_links links = {.between = {1e-4, 1e-8, 3e-10}, .inside = {1e-6, 1e-10, 1e-10}};
    double closed = algorithm->cost(topology, 1e6, &links);
    double walked = sh_algorithm_price(algorithm, topology, 1e6, &links);
    assert_true(fabs(closed - walked) <= 1e-9 * closed);
}

TEST(schedule, hierarchical_knows_its_cost_on_uneven_nodes) { for_all(check_hierarchical); }

TEST(schedule, ranks_of_a_node_share_its_wire) {
    int blocked[] = {0, 0, 0, 0, 1, 1, 1, 1}, dealt[] = {0, 1, 0, 1, 0, 1, 0, 1};
    sh_links links = {.between = {0, 1, 0}};
    sh_places *near, *far;
    CHECK_OK(sh_places_create(blocked, 8, &near));
    CHECK_OK(sh_places_create(dealt, 8, &far));
    sh_topology contiguous = {.ranks = 8, .places = near}, mixed = {.ranks = 8, .places = far};
    const sh_algorithm *ring = sh_algorithm_find(SH_ALLREDUCE, "ring");
    // 14 steps of an eighth; one rank of a node sends out, or all four of it do.
    assert_float_equal(sh_algorithm_price(ring, &contiguous, 8, &links), 14, 1e-9);
    assert_float_equal(sh_algorithm_price(ring, &mixed, 8, &links), 4 * 14, 1e-9);
    const sh_algorithm *hierarchical = sh_algorithm_find(SH_ALLREDUCE, "hierarchical");
    assert_float_equal(sh_algorithm_price(hierarchical, &mixed, 8, &links), 8, 1e-9);
    sh_places_destroy(near);
    sh_places_destroy(far);
}

/* 2(P-1) messages per rank and 2(P-1)/P of the elements, where they divide evenly. */
TEST(schedule, ring_sends_what_the_lecture_says) {
    const sh_algorithm *ring = sh_algorithm_find(SH_ALLREDUCE, "ring");
    for (int ranks = 1; ranks <= RANKS_MOST; ranks++) {
        size_t elements = (size_t)ranks * 12;
        float *initial = whole_numbers(ranks, elements);
        sh_topology topology = {.ranks = ranks};
        walker w;
        walker_init(&w, ring, &topology, elements, initial);
        walker_run(&w);
        for (int r = 0; r < ranks; r++) {
            assert_int_equal(w.messages[r], 2 * (ranks - 1));
            assert_int_equal(w.sent[r], 2 * (ranks - 1) * 12);
        }
        walker_fini(&w);
        free(initial);
    }
}

/* The ring A-B-D-C of four ranks with four values each. */
TEST(schedule, ring_works_the_example) {
    static const float initial[] = {
        17, 11, 1,  9,   // A
        5,  13, 23, 14,  // B
        12, 7,  2,  12,  // D
        3,  6,  10, 8,   // C
    };
    static const float sums[] = {37, 37, 36, 43};
    sh_topology topology = {.ranks = 4};
    walker w;
    walker_init(&w, sh_algorithm_find(SH_ALLREDUCE, "ring"), &topology, 4, initial);
    walker_run(&w);
    for (int r = 0; r < 4; r++) {
        assert_memory_equal(w.data + (size_t)r * 4, sums, sizeof sums);
        assert_int_equal(w.messages[r], 6);
        assert_int_equal(w.sent[r], 6);
    }
    walker_fini(&w);
}

/* After P-1 steps rank r owns the sum of block r+1: it is the one that sends it on. */
TEST(schedule, ring_rank_owns_the_next_block) {
    const sh_algorithm *ring = sh_algorithm_find(SH_ALLREDUCE, "ring");
    sh_topology topology = {.ranks = 5};
    for (int r = 0; r < 5; r++) {
        assert_int_equal(ring->step(&topology, r, 4).send.first, (r + 1) % 5);
        assert_int_equal(ring->step(&topology, r, 3).receive.first, (r + 1) % 5);
    }
}

/* ---- Registry, places, blocks ---------------------------------------------------------------- */

TEST(registry, finds_rows_by_collective_and_name) {
    const sh_algorithm *row;
    for (size_t i = 0; (row = sh_algorithm_at(i)) != NULL; i++) {
        assert_ptr_equal(sh_algorithm_find(row->does, row->name), row);
        assert_true(strlen(row->help) > 0);
        assert_true(row->native || (row->blocks && row->steps && row->step && row->cost));
    }
    for (int does = 0; does < SH_COLLECTIVES; does++)
        assert_true(strlen(sh_collective_name((sh_collective)does)) > 0);
    assert_null(sh_algorithm_find(SH_BROADCAST, "ring"));
    assert_null(sh_algorithm_find(SH_ALLREDUCE, "rings"));
    assert_true(sh_algorithm_find(SH_ALLREDUCE, "mpi")->native);
    assert_true(sh_algorithm_find(SH_ALLREDUCE, "direct")->maps);
    sh_topology topology = {.ranks = 4};
    sh_links links = {0};
    row = sh_algorithm_find(SH_ALLREDUCE, "mpi");
    assert_true(isinf(sh_algorithm_price(row, &topology, 1, &links)));
}

TEST(places, are_numbered_by_first_appearance) {
    int node[] = {9, -3, 9, 4, -3, 9};
    sh_places *places;
    CHECK_OK(sh_places_create(node, 6, &places));
    static const int numbers[] = {0, 1, 0, 2, 1, 0}, index[] = {0, 0, 1, 0, 1, 2};
    static const int start[] = {0, 3, 5, 6}, member[] = {0, 2, 5, 1, 4, 3};
    assert_int_equal(places->nodes, 3);
    assert_int_equal(places->least, 1);
    assert_int_equal(places->most, 3);
    assert_memory_equal(places->node, numbers, sizeof numbers);
    assert_memory_equal(places->index, index, sizeof index);
    assert_memory_equal(places->start, start, sizeof start);
    assert_memory_equal(places->member, member, sizeof member);
    sh_places_destroy(places);
    sh_places_destroy(NULL);
}

TEST(blocks, cover_the_buffer_once_and_are_nearly_equal) {
    for (size_t elements = 0; elements < 3000; elements += elements < 200 ? 1 : 37) {
        for (int blocks = 1; blocks <= 20; blocks++) {
            size_t next = 0, least = SIZE_MAX, most = 0;
            for (int b = 0; b < blocks; b++) {
                sh_range range = sh_block_range(elements, blocks, b);
                assert_int_equal(range.first, next);
                next += range.count;
                if (range.count < least) least = range.count;
                if (range.count > most) most = range.count;
                bool even = elements % (size_t)blocks == 0;
                if (!even && elements >= 64 * (size_t)blocks) assert_int_equal(range.first % 16, 0);
                if (even) assert_int_equal(range.count, elements / (size_t)blocks);
            }
            assert_int_equal(next, elements);
            assert_true(most - least <= 31);  // a unit of 16, and the last one is not full
            sh_range all = sh_stretch_range(elements, blocks, 0, blocks);
            assert_int_equal(all.first, 0);
            assert_int_equal(all.count, elements);
        }
    }
}

TEST(blocks, of_huge_buffers_do_not_overflow) {
    size_t elements = SIZE_MAX - 5;
    sh_range last = sh_block_range(elements, 1000, 999);
    assert_int_equal(last.first + last.count, elements);
    assert_int_equal(sh_stretch_range(elements, 1000, 3, 0).count, 0);
}
