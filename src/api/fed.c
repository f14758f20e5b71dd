/* Public functions for whoever owns the folder of a federated server: invite, revoke, list
 * clients, show the status. They check arguments and open the sink; fed/admin.h does the work on
 * the server's database, also while the server runs. */
#include "api/sink.h"
#include "fed/admin.h"
#include "run/need.h"
#include "shoal/tools.h"

/* `line` gets one join line per invitation. */
shoal_status shoal_fed_invite(const char *folder, int64_t count, double hours,
                              void (*line)(void *user, const char *line), void *user) {
    SHOAL_NEED(folder);
    SHOAL_NEED(line);
    return (shoal_status)sh_fed_invite(folder, count, hours, line, user);
}

/* `client` is the number that shoal_fed_clients shows, from 1. */
shoal_status shoal_fed_revoke(const char *folder, int64_t client) {
    SHOAL_NEED(folder);
    return (shoal_status)sh_fed_revoke(folder, client);
}

/* A table, or with `json` an object per client. */
shoal_status shoal_fed_clients(const char *folder, bool json, const shoal_sink *sink) {
    FILE *file;
    SHOAL_NEED(folder);
    SHOAL_NEED_SINK(sink);
    SHOAL_TRY(sh_sink_open(sink, &file));
    return sh_sink_close(file, sh_fed_print_clients(folder, json, file));
}

/* Rounds, clients and results so far. */
shoal_status shoal_fed_status(const char *folder, bool json, const shoal_sink *sink) {
    FILE *file;
    SHOAL_NEED(folder);
    SHOAL_NEED_SINK(sink);
    SHOAL_TRY(sh_sink_open(sink, &file));
    return sh_sink_close(file, sh_fed_print_status(folder, json, file));
}
