/* Attention's forward, whole and in parts: the order of pairs. The arithmetic of a pair is the
 * kernel's (attention_kernel.h); the derivation is in doc/ops/attention.md. */
#include "ops/attention_job.h"
#include "ops/share.h"

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
    const int64_t g = head / job->group;
    const int64_t begin = attention_begin_of(job, b, block), end = attention_end_of(job, block);
    const struct attention_state state =
        job->state ? carried_state(job, b, head, block) : room->state;
    if (job->first_key == 0)
        attention_state_clear(&job->shape, &state);
    if (end <= begin)
        return;
    struct attention_rows q = attention_query_rows(job, a->q, a->q_ld, b, head, block);
    kernel->pack_query_forward(&job->shape, &q, &room->query);
    room->query.count = q.count;
    struct attention_ahead ahead = attention_ahead_of(&job->shape);
    if (!job->state)
        attention_ahead_add(&ahead, attention_query_rows(job, a->o, a->o_ld, b, head, block));
    attention_ahead_add_next(job, &ahead, b, head, block, false);
    for (int64_t kb = begin; kb < end; kb++) {
        struct attention_mask mask;
        struct attention_key key = attention_key_block(job, &room->keys, b, g, kb, false);
        attention_ahead_allow(&ahead, kb - begin, end - begin);
        kernel->forward_pair(&job->shape, &room->query, &key,
                             attention_mask_of(job, b, block, kb, &mask), &state, room->scratch,
                             &ahead);
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
    static const struct attention_kind kind = {ATTENTION_KEYS | ATTENTION_OUT, false, forward};
    const struct attention_range keys = attention_whole(attention);
    int status = attention_check(ops, attention, keys, false, error);
    return status ? status : attention_submit(ops, &kind, attention, keys, NULL, error);
}

/* ---- forward in parts ---- */

size_t ls_attention_state_bytes(const struct ls_ops *ops, const struct ls_attention *a)
{
    const struct attention_kernel *kernel = attention_kernel_of(ops, a->act);
    const struct attention_shape shape = attention_shape_of(kernel, a);
    int64_t blocks = a->batch * a->heads * attention_query_blocks(a);
    return (size_t)(blocks * BLOCK * (shape.padded + 2)) * sizeof(float);
}

int ls_attention_forward_part(struct ls_ops *ops, const struct ls_attention *attention,
                              int64_t key_first, int64_t key_count, float *state,
                              struct ls_error *error)
{
    static const struct attention_kind kind = {ATTENTION_KEYS | ATTENTION_STATE_ON, false, forward};
    const struct attention_range keys = {key_first, key_count};
    int status = attention_check(ops, attention, keys, true, error);
    return status ? status : attention_submit(ops, &kind, attention, keys, state, error);
}

static int finish(struct ls_ops *ops, const struct attention_job *job, struct ls_error *error)
{
    const struct ls_attention *a = job->a;
    const int64_t blocks = a->batch * a->heads * job->blocks;
    (void)error;
#pragma omp parallel for num_threads(ops->threads)
    for (int64_t item = 0; item < blocks; item++) {
        int64_t block = item % job->blocks, head = item / job->blocks;
        int64_t b = head / a->heads, h = head % a->heads;
        const struct attention_state carried = carried_state(job, b, h, block);
        state_store(job, &carried, b, h, block);
    }
    return LS_OK;
}

int ls_attention_forward_finish(struct ls_ops *ops, const struct ls_attention *attention,
                                float *state, struct ls_error *error)
{
    static const struct attention_kind kind = {ATTENTION_STATE_IN | ATTENTION_OUT, false, finish};
    const struct attention_range keys = {0, BLOCK};
    int status = attention_check_shape(attention, error);
    return status ? status : attention_submit(ops, &kind, attention, keys, state, error);
}
