/* Central differential privacy: parsing a budget, clipping, Gaussian noise and the draw of clients.
 * Noise comes from ChaCha20 under a secret key, not from the run's seed: who could repeat it could
 * take it off. */
#include "fed/privacy.h"

#include <math.h>
#include <sodium.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

enum { FOR_NOISE = 1, FOR_DRAWS = 2, PIECE = 1024 };  // uses of the key; numbers drawn at a time

static sh_status fail_text(const char *text) {
    SH_FAIL(SH_E_USAGE, "'%.80s' is no privacy budget", text);
    return sh_error_hint("for example --private epsilon=8,delta=1e-5,clip=1");
}

/* Sets one of the numbers by name. 0 stands for "not given" before, so that all limits exclude it.
 */
static sh_status take(sh_fed_privacy *p, const char *name, size_t length, double value) {
    const struct {
        const char *name;
        double *at, least, most;
    } known[] = {{"epsilon", &p->epsilon, 1e-3, 1e6},
                 {"delta", &p->delta, 1e-30, 0.1},
                 {"clip", &p->clip, 1e-9, 1e5},
                 {"noise", &p->noise, 1e-3, 1e6}};
    for (size_t i = 0; i < SH_COUNT(known); i++) {
        // Whole names alone.
        if (strlen(known[i].name) != length || memcmp(known[i].name, name, length) != 0) continue;
        if (!(value >= known[i].least) || !(value <= known[i].most))  // NaN fails, too
            return SH_FAIL(SH_E_USAGE, "private: %s is %g, and must be from %g to %g",
                           known[i].name, value, known[i].least, known[i].most);
        *known[i].at = value;
        return SH_OK;
    }
    SH_FAIL(SH_E_USAGE, "private: there is no '%.*s'", (int)(length < 40 ? length : 40), name);
    return sh_error_hint("epsilon, delta, clip and noise");
}

/* Without noise=, the least noise that lets all rounds stay within epsilon. */
sh_status sh_fed_privacy_parse(const char *text, double rate, int64_t rounds,
                               sh_fed_privacy *privacy_out) {
    sh_fed_privacy p = {.on = true, .clip = 1};  // clip 1 unless given
    for (const char *at = text;; at++) {         // name=value, separated by commas
        size_t length = strcspn(at, "=,");
        char *end = NULL;
        if (length == 0 || at[length] != '=') return fail_text(text);
        double value = sh_strtod(at + length + 1, &end);
        if (end == at + length + 1 || (*end != ',' && *end != '\0')) return fail_text(text);
        SH_TRY(take(&p, at, length, value));
        at = end;
        if (*at == '\0') break;
    }
    if (p.epsilon == 0 || p.delta == 0) return fail_text(text);
    if (p.noise == 0) p.noise = sh_fed_noise_for(p.epsilon, p.delta, rate, (double)rounds);
    if (isinf(p.noise))
        return SH_FAIL(SH_E_USAGE, "no noise keeps %lld rounds within epsilon %g",
                       (long long)rounds, p.epsilon);
    *privacy_out = p;
    return SH_OK;
}

/* From the system's generator: noise that can be repeated can be taken off. */
sh_status sh_fed_privacy_draw_key(sh_fed_privacy *privacy) {
    if (sodium_init() < 0) return SH_FAIL(SH_E_UNSUPPORTED, "libsodium does not start");
    randombytes_buf(privacy->key, sizeof privacy->key);
    return SH_OK;
}

/* For simulations: the noise follows from the seed, and hides nothing. serve.c draws a real key. */
void sh_fed_privacy_seed_key(sh_fed_privacy *privacy, uint64_t seed) {
    memset(privacy->key, 0, sizeof privacy->key);
    memcpy(privacy->key, &seed, sizeof seed);
}

/* Block `index` of a stream of bytes: ChaCha20 under a key for this use, round and attempt. */
static void stream(const sh_fed_privacy *privacy, unsigned use, uint64_t round, uint32_t attempt,
                   uint64_t index, void *out, size_t bytes) {
    unsigned char key[32], nonce[crypto_stream_chacha20_NONCEBYTES];
    struct {  // padding-free: hashed as bytes
        uint64_t use, round, attempt;
    } name = {use, round, attempt};
    crypto_generichash(key, sizeof key, (const unsigned char *)&name, sizeof name, privacy->key,
                       sizeof privacy->key);
    memcpy(nonce, &index, sizeof nonce);
    crypto_stream_chacha20(out, bytes, nonce, key);
    sodium_memzero(key, sizeof key);  // derived keys do not stay on the stack
}

/* Factor that clips the whole update to the L2 norm `clip`: the sensitivity that the accountant
 * counts on. */
double sh_fed_privacy_scale(const sh_fed_privacy *privacy, const float *values, size_t count) {
    double squares = 0;
    for (size_t i = 0; i < count; i++) squares += (double)values[i] * (double)values[i];
    double norm = sqrt(squares);
    // A little less than the clip, so that rounding to the sum's units stays below it.
    return norm > privacy->clip ? privacy->clip / norm * (1 - 1e-6) : 1;
}

/* (0, 1), 53 bits. */
static double unit(uint64_t bits) { return ((double)(bits >> 11) + 0.5) * 0x1p-53; }

/* Box and Muller: two normal numbers of two uniform ones. */
static void normals(const uint64_t *bits, size_t count, double *out) {
    for (size_t i = 0; i < count; i += 2) {
        double radius = sqrt(-2 * log(unit(bits[i]))), angle = 2 * M_PI * unit(bits[i + 1]);
        out[i] = radius * cos(angle);
        out[i + 1] = radius * sin(angle);
    }
}

/* Rounded to the units of the sum, so that noise and updates are added as integers, in any order.
 */
sh_status sh_fed_privacy_add_noise(const sh_fed_privacy *privacy, uint64_t round, uint32_t attempt,
                                   uint64_t weight, sh_fed_sum *sum) {
    uint64_t bits[PIECE];
    double drawn[PIECE];
    const double deviation = privacy->noise * privacy->clip * 0x1p40;  // in units of the sum, 2^-40
    if (!(deviation < 0x1p55))  // eight deviations stay within 63 bits
        return SH_FAIL(SH_E_USAGE, "noise %g of clip %g is too large", privacy->noise,
                       privacy->clip);
    for (size_t at = 0; at < sum->count; at += PIECE) {
        size_t count = sum->count - at < PIECE ? sum->count - at : PIECE;
        stream(privacy, FOR_NOISE, round, attempt, at / PIECE, bits, sizeof bits);
        normals(bits, PIECE, drawn);
        for (size_t i = 0; i < count; i++)
            // `weight` is what each update counts.
            sum->total[at + i] += (__int128)llrint(drawn[i] * deviation) * (int64_t)weight;
    }
    sodium_memzero(drawn, sizeof drawn);  // noise left on the stack would undo it
    sodium_memzero(bits, sizeof bits);
    return SH_OK;
}

/* Poisson sampling: independent draws, whose secrecy the accountant relies on. */
bool sh_fed_privacy_draws(const sh_fed_privacy *privacy, uint64_t round, uint32_t attempt,
                          size_t client, double rate) {
    uint64_t bits;
    stream(privacy, FOR_DRAWS, round, attempt, client, &bits, sizeof bits);
    return unit(bits) < rate;
}
