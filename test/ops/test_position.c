/* RoPE: table against the library's functions in double, scalings against their formulas,
 * rotation and its inverse, bits. */
#include "../support/suite.h"
#include "gradient.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The scaling as transformers' and Meta's sources state it, by wavelength. */
static double llama3_frequency(double frequency, const struct ls_rope_scaling *scaling)
{
    double wavelength = 2 * acos(-1) / frequency, context = (double)scaling->original_context;
    if (wavelength < context / scaling->high_freq_factor)
        return frequency;
    if (wavelength > context / scaling->low_freq_factor)
        return frequency / scaling->factor;
    double smooth = (context / wavelength - scaling->low_freq_factor) /
                    (scaling->high_freq_factor - scaling->low_freq_factor);
    return (1 - smooth) * frequency / scaling->factor + smooth * frequency;
}

/* As transformers' _compute_yarn_parameters has it: weights of both frequencies, pair by pair. */
static double yarn_frequency(double theta, int64_t head_dim, int64_t i,
                             const struct ls_rope_scaling *scaling)
{
    double turns[2] = {scaling->beta_fast, scaling->beta_slow}, at[2];
    for (int side = 0; side < 2; side++)
        at[side] = (double)head_dim *
                   log((double)scaling->original_context / (turns[side] * 2 * acos(-1))) /
                   (2 * log(theta));
    double low = fmax(floor(at[0]), 0), high = fmin(ceil(at[1]), (double)head_dim - 1);
    double ramp = fmin(fmax(((double)i - low) / (high > low ? high - low : 0.001), 0), 1);
    double extrapolated = pow(theta, -2.0 * (double)i / (double)head_dim);
    return extrapolated / scaling->factor * ramp + extrapolated * (1 - ramp);
}

static double scaled_frequency(double theta, int64_t head_dim, int64_t i,
                               const struct ls_rope_scaling *scaling, double *length)
{
    double frequency = pow(theta, -2.0 * (double)i / (double)head_dim);
    *length = 1;
    if (!scaling)
        return frequency;
    if (scaling->kind == LS_ROPE_LINEAR)
        return frequency / scaling->factor;
    if (scaling->kind == LS_ROPE_LLAMA3)
        return llama3_frequency(frequency, scaling);
    *length =
        scaling->attention_factor > 0 ? scaling->attention_factor : 0.1 * log(scaling->factor) + 1;
    return yarn_frequency(theta, head_dim, i, scaling);
}

static void check_table(int64_t tokens, int64_t head_dim, double theta,
                        const struct ls_rope_scaling *scaling)
{
    int64_t half = head_dim / 2;
    float *cosine = values_new((size_t)(tokens * half) * 4);
    float *sine = values_new((size_t)(tokens * half) * 4);
    ls_rope_table(tokens, head_dim, theta, scaling, cosine, sine);
    for (int64_t t = 0; t < tokens; t += 1 + t / 50)
        for (int64_t i = 0; i < half; i++) {
            double length, frequency = scaled_frequency(theta, head_dim, i, scaling, &length);
            double c = length * cos((double)t * frequency), s = length * sin((double)t * frequency);
            if (!(fabs(cosine[t * half + i] - c) < 7e-8 && fabs(sine[t * half + i] - s) < 7e-8))
                fail_msg("theta %g, t %lld, i %lld: cos %.9g sin %.9g, reference %.9g %.9g", theta,
                         (long long)t, (long long)i, (double)cosine[t * half + i],
                         (double)sine[t * half + i], c, s);
        }
    free(cosine), free(sine);
}

CASE(test_table)
{
    check_table(1, 2, 10000, NULL);
    check_table(2000, 64, 10000, NULL);
    check_table(131072, 8, 500000, NULL);
    const struct ls_rope_scaling llama_3_1 = {8, 1, 4, 8192, .kind = LS_ROPE_LLAMA3},
                                 llama_3_2 = {32, 1, 4, 8192, .kind = LS_ROPE_LLAMA3};
    check_table(3000, 128, 500000, &llama_3_1);
    check_table(3000, 64, 500000, &llama_3_2);
    const struct ls_rope_scaling linear = {.factor = 4, .kind = LS_ROPE_LINEAR};
    check_table(3000, 64, 10000, &linear);
    struct ls_rope_scaling yarn = {.factor = 4,
                                   .original_context = 32768,
                                   .kind = LS_ROPE_YARN,
                                   .beta_fast = 32,
                                   .beta_slow = 1};
    check_table(3000, 128, 1e6, &yarn);
    yarn.original_context = 64; /* the slow end is past the last pair */
    check_table(300, 16, 10000, &yarn);
    yarn.attention_factor = 0.75f;
    check_table(300, 16, 10000, &yarn);
    const struct ls_rope_scaling none = {1, 1, 4, 8192, .kind = LS_ROPE_YARN};
    float cosine[2][4 * 100], sine[2][4 * 100];
    ls_rope_table(100, 8, 10000, NULL, cosine[0], sine[0]);
    ls_rope_table(100, 8, 10000, &none, cosine[1], sine[1]);
    assert_memory_equal(cosine[0], cosine[1], sizeof cosine[0]);
    assert_memory_equal(sine[0], sine[1], sizeof sine[0]);
}

enum { TOKENS = 11, SEQUENCES = 2, HEADS = 3, HEAD_DIM = 10, FIRST = 5 };
enum { ROWS = TOKENS * SEQUENCES, LD = HEADS * HEAD_DIM + 7, HALF = HEAD_DIM / 2 };

CASE(test_rotation_and_its_gradient)
{
    float cosine[(FIRST + TOKENS) * HALF], sine[(FIRST + TOKENS) * HALF];
    ls_rope_table(FIRST + TOKENS, HEAD_DIM, 10000, NULL, cosine, sine);
    struct ls_rope rope = {ROWS, TOKENS, HEADS, HEAD_DIM, LD, FIRST, cosine, sine};
    for (int a = 0; a < 2; a++) {
        enum ls_dtype act = a ? LS_BF16 : LS_F32;
        double tolerance = a ? 4e-3 : 1e-6;
        void *x = values_normal(1, act, ROWS * LD, 1);
        double *in = values_in_double(act, x, ROWS * LD);
        double *want = values_in_double(act, x, ROWS * LD);
        for (int r = 0; r < ROWS; r++)
            for (int h = 0; h < HEADS; h++)
                for (int i = 0; i < HALF; i++) {
                    double angle = (FIRST + r % TOKENS) * pow(10000, -2.0 * i / HEAD_DIM);
                    int low = r * LD + h * HEAD_DIM + i, high = low + HALF;
                    want[low] = in[low] * cos(angle) - in[high] * sin(angle);
                    want[high] = in[high] * cos(angle) + in[low] * sin(angle);
                }
        /* Columns past the heads stay as they are: want holds them unchanged. */
        ls_rope_apply(&ops_best, act, &rope, x, false);
        assert_near("rope", act, x, want, ROWS * LD, tolerance);
        /* A rotation's gradient is the rotation back. */
        ls_rope_apply(&ops_best, act, &rope, x, true);
        assert_gradient_near("rope backward", act, x, in, ROWS * LD, 2 * tolerance);
        free(x), free(in), free(want);
    }
}

struct bits_values {
    enum ls_dtype act;
    int64_t rows, ld;
    void *x;
    struct ls_rope rope;
};

static void run_rope(struct ls_ops *ops, int pieces, void *context, void *out)
{
    struct bits_values *v = context;
    size_t bytes = (size_t)(v->rows * v->ld) * ls_dtype_bytes(v->act);
    memcpy(out, v->x, bytes);
    struct ls_rope rope = v->rope;
    /* Cut into sequences, or by heads. */
    if (pieces == 2) {
        rope.heads = 1;
        ls_rope_apply(ops, v->act, &rope, out, false);
        rope.heads = v->rope.heads - 1;
        ls_rope_apply(ops, v->act, &rope,
                      (char *)out + (size_t)rope.head_dim * ls_dtype_bytes(v->act), false);
    } else {
        ls_rope_apply(ops, v->act, &rope, out, false);
    }
}

CASE(test_bits)
{
    enum { WIDE = 66, COUNT = 40, BIG_LD = 6 * WIDE };
    float cosine[COUNT * WIDE / 2], sine[COUNT * WIDE / 2];
    ls_rope_table(COUNT, WIDE, 500000, NULL, cosine, sine);
    for (int a = 0; a < 2; a++) {
        enum ls_dtype act = a ? LS_BF16 : LS_F32;
        struct bits_values v = {act,
                                3 * COUNT,
                                BIG_LD,
                                values_normal(1, act, 3 * COUNT * BIG_LD, 1),
                                {3 * COUNT, COUNT, 6, WIDE, BIG_LD, 0, cosine, sine}};
        struct bits_case bits = {"rope", (size_t)(v.rows * v.ld) * ls_dtype_bytes(act), false,
                                 run_rope, &v};
        assert_bits_same(&bits);
        free(v.x);
    }
}

SUITE_MAIN(ops_best_setup, ops_best_teardown)
