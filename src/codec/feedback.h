/* Error feedback (Seide et al. 2014; Karimireddy et al. 2019): what a message leaves out is kept
 * and added to the next gradient, so that nothing is lost, only late.
 *
 *   y = x + residual;  message = C(y);  residual = y - decoded(message) */
#ifndef SH_CODEC_FEEDBACK_H
#define SH_CODEC_FEEDBACK_H

#include "codec/codec.h"

/* Adds x to the residual and returns it (the y above); x itself when feedback is off. */
const float *sh_feedback_take(const sh_codec *codec, sh_codec_tensor *tensor, const float *x);
/* Where the codec is to leave y - decoded: the residual, which is y itself, or NULL. */
float *sh_feedback_left(const sh_codec *codec, const sh_codec_tensor *tensor);
/* y is sent whole: nothing stays. */
void sh_feedback_clear(const sh_codec *codec, sh_codec_tensor *tensor);

#endif
