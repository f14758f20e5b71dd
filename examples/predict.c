/* Train, save, load into a fresh model, predict: the curve y = x^2 by regression.
 *
 *   cc predict.c -o predict $(pkg-config --cflags --libs shoal) -lm && ./predict */
#include <math.h>
#include <shoal/shoal.h>
#include <stdio.h>

enum { POINTS = 64, STEPS = 2000 };

static const int64_t sample[] = {1};
static const char file[] = "curve.safetensors";

static shoal_status make_model(uint64_t seed, shoal_model **model_out) {
    shoal_model_options options = {
        .size = sizeof options,
        .model = "{name: mlp, hidden: [32], activation: tanh}",
        .sample = sample,
        .sample_rank = 1,
        .outputs = 1,
        .loss = "mse",
        .optimizer = "{name: adam, lr: 0.01}",
        .seed = seed,
        .threads = 1,
    };
    return shoal_model_create(&options, model_out);
}

static shoal_status train_and_save(const float *x, const float *y) {
    shoal_model *model = NULL;
    shoal_status status = make_model(1, &model);
    for (int step = 0; step < STEPS && status == SHOAL_OK; step++)
        status = shoal_model_step(model, x, y, POINTS, NULL);
    if (status == SHOAL_OK) status = shoal_model_save(model, file);
    shoal_model_destroy(model);
    return status;
}

/* Another seed gives other weights: what it knows comes from the file. */
static shoal_status load_and_predict(const float *x, float *output) {
    shoal_model *model = NULL;
    shoal_status status = make_model(2, &model);
    if (status == SHOAL_OK) status = shoal_model_load(model, file);
    if (status == SHOAL_OK) status = shoal_model_predict(model, x, POINTS, output);
    shoal_model_destroy(model);
    return status;
}

int main(void) {
    float x[POINTS], y[POINTS], output[POINTS], worst = 0;
    for (int i = 0; i < POINTS; i++) {
        x[i] = 2.0f * (float)i / (float)(POINTS - 1) - 1.0f;
        y[i] = x[i] * x[i];
    }
    shoal_status status = train_and_save(x, y);
    if (status == SHOAL_OK) status = load_and_predict(x, output);
    if (status != SHOAL_OK) {
        fprintf(stderr, "predict: %s\n", shoal_error_text());
        return 1;
    }
    for (int i = 0; i < POINTS; i++) worst = fmaxf(worst, fabsf(output[i] - y[i]));
    printf("from %s: x^2 at %.2f is %.3f; the largest error from -1 to 1 is %.3f\n", file,
           (double)x[48], (double)output[48], (double)worst);
    return worst < 0.1f ? 0 : 1;
}
