/* Common parts of the commands: the environment as the library's hooks see it, single settings of
 * a config, messages on stderr, JSON values on stdout. Arguments are in args.c, progress in
 * view.c, signals in stop.c. */
#include "cli/common.h"

#include <limits.h>
#include <math.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

/* An empty environment variable counts as unset, as it does for shells and XDG. */
static bool is_set(const char *text) { return text != NULL && *text != '\0'; }

/* Folder for downloads and remembered kernel choices: $XDG_CACHE_HOME/shoal, else ~/.cache/shoal.
 * The XDG specification says that a relative path must be ignored. NULL where no home is known:
 * then nothing is remembered, and no command fails for it. Caller frees. */
static char *cache_folder(void) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (is_set(cache) && cache[0] == '/') return sh_path_join(cache, "shoal");
    if (!is_set(home)) {
        const struct passwd *user = getpwuid(getuid());
        home = user != NULL ? user->pw_dir : NULL;
    }
    return is_set(home) ? sh_path_join(home, ".cache/shoal") : NULL;
}

/* shoal_hooks.line of every command: debug messages are for the log of a run, and --quiet lets
 * warnings and errors through. The live progress line is cleared first, or both would share a
 * line. */
static void show_line(void *user, shoal_log_level level, const char *text) {
    const sh_args *args = user;
    if (level <= SHOAL_LOG_DEBUG || (args->quiet && level < SHOAL_LOG_WARNING)) return;
    sh_progress_clear(args->progress);
    fprintf(stderr, "%s%s\n", level >= SHOAL_LOG_WARNING ? "warning: " : "", text);
}

/* shoal_hooks.environment: the library reads no variables itself, so a program that embeds it
 * decides what it sees. */
static const char *environment(void *user, const char *name) {
    (void)user;
    return getenv(name);
}

/* Ignores a short write on purpose: the stream remembers it, and main's finish() reports it once.
 */
static bool write_stdout(void *user, const char *text, size_t bytes) {
    (void)user;
    fwrite(text, 1, bytes, stdout);
    return true;
}

const shoal_sink sh_stdout = {.write = write_stdout};

/* Reads a launcher's variable as a number from 0. Text that is no number counts as unset, since
 * another program may use the same name for something else. */
static bool read_count(const char *variable, int *count_out) {
    const char *text = getenv(variable);
    char *end = NULL;
    long count = is_set(text) ? strtol(text, &end, 10) : -1;
    if (count < 0 || count > INT_MAX || *end != '\0') return false;
    *count_out = (int)count;
    return true;
}

/* Asks for the variables of Open MPI, of PMI (MPICH, Hydra, Intel MPI) and of Slurm, in this
 * order: under mpirun in a Slurm job both sets of variables exist, and mpirun's are right. PMIx
 * alone tells a rank but no number of ranks. */
sh_launched sh_launched_as(void) {
    // {number of ranks, own rank} of each launcher
    static const char *const variables[][2] = {
        {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
        {"PMI_SIZE", "PMI_RANK"},
        {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
    };
    sh_launched as = {.ranks = 1};
    for (size_t i = 0; i < SH_COUNT(variables); i++)
        if (read_count(variables[i][0], &as.ranks) && read_count(variables[i][1], &as.rank))
            return as;
    if (read_count("PMIX_RANK", &as.rank)) return (sh_launched){.rank = as.rank};
    return (sh_launched){.ranks = 1};
}

/* The folders are found once and kept in `args`, because hooks borrow their texts. $SHOAL_DATA
 * names the folder of data sets; without it they lie in the cache folder. */
shoal_hooks sh_args_hooks(sh_args *args) {
    const char *data = getenv("SHOAL_DATA");
    if (args->cache_folder == NULL) args->cache_folder = cache_folder();
    if (args->data_folder == NULL)
        args->data_folder = is_set(data)                 ? sh_strdup(data)
                            : args->cache_folder != NULL ? sh_strdup(args->cache_folder)
                                                         : NULL;
    // The wall clock, which only the log of a run uses: time of training comes from a monotonic
    // clock.
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (shoal_hooks){.size = sizeof(shoal_hooks),
                         .user = args,
                         .line = show_line,
                         .data_folder = args->data_folder,
                         .cache_folder = args->cache_folder,
                         .environment = environment,
                         .unix_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec};
}

/* The node of a dotted key ("optimizer.lr") in a tree of settings; NULL where a part is missing or
 * not a map. */
static const sh_node *find_path(const sh_node *node, const char *key) {
    while (node != NULL && *key != '\0') {
        char part[64];  // longer than any key of the option table
        size_t length = strcspn(key, ".");
        snprintf(part, sizeof part, "%.*s", (int)length, key);
        node = node->kind == SH_NODE_MAP ? sh_node_find(node, part) : NULL;
        key += length + (key[length] == '.');
    }
    return node;
}

/* Goes through the config printed as a run file, as the public header has no getter: what a run
 * file can say is then all that is needed to read a setting. */
char *sh_config_text(const shoal_config *config, const char *key) {
    char *text = shoal_config_print(config);
    sh_node *root = NULL;
    char *found = NULL;
    if (text != NULL && sh_node_parse("settings", text, strlen(text), &root) == SH_OK) {
        const sh_node *node = find_path(root, key);
        // {name: mlp, hidden: [64]}: a map of settings goes by its name
        if (node != NULL && node->kind == SH_NODE_MAP) node = sh_node_find(node, "name");
        bool is_list = node != NULL && node->kind == SH_NODE_LIST;
        bool has_text = node != NULL && node->kind == SH_NODE_SCALAR;
        found = sh_strdup(has_text ? node->text : is_list ? "layers" : "");
    }
    sh_node_destroy(root);
    shoal_free(text);
    return found;
}

/* realpath comes first, so that `.` and links to a checkpoint lead to the folder that holds it. */
char *sh_run_file_of(const char *checkpoint) {
    char *folder = realpath(checkpoint, NULL);
    if (folder == NULL) return NULL;
    if (!sh_is_folder(folder)) *strrchr(folder, '/') = '\0';  // a file stands for its folder
    char *name = strrchr(folder, '/');
    if (name != NULL && strcmp(name, "/checkpoints") == 0) *name = '\0';
    char *file = sh_path_join(folder, "run.yaml");
    free(folder);  // from realpath, not from sh_alloc
    if (file != NULL && sh_file_exists(file)) return file;
    sh_free(file);
    return NULL;
}

/* Formats into a fixed buffer: a message that is longer is cut, never lost. */
void sh_say(const sh_args *args, const char *format, ...) {
    if (args->quiet) return;
    sh_progress_clear(args->progress);
    char raw[2048], text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(raw, sizeof raw, format, list);
    va_end(list);
    sh_escape(text, sizeof text, raw, false);
    fprintf(stderr, "%s\n", text);
}

void sh_complain(const char *command) {
    const char *hint = shoal_error_hint();
    // Results already printed come before the error where both streams go to one file.
    fflush(stdout);
    fprintf(stderr, "shoal: %s%s%s\n", command != NULL ? command : "", command != NULL ? ": " : "",
            shoal_error_text());
    if (*hint == '\0') return;
    // A question reads as it is; any other hint is a command or an action to try.
    bool asks = strncmp(hint, "did you mean", 12) == 0;
    fprintf(stderr, "  %s%s\n", asks ? "" : "try: ", hint);
}

void sh_json_text(FILE *file, const char *text) {
    json_t *string = sh_json_string(text);
    if (string == NULL || json_dumpf(string, file, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) != 0)
        fputs("null", file);  // out of memory
    json_decref(string);
}

/* Nine significant digits tell any two 32-bit floats apart; no figure here needs more. */
void sh_json_number(FILE *file, double number) {
    if (isfinite(number))
        fprintf(file, "%.9g", number);
    else
        fputs("null", file);
}
