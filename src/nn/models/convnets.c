/* Plain convolutional networks: LeNet in the size of the FedAvg and TensorFlow tutorials, AlexNet
 * (Krizhevsky 2014, single tower) and VGG-11 (Simonyan, Zisserman 2014). */
#include <stdio.h>

#include "nn/models/common.h"

typedef struct lenet_options {
    int64_t hidden;
    double dropout;
} lenet_options;

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

static sh_status build_lenet(sh_net *net, const void *options) {
    const lenet_options *o = options;
    sh_status status = SH_OK;
    sh_model_layer(net, &status, "conv", "conv1", SH_AFTER,
                   "{channels: 32, kernel: 5, padding: 2, init: xavier}");
    sh_model_layer(net, &status, "relu", "relu1", SH_AFTER, "%s", "");
    sh_model_layer(net, &status, "maxpool", "pool1", SH_AFTER, "{kernel: 2}");
    sh_model_layer(net, &status, "conv", "conv2", SH_AFTER,
                   "{channels: 64, kernel: 5, padding: 2, init: xavier}");
    sh_model_layer(net, &status, "relu", "relu2", SH_AFTER, "%s", "");
    sh_model_layer(net, &status, "maxpool", "pool2", SH_AFTER, "{kernel: 2}");
    sh_model_layer(net, &status, "flatten", "flatten", SH_AFTER, "%s", "");
    sh_model_layer(net, &status, "dense", "fc1", SH_AFTER, "{units: %ld, init: xavier}",
                   (long)o->hidden);
    sh_model_layer(net, &status, "relu", "relu3", SH_AFTER, "%s", "");
    if (o->dropout > 0)
        sh_model_layer(net, &status, "dropout", "dropout", SH_AFTER, "{p: %.17g}", o->dropout);
    sh_model_layer(net, &status, "dense", "fc2", SH_AFTER, "{init: xavier}");
    return status;
}

const sh_model_kind sh_model_kind_lenet = {
    .name = "lenet",
    .help = "5x5x32, pool, 5x5x64, pool, dense 1024 (hidden: 512 is the FedAvg CNN)",
    .options = {lenet_rows, SH_COUNT(lenet_rows)},
    .options_bytes = sizeof(lenet_options),
    .build = build_lenet,
    .typical = {.sample = {.rank = 3, .dim = {1, 28, 28}}, .outputs = 10},
};

typedef struct dropout_options {
    double dropout;
} dropout_options;

static const sh_option dropout_rows[] = {
    {.key = "dropout",
     .type = SH_OPTION_REAL,
     .at = offsetof(dropout_options, dropout),
     .initial = "0.5",
     .least = 0,
     .most = 0.99,
     .help = "before the dense layers"},
};

static void conv_relu(sh_net *net, sh_status *status, const char *init, int index, int channels,
                      int kernel, int stride, int padding) {
    char name[32];
    snprintf(name, sizeof name, "conv%d", index);
    sh_model_layer(net, status, "conv", name, SH_AFTER,
                   "{channels: %d, kernel: %d, stride: %d, padding: %d, init: %s}", channels,
                   kernel, stride, padding, init);
    snprintf(name, sizeof name, "relu%d", index);
    sh_model_layer(net, status, "relu", name, SH_AFTER, "%s", "");
}

static void pool(sh_net *net, sh_status *status, int index, int kernel) {
    char name[32];
    snprintf(name, sizeof name, "pool%d", index);
    sh_model_layer(net, status, "maxpool", name, SH_AFTER, "{kernel: %d, stride: 2}", kernel);
}

/* Two hidden layers of 4096 and the classes, as both nets end. */
static void classifier(sh_net *net, sh_status *status, const char *init, double dropout) {
    char name[32];
    sh_model_layer(net, status, "flatten", "flatten", SH_AFTER, "%s", "");
    for (int i = 1; i <= 2; i++) {
        snprintf(name, sizeof name, "dropout%d", i);
        if (dropout > 0)
            sh_model_layer(net, status, "dropout", name, SH_AFTER, "{p: %.17g}", dropout);
        snprintf(name, sizeof name, "fc%d", i);
        sh_model_layer(net, status, "dense", name, SH_AFTER, "{units: 4096, init: %s}", init);
        snprintf(name, sizeof name, "fc_relu%d", i);
        sh_model_layer(net, status, "relu", name, SH_AFTER, "%s", "");
    }
    sh_model_layer(net, status, "dense", "fc3", SH_AFTER, "{init: xavier}");
}

static sh_status build_alexnet(sh_net *net, const void *options) {
    const dropout_options *o = options;
    sh_status status = SH_OK;
    conv_relu(net, &status, "xavier", 1, 64, 11, 4, 2);
    pool(net, &status, 1, 3);
    conv_relu(net, &status, "xavier", 2, 192, 5, 1, 2);
    pool(net, &status, 2, 3);
    conv_relu(net, &status, "xavier", 3, 384, 3, 1, 1);
    conv_relu(net, &status, "xavier", 4, 256, 3, 1, 1);
    conv_relu(net, &status, "xavier", 5, 256, 3, 1, 1);
    pool(net, &status, 3, 3);
    classifier(net, &status, "xavier", o->dropout);
    return status;
}

static sh_status build_vgg11(sh_net *net, const void *options) {
    const dropout_options *o = options;
    static const int channels[] = {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0};
    sh_status status = SH_OK;
    int convs = 0, pools = 0;
    for (size_t i = 0; i < SH_COUNT(channels); i++) {
        if (channels[i] > 0)
            conv_relu(net, &status, "he", ++convs, channels[i], 3, 1, 1);
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
    .build = build_alexnet,
    .typical = {.sample = {.rank = 3, .dim = {3, 224, 224}}, .outputs = 1000},
};

const sh_model_kind sh_model_kind_vgg11 = {
    .name = "vgg11",
    .help = "eight 3x3 convolutions, three dense layers; 32x32 images and up",
    .options = {dropout_rows, SH_COUNT(dropout_rows)},
    .options_bytes = sizeof(dropout_options),
    .build = build_vgg11,
    .typical = {.sample = {.rank = 3, .dim = {3, 224, 224}}, .outputs = 1000},
};
