/* The faults live in functions that the linker puts in place of the library's (--wrap, in the
 * Makefile): library code knows nothing of them. */
#include "twins.h"

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
    [TWIN_ALL_ALIKE] = {"a smaller last micro-batch taken from where a whole one would lie",
                        1,
                        {"parallel.dp_shard=2", "parallel.zero=2", "batch.micro=8"}},
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
};

static int active = -1, turn;             /* turn: how often a fault was set */
static __thread int calls, calls_in_turn; /* of the wrapped function, on this rank */

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

int __real_ls_reduce_scatter_start(struct ls_comm *comm, const float *input, float *output,
                                   int64_t count, struct ls_request *request,
                                   struct ls_call_site site, struct ls_error *error);
int __wrap_ls_reduce_scatter_start(struct ls_comm *comm, const float *input, float *output,
                                   int64_t count, struct ls_request *request,
                                   struct ls_call_site site, struct ls_error *error);
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

int __real_ls_all_reduce_start(struct ls_comm *comm, float *buffer, int64_t count,
                               struct ls_request *request, struct ls_call_site site,
                               struct ls_error *error);
int __wrap_ls_all_reduce_start(struct ls_comm *comm, float *buffer, int64_t count,
                               struct ls_request *request, struct ls_call_site site,
                               struct ls_error *error);
int __wrap_ls_all_reduce_start(struct ls_comm *comm, float *buffer, int64_t count,
                               struct ls_request *request, struct ls_call_site site,
                               struct ls_error *error)
{
    /* The head's all-reduces are the softmax's; the other ones of nn are vector gradients. */
    if (!request && active == TWIN_NORM_LOCAL && strstr(site.file, "/nn/") &&
        !strstr(site.file, "head"))
        return LS_OK;
    if (!request || active != TWIN_BUCKET_DROPPED || call_count() != 3)
        return __real_ls_all_reduce_start(comm, buffer, count, request, site, error);
    *request = (struct ls_request){0};
    return LS_OK;
}

/* ---- the step -------------------------------------------------------------------------------- */

int __real_ls_layer_backward_weight(struct ls_model *model, struct ls_ops *ops, int layer,
                                    const struct ls_micro_batch *batch,
                                    const struct ls_gradient *gradient, struct ls_error *error);
int __wrap_ls_layer_backward_weight(struct ls_model *model, struct ls_ops *ops, int layer,
                                    const struct ls_micro_batch *batch,
                                    const struct ls_gradient *gradient, struct ls_error *error);
int __wrap_ls_layer_backward_weight(struct ls_model *model, struct ls_ops *ops, int layer,
                                    const struct ls_micro_batch *batch,
                                    const struct ls_gradient *gradient, struct ls_error *error)
{
    if (active == TWIN_LEAF_MISSING && layer == 1 && batch->first_sequence == 2)
        return LS_OK;
    int status = __real_ls_layer_backward_weight(model, ops, layer, batch, gradient, error);
    if (status || active != TWIN_COUNTED_TWICE || layer != 1 || batch->first_sequence > 0)
        return status;
    struct ls_gradient again = *gradient;
    again.accumulate = true;
    return __real_ls_layer_backward_weight(model, ops, layer, batch, &again, error);
}

void __real_ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                              const struct ls_slice *slices, int count,
                              const struct ls_optim_step *step, float *master);
void __wrap_ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                              const struct ls_slice *slices, int count,
                              const struct ls_optim_step *step, float *master);
void __wrap_ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                              const struct ls_slice *slices, int count,
                              const struct ls_optim_step *step, float *master)
{
    struct ls_slice *copy = calloc((size_t)count, sizeof *copy);
    if ((active == TWIN_TIED_ONCE || active == TWIN_OWN_INDEX) && copy) {
        memcpy(copy, slices, (size_t)count * sizeof *copy);
        for (int i = 0; i < count; i++)
            if (active == TWIN_TIED_ONCE)
                copy[i].second = -1;
            else
                copy[i].places = (struct ls_places){0, 1, 0, 1};
        slices = copy;
    }
    struct ls_optim_step scaled = *step;
    if (active == TWIN_SCALED)
        scaled.gradient_scale *= 1 + 0x1p-6f;
    __real_ls_optimizer_step(optimizer, ops, slices, count, &scaled, master);
    free(copy);
}

bool __real_ls_loss_scale_update(const struct ls_loss_scale_config *config, bool finite,
                                 struct ls_loss_scale *scale);
bool __wrap_ls_loss_scale_update(const struct ls_loss_scale_config *config, bool finite,
                                 struct ls_loss_scale *scale);
bool __wrap_ls_loss_scale_update(const struct ls_loss_scale_config *config, bool finite,
                                 struct ls_loss_scale *scale)
{
    static atomic_int callers;
    if (active == TWIN_SCALE_KEPT && !finite && atomic_fetch_add(&callers, 1) % 2 == 0)
        return true;
    return __real_ls_loss_scale_update(config, finite, scale);
}

int __real_ls_send_start(struct ls_comm *comm, const void *buffer, int64_t count,
                         enum ls_dtype dtype, int peer, int tag, struct ls_request *request,
                         struct ls_call_site site, struct ls_error *error);
int __wrap_ls_send_start(struct ls_comm *comm, const void *buffer, int64_t count,
                         enum ls_dtype dtype, int peer, int tag, struct ls_request *request,
                         struct ls_call_site site, struct ls_error *error);
int __wrap_ls_send_start(struct ls_comm *comm, const void *buffer, int64_t count,
                         enum ls_dtype dtype, int peer, int tag, struct ls_request *request,
                         struct ls_call_site site, struct ls_error *error)
{
    float *values = (float *)(uintptr_t)buffer;
    for (int64_t i = 0; active == TWIN_ROUNDED_TWICE && dtype == LS_F32 && i < count; i++)
        values[i] = ls_bf16_to_f32(ls_f32_to_bf16(values[i]));
    return __real_ls_send_start(comm, buffer, count, dtype, peer, tag, request, site, error);
}

void __real_ls_param_fill(const struct ls_param *param, uint64_t seed, struct ls_ops *ops,
                          int64_t first, int64_t count, float *values);
void __wrap_ls_param_fill(const struct ls_param *param, uint64_t seed, struct ls_ops *ops,
                          int64_t first, int64_t count, float *values);
void __wrap_ls_param_fill(const struct ls_param *param, uint64_t seed, struct ls_ops *ops,
                          int64_t first, int64_t count, float *values)
{
    if (active == TWIN_ROW_OFF && param->matrix && first > 0)
        first -= param->cols;
    __real_ls_param_fill(param, seed, ops, first, count, values);
}

void __real_ls_dp_micro_batch(const struct ls_dp_share *share, int64_t m, int64_t *first,
                              int64_t *count);
void __wrap_ls_dp_micro_batch(const struct ls_dp_share *share, int64_t m, int64_t *first,
                              int64_t *count);
void __wrap_ls_dp_micro_batch(const struct ls_dp_share *share, int64_t m, int64_t *first,
                              int64_t *count)
{
    __real_ls_dp_micro_batch(share, m, first, count);
    if (active == TWIN_ALL_ALIKE && share->shards > 1)
        *first = share->first + m * share->shards * share->micro_leaves;
}

int __real_ls_layer_forward_again(struct ls_model *model, struct ls_ops *ops, int layer,
                                  const struct ls_micro_batch *batch, struct ls_error *error);
int __wrap_ls_layer_forward_again(struct ls_model *model, struct ls_ops *ops, int layer,
                                  const struct ls_micro_batch *batch, struct ls_error *error);
int __wrap_ls_layer_forward_again(struct ls_model *model, struct ls_ops *ops, int layer,
                                  const struct ls_micro_batch *batch, struct ls_error *error)
{
    struct ls_micro_batch other = *batch;
    other.step += active == TWIN_MASK_ANEW;
    return __real_ls_layer_forward_again(model, ops, layer, &other, error);
}
