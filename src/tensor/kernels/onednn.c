/* oneDNN's engine and stream, one each per process, and a primitive with its arguments as one
 * call. Errors become statuses with the place where they happened. */
#include "tensor/kernels/onednn.h"

#include <pthread.h>
#include <string.h>

#include "base/signals.h"

static dnnl_engine_t engine;
static dnnl_stream_t stream;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The CPU, and a stream that runs in the calling thread. */
static void create_engine(void) {
    dnnl_status_t made = dnnl_engine_create(&engine, dnnl_cpu, 0);
    SH_ASSERT(made == dnnl_success);
    made = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    SH_ASSERT(made == dnnl_success);
}

dnnl_engine_t sh_onednn_engine(void) {
    pthread_once(&once, create_engine);
    return engine;
}

dnnl_stream_t sh_onednn_stream(void) {
    pthread_once(&once, create_engine);
    return stream;
}

sh_status sh_onednn_failed(dnnl_status_t status, const char *what, const char *file, int line) {
    sh_status code = status == dnnl_out_of_memory   ? SH_E_MEMORY
                     : status == dnnl_unimplemented ? SH_E_UNSUPPORTED
                                                    : SH_E_SHAPE;
    return sh_error_set(code, file, line, "oneDNN refuses (%d) %.200s", (int)status, what);
}

sh_status sh_onednn_call_init(sh_onednn_call *call, dnnl_primitive_desc_t description) {
    *call = (sh_onednn_call){0};
    const dnnl_memory_desc_t *pad =
        dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    dnnl_memory_desc_t scratchpad = *pad;
    call->scratch_bytes = dnnl_memory_desc_get_size(pad);
    dnnl_status_t made = dnnl_primitive_create(&call->primitive, description);
    dnnl_primitive_desc_destroy(description);
    if (made != dnnl_success) return sh_onednn_failed(made, "primitive", __FILE__, __LINE__);
    return sh_onednn_call_arg(call, DNNL_ARG_SCRATCHPAD, &scratchpad);
}

sh_status sh_onednn_call_arg(sh_onednn_call *call, int arg, const dnnl_memory_desc_t *memory) {
    SH_ASSERT(call->arg_count < SH_ONEDNN_ARGS_MOST);
    dnnl_exec_arg_t *slot = &call->args[call->arg_count];
    slot->arg = arg;
    SH_ONEDNN(dnnl_memory_create(&slot->memory, memory, sh_onednn_engine(), DNNL_MEMORY_NONE));
    call->arg_count++;
    return SH_OK;
}

void sh_onednn_call_fini(sh_onednn_call *call) {
    for (int i = 0; i < call->arg_count; i++) dnnl_memory_destroy(call->args[i].memory);
    if (call->primitive != NULL) dnnl_primitive_destroy(call->primitive);
    *call = (sh_onednn_call){0};
}

/* `pointers` in the order in which arguments were added. */
void sh_onednn_call_run(sh_onednn_call *call, void *const *pointers) {
    for (int i = 0; i < call->arg_count; i++) {
        dnnl_status_t set = dnnl_memory_set_data_handle(call->args[i].memory, pointers[i]);
        SH_ASSERT(set == dnnl_success);
    }
    sigset_t signals;
    bool held = sh_signals_hold(&signals);
    dnnl_status_t ran =
        dnnl_primitive_execute(call->primitive, sh_onednn_stream(), call->arg_count, call->args);
    if (held) sh_signals_release(&signals);
    SH_ASSERT(ran == dnnl_success);
}

/* From one layout to another. */
sh_status sh_onednn_reorder_init(sh_onednn_call *call, const dnnl_memory_desc_t *from,
                                 const dnnl_memory_desc_t *to, bool add) {
    dnnl_primitive_attr_t attr;
    SH_ONEDNN(dnnl_primitive_attr_create(&attr));
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    dnnl_post_ops_t post = NULL;
    if (add) {
        dnnl_post_ops_create(&post);
        dnnl_post_ops_append_sum(post, 1.0f);
        dnnl_primitive_attr_set_post_ops(attr, post);
        dnnl_post_ops_destroy(post);
    }
    dnnl_primitive_desc_t description = NULL;
    dnnl_status_t made = dnnl_reorder_primitive_desc_create(&description, from, sh_onednn_engine(),
                                                            to, sh_onednn_engine(), attr);
    dnnl_primitive_attr_destroy(attr);
    if (made != dnnl_success) return sh_onednn_failed(made, "reorder", __FILE__, __LINE__);
    SH_TRY(sh_onednn_call_init(call, description));
    SH_TRY(sh_onednn_call_arg(call, DNNL_ARG_FROM, from));
    return sh_onednn_call_arg(call, DNNL_ARG_TO, to);
}
