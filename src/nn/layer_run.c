/* Runs a layer's program: its steps in their order, or from the last to the first. */
#include "nn/model.h"

/* ---- buffers --------------------------------------------------------------------------------- */

static void *place_at(const struct ls_model *model, const struct layer *layer,
                      const struct place *place, enum phase phase, int slot)
{
    char *base = NULL;
    switch (place->room) {
    case ROOM_NONE:
        return NULL;
    case ROOM_KEPT:
        base = layer->kept[slot];
        break;
    case ROOM_HELD:
        base = layer->held[slot];
        break;
    case ROOM_SEGMENT:
        base =
            model->segment + (size_t)(layer->index - layer->segment_first) * model->segment_bytes;
        break;
    case ROOM_WORK:
        base = model->work[phase != PHASE_FORWARD];
        break;
    case ROOM_PASS:
        base = model->pass[layer->index & 1];
        break;
    }
    return base + place->offset;
}

void *run_place(const struct layer_run *run, const struct place *place)
{
    return place_at(run->model, run->layer, place, run->phase, run->batch->slot);
}

static void *output_in(const struct ls_model *model, int index, enum phase phase, int slot)
{
    const struct layer *layer = &model->layers[index];
    const struct place *places = phase == PHASE_FORWARD ? layer->value : layer->backward;
    return place_at(model, layer, &places[layer->value_count - 1], phase, slot);
}

const void *ls_model_output(const struct ls_model *model, int layer, int slot)
{
    return output_in(model, layer, PHASE_FORWARD, slot);
}

/* Layer's input: what the layer below made, or what came from another chunk. */
static const void *input_of(const struct layer_run *run)
{
    const struct layer *layer = run->layer;
    if (layer->index == 0 || model_chunk_first(run->model, layer->index))
        return run->batch->input;
    if (layer->input_cut && run->phase != PHASE_FORWARD)
        return run_place(run, &layer->backward[0]);
    return output_in(run->model, layer->index - 1, run->phase, run->batch->slot);
}

static void buffers_set(struct layer_run *run)
{
    const struct layer *layer = run->layer;
    const struct ls_model *model = run->model;
    const struct place *values = run->phase == PHASE_FORWARD ? layer->value : layer->backward;
    run->value[0] = (void *)input_of(run);
    for (int v = 1; v < layer->value_count; v++) {
        run->value[v] = run_place(run, &values[v]);
        run->delta[v] = run_place(run, &layer->gradient[v]);
    }
    run->above = model_chunk_last(model, layer->index) ? run->batch->d_output
                                                       : model->d_stream[(layer->index + 1) & 1];
    run->below = model->d_stream[layer->index & 1];
}

/* ---- what steps read ------------------------------------------------------------------------- */

static void *value_of(const struct layer_run *run, int v)
{
    const struct layer *layer = run->layer;
    const struct place *values = run->phase == PHASE_FORWARD ? layer->value : layer->backward;
    if (v > 0)
        layer_check_use(run, &values[v]);
    return run->value[v];
}

const void *run_in(const struct layer_run *run, const struct bound_step *s, int i)
{
    return value_of(run, s->step->in[i]);
}

void *run_out(const struct layer_run *run, const struct bound_step *s, int i)
{
    return value_of(run, s->step->out[i]);
}

static void *gradient_of(const struct layer_run *run, int whose)
{
    if (whose == GRADIENT_NONE)
        return NULL;
    if (whose == GRADIENT_ABOVE)
        return (void *)run->above;
    if (whose == GRADIENT_BELOW)
        return run->below;
    layer_check_use(run, &run->layer->gradient[whose]);
    return run->delta[whose];
}

const void *run_dy(const struct layer_run *run, const struct bound_step *s)
{
    return gradient_of(run, s->dy);
}

const void *run_residual(const struct layer_run *run, const struct bound_step *s)
{
    return gradient_of(run, s->residual);
}

void *run_dx(const struct layer_run *run, const struct bound_step *s)
{
    return gradient_of(run, s->dx);
}

void *run_own(const struct layer_run *run, const struct bound_step *s)
{
    layer_check_use(run, &s->own);
    return run_place(run, &s->own);
}

void *run_adapters(const struct layer_run *run, const struct bound_step *s)
{
    layer_check_use(run, &s->adapters);
    return run_place(run, &s->adapters);
}

struct ls_arena run_work(const struct layer_run *run, const struct bound_step *s)
{
    const struct place *place = &s->work[run->phase];
    layer_check_use(run, place);
    return (struct ls_arena){.base = run_place(run, place), .size = place->bytes};
}

float *run_gradient(const struct layer_run *run, const struct ls_param *param)
{
    return param->gradient.region < 0 ? NULL : run->gradient->flat + param->gradient.offset;
}

/* ---- an input that is kept in shares --------------------------------------------------------- */

static int input_keep(const struct layer_run *run)
{
    const struct ls_model *model = run->model;
    int64_t first, count;
    if (!run->layer->input_cut || !run->batch->training)
        return LS_OK;
    ls_tp_share(&model->tp, run->rows->all, &first, &count);
    size_t row = (size_t)model->config.channels * model_act_bytes(model);
    ls_copy(run->ops, (size_t)count * row, (const char *)run->value[0] + (size_t)first * row,
            run_place(run, &run->layer->value[0]));
    return LS_OK;
}

static int input_gather(const struct layer_run *run)
{
    const struct ls_model *model = run->model;
    if (!run->layer->input_cut)
        return LS_OK;
    model_label(model, run->layer->steps[0].weight);
    return ls_tp_gather(&model->tp, model->numerics.act, run->rows->all, model->config.channels,
                        run_place(run, &run->layer->value[0]), run->value[0], LS_QUEUED,
                        run->error);
}

/* ---- walks ----------------------------------------------------------------------------------- */

static int forward_walk(const struct layer_run *run)
{
    int status = run->phase == PHASE_FORWARD ? input_keep(run) : input_gather(run);
    for (int i = 0; i < run->layer->step_count && !status; i++) {
        const struct bound_step *s = &run->layer->steps[i];
        const struct step_kind *kind = s->step->kind;
        bool decodes = run->model->decoding && kind->decode;
        if (run->phase == PHASE_FORWARD || s->again) {
            layer_check_step(run, s, layer_time(run->layer, run->phase, i));
            status = layer_check_stepped(run, (decodes ? kind->decode : kind->forward)(run, s));
        }
    }
    return status;
}

/* What had come to the value that the step read: rows of the stream. */
static void residual_join(const struct layer_run *run, const struct bound_step *s)
{
    const struct value *value = &run->layer->program->values[s->step->in[0]];
    LS_ASSERT(value->rows == ROWS_STREAM && !value->f32);
    void *dx = run_dx(run, s);
    ls_add(run->ops, run->model->numerics.act,
           run->rows->count * size_held(run->model, value->size), dx, run_residual(run, s), dx);
}

static int input_walk(const struct layer_run *run)
{
    int status = LS_OK;
    for (int i = run->layer->step_count - 1; i >= 0 && !status; i--) {
        const struct bound_step *s = &run->layer->steps[i];
        layer_check_step(run, s, layer_time(run->layer, PHASE_INPUT, i));
        if (s->step->kind->input)
            status = s->step->kind->input(run, s);
        if (s->joins && !status)
            residual_join(run, s);
        status = layer_check_stepped(run, status);
    }
    return status;
}

/* The steps that have a weight half of their own, in the order of the backward. */
static int weight_steps(const struct layer *layer, const struct bound_step *steps[STEPS_MAX])
{
    int count = 0;
    for (int i = layer->step_count - 1; i >= 0; i--)
        if (layer->steps[i].step->kind->weight && layer->steps[i].trains)
            steps[count++] = &layer->steps[i];
    return count;
}

/* What a step has to gather comes while the step before it is under work, if that one gathers
 * nothing itself: there is one place for gathered rows. */
static int weights_each(const struct layer_run *run)
{
    const struct bound_step *steps[STEPS_MAX];
    int count = weight_steps(run->layer, steps), status = LS_OK;
    bool begun = false;
    for (int i = 0; i < count && !status; i++) {
        const struct step_kind *kind = steps[i]->step->kind;
        const struct step_kind *next = i + 1 < count ? steps[i + 1]->step->kind : NULL;
        if (kind->weight_begin && !begun)
            status = kind->weight_begin(run, steps[i], run->gathering);
        begun = !kind->weight_begin && next && next->weight_begin;
        if (!status && begun)
            status = next->weight_begin(run, steps[i + 1], run->gathering);
        layer_check_step(run, steps[i], 0);
        if (!status)
            status = layer_check_stepped(run, kind->weight(run, steps[i]));
    }
    return status;
}

/* Kinds whose steps are taken together. */
static int weights_together(const struct layer_run *run)
{
    const struct layer *layer = run->layer;
    int status = LS_OK;
    for (int i = layer->step_count - 1; i >= 0 && !status; i--) {
        const struct step_kind *kind = layer->steps[i].step->kind;
        const struct bound_step *steps[STEPS_MAX];
        int count = 0;
        for (int k = layer->step_count - 1; k >= 0 && kind->weights; k--)
            if (layer->steps[k].step->kind == kind && layer->steps[k].trains)
                steps[count++] = &layer->steps[k];
        layer_check_step(run, &layer->steps[i], 0);
        if (count > 0 && steps[0] == &layer->steps[i])
            status = layer_check_stepped(run, kind->weights(run, steps, count));
    }
    return status;
}

static int weight_walk(const struct layer_run *run)
{
    int status = weights_each(run);
    return status ? status : weights_together(run);
}

int layer_walk(struct ls_model *model, struct ls_ops *ops, int index, enum phase phase,
               const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
               struct ls_error *error)
{
    struct rows rows = rows_of(model, batch);
    struct ls_request gathering = {0};
    struct walk_check check = {0};
    struct layer_run run = {.model = model,
                            .ops = ops,
                            .layer = &model->layers[index],
                            .phase = phase,
                            .batch = batch,
                            .gradient = gradient,
                            .rows = &rows,
                            .gathering = &gathering,
                            .check = &check,
                            .error = error};
    buffers_set(&run);
    layer_check_begin(&run);
    return layer_check_end(&run, phase <= PHASE_AGAIN   ? forward_walk(&run)
                                 : phase == PHASE_INPUT ? input_walk(&run)
                                                        : weight_walk(&run));
}
