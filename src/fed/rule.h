/* Aggregation rules: how a federated server turns the updates of a round into the next model. One
 * row each (rules/list.h).
 *
 * An update is what local training changed: trained minus received. A vector has the model's
 * trained parameters first, then its running statistics. Most rules see the weighted mean alone;
 * robust ones see every update of the round, which the server then holds until the round closes. */
#ifndef SH_FED_RULE_H
#define SH_FED_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SH_FED_SLOTS_MOST = 2, SH_FED_RULE_TEXT = 64 };

typedef struct sh_fed_rule sh_fed_rule;

typedef struct sh_fed_rule_options {
    const sh_fed_rule *rule;
    double amount;  // after the colon: "fedprox:0.01"
    double lr;      // of the server; NaN: the rule's own
    double beta1, beta2;
    double tau;  // adaptivity: added to the root of the second moment
} sh_fed_rule_options;

/* A round that closes, as its rule sees it. */
typedef struct sh_fed_closing {
    size_t params, count;  // trained elements of a vector; all of them
    const float *mean;     // (vectors, count): of the updates
    double steps;          // weighted mean of the clients' steps
    double share;          // of all known clients, those whose update was counted
    float *model;          // (vectors, count): the model, then what the rule sends beside it
    float *slots[SH_FED_SLOTS_MOST];  // (params) each
} sh_fed_closing;

struct sh_fed_rule {
    const char *name, *help;
    const char *amount;  // what the number after the colon is; NULL: there is none
    double amount_initial, amount_least, amount_most;
    double lr;           // the server's, unless set
    int slots;           // server state, in blocks of the parameters
    bool proximal;       // clients are pulled to the received model by `amount`
    bool controls;       // updates and models have a second vector: control variates (scaffold)
    bool per_step;       // updates are divided by their clients' steps (fednova)
    bool equal_weights;  // every update counts alike, whatever its samples
    bool buffered;       // no rounds: a new model after `amount` updates, of any age (fedbuff)
    void (*apply)(const sh_fed_rule_options *options, const sh_fed_closing *closing);
    /* Robust rules: the combination of `held` updates of `count` values each. NULL: the mean.
     * Fails if there are too few. */
    sh_status (*combine)(const sh_fed_rule_options *options, const float *const *updates,
                         size_t held, size_t count, float *out);
};

/* "fedavg", "fedprox:0.01", "fedbuff:10"; lr, beta1, beta2 and tau get the rule's defaults. */
sh_status sh_fed_rule_parse(const char *text, sh_fed_rule_options *options_out);
const sh_fed_rule *sh_fed_rule_at(size_t index);  // NULL: past the end
const char *sh_fed_rule_name_at(size_t index);

/* model += lr * mean, for parameters; running statistics move by the whole mean. */
void sh_fed_apply_mean(const sh_fed_rule_options *options, const sh_fed_closing *closing);

#endif
