/* A model that is run forward alone: a micro-batch, or one token, goes through all stages of the
 * layout. */
#include "infer/infer_private.h"

#include <lockstep/base/meter.h>

#include <stdlib.h>

int ls_runner_new(const struct ls_runner_parts *parts, struct ls_runner **out,
                  struct ls_error *error)
{
    *out = NULL;
    struct ls_runner *r = calloc(1, sizeof *r);
    if (!r)
        return ls_no_memory(error, "for a runner");
    r->parts = *parts;
    r->model = parts->model;
    r->pp_rank = ls_comm_rank(parts->groups[LS_GROUP_PP]);
    int status = ls_layout_segments(parts->layout, ls_comm_rank(parts->groups[LS_GROUP_CP]),
                                    &r->segments, &r->segment_count, error);
    if (status) {
        ls_runner_free(r);
        return status;
    }
    *out = r;
    return LS_OK;
}

void ls_runner_free(struct ls_runner *r)
{
    if (!r)
        return;
    if (r->model != r->parts.model)
        ls_model_free(r->model);
    ls_arena_release(&r->arena);
    ls_decoder_free(r->decoder);
    free(r->segments);
    free(r->tokens);
    free(r->losses);
    free(r->input);
    free(r);
}

const struct ls_tokenizer *ls_runner_tokenizer(const struct ls_runner *r)
{
    return r->parts.tokenizer;
}

bool runner_ends(const struct ls_runner *r)
{
    const struct ls_layout *layout = r->parts.layout;
    return layout->stage_rank[layout->stages - 1] == r->pp_rank;
}

bool runner_answers(const struct ls_runner *r)
{
    return runner_ends(r) && ls_comm_rank(r->parts.groups[LS_GROUP_TP]) == 0;
}

const volatile int *ls_runner_set_interrupt(struct ls_runner *r, const volatile int *flag)
{
    const volatile int *before = r->interrupt;
    r->interrupt = flag;
    return before;
}

int runner_interrupted(const struct ls_runner *r, int status, struct ls_error *error)
{
    return !status && r->interrupt && __atomic_load_n(r->interrupt, __ATOMIC_RELAXED)
               ? ls_error_set(error, LS_ESTOPPED, "interrupted: nothing is given back")
               : status;
}

void runner_tell(const struct ls_runner *r, const char *what, int64_t done, int64_t all)
{
    if (ls_comm_rank(r->parts.groups[LS_GROUP_WORLD]) == 0)
        ls_meter(what, ls_min(done, all), all);
}

int runner_model_make(const struct ls_model_options *options, struct ls_arena *arena,
                      struct ls_model **out, struct ls_error *error)
{
    struct ls_arena measure;
    struct ls_model *model;
    *out = NULL;
    ls_arena_measure(&measure);
    int status = ls_model_new(options, &measure, &model, error);
    if (status)
        return status;
    ls_model_free(model);
    status = ls_arena_init(arena, measure.peak, error);
    return status ? status : ls_model_new(options, arena, out, error);
}

/* ---- what the head found --------------------------------------------------------------------- */

union float_bits {
    float value;
    uint32_t bits;
};

uint64_t found_of(float loss, bool likeliest)
{
    return (union float_bits){.value = 0 - loss}.bits | FOUND | (likeliest ? FOUND_LIKELIEST : 0);
}

float found_logprob(uint64_t found)
{
    return (union float_bits){.bits = (uint32_t)found}.value;
}

void found_take(const struct found_rows *rows, const struct ls_micro_batch *batch, int64_t sequence,
                uint64_t *found, float *entropies)
{
    const float *loss = ls_model_row_losses(rows->model);
    const float *likeliest = batch->likeliest ? ls_model_likeliest(rows->model) : NULL;
    const float *entropy = batch->entropies ? ls_model_entropies(rows->model) : NULL;
    int64_t row = 0;
    for (int i = 0; i < rows->segment_count; i++)
        row += sequence * rows->segments[i].count;
    for (int i = 0; i < rows->segment_count; i++)
        for (int64_t k = 0; k < rows->segments[i].count; k++, row++)
            if (batch->targets[row] >= 0) {
                int64_t at = rows->segments[i].first + k;
                found[at] =
                    found_of(loss[row], likeliest && likeliest[row] == (float)-batch->targets[row]);
                if (entropy)
                    entropies[at] = entropy[row];
            }
}

/* ---- layers ---------------------------------------------------------------------------------- */

static int layer_run(struct ls_runner *r, struct ls_model *model, int layer, int last,
                     const struct ls_micro_batch *batch, struct ls_error *error)
{
    const struct ls_runner_parts *parts = &r->parts;
    ls_trace_set(parts->trace, LS_TRACE_LAYER, layer);
    ls_trace_begin(parts->trace, ls_layer_name(&parts->layout->model, layer), "compute");
    int status = parts->enter ? parts->enter(parts->user, layer, last, error) : LS_OK;
    if (!status && batch)
        status = ls_layer_forward(model, parts->ops, layer, batch, NULL, error);
    if (parts->leave)
        parts->leave(parts->user, layer);
    ls_trace_end(parts->trace);
    ls_trace_set(parts->trace, LS_TRACE_LAYER, -1);
    ls_progress();
    return status;
}

static int stage_run(struct ls_runner *r, struct ls_model *model, int64_t stage,
                     const struct ls_micro_batch *batch, struct ls_error *error)
{
    const struct ls_layout *layout = r->parts.layout;
    int end = layout->stage_first[stage + 1], status = LS_OK;
    int64_t chunk = 0;
    while (layout->rank_stage[r->pp_rank * layout->chunks + chunk] != stage)
        chunk++;
    ls_trace_set(r->parts.trace, LS_TRACE_CHUNK, chunk);
    ls_trace_begin(r->parts.trace, "forward", "compute");
    for (int layer = layout->stage_first[stage]; layer < end && !status; layer++)
        status = layer_run(r, model, layer, end - 1, batch, error);
    ls_trace_end(r->parts.trace);
    ls_trace_set(r->parts.trace, LS_TRACE_CHUNK, -1);
    return status;
}

/* ---- between stages -------------------------------------------------------------------------- */

static int input_room(struct ls_runner *r, size_t bytes, struct ls_error *error)
{
    if (bytes <= r->input_bytes)
        return LS_OK;
    int status = ls_queue_synchronise(&r->parts.ops->queue, error); /* commands may use the old */
    if (status)
        return status;
    free(r->input);
    r->input = malloc(bytes);
    r->input_bytes = r->input ? bytes : 0;
    return r->input ? LS_OK : ls_no_memory(error, "for what comes from another stage");
}

/* What stage reads goes from the rank that made it to the one that runs the stage. */
static int boundary_move(struct ls_runner *r, const struct ls_model *model, int64_t stage,
                         struct ls_micro_batch *batch, struct ls_error *error)
{
    const struct ls_layout *layout = r->parts.layout;
    int from = layout->stage_rank[stage - 1], to = layout->stage_rank[stage];
    int64_t rows = ls_model_stream_rows(model, batch->sequences, batch->tokens);
    int64_t count = rows * layout->model.channels;
    enum ls_dtype act = layout->numerics.act;
    struct ls_comm *pp = r->parts.groups[LS_GROUP_PP];
    if (from == r->pp_rank)
        batch->input = ls_model_output(model, layout->stage_first[stage] - 1, 0);
    if (from == to)
        return LS_OK;
    if (from == r->pp_rank)
        return ls_send_start(pp, batch->input, count, act, to, 0, LS_QUEUED, LS_HERE, error);
    if (to != r->pp_rank)
        return LS_OK;
    int status = input_room(r, (size_t)count * ls_dtype_bytes(act), error);
    batch->input = r->input;
    return status ? status
                  : ls_recv_start(pp, r->input, count, act, from, 0, LS_QUEUED, LS_HERE, error);
}

int runner_forward(struct ls_runner *r, struct ls_model *model, struct ls_micro_batch *batch,
                   struct ls_error *error)
{
    const struct ls_layout *layout = r->parts.layout;
    int status = LS_OK;
    for (int64_t stage = 0; stage < layout->stages && !status; stage++) {
        ls_trace_set(r->parts.trace, LS_TRACE_STAGE, stage);
        if (stage > 0 && batch)
            status = boundary_move(r, model, stage, batch, error);
        if (!status && layout->stage_rank[stage] == r->pp_rank)
            status = stage_run(r, model, stage, batch, error);
    }
    ls_trace_set(r->parts.trace, LS_TRACE_STAGE, -1);
    return status ? status : ls_queue_synchronise(&r->parts.ops->queue, error);
}

/* ---- one token ------------------------------------------------------------------------------- */

int ls_runner_restart(struct ls_runner *r, struct ls_error *error)
{
    int64_t context = r->parts.layout->model.context;
    const struct ls_decoder_size one = {1, context, 1, ls_ceil_div(context, LS_ATTENTION_BLOCK)};
    int status = runner_decoder(r, &one, error);
    status = ls_comm_agree(r->parts.groups[LS_GROUP_WORLD], status, error);
    if (!status)
        ls_decoder_reset(r->decoder, 0);
    return status;
}

int ls_runner_next(struct ls_runner *r, int32_t token, const float **logits, struct ls_error *error)
{
    const struct ls_decoder_run run = {.count = 1, .ends = true};
    struct ls_micro_batch batch;
    int status = ls_decoder_begin(r->decoder, &run, 1, &token, &batch, error);
    if (!status)
        status = runner_forward(r, ls_decoder_model(r->decoder), &batch, error);
    if (!status)
        *logits = ls_decoder_end(r->decoder, r->parts.ops);
    return status ? status : ls_queue_synchronise(&r->parts.ops->queue, error);
}
