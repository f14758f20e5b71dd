/* Version, errors and options of the public interface: what a caller may use before there is a
 * run. A shoal_config is the internal sh_config with an address of its own; its keys, checks and
 * help all come from one option table (run/config.h). */
#include "api/sink.h"
#include "run/run.h"
#include "shoal/tools.h"

const char *shoal_version(void) { return SHOAL_VERSION; }
/* The record of the calling thread's last failure; valid until its next one. */
const char *shoal_error_text(void) { return sh_error_last()->text; }
const char *shoal_error_hint(void) { return sh_error_last()->hint; }
/* Strings of the library come from its own allocator, so callers may not free them otherwise. */
void shoal_free(void *memory) { sh_free(memory); }

int shoal_version_number(void) { return SHOAL_VERSION_NUMBER; }

/* Public codes and log levels are cast to internal ones and back: both enums must have the same
 * numbers. The first and last of each are compared. */
_Static_assert((int)SHOAL_E_PEER == (int)SH_E_PEER, "status codes have drifted apart");
_Static_assert((int)SHOAL_E_NUMERIC == (int)SH_E_NUMERIC, "status codes have drifted apart");
_Static_assert((int)SHOAL_LOG_DEBUG == (int)SH_LOG_DEBUG, "log levels have drifted apart");
_Static_assert((int)SHOAL_LOG_ERROR == (int)SH_LOG_ERROR, "log levels have drifted apart");

/* Indexed by status; the assertion below fails when a status is added without a name. */
const char *shoal_status_name(shoal_status status) {
    static const char *const names[] = {
        "SHOAL_OK",        "SHOAL_E_USAGE",       "SHOAL_E_IO",
        "SHOAL_E_FORMAT",  "SHOAL_E_SHAPE",       "SHOAL_E_MEMORY",
        "SHOAL_E_NUMERIC", "SHOAL_E_UNSUPPORTED", "SHOAL_E_INTERRUPTED",
        "SHOAL_E_PEER",
    };
    _Static_assert(SH_COUNT(names) == SHOAL_E_PEER + 1, "a status has no name");
    return (size_t)status < SH_COUNT(names) ? names[status] : "SHOAL_E_UNKNOWN";
}

/* sh_config_init sets every option to its default. */
shoal_status shoal_config_create(shoal_config **config_out) {
    // `*config_out` is written on success alone.
    SHOAL_NEED(config_out);
    shoal_config *config = sh_alloc(1, sizeof *config);
    if (config == NULL) return (shoal_status)SH_FAIL(SH_E_MEMORY, "out of memory for options");
    sh_status status = sh_config_init(&config->config);
    if (status != SH_OK)
        shoal_config_destroy(config);
    else
        *config_out = config;
    return (shoal_status)status;
}

void shoal_config_destroy(shoal_config *config) {
    if (config == NULL) return;
    sh_config_fini(&config->config);
    sh_free(config);
}

/* The file is parsed whole before any option changes. */
shoal_status shoal_config_read(shoal_config *config, const char *path) {
    SHOAL_NEED(config);
    SHOAL_NEED(path);
    sh_node *node = NULL;
    sh_status status = sh_node_read(path, &node);
    if (status == SH_OK) status = sh_options_apply(sh_config_table(), node, &config->config, NULL);
    sh_node_destroy(node);
    return (shoal_status)status;
}

/* NULL unsets, so that "" remains a value. */
shoal_status shoal_config_set(shoal_config *config, const char *key, const char *value) {
    SHOAL_NEED(config);
    SHOAL_NEED(key);
    if (value == NULL)
        return (shoal_status)sh_options_unset(sh_config_table(), key, &config->config);
    return (shoal_status)sh_options_set(sh_config_table(), key, value, &config->config);
}

/* The index is the caller's, so it is checked before argv is read. */
shoal_status shoal_config_flag(shoal_config *config, int argc, char **argv, int *index) {
    SHOAL_NEED(config);
    SHOAL_NEED(argv);
    SHOAL_NEED(index);
    if (*index < 0 || *index >= argc)
        return (shoal_status)SH_FAIL(SH_E_USAGE, "there is no argument %d of %d", *index, argc);
    return (shoal_status)sh_options_flag(sh_config_table(), argc, argv, index, &config->config,
                                         NULL);
}

char *shoal_config_print(const shoal_config *config) {
    SHOAL_NEED_OR(config, NULL);
    return sh_options_print(sh_config_table(), &config->config);
}

/* The table itself, so help names every option that is accepted. */
shoal_status shoal_config_help(bool markdown, const shoal_sink *sink) {
    SHOAL_NEED_SINK(sink);
    FILE *file;
    SHOAL_TRY(sh_sink_open(sink, &file));
    sh_options_help(sh_config_table(), file, markdown);
    return sh_sink_close(file, SH_OK);
}

/* A copy with texts, lists and trees of its own (run/config.h). */
sh_status sh_config_copy(const sh_config *from, sh_config *to) {
    return sh_options_copy(sh_config_table(), from, to);
}
