/* A small fuzzer for builds without libFuzzer: replays a folder of seeds, then feeds mutations of
 * them, all drawn from one number, so that a failure repeats.
 *
 *   [SEED=N] fuzz_NAME SEED-FOLDER MUTATIONS
 *
 * An input that crashes the target, trips a sanitizer or takes too long is kept in the current
 * folder; running the program with that file alone replays it:
 *
 *   fuzz_NAME FILE */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
/* Present only when a sanitizer is linked. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

enum { INPUT_MOST = 1 << 16, SEEDS_MOST = 256, INPUT_SECONDS_MOST = 20, RUN_SECONDS_MOST = 10 };

typedef struct input {
    uint8_t *data;
    size_t bytes;
} input;

static input seeds[SEEDS_MOST];
static size_t seed_count;

/* What the target is working on, for the handlers below. */
static const uint8_t *current_data;
static size_t current_bytes;
static char kept_path[256];

static void keep_input(void) {
    int fd = open(kept_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) return;
    const char *words = "fuzz: the input is kept in ";
    if (write(fd, current_data, current_bytes) != (ssize_t)current_bytes) words = "fuzz: half of ";
    close(fd);
    ssize_t ignored = write(STDERR_FILENO, words, strlen(words));
    ignored += write(STDERR_FILENO, kept_path, strlen(kept_path));
    ignored += write(STDERR_FILENO, "\n", 1);
    (void)ignored;
}

/* Exits with a plain failure, so that CTest reports it like any other. */
static void on_signal(int signal_number) {
    keep_input();
    const char *words =
        signal_number == SIGALRM ? "fuzz: it takes too long\n" : "fuzz: it crashes\n";
    ssize_t ignored = write(STDERR_FILENO, words, strlen(words));
    (void)ignored;
    _exit(1);
}

static void watch(const char *program) {
    const char *slash = strrchr(program, '/');
    snprintf(kept_path, sizeof kept_path, "%s.crash", slash != NULL ? slash + 1 : program);
    if (__sanitizer_set_death_callback != NULL) {
        __sanitizer_set_death_callback(keep_input);  // it reports faults itself, with their place
    } else {
        const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
        for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++)
            signal(crashes[i], on_signal);
    }
    signal(SIGABRT, on_signal);
    signal(SIGALRM, on_signal);
}

static void run(const uint8_t *data, size_t bytes) {
    // An exact copy on the heap: a sanitizer then sees a read behind the last byte.
    uint8_t *copy = malloc(bytes != 0 ? bytes : 1);
    if (copy == NULL) abort();
    if (bytes != 0) memcpy(copy, data, bytes);
    current_data = data;
    current_bytes = bytes;
    alarm(INPUT_SECONDS_MOST);
    LLVMFuzzerTestOneInput(copy, bytes);
    alarm(0);
    free(copy);
}

static bool read_seed(const char *path, input *seed_out) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    uint8_t *data = malloc(INPUT_MOST);
    if (data == NULL) abort();
    size_t bytes = fread(data, 1, INPUT_MOST, file);
    fclose(file);
    *seed_out = (input){data, bytes};
    return true;
}

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static bool read_seeds(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) return false;
    if (!S_ISDIR(info.st_mode)) {
        seed_count = 1;
        return read_seed(path, &seeds[0]);
    }
    struct dirent **entries = NULL;
    int found = scandir(path, &entries, is_visible, alphasort);  // sorted: the draws depend on it
    for (int i = 0; i < found; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        if (seed_count < SEEDS_MOST && read_seed(name, &seeds[seed_count])) seed_count++;
        free(entries[i]);
    }
    free(entries);
    return found >= 0;
}

/* Overwrites `width` bytes with a number at which sizes and signs go wrong. */
static void put_number(uint8_t *data, size_t width, sh_rng *rng) {
    static const uint64_t numbers[] = {0,          1,
                                       2,          7,
                                       127,        128,
                                       255,        256,
                                       32767,      32768,
                                       65535,      65536,
                                       INT32_MAX,  0x80000000u,
                                       UINT32_MAX, 0x100000000u,
                                       INT64_MAX,  0x8000000000000000u,
                                       UINT64_MAX};
    uint64_t number = numbers[sh_rng_below(rng, sizeof numbers / sizeof numbers[0])];
    bool big_endian = sh_rng_below(rng, 2) == 0;
    for (size_t i = 0; i < width; i++)
        data[i] = (uint8_t)(number >> 8 * (big_endian ? width - 1 - i : i));
}

/* Moves the tail at `at` to make room for `text`; what does not fit is lost. */
static size_t insert(uint8_t *data, size_t bytes, size_t at, const void *text, size_t text_bytes) {
    if (text_bytes > INPUT_MOST - bytes) text_bytes = INPUT_MOST - bytes;
    memmove(data + at + text_bytes, data + at, bytes - at);
    memcpy(data + at, text, text_bytes);
    return bytes + text_bytes;
}

static size_t insert_word(uint8_t *data, size_t bytes, size_t at, sh_rng *rng) {
    static const char *const words[] = {
        "-1",         "0",    "1e999", "nan", "-inf", "99999999999999999999",
        "4294967296", ",",    "\n",    "\t",  " ",    ":",
        "{",          "}",    "[",     "]",   "'",    "\"",
        "\\u",        "\xff", "- ",    "#",   "1:",   "<f4",
        "(,)",        "&a"};
    const char *word = words[sh_rng_below(rng, sizeof words / sizeof words[0])];
    return insert(data, bytes, at, word, strlen(word));
}

static size_t cut(uint8_t *data, size_t bytes, size_t at, sh_rng *rng) {
    size_t length = 1 + sh_rng_below(rng, bytes - at);
    if (length > 16 && sh_rng_below(rng, 2) == 0) length = 1 + length % 16;
    memmove(data + at, data + at + length, bytes - at - length);
    return bytes - length;
}

/* One change of `data` (room for INPUT_MOST). Returns the new length. */
static size_t mutate(uint8_t *data, size_t bytes, sh_rng *rng) {
    size_t at = bytes != 0 ? sh_rng_below(rng, bytes) : 0;
    uint64_t kind = sh_rng_below(rng, 9);
    if (bytes == 0) return insert_word(data, bytes, 0, rng);
    if (kind == 0) data[at] ^= (uint8_t)(1u << sh_rng_below(rng, 8));
    if (kind == 1) data[at] = (uint8_t)sh_rng_below(rng, 256);
    if (kind == 2 || kind == 3) {
        size_t width = (size_t)1 << sh_rng_below(rng, 4);
        if (at + width <= bytes) put_number(data + at, width, rng);
    }
    if (kind == 4) return insert_word(data, bytes, at, rng);
    if (kind == 5) return at;  // the file ends early
    if (kind == 6) return cut(data, bytes, at, rng);
    const input *other = &seeds[sh_rng_below(rng, seed_count)];
    if (kind == 7 && other->bytes != 0) {  // a piece of another seed
        size_t from = sh_rng_below(rng, other->bytes);
        size_t length = 1 + sh_rng_below(rng, other->bytes - from);
        return insert(data, bytes, at, other->data + from, length);
    }
    if (kind == 8) {  // a piece of itself, again
        uint8_t piece[256];
        size_t length = 1 + sh_rng_below(rng, bytes - at < 256 ? bytes - at : 256);
        memcpy(piece, data + at, length);
        return insert(data, bytes, at, piece, length);
    }
    return bytes;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s SEED-FOLDER MUTATIONS | %s FILE\n", argv[0], argv[0]);
        return 2;
    }
    static uint8_t data[INPUT_MOST];
    static uint8_t nothing[1];
    watch(argv[0]);
    if (!read_seeds(argv[1])) fprintf(stderr, "fuzz: no seeds in '%s'\n", argv[1]);
    if (seed_count == 0) seeds[seed_count++] = (input){nothing, 0};
    for (size_t i = 0; i < seed_count; i++) run(seeds[i].data, seeds[i].bytes);

    const char *text = getenv("SEED");
    uint64_t seed_number = text != NULL ? strtoull(text, NULL, 10) : 1;
    long wanted = argc > 2 ? strtol(argv[2], NULL, 10) : 0, done = 0;
    int64_t end_ns = sh_clock_now_ns(&sh_clock_real) + RUN_SECONDS_MOST * INT64_C(1000000000);
    while (done < wanted && sh_clock_now_ns(&sh_clock_real) < end_ns) {
        sh_rng rng = sh_rng_stream(seed_number, SH_RNG_TEST, 0, (uint64_t)done++);
        const input *seed = &seeds[sh_rng_below(&rng, seed_count)];
        size_t bytes = seed->bytes;
        memcpy(data, seed->data, bytes);
        for (uint64_t changes = 1 + sh_rng_below(&rng, 4); changes > 0; changes--)
            bytes = mutate(data, bytes, &rng);
        run(data, bytes);
    }
    printf("fuzz: %zu seeds and %ld mutations of SEED=%llu, nothing found\n", seed_count, done,
           (unsigned long long)seed_number);
    return 0;
}
