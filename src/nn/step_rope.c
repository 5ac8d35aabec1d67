/* Rotary positions (Su et al. 2021) of q and k, which lie side by side as H + G heads, in place, in
 * the blocks that have them. in and out: qkv. */
#include "nn/model.h"

static struct ls_rope rope_of(const struct layer_run *run)
{
    const struct ls_model *model = run->model;
    const struct ls_model_config *c = &model->config;
    bool local = c->rope_local_theta > 0 && ls_layer_among(c->window_layers, run->layer->index - 1);
    const struct rope_table *table = local ? &model->rope_local : &model->rope;
    return (struct ls_rope){.heads = model->heads + model->kv_heads,
                            .head_dim = c->head_dim,
                            .ld = size_held(model, SIZE_QKV),
                            .cosine = table->cosine,
                            .sine = table->sine};
}

static void rotate(const struct layer_run *run, void *qkv, bool backward)
{
    const struct ls_model *model = run->model;
    if (!ls_layer_among(model->config.rope_layers, run->layer->index - 1))
        return;
    struct ls_rope rope = rope_of(run);
    size_t bytes = (size_t)rope.ld * model_act_bytes(model);
    for (struct token_run piece = {0}; rows_next(model, run->rows, 0, run->rows->all, &piece);) {
        rope.rows = rope.tokens = piece.count;
        rope.first_position = piece.position;
        ls_rope_apply(run->ops, model->numerics.act, &rope, (char *)qkv + (size_t)piece.row * bytes,
                      backward);
    }
}

static int rope_forward(const struct layer_run *run, const struct bound_step *s)
{
    rotate(run, run_out(run, s, 0), false);
    return LS_OK;
}

static int rope_input(const struct layer_run *run, const struct bound_step *s)
{
    rotate(run, run_dx(run, s), true);
    return LS_OK;
}

static void table_take(const struct ls_model *model, struct ls_arena *arena, double theta,
                       const struct ls_rope_scaling *scaling, struct rope_table *table)
{
    int64_t positions = ls_max(model->options.positions, model->options.tokens);
    int64_t head_dim = model->config.head_dim;
    size_t bytes = (size_t)(positions * head_dim / 2) * sizeof(float);
    table->cosine = ls_arena_take(arena, bytes);
    table->sine = ls_arena_take(arena, bytes);
    if (!arena->measuring)
        ls_rope_table(positions, head_dim, theta, scaling, table->cosine, table->sine);
}

/* The angles of all positions, once for all layers. */
static void rope_constants(struct ls_model *model, struct ls_arena *arena,
                           const struct bound_step *s)
{
    const struct ls_model_config *c = &model->config;
    const struct ls_rope_scaling unscaled = {0};
    (void)s;
    if (model->rope_taken)
        return;
    model->rope_taken = true;
    table_take(model, arena, c->rope_theta, &c->rope_scaling, &model->rope);
    if (c->rope_local_theta > 0)
        table_take(model, arena, c->rope_local_theta, &unscaled, &model->rope_local);
}

const struct step_kind step_rope = {
    .name = "rope",
    .keys = "rope_theta|rope_scaling|rope_factor|rope_beta_fast|rope_beta_slow|"
            "rope_attention_factor|rope_low_freq_factor|rope_high_freq_factor|"
            "rope_original_context",
    .ins = 1,
    .outs = 1,
    .flow = FLOW_IN_PLACE,
    .forward = rope_forward,
    .input = rope_input,
    .constants = rope_constants,
};
