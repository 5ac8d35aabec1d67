/* What the layers of a model move: on tp and its sharers, on cp. The counterpart of src/nn. */
#include "walk.h"

/* ---- tensor parallel ----------------------------------------------------------------------------
 */

/* Rows of all ranks, [M, C] in the compute type. */
static int rows_gather(const struct plan_walk *walk, const char *what)
{
    const struct ls_layout *l = walk->layout;
    return plan_collective(walk, LS_GROUP_TP, LS_COMM_ALL_GATHER, l->numerics.act,
                           walk->mine * l->model.channels, what);
}

/* Under sequence parallel a column-parallel product needs the others' rows first. */
static int rows_need(const struct plan_walk *walk, const char *what)
{
    return walk->layout->sp ? rows_gather(walk, what) : LS_OK;
}

/* The end of a row-parallel product: partial sums are added, and without sequence parallel gathered
 * again. */
static int rows_reduce(const struct plan_walk *walk, const char *what)
{
    const struct ls_layout *l = walk->layout;
    int status = plan_collective(walk, LS_GROUP_TP, LS_COMM_REDUCE_SCATTER, LS_F32,
                                 walk->mine * l->model.channels, what);
    return status || l->sp ? status : rows_gather(walk, what);
}

/* Gradients of `norms` norms, of which each rank has its own rows' part. */
static int norms_reduce(const struct plan_walk *walk, int norms)
{
    const struct ls_layout *l = walk->layout;
    int64_t vectors = l->model.arch == LS_GPT2 && l->model.bias ? 2 : 1;
    int64_t units = l->numerics.fast ? 1 : walk->units;
    if (!l->sp)
        return LS_OK;
    return plan_collective(walk, LS_GROUP_TP, LS_COMM_ALL_REDUCE, LS_F32,
                           units * norms * vectors * l->model.channels, "norm gradients");
}

/* ---- context parallel ---------------------------------------------------------------------------
 */

static int sharers_reduce(const struct plan_walk *walk, int64_t rows)
{
    return rows == 0
               ? LS_OK
               : plan_collective(walk, LS_GROUP_SHARERS, LS_COMM_ALL_REDUCE, LS_F32,
                                 rows * plan_kv_width(walk->layout), "shared key/value gradients");
}

/* The ring's moves, one by one, or all of them as the list that they are. */
static int ring_run(const struct plan_walk *walk, bool backward)
{
    const struct plan_ring *ring = &walk->ring[backward];
    int status = LS_OK;
    if (walk->visit_ring)
        return walk->visit_ring(walk->user, ring, walk->layer, walk->micro_batch, walk->error);
    for (int i = 0; i < ring->count && !status; i++) {
        const struct plan_ring_item *item = &ring->items[i];
        status = item->group == LS_GROUP_SHARERS
                     ? plan_collective(walk, item->group, LS_COMM_ALL_REDUCE, item->dtype,
                                       item->count, item->what)
                     : plan_message(walk, item->group, item->receive, item->peer, item->channel,
                                    item->dtype, item->count, item->what);
    }
    return status;
}

static int keys_gather(const struct plan_walk *walk)
{
    const struct ls_layout *l = walk->layout;
    return plan_collective(walk, LS_GROUP_CP, LS_COMM_ALL_GATHER, l->numerics.act,
                           l->sequence / l->size[LS_AXIS_CP] * 2 * plan_kv_width(l),
                           "keys and values");
}

static int attention_forward(const struct plan_walk *walk)
{
    int status = LS_OK;
    for (int64_t b = 0; b < walk->sequences && !status; b++)
        status = plan_is_ring(walk->layout) ? ring_run(walk, false) : keys_gather(walk);
    return status;
}

static int gathered_backward(const struct plan_walk *walk)
{
    const struct ls_layout *l = walk->layout;
    int64_t tiles = l->numerics.seq_tiles, cp = l->size[LS_AXIS_CP];
    int status = keys_gather(walk);
    for (int i = 0; i < ls_segments(tiles, cp) && !status; i++) {
        int64_t first, count;
        ls_segment(tiles, cp, walk->at[LS_AXIS_CP], l->sequence, i, &first, &count);
        for (int pair = 0; pair < 2 && !status; pair++)
            status = sharers_reduce(walk, first + count);
    }
    if (status)
        return status;
    return plan_collective(walk, LS_GROUP_CP, LS_COMM_REDUCE_SCATTER, LS_F32,
                           l->sequence / cp * 2 * plan_kv_width(l), "key/value gradients");
}

static int attention_backward(const struct plan_walk *walk)
{
    if (walk->layout->numerics.seq_tiles == 1)
        return sharers_reduce(walk, 2 * walk->rows);
    int status = LS_OK;
    for (int64_t b = 0; b < walk->sequences && !status; b++)
        status = plan_is_ring(walk->layout) ? ring_run(walk, true) : gathered_backward(walk);
    return status;
}

/* ---- layers
 * -------------------------------------------------------------------------------------- */

static int block_forward(const struct plan_walk *walk)
{
    int status = rows_need(walk, "attention input");
    if (!status)
        status = attention_forward(walk);
    if (!status)
        status = rows_reduce(walk, "attention output");
    if (!status)
        status = rows_need(walk, "mlp input");
    return status ? status : rows_reduce(walk, "mlp output");
}

static int block_input(const struct plan_walk *walk)
{
    int status = rows_need(walk, "mlp output gradient");
    if (!status)
        status = rows_reduce(walk, "mlp input gradient");
    if (!status)
        status = rows_need(walk, "attention output gradient");
    if (!status)
        status = attention_backward(walk);
    return status ? status : rows_reduce(walk, "attention input gradient");
}

static int block_weight(const struct plan_walk *walk)
{
    int status = rows_need(walk, "mlp input");
    if (!status)
        status = rows_need(walk, "attention input");
    return status ? status : norms_reduce(walk, 2);
}

/* Maximum, sum and target's logit of each row, over the vocabulary's parts. */
static int head_forward(const struct plan_walk *walk)
{
    int status = rows_need(walk, "head input");
    if (!status)
        status = plan_collective(walk, LS_GROUP_TP, LS_COMM_ALL_REDUCE, LS_F32, walk->rows,
                                 "softmax maximum");
    if (!status)
        status = plan_collective(walk, LS_GROUP_TP, LS_COMM_ALL_REDUCE, LS_F32, 2 * walk->rows,
                                 "softmax sum and target logit");
    return status ? status : rows_reduce(walk, "head input gradient");
}

static bool is_head(const struct plan_walk *walk)
{
    return walk->layer == walk->layout->model.layers + 1;
}

int plan_layer_forward(const struct plan_walk *walk)
{
    if (walk->layer == 0)
        return rows_reduce(walk, "embedding");
    return is_head(walk) ? head_forward(walk) : block_forward(walk);
}

int plan_layer_input(const struct plan_walk *walk)
{
    return walk->layer == 0 || is_head(walk) ? LS_OK : block_input(walk);
}

int plan_layer_weight(const struct plan_walk *walk)
{
    if (walk->layer == 0)
        return rows_need(walk, "embedding gradient");
    return is_head(walk) ? norms_reduce(walk, 1) : block_weight(walk);
}
