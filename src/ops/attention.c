/* Attention's forward, whole and in parts, and decoding: the order of pairs. The arithmetic of a
 * pair is the kernel's (attention_kernel.h); the derivation is in doc/ops/attention.md. */
#include "ops/attention_job.h"
#include "ops/share.h"

#include <math.h>
#include <string.h>

enum { BLOCK = ATTENTION_BLOCK };

/* ---- forward ---- */

struct forward_room {
    struct attention_query query;
    struct attention_state state;
    void *scratch;
    struct attention_key_cache keys;
};

static struct forward_room forward_room_take(const struct attention_job *job,
                                             struct ls_arena *arena)
{
    struct forward_room room = {.query = attention_query_take(job, arena, false)};
    room.state.o = ls_arena_take(arena, job->sum_bytes);
    room.state.max = ls_arena_take(arena, BLOCK * sizeof(float));
    room.state.sum = ls_arena_take(arena, BLOCK * sizeof(float));
    room.scratch = ls_arena_take(arena, job->kernel->scratch_bytes);
    room.keys = attention_key_cache_take(job, arena, false);
    return room;
}

/* The block's state where the caller carries it. */
static struct attention_state carried_state(const struct attention_job *job, int64_t b,
                                            int64_t head, int64_t block)
{
    float *at = attention_state_of(job, b, head, block);
    float *max = at + job->shape.padded * BLOCK;
    return (struct attention_state){.o = at, .max = max, .sum = max + BLOCK};
}

static void state_clear(const struct attention_job *job, const struct attention_state *state)
{
    memset(state->o, 0, job->sum_bytes);
    for (int i = 0; i < BLOCK; i++) {
        state->max[i] = -INFINITY;
        state->sum[i] = 0;
    }
}

static void state_store(const struct attention_job *job, const struct attention_state *state,
                        int64_t b, int64_t head, int64_t block)
{
    struct attention_rows o = attention_query_rows(job, job->a->o, job->a->o_ld, b, head, block);
    job->kernel->forward_store(&job->shape, state, &o, attention_lse_of(job, b, head, block));
}

static void forward_block(const struct attention_job *job, struct forward_room *room, int64_t b,
                          int64_t head, int64_t block)
{
    const struct ls_attention *a = job->a;
    const struct attention_kernel *kernel = job->kernel;
    const int64_t g = head / job->group, end = attention_end_of(job, block);
    const struct attention_state state =
        job->state ? carried_state(job, b, head, block) : room->state;
    if (job->first_key == 0)
        state_clear(job, &state);
    if (end <= job->first_key)
        return;
    struct attention_rows q = attention_query_rows(job, a->q, a->q_ld, b, head, block);
    kernel->pack_query_forward(&job->shape, &q, &room->query);
    struct attention_ahead ahead = attention_ahead_of(job);
    if (!job->state)
        attention_ahead_add(&ahead, attention_query_rows(job, a->o, a->o_ld, b, head, block));
    attention_ahead_add_next(job, &ahead, b, head, block, false);
    for (int64_t kb = job->first_key; kb < end; kb++) {
        struct attention_key key = attention_key_block(job, &room->keys, b, g, kb, false);
        attention_ahead_allow(&ahead, kb - job->first_key, end - job->first_key);
        kernel->forward_pair(&job->shape, &room->query, &key, kb == block + job->offset, &state,
                             room->scratch, &ahead);
    }
    if (!job->state)
        state_store(job, &state, b, head, block);
}

static int forward(struct ls_ops *ops, const struct attention_job *job, struct ls_error *error)
{
    const struct ls_attention *a = job->a;
    struct ls_arena need;
    ls_arena_measure(&need);
    forward_room_take(job, &need);
    int status = attention_check_room(ops, &need, error);
    if (status != LS_OK)
        return status;
    const int64_t items = a->batch * a->heads * job->parts;
    const int64_t chunk = attention_chunk_of(ops, items);
#pragma omp parallel num_threads(ops->threads)
    {
        struct ls_arena arena = attention_thread_arena(ops);
        struct forward_room room = forward_room_take(job, &arena);
        attention_kernel_begin(job->kernel);
#pragma omp for schedule(dynamic, chunk)
        for (int64_t item = 0; item < items; item++) {
            int64_t part = item % job->parts, head = item / job->parts;
            for (int64_t block = part; block < job->blocks; block += job->parts)
                forward_block(job, &room, head / a->heads, head % a->heads, block);
        }
        attention_kernel_end(job->kernel);
    }
    return LS_OK;
}

int ls_attention_forward(struct ls_ops *ops, const struct ls_attention *attention,
                         struct ls_error *error)
{
    const struct attention_range keys = attention_whole(attention);
    int status = attention_check(attention, keys, false, error);
    if (status != LS_OK)
        return status;
    OPS_TELL(ops, attention_work(attention, keys, false));
    if (ops->idle)
        return LS_OK;
    const struct attention_job job = attention_job_of(ops, attention, keys, NULL);
    return forward(ops, &job, error);
}

/* ---- forward in parts ---- */

size_t ls_attention_state_bytes(const struct ls_ops *ops, const struct ls_attention *a)
{
    const struct attention_kernel *kernel = attention_kernel_of(ops, a->act);
    const struct attention_shape shape = attention_shape_of(kernel, a->head_dim, a->scale, a->act);
    int64_t blocks = a->batch * a->heads * ls_ceil_div(a->tokens, BLOCK);
    return (size_t)(blocks * BLOCK * (shape.padded + 2)) * sizeof(float);
}

int ls_attention_forward_part(struct ls_ops *ops, const struct ls_attention *attention,
                              int64_t key_first, int64_t key_count, float *state,
                              struct ls_error *error)
{
    const struct attention_range keys = {.first = key_first, .count = key_count};
    int status = attention_check(attention, keys, true, error);
    if (status != LS_OK)
        return status;
    OPS_TELL(ops, attention_work(attention, keys, false));
    if (ops->idle)
        return LS_OK;
    const struct attention_job job = attention_job_of(ops, attention, keys, state);
    return forward(ops, &job, error);
}

int ls_attention_forward_finish(struct ls_ops *ops, const struct ls_attention *attention,
                                float *state, struct ls_error *error)
{
    const struct attention_range keys = {.first = 0, .count = BLOCK};
    int status = attention_check_shape(attention, error);
    if (status != LS_OK)
        return status;
    OPS_TELL(ops, attention_store_work(attention->act, attention->batch * attention->tokens,
                                       attention->heads * attention->head_dim));
    if (ops->idle)
        return LS_OK;
    const struct attention_job job = attention_job_of(ops, attention, keys, state);
    const int64_t blocks = attention->batch * attention->heads * job.blocks;
#pragma omp parallel for num_threads(ops->threads)
    for (int64_t item = 0; item < blocks; item++) {
        int64_t block = item % job.blocks, head = item / job.blocks;
        int64_t b = head / attention->heads, h = head % attention->heads;
        const struct attention_state carried = carried_state(&job, b, h, block);
        state_store(&job, &carried, b, h, block);
    }
    return LS_OK;
}

/* ---- decode ---- */

static struct attention_rows rows_at(const void *matrix, size_t offset, int64_t ld, int64_t count)
{
    return (struct attention_rows){
        .at = (unsigned char *)(uintptr_t)matrix + offset, .ld = ld, .count = count};
}

static struct ls_work decode_work(const struct ls_attention_decode *d)
{
    double rows = (double)(d->batch * d->heads), length = (double)d->length;
    return (struct ls_work){
        .kind = LS_WORK_ATTENTION,
        .dtype = d->act,
        .m = d->batch * d->heads,
        .n = d->length,
        .k = d->head_dim,
        .flops = 4 * rows * length * (double)d->head_dim,
        .bytes = 2 * (double)(d->batch * d->kv_heads * d->head_dim) * length *
                 (double)ls_dtype_bytes(d->act),
    };
}

int ls_attention_decode(struct ls_ops *ops, const struct ls_attention_decode *decode,
                        struct ls_error *error)
{
    const struct ls_attention_decode *d = decode;
    int status = attention_check_heads(d->batch, d->length, d->heads, d->kv_heads, d->head_dim,
                                       d->scale, d->act, error);
    if (status == LS_OK)
        status = attention_check_ld("q_ld", d->q_ld, d->heads * d->head_dim, error);
    if (status == LS_OK)
        status = attention_check_ld("o_ld", d->o_ld, d->heads * d->head_dim, error);
    if (status == LS_OK && d->length > d->capacity)
        status = ls_error_set(error, LS_EINVAL, "attention: %lld cached tokens in a cache for %lld",
                              (long long)d->length, (long long)d->capacity);
    if (status != LS_OK)
        return status;
    OPS_TELL(ops, decode_work(d));
    if (ops->idle)
        return LS_OK;
    const struct attention_kernel *kernel = attention_kernel_vector(ops->isa);
    const struct attention_shape shape = attention_shape_of(kernel, d->head_dim, d->scale, d->act);
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
