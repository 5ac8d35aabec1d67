/* LayerNorm and RMSNorm of the residual stream, of the sum of two streams where the step takes two:
 * a = norm(h), h = x or x + y. A weight may be kept as its distance from one. The weights'
 * gradients are summed over tensor-parallel ranks where the stream is cut. in: x, y; out: a, mean,
 * rstd, h. */
#include "nn/model.h"

static bool is_layernorm(const struct bound_step *s)
{
    return s->step->kind == &step_layernorm;
}

static struct ls_norm norm_of(const struct layer_run *run, const struct bound_step *s,
                              int64_t first, int64_t rows)
{
    const struct ls_model *model = run->model;
    return (struct ls_norm){.rows = rows,
                            .channels = model->config.channels,
                            .act = model->numerics.act,
                            .epsilon = model->config.norm_epsilon,
                            .weight = model_vector(model, s->weight),
                            .bias = model_vector(model, s->bias),
                            .mean = (float *)run_out(run, s, 1) + first,
                            .rstd = (float *)run_out(run, s, 2) + first,
                            .plus_one = s->step->kind == &step_rmsnorm_plus_one};
}

/* ---- forward --------------------------------------------------------------------------------- */

static int norm_forward(const struct layer_run *run, const struct bound_step *s)
{
    struct ls_norm op = norm_of(run, s, 0, run->rows->count);
    bool again = run->phase == PHASE_AGAIN && s->restart; /* from h */
    bool two = s->step->in[1] > 0 && !again;
    const void *x = again ? run_out(run, s, 3) : run_in(run, s, 0);
    const void *y = two ? run_in(run, s, 1) : NULL;
    void *h = two ? run_out(run, s, 3) : NULL;
    if (is_layernorm(s))
        ls_layernorm_forward(run->ops, &op, x, y, h, run_out(run, s, 0));
    else
        ls_rmsnorm_forward(run->ops, &op, x, y, h, run_out(run, s, 0));
    return LS_OK;
}

/* ---- backward: input ------------------------------------------------------------------------- */

/* What comes from above does not stay there for a weight half that comes later. */
static size_t norm_own(const struct ls_model *model, const struct bound_step *s)
{
    if (!s->trains || !model->options.split_backward || s->dy != GRADIENT_ABOVE)
        return 0;
    return (size_t)(model->stream_max * model->config.channels) * model_act_bytes(model);
}

static int norm_input(const struct layer_run *run, const struct bound_step *s)
{
    struct ls_norm op = norm_of(run, s, 0, run->rows->count);
    const void *h = run_out(run, s, 3), *dy = run_dy(run, s), *residual = run_residual(run, s);
    void *own = run_own(run, s);
    if (own)
        ls_copy(run->ops, (size_t)(op.rows * op.channels) * model_act_bytes(run->model), dy, own);
    if (is_layernorm(s))
        ls_layernorm_backward_input(run->ops, &op, h, dy, residual, run_dx(run, s));
    else
        ls_rmsnorm_backward_input(run->ops, &op, h, dy, residual, run_dx(run, s));
    return LS_OK;
}

/* ---- backward: weights ----------------------------------------------------------------------- */

/* Of rows [first, first + rows) of the stream, in the order of sum. */
static void norm_weight(const struct layer_run *run, const struct bound_step *s, int64_t first,
                        int64_t rows, const struct ls_token_sum *sum, float *d_weight,
                        float *d_bias)
{
    struct ls_norm op = norm_of(run, s, first, rows);
    size_t at = (size_t)(first * op.channels) * model_act_bytes(run->model);
    const char *own = run_own(run, s), *dy = (own ? own : (const char *)run_dy(run, s)) + at;
    const void *h = (const char *)run_out(run, s, 3) + at;
    if (is_layernorm(s))
        ls_layernorm_backward_weight(run->ops, &op, h, dy, sum, d_weight, d_bias);
    else
        ls_rmsnorm_backward_weight(run->ops, &op, h, dy, sum, d_weight);
}

/* Rows of tile `tile` of the micro-batch that this rank holds, [*begin, *end) of its share: a
 * subtree of the tile's sum (ls_tp_admits). */
static struct ls_token_sum tile_part(const struct ls_model *model, const struct rows *rows,
                                     int64_t tile, int64_t *begin, int64_t *end)
{
    *begin = ls_max(tile * rows->tile_tokens - rows->first, 0);
    *end = ls_min((tile + 1) * rows->tile_tokens - rows->first, rows->count);
    if (model->numerics.fast) {
        *begin = 0;
        *end = rows->count;
    }
    return (struct ls_token_sum){1, 1, 1, ls_max(*end - *begin, 0), LS_ONTO_NOTHING};
}

/* Each tile's vectors, zero where another rank holds its rows, are added over ranks; then the rest
 * of the sum is made by all. No sum that starts from zero is ever -0, so adding another rank's
 * zeros changes nothing. */
static int cut_weights(const struct layer_run *run, const struct bound_step *const *steps,
                       int count)
{
    struct ls_model *model = run->model;
    int64_t c = model->config.channels, tiles = vectors_units(model, run->rows), stride;
    int64_t parts = steps[0]->bias ? 2 : 1, width = count * parts * c;
    struct ls_arena work = run_work(run, steps[0]);
    float *vectors = ls_arena_take(&work, (size_t)(tiles * width) * sizeof *vectors);
    ls_fill_zero(run->ops, (size_t)(tiles * width) * sizeof *vectors, vectors);
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t begin, end;
        struct ls_token_sum sum = tile_part(model, run->rows, tile, &begin, &end);
        for (int i = 0; i < count && begin < end; i++) {
            float *to = vectors + tile * width + i * parts * c;
            norm_weight(run, steps[i], begin, end - begin, &sum, to, parts > 1 ? to + c : NULL);
        }
    }
    model_label(model, steps[0]->weight);
    int status =
        ls_all_reduce_start(model->tp.comm, vectors, tiles * width, LS_QUEUED, LS_HERE, run->error);
    if (status)
        return status;
    int64_t sums = vectors_add(run, vectors, width, &stride);
    for (int i = 0; i < count; i++) {
        const float *from = vectors + i * parts * c;
        vector_deliver(run, steps[i]->weight, from, sums, stride);
        if (steps[i]->bias)
            vector_deliver(run, steps[i]->bias, from + c, sums, stride);
    }
    return LS_OK;
}

static int norm_weights(const struct layer_run *run, const struct bound_step *const *steps,
                        int count)
{
    if (run->model->tp.sequence)
        return cut_weights(run, steps, count);
    struct ls_token_sum sum = rows_sum(run->rows, run->gradient->onto);
    for (int i = 0; i < count; i++)
        norm_weight(run, steps[i], 0, run->rows->all, &sum, run_gradient(run, steps[i]->weight),
                    steps[i]->bias ? run_gradient(run, steps[i]->bias) : NULL);
    return LS_OK;
}

/* Sums over a rank's share for all norms of the layer. */
static void norm_work(const struct ls_model *model, const struct bound_step *s, enum phase phase,
                      struct ls_arena *arena)
{
    struct rows rows = rows_most(model);
    int64_t norms = 0, parts = s->bias ? 2 : 1;
    for (int i = 0, steps = program_steps(s->program); i < steps; i++)
        norms += s->program->steps[i].kind == s->step->kind;
    if (phase == PHASE_WEIGHT && model->tp.sequence)
        ls_arena_take(
            arena, (size_t)(vectors_units(model, &rows) * norms * parts * model->config.channels) *
                       sizeof(float));
}

/* ---- the kinds ------------------------------------------------------------------------------- */

enum { MEAN = READS_OUT1, RSTD = READS_OUT2, ARGUMENT = READS_OUT3 };

#define NORM_KIND(shown, reads)                                                                    \
    {                                                                                              \
        .name = (shown), .ins = 2, .outs = 4, .input_reads = (reads), .weight_reads = (reads),     \
        .flow = FLOW_JOIN, .restarts = true, .forward = norm_forward, .input = norm_input,         \
        .weights = norm_weights, .work = norm_work, .own = norm_own,                               \
    }

const struct step_kind step_layernorm = NORM_KIND("layernorm", MEAN | RSTD | ARGUMENT);
const struct step_kind step_rmsnorm = NORM_KIND("rmsnorm", RSTD | ARGUMENT);
const struct step_kind step_rmsnorm_plus_one = NORM_KIND("rmsnorm of 1 + weight", RSTD | ARGUMENT);
