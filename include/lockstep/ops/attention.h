/* lockstep/ops/attention.h - causal softmax attention. Included by lockstep/ops.h. */
#ifndef LOCKSTEP_OPS_ATTENTION_H
#define LOCKSTEP_OPS_ATTENTION_H

/* For each sequence b, head h (its key/value head is g = h / (heads / kv_heads)) and token t:
 *
 *   s[j] = scale * q[t] . k[j]  for j <= t,   p = softmax(s),   o[t] = sum_j p[j] v[j]
 *
 * computed block by block with a running maximum (Dao et al., "FlashAttention-2", 2023); the T x T
 * matrix is never stored. Saved for the backward: lse[b, h, t] = max + log sum exp.
 *
 * Order of sums: each query row visits key blocks of LS_ATTENTION_BLOCK keys in ascending order.
 * In the backward, dq sums key blocks in ascending order; dk and dv sum query blocks in ascending
 * order for each query head from zero, then the group's heads by the tree over the head's index
 * within the group (S4). No bit depends on threads, on batch, nor on which heads are in the call.
 */
enum { LS_ATTENTION_BLOCK = 64 };

struct ls_attention {
    int64_t batch, tokens;   /* B, T: rows are b * T + t */
    int64_t heads, kv_heads; /* H, G; G divides H */
    int64_t head_dim;        /* D, at most 256 */
    float scale;             /* usually 1 / sqrt(D) */
    enum ls_dtype act;       /* of q, k, v, o and their gradients */
    const void *q;           /* [M, H*D], row distance q_ld */
    const void *k, *v;       /* [M, G*D], row distance kv_ld */
    int64_t q_ld, kv_ld, o_ld;
    void *o;                 /* [M, H*D], row distance o_ld: written by forward, read by backward */
    float *lse;              /* [B, H, T]: written by forward, read by backward */
    /* backward only */
    const void *d_o;         /* [M, H*D], row distance o_ld */
    void *d_q;               /* [M, H*D] =, row distance q_ld */
    void *d_k, *d_v;         /* [M, G*D] =, row distance kv_ld */
};
/* Local. */
int ls_attention_forward(struct ls_ops *ops, const struct ls_attention *attention,
                         struct ls_error *error);
int ls_attention_backward(struct ls_ops *ops, const struct ls_attention *attention,
                          struct ls_error *error);

/* One step of generation: one new token per sequence attends to `length` cached tokens, itself
 * included. q, o: [B, H*D]; k_cache, v_cache: [B, capacity, G*D]. */
struct ls_attention_decode {
    int64_t batch, length, capacity, heads, kv_heads, head_dim;
    float scale;
    enum ls_dtype act;
    const void *q, *k_cache, *v_cache;
    int64_t q_ld, o_ld;
    void *o;
};
int ls_attention_decode(struct ls_ops *ops, const struct ls_attention_decode *decode,
                        struct ls_error *error);

#endif
