/* Plain convolutional networks: chains of layers without branches.
 *
 *   lenet     conv 5x5x32 ─ relu ─ pool 2 ─ conv 5x5x64 ─ relu ─ pool 2 ─ fc 1024 ─ relu ─ fc
 *             LeNet (LeCun et al. 1998) in the size of the TensorFlow tutorial; hidden: 512 is the
 *             CNN of FedAvg (McMahan et al. 2017), with 1663370 parameters on 28 x 28 images.
 *
 *   alexnet   conv 11x11x64 /4 ─ pool ─ conv 5x5x192 ─ pool ─ conv 384 ─ conv 256 ─ conv 256 ─ pool
 *             ─ classifier. The single tower of Krizhevsky 2014, not the two of 2012, and without
 *             local response normalisation; as in torchvision, 61100840 parameters at 224 x 224.
 *
 *   vgg11     64 M 128 M 256 256 M 512 512 M 512 512 M ─ classifier, M a pooling by 2, all kernels
 *             3 x 3 (configuration A of Simonyan, Zisserman 2014).
 *
 *   classifier: [dropout] fc 4096 relu [dropout] fc 4096 relu fc
 *
 * Differences from the papers: weights start by Glorot's or He's rule; there is no adaptive
 * pooling, so fc1 has as many columns as the last image has values, and a small image makes a small
 * model. */
#include "nn/models/common.h"

typedef struct lenet_options {
    int64_t hidden;
    double dropout;
} lenet_options;

/* Without dropout by default, as in the experiments of FedAvg. */
static const sh_option lenet_rows[] = {
    {.key = "hidden",
     .type = SH_OPTION_INT,
     .at = offsetof(lenet_options, hidden),
     .initial = "1024",
     .least = 1,
     .most = 1 << 20,
     .help = "width of the dense layer (FedAvg CNN: 512)"},
    {.key = "dropout",
     .type = SH_OPTION_REAL,
     .at = offsetof(lenet_options, dropout),
     .initial = "0",
     .least = 0,
     .most = 0.99,
     .help = "before the last layer"},
};

/* Padding 2 keeps the size under a 5 x 5 kernel: (28, 28) -> pool (14, 14) -> pool (7, 7), so fc1
 * reads 64 7 7 = 3136 values. */
static sh_status describe_lenet(sh_net_spec *net, const void *options) {
    const lenet_options *o = options;
    sh_status status = SH_OK;
    for (int i = 1; i <= 2; i++) {
        sh_model_layer(net, &status, &sh_layer_kind_conv, SH_AFTER,
                       SH_CONV(.channels = 32 * i, .kernel = 5, .padding = 2, .init = "xavier"),
                       "conv%d", i);
        sh_model_layer(net, &status, &sh_layer_kind_relu, SH_AFTER, NULL, "relu%d", i);
        sh_model_layer(net, &status, &sh_layer_kind_maxpool, SH_AFTER, SH_POOL(.kernel = 2),
                       "pool%d", i);
    }
    sh_model_layer(net, &status, &sh_layer_kind_flatten, SH_AFTER, NULL, "flatten");
    sh_model_layer(net, &status, &sh_layer_kind_dense, SH_AFTER,
                   SH_DENSE(.units = o->hidden, .init = "xavier"), "fc1");
    sh_model_layer(net, &status, &sh_layer_kind_relu, SH_AFTER, NULL, "relu3");
    if (o->dropout > 0)
        sh_model_layer(net, &status, &sh_layer_kind_dropout, SH_AFTER, SH_DROPOUT(.p = o->dropout),
                       "dropout");
    sh_model_layer(net, &status, &sh_layer_kind_dense, SH_AFTER, SH_DENSE(.init = "xavier"), "fc2");
    return status;
}

const sh_model_kind sh_model_kind_lenet = {
    .name = "lenet",
    .help = "5x5x32, pool, 5x5x64, pool, dense 1024 (hidden: 512 is the FedAvg CNN)",
    .options = {lenet_rows, SH_COUNT(lenet_rows)},
    .options_bytes = sizeof(lenet_options),
    .describe = describe_lenet,
    .typical = {.sample = {.rank = 3, .dim = {1, 28, 28}}, .outputs = 10},
};

/* Options of alexnet and vgg11. */
typedef struct dropout_options {
    double dropout;
} dropout_options;

/* 0.5 as in both papers; 0 leaves the layers out altogether. */
static const sh_option dropout_rows[] = {
    {.key = "dropout",
     .type = SH_OPTION_REAL,
     .at = offsetof(dropout_options, dropout),
     .initial = "0.5",
     .least = 0,
     .most = 0.99,
     .help = "before the dense layers"},
};

/* The executor absorbs the relu into the convolution, or into a pooling that follows it. */
static void conv_relu(sh_net_spec *net, sh_status *status, int index, const sh_conv_spec *options) {
    sh_model_layer(net, status, &sh_layer_kind_conv, SH_AFTER, options, "conv%d", index);
    sh_model_layer(net, status, &sh_layer_kind_relu, SH_AFTER, NULL, "relu%d", index);
}

/* alexnet pools 3 x 3 windows with stride 2, which overlap (Krizhevsky et al. 2012); vgg11 2 x 2.
 */
static void pool(sh_net_spec *net, sh_status *status, int index, int kernel) {
    sh_model_layer(net, status, &sh_layer_kind_maxpool, SH_AFTER,
                   SH_POOL(.kernel = kernel, .stride = 2), "pool%d", index);
}

/* Two hidden layers of 4096 and the classes. Dropout stands before fc1 and fc2, as in AlexNet;
 * VGG's paper has it after them. */
static void classifier(sh_net_spec *net, sh_status *status, char *init, double dropout) {
    sh_model_layer(net, status, &sh_layer_kind_flatten, SH_AFTER, NULL, "flatten");
    for (int i = 1; i <= 2; i++) {
        if (dropout > 0)
            sh_model_layer(net, status, &sh_layer_kind_dropout, SH_AFTER, SH_DROPOUT(.p = dropout),
                           "dropout%d", i);
        sh_model_layer(net, status, &sh_layer_kind_dense, SH_AFTER,
                       SH_DENSE(.units = 4096, .init = init), "fc%d", i);
        sh_model_layer(net, status, &sh_layer_kind_relu, SH_AFTER, NULL, "fc_relu%d", i);
    }
    sh_model_layer(net, status, &sh_layer_kind_dense, SH_AFTER, SH_DENSE(.init = "xavier"), "fc3");
}

/* (3, 224, 224) -> conv1 (64, 55, 55) -> 27 -> conv2 (192, 27, 27) -> 13 -> conv5 (256, 13, 13) ->
 * (256, 6, 6): fc1 reads 9216 values. */
static sh_status describe_alexnet(sh_net_spec *net, const void *options) {
    const dropout_options *o = options;
    sh_status status = SH_OK;
    conv_relu(net, &status, 1,
              SH_CONV(.channels = 64, .kernel = 11, .stride = 4, .padding = 2, .init = "xavier"));
    pool(net, &status, 1, 3);
    conv_relu(net, &status, 2,
              SH_CONV(.channels = 192, .kernel = 5, .padding = 2, .init = "xavier"));
    pool(net, &status, 2, 3);
    conv_relu(net, &status, 3, SH_CONV(.channels = 384, .padding = 1, .init = "xavier"));
    conv_relu(net, &status, 4, SH_CONV(.channels = 256, .padding = 1, .init = "xavier"));
    conv_relu(net, &status, 5, SH_CONV(.channels = 256, .padding = 1, .init = "xavier"));
    pool(net, &status, 3, 3);
    classifier(net, &status, "xavier", o->dropout);
    return status;
}

/* Five poolings halve the image: 224 -> 7, so fc1 reads 25088 values, and 32 -> 1, so 512. Smaller
 * images than 32 x 32 have no pixel left. In `channels`, 0 is a pooling. */
static sh_status describe_vgg11(sh_net_spec *net, const void *options) {
    const dropout_options *o = options;
    static const int channels[] = {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0};
    sh_status status = SH_OK;
    int convs = 0, pools = 0;
    for (size_t i = 0; i < SH_COUNT(channels); i++) {
        if (channels[i] > 0)
            conv_relu(net, &status, ++convs, SH_CONV(.channels = channels[i], .padding = 1));
        else
            pool(net, &status, ++pools, 2);
    }
    classifier(net, &status, "he", o->dropout);
    return status;
}

const sh_model_kind sh_model_kind_alexnet = {
    .name = "alexnet",
    .help = "five convolutions, three dense layers; 224x224 images",
    .options = {dropout_rows, SH_COUNT(dropout_rows)},
    .options_bytes = sizeof(dropout_options),
    .describe = describe_alexnet,
    .typical = {.sample = {.rank = 3, .dim = {3, 224, 224}}, .outputs = 1000},
};

const sh_model_kind sh_model_kind_vgg11 = {
    .name = "vgg11",
    .help = "eight 3x3 convolutions, three dense layers; 32x32 images and up",
    .options = {dropout_rows, SH_COUNT(dropout_rows)},
    .options_bytes = sizeof(dropout_options),
    .describe = describe_vgg11,
    .typical = {.sample = {.rank = 3, .dim = {3, 224, 224}}, .outputs = 1000},
};
