/* What there is: the rows of all registries, as `shoal list` shows them. */
#include "rig.h"

enum { ROWS_MOST = 100 };

typedef struct rows {
    size_t count;
    char name[ROWS_MOST][64], help[ROWS_MOST][200];
} rows;

static rows seen;

static void take(void *user, const char *name, const char *help) {
    rows *r = user;
    assert_true(r->count < ROWS_MOST);
    snprintf(r->name[r->count], sizeof *r->name, "%s", name);
    snprintf(r->help[r->count++], sizeof *r->help, "%s", help);
}

static void list(const char *kind) {
    seen.count = 0;
    SUCCEEDS(shoal_list(kind, take, &seen));
}

static bool has(const char *name) {
    for (size_t i = 0; i < seen.count; i++)
        if (strcmp(seen.name[i], name) == 0) return true;
    return false;
}

TEST(lists, kinds_end_with_null_and_every_one_has_rows) {
    size_t kinds = 0;
    for (const char *kind; (kind = shoal_list_kind(kinds)) != NULL; kinds++) {
        list(kind);
        if (seen.count < 2) fail_msg("%zu rows of %s", seen.count, kind);
    }
    assert_true(kinds >= 11);
    assert_null(shoal_list_kind(kinds + 1));
    assert_null(shoal_list_kind((size_t)-1));
}

TEST(lists, every_row_has_a_name_of_its_own_and_a_help) {
    const char *kind;
    for (size_t k = 0; (kind = shoal_list_kind(k)) != NULL; k++) {
        list(kind);
        for (size_t i = 0; i < seen.count; i++) {
            if (seen.name[i][0] == '\0' || seen.help[i][0] == '\0' ||
                strchr(seen.help[i], '\n') != NULL)
                fail_msg("%s: row %zu is '%s': '%s'", kind, i, seen.name[i], seen.help[i]);
            for (size_t other = 0; other < i; other++)
                if (strcmp(seen.name[i], seen.name[other]) == 0)
                    fail_msg("%s: '%s' twice", kind, seen.name[i]);
        }
    }
}

TEST(lists, the_rows_of_the_docs_are_there) {
    static const char *const rows_of[][2] = {
        {"models", "lenet"},     {"layers", "batchnorm"}, {"losses", "cross-entropy"},
        {"optimizers", "adamw"}, {"schedules", "cosine"}, {"collectives", "allreduce ring"},
        {"codecs", "topk"},      {"sync", "bsp"},         {"graphs", "torus"},
        {"data", "digits"},
    };
    for (size_t i = 0; i < SH_COUNT(rows_of); i++) {
        list(rows_of[i][0]);
        if (!has(rows_of[i][1])) fail_msg("no %s in %s", rows_of[i][1], rows_of[i][0]);
    }
}

TEST(lists, a_collective_is_told_with_its_algorithm) {
    list("collectives");
    for (size_t i = 0; i < seen.count; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s", seen.name[i]);
        char *algorithm = strchr(name, ' ');
        assert_non_null(algorithm);
        *algorithm = '\0';
        if (!shoal_is_collective(name)) fail_msg("'%s' is no collective", name);
    }
    assert_false(shoal_is_collective("allreduce ring"));
    assert_false(shoal_is_collective(""));
}

TEST(lists, an_unknown_kind_gets_the_nearest_one) {
    seen.count = 0;
    REFUSED(SHOAL_E_USAGE, "there is no list of 'model'", shoal_list("model", take, &seen));
    rig_hint("shoal list models");
    REFUSED(SHOAL_E_USAGE, "'xyzzy'", shoal_list("xyzzy", take, &seen));
    rig_hint("'shoal list' for all");
    assert_int_equal(seen.count, 0);
}
