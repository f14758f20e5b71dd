#include "nn/models/common.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"

int sh_model_layer(sh_net *net, sh_status *status, const char *kind, const char *name, int input,
                   const char *format, ...) {
    if (*status != SH_OK) return SH_NET_INPUT;
    char options[256];
    va_list arguments;
    va_start(arguments, format);
    sh_vsnprintf(options, sizeof options, format, arguments);
    va_end(arguments);
    int inputs[] = {input};
    *status = sh_net_add_text(net, kind, name, input == SH_AFTER ? NULL : inputs, 1,
                              options[0] != '\0' ? options : "{}");
    return sh_net_last(net);
}

int sh_model_add(sh_net *net, sh_status *status, const char *name, int a, int b) {
    if (*status != SH_OK) return SH_NET_INPUT;
    int inputs[] = {a, b};
    *status = sh_net_add_text(net, "add", name, inputs, 2, "{}");
    return sh_net_last(net);
}
