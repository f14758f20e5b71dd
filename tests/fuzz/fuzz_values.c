/* Values of ranks from memory, worked through a ring when they are valid. */
#include <stdint.h>

#include "explain/play.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    sh_values values;
    if (sh_values_parse("fuzz", (const char *)data, bytes, &values) != SH_OK) return 0;
    sh_topology topology = {.ranks = values.ranks};
    sh_play play;
    if (sh_play_init(&play, sh_algorithm_find(SH_ALLREDUCE, "ring"), &topology, &values) == SH_OK) {
        while (sh_play_next(&play)) continue;
        sh_play_fini(&play);
    }
    sh_values_fini(&values);
    return 0;
}
