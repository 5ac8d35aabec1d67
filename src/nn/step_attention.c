/* Causal attention over the heads held here (Vaswani et al. 2017; Dao et al. 2022). Sequences are
 * whole on this rank, or in segments (step_attention.h). in: qkv; out: o, lse. The step's weight is
 * that of qkv: it names what moves. */
#include "step_attention.h"

#include <math.h>

/* ---- buffers ----------------------------------------------------------------------------------
 */

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

/* ---- attention --------------------------------------------------------------------------------
 */

static int64_t window_of(const struct ls_model_config *config, int64_t layer)
{
    int64_t block = layer - 1;
    return config->window_layers == LS_WINDOW_ALL || block % 2 == 0 ? config->window : 0;
}

struct attention_form attention_shape(const struct ls_model *model, int layer)
{
    const struct ls_model_config *c = &model->config;
    double scale = c->query_scale > 0 ? c->query_scale : (double)c->head_dim;
    return (struct attention_form){.scale = (float)(1 / sqrt(scale)),
                                   .window = window_of(c, layer),
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
        status = ls_all_reduce(model->tp.sharers_comm, sums, 2 * half, a->error);
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

/* ---- generation -------------------------------------------------------------------------------
 */

/* Puts this token's key and value in the cache and attends to all of it. */
static int attention_decode(const struct layer_run *run, const struct bound_step *s)
{
    const struct ls_model *model = run->model;
    const struct ls_model_config *c = &model->config;
    size_t act = model_act_bytes(model);
    int64_t q = size_held(model, SIZE_QUERY), kv = size_held(model, SIZE_KV);
    int64_t position = model->decoding->position;
    const struct attention_form form = attention_shape(model, run->layer->index);
    size_t row_bytes = (size_t)kv * act;
    const char *qkv = run_in(run, s, 0);
    char *k_cache = model->decoding->cache[run->layer->index];
    char *v_cache = k_cache + (size_t)c->context * row_bytes;
    ls_copy(run->ops, row_bytes, qkv + (size_t)q * act, k_cache + (size_t)position * row_bytes);
    ls_copy(run->ops, row_bytes, qkv + (size_t)(q + kv) * act,
            v_cache + (size_t)position * row_bytes);
    const int32_t length = (int32_t)position + 1;
    struct ls_attention_decode decode = {.batch = 1,
                                         .lengths = &length,
                                         .capacity = c->context,
                                         .heads = model->heads,
                                         .kv_heads = model->kv_heads,
                                         .head_dim = c->head_dim,
                                         .scale = form.scale,
                                         .window = form.window,
                                         .softcap = form.softcap,
                                         .act = model->numerics.act,
                                         .q = qkv,
                                         .k_cache = k_cache,
                                         .v_cache = v_cache,
                                         .q_ld = q + 2 * kv,
                                         .o_ld = q,
                                         .o = run_out(run, s, 0)};
    return ls_attention_decode(run->ops, &decode, run->error);
}

/* 12 H D T, as PaLM's and Megatron's model flops count it; of a window what it sees. */
static double attention_flops(const struct ls_model_config *config, int64_t layer,
                              double weight_elements, int64_t tokens)
{
    int64_t window = window_of(config, layer);
    (void)weight_elements;
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
