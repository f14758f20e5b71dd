/* One direction of a convolution by oneDNN, with whatever reorders its kernel needs.
 *
 * Weights are plain for the caller; activations as the options say. Where the library has only its
 * reference kernel for these layouts (which takes seconds), its favourite layouts are taken, and
 * activations are reordered in scratch memory. */
#ifndef SH_TENSOR_KERNELS_CONV_LIBRARY_H
#define SH_TENSOR_KERNELS_CONV_LIBRARY_H

#include "tensor/kernels/conv.h"
#include "tensor/kernels/onednn.h"

typedef enum sh_conv_direction {
    SH_CONV_FORWARD,
    SH_CONV_INPUT_GRADIENT,
    SH_CONV_WEIGHT_GRADIENT,
    SH_CONV_DIRECTIONS,
} sh_conv_direction;

enum { SH_CONV_X, SH_CONV_W, SH_CONV_Y, SH_CONV_TENSORS };

/* The activations of a kernel: as the caller has them, as oneDNN likes, channels last (where oneDNN
 * has kernels that it does not offer by itself), or plain. */
typedef enum sh_conv_layout {
    SH_CONV_LAYOUT_GIVEN,
    SH_CONV_LAYOUT_ANY,
    SH_CONV_LAYOUT_CHANNELS_LAST,
    SH_CONV_LAYOUT_PLAIN,
} sh_conv_layout;

/* x, w and y, of which the direction writes one (for gradients read dx, dw and dy). */
typedef struct sh_conv_tensors {
    float *at[SH_CONV_TENSORS];
    float *bias;      // or its gradient; NULL where there is none
    bool accumulate;  // adds to dw and the bias gradient
} sh_conv_tensors;

typedef struct sh_conv_library {
    sh_conv_direction direction;
    sh_onednn_call kernel;
    sh_onednn_call reorder[SH_CONV_TENSORS];  // to what the kernel likes; from it for the result
    sh_onednn_call add;                       // adds the weight gradient to what is there
    bool moved[SH_CONV_TENSORS];              // the kernel's layout is not the caller's
    size_t copy[SH_CONV_TENSORS];             // where in scratch the kernel's copy lies
    size_t bias_copy, pad, scratch_bytes;
    int64_t oc;
    char name[64];  // of the kernel, as oneDNN calls it
} sh_conv_library;

/* With GIVEN: the first of all layouts that has more than a reference kernel, GIVEN if none has. */
sh_status sh_conv_library_init(sh_conv_library *library, const sh_conv_options *options,
                               sh_conv_direction direction, sh_conv_layout layout);
void sh_conv_library_fini(sh_conv_library *library);

/* The kernel reorders to matrices and multiplies them, or is the reference one: with other layouts
 * there may be a better one. */
bool sh_conv_library_is_direct(const sh_conv_library *library);
bool sh_conv_library_reorders(const sh_conv_library *library);  // activations

void sh_conv_library_run(sh_conv_library *library, const sh_conv_tensors *tensors, void *scratch);

#endif
