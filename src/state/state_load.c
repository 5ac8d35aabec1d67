/* Going on from a checkpoint: each rank takes its slices from the pieces that have something of
 * them, whatever layout wrote these. */
#include "state/state_private.h"

#include <lockstep/ckpt.h>
#include <lockstep/state/unit_snapshots.h>

#include <stdio.h>
#include <stdlib.h>
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
    bool goes_on = ls_config_blend_goes_on(state->config, &other, checkpoint->state.step);
    if (goes_on || state->config->data.changed) {
        memcpy(other.data.blend, state->config->data.blend, sizeof other.data.blend);
        memcpy(other.data.train, state->config->data.train, sizeof other.data.train);
    }
    int count = ls_config_recipe_diff(state->config, &other, differences, sizeof differences);
    if (count == 0)
        return LS_OK;
    if (count == 1 && !strncmp(differences, "data.blend:", strlen("data.blend:")))
        return ls_error_set(error, LS_ECKPT,
                            "%.300s: it was trained on other samples (%s). Only entries whose "
                            "from_step is %ld or more may change, and neither the order of sources "
                            "that have begun nor their epochs: give the new weights from there on, "
                            "or data.changed=true, which reads samples again or leaves some out",
                            checkpoint->directory, differences, (long)checkpoint->state.step);
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

/* A state that is loaded, and the hash of what was. */
struct taking {
    struct ls_state *state;
    struct state_share *hashed; /* [array + 1][param]: what is in held */
    struct state_held held;
    int ahead_array, ahead_param; /* the next one to expect */
    int64_t ahead_bytes;          /* expected, and not yet loaded */
};

struct loading {
    struct taking *taking;
    struct ls_checkpoint *checkpoint;
    const struct ls_stored_tensor *tensor; /* NULL: zeros */
    int param, array;
    bool hashed;
    struct ls_runs runs;
    struct ls_run run; /* what is left of one; count 0 at the end */
};

/* Local elements. */
static void values_hash(const struct loading *l, int64_t first, int64_t count, void *values)
{
    const struct state_share which = {l->param, l->array, first, count};
    if (l->hashed && count > 0)
        state_held_add(l->taking->state, false, &which, values, &l->taking->held);
}

/* Of l->run, in the cache. */
static void values_arrived(void *user, int64_t first, int64_t count, void *values)
{
    const struct loading *l = user;
    values_hash(l, l->run.local + first - l->run.global, count, values);
}

static int piece_load(void *user, const struct ls_slice_piece *piece, struct ls_error *error)
{
    struct loading *l = user;
    size_t bytes = ls_dtype_bytes(l->runs.spec->dtype);
    int64_t end = piece->from + piece->count;
    int status = ls_queue_synchronise(&l->taking->state->ops->queue, error); /* the host writes */
    if (!status && !l->tensor) {
        memset(piece->values, 0, (size_t)piece->count * bytes);
        values_hash(l, piece->from, piece->count, piece->values);
    }
    while (!status && l->tensor && l->run.count > 0 && l->run.local < end) {
        int64_t count = ls_min(l->run.count, end - l->run.local);
        void *values = (char *)piece->values + (size_t)(l->run.local - piece->from) * bytes;
        status = ls_checkpoint_take(l->checkpoint, l->tensor, l->run.global, count, values,
                                    values_arrived, l, error);
        l->run.global += count;
        l->run.local += count;
        l->run.count -= count;
        if (l->run.count == 0)
            ls_runs_next(&l->runs, &l->run);
    }
    bool first = l->array == LS_STATE_PARAMETERS && l->checkpoint->state.fresh;
    return status || !first ? status
                            : ls_slice_fits(&l->taking->state->slices[l->param], piece, error);
}

/* This rank's slice of an array of parameter i, as it is stored; tensor NULL: it is not, of fresh
 * weights. */
static int slice_find(const struct ls_state *state, const struct ls_checkpoint *checkpoint,
                      int array, int i, const struct ls_stored_tensor **tensor,
                      struct ls_dtensor_spec *spec, struct ls_error *error)
{
    enum ls_checkpoint_part part = array < 0 ? LS_CKPT_MODEL : LS_CKPT_OPTIMIZER;
    const struct ls_param *param = &state->params->list[i];
    char name[LS_PARAM_NAME_MAX + STATE_PREFIX_BYTES], prefix[STATE_PREFIX_BYTES];
    *tensor = NULL;
    *spec = param->spec;
    spec->dtype = ls_state_type(state, array);
    if (array >= 0 && checkpoint->state.fresh)
        return LS_OK;
    state_prefix(&state->optimizer.config, param, array, prefix);
    snprintf(name, sizeof name, "%s%s", prefix, param->name);
    return ls_checkpoint_require(checkpoint, part, name, spec->dtype, spec->dims, spec->shape,
                                 tensor, error);
}

static int64_t slice_bytes(const struct ls_state *state, int array, int i)
{
    return state->slices[i].part->count * (int64_t)ls_dtype_bytes(ls_state_type(state, array));
}

/* Of the part of the tensor that this rank has. */
static void slice_runs(const struct ls_state *state, const struct ls_dtensor_spec *spec,
                       struct ls_runs *runs, struct ls_run *run)
{
    ls_runs_init(runs, spec, ls_comm_rank(ls_state_world(state)) % ls_mesh_ranks(&spec->mesh));
    ls_runs_next(runs, run);
}

/* Whether no other rank loads the same, and each tensor at once, as far as that matters: copies of
 * the state, and ranks among which the tensor is not cut, read what the first of them brought to
 * memory. */
static bool loads_alone(const struct ls_state *state, const struct ls_dtensor_spec *spec, int i)
{
    int set = state->params->units[state->params->list[i].unit].set;
    bool cut = true;
    for (int axis = 0; axis < spec->mesh.axis_count; axis++)
        cut &= spec->mesh.size[axis] == 1 || ls_placement_cuts(spec->placement[axis]);
    return cut && !state->slices[i].away &&
           ls_comm_size(state->groups[ls_set_group(set, LS_GROUP_COPIES)]) == 1;
}

/* Goes ahead of what is loaded, array by array: the disk reads while the ranks compute. now: bytes
 * that are loaded next, behind which it goes, however large they are. */
static void expect_next(struct taking *t, struct ls_checkpoint *checkpoint, int64_t now)
{
    enum { AHEAD_BYTES = 64 << 20 };
    const struct ls_state *state = t->state;
    int arrays = ls_optimizer_states_most(&state->optimizer.config);
    while (t->ahead_bytes - now < AHEAD_BYTES && t->ahead_array < arrays) {
        const struct ls_stored_tensor *tensor;
        struct ls_dtensor_spec spec;
        struct ls_runs runs;
        struct ls_run run;
        int i = t->ahead_param++, array = t->ahead_array;
        if (t->ahead_param == state->params->count) {
            t->ahead_param = 0;
            t->ahead_array++;
        }
        if (array >= ls_state_arrays(state, &state->params->list[i]) ||
            slice_find(state, checkpoint, array, i, &tensor, &spec, NULL) || !tensor)
            continue;
        for (slice_runs(state, &spec, &runs, &run); run.count > 0; ls_runs_next(&runs, &run))
            ls_checkpoint_expect(checkpoint, tensor, run.global, run.count,
                                 loads_alone(state, &spec, i));
        t->ahead_bytes += slice_bytes(state, array, i);
    }
}

/* This rank's slices of one array. Of fresh weights there are no states: they are zero, also where
 * part of a damaged checkpoint was loaded before. */
static int array_load(struct taking *t, struct ls_checkpoint *checkpoint, int array,
                      struct ls_error *error)
{
    struct ls_state *state = t->state;
    const int params = state->params->count;
    int status = LS_OK;
    for (int i = 0; i < params && !status; i++) {
        ls_progress();
        const struct ls_param *param = &state->params->list[i];
        struct loading loading = {
            .taking = t, .checkpoint = checkpoint, .param = i, .array = array};
        struct ls_dtensor_spec spec;
        if (array >= ls_state_arrays(state, param))
            continue;
        /* ls_state_publish rounds what is frozen. */
        loading.hashed = !param->frozen;
        if (loading.hashed)
            t->hashed[(array - LS_STATE_PARAMETERS) * params + i] =
                (struct state_share){i, array, 0, state->slices[i].part->count};
        status = slice_find(state, checkpoint, array, i, &loading.tensor, &spec, error);
        if (status)
            return status;
        expect_next(t, checkpoint, slice_bytes(state, array, i));
        slice_runs(state, &spec, &loading.runs, &loading.run);
        status = ls_slice_visit_array(&state->optimizer, &state->slices[i], array + 1, LS_WRITES,
                                      piece_load, &loading, error);
        if (loading.tensor)
            t->ahead_bytes -= slice_bytes(state, array, i);
    }
    return status;
}

/* The files of which this rank loads something; needed NULL: reads what it loads, to verify it. */
static int files_mark(void *user, struct ls_checkpoint *checkpoint, bool *needed,
                      struct ls_error *error)
{
    const struct ls_state *state = user;
    int arrays = ls_optimizer_states_most(&state->optimizer.config);
    int status = recipe_check(state, checkpoint, error);
    for (int array = LS_STATE_PARAMETERS; array < arrays; array++)
        for (int i = 0; i < state->params->count && !status; i++) {
            const struct ls_stored_tensor *tensor;
            struct ls_dtensor_spec spec;
            struct ls_runs runs;
            struct ls_run run;
            if (array >= ls_state_arrays(state, &state->params->list[i]))
                continue;
            status = slice_find(state, checkpoint, array, i, &tensor, &spec, error);
            if (status || !tensor)
                continue;
            ls_progress();
            for (slice_runs(state, &spec, &runs, &run); run.count > 0 && !status;
                 ls_runs_next(&runs, &run))
                if (needed)
                    ls_checkpoint_need(tensor, run.global, run.count, needed);
                else
                    status =
                        ls_checkpoint_read(checkpoint, tensor, run.global, run.count, NULL, error);
        }
    return status;
}

static int checkpoint_apply(void *user, struct ls_checkpoint *checkpoint, struct ls_error *error)
{
    struct taking *t = user;
    struct ls_state *state = t->state;
    int arrays = ls_optimizer_states_most(&state->optimizer.config);
    int status = recipe_check(state, checkpoint, error);
    if (status)
        return status;
    fingerprint_check(state, checkpoint);
    t->held = (struct state_held){0};
    t->ahead_array = LS_STATE_PARAMETERS;
    t->ahead_param = 0;
    t->ahead_bytes = 0;
    status = ls_state_settle(state, error);
    if (!status)
        status = ls_queue_synchronise(&state->ops->queue, error);
    for (int array = LS_STATE_PARAMETERS; array < arrays && !status; array++)
        status = array_load(t, checkpoint, array, error);
    return status;
}

/* Once every rank has loaded its part: until then an older checkpoint may take its place. */
static void counters_take(struct ls_state *state, const struct ls_checkpoint_state *from)
{
    const struct ls_loss_scale_config scaling = ls_config_loss_scale(state->config);
    state->step = from->step;
    if (!state->from_snapshot)
        state->saved_step = from->step;
    if (from->fresh) { /* all but the weights is as it began */
        state->samples = 0;
        state->loss_scale = ls_loss_scale_begin(&scaling);
        return;
    }
    state->samples = from->samples;
    state->loss_scale = (struct ls_loss_scale){
        .scale = from->loss_scale, .good_steps = from->good_steps, .hysteresis = from->hysteresis};
}

/* Collective. The working copies follow, and the state is what was saved. */
static int state_publish(struct taking *t, const struct ls_checkpoint *checkpoint,
                         struct ls_error *error)
{
    struct ls_state *state = t->state;
    struct ls_digest digest, position;
    char hex[33];
    int status = ls_state_publish(state, error);
    if (status)
        return status;
    position = state_position(state);
    state_held_place(state, &position, &t->held);
    status = state_held_rest(state, false, t->hashed, &t->held, error);
    status = state_hash_agree(state, state->step, &t->held, status, &digest, error);
    if (status)
        return status;
    ls_digest_hex(&digest, hex);
    if (!checkpoint->state.fresh && checkpoint->state.hash[0] &&
        strcmp(hex, checkpoint->state.hash))
        return ls_error_set(error, LS_ECKPT,
                            "%.300s: the state's hash is %s, but %s was saved; the files are "
                            "damaged or were written by another version",
                            checkpoint->directory, hex, checkpoint->state.hash);
    return LS_OK;
}

/* Collective. *snapshot: the newest that the run's machines have together, loaded, where it is
 * newer than the checkpoint; else NULL. What the system refuses is no reason to end: nothing was
 * loaded. */
static int snapshot_load(struct taking *t, struct ls_checkpoint_saved than,
                         const struct ls_log *log, struct ls_checkpoint **snapshot,
                         struct ls_error *error)
{
    struct ls_state *state = t->state;
    struct ls_comm *world = ls_state_world(state);
    struct ls_error why = {0};
    *snapshot = NULL;
    if (!state->snapshots)
        return LS_OK;
    int status = ls_checkpoint_collect(snapshot, state->snapshots, than, world, files_mark, state,
                                       log, &why);
    if (status == LS_EIO || status == LS_ENOSPC) {
        ls_log(log, LS_LOG_WARNING, "the newest snapshot cannot be used: %s", why.text);
        return LS_OK;
    }
    if (!status && *snapshot)
        status = ls_checkpoint_load(snapshot, world, LS_OK, checkpoint_apply, t, log, &why);
    if (!status)
        return LS_OK;
    ls_checkpoint_close(*snapshot);
    *snapshot = NULL;
    return ls_error_copy(error, status, &why);
}

/* Collective. The newest of the run, in memory or on the disk; *checkpoint is NULL if there is
 * none. */
static int newest_load(struct taking *t, const struct ls_log *log,
                       struct ls_checkpoint **checkpoint, struct ls_error *error)
{
    struct ls_state *state = t->state;
    struct ls_comm *world = ls_state_world(state);
    struct ls_checkpoint *snapshot = NULL;
    struct ls_error why = {0};
    int found = ls_checkpoint_find_latest(checkpoint, state->config->train.out, log, &why);
    struct ls_checkpoint_saved saved = {-1, 0};
    if (*checkpoint)
        saved = (struct ls_checkpoint_saved){(*checkpoint)->state.step, (*checkpoint)->state.start};
    const int64_t step = saved.step;
    int status = ls_all_reduce_max(world, &saved.step, error);
    saved.start = saved.step == step ? saved.start : 0;
    if (!status)
        status = ls_all_reduce_max(world, &saved.start, error);
    if (!status)
        status = snapshot_load(t, saved, log, &snapshot, error);
    if (status || snapshot) {
        ls_checkpoint_close(*checkpoint);
        *checkpoint = snapshot;
        state->from_snapshot = snapshot != NULL;
        state->saved_step = saved.step;
        return status;
    }
    if (found && error)
        *error = why;
    return ls_checkpoint_load(checkpoint, world, found, checkpoint_apply, t, log, error);
}

/* Collective. The one that the key names. */
static int named_load(struct taking *t, const char *key, const struct ls_log *log,
                      struct ls_checkpoint **checkpoint, struct ls_error *error)
{
    const struct ls_state *state = t->state;
    int found = ls_checkpoint_open(checkpoint, ls_config_resume_path(state->config), error);
    if (found)
        ls_config_blame(state->config, key, error);
    int status = ls_checkpoint_load(checkpoint, ls_state_world(state), found, checkpoint_apply, t,
                                    log, error);
    if (status && !found && !*checkpoint) /* damage that a read found */
        ls_config_blame(state->config, key, error);
    return status;
}

/* Collective. What was read becomes what is computed with, once its hash is right. */
static int loaded_take(struct taking *t, struct ls_checkpoint *checkpoint, struct ls_error *error)
{
    struct ls_state *state = t->state;
    counters_take(state, &checkpoint->state);
    return ls_comm_agree(ls_state_world(state), state_publish(t, checkpoint, error), error);
}

/* Collective. */
static int taking_init(struct taking *t, struct ls_state *state, struct ls_error *error)
{
    size_t arrays = 1 + (size_t)ls_optimizer_states_most(&state->optimizer.config);
    *t = (struct taking){.state = state,
                         .hashed =
                             calloc(arrays * (size_t)state->params->count + 1, sizeof *t->hashed)};
    int status = t->hashed ? LS_OK : ls_no_memory(error, "for what is loaded");
    return ls_comm_agree(ls_state_world(state), status, error);
}

int ls_state_load(struct ls_state *state, const char *path, bool *sound, struct ls_error *error)
{
    struct taking taking;
    struct ls_checkpoint *checkpoint = NULL;
    const struct ls_log *log = ls_comm_rank(ls_state_world(state)) == 0 ? state->log : NULL;
    int status = taking_init(&taking, state, error);
    if (!status) {
        int found = ls_checkpoint_open(&checkpoint, path, error);
        status = ls_checkpoint_load(&checkpoint, ls_state_world(state), found, checkpoint_apply,
                                    &taking, log, error);
    }
    *sound = status == LS_ECKPT && checkpoint;
    if (!status)
        status = loaded_take(&taking, checkpoint, error);
    if (!status)
        ls_log(log, LS_LOG_INFO, "going on from %s (step %ld)", path, (long)state->step);
    ls_checkpoint_close(checkpoint);
    free(taking.hashed);
    return status;
}

/* Collective. *checkpoint is NULL if there is none. */
static int resume(struct taking *t, const struct ls_log *log, struct ls_checkpoint **checkpoint,
                  struct ls_error *error)
{
    struct ls_state *state = t->state;
    bool own = !strcmp(state->config->train.resume, "auto");
    int status = own ? newest_load(t, log, checkpoint, error)
                     : named_load(t, "train.resume", log, checkpoint, error);
    if (own && !status && !*checkpoint && ls_config_resume_path(state->config))
        status = named_load(t, "train.resume_else", log, checkpoint, error);
    return status || !*checkpoint ? status : loaded_take(t, *checkpoint, error);
}

/* Collective. The newest snapshot is not what was hashed: a bit flipped before it was copied, so
 * its pieces are whole. The checkpoint on the disk takes its place. */
static int resume_without(struct taking *t, const struct ls_log *log,
                          struct ls_checkpoint **checkpoint, struct ls_error *error)
{
    struct ls_state *state = t->state;
    const char *snapshots = state->snapshots;
    struct ls_error why = error ? *error : (struct ls_error){0};
    ls_log(log, LS_LOG_WARNING, "the newest snapshot is left out: %s", why.text);
    ls_checkpoint_close(*checkpoint);
    *checkpoint = NULL;
    state->snapshots = NULL;
    state->from_snapshot = false;
    int status = resume(t, log, checkpoint, error);
    state->snapshots = snapshots;
    if (status || *checkpoint)
        return status;
    /* The weights are those of the snapshot: the next start begins anew. */
    bool stays = ls_comm_first_on_machine(ls_state_world(state)) && !ls_directory_remove(snapshots);
    if (stays)
        status = ls_error_set(error, LS_EIO,
                              "%.300s: cannot remove this folder, whose snapshot is not what was "
                              "hashed: remove it, and train.resume=auto begins anew (%.600s)",
                              snapshots, why.text);
    status = ls_comm_agree(ls_state_world(state), status, error);
    if (status)
        return status;
    ls_error_set(error, LS_ENUMERIC,
                 "%.900s. Memory of a rank is faulty. There is no checkpoint on the disk, and the "
                 "snapshot is removed: train.resume=auto begins anew",
                 why.text);
    ls_error_blame(error, LS_CAUSE_FAULTY, "");
    return LS_ENUMERIC;
}

int ls_state_resume(struct ls_state *state, bool *resumed, struct ls_error *error)
{
    struct taking taking;
    struct ls_checkpoint *checkpoint = NULL;
    const struct ls_log *log = ls_comm_rank(ls_state_world(state)) == 0 ? state->log : NULL;
    *resumed = false;
    if (!strcmp(state->config->train.resume, "never"))
        return LS_OK;
    int status = taking_init(&taking, state, error);
    if (!status)
        status = resume(&taking, log, &checkpoint, error);
    if (status == LS_ECKPT && state->from_snapshot)
        status = resume_without(&taking, log, &checkpoint, error);
    *resumed = checkpoint != NULL && !status;
    if (*resumed)
        ls_log(log, LS_LOG_INFO, "going on from %s (step %ld)", checkpoint->directory,
               (long)state->step);
    else if (!status)
        ls_log(log, LS_LOG_INFO,
               "train.resume=auto: no checkpoint in %s/checkpoints, starting at step 1",
               state->config->train.out);
    ls_checkpoint_close(checkpoint);
    free(taking.hashed);
    return status;
}

/* ---- among the ranks of all groups ----------------------------------------------------------- */

static int nothing_mark(void *user, struct ls_checkpoint *checkpoint, bool *needed,
                        struct ls_error *error)
{
    (void)user, (void)checkpoint, (void)needed, (void)error;
    return LS_OK;
}

int ls_state_collect(struct ls_checkpoint **out, struct ls_state *state,
                     const struct ls_unit_snapshots *of, struct ls_checkpoint_saved than,
                     const struct ls_log *log, struct ls_error *error)
{
    return ls_checkpoint_collect(out, of->folder, than, of->comm,
                                 of->holds ? files_mark : nothing_mark, state, log, error);
}

int ls_state_load_collected(struct ls_state *state, struct ls_checkpoint *checkpoint,
                            struct ls_error *error)
{
    struct taking taking;
    int status = taking_init(&taking, state, error);
    if (!status)
        status = ls_comm_agree(ls_state_world(state), checkpoint_apply(&taking, checkpoint, error),
                               error);
    if (!status)
        status = loaded_take(&taking, checkpoint, error);
    free(taking.hashed);
    return status;
}
