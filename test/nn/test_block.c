/* Whole blocks against a plain double-precision block written here. Its central differences are the
 * true gradients; ours are compared by the ratio of norms and the cosine. */
#include "../support/suite.h"
#include "held.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2, TOKENS = 5, ROWS = SEQUENCES * TOKENS, CHANNELS = 16, FFN_MAX = 24 };
enum { QUERY_MAX = 32, QKV_MAX = 3 * QUERY_MAX, STREAM = ROWS * CHANNELS };
enum { LAYER = 1, STEP = 7, FIRST_SEQUENCE = 3 };

/* The block's parameters, NULL for one that it has not. A stacked weight is its first part. */
struct block_params {
    const struct ls_param *norm1_weight, *norm1_bias, *qkv_weight, *qkv_bias, *proj_weight,
        *proj_bias, *norm2_weight, *norm2_bias, *up_weight, *up_bias, *down_weight, *down_bias;
};

/* The first of two names that exists. */
static const struct ls_param *either(const struct ls_params *params, const char *a, const char *b)
{
    const struct ls_param *param = ls_params_find(params, a);
    return param ? param : ls_params_find(params, b);
}

static struct block_params block_params_of(const struct ls_params *params)
{
    return (struct block_params){
        .norm1_weight = either(params, "h.0.ln_1.weight", "h.0.norm_1.weight"),
        .norm1_bias = ls_params_find(params, "h.0.ln_1.bias"),
        .qkv_weight = ls_params_find(params, "h.0.attn.q.weight"),
        .qkv_bias = ls_params_find(params, "h.0.attn.q.bias"),
        .proj_weight = ls_params_find(params, "h.0.attn.proj.weight"),
        .proj_bias = ls_params_find(params, "h.0.attn.proj.bias"),
        .norm2_weight = either(params, "h.0.ln_2.weight", "h.0.norm_2.weight"),
        .norm2_bias = ls_params_find(params, "h.0.ln_2.bias"),
        .up_weight = either(params, "h.0.mlp.gate.weight", "h.0.mlp.up.weight"),
        .up_bias = either(params, "h.0.mlp.gate.bias", "h.0.mlp.up.bias"),
        .down_weight = ls_params_find(params, "h.0.mlp.down.weight"),
        .down_bias = ls_params_find(params, "h.0.mlp.down.bias"),
    };
}

/* ---- the reference --------------------------------------------------------------------------- */

struct reference {
    const struct ls_model_config *config;
    struct block_params place;
    const struct ls_params *params;
    double *p; /* all parameters, laid out as ours */
    double x[STREAM], dy[STREAM];
    float mask1[STREAM], mask2[STREAM]; /* dropout: 0 or 1 / (1 - p) */
};

static void norm_row(const struct ls_model_config *c, const double *w, const double *b,
                     const double *x, double *y)
{
    double mean = 0, square = 0;
    for (int64_t i = 0; i < c->channels; i++)
        mean += c->arch == LS_GPT2 ? x[i] / (double)c->channels : 0;
    for (int64_t i = 0; i < c->channels; i++)
        square += (x[i] - mean) * (x[i] - mean) / (double)c->channels;
    for (int64_t i = 0; i < c->channels; i++)
        y[i] = (x[i] - mean) / sqrt(square + (double)c->norm_epsilon) * w[i] + (b ? b[i] : 0);
}

static void linear_row(int64_t out, int64_t in, const double *w, const double *b, const double *x,
                       double *y)
{
    for (int64_t o = 0; o < out; o++) {
        y[o] = b ? b[o] : 0;
        for (int64_t i = 0; i < in; i++)
            y[o] += w[o * in + i] * x[i];
    }
}

static void rotate_row(const struct ls_model_config *c, int64_t t, double *qk)
{
    int64_t half = c->head_dim / 2;
    for (int64_t head = 0; head < c->heads + c->kv_heads; head++)
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)t * pow(c->rope_theta, -2.0 * (double)i / (double)c->head_dim);
            double *low = &qk[head * c->head_dim + i], *high = low + half, x = *low, y = *high;
            *low = x * cos(angle) - y * sin(angle);
            *high = y * cos(angle) + x * sin(angle);
        }
}

/* One query row of one sequence; qkv [T, (H + 2G) D]. */
static void attention_row(const struct ls_model_config *c, int64_t t, double qkv[][QKV_MAX],
                          double *o)
{
    int64_t d = c->head_dim, per_group = c->heads / c->kv_heads;
    for (int64_t head = 0; head < c->heads; head++) {
        int64_t q = head * d, k = (c->heads + head / per_group) * d, v = k + c->kv_heads * d;
        double weight[TOKENS], sum = 0;
        for (int64_t s = 0; s <= t; s++) {
            double dot = 0;
            for (int64_t i = 0; i < d; i++)
                dot += qkv[t][q + i] * qkv[s][k + i];
            weight[s] = exp(dot / sqrt((double)d));
            sum += weight[s];
        }
        for (int64_t i = 0; i < d; i++) {
            o[q + i] = 0;
            for (int64_t s = 0; s <= t; s++)
                o[q + i] += weight[s] / sum * qkv[s][v + i];
        }
    }
}

static void activation_row(const struct ls_model_config *c, const double *f, double *g)
{
    for (int64_t i = 0; i < c->ffn; i++) {
        double x = f[i];
        if (c->act == LS_ACT_SWIGLU)
            g[i] = x / (1 + exp(-x)) * f[c->ffn + i];
        else if (c->act == LS_ACT_GELU_ERF)
            g[i] = x * (1 + erf(x / sqrt(2.0))) / 2;
        else
            g[i] = x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x))) / 2;
    }
}

static const double *at(const struct reference *r, const struct ls_param *param)
{
    return param ? r->p + held_place(r->params, param) : NULL;
}

static void block_in_double(const struct reference *r, double *out)
{
    const struct ls_model_config *c = r->config;
    const struct block_params *n = &r->place;
    int64_t q = c->heads * c->head_dim, width = q + 2 * c->kv_heads * c->head_dim;
    int64_t up = c->act == LS_ACT_SWIGLU ? 2 * c->ffn : c->ffn;
    for (int64_t s = 0; s < SEQUENCES; s++) {
        double qkv[TOKENS][QKV_MAX];
        for (int64_t t = 0; t < TOKENS; t++) {
            double a[CHANNELS];
            norm_row(c, at(r, n->norm1_weight), at(r, n->norm1_bias),
                     r->x + (s * TOKENS + t) * CHANNELS, a);
            linear_row(width, CHANNELS, at(r, n->qkv_weight), at(r, n->qkv_bias), a, qkv[t]);
            if (c->arch == LS_LLAMA)
                rotate_row(c, t, qkv[t]);
        }
        for (int64_t t = 0; t < TOKENS; t++) {
            int64_t row = (s * TOKENS + t) * CHANNELS;
            double o[QUERY_MAX], y[CHANNELS], h[CHANNELS], a[CHANNELS], f[2 * FFN_MAX], g[FFN_MAX];
            attention_row(c, t, qkv, o);
            linear_row(CHANNELS, q, at(r, n->proj_weight), at(r, n->proj_bias), o, y);
            for (int i = 0; i < CHANNELS; i++)
                h[i] = r->x[row + i] + y[i] * (double)r->mask1[row + i];
            norm_row(c, at(r, n->norm2_weight), at(r, n->norm2_bias), h, a);
            linear_row(up, CHANNELS, at(r, n->up_weight), at(r, n->up_bias), a, f);
            activation_row(c, f, g);
            linear_row(CHANNELS, c->ffn, at(r, n->down_weight), at(r, n->down_bias), g, y);
            for (int i = 0; i < CHANNELS; i++)
                out[row + i] = h[i] + y[i] * (double)r->mask2[row + i];
        }
    }
}

/* What is differentiated: sum of out * dy. */
static double objective(const struct reference *r)
{
    double out[STREAM], sum = 0;
    block_in_double(r, out);
    for (int i = 0; i < STREAM; i++)
        sum += out[i] * r->dy[i];
    return sum;
}

/* ---- ours ------------------------------------------------------------------------------------ */

struct fixture {
    struct ls_model_config config;
    struct ls_numerics numerics;
    struct ls_ops ops;
    struct held held;
    struct ls_arena arena;
    void *x, *dy;
    struct ls_model *model;
    struct reference reference;
    double tolerance;
};

static void fixture_take(struct fixture *f, struct ls_arena *arena)
{
    struct ls_error error = {0};
    size_t act = ls_dtype_bytes(f->numerics.act);
    f->reference.p = ls_arena_take(arena, (size_t)f->held.params.elements * sizeof(double));
    f->x = ls_arena_take(arena, STREAM * act);
    f->dy = ls_arena_take(arena, STREAM * act);
    /* The block alone: its input and its output's gradient are the caller's. */
    static const bool block[] = {false, true, false};
    struct ls_model_options options = {.config = &f->config,
                                       .numerics = &f->numerics,
                                       .params = &f->held.params,
                                       .weights = f->held.weights,
                                       .layers = block,
                                       .chunk_first = block,
                                       .sequences = SEQUENCES,
                                       .tokens = TOKENS,
                                       .slots = 1,
                                       .training = true};
    assert_ok(ls_model_new(&options, arena, &f->model, &error), error);
}

/* Normal values as both sides see them: rounded to the activation type. */
static void stream_fill(struct fixture *f, const char *purpose, void *ours, double *theirs)
{
    float values[STREAM];
    ls_normal_fill(ls_philox_key_of(8, purpose), 0, STREAM, 0, 1, values);
    for (int i = 0; i < STREAM; i++) {
        if (f->numerics.act != LS_F32) {
            ((ls_half *)ours)[i] = ls_f32_to_half(f->numerics.act, values[i]);
            theirs[i] = ls_half_to_f32(f->numerics.act, ((ls_half *)ours)[i]);
        } else {
            ((float *)ours)[i] = values[i];
            theirs[i] = values[i];
        }
    }
}

/* Every parameter normal around its kind's usual value; matrices as the compute type has them. */
static void params_fill(struct fixture *f)
{
    const struct ls_params *params = &f->held.params;
    for (int i = 0; i < params->count; i++) {
        const struct ls_param *p = &params->list[i];
        ls_normal_fill(ls_philox_key_of(8, p->name), 0, p->rows * p->cols,
                       p->init == LS_INIT_ONE ? 1 : 0, 0.25, held_values(&f->held, p));
    }
    held_publish(&f->held, &f->ops);
    for (int i = 0; i < params->count; i++) {
        const struct ls_param *p = &params->list[i];
        int64_t first = held_place(params, p);
        for (int64_t j = first; j < first + p->rows * p->cols; j++)
            f->reference.p[j] = f->held.compute && p->matrix
                                    ? ls_half_to_f32(f->held.act, f->held.compute[j])
                                    : f->held.values[j];
    }
}

/* What dropout multiplies by at one place: the op on ones, with the key that this place has. */
static void mask_fill(struct fixture *f, const char *place, float *mask)
{
    char purpose[64];
    float ones[STREAM];
    for (int i = 0; i < STREAM; i++)
        mask[i] = ones[i] = 1;
    snprintf(purpose, sizeof purpose, "dropout:%d:%d:%s", STEP, LAYER, place);
    struct ls_dropout dropout = {.key = ls_philox_key_of(f->config.seed, purpose),
                                 .p = f->config.dropout,
                                 .rows = ROWS,
                                 .channels = CHANNELS,
                                 .first_row = FIRST_SEQUENCE * TOKENS};
    if (f->config.dropout > 0)
        ls_dropout(&f->ops, LS_F32, &dropout, ones, mask);
}

static void fixture_open(struct fixture *f, const struct ls_model_config *config, enum ls_dtype act)
{
    struct ls_error error = {0};
    memset(f, 0, sizeof *f);
    f->config = *config;
    f->numerics =
        (struct ls_numerics){.act = act, .tp_tiles = 2, .seq_tiles = 1, .leaf_sequences = 1};
    /* float32: a few hundred roundings of 2^-24 each. Halves: every activation and every gradient
     * between ops is rounded to 8 bits, a relative 2^-9 each time, or 11 bits of fp16; about twenty
     * such roundings, independent of each other, lie between a gradient and its true value, and
     * softmax's gradient is a difference of terms about twice as large as itself. */
    f->tolerance = act == LS_F32 ? 5e-6 : 2 * (act == LS_BF16 ? 0x1p-9 : 0x1p-12) * sqrt(20);
    assert_int_equal(ls_ops_init(&f->ops, 2, ls_isa_best(), &error), LS_OK);
    held_open(&f->held, &f->config, &f->numerics, NULL);
    struct ls_arena measure;
    ls_arena_measure(&measure);
    fixture_take(f, &measure);
    ls_model_free(f->model);
    assert_int_equal(ls_arena_init(&f->arena, measure.peak, &error), LS_OK);
    fixture_take(f, &f->arena);
    params_fill(f);
    f->reference.config = &f->config;
    f->reference.params = &f->held.params;
    f->reference.place = block_params_of(&f->held.params);
    stream_fill(f, "x", f->x, f->reference.x);
    stream_fill(f, "dy", f->dy, f->reference.dy);
    mask_fill(f, "attention", f->reference.mask1);
    mask_fill(f, "mlp", f->reference.mask2);
}

static void fixture_close(struct fixture *f)
{
    ls_model_free(f->model);
    ls_arena_release(&f->arena);
    held_close(&f->held);
    ls_ops_release(&f->ops);
}

static void block_run(struct fixture *f)
{
    struct ls_error error = {0};
    struct ls_micro_batch batch = {.sequences = SEQUENCES,
                                   .tokens = TOKENS,
                                   .first_sequence = FIRST_SEQUENCE,
                                   .step = STEP,
                                   .training = true,
                                   .input = f->x,
                                   .d_output = f->dy};
    struct ls_gradient gradient = held_target(&f->held, LAYER, false, false);
    assert_int_equal(ls_layer_forward(f->model, &f->ops, LAYER, &batch, NULL, &error), LS_OK);
    assert_int_equal(ls_layer_backward_input(f->model, &f->ops, LAYER, &batch, &error), LS_OK);
    assert_int_equal(ls_layer_backward_weight(f->model, &f->ops, LAYER, &batch, &gradient, &error),
                     LS_OK);
}

/* ---- comparison ------------------------------------------------------------------------------ */

static double value_at(enum ls_dtype act, const void *values, int64_t i)
{
    return act != LS_F32 ? (double)ls_half_to_f32(act, ((const ls_half *)values)[i])
                         : (double)((const float *)values)[i];
}

struct likeness {
    double got, want, dot; /* squared norms and product */
};

static struct likeness compare(struct fixture *f, double *values, int64_t count, enum ls_dtype act,
                               const void *ours)
{
    struct likeness like = {0, 0, 0};
    for (int64_t i = 0; i < count; i++) {
        double kept = values[i], step = 1e-5;
        values[i] = kept + step;
        double above = objective(&f->reference);
        values[i] = kept - step;
        double want = (above - objective(&f->reference)) / (2 * step), got = value_at(act, ours, i);
        values[i] = kept;
        like.got += got * got;
        like.want += want * want;
        like.dot += got * want;
    }
    return like;
}

/* An error of relative size e changes the norm by at most e and the cosine by e^2 / 2. */
static bool alike(const struct likeness *like, double tolerance)
{
    double ratio = sqrt(like->got / like->want), cosine = like->dot / sqrt(like->got * like->want);
    return fabs(ratio - 1) <= tolerance && 1 - cosine <= tolerance * tolerance / 2 + 1e-13;
}

static void check_like(const struct fixture *f, const char *what, const struct likeness *like)
{
    if (!alike(like, f->tolerance))
        fail_msg("%s %s: norm ratio %.9g, 1 - cosine %.3g, tolerance %.3g",
                 ls_dtype_name(f->numerics.act), what, sqrt(like->got / like->want),
                 1 - like->dot / sqrt(like->got * like->want), f->tolerance);
}

static void check_output(struct fixture *f)
{
    double want[STREAM], error = 0, norm = 0;
    block_in_double(&f->reference, want);
    for (int i = 0; i < STREAM; i++) {
        double difference =
            value_at(f->numerics.act, ls_model_output(f->model, LAYER, 0), i) - want[i];
        error += difference * difference;
        norm += want[i] * want[i];
    }
    if (!(sqrt(error / norm) <= f->tolerance))
        fail_msg("%s output: relative distance %.3g, tolerance %.3g",
                 ls_dtype_name(f->numerics.act), sqrt(error / norm), f->tolerance);
}

static void check_block(struct ls_model_config config, enum ls_dtype act)
{
    struct fixture f;
    fixture_open(&f, &config, act);
    block_run(&f);
    check_output(&f);
    struct likeness like =
        compare(&f, f.reference.x, STREAM, act, ls_model_input_gradient(f.model, LAYER));
    check_like(&f, "input", &like);
    double bias_norm = 0;
    for (int i = 0; i < f.held.params.count; i++) {
        const struct ls_param *p = &f.held.params.list[i];
        if (f.held.params.units[p->unit].layer != LAYER)
            continue;
        like = compare(&f, f.reference.p + held_place(&f.held.params, p), p->rows * p->cols, LS_F32,
                       held_gradient(&f.held, p));
        if (strstr(p->name, "attn.q.bias"))
            bias_norm = sqrt(like.want);
        /* Softmax does not see a constant added to all keys' products: this gradient is zero. */
        if (strstr(p->name, "attn.k.bias")) {
            if (!(sqrt(like.got) <= 2 * f.tolerance * bias_norm))
                fail_msg("%s: norm %.3g, expected rounding of the query's %.3g", p->name,
                         sqrt(like.got), bias_norm);
            continue;
        }
        check_like(&f, p->name, &like);
    }
    fixture_close(&f);
}

static struct ls_model_config gpt2_model(void)
{
    return (struct ls_model_config){.arch = LS_GPT2,
                                    .vocab = 20,
                                    .vocab_padded = 20,
                                    .layers = 1,
                                    .channels = CHANNELS,
                                    .heads = 4,
                                    .kv_heads = 4,
                                    .head_dim = 8,
                                    .ffn = FFN_MAX,
                                    .context = TOKENS,
                                    .tied = true,
                                    .bias = true,
                                    .act = LS_ACT_GELU_TANH,
                                    .norm_epsilon = 1e-5f,
                                    .seed = 5};
}

static struct ls_model_config llama_model(int64_t kv_heads)
{
    struct ls_model_config config = gpt2_model();
    config.arch = LS_LLAMA;
    config.kv_heads = kv_heads;
    config.bias = false;
    config.act = LS_ACT_SWIGLU;
    config.rope_theta = 100;
    return config;
}

CASE(test_gpt2)
{
    check_block(gpt2_model(), LS_F32);
}

CASE(test_gpt2_variants)
{
    struct ls_model_config erf_form = gpt2_model(), no_bias = gpt2_model(), both = gpt2_model();
    erf_form.act = LS_ACT_GELU_ERF;
    check_block(erf_form, LS_F32);
    no_bias.bias = false;
    check_block(no_bias, LS_F32);
    both.dropout = 0.3f;
    check_block(both, LS_F32);
}

CASE(test_llama)
{
    check_block(llama_model(4), LS_F32);
    check_block(llama_model(2), LS_F32);
    struct ls_model_config dropping = llama_model(2);
    dropping.dropout = 0.2f;
    check_block(dropping, LS_F32);
}

static void check_half(enum ls_dtype act)
{
    struct ls_model_config dropping = gpt2_model();
    dropping.dropout = 0.3f;
    check_block(gpt2_model(), act);
    check_block(llama_model(2), act);
    check_block(dropping, act);
}

CASE(test_bf16)
{
    check_half(LS_BF16);
}

CASE(test_fp16)
{
    check_half(LS_F16);
}

/* The broken twins: another dropout mask in the backward, and a gradient that lost one row, must
 * not pass. */
CASE(test_wrong_gradients_are_seen)
{
    struct fixture f;
    struct ls_model_config config = gpt2_model();
    config.dropout = 0.1f;
    fixture_open(&f, &config, LS_F32);
    block_run(&f);
    float *dx = (float *)ls_model_input_gradient(f.model, LAYER);
    f.reference.mask1[f.reference.mask1[0] > 0 ? 0 : 1] *= 0.5f;
    struct likeness like = compare(&f, f.reference.x, STREAM, LS_F32, dx);
    assert_false(alike(&like, f.tolerance));
    mask_fill(&f, "attention", f.reference.mask1);
    like = compare(&f, f.reference.x, STREAM, LS_F32, dx);
    assert_true(alike(&like, f.tolerance));
    memset(dx + 3 * CHANNELS, 0, CHANNELS * sizeof *dx);
    like = compare(&f, f.reference.x, STREAM, LS_F32, dx);
    assert_false(alike(&like, f.tolerance));
    fixture_close(&f);
}

SUITE_MAIN(NULL, NULL)
