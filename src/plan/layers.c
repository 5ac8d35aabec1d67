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

static int64_t kv_width(const struct ls_layout *l)
{
    return ls_max(l->model.kv_heads / l->size[LS_AXIS_TP], 1) * l->model.head_dim;
}

static int sharers_reduce(const struct plan_walk *walk, int64_t rows)
{
    return rows == 0 ? LS_OK
                     : plan_collective(walk, LS_GROUP_SHARERS, LS_COMM_ALL_REDUCE, LS_F32,
                                       rows * kv_width(walk->layout), "shared key/value gradients");
}

/* Half chunks of a sequence, handed from rank to rank in ascending order; in the backward each
 * rank's sums go to the chunk's owner. */
struct ring {
    const struct plan_walk *walk;
    int64_t length, elements; /* tokens, and elements of keys and values, of a half chunk */
    int rank, size, chunks;
};

static int ring_owner(const struct ring *ring, int chunk)
{
    int tile = chunk < ring->chunks / 2 ? chunk : ring->chunks - 1 - chunk;
    return tile / (ring->chunks / 2 / ring->size);
}

static int ring_keys(const struct ring *ring, int chunk)
{
    enum { KEYS = 1 };
    const struct plan_walk *walk = ring->walk;
    int owner = ring_owner(ring, chunk), status = LS_OK;
    int left = (ring->rank + ring->size - 1) % ring->size, right = (ring->rank + 1) % ring->size;
    enum ls_dtype act = walk->layout->numerics.act;
    if (owner != ring->rank)
        status = plan_message(walk, LS_GROUP_CP, true, left, KEYS, act, ring->elements,
                              "keys and values");
    if (!status && owner != right)
        status = plan_message(walk, LS_GROUP_CP, false, right, KEYS, act, ring->elements,
                              "keys and values");
    return status;
}

static int ring_sums(const struct ring *ring, int chunk)
{
    enum { SUMS = 2 };
    const struct plan_walk *walk = ring->walk;
    const struct ls_layout *l = walk->layout;
    int owner = ring_owner(ring, chunk), status = LS_OK;
    int64_t tiles = l->numerics.seq_tiles;
    for (int i = 0; i < ls_segments(tiles, ring->size) && !status; i++) {
        int64_t first, count;
        ls_segment(tiles, ring->size, ring->rank, l->sequence, i, &first, &count);
        for (int pair = 0; pair < 2 && !status; pair++)
            status = sharers_reduce(walk, chunk * ring->length <= first ? ring->length : 0);
    }
    if (!status && owner != ring->rank)
        return plan_message(walk, LS_GROUP_CP, false, owner, SUMS, LS_F32, ring->elements,
                            "key/value gradients");
    for (int rank = 0; rank < ring->size && !status; rank++)
        if (rank != ring->rank)
            status = plan_message(walk, LS_GROUP_CP, true, rank, SUMS, LS_F32, ring->elements,
                                  "key/value gradients");
    return status;
}

static int ring_run(const struct plan_walk *walk, bool backward)
{
    const struct ls_layout *l = walk->layout;
    int64_t length = l->sequence / (2 * l->numerics.seq_tiles);
    struct ring ring = {walk,
                        length,
                        length * 2 * kv_width(l),
                        (int)walk->at[LS_AXIS_CP],
                        (int)l->size[LS_AXIS_CP],
                        (int)(2 * l->numerics.seq_tiles)};
    int status = LS_OK;
    for (int chunk = 0; chunk < ring.chunks && !status; chunk++) {
        status = ring_keys(&ring, chunk);
        if (!status && backward)
            status = ring_sums(&ring, chunk);
    }
    return status;
}

static int keys_gather(const struct plan_walk *walk)
{
    const struct ls_layout *l = walk->layout;
    return plan_collective(walk, LS_GROUP_CP, LS_COMM_ALL_GATHER, l->numerics.act,
                           l->sequence / l->size[LS_AXIS_CP] * 2 * kv_width(l), "keys and values");
}

static bool is_ring(const struct ls_layout *l)
{
    return l->size[LS_AXIS_CP] > 1 && l->cp_method == LS_CP_RING;
}

static int attention_forward(const struct plan_walk *walk)
{
    int status = LS_OK;
    for (int64_t b = 0; b < walk->sequences && !status; b++)
        status = is_ring(walk->layout) ? ring_run(walk, false) : keys_gather(walk);
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
                           l->sequence / cp * 2 * kv_width(l), "key/value gradients");
}

static int attention_backward(const struct plan_walk *walk)
{
    if (walk->layout->numerics.seq_tiles == 1)
        return sharers_reduce(walk, 2 * walk->rows);
    int status = LS_OK;
    for (int64_t b = 0; b < walk->sequences && !status; b++)
        status = is_ring(walk->layout) ? ring_run(walk, true) : gathered_backward(walk);
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
