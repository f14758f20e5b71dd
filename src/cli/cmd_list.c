/* shoal list: everything that a run file can name, by kind (models, layers, optimizers...), and
 * the program's own commands. The rows come from the library's registries, so the list cannot
 * differ from what is accepted. */
#include <string.h>

#include "cli/common.h"

typedef struct list_options {
    bool json;
} list_options;

static const sh_option rows[] = {
    SH_BOOL_ROW(list_options, json, "json", "false",
                "one JSON object: a list of {name, help} per kind"),
};

/* Output of one kind. The rows are walked twice: first for the width of the name column, then to
 * print. */
typedef struct printer {
    bool json, first;  // first: no comma before the next JSON element
    int width;         // characters of the longest name
} printer;

/* First walk over a kind: finds the longest name, for the width of the column. */
static void measure(void *user, const char *name, const char *help) {
    (void)help;
    printer *p = user;
    if ((int)strlen(name) > p->width) p->width = (int)strlen(name);
}

/* Second walk over a kind: prints a row as a line, or as a {name, help} object. */
static void print_row(void *user, const char *name, const char *help) {
    printer *p = user;
    if (!p->json) {
        printf("  %-*s  %s\n", p->width, name, help != NULL ? help : "");
        return;
    }
    printf("%s{\"name\":", p->first ? "" : ",");
    sh_json_text(stdout, name);
    printf(",\"help\":");
    sh_json_text(stdout, help != NULL ? help : "");
    putchar('}');
    p->first = false;
}

/* The program's own commands: the one kind that the library's registries do not have. */
static const char commands_kind[] = "commands";

/* Kind `index`: the library's kinds in order, then "commands"; NULL past the end. Also the
 * candidates for sh_nearest. */
static const char *kind_at(const void *names, size_t index) {
    (void)names;
    const char *kind = shoal_list_kind(index);
    if (kind != NULL || index == 0) return kind;
    return shoal_list_kind(index - 1) != NULL ? commands_kind : NULL;
}

/* Calls `row` for every row of a kind. */
static shoal_status each(const char *kind, void (*row)(void *, const char *, const char *),
                         void *user) {
    if (strcmp(kind, commands_kind) != 0) return shoal_list(kind, row, user);
    const sh_command *command;
    for (size_t i = 0; (command = sh_command_at(i)) != NULL; i++)
        row(user, command->name, command->help);
    return SHOAL_OK;
}

/* `first`: no kind has been printed before, so no separator is due. */
static shoal_status print_kind(const char *kind, bool json, bool first) {
    printer p = {.json = json, .first = true};
    CLI_TRY(each(kind, measure, &p));
    if (json)
        printf("%s\"%s\":[", first ? "" : ",", kind);
    else
        printf("%s%s\n", first ? "" : "\n", kind);
    CLI_TRY(each(kind, print_row, &p));
    if (json) putchar(']');
    return SHOAL_OK;
}

/* Unknown kind: exit 2 with the nearest known one. */
static shoal_status refuse(const char *kind) {
    CLI_FAIL(SHOAL_E_USAGE, "there is no kind '%s'", kind);
    const char *near = sh_nearest(kind, kind_at, NULL);
    if (near != NULL) return CLI_HINT("did you mean '%s'?", near);
    return CLI_HINT("'shoal list' shows all kinds");
}

/* Without an operand all kinds are printed; with one, that kind. The brace is opened only with the
 * first match, so that an unknown kind prints nothing on stdout. */
static shoal_status run_list(sh_args *args) {
    const list_options *options = args->options;
    const char *wanted = args->operand_count > 0 ? args->operands[0] : NULL, *kind;
    bool first = true;
    for (size_t i = 0; (kind = kind_at(NULL, i)) != NULL; i++) {
        if (wanted != NULL && strcmp(kind, wanted) != 0) continue;
        if (first && options->json) putchar('{');
        CLI_TRY(print_kind(kind, options->json, first));
        first = false;
    }
    if (first) return refuse(wanted != NULL ? wanted : "");
    if (options->json) printf("}\n");
    return SHOAL_OK;
}

const sh_command sh_command_list = {
    .name = "list",
    .help = "print what a run file can name: models, layers, optimizers and more",
    .usage =
        "  shoal list\n"
        "  shoal list models\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(list_options),
    .operands_most = 1,
    .run = run_list,
};
