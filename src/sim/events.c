#include "sim/events.h"

#include "base/memory.h"

/* Children of a heap's node: half as deep as a binary heap, and siblings lie next to each other
 * in memory. */
enum { CHILDREN = 4 };

/* Strict order: ties in time go by the order of queueing, so that a seed replays the same
 * history. */
static bool is_before(const sh_events_entry *a, const sh_events_entry *b) {
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

bool sh_events_push(sh_events *events, sh_event *event, int64_t at_ns, uint64_t order) {
    if (events->count == events->capacity &&
        sh_grow((void **)&events->heap, &events->capacity, events->count + 1,
                sizeof *events->heap) != SH_OK)
        return false;
    sh_events_entry entry = {at_ns, order, event};
    size_t at = events->count++;
    // Parents sink into the hole, and the entry is written once at its place.
    for (size_t parent; at > 0; at = parent) {
        parent = (at - 1) / CHILDREN;
        if (!is_before(&entry, &events->heap[parent])) break;
        events->heap[at] = events->heap[parent];
    }
    events->heap[at] = entry;
    events->live++;
    event->order = order;
    return true;
}

/* The last entry goes to the top and sinks to its place. */
static void drop_top(sh_events *events) {
    sh_events_entry *heap = events->heap, entry = heap[--events->count];
    size_t count = events->count, at = 0;
    for (size_t first; (first = CHILDREN * at + 1) < count;) {
        size_t end = first + CHILDREN < count ? first + CHILDREN : count, least = first;
        for (size_t child = first + 1; child < end; child++)
            if (is_before(&heap[child], &heap[least])) least = child;
        if (!is_before(&heap[least], &entry)) break;
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = entry;
}

bool sh_events_next(sh_events *events, int64_t *at_ns_out) {
    // Entries of events that were taken back, or queued again, have an order that is not the
    // event's.
    while (events->count > 0 && events->heap[0].event->order != events->heap[0].order)
        drop_top(events);
    if (events->count == 0) return false;
    *at_ns_out = events->heap[0].at_ns;
    return true;
}

/* Only after sh_events_next, which has dropped the stale entries from the top. */
sh_event *sh_events_pop(sh_events *events) {
    sh_event *event = events->heap[0].event;
    drop_top(events);
    event->order = 0;
    events->live--;
    return event;
}

void sh_events_take_back(sh_events *events, sh_event *event) {
    if (event->order == 0) return;
    event->order = 0;
    events->live--;
}

void sh_events_fini(sh_events *events) {
    sh_free(events->heap);
    *events = (sh_events){0};
}
