/* A whole run, as `shoal train` does it: options, data by name, training, evaluation.
 *
 *   cc digits.c -o digits $(pkg-config --cflags --libs shoal) && ./digits */
#include <shoal/shoal.h>
#include <stdio.h>

static int fail(void) {
    fprintf(stderr, "digits: %s\n", shoal_error_text());
    if (*shoal_error_hint() != '\0') fprintf(stderr, "  try: %s\n", shoal_error_hint());
    return 1;
}

static void show(void *user, const shoal_progress *progress) {
    (void)user;
    if (progress->epoch_end && progress->epoch % 5 == 0)
        printf("epoch %2lld: test accuracy %.3f\n", (long long)progress->epoch,
               progress->test_accuracy);
}

static shoal_status configure(shoal_config *config) {
    static const char *const settings[][2] = {
        {"model", "{name: mlp, hidden: [64]}"},
        {"data", "digits"},
        {"data.batch", "32"},
        {"optimizer.name", "momentum"},
        {"optimizer.lr", "0.05"},
        {"epochs", "20"},
        {"out", "digits-run"},
        {"overwrite", "true"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        shoal_status status = shoal_config_set(config, settings[i][0], settings[i][1]);
        if (status != SHOAL_OK) return status;
    }
    return SHOAL_OK;
}

int main(void) {
    shoal_config *config = NULL;
    shoal_run *run = NULL;
    shoal_hooks hooks = {.size = sizeof hooks, .progress = show};
    shoal_result result = {.size = sizeof result};

    shoal_status status = shoal_config_create(&config);
    if (status == SHOAL_OK) status = configure(config);
    if (status == SHOAL_OK) status = shoal_run_open(config, &hooks, &run);
    if (status == SHOAL_OK) status = shoal_run_train(run);
    if (status == SHOAL_OK) status = shoal_run_evaluate(run, "test", &result);
    if (status == SHOAL_OK)
        printf("%lld test images: loss %.4f, accuracy %.4f; the run is in %s\n",
               (long long)result.samples, result.loss, result.accuracy, shoal_run_folder(run));
    int code = status == SHOAL_OK ? 0 : fail();
    shoal_run_close(run);
    shoal_config_destroy(config);
    return code != 0 ? code : result.accuracy > 0.9 ? 0 : 1;
}
