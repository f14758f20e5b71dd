/* Flags that describe a simulated world (links, compute times, faults), for the commands that
 * simulate: `shoal simulate` and `shoal compare --simulate`. The library parses the texts
 * (shoal_simulation in shoal.h), so both commands accept the same and report faults alike. */
#ifndef SH_CLI_SIMULATION_H
#define SH_CLI_SIMULATION_H

#include "cli/common.h"

/* Texts of the flags, owned by the option table; NULL: not given. */
typedef struct sh_world {
    char *link, *pairs, *racks, *sites, *compute, *straggler, *jitter, *cut, *pause, *die;
} sh_world;

/* One row: the flag has the field's name. */
#define SH_WORLD_ROW(options, name_, value_, help_)                                    \
    {                                                                                  \
        .key = #name_, .type = SH_OPTION_STRING, .at = offsetof(options, world.name_), \
        .value = value_, .help = help_                                                 \
    }

/* Rows of all flags, for a table whose struct `options` has a member `sh_world world`. Their
 * offsets are at or behind that member, by which `shoal compare` tells them from its own. */
#define SH_WORLD_ROWS(options)                                                               \
    SH_WORLD_ROW(options, link, "RATE,TIME",                                                 \
                 "every worker's link, as 1Gbit,100us; without it links are free"),          \
        SH_WORLD_ROW(options, pairs, "LIST",                                                 \
                     "another link between two: 0-3:100Mbit,5ms; several with /"),           \
        SH_WORLD_ROW(options, racks, "N,RATE,TIME",                                          \
                     "N workers a rack, and the link that they share to other racks"),       \
        SH_WORLD_ROW(options, sites, "N,RATE,TIME",                                          \
                     "N racks a site, and the link that they share to other sites"),         \
        SH_WORLD_ROW(options, compute, "LAW",                                                \
                     "time of a step: 20ms, exp:20ms or lognormal:20ms,0.5; else measured"), \
        SH_WORLD_ROW(options, straggler, "LIST",                                             \
                     "who takes longer: 3:4x; for a while: 3:4x@10s-20s; all: *:2x"),        \
        SH_WORLD_ROW(options, jitter, "TIME",                                                \
                     "messages are late by an exponential time of this mean"),               \
        SH_WORLD_ROW(options, cut, "LIST",                                                   \
                     "links that lose messages: 0-1@5s-9s, all of worker 0: 0-*@5s-9s"),     \
        SH_WORLD_ROW(options, pause, "LIST", "workers that stand still: 3@5s-7s"),           \
        SH_WORLD_ROW(options, die, "LIST", "workers or servers that die, and come back: 3@12s+5s")

/* The flags as the library takes them. Borrows the texts, so the options must outlive the result,
 * and sh_args_config, which makes them anew, must come before. */
static inline shoal_simulation sh_world_simulation(const sh_world *world) {
    return (shoal_simulation){.size = sizeof(shoal_simulation),
                              .link = world->link,
                              .pairs = world->pairs,
                              .racks = world->racks,
                              .sites = world->sites,
                              .compute = world->compute,
                              .straggler = world->straggler,
                              .jitter = world->jitter,
                              .cut = world->cut,
                              .pause = world->pause,
                              .die = world->die};
}

#endif
