/* One row per aggregation rule. X(name) declares sh_fed_rule_name, defined at the end of its file.
 */
#ifndef SH_FED_RULES_LIST_H
#define SH_FED_RULES_LIST_H

/* Means first (mean.c), then server optimizers (adaptive.c), robust rules (robust.c), fedbuff
 * (mean.c). */
#define SH_FED_RULE_LIST(X) \
    X(fedavg)               \
    X(fedprox)              \
    X(fednova)              \
    X(scaffold)             \
    X(fedavgm)              \
    X(fedadagrad)           \
    X(fedadam)              \
    X(fedyogi)              \
    X(median)               \
    X(trimmed)              \
    X(krum)                 \
    X(fedbuff)

#endif
