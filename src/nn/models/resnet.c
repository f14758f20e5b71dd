/* Residual networks (He et al. 2015): basic blocks for 18 and 34, bottlenecks for 50. Images below
 * 64 pixels get a 3x3 stem without pooling, as is usual for CIFAR; names follow torchvision. */
#include <stdio.h>

#include "nn/models/common.h"

typedef struct resnet_options {
    bool zero_init;
    double droppath;
} resnet_options;

static const sh_option rows[] = {
    {.key = "zero_init",
     .type = SH_OPTION_BOOL,
     .at = offsetof(resnet_options, zero_init),
     .initial = "false",
     .help = "start every residual branch at zero"},
    {.key = "droppath",
     .type = SH_OPTION_REAL,
     .at = offsetof(resnet_options, droppath),
     .initial = "0",
     .least = 0,
     .most = 0.9,
     .help = "stochastic depth: rate of the last block, rising linearly"},
};

typedef struct builder {
    sh_net *net;
    sh_status status;
    const resnet_options *options;
    int block, block_count;  // over the whole net
} builder;

/* conv without bias, batchnorm, and a relu unless `last`. Returns the last layer's index. */
static int conv_norm(builder *b, const char *prefix, const char *conv, const char *norm, int input,
                     int channels, int kernel, int stride, bool relu, bool zero) {
    char name[SH_LAYER_NAME];
    snprintf(name, sizeof name, "%s%s", prefix, conv);
    int at = sh_model_layer(b->net, &b->status, "conv", name, input,
                            "{channels: %d, kernel: %d, stride: %d, padding: %d, bias: false}",
                            channels, kernel, stride, kernel / 2);
    snprintf(name, sizeof name, "%s%s", prefix, norm);
    at = sh_model_layer(b->net, &b->status, "batchnorm", name, at, "{init: %d}", zero ? 0 : 1);
    if (!relu) return at;
    snprintf(name, sizeof name, "%s%s.relu", prefix, norm);
    return sh_model_layer(b->net, &b->status, "relu", name, at, "%s", "");
}

static int branch(builder *b, const char *prefix, int input, int channels, int stride,
                  bool bottleneck) {
    bool zero = b->options->zero_init;
    if (!bottleneck) {
        int at = conv_norm(b, prefix, "conv1", "bn1", input, channels, 3, stride, true, false);
        return conv_norm(b, prefix, "conv2", "bn2", at, channels, 3, 1, false, zero);
    }
    int at = conv_norm(b, prefix, "conv1", "bn1", input, channels, 1, 1, true, false);
    at = conv_norm(b, prefix, "conv2", "bn2", at, channels, 3, stride, true, false);
    return conv_norm(b, prefix, "conv3", "bn3", at, 4 * channels, 1, 1, false, zero);
}

static int block(builder *b, const char *prefix, int input, int channels, int stride,
                 bool bottleneck) {
    char name[SH_LAYER_NAME];
    int wide = bottleneck ? 4 * channels : channels, shortcut = input;
    if (stride != 1 || sh_net_shape(b->net, input)->dim[0] != wide)
        shortcut = conv_norm(b, prefix, "downsample.0", "downsample.1", input, wide, 1, stride,
                             false, false);
    int at = branch(b, prefix, input, channels, stride, bottleneck);
    double p = b->options->droppath * (double)++b->block / (double)b->block_count;
    if (p > 0) {
        snprintf(name, sizeof name, "%sdroppath", prefix);
        at = sh_model_layer(b->net, &b->status, "droppath", name, at, "{p: %.17g}", p);
    }
    snprintf(name, sizeof name, "%sadd", prefix);
    at = sh_model_add(b->net, &b->status, name, at, shortcut);
    snprintf(name, sizeof name, "%srelu", prefix);
    return sh_model_layer(b->net, &b->status, "relu", name, at, "%s", "");
}

static sh_status build(sh_net *net, const void *options, const int counts[4], bool bottleneck) {
    if (net->input.sample.rank != 3) return SH_FAIL(SH_E_SHAPE, "a ResNet wants images (C, H, W)");
    builder b = {.net = net, .options = options};
    for (int i = 0; i < 4; i++) b.block_count += counts[i];
    bool small = net->input.sample.dim[1] < 64;
    int at = conv_norm(&b, "", "conv1", "bn1", SH_NET_INPUT, 64, small ? 3 : 7, small ? 1 : 2, true,
                       false);
    if (!small)
        at = sh_model_layer(net, &b.status, "maxpool", "maxpool", at,
                            "{kernel: 3, stride: 2, padding: 1}");
    for (int stage = 0; stage < 4; stage++) {
        for (int i = 0; i < counts[stage]; i++) {
            char prefix[32];
            snprintf(prefix, sizeof prefix, "layer%d.%d.", stage + 1, i);
            at = block(&b, prefix, at, 64 << stage, stage > 0 && i == 0 ? 2 : 1, bottleneck);
            if (b.status != SH_OK) return b.status;
        }
    }
    sh_model_layer(net, &b.status, "globalpool", "avgpool", at, "%s", "");
    sh_model_layer(net, &b.status, "dense", "fc", SH_AFTER, "{init: xavier}");
    return b.status;
}

#define RESNET(id, text, bottleneck, ...)                                      \
    static sh_status build_##id(sh_net *net, const void *options) {            \
        return build(net, options, (const int[4]){__VA_ARGS__}, bottleneck);   \
    }                                                                          \
    const sh_model_kind sh_model_kind_##id = {                                 \
        .name = #id,                                                           \
        .help = text,                                                          \
        .options = {rows, SH_COUNT(rows)},                                     \
        .options_bytes = sizeof(resnet_options),                               \
        .build = build_##id,                                                   \
        .typical = {.sample = {.rank = 3, .dim = {3, 32, 32}}, .outputs = 10}, \
    };

RESNET(resnet18, "8 basic blocks; 3x3 stem below 64 pixels", false, 2, 2, 2, 2)
RESNET(resnet34, "16 basic blocks; 3x3 stem below 64 pixels", false, 3, 4, 6, 3)
RESNET(resnet50, "16 bottleneck blocks; 3x3 stem below 64 pixels", true, 3, 4, 6, 3)
