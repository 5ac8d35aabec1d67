/* The trainer's tensors as distributed ones. */
#include "train/trainer.h"

/* The gradient that the head or the embedding makes of a table they share; of other parameters the
 * only one, and NULL; NULL too where the optimizer used it up. Where a tied table is held without
 * the head, the embedding's comes first. */
static const float *gradient_of(const struct ls_trainer *t, int i, bool table)
{
    const struct ls_slice *slice = &t->state->slices[i];
    bool swapped = i == t->params.shared_param && !t->part.head;
    if (t->state->optimizer.muon && slice->param->hidden)
        return NULL;
    int64_t place = table == swapped ? slice->part->gradient : slice->part->second;
    return t->state->gradient && place >= 0 ? t->state->gradient + place : NULL;
}

double ls_trainer_gradient_scale(const struct ls_trainer *t)
{
    return t->gradient_scale;
}

int ls_trainer_dtensor(const struct ls_trainer *t, int i, enum ls_tensor_kind kind,
                       struct ls_dtensor *out, struct ls_error *error)
{
    if (i < 0 || i >= t->params.count)
        return ls_error_set(error, LS_EINVAL, "tensor %d: there are %d parameters", i,
                            t->params.count);
    int state = (int)kind - LS_TENSOR_STATE,
        states = ls_param_states(&t->state->optimizer.config, &t->params.list[i]);
    if ((int)kind < 0 || state >= states)
        return ls_error_set(error, LS_EINVAL, "tensor %d of kind %d: it has kinds below %d", i,
                            (int)kind, LS_TENSOR_STATE + states);
    const struct ls_slice *slice = &t->state->slices[i];
    bool held = kind == LS_TENSOR_PARAMETER || state >= 0;
    if (held && (slice->away || slice->blocks))
        return ls_error_set(error, LS_EINVAL, "%s %s", t->params.list[i].name,
                            slice->blocks ? "is kept in blocks of few bits (lora.base): it has no "
                                            "tensor"
                                          : "is in a memory tier (memory.offload.optimizer)");
    if (held && slice->half)
        return ls_state_tensor(t->state, i, slice->compute_type, slice->compute, out, error);
    if (held)
        return ls_state_tensor(t->state, i, state < 0 ? LS_F32 : ls_state_type(t->state, state),
                               state < 0 ? slice->master : slice->state[state], out, error);
    if (slice->part->gradient_away)
        return ls_error_set(error, LS_EINVAL, "the gradient of %s is in a memory tier",
                            t->params.list[i].name);
    const float *gradient = gradient_of(t, i, kind == LS_TENSOR_TABLE_GRADIENT);
    if (!gradient)
        return ls_error_set(error, LS_EINVAL, "%s has no such gradient, or no step made it yet",
                            t->params.list[i].name);
    return ls_state_tensor(t->state, i, LS_F32, (float *)gradient, out, error);
}
