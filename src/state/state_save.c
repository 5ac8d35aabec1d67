/* Saving: each rank writes its share of the state from where it lies. */
#include "state/state_private.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- how large ------------------------------------------------------------------------------- */

/* Bytes of the parameters, or of the states, of those layers (NULL: all). */
static int bytes_of(const struct ls_layout *layout, const struct ls_optim_config *optim,
                    const bool *layers, int64_t *model, int64_t *optimizer, struct ls_error *error)
{
    struct ls_params params;
    *model = *optimizer = 0;
    int status = ls_layout_params(layout, 0, layers, &params, error);
    if (status)
        return status;
    for (int i = 0; i < params.count; i++) {
        int64_t elements = ls_dtensor_count(&params.list[i].spec);
        *model += elements * (int64_t)ls_dtype_bytes(ls_state_type_of(optim, LS_STATE_PARAMETERS));
        *optimizer += ls_param_states(optim, &params.list[i]) * elements *
                      (int64_t)ls_dtype_bytes(ls_state_type_of(optim, 0));
    }
    ls_params_release(&params);
    return LS_OK;
}

int ls_state_file_bytes(const struct ls_config *config, const struct ls_layout *layout,
                        struct ls_state_files *files, struct ls_error *error)
{
    const struct ls_optim_config optim = ls_config_optim(config);
    bool held[LS_LAYOUT_LAYERS_MAX + 2];
    *files = (struct ls_state_files){0};
    int status = bytes_of(layout, &optim, NULL, &files->model, &files->optimizer, error);
    for (int64_t pp = 0; pp < layout->size[LS_AXIS_PP] && !status; pp++) {
        int64_t model, optimizer;
        ls_layout_layers(layout, pp, held, NULL);
        status = bytes_of(layout, &optim, held, &model, &optimizer, error);
        files->stage = ls_max(files->stage, model + optimizer);
    }
    return status;
}

/* ---- a part ---------------------------------------------------------------------------------- */

void state_listing_release(struct state_listing *list)
{
    free(list->entries);
    free(list->boxes);
    free(list->shares);
    free(list->names);
}

/* A layout cuts each dim of a parameter into ranges: the indices of the box's corners say so. */
static bool is_box(const struct ls_dtensor_spec *spec, int64_t rank, const int64_t *offset,
                   const int64_t *shape)
{
    struct ls_runs runs;
    struct ls_run run, last = {0};
    int64_t corner = 0;
    ls_runs_init(&runs, spec, rank);
    while (ls_runs_next(&runs, &run))
        last = run;
    for (int dim = 0; dim < spec->dims; dim++)
        corner = corner * spec->shape[dim] + offset[dim] + shape[dim] - 1;
    return last.global + last.count - 1 == corner;
}

static void entry_add(struct state_listing *list, const struct state_of_rank *of, int i, int array,
                      const struct ls_state_rows *rows)
{
    const struct ls_param *param = &of->params->list[i];
    const struct ls_dtensor_spec *spec = &param->spec;
    struct ls_tensor_entry *entry = &list->entries[list->count];
    struct ls_tensor_box *box = &list->boxes[list->count];
    struct state_name *name = &list->names[list->count];
    char prefix[STATE_PREFIX_BYTES];
    int64_t rank = of->rank % ls_mesh_ranks(&spec->mesh); /* pp is the outermost axis */
    int64_t elements = ls_dtensor_local_shape(spec, rank, entry->shape), row;
    ls_dtensor_offset(spec, rank, box->offset);
    LS_ASSERT(is_box(spec, rank, box->offset, entry->shape));
    row = elements / entry->shape[0];
    state_prefix(of->optim, param, array, prefix);
    snprintf(name->name, sizeof name->name, "%s%s", prefix, param->name);
    if (array == LS_STATE_PARAMETERS)
        ls_param_fqn(of->params, of->model, param, name->fqn);
    for (int dim = 0; dim < spec->dims; dim++)
        box->whole[dim] = spec->shape[dim];
    box->offset[0] += rows->first;
    box->name = name->name;
    entry->shape[0] = rows->count;
    entry->name = name->fqn[0] ? name->fqn : name->name;
    entry->dtype = ls_state_type_of(of->optim, array);
    entry->dims = spec->dims;
    list->shares[list->count++] =
        (struct state_share){i, array, rows->first * row, rows->count * row};
}

int state_listing_init(struct state_listing *list, const struct state_of_rank *of,
                       enum ls_checkpoint_part part, struct ls_error *error)
{
    bool model = part == LS_CKPT_MODEL;
    int first = model ? LS_STATE_PARAMETERS : 0, params = of->params->count;
    int last = model ? 0 : ls_optimizer_states_most(of->optim);
    size_t most = (size_t)(last - first) * (size_t)params;
    struct ls_state_rows *rows = calloc((size_t)params + 1, sizeof *rows);
    *list = (struct state_listing){.entries = calloc(most + 1, sizeof *list->entries),
                                   .boxes = calloc(most + 1, sizeof *list->boxes),
                                   .shares = calloc(most + 1, sizeof *list->shares),
                                   .names = calloc(most + 1, sizeof *list->names)};
    bool there = rows && list->entries && list->boxes && list->shares && list->names;
    for (int array = first; array < last && there; array++) {
        ls_state_shares(of->params, of->rank, of->optim, array, rows);
        for (int i = 0; i < params; i++)
            if (rows[i].count > 0)
                entry_add(list, of, i, array, &rows[i]);
    }
    free(rows);
    return there ? LS_OK : ls_no_memory(error, "for the %zu tensors of a checkpoint", most);
}

/* Read once, then taken from the core's own cache. */
enum { CHUNK_BYTES = LS_FILE_STRAIGHT_BYTES };

struct appending {
    struct ls_state *state;
    struct ls_safetensors_writer *writer;
    const struct state_share *share;
    size_t bytes; /* of an element */
    bool beside;
    struct state_held *held;
};

static int piece_append(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    const struct appending *a = user;
    struct state_share chunk = *a->share;
    int64_t end = ls_min(piece->from + piece->count, chunk.first + chunk.count);
    chunk.first = ls_max(piece->from, chunk.first);
    if (chunk.first >= end)
        return LS_OK;
    /* The hash comes first, as it asks memory for values ahead; but what it rounds in place is
     * written unrounded. */
    bool last = a->state->params->list[chunk.param].blocks;
    int status = a->beside ? LS_OK : ls_queue_synchronise(&a->state->ops->queue, error);
    for (; chunk.first < end && !status; chunk.first += chunk.count) {
        void *values = (char *)piece->values + (size_t)(chunk.first - piece->from) * a->bytes;
        chunk.count = ls_min(end - chunk.first, CHUNK_BYTES / (int64_t)a->bytes);
        ls_progress();
        if (a->held && !last)
            state_held_add(a->state, a->beside, &chunk, values, a->held);
        status =
            ls_safetensors_writer_append(a->writer, values, (size_t)chunk.count * a->bytes, error);
        if (!status && a->held && last)
            state_held_add(a->state, a->beside, &chunk, values, a->held);
    }
    return status;
}

/* Local. written[array + 1][param] gets what is. */
static int part_write(struct ls_state *state, struct ls_checkpoint_writer *checkpoint,
                      enum ls_checkpoint_part part, bool beside, struct state_held *held,
                      struct state_share *written, struct ls_error *error)
{
    const struct state_of_rank of = {&state->layout->model, state->params, &state->optimizer.config,
                                     state->rank};
    struct state_listing list;
    struct ls_safetensors_writer *writer = NULL;
    const struct ls_tensor_entry *next;
    int status = state_listing_init(&list, &of, part, error);
    if (!status && list.count > 0)
        status = ls_checkpoint_writer_begin(checkpoint, part, list.entries, list.boxes, list.count,
                                            &writer, error);
    while (!status && writer && (next = ls_safetensors_writer_next(writer))) {
        const struct state_share *share = &list.shares[next - list.entries];
        struct appending appending = {state,  writer, share, ls_dtype_bytes(next->dtype),
                                      beside, held};
        status = ls_slice_visit_array(&state->optimizer, &state->slices[share->param],
                                      share->array + 1, LS_READS, piece_append, &appending, error);
        written[(share->array + 1) * state->params->count + share->param] = *share;
        LS_ASSERT(status || ls_safetensors_writer_next(writer) != next);
    }
    if (!status && writer)
        status = ls_checkpoint_writer_end(checkpoint, error);
    state_listing_release(&list);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

void state_layout_text(const struct ls_layout *layout, char *text, size_t bytes)
{
    text[0] = '\0';
    for (int axis = 0; axis < LS_AXES; axis++)
        ls_string_add(text, bytes, " ", "%s=%ld", ls_axis_name((enum ls_layout_axis)axis),
                      (long)layout->size[axis]);
    ls_string_add(text, bytes, " ", "zero=%d", layout->zero);
}

int state_parts_write(struct ls_state *state, struct ls_checkpoint_writer *checkpoint, bool beside,
                      struct state_held *held, struct ls_error *error)
{
    size_t arrays = 1 + (size_t)ls_optimizer_states_most(&state->optimizer.config);
    struct state_share *written = calloc(arrays * (size_t)state->params->count, sizeof *written);
    int status = written ? LS_OK : ls_no_memory(error, "for what is saved");
    for (int part = LS_CKPT_MODEL; part <= LS_CKPT_OPTIMIZER && !status; part++)
        status = part_write(state, checkpoint, (enum ls_checkpoint_part)part, beside, held, written,
                            error);
    if (!status && held)
        status = state_held_rest(state, beside, written, held, error);
    free(written);
    return status;
}

int state_about(const struct ls_state *state, const struct ls_digest *hash,
                struct state_about *about, struct ls_error *error)
{
    struct ls_digest recipe = {0, 0};
    *about = (struct state_about){0};
    if (hash)
        ls_digest_hex(hash, about->hash);
    ls_config_recipe_digest(state->config, &recipe);
    ls_digest_hex(&recipe, about->recipe_digest);
    ls_fingerprint(state->ops, about->fingerprint, sizeof about->fingerprint);
    state_layout_text(state->layout, about->layout, sizeof about->layout);
    about->state = (struct ls_checkpoint_state){
        .step = state->step,
        .samples = state->samples,
        .tokens = state->samples * state->config->data.sequence,
        .loss_scale = state->loss_scale.scale,
        .good_steps = state->loss_scale.good_steps,
        .hysteresis = state->loss_scale.hysteresis,
        .recipe_digest = about->recipe_digest,
        .fingerprint = about->fingerprint,
        .hash = about->hash,
        .layout = about->layout,
        .start = state->start,
    };
    int status = ls_config_text(state->config, &about->recipe, error);
    about->state.recipe = about->recipe;
    return status;
}

/* Collective. The hash, if it is not given, is made of what is written. */
static int checkpoint_write(struct ls_state *state, const struct ls_digest *hash,
                            struct state_about *about, struct ls_error *error)
{
    const struct ls_digest position = state_position(state);
    struct ls_digest made;
    struct state_held held = {0};
    struct ls_checkpoint_writer *writer;
    int status = ls_checkpoint_writer_open(&writer, state->config->train.out, &about->state, -1,
                                           LS_CKPT_SHARED, ls_state_world(state), NULL, error);
    if (status)
        return status;
    status = ls_queue_synchronise(&state->ops->queue, error);
    state_held_place(state, &position, &held);
    if (!status)
        status = state_parts_write(state, writer, false, hash ? NULL : &held, error);
    if (!hash) {
        status = state_hash_agree(state, state->step, &held, status, &made, error);
        ls_digest_hex(&made, about->hash);
    }
    return ls_checkpoint_writer_commit(writer, status, error);
}

void state_saved(struct ls_state *state, int64_t step)
{
    struct ls_comm *world = ls_state_world(state);
    struct ls_error why = {0};
    int status = LS_OK;
    if (ls_comm_rank(world) == 0 && state->config->train.keep > 0 && !state->keeps_older)
        status =
            ls_checkpoint_prune(state->config->train.out, state->config->train.keep, step, &why);
    if (status) /* the checkpoint stands all the same */
        ls_log(state->log, LS_LOG_WARNING, "older checkpoints stay: %s", why.text);
    state->saved_step = step;
}

int ls_state_save(struct ls_state *state, const struct ls_digest *hash, struct ls_error *error)
{
    struct state_about about;
    int status =
        ls_comm_agree(ls_state_world(state), state_about(state, hash, &about, error), error);
    if (!status)
        status = checkpoint_write(state, hash, &about, error);
    free(about.recipe);
    if (!status)
        state_saved(state, state->step);
    return status;
}
