/* ops/attention_job.h - what attention's forward and backward drivers share: the arguments checked,
 * blocks and where their rows lie, packed keys, workspace. */
#ifndef OPS_ATTENTION_JOB_H
#define OPS_ATTENTION_JOB_H

#include "ops/attention_kernel.h"

const struct attention_kernel *attention_kernel_of(const struct ls_ops *ops, enum ls_dtype act);
struct attention_shape attention_shape_of(const struct attention_kernel *kernel,
                                          const struct ls_attention *a);

/* The keys of a call: positions [first, first + count). */
struct attention_range {
    int64_t first, count;
};
/* All keys of a call that is not in parts. */
struct attention_range attention_whole(const struct ls_attention *attention);
int attention_check_shape(const struct ls_attention *attention, struct ls_error *error);
/* in_parts: the keys need not reach to the last query. */
int attention_check(const struct ls_ops *ops, const struct ls_attention *attention,
                    struct attention_range keys, bool in_parts, struct ls_error *error);
/* Where block `block` of sequence b begins, in rows of K and V; without a table each sequence has
 * `each` rows. */
int64_t attention_block_row(const struct ls_key_blocks *blocks, int64_t b, int64_t each,
                            int64_t block);
/* LS_EINVAL unless a table has blocks for so many keys of each sequence. */
int attention_check_blocks(const struct ls_key_blocks *blocks, int64_t batch, int64_t keys,
                           struct ls_error *error);
/* Adds a table, a member of arguments; the rows of K and of V, `each` of each sequence without. */
int64_t attention_blocks_operand(const struct ls_key_blocks *blocks, const void *arguments,
                                 int64_t batch, int64_t each, struct ls_operands *out);
/* Query blocks of a call. */
int64_t attention_query_blocks(const struct ls_attention *attention);

/* Everything that the loops need to know about a call. Blocks of keys count from position 0; query
 * block i holds the call's queries at the positions of key block i + offset. */
struct attention_job {
    const struct ls_attention *a;
    const struct attention_kernel *kernel;
    struct attention_shape shape;
    struct attention_range keys;
    int64_t key_rows;           /* of K and V per sequence in memory */
    int64_t blocks;             /* of queries */
    int64_t offset;             /* key block of the call's first query */
    int64_t lead;               /* positions of the first query block before the first query */
    int64_t first_key, end_key; /* key blocks of this call up to the last query's */
    int64_t group;              /* query heads of a key/value head */
    size_t panel_bytes;         /* [BLOCK, padded] in the kernel's element */
    size_t sum_bytes;           /* [BLOCK, padded] in float32 */
    int64_t parts;              /* into which the query blocks of a head are dealt */
    float *state;               /* a call in parts: what is carried; NULL otherwise */
};
/* The key blocks that query block `block` of sequence b meets in this call: those that one of its
 * queries sees, and one past the last. */
int64_t attention_begin_of(const struct attention_job *job, int64_t b, int64_t block);
int64_t attention_end_of(const struct attention_job *job, int64_t block);
/* What the block's queries see of key block `key`: mask, filled, or NULL for all of it. */
const struct attention_mask *attention_mask_of(const struct attention_job *job, int64_t b,
                                               int64_t block, int64_t key,
                                               struct attention_mask *mask);
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

/* The packed key blocks of one key/value head. Blocks are asked for in ascending order, again and
 * again. Those that fit stay packed: the first ones of the call, while the others pass through the
 * last slot; with a window the last ones. */
struct attention_key_cache {
    unsigned char *at;
    int32_t *block; /* [slots]: what a slot holds, counted from the call's first; -1 for none */
    size_t slot_bytes;
    int64_t slots;
    int64_t owner; /* b * G + g of what is packed */
};
/* The rest of the arena becomes key slots, at most one per block. */
struct attention_key_cache attention_key_cache_take(const struct attention_job *job,
                                                    struct ls_arena *arena, bool backward);
void attention_key_pack(const struct attention_job *job, const struct attention_key *key, int64_t b,
                        int64_t g, int64_t block, bool backward);
struct attention_key attention_key_block(const struct attention_job *job,
                                         struct attention_key_cache *cache, int64_t b, int64_t g,
                                         int64_t block, bool backward);
struct attention_query attention_query_take(const struct attention_job *job, struct ls_arena *arena,
                                            bool backward);

/* A query block that has seen nothing. */
void attention_state_clear(const struct attention_shape *shape,
                           const struct attention_state *state);

struct attention_ahead attention_ahead_of(const struct attention_shape *shape);
void attention_ahead_add(struct attention_ahead *ahead, struct attention_rows rows);
/* What is packed after query block `block` of this head: the head's next block, or the first one of
 * the next head, which this thread most often takes next. */
void attention_ahead_add_next(const struct attention_job *job, struct attention_ahead *ahead,
                              int64_t b, int64_t head, int64_t block, bool backward);
/* Pair `step` of `steps` begins: its share of the rows may be asked for. */
void attention_ahead_allow(struct attention_ahead *ahead, int64_t step, int64_t steps);

/* ---- commands -------------------------------------------------------------------------------- */

/* What is read and written beside q, k and v; starts always are. */
enum attention_uses {
    ATTENTION_KEYS = 1,      /* q, k, v, starts */
    ATTENTION_OUT = 2,       /* o and lse, written */
    ATTENTION_GRADIENTS = 4, /* o, lse and d_o, read; those of keys, written */
    ATTENTION_D_QUERIES = 8, /* written */
    ATTENTION_STATE_IN = 16, /* read */
    ATTENTION_STATE_ON = 32, /* updated */
};
struct attention_kind {
    int uses; /* of enum attention_uses */
    bool backward;
    int (*run)(struct ls_ops *ops, const struct attention_job *job, struct ls_error *error);
};
/* state NULL: the call is not in parts. */
int attention_submit(struct ls_ops *ops, const struct attention_kind *kind,
                     const struct ls_attention *a, struct attention_range keys, float *state,
                     struct ls_error *error);

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
