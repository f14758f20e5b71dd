#include "tensor/kernels/machine.h"

#include <cblas.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <string.h>

#include "tensor/kernels/simd.h"

const char *sh_machine_processor(char text_out[SH_MACHINE_TEXT]) {
    snprintf(text_out, SH_MACHINE_TEXT, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) return text_out;
    char line[256];
    while (fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(text_out, SH_MACHINE_TEXT, "%s", colon + 2);
        break;
    }
    fclose(file);
    return text_out;
}

const char *sh_machine_onednn(char text_out[SH_MACHINE_TEXT]) {
    const dnnl_version_t *version = dnnl_version();
    snprintf(text_out, SH_MACHINE_TEXT, "%d.%d.%d", version->major, version->minor, version->patch);
    return text_out;
}

const char *sh_machine_openblas(char text_out[SH_MACHINE_TEXT]) {
    snprintf(text_out, SH_MACHINE_TEXT, "%s, %s", openblas_get_config(), openblas_get_corename());
    return text_out;
}

const char *sh_machine_text(char text_out[SH_MACHINE_TEXT]) {
    char processor[SH_MACHINE_TEXT], onednn[SH_MACHINE_TEXT], openblas[SH_MACHINE_TEXT];
    snprintf(text_out, SH_MACHINE_TEXT, "%.150s, %s, oneDNN %.20s, %.200s, shoal %s",
             sh_machine_processor(processor), sh_simd_name(sh_simd_level_get()),
             sh_machine_onednn(onednn), sh_machine_openblas(openblas), SHOAL_VERSION);
    return text_out;
}
