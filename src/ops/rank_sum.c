/* Sums over ranks: the command, and what each thread takes. */
#include "ops/kernels.h"
#include "ops/share.h"

enum { ALIGN = 64 }; /* elements: parts begin on cache lines */

static enum ls_dtype input_dtype(const struct ls_rank_sum *sum)
{
    return sum->form == LS_RANK_SUM_BF16 ? LS_BF16 : LS_F32;
}

static struct ls_work rank_sum_work(const void *arguments)
{
    const struct ls_rank_sum *sum = arguments;
    struct ls_work work =
        ops_pass(LS_WORK_ADD, input_dtype(sum), sum->count, 1, sum->n - !sum->onto, sum->n);
    work.bytes += (double)ops_bytes(LS_F32, sum->count) * (sum->onto ? 2 : 1);
    return work;
}

static void rank_sum_operands(const void *arguments, struct ls_operands *out)
{
    const struct ls_rank_sum *sum = arguments;
    for (int i = 0; i < sum->n; i++)
        ls_operand_add(out, sum, &sum->inputs[i], ops_bytes(input_dtype(sum), sum->count),
                       LS_READS);
    ls_operand_add(out, sum, &sum->out, ops_bytes(LS_F32, sum->count),
                   sum->onto ? LS_READS_WRITES : LS_WRITES);
}

/* Without a team for one thread: it costs as much as some thousand elements, and collectives add
 * many short pieces. */
static void rank_sum_run(struct ls_ops *ops, const void *arguments)
{
    const struct ls_rank_sum *sum = arguments;
    if (ops_parts(ops, sum->n * sum->count) == 1)
        ops->kernels->pointwise->rank_sum(sum, 0, sum->count);
    else
        OPS_EACH_SHARE (ops, sum->n * sum->count, sum->count, ALIGN)
            ops->kernels->pointwise->rank_sum(sum, begin, end);
}

void ls_rank_sum_run(struct ls_ops *ops, const struct ls_rank_sum *sum)
{
    static const struct ops_op op = OPS_OP(*sum, rank_sum_work, rank_sum_operands, rank_sum_run);
    LS_ASSERT(sum->n >= 1 && sum->n <= LS_RANK_SUM_INPUTS);
    LS_ASSERT(sum->inner >= 1 && sum->n % sum->inner == 0);
    ops_submit(ops, &op, sum);
}
