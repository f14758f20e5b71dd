/* Any bytes as what a checkpoint tells of its training data. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "data/facts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    sh_data facts, again;
    if (sh_facts_parse("input", (const char *)data, bytes, &facts) != SH_OK) return 0;
    const sh_normal *normal = &facts.normal;
    SH_ASSERT(normal->count == 0 || normal->count == (size_t)facts.info.sample.dim[0]);
    for (size_t i = 0; i < normal->count; i++)
        SH_ASSERT(isfinite(normal->mean[i]) && isfinite(normal->scale[i]));
    char *text = NULL;
    SH_ASSERT(sh_facts_print(&facts, &text) == SH_OK);
    SH_ASSERT(sh_facts_parse("printed", text, strlen(text), &again) == SH_OK);
    SH_ASSERT(again.info.target == facts.info.target);
    sh_data_close(&again);
    sh_data_close(&facts);
    sh_free(text);
    return 0;
}
