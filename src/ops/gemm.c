/* The matrix product: checks its arguments and runs it. */
#include "ops/gemm_kernel.h"
#include "ops/share.h"

static int check_sizes(const struct ls_gemm *gemm, struct ls_error *error)
{
    if (gemm->m < 0 || gemm->n < 0)
        return ls_error_set(error, LS_EINVAL, "ls_gemm: m = %lld, n = %lld: expected 0 or more",
                            (long long)gemm->m, (long long)gemm->n);
    if (gemm->sections < 1 || gemm->sections > LS_GEMM_SECTIONS_MAX)
        return ls_error_set(error, LS_EINVAL, "ls_gemm: sections is %d: expected 1 to %d",
                            gemm->sections, LS_GEMM_SECTIONS_MAX);
    if (gemm->tiles < 1 || gemm->tiles > LS_GEMM_TILES_MAX)
        return ls_error_set(error, LS_EINVAL, "ls_gemm: tiles is %lld: expected 1 to %d",
                            (long long)gemm->tiles, LS_GEMM_TILES_MAX);
    if (gemm->leaves < 0 || (gemm->leaves && gemm->tiles % gemm->leaves != 0))
        return ls_error_set(error, LS_EINVAL,
                            "ls_gemm: leaves is %lld: expected a divisor of tiles, %lld",
                            (long long)gemm->leaves, (long long)gemm->tiles);
    for (int s = 0; s < gemm->sections; s++)
        if (gemm->k[s] < 0 || gemm->k[s] % gemm->tiles != 0)
            return ls_error_set(error, LS_EINVAL,
                                "ls_gemm: k[%d] is %lld: expected a multiple of tiles, %lld", s,
                                (long long)gemm->k[s], (long long)gemm->tiles);
    return LS_OK;
}

static int check_distance(const char *name, int64_t ld, int64_t row, struct ls_error *error)
{
    if (ld >= row)
        return LS_OK;
    return ls_error_set(error, LS_EINVAL,
                        "ls_gemm: %s is %lld: expected the row's length %lld or more", name,
                        (long long)ld, (long long)row);
}

static int check(const struct ls_gemm *gemm, struct ls_error *error)
{
    int status = check_sizes(gemm, error);
    if (status != LS_OK)
        return status;
    if (!ls_is_act(gemm->in) || !ls_is_act(gemm->out))
        return ls_error_set(error, LS_EINVAL,
                            "ls_gemm: in is %s, out is %s: expected F32, BF16 or F16",
                            ls_dtype_name(gemm->in), ls_dtype_name(gemm->out));
    if (gemm->onto != LS_ONTO_NOTHING && (gemm->out != LS_F32 || gemm->bias))
        return ls_error_set(error, LS_EINVAL,
                            "ls_gemm: a sum onto C needs a float32 C and takes no bias");
    if (gemm->onto == LS_ONTO_CHAIN && gemm->tiles > 1)
        return ls_error_set(error, LS_EINVAL,
                            "ls_gemm: tiles is %lld: expected 1, where C is a part of a chain",
                            (long long)gemm->tiles);
    if (gemm->b_blocks && (gemm->ldb % LS_BLOCK_VALUES || gemm->b_scales))
        return ls_error_set(error, LS_EINVAL,
                            "ls_gemm: ldb is %lld: expected a multiple of %d, where B is in "
                            "blocks, and no scales",
                            (long long)gemm->ldb, LS_BLOCK_VALUES);
    int64_t k = gemm_k(gemm);
    if (check_distance("lda", gemm->lda, gemm->a_transposed ? gemm->m : k, error) != LS_OK ||
        check_distance("ldb", gemm->ldb, gemm->b_transposed ? k : gemm->n, error) != LS_OK ||
        check_distance("ldc", gemm->ldc, gemm->n, error) != LS_OK)
        return LS_EINVAL;
    return LS_OK;
}

/* Bytes of B from its first row to the end of its last one. */
static size_t b_bytes(const struct ls_gemm *gemm)
{
    int64_t k = gemm_k(gemm), rows = gemm->b_transposed ? gemm->n : k;
    if (gemm->b_blocks)
        return (size_t)rows * ls_blocks_row_bytes(gemm->b_blocks, gemm->ldb);
    return ops_rows_bytes(gemm->b_scales ? LS_I8 : gemm->in, rows, gemm->b_transposed ? k : gemm->n,
                          gemm->ldb);
}

static struct ls_work gemm_work(const void *arguments)
{
    const struct ls_gemm *gemm = arguments;
    double m = (double)gemm->m, n = (double)gemm->n, k = (double)gemm_k(gemm);
    double in = (double)ls_dtype_bytes(gemm->in), out = (double)ls_dtype_bytes(gemm->out);
    double of_b = gemm->b_scales ? 1 : in;
    if (gemm->b_blocks)
        of_b = (double)ls_block_bytes(gemm->b_blocks) / LS_BLOCK_VALUES;
    return (struct ls_work){.kind = gemm->a_transposed   ? LS_WORK_PRODUCT_AT
                                    : gemm->b_transposed ? LS_WORK_PRODUCT_BT
                                                         : LS_WORK_PRODUCT,
                            .dtype = gemm->b_scales && !gemm->a_kept ? LS_I8 : gemm->in,
                            .m = gemm->m,
                            .n = gemm->n,
                            .k = gemm_k(gemm),
                            .flops = 2 * m * n * k,
                            .bytes =
                                m * k * in + n * k * of_b + m * n * out * (gemm->onto ? 2 : 1)};
}

static void gemm_operands(const void *arguments, struct ls_operands *out)
{
    const struct ls_gemm *gemm = arguments;
    int64_t m = gemm->m, n = gemm->n, k = gemm_k(gemm);
    ls_operand_add(out, gemm, &gemm->a,
                   gemm->a_transposed ? ops_rows_bytes(gemm->in, k, m, gemm->lda)
                                      : ops_rows_bytes(gemm->in, m, k, gemm->lda),
                   LS_READS);
    ls_operand_add(out, gemm, &gemm->b, b_bytes(gemm), LS_READS);
    ls_operand_add(out, gemm, &gemm->c, ops_rows_bytes(gemm->out, m, n, gemm->ldc),
                   gemm->onto == LS_ONTO_NOTHING ? LS_WRITES : LS_READS_WRITES);
    ls_operand_add(out, gemm, &gemm->bias, ops_bytes(LS_F32, n), LS_READS);
    ls_operand_add(out, gemm, &gemm->b_scales, ops_bytes(LS_F32, n * gemm->tiles), LS_READS);
}

/* k is 0: C is the bias, or has nothing added. */
static void empty_run(const struct ls_gemm *gemm)
{
    for (int64_t row = 0; row < gemm->m && gemm->onto == LS_ONTO_NOTHING; row++)
        for (int64_t column = 0; column < gemm->n; column++) {
            int64_t index = row * gemm->ldc + column;
            float value = gemm->bias ? 0 + gemm->bias[column] : 0; /* no -0 */
            if (gemm->out == LS_F32)
                ((float *)gemm->c)[index] = value;
            else
                ((ls_half *)gemm->c)[index] = ls_f32_to_half(gemm->out, value);
        }
}

static void gemm_run(struct ls_ops *ops, const void *arguments)
{
    const struct ls_gemm *gemm = arguments;
    if (gemm_k(gemm) == 0)
        empty_run(gemm);
    else if (gemm->b_scales && !gemm->a_kept)
        gemm_run_int8(ops, gemm);
    else if (!gemm_run_few(ops, gemm))
        gemm_run_blocked(ops, gemm, NULL);
}

int ls_gemm_run(struct ls_ops *ops, const struct ls_gemm *gemm, struct ls_error *error)
{
    static const struct ops_op op = OPS_OP(*gemm, gemm_work, gemm_operands, gemm_run);
    int status = check(gemm, error);
    if (status == LS_OK && gemm->b_scales)
        status = gemm_int8_check(ops, gemm, error);
    if (status != LS_OK || gemm->m == 0 || gemm->n == 0)
        return status;
    return ops_try(ops, &op, gemm, error);
}
