/* The generations of a team of processes (run/regroup.h): what the parent and its workers have in
 * common, in memory that they share. The parent makes a fabric for every generation that there may
 * be before it forks; one that is never used costs a few pages.
 *
 * Every worker process sits in a slot, and so does the one that takes its place. A generation's
 * roll says which slots are its ranks: those who hold the model come first, in the order they had.
 */
#ifndef SH_HOST_GENERATIONS_H
#define SH_HOST_GENERATIONS_H

#include "comm/transports/shm.h"
#include "host/membership.h"
#include "run/config.h"

typedef struct sh_generations sh_generations;

/* For config->workers slots; as many generations as its scheme and its restarts may need. Keeps the
 * config. */
sh_status sh_generations_create(const sh_config *config, sh_generations **generations_out);
void sh_generations_destroy(sh_generations *generations);

int sh_generations_newest(const sh_generations *generations);
/* More than one may come: the living go on. */
bool sh_generations_survive(const sh_generations *generations);
/* How many there may be, the first one included. */
int sh_generations_most(const sh_generations *generations);
int sh_generation_ranks(const sh_generations *generations, int index);
int sh_generation_slot(const sh_generations *generations, int index, int rank);
/* -1: the slot is not in it. Servers that have processes of their own have the numbers behind the
 * slots, and the ranks behind the workers'. */
int sh_generation_rank(const sh_generations *generations, int index, int slot);

/* In this process: the fabrics of a generation that was published. `mail` NULL: the scheme has
 * none. */
sh_shm *sh_generation_fabric(sh_generations *generations, int index);
sh_shm *sh_generation_mail(sh_generations *generations, int index);
/* Of its workers, and of servers that have processes of their own. */
sh_status_board *sh_generation_board(sh_generations *generations, int index);
/* In this process: gives back what it has of all generations before `index`. */
void sh_generations_forget(sh_generations *generations, int index);

sh_member_state sh_slot_get(const sh_generations *generations, int slot);
/* In which generation it says so; who waits may not have seen the newest yet. */
int sh_slot_generation(const sh_generations *generations, int slot);
void sh_slot_set(sh_generations *generations, int slot, sh_member_state state, int generation);
/* Somebody waits to join. */
bool sh_generations_wished(const sh_generations *generations);
void sh_generations_wish(sh_generations *generations, bool wished);
/* What the first generation agreed on while it opened its data, for those who come later: in order,
 * each with its own place in it. */
void sh_generations_note(sh_generations *generations, const double *values, size_t count);
/* False: nothing of that length was noted there. */
bool sh_generations_recall(const sh_generations *generations, size_t *place, double *values_out,
                           size_t count);
/* Whoever is still in it leaves. */
bool sh_generation_is_over(const sh_generations *generations, int index);

/* The parent's: the newest generation is over, whether or not the next is there yet. */
void sh_generations_end(sh_generations *generations);
/* The parent's: the next generation, of these slots. */
void sh_generations_publish(sh_generations *generations, const int *slots, int count);
/* The parent's: the slot's worker, and the services on it, will do nothing more in a generation. */
void sh_generation_mark_dead(sh_generations *generations, int index, int slot);

#endif
