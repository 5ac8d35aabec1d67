/* The mlp's activation: GELU, or SwiGLU or GeGLU of a gate and a value that lie side by side. in:
 * f; out: g. */
#include "nn/model.h"

static enum ls_gelu gelu_of(const struct ls_model_config *config)
{
    return config->act == LS_ACT_GELU_ERF ? LS_GELU_ERF : LS_GELU_TANH;
}

/* false: the unit has no gate. */
static bool glu_of(const struct ls_model_config *config, enum ls_glu *kind)
{
    *kind = config->act == LS_ACT_GEGLU ? LS_GEGLU : LS_SWIGLU;
    return config->act == LS_ACT_SWIGLU || config->act == LS_ACT_GEGLU;
}

static int activation_forward(const struct layer_run *run, const struct bound_step *s)
{
    const struct ls_model *model = run->model;
    const struct ls_model_config *c = &model->config;
    enum ls_dtype act = model->numerics.act;
    enum ls_glu glu;
    const void *f = run_in(run, s, 0);
    void *g = run_out(run, s, 0);
    if (glu_of(c, &glu))
        ls_glu_forward(run->ops, glu, act, run->rows->all, model->ffn, f, g);
    else
        ls_gelu_forward(run->ops, gelu_of(c), act, run->rows->all * model->ffn, f, g);
    return LS_OK;
}

/* GELU's gradient is taken in place; a gated unit's is twice as wide as what it comes from. */
static int activation_input(const struct layer_run *run, const struct bound_step *s)
{
    const struct ls_model *model = run->model;
    const struct ls_model_config *c = &model->config;
    enum ls_dtype act = model->numerics.act;
    enum ls_glu glu;
    const void *f = run_in(run, s, 0), *dg = run_dy(run, s);
    void *df = run_dx(run, s);
    if (glu_of(c, &glu))
        ls_glu_backward(run->ops, glu, act, run->rows->all, model->ffn, f, dg, df);
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
