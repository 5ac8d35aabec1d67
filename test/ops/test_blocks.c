/* Weights in blocks of few bits: what is nearest, that values of blocks give the same blocks again,
 * and products that have the bits of those with the values themselves. */
#include <lockstep/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/suite.h"

enum { ROWS = 96, COLS = 192, VALUES = ROWS * COLS, BYTES = VALUES / LS_BLOCK_VALUES * 68 };
static const enum ls_blocks forms[] = {LS_BLOCKS_INT8, LS_BLOCKS_NF4};

static float w[VALUES], values[VALUES];
static unsigned char blocks[BYTES], again[BYTES];

static float draw(uint32_t seed, uint32_t i)
{
    uint32_t bits[4];
    ls_philox((struct ls_philox_key){{seed, 14}}, (uint32_t[4]){i, 0, 0, 0}, bits);
    return (ls_uniform_of(bits[0]) - 0.5f) * (float)(1 << bits[1] % 5);
}

static void quantize(enum ls_blocks form, int64_t count, const float *from, void *to)
{
    struct ls_error error = {0};
    assert_ok(ls_blocks_quantize(form, count, from, to, &error), error);
}

/* Weights, some blocks of which are zero or nearly so. */
static void weights_make(enum ls_blocks form)
{
    for (int i = 0; i < VALUES; i++)
        w[i] = i / LS_BLOCK_VALUES % 7 == 3   ? 0
               : i / LS_BLOCK_VALUES % 7 == 5 ? draw(1, (uint32_t)i) * 0x1p-104f
                                              : draw(1, (uint32_t)i) / 16;
    quantize(form, VALUES, w, blocks);
    ls_blocks_values(form, blocks, 0, VALUES, values);
}

/* The first blocks hold every code. */
static void codes_make(enum ls_blocks form)
{
    size_t bytes = ls_block_bytes(form), codes = bytes - sizeof(float);
    for (size_t i = 0; i < 256; i++) {
        unsigned char *block = blocks + i / codes * bytes;
        memcpy(block, &(float){-0.37f - 0.01f * (float)(i / codes)}, sizeof(float));
        block[sizeof(float) + i % codes] = (unsigned char)i;
    }
    ls_blocks_values(form, blocks, 0, VALUES, values);
}

/* ---- quantisation ---------------------------------------------------------------------------- */

static float map_of(enum ls_blocks form, int code)
{
    return form == LS_BLOCKS_NF4 ? ls_nf4_map()[code] : (float)(code - 127) / 127.0f;
}

/* No other value of the map is nearer, but for rounding. */
CASE(test_values_are_the_nearest)
{
    for (int f = 0; f < 2; f++) {
        weights_make(forms[f]);
        for (int i = 0; i < VALUES; i++) {
            const float *block = w + i / LS_BLOCK_VALUES * LS_BLOCK_VALUES;
            float absmax = 0;
            for (int j = 0; j < LS_BLOCK_VALUES; j++)
                absmax = fmaxf(absmax, fabsf(block[j]));
            if (absmax < 0x1p-100f) {
                assert_true(values[i] == 0);
                continue;
            }
            double off = fabs((double)values[i] - (double)w[i]), best = off;
            for (int code = 0; code < (f ? 16 : 255); code++)
                best = fmin(best, fabs((double)(map_of(forms[f], code) * absmax) - (double)w[i]));
            assert_true(off <= best + (double)absmax * 0x1p-22);
        }
    }
}

CASE(test_values_of_blocks_give_them_again)
{
    for (int f = 0; f < 2; f++) {
        weights_make(forms[f]);
        size_t bytes = ls_blocks_row_bytes(forms[f], VALUES);
        quantize(forms[f], VALUES, values, again);
        assert_memory_equal(blocks, again, bytes);
        ((float *)again)[0] *= 1 + 0x1p-22f; /* the twin */
        assert_memory_not_equal(blocks, again, bytes);
    }
}

/* Nested absmax may be negative. */
CASE(test_a_negative_absmax_is_found)
{
    float of[LS_BLOCK_VALUES], back[LS_BLOCK_VALUES], absmax;
    for (int i = 0; i < LS_BLOCK_VALUES; i++)
        of[i] = ls_nf4_map()[i * 5 % 16] * -0.01f;
    quantize(LS_BLOCKS_NF4, LS_BLOCK_VALUES, of, blocks);
    memcpy(&absmax, blocks, sizeof absmax);
    assert_true(absmax == -0.01f);
    ls_blocks_values(LS_BLOCKS_NF4, blocks, 0, LS_BLOCK_VALUES, back);
    for (int i = 0; i < LS_BLOCK_VALUES; i++)
        assert_true(of[i] == back[i]);
}

/* The bytes that bitsandbytes writes: two codes a byte, the first one in the high bits. */
CASE(test_codes_lie_as_in_bitsandbytes)
{
    float of[LS_BLOCK_VALUES], absmax;
    unsigned char block[36];
    for (int i = 0; i < LS_BLOCK_VALUES; i++)
        of[i] = 2.5f * ls_nf4_map()[i % 16];
    quantize(LS_BLOCKS_NF4, LS_BLOCK_VALUES, of, block);
    memcpy(&absmax, block, sizeof absmax);
    assert_true(absmax == 2.5f);
    for (int i = 0; i < LS_BLOCK_VALUES / 2; i++)
        assert_int_equal(block[4 + i], 2 * i % 16 << 4 | (2 * i % 16 + 1));
    for (int i = 0; i < LS_BLOCK_VALUES; i++)
        of[i] = (float)(i - 31) / 31 * -3;
    quantize(LS_BLOCKS_INT8, LS_BLOCK_VALUES, of, again);
    memcpy(&absmax, again, sizeof absmax);
    assert_true(absmax == 3.0f * 32 / 31);
    assert_int_equal((int8_t)again[4 + 63], -127);
}

CASE(test_pieces_are_those_of_the_whole)
{
    float piece[200];
    for (int f = 0; f < 2; f++) {
        weights_make(forms[f]);
        for (int first = 0; first < 130; first += 13)
            for (int count = 1; count < 200; count += 31) {
                ls_blocks_values(forms[f], blocks, first, count, piece);
                assert_memory_equal(piece, values + first, (size_t)count * sizeof *piece);
            }
    }
}

CASE(test_what_is_not_finite_is_refused)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int f = 0; f < 2; f++)
        for (int i = 0; i < 3; i++) {
            struct ls_error error = {0};
            for (int v = 0; v < 128; v++)
                w[v] = (float)v;
            w[70] = bad[i];
            assert_int_equal(ls_blocks_quantize(forms[f], 128, w, blocks, &error), LS_EDATA);
            assert_non_null(strstr(error.text, "value 70 is "));
        }
}

/* ---- products -------------------------------------------------------------------------------- */

enum { M_MAX = 70 };
static float a[M_MAX * COLS], c[2][M_MAX * COLS];
static ls_half half_a[M_MAX * COLS], half_b[VALUES];

struct shape {
    int64_t m, tiles;
    bool transposed; /* y = x W^T; else dx = dy W */
    int64_t sections;
};
static const struct shape shapes[] = {
    {70, 1, true, 1},  {40, 4, true, 1}, {3, 12, true, 1}, {70, 1, false, 1}, {40, 4, false, 1},
    {33, 2, false, 3}, {1, 1, true, 1},  {7, 6, true, 1},  {13, 2, true, 1},  {16, 1, true, 1},
};

static struct ls_gemm gemm_of(const struct shape *shape, enum ls_dtype in, float *to)
{
    int64_t k = shape->transposed ? COLS : ROWS, n = shape->transposed ? ROWS : COLS;
    struct ls_gemm gemm = {.m = shape->m,
                           .n = n,
                           .sections = (int)shape->sections,
                           .tiles = shape->tiles,
                           .b_transposed = shape->transposed,
                           .in = in,
                           .out = LS_F32,
                           .a = in == LS_F32 ? (const void *)a : half_a,
                           .lda = k,
                           .b = in == LS_F32 ? (const void *)values : half_b,
                           .ldb = COLS,
                           .c = to,
                           .ldc = n};
    for (int s = 0; s < gemm.sections; s++)
        gemm.k[s] = k / shape->sections;
    return gemm;
}

static void run(struct ls_ops *ops, const struct ls_gemm *gemm)
{
    struct ls_error error = {0};
    assert_ok(ls_gemm_run(ops, gemm, &error), error);
}

/* The product with B in blocks, and that with its values, rounded to the type of A. */
static void both(struct ls_ops *ops, const struct shape *shape, enum ls_blocks form,
                 enum ls_dtype in)
{
    for (int i = 0; i < M_MAX * COLS; i++) {
        a[i] = (float)(i * 2654435761u % 2047) / 512 - 2;
        half_a[i] = in == LS_F32 ? 0 : ls_f32_to_half(in, a[i]);
    }
    for (int i = 0; i < VALUES; i++)
        half_b[i] = in == LS_F32 ? 0 : ls_f32_to_half(in, values[i]);
    struct ls_gemm gemm = gemm_of(shape, in, c[0]);
    memset(c, 0xff, sizeof c);
    run(ops, &gemm);
    gemm.b = blocks;
    gemm.b_blocks = form;
    gemm.c = c[1];
    run(ops, &gemm);
}

/* On every instruction set, in both arithmetics, on one thread and on three. */
static void each_product(void (*check)(struct ls_ops *ops, const struct shape *shape,
                                       enum ls_blocks form, enum ls_dtype in))
{
    static const enum ls_dtype types[] = {LS_F32, LS_BF16, LS_F16};
    for (int isa = 0; isa <= (int)ls_isa_best(); isa++)
        for (int arithmetic = 0; arithmetic < LS_ARITHMETIC_COUNT; arithmetic++) {
            struct ls_ops ops;
            struct ls_error error = {0};
            assert_ok(ls_ops_init(&ops, isa % 2 ? 3 : 1, (enum ls_isa)isa, &error), error);
            ops.arithmetic = (enum ls_arithmetic)arithmetic;
            for (int f = 0; f < 2; f++) {
                weights_make(forms[f]);
                codes_make(forms[f]);
                for (int t = arithmetic ? 1 : 0; t < (arithmetic ? 2 : 3); t++)
                    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
                        check(&ops, &shapes[s], forms[f], types[t]);
            }
            ls_ops_release(&ops);
        }
}

static void product_is_that_of_values(struct ls_ops *ops, const struct shape *shape,
                                      enum ls_blocks form, enum ls_dtype in)
{
    both(ops, shape, form, in);
    if (memcmp(c[0], c[1], sizeof c[0]))
        fail_msg("%s, m %ld, tiles %ld, %d, %s", ls_isa_name(ops->isa), (long)shape->m,
                 (long)shape->tiles, shape->transposed, ls_dtype_name(in));
}

CASE(test_products_are_those_of_the_values)
{
    each_product(product_is_that_of_values);
}

/* The twins: a block with its neighbour's absmax; NF4 with the codes of each byte swapped. */
static void broken_products_differ(struct ls_ops *ops, const struct shape *shape,
                                   enum ls_blocks form, enum ls_dtype in)
{
    size_t bytes = ls_block_bytes(form);
    unsigned char kept[68];
    memcpy(kept, blocks + 2 * bytes, bytes);
    memcpy(blocks + 2 * bytes, blocks + bytes, sizeof(float));
    both(ops, shape, form, in);
    assert_memory_not_equal(c[0], c[1], sizeof c[0]);
    memcpy(blocks + 2 * bytes, kept, bytes);
    for (size_t i = 4; i < bytes && form == LS_BLOCKS_NF4; i++)
        blocks[2 * bytes + i] = (unsigned char)(kept[i] << 4 | kept[i] >> 4);
    both(ops, shape, form, in);
    if (form == LS_BLOCKS_NF4)
        assert_memory_not_equal(c[0], c[1], sizeof c[0]);
    memcpy(blocks + 2 * bytes, kept, bytes);
}

CASE(test_broken_blocks_are_seen)
{
    each_product(broken_products_differ);
}

CASE(test_rows_are_whole_blocks)
{
    struct ls_ops ops;
    struct ls_error error = {0};
    struct ls_gemm gemm = gemm_of(&shapes[0], LS_F32, c[0]);
    gemm.b_blocks = LS_BLOCKS_NF4;
    gemm.ldb = gemm.k[0] = gemm.lda = 100;
    assert_int_equal(ls_ops_init(&ops, 1, LS_ISA_PLAIN, &error), LS_OK);
    assert_int_equal(ls_gemm_run(&ops, &gemm, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "ldb is 100: expected a multiple of 64"));
    ls_ops_release(&ops);
}

SUITE_MAIN(NULL, NULL)
