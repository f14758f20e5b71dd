/* Plain convolutional networks: LeNet in the size of the FedAvg and TensorFlow tutorials, AlexNet
 * (Krizhevsky 2014, single tower) and VGG-11 (Simonyan, Zisserman 2014). */
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

static void conv_relu(sh_net_spec *net, sh_status *status, int index, const sh_conv_spec *options) {
    sh_model_layer(net, status, &sh_layer_kind_conv, SH_AFTER, options, "conv%d", index);
    sh_model_layer(net, status, &sh_layer_kind_relu, SH_AFTER, NULL, "relu%d", index);
}

static void pool(sh_net_spec *net, sh_status *status, int index, int kernel) {
    sh_model_layer(net, status, &sh_layer_kind_maxpool, SH_AFTER,
                   SH_POOL(.kernel = kernel, .stride = 2), "pool%d", index);
}

/* Two hidden layers of 4096 and the classes, as both nets end. */
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
