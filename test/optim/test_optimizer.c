/* Optimizers on slices of a model's parameters: which are decayed, the tied table's two gradients,
 * the global norm and the update however parameters are cut. */
#include "../support/suite.h"

#include <lockstep/nn.h>
#include <lockstep/optim.h>

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

enum { SLICES_MAX = 4096 };

/* Parameter i lies at at[i] of the master, unit behind unit, and so do its gradient, states and
 * rounded copy. */
struct fixture {
    struct ls_ops ops;
    struct ls_params params;
    int64_t *at;
    float *master, *gradient, *tied;
    void *state[2];
    ls_bf16 *compute;
    struct ls_slice *slices;     /* [count] */
    struct ls_zero_slice *parts; /* [count] */
    int count;
    struct ls_optimizer optimizer;
};

static void places_set(struct fixture *f)
{
    int64_t base = 0;
    for (int u = 0; u < f->params.unit_count; u++) {
        const struct ls_unit *unit = &f->params.units[u];
        for (int i = unit->first_param; i < unit->first_param + unit->param_count; i++)
            f->at[i] = base + f->params.list[i].offset;
        base += unit->elements;
    }
}

static int64_t elements_of(const struct fixture *f, int i)
{
    return f->params.list[i].rows * f->params.list[i].cols;
}

/* Values and gradients where parameters are; the padding between them stays zero. */
static void values_set(struct fixture *f)
{
    for (int i = 0; i < f->params.count; i++) {
        int64_t count = elements_of(f, i), first = i * 100000;
        ls_normal_fill(ls_philox_key_of(1, "value"), first, count, 0, 1, f->master + f->at[i]);
        ls_normal_fill(ls_philox_key_of(1, "gradient"), first, count, 0, 0.5,
                       f->gradient + f->at[i]);
        if (i == f->params.tied_param)
            ls_normal_fill(ls_philox_key_of(1, "tied"), first, count, 0, 0.5, f->tied);
    }
}

static void *state_at(const struct fixture *f, int state, int64_t first)
{
    return (char *)f->state[state] + (size_t)first * ls_dtype_bytes(f->optimizer.config.moments);
}

/* Slices of `piece` elements (0: whole parameters), each piece a little longer than the one before,
 * in reverse order. */
static void slices_cut(struct fixture *f, int64_t piece)
{
    const struct ls_optim_config *config = &f->optimizer.config;
    f->count = 0;
    for (int i = f->params.count - 1; i >= 0; i--) {
        const struct ls_param *p = &f->params.list[i];
        int64_t count = elements_of(f, i), size = piece ? piece : count;
        for (int64_t first = 0; first < count; first += size, size += piece ? 5 : 0) {
            int64_t begin = f->at[i] + first;
            assert_true(f->count < SLICES_MAX);
            f->parts[f->count] = (struct ls_zero_slice){
                .first = first,
                .count = ls_min(size, count - first),
                .gradient = begin,
                .second = i == f->params.tied_param ? f->tied - f->gradient + first : -1};
            f->slices[f->count] =
                (struct ls_slice){.param = p,
                                  .part = &f->parts[f->count],
                                  .lent = true,
                                  .master = f->master + begin,
                                  .state = {state_at(f, 0, begin), state_at(f, 1, begin)},
                                  .compute = p->matrix ? f->compute + begin : NULL,
                                  .compute_type = LS_BF16};
            for (int s = 0; s < ls_optimizer_states(config, p->hidden); s++)
                f->slices[f->count].rounding_key[s] = ls_optimizer_rounding_key(config, s, p);
            f->count++;
        }
    }
}

static void fixture_open(struct fixture *f, const struct ls_optim_config *config)
{
    struct ls_error error = {0};
    struct ls_numerics numerics = {.tp_tiles = 2, .seq_tiles = 1, .leaf_sequences = 1};
    memset(f, 0, sizeof *f);
    assert_int_equal(ls_ops_init(&f->ops, 2, ls_isa_best(), &error), LS_OK);
    assert_int_equal(ls_params_init(&f->params, &tied_model, &numerics, NULL, &error), LS_OK);
    size_t elements = (size_t)f->params.elements;
    f->at = calloc((size_t)f->params.count, sizeof *f->at);
    f->master = calloc(elements, sizeof *f->master);
    f->gradient = calloc(2 * elements, sizeof *f->gradient);
    f->tied = f->gradient + elements;
    f->compute = calloc(elements, sizeof *f->compute);
    f->slices = calloc(SLICES_MAX, sizeof *f->slices);
    f->parts = calloc(SLICES_MAX, sizeof *f->parts);
    places_set(f);
    values_set(f);
    f->optimizer.config = *config;
    for (int s = 0; s < 2; s++)
        f->state[s] = calloc(elements, sizeof(float));
    slices_cut(f, 0);
}

static void fixture_close(struct fixture *f)
{
    free(f->at);
    free(f->master);
    free(f->gradient);
    free(f->compute);
    free(f->slices);
    free(f->parts);
    free(f->state[0]);
    free(f->state[1]);
    ls_params_release(&f->params);
    ls_ops_release(&f->ops);
}

static void steps_run(struct fixture *f, int steps, float scale, float lr)
{
    struct ls_error error = {0};
    for (int64_t step = 1; step <= steps; step++) {
        const struct ls_optim_step one = {step, lr, f->gradient, scale};
        assert_ok(ls_optimizer_step(&f->optimizer, &f->ops, f->slices, f->count, &one, &error),
                  error);
    }
}

/* The whole gradient of element i of a parameter: a tied table's is the sum of two. */
static double gradient_at(const struct fixture *f, int index, int64_t i)
{
    double g = f->gradient[f->at[index] + i];
    return index == f->params.tied_param ? g + (double)f->tied[i] : g;
}

static const struct ls_optim_config plain_sgd = {.kind = LS_SGD};

/* ---- the norm -------------------------------------------------------------------------------- */

static void square_add(struct fixture *f, const struct ls_slice *slices, int count,
                       struct ls_exact_sum *sum)
{
    struct ls_error error = {0};
    assert_ok(ls_gradient_square(&f->optimizer, slices, count, f->gradient, &f->ops, sum, &error),
              error);
}

static struct ls_exact_sum square_of(struct fixture *f)
{
    struct ls_exact_sum sum;
    ls_exact_clear(&sum);
    square_add(f, f->slices, f->count, &sum);
    return sum;
}

static double norm_of(struct fixture *f)
{
    struct ls_exact_sum sum = square_of(f);
    return sqrt(ls_exact_value(&sum));
}

CASE(test_norm)
{
    struct fixture f;
    fixture_open(&f, &plain_sgd);
    double want = 0, got = norm_of(&f);
    for (int i = 0; i < f.params.count; i++)
        for (int64_t j = 0; j < elements_of(&f, i); j++)
            want += gradient_at(&f, i, j) * gradient_at(&f, i, j);
    want = sqrt(want);
    if (!(fabs(got - want) <= 1e-7 * want)) /* the tied sum is rounded to float32 */
        fail_msg("norm %.12g, expected %.12g", got, want);
    f.gradient[f.at[2] + 3] = INFINITY;
    assert_false(isfinite(norm_of(&f)));
    fixture_close(&f);
}

/* Slices dealt to `ranks` sums, which are merged from the last to the first. */
static struct ls_exact_sum square_dealt(struct fixture *f, int ranks, int threads)
{
    struct ls_exact_sum sum[5];
    f->ops.threads = threads;
    for (int r = 0; r < ranks; r++)
        ls_exact_clear(&sum[r]);
    for (int i = 0; i < f->count; i++)
        square_add(f, &f->slices[i], 1, &sum[i % ranks]);
    for (int r = ranks - 1; r > 0; r--)
        ls_exact_merge(&sum[r - 1], &sum[r]);
    return sum[0];
}

/* Not only the norm, which is rounded: every bit of the sum. */
CASE(test_norm_is_the_same_however_parameters_are_cut)
{
    struct fixture f;
    fixture_open(&f, &plain_sgd);
    struct ls_exact_sum whole = square_of(&f);
    static const int64_t pieces[] = {0, 1, 20, 97, 640};
    for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++)
        for (int ranks = 1; ranks <= 5; ranks++)
            for (int threads = 1; threads <= 2; threads++) {
                slices_cut(&f, pieces[p]);
                struct ls_exact_sum cut = square_dealt(&f, ranks, threads);
                if (memcmp(&cut, &whole, sizeof cut))
                    fail_msg("pieces of %ld, %d ranks, %d threads: square %.17g, whole %.17g",
                             (long)pieces[p], ranks, threads, ls_exact_value(&cut),
                             ls_exact_value(&whole));
            }
    fixture_close(&f);
}

/* What two ranks hold alike is in the norm once; twice is another norm. */
CASE(test_norm_counts_what_is_held_alike_once)
{
    struct fixture f;
    fixture_open(&f, &plain_sgd);
    double whole = norm_of(&f);
    int vector = f.count - 1;
    while (f.slices[vector].param->decay)
        vector--;
    struct ls_param alike = *f.slices[vector].param;
    alike.owned = false;
    f.slices[f.count] = f.slices[vector];
    f.slices[f.count++].param = &alike;
    double again = norm_of(&f);
    assert_memory_equal(&again, &whole, sizeof whole);
    alike.owned = true;
    assert_true(norm_of(&f) > whole);
    fixture_close(&f);
}

CASE(test_clip_factor)
{
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

static void check_parameter(const struct fixture *f, int index, const double *want)
{
    const struct ls_param *p = &f->params.list[index];
    for (int64_t i = 0; i < elements_of(f, index); i++) {
        float got = f->master[f->at[index] + i];
        if (!(fabs(got - want[i]) <= 2e-6 * (1 + fabs(want[i]))))
            fail_msg("optimizer %d: %s[%ld] = %.9g, expected %.9g", (int)f->optimizer.config.kind,
                     p->name, (long)i, (double)got, want[i]);
        ls_bf16 copy = p->matrix ? ls_f32_to_bf16(got) : 0;
        if (f->compute[f->at[index] + i] != copy)
            fail_msg("%s[%ld]: the bf16 copy is not its master rounded", p->name, (long)i);
    }
}

static void check_padding(const struct fixture *f)
{
    int64_t at = 0;
    for (int i = 0; i <= f->params.count; i++) {
        bool last = i == f->params.count;
        for (int64_t end = last ? f->params.elements : f->at[i]; at < end; at++)
            if (f->master[at] != 0)
                fail_msg("padding element %ld became %g", (long)at, (double)f->master[at]);
        at = last ? at : f->at[i] + elements_of(f, i);
    }
}

static void check_optimizer(struct ls_optim_config config)
{
    enum { STEPS = 3 };
    struct fixture f;
    fixture_open(&f, &config);
    float scale = 0.75f, lr = 0.01f;
    double *want = calloc((size_t)f.params.elements, sizeof *want);
    for (int i = 0; i < f.params.count; i++) {
        const struct ls_param *p = &f.params.list[i];
        for (int64_t j = 0; j < elements_of(&f, i); j++) {
            double states[2] = {0, 0}, *value = &want[f.at[i] + j];
            *value = f.master[f.at[i] + j];
            for (int64_t step = 1; step <= STEPS; step++)
                reference_step(&config, lr, is_decayed(p) ? config.weight_decay : 0,
                               gradient_at(&f, i, j) * (double)scale, step, value, states);
        }
    }
    steps_run(&f, STEPS, scale, lr);
    for (int i = 0; i < f.params.count; i++)
        check_parameter(&f, i, want + f.at[i]);
    check_padding(&f);
    free(want);
    fixture_close(&f);
}

CASE(test_updates)
{
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

/* Slices cut anywhere get the bits of whole parameters: masters, copies and states. own_places:
 * bf16 moments are rounded by bits of the slice's own first element, as if each were a tensor. */
static bool same_when_cut(const struct ls_optim_config *config, int64_t piece, bool own_places)
{
    struct fixture whole, cut;
    fixture_open(&whole, config);
    fixture_open(&cut, config);
    slices_cut(&cut, piece);
    for (int i = 0; own_places && i < cut.count; i++)
        cut.parts[i].first = 0;
    cut.ops.threads = 1;
    steps_run(&whole, 3, 0.75f, 0.01f);
    steps_run(&cut, 3, 0.75f, 0.01f);
    size_t count = (size_t)whole.params.elements;
    bool same = !memcmp(cut.master, whole.master, count * sizeof *cut.master) &&
                !memcmp(cut.compute, whole.compute, count * sizeof *cut.compute);
    for (int s = 0; s < ls_optimizer_states_most(config); s++)
        same =
            same && !memcmp(cut.state[s], whole.state[s], count * ls_dtype_bytes(config->moments));
    fixture_close(&whole);
    fixture_close(&cut);
    return same;
}

CASE(test_updates_are_the_same_however_parameters_are_cut)
{
    static const int64_t pieces[] = {1, 3, 20, 97};
    struct ls_optim_config configs[] = {
        {.kind = LS_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f},
        {.kind = LS_SGD, .momentum = 0.9f, .nesterov = true, .weight_decay = 0.1f},
        {.kind = LS_LION, .beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f}};
    for (int c = 0; c < 3; c++)
        for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
            configs[c].moments = LS_F32;
            assert_true(same_when_cut(&configs[c], pieces[p], false));
            configs[c].moments = LS_BF16;
            assert_true(same_when_cut(&configs[c], pieces[p], false));
            assert_false(same_when_cut(&configs[c], pieces[p], true));
        }
}

/* A state of a parameter has random bits of its own. */
CASE(test_rounding_keys)
{
    const struct ls_optim_config adamw = {.kind = LS_ADAMW, .seed = 1},
                                 other = {.kind = LS_ADAMW, .seed = 2},
                                 muon = {.kind = LS_MUON, .seed = 1};
    const struct ls_param wte = {.name = "wte.weight"}, wpe = {.name = "wpe.weight"},
                          hidden = {.name = "wte.weight", .hidden = true};
    struct ls_philox_key keys[] = {
        ls_optimizer_rounding_key(&adamw, 0, &wte),   ls_optimizer_rounding_key(&adamw, 1, &wte),
        ls_optimizer_rounding_key(&other, 0, &wte),   ls_optimizer_rounding_key(&adamw, 0, &wpe),
        ls_optimizer_rounding_key(&muon, 0, &hidden), ls_philox_key_of(1, "init:wte.weight")};
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < a; b++)
            assert_memory_not_equal(&keys[a], &keys[b], sizeof keys[a]);
}

/* With no gradient only the decay moves a parameter: matrices shrink, norms and biases stay. */
CASE(test_only_matrices_decay)
{
    static const enum ls_optimizer_kind kinds[] = {LS_ADAMW, LS_SGD, LS_LION};
    for (int k = 0; k < 3; k++) {
        struct fixture f;
        struct ls_optim_config config = {.kind = kinds[k],
                                         .beta1 = 0.9f,
                                         .beta2 = 0.95f,
                                         .epsilon = 1e-8f,
                                         .weight_decay = 0.5f};
        fixture_open(&f, &config);
        size_t bytes = (size_t)f.params.elements * sizeof(float);
        float *before = malloc(bytes);
        memset(f.gradient, 0, bytes);
        memset(f.tied, 0, bytes);
        memcpy(before, f.master, bytes);
        steps_run(&f, 1, 1, 0.125f);
        for (int i = 0; i < f.params.count; i++) {
            const struct ls_param *p = &f.params.list[i];
            double share = is_decayed(p) ? 1 - 0.125 * 0.5 : 1;
            assert_int_equal(p->decay, is_decayed(p));
            for (int64_t j = f.at[i]; j < f.at[i] + elements_of(&f, i); j++)
                if (!(fabs(f.master[j] - share * (double)before[j]) <=
                      1e-7 * fabs((double)before[j])))
                    fail_msg("%s: %.9g became %.9g, expected a share of %g", p->name,
                             (double)before[j], (double)f.master[j], share);
        }
        free(before);
        fixture_close(&f);
    }
}

CASE(test_states_and_names)
{
    struct ls_optim_config adamw = {.kind = LS_ADAMW}, plain = {.kind = LS_SGD},
                           sgd = {.kind = LS_SGD, .momentum = 0.9f}, lion = {.kind = LS_LION};
    const struct ls_optim_config muon = {.kind = LS_MUON, .momentum = 0.95f};
    for (int hidden = 0; hidden < 2; hidden++) {
        assert_int_equal(ls_optimizer_states(&adamw, hidden), 2);
        assert_string_equal(ls_optimizer_state_name(&adamw, hidden, 0), "exp_avg");
        assert_string_equal(ls_optimizer_state_name(&adamw, hidden, 1), "exp_avg_sq");
        assert_int_equal(ls_optimizer_states(&plain, hidden), 0);
        assert_int_equal(ls_optimizer_states(&sgd, hidden), 1);
        assert_string_equal(ls_optimizer_state_name(&sgd, hidden, 0), "momentum_buffer");
        assert_int_equal(ls_optimizer_states(&lion, hidden), 1);
        assert_string_equal(ls_optimizer_state_name(&lion, hidden, 0), "exp_avg");
        assert_int_equal(ls_optimizer_states(&muon, hidden), hidden ? 1 : 2);
    }
    assert_string_equal(ls_optimizer_state_name(&muon, true, 0), "momentum_buffer");
    assert_string_equal(ls_optimizer_state_name(&muon, false, 0), "exp_avg");
    assert_string_equal(ls_optimizer_state_name(&muon, false, 1), "exp_avg_sq");
    assert_int_equal(ls_optimizer_states_most(&muon), 2);
    assert_int_equal(ls_optimizer_states_most(&sgd), 1);
}

SUITE_MAIN(NULL, NULL)
