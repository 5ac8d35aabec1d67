/* The mlp's activation: GELU, or SwiGLU or GeGLU of a gate and a value that lie side by side. in:
 * f; out: g. */
#include "model.h"

static enum ls_gelu gelu_of(const struct ls_model_config *config)
{
    return config->act == LS_ACT_GELU_ERF ? LS_GELU_ERF : LS_GELU_TANH;
}

static int activation_forward(const struct layer_run *run, const struct bound_step *s)
{
    const struct ls_model *model = run->model;
    const struct ls_model_config *c = &model->config;
    enum ls_dtype act = model->numerics.act;
    const void *f = run_in(run, s, 0);
    void *g = run_out(run, s, 0);
    if (c->act == LS_ACT_SWIGLU)
        ls_swiglu_forward(run->ops, act, run->rows->all, model->ffn, f, g);
    else if (c->act == LS_ACT_GEGLU)
        ls_geglu_forward(run->ops, act, run->rows->all, model->ffn, f, g);
    else
        ls_gelu_forward(run->ops, gelu_of(c), act, run->rows->all * model->ffn, f, g);
    return LS_OK;
}

/* GELU's gradient is taken in place; that of a gated unit is twice as wide as what it comes from.
 */
static int activation_input(const struct layer_run *run, const struct bound_step *s)
{
    const struct ls_model *model = run->model;
    const struct ls_model_config *c = &model->config;
    enum ls_dtype act = model->numerics.act;
    const void *f = run_in(run, s, 0), *dg = run_dy(run, s);
    void *df = run_dx(run, s);
    if (c->act == LS_ACT_SWIGLU)
        ls_swiglu_backward(run->ops, act, run->rows->all, model->ffn, f, dg, df);
    else if (c->act == LS_ACT_GEGLU)
        ls_geglu_backward(run->ops, act, run->rows->all, model->ffn, f, dg, df);
    else
        ls_gelu_backward(run->ops, gelu_of(c), act, run->rows->all * model->ffn, f, dg, df);
    return LS_OK;
}

const struct step_kind step_activation = {
    .name = "activation",
    .ins = 1,
    .outs = 1,
    .input_reads = READS_IN0,
    .flow = FLOW_IN_PLACE,
    .forward = activation_forward,
    .input = activation_input,
};
