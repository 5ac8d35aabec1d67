/* Going on from a checkpoint: each rank takes its slices from the files, whatever layout wrote
 * them. */
#include "state/state_private.h"

#include <lockstep/ckpt.h>

#include <stdio.h>
#include <string.h>

/* What does not say which weights fit is no matter: other has it from mine. */
static void model_alone(const struct ls_config *mine, struct ls_config *other)
{
    const struct ls_config_model model = other->model_keys;
    *other = *mine;
    other->model_keys = model;
    other->model_keys.seed = mine->model_keys.seed;
    other->model_keys.dropout = mine->model_keys.dropout;
    other->model_keys.init_std = mine->model_keys.init_std;
}

static int recipe_check(const struct ls_state *state, const struct ls_checkpoint *checkpoint,
                        struct ls_error *error)
{
    struct ls_digest mine = {0, 0};
    char hex[33], differences[512];
    ls_config_recipe_digest(state->config, &mine);
    ls_digest_hex(&mine, hex);
    if (!strcmp(hex, checkpoint->state.recipe_digest))
        return LS_OK;
    struct ls_config other;
    if (state_recipe_read(checkpoint->directory, &checkpoint->state, state->config->model.vocab,
                          &other, NULL))
        return ls_error_set(error, LS_ECKPT, "%.300s: it belongs to another recipe",
                            checkpoint->directory);
    if (checkpoint->state.fresh)
        model_alone(state->config, &other);
    /* The initial weights have seen no schedule. */
    int64_t planned = other.optim.decay_steps;
    if (checkpoint->state.step == 0)
        other.optim.decay_steps = state->config->optim.decay_steps;
    int count = ls_config_recipe_diff(state->config, &other, differences, sizeof differences);
    if (count == 0)
        return LS_OK;
    if (count > 1 || planned == state->config->optim.decay_steps)
        return ls_error_set(error, LS_ECKPT,
                            "%.300s: it belongs to another recipe (%s). Use that recipe, another "
                            "train.out, or train.resume=never",
                            checkpoint->directory, differences);
    return ls_error_set(error, LS_ECKPT,
                        "%.300s: its learning rate falls until step %ld (%s). Set "
                        "optim.decay_steps=%ld to keep that schedule, or leave train.steps at "
                        "%ld and add train.extend",
                        checkpoint->directory, (long)planned, differences, (long)planned,
                        (long)other.train.steps);
}

/* Rank 0's log hears of a build whose bits may differ. */
static void fingerprint_check(const struct ls_state *state, const struct ls_checkpoint *checkpoint)
{
    char fingerprint[256], differences[512];
    ls_fingerprint(state->ops, fingerprint, sizeof fingerprint);
    if (ls_fingerprint_differs(checkpoint->state.fingerprint, fingerprint, differences,
                               sizeof differences) &&
        ls_comm_rank(ls_state_world(state)) == 0)
        ls_log(state->log, LS_LOG_WARNING,
               "the checkpoint was written by another version (%s): bits will differ from "
               "here on from a run that was not interrupted",
               differences);
}

struct loading {
    struct ls_queue *queue;
    struct state_cursor cursor;
    const char *whole;
    size_t bytes; /* of an element */
};

static int piece_load(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    struct loading *l = user;
    int64_t end = piece->from + piece->count;
    int status = ls_queue_synchronise(l->queue, error); /* the host writes */
    while (!status && l->cursor.run.count > 0 && l->cursor.run.local < end) {
        struct ls_run run = state_cursor_take(&l->cursor, end - l->cursor.run.local);
        memcpy((char *)piece->values + (size_t)(run.local - piece->from) * l->bytes,
               l->whole + (size_t)run.global * l->bytes, (size_t)run.count * l->bytes);
    }
    return status;
}

/* This rank's slices of one array. */
static int array_load(struct ls_state *state, const struct ls_safetensors *file, int array,
                      struct ls_error *error)
{
    int status = LS_OK;
    for (int i = 0; i < state->params->count && !status; i++) {
        ls_progress();
        const struct ls_param *param = &state->params->list[i];
        char name[LS_PARAM_NAME_MAX + STATE_PREFIX_BYTES], prefix[STATE_PREFIX_BYTES];
        const struct ls_tensor_view *view;
        struct ls_dtensor_spec spec = param->spec;
        struct loading loading;
        if (array >= ls_state_arrays(state, param))
            continue;
        state_prefix(&state->optimizer.config, param, array, prefix);
        snprintf(name, sizeof name, "%s%s", prefix, param->name);
        spec.dtype = ls_state_type(state, array);
        status =
            ls_safetensors_require(file, name, spec.dtype, spec.dims, spec.shape, &view, error);
        if (status)
            return status;
        loading = (struct loading){
            .queue = &state->ops->queue, .whole = view->data, .bytes = ls_dtype_bytes(spec.dtype)};
        state_cursor_init(&loading.cursor, &spec,
                          ls_comm_rank(ls_state_world(state)) % ls_mesh_ranks(&spec.mesh));
        status = ls_slice_visit_array(&state->optimizer, &state->slices[i], array + 1, LS_WRITES,
                                      piece_load, &loading, error);
    }
    return status;
}

static int checkpoint_apply(struct ls_state *state, const struct ls_checkpoint *checkpoint,
                            struct ls_error *error)
{
    int status = recipe_check(state, checkpoint, error);
    if (status)
        return status;
    fingerprint_check(state, checkpoint);
    status = ls_state_settle(state, error);
    if (!status)
        status = ls_queue_synchronise(&state->ops->queue, error);
    if (!status)
        status = array_load(state, checkpoint->model, LS_STATE_PARAMETERS, error);
    int arrays = ls_optimizer_states_most(&state->optimizer.config);
    for (int s = 0; s < arrays && !status && !checkpoint->state.fresh; s++)
        status = array_load(state, checkpoint->optimizer, s, error);
    state->saved_step = state->step = checkpoint->state.step;
    if (checkpoint->state.fresh) /* all but the weights is as it began */
        return status;
    state->samples = checkpoint->state.samples;
    state->loss_scale = (struct ls_loss_scale){.scale = checkpoint->state.loss_scale,
                                               .good_steps = checkpoint->state.good_steps,
                                               .hysteresis = checkpoint->state.hysteresis};
    return status;
}

/* Collective. Ranks that read through different file systems, or while another run writes, may have
 * found different checkpoints; step -1: none. */
static int step_agree(struct ls_state *state, int64_t step, struct ls_error *error)
{
    int64_t newest = step, oldest = -step;
    int status = ls_all_reduce_max(ls_state_world(state), &newest, error);
    if (!status)
        status = ls_all_reduce_max(ls_state_world(state), &oldest, error);
    if (!status && newest != -oldest)
        status = ls_error_set(error, LS_ECKPT,
                              "ranks found different checkpoints: one found step %ld, another %s "
                              "(step %ld). %s must be the same directory on every rank",
                              (long)newest, oldest == 1 ? "none" : "an older one", (long)-oldest,
                              state->config->train.out);
    return status;
}

/* Collective. The working copies follow, and the state is what was saved. */
static int state_publish(struct ls_state *state, const struct ls_checkpoint *checkpoint,
                         struct ls_error *error)
{
    struct ls_digest digest;
    char hex[33];
    int status = ls_state_publish(state, error);
    if (!status)
        status = ls_state_hash(state, &digest, error);
    if (status)
        return status;
    ls_digest_hex(&digest, hex);
    if (!checkpoint->state.fresh && strcmp(hex, checkpoint->state.hash))
        return ls_error_set(error, LS_ECKPT,
                            "%.300s: the state's hash is %s, but %s was saved; the files are "
                            "damaged or were written by another version",
                            checkpoint->directory, hex, checkpoint->state.hash);
    return LS_OK;
}

int ls_state_resume(struct ls_state *state, bool *resumed, struct ls_error *error)
{
    const char *from = state->config->train.resume;
    struct ls_checkpoint *checkpoint = NULL;
    bool automatic = !strcmp(from, "auto");
    *resumed = false;
    if (!strcmp(from, "never"))
        return LS_OK;
    int status = automatic
                     ? ls_checkpoint_find_latest(
                           &checkpoint, state->config->train.out,
                           ls_comm_rank(ls_state_world(state)) == 0 ? state->log : NULL, error)
                     : ls_checkpoint_open(&checkpoint, from, error);
    if (status && !automatic)
        ls_config_blame(state->config, "train.resume", error);
    status = ls_comm_agree(ls_state_world(state), status, error);
    if (!status)
        status = step_agree(state, checkpoint ? checkpoint->state.step : -1, error);
    if (!status && checkpoint) {
        status =
            ls_comm_agree(ls_state_world(state), checkpoint_apply(state, checkpoint, error), error);
        if (!status)
            status = ls_comm_agree(ls_state_world(state), state_publish(state, checkpoint, error),
                                   error);
    }
    *resumed = checkpoint != NULL && !status;
    const struct ls_log *log = ls_comm_rank(ls_state_world(state)) == 0 ? state->log : NULL;
    if (*resumed)
        ls_log(log, LS_LOG_INFO, "going on from %s (step %ld)", checkpoint->directory,
               (long)state->step);
    else if (!status)
        ls_log(log, LS_LOG_INFO,
               "train.resume=auto: no checkpoint in %s/checkpoints, starting at step 1",
               state->config->train.out);
    ls_checkpoint_close(checkpoint);
    return status;
}
