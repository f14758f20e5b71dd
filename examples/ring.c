/* A model on arrays of your own: which points of the plane lie in a ring?
 *
 *   cc ring.c -o ring $(pkg-config --cflags --libs shoal) -lm && ./ring */
#include <math.h>
#include <shoal/shoal.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 2000, BATCH = 50, EPOCHS = 40 };

static int fail(void) {
    fprintf(stderr, "ring: %s\n", shoal_error_text());
    return 1;
}

/* Points in the square from -1 to 1 by a small generator: the same ones in every run. */
static void make_points(float x[POINTS][2], int32_t y[POINTS]) {
    uint32_t state = 1;
    for (int i = 0; i < POINTS; i++) {
        for (int axis = 0; axis < 2; axis++) {
            state = state * 1664525u + 1013904223u;
            x[i][axis] = (float)(state >> 8) / (float)(1 << 23) - 1.0f;
        }
        float radius = hypotf(x[i][0], x[i][1]);
        y[i] = radius > 0.4f && radius < 0.8f;
    }
}

static shoal_status train(shoal_model *model, float x[POINTS][2], const int32_t *y) {
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        for (int first = 0; first < POINTS; first += BATCH) {
            shoal_status status = shoal_model_step(model, x[first], y + first, BATCH, NULL);
            if (status != SHOAL_OK) return status;
        }
    return SHOAL_OK;
}

int main(void) {
    static float x[POINTS][2], output[POINTS][2];
    static int32_t y[POINTS];
    make_points(x, y);

    const int64_t sample[] = {2};
    shoal_model_options options = {
        .size = sizeof options,
        .model = "{name: mlp, hidden: [32, 32]}",
        .sample = sample,
        .sample_rank = 1,
        .outputs = 2,
        .optimizer = "{name: adam, lr: 0.01}",
        .seed = 1,
        .threads = 1,
    };
    shoal_model *model = NULL;
    if (shoal_model_create(&options, &model) != SHOAL_OK) return fail();
    shoal_status status = train(model, x, y);
    if (status == SHOAL_OK) status = shoal_model_predict(model, x, POINTS, output[0]);
    long long parameters = (long long)shoal_model_param_count(model);
    shoal_model_destroy(model);
    if (status != SHOAL_OK) return fail();

    int right = 0;
    for (int i = 0; i < POINTS; i++) right += (output[i][1] > output[i][0]) == y[i];
    printf("%lld parameters tell the ring from the rest for %d of %d points\n", parameters, right,
           POINTS);
    return right > POINTS * 9 / 10 ? 0 : 1;
}
