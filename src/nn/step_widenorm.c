/* RMSNorm of the whole rows of q and of k, over all heads (OLMo 2: Team OLMo 2024); v goes on as it
 * is. Tensor parallel cuts the rows: each rank sums its tiles of them, and sums are added over
 * ranks by the tree (S2). in: qkv; out: the same normalised, rstd. weight: q's, bias: k's. */
#include "nn/model.h"

/* q or k of this rank, and what of it this rank answers for in sums: of key heads that several
 * ranks hold, each its own part. */
struct part {
    const struct ls_param *weight;
    int64_t at, width; /* of a row of qkv */
    struct ls_norm_cut cut;
};

static struct part part_of(const struct ls_model *model, const struct bound_step *s, bool keys)
{
    int64_t sharers = keys ? model->tp.sharers : 1;
    int64_t width = size_held(model, keys ? SIZE_KV : SIZE_QUERY), own = width / sharers;
    return (struct part){.weight = keys ? s->bias : s->weight,
                         .at = keys ? size_held(model, SIZE_QUERY) : 0,
                         .width = width,
                         .cut = {.whole = size_whole(&model->config, keys ? SIZE_KV : SIZE_QUERY),
                                 .first = model->tp.rank % sharers * own,
                                 .count = own,
                                 .tiles = model->tiles}};
}

static struct ls_norm norm_of(const struct layer_run *run, const struct bound_step *s, bool keys,
                              const struct part *part)
{
    const struct ls_model *model = run->model;
    return (struct ls_norm){.rows = run->rows->all,
                            .channels = part->width,
                            .act = model->numerics.act,
                            .epsilon = model->config.norm_epsilon,
                            .weight = model_vector(model, part->weight),
                            .rstd = (float *)run_out(run, s, 1) + keys,
                            .heads = 1,
                            .ld = size_held(model, SIZE_QKV),
                            .statistics_ld = 2};
}

/* Sums of rows, [2, M]. */
static float *sums_take(const struct ls_model *model, struct ls_arena *arena)
{
    return ls_arena_take(arena, (size_t)(2 * model->rows_max) * sizeof(float));
}

static void widenorm_work(const struct ls_model *model, const struct bound_step *s,
                          enum phase phase, struct ls_arena *arena)
{
    (void)s;
    if (phase != PHASE_WEIGHT)
        sums_take(model, arena);
}

/* From x, and d where this is the backward, to `to`, which may be d. */
static int rows_norm(const struct layer_run *run, const struct bound_step *s, const char *x,
                     const char *d, char *to)
{
    struct ls_model *model = run->model;
    struct ls_arena work = run_work(run, s);
    float *sums = sums_take(model, &work);
    size_t element = model_act_bytes(model);
    int status = LS_OK;
    for (int keys = 0; keys < 2; keys++) {
        struct part part = part_of(model, s, keys);
        struct ls_norm norm = norm_of(run, s, keys, &part);
        size_t at = (size_t)part.at * element;
        ls_rmsnorm_cut_sum(run->ops, &norm, &part.cut, x + at, d ? d + at : NULL,
                           sums + keys * run->rows->all);
    }
    model_label(model, s->weight);
    if (model->tp.size > 1)
        status = ls_all_reduce_start(model->tp.comm, sums, 2 * run->rows->all, LS_QUEUED, LS_HERE,
                                     run->error);
    for (int keys = 0; keys < 2 && !status; keys++) {
        struct part part = part_of(model, s, keys);
        struct ls_norm norm = norm_of(run, s, keys, &part);
        size_t at = (size_t)part.at * element;
        ls_rmsnorm_cut_finish(run->ops, &norm, &part.cut, x + at, d ? d + at : NULL,
                              sums + keys * run->rows->all, to + at);
    }
    return status;
}

static int widenorm_forward(const struct layer_run *run, const struct bound_step *s)
{
    const struct ls_model *model = run->model;
    size_t element = model_act_bytes(model), ld = (size_t)size_held(model, SIZE_QKV) * element;
    size_t values = (size_t)size_held(model, SIZE_KV) * element;
    const char *x = run_in(run, s, 0);
    char *y = run_out(run, s, 0);
    ls_copy_rows(run->ops, run->rows->all, values, x + ld - values, ld, y + ld - values, ld);
    return rows_norm(run, s, x, NULL, y);
}

/* ---- backward -------------------------------------------------------------------------------- */

static int64_t sums_width(const struct ls_model *model)
{
    return size_held(model, SIZE_QUERY) + size_held(model, SIZE_KV);
}

static size_t widenorm_own(const struct ls_model *model, const struct bound_step *s)
{
    return s->trains ? vectors_bytes(model, sums_width(model)) : 0;
}

/* The weights' sums, of each unit, before the gradient takes the place of what it comes from. */
static int widenorm_input(const struct layer_run *run, const struct bound_step *s)
{
    const struct ls_model *model = run->model;
    int64_t units = vectors_units(model, run->rows), tokens = run->rows->all / units;
    int64_t ld = size_held(model, SIZE_QKV);
    size_t element = model_act_bytes(model);
    const struct ls_token_sum sum = {1, 1, 1, tokens, LS_ONTO_NOTHING};
    const char *x = run_in(run, s, 0);
    char *d = run_dx(run, s);
    float *sums = run_own(run, s);
    LS_ASSERT(d == run_dy(run, s));
    for (int keys = 0; keys < 2 && sums; keys++)
        for (int64_t unit = 0; unit < units; unit++) {
            struct part part = part_of(model, s, keys);
            struct ls_norm norm = norm_of(run, s, keys, &part);
            size_t at = (size_t)(unit * tokens * ld + part.at) * element;
            norm.rows = tokens;
            norm.rstd += unit * tokens * norm.statistics_ld;
            ls_rmsnorm_backward_weight(run->ops, &norm, x + at, d + at, &sum,
                                       sums + unit * sums_width(model) + part.at);
        }
    return rows_norm(run, s, x, d, d);
}

static int widenorm_weight(const struct layer_run *run, const struct bound_step *s)
{
    float *sums = run_own(run, s);
    int64_t stride, count = vectors_add(run, sums, sums_width(run->model), &stride);
    for (int keys = 0; keys < 2; keys++) {
        struct part part = part_of(run->model, s, keys);
        vector_deliver(run, part.weight, sums + part.at, count, stride);
    }
    return LS_OK;
}

const struct step_kind step_widenorm = {
    .name = "norm of q and k",
    .ins = 1,
    .outs = 2,
    .input_reads = READS_IN0 | READS_OUT1,
    .flow = FLOW_IN_PLACE,
    .forward = widenorm_forward,
    .input = widenorm_input,
    .weight = widenorm_weight,
    .work = widenorm_work,
    .own = widenorm_own,
};
