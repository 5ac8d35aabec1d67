/* ops/attention_job.h - what attention's forward and backward drivers share: the arguments checked,
 * blocks and where their rows lie, packed keys, workspace. */
#ifndef OPS_ATTENTION_JOB_H
#define OPS_ATTENTION_JOB_H

#include "ops/attention_kernel.h"

/* The vector kernel, for what AMX has none. */
const struct attention_kernel *attention_kernel_vector(enum ls_isa isa);
const struct attention_kernel *attention_kernel_of(const struct ls_ops *ops, enum ls_dtype act);
struct attention_shape attention_shape_of(const struct attention_kernel *kernel, int64_t dim,
                                          float scale, enum ls_dtype act);
int attention_check_heads(int64_t batch, int64_t tokens, int64_t heads, int64_t kv_heads,
                          int64_t dim, float scale, enum ls_dtype act, struct ls_error *error);
int attention_check_ld(const char *name, int64_t ld, int64_t width, struct ls_error *error);

/* The keys of a call: positions [first, first + count). */
struct attention_range {
    int64_t first, count;
};
/* All keys of a call that is not in parts. */
struct attention_range attention_whole(const struct ls_attention *attention);
int attention_check_shape(const struct ls_attention *attention, struct ls_error *error);
/* in_parts: the keys need not reach to the last query. */
int attention_check(const struct ls_attention *attention, struct attention_range keys,
                    bool in_parts, struct ls_error *error);

/* Everything that the loops need to know about a call. Blocks of queries count from the call's
 * first query; blocks of keys from position 0. */
struct attention_job {
    const struct ls_attention *a;
    const struct attention_kernel *kernel;
    struct attention_shape shape;
    struct attention_range keys;
    int64_t key_rows;           /* of K and V per sequence in memory */
    int64_t blocks;             /* of queries */
    int64_t offset;             /* query block i lies at key block i + offset */
    int64_t first_key, end_key; /* key blocks of this call that a query of it sees */
    int64_t group;              /* query heads of a key/value head */
    size_t panel_bytes;         /* [BLOCK, padded] in the kernel's element */
    size_t sum_bytes;           /* [BLOCK, padded] in float32 */
    int64_t parts;              /* into which the query blocks of a head are dealt */
    float *state;               /* a call in parts: what is carried; NULL otherwise */
};
/* attention_check must have passed. state may be NULL. */
struct attention_job attention_job_of(const struct ls_ops *ops, const struct ls_attention *a,
                                      struct attention_range keys, float *state);

/* One past the last key block that query block `block` meets in this call. */
int64_t attention_end_of(const struct attention_job *job, int64_t block);
/* Key blocks that the call has room for at once: at least 1. */
int64_t attention_key_blocks(const struct attention_job *job);

/* Block `block` of head `head`, of a matrix with the queries' rows or with the keys'. */
struct attention_rows attention_query_rows(const struct attention_job *job, const void *matrix,
                                           int64_t ld, int64_t b, int64_t head, int64_t block);
struct attention_rows attention_key_rows(const struct attention_job *job, const void *matrix,
                                         int64_t ld, int64_t b, int64_t head, int64_t block);
float *attention_lse_of(const struct attention_job *job, int64_t b, int64_t head, int64_t block);

/* What is carried of one query block: o^T and dq^T share their place (a state is the forward's or
 * the backward's), then come the queries' maxima and sums. */
float *attention_state_of(const struct attention_job *job, int64_t b, int64_t head, int64_t block);

/* The packed key blocks of one key/value head. Blocks are asked for in ascending order from the
 * call's first, again and again; those that fit stay packed, the others pass through the last slot.
 */
struct attention_key_cache {
    unsigned char *at;
    size_t slot_bytes;
    int64_t slots, kept; /* kept == slots where all fit, else slots - 1 */
    int64_t owner;       /* b * G + g of what is packed */
    int64_t ready;       /* the first `ready` blocks are packed; at most kept */
};
/* The rest of the arena becomes key slots, at most one per block. */
struct attention_key_cache attention_key_cache_take(const struct attention_job *job,
                                                    struct ls_arena *arena, bool backward);
struct attention_key attention_key_block(const struct attention_job *job,
                                         struct attention_key_cache *cache, int64_t b, int64_t g,
                                         int64_t block, bool backward);
struct attention_query attention_query_take(const struct attention_job *job, struct ls_arena *arena,
                                            bool backward);

struct attention_ahead attention_ahead_of(const struct attention_job *job);
void attention_ahead_add(struct attention_ahead *ahead, struct attention_rows rows);
/* What is packed after query block `block` of this head: the head's next block, or the first one of
 * the next head, which this thread most often takes next. */
void attention_ahead_add_next(const struct attention_job *job, struct attention_ahead *ahead,
                              int64_t b, int64_t head, int64_t block, bool backward);
/* Pair `step` of `steps` begins: its share of the rows may be asked for. */
void attention_ahead_allow(struct attention_ahead *ahead, int64_t step, int64_t steps);

/* What a forward, or a backward, on these keys computes: causal pairs of a query and a key alone.
 */
struct ls_work attention_work(const struct ls_attention *a, struct attention_range keys,
                              bool backward);
/* What it computes where rows that were carried are stored: [rows, width]. */
struct ls_work attention_store_work(enum ls_dtype act, int64_t rows, int64_t width);
/* One thread's share of the workspace. */
struct ls_arena attention_thread_arena(const struct ls_ops *ops);
int attention_check_room(const struct ls_ops *ops, const struct ls_arena *need,
                         struct ls_error *error);
void attention_kernel_begin(const struct attention_kernel *kernel);
void attention_kernel_end(const struct attention_kernel *kernel);
/* Consecutive items given to a thread at once: some, so that what it asked for ahead is its own;
 * few, so that threads end together. */
int64_t attention_chunk_of(const struct ls_ops *ops, int64_t items);

#endif
