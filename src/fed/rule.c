/* The registry of aggregation rules, and the parsing of "name" or "name:number". */
#include "fed/rule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "base/text.h"
#include "fed/rules/list.h"

#define DECLARE(name) extern const sh_fed_rule sh_fed_rule_##name;
SH_FED_RULE_LIST(DECLARE)
#define ROW(name) &sh_fed_rule_##name,
static const sh_fed_rule *const rules[] = {SH_FED_RULE_LIST(ROW)};

/* NULL behind the last rule. */
const sh_fed_rule *sh_fed_rule_at(size_t index) {
    return index < SH_COUNT(rules) ? rules[index] : NULL;
}

const char *sh_fed_rule_name_at(size_t index) {
    const sh_fed_rule *rule = sh_fed_rule_at(index);
    return rule != NULL ? rule->name : NULL;
}

/* Adapter for sh_nearest. */
static const char *name_for_nearest(const void *names, size_t index) {
    (void)names;
    return sh_fed_rule_name_at(index);
}

/* `text` is not terminated at `length`: a colon may follow. */
static const sh_fed_rule *find(const char *text, size_t length) {
    for (size_t i = 0; i < SH_COUNT(rules); i++)
        if (strlen(rules[i]->name) == length && memcmp(rules[i]->name, text, length) == 0)
            return rules[i];
    return NULL;
}

/* Suggests the nearest name. */
static sh_status refuse(const char *text, size_t length) {
    char name[SH_FED_RULE_TEXT];
    snprintf(name, sizeof name, "%.*s", (int)(length < 40 ? length : 40), text);
    SH_FAIL(SH_E_USAGE, "there is no aggregation rule '%s'", name);
    const char *near = sh_nearest(name, name_for_nearest, NULL);
    if (near != NULL) return sh_error_hint("did you mean '%s'?", near);
    return sh_error_hint("shoal list rules");
}

/* NaN fails both comparisons, and is refused with them. */
static sh_status take_amount(const char *text, const char *number, const sh_fed_rule *rule,
                             double *amount_out) {
    if (rule->amount == NULL) {
        SH_FAIL(SH_E_USAGE, "the aggregation rule '%s' takes no number", rule->name);
        return sh_error_hint("write '%s' alone", rule->name);
    }
    char *end;
    double amount = sh_strtod(number, &end);
    if (end == number || *end != '\0' || !(amount >= rule->amount_least) ||
        !(amount <= rule->amount_most)) {
        SH_FAIL(SH_E_USAGE, "'%.40s': %s is a number from %g to %g", text, rule->amount,
                rule->amount_least, rule->amount_most);
        return sh_error_hint("for example %s:%g", rule->name, rule->amount_initial);
    }
    *amount_out = amount;
    return SH_OK;
}

/* Moments and tau start at the values of Reddi et al. 2021. */
sh_status sh_fed_rule_parse(const char *text, sh_fed_rule_options *options_out) {
    size_t length = strcspn(text, ":");
    const sh_fed_rule *rule = find(text, length);
    if (rule == NULL) return refuse(text, length);
    sh_fed_rule_options options = {.rule = rule,
                                   .amount = rule->amount_initial,
                                   .lr = rule->lr,
                                   .beta1 = 0.9,
                                   .beta2 = 0.99,
                                   .tau = 1e-3};
    if (text[length] == ':') SH_TRY(take_amount(text, text + length + 1, rule, &options.amount));
    *options_out = options;
    return SH_OK;
}

/* Parameters move by the learning rate; running statistics (states) take the whole mean. */
void sh_fed_apply_mean(const sh_fed_rule_options *options, const sh_fed_closing *closing) {
    const float lr = (float)options->lr;
    for (size_t i = 0; i < closing->params; i++) closing->model[i] += lr * closing->mean[i];
    for (size_t i = closing->params; i < closing->count; i++) closing->model[i] += closing->mean[i];
}
