/* Optimizers on a whole model's parameters: which are decayed, the tied table's two gradients, the
 * global norm however parameters are cut. */
#include <lockstep/optim.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ls_model_config tied_model = {.arch = LS_GPT2,
                                                  .vocab = 37,
                                                  .vocab_padded = 40,
                                                  .layers = 2,
                                                  .channels = 20,
                                                  .heads = 4,
                                                  .kv_heads = 4,
                                                  .head_dim = 8,
                                                  .ffn = 44,
                                                  .context = 9,
                                                  .tied = true,
                                                  .bias = true,
                                                  .act = LS_ACT_GELU_TANH,
                                                  .init_std = 0.1f};

struct fixture {
    struct ls_ops ops;
    struct ls_params params;
    float *gradient;
    struct ls_weights weights;
    struct ls_arena arena;
};

static void fixture_open(struct fixture *f)
{
    struct ls_error error = {0};
    struct ls_numerics numerics = {.tp_tiles = 2, .seq_tiles = 1, .leaf_sequences = 1};
    memset(f, 0, sizeof *f);
    assert_int_equal(ls_ops_init(&f->ops, 2, ls_isa_best(), &error), LS_OK);
    assert_int_equal(ls_params_init(&f->params, &tied_model, &numerics, &error), LS_OK);
    assert_int_equal(ls_arena_init(&f->arena, 1 << 22, &error), LS_OK);
    f->weights.master = calloc((size_t)f->params.elements, sizeof(float));
    f->weights.compute = calloc((size_t)f->params.elements, sizeof(ls_bf16));
    f->gradient = calloc((size_t)f->params.gradient_elements, sizeof(float));
    /* Values and gradients where parameters are; the padding between them stays zero. */
    for (int i = 0; i < f->params.count; i++) {
        const struct ls_param *p = &f->params.list[i];
        int64_t count = p->rows * p->cols, first = i * 100000;
        ls_normal_fill(ls_philox_key_of(1, "value"), first, count, 0, 1,
                       f->weights.master + p->offset);
        ls_normal_fill(ls_philox_key_of(1, "gradient"), first, count, 0, 0.5,
                       f->gradient + f->params.tied_elements + p->offset);
        if (i == f->params.tied_param)
            ls_normal_fill(ls_philox_key_of(1, "tied"), first, count, 0, 0.5, f->gradient);
    }
}

static void fixture_close(struct fixture *f)
{
    free(f->weights.master);
    free(f->weights.compute);
    free(f->gradient);
    ls_arena_release(&f->arena);
    ls_params_release(&f->params);
    ls_ops_release(&f->ops);
}

/* The whole gradient of element i of a parameter: a tied table's is the sum of two. */
static double gradient_at(const struct fixture *f, int index, int64_t i)
{
    double g = f->gradient[f->params.tied_elements + f->params.list[index].offset + i];
    return index == f->params.tied_param ? g + (double)f->gradient[i] : g;
}

/* ---- the norm -------------------------------------------------------------------------------- */

static void test_norm(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    double want = 0, got = ls_gradient_norm(&f.params, &f.ops, f.gradient);
    for (int i = 0; i < f.params.count; i++)
        for (int64_t j = 0; j < f.params.list[i].rows * f.params.list[i].cols; j++)
            want += gradient_at(&f, i, j) * gradient_at(&f, i, j);
    want = sqrt(want);
    if (!(fabs(got - want) <= 1e-7 * want)) /* the tied sum is rounded to float32 */
        fail_msg("norm %.12g, expected %.12g", got, want);
    f.gradient[f.params.tied_elements + 3] = INFINITY;
    assert_false(isfinite(ls_gradient_norm(&f.params, &f.ops, f.gradient)));
    fixture_close(&f);
}

/* Pieces dealt to `ranks` sums, whose results are merged from the last to the first. */
static double norm_cut(struct fixture *f, int ranks, int threads)
{
    struct ls_exact_sum sum[5];
    int turn = 0;
    f->ops.threads = threads;
    for (int r = 0; r < ranks; r++)
        ls_exact_clear(&sum[r]);
    for (int i = 0; i < f->params.count; i++) {
        const struct ls_param *p = &f->params.list[i];
        int64_t width = p->cols / p->col_tiles;
        const float *g = f->gradient + f->params.tied_elements + p->offset;
        for (int64_t at = 0; at < p->rows * p->cols; at += width)
            ls_squared_norm(&f->ops, width, g + at,
                            i == f->params.tied_param ? f->gradient + at : NULL,
                            &sum[turn++ % ranks]);
    }
    for (int r = ranks - 1; r > 0; r--)
        ls_exact_merge(&sum[r - 1], &sum[r]);
    return sqrt(ls_exact_value(&sum[0]));
}

static void test_norm_is_the_same_however_parameters_are_cut(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f);
    double whole = ls_gradient_norm(&f.params, &f.ops, f.gradient);
    for (int ranks = 1; ranks <= 5; ranks++)
        for (int threads = 1; threads <= 2; threads++) {
            double cut = norm_cut(&f, ranks, threads);
            if (memcmp(&cut, &whole, sizeof cut))
                fail_msg("%d ranks, %d threads: %.17g, whole %.17g", ranks, threads, cut, whole);
        }
    fixture_close(&f);
}

static void test_clip_factor(void **state)
{
    (void)state;
    struct ls_optim_config c = {.clip = 1};
    assert_float_equal(ls_clip_factor(&c, 0.5), 1, 0);
    assert_float_equal(ls_clip_factor(&c, 4), (float)(1 / (4 + 1e-6)), 0);
    assert_float_equal(ls_clip_factor(&c, 0), 1, 0);
    c.clip = 0.25f;
    assert_float_equal(ls_clip_factor(&c, 1e9), (float)(0.25 / (1e9 + 1e-6)), 0);
    c.clip = 0; /* off */
    assert_float_equal(ls_clip_factor(&c, 1e9), 1, 0);
}

/* ---- updates --------------------------------------------------------------------------------- */

/* By name, so that the table of parameters is checked as well. */
static bool is_decayed(const struct ls_param *p)
{
    return !strstr(p->name, "bias") && !strstr(p->name, "ln_");
}

/* One parameter in double, as torch.optim and the Lion paper write it. */
static void reference_step(const struct ls_optim_config *c, double lr, double decay, double g,
                           int64_t step, double *p, double state[2])
{
    double b1 = c->beta1, b2 = c->beta2;
    if (c->kind == LS_ADAMW) {
        *p -= lr * decay * *p;
        state[0] = b1 * state[0] + (1 - b1) * g;
        state[1] = b2 * state[1] + (1 - b2) * g * g;
        double m = state[0] / (1 - pow(b1, (double)step)),
               v = state[1] / (1 - pow(b2, (double)step));
        *p -= lr * m / (sqrt(v) + (double)c->epsilon);
    } else if (c->kind == LS_SGD) {
        g += decay * *p;
        state[0] = step == 1 ? g : c->momentum * state[0] + g;
        *p -= lr * (c->nesterov ? g + c->momentum * state[0] : state[0]);
    } else {
        double direction = b1 * state[0] + (1 - b1) * g;
        *p -= lr * ((direction > 0) - (direction < 0) + decay * *p);
        state[0] = b2 * state[0] + (1 - b2) * g;
    }
}

static void check_parameter(const struct fixture *f, int index, const double *want,
                            const struct ls_optim_config *c)
{
    const struct ls_param *p = &f->params.list[index];
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        float got = f->weights.master[p->offset + i];
        if (!(fabs(got - want[i]) <= 2e-6 * (1 + fabs(want[i]))))
            fail_msg("optimizer %d: %s[%ld] = %.9g, expected %.9g", (int)c->kind, p->name, (long)i,
                     (double)got, want[i]);
        if (f->weights.compute[p->offset + i] != ls_f32_to_bf16(got))
            fail_msg("%s[%ld]: the bf16 copy is not its master rounded", p->name, (long)i);
    }
}

static void check_padding(const struct fixture *f)
{
    int64_t at = 0;
    for (int i = 0; i <= f->params.count; i++) {
        const struct ls_param *p = i < f->params.count ? &f->params.list[i] : NULL;
        for (int64_t end = p ? p->offset : f->params.elements; at < end; at++)
            if (f->weights.master[at] != 0)
                fail_msg("padding element %ld became %g", (long)at, (double)f->weights.master[at]);
        at = p ? p->offset + p->rows * p->cols : at;
    }
}

static void check_optimizer(struct ls_optim_config config)
{
    enum { STEPS = 3 };
    struct fixture f;
    fixture_open(&f);
    struct ls_optimizer optimizer;
    ls_optimizer_init(&optimizer, &config, &f.params, &f.arena);
    float scale = 0.75f, lr = 0.01f;
    double *want = calloc((size_t)f.params.elements, sizeof *want);
    for (int i = 0; i < f.params.count; i++) {
        const struct ls_param *p = &f.params.list[i];
        for (int64_t j = 0; j < p->rows * p->cols; j++) {
            double states[2] = {0, 0}, *value = &want[p->offset + j];
            *value = f.weights.master[p->offset + j];
            for (int64_t step = 1; step <= STEPS; step++)
                reference_step(&config, lr, is_decayed(p) ? config.weight_decay : 0,
                               gradient_at(&f, i, j) * (double)scale, step, value, states);
        }
    }
    for (int64_t step = 1; step <= STEPS; step++)
        ls_optimizer_step(&optimizer, &f.ops, &f.weights, f.gradient, scale, lr, step);
    for (int i = 0; i < f.params.count; i++)
        check_parameter(&f, i, want + f.params.list[i].offset, &config);
    check_padding(&f);
    free(want);
    fixture_close(&f);
}

static void test_updates(void **state)
{
    (void)state;
    check_optimizer((struct ls_optim_config){
        .kind = LS_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f});
    check_optimizer((struct ls_optim_config){.kind = LS_SGD, .weight_decay = 0.1f});
    check_optimizer(
        (struct ls_optim_config){.kind = LS_SGD, .momentum = 0.9f, .weight_decay = 0.1f});
    check_optimizer((struct ls_optim_config){
        .kind = LS_SGD, .momentum = 0.9f, .nesterov = true, .weight_decay = 0.1f});
    check_optimizer((struct ls_optim_config){
        .kind = LS_LION, .beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f});
}

/* With no gradient only the decay moves a parameter: matrices shrink, norms and biases stay. */
static void test_only_matrices_decay(void **state)
{
    (void)state;
    static const enum ls_optimizer_kind kinds[] = {LS_ADAMW, LS_SGD, LS_LION};
    for (int k = 0; k < 3; k++) {
        struct fixture f;
        fixture_open(&f);
        struct ls_optim_config config = {.kind = kinds[k],
                                         .beta1 = 0.9f,
                                         .beta2 = 0.95f,
                                         .epsilon = 1e-8f,
                                         .weight_decay = 0.5f};
        struct ls_optimizer optimizer;
        ls_optimizer_init(&optimizer, &config, &f.params, &f.arena);
        memset(f.gradient, 0, (size_t)f.params.gradient_elements * sizeof(float));
        float *before = malloc((size_t)f.params.elements * sizeof(float));
        memcpy(before, f.weights.master, (size_t)f.params.elements * sizeof(float));
        ls_optimizer_step(&optimizer, &f.ops, &f.weights, f.gradient, 1, 0.125f, 1);
        for (int i = 0; i < f.params.count; i++) {
            const struct ls_param *p = &f.params.list[i];
            double share = is_decayed(p) ? 1 - 0.125 * 0.5 : 1;
            assert_int_equal(p->decay, is_decayed(p));
            for (int64_t j = p->offset; j < p->offset + p->rows * p->cols; j++)
                if (!(fabs(f.weights.master[j] - share * (double)before[j]) <=
                      1e-7 * fabs((double)before[j])))
                    fail_msg("%s: %.9g became %.9g, expected a share of %g", p->name,
                             (double)before[j], (double)f.weights.master[j], share);
        }
        free(before);
        fixture_close(&f);
    }
}

static void test_states_and_names(void **state)
{
    (void)state;
    struct ls_optim_config adamw = {.kind = LS_ADAMW}, plain = {.kind = LS_SGD},
                           sgd = {.kind = LS_SGD, .momentum = 0.9f}, lion = {.kind = LS_LION};
    assert_int_equal(ls_optimizer_states(&adamw), 2);
    assert_string_equal(ls_optimizer_state_name(&adamw, 0), "exp_avg");
    assert_string_equal(ls_optimizer_state_name(&adamw, 1), "exp_avg_sq");
    assert_int_equal(ls_optimizer_states(&plain), 0);
    assert_int_equal(ls_optimizer_states(&sgd), 1);
    assert_string_equal(ls_optimizer_state_name(&sgd, 0), "momentum_buffer");
    assert_int_equal(ls_optimizer_states(&lion), 1);
    assert_string_equal(ls_optimizer_state_name(&lion, 0), "exp_avg");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_norm_is_the_same_however_parameters_are_cut),
        cmocka_unit_test(test_clip_factor),
        cmocka_unit_test(test_updates),
        cmocka_unit_test(test_only_matrices_decay),
        cmocka_unit_test(test_states_and_names),
    };
    return cmocka_run_group_tests_name("optimizer", tests, NULL, NULL);
}
