/* Causal attention: against a plain double-precision reference, by central differences, and that
 * its bits depend on nothing that a layout may change. */
#include "../support/extent.h"

#include <lockstep/ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/suite.h"
#include "gradient.h"
#include "ops/attention_kernel.h"

/* ---- problems ---- */

enum { Q, K, V, O, D_O, D_Q, D_K, D_V, MATRICES };
static const char *const matrix_names[] = {"q", "k", "v", "o", "d_o", "d_q", "d_k", "d_v"};

struct problem {
    int64_t batch, tokens, heads, kv_heads, dim;
    enum ls_dtype act;
    int64_t q_pad, kv_pad, o_pad; /* ld minus width */
    int64_t window;
    float softcap;
    int64_t document; /* tokens of the first one; each is 3 longer than the one before. 0: none */
};

/* A problem with its buffers. Gaps between rows hold a pattern that must survive. */
struct instance {
    struct problem p;
    struct ls_attention a;
    int32_t *starts; /* [B, T] */
    void *matrix[MATRICES];
    int64_t elements[MATRICES];
};

static int64_t width_of(const struct problem *p, int m)
{
    return (m == K || m == V || m == D_K || m == D_V ? p->kv_heads : p->heads) * p->dim;
}

static int64_t ld_of(const struct problem *p, int m)
{
    int64_t pad = m == Q || m == D_Q ? p->q_pad : m == O || m == D_O ? p->o_pad : p->kv_pad;
    return width_of(p, m) + pad;
}

static float get(const struct instance *x, int m, int64_t at)
{
    return x->p.act == LS_F32 ? ((float *)x->matrix[m])[at]
                              : ls_half_to_f32(x->p.act, ((ls_half *)x->matrix[m])[at]);
}

static void set(struct instance *x, int m, int64_t at, float value)
{
    if (x->p.act == LS_F32)
        ((float *)x->matrix[m])[at] = value;
    else
        ((ls_half *)x->matrix[m])[at] = ls_f32_to_half(x->p.act, value);
}

enum { GAP = -77 };

static void fill_matrix(struct instance *x, int m, uint64_t seed, double stddev)
{
    struct ls_philox_key key = ls_philox_key_of(seed, matrix_names[m]);
    int64_t ld = ld_of(&x->p, m), width = width_of(&x->p, m);
    float *row = malloc((size_t)width * sizeof *row);
    for (int64_t r = 0; r < x->p.batch * x->p.tokens; r++) {
        ls_normal_fill(key, r * width, width, 0, stddev, row);
        for (int64_t c = 0; c < width; c++)
            set(x, m, r * ld + c, row[c]);
    }
    free(row);
}

/* Where documents start; in odd sequences the first is one token long. */
static int32_t *starts_new(const struct problem *p)
{
    int32_t *starts = malloc((size_t)(p->batch * p->tokens) * sizeof *starts);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t t = 0, start = 0, length = b % 2 ? 1 : p->document; t < p->tokens; t++) {
            if (t == start + length) {
                start = t;
                length = length < p->document ? p->document : length + 3;
            }
            starts[b * p->tokens + t] = (int32_t)start;
        }
    return starts;
}

static struct instance instance_empty(struct problem p)
{
    struct instance x = {.p = p, .starts = p.document ? starts_new(&p) : NULL};
    for (int m = 0; m < MATRICES; m++) {
        x.elements[m] = p.batch * p.tokens * ld_of(&p, m);
        x.matrix[m] = malloc((size_t)x.elements[m] * ls_dtype_bytes(p.act));
        for (int64_t e = 0; e < x.elements[m]; e++)
            set(&x, m, e, GAP);
    }
    x.a =
        (struct ls_attention){.batch = p.batch,
                              .tokens = p.tokens,
                              .heads = p.heads,
                              .kv_heads = p.kv_heads,
                              .head_dim = p.dim,
                              .scale = (float)(1 / sqrt((double)p.dim)),
                              .act = p.act,
                              .q = x.matrix[Q],
                              .k = x.matrix[K],
                              .v = x.matrix[V],
                              .q_ld = ld_of(&p, Q),
                              .kv_ld = ld_of(&p, K),
                              .o_ld = ld_of(&p, O),
                              .o = x.matrix[O],
                              .lse = calloc((size_t)(p.batch * p.heads * p.tokens), sizeof(float)),
                              .d_o = x.matrix[D_O],
                              .d_q = x.matrix[D_Q],
                              .d_k = x.matrix[D_K],
                              .d_v = x.matrix[D_V],
                              .window = p.window,
                              .softcap = p.softcap,
                              .starts = x.starts,
                              .starts_ld = p.tokens};
    return x;
}

static struct instance instance_new(struct problem p, uint64_t seed)
{
    struct instance x = instance_empty(p);
    fill_matrix(&x, Q, seed, 1.5);
    fill_matrix(&x, K, seed, 1.5);
    fill_matrix(&x, V, seed, 1);
    fill_matrix(&x, D_O, seed, 1);
    return x;
}

/* With the inputs of `x`, and no outputs. */
static struct instance instance_again(const struct instance *x)
{
    static const int inputs[] = {Q, K, V, D_O};
    struct instance again = instance_empty(x->p);
    for (int i = 0; i < 4; i++)
        memcpy(again.matrix[inputs[i]], x->matrix[inputs[i]],
               (size_t)x->elements[inputs[i]] * ls_dtype_bytes(x->p.act));
    return again;
}

static void instance_free(struct instance *x)
{
    for (int m = 0; m < MATRICES; m++)
        free(x->matrix[m]);
    free(x->a.lse);
    free(x->starts);
}

/* Kernels are counted: each instruction set in each arithmetic. */
static enum ls_isa isa_of(int kernel)
{
    return (enum ls_isa)(kernel / LS_ARITHMETIC_COUNT);
}

static enum ls_arithmetic arithmetic_of(int kernel)
{
    return (enum ls_arithmetic)(kernel % LS_ARITHMETIC_COUNT);
}

static int kernels_here(void)
{
    return ((int)ls_isa_best() + 1) * LS_ARITHMETIC_COUNT;
}

static int kernel_best_fma(void)
{
    return kernels_here() - LS_ARITHMETIC_COUNT;
}

static const char *kernel_name(int kernel)
{
    static char name[64];
    snprintf(name, sizeof name, "%s, %s", ls_isa_name(isa_of(kernel)),
             ls_arithmetic_name(arithmetic_of(kernel)));
    return name;
}

/* Only bf16 tells the arithmetics apart. */
static bool kernel_is_for(int kernel, enum ls_dtype act)
{
    return act == LS_BF16 || arithmetic_of(kernel) == LS_ARITHMETIC_FMA;
}

/* What queries see and what is done to their scores: nothing; windows within a block, of one key,
 * of a block, over blocks; a cap; documents; all of it. */
static const struct sight {
    int64_t window;
    float softcap;
    int64_t document;
} sights[] = {{0, 0, 0}, {40, 0, 0}, {1, 0, 0},   {64, 0, 0},
              {0, 5, 0}, {0, 0, 9},  {100, 0, 0}, {90, 5, 50}};
enum { SIGHTS = sizeof sights / sizeof sights[0] };

static struct problem seen_as(struct problem p, int sight)
{
    p.window = sights[sight].window;
    p.softcap = sights[sight].softcap;
    p.document = sights[sight].document;
    return p;
}

static struct ls_ops ops_new(int threads, int kernel)
{
    struct ls_ops ops;
    struct ls_error error = {0};
    assert_ok(ls_ops_init(&ops, threads, isa_of(kernel), &error), error);
    ops.arithmetic = arithmetic_of(kernel);
    return ops;
}

static void run_with(struct ls_ops *ops, struct instance *x)
{
    struct ls_error error = {0};
    if (ls_attention_forward(ops, &x->a, &error) != LS_OK ||
        ls_attention_backward(ops, &x->a, &error) != LS_OK)
        fail_msg("%s", error.text);
}

static void run_forward(struct instance *x, int kernel)
{
    struct ls_ops ops = ops_new(2, kernel);
    struct ls_error error = {0};
    assert_ok(ls_attention_forward(&ops, &x->a, &error), error);
    ls_ops_release(&ops);
}

static void run(struct instance *x, int threads, int kernel)
{
    struct ls_ops ops = ops_new(threads, kernel);
    run_with(&ops, x);
    ls_ops_release(&ops);
}

/* ---- the reference ---- */

/* All matrices of one instance in double, densely packed [B * T, width]: inputs copied, outputs
 * computed. */
struct reference {
    double *matrix[MATRICES], *lse;
};

static double at(const struct instance *x, const struct reference *r, int m, int64_t row,
                 int64_t head, int64_t d)
{
    return r->matrix[m][row * width_of(&x->p, m) + head * x->p.dim + d];
}

/* Whether the token at position t of sequence b sees the one at position j. */
static bool sees(const struct instance *x, int64_t b, int64_t t, int64_t j)
{
    return j <= t && (!x->p.window || t - x->p.window < j) &&
           (!x->starts || x->starts[b * x->p.tokens + t] <= j);
}

/* Token t of head h of sequence b: probabilities into p and the derivatives of its scores by the
 * products of queries and keys into slope; returns the log-sum-exp. */
static double softmax_row(const struct instance *x, const struct reference *r, int64_t b, int64_t h,
                          int64_t t, double *p, double *slope)
{
    const int64_t T = x->p.tokens, D = x->p.dim, g = h / (x->p.heads / x->p.kv_heads);
    const double cap = (double)x->p.softcap;
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= t; j++) {
        p[j] = 0;
        for (int64_t d = 0; d < D; d++)
            p[j] += at(x, r, Q, b * T + t, h, d) * at(x, r, K, b * T + j, g, d);
        p[j] *= (double)x->a.scale;
        slope[j] = (double)x->a.scale;
        if (cap > 0) {
            slope[j] *= 1 - pow(tanh(p[j] / cap), 2);
            p[j] = cap * tanh(p[j] / cap);
        }
        if (!sees(x, b, t, j))
            p[j] = -INFINITY;
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j <= t; j++)
        sum += p[j] = exp(p[j] - max);
    for (int64_t j = 0; j <= t; j++)
        p[j] /= sum;
    return max + log(sum);
}

static void reference_row(const struct instance *x, struct reference *r, int64_t b, int64_t h,
                          int64_t t, double *p, double *dp, double *slope)
{
    const int64_t T = x->p.tokens, D = x->p.dim, g = h / (x->p.heads / x->p.kv_heads);
    const int64_t row = (b * T + t) * width_of(&x->p, Q) + h * D;
    r->lse[(b * x->p.heads + h) * T + t] = softmax_row(x, r, b, h, t, p, slope);
    double delta = 0;
    for (int64_t j = 0; j <= t; j++) {
        dp[j] = 0;
        for (int64_t d = 0; d < D; d++) {
            r->matrix[O][row + d] += p[j] * at(x, r, V, b * T + j, g, d);
            dp[j] += at(x, r, D_O, b * T + t, h, d) * at(x, r, V, b * T + j, g, d);
        }
        delta += p[j] * dp[j];
    }
    for (int64_t j = 0; j <= t; j++) {
        const int64_t key = (b * T + j) * width_of(&x->p, K) + g * D;
        const double ds = p[j] * (dp[j] - delta) * slope[j];
        for (int64_t d = 0; d < D; d++) {
            r->matrix[D_Q][row + d] += ds * at(x, r, K, b * T + j, g, d);
            r->matrix[D_K][key + d] += ds * at(x, r, Q, b * T + t, h, d);
            r->matrix[D_V][key + d] += p[j] * at(x, r, D_O, b * T + t, h, d);
        }
    }
}

static struct reference reference_new(const struct instance *x)
{
    const struct problem *p = &x->p;
    struct reference r = {.lse = calloc((size_t)(p->batch * p->heads * p->tokens), sizeof(double))};
    for (int m = 0; m < MATRICES; m++)
        r.matrix[m] = calloc((size_t)(p->batch * p->tokens * width_of(p, m)), sizeof(double));
    static const int inputs[] = {Q, K, V, D_O};
    for (int n = 0; n < 4; n++)
        for (int64_t row = 0, m = inputs[n]; row < p->batch * p->tokens; row++)
            for (int64_t c = 0; c < width_of(p, (int)m); c++)
                r.matrix[m][row * width_of(p, (int)m) + c] =
                    get(x, (int)m, row * ld_of(p, (int)m) + c);
    double *row = malloc((size_t)p->tokens * sizeof *row),
           *dp = malloc((size_t)p->tokens * sizeof *dp),
           *slope = malloc((size_t)p->tokens * sizeof *slope);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t t = 0; t < p->tokens; t++)
                reference_row(x, &r, b, h, t, row, dp, slope);
    free(row);
    free(dp);
    free(slope);
    return r;
}

static void reference_free(struct reference *r)
{
    for (int m = 0; m < MATRICES; m++)
        free(r->matrix[m]);
    free(r->lse);
}

/* Norm ratio and cosine of one output against the reference; the largest error against the
 * reference's root mean square. */
static void compare(const struct instance *x, const struct reference *r, int m, const char *label)
{
    const int64_t rows = x->p.batch * x->p.tokens, width = width_of(&x->p, m), ld = ld_of(&x->p, m);
    double got2 = 0, want2 = 0, dot = 0, worst = 0;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t c = 0; c < width; c++) {
            double got = get(x, m, i * ld + c), want = r->matrix[m][i * width + c];
            got2 += got * got;
            want2 += want * want;
            dot += got * want;
            worst = fmax(worst, fabs(got - want));
        }
        for (int64_t c = width; c < ld; c++)
            if (get(x, m, i * ld + c) != GAP)
                fail_msg("%s: %s: row %lld: the gap between rows was written", label,
                         matrix_names[m], (long long)i);
    }
    /* One token attends to itself alone: d_q and d_k are zero up to rounding. */
    double rms = fmax(sqrt(want2 / (double)(rows * width)), 0.2);
    double tolerance = x->p.act == LS_F32 ? 3e-5 : x->p.act == LS_BF16 ? 0.06 : 8e-3;
    double ratio_tolerance = x->p.act == LS_F32 ? 1e-6 : x->p.act == LS_BF16 ? 4e-3 : 5e-4;
    if (!(worst <= tolerance * rms))
        fail_msg("%s: %s: largest error %g, root mean square of the reference %g", label,
                 matrix_names[m], worst, rms);
    if (rms <= 0.2)
        return;
    double ratio = sqrt(got2 / want2), cosine = dot / sqrt(got2 * want2);
    if (!(fabs(ratio - 1) <= ratio_tolerance) || !(1 - cosine <= ratio_tolerance / 50))
        fail_msg("%s: %s: norm ratio - 1 = %g, 1 - cosine = %g", label, matrix_names[m], ratio - 1,
                 1 - cosine);
}

static void compare_all(const struct instance *x, const struct reference *r, const char *label)
{
    compare(x, r, O, label);
    for (int m = D_Q; m <= D_V; m++)
        compare(x, r, m, label);
    for (int64_t i = 0; i < x->p.batch * x->p.heads * x->p.tokens; i++)
        if (!(fabs((double)x->a.lse[i] - r->lse[i]) <= 2e-5))
            fail_msg("%s: lse[%lld] is %.9g, want %.9g", label, (long long)i, (double)x->a.lse[i],
                     r->lse[i]);
}

enum { ACTS = 3 };
static const enum ls_dtype acts[ACTS] = {LS_F32, LS_BF16, LS_F16};
static const struct problem problems[] = {
    {1, 1, 1, 1, 8, LS_F32, 0, 0, 0, 0, 0, 0},     {2, 7, 2, 1, 8, LS_F32, 3, 1, 5, 0, 0, 0},
    {1, 64, 3, 3, 16, LS_F32, 0, 0, 0, 0, 0, 0},   {1, 65, 2, 2, 24, LS_F32, 8, 0, 0, 0, 0, 0},
    {2, 130, 4, 2, 64, LS_F32, 0, 16, 0, 0, 0, 0}, {1, 200, 6, 2, 40, LS_F32, 0, 0, 8, 0, 0, 0},
    {1, 129, 2, 1, 128, LS_F32, 0, 0, 0, 0, 0, 0}, {1, 70, 1, 1, 256, LS_F32, 0, 0, 0, 0, 0, 0},
    {1, 96, 5, 1, 80, LS_F32, 1, 1, 1, 0, 0, 0},   {1, 260, 7, 1, 32, LS_F32, 0, 0, 0, 0, 0, 0},
};

static void reference_for(struct problem p, size_t seed, const char *label)
{
    struct instance inputs = instance_new(p, seed);
    struct reference r = reference_new(&inputs);
    for (int kernel = 0; kernel < kernels_here(); kernel++) {
        if (!kernel_is_for(kernel, p.act))
            continue;
        struct instance x = instance_again(&inputs);
        run(&x, 2, kernel);
        char what[160];
        snprintf(what, sizeof what, "%s %s %s", kernel_name(kernel), label, ls_dtype_name(p.act));
        compare_all(&x, &r, what);
        instance_free(&x);
    }
    reference_free(&r);
    instance_free(&inputs);
}

CASE(test_reference)
{
    for (size_t n = 0; n < sizeof problems / sizeof problems[0]; n++)
        for (int sight = 0; sight < (n == 3 || (n == 5 && check_all()) ? SIGHTS : 1); sight++)
            for (int a = 0; a < ACTS; a++) {
                if (!check_pair((int)n + sight, a, 3))
                    continue;
                char label[64];
                struct problem p = seen_as(problems[n], sight);
                p.act = acts[a];
                snprintf(label, sizeof label, "problem %zu, sight %d", n, sight);
                reference_for(p, n, label);
            }
}

/* Scores of several hundred: the maximum must be followed, and it rises in the middle of a row. */
CASE(test_large_scores)
{
    for (int kernel = 0; kernel <= kernel_best_fma(); kernel += LS_ARITHMETIC_COUNT) {
        struct instance x =
            instance_new((struct problem){1, 200, 2, 1, 64, LS_F32, 0, 0, 0, 0, 0, 0}, 3);
        fill_matrix(&x, Q, 3, 15);
        fill_matrix(&x, K, 3, 15);
        run(&x, 1, kernel);
        struct reference r = reference_new(&x);
        for (int64_t i = 0; i < 200 * 2 * 64; i++) {
            double got = get(&x, O, i), want = r.matrix[O][i];
            /* A score's own rounding, 2^-24 of several hundred a few times over, is a relative
             * error of p. */
            if (!(fabs(got - want) <= 2e-3))
                fail_msg("%s: o[%lld] is %g, want %g", kernel_name(kernel), (long long)i, got,
                         want);
        }
        reference_free(&r);
        instance_free(&x);
    }
}

/* The weight of the first key, 2^t, is 0 below t = -126 on every set, and not above. */
CASE(test_weights_end_where_numbers_are_subnormal)
{
    static const double ts[] = {-127, -126.49, -126.3, -126.01, -125.99};
    for (int kernel = 0; kernel <= kernel_best_fma(); kernel += LS_ARITHMETIC_COUNT)
        for (int i = 0; i < 5; i++) {
            struct instance x =
                instance_new((struct problem){1, 2, 1, 1, 8, LS_F32, 0, 0, 0, 0, 0, 0}, 3);
            for (int m = Q; m <= D_O; m++)
                fill_matrix(&x, m, 3, 0);
            set(&x, Q, 8, 1);
            set(&x, K, 0, (float)(ts[i] * log(2) * sqrt(8)));
            set(&x, V, 0, 1e6F);
            set(&x, D_O, 8, 1);
            run(&x, 1, kernel);
            bool vanishes = get(&x, O, 8) <= 0 && get(&x, D_K, 0) <= 0;
            if (vanishes != (ts[i] < -126))
                fail_msg("%s: 2^%g: o %g, d_k %g", kernel_name(kernel), ts[i], get(&x, O, 8),
                         get(&x, D_K, 0));
            instance_free(&x);
        }
}

/* ---- central differences ---- */

struct differences {
    struct instance *x;
    struct ls_ops *ops;
    int matrix;
    double *values;
};

/* sum of o * d_o */
static double objective(void *context)
{
    struct differences *c = context;
    struct ls_error error = {0};
    for (int64_t i = 0; i < c->x->elements[c->matrix]; i++)
        set(c->x, c->matrix, i, (float)c->values[i]);
    assert_ok(ls_attention_forward(c->ops, &c->x->a, &error), error);
    double sum = 0;
    for (int64_t i = 0; i < c->x->elements[O]; i++)
        sum += (double)get(c->x, O, i) * get(c->x, D_O, i);
    return sum;
}

static void differences_for(struct problem p)
{
    static const int pairs[][2] = {{Q, D_Q}, {K, D_K}, {V, D_V}};
    struct instance x = instance_new(p, 11);
    struct ls_ops ops = ops_new(1, kernel_best_fma());
    run_with(&ops, &x);
    for (int n = 0; n < 3; n++) {
        int m = pairs[n][0], d_m = pairs[n][1];
        int64_t count = x.elements[m];
        double *values = values_in_double(LS_F32, x.matrix[m], count);
        double *gradient = calloc((size_t)count, sizeof *gradient);
        struct differences context = {&x, &ops, m, values};
        gradient_by_differences(objective, &context, values, count, 1e-2, gradient);
        objective(&context);
        assert_gradient_near(matrix_names[d_m], LS_F32, x.matrix[d_m], gradient, count, 1e-3);
        /* The twin: half the gradient of one token missing must not pass. */
        float *twin = x.matrix[d_m];
        for (int64_t i = count / 2; i < count / 2 + 8; i++)
            twin[i] = twin[i] * 0.5f + 0.05f;
        assert_false(gradient_near("(expected to differ)", LS_F32, twin, gradient, count, 1e-3));
        free(values);
        free(gradient);
    }
    ls_ops_release(&ops);
    instance_free(&x);
}

CASE(test_central_differences)
{
    struct problem p = {1, 66, 2, 1, 8, LS_F32, 0, 0, 0, 0, 0, 0};
    differences_for(p);
    p.window = 20;
    p.softcap = 2;
    p.document = 30;
    differences_for(p);
}

/* ---- bits ---- */

static void assert_same_bits(const char *what, int m, const void *got, const void *want,
                             size_t bytes)
{
    const unsigned char *a = got, *b = want;
    for (size_t i = 0; i < bytes; i++)
        if (a[i] != b[i])
            fail_msg("%s: %s: byte %zu is %02x, want %02x", what, matrix_names[m], i, a[i], b[i]);
}

static void assert_same_outputs(const char *what, const struct instance *got,
                                const struct instance *want)
{
    for (int m = O; m < MATRICES; m++)
        assert_same_bits(what, m, got->matrix[m], want->matrix[m],
                         (size_t)want->elements[m] * ls_dtype_bytes(want->p.act));
    assert_memory_equal(got->a.lse, want->a.lse,
                        (size_t)(want->p.batch * want->p.heads * want->p.tokens) * sizeof(float));
}

static const struct problem bits_problem = {2, 200, 3, 1, 40, LS_F32, 8, 0, 16, 0, 0, 0};

/* Threads, one pass or two, a workspace that holds all key blocks or only a few. */
static void bits_for(struct problem p, int kernel)
{
    struct instance want = instance_new(p, 5);
    run(&want, 1, kernel);
    static const int threads[] = {2, 3, 8, 1, 2, 1};
    static const size_t workspace[] = {0, 0, 0, 200 << 10, 330 << 10, 380 << 10};
    for (int n = 0; n < 6; n++) {
        if (isa_of(kernel) == LS_ISA_PLAIN && !check_pair(n, 0, 3))
            continue;
        struct instance got = instance_again(&want);
        struct ls_ops ops = ops_new(threads[n], kernel);
        const size_t whole = ops.workspace_bytes;
        ops.workspace_bytes = workspace[n] ? workspace[n] : whole;
        run_with(&ops, &got);
        ops.workspace_bytes = whole;
        ls_ops_release(&ops);
        char what[160];
        snprintf(what, sizeof what, "%s %s, %d threads, workspace %zu", kernel_name(kernel),
                 ls_dtype_name(p.act), threads[n], workspace[n]);
        assert_same_outputs(what, &got, &want);
        instance_free(&got);
    }
    instance_free(&want);
}

/* Plain C, which is slow, in `make check` in bf16 alone, in both of its arithmetics. */
static bool is_tried(int kernel, enum ls_dtype act)
{
    return isa_of(kernel) != LS_ISA_PLAIN || act == LS_BF16 || check_all();
}

/* Of the kernels and types those of one `turn` in two (-1: all of them). */
static void for_each_kernel_in(int turn, struct problem p, void (*test)(struct problem, int))
{
    for (int kernel = 0; kernel < kernels_here(); kernel++)
        for (int a = 0; a < ACTS; a++) {
            p.act = acts[a];
            const int place = (int)isa_of(kernel) + (int)arithmetic_of(kernel) + a;
            if (kernel_is_for(kernel, p.act) && is_tried(kernel, p.act) &&
                (turn < 0 || check_pair(place, turn, 2)))
                test(p, kernel);
        }
}

static void for_each_kernel(struct problem p, void (*test)(struct problem, int))
{
    for_each_kernel_in(-1, p, test);
}

/* The same once more with a window, a cap and documents; in `make check` half of them so, and the
 * others without. */
static void for_each_kernel_twice(struct problem p, void (*test)(struct problem, int))
{
    for_each_kernel_in(0, p, test);
    for_each_kernel_in(1, seen_as(p, SIGHTS - 1), test);
}

CASE(test_bits_threads)
{
    for_each_kernel_twice(bits_problem, bits_for);
}

/* Each sequence alone; and the heads of one key/value head alone, as a tensor-parallel rank has
 * them. */
static void cuts_for(struct problem p, int kernel)
{
    struct instance want = instance_new(p, 6), got = instance_again(&want);
    run(&want, 2, kernel);
    struct ls_ops ops = ops_new(2, kernel);
    const size_t bytes = ls_dtype_bytes(p.act);
    const int64_t group = p.heads / p.kv_heads;
    for (int64_t b = 0; b < p.batch; b++)
        for (int64_t g = 0; g < p.kv_heads; g++) {
            struct ls_attention a = got.a;
            struct ls_error error = {0};
            const int64_t row = b * p.tokens;
            const size_t kv = (size_t)(row * a.kv_ld + g * p.dim) * bytes;
            const size_t q = (size_t)(row * a.q_ld + g * group * p.dim) * bytes;
            const size_t o = (size_t)(row * a.o_ld + g * group * p.dim) * bytes;
            a.batch = a.kv_heads = 1;
            a.heads = group;
            a.q = (const char *)a.q + q;
            a.d_q = (char *)a.d_q + q;
            a.k = (const char *)a.k + kv;
            a.v = (const char *)a.v + kv;
            a.d_k = (char *)a.d_k + kv;
            a.d_v = (char *)a.d_v + kv;
            a.o = (char *)a.o + o;
            a.d_o = (const char *)a.d_o + o;
            a.lse += (b * p.heads + g * group) * p.tokens;
            a.starts += a.starts ? b * a.starts_ld : 0;
            if (ls_attention_forward(&ops, &a, &error) || ls_attention_backward(&ops, &a, &error))
                fail_msg("%s", error.text);
        }
    assert_same_outputs("one sequence and one group of heads at a time", &got, &want);
    ls_ops_release(&ops);
    instance_free(&got);
    instance_free(&want);
}

CASE(test_bits_cuts)
{
    for_each_kernel_twice((struct problem){2, 100, 6, 2, 40, LS_F32, 8, 0, 16, 0, 0, 0}, cuts_for);
}

/* Rows packed densely or far apart. */
static void strides_for(struct problem p, int kernel)
{
    struct problem dense = p;
    dense.q_pad = dense.kv_pad = dense.o_pad = 0;
    struct instance want = instance_new(dense, 7), got = instance_new(p, 7);
    run(&want, 2, kernel);
    run(&got, 2, kernel);
    for (int m = O; m < MATRICES; m++)
        for (int64_t r = 0; r < p.batch * p.tokens; r++) {
            const size_t bytes = ls_dtype_bytes(p.act);
            assert_same_bits("row distance", m,
                             (char *)got.matrix[m] + (size_t)(r * ld_of(&p, m)) * bytes,
                             (char *)want.matrix[m] + (size_t)(r * ld_of(&dense, m)) * bytes,
                             (size_t)width_of(&p, m) * bytes);
        }
    instance_free(&got);
    instance_free(&want);
}

CASE(test_bits_strides)
{
    for_each_kernel_twice((struct problem){1, 100, 4, 2, 24, LS_F32, 8, 3, 16, 0, 0, 0},
                          strides_for);
}

/* A token's output depends on no later token: neither on its value nor on its being there. */
static void causality_for(struct problem p, int kernel)
{
    struct problem shorter = p;
    shorter.tokens = 150;
    struct instance want = instance_new(p, 8), changed = instance_again(&want),
                    prefix = instance_new(shorter, 8);
    run(&want, 2, kernel);
    for (int m = Q; m <= V; m++)
        for (int64_t e = 150 * ld_of(&p, m); e < changed.elements[m]; e++)
            set(&changed, m, e, get(&changed, m, e) * -3);
    run(&changed, 2, kernel);
    run(&prefix, 2, kernel);
    const size_t bytes = (size_t)(150 * ld_of(&p, O)) * ls_dtype_bytes(p.act);
    assert_same_bits("later tokens changed", O, changed.matrix[O], want.matrix[O], bytes);
    assert_same_bits("later tokens absent", O, prefix.matrix[O], want.matrix[O], bytes);
    for (int64_t h = 0; h < p.heads; h++) {
        const float *row = want.a.lse + h * p.tokens;
        assert_memory_equal(changed.a.lse + h * p.tokens, row, 150 * sizeof *row);
        assert_memory_equal(prefix.a.lse + h * 150, row, 150 * sizeof *row);
    }
    /* The twin: the changed tokens themselves must differ. */
    assert_memory_not_equal((char *)changed.matrix[O] + bytes, (char *)want.matrix[O] + bytes,
                            bytes / 4);
    instance_free(&prefix);
    instance_free(&changed);
    instance_free(&want);
}

CASE(test_causality)
{
    for_each_kernel_twice((struct problem){1, 210, 2, 2, 64, LS_F32, 0, 0, 0, 0, 0, 0},
                          causality_for);
}

/* Nor on tokens before those that it sees: they may be anything that has a number. */
static void window_for(struct problem p, int kernel)
{
    enum { CHANGED = 100 };
    p.window = 40;
    struct instance want = instance_new(p, 14), changed = instance_again(&want);
    run(&want, 2, kernel);
    for (int m = K; m <= V; m++)
        for (int64_t e = 0; e < CHANGED * ld_of(&p, m); e++)
            set(&changed, m, e, get(&changed, m, e) * -300);
    run(&changed, 2, kernel);
    const size_t row = (size_t)ld_of(&p, O) * ls_dtype_bytes(p.act), at = (CHANGED + 39) * row;
    assert_same_bits("keys before the window changed", O, (char *)changed.matrix[O] + at,
                     (char *)want.matrix[O] + at, (size_t)(p.tokens - CHANGED - 39) * row);
    assert_same_bits("keys before the window changed", D_Q, (char *)changed.matrix[D_Q] + at,
                     (char *)want.matrix[D_Q] + at, (size_t)(p.tokens - CHANGED - 39) * row);
    /* The twin: the query before sees the last of them. */
    assert_memory_not_equal((char *)changed.matrix[O] + at - row, (char *)want.matrix[O] + at - row,
                            row);
    instance_free(&changed);
    instance_free(&want);
}

CASE(test_window_hides)
{
    for_each_kernel((struct problem){1, 210, 2, 2, 64, LS_F32, 0, 0, 0, 0, 0, 0}, window_for);
}

/* A document has the bits that it has alone, where it begins at a block; its tokens are then at the
 * same places of blocks. */
static void document_for(struct problem p, int kernel)
{
    struct instance x = instance_new(p, 15);
    struct problem alone = p;
    alone.tokens = p.tokens - 128;
    alone.document = 0;
    for (int64_t t = 0; x.starts && t < p.tokens; t++)
        x.starts[t] = t < 128 ? (t < 50 ? 0 : 50) : 128;
    run(&x, 2, kernel);
    struct instance y = instance_new(alone, 15);
    for (int m = Q; m < MATRICES; m++)
        memcpy(y.matrix[m],
               (char *)x.matrix[m] + (size_t)(128 * ld_of(&p, m)) * ls_dtype_bytes(p.act),
               (size_t)y.elements[m] * ls_dtype_bytes(p.act));
    struct instance z = instance_new(alone, 15);
    for (int m = Q; m < MATRICES; m++)
        memcpy(z.matrix[m], y.matrix[m], (size_t)y.elements[m] * ls_dtype_bytes(p.act));
    run(&z, 2, kernel);
    for (int m = O; m < MATRICES; m++)
        if ((memcmp(y.matrix[m], z.matrix[m], (size_t)y.elements[m] * ls_dtype_bytes(p.act)) ==
             0) != (x.starts || m == D_O))
            fail_msg("%s: %s of a document: in the sequence and alone: %s", kernel_name(kernel),
                     matrix_names[m], x.starts ? "differ" : "are the same");
    instance_free(&x), instance_free(&y), instance_free(&z);
}

/* The twin is a sequence without documents. */
CASE(test_documents_are_alone)
{
    for_each_kernel((struct problem){1, 250, 2, 1, 40, LS_F32, 0, 0, 0, 0, 0, 0}, document_for);
}

/* dk and dv of a group are the tree over its heads. The scale is a power of two, so that a head's
 * gradient is its sum exactly. */
CASE(test_head_tree)
{
    for (int64_t group = 1; group <= 9; group++)
        for (int threads = 1; threads <= 3; threads++) {
            struct instance x =
                instance_new((struct problem){1, 70, group, 1, 16, LS_F32, 0, 0, 0, 0, 0, 0}, 9);
            struct ls_ops ops = ops_new(threads, kernel_best_fma());
            run_with(&ops, &x);
            const int64_t count = x.elements[D_K];
            float *leaf = malloc((size_t)(2 * count * group) * sizeof *leaf);
            for (int64_t h = 0; h < group; h++) {
                struct ls_attention a = x.a;
                struct ls_error error = {0};
                a.heads = 1;
                a.q = (const float *)a.q + h * 16;
                a.o = (float *)a.o + h * 16;
                a.d_o = (const float *)a.d_o + h * 16;
                a.lse += h * 70;
                float *d_q = malloc((size_t)x.elements[D_Q] * sizeof *d_q);
                a.d_q = d_q;
                a.d_k = leaf + h * count;
                a.d_v = leaf + (group + h) * count;
                assert_int_equal(ls_attention_backward(&ops, &a, &error), LS_OK);
                free(d_q);
            }
            for (int v = 0; v < 2; v++)
                for (int64_t i = 0; i < count; i++) {
                    float heads[9];
                    for (int64_t h = 0; h < group; h++)
                        heads[h] = leaf[(v * group + h) * count + i];
                    float want = ls_tree_sum(heads, group), got = get(&x, v ? D_V : D_K, i);
                    if (got != want)
                        fail_msg("group %lld: %s[%lld] is %a, the tree gives %a", (long long)group,
                                 matrix_names[v ? D_V : D_K], (long long)i, (double)got,
                                 (double)want);
                }
            free(leaf);
            ls_ops_release(&ops);
            instance_free(&x);
        }
}

/* ---- the order of blocks ---- */

enum { ORDER_TOKENS = 4 * LS_ATTENTION_BLOCK, ORDER_DIM = 16 };

static struct attention_rows order_rows(const struct instance *x, int m, int block)
{
    float *at = (float *)x->matrix[m] + (int64_t)block * LS_ATTENTION_BLOCK * ORDER_DIM;
    return (struct attention_rows){at, ORDER_DIM, LS_ATTENTION_BLOCK};
}

/* dv of key block 0 (times 1) by visiting query blocks 0 to 3 in the order given; o of query block
 * 3 by visiting key blocks in the order given (its own, which is masked, included). */
static void visit(const struct instance *x, const int order[4], float *dv, float *o)
{
    enum { BLOCK = LS_ATTENTION_BLOCK, PANEL = BLOCK * ORDER_DIM };
    static float panel[8][PANEL] __attribute__((aligned(64)));
    static float dk_sum[PANEL], dv_sum[PANEL], o_sum[PANEL], scratch[2 * BLOCK * BLOCK];
    struct attention_mask own;
    float lse[BLOCK], delta[BLOCK], max[BLOCK], sum[BLOCK] = {0};
    const struct attention_kernel *kernel = &attention_kernel_plain;
    const struct attention_shape shape = {ORDER_DIM, ORDER_DIM, LS_F32, x->a.scale, 0};
    const struct attention_query query = {panel[0], panel[1], panel[2], panel[3],
                                          lse,      delta,    BLOCK};
    const struct attention_key key = {panel[4], panel[5], NULL};
    const struct attention_state state = {o_sum, max, sum};
    const struct attention_gradient gradient = {dk_sum, dv_sum, NULL};
    struct attention_ahead ahead = {.spans = 0};
    for (int i = 0; i < BLOCK; i++) {
        own.first[i] = 0;
        own.last[i] = i;
    }
    memset(dk_sum, 0, sizeof dk_sum);
    memset(dv_sum, 0, sizeof dv_sum);
    memset(o_sum, 0, sizeof o_sum);
    struct attention_rows k = order_rows(x, K, 0), v = order_rows(x, V, 0);
    kernel->pack_key_backward(&shape, &k, &v, &key);
    for (int n = 0; n < 4; n++) {
        struct attention_rows q = order_rows(x, Q, order[n]), o_rows = order_rows(x, O, order[n]),
                              d_o = order_rows(x, D_O, order[n]);
        kernel->pack_query_backward(&shape, &q, &o_rows, &d_o, x->a.lse + order[n] * BLOCK, &query);
        kernel->backward_pair(&shape, &query, &key, order[n] == 0 ? &own : NULL, &gradient, scratch,
                              &ahead);
    }
    memcpy(dv, dv_sum, sizeof dv_sum);
    struct attention_rows q = order_rows(x, Q, 3), out = {o, ORDER_DIM, BLOCK};
    for (int i = 0; i < BLOCK; i++)
        max[i] = -INFINITY;
    kernel->pack_query_forward(&shape, &q, &query);
    for (int n = 0; n < 4; n++) {
        k = order_rows(x, K, order[n]);
        v = order_rows(x, V, order[n]);
        kernel->pack_key_forward(&shape, &k, &v, &key);
        kernel->forward_pair(&shape, &query, &key, order[n] == 3 ? &own : NULL, &state, scratch,
                             &ahead);
    }
    kernel->forward_store(&shape, &state, &out, lse);
}

/* The op visits blocks in ascending order; the twin that descends must give other bits. */
CASE(test_block_order)
{
    static const int ascending[4] = {0, 1, 2, 3}, descending[4] = {3, 2, 1, 0};
    static float dv[LS_ATTENTION_BLOCK * ORDER_DIM], o[LS_ATTENTION_BLOCK * ORDER_DIM];
    struct instance x = instance_new(
        (struct problem){1, ORDER_TOKENS, 1, 1, ORDER_DIM, LS_F32, 0, 0, 0, 0, 0, 0}, 10);
    run(&x, 2, LS_ISA_PLAIN);
    const float *want_o = (const float *)x.matrix[O] + 3 * LS_ATTENTION_BLOCK * ORDER_DIM;
    visit(&x, ascending, dv, o);
    assert_same_bits("ascending", D_V, dv, x.matrix[D_V], sizeof dv);
    assert_same_bits("ascending", O, o, want_o, sizeof o);
    visit(&x, descending, dv, o);
    assert_memory_not_equal(dv, x.matrix[D_V], sizeof dv);
    assert_memory_not_equal(o, want_o, sizeof o);
    instance_free(&x);
}

/* ---- decode and prefill ---- */

/* Keys and values of a whole sequence on their way into a cache: behind what is there lies no
 * number. */
struct cached {
    int64_t capacity;
    char *k, *v;
};

static struct cached cached_new(const struct instance *x)
{
    struct cached c = {.capacity = x->p.tokens + 5};
    size_t bytes =
        (size_t)(x->p.batch * c.capacity * width_of(&x->p, K)) * ls_dtype_bytes(x->p.act);
    c.k = malloc(bytes);
    c.v = malloc(bytes);
    memset(c.k, 0xff, bytes);
    memset(c.v, 0xff, bytes);
    return c;
}

/* The first `count` tokens of sequence b are there, and no others. */
static void cached_fill(struct cached *c, const struct instance *x, int64_t b, int64_t count)
{
    const size_t row = (size_t)width_of(&x->p, K) * ls_dtype_bytes(x->p.act);
    const size_t to = (size_t)(b * c->capacity) * row, from = (size_t)(b * x->p.tokens) * row;
    memcpy(c->k + to, (char *)x->matrix[K] + from, (size_t)count * row);
    memcpy(c->v + to, (char *)x->matrix[V] + from, (size_t)count * row);
    memset(c->k + to + (size_t)count * row, 0xff, (size_t)(c->capacity - count) * row);
    memset(c->v + to + (size_t)count * row, 0xff, (size_t)(c->capacity - count) * row);
}

static void cached_free(struct cached *c)
{
    free(c->k);
    free(c->v);
}

/* The same in blocks, those of both sequences mixed, the last first. */
enum { TABLE = 3 };
struct scattered {
    char *k, *v;
    int32_t table[2 * TABLE];
};

static void scattered_fill(struct scattered *s, const struct cached *c, const struct instance *x)
{
    const size_t row = (size_t)width_of(&x->p, K) * ls_dtype_bytes(x->p.act);
    const size_t block = LS_ATTENTION_BLOCK * row;
    for (int64_t i = 0; i < 2 * TABLE; i++) {
        const int64_t b = i / TABLE, first = i % TABLE * LS_ATTENTION_BLOCK;
        const int64_t rows = ls_max(0, ls_min(LS_ATTENTION_BLOCK, c->capacity - first));
        const size_t from = (size_t)(b * c->capacity + first) * row;
        s->table[i] = (int32_t)(i % 2 * TABLE + TABLE - 1 - i / 2);
        memcpy(s->k + (size_t)s->table[i] * block, c->k + from, (size_t)rows * row);
        memcpy(s->v + (size_t)s->table[i] * block, c->v + from, (size_t)rows * row);
    }
}

static struct scattered scattered_new(const struct instance *x)
{
    const size_t row = (size_t)width_of(&x->p, K) * ls_dtype_bytes(x->p.act);
    const size_t bytes = 2 * TABLE * LS_ATTENTION_BLOCK * row;
    return (struct scattered){.k = calloc(1, bytes), .v = calloc(1, bytes)};
}

static struct ls_key_blocks scattered_blocks(const struct scattered *s, int64_t b)
{
    return (struct ls_key_blocks){s->table + b * TABLE, TABLE, 2 * TABLE};
}

static void scattered_free(struct scattered *s)
{
    free(s->k), free(s->v);
}

/* Row t of sequence b of the queries or of their outputs. */
static char *row_of(const struct instance *x, int m, int64_t b, int64_t t)
{
    return (char *)x->matrix[m] +
           (size_t)((b * x->p.tokens + t) * width_of(&x->p, m)) * ls_dtype_bytes(x->p.act);
}

/* Sequences of different lengths, as their rows of the forward. */
static void decode_for(struct problem p, int kernel)
{
    static const int32_t lengths[][2] = {{1, 2},   {33, 32}, {64, 65},  {65, 96},
                                         {97, 64}, {128, 1}, {129, 150}};
    struct instance x = instance_new(p, 12);
    run_forward(&x, kernel);
    const size_t row = (size_t)width_of(&p, Q) * ls_dtype_bytes(p.act);
    struct cached cache = cached_new(&x);
    struct scattered scattered = scattered_new(&x);
    char *q = malloc(2 * row), *o = malloc(2 * row);
    for (size_t n = 0; n < sizeof lengths / sizeof lengths[0]; n++) {
        int32_t starts[2];
        struct ls_ops ops = ops_new(1 + (int)n % 3, kernel);
        struct ls_error error = {0};
        for (int64_t b = 0; b < 2; b++) {
            cached_fill(&cache, &x, b, lengths[n][b]);
            memcpy(q + (size_t)b * row, row_of(&x, Q, b, lengths[n][b] - 1), row);
            starts[b] = x.starts ? x.starts[b * p.tokens + lengths[n][b] - 1] : 0;
        }
        memset(o, 0, 2 * row);
        struct ls_attention_decode decode = {2,
                                             cache.capacity,
                                             p.heads,
                                             p.kv_heads,
                                             p.dim,
                                             x.a.scale,
                                             p.act,
                                             lengths[n],
                                             q,
                                             cache.k,
                                             cache.v,
                                             width_of(&p, Q),
                                             width_of(&p, O),
                                             o,
                                             p.window,
                                             p.softcap,
                                             x.starts ? starts : NULL,
                                             {0}};
        assert_ok(ls_attention_decode(&ops, &decode, &error), error);
        for (int64_t b = 0; b < 2; b++)
            assert_same_bits(kernel_name(kernel), O, o + (size_t)b * row,
                             row_of(&x, O, b, lengths[n][b] - 1), row);
        struct ls_attention_decode apart = decode;
        memset(o, 0, 2 * row);
        scattered_fill(&scattered, &cache, &x);
        apart.k_cache = scattered.k, apart.v_cache = scattered.v;
        apart.blocks = scattered_blocks(&scattered, 0);
        assert_int_equal(ls_attention_decode(&ops, &apart, &error), LS_OK);
        for (int64_t b = 0; b < 2; b++)
            assert_same_bits(kernel_name(kernel), O, o + (size_t)b * row,
                             row_of(&x, O, b, lengths[n][b] - 1), row);
        /* The twins: blocks in each other's place; one key more to the left, or one less. */
        scattered.table[0] = scattered.table[TABLE];
        assert_int_equal(ls_attention_decode(&ops, &apart, &error), LS_OK);
        if (lengths[n][0] > 1 && !p.window)
            assert_memory_not_equal(o, row_of(&x, O, 0, lengths[n][0] - 1), row);
        decode.starts = starts;
        starts[0] = starts[0] > 0 ? starts[0] - 1 : 1;
        if (lengths[n][0] > 1 && !p.window) {
            assert_int_equal(ls_attention_decode(&ops, &decode, &error), LS_OK);
            assert_memory_not_equal(o, row_of(&x, O, 0, lengths[n][0] - 1), row);
        }
        ls_ops_release(&ops);
    }
    free(q), free(o);
    scattered_free(&scattered);
    cached_free(&cache);
    instance_free(&x);
}

CASE(test_decode)
{
    for_each_kernel_twice((struct problem){2, 150, 4, 2, 40, LS_F32, 0, 0, 0, 0, 0, 0}, decode_for);
    /* Many heads share one key/value head: more than a vector holds, and more than a block. */
    for_each_kernel_in(0, (struct problem){2, 150, 20, 1, 16, LS_F32, 0, 0, 0, 0, 0, 0},
                       decode_for);
    for_each_kernel_in(1, (struct problem){2, 150, 66, 1, 8, LS_F32, 0, 0, 0, 0, 0, 0}, decode_for);
}

/* A prompt in chunks, each after its keys went to the cache: the rows of the whole. */
static void prefill_for(struct problem p, int kernel)
{
    static const int64_t cuts[] = {0, 10, 11, 64, 75, 107, 128, 150};
    struct instance whole = instance_new(p, 16), x = instance_again(&whole);
    const size_t row = (size_t)width_of(&p, Q) * ls_dtype_bytes(p.act);
    struct cached cache = cached_new(&x);
    struct scattered scattered = scattered_new(&x);
    struct ls_ops ops = ops_new(2, kernel);
    run_forward(&whole, kernel);
    for (int apart = 0; apart < 2; apart++)
        for (int n = 0; n < 7; n++)
            for (int64_t b = 0; b < p.batch; b++) {
                struct ls_error error = {0};
                struct ls_attention a = x.a;
                cached_fill(&cache, &x, b, cuts[n + 1]);
                a.batch = 1;
                a.q_first = cuts[n];
                a.tokens = cuts[n + 1] - cuts[n];
                a.keys = cache.capacity;
                a.q = row_of(&x, Q, b, cuts[n]);
                a.k = cache.k +
                      (size_t)(b * cache.capacity * width_of(&p, K)) * ls_dtype_bytes(p.act);
                a.v = cache.v +
                      (size_t)(b * cache.capacity * width_of(&p, K)) * ls_dtype_bytes(p.act);
                if (apart) {
                    scattered_fill(&scattered, &cache, &x);
                    a.k = scattered.k;
                    a.v = scattered.v;
                    a.blocks = scattered_blocks(&scattered, b);
                }
                a.o = row_of(&x, O, b, cuts[n]);
                memset(a.o, 0, (size_t)a.tokens * row);
                a.starts = x.starts ? x.starts + b * p.tokens : NULL;
                assert_ok(ls_attention_forward(&ops, &a, &error), error);
                assert_same_bits(kernel_name(kernel), O, a.o, row_of(&whole, O, b, cuts[n]),
                                 (size_t)a.tokens * row);
                for (int64_t h = 0; h < p.heads; h++)
                    assert_memory_equal(a.lse + h * a.tokens,
                                        whole.a.lse + (b * p.heads + h) * p.tokens + cuts[n],
                                        (size_t)a.tokens * sizeof(float));
            }
    ls_ops_release(&ops);
    scattered_free(&scattered);
    cached_free(&cache);
    instance_free(&x);
    instance_free(&whole);
}

CASE(test_prefill)
{
    for_each_kernel_twice((struct problem){2, 150, 4, 2, 40, LS_F32, 0, 0, 0, 0, 0, 0},
                          prefill_for);
}

/* ---- bad arguments ---- */

static void expect_refusal(struct ls_ops *ops, const struct ls_attention *a, const char *part)
{
    struct ls_error error = {0};
    assert_int_equal(ls_attention_forward(ops, a, &error), LS_EINVAL);
    if (!strstr(error.text, part))
        fail_msg("\"%s\" does not name \"%s\"", error.text, part);
    error = (struct ls_error){0};
    assert_int_equal(ls_attention_backward(ops, a, &error), LS_EINVAL);
    if (!strstr(error.text, part))
        fail_msg("\"%s\" does not name \"%s\"", error.text, part);
}

CASE(test_refusals)
{
    struct instance x =
        instance_new((struct problem){1, 65, 4, 2, 8, LS_F32, 0, 0, 0, 0, 0, 0}, 13);
    struct ls_ops ops = ops_new(1, LS_ISA_PLAIN);
    struct ls_attention a = x.a;
    a.tokens = 0;
    expect_refusal(&ops, &a, "tokens 0");
    a = x.a;
    a.kv_heads = 3;
    expect_refusal(&ops, &a, "3 key/value heads");
    a = x.a;
    a.head_dim = 12;
    expect_refusal(&ops, &a, "head dim 12");
    a = x.a;
    a.scale = 0;
    expect_refusal(&ops, &a, "scale 0");
    a = x.a;
    a.act = LS_F64;
    expect_refusal(&ops, &a, "F64");
    a = x.a;
    a.softcap = -1;
    expect_refusal(&ops, &a, "softcap -1");
    a = x.a;
    a.window = -1;
    expect_refusal(&ops, &a, "window -1");
    int32_t starts[65] = {0};
    a = x.a;
    a.starts = starts;
    a.starts_ld = 64;
    expect_refusal(&ops, &a, "starts_ld is 64: the last query is at position 64");
    a.starts_ld = 65;
    starts[40] = 41;
    expect_refusal(&ops, &a, "the document of position 40 starts at 41");
    starts[40] = 40;
    expect_refusal(&ops, &a, "the document of position 41 starts at 0");
    a = x.a;
    a.kv_ld = 15;
    expect_refusal(&ops, &a, "kv_ld is 15: rows are 16 wide");
    size_t whole = ops.workspace_bytes;
    ops.workspace_bytes = 4096;
    expect_refusal(&ops, &x.a, "there are 4096");
    ops.workspace_bytes = whole;
    ls_ops_release(&ops);
    instance_free(&x);
}

CASE(test_decode_refusals)
{
    struct ls_ops ops = ops_new(1, LS_ISA_PLAIN);
    struct ls_error error = {0};
    float row[8] = {0}, cache[32] = {0};
    int32_t length = 5, start = 0;
    struct ls_attention_decode d = {1,     4,     1, 1, 8,   1, LS_F32, &length, row,
                                    cache, cache, 8, 8, row, 0, 0,      &start,  {0}};
    assert_int_equal(ls_attention_decode(&ops, &d, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "5 cached tokens of sequence 0: expected 1 to 4"));
    length = 3;
    start = 3;
    assert_int_equal(ls_attention_decode(&ops, &d, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "starts at 3: expected 0 to 2"));
    start = 2;
    assert_int_equal(ls_attention_decode(&ops, &d, &error), LS_OK);
    int32_t block = 1;
    d.blocks = (struct ls_key_blocks){&block, 1, 1};
    assert_int_equal(ls_attention_decode(&ops, &d, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "block 0 of sequence 0 is 1: expected 0 to 0"));
    block = 0;
    d.capacity = 65;
    assert_int_equal(ls_attention_decode(&ops, &d, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "1 blocks for each sequence: 65 keys are in 2"));
    d.blocks.table = NULL;
    d.capacity = 4;
    const size_t whole = ops.workspace_bytes;
    ops.workspace_bytes = 4096;
    assert_int_equal(ls_attention_decode(&ops, &d, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "there are 4096"));
    ops.workspace_bytes = whole;
    ls_ops_release(&ops);
}

SUITE_MAIN(NULL, NULL)
