/* When a rank's memory is in use: its actions in the order of the schedule, layer by layer. Sizes
 * and lifetimes are those of the buffers that were measured. */
#include "train/stage.h"

#include <stdlib.h>
#include <string.h>

const char *ls_memory_phase_name(enum ls_memory_phase phase)
{
    static const char *const names[LS_MEMORY_PHASES] = {
        "forward", "forward again", "backward, input", "backward, weights", "update"};
    return names[phase];
}

struct timeline {
    const struct ls_layout *layout;
    const struct measured_memory *measured;
    const struct ls_schedule *schedule;
    const struct ls_pipeline *pipeline;
    struct ls_dp_share share;
    int64_t micro_batches;
    ls_memory_visit *visit;
    void *user;
    struct ls_error *error;

    struct ls_memory_moment now;
    int64_t *received; /* [actions + 1]: how many more boundary tensors are held from action i on */
    int64_t held, sent;
    bool *gathered; /* [units] */
    size_t transit; /* of the region that was reduced last */
    bool large;     /* it was a large one */
};

/* ---- a moment -------------------------------------------------------------------------------- */

static void unit_gather(struct timeline *t, int layer, bool first, size_t *bytes)
{
    int units[2];
    for (int i = 0, count = stage_units_of(&t->measured->params, layer, units); i < count; i++)
        if (!t->gathered[units[i]]) {
            t->gathered[units[i]] = true;
            *bytes +=
                ls_zero_unit_bytes(ls_state_zero(t->measured->units, units[i]), units[i], first);
        }
}

/* Units that layer reads (own), and those gathered ahead of the layers up to last. */
static size_t gathers(struct timeline *t, int layer, int last, bool own)
{
    bool first = t->now.phase == LS_MEMORY_FORWARD && t->now.action.micro_batch == 0;
    int by = last < layer ? -1 : 1;
    size_t bytes = 0;
    memset(t->gathered, 0, (size_t)t->measured->params.unit_count * sizeof *t->gathered);
    if (own)
        unit_gather(t, layer, first, &bytes);
    for (int64_t i = 0; i < t->layout->prefetch && layer != last; i++)
        unit_gather(t, layer += by, first, &bytes);
    return bytes;
}

static int moment(struct timeline *t, size_t work, size_t transit)
{
    struct ls_memory_moment *now = &t->now;
    int64_t room = ls_pipeline_gradient_sends(t->schedule);
    size_t boundaries = (size_t)(t->held + ls_min(t->sent, room));
    now->bytes[LS_MEMORY_WORKSPACE] = ls_model_table_bytes(t->measured->memory.model) + work;
    now->bytes[LS_MEMORY_COMMUNICATION] = boundaries * ls_pipeline_boundary_bytes(t->pipeline) +
                                          transit + t->measured->memory.exchange.bytes;
    now->all = 0;
    for (int kind = 0; kind < LS_MEMORY_KINDS; kind++)
        now->all += now->bytes[kind];
    return t->visit(t->user, now, t->error);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* A moment at which a micro-batch's gradient of the region is made; -1: of none. The sum is there
 * from the first leaf on, a leaf that lasts several micro-batches from its first to its last. */
static int gradient_moment(struct timeline *t, int region, size_t work, size_t transit)
{
    if (region < 0)
        return moment(t, work, transit);
    struct ls_dp_micro micro = ls_dp_micro_batch(&t->share, t->now.action.micro_batch);
    struct ls_zero_region_bytes bytes;
    ls_zero_region_bytes(ls_state_region_zero(t->measured->units, region), region, &micro, &bytes);
    size_t *gradients = &t->now.bytes[LS_MEMORY_GRADIENTS];
    if (micro.m == 0)
        *gradients += bytes.sum;
    if (bytes.begins)
        *gradients += bytes.leaf;
    size_t before = bytes.large && t->large ? 0 : t->transit;
    int status = moment(t, work, transit + before + bytes.transit);
    t->transit = bytes.transit;
    t->large = bytes.large;
    if (bytes.ends)
        *gradients -= bytes.leaf;
    return status;
}

/* ---- actions --------------------------------------------------------------------------------- */

static struct ls_layer_bytes bytes_of(const struct timeline *t, int layer)
{
    struct ls_layer_bytes bytes;
    ls_model_layer_bytes(t->measured->memory.model, layer, &bytes);
    return bytes;
}

static int forward(struct timeline *t, const struct train_chunk *layers)
{
    int status = LS_OK, head = (int)t->layout->model.layers + 1;
    t->now.phase = LS_MEMORY_FORWARD;
    for (int layer = layers->first; layer < layers->end && !status; layer++) {
        struct ls_layer_bytes bytes = bytes_of(t, layer);
        t->now.layer = layer;
        t->now.bytes[LS_MEMORY_ACTIVATIONS] += bytes.kept;
        status = gradient_moment(t, layer == head ? t->measured->params.head_region : -1,
                                 bytes.forward, gathers(t, layer, layers->end - 1, true));
    }
    return status;
}

/* What the layers [first, last] gave up is made again; *again: bytes of it that are in use. lowest:
 * where the backward ends. */
static int make_again(struct timeline *t, int first, int last, int lowest, size_t *again)
{
    int status = LS_OK;
    t->now.phase = LS_MEMORY_AGAIN;
    for (int layer = first; layer <= last && !status; layer++) {
        struct ls_layer_bytes bytes = bytes_of(t, layer);
        *again += bytes.again;
        t->now.layer = layer;
        status = moment(t, bytes.backward + *again,
                        gathers(t, layer, layer < last ? last : lowest, true));
    }
    return status;
}

static int backward(struct timeline *t, const struct train_chunk *layers, bool input, bool weight)
{
    const struct ls_model *model = t->measured->memory.model;
    size_t again = 0, *kept = &t->now.bytes[LS_MEMORY_ACTIVATIONS];
    int status = LS_OK, lowest = (int)ls_max(layers->first, t->measured->part.lowest);
    int last = (int)ls_max(lowest, 1);
    for (int layer = layers->end - 1; layer >= layers->first && !status; layer--) {
        struct ls_layer_bytes bytes = bytes_of(t, layer);
        bool reads = input && layer > 0;
        int first = ls_layer_again_first(model, layer);
        if (layer < lowest) {
            *kept -= weight ? bytes.kept : 0;
            continue;
        }
        if (input && first <= layer)
            status = make_again(t, first, layer, last, &again);
        t->now.layer = layer;
        if (input && !status) {
            t->now.phase = LS_MEMORY_INPUT;
            *kept += bytes.held;
            status = moment(t, bytes.backward + again, reads ? gathers(t, layer, last, true) : 0);
        }
        if (weight && !status) {
            t->now.phase = LS_MEMORY_WEIGHT;
            status =
                gradient_moment(t, ls_params_region(&t->measured->params, layer),
                                bytes.backward + again, reads ? gathers(t, layer, last, false) : 0);
            *kept -= bytes.kept + bytes.held;
        }
        again -= input ? bytes.again : 0;
    }
    return status;
}

static int action(struct timeline *t, struct ls_action what)
{
    int chunk = t->schedule->stage_chunk[what.stage];
    const struct train_chunk *layers = &t->measured->part.chunks[chunk];
    t->now.action = what;
    t->held += t->received[t->now.index];
    if (what.kind == LS_ACTION_F)
        return forward(t, layers);
    int status = backward(t, layers, what.kind != LS_ACTION_W, what.kind != LS_ACTION_I);
    bool elsewhere = what.stage > 0 &&
                     t->schedule->stage_rank[what.stage - 1] != t->schedule->stage_rank[what.stage];
    t->sent += elsewhere && what.kind != LS_ACTION_W;
    return status;
}

/* ---- what pipelines receive ------------------------------------------------------------------ */

/* From one action ahead of the one that reads it to the end of the micro-batch's backward (enum
 * ls_slot_kind). */
static int received_find(struct timeline *t, const struct ls_action *actions, int64_t count)
{
    enum { F, BEGIN, END, TIMES };
    const struct ls_schedule *schedule = t->schedule;
    size_t cells = (size_t)(schedule->chunks * t->micro_batches);
    int64_t(*when)[TIMES] = calloc(cells, sizeof *when);
    t->received = calloc((size_t)count + 1, sizeof *t->received);
    if (!when || !t->received) {
        free(when);
        return ls_no_memory(t->error, "for a rank's timeline");
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t *times = when[schedule->stage_chunk[actions[i].stage] * t->micro_batches +
                              actions[i].micro_batch];
        if (actions[i].kind == LS_ACTION_F)
            times[F] = i;
        if (actions[i].kind == LS_ACTION_I || actions[i].kind == LS_ACTION_B)
            times[BEGIN] = i;
        if (actions[i].kind == LS_ACTION_W || actions[i].kind == LS_ACTION_B)
            times[END] = i;
    }
    for (int64_t cell = 0; cell < (int64_t)cells; cell++) {
        int stage = schedule->rank_stage[t->measured->coordinates[LS_AXIS_PP] * schedule->chunks +
                                         cell / t->micro_batches];
        int64_t *times = when[cell];
        if (stage > 0) {
            t->received[ls_max(times[F] - 1, 0)]++;
            t->received[times[END] + 1]--;
        }
        if (stage < schedule->stages - 1) {
            t->received[ls_max(times[BEGIN] - 1, 0)]++;
            t->received[times[END] + 1]--;
        }
    }
    free(when);
    return LS_OK;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Gradients are final: what other ranks compute of a table that two stages share has come. */
static int update(struct timeline *t, int64_t count)
{
    int shared = t->measured->params.shared_param;
    t->now.phase = LS_MEMORY_UPDATE;
    t->now.index = count;
    t->now.layer = -1;
    t->held = t->sent = 0;
    if (shared >= 0)
        t->now.bytes[LS_MEMORY_GRADIENTS] +=
            (size_t)t->measured->units->slices[shared].part->count * sizeof(float);
    return moment(t, t->measured->units->bytes.work, 0);
}

static int walk(struct timeline *t)
{
    const struct measured_memory *measured = t->measured;
    int64_t count;
    const struct ls_action *actions =
        ls_schedule_actions(t->schedule, (int)measured->coordinates[LS_AXIS_PP], &count);
    t->now.bytes[LS_MEMORY_ACTIVATIONS] = ls_model_passing_bytes(measured->memory.model);
    t->gathered = calloc((size_t)measured->params.unit_count + 1, sizeof *t->gathered);
    int status = t->gathered ? received_find(t, actions, count)
                             : ls_no_memory(t->error, "for a rank's timeline");
    for (int kind = LS_MEMORY_PARAMETERS; kind <= LS_MEMORY_OPTIMIZER; kind++)
        t->now.bytes[kind] = measured->plan.bytes[kind];
    t->now.bytes[LS_MEMORY_GRADIENTS] = 0;
    for (int u = 1; u < measured->unit_count; u++) /* of workers that wait for their turn */
        t->now.bytes[LS_MEMORY_GRADIENTS] += measured->units[u].bytes.zero.gradients;
    for (int set = 0; set < t->layout->set_count; set++)
        t->now.bytes[LS_MEMORY_GRADIENTS] += ls_zero_passing_bytes(measured->units->zero[set]);
    for (int64_t i = 0; i < count && !status; i++) {
        t->now.index = i;
        status = action(t, actions[i]);
    }
    if (!status)
        status = update(t, count);
    free(t->gathered);
    free(t->received);
    return status;
}

int ls_memory_timeline(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                       ls_memory_visit *visit, void *user, struct ls_error *error)
{
    struct measured_memory measured;
    int status = memory_measure(config, layout, rank, &measured, error);
    if (status)
        return status;
    struct timeline t = {.layout = layout,
                         .measured = &measured,
                         .micro_batches = layout->micro_batches,
                         .visit = visit,
                         .user = user,
                         .error = error};
    ls_layout_share(layout, layout->ramp.full, measured.coordinates, &t.share);
    t.pipeline = stage_pipeline_of(&measured.memory, layout->micro_batches, &t.schedule);
    status = walk(&t);
    memory_measure_release(&measured);
    return status;
}

static int peak_visit(void *user, const struct ls_memory_moment *moment, struct ls_error *error)
{
    struct ls_memory_moment *peak = user;
    (void)error;
    if (moment->all > peak->all)
        *peak = *moment;
    return LS_OK;
}

int ls_memory_peak(const struct ls_config *config, const struct ls_layout *layout, int64_t rank,
                   struct ls_memory_moment *peak, struct ls_error *error)
{
    *peak = (struct ls_memory_moment){0};
    return ls_memory_timeline(config, layout, rank, peak_visit, peak, error);
}
