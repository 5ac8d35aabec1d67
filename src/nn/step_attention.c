/* Causal attention over the heads held here (Vaswani et al. 2017; Dao et al. 2022). Sequences are
 * whole on this rank, or in segments (step_attention.h). in: qkv; out: o, lse. The step's weight is
 * that of qkv: it names what moves. */
#include "nn/step_attention.h"

#include <math.h>

/* ---- buffers --------------------------------------------------------------------------------- */

static float *floats_take(struct ls_arena *arena, int64_t count)
{
    return ls_arena_take(arena, (size_t)count * sizeof(float));
}

static void segments_take(const struct ls_model *model, bool backward, struct ls_arena *arena,
                          struct attention_buffers *b)
{
    int64_t tokens = model->options.tokens, kv = size_held(model, SIZE_KV);
    bool ring = attention_ring(model);
    b->span = ring ? tokens / (2 * model->numerics.seq_tiles) : tokens;
    if (ring) {
        for (int i = 0; i < 2; i++)
            b->block[i] = model_take(model, arena, b->span, 2 * kv);
        b->state = ls_arena_take(arena, attention_state_room(model));
    } else {
        b->natural = model_take(model, arena, tokens, 2 * kv);
        if (model->cp.size > 1)
            b->staging = model_take(model, arena, tokens, 2 * kv);
    }
    if (!backward)
        return;
    for (int64_t tiles = model->numerics.seq_tiles / model->cp.size; tiles > 0; tiles /= 2) {
        LS_ASSERT(b->levels < ATTENTION_LEVELS_MAX);
        b->level[b->levels++] = floats_take(arena, 2 * b->span * kv);
    }
    b->work = floats_take(arena, 2 * b->span * kv);
    if (ring) {
        b->arrived = floats_take(arena, model->cp.size * 2 * b->span * kv);
        b->sent = floats_take(arena, 2 * b->span * kv);
    }
}

static struct attention_buffers buffers_take(const struct ls_model *model, bool backward,
                                             struct ls_arena *arena)
{
    struct attention_buffers b = {0};
    if (model->numerics.seq_tiles > 1)
        segments_take(model, backward, arena, &b);
    else if (model->tp.sharers > 1 && backward)
        b.shared = floats_take(arena, 2 * model->rows_max * size_held(model, SIZE_KV));
    return b;
}

static void attention_work(const struct ls_model *model, const struct bound_step *s,
                           enum phase phase, struct ls_arena *arena)
{
    (void)s;
    if (phase != PHASE_WEIGHT)
        buffers_take(model, phase == PHASE_INPUT, arena);
}

static struct attending attending_of(const struct layer_run *run, const struct bound_step *s)
{
    struct ls_arena work = run_work(run, s);
    return (struct attending){
        .run = run,
        .model = run->model,
        .ops = run->ops,
        .rows = run->rows,
        .tokens = run->batch->tokens,
        .sequences = run->batch->sequences,
        .qkv = (char *)run_in(run, s, 0),
        .o = run_out(run, s, 0),
        .lse = run_out(run, s, 1),
        .buffers = buffers_take(run->model, run->phase == PHASE_INPUT, &work),
        .error = run->error,
    };
}

/* ---- attention ------------------------------------------------------------------------------- */

struct attention_form attention_shape(const struct ls_model *model, int layer)
{
    const struct ls_model_config *c = &model->config;
    double scale = c->query_scale > 0 ? c->query_scale : (double)c->head_dim;
    return (struct attention_form){.scale = (float)(1 / sqrt(scale)),
                                   .window =
                                       ls_layer_among(c->window_layers, layer - 1) ? c->window : 0,
                                   .softcap = c->attention_softcap};
}

struct ls_attention attention_of(const struct attending *a)
{
    const struct ls_model *model = a->model;
    size_t bytes = model_act_bytes(model);
    int64_t q = size_held(model, SIZE_QUERY), kv = size_held(model, SIZE_KV);
    const struct attention_form form = attention_shape(model, a->run->layer->index);
    return (struct ls_attention){.batch = a->sequences,
                                 .tokens = a->tokens,
                                 .heads = model->heads,
                                 .kv_heads = model->kv_heads,
                                 .head_dim = model->config.head_dim,
                                 .scale = form.scale,
                                 .act = model->numerics.act,
                                 .q = a->qkv,
                                 .k = a->qkv + (size_t)q * bytes,
                                 .v = a->qkv + (size_t)(q + kv) * bytes,
                                 .q_ld = q + 2 * kv,
                                 .kv_ld = q + 2 * kv,
                                 .o_ld = q,
                                 .o = a->o,
                                 .lse = a->lse,
                                 .window = form.window,
                                 .softcap = form.softcap,
                                 .starts = a->run->batch->starts,
                                 .starts_ld = a->tokens};
}

void attention_kv_finish(const struct attending *a, int64_t row, int64_t rows, const float *d_k_sum,
                         const float *d_v_sum)
{
    const struct ls_model *model = a->model;
    size_t bytes = model_act_bytes(model);
    int64_t q = size_held(model, SIZE_QUERY), kv = size_held(model, SIZE_KV), ld = q + 2 * kv;
    char *d_k = a->d_qkv + (size_t)(row * ld + q) * bytes;
    const struct attention_form form = attention_shape(model, a->run->layer->index);
    ls_attention_kv_finish(a->ops, &(struct ls_kv_gradient){.act = model->numerics.act,
                                                            .rows = rows,
                                                            .width = kv,
                                                            .ld = ld,
                                                            .scale = form.scale,
                                                            .d_k_sum = d_k_sum,
                                                            .d_v_sum = d_v_sum,
                                                            .d_k = d_k,
                                                            .d_v = d_k + (size_t)kv * bytes});
}

static int attention_forward(const struct layer_run *run, const struct bound_step *s)
{
    struct attending a = attending_of(run, s);
    model_label(run->model, s->weight);
    if (run->model->numerics.seq_tiles > 1)
        return segments_forward(&a);
    struct ls_attention attention = attention_of(&a);
    return ls_attention_forward(run->ops, &attention, run->error);
}

/* Whole sequences are here. Where other ranks have query heads of the same key/value head, its
 * gradient is the tree over all of them. */
static int whole_backward(const struct attending *a)
{
    const struct ls_model *model = a->model;
    size_t bytes = model_act_bytes(model);
    int64_t q = size_held(model, SIZE_QUERY), kv = size_held(model, SIZE_KV);
    int64_t half = a->rows->all * kv;
    struct ls_attention attention = attention_of(a);
    attention.d_o = a->d_o;
    attention.d_q = a->d_qkv;
    attention.d_k = a->d_qkv + (size_t)q * bytes;
    attention.d_v = a->d_qkv + (size_t)(q + kv) * bytes;
    if (model->tp.sharers == 1)
        return ls_attention_backward(a->ops, &attention, a->error);
    float *sums = a->buffers.shared;
    attention.d_k_sum = sums;
    attention.d_v_sum = sums + half;
    int status = ls_attention_backward(a->ops, &attention, a->error);
    if (!status)
        status = ls_all_reduce_start(model->tp.sharers_comm, sums, 2 * half, LS_QUEUED, LS_HERE,
                                     a->error);
    if (!status)
        attention_kv_finish(a, 0, a->rows->all, sums, sums + half);
    return status;
}

static int attention_input(const struct layer_run *run, const struct bound_step *s)
{
    struct attending a = attending_of(run, s);
    a.d_o = run_dy(run, s);
    a.d_qkv = run_dx(run, s);
    model_label(run->model, s->weight);
    return run->model->numerics.seq_tiles > 1 ? segments_backward(&a) : whole_backward(&a);
}

/* ---- generation ------------------------------------------------------------------------------ */

/* Keys or values of all texts, [blocks, BLOCK, G*D], from a row on. */
static char *cache_of(const struct layer_run *run, bool values, int64_t row)
{
    const struct ls_model *model = run->model;
    size_t row_bytes = (size_t)size_held(model, SIZE_KV) * model_act_bytes(model);
    int64_t rows = model->decoding->size.blocks * LS_ATTENTION_BLOCK;
    return model->decoding->cache[run->layer->index] +
           (size_t)(row + (values ? rows : 0)) * row_bytes;
}

static struct ls_key_blocks blocks_of(const struct layer_run *run, int first)
{
    const struct decoding *decoding = run->model->decoding;
    int64_t width = decoding->blocks.width;
    return (struct ls_key_blocks){decoding->tables + first * width, width, decoding->size.blocks};
}

/* Texts that go on in a block that others have go on in a copy. */
static void cache_copy(const struct layer_run *run, const struct block_copy *copy)
{
    size_t row = (size_t)size_held(run->model, SIZE_KV) * model_act_bytes(run->model);
    for (int values = 0; values < 2; values++)
        ls_copy(run->ops, (size_t)copy->rows * row,
                cache_of(run, values, (int64_t)copy->from * LS_ATTENTION_BLOCK),
                cache_of(run, values, (int64_t)copy->to * LS_ATTENTION_BLOCK));
}

static void cache_put(const struct layer_run *run, const char *qkv, int index)
{
    const struct ls_model *model = run->model;
    const struct decoding_run *one = &model->decoding->runs[index];
    const int32_t *table = blocks_of(run, index).table;
    size_t act = model_act_bytes(model);
    int64_t q = size_held(model, SIZE_QUERY), kv = size_held(model, SIZE_KV);
    size_t bytes = (size_t)kv * act;
    for (int64_t i = 0; i < one->count; i++) {
        const char *row = qkv + (size_t)((one->row + i) * (q + 2 * kv)) * act;
        int64_t at = one->position + i;
        int64_t to =
            table[at / LS_ATTENTION_BLOCK] * (int64_t)LS_ATTENTION_BLOCK + at % LS_ATTENTION_BLOCK;
        ls_copy(run->ops, bytes, row + (size_t)q * act, cache_of(run, false, to));
        ls_copy(run->ops, bytes, row + (size_t)(q + kv) * act, cache_of(run, true, to));
    }
}

/* Runs of a token each, which follow each other, attend at once. */
static int tokens_attend(const struct attending *a, int first, int count)
{
    const struct layer_run *run = a->run;
    const struct decoding *decoding = a->model->decoding;
    struct ls_attention all = attention_of(a);
    size_t act = model_act_bytes(a->model), row = (size_t)decoding->runs[first].row;
    struct ls_attention_decode decode = {.batch = count,
                                         .capacity = decoding->size.context,
                                         .heads = all.heads,
                                         .kv_heads = all.kv_heads,
                                         .head_dim = all.head_dim,
                                         .scale = all.scale,
                                         .act = all.act,
                                         .lengths = decoding->lengths + first,
                                         .q = (const char *)all.q + row * (size_t)all.q_ld * act,
                                         .k_cache = cache_of(run, false, 0),
                                         .v_cache = cache_of(run, true, 0),
                                         .q_ld = all.q_ld,
                                         .o_ld = all.o_ld,
                                         .o = (char *)all.o + row * (size_t)all.o_ld * act,
                                         .window = all.window,
                                         .softcap = all.softcap,
                                         .blocks = blocks_of(run, first)};
    return ls_attention_decode(a->ops, &decode, a->error);
}

/* Several tokens of a text: queries that begin where it stands. */
static int chunk_attend(const struct attending *a, int index)
{
    const struct decoding_run *one = &a->model->decoding->runs[index];
    struct ls_attention chunk = attention_of(a);
    size_t act = model_act_bytes(a->model), row = (size_t)one->row;
    chunk.batch = 1;
    chunk.tokens = one->count;
    chunk.q = (const char *)chunk.q + row * (size_t)chunk.q_ld * act;
    chunk.o = (char *)chunk.o + row * (size_t)chunk.o_ld * act;
    chunk.lse += one->row * chunk.heads;
    chunk.k = cache_of(a->run, false, 0);
    chunk.v = cache_of(a->run, true, 0);
    chunk.kv_ld = size_held(a->model, SIZE_KV);
    chunk.keys = a->model->decoding->size.context;
    chunk.blocks = blocks_of(a->run, index);
    chunk.q_first = one->position;
    return ls_attention_forward(a->ops, &chunk, a->error);
}

/* Puts the rows' keys and values in their texts' caches, and attends to all of those. */
static int attention_decode(const struct layer_run *run, const struct bound_step *s)
{
    const struct decoding *decoding = run->model->decoding;
    const struct attending a = attending_of(run, s);
    int status = LS_OK;
    for (int i = 0; i < decoding->blocks.copy_count; i++)
        cache_copy(run, &decoding->blocks.copies[i]);
    for (int i = 0; i < decoding->run_count; i++)
        cache_put(run, a.qkv, i);
    for (int i = 0, count; i < decoding->run_count && !status; i += count) {
        const struct decoding_run *runs = &decoding->runs[i];
        count = 1;
        while (runs[0].count == 1 && i + count < decoding->run_count && runs[count].count == 1)
            count++;
        status = runs[0].count > 1 ? chunk_attend(&a, i) : tokens_attend(&a, i, count);
    }
    return status;
}

/* 12 H D T, as PaLM's and Megatron's model flops count it; of a window what it sees. */
static double attention_flops(const struct ls_model_config *config, int64_t layer, int64_t tokens)
{
    int64_t window = ls_layer_among(config->window_layers, layer - 1) ? config->window : 0;
    return 12 * (double)size_whole(config, SIZE_QUERY) *
           (double)(window > 0 ? ls_min(window, tokens) : tokens);
}

const struct step_kind step_attention = {
    .name = "attention",
    .ins = 1,
    .outs = 2,
    .input_reads = READS_IN0 | READS_OUT0 | READS_OUT1,
    .flow = FLOW_NEW,
    .forward = attention_forward,
    .input = attention_input,
    .decode = attention_decode,
    .work = attention_work,
    .flops = attention_flops,
};
