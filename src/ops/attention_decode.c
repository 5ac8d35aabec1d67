/* Attention of one new token per sequence to its cached keys and values, for generation: the
 * forward's kernel on a block whose queries are the heads that share a key/value head. A query's
 * bits depend on its own keys and their blocks alone, so they are those of the token's row in
 * ls_attention_forward. */
#include "ops/attention_job.h"
#include "ops/share.h"

#include <math.h>

enum { BLOCK = ATTENTION_BLOCK };

/* ---- what is asked for ---- */

/* What it has in common with a call of the forward. */
static struct ls_attention attention_like(const struct ls_attention_decode *d)
{
    return (struct ls_attention){.batch = d->batch,
                                 .tokens = 1,
                                 .heads = d->heads,
                                 .kv_heads = d->kv_heads,
                                 .head_dim = d->head_dim,
                                 .scale = d->scale,
                                 .act = d->act,
                                 .q_ld = d->q_ld,
                                 .kv_ld = d->kv_heads * d->head_dim,
                                 .o_ld = d->o_ld,
                                 .window = d->window,
                                 .softcap = d->softcap};
}

static int check(const struct ls_attention_decode *d, struct ls_error *error)
{
    const struct ls_attention like = attention_like(d);
    int status = attention_check_shape(&like, error);
    if (!status)
        status = attention_check_blocks(&d->blocks, d->batch, d->capacity, error);
    for (int64_t b = 0; b < d->batch && !status; b++) {
        if (d->lengths[b] < 1 || d->lengths[b] > d->capacity)
            status = ls_error_set(error, LS_EINVAL,
                                  "attention: %d cached tokens of sequence %lld: expected 1 to "
                                  "%lld, which the cache has rows for",
                                  (int)d->lengths[b], (long long)b, (long long)d->capacity);
        else if (d->starts && (d->starts[b] < 0 || d->starts[b] >= d->lengths[b]))
            status = ls_error_set(error, LS_EINVAL,
                                  "attention: the document of sequence %lld starts at %d: expected "
                                  "0 to %d, where its new token is",
                                  (long long)b, (int)d->starts[b], (int)d->lengths[b] - 1);
    }
    return status;
}

static int64_t first_seen(const struct ls_attention_decode *d, int64_t b)
{
    int64_t window = d->window ? ls_max(0, d->lengths[b] - d->window) : 0;
    return d->starts ? ls_max(window, d->starts[b]) : window;
}

static struct ls_work decode_work(const void *arguments)
{
    const struct ls_attention_decode *d = arguments;
    double pairs = 0;
    for (int64_t b = 0; b < d->batch; b++)
        pairs += (double)(d->lengths[b] - first_seen(d, b));
    return (struct ls_work){
        .kind = LS_WORK_ATTENTION,
        .dtype = d->act,
        .m = d->batch * d->heads,
        .n = (int64_t)ceil(pairs / (double)d->batch),
        .k = d->head_dim,
        .flops = 4 * (double)(d->heads * d->head_dim) * pairs,
        .bytes = 2 * (double)(d->kv_heads * d->head_dim) * pairs * (double)ls_dtype_bytes(d->act),
    };
}

/* ---- one key/value head of one sequence ---- */

struct decode_job {
    const struct ls_attention_decode *d;
    const struct attention_kernel *kernel;
    struct attention_shape shape;
    int64_t group, slice; /* query heads of a key/value head, and of one item: at most BLOCK */
};

struct decode_room {
    struct attention_query query;
    struct attention_key key;
    struct attention_state state;
    void *scratch;
};

static struct decode_room room_take(const struct decode_job *job, struct ls_arena *arena)
{
    const size_t elements = (size_t)(BLOCK * job->shape.padded);
    const size_t panel = elements * job->kernel->element_bytes;
    return (struct decode_room){
        .query.q_columns = ls_arena_take(arena, panel),
        .key.k = ls_arena_take(arena, panel),
        .key.v = ls_arena_take(arena, panel),
        .state.o = ls_arena_take(arena, elements * sizeof(float)),
        .state.max = ls_arena_take(arena, BLOCK * sizeof(float)),
        .state.sum = ls_arena_take(arena, BLOCK * sizeof(float)),
        .scratch = ls_arena_take(arena, job->kernel->scratch_bytes),
    };
}

/* Rows from `element` on. */
static struct attention_rows rows_at(const struct decode_job *job, const void *matrix,
                                     int64_t element, int64_t ld, int64_t count)
{
    const size_t offset = (size_t)element * ls_dtype_bytes(job->d->act);
    return (struct attention_rows){
        .at = (unsigned char *)(uintptr_t)matrix + offset, .ld = ld, .count = count};
}

/* The keys of a block that the token at the end sees: all its heads see the same. */
static const struct attention_mask *mask_of(int64_t first, int64_t last, int64_t base,
                                            struct attention_mask *mask)
{
    if (first <= base && last >= base + BLOCK - 1)
        return NULL;
    for (int64_t i = 0; i < BLOCK; i++) {
        mask->first[i] = (int32_t)ls_max(0, first - base);
        mask->last[i] = (int32_t)ls_min(BLOCK - 1, last - base);
    }
    return mask;
}

/* Rows of a key block of sequence b, of the key/value head of `head`. */
static struct attention_rows key_rows(const struct decode_job *job, const void *cache, int64_t b,
                                      int64_t head, int64_t block)
{
    const struct ls_attention_decode *d = job->d;
    const int64_t kv_ld = d->kv_heads * d->head_dim;
    const int64_t row = attention_block_row(&d->blocks, b, d->capacity, block);
    return rows_at(job, cache, row * kv_ld + head / job->group * d->head_dim, kv_ld,
                   ls_min(BLOCK, d->lengths[b] - block * BLOCK));
}

/* Rows of a block, to be asked for while the one before is worked on. */
static struct attention_ahead ahead_of(const struct decode_job *job, int64_t b, int64_t head,
                                       int64_t block)
{
    struct attention_ahead ahead = attention_ahead_of(&job->shape);
    if (block * BLOCK < job->d->lengths[b]) {
        attention_ahead_add(&ahead, key_rows(job, job->d->k_cache, b, head, block));
        attention_ahead_add(&ahead, key_rows(job, job->d->v_cache, b, head, block));
        attention_ahead_allow(&ahead, 0, 1);
    }
    return ahead;
}

/* Heads [head, head + count), which share a key/value head. */
static void decode_heads(const struct decode_job *job, struct decode_room *room, int64_t b,
                         int64_t head, int64_t count)
{
    const struct ls_attention_decode *d = job->d;
    const int64_t length = d->lengths[b], first = first_seen(d, b);
    const int64_t dim = d->head_dim;
    struct attention_rows q = rows_at(job, d->q, b * d->q_ld + head * dim, dim, count);
    struct attention_rows o = rows_at(job, d->o, b * d->o_ld + head * dim, dim, count);
    float lse[BLOCK];
    attention_state_clear(&job->shape, &room->state);
    const bool few = job->kernel->forward_few && count <= ATTENTION_FEW;
    if (!few)
        job->kernel->pack_query_forward(&job->shape, &q, &room->query);
    room->query.count = count;
    for (int64_t block = first / BLOCK; block * BLOCK < length; block++) {
        struct attention_mask mask;
        struct attention_rows k = key_rows(job, d->k_cache, b, head, block);
        struct attention_rows v = key_rows(job, d->v_cache, b, head, block);
        struct attention_ahead ahead = ahead_of(job, b, head, block + 1);
        const struct attention_mask *seen = mask_of(first, length - 1, block * BLOCK, &mask);
        if (few) {
            job->kernel->forward_few(&job->shape, &q, &k, &v, seen, &room->state, &ahead);
            continue;
        }
        job->kernel->pack_key_forward(&job->shape, &k, &v, &room->key);
        job->kernel->forward_pair(&job->shape, &room->query, &room->key, seen, &room->state,
                                  room->scratch, &ahead);
    }
    job->kernel->forward_store(&job->shape, &room->state, &o, lse);
}

/* ---- the op ---- */

static struct decode_job job_of(const struct ls_ops *ops, const struct ls_attention_decode *d)
{
    const struct ls_attention like = attention_like(d);
    struct decode_job job = {
        .d = d, .kernel = attention_kernel_of(ops, d->act), .group = d->heads / d->kv_heads};
    job.shape = attention_shape_of(job.kernel, &like);
    /* Whole groups, which read keys and values once, unless threads would have nothing to do. */
    const int64_t parts = ls_ceil_div(ops->threads, d->batch * d->kv_heads);
    job.slice = ls_min(BLOCK, ls_ceil_div(job.group, parts));
    return job;
}

static void decode_operands(const void *arguments, struct ls_operands *out)
{
    const struct ls_attention_decode *d = arguments;
    int64_t width = d->heads * d->head_dim;
    const int64_t rows = attention_blocks_operand(&d->blocks, d, d->batch, d->capacity, out);
    const size_t cache = ops_bytes(d->act, rows * d->kv_heads * d->head_dim);
    const size_t each = ops_bytes(LS_F32, d->batch);
    ops_operand_ids(ls_operand_add(out, d, &d->lengths, each, LS_READS), 1, d->capacity + 1);
    ops_operand_ids(ls_operand_add(out, d, &d->starts, each, LS_READS), 0, 1);
    ls_operand_add(out, d, &d->q, ops_rows_bytes(d->act, d->batch, width, d->q_ld), LS_READS);
    ls_operand_add(out, d, &d->k_cache, cache, LS_READS);
    ls_operand_add(out, d, &d->v_cache, cache, LS_READS);
    ls_operand_add(out, d, &d->o, ops_rows_bytes(d->act, d->batch, width, d->o_ld), LS_WRITES);
}

static int decode_run(struct ls_ops *ops, const void *arguments, struct ls_error *error)
{
    const struct ls_attention_decode *d = arguments;
    const struct decode_job job = job_of(ops, d);
    struct ls_arena need;
    ls_arena_measure(&need);
    room_take(&job, &need);
    int status = attention_check_room(ops, &need, error);
    if (status != LS_OK)
        return status;
    const int64_t slices = ls_ceil_div(job.group, job.slice);
#pragma omp parallel num_threads(ops->threads)
    {
        struct ls_arena arena = attention_thread_arena(ops);
        struct decode_room room = room_take(&job, &arena);
        attention_kernel_begin(job.kernel);
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < d->batch * d->kv_heads * slices; item++) {
            const int64_t first = item % slices * job.slice, g = item / slices % d->kv_heads;
            decode_heads(&job, &room, item / slices / d->kv_heads, g * job.group + first,
                         ls_min(job.slice, job.group - first));
        }
        attention_kernel_end(job.kernel);
    }
    return LS_OK;
}

int ls_attention_decode(struct ls_ops *ops, const struct ls_attention_decode *decode,
                        struct ls_error *error)
{
    static const struct ops_op op = OPS_ATTEMPT(*decode, decode_work, decode_operands, decode_run);
    int status = check(decode, error);
    return status ? status : ops_try(ops, &op, decode, error);
}
