/* The pipeline's table and its runtime, for the batch sizes of a run; the forward alone. */
#include "stage.h"

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
    /* [chunks * slots] what the pipeline received, from forward to the end of the backward. */
    const void **input, **d_output;
    const struct stage_batch *batch; /* of the run in progress */
};

/* ---- tables ---------------------------------------------------------------------------------- */

/* The numbers of micro-batches that a run meets, ascending, into counts [layout->micro_batches];
 * returns how many. */
static int counts_of(const struct memory_request *r, int64_t *counts)
{
    const struct ls_config_batch *b = &r->config->batch;
    int64_t leaf = r->layout->numerics.leaf_sequences, full = b->global;
    bool ramp = b->rampup_start > 0 && b->rampup_increment > 0 && b->rampup_start < full;
    int count = 0;
    for (int64_t size = ramp ? b->rampup_start : full;;
         size = ls_min(size + b->rampup_increment, full)) {
        struct ls_dp_share share;
        ls_layout_share(r->layout, size / leaf, r->coordinates, &share);
        if (count == 0 || counts[count - 1] != share.micro_batches)
            counts[count++] = share.micro_batches;
        if (size >= full)
            return count;
    }
}

static int table_make(const struct memory_request *r, int64_t micro_batches,
                      struct stage_table *table, struct train_memory *memory,
                      struct ls_error *error)
{
    int chunks = (int)r->layout->chunks, rank = (int)r->coordinates[LS_AXIS_PP];
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
    }
    if (!table->slot || !table->slot[chunks - 1])
        return ls_error_set(error, LS_ENOMEM, "no memory for a schedule's slots");
    int64_t count;
    const struct ls_action *actions = ls_schedule_actions(&table->schedule, rank, &count);
    for (int64_t i = 0; i < count; i++)
        memory->split_backward |= actions[i].kind == LS_ACTION_W;
    return LS_OK;
}

/* Elements of a boundary tensor of the micro-batch. */
static int64_t boundary_count(void *user, int64_t m)
{
    const struct stage_batch *batch = ((const struct stage_tables *)user)->batch;
    struct ls_trainer *t = batch->t;
    int64_t leaves = ls_min(batch->micro_leaves, batch->leaves - m * batch->micro_leaves);
    return ls_model_stream_rows(t->memory.model, leaves * t->numerics.leaf_sequences,
                                t->config.data.sequence) *
           t->config.model.channels;
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
        return ls_error_set(error, LS_ENOMEM, "no memory for %d schedules", count);
    /* One table is in use at a time, so their buffers lie over each other. */
    size_t mark = arena->used, end = mark;
    int status = LS_OK;
    for (; tables->count < count && !status; tables->count++) {
        struct stage_table *table = &tables->list[tables->count];
        status = table_make(r, counts[tables->count], table, memory, error);
        struct ls_pipeline_options options = {
            .schedule = &table->schedule,
            .comm = r->groups ? r->groups->pp : NULL,
            .rank = (int)r->coordinates[LS_AXIS_PP],
            .dtype = r->layout->numerics.act,
            .count_max = stream_rows_max(r) * r->layout->model.channels,
            .count = boundary_count,
            .count_user = tables,
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
    int status = tables && counts
                     ? LS_OK
                     : ls_error_set(error, LS_ENOMEM, "no memory for a run's schedules");
    if (!status) {
        tables->chunks = (int)r->layout->chunks;
        status = tables_make(r, counts, counts_of(r, counts), arena, memory, error);
    }
    free(counts);
    if (status)
        return status;
    size_t places = (size_t)(tables->chunks * memory->slots);
    tables->input = ls_arena_take(arena, places * sizeof *tables->input);
    tables->d_output = ls_arena_take(arena, places * sizeof *tables->d_output);
    return LS_OK;
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

/* ---- the run --------------------------------------------------------------------------------- */

struct stage_run {
    struct stage_tables *tables;
    const struct stage_table *table;
    struct ls_trainer *t;
};

/* Slot of a chunk's micro-batch, and where what was received for it is remembered. */
static int slot_of(const struct stage_run *run, int chunk, int64_t m, int *place)
{
    int slot = run->table->slot[chunk][m];
    *place = chunk * run->t->memory.slots + slot;
    return slot;
}

static int run_forward(void *user, int chunk, int64_t m, const void *input, const void **output,
                       struct ls_error *error)
{
    struct stage_run *run = user;
    int place, slot = slot_of(run, chunk, m, &place);
    run->tables->input[place] = input;
    int status = stage_forward(run->tables->batch, chunk, m, slot, input, error);
    if (!status && output)
        *output = ls_model_output(run->t->memory.model, run->t->part.chunks[chunk].end - 1, slot);
    return status;
}

static int run_halves(struct stage_run *run, int chunk, int64_t m, enum stage_halves halves,
                      const void *output_gradient, const void **input_gradient,
                      struct ls_error *error)
{
    int place, slot = slot_of(run, chunk, m, &place);
    if (halves & STAGE_INPUT)
        run->tables->d_output[place] = output_gradient;
    int status = stage_backward(run->tables->batch, chunk, m, slot, run->tables->input[place],
                                run->tables->d_output[place], halves, error);
    if (!status && input_gradient)
        *input_gradient =
            ls_model_input_gradient(run->t->memory.model, run->t->part.chunks[chunk].first);
    return status;
}

static int run_backward_input(void *user, int chunk, int64_t m, const void *output_gradient,
                              const void **input_gradient, struct ls_error *error)
{
    return run_halves(user, chunk, m, STAGE_INPUT, output_gradient, input_gradient, error);
}

static int run_backward_weight(void *user, int chunk, int64_t m, struct ls_error *error)
{
    return run_halves(user, chunk, m, STAGE_WEIGHT, NULL, NULL, error);
}

static int run_backward(void *user, int chunk, int64_t m, const void *output_gradient,
                        const void **input_gradient, struct ls_error *error)
{
    return run_halves(user, chunk, m, STAGE_BOTH, output_gradient, input_gradient, error);
}

/* What the trace says of all that follows; -1: of none. */
static void trace_place(struct ls_trainer *t, int64_t micro_batch, int64_t chunk, int64_t stage)
{
    ls_trace_set(t->trace, LS_TRACE_MICRO_BATCH, micro_batch);
    ls_trace_set(t->trace, LS_TRACE_CHUNK, chunk);
    ls_trace_set(t->trace, LS_TRACE_STAGE, stage);
}

/* The parameters that the next action begins with are gathered while its input is waited for. */
static int run_before(void *user, int64_t index, struct ls_error *error)
{
    struct stage_run *run = user;
    int64_t count;
    const struct ls_schedule *schedule = &run->table->schedule;
    struct ls_action action =
        ls_schedule_actions(schedule, (int)run->t->coordinates[LS_AXIS_PP], &count)[index];
    int chunk = schedule->stage_chunk[action.stage];
    const struct train_chunk *layers = &run->t->part.chunks[chunk];
    trace_place(run->t, action.micro_batch, chunk, action.stage);
    if (action.kind == LS_ACTION_W)
        return LS_OK;
    return stage_prefetch(run->t, action.kind == LS_ACTION_F ? layers->first : layers->end - 1,
                          error);
}

int stage_pipeline_run(const struct stage_batch *batch, struct ls_error *error)
{
    struct ls_trainer *t = batch->t;
    struct stage_tables *tables = t->memory.tables;
    struct stage_run run = {.tables = tables, .t = t};
    for (int i = 0; i < tables->count; i++)
        if (tables->list[i].schedule.micro_batches == batch->micro_batches)
            run.table = &tables->list[i];
    LS_ASSERT(run.table);
    tables->batch = batch;
    const struct ls_pipeline_ops ops = {.user = &run,
                                        .forward = run_forward,
                                        .backward_input = run_backward_input,
                                        .backward_weight = run_backward_weight,
                                        .backward = run_backward,
                                        .before = run_before};
    int status = ls_pipeline_run(run.table->pipeline, &ops, error);
    trace_place(t, -1, -1, -1);
    return status;
}

/* ---- the forward alone ----------------------------------------------------------------------- */

/* A boundary between stages on different ranks: one micro-batch at a time. */
static int boundary_move(struct ls_trainer *t, const struct stage_batch *batch, int64_t stage,
                         const void **input, struct ls_error *error)
{
    int64_t rank = t->coordinates[LS_AXIS_PP];
    int64_t from = t->layout.stage_rank[stage - 1];
    int64_t to = t->layout.stage_rank[stage];
    int layer = t->layout.stage_first[stage] - 1;
    int64_t count =
        ls_model_stream_rows(t->memory.model, batch->leaves * t->numerics.leaf_sequences,
                             t->config.data.sequence) *
        t->config.model.channels;
    if (from == rank)
        *input = ls_model_output(t->memory.model, layer, 0);
    if (from == to)
        return LS_OK;
    if (from == rank)
        return ls_send(t->groups.pp, *input, count, t->numerics.act, (int)to, 0, error);
    if (to != rank)
        return LS_OK;
    *input = t->eval_input;
    return ls_recv(t->groups.pp, t->eval_input, count, t->numerics.act, (int)from, 0, error);
}

int stage_forward_all(const struct stage_batch *batch, struct ls_error *error)
{
    struct ls_trainer *t = batch->t;
    const void *input = NULL;
    int status = LS_OK;
    for (int64_t stage = 0; stage < t->layout.stages && !status; stage++) {
        ls_trace_set(t->trace, LS_TRACE_STAGE, stage);
        if (stage > 0)
            status = boundary_move(t, batch, stage, &input, error);
        if (status || t->layout.stage_rank[stage] != t->coordinates[LS_AXIS_PP])
            continue;
        int chunk = 0;
        while (t->layout.rank_stage[t->coordinates[LS_AXIS_PP] * t->layout.chunks + chunk] != stage)
            chunk++;
        ls_trace_set(t->trace, LS_TRACE_CHUNK, chunk);
        status = stage_forward(batch, chunk, 0, 0, input, error);
        ls_trace_set(t->trace, LS_TRACE_CHUNK, -1);
    }
    ls_trace_set(t->trace, LS_TRACE_STAGE, -1);
    return status;
}
