/* Verbs of tensors: parameters, their gradients, what the optimizer keeps of them. */
#include "session/session_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- which ----------------------------------------------------------------------------------- */

struct asked {
    const char *name;
    enum ls_tensor_kind kind;
};

/* A tensor, as this rank has it. */
struct held {
    bool here;
    struct ls_dtensor tensor;
    int64_t live; /* elements of the whole one, without padding rows of the vocabulary */
    float *other; /* of a tied table: the embedding's gradient, to be added; NULL: none */
    bool scaled;  /* values lie there times the loss scale */
};

static int asked_read(const struct order *order, struct asked *asked, struct ls_error *error)
{
    static const struct ls_word kinds[] = {{"parameter", LS_TENSOR_PARAMETER},
                                           {"gradient", LS_TENSOR_GRADIENT},
                                           {"state", LS_TENSOR_STATE},
                                           {0}};
    int64_t state = 0;
    int found = LS_TENSOR_PARAMETER;
    const struct option options[] = {{"name", .text = &asked->name, .needs = "a parameter's name"},
                                     {"kind", .word = &found, .words = kinds},
                                     {"state", .whole = &state, .most = 8},
                                     {0}};
    int status = options_read(order, options, error);
    asked->kind = (enum ls_tensor_kind)(found + (found == LS_TENSOR_STATE ? (int)state : 0));
    return status;
}

static const struct ls_params *params_of(const struct rank *rank)
{
    return rank->trainer ? ls_trainer_params(rank->trainer) : ls_finished_params(rank->finished);
}

static int tensor_held(struct rank *rank, const struct asked *asked, struct held *held,
                       struct ls_error *error)
{
    const struct ls_params *params = params_of(rank);
    const struct ls_param *param = ls_params_find(params, asked->name);
    *held = (struct held){.here = param != NULL};
    if (!param)
        return LS_OK;
    int i = (int)(param - params->list);
    bool tied = i == params->tied_param || i == params->shared_param;
    held->live = param->live_rows * param->global_cols;
    if (rank->trainer) {
        struct ls_dtensor other = {0};
        int status = ls_trainer_dtensor(rank->trainer, i, asked->kind, &held->tensor, error);
        if (!status && tied && asked->kind == LS_TENSOR_GRADIENT)
            status = ls_trainer_dtensor(rank->trainer, i, LS_TENSOR_TABLE_GRADIENT, &other, error);
        held->other = other.data;
        held->scaled =
            asked->kind == LS_TENSOR_GRADIENT && rank->session->config.numerics.precision == LS_F16;
        return status;
    }
    if (asked->kind != LS_TENSOR_PARAMETER)
        return ls_error_set(error, LS_EINVAL, "a model that is not trained has parameters alone");
    return ls_finished_dtensor(rank->finished, i, &held->tensor, error);
}

/* Collective. The first rank of the world that has something of it; LS_EINVAL if none has. */
static int source_find(struct rank *rank, const struct asked *asked, const struct held *held,
                       int *source, struct ls_error *error)
{
    enum { NONE = -(1 << 30) };
    int64_t first = held->here ? -ls_comm_rank(rank->world) : NONE;
    int status = ls_all_reduce_max(rank->world, &first, error);
    *source = (int)-first;
    if (status || first != NONE)
        return status;
    return ls_error_set(error, LS_EINVAL, "%s: the model has no parameter of that name",
                        asked->name);
}

static const char *dtype_text(enum ls_dtype dtype)
{
    return dtype == LS_BF16 ? "bf16" : dtype == LS_F16 ? "f2" : "f4";
}

/* Without padding rows. */
static void shape_of(const struct held *held, int64_t shape[LS_DTENSOR_DIMS_MAX])
{
    const struct ls_dtensor_spec *spec = &held->tensor.spec;
    int64_t rest = 1;
    for (int i = 1; i < spec->dims; i++) {
        shape[i] = spec->shape[i];
        rest *= shape[i];
    }
    shape[0] = held->live / ls_max(rest, 1);
}

/* ---- the list -------------------------------------------------------------------------------- */

static json_t *param_json(const struct rank *rank, const struct ls_param *param,
                          const struct ls_optim_config *optim)
{
    char placement[LS_MESH_AXES_MAX * LS_PLACEMENT_TEXT_MAX] = "", one[LS_PLACEMENT_TEXT_MAX];
    const struct ls_dtensor_spec *spec = &param->spec;
    json_t *shape = spec->dims == 1 ? json_pack("[I]", (json_int_t)param->global_cols)
                                    : json_pack("[I,I]", (json_int_t)param->live_rows,
                                                (json_int_t)param->global_cols);
    for (int i = 0; i < spec->mesh.axis_count; i++)
        if (ls_placement_cuts(spec->placement[i]))
            ls_string_add(placement, sizeof placement, ", ", "%s on %s",
                          ls_placement_text(spec->placement[i], one), spec->mesh.name[i]);
    bool trained = rank->trainer && !param->frozen;
    enum ls_dtype act = rank->trainer ? rank->session->config.numerics.precision
                                      : ls_finished_dtype(rank->finished);
    const char *dtype = trained || !param->matrix ? "f4" : dtype_text(act);
    return json_pack("{s:s,s:o,s:s,s:b,s:s,s:i,s:s}", "name", param->name, "shape", shape, "dtype",
                     dtype, "trained", trained, "placement", *placement ? placement : "Replicate",
                     "states", trained ? ls_param_states(optim, param) : 0, "state_dtype",
                     dtype_text(optim->moments));
}

/* Of the whole model, cut as this layout cuts it. */
static int parameters_run(struct rank *rank, struct ls_error *error)
{
    const struct ls_config *config = &rank->session->config;
    const struct ls_layout *layout =
        rank->trainer ? ls_trainer_layout(rank->trainer) : ls_finished_layout(rank->finished);
    const struct ls_optim_config optim = ls_config_optim(config);
    struct ls_params whole;
    if (!rank->speaks)
        return LS_OK;
    int status = ls_layout_params(layout, 0, NULL, &whole, error);
    if (status)
        return status;
    json_t *list = json_array();
    for (int i = 0; i < whole.count && list; i++)
        json_array_append_new(list, param_json(rank, &whole.list[i], &optim));
    answer_set(rank->session, "parameters", list);
    ls_params_release(&whole);
    return LS_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Collective. Each rank that has something of it gets all of it, malloc'ed. */
static int full_get(struct rank *rank, const struct held *held, void **full, struct ls_error *error)
{
    struct ls_comm *group;
    struct ls_mesh_comms comms = {0};
    int world = ls_comm_rank(rank->world);
    const struct ls_params *params = params_of(rank);
    int stage = world / (int)ls_mesh_ranks(&params->list[0].spec.mesh);
    *full = NULL;
    int status = ls_comm_split(rank->world, stage, world, &group, error);
    if (status)
        return status;
    if (held->here) {
        size_t bytes = ls_dtype_bytes(held->tensor.spec.dtype);
        *full = malloc((size_t)ls_dtensor_count(&held->tensor.spec) * bytes + 1);
        status = *full ? LS_OK : ls_no_memory(error, "for a whole tensor");
        status = ls_comm_agree(group, status, error);
        if (!status)
            status = ls_mesh_comms_init(&comms, &held->tensor.spec.mesh, group, error);
        if (!status)
            status = ls_full_tensor(&held->tensor, *full, &comms, error);
        ls_mesh_comms_release(&comms);
    }
    ls_comm_free(group);
    return status;
}

/* Collective. What source knows of the tensor. */
struct told {
    int64_t shape[LS_DTENSOR_DIMS_MAX], dims, dtype;
};

static int told_by(struct rank *rank, const struct held *held, int source, struct told *told,
                   struct ls_error *error)
{
    *told = (struct told){0};
    if (held->here) {
        told->dims = held->tensor.spec.dims;
        told->dtype = held->tensor.spec.dtype;
        shape_of(held, told->shape);
    }
    return ls_broadcast(rank->world, told, sizeof *told, LS_U8, source, error);
}

static int64_t told_bytes(const struct told *told)
{
    int64_t count = 1;
    for (int i = 0; i < (int)told->dims; i++)
        count *= told->shape[i];
    return count * (int64_t)ls_dtype_bytes((enum ls_dtype)told->dtype);
}

static int full_answer(struct rank *rank, const struct held *held, int source,
                       struct ls_error *error)
{
    struct ls_session *s = rank->session;
    struct told told;
    void *full = NULL, *data = NULL;
    bool mpi = ls_comm_transport(rank->world) == LS_TRANSPORT_MPI;
    int status = told_by(rank, held, source, &told, error);
    if (!status)
        status = full_get(rank, held, &full, error);
    if (!status && rank->speaks)
        status = answer_array(s, "value", dtype_text((enum ls_dtype)told.dtype), (int)told.dims,
                              told.shape, &data, true, error);
    status = ls_comm_agree(rank->world, status, error);
    if (!status && ls_comm_rank(rank->world) == source)
        memcpy(s->arrays[0].array.data, full, (size_t)told_bytes(&told));
    if (!status && mpi)
        status = ls_broadcast(rank->world, data, told_bytes(&told), LS_U8, source, error);
    else if (!status)
        status = ls_barrier(rank->world, error);
    free(full);
    return status;
}

static int local_answer(struct rank *rank, const struct held *held, struct ls_error *error)
{
    void *data = NULL;
    const struct ls_dtensor *tensor = &held->tensor;
    const int64_t nothing[LS_DTENSOR_DIMS_MAX] = {0};
    if (!rank->speaks)
        return LS_OK;
    enum ls_dtype dtype = held->here ? tensor->spec.dtype : LS_F32;
    int status =
        answer_array(rank->session, "value", dtype_text(dtype), held->here ? tensor->spec.dims : 1,
                     held->here ? tensor->local_shape : nothing, &data, true, error);
    if (!status && held->here)
        memcpy(data, tensor->data, (size_t)tensor->local_count * ls_dtype_bytes(dtype));
    return status;
}

/* ---- views ----------------------------------------------------------------------------------- */

static bool is_whole(const struct held *held)
{
    return held->here && !held->other &&
           held->tensor.local_count == ls_dtensor_count(&held->tensor.spec);
}

static uint64_t digest_of(const struct held *held)
{
    size_t bytes = (size_t)held->tensor.local_count * ls_dtype_bytes(held->tensor.spec.dtype);
    return ls_hash64(held->tensor.data, bytes, 0);
}

static int view_add(struct ls_session *s, const struct asked *asked, const struct held *held,
                    struct ls_error *error)
{
    struct view *view = NULL;
    for (int i = 0; i < s->view_count; i++)
        if (!strcmp(s->views[i].name, asked->name) && s->views[i].kind == asked->kind)
            view = &s->views[i];
    int64_t room = s->view_room;
    if (!view && !ls_list_grow(&s->views, s->view_count, &room, sizeof *s->views))
        return ls_no_memory(error, "for a view");
    s->view_room = (int)room;
    if (!view) {
        view = &s->views[s->view_count++];
        *view = (struct view){.kind = asked->kind};
        snprintf(view->name, sizeof view->name, "%s", asked->name);
        view->digest = is_whole(held) ? digest_of(held) : 0;
    }
    view->count++;
    return LS_OK;
}

/* Over thread ranks that of the first rank that has something of it, over MPI this process's. */
static int view_answer(struct rank *rank, const struct asked *asked, const struct held *held,
                       int source, struct ls_error *error)
{
    struct ls_session *s = rank->session;
    bool mpi = ls_comm_transport(rank->world) == LS_TRANSPORT_MPI;
    bool answers = mpi ? held->here : ls_comm_rank(rank->world) == source;
    int64_t shape[LS_DTENSOR_DIMS_MAX];
    int status = LS_OK;
    void *data = held->tensor.data;
    if (mpi && !held->here)
        status = ls_error_set(error, LS_EINVAL, "%s: this process has nothing of it", asked->name);
    else if (answers && (held->scaled || !is_whole(held)))
        status = ls_error_set(error, LS_EINVAL, "%s: it is %s, and no view shows it", asked->name,
                              held->scaled  ? "kept times the loss scale of fp16"
                              : held->other ? "the sum of the head's gradient and the embedding's"
                                            : "cut over ranks");
    status = ls_comm_agree(rank->world, status, error);
    if (status || !answers)
        return status;
    shape_of(held, shape);
    if (rank->trainer)
        ls_trainer_lend(rank->trainer, session_arena(s, ls_comm_rank(rank->world)));
    else
        ls_finished_lend(rank->finished, session_arena(s, ls_comm_rank(rank->world)));
    status = answer_array(s, "value", dtype_text(held->tensor.spec.dtype), held->tensor.spec.dims,
                          shape, &data, false, error);
    return status ? status : view_add(s, asked, held, error);
}

/* A gradient as the update takes it, in *made if it does not lie there so: without the loss scale,
 * and of a tied table the sum of head and embedding. */
static int gradient_make(const struct rank *rank, struct held *held, float **made,
                         struct ls_error *error)
{
    const float *gradient = held->tensor.data;
    if (!held->other && !held->scaled)
        return LS_OK;
    float scale = (float)ls_trainer_gradient_scale(rank->trainer);
    *made = malloc((size_t)held->tensor.local_count * sizeof **made + 1);
    if (!*made)
        return ls_no_memory(error, "for a gradient");
    for (int64_t i = 0; i < held->tensor.local_count; i++)
        (*made)[i] = (held->other ? gradient[i] + held->other[i] : gradient[i]) / scale;
    held->tensor.data = *made;
    return LS_OK;
}

static int tensor_run(struct rank *rank, struct ls_error *error)
{
    enum { FULL, LOCAL, VIEW };
    static const struct ls_word hows[] = {{"full", FULL}, {"local", LOCAL}, {"view", VIEW}, {0}};
    const struct order *order = &rank->session->order;
    struct asked asked = {0};
    struct held held = {0};
    float *made = NULL;
    int source = 0, how = FULL;
    const struct option options[] = {{"how", .word = &how, .words = hows}, {0}};
    int status = asked_read(order, &asked, error);
    if (!status)
        status = options_read(order, options, error);
    if (!status)
        status = tensor_held(rank, &asked, &held, error);
    if (!status && how != VIEW)
        status = gradient_make(rank, &held, &made, error);
    status = ls_comm_agree(rank->world, status, error);
    if (!status)
        status = source_find(rank, &asked, &held, &source, error);
    if (!status)
        status = how == FULL    ? full_answer(rank, &held, source, error)
                 : how == LOCAL ? local_answer(rank, &held, error)
                                : view_answer(rank, &asked, &held, source, error);
    free(made);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Collective. The whole tensor, of source (which has it), to all who have something of it. */
static int tensor_write(struct rank *rank, struct held *held, int source, const void *full,
                        struct ls_error *error)
{
    struct told told;
    int status = told_by(rank, held, source, &told, error);
    int64_t live = told_bytes(&told), bytes = live;
    if (held->here)
        bytes =
            ls_dtensor_count(&held->tensor.spec) * (int64_t)ls_dtype_bytes(held->tensor.spec.dtype);
    char *all = status ? NULL : calloc(1, (size_t)bytes + 1);
    if (!status && !all)
        status = ls_no_memory(error, "for a whole tensor");
    status = ls_comm_agree(rank->world, status, error);
    if (!status && full)
        memcpy(all, full, (size_t)live);
    if (!status)
        status = ls_broadcast(rank->world, all, live, LS_U8, source, error);
    if (!status && held->here)
        status = ls_distribute_replicated(&held->tensor, all, error);
    free(all);
    return ls_comm_agree(rank->world, status, error);
}

/* A gradient that was written is kept as a backward leaves it. */
static void gradient_keep(const struct rank *rank, const struct held *held)
{
    float *gradient = held->tensor.data;
    float scale = held->scaled ? (float)ls_trainer_gradient_scale(rank->trainer) : 1;
    for (int64_t i = 0; i < held->tensor.local_count && held->scaled; i++)
        gradient[i] *= scale;
    if (held->other) /* the sum is what was written */
        memset(held->other, 0, (size_t)held->tensor.local_count * sizeof *held->other);
}

static int tensor_set_run(struct rank *rank, struct ls_error *error)
{
    const struct order *order = &rank->session->order;
    const struct ls_array *value = order_array(order, "value");
    struct asked asked = {0};
    struct held held = {0};
    struct told told;
    int source = 0;
    int status = asked_read(order, &asked, error);
    if (!status && !value)
        status = ls_error_set(error, LS_EINVAL, "tensor_set: value: expected an array");
    if (!status)
        status = tensor_held(rank, &asked, &held, error);
    status = ls_comm_agree(rank->world, status, error);
    if (!status)
        status = source_find(rank, &asked, &held, &source, error);
    if (!status)
        status = told_by(rank, &held, source, &told, error);
    if (status)
        return status;
    bool fits = value->dims == (int)told.dims &&
                !strcmp(value->dtype, dtype_text((enum ls_dtype)told.dtype));
    for (int i = 0; i < value->dims && fits; i++)
        fits = value->shape[i] == told.shape[i];
    if (!fits)
        status = ls_error_set(
            error, LS_EINVAL, "tensor_set: %s: expected %s of %lld%s%.0lld elements", asked.name,
            dtype_text((enum ls_dtype)told.dtype), (long long)told.shape[0],
            told.dims > 1 ? " x " : "", (long long)(told.dims > 1 ? told.shape[1] : 0));
    status = ls_comm_agree(rank->world, status, error); /* each process has its own value */
    if (!status)
        status = tensor_write(rank, &held, source, value->data, error);
    if (!status && held.here)
        gradient_keep(rank, &held);
    return status ? status : ls_trainer_publish(rank->trainer, error);
}

/* ---- what was written through views ---------------------------------------------------------- */

static int view_settle(struct rank *rank, const struct view *view, bool *changed,
                       struct ls_error *error)
{
    const struct asked asked = {view->name, view->kind};
    struct held held;
    int source = 0;
    if (tensor_held(rank, &asked, &held, NULL))
        held.here = false; /* a gradient that a step used up */
    int status = source_find(rank, &asked, &held, &source, NULL);
    if (status)
        return status == LS_EINVAL ? LS_OK : status;
    bool mine = ls_comm_rank(rank->world) == source;
    int64_t differs = mine && is_whole(&held) && digest_of(&held) != view->digest;
    status = ls_all_reduce_max(rank->world, &differs, error);
    if (status || !differs)
        return status;
    *changed = true;
    return tensor_write(rank, &held, source, mine ? held.tensor.data : NULL, error);
}

/* What was written before the last pointer went is looked for once more. A tensor is let go of by
 * its name, whatever the kind, so that all kinds are looked at while one of them has a pointer.
 * Over MPI who let go of what is not known to others: there all are looked at. */
static bool is_looked_at(const struct rank *rank, const struct view *view)
{
    const struct ls_session *s = rank->session;
    bool looked_at = ls_comm_transport(rank->world) == LS_TRANSPORT_MPI;
    for (int i = 0; i < s->view_count && !looked_at; i++)
        looked_at = !strcmp(s->views[i].name, view->name) &&
                    (s->views[i].count > 0 || s->views[i].let_go + 1 == s->number);
    return looked_at;
}

int views_settle(struct rank *rank, struct ls_error *error)
{
    const struct ls_session *s = rank->session;
    bool changed = false;
    int status = LS_OK;
    for (int i = 0; i < s->view_count && rank->trainer && !status; i++)
        if (is_looked_at(rank, &s->views[i]))
            status = view_settle(rank, &s->views[i], &changed, error);
    return status || !changed ? status : ls_trainer_publish(rank->trainer, error);
}

void views_note(struct rank *rank)
{
    struct ls_session *s = rank->session;
    for (int i = 0; i < s->view_count && rank->trainer; i++) {
        struct view *view = &s->views[i];
        const struct asked asked = {view->name, view->kind};
        struct held held;
        if (!is_looked_at(rank, view))
            continue;
        if (tensor_held(rank, &asked, &held, NULL))
            held.here = false;
        int source = 0;
        if (!source_find(rank, &asked, &held, &source, NULL) &&
            ls_comm_rank(rank->world) == source && is_whole(&held))
            view->digest = digest_of(&held);
    }
}

const struct verb verbs_tensor[] = {
    {"parameters", "", "", VERB_RANKS, .run = parameters_run},
    {"tensor", "name|kind|state|how", "", VERB_RANKS, .one_model = true, .run = tensor_run},
    {"tensor_set", "name|kind|state", "value", VERB_RANKS, true, .one_model = true,
     .run = tensor_set_run},
    {0}};
