/* The head: its loss and gradients against double precision, and the order of the leaves' sum of
 * its weight gradient for every way in which logits are grouped. */
#include "../support/suite.h"
#include "nn/model.h"
#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = TINY_VOCAB, PADDED = TINY_PADDED, CHANNELS = TINY_CHANNELS };
enum { TOKENS = 5, LEAVES_MAX = 12 };

struct fixture {
    struct tiny tiny;
    int32_t targets[LEAVES_MAX * TOKENS];
    const float *weights; /* of as many; NULL: none */
};

static void fixture_open(struct fixture *f, enum ls_arch arch, enum ls_dtype act, int64_t sequences,
                         int64_t logits_bytes)
{
    f->tiny = tiny_of(arch);
    f->tiny.numerics.act = act;
    f->tiny.numerics.tp_tiles = 2;
    f->weights = NULL;
    tiny_open(&f->tiny, 2);
    tiny_model(&f->tiny, (struct ls_model_options){.slots = 1,
                                                   .sequences = sequences,
                                                   .tokens = TOKENS,
                                                   .training = true,
                                                   .adding = true,
                                                   .logits_bytes = logits_bytes});
    for (int i = 0; i < LEAVES_MAX * TOKENS; i++)
        f->targets[i] = i % 7 == 3 ? -1 : (i * 5) % VOCAB; /* some tokens have no loss */
}

/* What the last block would hand over, from row first on: the same values for the same rows. */
static void input_fill(struct fixture *f, int64_t first_row, int64_t rows)
{
    float values[LEAVES_MAX * TOKENS * CHANNELS];
    ls_normal_fill(ls_philox_key_of(2, "x"), first_row * CHANNELS, rows * CHANNELS, 0, 1, values);
    void *out = (void *)ls_model_output(f->tiny.model, 1, 0);
    if (f->tiny.numerics.act == LS_BF16)
        ls_cast_to_half(&f->tiny.ops, LS_BF16, rows * CHANNELS, values, out);
    else
        memcpy(out, values, (size_t)(rows * CHANNELS) * sizeof *values);
}

static const float scale = 1.0f / 64;

/* Forward and both backward halves of the head over leaves [first, first + leaves). */
static void head_run(struct fixture *f, int64_t first, int64_t leaves, enum ls_onto onto)
{
    struct ls_micro_batch batch = {.sequences = leaves,
                                   .tokens = TOKENS,
                                   .targets = f->targets + first * TOKENS,
                                   .weights = f->weights ? f->weights + first * TOKENS : NULL,
                                   .first_sequence = first,
                                   .training = true,
                                   .gradient_scale = scale};
    input_fill(f, first * TOKENS, leaves * TOKENS);
    held_forward(&f->tiny.held, f->tiny.model, &f->tiny.ops, 2, 3, &batch, onto);
    held_backward(&f->tiny.held, f->tiny.model, &f->tiny.ops, 2, 3, &batch, onto);
}

static const struct ls_param *param_of(const struct fixture *f, const char *name)
{
    return ls_params_find(&f->tiny.held.params, name);
}

static float *weight_gradient(struct fixture *f)
{
    return held_gradient(&f->tiny.held, param_of(f, "head.weight"));
}

/* ---- against double -------------------------------------------------------------------------- */

struct reference {
    bool layernorm;
    int64_t rows;
    const int32_t *targets;
    const float *weights;
    double epsilon, x[LEAVES_MAX * TOKENS * CHANNELS], weight[PADDED * CHANNELS],
        norm_weight[CHANNELS], norm_bias[CHANNELS];
};

static double row_loss(const struct reference *r, int64_t row)
{
    const double *x = r->x + row * CHANNELS;
    double mean = 0, square = 0, a[CHANNELS], z[VOCAB], sum = 0;
    for (int i = 0; i < CHANNELS; i++)
        mean += r->layernorm ? x[i] / CHANNELS : 0;
    for (int i = 0; i < CHANNELS; i++)
        square += (x[i] - mean) * (x[i] - mean) / CHANNELS;
    for (int i = 0; i < CHANNELS; i++)
        a[i] = (x[i] - mean) / sqrt(square + r->epsilon) * r->norm_weight[i] + r->norm_bias[i];
    for (int v = 0; v < VOCAB; v++) {
        z[v] = 0;
        for (int i = 0; i < CHANNELS; i++)
            z[v] += a[i] * r->weight[v * CHANNELS + i];
        sum += exp(z[v]);
    }
    double weight = r->weights ? (double)r->weights[row] : 1;
    return r->targets[row] < 0 ? 0 : weight * (log(sum) - z[r->targets[row]]);
}

static double total_loss(const struct reference *r)
{
    double sum = 0;
    for (int64_t row = 0; row < r->rows; row++)
        sum += row_loss(r, row);
    return sum;
}

/* Central differences of the scaled loss with respect to values[count], against ours: the ratio of
 * norms and the cosine. */
static bool gradient_is(const struct reference *r, const char *what, double *values, int64_t count,
                        const float *ours)
{
    double gg = 0, ww = 0, gw = 0;
    for (int64_t i = 0; i < count; i++) {
        double kept = values[i], step = 1e-5;
        values[i] = kept + step;
        double above = total_loss(r);
        values[i] = kept - step;
        double want = (above - total_loss(r)) / (2 * step) * (double)scale, got = ours[i];
        values[i] = kept;
        gg += got * got;
        ww += want * want;
        gw += got * want;
    }
    double ratio = sqrt(gg / ww), cosine = gw / sqrt(gg * ww);
    bool near = fabs(ratio - 1) < 2e-6 && 1 - cosine < 1e-11;
    if (!near)
        print_message("%s: norm ratio %.9g, 1 - cosine %.3g\n", what, ratio, 1 - cosine);
    return near;
}

static void check_gradient(const struct reference *r, const char *what, double *values,
                           int64_t count, const float *ours)
{
    assert_true(gradient_is(r, what, values, count, ours));
}

/* twin: the gradients are those of a loss without weights. */
static void check_against_double(enum ls_arch arch, int64_t leaves, const float *weights, bool twin)
{
    struct fixture f;
    fixture_open(&f, arch, LS_F32, leaves, 0);
    f.weights = twin ? NULL : weights;
    head_run(&f, 0, leaves, LS_ONTO_NOTHING);
    struct reference r = {.layernorm = arch == LS_GPT2,
                          .rows = leaves * TOKENS,
                          .targets = f.targets,
                          .weights = weights,
                          .epsilon = (double)f.tiny.config.norm_epsilon};
    const struct ls_param *weight = param_of(&f, "head.weight");
    const struct ls_param *norm_bias = param_of(&f, "ln_f.bias");
    const struct ls_param *norm_weight =
        param_of(&f, arch == LS_GPT2 ? "ln_f.weight" : "norm_f.weight");
    for (int64_t i = 0; i < r.rows * CHANNELS; i++)
        r.x[i] = ((const float *)ls_model_output(f.tiny.model, 1, 0))[i];
    for (int i = 0; i < PADDED * CHANNELS; i++)
        r.weight[i] = held_values(&f.tiny.held, weight)[i];
    for (int i = 0; i < CHANNELS; i++) {
        r.norm_weight[i] = held_values(&f.tiny.held, norm_weight)[i];
        r.norm_bias[i] = norm_bias ? held_values(&f.tiny.held, norm_bias)[i] : 0;
    }
    if (twin) {
        assert_false(gradient_is(&r, "twin", r.weight, VOCAB * CHANNELS, weight_gradient(&f)));
        tiny_close(&f.tiny);
        return;
    }
    for (int64_t leaf = 0; leaf < leaves; leaf++) {
        double want = 0, got = ls_model_losses(f.tiny.model)[leaf];
        for (int64_t t = 0; t < TOKENS; t++)
            want += row_loss(&r, leaf * TOKENS + t);
        if (!(fabs(got - want) < 2e-6 * fabs(want)))
            fail_msg("leaf %ld: loss %.9g, expected %.9g", (long)leaf, got, want);
    }
    check_gradient(&r, "input", r.x, r.rows * CHANNELS, ls_model_input_gradient(f.tiny.model, 2));
    check_gradient(&r, "weight", r.weight, VOCAB * CHANNELS, weight_gradient(&f));
    check_gradient(&r, "norm weight", r.norm_weight, CHANNELS,
                   held_gradient(&f.tiny.held, norm_weight));
    if (norm_bias)
        check_gradient(&r, "norm bias", r.norm_bias, CHANNELS,
                       held_gradient(&f.tiny.held, norm_bias));
    for (int i = VOCAB * CHANNELS; i < PADDED * CHANNELS; i++)
        if (weight_gradient(&f)[i] != 0)
            fail_msg("a padding row has gradient %g", (double)weight_gradient(&f)[i]);
    tiny_close(&f.tiny);
}

CASE(test_against_double)
{
    check_against_double(LS_GPT2, 3, NULL, false);
    check_against_double(LS_LLAMA, 4, NULL, false);
}

CASE(test_weights_against_double)
{
    float weights[LEAVES_MAX * TOKENS];
    for (int i = 0; i < LEAVES_MAX * TOKENS; i++)
        weights[i] = i % 6 == 2 ? 0 : 0.3f * (float)(i % 9) - 0.7f;
    check_against_double(LS_GPT2, 3, weights, false);
    check_against_double(LS_LLAMA, 4, weights, false);
    check_against_double(LS_LLAMA, 4, weights, true);
}

/* ---- the order of the leaves' sum ------------------------------------------------------------ */

enum { WEIGHTS = PADDED * CHANNELS };

/* The chain over leaves [0, count), onto a sum or not. */
static void chain_by_hand(float leaf[][WEIGHTS], int64_t count, bool onto, float *sum)
{
    for (int64_t i = 0; i < count; i++)
        for (int j = 0; j < WEIGHTS; j++)
            sum[j] = i || onto ? sum[j] + leaf[i][j] : leaf[i][j];
}

/* group: leaves whose logits fit at once. */
static void check_order(enum ls_dtype act, int64_t leaves, int64_t group, int threads,
                        float leaf[][WEIGHTS], const float *losses)
{
    struct fixture f;
    float expected[WEIGHTS];
    int64_t leaf_bytes = TOKENS * PADDED * (int64_t)ls_dtype_bytes(act);
    fixture_open(&f, LS_GPT2, act, leaves, group * leaf_bytes);
    f.tiny.ops.threads = threads;
    int64_t most = ls_min(group, leaves);
    assert_int_equal(f.tiny.model->losses.group_units, most);
    float *weight = weight_gradient(&f);
    for (int onto = LS_ONTO_NOTHING; onto <= LS_ONTO_SUM; onto++) {
        ls_normal_fill(ls_philox_key_of(4, "before"), 0, WEIGHTS, 0, 1, expected);
        memcpy(weight, expected, sizeof expected);
        chain_by_hand(leaf, leaves, onto, expected);
        head_run(&f, 0, leaves, (enum ls_onto)onto);
        if (memcmp(weight, expected, sizeof expected))
            fail_msg("%s, %ld leaves in groups of %ld, %d threads: not the chain over leaves",
                     ls_dtype_name(act), (long)leaves, (long)most, threads);
        if (memcmp(ls_model_losses(f.tiny.model), losses, (size_t)leaves * sizeof *losses))
            fail_msg("%ld leaves in groups of %ld: other losses than leaf by leaf", (long)leaves,
                     (long)most);
    }
    tiny_close(&f.tiny);
}

CASE(test_weight_gradient_is_the_chain_over_leaves)
{
    static const int64_t counts[] = {1, 2, 3, 4, 6, 8, 12}, groups[] = {1, 2, 3, 4, 8, 16};
    for (int a = 0; a < 2; a++) {
        enum ls_dtype act = a ? LS_BF16 : LS_F32;
        static float leaf[LEAVES_MAX][WEIGHTS];
        float losses[LEAVES_MAX];
        struct fixture f;
        fixture_open(&f, LS_GPT2, act, 1, 0);
        for (int64_t i = 0; i < LEAVES_MAX; i++) {
            head_run(&f, i, 1, LS_ONTO_NOTHING);
            memcpy(leaf[i], weight_gradient(&f), sizeof leaf[i]);
            losses[i] = ls_model_losses(f.tiny.model)[0];
        }
        tiny_close(&f.tiny);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++)
                check_order(act, counts[c], groups[g], 1 + (int)(c + g) % 2, leaf, losses);
    }
}

/* The broken twin: the tree over leaves must not pass for the chain. */
CASE(test_another_order_is_seen)
{
    static float leaf[LEAVES_MAX][WEIGHTS];
    float chain[WEIGHTS], tree[WEIGHTS], values[LEAVES_MAX];
    for (int64_t i = 0; i < LEAVES_MAX; i++)
        ls_normal_fill(ls_philox_key_of(6, "leaf"), i * WEIGHTS, WEIGHTS, 0, 1, leaf[i]);
    chain_by_hand(leaf, LEAVES_MAX, false, chain);
    for (int j = 0; j < WEIGHTS; j++) {
        for (int64_t i = 0; i < LEAVES_MAX; i++)
            values[i] = leaf[i][j];
        tree[j] = ls_tree_sum(values, LEAVES_MAX);
    }
    assert_memory_not_equal(tree, chain, sizeof tree);
}

SUITE_MAIN(NULL, NULL)
