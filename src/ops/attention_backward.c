/* Attention's backward, whole and in parts: the order of pairs and of heads. */
#include "ops/attention_job.h"
#include "ops/share.h"

#include <string.h>

enum { BLOCK = ATTENTION_BLOCK };

/* ---- the sums of a group of heads ---- */

/* Sums for dk and dv of key blocks, on the tree over a group's heads: head i of the group adds into
 * the pair of buffers at depth popcount(i), which then merges into the one below for each trailing
 * one of i. That is ls_tree_split's tree, as a binary counter. */
struct head_tree {
    float *dk, *dv; /* [depth][blocks, BLOCK, padded] */
    int64_t depth_elements;
};

static int64_t tree_depth(int64_t group)
{
    int64_t depth = 0;
    for (int64_t i = 0; i < group; i++)
        depth = ls_max(depth, __builtin_popcountll((unsigned long long)i) + 1);
    return depth;
}

static struct head_tree head_tree_take(const struct attention_job *job, struct ls_arena *arena,
                                       int64_t blocks)
{
    size_t bytes = job->sum_bytes * (size_t)blocks, all = bytes * (size_t)tree_depth(job->group);
    return (struct head_tree){.dk = ls_arena_take(arena, all),
                              .dv = ls_arena_take(arena, all),
                              .depth_elements = (int64_t)(bytes / sizeof(float))};
}

static int64_t head_tree_open(const struct head_tree *tree, int64_t i)
{
    int64_t at = __builtin_popcountll((unsigned long long)i) * tree->depth_elements;
    memset(tree->dk + at, 0, (size_t)tree->depth_elements * sizeof(float));
    memset(tree->dv + at, 0, (size_t)tree->depth_elements * sizeof(float));
    return at;
}

static void head_tree_fold(const struct head_tree *tree, int64_t from)
{
    int64_t into = from - tree->depth_elements;
    for (int64_t e = 0; e < tree->depth_elements; e++)
        tree->dk[into + e] += tree->dk[from + e];
    for (int64_t e = 0; e < tree->depth_elements; e++)
        tree->dv[into + e] += tree->dv[from + e];
}

/* Head i of group is complete. After the last one the whole sum is at depth 0. */
static void head_tree_close(const struct head_tree *tree, int64_t i, int64_t group)
{
    int64_t at = __builtin_popcountll((unsigned long long)i) * tree->depth_elements;
    for (int64_t ones = i; at > 0 && ((ones & 1) || i == group - 1); ones >>= 1) {
        head_tree_fold(tree, at);
        at -= tree->depth_elements;
    }
}

struct backward_room {
    struct attention_query query;
    float *dq; /* [padded, BLOCK] */
    struct head_tree tree;
    void *scratch;
    struct attention_key_cache keys;
};

/* tree_blocks: key blocks whose dk and dv are summed at once. */
static struct backward_room backward_room_take(const struct attention_job *job,
                                               struct ls_arena *arena, int64_t tree_blocks)
{
    struct backward_room room = {.query = attention_query_take(job, arena, true)};
    room.dq = ls_arena_take(arena, job->sum_bytes);
    room.tree = head_tree_take(job, arena, tree_blocks);
    room.scratch = ls_arena_take(arena, job->kernel->scratch_bytes);
    room.keys = attention_key_cache_take(job, arena, true);
    return room;
}

/* ---- one query block, one key block ---- */

static void query_pack_backward(const struct attention_job *job,
                                const struct attention_query *query, int64_t b, int64_t head,
                                int64_t block)
{
    const struct ls_attention *a = job->a;
    struct attention_rows q = attention_query_rows(job, a->q, a->q_ld, b, head, block);
    struct attention_rows o = attention_query_rows(job, a->o, a->o_ld, b, head, block);
    struct attention_rows d_o = attention_query_rows(job, a->d_o, a->o_ld, b, head, block);
    job->kernel->pack_query_backward(&job->shape, &q, &o, &d_o,
                                     attention_lse_of(job, b, head, block), query);
}

/* Where dq of a query block is summed. */
static float *query_sum(const struct attention_job *job, const struct backward_room *room,
                        int64_t b, int64_t head, int64_t block)
{
    return job->state ? attention_state_of(job, b, head, block) : room->dq;
}

/* What is packed and stored after this block. */
static struct attention_ahead query_ahead(const struct attention_job *job, int64_t b, int64_t head,
                                          int64_t block, bool keys_are_stored)
{
    const struct ls_attention *a = job->a;
    const int64_t g = head / job->group;
    struct attention_ahead ahead = attention_ahead_of(&job->shape);
    if (!job->state)
        attention_ahead_add(&ahead, attention_query_rows(job, a->d_q, a->q_ld, b, head, block));
    attention_ahead_add_next(job, &ahead, b, head, block, true);
    if (keys_are_stored && !a->d_k_sum && block + 1 == job->blocks &&
        head % job->group == job->group - 1) {
        struct attention_rows d_k = attention_key_rows(job, a->d_k, a->kv_ld, b, g, job->first_key);
        struct attention_rows d_v = attention_key_rows(job, a->d_v, a->kv_ld, b, g, job->first_key);
        d_k.count = d_v.count = job->keys.count;
        attention_ahead_add(&ahead, d_k);
        attention_ahead_add(&ahead, d_v);
    }
    return ahead;
}

/* Query block `block` against its key blocks; dk and dv (NULL for none) are those of the call's
 * first key block on. */
static void backward_query(const struct attention_job *job, struct backward_room *room, int64_t b,
                           int64_t head, int64_t block, float *dk, float *dv)
{
    const struct ls_attention *a = job->a;
    const int64_t step = (int64_t)(job->sum_bytes / sizeof(float)), g = head / job->group;
    const int64_t first = job->first_key;
    const int64_t begin = attention_begin_of(job, b, block), end = attention_end_of(job, block);
    float *dq = query_sum(job, room, b, head, block);
    if (first == 0)
        memset(dq, 0, job->sum_bytes);
    if (end <= begin)
        return;
    query_pack_backward(job, &room->query, b, head, block);
    struct attention_ahead ahead = query_ahead(job, b, head, block, dk != NULL);
    for (int64_t kb = begin; kb < end; kb++) {
        struct attention_mask mask;
        struct attention_key key = attention_key_block(job, &room->keys, b, g, kb, true);
        attention_ahead_allow(&ahead, kb - begin, end - begin);
        const struct attention_gradient gradient = {dk ? dk + (kb - first) * step : NULL,
                                                    dv ? dv + (kb - first) * step : NULL, dq};
        job->kernel->backward_pair(&job->shape, &room->query, &key,
                                   attention_mask_of(job, b, block, kb, &mask), &gradient,
                                   room->scratch, &ahead);
    }
    if (!job->state) {
        struct attention_rows d_q = attention_query_rows(job, a->d_q, a->q_ld, b, head, block);
        job->kernel->store_columns(&job->shape, dq, a->scale, &d_q);
    }
}

/* sum [BLOCK, padded] as it is, to rows of [B, keys, G*D]. */
static void store_sum(const struct attention_job *job, const float *sum, float *to, int64_t b,
                      int64_t g, int64_t block)
{
    const struct ls_attention *a = job->a;
    const int64_t ld = a->kv_heads * a->head_dim, at = (block - job->first_key) * BLOCK;
    to += (b * job->key_rows + at) * ld + g * a->head_dim;
    for (int64_t i = 0; i < ls_min(BLOCK, job->keys.count - at); i++)
        memcpy(to + i * ld, sum + i * job->shape.padded, (size_t)a->head_dim * sizeof *to);
}

static void store_key_gradient(const struct attention_job *job, const struct head_tree *tree,
                               int64_t b, int64_t g, int64_t block, int64_t at)
{
    const struct ls_attention *a = job->a;
    if (a->d_k_sum) {
        store_sum(job, tree->dk + at, a->d_k_sum, b, g, block);
        store_sum(job, tree->dv + at, a->d_v_sum, b, g, block);
        return;
    }
    struct attention_rows d_k = attention_key_rows(job, a->d_k, a->kv_ld, b, g, block);
    struct attention_rows d_v = attention_key_rows(job, a->d_v, a->kv_ld, b, g, block);
    job->kernel->store_rows(&job->shape, tree->dk + at, a->scale, &d_k);
    job->kernel->store_rows(&job->shape, tree->dv + at, 1.0f, &d_v);
}

/* One past the call's last key block, seen or not: keys that no query sees have gradients too. */
static int64_t last_key(const struct attention_job *job)
{
    return ls_ceil_div(job->keys.first + job->keys.count, BLOCK);
}

/* All gradients of one key/value head and its group. */
static void backward_group(const struct attention_job *job, struct backward_room *room, int64_t b,
                           int64_t g)
{
    const int64_t step = (int64_t)(job->sum_bytes / sizeof(float));
    for (int64_t i = 0; i < job->group; i++) {
        int64_t at = head_tree_open(&room->tree, i);
        for (int64_t block = 0; block < job->blocks; block++)
            backward_query(job, room, b, g * job->group + i, block, room->tree.dk + at,
                           room->tree.dv + at);
        head_tree_close(&room->tree, i, job->group);
    }
    for (int64_t block = job->first_key; block < job->end_key; block++)
        store_key_gradient(job, &room->tree, b, g, block, (block - job->first_key) * step);
    const int64_t unseen = ls_max(job->first_key, job->end_key);
    if (unseen < last_key(job))
        head_tree_open(&room->tree, 0);
    for (int64_t block = unseen; block < last_key(job); block++)
        store_key_gradient(job, &room->tree, b, g, block, 0);
}

/* The query block that is packed after this one. */
static struct attention_ahead key_ahead(const struct attention_job *job, int64_t b, int64_t head,
                                        int64_t block)
{
    const struct ls_attention *a = job->a;
    struct attention_ahead ahead = attention_ahead_of(&job->shape);
    if (block + 1 < job->blocks) {
        attention_ahead_add(&ahead, attention_query_rows(job, a->q, a->q_ld, b, head, block + 1));
        attention_ahead_add(&ahead, attention_query_rows(job, a->o, a->o_ld, b, head, block + 1));
        attention_ahead_add(&ahead, attention_query_rows(job, a->d_o, a->o_ld, b, head, block + 1));
        attention_ahead_allow(&ahead, 0, 1);
    }
    return ahead;
}

/* dk and dv of one key block. */
static void backward_key(const struct attention_job *job, struct backward_room *room, int64_t b,
                         int64_t g, int64_t block)
{
    struct attention_key key = {.k = room->keys.at, .v = room->keys.at + job->panel_bytes};
    if (job->kernel->key_panels_backward == 3)
        key.k_turned = room->keys.at + 2 * job->panel_bytes;
    attention_key_pack(job, &key, b, g, block, true);
    for (int64_t i = 0; i < job->group; i++) {
        const int64_t at = head_tree_open(&room->tree, i), head = g * job->group + i;
        const struct attention_gradient gradient = {room->tree.dk + at, room->tree.dv + at, NULL};
        for (int64_t qb = ls_max(0, block - job->offset);
             qb < job->blocks && attention_begin_of(job, b, qb) <= block; qb++) {
            struct attention_mask mask;
            struct attention_ahead ahead = key_ahead(job, b, head, qb);
            query_pack_backward(job, &room->query, b, head, qb);
            job->kernel->backward_pair(&job->shape, &room->query, &key,
                                       attention_mask_of(job, b, qb, block, &mask), &gradient,
                                       room->scratch, &ahead);
        }
        head_tree_close(&room->tree, i, job->group);
    }
    store_key_gradient(job, &room->tree, b, g, block, 0);
}

/* One pass over pairs: a key/value head with its group is an item. */
static void backward_by_group(const struct ls_ops *ops, const struct attention_job *job)
{
    const int64_t groups = job->a->batch * job->a->kv_heads,
                  chunk = attention_chunk_of(ops, groups);
#pragma omp parallel num_threads(ops->threads)
    {
        struct ls_arena arena = attention_thread_arena(ops);
        struct backward_room room = backward_room_take(job, &arena, attention_key_blocks(job));
        attention_kernel_begin(job->kernel);
#pragma omp for schedule(dynamic, chunk)
        for (int64_t item = 0; item < groups; item++)
            backward_group(job, &room, item / job->a->kv_heads, item % job->a->kv_heads);
        attention_kernel_end(job->kernel);
    }
}

/* Two passes, first dq by query blocks, then dk and dv by key blocks. The same sums: each of them
 * meets the same pairs in the same order. */
static void backward_by_block(const struct ls_ops *ops, const struct attention_job *job)
{
    const struct ls_attention *a = job->a;
    const int64_t query_items = a->batch * a->heads * job->parts;
    const int64_t groups = a->batch * a->kv_heads;
    const int64_t key_items = groups * (last_key(job) - job->first_key);
#pragma omp parallel num_threads(ops->threads)
    {
        struct ls_arena arena = attention_thread_arena(ops);
        struct backward_room room = backward_room_take(job, &arena, 1);
        attention_kernel_begin(job->kernel);
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < query_items; item++) {
            int64_t part = item % job->parts, head = item / job->parts;
            for (int64_t block = part; block < job->blocks; block += job->parts)
                backward_query(job, &room, head / a->heads, head % a->heads, block, NULL, NULL);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < key_items; item++) {
            int64_t block = job->first_key + item / groups, group = item % groups;
            backward_key(job, &room, group / a->kv_heads, group % a->kv_heads, block);
        }
        attention_kernel_end(job->kernel);
    }
}

/* One pass does 5 products per pair, two passes 7 and the exponentials twice, but deal out blocks
 * where one pass deals out whole groups. */
static bool one_pass_is_faster(const struct ls_ops *ops, const struct attention_job *job)
{
    int64_t groups = job->a->batch * job->a->kv_heads, threads = ops->threads;
    return 5 * ls_ceil_div(groups, threads) * threads <= 8 * groups;
}

static int backward(struct ls_ops *ops, const struct attention_job *job, struct ls_error *error)
{
    struct ls_arena need;
    ls_arena_measure(&need);
    backward_room_take(job, &need, attention_key_blocks(job));
    if (need.peak <= ops->workspace_bytes && one_pass_is_faster(ops, job)) {
        backward_by_group(ops, job);
        return LS_OK;
    }
    ls_arena_measure(&need);
    backward_room_take(job, &need, 1);
    int status = attention_check_room(ops, &need, error);
    if (status == LS_OK)
        backward_by_block(ops, job);
    return status;
}

/* ---- the ops ---- */

static int check_gradients(const struct ls_attention *a, struct ls_error *error)
{
    if (a->blocks.table)
        return ls_error_set(error, LS_EINVAL, "attention: keys in blocks: not of the backward");
    if (!a->d_k_sum == !a->d_v_sum)
        return LS_OK;
    return ls_error_set(error, LS_EINVAL, "attention: %s without %s: expected both or neither",
                        a->d_k_sum ? "d_k_sum" : "d_v_sum", a->d_k_sum ? "d_v_sum" : "d_k_sum");
}

int ls_attention_backward(struct ls_ops *ops, const struct ls_attention *attention,
                          struct ls_error *error)
{
    static const struct attention_kind kind = {
        ATTENTION_KEYS | ATTENTION_GRADIENTS | ATTENTION_D_QUERIES, true, backward};
    const struct attention_range keys = attention_whole(attention);
    int status = check_gradients(attention, error);
    if (status == LS_OK)
        status = attention_check(ops, attention, keys, false, error);
    return status ? status : attention_submit(ops, &kind, attention, keys, NULL, error);
}

int ls_attention_backward_part(struct ls_ops *ops, const struct ls_attention *attention,
                               int64_t key_first, int64_t key_count, float *state,
                               struct ls_error *error)
{
    static const struct attention_kind kind = {
        ATTENTION_KEYS | ATTENTION_GRADIENTS | ATTENTION_STATE_ON, true, backward};
    const struct attention_range keys = {key_first, key_count};
    int status = check_gradients(attention, error);
    if (status == LS_OK)
        status = attention_check(ops, attention, keys, true, error);
    return status ? status : attention_submit(ops, &kind, attention, keys, state, error);
}

static int finish(struct ls_ops *ops, const struct attention_job *job, struct ls_error *error)
{
    const struct ls_attention *a = job->a;
    (void)error;
#pragma omp parallel for num_threads(ops->threads)
    for (int64_t item = 0; item < a->batch * a->heads * job->blocks; item++) {
        int64_t block = item % job->blocks, head = item / job->blocks;
        int64_t b = head / a->heads, h = head % a->heads;
        struct attention_rows d_q = attention_query_rows(job, a->d_q, a->q_ld, b, h, block);
        job->kernel->store_columns(&job->shape, attention_state_of(job, b, h, block), a->scale,
                                   &d_q);
    }
    return LS_OK;
}

int ls_attention_backward_finish(struct ls_ops *ops, const struct ls_attention *attention,
                                 float *state, struct ls_error *error)
{
    static const struct attention_kind kind = {ATTENTION_STATE_IN | ATTENTION_D_QUERIES, true,
                                               finish};
    const struct attention_range keys = {0, BLOCK};
    int status = attention_check_shape(attention, error);
    return status ? status : attention_submit(ops, &kind, attention, keys, state, error);
}

/* One row of sums, rounded by the kernel that would have rounded them. It may read past the end of
 * what it stores, so that it is given a copy. */
static void finish_row(const struct attention_kernel *kernel, enum ls_dtype act, int64_t width,
                       float factor, const float *sum, void *to)
{
    float piece[ATTENTION_DIM_MAX] = {0};
    for (int64_t at = 0; at < width; at += ATTENTION_DIM_MAX) {
        const int64_t n = ls_min(ATTENTION_DIM_MAX, width - at);
        const struct attention_shape shape = {.dim = n, .padded = ATTENTION_DIM_MAX, .act = act};
        struct attention_rows out = {
            .at = (char *)to + (size_t)at * ls_dtype_bytes(act), .ld = n, .count = 1};
        memcpy(piece, sum + at, (size_t)n * sizeof *piece);
        kernel->store_rows(&shape, piece, factor, &out);
    }
}

static struct ls_work kv_finish_work(const void *arguments)
{
    const struct ls_kv_gradient *kv = arguments;
    return attention_store_work(kv->act, kv->rows, 2 * kv->width);
}

static void kv_finish_operands(const void *arguments, struct ls_operands *out)
{
    const struct ls_kv_gradient *kv = arguments;
    const size_t sum = ops_bytes(LS_F32, kv->rows * kv->width);
    const size_t rows = ops_rows_bytes(kv->act, kv->rows, kv->width, kv->ld);
    ls_operand_add(out, kv, &kv->d_k_sum, sum, LS_READS);
    ls_operand_add(out, kv, &kv->d_v_sum, sum, LS_READS);
    ls_operand_add(out, kv, &kv->d_k, rows, LS_WRITES);
    ls_operand_add(out, kv, &kv->d_v, rows, LS_WRITES);
}

static void kv_finish_run(struct ls_ops *ops, const void *arguments)
{
    const struct ls_kv_gradient *kv = arguments;
    const struct attention_kernel *kernel = attention_kernel_of(ops, kv->act);
    const size_t row_bytes = (size_t)kv->ld * ls_dtype_bytes(kv->act);
    LS_ASSERT(kv->width % 8 == 0 && kv->ld >= kv->width);
#pragma omp parallel for num_threads(ops->threads)
    for (int64_t row = 0; row < kv->rows; row++) {
        const size_t at = (size_t)row * row_bytes;
        const int64_t sum = row * kv->width;
        finish_row(kernel, kv->act, kv->width, kv->scale, kv->d_k_sum + sum, (char *)kv->d_k + at);
        finish_row(kernel, kv->act, kv->width, 1.0f, kv->d_v_sum + sum, (char *)kv->d_v + at);
    }
}

void ls_attention_kv_finish(struct ls_ops *ops, const struct ls_kv_gradient *kv)
{
    static const struct ops_op op = OPS_OP(*kv, kv_finish_work, kv_finish_operands, kv_finish_run);
    ops_submit(ops, &op, kv);
}
