/* One Transformer block, pre-norm:
 *
 *     a1 = norm1(x);  y1 = attention(a1) Wo^T + bo;  h1 = x + dropout(y1)
 *     a2 = norm2(h1); y2 = act(a2 Wu^T + bu) Wd^T + bd;  out = h1 + dropout(y2)
 *
 * (Radford et al. 2019; Touvron et al. 2023.) Wq, Wk, Wv and Wu are cut by columns over tp, Wo and
 * Wd by rows (Shoeybi et al. 2019). Contractions over heads (Wo) and over the ffn width (Wd), and
 * the input gradients of the weights in front of them, are the ones that this cuts: they are summed
 * in tp_tiles (S2). */
#include "model.h"

#include <string.h>

int64_t block_query_width(const struct ls_model *model)
{
    return model->heads * model->config.head_dim;
}
int64_t block_kv_width(const struct ls_model *model)
{
    return model->kv_heads * model->config.head_dim;
}
int64_t block_qkv_width(const struct ls_model *model)
{
    return block_query_width(model) + 2 * block_kv_width(model);
}
static int up_parts(const struct ls_model_config *c)
{
    return c->act == LS_ACT_SWIGLU ? 2 : 1;
}

/* ---- buffers ----------------------------------------------------------------------------------
 */

static float *statistic_take(const struct ls_model *model, struct ls_arena *arena)
{
    return ls_arena_take(arena, (size_t)model->stream_max * sizeof(float));
}

void block_take(struct ls_model *model, struct ls_arena *arena, struct block_saved *saved)
{
    int64_t rows = model->rows_max, stream = model->stream_max, c = model->config.channels;
    saved->a1 = model_take(model, arena, stream, c);
    saved->qkv = model_take(model, arena, rows, block_qkv_width(model));
    saved->o = model_take(model, arena, rows, block_query_width(model));
    saved->h1 = model_take(model, arena, stream, c);
    saved->a2 = model_take(model, arena, stream, c);
    saved->f = model_take(model, arena, rows, up_parts(&model->config) * model->ffn);
    saved->g = model_take(model, arena, rows, model->ffn);
    saved->out = model_take(model, arena, stream, c);
    saved->mean1 = statistic_take(model, arena);
    saved->rstd1 = statistic_take(model, arena);
    saved->mean2 = statistic_take(model, arena);
    saved->rstd2 = statistic_take(model, arena);
    saved->lse = ls_arena_take(arena, (size_t)(rows * model->heads) * sizeof(float));
}

/* shared: another delta whose buffers serve where the weight half reads nothing; NULL for none. */
void block_delta_take(struct ls_model *model, struct ls_arena *arena, struct block_delta *delta,
                      const struct block_delta *shared)
{
    const struct ls_model_config *c = &model->config;
    int64_t rows = model->rows_max, stream = model->stream_max;
    bool sequence = model->tp.sequence, apart = c->dropout > 0 || sequence;
    int64_t store = sequence ? model->rows_room : stream;
    if (apart || model->options.split_backward)
        delta->y2_store = model_take(model, arena, store, c->channels);
    if (apart)
        delta->y1_store = model_take(model, arena, store, c->channels);
    delta->f = model_take(model, arena, rows, up_parts(c) * model->ffn);
    /* GELU's gradient is taken in place; SwiGLU's is twice as wide as what it comes from. */
    delta->g = delta->f;
    if (c->act == LS_ACT_SWIGLU)
        delta->g = shared ? shared->g : model_take(model, arena, rows, model->ffn);
    delta->a2 = model_take(model, arena, stream, c->channels);
    delta->h1 = shared && apart ? shared->h1 : model_take(model, arena, stream, c->channels);
    delta->o = shared ? shared->o : model_take(model, arena, rows, block_query_width(model));
    delta->qkv = model_take(model, arena, rows, block_qkv_width(model));
    delta->a1 = model_take(model, arena, stream, c->channels);
}

static size_t index_of(const struct ls_model *model, int64_t block, int slot)
{
    return (size_t)block * (size_t)model->options.slots + (size_t)slot;
}

struct block_saved *block_saved_of(const struct ls_model *model, int64_t block, int slot)
{
    return &model->saved[index_of(model, block, slot)];
}

static struct block_delta *delta_of(const struct ls_model *model, int64_t block, int slot)
{
    return model->options.split_backward ? &model->deltas[index_of(model, block, slot)]
                                         : &model->deltas[0];
}

static struct norm norm1_of(const struct block_params *p, const struct block_saved *s)
{
    return (struct norm){p->norm1_weight, p->norm1_bias, s->mean1, s->rstd1};
}

static struct norm norm2_of(const struct block_params *p, const struct block_saved *s)
{
    return (struct norm){p->norm2_weight, p->norm2_bias, s->mean2, s->rstd2};
}

/* ---- forward ----------------------------------------------------------------------------------
 */

static enum ls_gelu gelu_kind(const struct ls_model_config *c)
{
    return c->act == LS_ACT_GELU_ERF ? LS_GELU_ERF : LS_GELU_TANH;
}

/* The column-parallel product in front: y [M, out] from x [N, C]. */
static int column(struct ls_model *model, struct ls_ops *ops, const struct rows *rows, int64_t out,
                  const struct ls_param *weight, const struct ls_param *bias, const void *x,
                  void *y, struct ls_error *error)
{
    model_label(model, weight);
    struct ls_gemm gemm = model_linear(model, rows->all, out, 1, weight, bias, x, y);
    return ls_tp_gathered_product(&model->tp, ops, &gemm, model->gathered, &model->scratch, error);
}

/* The row-parallel product behind: y [N, C] from x [M, ...]. */
static int row(struct ls_model *model, struct ls_ops *ops, const struct rows *rows,
               const struct ls_param *weight, const struct ls_param *bias, const void *x, void *y,
               struct ls_error *error)
{
    model_label(model, weight);
    struct ls_gemm gemm =
        model_linear(model, rows->all, model->config.channels, model->tiles, weight, bias, x, y);
    return ls_tp_reduced_product(&model->tp, ops, &gemm, &model->scratch, error);
}

int block_forward(struct ls_model *model, struct ls_ops *ops, int64_t block,
                  const struct ls_micro_batch *batch, const void *x, struct ls_error *error)
{
    const struct ls_model_config *c = &model->config;
    const struct block_params *p = &model->block_params[block];
    struct block_saved *s = block_saved_of(model, block, batch->slot);
    struct rows rows = rows_of(model, batch);
    enum ls_dtype act = model->numerics.act;
    int layer = (int)block + 1, status;
    void *y = model->temporary;

    s->x = x;
    struct norm norm1 = norm1_of(p, s), norm2 = norm2_of(p, s);
    norm_forward(model, ops, &norm1, rows.count, s->x, NULL, NULL, s->a1);
    status = column(model, ops, &rows, block_qkv_width(model), p->qkv_weight, p->qkv_bias, s->a1,
                    s->qkv, error);
    if (!status)
        status = attention_forward(model, ops, batch, &rows, s, error);
    if (!status)
        status = row(model, ops, &rows, p->proj_weight, p->proj_bias, s->o, y, error);
    if (status)
        return status;
    model_dropout(model, ops, batch, &rows, layer, "attention", y, y);

    norm_forward(model, ops, &norm2, rows.count, s->x, y, s->h1, s->a2);
    status = column(model, ops, &rows, up_parts(c) * model->ffn, p->up_weight, p->up_bias, s->a2,
                    s->f, error);
    if (status)
        return status;
    if (c->act == LS_ACT_SWIGLU)
        ls_swiglu_forward(ops, act, rows.all, model->ffn, s->f, s->g);
    else
        ls_gelu_forward(ops, gelu_kind(c), act, rows.all * model->ffn, s->f, s->g);
    status = row(model, ops, &rows, p->down_weight, p->down_bias, s->g, y, error);
    if (status)
        return status;
    model_dropout(model, ops, batch, &rows, layer, "mlp", y, y);
    ls_add(ops, act, rows.count * c->channels, s->h1, y, s->out);
    return LS_OK;
}

/* ---- backward: inputs -------------------------------------------------------------------------
 */

/* Where a branch begins: dy [N, C] after dropout, kept in store where it is not dy itself, and its
 * product with the row-parallel weight, dx [M, weight->cols]. *all = dy of all rows. keep: store it
 * though nothing changes it. */
static int branch_input_gradient(struct ls_model *model, struct ls_ops *ops,
                                 const struct ls_micro_batch *batch, const struct rows *rows,
                                 const char *place, int layer, const struct ls_param *weight,
                                 const void *dy, void *store, bool keep, void *dx, const void **all,
                                 struct ls_error *error)
{
    int64_t channels = model->config.channels;
    size_t bytes = (size_t)channels * model_act_bytes(model);
    void *own = store;
    if (model->tp.sequence) /* in its place among all ranks' rows */
        own = (char *)store +
              (size_t)(ls_tp_room(&model->tp, rows->all) / model->tp.size * model->tp.rank) * bytes;
    const void *dropped = model_dropout(model, ops, batch, rows, layer, place, dy, own);
    if (dropped == dy && (keep || model->tp.sequence)) {
        memcpy(own, dy, (size_t)rows->count * bytes);
        dropped = own;
    }
    struct ls_gemm gemm = model_input_gradient(model, rows->all, 1, &channels, weight->cols, 1,
                                               model_weight(model, weight), dropped, dx);
    *all = model->tp.sequence ? store : dropped;
    model_label(model, weight);
    return ls_tp_gathered_product(&model->tp, ops, &gemm, store, &model->scratch, error);
}

static int mlp_backward_input(struct ls_model *model, struct ls_ops *ops, int64_t block,
                              const struct ls_micro_batch *batch, const struct rows *rows,
                              const void *dy, struct ls_error *error)
{
    const struct ls_model_config *c = &model->config;
    const struct block_params *p = &model->block_params[block];
    const struct block_saved *s = block_saved_of(model, block, batch->slot);
    struct block_delta *d = delta_of(model, block, batch->slot);
    enum ls_dtype act = model->numerics.act;
    int status =
        branch_input_gradient(model, ops, batch, rows, "mlp", (int)block + 1, p->down_weight, dy,
                              d->y2_store, model->options.split_backward, d->g, &d->y2, error);
    if (status)
        return status;
    if (c->act == LS_ACT_SWIGLU)
        ls_swiglu_backward(ops, act, rows->all, model->ffn, s->f, d->g, d->f);
    else
        ls_gelu_backward(ops, gelu_kind(c), act, rows->all * model->ffn, s->f, d->g, d->f);
    struct ls_gemm gemm = model_input_gradient(
        model, rows->all, up_parts(c), (int64_t[]){model->ffn, model->ffn}, c->channels,
        model->tiles, model_weight(model, p->up_weight), d->f, d->a2);
    model_label(model, p->up_weight);
    status = ls_tp_reduced_product(&model->tp, ops, &gemm, &model->scratch, error);
    if (status)
        return status;
    struct norm norm2 = norm2_of(p, s);
    norm_backward_input(model, ops, &norm2, rows->count, s->h1, d->a2, dy, d->h1);
    return LS_OK;
}

int block_backward_input(struct ls_model *model, struct ls_ops *ops, int64_t block,
                         const struct ls_micro_batch *batch, const void *dy, void *dx,
                         struct ls_error *error)
{
    const struct block_params *p = &model->block_params[block];
    const struct block_saved *s = block_saved_of(model, block, batch->slot);
    struct block_delta *d = delta_of(model, block, batch->slot);
    struct rows rows = rows_of(model, batch);
    int status = mlp_backward_input(model, ops, block, batch, &rows, dy, error);
    if (!status)
        status =
            branch_input_gradient(model, ops, batch, &rows, "attention", (int)block + 1,
                                  p->proj_weight, d->h1, d->y1_store, false, d->o, &d->y1, error);
    model_label(model, p->qkv_weight);
    if (!status)
        status = attention_backward(model, ops, batch, &rows, s, d->o, d->qkv, error);
    if (!status)
        status = attention_input_gradient(model, ops, &rows, p->qkv_weight, d->qkv, d->a1, error);
    if (status)
        return status;
    struct norm norm1 = norm1_of(p, s);
    norm_backward_input(model, ops, &norm1, rows.count, s->x, d->a1, d->h1, dx);
    return LS_OK;
}

/* ---- backward: weights ------------------------------------------------------------------------
 */

/* One linear layer's weight and bias gradients. */
struct linear_gradient {
    const struct ls_param *weight, *bias;
    int64_t out;
    const void *dy, *x;
    bool stream; /* x is the stream's: [N, C] */
};

/* x: all rows of linear->x. */
static int linear_backward_weight(struct ls_model *model, struct ls_ops *ops,
                                  const struct rows *rows, const struct ls_gradient *gradient,
                                  const struct linear_gradient *linear, const void *x,
                                  struct ls_error *error)
{
    struct ls_token_sum sum = rows_sum(rows, gradient->accumulate);
    if (linear->bias)
        ls_bias_backward(ops, model->numerics.act, linear->out, linear->out, linear->dy, &sum,
                         gradient->flat + linear->bias->region_offset);
    return model_weight_gradient(model, ops, rows->units, rows->all, linear->out,
                                 linear->weight->cols, linear->dy, x, gradient->accumulate,
                                 gradient->flat + linear->weight->region_offset, error);
}

/* Where the stream is cut, the rows of a linear layer's x are gathered while the one before it, of
 * which all rows are here, is under work: of two neighbours one is such. */
static int linears_backward_weight(struct ls_model *model, struct ls_ops *ops,
                                   const struct rows *rows, const struct ls_gradient *gradient,
                                   const struct linear_gradient *linears, int count,
                                   struct ls_error *error)
{
    struct ls_request request = {0};
    int status = LS_OK;
    for (int i = 0; i < count && !status; i++) {
        const struct linear_gradient *next = i + 1 < count ? &linears[i + 1] : NULL;
        const void *x = linears[i].x;
        if (model->tp.sequence && linears[i].stream) {
            x = model->gathered;
            status = ls_wait(&request, error);
        } else if (model->tp.sequence && next) {
            model_label(model, next->weight);
            status = ls_tp_gather_start(&model->tp, model->numerics.act, rows->all,
                                        model->config.channels, next->x, model->gathered, &request,
                                        error);
        }
        if (!status)
            status = linear_backward_weight(model, ops, rows, gradient, &linears[i], x, error);
    }
    return status;
}

int block_backward_weight(struct ls_model *model, struct ls_ops *ops, int64_t block,
                          const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                          struct ls_error *error)
{
    const struct ls_model_config *c = &model->config;
    const struct block_params *p = &model->block_params[block];
    const struct block_saved *s = block_saved_of(model, block, batch->slot);
    const struct block_delta *d = delta_of(model, block, batch->slot);
    struct rows rows = rows_of(model, batch);
    const struct linear_gradient linears[] = {
        {p->down_weight, p->down_bias, c->channels, d->y2, s->g, false},
        {p->up_weight, p->up_bias, up_parts(c) * model->ffn, d->f, s->a2, true},
        {p->proj_weight, p->proj_bias, c->channels, d->y1, s->o, false},
        {p->qkv_weight, p->qkv_bias, block_qkv_width(model), d->qkv, s->a1, true},
    };
    int status = linears_backward_weight(model, ops, &rows, gradient, linears,
                                         sizeof linears / sizeof linears[0], error);
    if (status)
        return status;
    const struct norm_gradient norms[] = {
        {norm2_of(p, s), s->h1, d->a2},
        {norm1_of(p, s), s->x, d->a1},
    };
    return norms_backward_weight(model, ops, &rows, norms, 2, gradient, error);
}
