/* RoPE: the table of angles, made once, and its application. */
#include "ops/kernels.h"
#include "ops/share.h"

#include <math.h>

/* The table is made of IEEE additions, multiplications, divisions and floor() in double, so that it
 * does not depend on the machine's mathematical library. */

/* ln x, x > 0: ln m = 2 atanh((m - 1) / (m + 1)), m in [sqrt 1/2, sqrt 2). */
static double log_fixed(double x)
{
    int exponent;
    double m = frexp(x, &exponent);
    if (m < 0.70710678118654752440) {
        m *= 2;
        exponent--;
    }
    double s = (m - 1) / (m + 1), s2 = s * s, series = 0;
    for (int k = 25; k >= 1; k -= 2)
        series = series * s2 + 1.0 / k;
    return 2 * s * series + exponent * 0.69314718055994530942;
}

/* e^x: x = n ln 2 + r, Taylor series in r. */
static double exp_fixed(double x)
{
    double n = floor(x * 1.44269504088896340736 + 0.5);
    double r = (x - n * 0x1.62e42fefap-1) - n * 0x1.cf79abc9e3b3ap-40; /* ln 2 in two parts */
    double series = 1;
    for (int k = 16; k >= 1; k--)
        series = 1 + series * r / k;
    return ldexp(series, (int)n);
}

/* cos and sin of x >= 0: whole quarter turns off in three parts (Cody, Waite 1980), Taylor series
 * of the rest, |r| <= pi/4. */
static void cos_sin_fixed(double x, double *cosine, double *sine)
{
    double n = floor(x * 0.63661977236758134308 + 0.5);
    double r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
    double r2 = r * r, c = 0, s = 0;
    for (int k = 18; k >= 2; k -= 2)
        c = (1 + c) * (-r2 / ((k - 1) * k));
    for (int k = 19; k >= 3; k -= 2)
        s = (1 + s) * (-r2 / ((k - 1) * k));
    c = 1 + c;
    s = r * (1 + s);
    switch ((int64_t)n & 3) {
    case 0:
        *cosine = c, *sine = s;
        break;
    case 1:
        *cosine = -s, *sine = c;
        break;
    case 2:
        *cosine = -c, *sine = -s;
        break;
    default:
        *cosine = s, *sine = -c;
    }
}

/* Of all frequencies: theta^(-2i/D), i < D/2. */
struct frequencies {
    double head_dim, log_theta;
    const struct ls_rope_scaling *scaling; /* NULL: none */
};

/* The pair that turns so many times in the original context, among all of them and past them. */
static double yarn_pair(const struct frequencies *f, double turns)
{
    double context = (double)f->scaling->original_context;
    return f->head_dim * log_fixed(context / (turns * 6.28318530717958647693)) / (2 * f->log_theta);
}

static double yarn_frequency(const struct frequencies *f, int64_t i, double frequency)
{
    const struct ls_rope_scaling *scaling = f->scaling;
    double first = floor(yarn_pair(f, scaling->beta_fast));
    double last = ceil(yarn_pair(f, scaling->beta_slow));
    first = first > 0 ? first : 0;
    last = last < f->head_dim - 1 ? last : f->head_dim - 1;
    double ramp = ((double)i - first) / (first == last ? 0.001 : last - first);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return ramp * frequency / scaling->factor + (1 - ramp) * frequency;
}

static double llama3_frequency(const struct ls_rope_scaling *scaling, double frequency)
{
    double low = scaling->low_freq_factor, high = scaling->high_freq_factor;
    double turns = (double)scaling->original_context * frequency / 6.28318530717958647693;
    if (turns < low) /* wavelength > context / low */
        return frequency / scaling->factor;
    if (turns > high)
        return frequency;
    double smooth = (turns - low) / (high - low);
    return (1 - smooth) * frequency / scaling->factor + smooth * frequency;
}

static double scaled_frequency(const struct frequencies *f, int64_t i)
{
    const struct ls_rope_scaling *scaling = f->scaling;
    double frequency = exp_fixed(-2.0 * (double)i / f->head_dim * f->log_theta);
    if (!scaling)
        return frequency;
    switch (scaling->kind) {
    case LS_ROPE_LINEAR:
        return frequency / scaling->factor;
    case LS_ROPE_YARN:
        return yarn_frequency(f, i, frequency);
    case LS_ROPE_LLAMA3:
        break;
    }
    return llama3_frequency(scaling, frequency);
}

/* What cosines and sines are multiplied by. */
static double scaled_length(const struct ls_rope_scaling *scaling)
{
    if (!scaling || scaling->kind != LS_ROPE_YARN)
        return 1;
    double given = scaling->attention_factor;
    return given > 0 ? given : 0.1 * log_fixed(scaling->factor) + 1;
}

double ls_rope_scaled(int64_t head_dim, double theta, const struct ls_rope_scaling *scaling,
                      int64_t i)
{
    const struct frequencies plain = {(double)head_dim, log_fixed(theta), NULL},
                             scaled = {plain.head_dim, plain.log_theta, scaling};
    return scaled_frequency(&scaled, i) / scaled_frequency(&plain, i);
}

void ls_rope_table(int64_t tokens, int64_t head_dim, double theta,
                   const struct ls_rope_scaling *scaling, float *cosine, float *sine)
{
    int64_t half = head_dim / 2;
    bool scaled = scaling && scaling->factor != 0 && scaling->factor != 1;
    const struct frequencies frequencies = {(double)head_dim, log_fixed(theta),
                                            scaled ? scaling : NULL};
    double length = scaled_length(frequencies.scaling);
    for (int64_t i = 0; i < half; i++) {
        double frequency = scaled_frequency(&frequencies, i);
        for (int64_t t = 0; t < tokens; t++) {
            double c, s;
            cos_sin_fixed((double)t * frequency, &c, &s);
            cosine[t * half + i] = (float)(c * length);
            sine[t * half + i] = (float)(s * length);
        }
    }
}

struct rope_call {
    enum ls_dtype act;
    struct ls_rope rope;
    bool backward;
    void *x;
};

static struct ls_work rope_work(const void *arguments)
{
    const struct rope_call *c = arguments;
    return ops_pass(LS_WORK_ROPE, c->act, c->rope.rows, c->rope.heads * c->rope.head_dim, 3, 2);
}

static void rope_operands(const void *arguments, struct ls_operands *out)
{
    const struct rope_call *c = arguments;
    const struct ls_rope *rope = &c->rope;
    const size_t table =
        ops_bytes(LS_F32, (rope->first_position + rope->tokens) * (rope->head_dim / 2));
    ls_operand_add(out, c, &c->x,
                   ops_rows_bytes(c->act, rope->rows, rope->heads * rope->head_dim, rope->ld),
                   LS_READS_WRITES);
    ls_operand_add(out, c, &rope->cosine, table, LS_READS);
    ls_operand_add(out, c, &rope->sine, table, LS_READS);
}

static void rope_run(struct ls_ops *ops, const void *arguments)
{
    const struct rope_call *c = arguments;
    const struct ls_rope *rope = &c->rope;
    OPS_EACH_SHARE (ops, rope->rows * rope->heads * rope->head_dim, rope->rows, 1)
        ops->kernels->pointwise->rope(c->act, rope, c->backward, begin, end, c->x);
}

void ls_rope_apply(struct ls_ops *ops, enum ls_dtype act, const struct ls_rope *rope, void *x,
                   bool backward)
{
    static const struct ops_op op = OPS_OP(struct rope_call, rope_work, rope_operands, rope_run);
    ops_submit(ops, &op, &(struct rope_call){act, *rope, backward, x});
}
