/* Causal attention: against a plain double-precision reference, by central differences, and that
 * its bits depend on nothing that a layout may change. */
#include <lockstep/ops.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- problems ---------------------------------------------------------------------------------
 */

enum { Q, K, V, O, D_O, D_Q, D_K, D_V, MATRICES };
static const char *const matrix_names[] = {"q", "k", "v", "o", "d_o", "d_q", "d_k", "d_v"};

struct problem {
    int64_t batch, tokens, heads, kv_heads, dim;
    enum ls_dtype act;
    int64_t q_pad, kv_pad, o_pad; /* ld minus width */
};

/* A problem with its buffers. Gaps between rows hold a pattern that must survive. */
struct instance {
    struct problem p;
    struct ls_attention a;
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
                              : ls_bf16_to_f32(((ls_bf16 *)x->matrix[m])[at]);
}

static void set(struct instance *x, int m, int64_t at, float value)
{
    if (x->p.act == LS_F32)
        ((float *)x->matrix[m])[at] = value;
    else
        ((ls_bf16 *)x->matrix[m])[at] = ls_f32_to_bf16(value);
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

static struct instance instance_new(struct problem p, uint64_t seed)
{
    struct instance x = {.p = p};
    for (int m = 0; m < MATRICES; m++) {
        x.elements[m] = p.batch * p.tokens * ld_of(&p, m);
        x.matrix[m] = malloc((size_t)x.elements[m] * ls_dtype_bytes(p.act));
        for (int64_t e = 0; e < x.elements[m]; e++)
            set(&x, m, e, GAP);
    }
    fill_matrix(&x, Q, seed, 1.5);
    fill_matrix(&x, K, seed, 1.5);
    fill_matrix(&x, V, seed, 1);
    fill_matrix(&x, D_O, seed, 1);
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
                              .d_v = x.matrix[D_V]};
    return x;
}

static void instance_free(struct instance *x)
{
    for (int m = 0; m < MATRICES; m++)
        free(x->matrix[m]);
    free(x->a.lse);
}

static struct ls_ops ops_new(int threads, enum ls_isa isa)
{
    struct ls_ops ops;
    struct ls_error error = {0};
    if (ls_ops_init(&ops, threads, isa, &error) != LS_OK)
        fail_msg("%s", error.text);
    return ops;
}

static void run_with(struct ls_ops *ops, struct instance *x)
{
    struct ls_error error = {0};
    if (ls_attention_forward(ops, &x->a, &error) != LS_OK ||
        ls_attention_backward(ops, &x->a, &error) != LS_OK)
        fail_msg("%s", error.text);
}

static void run(struct instance *x, int threads, enum ls_isa isa)
{
    struct ls_ops ops = ops_new(threads, isa);
    run_with(&ops, x);
    ls_ops_release(&ops);
}

/* ---- the reference ----------------------------------------------------------------------------
 */

/* All outputs of one instance in double, densely packed [B * T, width]. */
struct reference {
    double *matrix[MATRICES], *lse;
};

static double at(const struct instance *x, int m, int64_t row, int64_t head, int64_t d)
{
    return get(x, m, row * ld_of(&x->p, m) + head * x->p.dim + d);
}

/* Token t of head h of sequence b: probabilities into p, returns the log-sum-exp. */
static double softmax_row(const struct instance *x, int64_t b, int64_t h, int64_t t, double *p)
{
    const int64_t T = x->p.tokens, D = x->p.dim, g = h / (x->p.heads / x->p.kv_heads);
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= t; j++) {
        p[j] = 0;
        for (int64_t d = 0; d < D; d++)
            p[j] += at(x, Q, b * T + t, h, d) * at(x, K, b * T + j, g, d);
        p[j] *= (double)x->a.scale;
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j <= t; j++)
        sum += p[j] = exp(p[j] - max);
    for (int64_t j = 0; j <= t; j++)
        p[j] /= sum;
    return max + log(sum);
}

static void reference_row(const struct instance *x, struct reference *r, int64_t b, int64_t h,
                          int64_t t, double *p, double *dp)
{
    const int64_t T = x->p.tokens, D = x->p.dim, g = h / (x->p.heads / x->p.kv_heads);
    const int64_t row = (b * T + t) * width_of(&x->p, Q) + h * D;
    r->lse[(b * x->p.heads + h) * T + t] = softmax_row(x, b, h, t, p);
    double delta = 0;
    for (int64_t j = 0; j <= t; j++) {
        dp[j] = 0;
        for (int64_t d = 0; d < D; d++) {
            r->matrix[O][row + d] += p[j] * at(x, V, b * T + j, g, d);
            dp[j] += at(x, D_O, b * T + t, h, d) * at(x, V, b * T + j, g, d);
        }
        delta += p[j] * dp[j];
    }
    for (int64_t j = 0; j <= t; j++) {
        const int64_t key = (b * T + j) * width_of(&x->p, K) + g * D;
        const double ds = p[j] * (dp[j] - delta) * (double)x->a.scale;
        for (int64_t d = 0; d < D; d++) {
            r->matrix[D_Q][row + d] += ds * at(x, K, b * T + j, g, d);
            r->matrix[D_K][key + d] += ds * at(x, Q, b * T + t, h, d);
            r->matrix[D_V][key + d] += p[j] * at(x, D_O, b * T + t, h, d);
        }
    }
}

static struct reference reference_new(const struct instance *x)
{
    const struct problem *p = &x->p;
    struct reference r = {.lse = calloc((size_t)(p->batch * p->heads * p->tokens), sizeof(double))};
    for (int m = 0; m < MATRICES; m++)
        r.matrix[m] = calloc((size_t)(p->batch * p->tokens * width_of(p, m)), sizeof(double));
    double *row = malloc((size_t)p->tokens * sizeof *row),
           *dp = malloc((size_t)p->tokens * sizeof *dp);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t t = 0; t < p->tokens; t++)
                reference_row(x, &r, b, h, t, row, dp);
    free(row);
    free(dp);
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
    double tolerance = x->p.act == LS_F32 ? 3e-5 : 0.06;
    double ratio_tolerance = x->p.act == LS_F32 ? 1e-6 : 4e-3;
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

static void compare_all(const struct instance *x, const char *label)
{
    struct reference r = reference_new(x);
    compare(x, &r, O, label);
    for (int m = D_Q; m <= D_V; m++)
        compare(x, &r, m, label);
    for (int64_t i = 0; i < x->p.batch * x->p.heads * x->p.tokens; i++)
        if (!(fabs((double)x->a.lse[i] - r.lse[i]) <= 2e-5))
            fail_msg("%s: lse[%lld] is %.9g, want %.9g", label, (long long)i, (double)x->a.lse[i],
                     r.lse[i]);
    reference_free(&r);
}

static const struct problem problems[] = {
    {1, 1, 1, 1, 8, LS_F32, 0, 0, 0},     {2, 7, 2, 1, 8, LS_F32, 3, 1, 5},
    {1, 64, 3, 3, 16, LS_F32, 0, 0, 0},   {1, 65, 2, 2, 24, LS_F32, 8, 0, 0},
    {2, 130, 4, 2, 64, LS_F32, 0, 16, 0}, {1, 200, 6, 2, 40, LS_F32, 0, 0, 8},
    {1, 129, 2, 1, 128, LS_F32, 0, 0, 0}, {1, 70, 1, 1, 256, LS_F32, 0, 0, 0},
    {1, 96, 5, 1, 80, LS_F32, 1, 1, 1},   {1, 260, 7, 1, 32, LS_F32, 0, 0, 0},
};

static void test_reference(void **state)
{
    (void)state;
    for (int isa = 0; isa <= (int)ls_isa_best(); isa++)
        for (size_t n = 0; n < sizeof problems / sizeof problems[0]; n++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                struct problem p = problems[n];
                p.act = bf16 ? LS_BF16 : LS_F32;
                struct instance x = instance_new(p, n);
                run(&x, 2, (enum ls_isa)isa);
                char label[64];
                snprintf(label, sizeof label, "%s problem %zu %s", ls_isa_name((enum ls_isa)isa), n,
                         ls_dtype_name(p.act));
                compare_all(&x, label);
                instance_free(&x);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
