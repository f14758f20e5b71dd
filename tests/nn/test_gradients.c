/* Every layer's gradients against finite differences, through whole small nets: the layer stands
 * behind others with parameters, so a wrong input gradient shows in theirs. */
#include <stdio.h>

#include "nn/rig.h"

typedef struct net_case {
    const char *covers;  // the layer this case is for
    const char *text;
    sh_net_input input;
} net_case;

#define IMAGE(c, h, w) \
    { .sample = {.rank = 3, .dim = {c, h, w}}, .outputs = 3 }
#define VECTOR(f) \
    { .sample = {.rank = 1, .dim = {f}}, .outputs = 3 }
#define TOKENS(t, v) \
    { .sample = {.rank = 1, .dim = {t}}, .tokens = true, .outputs = v }

static const net_case cases[] = {
    {"dense", "[{dense: 7}, {dense: 5, bias: false}, dense]", VECTOR(11)},
    {"dense", "[{dense: 9}, relu, {dense: 17}, relu, dense]", VECTOR(5)},
    {"dense", "[{embedding: 5}, {dense: 9}, relu, {dense: 4}]", TOKENS(6, 7)},
    {"kernel", "[{dense: 4}, {kernel: {count: 5, gamma: 0.5}}, dense]", VECTOR(6)},
    {"kernel", "[{dense: 4}, {kernel: {count: 5, kernel: linear}}, dense]", VECTOR(6)},
    {"kernel",
     "[{dense: 4}, {kernel: {count: 5, kernel: polynomial, gamma: 0.3, coef0: 1, degree: 2}}, "
     "dense]",
     VECTOR(6)},
    {"votes", "[{dense: 6}, tanh, {dense: 1}, votes]", VECTOR(6)},
    {"route",
     "[{dense: 2}, {dense: 6, from: input}, {name: r, route: , from: [dense1, dense2]}, dense]",
     VECTOR(6)},
    {"centres", "[{dense: 5}, {centres: 4}, tanh, dense]", VECTOR(6)},
    // Plain, blocked, and from one to the other.
    {"conv", "[{conv: 3}, {conv: 5, stride: 2, padding: 1}, flatten, dense]", IMAGE(2, 9, 7)},
    {"conv", "[{conv: 8}, {conv: 16, padding: 1}, flatten, dense]", IMAGE(3, 7, 5)},
    {"conv", "[{conv: 8}, {conv: 5, padding: 1}, {conv: 16, bias: false}, flatten, dense]",
     IMAGE(1, 9, 8)},
    {"conv", "[{conv: 8}, {conv: 8, stride: 2, padding: 1}, {conv: 8, kernel: 1, stride: 2}]",
     IMAGE(3, 9, 9)},
    {"conv", "[{conv: 4}, {conv: 6, dilation: 2, padding: 2}, flatten, dense]", IMAGE(2, 8, 9)},
    {"conv", "[{conv: 8}, {conv: 8, dilation: 2, padding: 1}, flatten, dense]", IMAGE(2, 8, 9)},
    {"conv", "[{conv: 6}, {conv: 4, groups: 2, padding: 1}, flatten, dense]", IMAGE(2, 7, 6)},
    {"conv", "[{conv: 16}, {conv: 16, groups: 16, padding: 1}, flatten, dense]", IMAGE(2, 7, 6)},
    {"conv", "[{conv: 8, kernel: 1, kernel_w: 4}, {conv: 8, kernel: 3, kernel_w: 1}]",
     IMAGE(2, 5, 9)},
    {"conv", "[{conv: 8, padding: 1}, relu, {conv: 8, padding: 1}, relu, flatten, dense]",
     IMAGE(3, 5, 6)},
    {"conv", "[{conv: 5, padding: 1}, relu, {conv: 6}, relu, flatten, dense]", IMAGE(3, 5, 6)},
    {"maxpool", "[{conv: 8, padding: 1}, {maxpool: 2}, flatten, dense]", IMAGE(2, 7, 9)},
    {"maxpool",
     "[{conv: 3, padding: 1}, relu, {maxpool: 3, stride: 2, padding: 1}, flatten, dense]",
     IMAGE(2, 7, 9)},
    {"maxpool", "[{conv: 8, padding: 1}, relu, {maxpool: 2}, {conv: 8}, relu, flatten, dense]",
     IMAGE(1, 8, 9)},
    {"maxpool", "[{conv: 8, padding: 1}, relu, {maxpool: 2}, relu, flatten, dense]",
     IMAGE(1, 8, 9)},
    {"avgpool", "[{conv: 8}, {avgpool: 3, stride: 2, padding: 1}, flatten, dense]", IMAGE(2, 9, 8)},
    {"avgpool", "[{conv: 5}, tanh, {avgpool: 2}, flatten, dense]", IMAGE(2, 9, 8)},
    {"globalpool", "[{conv: 8}, tanh, globalpool, dense]", IMAGE(2, 6, 7)},
    {"globalpool", "[{conv: 5}, tanh, globalpool, dense]", IMAGE(2, 6, 7)},
    {"batchnorm", "[{dense: 11}, batchnorm, tanh, dense]", VECTOR(5)},
    {"batchnorm",
     "[{conv: 8, bias: false}, batchnorm, {conv: 16}, batchnorm, relu, flatten, dense]",
     IMAGE(2, 8, 7)},
    {"batchnorm", "[{conv: 5, bias: false}, batchnorm, relu, flatten, dense]", IMAGE(2, 8, 7)},
    {"layernorm", "[{dense: 13}, layernorm, dense]", VECTOR(6)},
    {"layernorm", "[{embedding: 9}, {layernorm: {bias: false}}, {dense: 4}]", TOKENS(5, 7)},
    {"dropout", "[{dense: 30}, dropout, {dense: 20}, {dropout: 0.25}, dense]", VECTOR(6)},
    {"dropout", "[{conv: 8}, {dropout: 0.3}, {conv: 8}, flatten, dense]", IMAGE(2, 7, 6)},
    {"embedding", "[{embedding: 6}, flatten, {dense: 4}]", TOKENS(5, 7)},
    {"positions", "[{embedding: 6}, positions, tanh, {dense: 4}]", TOKENS(5, 7)},
    {"attention", "[{embedding: 12}, {attention: 3}, {dense: 4}]", TOKENS(9, 7)},
    {"attention", "[{embedding: 10}, {attention: 2, causal: false, bias: false}]", TOKENS(7, 5)},
    {"attention-core", "[{embedding: 24}, {attention-core: {heads: 2}}, {dense: 4}]", TOKENS(7, 5)},
    {"add", "[{dense: 6, name: a}, tanh, {dense: 6}, {add: , from: [dense1, a]}, dense]",
     VECTOR(5)},
    {"concat", "[{dense: 6, name: a}, tanh, {dense: 5, name: b}, {concat: , from: [b, a]}, dense]",
     VECTOR(5)},
    {"concat",
     "[{conv: 8, name: a}, {conv: 16, name: b, padding: 1}, {concat: , from: [a, b]},"
     " {conv: 8}, flatten, dense]",
     IMAGE(2, 7, 6)},
    {"concat",
     "[{conv: 8, name: a}, {conv: 3, name: b, padding: 1}, {concat: , from: [a, b, a]},"
     " {conv: 8}, flatten, dense]",
     IMAGE(2, 7, 6)},
    {"concat", "[{embedding: 5, name: a}, {dense: 3}, {concat: , from: [dense1, a]}, {dense: 4}]",
     TOKENS(4, 5)},
    {"flatten", "[{conv: 8}, flatten, dense]", IMAGE(1, 6, 5)},
    {"relu", "[{dense: 12, name: a}, relu, {dense: 12}, {add: , from: [dense1, a]}, relu, dense]",
     VECTOR(5)},
    {"gelu", "[{dense: 12}, gelu, {dense: 7}, {gelu: true}, dense]", VECTOR(5)},
    {"gelu", "[{dense: 12}, gelu, layernorm, {dense: 7}, gelu, {dense: 5, bias: false}, gelu]",
     VECTOR(5)},
    {"silu", "[{dense: 12}, silu, {dense: 7}, silu, dense]", VECTOR(5)},
    {"tanh", "[{conv: 8}, tanh, {conv: 8}, tanh, flatten, dense]", IMAGE(2, 6, 7)},
    {"sigmoid", "[{dense: 12}, sigmoid, dense]", VECTOR(5)},
    {"softmax", "[{dense: 12}, softmax, {dense: 7}, softmax]", VECTOR(5)},
    {"droppath",
     "[{dense: 8, name: a}, {dense: 8}, {droppath: 0.4}, {add: , from: [droppath1, a]},"
     " dense]",
     VECTOR(5)},
};

/* Branches: who writes a gradient first, and who adds. */
static const net_case branches[] = {
    {"two readers",
     "[{dense: 6, name: a}, {dense: 6, name: b, from: a}, {dense: 6, name: c, "
     "from: a}, {add: , from: [b, c]}, dense]",
     VECTOR(5)},
    {"three readers",
     "[{dense: 6, name: a}, {tanh: , name: b, from: a}, {sigmoid: , name: c, from: a}, {silu: , "
     "name: d, from: a}, {add: , from: [d, b, c]}, dense]",
     VECTOR(5)},
    {"in-place readers before and after",
     "[{dense: 6, name: a}, {relu: , name: b, from: a}, {dense: 6, name: c, from: a}, {tanh: , "
     "name: d, from: a}, {add: , from: [b, c, d]}, dense]",
     VECTOR(5)},
    {"x + x",
     "[{dense: 6, name: a}, {add: , from: [a, a]}, tanh, {dense: 4}, {add: , from: "
     "[dense1, dense1, dense1]}, dense]",
     VECTOR(5)},
    {"x + x + relu", "[{dense: 6, name: a}, tanh, {add: , from: [tanh1, tanh1, a]}, relu, dense]",
     VECTOR(5)},
    {"chain of adds",
     "[{dense: 6, name: a}, {dense: 6, name: b}, {add: , name: c, from: [a, b]}, "
     "{add: , name: d, from: [c, a]}, {add: , from: [d, c, b]}, dense]",
     VECTOR(5)},
    {"two flattens of one image",
     "[{conv: 8, name: a}, {flatten: , name: f, from: a}, {conv: 8, from: a}, {flatten: , name: "
     "g}, {flatten: , name: h, from: a}, {concat: , from: [g, f, h]}, tanh, dense]",
     IMAGE(2, 6, 5)},
    {"residual with downsample",
     "[{conv: 8, padding: 1, bias: false}, batchnorm, {relu: , name: x}, {conv: 16, kernel: 1, "
     "stride: 2, bias: false, from: x}, {batchnorm: , name: short}, {conv: 16, stride: 2, "
     "padding: 1, bias: false, from: x}, batchnorm, relu, {conv: 16, padding: 1, bias: false}, "
     "{batchnorm: , name: long}, {add: , from: [long, short]}, relu, globalpool, dense]",
     IMAGE(3, 5, 5)},
    {"smooth residual with downsample",
     "[{conv: 8, padding: 1, bias: false}, batchnorm, {tanh: , name: x}, {conv: 16, kernel: 1, "
     "stride: 2, bias: false, from: x}, {batchnorm: , name: short}, {conv: 16, stride: 2, "
     "padding: 1, bias: false, from: x}, batchnorm, tanh, {conv: 16, padding: 1, bias: false}, "
     "{batchnorm: , name: long}, {add: , from: [long, short]}, tanh, globalpool, dense]",
     IMAGE(3, 8, 8)},
    {"blocked plus plain",
     "[{conv: 8, name: a, padding: 1}, {conv: 3, padding: 1}, {conv: 8, groups: 1, padding: 1}, "
     "{dropout: 0.1, name: plain}, {add: , from: [a, plain]}, {add: , from: [plain, a, add1]}, "
     "tanh, flatten, dense]",
     IMAGE(2, 6, 7)},
    {"a branch of the data itself",
     "[{dense: 5, name: a}, {add: , from: [a, input]}, {concat: , from: [input, add1]}, dense]",
     VECTOR(5)},
    {"two readers of what a dense layer bends",
     "[{dense: 6}, {gelu: , name: a}, {dense: 6, name: b}, {dense: 6, name: c, from: a}, {add: , "
     "from: [b, c, a]}, dense]",
     VECTOR(5)},
    {"two readers of what is bent",
     "[{dense: 6, name: a}, {gelu: , name: b}, {dense: 6, name: c, from: a}, {add: , from: [b, "
     "c]}, "
     "dense]",
     VECTOR(5)},
    {"layernorms that add to a gradient",
     "[{embedding: 6, name: a}, layernorm, {dense: 6, name: b}, {add: , name: s, from: [b, a]}, "
     "{layernorm: , name: n}, {dense: 6, name: c}, {add: , name: t, from: [c, s]}, {layernorm: , "
     "name: o, from: s}, {add: , from: [o, t, n]}, {dense: 4}]",
     TOKENS(5, 7)},
    {"tied dense layers",
     "[{dense: 6, name: a}, tanh, {dense: {units: 6, tie: a.weight}}, tanh, "
     "{dense: {units: 6, tie: a.weight, bias: false}}, dense]",
     VECTOR(6)},
    {"tied embedding",
     "[{embedding: 6, name: wte}, positions, layernorm, {attention: 2}, {dense: "
     "{units: 9, bias: false, tie: wte.weight}}]",
     TOKENS(5, 9)},
};

static void name_failure(const net_case *c, const rig *r, size_t param, double want, double found) {
    print_error("%s: %s, batch %ld: gradient of %s: differences give %.6g, backward %.6g\n",
                c->covers, c->text, (long)r->executor->batch, r->net->params.items[param].name,
                want, found);
}

static double moved_loss(rig *r, const sh_param *p, const float *kept, const float *direction,
                         double h) {
    float *w = r->blocks.weights + p->offset;
    for (size_t j = 0; j < p->count; j++) w[j] = kept[j] + (float)h * direction[j];
    return rig_loss(r);
}

static bool is_close(double difference, double slope, double typical) {
    return fabs(difference - slope) <= 6e-3 * fmax(fabs(difference), typical) + 6e-4;
}

/* One parameter along one random direction of signs, over several steps: the widest beats noise,
 * the narrowest misses the kinks of relu and max; where one kink is near, the differences to the
 * other side are still right. A wrong gradient agrees with none. */
static bool agrees(rig *r, size_t param, const float *gradient, uint64_t seed, double *want_out,
                   double *found_out) {
    const sh_param *p = &r->net->params.items[param];
    float *direction = sh_alloc(p->count, sizeof(float));
    float *w = r->blocks.weights + p->offset, *kept = rig_copy(w, p->count);
    sh_test_fill(direction, p->count, seed);
    double slope = 0, here = rig_loss(r);
    for (size_t j = 0; j < p->count; j++) {
        direction[j] = direction[j] < 0 ? -1.0f : 1.0f;
        slope += (double)gradient[p->offset + j] * (double)direction[j];
    }
    double typical = rig_norm(gradient + p->offset, p->count);
    double fan = (double)(p->count / (size_t)p->shape.dim[0]);
    const double steps[] = {2e-2, 4e-3, 1e-3, 3e-4};
    bool good = false;
    for (size_t i = 0; i < SH_COUNT(steps) && !good; i++) {
        double h = steps[i] / sqrt(fan);
        double up = (moved_loss(r, p, kept, direction, h) - here) / h;
        double down = (here - moved_loss(r, p, kept, direction, -h)) / h;
        *want_out = (up + down) / 2;
        good = is_close(*want_out, slope, typical) || is_close(up, slope, typical) ||
               is_close(down, slope, typical);
    }
    *found_out = slope;
    memcpy(w, kept, p->count * sizeof *w);
    sh_free(kept);
    sh_free(direction);
    return good;
}

static void check_gradients(rig *r, const net_case *c) {
    rig_step(r);
    size_t total = r->net->params.total;
    float *gradient = rig_copy(r->blocks.gradients, total);
    assert_true(rig_norm(gradient, total) > 0.1);  // also false for NaN
    for (size_t i = 0; i < r->net->params.count; i++) {
        double want, found;
        if (agrees(r, i, gradient, 50 + i, &want, &found)) continue;
        name_failure(c, r, i, want, found);
        fail();
    }
    sh_free(gradient);
}

static bool has(const rig *r, const char *kind) {
    for (size_t i = 0; i < r->net->layer_count; i++)
        if (strcmp(r->net->layers[i]->kind->name, kind) == 0) return true;
    return false;
}

static void check_case(const net_case *c, int64_t batch) {
    rig_threads = batch % 2 == 0 ? 2 : 1;
    rig r = rig_make(c->text, c->input, batch);
    check_gradients(&r, c);
    // Batch normalisation by running statistics has no backward pass: it is for inference.
    r.step.training = false;
    if (!has(&r, "batchnorm")) check_gradients(&r, c);
    rig_free(&r);
}

static void check_cases(const net_case *list, size_t count, int64_t batch) {
    for (size_t i = 0; i < count; i++) check_case(&list[i], batch);
}

TEST(gradients, of_every_layer_agree_with_differences_for_one_sample) {
    check_cases(cases, SH_COUNT(cases), 1);
}
TEST(gradients, of_every_layer_agree_with_differences_for_four_samples) {
    check_cases(cases, SH_COUNT(cases), 4);
}
TEST(gradients, of_every_layer_agree_with_differences_for_seven_samples) {
    check_cases(cases, SH_COUNT(cases), 7);
}
TEST(gradients, of_branches_agree_with_differences) {
    check_cases(branches, SH_COUNT(branches), 1);
    check_cases(branches, SH_COUNT(branches), 4);
}

TEST(gradients, have_a_case_for_every_registered_layer) {
    for (size_t i = 0; sh_layer_at(i) != NULL; i++) {
        bool covered = false;
        for (size_t k = 0; k < SH_COUNT(cases); k++)
            covered = covered || (strcmp(cases[k].covers, sh_layer_name_at(i)) == 0 &&
                                  strstr(cases[k].text, sh_layer_name_at(i)) != NULL);
        if (!covered) fail_msg("no gradient case for layer '%s'", sh_layer_name_at(i));
    }
}

static void check_accumulation(const net_case *c) {
    rig r = rig_make(c->text, c->input, 3);
    size_t total = r.net->params.total;
    rig_step(&r);
    float *sum = rig_copy(r.blocks.gradients, total);
    rig_data(&r, 77);
    rig_step(&r);
    for (size_t i = 0; i < total; i++) sum[i] += r.blocks.gradients[i];
    rig_data(&r, 7);
    rig_step(&r);
    rig_data(&r, 77);
    r.step.accumulate = true;
    rig_step(&r);
    CHECK_CLOSE(r.blocks.gradients, sum, total, 2e-5);
    sh_free(sum);
    rig_free(&r);
}

TEST(gradients, accumulate_over_steps) {
    for (size_t i = 0; i < SH_COUNT(cases); i++) check_accumulation(&cases[i]);
    for (size_t i = 0; i < SH_COUNT(branches); i++) check_accumulation(&branches[i]);
}

TEST(gradients, pass_the_same_bits_twice) {
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        rig r = rig_make(cases[i].text, cases[i].input, 3);
        double first = rig_step(&r);
        float *gradient = rig_copy(r.blocks.gradients, r.net->params.total);
        assert_true(rig_step(&r) == first);
        assert_memory_equal(gradient, r.blocks.gradients, r.net->params.total * sizeof(float));
        sh_free(gradient);
        rig_free(&r);
    }
}
