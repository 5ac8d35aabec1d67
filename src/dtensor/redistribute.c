/* Steps carried out one after the other, from buffer to buffer. */
#include "dtensor/dtensor_private.h"

/* What a rank needs beside the two tensors, in elements. */
struct need {
    int64_t between, send, receive;
};

static struct need need_of(const struct dtensor_step *steps, int count)
{
    struct need need = {0};
    for (int i = 0; i < count; i++) {
        need.send = ls_max(need.send, steps[i].send_count);
        need.receive = ls_max(need.receive, steps[i].receive_count);
        if (i + 1 < count)
            need.between = ls_max(need.between, steps[i].to_count);
    }
    return need;
}

static int run_steps(const struct ls_dtensor *from, struct ls_dtensor *to,
                     struct ls_mesh_comms *comms, const struct dtensor_step *steps, int count,
                     void *const buffers[4], struct ls_error *error)
{
    const void *in = from->data;
    for (int i = 0; i < count; i++) {
        void *out = i + 1 == count ? to->data : buffers[i % 2];
        int status = dtensor_step_run(&steps[i], from->spec.dtype, in, out, buffers[2], buffers[3],
                                      comms->axis[steps[i].public.axis], error);
        if (status != LS_OK)
            return ls_error_prefix(error, "redistribute along axis %s",
                                   comms->mesh.name[steps[i].public.axis]);
        in = out;
    }
    return LS_OK;
}

static int tensors_check(const struct ls_dtensor *from, const struct ls_dtensor *to,
                         struct ls_mesh_comms *comms, struct ls_error *error)
{
    int status = dtensor_comms_check(from, comms, "redistribute", error);
    if (status == LS_OK)
        status = dtensor_comms_check(to, comms, "redistribute", error);
    if (status != LS_OK)
        return status;
    if ((!from->data && from->local_count > 0) || (!to->data && to->local_count > 0))
        return ls_error_set(error, LS_EINVAL, "redistribute: a tensor has no buffer");
    if (from->data == to->data)
        return ls_error_set(error, LS_EINVAL, "redistribute: both tensors use the same buffer");
    return LS_OK;
}

int ls_redistribute(const struct ls_dtensor *from, struct ls_dtensor *to,
                    struct ls_mesh_comms *comms, struct ls_error *error)
{
    struct dtensor_step steps[LS_REDISTRIBUTE_STEPS_MAX];
    struct need need = {0};
    void *buffers[4] = {NULL}; /* two between steps, one to send from, one to receive in */
    bool exchange = false;
    int count = 0, status = tensors_check(from, to, comms, error);
    if (status == LS_OK)
        count = dtensor_plan_axes(&from->spec, &to->spec, from->rank, steps, error);
    status = count < 0 ? count : status;
    if (status == LS_OK) {
        exchange = dtensor_prefers_exchange(&from->spec, &to->spec, steps, count);
        need = need_of(steps, count);
        if (exchange) {
            need.between = 0;
            dtensor_exchange_staging(&from->spec, &to->spec, from->rank, &need.send, &need.receive);
        }
        const int64_t counts[4] = {need.between, need.between, need.send, need.receive};
        status = dtensor_memory(comms, counts, 4, from->spec.dtype, buffers, error);
    }
    status = ls_comm_agree(comms->all, status, error);
    if (status == LS_OK && exchange)
        status = dtensor_exchange(from, to, buffers[2], buffers[3], comms->all, error);
    else if (status == LS_OK && count > 0)
        status = run_steps(from, to, comms, steps, count, buffers, error);
    else if (status == LS_OK)
        dtensor_copy(to->data, from->data,
                     (size_t)to->local_count * ls_dtype_bytes(to->spec.dtype));
    return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

int ls_redistribute_backward_placements(const struct ls_dtensor_spec *input,
                                        const struct ls_dtensor_spec *gradient,
                                        struct ls_placement *placements, struct ls_error *error)
{
    for (int axis = 0; axis < input->mesh.axis_count; axis++) {
        struct ls_placement p = input->placement[axis], g = gradient->placement[axis];
        char text[LS_PLACEMENT_TEXT_MAX];
        if (p.kind == LS_PARTIAL && p.reduce > LS_REDUCE_AVG)
            return ls_error_set(error, LS_EINVAL,
                                "%s on axis %s cannot be redistributed backward: the gradient "
                                "belongs to the rank whose value was taken",
                                ls_placement_text(p, text), input->mesh.name[axis]);
        placements[axis] = p.kind != LS_PARTIAL ? p : g.kind == LS_PARTIAL ? g : ls_replicate();
    }
    return LS_OK;
}

int ls_redistribute_backward(const struct ls_dtensor *gradient, const struct ls_dtensor_spec *input,
                             struct ls_dtensor *input_gradient, struct ls_mesh_comms *comms,
                             struct ls_error *error)
{
    struct ls_placement placements[LS_MESH_AXES_MAX];
    char expected[LS_PLACEMENT_TEXT_MAX], got[LS_PLACEMENT_TEXT_MAX];
    int status = ls_redistribute_backward_placements(input, &gradient->spec, placements, error);
    if (status != LS_OK)
        return status;
    for (int axis = 0; axis < input->mesh.axis_count; axis++)
        if (!ls_placement_equal(placements[axis], input_gradient->spec.placement[axis]))
            return ls_error_set(
                error, LS_EINVAL, "the gradient on axis %s must be %s, but the given tensor is %s",
                input->mesh.name[axis], ls_placement_text(placements[axis], expected),
                ls_placement_text(input_gradient->spec.placement[axis], got));
    return ls_redistribute(gradient, input_gradient, comms, error);
}
