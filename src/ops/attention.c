/* Attention: the order of pairs, the threads and the memory. The arithmetic of a pair is the
 * kernel's (ops/attention.h); the derivation is in doc/ops/attention.md. */
#include "ops/attention.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { BLOCK = ATTENTION_BLOCK };

/* ---- what is asked for ---- */

static const struct attention_kernel *vector_kernel(enum ls_isa isa)
{
#if defined(__x86_64__)
    if (isa >= LS_ISA_AVX512)
        return &attention_kernel_avx512;
    if (isa == LS_ISA_AVX2)
        return &attention_kernel_avx2;
#endif
    (void)isa;
    return &attention_kernel_plain;
}

static const struct attention_kernel *kernel_of(const struct ls_ops *ops, enum ls_dtype act)
{
#if defined(__x86_64__)
    if (ops->isa >= LS_ISA_AMX && act == LS_BF16)
        return &attention_kernel_amx;
#endif
    (void)act;
    return vector_kernel(ops->isa);
}

static int check_heads(int64_t batch, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t dim,
                       float scale, enum ls_dtype act, struct ls_error *error)
{
    if (batch < 1 || tokens < 1)
        return ls_error_set(error, LS_EINVAL,
                            "attention: batch %lld and tokens %lld: expected at least 1",
                            (long long)batch, (long long)tokens);
    if (heads < 1 || kv_heads < 1 || heads % kv_heads)
        return ls_error_set(error, LS_EINVAL,
                            "attention: %lld heads and %lld key/value heads: the second must be at "
                            "least 1 and divide the first",
                            (long long)heads, (long long)kv_heads);
    if (dim < 8 || dim > ATTENTION_DIM_MAX || dim % 8)
        return ls_error_set(error, LS_EINVAL,
                            "attention: head dim %lld: expected a multiple of 8 from 8 to %d",
                            (long long)dim, ATTENTION_DIM_MAX);
    if (!(scale > 0) || !isfinite(scale))
        return ls_error_set(
            error, LS_EINVAL,
            "attention: scale %g: expected a positive number, as 1 / sqrt(head dim)",
            (double)scale);
    if (act != LS_F32 && act != LS_BF16)
        return ls_error_set(error, LS_EINVAL, "attention: activations are %s: expected F32 or BF16",
                            ls_dtype_name(act));
    return LS_OK;
}

static int check_ld(const char *name, int64_t ld, int64_t width, struct ls_error *error)
{
    if (ld >= width)
        return LS_OK;
    return ls_error_set(error, LS_EINVAL, "attention: %s is %lld: rows are %lld wide", name,
                        (long long)ld, (long long)width);
}

static int check(const struct ls_attention *a, struct ls_error *error)
{
    int status = check_heads(a->batch, a->tokens, a->heads, a->kv_heads, a->head_dim, a->scale,
                             a->act, error);
    if (status == LS_OK)
        status = check_ld("q_ld", a->q_ld, a->heads * a->head_dim, error);
    if (status == LS_OK)
        status = check_ld("kv_ld", a->kv_ld, a->kv_heads * a->head_dim, error);
    if (status == LS_OK)
        status = check_ld("o_ld", a->o_ld, a->heads * a->head_dim, error);
    return status;
}

static struct attention_shape shape_of(const struct attention_kernel *kernel, int64_t dim,
                                       float scale, enum ls_dtype act)
{
    return (struct attention_shape){
        .dim = dim, .padded = ls_round_up(dim, kernel->dim_step), .act = act, .scale = scale};
}

/* ---- one head's blocks ---- */

/* Everything that the loops below need to know about a call. */
struct job {
    const struct ls_attention *a;
    const struct attention_kernel *kernel;
    struct attention_shape shape;
    int64_t blocks;     /* of a sequence */
    int64_t group;      /* query heads of a key/value head */
    size_t panel_bytes; /* [BLOCK, padded] in the kernel's element */
    size_t sum_bytes;   /* [BLOCK, padded] in float32 */
    int64_t parts;      /* into which the query blocks of a head are dealt */
};

static struct job job_of(const struct ls_ops *ops, const struct ls_attention *a)
{
    struct job job = {.a = a, .kernel = kernel_of(ops, a->act)};
    job.shape = shape_of(job.kernel, a->head_dim, a->scale, a->act);
    job.blocks = ls_ceil_div(a->tokens, BLOCK);
    job.group = a->heads / a->kv_heads;
    job.panel_bytes = (size_t)(BLOCK * job.shape.padded) * job.kernel->element_bytes;
    job.sum_bytes = (size_t)(BLOCK * job.shape.padded) * sizeof(float);
    /* A few times as many items as threads even out the triangle; no more than needed, because each
     * item packs its keys anew. */
    int64_t heads = a->batch * a->heads, wanted = 4 * (int64_t)ops->threads;
    job.parts = 1;
    if (ops->threads > 1 && heads < wanted)
        job.parts = ls_min(job.blocks, ls_ceil_div(wanted, heads));
    return job;
}

static struct attention_rows rows_at(const void *matrix, size_t offset, int64_t ld, int64_t count)
{
    return (struct attention_rows){
        .at = (unsigned char *)(uintptr_t)matrix + offset, .ld = ld, .count = count};
}

/* Block `block` of head `head` in a [B * T, heads * D] matrix of row distance ld. */
static struct attention_rows rows_of(const struct job *job, const void *matrix, int64_t ld,
                                     int64_t b, int64_t head, int64_t block)
{
    const struct ls_attention *a = job->a;
    int64_t row = b * a->tokens + block * BLOCK;
    size_t offset = (size_t)(row * ld + head * a->head_dim) * ls_dtype_bytes(a->act);
    return rows_at(matrix, offset, ld, ls_min(BLOCK, a->tokens - block * BLOCK));
}

static float *lse_of(const struct job *job, int64_t b, int64_t head, int64_t block)
{
    const struct ls_attention *a = job->a;
    return a->lse + (b * a->heads + head) * a->tokens + block * BLOCK;
}

/* The packed key blocks of one key/value head. Blocks are asked for in ascending order from 0,
 * again and again; those that fit stay packed, the others pass through the last slot. */
struct key_cache {
    unsigned char *at;
    size_t slot_bytes;
    int64_t slots, kept; /* kept == slots where all fit, else slots - 1 */
    int64_t owner;       /* b * G + g of what is packed */
    int64_t ready;       /* blocks [0, ready) are packed; at most kept */
};

static struct attention_key key_block(const struct job *job, struct key_cache *cache, int64_t b,
                                      int64_t g, int64_t block, bool backward)
{
    const struct ls_attention *a = job->a;
    if (cache->owner != b * a->kv_heads + g) {
        cache->owner = b * a->kv_heads + g;
        cache->ready = 0;
    }
    unsigned char *slot = cache->at + (size_t)ls_min(block, cache->kept) * cache->slot_bytes;
    struct attention_key key = {.k = slot, .v = slot + job->panel_bytes};
    if (backward && job->kernel->key_panels_backward == 3)
        key.k_turned = slot + 2 * job->panel_bytes;
    if (block < cache->ready)
        return key;
    struct attention_rows k = rows_of(job, a->k, a->kv_ld, b, g, block);
    struct attention_rows v = rows_of(job, a->v, a->kv_ld, b, g, block);
    if (backward)
        job->kernel->pack_key_backward(&job->shape, &k, &v, &key);
    else
        job->kernel->pack_key_forward(&job->shape, &k, &v, &key);
    if (block < cache->kept)
        cache->ready = block + 1;
    return key;
}

/* The rest of the arena becomes key slots, at most one per block. */
static struct key_cache key_cache_take(const struct job *job, struct ls_arena *arena, bool backward)
{
    struct key_cache cache = {.owner = -1};
    cache.slot_bytes = job->panel_bytes * (backward ? job->kernel->key_panels_backward : 2);
    cache.slots = 1;
    if (!arena->measuring)
        cache.slots =
            ls_min(job->blocks, (int64_t)((arena->size - arena->used) / cache.slot_bytes));
    cache.kept = cache.slots == job->blocks ? cache.slots : cache.slots - 1;
    cache.at = ls_arena_take(arena, cache.slot_bytes * (size_t)cache.slots);
    return cache;
}

static struct attention_query query_take(const struct job *job, struct ls_arena *arena,
                                         bool backward)
{
    struct attention_query query = {.q_columns = ls_arena_take(arena, job->panel_bytes)};
    if (backward) {
        query.q_rows = ls_arena_take(arena, job->panel_bytes);
        query.do_columns = ls_arena_take(arena, job->panel_bytes);
        query.do_rows = ls_arena_take(arena, job->panel_bytes);
        query.lse = ls_arena_take(arena, BLOCK * sizeof(float));
        query.delta = ls_arena_take(arena, BLOCK * sizeof(float));
    }
    return query;
}

static void query_pack_backward(const struct job *job, const struct attention_query *query,
                                int64_t b, int64_t head, int64_t block)
{
    const struct ls_attention *a = job->a;
    struct attention_rows q = rows_of(job, a->q, a->q_ld, b, head, block);
    struct attention_rows o = rows_of(job, a->o, a->o_ld, b, head, block);
    struct attention_rows d_o = rows_of(job, a->d_o, a->o_ld, b, head, block);
    job->kernel->pack_query_backward(&job->shape, &q, &o, &d_o, lse_of(job, b, head, block), query);
}

static struct attention_ahead ahead_of(const struct job *job)
{
    const int64_t bytes = (int64_t)ls_dtype_bytes(job->a->act);
    return (struct attention_ahead){.row_bytes = job->shape.dim * bytes, .element_bytes = bytes};
}

static void ahead_add(struct attention_ahead *ahead, struct attention_rows rows)
{
    ahead->span[ahead->spans++] = rows;
}

/* What is packed after query block `block` of this head: the head's next block, or the first one of
 * the next head, which this thread most often takes next. */
static void ahead_add_next(const struct job *job, struct attention_ahead *ahead, int64_t b,
                           int64_t head, int64_t block, bool backward)
{
    const struct ls_attention *a = job->a;
    block += job->parts;
    if (block >= job->blocks) {
        block = 0;
        head++;
        b += head / a->heads;
        head %= a->heads;
    }
    if (b == a->batch)
        return;
    ahead_add(ahead, rows_of(job, a->q, a->q_ld, b, head, block));
    if (backward) {
        ahead_add(ahead, rows_of(job, a->o, a->o_ld, b, head, block));
        ahead_add(ahead, rows_of(job, a->d_o, a->o_ld, b, head, block));
    }
    if (head % job->group == 0) {
        ahead_add(ahead, rows_of(job, a->k, a->kv_ld, b, head / job->group, block));
        ahead_add(ahead, rows_of(job, a->v, a->kv_ld, b, head / job->group, block));
    }
}

/* Pair `step` of `steps` begins: its share of the rows may be asked for. */
static void ahead_allow(struct attention_ahead *ahead, int64_t step, int64_t steps)
{
    int64_t rows = 0;
    for (int64_t n = 0; n < ahead->spans; n++)
        rows += ahead->span[n].count;
    ahead->allowed = rows * (step + 1) / steps;
}

/* One thread's share of the workspace. */
static struct ls_arena thread_arena(const struct ls_ops *ops)
{
    return (struct ls_arena){.base = ops->workspace +
                                     (size_t)omp_get_thread_num() * ops->workspace_bytes,
                             .size = ops->workspace_bytes};
}

static int check_room(const struct ls_ops *ops, const struct ls_arena *need, struct ls_error *error)
{
    if (need->peak <= ops->workspace_bytes)
        return LS_OK;
    return ls_error_set(error, LS_EINVAL,
                        "attention: needs %zu bytes of workspace per thread, there are %zu: give "
                        "struct ls_ops a larger workspace",
                        need->peak, ops->workspace_bytes);
}

static void kernel_begin(const struct attention_kernel *kernel)
{
    if (kernel->begin)
        kernel->begin();
}

static void kernel_end(const struct attention_kernel *kernel)
{
    if (kernel->end)
        kernel->end();
}

/* Consecutive items given to a thread at once: some, so that what it asked for ahead is its own;
 * few, so that threads end together. */
static int64_t chunk_of(const struct ls_ops *ops, int64_t items)
{
    return ls_max(1, items / (8 * (int64_t)ops->threads));
}

/* ---- forward ---- */

struct forward_room {
    struct attention_query query;
    struct attention_state state;
    void *scratch;
    struct key_cache keys;
};

static struct forward_room forward_room_take(const struct job *job, struct ls_arena *arena)
{
    struct forward_room room = {.query = query_take(job, arena, false)};
    room.state.o = ls_arena_take(arena, job->sum_bytes);
    room.state.max = ls_arena_take(arena, BLOCK * sizeof(float));
    room.state.sum = ls_arena_take(arena, BLOCK * sizeof(float));
    room.scratch = ls_arena_take(arena, job->kernel->scratch_bytes);
    room.keys = key_cache_take(job, arena, false);
    return room;
}

static void forward_block(const struct job *job, struct forward_room *room, int64_t b, int64_t head,
                          int64_t block)
{
    const struct ls_attention *a = job->a;
    const struct attention_kernel *kernel = job->kernel;
    const int64_t g = head / job->group;
    struct attention_rows q = rows_of(job, a->q, a->q_ld, b, head, block);
    kernel->pack_query_forward(&job->shape, &q, &room->query);
    memset(room->state.o, 0, job->sum_bytes);
    for (int i = 0; i < BLOCK; i++) {
        room->state.max[i] = -INFINITY;
        room->state.sum[i] = 0;
    }
    struct attention_rows o = rows_of(job, a->o, a->o_ld, b, head, block);
    struct attention_ahead ahead = ahead_of(job);
    ahead_add(&ahead, o);
    ahead_add_next(job, &ahead, b, head, block, false);
    for (int64_t kb = 0; kb <= block; kb++) {
        struct attention_key key = key_block(job, &room->keys, b, g, kb, false);
        ahead_allow(&ahead, kb, block + 1);
        kernel->forward_pair(&job->shape, &room->query, &key, kb == block, &room->state,
                             room->scratch, &ahead);
    }
    kernel->forward_store(&job->shape, &room->state, &o, lse_of(job, b, head, block));
}

int ls_attention_forward(struct ls_ops *ops, const struct ls_attention *attention,
                         struct ls_error *error)
{
    int status = check(attention, error);
    if (status != LS_OK)
        return status;
    const struct job job = job_of(ops, attention);
    struct ls_arena need;
    ls_arena_measure(&need);
    forward_room_take(&job, &need);
    status = check_room(ops, &need, error);
    if (status != LS_OK)
        return status;
    const int64_t items = attention->batch * attention->heads * job.parts;
    const int64_t chunk = chunk_of(ops, items);
#pragma omp parallel num_threads(ops->threads)
    {
        struct ls_arena arena = thread_arena(ops);
        struct forward_room room = forward_room_take(&job, &arena);
        kernel_begin(job.kernel);
#pragma omp for schedule(dynamic, chunk)
        for (int64_t item = 0; item < items; item++) {
            int64_t part = item % job.parts, head = item / job.parts;
            for (int64_t block = part; block < job.blocks; block += job.parts)
                forward_block(&job, &room, head / attention->heads, head % attention->heads, block);
        }
        kernel_end(job.kernel);
    }
    return LS_OK;
}

/* ---- backward ---- */

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

static struct head_tree head_tree_take(const struct job *job, struct ls_arena *arena,
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
    struct key_cache keys;
};

/* tree_blocks: key blocks whose dk and dv are summed at once. */
static struct backward_room backward_room_take(const struct job *job, struct ls_arena *arena,
                                               int64_t tree_blocks)
{
    struct backward_room room = {.query = query_take(job, arena, true)};
    room.dq = ls_arena_take(arena, job->sum_bytes);
    room.tree = head_tree_take(job, arena, tree_blocks);
    room.scratch = ls_arena_take(arena, job->kernel->scratch_bytes);
    room.keys = key_cache_take(job, arena, true);
    return room;
}

/* Query block `block` against its key blocks; dk and dv (NULL for none) are the whole
 * sequence's. */
static void backward_query(const struct job *job, struct backward_room *room, int64_t b,
                           int64_t head, int64_t block, float *dk, float *dv)
{
    const struct ls_attention *a = job->a;
    const int64_t step = (int64_t)(job->sum_bytes / sizeof(float)), g = head / job->group;
    query_pack_backward(job, &room->query, b, head, block);
    memset(room->dq, 0, job->sum_bytes);
    struct attention_rows d_q = rows_of(job, a->d_q, a->q_ld, b, head, block);
    struct attention_ahead ahead = ahead_of(job);
    ahead_add(&ahead, d_q);
    ahead_add_next(job, &ahead, b, head, block, true);
    if (dk && block + 1 == job->blocks && head % job->group == job->group - 1) {
        struct attention_rows d_k = rows_of(job, a->d_k, a->kv_ld, b, g, 0);
        struct attention_rows d_v = rows_of(job, a->d_v, a->kv_ld, b, g, 0);
        d_k.count = d_v.count = a->tokens;
        ahead_add(&ahead, d_k);
        ahead_add(&ahead, d_v);
    }
    for (int64_t kb = 0; kb <= block; kb++) {
        struct attention_key key = key_block(job, &room->keys, b, g, kb, true);
        ahead_allow(&ahead, kb, block + 1);
        job->kernel->backward_pair(&job->shape, &room->query, &key, kb == block,
                                   dk ? dk + kb * step : NULL, dv ? dv + kb * step : NULL, room->dq,
                                   room->scratch, &ahead);
    }
    job->kernel->store_columns(&job->shape, room->dq, a->scale, &d_q);
}

static void store_key_gradient(const struct job *job, const struct head_tree *tree, int64_t b,
                               int64_t g, int64_t block, int64_t at)
{
    const struct ls_attention *a = job->a;
    struct attention_rows d_k = rows_of(job, a->d_k, a->kv_ld, b, g, block);
    struct attention_rows d_v = rows_of(job, a->d_v, a->kv_ld, b, g, block);
    job->kernel->store_rows(&job->shape, tree->dk + at, a->scale, &d_k);
    job->kernel->store_rows(&job->shape, tree->dv + at, 1.0f, &d_v);
}

/* All gradients of one key/value head and its group. */
static void backward_group(const struct job *job, struct backward_room *room, int64_t b, int64_t g)
{
    const int64_t step = (int64_t)(job->sum_bytes / sizeof(float));
    for (int64_t i = 0; i < job->group; i++) {
        int64_t at = head_tree_open(&room->tree, i);
        for (int64_t block = 0; block < job->blocks; block++)
            backward_query(job, room, b, g * job->group + i, block, room->tree.dk + at,
                           room->tree.dv + at);
        head_tree_close(&room->tree, i, job->group);
    }
    for (int64_t block = 0; block < job->blocks; block++)
        store_key_gradient(job, &room->tree, b, g, block, block * step);
}

/* dk and dv of one key block. */
static void backward_key(const struct job *job, struct backward_room *room, int64_t b, int64_t g,
                         int64_t block)
{
    const struct ls_attention *a = job->a;
    struct attention_rows k = rows_of(job, a->k, a->kv_ld, b, g, block);
    struct attention_rows v = rows_of(job, a->v, a->kv_ld, b, g, block);
    struct attention_key key = {.k = room->keys.at, .v = room->keys.at + job->panel_bytes};
    if (job->kernel->key_panels_backward == 3)
        key.k_turned = room->keys.at + 2 * job->panel_bytes;
    job->kernel->pack_key_backward(&job->shape, &k, &v, &key);
    for (int64_t i = 0; i < job->group; i++) {
        int64_t at = head_tree_open(&room->tree, i);
        for (int64_t qb = block; qb < job->blocks; qb++) {
            struct attention_ahead ahead = ahead_of(job);
            if (qb + 1 < job->blocks) {
                const int64_t head = g * job->group + i;
                ahead_add(&ahead, rows_of(job, a->q, a->q_ld, b, head, qb + 1));
                ahead_add(&ahead, rows_of(job, a->o, a->o_ld, b, head, qb + 1));
                ahead_add(&ahead, rows_of(job, a->d_o, a->o_ld, b, head, qb + 1));
                ahead_allow(&ahead, 0, 1);
            }
            query_pack_backward(job, &room->query, b, g * job->group + i, qb);
            job->kernel->backward_pair(&job->shape, &room->query, &key, qb == block,
                                       room->tree.dk + at, room->tree.dv + at, NULL, room->scratch,
                                       &ahead);
        }
        head_tree_close(&room->tree, i, job->group);
    }
    store_key_gradient(job, &room->tree, b, g, block, 0);
}

/* One pass over pairs: a key/value head with its group is an item. */
static void backward_by_group(const struct ls_ops *ops, const struct job *job)
{
    const int64_t groups = job->a->batch * job->a->kv_heads, chunk = chunk_of(ops, groups);
#pragma omp parallel num_threads(ops->threads)
    {
        struct ls_arena arena = thread_arena(ops);
        struct backward_room room = backward_room_take(job, &arena, job->blocks);
        kernel_begin(job->kernel);
#pragma omp for schedule(dynamic, chunk)
        for (int64_t item = 0; item < groups; item++)
            backward_group(job, &room, item / job->a->kv_heads, item % job->a->kv_heads);
        kernel_end(job->kernel);
    }
}

/* Two passes, first dq by query blocks, then dk and dv by key blocks. The same sums: each of them
 * meets the same pairs in the same order. */
static void backward_by_block(const struct ls_ops *ops, const struct job *job)
{
    const struct ls_attention *a = job->a;
    const int64_t query_items = a->batch * a->heads * job->parts;
    const int64_t groups = a->batch * a->kv_heads, key_items = groups * job->blocks;
#pragma omp parallel num_threads(ops->threads)
    {
        struct ls_arena arena = thread_arena(ops);
        struct backward_room room = backward_room_take(job, &arena, 1);
        kernel_begin(job->kernel);
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < query_items; item++) {
            int64_t part = item % job->parts, head = item / job->parts;
            for (int64_t block = part; block < job->blocks; block += job->parts)
                backward_query(job, &room, head / a->heads, head % a->heads, block, NULL, NULL);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < key_items; item++) {
            int64_t block = item / groups, group = item % groups;
            backward_key(job, &room, group / a->kv_heads, group % a->kv_heads, block);
        }
        kernel_end(job->kernel);
    }
}

/* One pass does 5 products per pair, two passes 7 and the exponentials twice, but deal out blocks
 * where one pass deals out whole groups. */
static bool one_pass_is_faster(const struct ls_ops *ops, const struct job *job)
{
    int64_t groups = job->a->batch * job->a->kv_heads, threads = ops->threads;
    return 5 * ls_ceil_div(groups, threads) * threads <= 8 * groups;
}

int ls_attention_backward(struct ls_ops *ops, const struct ls_attention *attention,
                          struct ls_error *error)
{
    int status = check(attention, error);
    if (status != LS_OK)
        return status;
    const struct job job = job_of(ops, attention);
    struct ls_arena need;
    ls_arena_measure(&need);
    backward_room_take(&job, &need, job.blocks);
    if (need.peak <= ops->workspace_bytes && one_pass_is_faster(ops, &job)) {
        backward_by_group(ops, &job);
        return LS_OK;
    }
    ls_arena_measure(&need);
    backward_room_take(&job, &need, 1);
    status = check_room(ops, &need, error);
    if (status == LS_OK)
        backward_by_block(ops, &job);
    return status;
}

/* ---- decode ---- */

int ls_attention_decode(struct ls_ops *ops, const struct ls_attention_decode *decode,
                        struct ls_error *error)
{
    const struct ls_attention_decode *d = decode;
    int status = check_heads(d->batch, d->length, d->heads, d->kv_heads, d->head_dim, d->scale,
                             d->act, error);
    if (status == LS_OK)
        status = check_ld("q_ld", d->q_ld, d->heads * d->head_dim, error);
    if (status == LS_OK)
        status = check_ld("o_ld", d->o_ld, d->heads * d->head_dim, error);
    if (status == LS_OK && d->length > d->capacity)
        status = ls_error_set(error, LS_EINVAL, "attention: %lld cached tokens in a cache for %lld",
                              (long long)d->length, (long long)d->capacity);
    if (status != LS_OK)
        return status;
    const struct attention_kernel *kernel = vector_kernel(ops->isa);
    const struct attention_shape shape = shape_of(kernel, d->head_dim, d->scale, d->act);
    const size_t bytes = ls_dtype_bytes(d->act);
    const int64_t kv_ld = d->kv_heads * d->head_dim, group = d->heads / d->kv_heads;
#pragma omp parallel for num_threads(ops->threads) schedule(static)
    for (int64_t item = 0; item < d->batch * d->heads; item++) {
        const int64_t b = item / d->heads, h = item % d->heads;
        const size_t q_at = (size_t)(b * d->q_ld + h * d->head_dim) * bytes;
        const size_t o_at = (size_t)(b * d->o_ld + h * d->head_dim) * bytes;
        const size_t kv_at = (size_t)(b * d->capacity * kv_ld + h / group * d->head_dim) * bytes;
        struct attention_rows q = rows_at(d->q, q_at, d->q_ld, 1);
        struct attention_rows o = rows_at(d->o, o_at, d->o_ld, 1);
        struct attention_rows k = rows_at(d->k_cache, kv_at, kv_ld, d->length);
        struct attention_rows v = rows_at(d->v_cache, kv_at, kv_ld, d->length);
        kernel->decode(&shape, &q, &k, &v, &o);
    }
    return LS_OK;
}
