/* The matrix product: right against double, and the property that the whole system stands on: an
 * element's bits do not depend on m, n, threads, leading distances, nor on which tiles are computed
 * where. Every instruction set of this machine is tested in a process of its own. */
#include "../support/extent.h"
#include "../support/testing.h"
#include "gemm_reference.h"

#include <lockstep/ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CASES = 250 };

static struct ls_ops ops_of[4]; /* by number of threads, 1 to 3 */

/* ---- a product with buffers of its own ------------------------------------------------------- */

struct product {
    struct ls_gemm gemm;
    void *a, *b, *c;
    float *bias;
};

static uint32_t random_bits(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 32);
}
static int64_t random_below(uint64_t *state, int64_t n)
{
    return random_bits(state) % n;
}

static void *random_buffer(uint64_t *state, enum ls_dtype dtype, int64_t count)
{
    void *buffer = malloc((size_t)ls_max(count, 1) * ls_dtype_bytes(dtype));
    assert_non_null(buffer);
    for (int64_t i = 0; i < count; i++) {
        float value = ls_uniform_of(random_bits(state)) * 2 - 1;
        if (dtype == LS_F32)
            ((float *)buffer)[i] = value;
        else
            ((ls_half *)buffer)[i] = ls_f32_to_half(dtype, value);
    }
    return buffer;
}

static int64_t total_k(const struct ls_gemm *gemm)
{
    int64_t k = 0;
    for (int s = 0; s < gemm->sections; s++)
        k += gemm->k[s];
    return k;
}

/* Fills in operands for the sizes and forms in gemm; leading distances have `slack` more. */
static struct product product_make(struct ls_gemm gemm, int64_t slack, bool bias, uint64_t seed)
{
    int64_t k = total_k(&gemm);
    gemm.lda = (gemm.a_transposed ? gemm.m : k) + slack;
    gemm.ldb = (gemm.b_transposed ? k : gemm.n) + slack;
    gemm.ldc = gemm.n + slack;
    struct product p = {.gemm = gemm};
    p.a = random_buffer(&seed, gemm.in, gemm.lda * (gemm.a_transposed ? k : gemm.m));
    p.b = random_buffer(&seed, gemm.in, gemm.ldb * (gemm.b_transposed ? gemm.n : k));
    p.c = random_buffer(&seed, gemm.out, gemm.ldc * gemm.m);
    p.bias = random_buffer(&seed, LS_F32, gemm.n);
    p.gemm.a = p.a;
    p.gemm.b = p.b;
    p.gemm.c = p.c;
    p.gemm.bias = bias ? p.bias : NULL;
    return p;
}

/* Elements times `by`. */
static void shrink(enum ls_dtype dtype, void *x, int64_t count, float by)
{
    for (int64_t i = 0; i < count; i++)
        if (dtype == LS_F32)
            ((float *)x)[i] *= by;
        else
            ((ls_half *)x)[i] =
                ls_f32_to_half(dtype, ls_half_to_f32(dtype, ((const ls_half *)x)[i]) * by);
}

/* A product whose sums are small normal floats, of which some added to others are subnormal. */
static void product_shrink(struct product *p)
{
    const struct ls_gemm *gemm = &p->gemm;
    int64_t k = total_k(gemm);
    shrink(gemm->in, p->a, gemm->lda * (gemm->a_transposed ? k : gemm->m), 0x1p-60f);
    shrink(gemm->in, p->b, gemm->ldb * (gemm->b_transposed ? gemm->n : k), 0x1p-60f);
    shrink(gemm->out, p->c, gemm->ldc * gemm->m, 0x1p-120f);
    shrink(LS_F32, p->bias, gemm->n, 0x1p-120f);
}

static void product_free(struct product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->bias);
}

static size_t c_bytes(const struct ls_gemm *gemm)
{
    return (size_t)(gemm->ldc * gemm->m) * ls_dtype_bytes(gemm->out);
}

static void describe(const struct ls_gemm *g, char text[200])
{
    snprintf(text, 200, "m %lld n %lld k %lld+%lld+%lld tiles %lld leaves %lld %s%s %s->%s%s%s",
             (long long)g->m, (long long)g->n, (long long)g->k[0],
             (long long)(g->sections > 1 ? g->k[1] : 0), (long long)(g->sections > 2 ? g->k[2] : 0),
             (long long)g->tiles, (long long)g->leaves, g->a_transposed ? "At" : "A",
             g->b_transposed ? "Bt" : "B", ls_dtype_name(g->in), ls_dtype_name(g->out),
             g->bias ? " bias" : "",
             g->onto == LS_ONTO_SUM     ? " onto a sum"
             : g->onto == LS_ONTO_CHAIN ? " onto a chain"
                                        : "");
}

static void run(const struct ls_gemm *gemm, int threads)
{
    struct ls_error error = {0};
    assert_ok(ls_gemm_run(&ops_of[threads], gemm, &error), error);
}

static double value_at(const void *x, enum ls_dtype dtype, int64_t index)
{
    return dtype == LS_F32 ? ((const float *)x)[index]
                           : ls_half_to_f32(dtype, ((const ls_half *)x)[index]);
}

/* The element's sum in double, and the sum of its terms' magnitudes. */
static double exact(const struct ls_gemm *g, int64_t i, int64_t j, double *magnitude)
{
    double sum = g->bias ? (double)g->bias[j] : 0;
    *magnitude = fabs(sum);
    for (int64_t k = 0; k < total_k(g); k++) {
        double term = value_at(g->a, g->in, g->a_transposed ? k * g->lda + i : i * g->lda + k) *
                      value_at(g->b, g->in, g->b_transposed ? j * g->ldb + k : k * g->ldb + j);
        sum += term;
        *magnitude += fabs(term);
    }
    return sum;
}

/* Every row, some columns, against double; what lies between the rows of C is untouched. */
static void assert_right(const struct ls_gemm *gemm, const void *before)
{
    char text[200];
    describe(gemm, text);
    int64_t step = 1 + gemm->n / 7;
    for (int64_t i = 0; i < gemm->m; i++) {
        for (int64_t j = i % step; j < gemm->n; j += step) {
            double magnitude, wanted = exact(gemm, i, j, &magnitude);
            if (gemm->onto != LS_ONTO_NOTHING)
                wanted += value_at(before, gemm->out, i * gemm->ldc + j);
            double got = value_at(gemm->c, gemm->out, i * gemm->ldc + j);
            /* float32 sums of at most some hundred terms in a row; bf16 has 8 bits, fp16 11, and
             * none below 2^-24. */
            double allowed = 1e-5 * (magnitude + fabs(wanted)) + 1e-30;
            if (gemm->out == LS_BF16)
                allowed += fabs(wanted) / 256;
            if (gemm->out == LS_F16)
                allowed += fabs(wanted) / 2048 + 0x1p-25;
            if (!(fabs(got - wanted) <= allowed))
                fail_msg("%s: C[%lld, %lld] is %.9g, expected %.9g", text, (long long)i,
                         (long long)j, got, wanted);
        }
        for (int64_t j = gemm->n; j < gemm->ldc; j++)
            if (value_at(gemm->c, gemm->out, i * gemm->ldc + j) !=
                value_at(before, gemm->out, i * gemm->ldc + j))
                fail_msg("%s: wrote past the end of row %lld", text, (long long)i);
    }
}

/* part [m, n] equals the block of whole that starts at (row, column), bit for bit. */
static void assert_same_block(const struct ls_gemm *whole, int64_t row, int64_t column,
                              const struct ls_gemm *part, const char *what)
{
    size_t size = ls_dtype_bytes(whole->out);
    for (int64_t i = 0; i < part->m; i++) {
        const char *row_w =
            (const char *)whole->c + size * (size_t)((row + i) * whole->ldc + column);
        if (memcmp(row_w, (const char *)part->c + size * (size_t)(i * part->ldc),
                   size * (size_t)part->n) == 0)
            continue;
        for (int64_t j = 0; j < part->n; j++) {
            int64_t index_w = (row + i) * whole->ldc + column + j, index_p = i * part->ldc + j;
            const unsigned char *w = (const unsigned char *)whole->c + (size_t)index_w * size;
            const unsigned char *p = (const unsigned char *)part->c + (size_t)index_p * size;
            if (memcmp(w, p, size) != 0) {
                char text[200];
                describe(whole, text);
                fail_msg("%s: %s changes the bits of C[%lld, %lld]: %.9g and %.9g", text, what,
                         (long long)(row + i), (long long)(column + j),
                         value_at(whole->c, whole->out, index_w),
                         value_at(part->c, part->out, index_p));
            }
        }
    }
}

/* ---- right ----------------------------------------------------------------------------------- */

static const enum ls_dtype acts[] = {LS_F32, LS_BF16, LS_F16};

/* Products of other types are the same in each arithmetic. */
static bool is_wanted(enum ls_dtype in)
{
    return in == LS_BF16 || ops_of[1].arithmetic == LS_ARITHMETIC_FMA;
}

static struct ls_gemm random_gemm(uint64_t *state)
{
    static const int64_t tiles[] = {1, 1, 2, 3, 4, 8};
    static const int64_t edges[] = {1, 2, 15, 16, 17, 31, 32, 33, 64, 70, 100};
    struct ls_gemm gemm = {.m = edges[random_below(state, 11)],
                           .n = edges[random_below(state, 11)],
                           .sections = 1 + (int)random_below(state, 3),
                           .tiles = tiles[random_below(state, 6)],
                           .a_transposed = random_below(state, 2),
                           .b_transposed = random_below(state, 2),
                           .in = acts[random_below(state, 3)],
                           .out = acts[random_below(state, 3)]};
    if (!is_wanted(gemm.in))
        gemm.in = LS_BF16;
    int64_t longest = random_below(state, 8) ? 70 : 700;
    for (int s = 0; s < gemm.sections; s++)
        gemm.k[s] = gemm.tiles * random_below(state, longest / gemm.tiles + 1);
    for (gemm.leaves = 1 + random_below(state, gemm.tiles); gemm.tiles % gemm.leaves; gemm.leaves--)
        ;
    if (gemm.out == LS_F32)
        gemm.onto = (enum ls_onto)random_below(state, gemm.tiles == 1 ? 3 : 2);
    return gemm;
}

static void test_random_products_against_double(void **state)
{
    uint64_t seed = 20;
    bool plain = ops_of[1].isa == LS_ISA_PLAIN;
    int cases = CASES / (plain ? check_every(25, 25) : check_every(8, 8));
    for (int i = 0; i < cases; i++) {
        struct ls_gemm gemm = random_gemm(&seed);
        bool bias = gemm.onto == LS_ONTO_NOTHING && random_below(&seed, 2);
        struct product p = product_make(gemm, random_below(&seed, 3) * 5, bias, seed);
        void *before = malloc(c_bytes(&p.gemm) + 1), *first = malloc(c_bytes(&p.gemm) + 1);
        memcpy(before, p.c, c_bytes(&p.gemm));
        run(&p.gemm, 1);
        assert_right(&p.gemm, before);
        memcpy(first, p.c, c_bytes(&p.gemm));
        memcpy(p.c, before, c_bytes(&p.gemm));
        gemm_reference(&p.gemm);
        assert_right(&p.gemm, before);
        memcpy(p.c, before, c_bytes(&p.gemm));
        run(&p.gemm, 2 + i % 2);
        struct ls_gemm other = p.gemm;
        other.c = first;
        assert_same_block(&p.gemm, 0, 0, &other, "the number of threads");
        free(before);
        free(first);
        product_free(&p);
    }
}

static void test_special_values(void **state)
{
    struct ls_gemm gemm = {.m = 33,
                           .n = 40,
                           .sections = 1,
                           .k = {36},
                           .tiles = 1,
                           .in = LS_BF16,
                           .out = LS_BF16,
                           .b_transposed = true};
    struct product p = product_make(gemm, 0, false, 3);
    ((ls_bf16 *)p.a)[5 * p.gemm.lda + 2] = ls_f32_to_bf16(NAN);
    ((ls_bf16 *)p.a)[7 * p.gemm.lda + 2] = ls_f32_to_bf16(INFINITY);
    run(&p.gemm, 2);
    for (int64_t i = 0; i < gemm.m; i++)
        for (int64_t j = 0; j < gemm.n; j++) {
            double value = value_at(p.c, LS_BF16, i * p.gemm.ldc + j);
            assert_int_equal(isnan(value) != 0, i == 5);
            assert_int_equal(isinf(value) != 0, i == 7);
        }
    product_free(&p);
}

static void test_empty_products(void **state)
{
    struct ls_gemm gemm = {
        .m = 3, .n = 4, .sections = 1, .k = {0}, .tiles = 2, .in = LS_F32, .out = LS_F32};
    struct product p = product_make(gemm, 1, true, 5);
    run(&p.gemm, 2);
    for (int64_t i = 0; i < 3; i++)
        assert_memory_equal((float *)p.c + i * p.gemm.ldc, p.bias, 4 * sizeof(float));
    float kept = ((float *)p.c)[0];
    p.gemm.bias = NULL;
    p.gemm.onto = LS_ONTO_SUM;
    run(&p.gemm, 2);
    assert_true(((float *)p.c)[0] == kept);
    p.gemm.m = 0;
    run(&p.gemm, 2);
    product_free(&p);
}

static void test_bad_arguments_are_named(void **state)
{
    struct ls_gemm gemm = {.m = 4,
                           .n = 4,
                           .sections = 1,
                           .k = {6},
                           .tiles = 4,
                           .in = LS_F32,
                           .out = LS_F32,
                           .lda = 6,
                           .ldb = 4,
                           .ldc = 4};
    struct ls_error error = {0};
    assert_int_equal(ls_gemm_run(&ops_of[1], &gemm, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "k[0] is 6"));
    gemm.tiles = 2;
    gemm.ldc = 3;
    assert_int_equal(ls_gemm_run(&ops_of[1], &gemm, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "ldc is 3"));
    gemm.ldc = 4;
    gemm.out = LS_BF16;
    gemm.onto = LS_ONTO_SUM;
    assert_int_equal(ls_gemm_run(&ops_of[1], &gemm, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "onto C"));
    gemm.out = LS_F32;
    gemm.onto = LS_ONTO_CHAIN;
    assert_int_equal(ls_gemm_run(&ops_of[1], &gemm, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "tiles is 2"));
    gemm.leaves = 3;
    assert_int_equal(ls_gemm_run(&ops_of[1], &gemm, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "leaves is 3"));
}

/* ---- the property ---------------------------------------------------------------------------- */

/* GPT-2 124M's shapes and a small model's, with few rows where rows are tokens. */
static const struct ls_gemm shapes[] = {
    {.m = 70, .n = 2304, .sections = 1, .k = {768}, .tiles = 1, .b_transposed = true},
    {.m = 70, .n = 768, .sections = 1, .k = {768}, .tiles = 4, .b_transposed = true},
    {.m = 70, .n = 768, .sections = 1, .k = {3072}, .tiles = 4, .b_transposed = true},
    {.m = 70, .n = 768, .sections = 3, .k = {768, 768, 768}, .tiles = 4},
    {.m = 70, .n = 768, .sections = 2, .k = {512, 512}, .tiles = 8},
    {.m = 70, .n = 1536, .sections = 1, .k = {384}, .tiles = 1},
    {.m = 100, .n = 200, .sections = 1, .k = {4096}, .tiles = 4, .a_transposed = true},
    {.m = 300, .n = 100, .sections = 1, .k = {12576}, .tiles = 4},
    {.m = 200, .n = 200, .sections = 1, .k = {1024}, .tiles = 1, .a_transposed = true},
    {.m = 64, .n = 96, .sections = 1, .k = {3072}, .tiles = 3, .b_transposed = true},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* The loops are the same on every set: in `make check` each shape is tried in one or two types on
 * one of three, the last one on plain C, which is slow: that tries every third with CHECK=all. */
static bool is_tried(int shape, enum ls_dtype dtype)
{
    if (ops_of[1].isa == LS_ISA_PLAIN)
        return check_all() ? shape % 3 == 0 : shape == SHAPES - 1;
    const int type = dtype == LS_F32 ? 0 : dtype == LS_BF16 ? 1 : 2;
    return check_pair(shape + (int)ops_of[1].isa, type, 6);
}

static struct product shape_make(int i, enum ls_dtype dtype)
{
    struct ls_gemm gemm = shapes[i];
    gemm.in = dtype;
    gemm.out = LS_F32;
    if (ops_of[1].isa == LS_ISA_PLAIN && !check_all()) /* tiles of 256, not of 1024 */
        gemm.k[0] /= 4;
    struct product p = product_make(gemm, 0, false, 100 + (uint64_t)i);
    run(&p.gemm, 1);
    return p;
}

/* The product on rows [row, row + m) and columns [column, column + n), C in a buffer of its own. */
static struct ls_gemm part_of(const struct ls_gemm *whole, int64_t row, int64_t m, int64_t column,
                              int64_t n, void *c)
{
    struct ls_gemm part = *whole;
    size_t size = ls_dtype_bytes(whole->in);
    part.m = m;
    part.n = n;
    part.a = (const char *)whole->a + size * (size_t)(row * (whole->a_transposed ? 1 : whole->lda));
    part.b =
        (const char *)whole->b + size * (size_t)(column * (whole->b_transposed ? whole->ldb : 1));
    part.c = c;
    part.ldc = n;
    return part;
}

static void check_parts(enum ls_dtype dtype)
{
    for (int s = 0; s < SHAPES; s++) {
        if (!is_tried(s, dtype))
            continue;
        struct product p = shape_make(s, dtype);
        const struct ls_gemm *whole = &p.gemm;
        void *c = malloc(c_bytes(whole));
        const int64_t rows[][2] = {{0, 1}, {1, 1}, {17, 2}, {5, 31}, {0, 33}, {0, whole->m}};
        const int64_t columns[][2] = {{0, whole->n}, {0, 1}, {3, 2}, {33, 16}, {1, whole->n - 1}};
        for (int i = 0; i < 6; i++)
            for (int j = 0; j < 5; j++) {
                if (i == 5 && j == 0)
                    continue;
                struct ls_gemm part =
                    part_of(whole, rows[i][0], rows[i][1], columns[j][0], columns[j][1], c);
                run(&part, 1);
                assert_same_block(whole, rows[i][0], columns[j][0], &part,
                                  "computing rows or columns apart");
            }
        free(c);
        product_free(&p);
    }
}
static void test_bits_do_not_depend_on_rows_and_columns_f32(void **state)
{
    check_parts(LS_F32);
}
static void test_bits_do_not_depend_on_rows_and_columns_bf16(void **state)
{
    check_parts(LS_BF16);
}
static void test_bits_do_not_depend_on_rows_and_columns_fp16(void **state)
{
    check_parts(LS_F16);
}

static void check_threads_and_distances(enum ls_dtype dtype)
{
    for (int s = 0; s < SHAPES; s++) {
        if (!is_tried(s, dtype))
            continue;
        struct product p = shape_make(s, dtype);
        struct ls_gemm other = p.gemm;
        other.c = malloc(c_bytes(&p.gemm));
        for (int threads = 2; threads <= 3; threads++) {
            run(&other, threads);
            assert_same_block(&p.gemm, 0, 0, &other, "the number of threads");
        }
        /* The same operands with other distances between rows. */
        static const int64_t slack[] = {1, 32, 100};
        size_t size = ls_dtype_bytes(dtype);
        int64_t k = total_k(&p.gemm);
        int64_t a_rows = p.gemm.a_transposed ? k : p.gemm.m;
        int64_t b_rows = p.gemm.b_transposed ? p.gemm.n : k;
        for (int i = 0; i < 3; i++) {
            other.lda = p.gemm.lda + slack[i];
            other.ldb = p.gemm.ldb + slack[2 - i];
            char *a = malloc((size_t)(other.lda * a_rows) * size);
            char *b = malloc((size_t)(other.ldb * b_rows) * size);
            for (int64_t r = 0; r < a_rows; r++)
                memcpy(a + (size_t)(r * other.lda) * size,
                       (char *)p.a + (size_t)(r * p.gemm.lda) * size, (size_t)p.gemm.lda * size);
            for (int64_t r = 0; r < b_rows; r++)
                memcpy(b + (size_t)(r * other.ldb) * size,
                       (char *)p.b + (size_t)(r * p.gemm.ldb) * size, (size_t)p.gemm.ldb * size);
            other.a = a;
            other.b = b;
            run(&other, 2);
            assert_same_block(&p.gemm, 0, 0, &other, "a leading distance");
            free(a);
            free(b);
        }
        free(other.c);
        product_free(&p);
    }
}
static void test_bits_do_not_depend_on_threads_and_distances_f32(void **state)
{
    check_threads_and_distances(LS_F32);
}
static void test_bits_do_not_depend_on_threads_and_distances_bf16(void **state)
{
    check_threads_and_distances(LS_BF16);
}
static void test_bits_do_not_depend_on_threads_and_distances_fp16(void **state)
{
    check_threads_and_distances(LS_F16);
}

/* What a tensor-parallel rank holds: tiles [first, first + count), its parts of every section side
 * by side, computed into c. */
static void run_tiles(const struct ls_gemm *whole, int64_t first, int64_t count, float *c)
{
    struct ls_gemm part = *whole;
    size_t size = ls_dtype_bytes(whole->in);
    int64_t k = 0;
    for (int s = 0; s < whole->sections; s++)
        k += part.k[s] = whole->k[s] / whole->tiles * count;
    part.tiles = count;
    part.c = c;
    part.lda = whole->a_transposed ? whole->m : k;
    part.ldb = whole->b_transposed ? k : whole->n;
    char *a = malloc((size_t)(whole->m * k) * size), *b = malloc((size_t)(whole->n * k) * size);
    int64_t to = 0, start = 0;
    for (int s = 0; s < whole->sections; start += whole->k[s++])
        for (int64_t i = 0; i < part.k[s]; i++, to++) {
            int64_t from = start + whole->k[s] / whole->tiles * first + i;
            for (int64_t r = 0; r < whole->m; r++)
                memcpy(a + size * (size_t)(whole->a_transposed ? to * part.lda + r
                                                               : r * part.lda + to),
                       (const char *)whole->a + size * (size_t)(whole->a_transposed
                                                                    ? from * whole->lda + r
                                                                    : r * whole->lda + from),
                       size);
            for (int64_t r = 0; r < whole->n; r++)
                memcpy(b + size * (size_t)(whole->b_transposed ? r * part.ldb + to
                                                               : to * part.ldb + r),
                       (const char *)whole->b + size * (size_t)(whole->b_transposed
                                                                    ? r * whole->ldb + from
                                                                    : from * whole->ldb + r),
                       size);
        }
    part.a = a;
    part.b = b;
    run(&part, 2);
    free(a);
    free(b);
}

static void add_into(float *into, const float *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        into[i] += from[i];
}

static void check_tiles(enum ls_dtype dtype, bool tiny)
{
    for (int s = 0; s < SHAPES; s++) {
        if (shapes[s].tiles != 4 || !is_tried(s, dtype))
            continue;
        struct product p = shape_make(s, dtype);
        if (tiny) {
            product_shrink(&p);
            run(&p.gemm, 1);
        }
        int64_t count = p.gemm.m * p.gemm.n;
        float *tile[4], *sum = malloc((size_t)count * 4);
        struct ls_gemm other = p.gemm;
        other.c = sum;
        /* Two ranks of two tiles. */
        for (int r = 0; r < 4; r++)
            tile[r] = malloc((size_t)count * 4);
        run_tiles(&p.gemm, 0, 2, sum);
        run_tiles(&p.gemm, 2, 2, tile[0]);
        add_into(sum, tile[0], count);
        assert_same_block(&p.gemm, 0, 0, &other, "cutting the tiles over 2 ranks");
        /* Four ranks of one. */
        for (int r = 0; r < 4; r++)
            run_tiles(&p.gemm, r, 1, tile[r]);
        memcpy(sum, tile[0], (size_t)count * 4);
        add_into(sum, tile[1], count);
        add_into(tile[2], tile[3], count);
        add_into(sum, tile[2], count);
        assert_same_block(&p.gemm, 0, 0, &other, "cutting the tiles over 4 ranks");
        /* The broken twin: the same tiles from left to right must show. */
        run_tiles(&p.gemm, 2, 1, tile[2]);
        memcpy(sum, tile[0], (size_t)count * 4);
        for (int r = 1; r < 4; r++)
            add_into(sum, tile[r], count);
        assert_memory_not_equal(sum, p.c, (size_t)count * 4);
        for (int r = 0; r < 4; r++)
            free(tile[r]);
        free(sum);
        product_free(&p);
    }
}
static void test_tiles_of_ranks_add_up_to_the_whole_f32(void **state)
{
    check_tiles(LS_F32, false);
}
static void test_tiles_of_ranks_add_up_to_the_whole_bf16(void **state)
{
    check_tiles(LS_BF16, false);
    check_tiles(LS_BF16, true);
}
static void test_tiles_of_ranks_add_up_to_the_whole_fp16(void **state)
{
    check_tiles(LS_F16, false);
}

/* A half output is the float32 sum, plus the bias, rounded once; accumulation is one addition. */
static void test_output_forms_agree(void **state)
{
    for (int s = 0; s < SHAPES; s++)
        for (int d = 0; d < 4; d++) {
            const enum ls_dtype half = d & 2 ? LS_F16 : LS_BF16, in = d & 1 ? half : LS_F32;
            /* Plain C has one shape of its own. */
            if (!is_tried(s, in) || !(ops_of[1].isa == LS_ISA_PLAIN || check_pair(s, d / 2, 2)))
                continue;
            struct product p = shape_make(s, in);
            int64_t count = p.gemm.m * p.gemm.n;
            float *sum = p.c, *wanted = malloc((size_t)count * 4), *got = malloc((size_t)count * 4);
            struct ls_gemm other = p.gemm;
            other.c = got;
            other.out = half;
            other.bias = p.bias;
            run(&other, 2);
            for (int64_t i = 0; i < count; i++)
                ((ls_half *)wanted)[i] = ls_f32_to_half(half, sum[i] + p.bias[i % p.gemm.n]);
            assert_memory_equal(got, wanted, (size_t)count * 2);
            other.out = LS_F32;
            other.bias = NULL;
            other.onto = LS_ONTO_SUM;
            for (int64_t i = 0; i < count; i++)
                got[i] = 0.1f * (float)(i % 77);
            memcpy(wanted, got, (size_t)count * 4);
            add_into(wanted, sum, count);
            run(&other, 2);
            assert_memory_equal(got, wanted, (size_t)count * 4);
            free(got);
            free(wanted);
            product_free(&p);
        }
}

/* A weight gradient of `leaves` leaves of `rows` rows, of which each is a tree over `tiles` tiles:
 * products of one leaf, added one after the other, are its bits; onto a sum too. */
static void check_leaves(enum ls_dtype act, int64_t leaves, int64_t tiles, int64_t rows,
                         enum ls_onto onto, bool tiny)
{
    struct ls_gemm shape = {.m = 70,
                            .n = 100,
                            .sections = 1,
                            .k = {leaves * rows},
                            .tiles = leaves * tiles,
                            .leaves = leaves,
                            .a_transposed = true,
                            .in = act,
                            .out = LS_F32,
                            .onto = onto};
    struct product p = product_make(shape, 0, false, 9);
    if (tiny)
        product_shrink(&p);
    const int64_t count = p.gemm.m * p.gemm.n;
    float *wanted = malloc((size_t)count * 4), *leaf = malloc((size_t)count * 4);
    memcpy(wanted, p.c, (size_t)count * 4);
    for (int64_t l = 0; l < leaves; l++) {
        struct ls_gemm part = p.gemm;
        part.k[0] = rows;
        part.tiles = tiles;
        part.leaves = 1;
        part.onto = LS_ONTO_NOTHING;
        part.a = (const char *)part.a + (size_t)(l * rows * part.lda) * ls_dtype_bytes(act);
        part.b = (const char *)part.b + (size_t)(l * rows * part.ldb) * ls_dtype_bytes(act);
        part.c = leaf;
        run(&part, 1);
        if (l == 0 && onto == LS_ONTO_NOTHING)
            memcpy(wanted, leaf, (size_t)count * 4);
        else
            add_into(wanted, leaf, count);
    }
    run(&p.gemm, 2);
    if (memcmp(wanted, p.c, (size_t)count * 4) != 0)
        fail_msg("%s%s, %ld leaves of %ld tiles, onto %d: not the chain over leaves",
                 ls_dtype_name(act), tiny ? ", tiny" : "", (long)leaves, (long)tiles, onto);
    free(wanted);
    free(leaf);
    product_free(&p);
}

/* Rows of a leaf that are several of the kernels' blocks. */
static int64_t rows_long(void)
{
    if (ops_of[1].isa == LS_ISA_PLAIN)
        return check_all() ? 512 : 256;
    return check_all() ? 2048 : 1024;
}

static void test_leaves_are_a_chain(void **state)
{
    for (int a = 0; a < 3; a++)
        for (int64_t leaves = 1; leaves <= 5 && is_wanted(acts[a]); leaves += check_every(4, 4))
            for (int64_t tiles = 1; tiles <= 4; tiles *= check_all() ? 2 : 4)
                for (int onto = LS_ONTO_NOTHING; onto <= LS_ONTO_SUM; onto++) {
                    check_leaves(acts[a], leaves, tiles, 96, (enum ls_onto)onto, false);
                    check_leaves(acts[a], leaves, tiles, rows_long(), (enum ls_onto)onto, false);
                    if (acts[a] == LS_BF16)
                        check_leaves(LS_BF16, leaves, tiles, 96, (enum ls_onto)onto, true);
                }
}

/* A leaf in `parts` products, each from where the one before left its chain: the bits of one. The
 * broken twin begins the middle one anew and adds it. */
static bool chain_is_whole(enum ls_dtype act, int64_t parts, int64_t rows, bool broken)
{
    struct ls_gemm shape = {.m = 70,
                            .n = 100,
                            .sections = 1,
                            .k = {parts * rows},
                            .tiles = 1,
                            .a_transposed = true,
                            .in = act,
                            .out = LS_F32};
    struct product p = product_make(shape, 0, false, 11);
    const int64_t count = p.gemm.m * p.gemm.n;
    float *chain = malloc((size_t)count * 4);
    for (int64_t i = 0; i < parts; i++) {
        struct ls_gemm part = p.gemm;
        part.k[0] = rows;
        part.a = (const char *)part.a + (size_t)(i * rows * part.lda) * ls_dtype_bytes(act);
        part.b = (const char *)part.b + (size_t)(i * rows * part.ldb) * ls_dtype_bytes(act);
        part.c = chain;
        part.onto = i == 0                     ? LS_ONTO_NOTHING
                    : broken && i == parts / 2 ? LS_ONTO_SUM
                                               : LS_ONTO_CHAIN;
        run(&part, 1 + (int)(i % 3));
    }
    run(&p.gemm, 2);
    bool same = memcmp(chain, p.c, (size_t)count * 4) == 0;
    free(chain);
    product_free(&p);
    return same;
}

static void test_a_leaf_lasts_several_products(void **state)
{
    for (int a = 0; a < 3; a++)
        for (int64_t parts = 2; parts <= 5 && is_wanted(acts[a]); parts += check_every(3, 3))
            for (int64_t rows = 32; rows <= (check_all() ? 2048 : rows_long()); rows *= 8) {
                assert_true(chain_is_whole(acts[a], parts, rows, false));
                /* A single step of bf16_pairs is added as it would be anew. */
                if (rows > 32 || ops_of[1].arithmetic == LS_ARITHMETIC_FMA)
                    assert_false(chain_is_whole(acts[a], parts, rows, true));
            }
}

/* Two ranks with half of the tiles each: float32 sums added by the tree, then bias and rounding,
 * are the whole product's own bits. */
static void check_bias_round(enum ls_dtype act, bool bias, bool tiny)
{
    struct product p = product_make(
        (struct ls_gemm){
            .m = 37, .n = 75, .sections = 1, .k = {256}, .tiles = 4, .in = act, .out = act},
        0, bias, 5);
    if (tiny)
        product_shrink(&p);
    const int64_t count = p.gemm.m * p.gemm.n, half = p.gemm.k[0] / 2;
    const size_t bytes = ls_dtype_bytes(act);
    float *sum[2];
    void *got = malloc((size_t)count * 4);
    run(&p.gemm, 2);
    for (int rank = 0; rank < 2; rank++) {
        struct ls_gemm part = p.gemm;
        sum[rank] = malloc((size_t)count * sizeof(float));
        part.k[0] = half;
        part.tiles = 2;
        part.out = LS_F32;
        part.bias = NULL;
        part.a = (const char *)part.a + (size_t)(rank * half) * bytes;
        part.b = (const char *)part.b + (size_t)(rank * half * part.ldb) * bytes;
        part.c = sum[rank];
        run(&part, 1 + rank);
    }
    ls_tree_add(&ops_of[2], count, sum[0], sum[1]);
    for (int threads = 1; threads <= 3; threads++) {
        ls_bias_round(&ops_of[threads], act, p.gemm.m, p.gemm.n, sum[0], p.gemm.bias, got);
        assert_memory_equal(got, p.c, (size_t)count * bytes);
    }
    if (act == LS_F32) {
        ls_bias_round(&ops_of[1], act, p.gemm.m, p.gemm.n, sum[0], p.gemm.bias, sum[0]);
        assert_memory_equal(sum[0], p.c, (size_t)count * bytes);
    }
    free(sum[0]), free(sum[1]), free(got);
    product_free(&p);
}

static void test_bias_round_ends_a_product_of_ranks(void **state)
{
    for (int d = 0; d < 6; d++)
        if (is_wanted(acts[d / 2]))
            check_bias_round(acts[d / 2], d & 1, false);
    check_bias_round(LS_BF16, true, true);
}

/* ---- few rows -------------------------------------------------------------------------------- */

/* Values of so many sizes, row by row: products and sums of both signs that are subnormal or round
 * to a zero of theirs, and operands that are subnormal. */
static void sizes_spread(enum ls_dtype dtype, void *x, int64_t rows, int64_t k)
{
    static const float sizes[] = {1, 0x1p-66f, 0x1p-20f, 0x1p-100f, 0x1p-130f};
    for (int64_t i = 0; i < rows * k; i++) {
        float value = (float)value_at(x, dtype, i) * sizes[i / k % 5];
        if (dtype == LS_F32)
            ((float *)x)[i] = value;
        else
            ((ls_half *)x)[i] = ls_f32_to_half(dtype, value);
    }
}

/* Few rows are not packed, many are: the bits of one are the other's, also where a tile's last step
 * is not whole and turns a sum of -0 into 0. */
static void check_few_rows(enum ls_dtype dtype, enum ls_dtype out, bool bias)
{
    enum { MANY = 45, MOST = 20 };
    static const int64_t shape[][3] = {/* n, k, tiles */
                                       {70, 330, 3}, {33, 128, 2}, {64, 80, 1},
                                       {31, 5, 1},   {96, 768, 6}, {128, 416, 1}};
    int below = 0;
    bool plain = ops_of[1].isa == LS_ISA_PLAIN;
    for (size_t s = 0; s < sizeof shape / sizeof *shape;
         s += check_every(plain ? 4 : 2, plain ? 4 : 2)) {
        struct product p = product_make((struct ls_gemm){.m = MANY,
                                                         .n = shape[s][0],
                                                         .sections = 1,
                                                         .k = {shape[s][1]},
                                                         .tiles = shape[s][2],
                                                         .b_transposed = true,
                                                         .in = dtype,
                                                         .out = out},
                                        0, bias, 7 + s);
        sizes_spread(dtype, p.a, MANY, shape[s][1]);
        sizes_spread(dtype, p.b, shape[s][0], shape[s][1]);
        run(&p.gemm, 1);
        for (int64_t i = 0; i < MANY * p.gemm.n; i++) {
            double value = value_at(p.c, out, i);
            below += value == 0 && signbit(value);
        }
        void *c = malloc(c_bytes(&p.gemm));
        for (int64_t m = 1; m <= MOST; m += check_every(3, 3))
            for (int64_t row = m % 5; row + m <= MANY; row += 17) {
                struct ls_gemm part = part_of(&p.gemm, row, m, 0, p.gemm.n, c);
                run(&part, 1 + (int)(m % 3));
                assert_same_block(&p.gemm, row, 0, &part, "computing few rows");
            }
        free(c);
        product_free(&p);
    }
    if (dtype != LS_F16 && !bias && ops_of[1].arithmetic == LS_ARITHMETIC_FMA)
        assert_true(below > 0);
}

static void test_few_rows_and_many_agree(void **state)
{
    for (int a = 0; a < 3; a++)
        for (int n = 0; n < 4 && is_wanted(acts[a]); n++)
            if (check_pair(n / 2, n % 2, 2))
                check_few_rows(acts[a], n / 2 ? acts[a] : LS_F32, n % 2);
}

/* ---- one process per instruction set --------------------------------------------------------- */

static int test_isa(enum ls_isa isa)
{
    struct ls_error error = {0};
    for (int threads = 1; threads <= 3; threads++)
        if (ls_ops_init(&ops_of[threads], threads, isa, &error) != LS_OK) {
            fprintf(stderr, "%s\n", error.text);
            return 1;
        }
    /* bf16 alone knows the other arithmetic. */
    const struct CMUnitTest pairs[] = {
        cmocka_unit_test(test_random_products_against_double),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_bits_do_not_depend_on_rows_and_columns_bf16),
        cmocka_unit_test(test_bits_do_not_depend_on_threads_and_distances_bf16),
        cmocka_unit_test(test_tiles_of_ranks_add_up_to_the_whole_bf16),
        cmocka_unit_test(test_few_rows_and_many_agree),
        cmocka_unit_test(test_output_forms_agree),
        cmocka_unit_test(test_leaves_are_a_chain),
        cmocka_unit_test(test_a_leaf_lasts_several_products),
        cmocka_unit_test(test_bias_round_ends_a_product_of_ranks),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_products_against_double),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_empty_products),
        cmocka_unit_test(test_bad_arguments_are_named),
        cmocka_unit_test(test_bits_do_not_depend_on_rows_and_columns_f32),
        cmocka_unit_test(test_bits_do_not_depend_on_rows_and_columns_bf16),
        cmocka_unit_test(test_bits_do_not_depend_on_rows_and_columns_fp16),
        cmocka_unit_test(test_bits_do_not_depend_on_threads_and_distances_f32),
        cmocka_unit_test(test_bits_do_not_depend_on_threads_and_distances_bf16),
        cmocka_unit_test(test_bits_do_not_depend_on_threads_and_distances_fp16),
        cmocka_unit_test(test_tiles_of_ranks_add_up_to_the_whole_f32),
        cmocka_unit_test(test_tiles_of_ranks_add_up_to_the_whole_bf16),
        cmocka_unit_test(test_tiles_of_ranks_add_up_to_the_whole_fp16),
        cmocka_unit_test(test_few_rows_and_many_agree),
        cmocka_unit_test(test_output_forms_agree),
        cmocka_unit_test(test_leaves_are_a_chain),
        cmocka_unit_test(test_a_leaf_lasts_several_products),
        cmocka_unit_test(test_bias_round_ends_a_product_of_ranks),
    };
    int failed = cmocka_run_group_tests_name(ls_isa_name(isa), tests, NULL, NULL);
    for (int threads = 1; threads <= 3; threads++)
        ops_of[threads].arithmetic = LS_ARITHMETIC_BF16_PAIRS;
    failed += cmocka_run_group_tests_name(ls_isa_name(isa), pairs, NULL, NULL);
    for (int threads = 1; threads <= 3; threads++)
        ls_ops_release(&ops_of[threads]);
    return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return test_isa((enum ls_isa)ls_isa_of_name(argv[1]));
    int failed = 0;
    for (int isa = LS_ISA_PLAIN; isa <= (int)ls_isa_best(); isa++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            _exit(test_isa((enum ls_isa)isa));
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            failed = 1;
    }
    return failed;
}
