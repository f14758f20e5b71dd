/* What must be the same on all ranks, and the refusal that names what is not. */
#include <stdio.h>
#include <string.h>

#include "base/build.h"
#include "data/view.h"
#include "run/run.h"

/* Parts differ on purpose; what all ranks know of those is in the fingerprint. */
static unsigned long data_fact(const shoal_run *run, const sh_dataset *dataset) {
    if (dataset == NULL) return 0;
    return dataset->parts.ranks > 0 ? run->data.fingerprint : sh_view_checksum(dataset);
}

/* What must be the same on all ranks, one fact a line; sh_free it. */
static char *facts_of(const shoal_run *run) {
    char *options = sh_options_print(sh_config_table(), &run->config), build[SH_BUILD_TEXT];
    if (options == NULL) return NULL;
    const sh_data *data = &run->data;
    const sh_run_layout *layout = run->model.layout;
    const sh_net *net = layout != NULL ? layout->whole : run->model.net;
    char *facts = sh_format(
        "program: shoal %s %s\ntraining data: %016lx\ntest data: %016lx\n"
        "validation data: %016lx\nparameters: %zu\nranks: %d\n%s",
        SHOAL_VERSION, sh_build_text(build), data_fact(run, data->train),
        data->test != data->validation ? data_fact(run, data->test) : 0,
        data_fact(run, data->validation), net->params.total, run->team.ranks, options);
    sh_free(options);
    return facts;
}

/* Bytes of a fact in an error: two of them and the words around them must fit into its record. */
enum { FACT_MOST = 128 };

/* A fact as people read it: its key with the section it is in, and not too long. */
static void copy_fact(const char *section, const char *line, char fact_out[FACT_MOST]) {
    size_t indent = strspn(line, " ");
    int key = indent > 0 ? (int)strcspn(section, ":\n") : 0;
    line += indent;
    snprintf(fact_out, FACT_MOST, "%.*s%s%.*s", key, section, key > 0 ? "." : "",
             (int)strcspn(line, "\n"), line);
}

/* Whether the facts have a line with this line's key: else one side has an option that the
 * other lacks. */
static bool has_key(const char *facts, const char *line) {
    size_t key = strcspn(line, ":\n");
    for (; *facts != '\0'; facts += strcspn(facts, "\n") + (strchr(facts, '\n') != NULL))
        if (strncmp(facts, line, key) == 0 && facts[key] == ':') return true;
    return false;
}

/* The first fact of `mine` that differs from `first`, "" where one side lacks it; false when none
 * does. */
static bool first_difference(const char *first, const char *mine, char theirs_out[FACT_MOST],
                             char mine_out[FACT_MOST]) {
    const char *section = "";  // the last line that was not indented
    while (*first != '\0' || *mine != '\0') {
        size_t a = strcspn(first, "\n"), b = strcspn(mine, "\n");
        if (a != b || memcmp(first, mine, a) != 0) {
            bool adds = has_key(mine, first) && !has_key(first, mine);
            bool lacks = has_key(first, mine) && !has_key(mine, first);
            copy_fact(section, adds ? "" : first, theirs_out);
            copy_fact(section, lacks ? "" : mine, mine_out);
            return true;
        }
        if (*first != ' ') section = first;
        first += a + (first[a] != '\0');
        mine += b + (mine[b] != '\0');
    }
    return false;
}

sh_status sh_team_compare(shoal_run *run) {
    sh_team *team = &run->team;
    if (team->group == NULL || team->env.spend != NULL) return SH_OK;  // simulated: one config
    char *mine = facts_of(run), *first = NULL, a[FACT_MOST], b[FACT_MOST];
    if (mine == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for options");
    sh_status status = sh_team_tell(team, mine, &first);
    bool differs = status == SH_OK && first_difference(first, mine, a, b);
    sh_free(first);
    sh_free(mine);
    SH_TRY(status);
    // Everyone learns of it, so that nobody waits for a rank that left.
    double others = differs ? 1 : 0;
    sh_call call = {.what = SH_ALLREDUCE,
                    .algorithm = "tree",  // --allreduce may be what differs
                    .data = &others,
                    .count = 1,
                    .dtype = SH_DTYPE_F64,
                    .op = SH_SUM,
                    .bucket = -1};
    SH_TRY(sh_group_run(team->group, &call));
    if (others == 0) return SH_OK;
    if (!differs)
        return SH_FAIL(SH_E_PEER, "%.0f of %d ranks have other settings than rank 0", others,
                       team->ranks);
    char text[300];
    if (*a == '\0' || *b == '\0')
        snprintf(text, sizeof text, "it %s '%s'", *a == '\0' ? "has" : "lacks", *a == '\0' ? b : a);
    else
        snprintf(text, sizeof text, "'%s' instead of '%s'", b, a);
    SH_FAIL(SH_E_USAGE, "rank %d differs from rank 0: %s", team->rank, text);
    return sh_error_hint("start all ranks with the same program, run file and data");
}
