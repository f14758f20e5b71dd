/* Error feedback (Seide et al. 2014; Karimireddy et al. 2019): what a message could not carry is
 * added to the next gradient, so that nothing is lost, only late. */
#include "codec/feedback.h"

#include "tensor/kernels/vector.h"

const float *sh_feedback_take(const sh_codec *codec, sh_codec_tensor *tensor, const float *x) {
    if (!codec->options.error_feedback) return x;
    sh_vector()->add_to(tensor->state[0], x, tensor->count);
    return tensor->state[0];
}

float *sh_feedback_left(const sh_codec *codec, const sh_codec_tensor *tensor) {
    return codec->options.error_feedback ? tensor->state[0] : NULL;
}

void sh_feedback_clear(const sh_codec *codec, sh_codec_tensor *tensor) {
    if (sh_codec_states(codec) > 0) sh_vector()->fill(tensor->state[0], 0, tensor->count);
}
