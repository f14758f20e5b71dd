/* One row per model. X(name) declares sh_model_kind_name, defined at the end of its file. */
#ifndef SH_NN_MODELS_LIST_H
#define SH_NN_MODELS_LIST_H

/* First the models that learners of src/learn can train (learned.c), then nets. */
#define SH_MODEL_LIST(X) \
    X(linear)            \
    X(logistic)          \
    X(l2svm)             \
    X(kmeans)            \
    X(svm)               \
    X(mlp)               \
    X(lenet)             \
    X(alexnet)           \
    X(vgg11)             \
    X(resnet18)          \
    X(resnet34)          \
    X(resnet50)          \
    X(gpt)               \
    X(gpt2)

#endif
