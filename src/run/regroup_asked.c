/* What a worker asks of its env (run/team.h) about the team it is in. */
#include "run/layout.h"
#include "run/regroup.h"

/* The same answer on all members, from the options alone: the collectives of regrouping depend
 * on it. */
bool sh_regroup_possible(const shoal_run *run) {
    const sh_worker_env *env = &run->team.env;
    sh_scheme scheme;
    if (env->regroup == NULL || run->model.blocks.weights == NULL) return false;
    if (run->model.layout != NULL) return false;      // what a worker held is nowhere else
    if (run->config.exact) return false;              // its bits do not depend on who dies
    if (sh_config_pipes(&run->config)) return false;  // nobody else has the dead stage
    return sh_scheme_parse(run->config.scheme.name, &scheme) == SH_OK && scheme.kind->survives;
}

/* May turn true at any time and differ between workers, who must agree on it before they act. */
bool sh_regroup_wished(const shoal_run *run) {
    const sh_worker_env *env = &run->team.env;
    return env->regroup != NULL && env->regroup->wished(env->self);
}

bool sh_regroup_lets_join(const shoal_run *run) {
    return run->team.group != NULL ? run->team.regroups : sh_regroup_wished(run);
}

bool sh_regroup_gone(const shoal_run *run) {
    const sh_worker_env *env = &run->team.env;
    return env->regroup != NULL && env->regroup->gone != NULL && env->regroup->gone(env->self);
}

sh_status sh_regroup_check(const shoal_run *run) {
    const sh_worker_env *env = &run->team.env;
    if (sh_regroup_gone(run)) return SH_FAIL(SH_E_INTERRUPTED, "this worker was killed");
    if (env->regroup == NULL || !env->regroup->moved(env->self)) return SH_OK;
    return SH_FAIL(SH_E_PEER, "a worker has left, and the others have moved on");
}
