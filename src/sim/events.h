/* The event queue: what happens when, in virtual time. Events at the same time come in the order
 * they were queued, so the same program and seed give the same history.
 *
 * An event is embedded in what it is about (a message under way, a task that sleeps). Taking one
 * back costs nothing: its entry stays and is skipped, so the memory of an event outlives the
 * queue's interest in it (the simulator's pools see to that). */
#ifndef SH_SIM_EVENTS_H
#define SH_SIM_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sh_event {
    uint64_t order;  // of its latest queueing, 0: not queued
    int kind;        // the owner's
} sh_event;

typedef struct sh_events_entry {
    int64_t at_ns;
    uint64_t order;
    sh_event *event;
} sh_events_entry;

typedef struct sh_events {
    sh_events_entry *heap;  // four children each: a queue of thousands is five levels deep
    size_t count, capacity;
    size_t live;  // entries that were not taken back
} sh_events;

/* `order` is larger than that of any event before. False: no memory. */
bool sh_events_push(sh_events *events, sh_event *event, int64_t at_ns, uint64_t order);
/* When the next event is due; false: there is none. */
bool sh_events_next(sh_events *events, int64_t *at_ns_out);
/* Takes the next event out; there is one. */
sh_event *sh_events_pop(sh_events *events);
void sh_events_take_back(sh_events *events, sh_event *event);
void sh_events_fini(sh_events *events);

#endif
