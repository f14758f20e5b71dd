/* The one engine and stream of oneDNN in this process, and its primitives with fixed arguments. */
#ifndef SH_TENSOR_KERNELS_ONEDNN_H
#define SH_TENSOR_KERNELS_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include <stdbool.h>

#include "base/status.h"

dnnl_engine_t sh_onednn_engine(void);
dnnl_stream_t sh_onednn_stream(void);
sh_status sh_onednn_failed(dnnl_status_t status, const char *what, const char *file, int line);

#define SH_ONEDNN(call)                                                       \
    do {                                                                      \
        dnnl_status_t dnnl_status_ = (call);                                  \
        if (dnnl_status_ != dnnl_success)                                     \
            return sh_onednn_failed(dnnl_status_, #call, __FILE__, __LINE__); \
    } while (0)

enum { SH_ONEDNN_ARGS_MOST = 6 };

/* A primitive with its memory objects. Handles are set before each run; nothing is allocated. */
typedef struct sh_onednn_call {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[SH_ONEDNN_ARGS_MOST];
    int arg_count;
    size_t scratch_bytes;
} sh_onednn_call;

/* Takes the description over (destroys it). The scratchpad is argument 0. */
sh_status sh_onednn_call_init(sh_onednn_call *call, dnnl_primitive_desc_t description);
void sh_onednn_call_fini(sh_onednn_call *call);
sh_status sh_onednn_call_arg(sh_onednn_call *call, int arg, const dnnl_memory_desc_t *memory);
/* One pointer per argument in the order they were added, the scratchpad first. */
void sh_onednn_call_run(sh_onednn_call *call, void *const *pointers);

/* A copy from one layout to another; `add` adds to the target. */
sh_status sh_onednn_reorder_init(sh_onednn_call *call, const dnnl_memory_desc_t *from,
                                 const dnnl_memory_desc_t *to, bool add);

#endif
