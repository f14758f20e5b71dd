/* Two runs of two workers, one after the other, or at the same time as data-parallel groups of one
 * world of four: a mesh of 2 along `data` and 2 along `tensor`, where nothing is split along the
 * latter. Their checkpoints have the same bits. */
#ifndef SH_TESTS_RUN_GROUPS_H
#define SH_TESTS_RUN_GROUPS_H

#include "run/run.h"

enum { GROUP_WORKERS = 2, GROUPS = 2, GROUP_WORLD = GROUPS * GROUP_WORKERS, GROUP_ENDPOINTS = 4 };

extern const char *const group_schemes[];  // up to a NULL

/* One worker of a run of two. */
typedef struct group_worker {
    const char *scheme, *folder;  // each run writes into a folder of its own in `folder`
    int group, place;             // which of the runs it belongs to, and its rank there
    sh_worker_env env;            // engine, mail and time; the rest is filled in
} group_worker;

/* Which run a rank of the world belongs to, and as what. */
int group_of(int rank);
int group_place_of(int rank);
/* The mesh of the world. */
sh_mesh_shape group_mesh(void);

sh_status group_train(const group_worker *worker);
/* The two runs of two, one after the other, on shared memory with threads as workers. */
sh_status groups_apart(const char *scheme, const char *folder);
/* Fails unless both folders hold checkpoints of the same bits for both runs. */
sh_status groups_compare(const char *a, const char *b);

#endif
