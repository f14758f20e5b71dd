#include "run/scheme_state.h"

#include "run/run.h"

static sh_status add(sh_scheme_state *states, const sh_sync_state *state, const char *scheme,
                     const sh_param_list *params) {
    sh_checkpoint_slot *slot = &states->slots[states->count];
    sh_param_list *list = &states->lists[states->count];
    size_t total = state->count > 0 ? state->count : params->total;
    slot->name = state->name;
    slot->optional = state->feedback;  // of a codec, which may change on resume
    // A block that is not as long as the parameters has a list of its own, by which checkpoints
    // name it and check its length.
    if (state->count > 0) {
        SH_TRY(sh_param_list_add(list, scheme, SH_SHAPE((int64_t)total), false, NULL));
        slot->params = list;
    }
    slot->values = sh_alloc(total, sizeof *slot->values);
    if (slot->values == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu floats of the scheme", total);
    states->count++;
    return SH_OK;
}

sh_status sh_scheme_state_init(shoal_run *run) {
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(run->config.scheme.name, &scheme));
    if (run->model.blocks.weights == NULL) return SH_OK;  // timing only
    sh_codec codec;
    SH_TRY(sh_team_codec(run, &codec));
    bool feeds_back = codec.kind != NULL && sh_codec_states(&codec) > 0;
    for (size_t i = 0; i < SH_SYNC_STATES && scheme.kind->states[i].name != NULL; i++) {
        const sh_sync_state *state = &scheme.kind->states[i];
        // Error feedback has nothing to keep without a codec that leaves values out.
        if (state->feedback && !feeds_back) continue;
        SH_TRY(add(&run->scheme_state, state, scheme.kind->name, &run->model.net->params));
    }
    return SH_OK;
}

void sh_scheme_state_fini(sh_scheme_state *states) {
    for (size_t i = 0; i < SH_SYNC_STATES; i++) {
        sh_free(states->slots[i].values);
        sh_param_list_fini(&states->lists[i]);
    }
    *states = (sh_scheme_state){0};
}
