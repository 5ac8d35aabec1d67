/* A pipeline whose stages are hashes. */
#include "hashed.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT_MAX = 48, STAGES_MAX = 64 };

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t words[3] = {a, b, c};
    return ls_hash64(words, sizeof words, 7);
}

/* Micro-batches differ in size, and one is empty. */
static int64_t count_of(void *user, int64_t micro_batch)
{
    (void)user;
    return micro_batch % 5 == 3 ? 0 : COUNT_MAX - micro_batch % 7;
}

static uint64_t first_input(int64_t micro_batch, int64_t i)
{
    return mix(1, (uint64_t)micro_batch, (uint64_t)i);
}
static uint64_t forward_of(uint64_t x, int stage)
{
    return mix(x, 2, (uint64_t)stage);
}
/* The gradient of a stage's input depends on its input too, as a real one does. */
static uint64_t backward_of(uint64_t d_y, uint64_t x, int stage)
{
    return mix(d_y, x, (uint64_t)stage);
}
/* A sum whose order matters. */
static uint64_t weight_of(uint64_t sum, uint64_t x, uint64_t d_y)
{
    return mix(sum, x, d_y);
}

/* ---- one rank, one by one -------------------------------------------------------------------- */

static void reference(int stages, int64_t micro_batches, uint64_t *weights)
{
    uint64_t x[STAGES_MAX + 1][COUNT_MAX];
    memset(weights, 0, (size_t)stages * sizeof *weights);
    for (int64_t m = 0; m < micro_batches; m++) {
        int64_t count = count_of(NULL, m);
        for (int64_t i = 0; i < count; i++) {
            x[0][i] = first_input(m, i);
            for (int s = 0; s < stages; s++)
                x[s + 1][i] = forward_of(x[s][i], s);
            uint64_t d = x[stages][i];
            for (int s = stages - 1; s >= 0; s--) {
                weights[s] = weight_of(weights[s], x[s][i], d);
                d = backward_of(d, x[s][i], s);
            }
        }
    }
}

/* ---- the same as a pipeline ------------------------------------------------------------------ */

/* A chunk's saved micro-batches, in the slots of the table. */
struct chunk {
    int stage, slots;
    int32_t *slot;
    uint64_t *output; /* [slots][COUNT_MAX] */
};

struct rank {
    const struct hashed_job *job;
    struct chunk *chunk;
    uint64_t weights[STAGES_MAX];       /* of its own stages */
    uint64_t input_gradient[COUNT_MAX]; /* one for all: overwritten by every backward */
    int index, actions;
    int64_t next;
};

static uint64_t x_of(const struct ls_pipeline_task *task, int64_t i)
{
    return task->action.stage == 0 ? first_input(task->action.micro_batch, i)
                                   : ((const uint64_t *)task->input)[i];
}

static void shake(struct rank *rank, int c, int64_t m)
{
    uint64_t draw = mix((uint64_t)rank->chunk[c].stage, (uint64_t)m, (uint64_t)rank->actions++);
    if (rank->job->shake && draw % 4 == 0)
        for (uint64_t i = draw % 13; i > 0; i--)
            sched_yield();
}

static int forward(struct rank *rank, const struct ls_pipeline_task *task, const void **output,
                   struct ls_error *error)
{
    struct chunk *chunk = &rank->chunk[task->chunk];
    int64_t m = task->action.micro_batch;
    uint64_t *y = chunk->output + (int64_t)chunk->slot[m] * COUNT_MAX;
    if (chunk->stage == rank->job->fail_stage && m == 1)
        return ls_error_set(error, LS_ENUMERIC, "made to fail");
    bool last = chunk->stage == rank->job->schedule->stages - 1;
    if ((output == NULL) != last || task->output_gradient)
        return ls_error_set(error, LS_EINVAL, "stage %d: output %p, gradient %p", chunk->stage,
                            (void *)output, task->output_gradient);
    for (int64_t i = 0; i < count_of(NULL, m); i++)
        y[i] = forward_of(x_of(task, i), chunk->stage);
    if (output)
        *output = y;
    return LS_OK;
}

static int backward_input(struct rank *rank, const struct ls_pipeline_task *task,
                          const void **input_gradient, struct ls_error *error)
{
    struct chunk *chunk = &rank->chunk[task->chunk];
    int64_t m = task->action.micro_batch;
    uint64_t *y = chunk->output + (int64_t)chunk->slot[m] * COUNT_MAX;
    const uint64_t *d_y = task->output_gradient;
    bool last = chunk->stage == rank->job->schedule->stages - 1;
    if ((d_y == NULL) != last || (input_gradient == NULL) != (chunk->stage == 0))
        return ls_error_set(error, LS_EINVAL, "stage %d: gradient %p, to write %p", chunk->stage,
                            (const void *)d_y, (void *)input_gradient);
    /* What this may overwrite is overwritten: its own result sent on, gradients sent back. The last
     * stage keeps its output, from which its gradient comes. */
    memset(rank->input_gradient, 0xdb, sizeof rank->input_gradient);
    if (!last)
        memset(y, 0xdb, COUNT_MAX * sizeof *y);
    for (int64_t i = 0; i < count_of(NULL, m); i++)
        rank->input_gradient[i] = backward_of(last ? y[i] : d_y[i], x_of(task, i), chunk->stage);
    if (input_gradient)
        *input_gradient = rank->input_gradient;
    return LS_OK;
}

static void backward_weight(struct rank *rank, const struct ls_pipeline_task *task)
{
    struct chunk *chunk = &rank->chunk[task->chunk];
    int64_t m = task->action.micro_batch;
    const uint64_t *y = chunk->output + (int64_t)chunk->slot[m] * COUNT_MAX;
    const uint64_t *d_y = task->output_gradient;
    uint64_t *sum = &rank->weights[chunk->stage];
    bool last = chunk->stage == rank->job->schedule->stages - 1;
    for (int64_t i = 0; i < count_of(NULL, m); i++)
        *sum = weight_of(*sum, x_of(task, i), last ? y[i] : d_y[i]);
}

static int compute(void *user, const struct ls_pipeline_task *task, const void **result,
                   struct ls_error *error)
{
    struct rank *rank = user;
    enum ls_action_kind kind = task->action.kind;
    shake(rank, task->chunk, task->action.micro_batch);
    if ((task->input == NULL) != (task->action.stage == 0))
        return ls_error_set(error, LS_EINVAL, "stage %d: input %p", task->action.stage,
                            task->input);
    if (kind == LS_ACTION_F)
        return forward(rank, task, result, error);
    int code = kind == LS_ACTION_W ? LS_OK : backward_input(rank, task, result, error);
    if (code == LS_OK && kind != LS_ACTION_I)
        backward_weight(rank, task);
    return code;
}

/* Actions are announced in the order of the list. */
static int before(void *user, const struct ls_pipeline_task *task, struct ls_error *error)
{
    struct rank *rank = user;
    int64_t count;
    struct ls_action next =
        ls_schedule_actions(rank->job->schedule, rank->index, &count)[rank->next++];
    if (memcmp(&next, &task->action, sizeof next) != 0)
        return ls_error_set(error, LS_EINVAL, "%s comes before %s",
                            ls_action_text(task->action).text, ls_action_text(next).text);
    return LS_OK;
}

static void rank_init(struct rank *rank, const struct hashed_job *job, int index)
{
    const struct ls_schedule *schedule = job->schedule;
    size_t m = (size_t)schedule->micro_batches;
    *rank = (struct rank){.job = job, .index = index};
    rank->chunk = calloc((size_t)schedule->chunks, sizeof *rank->chunk);
    for (int c = 0; c < schedule->chunks; c++) {
        struct chunk *chunk = &rank->chunk[c];
        chunk->stage = ls_schedule_stage(schedule, index, c);
        chunk->slot = calloc(m, sizeof *chunk->slot);
        chunk->slots = ls_schedule_slots(schedule, index, c, LS_SLOT_SAVED, chunk->slot);
        chunk->output = calloc((size_t)chunk->slots * COUNT_MAX, sizeof *chunk->output);
    }
}

static void rank_release(struct rank *rank)
{
    for (int c = 0; c < rank->job->schedule->chunks; c++) {
        struct chunk *chunk = &rank->chunk[c];
        free(chunk->slot);
        free(chunk->output);
    }
    free(rank->chunk);
}

static int run_steps(struct ls_pipeline *pipeline, struct rank *rank, struct ls_error *error)
{
    struct ls_ops plain;
    int code = ls_ops_init(&plain, 1, LS_ISA_PLAIN, error);
    const struct ls_pipeline_ops ops = {
        .user = rank, .ops = &plain, .count = count_of, .compute = compute, .before = before};
    for (int step = 0; step < rank->job->steps && code == LS_OK; step++) {
        rank->next = 0;
        for (int c = 0; c < rank->job->schedule->chunks; c++)
            rank->weights[rank->chunk[c].stage] = 0;
        code = ls_pipeline_run(pipeline, &ops, error);
    }
    ls_ops_release(&plain);
    return code;
}

static int compare(const struct rank *rank, struct ls_error *error)
{
    const struct ls_schedule *schedule = rank->job->schedule;
    uint64_t expected[STAGES_MAX];
    reference(schedule->stages, schedule->micro_batches, expected);
    for (int c = 0; c < schedule->chunks; c++) {
        int stage = rank->chunk[c].stage;
        if (rank->weights[stage] != expected[stage])
            return ls_error_set(error, LS_ENUMERIC, "stage %d sums up %016llx, alone %016llx",
                                stage, (unsigned long long)rank->weights[stage],
                                (unsigned long long)expected[stage]);
    }
    return LS_OK;
}

static int run_with(struct ls_comm *comm, struct ls_pipeline *pipeline,
                    const struct hashed_job *job, struct ls_error *error)
{
    struct rank rank;
    rank_init(&rank, job, ls_comm_rank(comm));
    int code = run_steps(pipeline, &rank, error);
    if (code == LS_OK)
        code = compare(&rank, error);
    /* After a failure this ends what is pending: buffers are free again, and peers fail too. */
    ls_comm_free(comm);
    rank_release(&rank);
    return code;
}

int hashed_run(struct ls_comm *world, const struct hashed_job *job, struct ls_error *error)
{
    struct ls_comm *comm;
    LS_ASSERT(job->schedule->stages <= STAGES_MAX);
    int code = ls_comm_split(world, 0, ls_comm_rank(world), &comm, error);
    if (code)
        return code;
    struct ls_pipeline_options options = {
        .schedule = job->schedule, .comm = comm, .dtype = LS_U64, .count_max = COUNT_MAX};
    struct ls_pipeline *pipeline = NULL;
    struct ls_arena arena;
    ls_arena_measure(&arena);
    code = ls_pipeline_new(&options, &arena, &pipeline, error);
    ls_pipeline_free(pipeline);
    pipeline = NULL;
    size_t bytes = arena.peak;
    if (code == LS_OK)
        code = ls_arena_init(&arena, bytes, error);
    if (code == LS_OK)
        code = ls_pipeline_new(&options, &arena, &pipeline, error);
    if (code) {
        ls_comm_free(comm);
        return code;
    }
    LS_ASSERT(arena.used == bytes); /* what was measured is what is taken */
    code = run_with(comm, pipeline, job, error);
    ls_pipeline_free(pipeline);
    ls_arena_release(&arena);
    return code;
}
