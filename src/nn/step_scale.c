/* Rows of the stream times sqrt(channels), which is rounded to the compute type first, as the
 * embedding of Gemma is scaled. in: x; out: the scaled rows. */
#include "nn/model.h"

#include <math.h>

static void scale(const struct layer_run *run, const void *x, void *y)
{
    const struct ls_model *model = run->model;
    enum ls_dtype act = model->numerics.act;
    float factor = (float)sqrt((double)model->config.channels);
    if (act != LS_F32)
        factor = ls_half_to_f32(act, ls_f32_to_half(act, factor));
    ls_scale(run->ops, act, run->rows->count * model->config.channels, factor, x, y);
}

static int scale_forward(const struct layer_run *run, const struct bound_step *s)
{
    scale(run, run_in(run, s, 0), run_out(run, s, 0));
    return LS_OK;
}

static int scale_input(const struct layer_run *run, const struct bound_step *s)
{
    scale(run, run_dy(run, s), run_dx(run, s));
    return LS_OK;
}

const struct step_kind step_scale = {
    .name = "scale",
    .ins = 1,
    .outs = 1,
    .flow = FLOW_NEW,
    .forward = scale_forward,
    .input = scale_input,
};
