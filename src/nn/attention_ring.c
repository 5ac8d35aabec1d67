/* Attention of sequences in segments with keys and values that are never all here (Liu et al. 2023,
 * "Ring Attention"). Half chunks go round in ascending order: the rank that has one sends it to its
 * right neighbour, which works on it, hands it on, and so on until all have had it. A rank holds
 * two: one that it works on and passes, one that arrives. So every query row sees the same blocks
 * in the same order as on one rank.
 *
 * In the backward each rank sends its sums for a half chunk to the rank that has it, which adds
 * ranks by the tree. */
#include "nn/step_attention.h"

enum { TAG_KEYS = 1, TAG_SUMS = 2 };

bool attention_ring(const struct ls_model *model)
{
    return model->cp.size > 1 && model->cp.method == LS_CP_RING;
}

/* An upper bound for any kernel: panels are at most this wide. */
enum { PANEL = 64 };
size_t attention_state_room(const struct ls_model *model)
{
    int64_t rows = model->options.tokens / model->cp.size;
    int64_t width = ls_round_up(model->config.head_dim, PANEL) + 2;
    return (size_t)(rows * model->heads * width) * sizeof(float);
}

/* ---- the way round
 * ------------------------------------------------------------------------------- */

struct ring {
    struct attending *w;
    const char *own; /* [T/cp, 2GD] keys and values here, row distance ld */
    int64_t ld;
    int chunks, chunk; /* of the sequence; the one under work */
    struct ls_request arrives, leaves[2];
};

/* The tile that a half chunk belongs to, and the rank that has it. */
static int tile_of(const struct ring *ring, int chunk)
{
    return chunk < ring->chunks / 2 ? chunk : ring->chunks - 1 - chunk;
}

static int owner_of(const struct ring *ring, int chunk)
{
    return tile_of(ring, chunk) / (ring->chunks / 2 / ring->w->model->cp.size);
}

/* The segment of its rank that a half chunk is. */
static int segment_index(const struct ring *ring, int chunk)
{
    int tiles = ring->chunks / 2 / ring->w->model->cp.size;
    return 2 * (tile_of(ring, chunk) % tiles) + (chunk >= ring->chunks / 2);
}

static int64_t block_elements(const struct ring *ring)
{
    return ring->w->rows->segment_rows * 2 * size_held(ring->w->model, SIZE_KV);
}

static int receive_start(struct ring *ring, int chunk)
{
    struct attending *w = ring->w;
    const struct ls_cp *cp = &w->model->cp;
    if (chunk >= ring->chunks || owner_of(ring, chunk) == cp->rank)
        return LS_OK;
    return ls_recv_start(cp->comm, w->buffers.block[chunk & 1], block_elements(ring),
                         w->model->numerics.act, (cp->rank + cp->size - 1) % cp->size, TAG_KEYS,
                         &ring->arrives, LS_HERE, w->error);
}

static int ring_open(struct ring *ring, struct attending *w)
{
    struct ls_attention a = attention_of(w);
    *ring =
        (struct ring){.w = w,
                      .own = (const char *)a.k + (size_t)(w->sequence * w->rows->tokens * a.kv_ld) *
                                                     model_act_bytes(w->model),
                      .ld = a.kv_ld,
                      .chunks = (int)(2 * w->model->numerics.seq_tiles),
                      .chunk = -1};
    return receive_start(ring, 0);
}

static void own_pack(struct ring *ring, char *block)
{
    const struct attending *w = ring->w;
    size_t element = model_act_bytes(w->model);
    size_t bytes = (size_t)(2 * size_held(w->model, SIZE_KV)) * element;
    int64_t first = segment_index(ring, ring->chunk) * w->rows->segment_rows;
    ls_copy_rows(w->ops, w->rows->segment_rows, bytes,
                 ring->own + (size_t)(first * ring->ld) * element, (size_t)ring->ld * element,
                 block, bytes);
}

/* The next half chunk is here, on its way to the right neighbour, and the one after it is awaited,
 * in the place of the one before, which has left. */
static int ring_next(struct ring *ring)
{
    struct attending *w = ring->w;
    const struct ls_cp *cp = &w->model->cp;
    int chunk = ++ring->chunk, owner = owner_of(ring, chunk), right = (cp->rank + 1) % cp->size;
    char *block = w->buffers.block[chunk & 1];
    int status = LS_OK;
    if (owner == cp->rank)
        own_pack(ring, block);
    else
        status = ls_wait(&ring->arrives, w->error);
    if (!status && right != owner)
        status = ls_send_start(cp->comm, block, block_elements(ring), w->model->numerics.act, right,
                               TAG_KEYS, &ring->leaves[chunk & 1], LS_HERE, w->error);
    if (!status)
        status = ls_wait(&ring->leaves[(chunk + 1) & 1], w->error);
    return status ? status : receive_start(ring, chunk + 1);
}

static int ring_close(struct ring *ring)
{
    int status = ls_wait(&ring->leaves[0], ring->w->error);
    return status ? status : ls_wait(&ring->leaves[1], ring->w->error);
}

/* Keys and values under work, as an attention's. */
static void keys_set(const struct ring *ring, struct ls_attention *a)
{
    const struct attending *w = ring->w;
    a->k = w->buffers.block[ring->chunk & 1];
    a->v = (const char *)a->k + (size_t)size_held(w->model, SIZE_KV) * model_act_bytes(w->model);
    a->keys = w->rows->segment_rows;
}

static float *state_of(const struct ring *ring, const struct ls_attention *a, int i)
{
    const struct attending *w = ring->w;
    size_t bytes = ls_attention_state_bytes(w->ops, a);
    LS_ASSERT(bytes * (size_t)w->rows->segments <= attention_state_room(w->model));
    return (float *)((char *)w->buffers.state + (size_t)i * bytes);
}

/* ---- forward --------------------------------------------------------------------------------- */

int ring_forward(struct attending *w)
{
    struct ring ring;
    int64_t length = w->rows->segment_rows;
    int status = ring_open(&ring, w);
    while (!status && ring.chunk + 1 < ring.chunks) {
        status = ring_next(&ring);
        for (int i = 0; i < w->rows->segments && !status; i++) {
            struct ls_attention a = segment_of(w, i);
            keys_set(&ring, &a);
            if (ring.chunk * length <= a.q_first)
                status = ls_attention_forward_part(w->ops, &a, ring.chunk * length, length,
                                                   state_of(&ring, &a, i), w->error);
        }
    }
    for (int i = 0; i < w->rows->segments && !status; i++) {
        struct ls_attention a = segment_of(w, i);
        keys_set(&ring, &a);
        status = ls_attention_forward_finish(w->ops, &a, state_of(&ring, &a, i), w->error);
    }
    return status ? status : ring_close(&ring);
}

/* ---- backward
 * ------------------------------------------------------------------------------------ */

/* pair = the half chunk's sums over segment i's queries. */
static int segment_part(void *context, int i, float *pair)
{
    struct ring *ring = context;
    struct attending *w = ring->w;
    int64_t length = w->rows->segment_rows;
    struct ls_attention a = segment_backward_of(w, i);
    keys_set(ring, &a);
    a.d_k_sum = pair;
    a.d_v_sum = pair + length * size_held(w->model, SIZE_KV);
    int status = ls_attention_backward_part(w->ops, &a, ring->chunk * length, length,
                                            state_of(ring, &a, i), w->error);
    bool seen = ring->chunk * length <= a.q_first;
    return status ? status : segment_share(w, pair, length, seen ? length : 0);
}

/* The half chunk's sums of all ranks, on the rank that has it: the top of the tree. */
static int own_finish(struct ring *ring, struct ls_request *requests)
{
    struct attending *w = ring->w;
    const struct ls_cp *cp = &w->model->cp;
    int64_t pair = block_elements(ring), length = w->rows->segment_rows;
    float *arrived = w->buffers.arrived;
    int status = LS_OK;
    for (int rank = 0; rank < cp->size && !status; rank++)
        status = ls_wait(&requests[rank], w->error);
    if (status)
        return status;
    ls_copy(w->ops, (size_t)pair * sizeof *arrived, w->buffers.level[0], arrived + cp->rank * pair);
    parts_tree(w->ops, arrived, cp->size, pair);
    int64_t row = w->sequence * w->rows->tokens + segment_index(ring, ring->chunk) * length;
    attention_kv_finish(w, row, length, arrived, arrived + pair / 2);
    return LS_OK;
}

/* One half chunk: what others have of ours is awaited while we work on it. */
static int chunk_backward(struct ring *ring, struct ls_request *leaves)
{
    struct attending *w = ring->w;
    struct attention_buffers *b = &w->buffers;
    const struct ls_cp *cp = &w->model->cp;
    struct ls_request requests[LS_COMM_PENDING_MAX] = {{0}};
    int64_t pair = block_elements(ring);
    int owner = owner_of(ring, ring->chunk), status = LS_OK;
    for (int rank = 0; rank < cp->size && owner == cp->rank && !status; rank++)
        if (rank != cp->rank)
            status = ls_recv_start(cp->comm, b->arrived + rank * pair, pair, LS_F32, rank, TAG_SUMS,
                                   &requests[rank], LS_HERE, w->error);
    if (!status)
        status = tiles_sum(w, block_elements(ring), segment_part, ring);
    if (!status && owner == cp->rank)
        return own_finish(ring, requests);
    if (!status)
        status = ls_wait(leaves, w->error);
    if (status)
        return status;
    float *sums = b->level[0]; /* what is sent must not change until it has left */
    b->level[0] = b->sent;
    b->sent = sums;
    return ls_send_start(cp->comm, sums, pair, LS_F32, owner, TAG_SUMS, leaves, LS_HERE, w->error);
}

int ring_backward(struct attending *w)
{
    struct ring ring;
    struct ls_request leaves = {0};
    int status = ring_open(&ring, w);
    while (!status && ring.chunk + 1 < ring.chunks) {
        status = ring_next(&ring);
        if (!status)
            status = chunk_backward(&ring, &leaves);
    }
    for (int i = 0; i < w->rows->segments && !status; i++) {
        struct ls_attention a = segment_backward_of(w, i);
        keys_set(&ring, &a);
        status = ls_attention_backward_finish(w->ops, &a, state_of(&ring, &a, i), w->error);
    }
    if (!status)
        status = ls_wait(&leaves, w->error);
    return status ? status : ring_close(&ring);
}
