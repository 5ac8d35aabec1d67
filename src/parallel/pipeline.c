/* The runtime of pipeline schedules: a rank's list, front to back. */
#include "parallel/schedule_private.h"

#include <lockstep/parallel/pipeline.h>

#include <stdio.h>
#include <stdlib.h>

enum { FORWARDS, BACKWARDS, DIRECTIONS, GRADIENT_SENDS_MAX = 4 };

/* What a transfer is called in texts about late ranks; the same on both sides. */
struct label {
    char text[80];
};

/* Receive buffers of a chunk in one direction. */
struct receive_buffers {
    unsigned char *base; /* [slots] boundary tensors */
    int32_t *slot;       /* [m] */
    int slots;
};

/* Sends under way in one direction, oldest first out: number n is at n % room. */
struct sends {
    struct ls_request request[LS_PIPELINE_SENDS];
    struct label label[LS_PIPELINE_SENDS];
    int room;
    int64_t started, ended;
};

struct ls_pipeline {
    struct ls_pipeline_options options;
    const struct ls_schedule *schedule;
    int rank;
    size_t stride;                                /* bytes of a boundary tensor, aligned */
    struct receive_buffers *received[DIRECTIONS]; /* [chunks] */
    struct sends sends[DIRECTIONS];
    unsigned char *gradient_base; /* [gradient sends] send buffers of boundary tensors */
    int64_t *sent;                /* [chunks * m]: the number of its activation's send, -1 */
    struct ls_request receive[2]; /* of the action at an even or odd place */
    struct label receive_label[2];
};

int ls_pipeline_gradient_sends(const struct ls_schedule *schedule)
{
    return schedule->chunks > 1 ? GRADIENT_SENDS_MAX : 2;
}

/* ---- memory --------------------------------------------------------------------------------- */

static int receive_buffers_init(struct ls_pipeline *pipeline, struct ls_arena *arena, int direction,
                                int chunk)
{
    const struct ls_schedule *schedule = pipeline->schedule;
    struct receive_buffers *buffers = &pipeline->received[direction][chunk];
    buffers->slot = calloc((size_t)schedule->micro_batches, sizeof *buffers->slot);
    if (!buffers->slot)
        return LS_ENOMEM;
    buffers->slots =
        ls_schedule_slots(schedule, pipeline->rank, chunk,
                          direction == FORWARDS ? LS_SLOT_INPUT : LS_SLOT_GRADIENT, buffers->slot);
    if (buffers->slots < 0)
        return buffers->slots;
    buffers->base = ls_arena_take(arena, (size_t)buffers->slots * pipeline->stride);
    return LS_OK;
}

/* Whether gradients go to another rank. */
static bool sends_gradients(const struct ls_pipeline *pipeline)
{
    const struct ls_schedule *schedule = pipeline->schedule;
    for (int c = 0; c < schedule->chunks; c++) {
        int stage = ls_schedule_stage(schedule, pipeline->rank, c);
        if (stage > 0 && schedule->stage_rank[stage - 1] != pipeline->rank)
            return true;
    }
    return false;
}

size_t ls_pipeline_boundary_bytes(const struct ls_pipeline *pipeline)
{
    return pipeline->stride;
}

static int take_memory(struct ls_pipeline *pipeline, struct ls_arena *arena)
{
    const struct ls_schedule *schedule = pipeline->schedule;
    size_t chunks = (size_t)schedule->chunks;
    pipeline->sent = malloc(chunks * (size_t)schedule->micro_batches * sizeof *pipeline->sent);
    int status = pipeline->sent ? LS_OK : LS_ENOMEM;
    for (int d = 0; d < DIRECTIONS && status == LS_OK; d++) {
        pipeline->received[d] = calloc(chunks, sizeof *pipeline->received[d]);
        status = pipeline->received[d] ? LS_OK : LS_ENOMEM;
        for (int c = 0; c < schedule->chunks && status == LS_OK; c++)
            status = receive_buffers_init(pipeline, arena, d, c);
    }
    if (status == LS_OK && sends_gradients(pipeline))
        pipeline->gradient_base =
            ls_arena_take(arena, (size_t)pipeline->sends[BACKWARDS].room * pipeline->stride);
    return status;
}

int ls_pipeline_new(const struct ls_pipeline_options *options, struct ls_arena *arena,
                    struct ls_pipeline **out, struct ls_error *error)
{
    const struct ls_schedule *schedule = options->schedule;
    *out = NULL;
    if (options->comm && ls_comm_size(options->comm) != schedule->ranks)
        return ls_error_set(error, LS_EINVAL, "a schedule of %d ranks cannot run in a group of %d",
                            schedule->ranks, ls_comm_size(options->comm));
    struct ls_pipeline *pipeline = calloc(1, sizeof *pipeline);
    if (!pipeline)
        return ls_no_memory(error, "for a pipeline");
    pipeline->options = *options;
    pipeline->schedule = schedule;
    pipeline->rank = options->comm ? ls_comm_rank(options->comm) : options->rank;
    pipeline->sends[FORWARDS].room = LS_PIPELINE_SENDS;
    pipeline->sends[BACKWARDS].room = ls_pipeline_gradient_sends(schedule);
    LS_ASSERT(pipeline->rank >= 0 && pipeline->rank < schedule->ranks && options->count_max >= 0);
    pipeline->stride =
        (size_t)ls_round_up(options->count_max * (int64_t)ls_dtype_bytes(options->dtype), 64);
    int status = take_memory(pipeline, arena);
    if (status) {
        ls_pipeline_free(pipeline);
        return ls_error_set(error, status, "no memory for a pipeline of %lld micro-batches",
                            (long long)schedule->micro_batches);
    }
    *out = pipeline;
    return LS_OK;
}

void ls_pipeline_free(struct ls_pipeline *pipeline)
{
    if (!pipeline)
        return;
    for (int d = 0; d < DIRECTIONS; d++) {
        for (int c = 0; pipeline->received[d] && c < pipeline->schedule->chunks; c++)
            free(pipeline->received[d][c].slot);
        free(pipeline->received[d]);
    }
    free(pipeline->sent);
    free(pipeline);
}

/* ---- moving --------------------------------------------------------------------------------- */

static int64_t count_of(const struct ls_pipeline *pipeline, const struct ls_pipeline_ops *ops,
                        int64_t micro_batch)
{
    int64_t count = ops->count(ops->user, micro_batch);
    LS_ASSERT(count >= 0 && count <= pipeline->options.count_max);
    return count;
}

static unsigned char *received_at(const struct ls_pipeline *pipeline, int direction, int chunk,
                                  int64_t micro_batch)
{
    const struct receive_buffers *buffers = &pipeline->received[direction][chunk];
    return buffers->base + (size_t)buffers->slot[micro_batch] * pipeline->stride;
}

/* Between two ranks, messages for one chunk in one direction come in ascending order of
 * micro-batch on both sides: a tag for each is all the matching that is needed. */
static int tag_of(int direction, int receiving_chunk)
{
    return 2 * receiving_chunk + direction;
}

static void set_label(struct ls_pipeline *pipeline, struct label *label, int direction, int from,
                      int to, int64_t micro_batch)
{
    snprintf(label->text, sizeof label->text, "%s %d-%d of micro-batch %lld",
             direction == FORWARDS ? "activation" : "gradient", from, to, (long long)micro_batch);
    ls_comm_label(pipeline->options.comm, label->text);
}

static int direction_of(struct ls_action action)
{
    return action.kind == LS_ACTION_F ? FORWARDS : BACKWARDS;
}

/* Posts the receive of the action at place `index`, if it has one. */
static int post_receive(struct ls_pipeline *pipeline, const struct ls_pipeline_ops *ops,
                        int64_t index, struct ls_error *error)
{
    const struct ls_schedule *schedule = pipeline->schedule;
    int64_t count;
    const struct ls_action *actions = ls_schedule_actions(schedule, pipeline->rank, &count);
    if (index >= count)
        return LS_OK;
    struct ls_action action = actions[index];
    int from = parallel_source(schedule, action), direction = direction_of(action);
    if (from < 0 || schedule->stage_rank[from] == pipeline->rank)
        return LS_OK;
    int chunk = schedule->stage_chunk[action.stage];
    set_label(pipeline, &pipeline->receive_label[index % 2], direction, from, action.stage,
              action.micro_batch);
    return ls_recv_start(pipeline->options.comm,
                         received_at(pipeline, direction, chunk, action.micro_batch),
                         count_of(pipeline, ops, action.micro_batch), pipeline->options.dtype,
                         schedule->stage_rank[from], tag_of(direction, chunk),
                         &pipeline->receive[index % 2], LS_HERE, error);
}

static int settle(const struct ls_pipeline_ops *ops, struct ls_error *error)
{
    return ops->settle ? ops->settle(ops->user, error) : LS_OK;
}

/* Ends sends up to number `until`, oldest first. */
static int end_sends(struct ls_pipeline *pipeline, const struct ls_pipeline_ops *ops, int direction,
                     int64_t until, struct ls_error *error)
{
    struct sends *sends = &pipeline->sends[direction];
    int status = sends->ended < until ? settle(ops, error) : LS_OK;
    while (sends->ended < until && status == LS_OK) {
        status = ls_wait(&sends->request[sends->ended % sends->room], error);
        sends->ended++;
    }
    return status;
}

/* Ends one send; those before it may be to a rank that is not yet ready for them. */
static int end_activation(struct ls_pipeline *pipeline, int64_t number, struct ls_error *error)
{
    struct sends *sends = &pipeline->sends[FORWARDS];
    if (number < sends->ended)
        return LS_OK;
    return ls_wait(&sends->request[number % sends->room], error);
}

/* Hands the result of an action to stage `to`. */
static int deliver(struct ls_pipeline *pipeline, const struct ls_pipeline_ops *ops,
                   struct ls_action action, int to, const void *result, struct ls_error *error)
{
    const struct ls_schedule *schedule = pipeline->schedule;
    int direction = direction_of(action), peer = schedule->stage_rank[to];
    int chunk = schedule->stage_chunk[to];
    int64_t count = count_of(pipeline, ops, action.micro_batch);
    size_t bytes = (size_t)count * ls_dtype_bytes(pipeline->options.dtype);
    LS_ASSERT(result || bytes == 0);
    if (peer == pipeline->rank) {
        ls_copy(ops->ops, bytes, result,
                received_at(pipeline, direction, chunk, action.micro_batch));
        return LS_OK;
    }
    struct sends *sends = &pipeline->sends[direction];
    int status = end_sends(pipeline, ops, direction, sends->started + 1 - sends->room, error);
    if (status)
        return status;
    if (direction == BACKWARDS) {
        unsigned char *copy =
            pipeline->gradient_base + (size_t)(sends->started % sends->room) * pipeline->stride;
        ls_copy(ops->ops, bytes, result, copy);
        result = copy;
    } else {
        int64_t at = schedule->stage_chunk[action.stage] * schedule->micro_batches;
        pipeline->sent[at + action.micro_batch] = sends->started;
    }
    set_label(pipeline, &sends->label[sends->started % sends->room], direction, action.stage, to,
              action.micro_batch);
    status = ls_send_start(pipeline->options.comm, result, count, pipeline->options.dtype, peer,
                           tag_of(direction, chunk), &sends->request[sends->started % sends->room],
                           LS_HERE, error);
    if (status == LS_OK)
        sends->started++;
    return status;
}

/* ---- actions -------------------------------------------------------------------------------- */

static struct ls_pipeline_task task_of(const struct ls_pipeline *pipeline, struct ls_action action)
{
    int chunk = pipeline->schedule->stage_chunk[action.stage];
    struct ls_pipeline_task task = {.action = action, .chunk = chunk};
    if (action.stage > 0)
        task.input = received_at(pipeline, FORWARDS, chunk, action.micro_batch);
    if (action.kind != LS_ACTION_F && action.stage + 1 < pipeline->schedule->stages)
        task.output_gradient = received_at(pipeline, BACKWARDS, chunk, action.micro_batch);
    return task;
}

static int run_action(struct ls_pipeline *pipeline, const struct ls_pipeline_ops *ops,
                      int64_t index, struct ls_action action, struct ls_error *error)
{
    const struct ls_schedule *schedule = pipeline->schedule;
    const struct ls_pipeline_task task = task_of(pipeline, action);
    int status = post_receive(pipeline, ops, index + 1, error);
    if (status == LS_OK && ops->before)
        status = ops->before(ops->user, &task, error);
    if (status == LS_OK)
        status = settle(ops, error);
    if (status == LS_OK)
        status = ls_wait(&pipeline->receive[index % 2], error);
    /* The backward may overwrite what its forward handed on. */
    int64_t at = schedule->stage_chunk[action.stage] * schedule->micro_batches + action.micro_batch;
    if (status == LS_OK && (action.kind == LS_ACTION_I || action.kind == LS_ACTION_B))
        status = end_activation(pipeline, pipeline->sent[at], error);
    const void *result = NULL;
    int to = parallel_target(schedule, action);
    if (status == LS_OK)
        status = ops->compute(ops->user, &task, to >= 0 ? &result : NULL, error);
    if (status == LS_OK && to >= 0)
        status = deliver(pipeline, ops, action, to, result, error);
    return status;
}

int ls_pipeline_run(struct ls_pipeline *pipeline, const struct ls_pipeline_ops *ops,
                    struct ls_error *error)
{
    const struct ls_schedule *schedule = pipeline->schedule;
    int64_t count;
    const struct ls_action *actions = ls_schedule_actions(schedule, pipeline->rank, &count);
    for (int64_t i = 0; i < schedule->chunks * schedule->micro_batches; i++)
        pipeline->sent[i] = -1;
    for (int d = 0; d < DIRECTIONS; d++)
        pipeline->sends[d].started = pipeline->sends[d].ended = 0;
    int status = post_receive(pipeline, ops, 0, error);
    for (int64_t i = 0; i < count && status == LS_OK; i++) {
        status = run_action(pipeline, ops, i, actions[i], error);
        if (status)
            ls_error_prefix(error, "pipeline rank %d, %s", pipeline->rank,
                            ls_action_text(actions[i]).text);
    }
    for (int d = 0; d < DIRECTIONS && status == LS_OK; d++)
        status = end_sends(pipeline, ops, d, pipeline->sends[d].started, error);
    if (pipeline->options.comm)
        ls_comm_label(pipeline->options.comm, NULL);
    return status;
}
