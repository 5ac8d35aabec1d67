/* Replays: for each kind of work, the op that told it, called again on buffers of the replay. What
 * a work does not tell (tiles, heads, the form of a norm) is taken from the hints; of ops of one
 * kind the one whose operations and bytes are those of the work. */
#include "planner/replay.h"

#include <math.h>

static size_t bytes_of(enum ls_dtype dtype, int64_t rows, int64_t cols)
{
    return (size_t)rows * (size_t)cols * ls_dtype_bytes(dtype);
}

/* Elements of the work's type that are moved for each of m n. */
static double moved(const struct ls_work *w)
{
    return w->bytes / ((double)w->m * (double)w->n * (double)ls_dtype_bytes(w->dtype));
}

static int flops_each(const struct ls_work *w)
{
    return (int)lrint(w->flops / ((double)w->m * (double)w->n));
}

static int no_such_op(const struct ls_work *w, struct ls_error *error)
{
    return ls_error_set(
        error, LS_ENOTSUP, "no op of kind %s has %.0f operations and %.0f bytes for [%lld, %lld]",
        ls_work_name(w->kind), w->flops, w->bytes, (long long)w->m, (long long)w->n);
}

/* How rows make leaves, sequences and tiles. */
static struct ls_token_sum sum_of(const struct ls_replay *r, int64_t rows)
{
    const struct ls_replay_hints *h = &r->hints;
    int64_t tile = ls_max(h->tile_tokens, 1), tiles = ls_max(h->leaf_tiles, 1);
    int64_t sequences = ls_max(h->leaf_sequences, 1), leaf = tile * tiles * sequences;
    if (rows % leaf == 0)
        return (struct ls_token_sum){rows / leaf, sequences, tiles, tile, LS_ONTO_NOTHING};
    if (rows % (tile * tiles) == 0 && leaf % rows == 0) /* a part of a leaf */
        return (struct ls_token_sum){1, rows / (tile * tiles), tiles, tile, LS_ONTO_NOTHING};
    if (rows % tile == 0 && (rows / tile & (rows / tile - 1)) == 0)
        return (struct ls_token_sum){1, 1, rows / tile, tile, LS_ONTO_NOTHING};
    return (struct ls_token_sum){1, 1, 1, rows, LS_ONTO_NOTHING};
}

/* ---- products -------------------------------------------------------------------------------- */

static void product_tiles(const struct ls_replay *r, struct ls_gemm *gemm)
{
    gemm->tiles = gemm->leaves = 1;
    if (r->hints.fast)
        return;
    if (gemm->a_transposed) {
        struct ls_token_sum sum = sum_of(r, gemm->k[0]);
        gemm->leaves = sum.leaves;
        gemm->tiles = sum.leaves * sum.tiles;
        return;
    }
    /* Contractions that tensor parallelism cuts: into a layer's width, from more. */
    bool cut = gemm->b_transposed ? gemm->n <= gemm->k[0] : gemm->n < gemm->k[0];
    int64_t tiles = ls_max(r->hints.tp_tiles, 1);
    if (cut && gemm->k[0] % tiles == 0)
        gemm->tiles = tiles;
}

static int product(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    size_t in = ls_dtype_bytes(w->dtype);
    double m = (double)w->m, n = (double)w->n, k = (double)w->k;
    int each = (int)lrint((w->bytes - (m + n) * k * (double)in) / (m * n));
    struct ls_gemm gemm = {.m = w->m, .n = w->n, .sections = 1, .k = {w->k}, .in = w->dtype};
    gemm.a_transposed = w->kind == LS_WORK_PRODUCT_AT;
    gemm.b_transposed = w->kind == LS_WORK_PRODUCT_BT;
    if (each != (int)in && each != 4 && each != 8)
        return no_such_op(w, error);
    gemm.out = each == (int)in ? w->dtype : LS_F32;
    product_tiles(r, &gemm);
    if (each == 8) {
        bool part = gemm.tiles == 1 && w->k < r->hints.tile_tokens * r->hints.leaf_sequences;
        gemm.onto = part ? LS_ONTO_CHAIN : LS_ONTO_SUM;
    }
    gemm.lda = gemm.a_transposed ? w->m : w->k;
    gemm.ldb = gemm.b_transposed ? w->k : w->n;
    gemm.ldc = w->n;
    gemm.a = replay_flow(r, bytes_of(w->dtype, w->m, w->k));
    gemm.b = replay_read(r, bytes_of(w->dtype, w->n, w->k));
    gemm.c = gemm.a_transposed ? replay_state(r, bytes_of(gemm.out, w->m, w->n))
                               : replay_out(r, bytes_of(gemm.out, w->m, w->n));
    return replay_begins(r) ? ls_gemm_run(&r->ops, &gemm, error) : LS_OK;
}

/* ---- attention ------------------------------------------------------------------------------- */

/* What a work tells, taken apart for queries of so many tokens. False: they cannot be so many. */
static bool attention_shape(const struct ls_replay *r, const struct ls_work *w, int64_t tokens,
                            struct ls_attention *a, double *pairs)
{
    const struct ls_replay_hints *h = &r->hints;
    bool backward = w->kind == LS_WORK_ATTENTION_BACKWARD;
    if (tokens < 1 || w->m % tokens || (h->heads && w->m / tokens % h->heads))
        return false;
    int64_t all = w->m / tokens, heads = h->heads ? h->heads : all;
    double e = (double)ls_dtype_bytes(w->dtype), d = (double)w->k;
    double queries = (backward ? 4 : 2) * (double)w->m * d;
    double pieces = (w->bytes / e - queries) / ((backward ? 4 : 2) * d); /* B G keys */
    a->batch = all / heads;
    a->heads = heads;
    a->kv_heads = h->kv_heads && heads % h->kv_heads == 0 ? h->kv_heads : heads;
    a->tokens = tokens;
    a->keys = llrint(pieces / (double)(a->batch * a->kv_heads));
    *pairs = w->flops / ((backward ? 10 : 4) * (double)all * d);
    return a->keys > 0 && (double)(a->batch * a->kv_heads) * (double)a->keys == pieces;
}

/* Queries that see themselves and what is before them. */
static bool attention_fits(const struct ls_replay *r, const struct ls_work *w, int64_t tokens,
                           struct ls_attention *a)
{
    double pairs, t = (double)tokens;
    if (!attention_shape(r, w, tokens, a, &pairs))
        return false;
    a->q_first = llrint((pairs - t * (t - 1) / 2) / t) - 1;
    return a->q_first >= 0 && a->q_first % LS_ATTENTION_BLOCK == 0 &&
           t * (double)(a->q_first + 1) + t * (t - 1) / 2 == pairs &&
           a->keys >= a->q_first + tokens;
}

/* Queries that see a range of keys, each of them all of it. */
static bool attention_sees_all(const struct ls_replay *r, const struct ls_work *w, int64_t tokens,
                               struct ls_attention *a)
{
    double pairs;
    if (!attention_shape(r, w, tokens, a, &pairs))
        return false;
    a->q_first = ls_round_up(a->keys, LS_ATTENTION_BLOCK);
    return pairs == (double)tokens * (double)a->keys;
}

/* Keys that queries at positions [first, first + tokens) see in a window, all together. */
static double window_pairs(int64_t first, int64_t tokens, int64_t window)
{
    int64_t growing = ls_min(ls_max(window - first, 0), tokens); /* that see all before them */
    return (double)growing * (double)first + (double)growing * (double)(growing + 1) / 2 +
           (double)(tokens - growing) * (double)window;
}

/* Queries that see a window, wherever they begin. */
static bool attention_slides(const struct ls_replay *r, const struct ls_work *w, int64_t tokens,
                             struct ls_attention *a)
{
    double pairs;
    a->window = r->hints.window;
    for (a->q_first = 0; a->window > 0; a->q_first += LS_ATTENTION_BLOCK) {
        if (!attention_shape(r, w, tokens, a, &pairs) || a->q_first + tokens > a->keys)
            break;
        if (window_pairs(a->q_first, tokens, a->window) == pairs)
            return true;
    }
    a->window = 0;
    return false;
}

enum attention_way { ATTENTION_WHOLE, ATTENTION_PART };

static bool attention_find(const struct ls_replay *r, const struct ls_work *w,
                           struct ls_attention *a, enum attention_way *way)
{
    double c = w->kind == LS_WORK_ATTENTION_BACKWARD ? 10 : 4;
    int64_t whole = llrint(2 * w->flops / (c * (double)w->m * (double)w->k)) - 1;
    int64_t sequence = ls_max(r->hints.sequence, 1);
    *way = ATTENTION_WHOLE;
    if (attention_fits(r, w, whole, a))
        return true;
    for (int64_t parts = 1; parts <= 1024 && parts <= sequence; parts++)
        if (sequence % parts == 0 && (attention_fits(r, w, sequence / parts, a) ||
                                      attention_slides(r, w, sequence / parts, a)))
            return true;
    *way = ATTENTION_PART;
    for (int64_t parts = 1; parts <= 1024 && parts <= sequence; parts++)
        if (sequence % parts == 0 && attention_sees_all(r, w, sequence / parts, a))
            return true;
    return false;
}

static void attention_buffers(struct ls_replay *r, struct ls_attention *a, bool backward)
{
    int64_t rows = a->batch * a->tokens, keys = a->batch * a->keys, d = a->head_dim;
    bool stacked = a->keys == a->tokens;
    int64_t wide = (a->heads + 2 * a->kv_heads) * d;
    size_t e = ls_dtype_bytes(a->act);
    void *(*inputs)(struct ls_replay *, size_t) = backward ? replay_read : replay_flow;
    a->q_ld = stacked ? wide : a->heads * d;
    a->kv_ld = stacked ? wide : 2 * a->kv_heads * d;
    a->o_ld = a->heads * d;
    char *q = inputs(r, bytes_of(a->act, rows, a->q_ld)), *kv = q + (size_t)(a->heads * d) * e;
    if (!stacked)
        kv = replay_read(r, bytes_of(a->act, keys, a->kv_ld));
    a->q = q;
    a->k = kv;
    a->v = kv + (size_t)(a->kv_heads * d) * e;
    a->o = backward ? replay_read(r, bytes_of(a->act, rows, a->o_ld))
                    : replay_out(r, bytes_of(a->act, rows, a->o_ld));
    a->lse = backward ? replay_read(r, bytes_of(LS_F32, rows, a->heads))
                      : replay_state(r, bytes_of(LS_F32, rows, a->heads));
    if (!backward)
        return;
    a->d_o = replay_flow(r, bytes_of(a->act, rows, a->o_ld));
    char *d_q = replay_out(r, bytes_of(a->act, rows, a->q_ld)), *d_kv = d_q;
    d_kv = stacked ? d_q + (size_t)(a->heads * d) * e
                   : replay_out(r, bytes_of(a->act, keys, a->kv_ld));
    a->d_q = d_q;
    a->d_k = d_kv;
    a->d_v = d_kv + (size_t)(a->kv_heads * d) * e;
}

static int attention(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    bool backward = w->kind == LS_WORK_ATTENTION_BACKWARD;
    enum attention_way way;
    struct ls_attention a = {
        .head_dim = w->k, .act = w->dtype, .scale = 0.125f, .softcap = r->hints.softcap};
    if (!attention_find(r, w, &a, &way))
        return no_such_op(w, error);
    attention_buffers(r, &a, backward);
    if (way == ATTENTION_WHOLE) {
        if (!replay_begins(r))
            return LS_OK;
        return backward ? ls_attention_backward(&r->ops, &a, error)
                        : ls_attention_forward(&r->ops, &a, error);
    }
    float *state = replay_state(r, ls_attention_state_bytes(&r->ops, &a));
    if (!replay_begins(r))
        return LS_OK;
    return backward ? ls_attention_backward_part(&r->ops, &a, 0, a.keys, state, error)
                    : ls_attention_forward_part(&r->ops, &a, 0, a.keys, state, error);
}

/* ---- norms and sums over rows ---------------------------------------------------------------- */

static struct ls_norm norm_of(struct ls_replay *r, const struct ls_work *w, bool forward)
{
    size_t width = bytes_of(LS_F32, 1, w->n), rows = bytes_of(LS_F32, w->m, 1);
    return (struct ls_norm){
        .rows = w->m,
        .channels = w->n,
        .act = w->dtype,
        .epsilon = 1e-5f,
        .weight = replay_read(r, width),
        .bias = r->hints.rms_norm ? NULL : replay_read(r, width),
        .mean = forward ? replay_state(r, rows) : replay_read(r, rows),
        .rstd = forward ? replay_state(r, rows) : replay_read(r, rows),
    };
}

static int norm(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    size_t bytes = bytes_of(w->dtype, w->m, w->n);
    bool residual = lrint(moved(w)) == 4;
    if (!residual && lrint(moved(w)) != 2)
        return no_such_op(w, error);
    struct ls_norm op = norm_of(r, w, true);
    const void *x = replay_flow(r, bytes), *z = residual ? replay_flow(r, bytes) : NULL;
    void *sum = residual ? replay_out(r, bytes) : NULL, *y = replay_out(r, bytes);
    if (!replay_begins(r))
        return LS_OK;
    (r->hints.rms_norm ? ls_rmsnorm_forward : ls_layernorm_forward)(&r->ops, &op, x, z, sum, y);
    return LS_OK;
}

static int norm_backward(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    size_t bytes = bytes_of(w->dtype, w->m, w->n);
    bool residual = lrint(moved(w)) == 4;
    if (!residual && lrint(moved(w)) != 3)
        return no_such_op(w, error);
    struct ls_norm op = norm_of(r, w, false);
    const void *h = replay_read(r, bytes), *dy = replay_flow(r, bytes);
    const void *z = residual ? replay_flow(r, bytes) : NULL;
    void *dh = replay_out(r, bytes);
    if (!replay_begins(r))
        return LS_OK;
    (r->hints.rms_norm ? ls_rmsnorm_backward_input : ls_layernorm_backward_input)(&r->ops, &op, h,
                                                                                  dy, z, dh);
    return LS_OK;
}

static int column_sum(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    size_t bytes = bytes_of(w->dtype, w->m, w->n), width = bytes_of(LS_F32, 1, w->n);
    struct ls_token_sum sum = sum_of(r, w->m);
    if (lrint(moved(w)) == 1) {
        const void *dy = replay_flow(r, bytes);
        float *d_bias = replay_state(r, width);
        if (replay_begins(r))
            ls_bias_backward(&r->ops, w->dtype, w->n, w->n, dy, &sum, d_bias);
        return LS_OK;
    }
    if (lrint(moved(w)) != 2)
        return no_such_op(w, error);
    struct ls_norm op = norm_of(r, w, false);
    const void *dy = replay_flow(r, bytes), *h = replay_read(r, bytes);
    float *d_weight = replay_state(r, width), *d_bias = replay_state(r, width);
    if (!replay_begins(r))
        return LS_OK;
    if (r->hints.rms_norm)
        ls_rmsnorm_backward_weight(&r->ops, &op, h, dy, &sum, d_weight);
    else
        ls_layernorm_backward_weight(&r->ops, &op, h, dy, &sum, d_weight, d_bias);
    return LS_OK;
}

/* ---- element by element ---------------------------------------------------------------------- */

static int activation(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    size_t bytes = bytes_of(w->dtype, w->m, w->n);
    bool backward = w->kind == LS_WORK_ACTIVATION_BACKWARD;
    bool gated = flops_each(w) == (backward ? 12 : 6);
    enum ls_gelu kind = r->hints.gelu_erf ? LS_GELU_ERF : LS_GELU_TANH;
    (void)error;
    if (!backward) {
        const void *x = replay_flow(r, gated ? 2 * bytes : bytes);
        void *y = replay_out(r, bytes);
        if (replay_begins(r) && gated)
            ls_glu_forward(&r->ops, LS_SWIGLU, w->dtype, w->m, w->n, x, y);
        else if (!r->measuring)
            ls_gelu_forward(&r->ops, kind, w->dtype, w->m * w->n, x, y);
        return LS_OK;
    }
    const void *x = replay_read(r, gated ? 2 * bytes : bytes), *dy = replay_flow(r, bytes);
    void *dx = replay_out(r, gated ? 2 * bytes : bytes);
    if (replay_begins(r) && gated)
        ls_glu_backward(&r->ops, LS_SWIGLU, w->dtype, w->m, w->n, x, dy, dx);
    else if (!r->measuring)
        ls_gelu_backward(&r->ops, kind, w->dtype, w->m * w->n, x, dy, dx);
    return LS_OK;
}

/* The rows that lie in float32 become rows of a type: what many ops end with. */
static int add_rows(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    size_t bytes = bytes_of(LS_F32, w->m, w->n);
    double each = moved(w);
    bool half = w->dtype != LS_F32;
    const float *x = replay_flow(r, bytes);
    struct ls_embedding op = {.act = w->dtype, .rows = w->m, .channels = w->n};
    op.tokens = ls_max(1, r->hints.sequence);
    op.vocabulary = 1;
    if (half || lrint(each) == 3) { /* the end of an embedding */
        op.position = lrint(each) == 3 ? replay_read(r, bytes_of(w->dtype, op.tokens, w->n)) : NULL;
        void *y = replay_out(r, bytes_of(w->dtype, w->m, w->n));
        if (replay_begins(r))
            ls_embedding_finish(&r->ops, &op, x, y);
        return LS_OK;
    }
    enum ls_dtype to = each < 1.75 ? (r->hints.act == LS_F32 ? LS_BF16 : r->hints.act) : LS_F32;
    const float *bias = replay_read(r, bytes_of(LS_F32, 1, w->n));
    void *y = replay_out(r, bytes_of(to, w->m, w->n));
    (void)error;
    if (replay_begins(r))
        ls_bias_round(&r->ops, to, w->m, w->n, x, bias, y);
    return LS_OK;
}

static int add(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    int64_t count = w->m * w->n;
    bool polynomial = flops_each(w) == 4; /* of Newton-Schulz: a stand-in */
    if (w->n != 1 && !polynomial)
        return add_rows(r, w, error);
    size_t bytes = bytes_of(w->dtype, count, 1);
    if (w->dtype == LS_F32 && (polynomial || r->hints.act != LS_F32)) {
        float *into = replay_state(r, bytes);
        const float *from = replay_flow(r, bytes);
        if (replay_begins(r))
            ls_tree_add(&r->ops, count, into, from);
        return LS_OK;
    }
    const void *x = replay_flow(r, bytes), *z = replay_flow(r, bytes);
    void *y = replay_out(r, bytes);
    if (replay_begins(r))
        ls_add(&r->ops, w->dtype, count, x, z, y);
    return LS_OK;
}

static int dropout(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    struct ls_dropout op = {{{1, 2}}, 0.1f, w->m, w->n, 0};
    size_t bytes = bytes_of(w->dtype, w->m, w->n);
    const void *x = replay_flow_part(r, bytes);
    void *y = replay_out(r, bytes);
    (void)error;
    if (replay_begins(r))
        ls_dropout(&r->ops, w->dtype, &op, x, y);
    return LS_OK;
}

/* In place, in rows of the stack of queries, keys and values where these are its queries. */
static int rope(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    const struct ls_replay_hints *h = &r->hints;
    int64_t heads = ls_max(h->heads, 1), kv = ls_max(h->kv_heads, 1);
    int64_t d = w->n % heads == 0 && w->n / heads % 2 == 0 ? w->n / heads : w->n;
    int64_t all = heads + 2 * kv;
    bool queries = h->heads > 0 && h->heads != h->kv_heads && d != w->n;
    struct ls_rope op = {.rows = w->m,
                         .tokens = ls_max(1, ls_min(h->sequence ? h->sequence : w->m, w->m)),
                         .heads = w->n / d,
                         .head_dim = d,
                         .ld = queries || h->heads == h->kv_heads ? all * d : w->n};
    op.ld = ls_max(op.ld, w->n);
    float *x = replay_flow_part(r, bytes_of(w->dtype, w->m, op.ld));
    op.cosine = replay_read(r, bytes_of(LS_F32, op.tokens, d / 2));
    op.sine = replay_read(r, bytes_of(LS_F32, op.tokens, d / 2));
    (void)error;
    if (replay_begins(r))
        ls_rope_apply(&r->ops, w->dtype, &op, x, false);
    return LS_OK;
}

static int cast(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    enum ls_dtype half = r->hints.act == LS_F32 ? LS_BF16 : r->hints.act;
    enum ls_dtype to = moved(w) < 1.75 ? half : LS_F32;
    (void)error;
    if (flops_each(w) == 0) {
        const float *x = replay_flow(r, bytes_of(LS_F32, w->m, w->n));
        ls_half *y = replay_out(r, bytes_of(half, w->m, w->n));
        if (replay_begins(r))
            ls_cast_to_half(&r->ops, half, w->m * w->n, x, y);
        return LS_OK;
    }
    struct ls_kv_gradient op = {
        .act = to, .rows = w->m, .width = w->n / 2, .ld = w->n, .scale = 0.125f};
    if (op.width % 8)
        return no_such_op(w, error);
    op.d_k_sum = replay_flow(r, bytes_of(LS_F32, w->m, op.width));
    op.d_v_sum = replay_flow(r, bytes_of(LS_F32, w->m, op.width));
    op.d_k = replay_out(r, bytes_of(to, w->m, w->n));
    op.d_v = op.d_k ? (char *)op.d_k + bytes_of(to, 1, op.width) : NULL;
    if (replay_begins(r))
        ls_attention_kv_finish(&r->ops, &op);
    return LS_OK;
}

static int copy(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    size_t bytes = bytes_of(w->dtype, w->m, w->n);
    bool mirror = w->dtype == LS_F32; /* of Newton-Schulz: a stand-in */
    (void)error;
    bool rows = w->n != 1 && !mirror; /* which are not dense where they come from */
    bytes = mirror ? bytes / 2 : bytes;
    const void *from = replay_read(r, rows ? 2 * bytes : bytes);
    void *to = replay_out(r, bytes);
    if (!replay_begins(r))
        return LS_OK;
    if (rows)
        ls_copy_rows(&r->ops, w->m, (size_t)w->n, from, 2 * (size_t)w->n, to, (size_t)w->n);
    else
        ls_copy(&r->ops, bytes, from, to);
    return LS_OK;
}

static int fill(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    void *to = replay_state(r, (size_t)w->m);
    (void)error;
    if (replay_begins(r))
        ls_fill(&r->ops, (size_t)w->m, 0, to);
    return LS_OK;
}

/* ---- tables and losses ----------------------------------------------------------------------- */

static int embedding(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    int64_t table = ls_max(1, r->hints.vocabulary), tokens = ls_max(1, r->hints.sequence);
    struct ls_embedding op = {
        .act = w->dtype, .rows = w->m, .channels = w->n, .vocabulary = table, .tokens = tokens};
    bool gather = flops_each(w) == 0;
    (void)error;
    op.ids = replay_ids(r, w->m, table);
    op.table = replay_read(r, bytes_of(gather ? r->hints.act : w->dtype, table, w->n));
    if (!gather && lrint(moved(w)) == 3)
        op.position = replay_read(r, bytes_of(w->dtype, tokens, w->n));
    void *y = replay_out(r, bytes_of(w->dtype, w->m, w->n));
    if (gather)
        op.act = r->hints.act;
    if (replay_begins(r) && gather)
        ls_embedding_gather(&r->ops, &op, y);
    else if (!r->measuring)
        ls_embedding_forward(&r->ops, &op, y);
    return LS_OK;
}

static int embedding_backward(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    double each = (double)ls_dtype_bytes(w->dtype), m = (double)w->m, n = (double)w->n;
    int64_t written = llrint((w->bytes - m * n * each) / (4 * n));
    struct ls_token_sum sum = sum_of(r, w->m);
    struct ls_embedding op = {.act = w->dtype, .rows = w->m, .channels = w->n};
    (void)error;
    op.vocabulary = written;
    if (written == 2 * w->m && written != r->hints.vocabulary) {
        sum.onto = LS_ONTO_SUM;
        op.vocabulary = ls_max(1, r->hints.vocabulary);
    }
    op.ids = replay_ids(r, w->m, op.vocabulary);
    const void *dy = replay_flow(r, bytes_of(w->dtype, w->m, w->n));
    struct ls_embedding_scratch scratch = {
        .order = replay_state(r, bytes_of(LS_F32, w->m, 1)),
        .start = replay_state(r, bytes_of(LS_F32, op.vocabulary + 1, 1))};
    float *table = replay_state(r, bytes_of(LS_F32, op.vocabulary, w->n));
    if (replay_begins(r))
        ls_embedding_backward(&r->ops, &op, dy, &sum, scratch, table);
    return LS_OK;
}

/* In place, on the newest logits. */
static int loss(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    int passes = (int)lrint(moved(w));
    struct ls_cross_entropy op = {.rows = w->m,
                                  .vocabulary = w->n,
                                  .padded = w->n,
                                  .tiles = ls_max(1, r->hints.tp_tiles),
                                  .act = w->dtype,
                                  .scale = passes >= 2 ? 1e-3f : 0};
    size_t row = bytes_of(LS_F32, w->m, 1);
    if (passes > 3)
        return no_such_op(w, error);
    op.tiles = w->n % op.tiles ? 1 : op.tiles;
    void *logits = replay_flow(r, bytes_of(w->dtype, w->m, w->n));
    const int32_t *target = replay_ids(r, w->m, w->n);
    float *max = replay_state(r, row), *sum = replay_state(r, row);
    float *target_logit = replay_state(r, row), *loss = replay_state(r, row);
    if (!replay_begins(r))
        return LS_OK;
    if (passes == 3)
        ls_cross_entropy(&r->ops, &op, logits, target, loss);
    else if (passes != 1)
        ls_cross_entropy_finish(&r->ops, &op, logits, target, max, sum, target_logit, loss);
    else if (r->turn++ % 2 == 0) /* two ops tell the same, and come in turns */
        ls_cross_entropy_max(&r->ops, &op, logits, max);
    else
        ls_cross_entropy_sum(&r->ops, &op, logits, target, max, sum, target_logit);
    return LS_OK;
}

/* ---- the optimizer --------------------------------------------------------------------------- */

struct update_parts {
    struct ls_update update;
    void *state[2];
    int states;
};

static int update_take(struct ls_replay *r, const struct ls_work *w, int states,
                       struct update_parts *parts, struct ls_error *error)
{
    enum ls_dtype half = r->hints.act == LS_F32 ? LS_BF16 : r->hints.act;
    int each = (int)lrint(w->bytes / (double)w->m), state = (int)ls_dtype_bytes(w->dtype);
    int base = each - 2 * states * state;
    bool second = base >= 16, compute = base - (second ? 16 : 12) == 2;
    if (base != (second ? 16 : 12) + (compute ? 2 : 0))
        return no_such_op(w, error);
    *parts = (struct update_parts){.states = states};
    parts->update = (struct ls_update){.count = w->m,
                                       .compute_type = half,
                                       .gradient_scale = 1,
                                       .lr = 1e-6f,
                                       .weight_decay = 0.1f,
                                       .moment_type = w->dtype};
    struct ls_update *u = &parts->update;
    u->rounding =
        (struct ls_rounding){.key = {{{1, 2}}, {{3, 4}}}, .step = 10, .places = {0, w->m, 0, w->m}};
    u->master = replay_state(r, bytes_of(LS_F32, w->m, 1));
    u->compute = compute ? replay_state(r, bytes_of(half, w->m, 1)) : NULL;
    u->gradient = replay_state(r, bytes_of(LS_F32, w->m, 1));
    u->second = second ? replay_state(r, bytes_of(LS_F32, w->m, 1)) : NULL;
    for (int i = 0; i < states; i++)
        parts->state[i] = replay_state(r, bytes_of(w->dtype, w->m, 1));
    return LS_OK;
}

static int update_muon(struct ls_replay *r, const struct ls_work *w, int flops)
{
    size_t bytes = bytes_of(LS_F32, w->m, 1);
    enum ls_dtype half = r->hints.act == LS_F32 ? LS_BF16 : r->hints.act;
    struct ls_update u = {.count = w->m, .gradient_scale = 1, .lr = 1e-6f};
    struct ls_muon_momentum muon = {.momentum = 0.95f, .nesterov = true};
    u.moment_type = LS_F32;
    u.compute_type = half;
    u.master = replay_state(r, bytes);
    u.compute =
        r->hints.act == LS_F32 || flops != 4 ? NULL : replay_state(r, bytes_of(half, w->m, 1));
    u.gradient = replay_state(r, bytes);
    float *state = replay_state(r, bytes);
    if (!replay_begins(r))
        return LS_OK;
    if (flops == 6)
        ls_muon_momentum(&r->ops, &u, &muon, state, (float *)(uintptr_t)u.gradient);
    else if (flops == 4)
        ls_muon_update(&r->ops, &u, 1, u.gradient);
    else /* Newton-Schulz divides by its norm: a stand-in */
        ls_copy(&r->ops, bytes, u.gradient, state);
    return LS_OK;
}

static int update(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    int flops = flops_each(w), each = (int)lrint(w->bytes / (double)w->m);
    struct update_parts parts;
    int states = flops == 15 ? 2 : flops == 9 ? 1 : each >= (w->dtype == LS_F32 ? 20 : 16);
    if (flops < 6 || (flops == 6 && each == 16 && w->dtype == LS_F32))
        return update_muon(r, w, flops);
    int status = update_take(r, w, states, &parts, error);
    if (status || !replay_begins(r))
        return status;
    const struct ls_adamw adamw = {0.9f, 0.95f, 1e-8f, 10};
    const struct ls_lion lion = {0.9f, 0.99f};
    const struct ls_sgd sgd = {states ? 0.9f : 0, false, 10};
    if (flops == 15)
        ls_adamw_update(&r->ops, &parts.update, &adamw, parts.state[0], parts.state[1]);
    else if (flops == 9)
        ls_lion_update(&r->ops, &parts.update, &lion, parts.state[0]);
    else
        ls_sgd_update(&r->ops, &parts.update, &sgd, parts.state[0]);
    return LS_OK;
}

static int squares(struct ls_replay *r, const struct ls_work *w, struct ls_error *error)
{
    const float *x = replay_read(r, bytes_of(LS_F32, w->m, 1));
    const float *second = lrint(moved(w)) == 2 ? replay_read(r, bytes_of(LS_F32, w->m, 1)) : NULL;
    struct ls_exact_sum sum;
    (void)error;
    ls_exact_clear(&sum);
    if (replay_begins(r))
        ls_squared_norm(&r->ops, w->m, x, second, &sum);
    return LS_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

int replay_work(struct ls_replay *r, const struct ls_work *work, struct ls_error *error)
{
    static int (*const kinds[LS_WORK_KINDS])(struct ls_replay *, const struct ls_work *,
                                             struct ls_error *) = {
        [LS_WORK_PRODUCT] = product,
        [LS_WORK_PRODUCT_BT] = product,
        [LS_WORK_PRODUCT_AT] = product,
        [LS_WORK_ATTENTION] = attention,
        [LS_WORK_ATTENTION_BACKWARD] = attention,
        [LS_WORK_NORM] = norm,
        [LS_WORK_NORM_BACKWARD] = norm_backward,
        [LS_WORK_COLUMN_SUM] = column_sum,
        [LS_WORK_ACTIVATION] = activation,
        [LS_WORK_ACTIVATION_BACKWARD] = activation,
        [LS_WORK_ADD] = add,
        [LS_WORK_DROPOUT] = dropout,
        [LS_WORK_ROPE] = rope,
        [LS_WORK_EMBEDDING] = embedding,
        [LS_WORK_EMBEDDING_BACKWARD] = embedding_backward,
        [LS_WORK_LOSS] = loss,
        [LS_WORK_UPDATE] = update,
        [LS_WORK_SQUARES] = squares,
        [LS_WORK_CAST] = cast,
        [LS_WORK_COPY] = copy,
        [LS_WORK_FILL] = fill,
    };
    LS_ASSERT(work->kind < LS_WORK_KINDS && kinds[work->kind]);
    r->taken_count = 0;
    if (work->m == 0 || work->n == 0 || work->k == 0)
        return replay_begins(r), LS_OK;
    return kinds[work->kind](r, work, error);
}
