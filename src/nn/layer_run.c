/* Runs a layer's program: its steps in their order, or from the last to the first. Watches its
 * buffers meanwhile (options.check): what is dead is poisoned, what lives has a red zone behind it,
 * and a step that asks for what is dead, or writes past the end, is named. Poison is of bytes 0xff:
 * not a number in every type that is computed in. */
#include "nn/model.h"

#include <stdio.h>

/* ---- lifetimes are checked ------------------------------------------------------------------- */

enum { POISON = 0xff, ZONE = 0x5c };

static bool watched(const struct layer_run *run)
{
    return run->layer->lives && run->check;
}

/* ---- names ----------------------------------------------------------------------------------- */

struct life_name {
    char text[96];
};

static bool within(const struct place *place, const struct place *list, int count, int *index)
{
    *index = (int)(place - list);
    return place >= list && place < list + count;
}

static struct life_name name_of(const struct layer *layer, const struct place *place)
{
    const struct value *values = layer->program->values;
    struct life_name out;
    int v;
    snprintf(out.text, sizeof out.text, "a step's buffer");
    if (within(place, layer->value, VALUES_MAX, &v))
        snprintf(out.text, sizeof out.text, "value %s", values[v].name);
    else if (within(place, layer->backward, VALUES_MAX, &v))
        snprintf(out.text, sizeof out.text, "value %s, made again", values[v].name);
    else if (within(place, layer->gradient, VALUES_MAX, &v))
        snprintf(out.text, sizeof out.text, "the gradient of %s", values[v].name);
    for (int i = 0; i < layer->step_count; i++) {
        const struct bound_step *s = &layer->steps[i];
        if (place == &s->own)
            snprintf(out.text, sizeof out.text, "what %s keeps", s->step->kind->name);
        if (place == &s->adapters)
            snprintf(out.text, sizeof out.text, "what adapters of %s keep", s->step->kind->name);
        if (place >= s->work && place < s->work + PHASES)
            snprintf(out.text, sizeof out.text, "what %s works in", s->step->kind->name);
    }
    return out;
}

static void blame(const struct layer_run *run, const struct place *place, const char *what)
{
    static const char *const walks[PHASES] = {"forward", "forward again", "backward, input",
                                              "backward, weights"};
    if (!run->check->failed)
        ls_error_set(run->error, LS_EINVAL, "memory.check: layer %d, step %s (%s): %s %s",
                     run->layer->index, run->check->step, walks[run->phase],
                     name_of(run->layer, place).text, what);
    run->check->failed = true;
}

/* ---- what lives ------------------------------------------------------------------------------ */

static bool alive(const struct layer_run *run, const struct life *life)
{
    return life->from <= run->check->time && run->check->time <= life->to;
}

static size_t zone_bytes(const struct place *place)
{
    return ((place->bytes + 63) & ~(size_t)63) - place->bytes + LAYER_ZONE;
}

/* What begins in (after, until]: nobody has written it yet. */
static void begin(const struct layer_run *run, int after, int until)
{
    for (int i = 0; i < run->layer->life_count; i++) {
        const struct life *life = &run->layer->lives[i];
        char *at = run_place(run, life->place);
        if (life->from <= after || life->from > until)
            continue;
        ls_fill(run->ops, life->place->bytes, POISON, at);
        ls_fill(run->ops, zone_bytes(life->place), ZONE, at + life->place->bytes);
    }
}

/* What ends in (after, until]. */
static void end(const struct layer_run *run, int after, int until)
{
    for (int i = 0; i < run->layer->life_count; i++) {
        const struct life *life = &run->layer->lives[i];
        if (life->to > after && life->to <= until)
            ls_fill(run->ops, life->place->bytes, POISON, run_place(run, life->place));
    }
}

static void zones_check(const struct layer_run *run)
{
    for (int i = 0; i < run->layer->life_count; i++) {
        const struct life *life = &run->layer->lives[i];
        const char *at = run_place(run, life->place);
        if (alive(run, life) &&
            !ls_filled(run->ops, zone_bytes(life->place), ZONE, at + life->place->bytes))
            blame(run, life->place, "was written past its end");
    }
}

/* ---- walks ----------------------------------------------------------------------------------- */

/* Around a walk, and around each of its steps; the last two return status, or what was found. */
static void check_begin(const struct layer_run *run)
{
    int n = run->layer->step_count, first = (int)run->phase * n;
    if (!watched(run))
        return;
    *run->check = (struct walk_check){.time = first, .ended = first - 1, .step = "none"};
    bool weights = run->phase == PHASE_WEIGHT; /* they are taken as one */
    begin(run, first - 1, weights ? first + n - 1 : first);
    if (weights)
        run->check->time = first + n - 1;
}

static void check_step(const struct layer_run *run, const struct bound_step *s, int time)
{
    if (!watched(run))
        return;
    run->check->step = s->step->kind->name;
    if (run->phase == PHASE_WEIGHT)
        return;
    begin(run, run->check->time, time);
    run->check->time = time;
}

static int check_stepped(const struct layer_run *run, int status)
{
    if (!watched(run) || status)
        return status;
    status = ls_queue_synchronise(&run->ops->queue, run->error);
    if (status)
        return status;
    zones_check(run);
    if (run->phase != PHASE_WEIGHT) {
        end(run, run->check->ended, run->check->time);
        run->check->ended = run->check->time;
    }
    return run->check->failed ? LS_EINVAL : LS_OK;
}

static int check_end(const struct layer_run *run, int status)
{
    int last = ((int)run->phase + 1) * run->layer->step_count - 1;
    if (watched(run) && !status)
        end(run, run->check->ended, last);
    return status;
}

/* A step asks for what lies there. */
static void check_use(const struct layer_run *run, const struct place *place)
{
    const struct layer *layer = run->layer;
    int v;
    if (!watched(run) || place->room == ROOM_NONE || place->room == ROOM_PASS)
        return; /* a stream that passes lies outside of the layer */
    /* The backward reads what is kept where the forward made it. */
    if (within(place, layer->backward, VALUES_MAX, &v) && place->room == ROOM_KEPT)
        place = &layer->value[v];
    for (int i = 0; i < layer->life_count; i++)
        if (layer->lives[i].place == place && alive(run, &layer->lives[i]))
            return;
    blame(run, place, "is read or written when it does not live");
}

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

void *layer_output(const struct ls_model *model, int index, int slot)
{
    return output_in(model, index, PHASE_FORWARD, slot);
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
        check_use(run, &values[v]);
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
    check_use(run, &run->layer->gradient[whose]);
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
    check_use(run, &s->own);
    return run_place(run, &s->own);
}

void *run_adapters(const struct layer_run *run, const struct bound_step *s)
{
    check_use(run, &s->adapters);
    return run_place(run, &s->adapters);
}

struct ls_arena run_work(const struct layer_run *run, const struct bound_step *s)
{
    const struct place *place = &s->work[run->phase];
    check_use(run, place);
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
            check_step(run, s, layer_time(run->layer, run->phase, i));
            status = check_stepped(run, (decodes ? kind->decode : kind->forward)(run, s));
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
        check_step(run, s, layer_time(run->layer, PHASE_INPUT, i));
        if (s->step->kind->input)
            status = s->step->kind->input(run, s);
        if (s->joins && !status)
            residual_join(run, s);
        status = check_stepped(run, status);
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
        check_step(run, steps[i], 0);
        if (!status)
            status = check_stepped(run, kind->weight(run, steps[i]));
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
        check_step(run, &layer->steps[i], 0);
        if (count > 0 && steps[0] == &layer->steps[i])
            status = check_stepped(run, kind->weights(run, steps, count));
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
    struct layer_run run = {.model = model,
                            .ops = ops,
                            .layer = &model->layers[index],
                            .phase = phase,
                            .batch = batch,
                            .gradient = gradient,
                            .rows = &rows,
                            .gathering = &gathering,
                            .error = error};
    struct walk_check check = {0};
    run.check = &check;
    buffers_set(&run);
    check_begin(&run);
    return check_end(&run, phase <= PHASE_AGAIN   ? forward_walk(&run)
                           : phase == PHASE_INPUT ? input_walk(&run)
                                                  : weight_walk(&run));
}
