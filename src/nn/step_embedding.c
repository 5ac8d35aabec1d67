/* Token embedding, learned positions where the family has them, dropout. The vocabulary is cut over
 * tp: each rank looks its own rows up, and of each token one rank finds something. weight: the
 * table; bias: the table of positions, or none. out: the stream. */
#include "nn/model.h"

/* ---- forward --------------------------------------------------------------------------------- */

/* Rows of ids at the positions from `position` on. */
static struct ls_embedding embedding_of(const struct ls_model *model, const struct bound_step *s,
                                        const int32_t *ids, int64_t rows, int64_t position)
{
    return (struct ls_embedding){.act = model->numerics.act,
                                 .rows = rows,
                                 .channels = model->config.channels,
                                 .ids = ids,
                                 .first_id = s->weight->first_row,
                                 .vocabulary = s->weight->rows,
                                 .table = model_weight(model, s->weight),
                                 .first_position = position,
                                 .tokens = rows,
                                 .position = s->bias ? model_weight(model, s->bias) : NULL};
}

/* Rows [first, first + count), each run of tokens at its own positions. */
static void whole_forward(const struct layer_run *run, const struct bound_step *s, void *out)
{
    const struct ls_model *model = run->model;
    size_t bytes = (size_t)model->config.channels * model_act_bytes(model);
    for (struct token_run piece = {0}; rows_next(model, run->rows, 0, run->rows->all, &piece);) {
        struct ls_embedding embedding =
            embedding_of(model, s, run->batch->ids + piece.row, piece.count, piece.position);
        ls_embedding_forward(run->ops, &embedding, (char *)out + (size_t)piece.row * bytes);
    }
}

/* This rank's share of the rows, from all ranks' parts of the table. */
static int share_forward(const struct layer_run *run, const struct bound_step *s,
                         const struct ls_tp_scratch *scratch, void *out)
{
    const struct ls_model *model = run->model;
    const struct rows *rows = run->rows;
    int64_t channels = model->config.channels, first, count;
    struct ls_embedding all = embedding_of(model, s, run->batch->ids, rows->all, 0);
    ls_tp_share(&model->tp, rows->all, &first, &count);
    ls_embedding_gather(run->ops, &all, scratch->partial);
    int status = ls_tp_reduce(&model->tp, rows->all, channels, scratch, run->error);
    size_t bytes = (size_t)channels * model_act_bytes(model);
    for (struct token_run piece = {0}; !status && rows_next(model, rows, first, count, &piece);) {
        struct ls_embedding own = embedding_of(model, s, NULL, piece.count, piece.position);
        ls_embedding_finish(run->ops, &own, scratch->sum + piece.row * channels,
                            (char *)out + (size_t)piece.row * bytes);
    }
    return status;
}

static int cut_forward(const struct layer_run *run, const struct bound_step *s, char *out)
{
    const struct ls_model *model = run->model;
    int64_t channels = model->config.channels;
    struct ls_arena work = run_work(run, s);
    struct exchange exchange = exchange_reduce(model, &work);
    int64_t share = ls_tp_room(&model->tp, run->rows->all) / model->tp.size;
    size_t bytes = (size_t)channels * model_act_bytes(model);
    char *own = model->tp.sequence ? out : out + (size_t)(model->tp.rank * share) * bytes;
    model_label(model, s->weight);
    int status = share_forward(run, s, &exchange.scratch, own);
    if (!status && !model->tp.sequence)
        status = ls_tp_gather(&model->tp, model->numerics.act, run->rows->all, channels, own, out,
                              LS_QUEUED, run->error);
    return status;
}

static int embedding_forward(const struct layer_run *run, const struct bound_step *s)
{
    void *out = run_out(run, s, 0);
    int status = LS_OK;
    if (run->model->tp.size == 1)
        whole_forward(run, s, out);
    else
        status = cut_forward(run, s, out);
    if (!status)
        model_dropout(run, s->step->dropout, out, out);
    return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The gradient before the dropout, if it is not what comes from above or does not stay there. */
static size_t embedding_own(const struct ls_model *model, const struct bound_step *s)
{
    if (!s->trains || (!model_drops(model, s->step->dropout) && !model->options.split_backward))
        return 0;
    return (size_t)(model->stream_max * model->config.channels) * model_act_bytes(model);
}

static int embedding_input(const struct layer_run *run, const struct bound_step *s)
{
    const struct ls_model *model = run->model;
    const void *dy = run_dy(run, s);
    void *own = run_own(run, s);
    size_t bytes = (size_t)(run->rows->count * model->config.channels) * model_act_bytes(model);
    if (own && model_dropout(run, s->step->dropout, dy, own) == dy)
        ls_copy(run->ops, bytes, dy, own);
    return LS_OK;
}

struct embedding_buffers {
    struct exchange exchange;
    struct ls_embedding_scratch scratch;
    int32_t *positions; /* [M], where there may be documents */
};

/* Each token's rows of the micro-batch's sequences. A rank that holds other tokens brings zeros, so
 * where sequences may be cut no sum is left -0: it is added to zero. */
static void position_backward(const struct layer_run *run, const void *dy, float *d_position)
{
    const struct ls_model *model = run->model;
    const struct ls_numerics *n = &model->numerics;
    const struct rows *rows = run->rows;
    int64_t channels = model->config.channels, tokens = run->batch->tokens;
    int64_t first = rows->segments == 1 ? tokens : 0;
    enum ls_onto onto = run->gradient->onto;
    struct ls_token_sum sum = {.leaves = rows->leaves,
                               .sequences = rows->sequences,
                               .tiles = 1,
                               .tokens = rows->tokens,
                               .onto = onto || rows->segments == 1 ? onto : LS_ONTO_SUM};
    if (onto == LS_ONTO_NOTHING)
        ls_fill_zero(run->ops, (size_t)((model->config.context - first) * channels) * sizeof(float),
                     d_position + first * channels);
    for (int64_t i = 0; i < rows->segments; i++) {
        int64_t token, count;
        ls_segment(n->seq_tiles, model->cp.size, model->cp.rank, tokens, (int)i, &token, &count);
        ls_position_backward(run->ops, n->act, channels, dy, &sum, i * rows->segment_rows, count,
                             d_position + token * channels);
    }
}

/* Positions may be those of several tokens of a sequence, as tokens may be: their gradient has the
 * order of the table's. */
static void documents_backward(const struct layer_run *run, const struct bound_step *s,
                               const void *dy, const struct embedding_buffers *b)
{
    const struct ls_model *model = run->model;
    struct ls_token_sum sum = rows_sum(run->rows, run->gradient->onto);
    struct ls_embedding embedding = {.act = model->numerics.act,
                                     .rows = run->rows->all,
                                     .channels = model->config.channels,
                                     .ids = b->positions,
                                     .vocabulary = s->bias->rows};
    for (struct token_run piece = {0}; rows_next(model, run->rows, 0, run->rows->all, &piece);)
        ls_iota(run->ops, piece.count, (int32_t)piece.position, b->positions + piece.row);
    ls_embedding_backward(run->ops, &embedding, dy, &sum, b->scratch, run_gradient(run, s->bias));
}

static struct embedding_buffers weight_take(const struct ls_model *model,
                                            const struct bound_step *s, struct ls_arena *arena)
{
    struct embedding_buffers b = {.exchange = exchange_gather(model, arena)};
    const bool documents = s->bias && model->options.documents;
    const int64_t ids = documents ? ls_max(s->weight->rows, s->bias->rows) : s->weight->rows;
    b.scratch.order = ls_arena_take(arena, (size_t)model->rows_max * sizeof(int32_t));
    b.scratch.start = ls_arena_take(arena, (size_t)(ids + 1) * sizeof(int32_t));
    if (documents)
        b.positions = ls_arena_take(arena, (size_t)model->rows_max * sizeof(int32_t));
    return b;
}

static int embedding_weight(const struct layer_run *run, const struct bound_step *s)
{
    const struct ls_model *model = run->model;
    struct ls_arena work = run_work(run, s);
    struct embedding_buffers b = weight_take(model, s, &work);
    struct ls_token_sum sum = rows_sum(run->rows, run->gradient->onto);
    const void *dy = run_own(run, s);
    if (!dy)
        dy = run_dy(run, s);
    model_label(model, s->weight);
    int status = model_gather(model, run->rows, dy, b.exchange.gathered, &dy, run->error);
    if (status)
        return status;
    float *table = run->gradient->table ? run->gradient->table : run_gradient(run, s->weight);
    struct ls_embedding embedding = embedding_of(model, s, run->batch->ids, run->rows->all, 0);
    bool positions = s->bias && s->bias->gradient.region >= 0;
    if (table)
        ls_embedding_backward(run->ops, &embedding, dy, &sum, b.scratch, table);
    if (positions && run->rows->starts)
        documents_backward(run, s, dy, &b);
    else if (positions)
        position_backward(run, dy, run_gradient(run, s->bias));
    return LS_OK;
}

static void embedding_work(const struct ls_model *model, const struct bound_step *s,
                           enum phase phase, struct ls_arena *arena)
{
    if (phase == PHASE_FORWARD)
        exchange_reduce(model, arena);
    else if (phase == PHASE_WEIGHT)
        weight_take(model, s, arena);
}

/* What its rows cost: they are read, and their gradients written. */
static double embedding_flops(const struct ls_model_config *config, int64_t layer, int64_t tokens)
{
    (void)layer, (void)tokens;
    return 2 * (double)config->channels;
}

const struct step_kind step_embedding = {
    .name = "embedding",
    .ins = 1,
    .outs = 1,
    .flow = FLOW_NONE,
    .forward = embedding_forward,
    .input = embedding_input,
    .weight = embedding_weight,
    .work = embedding_work,
    .own = embedding_own,
    .flops = embedding_flops,
};
