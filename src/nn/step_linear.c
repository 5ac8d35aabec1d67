/* Linear layers: y = x W^T + b. A column-parallel one (Shoeybi et al. 2019) needs all rows of x and
 * makes a slice of the columns of y; a row-parallel one adds over ranks, and drops out where the
 * step says so. The contractions that tensor parallelism cuts are summed in tiles (S2): the
 * row-parallel product's, and that of the column-parallel input gradient. Adapters are lora.c's.
 * in: x; out: y. */
#include "nn/model.h"

/* ---- shared ---------------------------------------------------------------------------------- */

/* Rows of W held: all of a stack. */
static int64_t columns_out(const struct ls_model *model, const struct bound_step *s)
{
    return size_held(model, s->program->values[s->step->out[0]].size);
}

/* Of what takes a gradient. */
static int weight_half(const struct layer_run *run, const struct bound_step *s, const void *dy,
                       const void *x)
{
    struct ls_model *model = run->model;
    int64_t out = columns_out(run->model, s);
    struct ls_token_sum sum = rows_sum(run->rows, run->gradient->onto);
    if (s->bias && s->bias->gradient.region >= 0)
        ls_bias_backward(run->ops, model->numerics.act, out, out, dy, &sum,
                         run_gradient(run, s->bias));
    int status = lora_weight(run, s, dy, x);
    if (status || s->weight->gradient.region < 0)
        return status;
    struct ls_gemm gemm =
        model_weight_gradient(model, &sum, out, s->weight, dy, x, run_gradient(run, s->weight));
    return ls_gemm_run(run->ops, &gemm, run->error);
}

/* ---- column parallel ------------------------------------------------------------------------- */

static int column_forward(const struct layer_run *run, const struct bound_step *s)
{
    struct ls_model *model = run->model;
    struct ls_arena work = run_work(run, s);
    struct exchange exchange = exchange_gather(model, &work);
    model_label(model, s->weight);
    void *y = run_out(run, s, 0);
    struct ls_gemm gemm = model_linear(model, run->rows->all, columns_out(run->model, s), 1,
                                       s->weight, s->bias, run_in(run, s, 0), y);
    int status = ls_tp_gathered_product(&model->tp, run->ops, &gemm, exchange.gathered,
                                        &exchange.scratch, run->error);
    const void *x = exchange.gathered ? exchange.gathered : gemm.a;
    return status ? status : lora_forward(run, s, x, y, &work);
}

static int column_input(const struct layer_run *run, const struct bound_step *s)
{
    struct ls_model *model = run->model;
    struct ls_arena work = run_work(run, s);
    struct exchange exchange = exchange_reduce(model, &work);
    struct sections sections = sections_of(model, s, 0, s->stacked);
    struct packed packed =
        packed_take(model, &work, &sections, ls_param_room(s->weight, s->weight->cols));
    struct ls_gemm gemm =
        model_input_gradient(model, run->rows->all, columns_out(run->model, s), model->tiles,
                             s->weight, run_dy(run, s), run_dx(run, s));
    sections_contract(run, &sections, &packed, &gemm);
    model_label(model, s->weight);
    int status = ls_tp_reduced_product(&model->tp, run->ops, &gemm, &exchange.scratch, run->error);
    return status ? status : lora_input(run, s, run_dy(run, s), run_dx(run, s), &work);
}

static void *gathered_rows(const struct layer_run *run, const struct bound_step *s)
{
    struct ls_arena work = run_work(run, s);
    return exchange_gather(run->model, &work).gathered;
}

/* The rows of x on all ranks, where the stream is cut. */
static int column_weight_begin(const struct layer_run *run, const struct bound_step *s,
                               struct ls_request *request)
{
    struct ls_model *model = run->model;
    if (!model->tp.sequence)
        return LS_OK;
    model_label(model, s->weight);
    return ls_tp_gather(&model->tp, model->numerics.act, run->rows->all, model->config.channels,
                        run_in(run, s, 0), gathered_rows(run, s), request, run->error);
}

static int column_weight(const struct layer_run *run, const struct bound_step *s)
{
    const void *x = run_in(run, s, 0);
    if (run->model->tp.sequence) {
        int status = ls_wait(run->gathering, run->error);
        if (status)
            return status;
        x = gathered_rows(run, s);
    }
    return weight_half(run, s, run_dy(run, s), x);
}

static void column_work(const struct ls_model *model, const struct bound_step *s, enum phase phase,
                        struct ls_arena *arena)
{
    if (phase == PHASE_INPUT) {
        exchange_reduce(model, arena);
        struct sections sections = sections_of(model, s, 0, s->stacked);
        packed_take(model, arena, &sections, ls_param_room(s->weight, s->weight->cols));
    } else {
        exchange_gather(model, arena);
    }
    lora_work(model, s, phase, arena);
}

const struct step_kind step_column = {
    .name = "column-parallel linear",
    .ins = 1,
    .outs = 1,
    .weight_reads = READS_IN0,
    .flow = FLOW_NEW,
    .forward = column_forward,
    .input = column_input,
    .weight = column_weight,
    .weight_begin = column_weight_begin,
    .work = column_work,
    .multiplies = true,
};

/* ---- row parallel ---------------------------------------------------------------------------- */

static int row_forward(const struct layer_run *run, const struct bound_step *s)
{
    struct ls_model *model = run->model;
    struct ls_arena work = run_work(run, s);
    struct exchange exchange = exchange_reduce(model, &work);
    void *y = run_out(run, s, 0);
    model_label(model, s->weight);
    struct ls_gemm gemm = model_linear(model, run->rows->all, model->config.channels, model->tiles,
                                       s->weight, s->bias, run_in(run, s, 0), y);
    int status = ls_tp_reduced_product(&model->tp, run->ops, &gemm, &exchange.scratch, run->error);
    if (!status)
        status = lora_forward(run, s, gemm.a, y, &work);
    if (!status)
        model_dropout(run, s->step->dropout, y, y);
    return status;
}

/* The gradient of y before its dropout, of all rows, is kept for the weight half where it is not
 * what came from above or does not stay there. */
static size_t row_own(const struct ls_model *model, const struct bound_step *s)
{
    bool leaves = s->trains && model->options.split_backward && s->dy == GRADIENT_ABOVE;
    if (!model->tp.sequence && !model_drops(model, s->step->dropout) && !leaves)
        return 0;
    int64_t rows = model->tp.sequence ? model->rows_room : model->stream_max;
    return (size_t)(rows * model->config.channels) * model_act_bytes(model);
}

static int row_input(const struct layer_run *run, const struct bound_step *s)
{
    struct ls_model *model = run->model;
    const struct rows *rows = run->rows;
    int64_t channels = model->config.channels;
    size_t bytes = (size_t)channels * model_act_bytes(model);
    struct ls_arena work = run_work(run, s);
    struct exchange exchange = exchange_staging(model, &work);
    char *store = run_own(run, s), *own = store;
    if (model->tp.sequence) /* in its place among all ranks' rows */
        own +=
            (size_t)(ls_tp_room(&model->tp, rows->all) / model->tp.size * model->tp.rank) * bytes;
    const void *dy = run_dy(run, s), *dropped = model_dropout(run, s->step->dropout, dy, own);
    if (dropped == dy && store) {
        ls_copy(run->ops, (size_t)rows->count * bytes, dy, own);
        dropped = own;
    }
    struct ls_gemm gemm =
        model_input_gradient(model, rows->all, channels, 1, s->weight, dropped, run_dx(run, s));
    model_label(model, s->weight);
    int status =
        ls_tp_gathered_product(&model->tp, run->ops, &gemm, store, &exchange.scratch, run->error);
    const void *all = model->tp.sequence ? store : dropped;
    return status ? status : lora_input(run, s, all, run_dx(run, s), &work);
}

static int row_weight(const struct layer_run *run, const struct bound_step *s)
{
    const void *own = run_own(run, s);
    return weight_half(run, s, own ? own : run_dy(run, s), run_in(run, s, 0));
}

static void row_work(const struct ls_model *model, const struct bound_step *s, enum phase phase,
                     struct ls_arena *arena)
{
    if (phase == PHASE_INPUT)
        exchange_staging(model, arena);
    else if (phase != PHASE_WEIGHT)
        exchange_reduce(model, arena);
    lora_work(model, s, phase, arena);
}

const struct step_kind step_row = {
    .name = "row-parallel linear",
    .ins = 1,
    .outs = 1,
    .weight_reads = READS_IN0,
    .flow = FLOW_NEW,
    .forward = row_forward,
    .input = row_input,
    .weight = row_weight,
    .work = row_work,
    .own = row_own,
    .multiplies = true,
};
