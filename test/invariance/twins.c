/* The faults live in functions that the linker puts in place of the library's (--wrap, in the
 * Makefile): library code knows nothing of them. */
#include "twins.h"
#include "../support/wrapped.h"

#include <lockstep/data.h>
#include <lockstep/device/tier.h>
#include <lockstep/nn.h>
#include <lockstep/optim.h>
#include <lockstep/train.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

const struct twin twins[TWINS] = {
    [TWIN_RANK_ORDER] = {"a row-parallel sum in rank order",
                         0,
                         {"parallel.tp=4", "parallel.sp=false"}},
    [TWIN_BUCKET_DROPPED] = {"a bucket dropped", 0, {"parallel.dp_replicate=2"}},
    [TWIN_COUNTED_TWICE] = {"a micro-batch's gradient counted twice", 0, {"batch.micro=2"}},
    [TWIN_TIED_ONCE] = {"a tied embedding summed once", 0, {"parallel.pp=2"}},
    [TWIN_NORM_LOCAL] = {"a norm weight not reduced over tp",
                         0,
                         {"parallel.tp=2", "parallel.sp=true"}},
    [TWIN_ROUNDED_TWICE] = {"a boundary activation rounded twice", 0, {"parallel.pp=2"}},
    [TWIN_ALL_ALIKE] = {"each rank takes the first leaf of a round",
                        1,
                        {"parallel.dp_shard=2", "parallel.zero=2"}},
    [TWIN_ROW_OFF] = {"a shard off by one row", 0, {"parallel.dp_shard=2", "parallel.zero=2"}},
    [TWIN_SCALED] = {"a gradient scaled by 1 + 2^-6", 0, {NULL}},
    [TWIN_LEAF_MISSING] = {"a micro-batch's gradient left out", 0, {"batch.micro=2"}},
    [TWIN_MASK_ANEW] = {"another dropout mask when a block is recomputed",
                        0,
                        {"memory.recompute=full"}},
    [TWIN_SCALE_KEPT] = {"a loss scale not halved on one rank", 4, {"parallel.pp=2"}},
    [TWIN_OWN_INDEX] = {"random bits of a moment's index in its shard, not in its tensor",
                        5,
                        {"parallel.dp_shard=2", "parallel.zero=1"}},
    [TWIN_CHAIN_ANEW] = {"a leaf's chain begun anew in its middle", 1, {"batch.micro=1"}},
    [TWIN_PART_ALONE] = {"a part of a matrix orthogonalised alone",
                         6,
                         {"parallel.dp_shard=2", "parallel.zero=1"}},
    [TWIN_PARTS_BEHIND] = {"a matrix's columns by rank, not by index", 6, {"parallel.tp=2"}},
    [TWIN_MOMENT_STALE] = {"a moment one step stale after offload",
                           0,
                           {"memory.offload.optimizer=host"}},
    [TWIN_COUNTED_ALONE] = {"the mean over the tokens that count on a rank, not in the batch",
                            2,
                            {"parallel.dp_replicate=2"}},
    [TWIN_BLOCKS_OFF] = {"blocks of few bits that begin in the middle of one",
                         17,
                         {"parallel.dp_shard=2", "parallel.zero=3"}},
    [TWIN_BLOCKS_TURNED] = {"a product that adds the last block of few bits first",
                            18,
                            {"batch.micro=2"}},
    [TWIN_BLOCKS_FINER] = {"a product with values of blocks that are not rounded to bf16",
                           17,
                           {"batch.micro=2"}},
};

/* A layer that every recipe trains, whatever it freezes. */
enum { TRAINED = 4 };

static int active = -1, turn;             /* turn: how often a fault was set */
static __thread int calls, calls_in_turn; /* of the wrapped function, on this rank */
static __thread bool updates;             /* this rank is in its optimizer's step */

void twin_set(int which)
{
    active = which;
    turn++;
}

/* Which call of this rank's since the fault was set, counted from 1. */
static int call_count(void)
{
    calls = calls_in_turn == turn ? calls + 1 : 1;
    calls_in_turn = turn;
    return calls;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Sums as MPI_SUM in rank order would: ((a + b) + c) + d, where the tree has (a + b) + (c + d). */
static int rank_order(struct ls_comm *comm, const float *input, float *output, int64_t count,
                      struct ls_error *error)
{
    int n = ls_comm_size(comm);
    float *all = malloc((size_t)(n * count) * sizeof *all);
    if (!all)
        return ls_error_set(error, LS_ENOMEM, "no memory");
    int status = ls_all_to_all(comm, input, all, count, LS_F32, error);
    for (int64_t i = 0; i < count; i++) {
        output[i] = all[i];
        for (int r = 1; r < n; r++)
            output[i] += all[r * count + i];
    }
    free(all);
    return status;
}

WRAPPED(ls_reduce_scatter_start);
int __wrap_ls_reduce_scatter_start(struct ls_comm *comm, const float *input, float *output,
                                   int64_t count, struct ls_request *request,
                                   struct ls_call_site site, struct ls_error *error)
{
    if (active != TWIN_RANK_ORDER)
        return __real_ls_reduce_scatter_start(comm, input, output, count, request, site, error);
    if (request)
        *request = (struct ls_request){0};
    return rank_order(comm, input, output, count, error);
}

WRAPPED(ls_all_reduce_start);
int __wrap_ls_all_reduce_start(struct ls_comm *comm, float *buffer, int64_t count,
                               struct ls_request *request, struct ls_call_site site,
                               struct ls_error *error)
{
    /* The head's all-reduces are the softmax's; the other ones of nn are vector gradients. */
    if (request == LS_QUEUED && active == TWIN_NORM_LOCAL && strstr(site.file, "/nn/") &&
        !strstr(site.file, "head"))
        return LS_OK;
    return __real_ls_all_reduce_start(comm, buffer, count, request, site, error);
}

WRAPPED(ls_all_reduce_leaves_start);
int __wrap_ls_all_reduce_leaves_start(struct ls_comm *comm, const float *input, float *output,
                                      int64_t count, struct ls_comm_leaves leaves,
                                      struct ls_request *request, struct ls_call_site site,
                                      struct ls_error *error)
{
    if (!request || active != TWIN_BUCKET_DROPPED || call_count() != 3)
        return __real_ls_all_reduce_leaves_start(comm, input, output, count, leaves, request, site,
                                                 error);
    *request = (struct ls_request){0};
    return LS_OK;
}

/* ---- a base in few bits ---------------------------------------------------------------------- */

WRAPPED(ls_blocks_quantize);
int __wrap_ls_blocks_quantize(enum ls_blocks blocks, int64_t count, const float *values, void *to,
                              struct ls_error *error)
{
    const int64_t half = LS_BLOCK_VALUES / 2, inner = count - LS_BLOCK_VALUES;
    int status = __real_ls_blocks_quantize(blocks, count, values, to, error);
    float *moved = active == TWIN_BLOCKS_OFF && inner > 0 && !status
                       ? malloc((size_t)count * sizeof *moved)
                       : NULL;
    if (!moved)
        return status;
    memcpy(moved, values, (size_t)count * sizeof *moved);
    status = __real_ls_blocks_quantize(blocks, inner, values + half, to, error);
    ls_blocks_values(blocks, to, 0, inner, moved + half);
    if (!status)
        status = __real_ls_blocks_quantize(blocks, count, moved, to, error);
    free(moved);
    return status;
}

/* A matrix [rows, columns] whose columns are cut into runs of `bytes`: the last run first, then the
 * others. */
static void *runs_turned(const void *from, int64_t rows, size_t row_bytes, size_t bytes)
{
    char *to = malloc((size_t)rows * row_bytes);
    for (size_t at = 0; to && at < (size_t)rows * row_bytes; at += bytes) {
        size_t row = at / row_bytes * row_bytes;
        memcpy(to + row + (at + bytes - row) % row_bytes, (const char *)from + at, bytes);
    }
    return to;
}

/* Of a forward product with B in blocks: the same products in another order. */
static void product_turn(struct ls_gemm *gemm, void **a, void **b)
{
    const size_t value = ls_dtype_bytes(gemm->in);
    if (gemm->lda != gemm->k[0] || gemm->ldb != gemm->k[0] || gemm->sections > 1)
        return;
    *a = runs_turned(gemm->a, gemm->m, (size_t)gemm->lda * value, LS_BLOCK_VALUES * value);
    *b = runs_turned(gemm->b, gemm->n, ls_blocks_row_bytes(gemm->b_blocks, gemm->ldb),
                     ls_block_bytes(gemm->b_blocks));
    gemm->a = *a;
    gemm->b = *b;
}

/* The same with A and B in float32. */
static void product_widen(struct ls_gemm *gemm, void **a, void **b)
{
    const int64_t size = gemm->m * gemm->lda;
    float *wide = malloc((size_t)size * sizeof *wide);
    float *values = malloc((size_t)(gemm->n * gemm->ldb) * sizeof *values);
    for (int64_t i = 0; i < size; i++)
        wide[i] = ls_bf16_to_f32(((const ls_half *)gemm->a)[i]);
    ls_blocks_values(gemm->b_blocks, gemm->b, 0, gemm->n * gemm->ldb, values);
    gemm->in = LS_F32;
    gemm->b_blocks = LS_BLOCKS_NONE;
    gemm->a = *a = wide;
    gemm->b = *b = values;
}

WRAPPED(ls_gemm_run);
int __wrap_ls_gemm_run(struct ls_ops *ops, const struct ls_gemm *gemm, struct ls_error *error)
{
    struct ls_gemm other = *gemm;
    void *a = NULL, *b = NULL;
    bool forward = gemm->b_blocks && gemm->b_transposed;
    if (forward && active == TWIN_BLOCKS_TURNED)
        product_turn(&other, &a, &b);
    else if (forward && active == TWIN_BLOCKS_FINER)
        product_widen(&other, &a, &b);
    int status = __real_ls_gemm_run(ops, &other, error);
    free(a);
    free(b);
    return status;
}

/* ---- the step -------------------------------------------------------------------------------- */

WRAPPED(ls_layer_backward_weight);
int __wrap_ls_layer_backward_weight(struct ls_model *model, struct ls_ops *ops, int layer,
                                    const struct ls_micro_batch *batch,
                                    const struct ls_gradient *gradient, struct ls_error *error)
{
    if (active == TWIN_LEAF_MISSING && layer == TRAINED && batch->first_sequence == 2)
        return LS_OK;
    struct ls_gradient anew = *gradient;
    if (active == TWIN_CHAIN_ANEW && anew.onto == LS_ONTO_CHAIN) {
        anew.onto = LS_ONTO_SUM;
        gradient = &anew;
    }
    int status = __real_ls_layer_backward_weight(model, ops, layer, batch, gradient, error);
    if (status || active != TWIN_COUNTED_TWICE || layer != TRAINED || batch->first_sequence > 0)
        return status;
    struct ls_gradient again = *gradient;
    again.onto = LS_ONTO_SUM;
    return __real_ls_layer_backward_weight(model, ops, layer, batch, &again, error);
}

WRAPPED(ls_optimizer_step);
int __wrap_ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                             const struct ls_slice *slices, int count,
                             const struct ls_optim_step *step, struct ls_error *error)
{
    struct ls_slice *copy = calloc((size_t)count, sizeof *copy);
    struct ls_param *params = calloc((size_t)count, sizeof *params);
    struct ls_zero_slice *parts = calloc((size_t)count, sizeof *parts);
    if ((active == TWIN_TIED_ONCE || active == TWIN_OWN_INDEX) && copy && params && parts) {
        memcpy(copy, slices, (size_t)count * sizeof *copy);
        for (int i = 0; i < count; i++) {
            params[i] = *slices[i].param;
            parts[i] = *slices[i].part;
            copy[i].param = &params[i];
            copy[i].part = &parts[i];
            if (active == TWIN_TIED_ONCE)
                parts[i].second = -1;
            else
                params[i].cols = params[i].global_cols = 1;
            if (active == TWIN_OWN_INDEX)
                params[i].first_row = params[i].first_col = parts[i].first = 0;
        }
        slices = copy;
    }
    struct ls_optim_step scaled = *step;
    if (active == TWIN_SCALED)
        scaled.gradient_scale *= 1 + 0x1p-6f;
    updates = true;
    int status = __real_ls_optimizer_step(optimizer, ops, slices, count, &scaled, error);
    updates = false;
    free(copy);
    free(params);
    free(parts);
    return status;
}

/* Both halves of a matrix's rows, as two ranks would that do not meet. */
static int halves_apart(int (*real)(struct ls_ops *, const struct ls_newton_schulz *, float *,
                                    float *, float **, struct ls_error *),
                        struct ls_ops *ops, const struct ls_newton_schulz *op, float *x,
                        float *work, struct ls_error *error)
{
    int status = LS_OK;
    for (int half = 0; half < 2 && !status; half++) {
        struct ls_newton_schulz part = {op->rows / 2, op->cols, op->steps};
        float *own = x + half * part.rows * part.cols, *out;
        status = real(ops, &part, own, work, &out, error);
        if (!status && out != own)
            memcpy(own, out, (size_t)(part.rows * part.cols) * sizeof *own);
    }
    return status;
}

/* Two blocks of columns: beside each other (into), or one behind the other. */
static void columns_move(const struct ls_newton_schulz *op, float *x, float *room, bool into)
{
    int64_t width = op->cols / 2;
    memcpy(room, x, (size_t)(op->rows * op->cols) * sizeof *x);
    for (int64_t row = 0; row < op->rows; row++)
        for (int64_t block = 0; block < 2; block++) {
            int64_t beside = row * op->cols + block * width;
            int64_t behind = (block * op->rows + row) * width;
            memcpy(x + (into ? beside : behind), room + (into ? behind : beside),
                   (size_t)width * sizeof *x);
        }
}

WRAPPED(ls_newton_schulz);
int __wrap_ls_newton_schulz(struct ls_ops *ops, const struct ls_newton_schulz *op, float *x,
                            float *work, float **out, struct ls_error *error)
{
    *out = x;
    if (active == TWIN_PART_ALONE)
        return halves_apart(__real_ls_newton_schulz, ops, op, x, work, error);
    if (active == TWIN_PARTS_BEHIND)
        columns_move(op, x, work, false);
    int status = __real_ls_newton_schulz(ops, op, x, work, out, error);
    if (active == TWIN_PARTS_BEHIND && !status)
        columns_move(op, *out, *out == x ? work : x, true);
    return status;
}

WRAPPED(ls_tier_write);
int __wrap_ls_tier_write(struct ls_tier *tier, size_t offset, const void *device, size_t bytes,
                         struct ls_transfer *transfer, struct ls_error *error)
{
    /* A window's master, first moment, second moment: the first update's first one is forgotten. */
    if (active == TWIN_MOMENT_STALE && updates && call_count() == 2)
        return LS_OK;
    return __real_ls_tier_write(tier, offset, device, bytes, transfer, error);
}

WRAPPED(ls_loss_scale_update);
bool __wrap_ls_loss_scale_update(const struct ls_loss_scale_config *config, bool finite,
                                 struct ls_loss_scale *scale)
{
    static atomic_int callers;
    if (active == TWIN_SCALE_KEPT && !finite && atomic_fetch_add(&callers, 1) % 2 == 0)
        return true;
    return __real_ls_loss_scale_update(config, finite, scale);
}

WRAPPED(ls_send_start);
int __wrap_ls_send_start(struct ls_comm *comm, const void *buffer, int64_t count,
                         enum ls_dtype dtype, int peer, int tag, struct ls_request *request,
                         struct ls_call_site site, struct ls_error *error)
{
    float *values = (float *)(uintptr_t)buffer;
    for (int64_t i = 0; active == TWIN_ROUNDED_TWICE && dtype == LS_F32 && i < count; i++)
        values[i] = ls_bf16_to_f32(ls_f32_to_bf16(values[i]));
    return __real_ls_send_start(comm, buffer, count, dtype, peer, tag, request, site, error);
}

WRAPPED(ls_param_fill);
void __wrap_ls_param_fill(const struct ls_param *param, uint64_t seed, struct ls_ops *ops,
                          int64_t first, int64_t count, float *values)
{
    if (active == TWIN_ROW_OFF && param->matrix && first > 0)
        first -= param->cols;
    __real_ls_param_fill(param, seed, ops, first, count, values);
}

WRAPPED(ls_dp_micro_batch);
struct ls_dp_micro __wrap_ls_dp_micro_batch(const struct ls_dp_share *share, int64_t m)
{
    struct ls_dp_micro micro = __real_ls_dp_micro_batch(share, m);
    if (active == TWIN_ALL_ALIKE)
        micro.first -= share->cut.rank * share->leaf;
    return micro;
}

WRAPPED(ls_layer_forward_again);
int __wrap_ls_layer_forward_again(struct ls_model *model, struct ls_ops *ops, int layer,
                                  const struct ls_micro_batch *batch, struct ls_error *error)
{
    struct ls_micro_batch other = *batch;
    other.step += active == TWIN_MASK_ANEW;
    return __real_ls_layer_forward_again(model, ops, layer, &other, error);
}

WRAPPED(ls_loader_post_runs);
int __wrap_ls_loader_post_runs(struct ls_loader *loader, const struct ls_sample_run *runs,
                               int64_t count, struct ls_sample_run batch)
{
    if (active == TWIN_COUNTED_ALONE && count > 0) {
        batch = runs[0];
        batch.count = 0;
        for (int64_t i = 0; i < count; i++)
            batch.count += runs[i].count;
    }
    return __real_ls_loader_post_runs(loader, runs, count, batch);
}
