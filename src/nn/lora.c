/* Adapters of low rank beside a linear layer's matrices: y += u B^T with u = (alpha / rank) x A^T;
 * in the backward v = (alpha / rank) dy B, dx += v A, dA = v^T x, dB = dy^T u. Each product, u, v
 * and each sum is rounded to the compute type.
 *
 * The contraction that tensor parallelism cuts is summed in tiles (S2): of a column-parallel layer
 * that of v, over its outputs; of a row-parallel one that of u, over its inputs. The input half
 * keeps u and v of all ranks' rows, so that the weight half reads no weights. */
#include "nn/model.h"

/* ---- adapters of a step ---------------------------------------------------------------------- */

/* An A, and which matrices of the stack share it. */
struct pair {
    const struct ls_param *a;
    int first, end; /* matrices of the stack */
};

/* The next one behind `pair`, which starts from {0}. */
static bool pair_next(const struct layer_run *run, const struct bound_step *s, struct pair *pair)
{
    const struct ls_param *list = run->model->options.params->list;
    int i = pair->end;
    while (i < s->stacked && s->weight[i].lora_a == 0)
        i++;
    pair->first = i;
    pair->a = i < s->stacked ? &list[s->weight[i].lora_a] : NULL;
    while (pair->a && i < s->stacked && &list[s->weight[i].lora_a] == pair->a)
        i++;
    pair->end = i;
    return pair->a;
}

static const struct ls_param *b_of(const struct layer_run *run, const struct bound_step *s, int i)
{
    return &run->model->options.params->list[s->weight[i].lora_b];
}

static bool is_column(const struct bound_step *s)
{
    return s->step->kind == &step_column;
}

/* Where matrix i's rows begin in the stack's. */
static int64_t rows_before(const struct bound_step *s, int i)
{
    int64_t rows = 0;
    for (int k = 0; k < i; k++)
        rows += s->weight[k].rows;
    return rows;
}

/* ---- buffers --------------------------------------------------------------------------------- */

enum { PIECE_ROWS = 256, PAIRS_MAX = 3 };
/* What a half works in. */
struct buffers {
    char *u[PAIRS_MAX]; /* of the forward: [M, rank] each */
    char *piece;        /* [PIECE_ROWS, width]: products, before they are added */
    struct packed packed;
    struct ls_tp_scratch scratch;
};

static struct buffers buffers_take(const struct ls_model *model, const struct bound_step *s,
                                   enum phase phase, struct ls_arena *arena)
{
    struct buffers b = {0};
    int64_t rank = model->config.lora.rank, pairs = phase == PHASE_INPUT ? 0 : s->stacked;
    int64_t width = phase == PHASE_INPUT ? s->weight->cols : rows_before(s, s->stacked);
    for (int64_t i = 0; i < pairs; i++)
        b.u[i] = model_take(model, arena, model->rows_room, rank);
    b.piece = model_take(model, arena, ls_min(PIECE_ROWS, model->rows_room), width);
    if (phase == PHASE_INPUT && is_column(s)) {
        struct sections all = sections_of(model, s, 0, s->stacked); /* room for those of any pair */
        b.packed = packed_take(model, arena, &all, rank);
    }
    size_t sums = (size_t)(model->rows_room * rank) * sizeof(float);
    if (model->tp.size > 1) {
        b.scratch.partial = ls_arena_take(arena, sums);
        b.scratch.sum = ls_arena_take(arena, sums / (size_t)model->tp.size);
    }
    return b;
}

/* What the input half keeps for the weight half, of pair k: u and v of all rows. */
static size_t kept_bytes(const struct ls_model *model)
{
    return (size_t)(model->rows_room * model->config.lora.rank) * model_act_bytes(model);
}

static char *kept_u(const struct layer_run *run, const struct bound_step *s, int k)
{
    return (char *)run_adapters(run, s) + (size_t)(2 * k) * kept_bytes(run->model);
}

static char *kept_v(const struct layer_run *run, const struct bound_step *s, int k)
{
    return kept_u(run, s, k) + kept_bytes(run->model);
}

size_t lora_kept(const struct ls_model *model, const struct bound_step *s)
{
    return s->adapted ? (size_t)(2 * s->stacked) * kept_bytes(model) : 0;
}

void lora_work(const struct ls_model *model, const struct bound_step *s, enum phase phase,
               struct ls_arena *arena)
{
    if (s->adapted && phase != PHASE_WEIGHT)
        buffers_take(model, s, phase, arena);
}

/* ---- the narrow products --------------------------------------------------------------------- */

/* One of them, and where it goes. */
struct narrow {
    struct ls_gemm gemm;
    bool cut;    /* ranks have parts of the contraction */
    bool shares; /* it makes the rows of the stream, if that is cut: the others' are gathered */
    char *to;    /* [M, rank] */
};

/* alpha / rank times the product. Returns where the stream's rows are in *stream. */
static int narrow_run(const struct layer_run *run, const struct buffers *b, struct narrow *n,
                      const char **stream)
{
    const struct ls_model *model = run->model;
    const struct ls_lora *lora = &model->config.lora;
    enum ls_dtype act = model->numerics.act;
    int64_t share = ls_tp_room(&model->tp, run->rows->all) / model->tp.size;
    size_t row = (size_t)lora->rank * model_act_bytes(model);
    char *own = n->shares ? n->to + (size_t)(share * model->tp.rank) * row : n->to;
    int64_t rows = n->shares ? run->rows->count : run->rows->all;
    *stream = own;
    n->gemm.c = own;
    int status =
        n->cut ? ls_tp_reduced_product(&model->tp, run->ops, &n->gemm, &b->scratch, run->error)
               : ls_gemm_run(run->ops, &n->gemm, run->error);
    if (status)
        return status;
    ls_scale(run->ops, act, rows * lora->rank, (float)(lora->alpha / (double)lora->rank), own, own);
    return n->shares && run->phase == PHASE_INPUT
               ? ls_tp_gather(&model->tp, act, run->rows->all, lora->rank, own, n->to, LS_QUEUED,
                              run->error)
               : LS_OK;
}

/* u of all rows of x, or with shares of the stream's; all of them where the input half keeps it. */
static int down(const struct layer_run *run, const struct bound_step *s, const struct buffers *b,
                const struct pair *pair, const void *x, bool shares, char *to, const char **u)
{
    struct ls_model *model = run->model;
    bool cut = !is_column(s);
    int64_t rows = shares && !cut ? run->rows->count : run->rows->all;
    struct narrow n = {.gemm = model_linear(model, rows, model->config.lora.rank,
                                            cut ? model->tiles : 1, pair->a, NULL, x, to),
                       .cut = cut,
                       .shares = shares,
                       .to = to};
    model_label(model, pair->a);
    return narrow_run(run, b, &n, u);
}

/* v of all rows of dy. */
static int up_gradient(const struct layer_run *run, const struct bound_step *s,
                       const struct buffers *b, const struct pair *pair, const char *dy, char *to,
                       const char **v)
{
    struct ls_model *model = run->model;
    bool cut = is_column(s);
    struct narrow n = {
        .gemm = model_input_gradient(model, run->rows->all, rows_before(s, s->stacked),
                                     cut ? model->tiles : 1, b_of(run, s, pair->first), dy, to),
        .cut = cut,
        .shares = cut && model->tp.sequence,
        .to = to};
    if (cut) {
        struct sections sections = sections_of(model, s, pair->first, pair->end);
        sections_contract(run, &sections, &b->packed, &n.gemm);
    }
    model_label(model, pair->a);
    return narrow_run(run, b, &n, v);
}

/* ---- the wide ones --------------------------------------------------------------------------- */

/* y [rows, width] += what `wide` makes of the rows of `narrow` [rows, rank], piece by piece. */
struct wide {
    const struct layer_run *run;
    const struct bound_step *s;
    const struct buffers *buffers;
    int64_t rows, width;
    char *y;
};

static const char *row_at(const struct ls_model *model, const void *x, int64_t row, int64_t width)
{
    return (const char *)x + (size_t)(row * width) * model_act_bytes(model);
}

/* The piece's rows [at, at + some): each u B^T at its place; what has no adapter stays zero. */
static int outputs_piece(const struct wide *w, const char *const *u, int64_t at, int64_t some)
{
    struct ls_model *model = w->run->model;
    int status = LS_OK, k = 0;
    for (struct pair pair = {0}; !status && pair_next(w->run, w->s, &pair); k++)
        for (int i = pair.first; i < pair.end && !status; i++) {
            const struct ls_param *b = b_of(w->run, w->s, i);
            const void *place = row_at(model, w->buffers->piece, 1, rows_before(w->s, i));
            struct ls_gemm gemm =
                model_linear(model, some, b->rows, 1, b, NULL,
                             row_at(model, u[k], at, model->config.lora.rank), (void *)place);
            gemm.ldc = w->width;
            status = ls_gemm_run(w->run->ops, &gemm, w->run->error);
        }
    return status;
}

static void piece_add(const struct wide *w, int64_t at, int64_t some)
{
    struct ls_model *model = w->run->model;
    char *to = (char *)row_at(model, w->y, at, w->width);
    ls_add(w->run->ops, model->numerics.act, some * w->width, to, w->buffers->piece, to);
}

static int outputs_add(const struct wide *w, const char *const *u)
{
    int status = LS_OK;
    int64_t most = ls_min(PIECE_ROWS, w->rows) * w->width;
    ls_fill_zero(w->run->ops, (size_t)most * model_act_bytes(w->run->model), w->buffers->piece);
    for (int64_t at = 0; at < w->rows && !status; at += PIECE_ROWS) {
        int64_t some = ls_min(PIECE_ROWS, w->rows - at);
        status = outputs_piece(w, u, at, some);
        if (!status)
            piece_add(w, at, some);
    }
    return status;
}

/* dx += v A. */
static int inputs_add(const struct wide *w, const struct ls_param *a, const char *v)
{
    struct ls_model *model = w->run->model;
    int64_t rank = model->config.lora.rank;
    int status = LS_OK;
    for (int64_t at = 0; at < w->rows && !status; at += PIECE_ROWS) {
        int64_t some = ls_min(PIECE_ROWS, w->rows - at);
        struct ls_gemm gemm = model_input_gradient(model, some, rank, 1, a,
                                                   row_at(model, v, at, rank), w->buffers->piece);
        status = ls_gemm_run(w->run->ops, &gemm, w->run->error);
        if (!status)
            piece_add(w, at, some);
    }
    return status;
}

/* ---- what steps call ------------------------------------------------------------------------- */

int lora_forward(const struct layer_run *run, const struct bound_step *s, const void *x, void *y,
                 struct ls_arena *work)
{
    if (!s->adapted)
        return LS_OK;
    struct buffers b = buffers_take(run->model, s, run->phase, work);
    struct wide wide = {.run = run,
                        .s = s,
                        .buffers = &b,
                        .rows = is_column(s) ? run->rows->all : run->rows->count,
                        .width = rows_before(s, s->stacked),
                        .y = y};
    const char *u[PAIRS_MAX];
    int status = LS_OK, k = 0;
    for (struct pair pair = {0}; !status && pair_next(run, s, &pair); k++)
        status =
            down(run, s, &b, &pair, x, !is_column(s) && run->model->tp.sequence, b.u[k], &u[k]);
    return status ? status : outputs_add(&wide, u);
}

int lora_input(const struct layer_run *run, const struct bound_step *s, const void *dy, void *dx,
               struct ls_arena *work)
{
    int status = LS_OK, k = 0;
    if (!s->adapted)
        return LS_OK;
    struct buffers b = buffers_take(run->model, s, run->phase, work);
    struct wide wide = {.run = run,
                        .s = s,
                        .buffers = &b,
                        .rows = is_column(s) ? run->rows->count : run->rows->all,
                        .width = s->weight->cols,
                        .y = dx};
    for (struct pair pair = {0}; !status && pair_next(run, s, &pair); k++) {
        const char *u, *v;
        status = down(run, s, &b, &pair, run_in(run, s, 0), run->model->tp.sequence,
                      kept_u(run, s, k), &u);
        if (!status)
            status = up_gradient(run, s, &b, &pair, dy, kept_v(run, s, k), &v);
        if (!status)
            status = inputs_add(&wide, pair.a, v);
    }
    return status;
}

/* The gradients of an A and its Bs. */
static int pair_gradients(const struct layer_run *run, const struct bound_step *s,
                          const struct pair *pair, const char *dy, const void *x, const void *u,
                          const void *v)
{
    struct ls_model *model = run->model;
    struct ls_token_sum sum = rows_sum(run->rows, run->gradient->onto);
    int status = LS_OK;
    if (pair->a->gradient.region >= 0) {
        struct ls_gemm gemm = model_weight_gradient(model, &sum, model->config.lora.rank, pair->a,
                                                    v, x, run_gradient(run, pair->a));
        status = ls_gemm_run(run->ops, &gemm, run->error);
    }
    for (int i = pair->first; i < pair->end && !status; i++) {
        const struct ls_param *b = b_of(run, s, i);
        if (b->gradient.region < 0)
            continue;
        const char *from = dy + (size_t)rows_before(s, i) * model_act_bytes(model);
        struct ls_gemm gemm =
            model_weight_gradient(model, &sum, b->rows, b, from, u, run_gradient(run, b));
        gemm.lda = rows_before(s, s->stacked);
        status = ls_gemm_run(run->ops, &gemm, run->error);
    }
    return status;
}

int lora_weight(const struct layer_run *run, const struct bound_step *s, const void *dy,
                const void *x)
{
    int status = LS_OK, k = 0;
    for (struct pair pair = {0}; s->adapted && !status && pair_next(run, s, &pair); k++)
        status = pair_gradients(run, s, &pair, dy, x, kept_u(run, s, k), kept_v(run, s, k));
    return status;
}
