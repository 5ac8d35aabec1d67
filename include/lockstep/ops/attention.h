/* lockstep/ops/attention.h - causal softmax attention: to all keys up to a token, or to those in a
 * window or of its document. Included by lockstep/ops.h. */
#ifndef LOCKSTEP_OPS_ATTENTION_H
#define LOCKSTEP_OPS_ATTENTION_H

/* For each sequence b, head h (its key/value head is g = h / (heads / kv_heads)) and token t:
 *
 *   s[j] = scale * q[t] . k[j]  for first(t) <= j <= t,   p = softmax(s),   o[t] = sum_j p[j] v[j]
 *
 * first(t) = max(0, starts[t], t - window + 1) is 0 without documents and a window. With softcap,
 * s[j] = softcap * tanh(scale * q[t] . k[j] / softcap) (Gemma team, "Gemma 2", 2024). It is
 * computed block by block with a running maximum (Dao, "FlashAttention-2", 2023); the T x T matrix
 * is never stored. Saved for the backward: lse[b, h, t] = max + log sum exp. The derivation and the
 * way the work is cut are in doc/ops/attention.md.
 *
 * Order of sums: each query row visits key blocks of LS_ATTENTION_BLOCK keys in ascending order;
 * blocks that are masked whole are skipped, masked entries of the others are exact zeros.
 * In the backward, dq sums key blocks in ascending order; dk and dv sum query blocks in ascending
 * order for each query head from zero, then the group's heads by the tree over the head's index
 * within the group (S4); each is multiplied by scale and rounded to act once, at the end. No bit of
 * a sequence and a head depends on threads, on the other sequences and heads of the call, on row
 * distances, nor on the size of the workspace; no bit of o and lse at token t on tokens after t or
 * before first(t).
 *
 * Arithmetic: sums, softmax and its gradient in float32. With act bf16 in
 * LS_ARITHMETIC_BF16_PAIRS, p and ds are rounded to bf16 before they are multiplied (as q, k, v and
 * d_o are); else bf16 and fp16 operands are widened and p and ds stay float32.
 *
 * Workspace: at most 481 KiB + (1 + ceil(log2(H / G))) * 128 KiB per thread at D = 256 in float32,
 * less in proportion to D; LS_EINVAL with both numbers if there is less. More is used where it
 * is there: the backward makes one pass over block pairs instead of two when a key/value head's
 * packed keys and gradient sums fit, about 16 T D bytes for G = H (1 MiB at T = 1024, D = 64). */
enum { LS_ATTENTION_BLOCK = 64 };

/* Keys and values in blocks of LS_ATTENTION_BLOCK tokens, of which several sequences may read the
 * same ("paged": Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving
 * with PagedAttention"). K and V are [count * LS_ATTENTION_BLOCK, G*D]; keys 64 i to 64 i + 63 of
 * sequence b are in block table[b * ld + i]. No bit depends on where a block lies. */
struct ls_key_blocks {
    const int32_t *table; /* [B, ld], each in [0, count): places behind the keys too */
    int64_t ld, count;
};

struct ls_attention {
    int64_t batch, tokens;   /* B, T: rows of Q are b * T + t */
    int64_t heads, kv_heads; /* H, G; G divides H */
    int64_t head_dim;        /* D, at most 256 */
    float scale;             /* usually 1 / sqrt(D) */
    enum ls_dtype act;       /* of q, k, v, o and their gradients */
    const void *q;           /* [B*T, H*D], row distance q_ld */
    const void *k, *v;       /* [B*keys, G*D], row distance kv_ld */
    int64_t q_ld, kv_ld, o_ld;
    void *o;    /* [B*T, H*D], row distance o_ld: written by forward, read by backward */
    float *lse; /* [B, H, T]: written by forward, read by backward */
    /* backward only */
    const void *d_o; /* [B*T, H*D], row distance o_ld */
    void *d_q;       /* [B*T, H*D] =, row distance q_ld */
    void *d_k, *d_v; /* [B*keys, G*D] =, row distance kv_ld */
    /* queries that are a piece of their sequences, and gradients that are a piece of a sum */
    int64_t keys;             /* rows of K and V per sequence: b * keys + j; 0 means T */
    int64_t q_first;          /* position of query row 0 */
    float *d_k_sum, *d_v_sum; /* [B*keys, G*D] =, dense; NULL for none */
    /* what a query sees of the keys up to its own; 0 and NULL for all, with scores as they are */
    int64_t window; /* so many keys, its own included (as in transformers) */
    float softcap;
    /* [B, starts_ld]: starts[b * starts_ld + t] is the position at which the document begins that
     * holds the token at position t of sequence b. A piece of the queries reads those at their
     * positions, q_first to q_first + tokens - 1. starts[t] <= t; they do not descend. */
    const int32_t *starts;
    int64_t starts_ld;
    /* Forward only: keys and values in blocks that lie apart. NULL: they lie together. */
    struct ls_key_blocks blocks;
};
/* Local. batch, tokens >= 1, D a multiple of 8, scale > 0, window and softcap >= 0, each row
 * distance at least its row's width (LS_EINVAL otherwise). The forward writes o and lse; the
 * backward reads them and writes d_q, d_k and d_v. Outputs overlap neither inputs nor each other;
 * rows of q, k and v may interleave (one stacked [M, (H + 2G) D] matrix), and so may those of d_q,
 * d_k and d_v.
 *
 * Query row t is at position q_first + t of its sequence; keys >= q_first + tokens. o, lse and d_q
 * are, bit for bit, those rows of the call with all queries. d_k and d_v are the sums over this
 * call's queries, in the order above: zero for keys that none of them sees. Rows of K and V behind
 * the last query are not read: a prompt may be fed in chunks of any length, whose keys lie in a
 * cache of `keys` rows per sequence. With a table of blocks `keys` is what a sequence may hold.
 *
 * With d_k_sum and d_v_sum the sums over queries and heads go there as they are, in float32, before
 * scale and rounding; d_k and d_v are not touched. So pieces of a sum can be added by the tree: the
 * group's heads over the ranks that share a key/value head (whole subtrees of heads: the bits of
 * one call), or the queries' pieces. ls_attention_kv_finish makes d_k and d_v of them. */
int ls_attention_forward(struct ls_ops *ops, const struct ls_attention *attention,
                         struct ls_error *error);
int ls_attention_backward(struct ls_ops *ops, const struct ls_attention *attention,
                          struct ls_error *error);
/* d_k = d_k_sum * scale and d_v = d_v_sum, each rounded to act as ls_attention_backward does, by
 * rows. width is a multiple of 8, at most ld. Local. */
struct ls_kv_gradient {
    enum ls_dtype act;
    int64_t rows, width, ld;
    float scale;
    const float *d_k_sum, *d_v_sum; /* [rows, width] */
    void *d_k, *d_v;                /* [rows, width] act, row distance ld */
};
void ls_attention_kv_finish(struct ls_ops *ops, const struct ls_kv_gradient *kv);

/* The same, a range of keys at a time, for keys that are never all here (Liu et al. 2023, "Ring
 * Attention"): the queries' unfinished rows are carried in `state`, ls_attention_state_bytes of the
 * caller's memory, 64-byte aligned, which holds the forward's o, maxima and sums or the backward's
 * dq, in float32 and in the kernel's own layout.
 *
 *   for ranges of keys, ascending from 0:  ls_attention_forward_part
 *   ls_attention_forward_finish            o and lse, from state
 *
 *   for ranges of keys, ascending from 0:  ls_attention_backward_part
 *   ls_attention_backward_finish           d_q, from state
 *
 * A range is positions [key_first, key_first + key_count); attention->k, v, d_k, d_v, d_k_sum and
 * d_v_sum point to its first row and hold `keys` >= key_count rows per sequence. key_first is a
 * multiple of LS_ATTENTION_BLOCK; so is key_count unless the range reaches to the last query.
 * key_first 0 begins; a range past the last query does nothing but write zero gradients. Every bit
 * is that of the calls above, d_k and d_v (or their sums) of a range included. The same ops and
 * attention, but for the pointers and keys, through all ranges. Local. */
size_t ls_attention_state_bytes(const struct ls_ops *ops, const struct ls_attention *attention);
int ls_attention_forward_part(struct ls_ops *ops, const struct ls_attention *attention,
                              int64_t key_first, int64_t key_count, float *state,
                              struct ls_error *error);
int ls_attention_forward_finish(struct ls_ops *ops, const struct ls_attention *attention,
                                float *state, struct ls_error *error);
int ls_attention_backward_part(struct ls_ops *ops, const struct ls_attention *attention,
                               int64_t key_first, int64_t key_count, float *state,
                               struct ls_error *error);
int ls_attention_backward_finish(struct ls_ops *ops, const struct ls_attention *attention,
                                 float *state, struct ls_error *error);

/* One step of generation: one new token per sequence attends to its cached tokens, of which there
 * are lengths[b] with itself. o is, bit for bit, that row of ls_attention_forward. */
struct ls_attention_decode {
    int64_t batch, capacity, heads, kv_heads, head_dim;
    float scale;
    enum ls_dtype act;
    const int32_t *lengths;            /* [B] */
    const void *q, *k_cache, *v_cache; /* [B, H*D], row distance q_ld; [B, capacity, G*D], dense */
    int64_t q_ld, o_ld;
    void *o; /* [B, H*D], row distance o_ld */
    int64_t window;
    float softcap;
    const int32_t *starts;       /* [B]: where the token's document begins; NULL: at 0 */
    struct ls_key_blocks blocks; /* of the caches; without a table each sequence has its rows */
};
/* Local. 1 <= lengths[b] <= capacity and 0 <= starts[b] < lengths[b], the rest and the workspace as
 * above. The cache behind lengths[b] rows is not read. */
int ls_attention_decode(struct ls_ops *ops, const struct ls_attention_decode *decode,
                        struct ls_error *error);

#endif
