#include "comm/schedule.h"

#include <string.h>

#include "base/memory.h"
#include "comm/collectives/list.h"

#define X(name) &sh_algorithm_##name,
static const sh_algorithm *const algorithms[] = {SH_ALGORITHM_LIST(X)};
#undef X

const sh_algorithm *sh_algorithm_at(size_t index) {
    return index < SH_COUNT(algorithms) ? algorithms[index] : NULL;
}

const sh_algorithm *sh_algorithm_find(sh_collective does, const char *name) {
    for (size_t i = 0; i < SH_COUNT(algorithms); i++)
        if (algorithms[i]->does == does && strcmp(algorithms[i]->name, name) == 0)
            return algorithms[i];
    return NULL;
}

const char *sh_collective_name(sh_collective does) {
    static const char *const names[SH_COLLECTIVES] = {
        [SH_ALLREDUCE] = "allreduce",  [SH_REDUCE_SCATTER] = "reduce-scatter",
        [SH_ALLGATHER] = "all-gather", [SH_BROADCAST] = "broadcast",
        [SH_ALLTOALL] = "all-to-all",  [SH_BARRIER] = "barrier",
    };
    SH_ASSERT((unsigned)does < SH_COLLECTIVES);
    return names[does];
}

static bool same_name(const char *a, const char *b) {
    for (;; a++, b++) {
        while (*a == '-') a++;
        while (*b == '-') b++;
        if (*a != *b) return false;
        if (*a == '\0') return true;
    }
}

bool sh_collective_find(const char *name, sh_collective *does_out) {
    for (int does = 0; does < SH_COLLECTIVES && *name != '-'; does++) {
        if (!same_name(name, sh_collective_name((sh_collective)does))) continue;
        *does_out = (sh_collective)does;
        return true;
    }
    return false;
}

/* ---- Where the ranks are ------------------------------------------------------------------- */

typedef struct places {
    sh_places seen;  // what callers see; first, so that one pointer is the other
    int numbers[];   // node (P), index (P), member (P), start (P + 1)
} places;

/* Numbers the nodes by first appearance. O(ranks x nodes). */
static int number_nodes(const int *node, int ranks, int *number, int *first) {
    int nodes = 0;
    for (int r = 0; r < ranks; r++) {
        int k = 0;
        while (k < nodes && node[first[k]] != node[r]) k++;
        if (k == nodes) first[nodes++] = r;
        number[r] = k;
    }
    return nodes;
}

sh_status sh_places_create(const int *node, int ranks, sh_places **places_out) {
    SH_ASSERT(ranks > 0);
    size_t count = 4 * (size_t)ranks + 1;
    places *p = sh_alloc(1, sizeof *p + count * sizeof p->numbers[0]);
    if (p == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for the places of %d ranks", ranks);
    int *number = p->numbers, *index = number + ranks, *member = index + ranks;
    int *start = member + ranks;
    int nodes = number_nodes(node, ranks, number, member);  // member: scratch until it is filled
    int filled = 0, least = ranks, most = 0;
    for (int k = 0; k < nodes; k++) {
        start[k] = filled;
        for (int r = 0; r < ranks; r++) {
            if (number[r] != k) continue;
            index[r] = filled - start[k];
            member[filled++] = r;
        }
        int size = filled - start[k];
        if (size < least) least = size;
        if (size > most) most = size;
    }
    start[nodes] = filled;
    p->seen = (sh_places){nodes, least, most, number, index, start, member};
    *places_out = &p->seen;
    return SH_OK;
}

void sh_places_destroy(sh_places *seen) { sh_free(seen); }

/* ---- Blocks ---------------------------------------------------------------------------------- */

enum { GRAIN = 16, GRAINS_LEAST = 4 };  // elements; per block, so that sizes stay nearly equal

sh_range sh_block_range(size_t elements, int blocks, int index) {
    SH_DCHECK(index >= 0 && index < blocks);
    size_t parts = (size_t)blocks, at = (size_t)index;
    size_t grain = elements % parts == 0 || elements / parts < GRAIN * GRAINS_LEAST ? 1 : GRAIN;
    size_t units = elements / grain + (elements % grain != 0);
    size_t each = units / parts, longer = units % parts;  // the first `longer` blocks have one more
    size_t first = (each * at + (at < longer ? at : longer)) * grain;
    size_t count = (each + (at < longer)) * grain;
    if (first > elements) first = elements;
    if (count > elements - first) count = elements - first;
    return (sh_range){first, count};
}

sh_range sh_stretch_range(size_t elements, int blocks, int first, int count) {
    if (count == 0) return (sh_range){0, 0};
    sh_range from = sh_block_range(elements, blocks, first);
    sh_range to = sh_block_range(elements, blocks, first + count - 1);
    return (sh_range){from.first, to.first + to.count - from.first};
}
