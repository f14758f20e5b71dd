/* Options of the layers that models are described with, as structs. The macros start from the
 * layers' defaults (a test compares them with the option tables) and override what is named:
 *
 *   sh_net_spec_add(net, &sh_layer_kind_dense, "fc1", NULL, 0, SH_DENSE(.units = 512), NULL);
 */
#ifndef SH_NN_LAYERS_OPTIONS_H
#define SH_NN_LAYERS_OPTIONS_H

#include "nn/layer.h"
#include "nn/layers/list.h"

#define SH_DECLARE_LAYER(name) extern const sh_layer_kind sh_layer_kind_##name;
SH_LAYER_LIST(SH_DECLARE_LAYER)
#undef SH_DECLARE_LAYER

typedef struct sh_dense_spec {
    int64_t units;  // 0: what the data asks for
    bool bias;
    char *init;  // he, xavier, normal
    double std;  // normal: standard deviation
    char *tie;   // full name of another layer's weight to use
} sh_dense_spec;

typedef struct sh_centres_spec {
    int64_t count;  // centres: rows of the parameter `centre` (count, F)
} sh_centres_spec;

typedef struct sh_kernel_spec {
    int64_t count;        // vectors: rows of the parameter `vector` (count, F)
    char *kernel;         // rbf, linear, polynomial
    double gamma, coef0;  // rbf: exp(-gamma |x - v|^2); polynomial: (gamma x.v + coef0)^degree
    int64_t degree;
} sh_kernel_spec;

typedef struct sh_conv_spec {
    int64_t channels, kernel, kernel_w, stride, padding, dilation,
        groups;  // kernel_w 0: square; padding on all four sides
    bool bias;
    char *init;  // he, xavier, normal
    double std;  // normal: standard deviation
} sh_conv_spec;

typedef struct sh_pool_spec {
    int64_t kernel, stride,
        padding;  // square windows; stride 0: the kernel; padding at most kernel / 2
} sh_pool_spec;

typedef struct sh_batchnorm_spec {
    double epsilon, momentum;  // added to the variance; weight of the new batch in running values
    double init;               // initial weight
} sh_batchnorm_spec;

typedef struct sh_layernorm_spec {
    double epsilon;
    bool bias;
} sh_layernorm_spec;

typedef struct sh_dropout_spec {
    double p;  // probability that an element becomes 0
} sh_dropout_spec;

typedef struct sh_droppath_spec {
    double p;  // probability that the whole branch is skipped in a step
} sh_droppath_spec;

typedef struct sh_embedding_spec {
    int64_t width;
    int64_t vocabulary;  // 0: what the data asks for
    double std;
} sh_embedding_spec;

typedef struct sh_attention_spec {
    int64_t heads;
    bool causal, bias;   // token t sees tokens 0..t; biases of c_attn and c_proj
    double std;          // of c_attn
    double project_std;  // of c_proj
} sh_attention_spec;

typedef struct sh_attention_core_spec {
    int64_t heads;
    bool causal;
} sh_attention_core_spec;

typedef struct sh_gelu_spec {
    bool approximate;  // tanh formula of GPT-2; false: erf
} sh_gelu_spec;

/* Each yields a pointer to a compound literal, which lives to the end of the enclosing block: good
 * for a call, not to be stored. A default that differs from the option table's fails a test. */
#define SH_DENSE(...) (&(sh_dense_spec){.bias = true, .init = "he", .std = 0.02, __VA_ARGS__})
#define SH_CONV(...)                \
    (&(sh_conv_spec){.channels = 1, \
                     .kernel = 3,   \
                     .stride = 1,   \
                     .dilation = 1, \
                     .groups = 1,   \
                     .bias = true,  \
                     .init = "he",  \
                     .std = 0.01,   \
                     __VA_ARGS__})
#define SH_POOL(...) (&(sh_pool_spec){.kernel = 2, __VA_ARGS__})
#define SH_BATCHNORM(...) \
    (&(sh_batchnorm_spec){.epsilon = 1e-5, .momentum = 0.1, .init = 1, __VA_ARGS__})
#define SH_LAYERNORM(...) (&(sh_layernorm_spec){.epsilon = 1e-5, .bias = true, __VA_ARGS__})
#define SH_DROPOUT(...)   (&(sh_dropout_spec){.p = 0.5, __VA_ARGS__})
#define SH_DROPPATH(...)  (&(sh_droppath_spec){.p = 0.1, __VA_ARGS__})
#define SH_EMBEDDING(...) (&(sh_embedding_spec){.width = 128, .std = 0.02, __VA_ARGS__})
#define SH_ATTENTION(...)  \
    (&(sh_attention_spec){ \
        .heads = 1, .causal = true, .bias = true, .std = 0.02, .project_std = 0.02, __VA_ARGS__})
#define SH_ATTENTION_CORE(...) (&(sh_attention_core_spec){.heads = 1, .causal = true, __VA_ARGS__})
#define SH_GELU(...)           (&(sh_gelu_spec){.approximate = false, __VA_ARGS__})

#endif
