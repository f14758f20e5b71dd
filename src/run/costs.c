#include "run/costs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "tensor/kernels/machine.h"
#include "tensor/kernels/tuner.h"

/* The transport belongs to the key: the same machines have other costs over another one. */
const char *sh_costs_key(const char *transport, int ranks, int nodes, char key_out[SH_COSTS_KEY]) {
    snprintf(key_out, SH_COSTS_KEY, "links %s %d ranks on %d node%s ", transport, ranks, nodes,
             nodes == 1 ? "" : "s");
    return key_out;
}

/* Four digits are more than a measurement is worth. Rank 0's text is what every rank parses, so
 * that all have the same figures. */
const char *sh_costs_print(const sh_costs *costs, char text_out[SH_COSTS_TEXT]) {
    const sh_link *a = &costs->link, *b = &costs->node_link;
    sh_snprintf(text_out, SH_COSTS_TEXT, "link %.4g %.4g %.4g node %.4g %.4g %.4g large %s",
                a->alpha_s, a->beta_s, a->gamma_s, b->alpha_s, b->beta_s, b->gamma_s,
                costs->large != NULL ? costs->large->name : "-");
    return text_out;
}

/* Bounds with room on both sides: 0.1 ns to 100 s a message, 1 B/s to 1 PB/s. What lies beyond was
 * never measured. A NaN is in no range. */
static bool is_sound(const sh_link *link) {
    return link->alpha_s >= 1e-10 && link->alpha_s <= 100 && link->beta_s >= 1e-15 &&
           link->beta_s <= 1 && link->gamma_s >= 0 && link->gamma_s <= 1;
}

/* The whole text must match: what another version wrote, or what is damaged, is measured anew
 * rather than misread. */
bool sh_costs_parse(const char *text, sh_costs *costs_out) {
    sh_costs costs = {0};
    sh_link *a = &costs.link, *b = &costs.node_link;
    char large[32] = "";
    int end = 0;
    int found =
        sh_sscanf(text, "link %lf %lf %lf node %lf %lf %lf large %31s%n", &a->alpha_s, &a->beta_s,
                  &a->gamma_s, &b->alpha_s, &b->beta_s, &b->gamma_s, large, &end);
    if (found != 7 || text[end] != '\0' || !is_sound(a) || !is_sound(b)) return false;
    if (strcmp(large, "-") != 0) {
        costs.large = sh_algorithm_find(SH_ALLREDUCE, large);
        if (costs.large == NULL || costs.large->native) return false;
    }
    *costs_out = costs;
    return true;
}

/* Whether one of two positive figures is more than `factor` times the other. */
static bool are_apart(double a, double b, double factor) {
    return a > factor * b || b > factor * a;
}

/* Below a tenth of a millisecond a latency tells more of how busy the machines are. */
bool sh_links_differ(const sh_link *a, const sh_link *b) {
    const double busy_s = 1e-4;
    return are_apart(fmax(a->alpha_s, busy_s), fmax(b->alpha_s, busy_s), 5) ||
           are_apart(a->beta_s, b->beta_s, 3);
}

/* One file per machine and set of libraries: another processor has other winners. */
char *sh_choices_path(const char *cache_folder) {
    if (cache_folder == NULL) return NULL;
    char machine[SH_MACHINE_TEXT], hash[SH_BLAKE2_HEX];
    sh_machine_text(machine);
    sh_blake2_hex(machine, strlen(machine), hash);
    hash[16] = '\0';
    return sh_format("%s/kernels-%s.json", cache_folder, hash);
}

/* Costs that runs of so many ranks and nodes measured here, those of MPI before those of shared
 * memory. */
static bool recall(sh_tuner *tuner, int ranks, int nodes, sh_costs *costs_out, char *name_out) {
    static const char *const transports[] = {"mpi", "shm"};
    char beginning[SH_COSTS_KEY];
    for (size_t i = 0; i < SH_COUNT(transports); i++) {
        const char *key =
            sh_tuner_find(tuner, sh_costs_key(transports[i], ranks, nodes, beginning));
        if (key == NULL || !sh_costs_parse(sh_tuner_recall(tuner, key), costs_out)) continue;
        snprintf(name_out, SH_COSTS_KEY, "%d ranks on %d node%s, %s", ranks, nodes,
                 nodes == 1 ? "" : "s", transports[i]);
        return true;
    }
    return false;
}

/* A cache that cannot be read is no error: false, as if nothing had been measured. */
bool sh_costs_recall(const char *cache_folder, int ranks, int nodes, sh_costs *costs_out,
                     char name_out[SH_COSTS_KEY]) {
    char *path = sh_choices_path(cache_folder);
    sh_tuner *tuner = NULL;
    sh_mapped file;
    bool found = false;
    if (path != NULL && sh_tuner_create(&(sh_tuner_options){.threads = 1}, &tuner) == SH_OK &&
        sh_file_exists(path) && sh_file_map(path, &file) == SH_OK) {
        if (sh_tuner_load(tuner, path, (const char *)file.data, file.bytes, true) == SH_OK)
            found = recall(tuner, ranks, nodes, costs_out, name_out);
        sh_file_unmap(&file);
    }
    sh_tuner_destroy(tuner);
    sh_free(path);
    return found;
}
