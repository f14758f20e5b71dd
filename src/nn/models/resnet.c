/* Residual networks (He et al. 2015). Every block adds a branch to its input, so that values
 * and gradients have a short path through any depth:
 *
 *   basic (18, 34)      x ─ conv 3x3 ─ bn ─ relu ─ conv 3x3 ─ bn ─ [droppath] ─ + ─ relu ─▶
 *                       └──────────────── shortcut ─────────────────────────────┘
 *
 *   bottleneck (50)     x ─ conv 1x1 ─ bn ─ relu ─ conv 3x3 ─ bn ─ relu ─ conv 1x1, 4 C ─ + ─
 *
 *   net                 stem ─ layer1 64 ─ layer2 128 /2 ─ layer3 256 /2 ─ layer4 512 /2 ─ fc
 *
 * The shortcut is x itself, or a 1x1 convolution with batchnorm where the shape changes (the
 * paper's option B). Names and shapes of parameters follow torchvision.
 *
 * Differences from the paper: a bottleneck strides in its 3x3 convolution, as torchvision does
 * ("v1.5"), not in the first 1x1; images below 64 pixels get a 3x3 stem without pooling, as is
 * usual for CIFAR; zero_init and droppath are options. */
#include "nn/models/common.h"

typedef struct resnet_options {
    bool zero_init;
    double droppath;
} resnet_options;

/* zero_init: the last batchnorm of every branch starts with gamma = 0, so that the block starts as
 * the identity (Goyal et al. 2017). droppath: Huang et al. 2016, whose rate rises with depth. */
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
    sh_net_spec *net;
    sh_status status;
    const resnet_options *options;
    const char *prefix;      // of the block's layer names
    int block, block_count;  // over the whole net
} builder;

/* A convolution and its batchnorm. The convolution has no bias, which the batchnorm would subtract
 * again with the mean; padding keeps the image size at stride 1. `zero`: gamma starts at 0. Returns
 * the last layer's index. */
static int conv_norm(builder *b, const char *conv, const char *norm, int input,
                     const sh_conv_spec *options, bool zero) {
    sh_conv_spec own = *options;
    own.padding = own.kernel / 2;
    own.bias = false;
    int at = sh_model_layer(b->net, &b->status, &sh_layer_kind_conv, input, &own, "%s%s", b->prefix,
                            conv);
    return sh_model_layer(b->net, &b->status, &sh_layer_kind_batchnorm, at,
                          SH_BATCHNORM(.init = zero ? 0 : 1), "%s%s", b->prefix, norm);
}

/* The relu is a layer of its own here and part of the batchnorm in the executor. */
static int conv_norm_relu(builder *b, const char *conv, const char *norm, int input,
                          const sh_conv_spec *options) {
    int at = conv_norm(b, conv, norm, input, options, false);
    return sh_model_layer(b->net, &b->status, &sh_layer_kind_relu, at, NULL, "%s%s.relu", b->prefix,
                          norm);
}

/* The residual branch. Only its first 3x3 convolution strides. A bottleneck works at `channels` and
 * gives four times as many, so that the costly 3x3 is narrow. No relu at the end: it comes after
 * the sum. */
static int branch(builder *b, int input, int channels, int stride, bool bottleneck) {
    bool zero = b->options->zero_init;
    const sh_conv_spec *wide = SH_CONV(.channels = channels, .kernel = 3, .stride = stride);
    if (!bottleneck) {
        int at = conv_norm_relu(b, "conv1", "bn1", input, wide);
        return conv_norm(b, "conv2", "bn2", at, SH_CONV(.channels = channels), zero);
    }
    int at = conv_norm_relu(b, "conv1", "bn1", input, SH_CONV(.channels = channels, .kernel = 1));
    at = conv_norm_relu(b, "conv2", "bn2", at, wide);
    return conv_norm(b, "conv3", "bn3", at, SH_CONV(.channels = 4 * channels, .kernel = 1), zero);
}

/* A block: the shortcut, the branch, their sum, relu. The drop rate of block b of n is droppath b /
 * n. The shortcut is described before the branch, as its index must be known for the sum. */
static int block(builder *b, int input, int channels, int stride, bool bottleneck) {
    int outputs = bottleneck ? 4 * channels : channels, shortcut = input;
    if (b->status != SH_OK) return input;
    if (stride != 1 || sh_net_spec_shape(b->net, input)->dim[0] != outputs)
        shortcut = conv_norm(b, "downsample.0", "downsample.1", input,
                             SH_CONV(.channels = outputs, .kernel = 1, .stride = stride), false);
    int at = branch(b, input, channels, stride, bottleneck);
    double p = b->options->droppath * (double)++b->block / (double)b->block_count;
    if (p > 0)
        at = sh_model_layer(b->net, &b->status, &sh_layer_kind_droppath, at, SH_DROPPATH(.p = p),
                            "%sdroppath", b->prefix);
    at = sh_model_add(b->net, &b->status, at, shortcut, "%sadd", b->prefix);
    return sh_model_layer(b->net, &b->status, &sh_layer_kind_relu, at, NULL, "%srelu", b->prefix);
}

/* (3, H, W) -> (64, H/4, W/4): a 7x7 convolution and a pooling, both with stride 2. On small images
 * that would leave the four stages, which halve three times, next to no pixels: there it is one 3x3
 * convolution, (64, H, W). */
static int stem(builder *b) {
    bool small = b->net->input.sample.dim[1] < 64;
    b->prefix = "";
    int at =
        conv_norm_relu(b, "conv1", "bn1", SH_NET_INPUT,
                       SH_CONV(.channels = 64, .kernel = small ? 3 : 7, .stride = small ? 1 : 2));
    if (small) return at;
    return sh_model_layer(b->net, &b->status, &sh_layer_kind_maxpool, at,
                          SH_POOL(.kernel = 3, .stride = 2, .padding = 1), "maxpool");
}

/* `counts`: blocks of each of the four stages. A stage doubles the channels and halves the image in
 * its first block, but for stage 1. The global mean serves any image size, so fc has 512 columns
 * (2048 with bottlenecks) whatever the data. */
static sh_status describe(sh_net_spec *net, const void *options, const int counts[4],
                          bool bottleneck) {
    if (net->input.sample.rank != 3) return SH_FAIL(SH_E_SHAPE, "a ResNet wants images (C, H, W)");
    builder b = {.net = net, .options = options};
    for (int i = 0; i < 4; i++) b.block_count += counts[i];
    int at = stem(&b);
    for (int stage = 0; stage < 4; stage++) {
        for (int i = 0; i < counts[stage]; i++) {
            char prefix[32];
            snprintf(prefix, sizeof prefix, "layer%d.%d.", stage + 1, i);
            b.prefix = prefix;
            at = block(&b, at, 64 << stage, stage > 0 && i == 0 ? 2 : 1, bottleneck);
        }
    }
    sh_model_layer(net, &b.status, &sh_layer_kind_globalpool, at, NULL, "avgpool");
    sh_model_layer(net, &b.status, &sh_layer_kind_dense, SH_AFTER, SH_DENSE(.init = "xavier"),
                   "fc");
    return b.status;
}

/* One row per depth. Layers with weights give the name: 2 per basic block or 3 per bottleneck, the
 * stem, fc. */
#define RESNET(id, text, bottleneck, ...)                                       \
    static sh_status describe_##id(sh_net_spec *net, const void *options) {     \
        return describe(net, options, (const int[4]){__VA_ARGS__}, bottleneck); \
    }                                                                           \
    const sh_model_kind sh_model_kind_##id = {                                  \
        .name = #id,                                                            \
        .help = text,                                                           \
        .options = {rows, SH_COUNT(rows)},                                      \
        .options_bytes = sizeof(resnet_options),                                \
        .describe = describe_##id,                                              \
        .typical = {.sample = {.rank = 3, .dim = {3, 32, 32}}, .outputs = 10},  \
    };

RESNET(resnet18, "8 basic blocks; 3x3 stem below 64 pixels", false, 2, 2, 2, 2)
RESNET(resnet34, "16 basic blocks; 3x3 stem below 64 pixels", false, 3, 4, 6, 3)
RESNET(resnet50, "16 bottleneck blocks; 3x3 stem below 64 pixels", true, 3, 4, 6, 3)
