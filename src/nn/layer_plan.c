/* Where a layer's values and gradients lie. Each has a lifetime over the walks of a layer: the
 * forward, the part of it that is made again, the input half and the weight half. What lives on
 * between forward and backward has a place of its own in each slot; the rest share one work area,
 * in which only those lie side by side that live at the same time. */
#include "nn/model.h"

#include <stdlib.h>
#include <string.h>

enum { ITEMS_MAX = 2 * VALUES_MAX + (PHASES + 2) * STEPS_MAX };

/* A buffer, and when it lives: [from, to] on the layer's clock (see layer_time). */
struct item {
    struct place *place;
    int from, to;
};

struct planner {
    const struct ls_model *model;
    struct layer *layer;
    bool split;
    enum ls_recompute policy;
    int input_last[VALUES_MAX]; /* last time an input half reads the value, -1: none does */
    bool weight_reads[VALUES_MAX];
    bool again[VALUES_MAX]; /* made again in front of the backward */
    int gradient_from[VALUES_MAX], gradient_to[VALUES_MAX];
    bool gradient_held[VALUES_MAX]; /* a weight half reads it */
    struct item work[2][ITEMS_MAX], segment[ITEMS_MAX];
    int work_count[2], segment_count;
};

/* ---- the layer's clock ----------------------------------------------------------------------- */

/* When step i runs in a walk. */
int layer_time(const struct layer *layer, enum phase phase, int i)
{
    int n = layer->step_count;
    return (int)phase * n + (phase < PHASE_INPUT ? i : n - 1 - i);
}

/* The weight half reads until it ends. */
static int end_of(const struct layer *layer)
{
    return PHASES * layer->step_count - 1;
}

/* ---- places ---------------------------------------------------------------------------------- */

static size_t value_bytes(const struct ls_model *model, const struct value *value)
{
    int64_t rows = value->rows == ROWS_STREAM ? model->stream_max : model->rows_max;
    size_t element = value->f32 ? sizeof(float) : model_act_bytes(model);
    return (size_t)(rows * size_held(model, value->size)) * element;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* What a place takes, with the zone behind it where the model is checked. */
static size_t room_of(const struct planner *p, size_t bytes)
{
    return aligned(bytes) + (p->model->options.check ? LAYER_ZONE : 0);
}

static void life_add(struct planner *p, const struct place *place, int from, int to)
{
    struct layer *layer = p->layer;
    if (!layer->lives)
        return;
    LS_ASSERT(layer->life_count < LIVES_MAX);
    layer->lives[layer->life_count++] = (struct life){place, from, to};
}

/* In a slot, from then to the end of the backward. */
static void slot_add(struct planner *p, struct place *place, enum room room, size_t bytes, int from)
{
    size_t *used = room == ROOM_KEPT ? &p->layer->kept_bytes : &p->layer->held_bytes;
    *place = (struct place){room, *used, bytes};
    *used += room_of(p, bytes);
    life_add(p, place, from, end_of(p->layer));
}

static void work_add(struct planner *p, struct place *place, size_t bytes, int from, int to)
{
    int rest = from >= p->layer->step_count;
    *place = (struct place){.room = ROOM_WORK, .bytes = bytes};
    LS_ASSERT(p->work_count[rest] < ITEMS_MAX);
    p->work[rest][p->work_count[rest]++] = (struct item){place, from, to};
    life_add(p, place, from, to);
}

static void segment_add(struct planner *p, struct place *place, size_t bytes, int from, int to)
{
    *place = (struct place){.room = ROOM_SEGMENT, .bytes = bytes};
    LS_ASSERT(p->segment_count < ITEMS_MAX);
    p->segment[p->segment_count++] = (struct item){place, from, to};
    life_add(p, place, from, to);
}

static int by_bytes(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->place->bytes != y->place->bytes)
        return x->place->bytes > y->place->bytes ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* The lowest offset at which item meets none of those placed before it. */
static size_t offset_of(const struct planner *p, const struct item *items, int placed,
                        const struct item *item)
{
    size_t offset = 0, room = room_of(p, item->place->bytes);
    for (int i = 0; i < placed;) {
        const struct place *other = items[i].place;
        bool apart = items[i].to < item->from || item->to < items[i].from ||
                     offset + room <= other->offset ||
                     other->offset + room_of(p, other->bytes) <= offset;
        if (apart) {
            i++;
        } else {
            offset = other->offset + room_of(p, other->bytes);
            i = 0;
        }
    }
    return offset;
}

/* Gives each item its offset, the largest first (greedy by size: Pisarchyk, Lee 2020, "Efficient
 * memory management for deep neural net inference"). Returns the bytes of all. */
static size_t items_place(const struct planner *p, struct item *items, int count)
{
    size_t end = 0;
    qsort(items, (size_t)count, sizeof *items, by_bytes);
    for (int i = 0; i < count; i++) {
        struct place *place = items[i].place;
        place->offset = offset_of(p, items, i, &items[i]);
        size_t last = place->offset + room_of(p, place->bytes);
        end = last > end ? last : end;
    }
    return end;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The values by READS_ bits: in[0], in[1], out[0] .. out[3]. */
static int value_by_bit(const struct step *step, int bit)
{
    return bit < 2 ? step->in[bit] : step->out[bit - 2];
}

static void reads_find(struct planner *p)
{
    struct layer *layer = p->layer;
    for (int v = 0; v < layer->value_count; v++)
        p->input_last[v] = -1;
    for (int i = 0; i < layer->step_count; i++) {
        const struct step *step = layer->steps[i].step;
        for (int bit = 0; bit < 6; bit++) {
            int v = value_by_bit(step, bit), time = layer_time(layer, PHASE_INPUT, i);
            unsigned adapters = layer->steps[i].adapted ? READS_IN0 : 0;
            if ((step->kind->input_reads | adapters) & 1u << bit)
                p->input_last[v] = (int)ls_max(p->input_last[v], time);
            if (step->kind->weight_reads & 1u << bit && layer->steps[i].trains)
                p->weight_reads[v] = true;
        }
    }
}

static bool backward_reads(const struct planner *p, int v)
{
    return p->input_last[v] >= 0 || p->weight_reads[v];
}

static bool is_output(const struct planner *p, int v)
{
    return p->layer->index <= p->model->config.layers && v == p->layer->value_count - 1;
}

static bool is_kept(const struct planner *p, int v)
{
    bool up =
        p->policy == LS_RECOMPUTE_NONE || (p->policy == LS_RECOMPUTE_SELECTIVE &&
                                           p->layer->program->values[v].again != AGAIN_SELECTIVE);
    return p->model->options.training && backward_reads(p, v) && up;
}

static bool step_makes(const struct step *step, int v)
{
    for (int i = 0; i < step->kind->outs; i++)
        if (step->out[i] == v && v > 0)
            return true;
    return false;
}

static bool step_takes(const struct step *step, int v)
{
    for (int i = 0; i < step->kind->ins; i++)
        if (step->in[i] == v && (i == 0 || v > 0))
            return true;
    return false;
}

/* When the value is made and last used in one of the two forward walks. */
static void forward_life(const struct planner *p, enum phase phase, int v, int *from, int *to)
{
    const struct layer *layer = p->layer;
    *from = *to = -1;
    for (int i = 0; i < layer->step_count; i++) {
        const struct bound_step *s = &layer->steps[i];
        bool runs = phase == PHASE_FORWARD || s->again,
             restarts = phase == PHASE_AGAIN && s->restart;
        int time = layer_time(layer, phase, i);
        if (!runs)
            continue;
        if (step_makes(s->step, v) && *from < 0)
            *from = time;
        if (step_makes(s->step, v) || (step_takes(s->step, v) && !restarts))
            *to = time;
    }
}

static void values_place(struct planner *p)
{
    struct layer *layer = p->layer;
    for (int v = 1; v < layer->value_count; v++) {
        const struct value *value = &layer->program->values[v];
        size_t bytes = value_bytes(p->model, value);
        struct place *place = &layer->value[v];
        int from, to;
        if (is_output(p, v) ? layer->output_kept : is_kept(p, v)) {
            slot_add(p, place, ROOM_KEPT, bytes, 0);
        } else if (is_output(p, v)) {
            *place = (struct place){.room = ROOM_PASS, .bytes = bytes};
        } else {
            forward_life(p, PHASE_FORWARD, v, &from, &to);
            work_add(p, place, bytes, from, to);
        }
        layer->backward[v] = *place;
    }
}

/* ---- what is made again ---------------------------------------------------------------------- */

static void again_find(struct planner *p)
{
    struct layer *layer = p->layer;
    for (int v = 1; v < layer->value_count; v++)
        p->again[v] =
            is_output(p, v) ? !layer->segment_last : backward_reads(p, v) && !is_kept(p, v);
    for (int i = layer->step_count - 1; i >= 0; i--) {
        struct bound_step *s = &layer->steps[i];
        for (int v = 1; v < layer->value_count; v++)
            s->again |= p->again[v] && step_makes(s->step, v);
        s->restart = s->step->kind->restarts && !p->again[s->step->out[3]];
        /* What runs again makes all that it makes, whoever reads it. */
        for (int v = 1; v < layer->value_count && s->again; v++)
            p->again[v] |=
                step_makes(s->step, v) && !is_kept(p, v) && !(s->restart && v == s->step->out[3]);
        for (int v = 1; v < layer->value_count && s->again && !s->restart; v++)
            p->again[v] |= step_takes(s->step, v) && !is_kept(p, v);
    }
}

static void again_place(struct planner *p)
{
    struct layer *layer = p->layer;
    for (int v = 1; v < layer->value_count; v++) {
        struct place *place = &layer->backward[v];
        size_t bytes = layer->value[v].bytes;
        int from, to;
        if (!p->again[v])
            continue;
        forward_life(p, PHASE_AGAIN, v, &from, &to);
        bool output = is_output(p, v); /* which the next layer of the segment reads */
        if (p->split && (p->weight_reads[v] || output)) {
            slot_add(p, place, ROOM_HELD, bytes, layer_time(layer, PHASE_AGAIN, 0));
            continue;
        }
        to = (int)ls_max(to, p->weight_reads[v] ? end_of(layer) : p->input_last[v]);
        if (output)
            segment_add(p, place, bytes, from,
                        layer_time(layer, PHASE_INPUT, layer->step_count - 1));
        else if (backward_reads(p, v))
            segment_add(p, place, bytes, from, to);
        else
            work_add(p, place, bytes, from, to);
    }
}

/* The share that is kept, and all rows, which are gathered when the layer is run again. */
static void input_place(struct planner *p)
{
    const struct ls_model *model = p->model;
    struct layer *layer = p->layer;
    size_t bytes = value_bytes(model, &layer->program->values[0]);
    if (!layer->input_cut)
        return;
    slot_add(p, &layer->value[0], ROOM_KEPT, bytes / (size_t)model->tp.size, 0);
    if (p->split)
        slot_add(p, &layer->backward[0], ROOM_HELD, bytes, layer_time(layer, PHASE_AGAIN, 0));
    else
        segment_add(p, &layer->backward[0], bytes, layer_time(layer, PHASE_AGAIN, 0),
                    end_of(layer));
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The gradient is read at that time; whose is no value, lies outside. */
static void gradient_read(struct planner *p, int whose, int time)
{
    if (whose >= 0)
        p->gradient_to[whose] = (int)ls_max(p->gradient_to[whose], time);
}

static int gradient_new(struct planner *p, int v, int time)
{
    if (v == 0)
        return GRADIENT_BELOW;
    p->gradient_from[v] = p->gradient_to[v] = time;
    return v;
}

/* Where out[0]'s gradient, in place or anew, becomes in[0]'s. */
static enum flow flow_of(const struct planner *p, const struct step *step)
{
    const struct value *values = p->layer->program->values;
    enum flow flow = step->kind->flow;
    bool fits =
        value_bytes(p->model, &values[step->in[0]]) == value_bytes(p->model, &values[step->out[0]]);
    return flow == FLOW_IN_PLACE && !fits ? FLOW_NEW : flow;
}

/* From the input half at that time to the end of the weight half. */
static void halves_add(struct planner *p, struct place *place, size_t bytes, int time)
{
    if (bytes > 0 && p->split)
        slot_add(p, place, ROOM_HELD, bytes, PHASE_INPUT * p->layer->step_count);
    else if (bytes > 0)
        work_add(p, place, bytes, time, end_of(p->layer));
}

/* One step of the input half: whose gradients it reads and makes. of[v]: whose gradient is v's. */
static void gradient_flow(struct planner *p, struct bound_step *s, int time, int of[VALUES_MAX])
{
    const struct step *step = s->step;
    s->dy = of[step->out[0]];
    s->residual = s->dx = GRADIENT_NONE;
    switch (flow_of(p, step)) {
    case FLOW_NONE:
        break;
    case FLOW_NEW:
        s->residual = of[step->in[0]];
        s->dx = gradient_new(p, step->in[0], time);
        s->joins = s->residual != GRADIENT_NONE;
        break;
    case FLOW_IN_PLACE:
    case FLOW_THROUGH:
        s->dx = s->dy;
        break;
    case FLOW_JOIN:
        s->residual = of[step->out[3]];
        s->dx = gradient_new(p, step->out[3], time);
        break;
    case FLOW_FORWARD:
        s->dx = step->in[0];
        slot_add(p, &p->layer->gradient[s->dx], ROOM_KEPT,
                 value_bytes(p->model, &p->layer->program->values[s->dx]), 0);
        break;
    }
    for (int i = 0; i < step->kind->ins; i++)
        if (i == 0 || step->in[i] > 0)
            of[step->in[i]] = s->dx;
    gradient_read(p, s->dy, time);
    gradient_read(p, s->residual, time);
    halves_add(p, &s->own, s->step->kind->own ? s->step->kind->own(p->model, s) : 0, time);
    halves_add(p, &s->adapters, lora_kept(p->model, s), time);
    bool weights = (step->kind->weight || step->kind->weights) && s->trains;
    if (weights && s->own.room == ROOM_NONE) {
        LS_ASSERT(!p->split || s->dy != GRADIENT_ABOVE);
        gradient_read(p, s->dy, end_of(p->layer));
        if (s->dy >= 0)
            p->gradient_held[s->dy] = true;
    }
}

static void gradients_place(struct planner *p)
{
    struct layer *layer = p->layer;
    int of[VALUES_MAX];
    for (int v = 0; v < VALUES_MAX; v++) {
        p->gradient_from[v] = -1;
        of[v] = is_output(p, v) ? GRADIENT_ABOVE : GRADIENT_NONE;
    }
    for (int i = layer->step_count - 1; i >= 0; i--)
        gradient_flow(p, &layer->steps[i], layer_time(layer, PHASE_INPUT, i), of);
    for (int v = 1; v < layer->value_count; v++) {
        size_t bytes = value_bytes(p->model, &layer->program->values[v]);
        if (p->gradient_from[v] < 0)
            continue;
        if (p->split && p->gradient_held[v])
            slot_add(p, &layer->gradient[v], ROOM_HELD, bytes, PHASE_INPUT * layer->step_count);
        else
            work_add(p, &layer->gradient[v], bytes, p->gradient_from[v], p->gradient_to[v]);
    }
}

/* ---- what steps work in ---------------------------------------------------------------------- */

static size_t work_bytes(const struct planner *p, const struct bound_step *s, enum phase phase)
{
    struct ls_arena arena;
    ls_arena_measure(&arena);
    if (s->step->kind->work)
        s->step->kind->work(p->model, s, phase, &arena);
    return arena.peak;
}

/* Whether another step of the same kind comes behind it: those halves are run as one, in the last
 * one's buffers. */
static bool shares_weights(const struct layer *layer, int i)
{
    const struct step_kind *kind = layer->steps[i].step->kind;
    for (int k = i + 1; k < layer->step_count && kind->weights; k++)
        if (layer->steps[k].step->kind == kind && layer->steps[k].trains)
            return true;
    return false;
}

static void work_place(struct planner *p)
{
    struct layer *layer = p->layer;
    int phases = p->model->options.training ? PHASES : 1;
    for (int i = 0; i < layer->step_count; i++)
        for (int phase = 0; phase < phases; phase++) {
            struct bound_step *s = &layer->steps[i];
            if ((phase == PHASE_AGAIN && !s->again) ||
                (phase == PHASE_WEIGHT && (!s->trains || shares_weights(layer, i))))
                continue;
            size_t bytes = work_bytes(p, s, (enum phase)phase);
            int time = layer_time(layer, (enum phase)phase, i);
            bool weight = phase == PHASE_WEIGHT; /* what it reads is gathered ahead */
            if (bytes > 0)
                work_add(p, &s->work[phase], bytes,
                         weight ? PHASE_WEIGHT * layer->step_count : time,
                         weight ? end_of(layer) : time);
        }
}

/* ---- a layer --------------------------------------------------------------------------------- */

static const struct ls_param *param_of_role(const struct ls_model *model, const struct layer *layer,
                                            const char *role)
{
    const struct parameter *parameter = layer->program->parameters;
    for (; role && parameter->role; parameter++)
        if (!strcmp(parameter->role, role) && parameter_present(parameter, &model->config))
            return parameter_find(model->options.params, &model->config, layer->index, parameter);
    return NULL;
}

/* What the step's parameters are to it. */
static void parameters_bind(const struct ls_model *model, const struct layer *layer,
                            struct bound_step *s)
{
    const struct step *step = s->step;
    s->weight = param_of_role(model, layer, step->weight);
    s->bias = param_of_role(model, layer, step->bias);
    s->trains = (s->weight && s->weight->gradient.region >= 0) ||
                (s->bias && s->bias->gradient.region >= 0);
    for (const struct parameter *p = layer->program->parameters; step->weight && p->role; p++)
        s->stacked += !strcmp(p->role, step->weight) && parameter_present(p, &model->config);
    bool linear = step->kind == &step_column || step->kind == &step_row;
    for (int i = 0; linear && s->weight && i < s->stacked; i++)
        s->adapted |= s->weight[i].lora_a > 0;
    s->trains |= s->adapted;
}

static void steps_bind(const struct ls_model *model, struct layer *layer)
{
    layer->step_count = program_steps(layer->program);
    layer->value_count = program_values(layer->program);
    for (int i = 0; i < layer->step_count; i++) {
        const struct step *step = &layer->program->steps[i];
        layer->steps[i] = (struct bound_step){.step = step, .program = layer->program};
        parameters_bind(model, layer, &layer->steps[i]);
    }
}

static enum ls_recompute policy_of(const struct ls_model *model, int64_t layer)
{
    if (!model->options.recompute || !model->options.training || layer < 1 ||
        layer > model->config.layers || !model_held(model, layer))
        return LS_RECOMPUTE_NONE;
    enum ls_recompute policy = (enum ls_recompute)model->options.recompute[layer];
    bool start = model_chunk_first(model, layer) || !model_held(model, layer - 1);
    return policy == LS_RECOMPUTE_JOIN && start ? LS_RECOMPUTE_FULL : policy;
}

/* Whether layer's input is the output of the layer below, made again with it. */
static bool joins(const struct ls_model *model, int64_t layer)
{
    return policy_of(model, layer) == LS_RECOMPUTE_JOIN;
}

/* Whether layer keeps a share of its input in place of the output of the layer below. */
static bool cuts_input(const struct ls_model *model, int64_t layer)
{
    bool whole = model->tp.size > 1 && !model->tp.sequence; /* all ranks have all rows */
    return model->options.partition_activations && whole &&
           policy_of(model, layer) == LS_RECOMPUTE_FULL && !model_chunk_first(model, layer) &&
           model_held(model, layer - 1);
}

static void segment_set(const struct ls_model *model, struct layer *layer)
{
    layer->segment_first = layer->index;
    while (joins(model, layer->segment_first))
        layer->segment_first--;
    layer->segment_last = !joins(model, layer->index + 1);
    layer->input_cut = cuts_input(model, layer->index);
    bool wanted = layer->segment_last && !cuts_input(model, layer->index + 1);
    layer->output_kept = model->options.training ? wanted : model_chunk_last(model, layer->index);
}

void layer_plan(const struct ls_model *model, int index, struct layer *layer)
{
    struct planner p = {.model = model, .layer = layer, .split = model->options.split_backward};
    layer->program = program_of(&model->config, index);
    layer->index = index;
    steps_bind(model, layer);
    segment_set(model, layer);
    p.policy = policy_of(model, index);
    layer->recomputed = p.policy != LS_RECOMPUTE_NONE;
    reads_find(&p);
    values_place(&p);
    if (model->options.training) {
        input_place(&p);
        if (layer->recomputed) {
            again_find(&p);
            again_place(&p);
        }
        gradients_place(&p);
    }
    work_place(&p);
    layer->segment_bytes = items_place(&p, p.segment, p.segment_count);
    for (int i = 0; i < 2; i++)
        layer->work_bytes[i] = items_place(&p, p.work[i], p.work_count[i]);
}
