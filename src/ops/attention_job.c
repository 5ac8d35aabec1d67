/* Attention: what is asked for, the blocks and the memory; see ops/attention_job.h. */
#include "ops/attention_job.h"
#include "ops/share.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { BLOCK = ATTENTION_BLOCK };

/* ---- what is asked for ---- */

static const struct attention_kernel *kernel_vector(enum ls_isa isa)
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

static const struct attention_kernel *kernel_pairs(enum ls_isa isa)
{
#if defined(__x86_64__)
    if (isa >= LS_ISA_AMX)
        return &attention_kernel_amx;
    if (isa >= LS_ISA_AVX512)
        return &attention_kernel_pairs_avx512;
    if (isa == LS_ISA_AVX2)
        return &attention_kernel_pairs_avx2;
#endif
    (void)isa;
    return &attention_kernel_pairs_plain;
}

const struct attention_kernel *attention_kernel_of(const struct ls_ops *ops, enum ls_dtype act)
{
    bool pairs = act == LS_BF16 && ops->arithmetic == LS_ARITHMETIC_BF16_PAIRS;
    return pairs ? kernel_pairs(ops->isa) : kernel_vector(ops->isa);
}

/* What is done to scores. */
static int check_scores(const struct ls_attention *a, struct ls_error *error)
{
    if (!(a->scale > 0) || !isfinite(a->scale))
        return ls_error_set(
            error, LS_EINVAL,
            "attention: scale %g: expected a positive number, as 1 / sqrt(head dim)",
            (double)a->scale);
    if (!(a->softcap >= 0) || !isfinite(a->softcap))
        return ls_error_set(error, LS_EINVAL,
                            "attention: softcap %g: expected a positive number, or 0 for none",
                            (double)a->softcap);
    if (a->window < 0)
        return ls_error_set(error, LS_EINVAL,
                            "attention: window %lld: expected at least 1, or 0 for none",
                            (long long)a->window);
    return LS_OK;
}

static int check_heads(const struct ls_attention *a, struct ls_error *error)
{
    if (a->batch < 1 || a->tokens < 1)
        return ls_error_set(error, LS_EINVAL,
                            "attention: batch %lld and tokens %lld: expected at least 1",
                            (long long)a->batch, (long long)a->tokens);
    if (a->heads < 1 || a->kv_heads < 1 || a->heads % a->kv_heads)
        return ls_error_set(error, LS_EINVAL,
                            "attention: %lld heads and %lld key/value heads: the second must be at "
                            "least 1 and divide the first",
                            (long long)a->heads, (long long)a->kv_heads);
    if (a->head_dim < 8 || a->head_dim > ATTENTION_DIM_MAX || a->head_dim % 8)
        return ls_error_set(error, LS_EINVAL,
                            "attention: head dim %lld: expected a multiple of 8 from 8 to %d",
                            (long long)a->head_dim, ATTENTION_DIM_MAX);
    if (!ls_is_act(a->act))
        return ls_error_set(error, LS_EINVAL,
                            "attention: activations are %s: expected F32, BF16 or F16",
                            ls_dtype_name(a->act));
    return check_scores(a, error);
}

static int check_ld(const char *name, int64_t ld, int64_t width, struct ls_error *error)
{
    if (ld >= width)
        return LS_OK;
    return ls_error_set(error, LS_EINVAL, "attention: %s is %lld: rows are %lld wide", name,
                        (long long)ld, (long long)width);
}

struct attention_range attention_whole(const struct ls_attention *a)
{
    return (struct attention_range){.first = 0, .count = a->keys ? a->keys : a->tokens};
}

/* Queries and keys as positions in the sequence. */
static int check_positions(const struct ls_attention *a, struct attention_range keys, bool in_parts,
                           struct ls_error *error)
{
    const int64_t rows = a->keys ? a->keys : a->tokens;
    if (a->q_first < 0)
        return ls_error_set(error, LS_EINVAL,
                            "attention: queries begin at position %lld: expected 0 or more",
                            (long long)a->q_first);
    if (keys.first < 0 || keys.first % BLOCK)
        return ls_error_set(error, LS_EINVAL,
                            "attention: keys begin at position %lld: expected a multiple of %d",
                            (long long)keys.first, BLOCK);
    if (keys.count < 1 || keys.count > rows)
        return ls_error_set(error, LS_EINVAL,
                            "attention: %lld keys: K and V have 1 to %lld rows per sequence",
                            (long long)keys.count, (long long)rows);
    if (keys.first + keys.count >= a->q_first + a->tokens)
        return LS_OK;
    if (!in_parts)
        return ls_error_set(error, LS_EINVAL,
                            "attention: %lld keys: the queries at positions %lld to %lld need "
                            "%lld or more",
                            (long long)keys.count, (long long)a->q_first,
                            (long long)(a->q_first + a->tokens - 1),
                            (long long)(a->q_first + a->tokens));
    if (keys.count % BLOCK)
        return ls_error_set(error, LS_EINVAL,
                            "attention: a part of %lld keys that is not the last: expected a "
                            "multiple of %d",
                            (long long)keys.count, BLOCK);
    return LS_OK;
}

/* Documents of the queries of this call. */
static int check_starts(const struct ls_attention *a, struct ls_error *error)
{
    if (a->starts && a->starts_ld < a->q_first + a->tokens)
        return ls_error_set(error, LS_EINVAL,
                            "attention: starts_ld is %lld: the last query is at position %lld",
                            (long long)a->starts_ld, (long long)(a->q_first + a->tokens - 1));
    for (int64_t b = 0; a->starts && b < a->batch; b++) {
        const int32_t *starts = a->starts + b * a->starts_ld;
        for (int64_t t = a->q_first; t < a->q_first + a->tokens; t++)
            if (starts[t] < 0 || starts[t] > t || (t > a->q_first && starts[t] < starts[t - 1]))
                return ls_error_set(error, LS_EINVAL,
                                    "attention: sequence %lld: the document of position %lld "
                                    "starts at %d: expected 0 to %lld, and no less than that of "
                                    "the position before",
                                    (long long)b, (long long)t, (int)starts[t], (long long)t);
    }
    return LS_OK;
}

int attention_check_shape(const struct ls_attention *a, struct ls_error *error)
{
    int status = check_heads(a, error);
    if (status == LS_OK)
        status = check_ld("q_ld", a->q_ld, a->heads * a->head_dim, error);
    if (status == LS_OK)
        status = check_ld("kv_ld", a->kv_ld, a->kv_heads * a->head_dim, error);
    if (status == LS_OK)
        status = check_ld("o_ld", a->o_ld, a->heads * a->head_dim, error);
    return status;
}

int attention_check(const struct ls_ops *ops, const struct ls_attention *a,
                    struct attention_range keys, bool in_parts, struct ls_error *error)
{
    int status = attention_check_shape(a, error);
    if (status == LS_OK)
        status = check_positions(a, keys, in_parts, error);
    if (status == LS_OK && a->blocks.table && in_parts)
        return ls_error_set(error, LS_EINVAL, "attention: keys in blocks: not of a call in parts");
    if (status == LS_OK && !ops->idle)
        status = attention_check_blocks(&a->blocks, a->batch, keys.count, error);
    return status == LS_OK && !ops->idle ? check_starts(a, error) : status;
}

int attention_check_blocks(const struct ls_key_blocks *blocks, int64_t batch, int64_t keys,
                           struct ls_error *error)
{
    if (!blocks->table)
        return LS_OK;
    if (blocks->ld < ls_ceil_div(keys, BLOCK))
        return ls_error_set(error, LS_EINVAL,
                            "attention: a table of %lld blocks for each sequence: %lld keys are in "
                            "%lld",
                            (long long)blocks->ld, (long long)keys,
                            (long long)ls_ceil_div(keys, BLOCK));
    for (int64_t i = 0; i < batch * blocks->ld; i++)
        if (blocks->table[i] < 0 || blocks->table[i] >= blocks->count)
            return ls_error_set(error, LS_EINVAL,
                                "attention: block %lld of sequence %lld is %d: expected 0 to %lld",
                                (long long)(i % blocks->ld), (long long)(i / blocks->ld),
                                (int)blocks->table[i], (long long)blocks->count - 1);
    return LS_OK;
}

int64_t attention_block_row(const struct ls_key_blocks *blocks, int64_t b, int64_t each,
                            int64_t block)
{
    return blocks->table ? (int64_t)blocks->table[b * blocks->ld + block] * BLOCK
                         : b * each + block * BLOCK;
}

int64_t attention_blocks_operand(const struct ls_key_blocks *blocks, const void *arguments,
                                 int64_t batch, int64_t each, struct ls_operands *out)
{
    if (!blocks->table)
        return batch * each;
    ops_operand_ids(ls_operand_add(out, arguments, &blocks->table,
                                   ops_bytes(LS_F32, batch * blocks->ld), LS_READS),
                    0, blocks->count);
    return blocks->count * BLOCK;
}

int64_t attention_query_blocks(const struct ls_attention *a)
{
    return ls_ceil_div(a->q_first % BLOCK + a->tokens, BLOCK);
}

struct attention_shape attention_shape_of(const struct attention_kernel *kernel,
                                          const struct ls_attention *a)
{
    return (struct attention_shape){.dim = a->head_dim,
                                    .padded = ls_round_up(a->head_dim, kernel->dim_step),
                                    .act = a->act,
                                    .scale = a->scale,
                                    .softcap = a->softcap};
}

/* ---- what is told ---- */

struct attention_call {
    const struct attention_kind *kind;
    struct ls_attention a;
    struct attention_range keys;
    float *state;
    bool idle; /* it is submitted to idle ops */
};

/* Pairs of a query and a key of the range that is no later, if the first of so many queries is at
 * position `first`, which may be negative. */
static double causal_pairs(int64_t first, int64_t tokens, struct attention_range keys)
{
    int64_t rising = ls_max(0, ls_min(tokens, keys.first + keys.count - first));
    int64_t unseen = ls_max(0, ls_min(rising, keys.first - first));
    double seen = (double)(rising - unseen);
    /* Of query t the keys 0 to first + t of the range, and all of it from there on. */
    double pairs = seen * (double)(first + 1 - keys.first + unseen) + seen * (seen - 1) / 2;
    return pairs + (double)(tokens - rising) * (double)keys.count;
}

/* The first key that a query at position t of sequence b sees. */
static int64_t first_seen(const struct ls_attention *a, int64_t b, int64_t t)
{
    int64_t window = a->window ? ls_max(0, t - a->window + 1) : 0;
    return a->starts ? ls_max(window, a->starts[b * a->starts_ld + t]) : window;
}

/* Pairs of a query and a key that it sees, of one head of all sequences. */
static double pairs_of(const struct ls_attention *a, struct attention_range keys, bool documents)
{
    double pairs = causal_pairs(a->q_first, a->tokens, keys);
    if (a->window)
        pairs -= causal_pairs(a->q_first - a->window, a->tokens, keys);
    if (!documents)
        return pairs * (double)a->batch;
    pairs = 0;
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t t = a->q_first; t < a->q_first + a->tokens; t++) {
            int64_t end = ls_min(t + 1, keys.first + keys.count);
            pairs += (double)ls_max(0, end - ls_max(keys.first, first_seen(a, b, t)));
        }
    return pairs;
}

struct ls_work attention_store_work(enum ls_dtype act, int64_t rows, int64_t width)
{
    return ops_pass(LS_WORK_CAST, LS_F32, rows, width, 1, act == LS_F32 ? 2 : 1.5);
}

/* Pairs of a query and a key that it sees. Idle ops do not read where documents start: each
 * sequence is one. */
static struct ls_work attention_work(const void *arguments)
{
    const struct attention_call *c = arguments;
    const struct ls_attention *a = &c->a;
    bool backward = c->kind->backward;
    if (!(c->kind->uses & ATTENTION_KEYS))
        return attention_store_work(a->act, a->batch * a->tokens, a->heads * a->head_dim);
    double heads = (double)a->batch * (double)a->heads;
    double pairs = pairs_of(a, c->keys, a->starts && !c->idle) / (double)a->batch;
    double queries = heads * (double)a->tokens * (double)a->head_dim;
    double pieces = 2.0 * (double)(a->batch * a->kv_heads * c->keys.count * a->head_dim);
    return (struct ls_work){
        .kind = backward ? LS_WORK_ATTENTION_BACKWARD : LS_WORK_ATTENTION,
        .dtype = a->act,
        .m = a->batch * a->heads * a->tokens,
        .n = (int64_t)ceil(pairs / (double)a->tokens),
        .k = a->head_dim,
        .flops = (backward ? 10 : 4) * heads * pairs * (double)a->head_dim,
        .bytes = (backward ? 4 * queries + 2 * pieces : 2 * queries + pieces) *
                 (double)ls_dtype_bytes(a->act),
    };
}

/* Of a call in parts k, v and their gradients begin at the range. */
static void key_operands(const struct attention_call *c, struct ls_operands *out)
{
    const struct ls_attention *a = &c->a;
    int64_t each = a->keys ? a->keys : a->tokens, width = a->kv_heads * a->head_dim;
    int64_t rows = (a->batch - 1) * each + (c->state ? c->keys.count : each);
    if (a->blocks.table)
        rows = attention_blocks_operand(&a->blocks, c, a->batch, each, out);
    const size_t bytes = ops_rows_bytes(a->act, rows, width, a->kv_ld);
    const size_t starts = ops_rows_bytes(LS_F32, a->batch, a->q_first + a->tokens, a->starts_ld);
    ls_operand_add(out, c, &a->k, bytes, LS_READS);
    ls_operand_add(out, c, &a->v, bytes, LS_READS);
    ops_operand_ids(ls_operand_add(out, c, &a->starts, starts, LS_READS), 0, 1);
    if (c->kind->uses & ATTENTION_GRADIENTS) {
        ls_operand_add(out, c, &a->d_k, a->d_k_sum ? 0 : bytes, LS_WRITES);
        ls_operand_add(out, c, &a->d_v, a->d_v_sum ? 0 : bytes, LS_WRITES);
        ls_operand_add(out, c, &a->d_k_sum, ops_bytes(LS_F32, rows * width), LS_WRITES);
        ls_operand_add(out, c, &a->d_v_sum, ops_bytes(LS_F32, rows * width), LS_WRITES);
    }
}

static void attention_operands(const struct ls_queue *queue, const struct ls_command *command,
                               struct ls_operands *out)
{
    const struct attention_call *c = command->arguments;
    size_t state = ls_attention_state_bytes((const struct ls_ops *)queue, &c->a);
    const struct ls_attention *a = &c->a;
    int64_t rows = a->batch * a->tokens, width = a->heads * a->head_dim;
    const size_t q = ops_rows_bytes(a->act, rows, width, a->q_ld);
    const size_t o = ops_rows_bytes(a->act, rows, width, a->o_ld);
    const size_t lse = ops_bytes(LS_F32, rows * a->heads);
    int uses = c->kind->uses;
    if (uses & ATTENTION_KEYS) {
        ls_operand_add(out, c, &a->q, q, LS_READS);
        key_operands(c, out);
    }
    if (uses & (ATTENTION_OUT | ATTENTION_GRADIENTS)) {
        ls_operand_add(out, c, &a->o, o, uses & ATTENTION_OUT ? LS_WRITES : LS_READS);
        ls_operand_add(out, c, &a->lse, lse, uses & ATTENTION_OUT ? LS_WRITES : LS_READS);
    }
    if (uses & ATTENTION_GRADIENTS)
        ls_operand_add(out, c, &a->d_o, o, LS_READS);
    if (uses & ATTENTION_D_QUERIES)
        ls_operand_add(out, c, &a->d_q, q, LS_WRITES);
    if (uses & (ATTENTION_STATE_IN | ATTENTION_STATE_ON))
        ls_operand_add(out, c, &c->state, state,
                       uses & ATTENTION_STATE_ON ? LS_READS_WRITES : LS_READS);
}

/* attention_check must have passed. state may be NULL. */
static struct attention_job job_of(const struct ls_ops *ops, const struct ls_attention *a,
                                   struct attention_range keys, float *state)
{
    struct attention_job job = {.a = a, .keys = keys, .state = state};
    job.kernel = attention_kernel_of(ops, a->act);
    job.shape = attention_shape_of(job.kernel, a);
    job.key_rows = a->keys ? a->keys : a->tokens;
    job.lead = a->q_first % BLOCK;
    job.blocks = attention_query_blocks(a);
    job.offset = a->q_first / BLOCK;
    job.first_key = keys.first / BLOCK;
    job.end_key = ls_min(ls_ceil_div(keys.first + keys.count, BLOCK), job.blocks + job.offset);
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

static int attention_run(struct ls_ops *ops, const void *arguments, struct ls_error *error)
{
    const struct attention_call *c = arguments;
    const struct attention_job job = job_of(ops, &c->a, c->keys, c->state);
    return c->kind->run(ops, &job, error);
}

int attention_submit(struct ls_ops *ops, const struct attention_kind *kind,
                     const struct ls_attention *a, struct attention_range keys, float *state,
                     struct ls_error *error)
{
    const struct attention_call call = {kind, *a, keys, state, ops->idle};
    static const struct ops_op op = {.op = {sizeof call, attention_operands, ops_run},
                                     .work = attention_work,
                                     .attempt = attention_run};
    return ops_try(ops, &op, &call, error);
}

/* ---- one head's blocks ---- */

/* The call's first query of a block. */
static int64_t query_first(const struct attention_job *job, int64_t block)
{
    return ls_max(0, block * BLOCK - job->lead);
}

/* And the queries there. */
static int64_t query_count(const struct attention_job *job, int64_t block)
{
    int64_t end = ls_min(job->a->tokens, (block + 1) * BLOCK - job->lead);
    return end - query_first(job, block);
}

int64_t attention_begin_of(const struct attention_job *job, int64_t b, int64_t block)
{
    const int64_t t = job->a->q_first + query_first(job, block);
    return ls_max(job->first_key, first_seen(job->a, b, t) / BLOCK);
}

int64_t attention_end_of(const struct attention_job *job, int64_t block)
{
    return ls_min(block + job->offset + 1, job->end_key);
}

const struct attention_mask *attention_mask_of(const struct attention_job *job, int64_t b,
                                               int64_t block, int64_t key,
                                               struct attention_mask *mask)
{
    const int64_t first = job->a->q_first + query_first(job, block);
    const int64_t last = first + query_count(job, block) - 1, base = key * BLOCK;
    if (key < block + job->offset && first_seen(job->a, b, last) <= base)
        return NULL;
    for (int64_t i = 0; i < BLOCK; i++) {
        /* There is nobody behind the last query. */
        const int64_t t = ls_min(first + i, last);
        mask->first[i] = (int32_t)ls_min(BLOCK, ls_max(0, first_seen(job->a, b, t) - base));
        mask->last[i] = (int32_t)ls_min(BLOCK - 1, t - base);
    }
    return mask;
}

int64_t attention_key_blocks(const struct attention_job *job)
{
    return ls_max(1, job->end_key - job->first_key);
}

static struct attention_rows rows_at(const struct attention_job *job, const void *matrix,
                                     int64_t ld, int64_t row, int64_t head, int64_t count)
{
    size_t offset = (size_t)(row * ld + head * job->a->head_dim) * ls_dtype_bytes(job->a->act);
    return (struct attention_rows){
        .at = (unsigned char *)(uintptr_t)matrix + offset, .ld = ld, .count = ls_min(BLOCK, count)};
}

struct attention_rows attention_query_rows(const struct attention_job *job, const void *matrix,
                                           int64_t ld, int64_t b, int64_t head, int64_t block)
{
    int64_t at = query_first(job, block);
    return rows_at(job, matrix, ld, b * job->a->tokens + at, head, query_count(job, block));
}

struct attention_rows attention_key_rows(const struct attention_job *job, const void *matrix,
                                         int64_t ld, int64_t b, int64_t head, int64_t block)
{
    block -= job->first_key;
    return rows_at(job, matrix, ld, attention_block_row(&job->a->blocks, b, job->key_rows, block),
                   head, job->keys.count - block * BLOCK);
}

float *attention_lse_of(const struct attention_job *job, int64_t b, int64_t head, int64_t block)
{
    const struct ls_attention *a = job->a;
    return a->lse + (b * a->heads + head) * a->tokens + query_first(job, block);
}

float *attention_state_of(const struct attention_job *job, int64_t b, int64_t head, int64_t block)
{
    int64_t index = (b * job->a->heads + head) * job->blocks + block;
    return job->state + index * BLOCK * (job->shape.padded + 2);
}

/* Keys behind the last query are seen by none and may not be there yet. */
void attention_key_pack(const struct attention_job *job, const struct attention_key *key, int64_t b,
                        int64_t g, int64_t block, bool backward)
{
    const struct ls_attention *a = job->a;
    struct attention_rows k = attention_key_rows(job, a->k, a->kv_ld, b, g, block);
    struct attention_rows v = attention_key_rows(job, a->v, a->kv_ld, b, g, block);
    k.count = v.count = ls_max(0, ls_min(k.count, a->q_first + a->tokens - block * BLOCK));
    if (backward)
        job->kernel->pack_key_backward(&job->shape, &k, &v, key);
    else
        job->kernel->pack_key_forward(&job->shape, &k, &v, key);
}

struct attention_key attention_key_block(const struct attention_job *job,
                                         struct attention_key_cache *cache, int64_t b, int64_t g,
                                         int64_t block, bool backward)
{
    const struct ls_attention *a = job->a;
    if (cache->owner != b * a->kv_heads + g) {
        cache->owner = b * a->kv_heads + g;
        for (int64_t i = 0; i < cache->slots; i++)
            cache->block[i] = -1;
    }
    const int32_t index = (int32_t)(block - job->first_key);
    const int64_t at = a->window ? index % cache->slots : ls_min(index, cache->slots - 1);
    unsigned char *slot = cache->at + (size_t)at * cache->slot_bytes;
    struct attention_key key = {.k = slot, .v = slot + job->panel_bytes};
    if (backward && job->kernel->key_panels_backward == 3)
        key.k_turned = slot + 2 * job->panel_bytes;
    if (cache->block[at] == index)
        return key;
    cache->block[at] = index;
    attention_key_pack(job, &key, b, g, block, backward);
    return key;
}

struct attention_key_cache attention_key_cache_take(const struct attention_job *job,
                                                    struct ls_arena *arena, bool backward)
{
    const int64_t blocks = attention_key_blocks(job);
    struct attention_key_cache cache = {.owner = -1};
    cache.slot_bytes = job->panel_bytes * (backward ? job->kernel->key_panels_backward : 2);
    cache.slots = 1;
    if (!arena->measuring) {
        /* The arena rounds up to 64 bytes. */
        const size_t room = arena->size - arena->used - 64;
        const int64_t fit = (int64_t)(room / (cache.slot_bytes + sizeof *cache.block));
        cache.slots = ls_max(1, ls_min(blocks, fit));
    }
    cache.block = ls_arena_take(arena, (size_t)cache.slots * sizeof *cache.block);
    cache.at = ls_arena_take(arena, cache.slot_bytes * (size_t)cache.slots);
    return cache;
}

struct attention_query attention_query_take(const struct attention_job *job, struct ls_arena *arena,
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

void attention_state_clear(const struct attention_shape *shape, const struct attention_state *state)
{
    memset(state->o, 0, (size_t)(shape->padded * BLOCK) * sizeof *state->o);
    for (int i = 0; i < BLOCK; i++) {
        state->max[i] = -INFINITY;
        state->sum[i] = 0;
    }
}

struct attention_ahead attention_ahead_of(const struct attention_shape *shape)
{
    const int64_t bytes = (int64_t)ls_dtype_bytes(shape->act);
    return (struct attention_ahead){.row_bytes = shape->dim * bytes, .element_bytes = bytes};
}

void attention_ahead_add(struct attention_ahead *ahead, struct attention_rows rows)
{
    ahead->span[ahead->spans++] = rows;
}

void attention_ahead_add_next(const struct attention_job *job, struct attention_ahead *ahead,
                              int64_t b, int64_t head, int64_t block, bool backward)
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
    attention_ahead_add(ahead, attention_query_rows(job, a->q, a->q_ld, b, head, block));
    if (backward) {
        attention_ahead_add(ahead, attention_query_rows(job, a->o, a->o_ld, b, head, block));
        attention_ahead_add(ahead, attention_query_rows(job, a->d_o, a->o_ld, b, head, block));
    }
    const int64_t key = block + job->offset; /* the one that the block before did not meet */
    if (head % job->group == 0 && key >= job->first_key && key < job->end_key) {
        attention_ahead_add(ahead,
                            attention_key_rows(job, a->k, a->kv_ld, b, head / job->group, key));
        attention_ahead_add(ahead,
                            attention_key_rows(job, a->v, a->kv_ld, b, head / job->group, key));
    }
}

void attention_ahead_allow(struct attention_ahead *ahead, int64_t step, int64_t steps)
{
    int64_t rows = 0;
    for (int64_t n = 0; n < ahead->spans; n++)
        rows += ahead->span[n].count;
    ahead->allowed = rows * (step + 1) / steps;
}

struct ls_arena attention_thread_arena(const struct ls_ops *ops)
{
    return (struct ls_arena){.base = ops->workspace +
                                     (size_t)omp_get_thread_num() * ops->workspace_bytes,
                             .size = ops->workspace_bytes};
}

int attention_check_room(const struct ls_ops *ops, const struct ls_arena *need,
                         struct ls_error *error)
{
    if (need->peak <= ops->workspace_bytes)
        return LS_OK;
    return ls_error_set(error, LS_EINVAL,
                        "attention: needs %zu bytes of workspace per thread, there are %zu: give "
                        "struct ls_ops a larger workspace",
                        need->peak, ops->workspace_bytes);
}

void attention_kernel_begin(const struct attention_kernel *kernel)
{
    if (kernel->begin)
        kernel->begin();
}

void attention_kernel_end(const struct attention_kernel *kernel)
{
    if (kernel->end)
        kernel->end();
}

int64_t attention_chunk_of(const struct ls_ops *ops, int64_t items)
{
    return ls_max(1, items / (8 * (int64_t)ops->threads));
}
