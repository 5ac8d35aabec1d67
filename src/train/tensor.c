/* The trainer's tensors as distributed ones. */
#include "trainer.h"

/* How tensor parallel cuts a parameter: dim (-1: it does not) in equal parts. */
struct tp_cut {
    int dim;
    int64_t parts;
};

static struct tp_cut tp_cut_of(const struct ls_param *param)
{
    if (param->rows < param->global_rows)
        return (struct tp_cut){0, param->global_rows / param->rows};
    if (param->cols < param->global_cols)
        return (struct tp_cut){param->matrix ? 1 : 0, param->global_cols / param->cols};
    return (struct tp_cut){-1, 1};
}

int tensor_spec(const struct ls_layout *layout, const struct ls_param *param,
                struct ls_dtensor_spec *spec, struct ls_error *error)
{
    struct tp_cut cut = tp_cut_of(param);
    const int64_t *size = layout->size;
    int64_t tp = size[LS_AXIS_TP], sharers = cut.dim < 0 ? 1 : tp / cut.parts;
    bool shared = sharers > 1;
    const char *const names[] = {"dp_replicate", "shard", shared ? "tp_heads" : "tp", "tp_sharers"};
    int64_t sizes[] = {size[LS_AXIS_DP_REPLICATE], size[LS_AXIS_DP_SHARD] * size[LS_AXIS_CP],
                       tp / sharers, sharers};
    const struct ls_placement placements[] = {
        ls_replicate(),
        layout->zero == 0 ? ls_replicate()
        : cut.dim == 0    ? ls_strided_shard(0, cut.parts)
                          : ls_shard(0),
        cut.dim < 0 ? ls_replicate() : ls_shard(cut.dim),
        ls_replicate(),
    };
    struct ls_mesh mesh;
    int status = ls_mesh_init(&mesh, shared ? 4 : 3, names, sizes, error);
    if (status)
        return status;
    const int64_t matrix[2] = {param->global_rows, param->global_cols};
    return ls_dtensor_spec_init(spec, LS_F32, param->matrix ? 2 : 1,
                                param->matrix ? matrix : &param->global_cols, &mesh, placements,
                                error);
}

/* The slice that begins at data. */
static int tensor_make(const struct ls_trainer *t, int i, float *data, struct ls_dtensor *out,
                       struct ls_error *error)
{
    struct ls_dtensor_spec spec;
    int status = tensor_spec(&t->layout, &t->params.list[i], &spec, error);
    if (status)
        return status;
    /* pp is the outermost axis. */
    int64_t rank = ls_comm_rank(t->world) % ls_mesh_ranks(&spec.mesh);
    status = ls_dtensor_init(out, &spec, rank, data, error);
    LS_ASSERT(status || out->local_count == ls_zero_slices(t->memory.zero)[i].count);
    return status;
}

int tensor_slice(const struct ls_trainer *t, int i, float *array, struct ls_dtensor *out,
                 struct ls_error *error)
{
    return tensor_make(t, i, array + ls_zero_slices(t->memory.zero)[i].offset, out, error);
}

/* The gradient that the head or the embedding makes of a table they share; of other parameters the
 * only one, and NULL. Where a tied table is held without the head, the embedding's comes first. */
static const float *gradient_of(const struct ls_trainer *t, int i, bool table)
{
    const struct ls_slice *slice = &t->memory.slices[i];
    bool swapped = i == t->params.shared_param && !t->part.head;
    return table == swapped ? slice->gradient : slice->second;
}

int ls_trainer_tensor_count(const struct ls_trainer *t)
{
    return t->params.count;
}

int ls_trainer_dtensor(const struct ls_trainer *t, int i, enum ls_tensor_kind kind,
                       struct ls_dtensor *out, struct ls_error *error)
{
    int state = (int)kind - LS_TENSOR_STATE,
        states = ls_optimizer_states(&t->memory.optimizer.config);
    if (i < 0 || i >= t->params.count || (int)kind < 0 || state >= states)
        return ls_error_set(error, LS_EINVAL,
                            "tensor %d of kind %d: there are %d parameters, and kinds below %d", i,
                            (int)kind, t->params.count, LS_TENSOR_STATE + states);
    if (kind == LS_TENSOR_PARAMETER)
        return tensor_slice(t, i, ls_zero_master(t->memory.zero), out, error);
    if (state >= 0)
        return tensor_slice(t, i, t->memory.optimizer.state[state], out, error);
    const float *gradient = gradient_of(t, i, kind == LS_TENSOR_TABLE_GRADIENT);
    if (!gradient)
        return ls_error_set(error, LS_EINVAL, "%s has no such gradient, or no step made it yet",
                            t->params.list[i].name);
    return tensor_make(t, i, (float *)gradient, out, error);
}
