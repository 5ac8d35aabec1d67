/* Watches a layer's buffers while it runs (options.check): what is dead is poisoned, what lives has
 * a red zone behind it, and a step that asks for what is dead, or writes past the end, is named.
 * Poison is of bytes 0xff: not a number in every type that is computed in. */
#include "nn/model.h"

#include <stdio.h>

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

void check_begin(const struct layer_run *run)
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

void check_step(const struct layer_run *run, const struct bound_step *s, int time)
{
    if (!watched(run))
        return;
    run->check->step = s->step->kind->name;
    if (run->phase == PHASE_WEIGHT)
        return;
    begin(run, run->check->time, time);
    run->check->time = time;
}

int check_stepped(const struct layer_run *run, int status)
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

int check_end(const struct layer_run *run, int status)
{
    int last = ((int)run->phase + 1) * run->layer->step_count - 1;
    if (watched(run) && !status)
        end(run, run->check->ended, last);
    return status;
}

void check_use(const struct layer_run *run, const struct place *place)
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
