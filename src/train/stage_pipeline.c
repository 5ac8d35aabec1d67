/* The pipeline's table and its runtime, for the batch sizes of a run. */
#include "train/stage.h"

#include <stdlib.h>

/* All that depends on the number of micro-batches: a ramp-up has several such tables. */
struct stage_table {
    struct ls_schedule schedule;
    struct ls_pipeline *pipeline;
    int32_t **slot; /* [chunks][micro_batches]: of the saved activations */
};

struct stage_tables {
    struct stage_table *list;
    int count, chunks;
};

/* ---- tables ---------------------------------------------------------------------------------- */

/* The numbers of micro-batches that a run meets, ascending, into counts [layout->micro_batches];
 * returns how many. */
static int counts_of(const struct memory_request *r, int64_t *counts)
{
    int count = 0;
    for (int64_t leaves = 0; (leaves = ls_ramp_next(&r->layout->ramp, leaves));) {
        struct ls_dp_share share;
        ls_layout_share(r->layout, leaves, r->coordinates, &share);
        if (count == 0 || counts[count - 1] != share.micro_batches)
            counts[count++] = share.micro_batches;
    }
    return count;
}

static int table_make(const struct memory_request *r, int64_t micro_batches,
                      struct stage_table *table, struct train_memory *memory,
                      struct ls_error *error)
{
    int chunks = (int)r->layout->chunks, rank = (int)r->coordinates[LS_AXIS_PP], live = 0;
    int status = ls_layout_table(r->layout, micro_batches, &table->schedule, error);
    if (status)
        return status;
    table->slot = calloc((size_t)chunks, sizeof *table->slot);
    for (int c = 0; c < chunks && table->slot; c++) {
        table->slot[c] = calloc((size_t)micro_batches, sizeof **table->slot);
        if (!table->slot[c])
            break;
        int slots = ls_schedule_slots(&table->schedule, rank, c, LS_SLOT_SAVED, table->slot[c]);
        memory->slots = (int)ls_max(memory->slots, slots);
        live += slots;
    }
    memory->live = (int)ls_max(memory->live, live);
    if (!table->slot || !table->slot[chunks - 1])
        return ls_no_memory(error, "for a schedule's slots");
    int64_t count;
    const struct ls_action *actions = ls_schedule_actions(&table->schedule, rank, &count);
    for (int64_t i = 0; i < count; i++)
        memory->split_backward |= actions[i].kind == LS_ACTION_W;
    return LS_OK;
}

/* Rows of a micro-batch's residual stream on a rank. */
static int64_t stream_rows_max(const struct memory_request *r)
{
    int64_t rows = r->layout->micro_sequences * r->layout->sequence / r->layout->size[LS_AXIS_CP];
    return r->layout->sp ? ls_ceil_div(rows, r->layout->size[LS_AXIS_TP]) : rows;
}

static int tables_make(const struct memory_request *r, const int64_t *counts, int count,
                       struct ls_arena *arena, struct train_memory *memory, struct ls_error *error)
{
    struct stage_tables *tables = memory->tables;
    tables->list = calloc((size_t)count, sizeof *tables->list);
    if (!tables->list)
        return ls_no_memory(error, "for %d schedules", count);
    /* One table is in use at a time, so their buffers lie over each other. */
    size_t mark = arena->used, end = mark;
    int status = LS_OK;
    for (; tables->count < count && !status; tables->count++) {
        struct stage_table *table = &tables->list[tables->count];
        status = table_make(r, counts[tables->count], table, memory, error);
        struct ls_pipeline_options options = {
            .schedule = &table->schedule,
            .comm = r->units->groups ? r->units->groups[LS_GROUP_PP] : NULL,
            .rank = (int)r->coordinates[LS_AXIS_PP],
            .dtype = r->layout->numerics.act,
            .count_max = stream_rows_max(r) * r->layout->model.channels,
        };
        ls_arena_reset(arena, mark);
        if (!status)
            status = ls_pipeline_new(&options, arena, &table->pipeline, error);
        end = arena->used > end ? arena->used : end;
    }
    if (!status)
        ls_arena_take(arena, end - arena->used);
    return status;
}

int stage_take(const struct memory_request *r, struct ls_arena *arena, struct train_memory *memory,
               struct ls_error *error)
{
    struct stage_tables *tables = calloc(1, sizeof *tables);
    int64_t *counts = calloc((size_t)r->layout->micro_batches, sizeof *counts);
    memory->tables = tables;
    int status = tables && counts ? LS_OK : ls_no_memory(error, "for a run's schedules");
    if (!status) {
        tables->chunks = (int)r->layout->chunks;
        status = tables_make(r, counts, counts_of(r, counts), arena, memory, error);
    }
    free(counts);
    return status;
}

void stage_release(struct train_memory *memory)
{
    struct stage_tables *tables = memory->tables;
    if (!tables)
        return;
    for (int i = 0; i < tables->count; i++) {
        struct stage_table *table = &tables->list[i];
        ls_pipeline_free(table->pipeline);
        for (int c = 0; c < tables->chunks && table->slot; c++)
            free(table->slot[c]);
        free(table->slot);
        ls_schedule_release(&table->schedule);
    }
    free(tables->list);
    free(tables);
}

static const struct stage_table *table_of(const struct train_memory *memory, int64_t micro_batches)
{
    const struct stage_tables *tables = memory->tables;
    const struct stage_table *table = NULL;
    for (int i = 0; i < tables->count; i++)
        if (tables->list[i].schedule.micro_batches == micro_batches)
            table = &tables->list[i];
    LS_ASSERT(table);
    return table;
}

const struct ls_pipeline *stage_pipeline_of(const struct train_memory *memory,
                                            int64_t micro_batches,
                                            const struct ls_schedule **schedule)
{
    const struct stage_table *table = table_of(memory, micro_batches);
    *schedule = &table->schedule;
    return table->pipeline;
}

/* ---- the run --------------------------------------------------------------------------------- */

struct stage_run {
    struct ls_trainer *t;
    const struct train_batch *batch;
    const struct stage_table *table;
};

/* Elements of a boundary tensor of so many sequences. */
static int64_t boundary_elements(const struct ls_trainer *t, int64_t sequences)
{
    return ls_model_stream_rows(t->memory.model, sequences, t->config.data.sequence) *
           t->config.model.channels;
}

static int64_t run_count(void *user, int64_t m)
{
    const struct stage_run *run = user;
    return boundary_elements(run->t, ls_dp_micro_batch(&run->batch->share, m).count);
}

static int run_task(void *user, const struct ls_pipeline_task *task, const void **result,
                    struct ls_error *error)
{
    const struct stage_run *run = user;
    struct ls_trainer *t = run->t;
    const struct train_chunk *layers = &t->part.chunks[task->chunk];
    bool forward = task->action.kind == LS_ACTION_F;
    int slot = run->table->slot[task->chunk][task->action.micro_batch];
    int status = forward ? stage_forward(t, run->batch, task, slot, error)
                         : stage_backward(t, run->batch, task, slot, error);
    if (!status && result)
        *result = forward ? ls_model_output(t->memory.model, layers->end - 1, slot)
                          : ls_model_input_gradient(t->memory.model, layers->first);
    return status;
}

/* What the trace says of all that follows; -1: of none. */
static void trace_place(struct ls_trainer *t, int64_t micro_batch, int64_t chunk, int64_t stage)
{
    ls_trace_set(t->trace, LS_TRACE_MICRO_BATCH, micro_batch);
    ls_trace_set(t->trace, LS_TRACE_CHUNK, chunk);
    ls_trace_set(t->trace, LS_TRACE_STAGE, stage);
}

/* The parameters that the next action begins with are gathered while its input is waited for. */
static int run_before(void *user, const struct ls_pipeline_task *task, struct ls_error *error)
{
    struct ls_trainer *t = ((const struct stage_run *)user)->t;
    const struct train_chunk *layers = &t->part.chunks[task->chunk];
    enum ls_action_kind kind = task->action.kind;
    trace_place(t, task->action.micro_batch, task->chunk, task->action.stage);
    int layer = layers->first, last = layers->end - 1;
    if (kind == LS_ACTION_W || (kind != LS_ACTION_F && last < t->part.lowest))
        return LS_OK;
    if (kind != LS_ACTION_F)
        layer = (int)ls_min(ls_layer_again_first(t->memory.model, last), last);
    return stage_prefetch(t, layer, error);
}

/* The replica that gets this one's sums may be what another stage waits for. */
static int run_settle(void *user, struct ls_error *error)
{
    struct ls_trainer *t = ((const struct stage_run *)user)->t;
    bool alone = t->layout.size[LS_AXIS_PP] == 1;
    return alone ? LS_OK : ls_state_pass_on(t->state, error);
}

int stage_pipeline_run(struct ls_trainer *t, const struct train_batch *batch,
                       struct ls_error *error)
{
    struct stage_run run = {
        .t = t, .batch = batch, .table = table_of(&t->memory, batch->share.micro_batches)};
    const struct ls_pipeline_ops ops = {.user = &run,
                                        .ops = &t->ops,
                                        .count = run_count,
                                        .compute = run_task,
                                        .before = run_before,
                                        .settle = run_settle};
    int status = ls_pipeline_run(run.table->pipeline, &ops, error);
    trace_place(t, -1, -1, -1);
    return status;
}
