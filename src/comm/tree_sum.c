/* The sum of a piece over ranks as commands of ops: the tree over rank index (law of sums, S1), and
 * the chain over leaves that ranks hold (S3). */
#include "comm/internal.h"

#include <string.h>

/* Elements. A strip of every input and a partial sum per tree level stay in the first cache level;
 * so does a sum until it is copied. */
enum { STRIP = 1024, COPIED = 4096, INPUTS = LS_RANK_SUM_INPUTS };

enum ls_rank_sum_form comm_sum_form(enum comm_op op)
{
    return op == COMM_REDUCE_SCATTER_BF16 ? LS_RANK_SUM_ROUNDED
           : op == COMM_ALL_REDUCE_MAX    ? LS_RANK_SUM_MAX
                                          : LS_RANK_SUM_F32;
}

/* Submits the command for elements from, from + 1, ... of inputs[command.n]. */
static void add(struct ls_ops *ops, struct ls_rank_sum command, const void *const *inputs,
                int64_t from)
{
    size_t bytes = command.form == LS_RANK_SUM_BF16 ? sizeof(ls_bf16) : sizeof(float);
    for (int i = 0; i < command.n; i++)
        command.inputs[i] = (const char *)inputs[i] + (size_t)from * bytes;
    ls_rank_sum_run(ops, &command);
}

/* The same for partial sums. */
static void add_partial(const struct comm_sum *sum, const void *const *inputs, int n, bool onto,
                        int64_t count, float *out)
{
    bool max = sum->form == LS_RANK_SUM_MAX;
    add(sum->ops,
        (struct ls_rank_sum){
            max ? LS_RANK_SUM_MAX : LS_RANK_SUM_F32, n, n, onto, count, {NULL}, out},
        inputs, 0);
}

/* out[count] = the tree over ranks first to first + n - 1, count <= STRIP. */
static void add_tree(const struct comm_sum *sum, int first, int n, int64_t from, int64_t count,
                     float *out)
{
    if (n <= INPUTS) {
        add(sum->ops, (struct ls_rank_sum){sum->form, n, n, false, count, {NULL}, out},
            sum->inputs + first, from);
        return;
    }
    float left[STRIP], right[STRIP];
    int split = (int)ls_tree_split(n);
    add_tree(sum, first, split, from, count, left);
    add_tree(sum, first + split, n - split, from, count, right);
    add_partial(sum, (const void *[]){left, right}, 2, false, count, out);
}

/* out[count] = leaf after leaf, each the tree over `inner` ranks; count <= STRIP if these are more
 * than one command takes. */
static void add_leaves(const struct comm_sum *sum, int inner, int64_t from, int64_t count,
                       float *out)
{
    float leaf[STRIP];
    bool onto = sum->leaves.onto;
    int step = inner <= INPUTS ? INPUTS / inner * inner : inner;
    for (int r = 0; r < sum->n; r += step, onto = true) {
        int n = ls_min(step, sum->n - r);
        if (inner <= INPUTS) {
            add(sum->ops, (struct ls_rank_sum){sum->form, n, inner, onto, count, {NULL}, out},
                sum->inputs + r, from);
        } else {
            add_tree(sum, r, inner, from, count, onto ? leaf : out);
            if (onto)
                add_partial(sum, (const void *[]){leaf}, 1, true, count, out);
        }
    }
}

/* Whether a leaf behind the first is read where the sum is written. */
static bool overwrites_leaf(const struct comm_sum *sum, int inner, int64_t from, int64_t to)
{
    for (int r = inner; r < sum->n; r++)
        if (sum->form != LS_RANK_SUM_BF16 &&
            (const float *)sum->inputs[r] + from == sum->outputs[0] + to)
            return true;
    return false;
}

void comm_sum(const struct comm_sum *sum, int64_t from, int64_t to, int64_t count)
{
    int inner = sum->leaves.inner ? sum->leaves.inner : sum->n;
    bool apart = overwrites_leaf(sum, inner, from, to);
    int64_t step = inner > INPUTS ? STRIP : apart || sum->outputs_count > 1 ? COPIED : count;
    float strip[COPIED];
    LS_ASSERT(!apart || !sum->leaves.onto);
    for (int64_t i = 0; i < count; i += step) {
        int64_t length = ls_min(step, count - i);
        float *first = apart ? strip : sum->outputs[0] + to + i;
        add_leaves(sum, inner, from + i, length, first);
        ls_queue_synchronise(&sum->ops->queue, NULL);
        for (int j = apart ? 0 : 1; j < sum->outputs_count; j++)
            memcpy(sum->outputs[j] + to + i, first, (size_t)length * sizeof *first);
    }
}
