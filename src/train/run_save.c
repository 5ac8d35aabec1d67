/* When and how a run saves: at once, or from a snapshot while steps go on; which is the best. */
#include "train/run_private.h"

#include <string.h>
#include <sys/stat.h>

int run_out_follow(struct ls_running *run, struct ls_error *error)
{
    float words[LS_CONFIG_TEXT_BYTES / sizeof(float)];
    char *out = run->trainer->config.train.out;
    memcpy(words, out, sizeof words);
    int status = ls_broadcast(run->world, words, sizeof words / sizeof *words, LS_F32, 0, error);
    memcpy(out, words, sizeof words);
    return status;
}

/* ---- at once --------------------------------------------------------------------------------- */

/* A checkpoint that cannot be written does not end a run that is not at its end: the next due one
 * may find room, and until then all that was computed since the last one would be lost. */
static int save_failed(struct ls_running *run, int64_t of, bool last, int status,
                       struct ls_error *error)
{
    long step = (long)of, newest = (long)run->trainer->state->saved_step;
    const char *elsewhere = trainer_newest_elsewhere(run->trainer);
    char stands[LS_CONFIG_TEXT_BYTES + 32] = "there is none yet";
    if (elsewhere)
        snprintf(stands, sizeof stands, "the newest is %s", elsewhere);
    else if (newest >= 0)
        snprintf(stands, sizeof stands, "the newest is that of step %ld", newest);
    if (!sink_refused(status))
        return status;
    if (last)
        return ls_error_set(error, status, "no checkpoint of step %ld (%s): %s", step, stands,
                            error->text);
    if (run->writer)
        ls_log(&run->events.log, LS_LOG_ERROR,
               "no checkpoint of step %ld (%s): %s. The run continues and tries again when the "
               "next one is due",
               step, stands, error->text);
    return LS_OK;
}

void run_changes_look(struct ls_running *run)
{
    if (run->changes == run->trainer->changes)
        return;
    run->changes = run->trainer->changes;
    run->hashed_step = -1;
    run->unsaved = true;
}

bool run_begins(const struct ls_running *run)
{
    bool own = run->unsaved || run->trainer->state->from_snapshot;
    return !own && ls_trainer_steps(run->trainer) == run->first_step;
}

bool run_stands(const struct ls_running *run)
{
    bool saved = run->trainer->state->saved_step == ls_trainer_steps(run->trainer);
    return run_begins(run) || (saved && !run->unsaved);
}

/* The folder of a checkpoint; number 0: there is none. */
struct folder {
    dev_t device;
    ino_t number;
};

static struct folder folder_of(const struct ls_running *run, int64_t step)
{
    char path[PATH_MAX];
    struct stat about;
    bool there =
        !ls_checkpoint_path(path, run->config->train.out, step, NULL) && !stat(path, &about);
    return there ? (struct folder){about.st_dev, about.st_ino} : (struct folder){0};
}

/* Collective. The checkpoint of the step is about to have a state that was not evaluated: it is not
 * the best from here on, wherever the run is killed. *stood: its folder, on rank 0; none if nothing
 * is changed. */
static int best_drop(struct ls_running *run, int64_t step, struct folder *stood,
                     struct ls_error *error)
{
    int local = LS_OK;
    *stood = (struct folder){0};
    if (!run->unsaved || run->trainer->state->saved_step != step)
        return LS_OK;
    if (run->writer) {
        *stood = folder_of(run, step);
        local = records_judge(&run->records, events_changed(&run->events, step, error), error);
        if (best_records_drop(&run->best, run->config->train.out, step) && !local &&
            run->config->train.keep_best)
            local = run_best_write(run, error);
    }
    return ls_comm_agree(run->world, local, error);
}

/* Collective. The system refused to save: what was dropped is the best again, unless its checkpoint
 * has gone. */
static int best_restore(struct ls_running *run, int64_t step, const struct folder *stood,
                        struct ls_error *error)
{
    int local = LS_OK;
    struct folder now = {0};
    if (stood->number && !run->trainer->workers) /* theirs may be replaced in part */
        now = folder_of(run, step);
    if (now.number && now.number == stood->number && now.device == stood->device) {
        local = records_judge(&run->records, events_kept(&run->events, step, error), error);
        if (best_records_restore(&run->best, step) && !local && run->config->train.keep_best)
            local = run_best_write(run, error);
    }
    return ls_comm_agree(run->world, local, error);
}

/* Collective. The checkpoint, in train.out as it is now. *moved: that was moved meanwhile. */
static int save_here(struct ls_running *run, bool *moved, struct ls_error *error)
{
    char now[PATH_MAX];
    bool in_place;
    int local = run->writer ? run_folder_find(&run->lock, run->trainer->config.train.out,
                                              &run->events.log, &in_place, error)
                            : LS_OK;
    int status = ls_comm_agree(run->world, local, error);
    *moved = false;
    if (!status) /* each rank writes there */
        status = run_out_follow(run, error);
    if (status)
        return status;
    bool hashed = run->hashed_step == ls_trainer_steps(run->trainer);
    status = trainer_save(run->trainer, hashed ? &run->hash : NULL, error);
    if (!sink_refused(status))
        return status;
    int64_t elsewhere = run->writer && !ls_lock_in_place(&run->lock, now) && now[0] &&
                        strcmp(now, run->config->train.out) != 0;
    int agreed = ls_all_reduce_max(run->world, &elsewhere, error);
    *moved = elsewhere;
    return agreed ? agreed : status;
}

int run_copies_tell(struct ls_running *run, struct ls_error *error)
{
    struct copy_outcome outcome;
    int status = LS_OK;
    while (!status && second_copy_next(run->copy, &outcome))
        status = records_judge(
            &run->records,
            events_copied(&run->events, run->config->checkpoint.also, &outcome, error), error);
    return status;
}

/* Collective. A checkpoint of that step stands. beside: from a snapshot, which is older than what
 * was changed since. */
static int saved(struct ls_running *run, int64_t step, double save_s, bool beside,
                 struct ls_error *error)
{
    const bool changed = run->unsaved && !beside;
    int local = LS_OK;
    snapshots_outdated(&run->snapshots);
    run->unsaved = run->unsaved && beside;
    if (run->writer) {
        local = records_judge(
            &run->records, events_saved(&run->events, step, save_s, beside, changed, error), error);
        if (run->best_step == step) {
            run->best = run->best_after;
            local = local ? local : run_best_write(run, error);
        }
        local = local ? local : run_copies_tell(run, error); /* no step need come between two */
        second_copy_committed(run->copy, run->config->train.out, step);
        if (run->hooks->saved)
            run->hooks->saved(run->hooks->user, step);
    }
    if (run->best_step == step)
        run->best_step = -1;
    return ls_comm_agree(run->world, local, error);
}

/* Collective. Of the checkpoint that is on its way, if there is one and it is complete, or waited
 * for. */
static int stored(struct ls_running *run, bool wait, struct ls_error *error)
{
    struct ls_error why = {0};
    int64_t step;
    double save_s = 0;
    int status = snapshots_stored(&run->snapshots, wait, &step, &save_s, &why);
    if (status && step >= 0 && run->best_step == step)
        run->best_step = -1;
    if (status == LS_ESTOPPED) /* a later one takes its place */
        return LS_OK;
    if (status)
        status = save_failed(run, step, false, status, &why);
    else if (step >= 0)
        return saved(run, step, save_s, true, error);
    if (status && error)
        *error = why;
    return status;
}

int run_save(struct ls_running *run, bool last, struct ls_error *error)
{
    double start_s = ls_now_s();
    struct ls_error why = {0};
    int64_t step = ls_trainer_steps(run->trainer);
    struct folder stood;
    bool moved;
    run_trace_begin(&run->trace, "save");
    int status = stored(run, true, error); /* two at once there are not */
    if (!status)
        status = best_drop(run, step, &stood, error);
    if (status)
        return status;
    status = save_here(run, &moved, &why);
    if (moved)
        status = save_here(run, &moved, &why);
    run_trace_end(&run->trace);
    if (!status)
        return saved(run, step, ls_now_s() - start_s, false, error);
    int kept = sink_refused(status) ? best_restore(run, step, &stood, error) : LS_OK;
    if (kept)
        return kept;
    status = save_failed(run, step, last, status, &why);
    if (status && error)
        *error = why;
    return status;
}

/* ---- from snapshots -------------------------------------------------------------------------- */

/* Collective. What is stored has it when it begins. */
static int hash_take(struct ls_running *run, struct ls_error *error)
{
    int64_t step = ls_trainer_steps(run->trainer);
    if (run->hashed_step == step)
        return LS_OK;
    int status = ls_trainer_hash(run->trainer, &run->hash, error);
    run->hashed_step = status ? -1 : step;
    return status;
}

/* Collective. The newest snapshot, which is stored too if a checkpoint is owed and none is on its
 * way. */
static int snapshot_take(struct ls_running *run, struct ls_error *error)
{
    struct snapshots *snapshots = &run->snapshots;
    bool stores = run->owed && snapshots_storing(snapshots) < 0;
    if (!stores && !run->snapshot_due)
        return LS_OK;
    int status = stores ? hash_take(run, error) : LS_OK;
    bool hashed = run->hashed_step == ls_trainer_steps(run->trainer);
    if (!status)
        status = snapshots_take(snapshots, stores, hashed ? &run->hash : NULL, error);
    if (status == LS_ENUMERIC)
        snapshots_void(snapshots, run->world);
    run->owed = run->owed && (!stores || snapshots->refused);
    return status;
}

/* Collective. Where memory has no room a checkpoint that is owed is written at once. late: the one
 * that it is in the place of was refused while a step went on. */
static int snapshot(struct ls_running *run, bool late, struct ls_error *error)
{
    const bool *refused = &run->snapshots.refused;
    bool tries = !run->owed || !*refused || (run->snapshots.nameless && !late);
    int status = tries ? snapshot_take(run, error) : LS_OK;
    if (status || !run->owed || !*refused)
        return status;
    run->owed = false;
    return run_save(run, false, error);
}

/* Collective. All of it is written when the step returns: then the caller may change the state. */
static int saves_wait(struct ls_running *run, bool saves, bool last, struct ls_error *error)
{
    double start_s = ls_now_s();
    run->snapshot_s = 0;
    if (saves)
        return run_save(run, last, error);
    if (!run->snapshots.trainer || last)
        return LS_OK;
    run_trace_begin(&run->trace, "snapshot");
    int status = snapshot_take(run, error);
    int named = status ? LS_OK : snapshots_name(&run->snapshots, error);
    if (named == LS_ENUMERIC)
        snapshots_void(&run->snapshots, run->world);
    run->snapshot_s = ls_now_s() - start_s;
    run_trace_end(&run->trace);
    return status ? status : named;
}

/* Collective. A state is kept only if the data that it came of are still those that were opened. */
static int data_look(struct ls_running *run, struct ls_error *error)
{
    const struct ls_training_data *data = &run->trainer->data;
    int status = LS_OK;
    for (int i = 0; i < data->count && !status; i++)
        status = ls_token_store_look(data->stores[i], error);
    return ls_comm_agree(run->world, status, error);
}

int run_saves(struct ls_running *run, bool saves, bool last, bool stop, struct ls_error *error)
{
    struct snapshots *snapshots = &run->snapshots;
    int looked = saves || run->owed || run->snapshot_due ? data_look(run, error) : LS_OK;
    if (looked)
        return looked;
    if (!snapshots->trainer || !run->beside)
        return saves_wait(run, saves, last, error);
    bool stores = snapshots->newest && snapshots->stores;
    double start_s = ls_now_s();
    run_trace_begin(&run->trace, "snapshot");
    int status = snapshots_name(snapshots, error);
    if (status == LS_ENUMERIC)
        snapshots_void(snapshots, run->world);
    bool late = !status && stores && snapshots->refused;
    if (late) { /* what it was for is still to be done */
        int64_t step = ls_saving_step(snapshots->storing);
        status = stored(run, true, error);
        run->owed = run->owed || run->trainer->state->saved_step != step;
    }
    if (!status && stop && run->best_step != snapshots_storing(snapshots))
        snapshots_cancel(snapshots);
    if (!status)
        status = stored(run, false, error);
    if (!status && saves && !last && snapshots_storing(snapshots) >= 0)
        snapshots_held_up(snapshots, ls_trainer_steps(run->trainer));
    run->owed = run->owed || saves;
    if (!status && !last)
        status = snapshot(run, late, error);
    run->snapshot_s = ls_now_s() - start_s;
    run_trace_end(&run->trace);
    return status || !last || !saves ? status : run_save(run, true, error);
}

void run_save_end(struct ls_running *run, bool alike)
{
    struct ls_error why = {0};
    const char *text = "the run ended first";
    if (!run->snapshots.nameless)
        return;
    int64_t step = snapshots_storing(&run->snapshots);
    if (run->snapshots.newest)
        step = ls_saving_step(run->snapshots.newest);
    if (alike && step >= 0) {
        int status = snapshots_name(&run->snapshots, &why);
        status = status ? status : stored(run, true, &why);
        text = why.text;
        step = status ? step : -1;
    }
    if (step >= 0 && run->writer)
        ls_log(&run->events.log, LS_LOG_ERROR, "no checkpoint of step %ld: %s", (long)step, text);
}

/* ---- the best -------------------------------------------------------------------------------- */

int run_best_write(struct ls_running *run, struct ls_error *error)
{
    int status = ls_checkpoint_best_write(run->config->train.out, &run->best.best, error);
    return sink_judge(&run->best_sink, "checkpoints/best", status, &run->events.log, error);
}

int run_best_open(struct ls_running *run, struct ls_error *error)
{
    struct ls_checkpoint_best named;
    bool found;
    run->best = run->records.best;
    if (!run->config->train.keep_best)
        return LS_OK;
    int status = ls_checkpoint_best_read(run->config->train.out, &named, &found, error);
    if (!status && run->best.best.step < 0 && found && !run->best.others)
        run->best.best = named;
    else if (!status && run->best.best.step >= 0 && (!found || named.step != run->best.best.step))
        status = run_best_write(run, error);
    return status;
}

/* Whether the checkpoint of that step is begun: it will be on the disk. */
static bool on_its_way(const struct ls_running *run, int64_t step)
{
    const struct snapshots *snapshots = &run->snapshots;
    return (snapshots->newest && snapshots->stores && ls_saving_step(snapshots->newest) == step) ||
           snapshots_storing(snapshots) == step;
}

/* Collective. Written beside steps where others are, unless a snapshot of this step was just taken
 * or one before is being stored: then that of a later step would be. */
static int best_save(struct ls_running *run, struct ls_error *error)
{
    if (!run->snapshots.nameless || ls_run_ended(run))
        return run_save(run, false, error);
    int status = stored(run, true, error);
    run->owed = true;
    return status ? status : snapshot(run, false, error);
}

int run_best_keep(struct ls_running *run, const struct ls_eval_report *r, struct ls_error *error)
{
    const struct ls_checkpoint_best now = {ls_trainer_steps(run->trainer), r->loss, r->sequences};
    struct best_records after = run->best_step < 0 ? run->best : run->best_after;
    int64_t better = run->writer && best_records_take(&after, &now);
    int status = ls_all_reduce_max(run->world, &better, error), local = LS_OK;
    bool begun = better && on_its_way(run, now.step);
    if (!status && better && !begun && run->trainer->state->saved_step != now.step) {
        status = best_save(run, error);
        begun = on_its_way(run, now.step);
    }
    if (!status && begun) {
        run->best_step = now.step;
        run->best_after = after;
        return LS_OK;
    }
    if (status || !better || run->trainer->state->saved_step != now.step)
        return status;
    if (run->writer) {
        run->best = after;
        local = run_best_write(run, error);
    }
    return ls_comm_agree(run->world, local, error);
}
