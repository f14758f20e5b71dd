#include "nn/models/common.h"

#include <stdarg.h>

#include "base/text.h"

enum { NAME_ROOM = 2 * SH_LAYER_NAME };  // a name that is too long stays so, and is refused

/* Returns SH_NET_INPUT after a failure: a valid index, so that callers may pass it on unchecked. */
static int add_layer(sh_net_spec *net, sh_status *status, const sh_layer_kind *kind,
                     const int *inputs, int input_count, const void *options, const char *name,
                     va_list arguments) {
    if (*status != SH_OK) return SH_NET_INPUT;
    char full[NAME_ROOM];
    sh_vsnprintf(full, sizeof full, name, arguments);
    int index = SH_NET_INPUT;
    *status = sh_net_spec_add(net, kind, full, inputs, input_count, options, &index);
    return index;
}

/* No inputs (NULL) means the layer added last, as sh_net_spec_add has it. */
int sh_model_layer(sh_net_spec *net, sh_status *status, const sh_layer_kind *kind, int input,
                   const void *options, const char *name, ...) {
    va_list arguments;
    va_start(arguments, name);
    int index = add_layer(net, status, kind, input == SH_AFTER ? NULL : &input, 1, options, name,
                          arguments);
    va_end(arguments);
    return index;
}

int sh_model_add(sh_net_spec *net, sh_status *status, int a, int b, const char *name, ...) {
    const int inputs[] = {a, b};
    va_list arguments;
    va_start(arguments, name);
    int index = add_layer(net, status, &sh_layer_kind_add, inputs, 2, NULL, name, arguments);
    va_end(arguments);
    return index;
}
