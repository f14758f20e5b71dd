/* What this machine and its libraries are, in words: for `shoal doctor`, for manifests, and as the
 * key of kernel choices, which hold for one machine and one set of versions. */
#include "tensor/kernels/machine.h"

#include <cblas.h>
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "tensor/kernels/simd.h"

/* "unknown" where /proc is missing. */
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

/* The compiler's promise; run-times do not tell their own. It is the month of a specification. */
static const char *openmp_version(void) {
    static const struct {
        long month;
        const char *name;
    } versions[] = {{202111, "5.2"}, {202011, "5.1"}, {201811, "5.0"}, {201511, "4.5"}};
    for (size_t i = 0; i < SH_COUNT(versions); i++)
        if (_OPENMP >= versions[i].month) return versions[i].name;
    return "before 4.5";
}

/* The library that serves OpenMP: oneDNN and OpenBLAS must share it. */
const char *sh_machine_openmp(char text_out[SH_MACHINE_TEXT]) {
    Dl_info place = {0};
    void *function = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    bool known = function != NULL && dladdr(function, &place) != 0 && place.dli_fname != NULL;
    const char *file = known ? place.dli_fname : "in the program";
    const char *slash = strrchr(file, '/');
    snprintf(text_out, SH_MACHINE_TEXT, "%.200s, OpenMP %s", slash != NULL ? slash + 1 : file,
             openmp_version());
    return text_out;
}

/* Everything that may change which kernel is the fastest. */
const char *sh_machine_text(char text_out[SH_MACHINE_TEXT]) {
    char processor[SH_MACHINE_TEXT], onednn[SH_MACHINE_TEXT], openblas[SH_MACHINE_TEXT];
    snprintf(text_out, SH_MACHINE_TEXT, "%.150s, %s, oneDNN %.20s, %.200s, shoal %s",
             sh_machine_processor(processor), sh_simd_name(sh_simd_level_get()),
             sh_machine_onednn(onednn), sh_machine_openblas(openblas), SHOAL_VERSION);
    return text_out;
}
