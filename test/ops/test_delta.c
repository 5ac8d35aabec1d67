/* Outer deltas of workers against plain C, on every instruction set: bits, any cut, numbers that
 * are not finite, and what an encoding may lose. */
#include <lockstep/ops.h>

#include <math.h>
#include <string.h>

#include "../support/suite.h"

/* LONG is worth a team, whose shares end inside a kernel's block. */
enum { WORKERS = 7, LONG = 20011, STRIDE = LONG + 5 };
static const int64_t counts[] = {0, 1, 7, 63, 64, 65, 511, 513, 1043, LONG};
enum { COUNTS = sizeof counts / sizeof *counts, LAST = COUNTS - 1 };
enum { TYPES = LS_DELTA_INT8 + 1 };

#define SCALE 0.0123f
static float global[LONG], local[WORKERS][LONG];

/* Deltas of many magnitudes; some are 0, and halves of a scale are among them. In every
 * third place two large ones cancel each other, and leave what the order made of the small ones. */
static void fill(void)
{
    for (int w = 0; w < WORKERS; w++)
        for (int64_t i = 0; i < LONG; i++) {
            static const float magnitudes[] = {1e-4f, 1e-2f, 0.1f, 1e3f};
            uint32_t bits[4];
            ls_philox((struct ls_philox_key){{7, (uint32_t)w}}, (uint32_t[4]){(uint32_t)i}, bits);
            if (w == 0)
                global[i] = bits[3] % 5 ? ls_uniform_of(bits[3]) - 0.5f : 0;
            float delta =
                bits[1] % 4 ? (ls_uniform_of(bits[0]) - 0.5f) * magnitudes[bits[2] % 4]
                            : (float)((int)(bits[2] % 400) - 200) / 2 * (w % 2 ? SCALE : 0x1p-10f);
            if (i % 3 == 0 && (w == 0 || w == 5))
                delta = w ? -1000 : 1000;
            local[w][i] = global[i] - delta;
        }
}

static int setup(void **state)
{
    fill();
    return 0;
}

/* ---- what they are said to be ---------------------------------------------------------------- */

static float largest_of(const float *x, const float *z, int64_t count, float most)
{
    for (int64_t i = 0; i < count; i++) {
        float size = fabsf(x[i] - z[i]);
        most = isnan(size) || isnan(most) ? NAN : fmaxf(size, most);
    }
    return most;
}

static int8_t int8_of(float delta, float scale)
{
    float ratio = scale > 0 || isnan(scale) ? delta / scale : 0;
    return (int8_t)(isnan(ratio) ? 0 : fminf(fmaxf(nearbyintf(ratio), -127), 127));
}

/* An element of type at `at` in parts is the worker's delta; value_of, what it stands for but for
 * the scale. */
static void encode_one(enum ls_delta_type type, float delta, float scale, void *parts, int64_t at)
{
    if (type == LS_DELTA_F32)
        ((float *)parts)[at] = delta;
    else if (type == LS_DELTA_BF16)
        ((ls_bf16 *)parts)[at] = ls_f32_to_bf16(delta);
    else
        ((int8_t *)parts)[at] = int8_of(delta, scale);
}

static float value_of(enum ls_delta_type type, const void *parts, int64_t at)
{
    return type == LS_DELTA_F32    ? ((const float *)parts)[at]
           : type == LS_DELTA_BF16 ? ls_bf16_to_f32(((const ls_bf16 *)parts)[at])
                                   : (float)((const int8_t *)parts)[at];
}

/* Element i of the sum of workers 0 to n - 1, or of n - 1 to 0. */
static float sum_of(enum ls_delta_type type, const void *parts, int n, int64_t i, bool backwards)
{
    float sum = value_of(type, parts, (backwards ? n - 1 : 0) * STRIDE + i);
    for (int w = 1; w < n; w++)
        sum += value_of(type, parts, (backwards ? n - 1 - w : w) * STRIDE + i);
    return type == LS_DELTA_BF16 ? ls_bf16_to_f32(ls_f32_to_bf16(sum)) : sum;
}

static float mixed(float whole, float own, float share)
{
    if (share == 0 || share == 1)
        return share == 0 ? whole : own;
    float d = own - whole;
    return share < 0.5f ? fmaf(share, d, whole) : fmaf(share - 1, d, own);
}

static void assert_same(const char *what, const struct ls_ops *ops, const void *got,
                        const void *want, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)got)[i] != ((const unsigned char *)want)[i])
            fail_msg("%s, %s, %d threads: byte %zu of %zu is %02x, expected %02x", what,
                     ls_isa_name(ops->isa), ops->threads, i, bytes, ((const unsigned char *)got)[i],
                     ((const unsigned char *)want)[i]);
}

/* Runs test with every instruction set, and with one thread and with three. */
static void on_each(void (*test)(struct ls_ops *ops))
{
    for (int isa = 0; isa <= (int)ls_isa_best(); isa++)
        for (int threads = 1; threads <= 3; threads += 2) {
            struct ls_ops ops;
            assert_int_equal(ls_ops_init(&ops, threads, (enum ls_isa)isa, NULL), LS_OK);
            test(&ops);
            ls_ops_release(&ops);
        }
}

/* ---- bits ------------------------------------------------------------------------------------ */

static void check_amax(struct ls_ops *ops)
{
    for (int c = 0; c < COUNTS; c++)
        for (int w = 0; w < WORKERS; w++) {
            float most = w % 2 ? 1e-3f : 0;
            float want = largest_of(global, local[w], counts[c], most);
            ls_delta_amax(ops, global, local[w], counts[c], &most);
            assert_same("amax", ops, &most, &want, sizeof most);
        }
}

CASE(test_amax)
{
    on_each(check_amax);
}

/* Halves go to even, and what is above 127 scales is cut off. */
static void check_encode(struct ls_ops *ops)
{
    static const float scales[] = {0x1p-10f, SCALE, 0, 1e30f};
    static float got[LONG], want[LONG];
    for (int c = 0; c < COUNTS; c++)
        for (int k = 0; k < TYPES + 3; k++) {
            enum ls_delta_type type = k < TYPES ? (enum ls_delta_type)k : LS_DELTA_INT8;
            float scale = scales[k < TYPES ? 0 : k - TYPES + 1];
            for (int64_t i = 0; i < counts[c]; i++)
                encode_one(type, global[i] - local[k][i], scale, want, i);
            ls_delta_encode(ops, type, global, local[k], counts[c], scale, got);
            assert_same("encode", ops, got, want, (size_t)counts[c] * ls_delta_bytes(type));
        }
}

CASE(test_encode)
{
    on_each(check_encode);
}

static void check_sum_and_decode(struct ls_ops *ops)
{
    static float parts[WORKERS * STRIDE], sum[LONG], got[LONG], want[LONG];
    const float scale = SCALE;
    for (enum ls_delta_type type = LS_DELTA_F32; type <= LS_DELTA_INT8; type++) {
        for (int w = 0; w < WORKERS; w++)
            for (int64_t i = 0; i < LONG; i++)
                encode_one(type, global[i] - local[w][i], scale, parts, w * STRIDE + i);
        for (int c = 0; c < COUNTS; c++)
            for (int n = c == LAST ? WORKERS : 1; n <= WORKERS; n++) {
                ls_delta_sum(ops, type, parts, STRIDE, n, counts[c], sum);
                ls_delta_decode(ops, type, sum, counts[c], scale, got);
                for (int64_t i = 0; i < counts[c]; i++) {
                    want[i] = sum_of(type, parts, n, i, false);
                    want[i] = type == LS_DELTA_INT8 ? want[i] * scale : want[i];
                }
                assert_same("sum", ops, got, want, (size_t)counts[c] * sizeof *got);
            }
    }
}

CASE(test_sum_and_decode)
{
    on_each(check_sum_and_decode);
}

static void check_mix(struct ls_ops *ops)
{
    static const float shares[] = {0, 0.1f, 0.4999f, 0.5f, 0.9f, 1};
    static float got[LONG], want[LONG];
    for (int c = 0; c < COUNTS; c++)
        for (int s = 0; s < 6; s++) {
            for (int64_t i = 0; i < counts[c]; i++)
                want[i] = mixed(global[i], local[s][i], shares[s]);
            memcpy(got, local[s], sizeof got);
            ls_mix(ops, global, got, counts[c], shares[s]);
            assert_same("mix", ops, got, want, (size_t)counts[c] * sizeof *got);
        }
}

CASE(test_mix)
{
    on_each(check_mix);
}

static void check_compensate(struct ls_ops *ops)
{
    static const float lambdas[] = {0, 0.04f, 2};
    static float got[LONG], want[LONG];
    for (int c = 0; c < COUNTS; c++)
        for (int k = 0; k < 3; k++) {
            for (int64_t i = 0; i < counts[c]; i++) {
                float g = local[0][i], scaled = lambdas[k] * g, curvature = scaled * g;
                float product = curvature * (local[1][i] - local[2][i]);
                want[i] = k ? g + product : g;
            }
            memcpy(got, local[0], sizeof got);
            ls_compensate(ops, got, local[1], local[2], counts[c], lambdas[k]);
            assert_same("compensate", ops, got, want, (size_t)counts[c] * sizeof *got);
        }
}

CASE(test_compensate)
{
    on_each(check_compensate);
}

/* ---- what is promised of numbers ------------------------------------------------------------- */

static struct ls_ops ops_shared(void)
{
    struct ls_ops ops;
    ls_ops_init_shared(&ops);
    return ops;
}

/* PyTorch 2.15, torch.manual_seed(5): a = torch.randn(16); b = a + torch.randn(16) * 0.1;
 * torch.lerp(a, b, share), on a CPU with AVX-512. */
CASE(test_mix_is_lerp)
{
    enum { N = 16 };
    static const uint32_t a[N] = {0x3febd177, 0x3f04d5ca, 0xbfdb203d, 0xbfd9c6cc,
                                  0x40013e2b, 0xbe8987d5, 0xbe05dacf, 0xbfb7fd2d,
                                  0x3ec812c6, 0xbc9b6247, 0xbfad24dc, 0xbf3b16e0,
                                  0x3f7ce879, 0xbed6bca3, 0xbf15bbbc, 0xbf48471d};
    static const uint32_t b[N] = {0x4007b343, 0x3f241e74, 0xbfdf6eb7, 0xbfe6211b,
                                  0x400069bb, 0xbea8574b, 0xbdee0384, 0xbfb9e821,
                                  0x3eb1adb4, 0x3d717b72, 0xbfade407, 0xbf6f11ee,
                                  0x3f916f82, 0xbebd712e, 0xbf0f5a74, 0xbf1b8dc4};
    static const uint32_t low[N] = {0x3ff67e2f, 0x3f0e3863, 0xbfdc6afb, 0xbfdd7b7d,
                                    0x4000fe70, 0xbe92c612, 0xbe01667e, 0xbfb89076,
                                    0x3ec15ada, 0x3b907b81, 0xbfad5e36, 0xbf4aaefe,
                                    0x3f842605, 0xbecf2600, 0xbf13d1c0, 0xbf3adc4f};
    static const uint32_t high[N] = {0x40025ce7, 0x3f1abbdb, 0xbfde23f9, 0xbfe26c6a,
                                     0x4000a976, 0xbe9f190e, 0xbdf6ec25, 0xbfb954d8,
                                     0x3eb865a0, 0x3d11bade, 0xbfadaaad, 0xbf5f79d0,
                                     0x3f8bbdba, 0xbec507d1, 0xbf114470, 0xbf28f892};
    struct ls_ops ops = ops_shared();
    float whole[N], own[N];
    memcpy(whole, a, sizeof whole);
    for (int turn = 0; turn < 2; turn++) {
        memcpy(own, b, sizeof own);
        ls_mix(&ops, whole, own, N, turn ? 0.7f : 0.3f);
        assert_same("lerp", &ops, own, turn ? high : low, sizeof own);
    }
}

/* The share of 0 and of 1, and lambda 0, are exact beside numbers that no sum leaves alone. */
CASE(test_ends_are_exact)
{
    static const float odd[] = {INFINITY, -0.0f, -INFINITY, 0.0f, NAN, 3e38f};
    struct ls_ops ops = ops_shared();
    float own[6], reversed[6];
    for (int i = 0; i < 6; i++)
        reversed[i] = odd[5 - i];
    for (int turn = 0; turn < 3; turn++) {
        memcpy(own, odd, sizeof own);
        if (turn < 2)
            ls_mix(&ops, reversed, own, 6, (float)turn);
        else
            ls_compensate(&ops, own, reversed, odd, 6, 0);
        assert_same("ends", &ops, own, turn == 0 ? reversed : odd, sizeof own);
    }
}

static void check_not_finite(struct ls_ops *ops)
{
    enum { N = 70 };
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY};
    static const float seen[] = {NAN, NAN, INFINITY, INFINITY};
    for (int k = 0; k < 4 * N; k++) {
        float mine[N], amax = 0, value[N];
        int8_t q[N];
        int16_t sum[N];
        memcpy(mine, local[0], sizeof mine);
        mine[k / 4] = odd[k % 4];
        ls_delta_amax(ops, global, mine, N, &amax);
        assert_same("amax", ops, &amax, &seen[k % 4], sizeof amax);
        ls_delta_encode(ops, LS_DELTA_INT8, global, mine, N, amax / 127, q);
        ls_delta_sum(ops, LS_DELTA_INT8, q, N, 1, N, sum);
        ls_delta_decode(ops, LS_DELTA_INT8, sum, N, amax / 127, value);
        for (int i = 0; i < N; i++)
            if (q[i] != 0 || !isnan(value[i]))
                fail_msg("%s: a delta of %g is lost: element %d is %d and %g",
                         ls_isa_name(ops->isa), (double)odd[k % 4], i, q[i], (double)value[i]);
        ls_bf16 half[N];
        ls_delta_encode(ops, LS_DELTA_BF16, global, mine, N, 0, half);
        assert_false(isfinite(ls_bf16_to_f32(half[k / 4])));
        float known = NAN;
        ls_delta_amax(ops, global, local[0], N, &known);
        assert_same("NaN stays", ops, &known, &seen[0], sizeof known);
    }
}

CASE(test_what_is_not_finite_is_not_lost)
{
    on_each(check_not_finite);
}

/* As many workers as int16 has room for, all at the end of the range. */
static void check_int16(struct ls_ops *ops)
{
    enum { N = 100, W = LS_DELTA_INT8_WORKERS_MAX };
    static int8_t parts[W][N];
    int16_t sum[N];
    for (int turn = -127; turn <= 127; turn += 254) {
        memset(parts, turn, sizeof parts);
        ls_delta_sum(ops, LS_DELTA_INT8, parts, N, W, N, sum);
        for (int i = 0; i < N; i++)
            assert_int_equal(sum[i], turn * W);
    }
}

CASE(test_int16_has_room)
{
    on_each(check_int16);
}

/* With the scale of the largest, a worker's int8 is half a scale off at most; the smallest
 * magnitudes, whose scale is not a normal number or 0, do no harm. */
CASE(test_int8_is_half_a_scale_off)
{
    enum { N = 1043 };
    struct ls_ops ops = ops_shared();
    for (int exponent = -149; exponent < 120; exponent += 3) {
        float zero[N] = {0}, mine[N], amax = 0;
        int8_t q[N];
        for (int i = 0; i < N; i++)
            mine[i] = ldexpf(local[0][i] / 512, exponent);
        ls_delta_amax(&ops, zero, mine, N, &amax);
        float scale = amax / 127;
        ls_delta_encode(&ops, LS_DELTA_INT8, zero, mine, N, scale, q);
        for (int i = 0; i < N; i++) {
            double off = fabs((double)q[i] * (double)scale + (double)mine[i]);
            if (scale >= 0x1p-126f && off > 0.5001 * (double)scale)
                fail_msg("2^%d: element %d, %a, is %d times %a", exponent, i, (double)mine[i], q[i],
                         (double)scale);
            assert_true(q[i] >= -127 && (q[i] == 0 || scale > 0));
        }
    }
}

/* The values do not hide an order, nor a second rounding in the mix: what the tests above compare
 * with is told from its neighbours. */
CASE(test_orders_differ)
{
    static float parts[WORKERS * STRIDE];
    for (enum ls_delta_type type = LS_DELTA_F32; type <= LS_DELTA_INT8; type++) {
        int differ = 0;
        for (int w = 0; w < WORKERS; w++)
            for (int64_t i = 0; i < LONG; i++)
                encode_one(type, global[i] - local[w][i], 0.01f, parts, w * STRIDE + i);
        for (int64_t i = 0; i < LONG; i++)
            differ +=
                sum_of(type, parts, WORKERS, i, false) != sum_of(type, parts, WORKERS, i, true);
        if (type == LS_DELTA_INT8)
            assert_int_equal(differ, 0);
        else
            assert_in_range(differ, LONG / 100, LONG);
    }
    int twice = 0;
    for (int64_t i = 0; i < LONG; i++) {
        float product = 0.1f * (local[0][i] - global[i]);
        twice += mixed(global[i], local[0][i], 0.1f) != global[i] + product;
    }
    assert_in_range(twice, LONG / 1000, LONG);
}

SUITE_MAIN(setup, NULL)
