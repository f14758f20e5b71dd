/* Which MPI started this process, where its module is, and whether it loads. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/transports/mpi_internal.h"

#ifndef SHOAL_MODULES  // where modules are installed, seen from the prefix; the build says
#define SHOAL_MODULES "lib/shoal"
#endif

/* ---- which MPI ---- */

const char *sh_mpi_flavour_name(sh_mpi_flavour flavour) {
    return flavour == SH_MPI_OPENMPI ? "openmpi" : flavour == SH_MPI_MPICH ? "mpich" : "none";
}

/* What to install for a flavour; Debian's names, which others resemble. */
static const char *package_of(sh_mpi_flavour flavour) {
    return flavour == SH_MPI_MPICH ? "libmpich-dev" : "libopenmpi-dev";
}

static int count_of(const char *text) {
    char *end = NULL;
    long value = text == NULL ? 0 : strtol(text, &end, 10);
    bool valid = text != NULL && end != text && *end == '\0' && value > 0 && value < INT_MAX;
    return valid ? (int)value : 0;
}

sh_status sh_mpi_detect(const sh_mpi_launch *launch, sh_mpi_flavour *flavour_out, int *ranks_out) {
    int slurm = count_of(launch->slurm_tasks);
    sh_mpi_flavour flavour = SH_MPI_NONE;
    int ranks = 0;
    if (launch->ompi_size != NULL) {
        flavour = SH_MPI_OPENMPI;
        ranks = count_of(launch->ompi_size);
    } else if (launch->pmix_rank != NULL) {
        flavour = SH_MPI_OPENMPI;
        ranks = slurm;
    } else if (launch->pmi_size != NULL) {
        flavour = SH_MPI_MPICH;
        ranks = count_of(launch->pmi_size);
    } else if (slurm > 1) {
        (void)SH_FAIL(SH_E_USAGE, "srun started %d tasks, but told them nothing of each other",
                      slurm);
        return sh_error_hint(
            "srun --mpi=pmix (Open MPI) or srun --mpi=pmi2 (MPICH); "
            "'srun --mpi=list' names what this Slurm has");
    }
    *flavour_out = flavour;
    *ranks_out = ranks;
    return SH_OK;
}

/* ---- where its module is ---- */

static bool is_file(const char *path) {
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISREG(facts.st_mode);
}

static bool is_in(const char *folder, const char *below, sh_mpi_flavour flavour, char *path_out,
                  size_t size) {
    int length = snprintf(path_out, size, "%s%s/shoal-mpi-%s.so", folder, below,
                          sh_mpi_flavour_name(flavour));
    return length > 0 && (size_t)length < size && is_file(path_out);
}

/* Cuts the last name off a path; false if there is none. */
static bool to_folder(char *path) {
    char *slash = strrchr(path, '/');
    if (slash != NULL) *slash = '\0';
    return slash != NULL;
}

/* Beside `file`: the program in a build folder or in PREFIX/bin, or the library in PREFIX/lib. */
static bool is_beside(const char *file, sh_mpi_flavour flavour, char *path_out, size_t size) {
    char folder[PATH_MAX];
    if (realpath(file, folder) == NULL || !to_folder(folder)) return false;
    return is_in(folder, "", flavour, path_out, size) ||
           is_in(folder, "/shoal", flavour, path_out, size) ||
           is_in(folder, "/../" SHOAL_MODULES, flavour, path_out, size);
}

/* Beside the library that this code is in, or beside the program. */
static bool find_beside_us(sh_mpi_flavour flavour, char *path_out, size_t size) {
    static const char anchor = 0;
    Dl_info place;
    bool known = dladdr(&anchor, &place) != 0;
    bool found =
        (known && place.dli_fname != NULL && is_beside(place.dli_fname, flavour, path_out, size)) ||
        is_beside("/proc/self/exe", flavour, path_out, size);
    char clean[PATH_MAX];  // without the "..", for people to read
    if (found && realpath(path_out, clean) != NULL) snprintf(path_out, size, "%s", clean);
    return found;
}

static bool find(const char *where, sh_mpi_flavour flavour, char *path_out, size_t size) {
    if (where == NULL) return find_beside_us(flavour, path_out, size);
    if (is_file(where)) return snprintf(path_out, size, "%s", where) < (int)size;
    return is_in(where, "", flavour, path_out, size);
}

static sh_status not_found(const char *where, sh_mpi_flavour flavour) {
    const char *name = sh_mpi_flavour_name(flavour);
    if (flavour == SH_MPI_NONE) name = "openmpi";
    if (where != NULL)
        (void)SH_FAIL(SH_E_UNSUPPORTED, "'%s' is no module and holds no shoal-mpi-%s.so", where,
                      name);
    else
        (void)SH_FAIL(SH_E_UNSUPPORTED,
                      "this run is under MPI, but its module shoal-mpi-%s.so is neither beside the "
                      "program nor in ../" SHOAL_MODULES,
                      name);
    return sh_error_hint(
        "install %s and build again; shoal doctor shows the modules that are there",
        package_of(flavour));
}

/* ---- whether it loads ---- */

static sh_status open_module(const char *path, int mode, void **handle_out,
                             const sh_mpi_module **module_out) {
    void *handle = dlopen(path, mode);
    if (handle == NULL) {
        (void)SH_FAIL(SH_E_UNSUPPORTED, "cannot load the MPI module: %s", dlerror());
        return sh_error_hint("is the MPI installed that it was built with? ldd %s", path);
    }
    const sh_mpi_module *module = dlsym(handle, SH_MPI_MODULE_SYMBOL);
    if (module == NULL || module->version != SH_MPI_MODULE_VERSION ||
        module->table_size != sizeof *module) {
        unsigned version = module == NULL ? 0 : module->version;
        dlclose(handle);
        (void)SH_FAIL(SH_E_UNSUPPORTED, "'%s' speaks version %u of the module interface, not %d",
                      path, version, SH_MPI_MODULE_VERSION);
        return sh_error_hint("build and install the program and its modules together");
    }
    *handle_out = handle;
    *module_out = module;
    return SH_OK;
}

sh_status sh_mpi_load(const char *where, sh_mpi_flavour flavour, const sh_mpi_module **module_out) {
    char path[PATH_MAX];
    bool found = false;
    if (flavour != SH_MPI_NONE)
        found = find(where, flavour, path, sizeof path);
    else
        found = find(where, SH_MPI_OPENMPI, path, sizeof path) ||
                find(where, SH_MPI_MPICH, path, sizeof path);
    if (!found) return not_found(where, flavour);
    void *handle = NULL;
    // Global: MPI's own plug-ins look for its symbols. Never closed: MPI does not survive that.
    SH_TRY(open_module(path, RTLD_NOW | RTLD_GLOBAL, &handle, module_out));
    const char *wanted = sh_mpi_flavour_name(flavour);
    if (flavour != SH_MPI_NONE && strcmp((*module_out)->flavour, wanted) != 0) {
        (void)SH_FAIL(SH_E_USAGE, "the launcher is that of %s, but '%s' was built with %s", wanted,
                      path, (*module_out)->flavour);
        return sh_error_hint("take shoal-mpi-%s.so, or the mpirun of %s", wanted,
                             (*module_out)->flavour);
    }
    return SH_OK;
}

void sh_mpi_probe(sh_mpi_flavour flavour, sh_mpi_report *report_out) {
    *report_out = (sh_mpi_report){0};
    report_out->found = find(NULL, flavour, report_out->path, sizeof report_out->path);
    if (!report_out->found) {
        report_out->path[0] = '\0';
        snprintf(report_out->text, sizeof report_out->text, "no module; install %s and build again",
                 package_of(flavour));
        return;
    }
    void *handle = NULL;
    const sh_mpi_module *module = NULL;
    // Local: two MPIs may be looked at one after the other.
    if (open_module(report_out->path, RTLD_NOW | RTLD_LOCAL, &handle, &module) != SH_OK) {
        snprintf(report_out->text, sizeof report_out->text, "%.200s", sh_error_last()->text);
        return;
    }
    report_out->loads = true;
    module->describe(report_out->text, sizeof report_out->text);
    dlclose(handle);
}
