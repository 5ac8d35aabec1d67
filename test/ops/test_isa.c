/* The instruction set that is best here, the variable that makes it less, and that all sets agree
 * in each arithmetic. */
#include <lockstep/base.h>
#include <lockstep/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/suite.h"

CASE(test_names)
{
    for (int isa = 0; isa < LS_ISA_COUNT; isa++)
        assert_int_equal(ls_isa_of_name(ls_isa_name((enum ls_isa)isa)), isa);
    assert_int_equal(ls_isa_of_name("avx"), -1);
}

CASE(test_the_variable_is_an_upper_bound)
{
    assert_int_equal(unsetenv(LS_ISA_VARIABLE), 0);
    enum ls_isa machine = ls_isa_best();
    for (int isa = 0; isa < LS_ISA_COUNT; isa++) {
        struct ls_ops ops;
        struct ls_error error = {0};
        enum ls_isa want = isa < (int)machine ? (enum ls_isa)isa : machine;
        assert_int_equal(setenv(LS_ISA_VARIABLE, ls_isa_name((enum ls_isa)isa), 1), 0);
        assert_int_equal(ls_isa_best(), want);
        assert_int_equal(ls_ops_init(&ops, 1, want, &error), LS_OK);
        ls_ops_release(&ops);
        if (want == LS_ISA_COUNT - 1)
            continue;
        assert_int_equal(ls_ops_init(&ops, 1, want + 1, &error), LS_ENOTSUP);
        /* Named where it forbids, not where the machine alone does. */
        if (!strstr(error.text, LS_ISA_VARIABLE) != (isa > (int)machine))
            fail_msg("%s: %s", ls_isa_name((enum ls_isa)isa), error.text);
    }
}

CASE(test_an_unknown_name_is_refused)
{
    struct ls_ops ops;
    struct ls_error error = {0};
    assert_int_equal(setenv(LS_ISA_VARIABLE, "avx3", 1), 0);
    assert_int_equal(ls_ops_init(&ops, 1, LS_ISA_PLAIN, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "LOCKSTEP_ISA=avx3: expected plain, avx2"));
    assert_int_equal(setenv(LS_ISA_VARIABLE, "", 1), 0);
    assert_int_equal(ls_ops_init(&ops, 1, LS_ISA_PLAIN, &error), LS_OK);
    ls_ops_release(&ops);
}

/* ---- the arithmetic -------------------------------------------------------------------------- */

enum { M = 40, N = 70, K = 330, SIZES = 4 };

/* bf16 of both signs and one of four sizes: products of the smallest are subnormal floats, sums of
 * the largest cancel. */
static void operand_fill(ls_bf16 *values, int count, uint32_t seed, int size)
{
    static const uint32_t exponents[SIZES] = {120, 62, 0, 180};
    for (int i = 0; i < count; i++) {
        uint32_t bits[4];
        ls_philox((struct ls_philox_key){{seed, 9}}, (uint32_t[4]){(uint32_t)i, 0, 0, 0}, bits);
        uint32_t exponent = exponents[size] + bits[1] % 9;
        values[i] = (ls_bf16)((bits[0] & 0x807f) | exponent << 7);
    }
}

static void product_of(enum ls_isa isa, enum ls_arithmetic arithmetic, enum ls_dtype in, int size,
                       float c[M * N])
{
    static ls_half half[M * K + K * N];
    static float whole[M * K + K * N];
    struct ls_ops ops;
    struct ls_error error = {0};
    operand_fill(half, M * K + K * N, (uint32_t)size, size);
    for (int i = 0; i < M * K + K * N; i++)
        whole[i] = ls_bf16_to_f32(half[i]) * (1.0f + 0x1p-12f);
    bool narrow = in != LS_F32;
    struct ls_gemm gemm = {.m = M,
                           .n = N,
                           .sections = 1,
                           .k = {K},
                           .tiles = 3,
                           .in = in,
                           .out = LS_F32,
                           .a = narrow ? (void *)half : (void *)whole,
                           .b = narrow ? (void *)(half + M * K) : (void *)(whole + M * K),
                           .c = c,
                           .lda = K,
                           .ldb = N,
                           .ldc = N};
    assert_int_equal(ls_ops_init(&ops, 1, isa, &error), LS_OK);
    ops.arithmetic = arithmetic;
    assert_int_equal(ls_gemm_run(&ops, &gemm, &error), LS_OK);
    ls_ops_release(&ops);
}

static const enum ls_dtype acts[] = {LS_F32, LS_BF16, LS_F16};

/* Every set gives the same bits in one arithmetic, subnormal numbers included. */
CASE(test_products_of_one_arithmetic)
{
    static float want[M * N], got[M * N];
    assert_int_equal(unsetenv(LS_ISA_VARIABLE), 0);
    for (int isa = LS_ISA_PLAIN + 1; isa <= (int)ls_isa_best(); isa++)
        for (int in = 0; in < 3; in++)
            for (int size = 0; size < SIZES * LS_ARITHMETIC_COUNT; size++) {
                enum ls_arithmetic arithmetic = (enum ls_arithmetic)(size / SIZES);
                product_of(LS_ISA_PLAIN, arithmetic, acts[in], size % SIZES, want);
                product_of((enum ls_isa)isa, arithmetic, acts[in], size % SIZES, got);
                if (memcmp(want, got, sizeof want) != 0)
                    fail_msg("%s differs from plain in %s, %s, at size %d",
                             ls_isa_name((enum ls_isa)isa), ls_dtype_name(acts[in]),
                             ls_arithmetic_name(arithmetic), size % SIZES);
            }
}

/* Only products of bf16 tell arithmetics apart. */
CASE(test_arithmetics_differ_in_bf16_alone)
{
    static float fma[M * N], pairs[M * N];
    assert_int_equal(unsetenv(LS_ISA_VARIABLE), 0);
    for (int in = 0; in < 3; in++) {
        product_of(ls_isa_best(), LS_ARITHMETIC_FMA, acts[in], 0, fma);
        product_of(ls_isa_best(), LS_ARITHMETIC_BF16_PAIRS, acts[in], 0, pairs);
        assert_int_equal(memcmp(fma, pairs, sizeof fma) != 0, acts[in] == LS_BF16);
    }
}

/* What bf16_pairs means, by the definition in lockstep/ops.h: one element of a product. */
CASE(test_pairs_are_what_they_are_said_to_be)
{
    static float c[M * N];
    static ls_bf16 operand[M * K + K * N];
    assert_int_equal(unsetenv(LS_ISA_VARIABLE), 0);
    product_of(ls_isa_best(), LS_ARITHMETIC_BF16_PAIRS, LS_BF16, 0, c);
    operand_fill(operand, M * K + K * N, 0, 0);
    for (int at = 0; at < M * N; at++) {
        enum { TILES = 3, TILE = K / TILES, STEP = 32 };
        float tile[TILES] = {0};
        for (int t = 0; t < TILES; t++)
            for (int k = 0; k < TILE; k += STEP) {
                float sum[2] = {0, 0};
                for (int i = 0; i < STEP && k + i < TILE; i++) {
                    int place = t * TILE + k + i;
                    float a = ls_bf16_to_f32(operand[at / N * K + place]);
                    float b = ls_bf16_to_f32(operand[M * K + place * N + at % N]);
                    sum[i % 2] = fmaf(a, b, sum[i % 2]);
                }
                tile[t] += sum[0] + sum[1];
            }
        float want = (tile[0] + tile[1]) + tile[2];
        assert_memory_equal(&c[at], &want, sizeof want);
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

enum { TOKENS = 150, HEADS = 3, DIM_MAX = 72, WIDTH = HEADS * DIM_MAX };

struct attention_bits {
    ls_half o[TOKENS * WIDTH], d_q[TOKENS * WIDTH], d_k[TOKENS * WIDTH], d_v[TOKENS * WIDTH];
    float lse[HEADS * TOKENS];
};

/* Scores of ordinary size, and, with wide, so far apart that most weights vanish. */
static void attention_of(enum ls_isa isa, enum ls_arithmetic arithmetic, int dim, bool wide,
                         struct attention_bits *bits)
{
    static ls_half given[4][TOKENS * WIDTH];
    struct ls_ops ops;
    struct ls_error error = {0};
    for (uint32_t i = 0; i < 4; i++) {
        operand_fill(given[i], TOKENS * WIDTH, i, 0);
        for (int k = 0; k < TOKENS * WIDTH; k++)
            given[i][k] = ls_f32_to_bf16(ls_bf16_to_f32(given[i][k]) * (wide ? 4.0f : 0.25f));
    }
    memset(bits, 0, sizeof *bits);
    struct ls_attention a = {.batch = 1,
                             .tokens = TOKENS,
                             .heads = HEADS,
                             .kv_heads = HEADS,
                             .head_dim = dim,
                             .scale = 0.125f,
                             .act = LS_BF16,
                             .q = given[0],
                             .k = given[1],
                             .v = given[2],
                             .d_o = given[3],
                             .q_ld = WIDTH,
                             .kv_ld = WIDTH,
                             .o_ld = WIDTH,
                             .o = bits->o,
                             .lse = bits->lse,
                             .d_q = bits->d_q,
                             .d_k = bits->d_k,
                             .d_v = bits->d_v};
    assert_int_equal(ls_ops_init(&ops, 1, isa, &error), LS_OK);
    ops.arithmetic = arithmetic;
    assert_int_equal(ls_attention_forward(&ops, &a, &error), LS_OK);
    assert_int_equal(ls_attention_backward(&ops, &a, &error), LS_OK);
    ls_ops_release(&ops);
}

/* bf16_pairs on every set. In fma too: AVX-512 and plain C take other ways to one result. */
CASE(test_attention_of_one_arithmetic)
{
    static struct attention_bits want, got;
    static const int dims[] = {8, 40, 64, DIM_MAX};
    assert_int_equal(unsetenv(LS_ISA_VARIABLE), 0);
    for (int i = 0; i < 4 * 2 * LS_ARITHMETIC_COUNT; i++) {
        enum ls_arithmetic arithmetic = (enum ls_arithmetic)(i / 8);
        int dim = dims[i % 4];
        bool wide = i / 4 % 2;
        attention_of(LS_ISA_PLAIN, arithmetic, dim, wide, &want);
        for (int isa = LS_ISA_PLAIN + 1; isa <= (int)ls_isa_best(); isa++) {
            attention_of((enum ls_isa)isa, arithmetic, dim, wide, &got);
            if (memcmp(&want, &got, sizeof want) != 0)
                fail_msg("%s differs from plain in %s, head dim %d, %s scores",
                         ls_isa_name((enum ls_isa)isa), ls_arithmetic_name(arithmetic), dim,
                         wide ? "wide" : "ordinary");
        }
    }
}

/* The bits that every processor gives, in each arithmetic: of products, where numbers are ordinary,
 * subnormal as sums, and subnormal as operands; and of attention. What overflows is left out, as
 * processors differ in the sign of NaN. */
CASE(test_bits_are_those_of_every_processor)
{
    static const char *const want[LS_ARITHMETIC_COUNT] = {"99dc14af9ed1a2e8b3de89051c6fc222",
                                                          "6db4e5a282de6cb238d99e150fd07eb2"};
    static float c[M * N];
    static struct attention_bits bits;
    assert_int_equal(unsetenv(LS_ISA_VARIABLE), 0);
    for (int arithmetic = 0; arithmetic < LS_ARITHMETIC_COUNT; arithmetic++) {
        struct ls_digest digest = {0, 0};
        char hex[33];
        for (int size = 0; size < SIZES - 1; size++) {
            product_of(ls_isa_best(), (enum ls_arithmetic)arithmetic, LS_BF16, size, c);
            ls_digest_piece(&digest, "product", size, 0, c, sizeof c);
        }
        attention_of(ls_isa_best(), (enum ls_arithmetic)arithmetic, 64, false, &bits);
        ls_digest_piece(&digest, "attention", 0, 0, &bits, sizeof bits);
        ls_digest_hex(&digest, hex);
        assert_string_equal(hex, want[arithmetic]);
    }
}

/* Never a much slower one. */
CASE(test_the_fastest_is_here)
{
    assert_int_equal(unsetenv(LS_ISA_VARIABLE), 0);
    for (int most = 0; most <= (int)ls_isa_best(); most++)
        for (int i = 0; i < 3 * LS_ARITHMETIC_COUNT; i++) {
            enum ls_arithmetic arithmetic = (enum ls_arithmetic)(i / 3);
            enum ls_dtype act = acts[i % 3];
            enum ls_isa fastest = ls_isa_fastest((enum ls_isa)most, arithmetic, act);
            assert_true((int)fastest <= most);
            bool asked = most >= LS_ISA_AVX512_BF16 && act == LS_BF16;
            if (!asked || arithmetic != LS_ARITHMETIC_FMA)
                assert_int_equal((int)fastest, most);
            assert_int_equal(ls_arithmetic_fastest((enum ls_isa)most, act),
                             act == LS_BF16 && most == LS_ISA_AMX ? LS_ARITHMETIC_BF16_PAIRS
                                                                  : LS_ARITHMETIC_FMA);
        }
    assert_int_equal(setenv(LS_ISA_VARIABLE, "amx", 1), 0);
    assert_int_equal(ls_isa_fastest(LS_ISA_AVX512_BF16, LS_ARITHMETIC_FMA, LS_BF16),
                     LS_ISA_AVX512_BF16);
    assert_int_equal(unsetenv(LS_ISA_VARIABLE), 0);
}

SUITE_MAIN(NULL, NULL)
