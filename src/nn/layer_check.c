/* Tells a queue in the mode check (lockstep/device/check.h) which of a layer's buffers live while a
 * walk goes over its steps, and which step is under work. */
#include "nn/model.h"

#include <lockstep/device/check.h>

#include <stdio.h>

_Static_assert((int)LIVES_MAX <= (int)LS_CHECK_BUFFERS, "a layer's lives are buffers");

static struct ls_check *check_of(const struct layer_run *run)
{
    return run->layer->lives ? run->ops->queue.check : NULL;
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool within(const struct place *place, const struct place *values, int *index)
{
    *index = (int)(place - values);
    return place >= values && place < values + VALUES_MAX;
}

static void place_name(const void *of, const void *what, char name[LS_CHECK_TEXT])
{
    const struct layer *layer = of;
    const struct place *place = what;
    const struct value *values = layer->program->values;
    int v;
    snprintf(name, LS_CHECK_TEXT, "a step's buffer");
    if (within(place, layer->value, &v))
        snprintf(name, LS_CHECK_TEXT, "value %s", values[v].name);
    else if (within(place, layer->backward, &v))
        snprintf(name, LS_CHECK_TEXT, "value %s, made again", values[v].name);
    else if (within(place, layer->gradient, &v))
        snprintf(name, LS_CHECK_TEXT, "the gradient of %s", values[v].name);
    for (int i = 0; i < layer->step_count; i++) {
        const struct bound_step *s = &layer->steps[i];
        if (place == &s->own)
            snprintf(name, LS_CHECK_TEXT, "what %s keeps", s->step->kind->name);
        if (place == &s->adapters)
            snprintf(name, LS_CHECK_TEXT, "what adapters of %s keep", s->step->kind->name);
        if (place >= s->work && place < s->work + PHASES)
            snprintf(name, LS_CHECK_TEXT, "what %s works in", s->step->kind->name);
    }
}

/* ---- lives ----------------------------------------------------------------------------------- */

static void where_set(const struct layer_run *run, const char *step)
{
    static const char *const walks[PHASES] = {"forward", "forward again", "backward, input",
                                              "backward, weights"};
    struct ls_check *check = check_of(run);
    snprintf(check->where, sizeof check->where, "memory.check: layer %d, step %s (%s)",
             run->layer->index, step, walks[run->phase]);
}

/* Those that began before the walk, and live at a time of it. */
static void lives_list(const struct layer_run *run, int first, int time)
{
    ls_check_list(check_of(run), place_name, run->layer);
    for (int i = 0; i < run->layer->life_count; i++) {
        const struct life *life = &run->layer->lives[i];
        size_t zone = ((life->place->bytes + 63) & ~(size_t)63) - life->place->bytes + LAYER_ZONE;
        ls_check_add(check_of(run), run_place(run, life->place), life->place->bytes, zone,
                     life->from < first && life->to >= time, life->place);
    }
}

/* What begins in (time, then] and lives then: nobody has written it yet. */
static void lives_begin(const struct layer_run *run, int then)
{
    for (int i = 0; i < run->layer->life_count; i++) {
        const struct life *life = &run->layer->lives[i];
        if (life->from > run->check->time && life->from <= then && then <= life->to)
            (void)ls_check_begin(&run->ops->queue, i, run->error);
    }
    run->check->time = then;
}

/* What ends in (ended, then]. */
static void lives_end(const struct layer_run *run, int then)
{
    for (int i = 0; i < run->layer->life_count; i++) {
        const struct life *life = &run->layer->lives[i];
        if (life->to > run->check->ended && life->to <= then)
            (void)ls_check_end(&run->ops->queue, i, run->error);
    }
    run->check->ended = then;
}

/* ---- walks ----------------------------------------------------------------------------------- */

void layer_check_begin(const struct layer_run *run)
{
    int count = run->layer->step_count, first = (int)run->phase * count;
    /* Weight halves are taken as one. */
    int time = run->phase == PHASE_WEIGHT ? first + count - 1 : first;
    if (!check_of(run))
        return;
    *run->check = (struct walk_check){.time = first - 1, .ended = first - 1};
    where_set(run, "none");
    lives_list(run, first, time);
    lives_begin(run, time);
}

void layer_check_step(const struct layer_run *run, const struct bound_step *s, int time)
{
    if (!check_of(run))
        return;
    where_set(run, s->step->kind->name);
    if (run->phase != PHASE_WEIGHT)
        lives_begin(run, time);
}

int layer_check_stepped(const struct layer_run *run, int status)
{
    if (status || !check_of(run))
        return status;
    status = ls_check_look(&run->ops->queue, run->error);
    if (!status && run->phase != PHASE_WEIGHT)
        lives_end(run, run->check->time);
    return status;
}

int layer_check_end(const struct layer_run *run, int status)
{
    int last = ((int)run->phase + 1) * run->layer->step_count - 1;
    if (!check_of(run))
        return status;
    if (!status)
        lives_end(run, last);
    ls_check_list(check_of(run), NULL, NULL);
    return status;
}

void layer_check_use(const struct layer_run *run, const struct place *place)
{
    const struct layer *layer = run->layer;
    int v;
    if (!check_of(run) || place->room == ROOM_NONE || place->room == ROOM_PASS)
        return; /* a stream that passes lies outside of the layer */
    /* The backward reads what is kept where the forward made it. */
    if (within(place, layer->backward, &v) && place->room == ROOM_KEPT)
        place = &layer->value[v];
    ls_check_use(check_of(run), place);
}
