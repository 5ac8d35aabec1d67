/* ops/attention_kernel.h - what attention's driver and its kernels share.
 *
 * A kernel works on one pair of a query block and a key block, both cut at multiples of
 * LS_ATTENTION_BLOCK. It holds scores with keys as rows and queries as columns, S^T = K Q^T: a
 * query is then a lane of a vector, and maximum, sum and scaling along a query's keys need no
 * shuffle. The driver owns loops, order, threads and memory; doc/ops/attention.md derives the
 * whole. */
#ifndef OPS_ATTENTION_KERNEL_H
#define OPS_ATTENTION_KERNEL_H

#include <lockstep/ops.h>

enum { ATTENTION_BLOCK = LS_ATTENTION_BLOCK, ATTENTION_DIM_MAX = 256, ATTENTION_FEW = 8 };

/* The reference that exponents are taken from follows a query's maximum only when that has risen by
 * more than this (in units of log 2), so that sums are rarely rescaled. It is decided per query;
 * exponentials stay below 2^8. */
#define ATTENTION_MAX_SLACK 8.0f

struct attention_shape {
    int64_t dim;    /* D */
    int64_t padded; /* D rounded up to the kernel's dim_step; panels hold zeros past D */
    enum ls_dtype act;
    float scale;
    float softcap; /* 0 for none */
};

/* Which keys of a pair's key block its queries see: query i those from first[i] to last[i], counted
 * from the block's first key; none if first[i] > last[i]. Neither descends. A block of which a
 * query sees none, before the first that it sees, leaves its state as it was, bit for bit. */
struct attention_mask {
    int32_t first[ATTENTION_BLOCK], last[ATTENTION_BLOCK];
};

/* Rows of one head, a block at most where they are packed: element d of row i at at[i * ld + d], in
 * act. Packing takes rows past count as zero; storing leaves them alone. */
struct attention_rows {
    void *at;
    int64_t ld, count;
};

/* Rows that are packed or stored soon. A head's rows lie a page or so apart, if no hardware
 * prefetcher follows, and asking for many at once stalls; so the driver lists them and sets how
 * many may have been asked for after each pair, and kernels ask for a few between products. */
enum { ATTENTION_AHEAD_SPANS = 8 };
struct attention_ahead {
    struct attention_rows span[ATTENTION_AHEAD_SPANS];
    int64_t spans, row_bytes, element_bytes;
    int64_t issued, allowed; /* rows, of all spans */
    int64_t at_span, at_row;
};
static inline void attention_ahead(struct attention_ahead *ahead, int64_t rows)
{
    for (; rows > 0 && ahead->issued < ahead->allowed; rows--, ahead->issued++) {
        const struct attention_rows *span = &ahead->span[ahead->at_span];
        const char *row = (const char *)span->at + ahead->at_row * span->ld * ahead->element_bytes;
        for (int64_t at = 0; at < ahead->row_bytes; at += 64)
            __builtin_prefetch(row + at, 0, 2);
        if (++ahead->at_row == span->count) {
            ahead->at_span++;
            ahead->at_row = 0;
        }
    }
}

/* Panels of ATTENTION_BLOCK x padded elements each, in the kernel's own layout. */
struct attention_query {
    void *q_columns, *q_rows, *do_columns, *do_rows; /* forward: q_columns only */
    float *lse, *delta;                              /* [BLOCK]; lse in units of log 2 */
    int64_t count; /* forward: queries, whose state is wanted; that of others may or may not be */
};
struct attention_key {
    void *k, *v;
    void *k_turned; /* backward, and only where the kernel has three key panels */
};

/* What a pair of blocks adds to; dk and dq still lack the factor scale. */
struct attention_gradient {
    float *dk, *dv; /* [BLOCK, padded]; both or neither NULL */
    float *dq;      /* [padded, BLOCK]; may be NULL */
};

/* One query block on its way through the key blocks. */
struct attention_state {
    float *o;         /* [padded, BLOCK], o^T, not yet divided by sum */
    float *max, *sum; /* [BLOCK]; max in units of log 2 */
};

struct attention_kernel {
    int64_t dim_step;
    size_t element_bytes;    /* of a panel */
    int key_panels_backward; /* 2 or 3; the forward has 2 */
    size_t scratch_bytes;    /* of a pair */
    void (*begin)(void);     /* once per thread before and after the others; may be NULL */
    void (*end)(void);
    void (*pack_query_forward)(const struct attention_shape *, const struct attention_rows *q,
                               const struct attention_query *);
    /* Fills all panels, lse (from natural units) and delta[i] = sum_d o[i][d] d_o[i][d]. */
    void (*pack_query_backward)(const struct attention_shape *, const struct attention_rows *q,
                                const struct attention_rows *o, const struct attention_rows *d_o,
                                const float *lse, const struct attention_query *);
    void (*pack_key_forward)(const struct attention_shape *, const struct attention_rows *k,
                             const struct attention_rows *v, const struct attention_key *);
    void (*pack_key_backward)(const struct attention_shape *, const struct attention_rows *k,
                              const struct attention_rows *v, const struct attention_key *);
    /* mask: NULL if each query sees each key. */
    void (*forward_pair)(const struct attention_shape *, const struct attention_query *,
                         const struct attention_key *, const struct attention_mask *mask,
                         const struct attention_state *, void *scratch, struct attention_ahead *);
    /* The same of ATTENTION_FEW queries at most, with rows that are not packed; they see what the
     * first one sees. May be NULL. */
    void (*forward_few)(const struct attention_shape *, const struct attention_rows *q,
                        const struct attention_rows *k, const struct attention_rows *v,
                        const struct attention_mask *mask, const struct attention_state *,
                        struct attention_ahead *);
    /* o[i] = state.o / state.sum; lse[i] in natural units for the first o->count queries. */
    void (*forward_store)(const struct attention_shape *, const struct attention_state *,
                          const struct attention_rows *o, float *lse);
    /* Adds to the gradient. */
    void (*backward_pair)(const struct attention_shape *, const struct attention_query *,
                          const struct attention_key *, const struct attention_mask *mask,
                          const struct attention_gradient *, void *scratch,
                          struct attention_ahead *);
    /* out[i][d] = sum[i][d] * factor, or sum^T for store_columns. */
    void (*store_rows)(const struct attention_shape *, const float *sum, float factor,
                       const struct attention_rows *out);
    void (*store_columns)(const struct attention_shape *, const float *sum, float factor,
                          const struct attention_rows *out);
};

/* Portable vector kernel, float32 panels for either act; one per instruction set. */
extern const struct attention_kernel attention_kernel_plain;
/* The arithmetic bf16_pairs, bf16 panels, act bf16 only. */
extern const struct attention_kernel attention_kernel_pairs_plain;
#if defined(__x86_64__)
extern const struct attention_kernel attention_kernel_avx2, attention_kernel_avx512;
extern const struct attention_kernel attention_kernel_pairs_avx2, attention_kernel_pairs_avx512;
extern const struct attention_kernel attention_kernel_amx;
#endif

#endif
