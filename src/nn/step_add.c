/* The sum of two streams, a residual connection: out = a + b. in: a, b; out: the sum. */
#include "nn/model.h"

static int add_forward(const struct layer_run *run, const struct bound_step *s)
{
    const struct ls_model *model = run->model;
    ls_add(run->ops, model->numerics.act, run->rows->count * model->config.channels,
           run_in(run, s, 0), run_in(run, s, 1), run_out(run, s, 0));
    return LS_OK;
}

const struct step_kind step_add = {
    .name = "add",
    .ins = 2,
    .outs = 1,
    .flow = FLOW_THROUGH,
    .forward = add_forward,
};
