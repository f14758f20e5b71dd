/* A segment tree over times, whose nodes hold sorted ranges of addresses. Taking an interval of
 * times touches O(log times) nodes; finding repeats a walk over them until no range is in the way.
 */
#include "nn/executor_occupancy.h"

#include <stdbool.h>
#include <string.h>

#include "base/memory.h"

typedef struct range {
    size_t begin, end;
} range;

/* Sorted, disjoint, and none touches the next. */
typedef struct ranges {
    range *items;
    size_t count, capacity;
} ranges;

struct sh_occupancy_node {
    ranges whole, some;
};

/* The first range that ends behind `offset`. */
static size_t first_behind(const ranges *r, size_t offset) {
    size_t low = 0, high = r->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->items[middle].end > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Merges with every range that it overlaps or touches, so that sets stay sorted, disjoint and
 * small. */
static sh_status add_range(ranges *r, range added) {
    size_t first = first_behind(r, added.begin), last = first;
    if (first > 0 && r->items[first - 1].end == added.begin) first--;
    for (; last < r->count && r->items[last].begin <= added.end; last++)
        if (r->items[last].end > added.end) added.end = r->items[last].end;
    if (last > first && r->items[first].begin < added.begin) added.begin = r->items[first].begin;
    SH_TRY(sh_grow((void **)&r->items, &r->capacity, r->count + 1, sizeof *r->items));
    memmove(r->items + first + 1, r->items + last, (r->count - last) * sizeof *r->items);
    r->items[first] = added;
    r->count += 1 - (last - first);
    return SH_OK;
}

/* Nodes start zeroed: empty sets. A power of two makes children computable. */
sh_status sh_occupancy_init(sh_occupancy *occupancy, int times) {
    occupancy->times = 1;
    while (occupancy->times < times) occupancy->times *= 2;
    occupancy->nodes = sh_alloc(2 * (size_t)occupancy->times, sizeof *occupancy->nodes);
    return occupancy->nodes != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
}

void sh_occupancy_fini(sh_occupancy *occupancy) {
    for (size_t i = 0; occupancy->nodes != NULL && i < 2 * (size_t)occupancy->times; i++) {
        sh_free(occupancy->nodes[i].whole.items);
        sh_free(occupancy->nodes[i].some.items);
    }
    sh_free(occupancy->nodes);
    *occupancy = (sh_occupancy){0};
}

/* A life, and the part of the tree at hand: node `at` has the times from `low` on, `span` of them.
 */
typedef struct visit {
    int start, end;
    int at, low, span;
} visit;

static visit visit_all(const sh_occupancy *occupancy, int start, int end) {
    SH_ASSERT(0 <= start && start <= end && end < occupancy->times);
    return (visit){.start = start, .end = end, .at = 1, .low = 0, .span = occupancy->times};
}

/* The interval of the life and that of the node: disjoint; or the node within the life. */
static bool is_outside(const visit *v) { return v->end < v->low || v->start >= v->low + v->span; }
static bool is_whole(const visit *v) {
    return v->start <= v->low && v->end >= v->low + v->span - 1;
}

static visit child(const visit *v, int side) {
    visit c = *v;
    c.at = 2 * v->at + side;
    c.span = v->span / 2;
    c.low = v->low + side * c.span;
    return c;
}

/* `some` on the way down, `whole` where the node lies within the life and the descent ends. */
static sh_status take(sh_occupancy *occupancy, const visit *v, range taken) {
    if (is_outside(v)) return SH_OK;
    SH_TRY(add_range(&occupancy->nodes[v->at].some, taken));
    if (is_whole(v)) return add_range(&occupancy->nodes[v->at].whole, taken);
    for (int side = 0; side < 2; side++) {
        visit c = child(v, side);
        SH_TRY(take(occupancy, &c, taken));
    }
    return SH_OK;
}

sh_status sh_occupancy_take(sh_occupancy *occupancy, int start, int end, size_t offset,
                            size_t bytes) {
    if (bytes == 0) return SH_OK;
    visit all = visit_all(occupancy, start, end);
    return take(occupancy, &all, (range){offset, offset + bytes});
}

/* The lowest offset from `offset` on where `bytes` are free of this set alone. */
static size_t past_ranges(const ranges *r, size_t offset, size_t bytes) {
    for (size_t i = first_behind(r, offset); i < r->count; i++) {
        if (r->items[i].begin >= offset + bytes) break;
        offset = r->items[i].end;
    }
    return offset;
}

/* Behind all that one set after the other has in the way. */
static size_t past(const sh_occupancy *occupancy, const visit *v, size_t offset, size_t bytes) {
    if (is_outside(v)) return offset;
    const sh_occupancy_node *node = &occupancy->nodes[v->at];
    if (is_whole(v)) return past_ranges(&node->some, offset, bytes);
    offset = past_ranges(&node->whole, offset, bytes);
    for (int side = 0; side < 2; side++) {
        visit c = child(v, side);
        offset = past(occupancy, &c, offset, bytes);
    }
    return offset;
}

size_t sh_occupancy_find(const sh_occupancy *occupancy, int start, int end, size_t offset,
                         size_t bytes) {
    visit all = visit_all(occupancy, start, end);
    if (bytes == 0) return offset;
    for (;;) {
        size_t next = past(occupancy, &all, offset, bytes);
        if (next == offset) return offset;
        offset = next;
    }
}
