/* Hash and files of workers and of the global parameters. */
#include "train/parameter_server.h"
#include "train/sink.h"

#include <lockstep/base/file.h>
#include <lockstep/ckpt.h>
#include <lockstep/config/inputs.h>
#include <lockstep/state/unit_snapshots.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t index_of(const struct ls_trainer *t, int worker)
{
    return (int64_t)t->workers->group * t->workers->each + worker;
}

/* ---- hash ------------------------------------------------------------------------------------ */

int workers_publish(struct ls_trainer *t, struct ls_error *error)
{
    struct ls_state *outer = workers_outer(t);
    int status = ls_state_publish(outer, error);
    return status ? status : ls_state_settle(outer, error);
}

/* The groups hold the same global parameters. */
static int outer_compare(const struct ls_trainer *t, const struct ls_digest *all,
                         struct ls_error *error)
{
    const struct workers *w = t->workers;
    for (int g = 1; g < w->groups && w->all == w->groups; g++)
        if (all[g].low != all[0].low || all[g].high != all[0].high) {
            ls_error_set(error, LS_ENUMERIC,
                         "after step %ld the global parameters of the ranks of worker %d differ "
                         "from those of worker 0: memory or arithmetic of one of them is faulty. "
                         "Go on from the newest checkpoint on other hardware",
                         (long)workers_outer(t)->step, g * w->each);
            ls_error_blame(error, LS_CAUSE_FAULTY, "");
            return LS_ENUMERIC;
        }
    return LS_OK;
}

/* Collective over t->whole. The workers' hashes, which become part of that of the global
 * parameters: their checkpoint tells which workers' belong to it. */
static int workers_digest(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct ls_digest all[2 * WORKERS_MAX], *beside = &workers_outer(t)->beside;
    int status = LS_OK;
    for (int k = 0; k < w->held && !status; k++)
        status = ls_state_hash(&t->units[k], &w->hashes[k], error);
    status = workers_agree(t, status, error);
    if (!status)
        status = ls_all_gather(w->across, w->hashes, all, 2 * w->each, LS_U64, error);
    *beside = (struct ls_digest){0, 0};
    for (int i = 0; i < w->count && !status; i++)
        ls_digest_piece(beside, "worker", i, 0, &all[i], sizeof *all);
    return workers_agree(t, status, error);
}

int workers_hash(struct ls_trainer *t, struct ls_digest *digest, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct ls_digest all[2 * WORKERS_MAX];
    int status = workers_digest(t, error);
    bool holds = w->all == w->groups || w->group == w->owner;
    if (!status && holds)
        status = ls_state_hash(workers_outer(t), digest, error);
    status = workers_agree(t, status, error);
    if (!status)
        status = ls_all_gather(w->across, digest, all, 2, LS_U64, error);
    if (!status)
        status = outer_compare(t, all, error);
    *digest = all[w->owner];
    w->hashed_step = status ? -1 : workers_outer(t)->step;
    w->hash = *digest;
    return workers_agree(t, status, error);
}

void workers_changed(struct workers *w)
{
    w->hashed_step = -1;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The unit's configuration until the next call: its files lie in the folder of that worker of run;
 * -1: in run. */
static int folder_set(struct ls_trainer *t, struct ls_state *unit, const char *run, int64_t worker,
                      struct ls_error *error)
{
    struct ls_config *config = &t->workers->config;
    int length;
    *config = t->config;
    if (worker < 0)
        length = snprintf(config->train.out, sizeof config->train.out, "%s", run);
    else
        length = snprintf(config->train.out, sizeof config->train.out, "%s/workers/%04d", run,
                          (int)worker);
    if (length >= (int)sizeof config->train.out)
        return ls_error_set(error, LS_EINVAL,
                            "%.200s...: the path of a worker's folder is too long", run);
    unit->config = config;
    return LS_OK;
}

/* If there is no room for it, that of the start before stays, as in the run's folder. */
static int config_keep(const struct ls_trainer *t, struct ls_error *error)
{
    const struct ls_config *config = &t->workers->config;
    char path[sizeof config->train.out + 16];
    int status = ls_kept_write(config, t->tokenizer, false, error);
    snprintf(path, sizeof path, "%s/config.yaml", config->train.out);
    bool stays = sink_refused(status) && !access(path, F_OK);
    return stays ? LS_OK : status;
}

/* Collective over t->world. The folder of a worker that is saved, which w->config names, belongs to
 * this start of the run as the run's own folder does. */
static int folder_own(struct ls_trainer *t, struct ls_state *unit, bool again,
                      struct ls_error *error)
{
    const char *folder = t->workers->config.train.out;
    struct ls_run_token token = {0};
    int64_t start = workers_outer(t)->start;
    bool root = ls_comm_rank(t->world) == 0;
    int status = root ? ls_directory_make(folder, NULL, error) : LS_OK;
    if (!status && !t->workers->kept && root)
        status = config_keep(t, error);
    if (!status && root && (again || unit->start != start)) {
        status = ls_run_token_read(t->config.train.out, &token, error);
        if (!status && start > 0 && token.start == 0)
            status = ls_error_set(error, LS_EIO, "%s/start: it is gone", t->config.train.out);
        status = status ? status : ls_run_token_write(folder, &token, error);
    }
    status = ls_comm_agree(t->world, status, error);
    if (!status)
        unit->start = start;
    return status;
}

int unit_folder(struct ls_trainer *t, struct ls_state *unit, const char *run, int64_t worker,
                struct ls_error *error)
{
    int status = folder_set(t, unit, run, worker, error);
    status = ls_comm_agree(t->world, status, error);
    return status ? status : folder_own(t, unit, true, error);
}

/* Steps of a run's checkpoints, newest first. */
struct found {
    int64_t *step, count;
};

/* Collective over t->whole. As the rank `root` of it lists them, on all; free found->step in any
 * case. */
static int steps_find(struct ls_trainer *t, const char *run, int root, struct found *found,
                      struct ls_error *error)
{
    int64_t *mine;
    bool lists = ls_comm_rank(t->whole) == root;
    *found = (struct found){0};
    int status = lists ? ls_checkpoint_steps(run, &found->step, &found->count, error) : LS_OK;
    status = ls_comm_agree(t->whole, status, error);
    if (!status)
        status = ls_broadcast(t->whole, &found->count, 1, LS_I64, root, error);
    if (status || found->count == 0)
        return status;
    mine = lists ? found->step : malloc((size_t)found->count * sizeof *mine);
    found->step = mine;
    if (!mine)
        status = ls_no_memory(error, "for %ld steps", (long)found->count);
    status = ls_comm_agree(t->whole, status, error);
    return status ? status : ls_broadcast(t->whole, found->step, found->count, LS_I64, root, error);
}

/* Collective over t->whole. What a worker saved goes with the global checkpoint that it belongs to,
 * and not before that: a run goes on from those that are whole. */
static int older_remove(struct ls_trainer *t, struct ls_error *error)
{
    const struct workers *w = t->workers;
    struct found found;
    struct ls_error why = {0};
    int status =
        steps_find(t, t->config.train.out, w->owner * ls_comm_size(t->world), &found, &why);
    if (status && status != LS_ECOMM && ls_comm_rank(t->whole) == 0)
        ls_log(t->log, LS_LOG_WARNING, "older checkpoints of the workers stay: %s", why.text);
    bool removes = !status && ls_comm_rank(t->world) == 0 && found.count > 0;
    for (int k = 0; k < w->held && removes; k++) {
        struct ls_state *unit = &t->units[k];
        int failed = folder_set(t, unit, t->config.train.out, index_of(t, k), &why);
        if (!failed)
            failed = ls_checkpoint_retain(unit->config->train.out, found.step, found.count, &why);
        unit->config = &t->config;
        if (failed)
            ls_log(t->log, LS_LOG_WARNING, "older checkpoints of worker %d stay: %s",
                   (int)index_of(t, k), why.text);
    }
    free(found.step);
    if (status == LS_ECOMM && error)
        *error = why;
    return status == LS_ECOMM ? status : LS_OK; /* a folder that cannot be listed ends no run */
}

int unit_saves(struct ls_trainer *t, int k, struct ls_error *error)
{
    int status = folder_set(t, &t->units[k], t->config.train.out, index_of(t, k), error);
    status = ls_comm_agree(t->world, status, error);
    return status ? status : folder_own(t, &t->units[k], false, error);
}

int workers_record_sync(const struct ls_trainer *t, const char *name, struct ls_error *error)
{
    char path[PATH_MAX];
    int status = ls_path_join(path, t->config.train.out, name, error);
    if (status)
        return status;
    int fd = open(path, O_RDONLY | O_CLOEXEC), failure = fd < 0 || fdatasync(fd) ? errno : 0;
    if (fd >= 0)
        close(fd);
    return failure ? ls_error_errno(error, failure, "%s: cannot make durable (fdatasync)", path)
                   : ls_directory_sync(t->config.train.out, NULL, error);
}

int units_saved(struct ls_trainer *t, int64_t step, int status, units_outer_save *save,
                struct ls_error *error)
{
    struct workers *w = t->workers;
    status = status ? status : server_log_sync(t, error);
    status = workers_agree(t, status, error);
    w->kept = w->kept || !status;
    if (status != LS_ECOMM && w->group == w->owner) /* the last, as it says that all are there */
        status = save(t, status, error);
    status = workers_agree(t, status, error);
    if (!status)
        workers_outer(t)->saved_step = step;
    if (!status && ls_comm_rank(t->whole) == 0)
        rescue_remove(t);
    if (status == LS_ECOMM)
        return status;
    int removed = older_remove(t, status ? NULL : error); /* or what belongs to no checkpoint */
    return status ? status : removed;
}

static int outer_save(struct ls_trainer *t, int status, struct ls_error *error)
{
    return status ? status : ls_state_save(workers_outer(t), &t->workers->hash, error);
}

int workers_save(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    int64_t step = workers_outer(t)->step;
    struct ls_digest ignored;
    int status = w->hashed_step == step ? LS_OK : workers_hash(t, &ignored, error);
    for (int k = 0; k < w->held && !status; k++) {
        status = unit_saves(t, k, error);
        if (!status)
            status = ls_state_save(&t->units[k], &w->hashes[k], error);
        t->units[k].config = &t->config;
    }
    return units_saved(t, step, status, outer_save, error);
}

/* ---- going on -------------------------------------------------------------------------------- */

int unit_load(struct ls_trainer *t, struct ls_state *unit, const char *run, int64_t worker,
              int64_t step, struct ls_error *error)
{
    const struct ls_log *log = unit->log;
    char path[PATH_MAX];
    bool sound = false;
    int status = folder_set(t, unit, run, worker, error);
    if (!status)
        status = ls_checkpoint_path(path, t->workers->config.train.out, step, error);
    if (!status && ls_comm_rank(t->world) == 0 && access(path, F_OK))
        status = ls_error_set(error, LS_ECKPT,
                              "%.600s is missing: expected a checkpoint of each worker under "
                              "%.300s/workers, as runs with async.mode have them",
                              path, run);
    status = ls_comm_agree(t->world, status, error);
    if (ls_comm_rank(t->whole) != 0) /* each group loads the global parameters, one tells of it */
        unit->log = NULL;
    if (!status)
        status = ls_state_load(unit, path, &sound, error);
    t->workers->sound |= sound;
    unit->log = log;
    unit->config = &t->config;
    return status;
}

/* Where all units of a step are. */
struct kept {
    const char *run;
    int64_t step;
    struct ls_checkpoint **opened; /* [count + 1]; NULL: on the disk */
};

/* Collective over t->world. worker -1: the global parameters. */
static int kept_load(struct ls_trainer *t, struct ls_state *unit, const struct kept *kept,
                     int64_t worker, struct ls_error *error)
{
    if (!kept->opened)
        return unit_load(t, unit, kept->run, worker, kept->step, error);
    return ls_state_load_collected(unit, kept->opened[worker < 0 ? t->workers->count : worker],
                                   error);
}

/* Collective over t->whole. All units as they were after that step. */
static int step_load(struct ls_trainer *t, const struct kept *kept, struct ls_error *error)
{
    struct workers *w = t->workers;
    struct ls_state *outer = workers_outer(t);
    int status = LS_OK;
    for (int k = 0; k < w->held && !status; k++)
        status = kept_load(t, &t->units[k], kept, index_of(t, k), error);
    status = ls_comm_agree(t->whole, status, error);
    if (!status)
        status = workers_digest(t, error);
    if (!status)
        status = kept_load(t, outer, kept, -1, error);
    for (int k = 0; k < w->held && !status; k++)
        if (t->units[k].step != outer->step)
            status = ls_error_set(error, LS_ECKPT,
                                  "%.300s/workers/%04d: its checkpoint of step %ld is not of the "
                                  "run's",
                                  kept->run, (int)index_of(t, k), (long)kept->step);
    for (int u = 0; u < t->unit_count && !status; u++)
        status = ls_state_settle(&t->units[u], error);
    return ls_comm_agree(t->whole, status, error);
}

static void start_note(void *user, const char *directory, const struct ls_checkpoint_state *state)
{
    int64_t *start = user;
    (void)directory;
    *start = state->start;
}

/* Collective over t->whole. Which start saved the step. */
static int start_of(const struct ls_trainer *t, struct ls_checkpoint_saved *saved,
                    struct ls_error *error)
{
    char path[PATH_MAX];
    if (saved->step >= 0 && ls_comm_rank(t->whole) == 0 &&
        ls_checkpoint_path(path, t->config.train.out, saved->step, NULL) == LS_OK)
        ls_checkpoint_visit(path, start_note, &saved->start, NULL);
    return ls_all_reduce_max(t->whole, &saved->start, error);
}

/* Collective over t->whole. What a start that lost ranks kept, or the newest snapshot, if it is
 * newer than the checkpoint of the step (-1: there is none). A snapshot that is not what was
 * hashed goes, as damage says, and so does one of which the disk has lost the order of arrivals;
 * others may be there: *again. */
static int memory_load(struct ls_trainer *t, int64_t step, bool *resumed, bool *again,
                       struct ls_error *damage, struct ls_error *error)
{
    struct ls_state *outer = workers_outer(t);
    const struct ls_log *log = ls_comm_rank(t->whole) == 0 ? t->log : NULL;
    struct ls_checkpoint *opened[WORKERS_MAX + 1] = {NULL};
    struct kept kept = {.run = outer->snapshots, .step = -1, .opened = opened};
    struct ls_error why = {0};
    struct ls_checkpoint_saved saved = {step, 0};
    int status = LS_OK;
    if (kept.run)
        status = start_of(t, &saved, &why);
    if (kept.run && !status)
        status = workers_snapshot_collect(t, kept.run, saved, &kept.step, opened, &why);
    if (status == LS_EIO || status == LS_ENOSPC) { /* nothing was loaded */
        ls_log(log, LS_LOG_WARNING, "the newest snapshot cannot be used: %s", why.text);
        kept.step = -1;
        status = LS_OK;
    }
    if (!status)
        status = rescue_resume(t, ls_max(step, kept.step), resumed, &why);
    bool loads = !status && !*resumed && kept.step >= 0, loaded = false;
    if (loads && t->workers->server)
        status = server_log_reaches(t, kept.step, &why);
    if (loads && !status) {
        status = step_load(t, &kept, &why);
        loaded = true;
    }
    if (loads && !status) {
        outer->from_snapshot = *resumed = true;
        outer->saved_step = step;
        ls_log(log, LS_LOG_INFO, "going on from %s (step %ld)",
               opened[t->workers->count]->directory, (long)outer->step);
    }
    workers_snapshot_close(t->workers, opened);
    *again = loads && status == LS_ECKPT;
    if (*again) {
        if (loaded)
            *damage = why;
        ls_log(log, LS_LOG_WARNING, "the newest snapshot is left out: %s", why.text);
        return workers_snapshot_remove(t, kept.run, kept.step, error);
    }
    return status ? ls_error_copy(error, status, &why) : LS_OK;
}

/* Collective over t->whole. The newest that is whole, of the run itself. */
static int newest_load(struct ls_trainer *t, bool *resumed, struct ls_error *error)
{
    struct found found;
    const char *run = t->config.train.out;
    const struct ls_log *log = ls_comm_rank(t->whole) == 0 ? t->log : NULL;
    struct ls_error newest = {0}, snapshot = {0};
    bool again = true;
    int status = steps_find(t, run, 0, &found, error);
    while (!status && again)
        status =
            memory_load(t, found.count ? found.step[0] : -1, resumed, &again, &snapshot, error);
    for (int64_t i = 0; i < found.count && !status && !*resumed; i++) {
        const struct kept kept = {.run = run, .step = found.step[i]};
        struct ls_error damage = {0};
        t->workers->sound = 0;
        status = step_load(t, &kept, &damage);
        *resumed = !status;
        newest = newest.code ? newest : damage;
        int agreed = ls_all_reduce_max(t->whole, &t->workers->sound, error);
        if (agreed) {
            status = agreed;
            break;
        }
        /* It may be whole: an older one is not taken. */
        if (status && (status != LS_ECKPT || t->workers->sound)) {
            ls_error_copy(error, status, &damage);
            break;
        }
        if (status)
            ls_log(log, LS_LOG_WARNING, "skipping a damaged checkpoint: %s", damage.text);
        status = LS_OK;
    }
    free(found.step);
    if (status || *resumed)
        return status;
    if (found.count > 0)
        return ls_error_set(error, LS_ECKPT,
                            "%.300s/checkpoints: none of %ld checkpoints can be read (move them "
                            "away to start afresh); the newest: %.600s",
                            run, (long)found.count, newest.text);
    if (!snapshot.code)
        return LS_OK;
    /* The weights are those of the snapshot. */
    ls_error_set(error, LS_ENUMERIC,
                 "%.900s. Memory of a rank is faulty. There is no checkpoint on the disk, and the "
                 "snapshot is removed: train.resume=auto begins anew",
                 snapshot.text);
    ls_error_blame(error, LS_CAUSE_FAULTY, "");
    return LS_ENUMERIC;
}

static void state_note(void *user, const char *directory, const struct ls_checkpoint_state *state)
{
    int64_t *step = user;
    (void)directory;
    *step = state->step;
}

/* Collective over t->whole. The checkpoint of a path, and those of its run's workers. run: that. */
static int named_load(struct ls_trainer *t, const char *path, char run[PATH_MAX],
                      struct ls_error *error)
{
    int64_t step = 0;
    int status = ls_checkpoint_run(path, run, error);
    if (!status)
        status = ls_checkpoint_visit(path, state_note, &step, error);
    status = ls_comm_agree(t->whole, status, error);
    const struct kept kept = {.run = run, .step = step};
    return status ? status : step_load(t, &kept, error);
}

int workers_at_meeting(struct ls_trainer *t, struct ls_error *error)
{
    struct workers *w = t->workers;
    w->told = workers_outer(t)->step;
    return w->server ? server_seek(t, w->told, NULL, error) : LS_OK;
}

int workers_resume(struct ls_trainer *t, bool *resumed, struct ls_error *error)
{
    struct workers *w = t->workers;
    const struct ls_log *log = ls_comm_rank(t->whole) == 0 ? t->log : NULL;
    const char *path = ls_config_resume_path(&t->config), *key = "train.resume";
    bool own = !strcmp(t->config.train.resume, "auto"), named;
    char run[PATH_MAX];
    *resumed = false;
    if (!own && ls_comm_rank(t->whole) == 0)
        rescue_remove(t);
    if (!strcmp(t->config.train.resume, "never"))
        return LS_OK;
    int status = own ? newest_load(t, resumed, error) : LS_OK;
    named = !status && !*resumed && path;
    if (named) {
        key = own ? "train.resume_else" : key;
        status = named_load(t, path, run, error);
        *resumed = !status;
        if (status)
            ls_config_blame(&t->config, key, error);
    }
    if (status)
        return status;
    if (w->stage != WORKERS_MET) /* otherwise the steps before the meeting are told again */
        w->told = workers_outer(t)->step;
    if (w->server)
        status = server_seek(t, workers_outer(t)->step, named ? run : NULL, error);
    if (!status && w->server && w->rescue.found)
        status = server_rescued(t, error);
    if (status)
        return status;
    if (!*resumed)
        ls_log(log, LS_LOG_INFO,
               "train.resume=auto: no checkpoint in %s/checkpoints, starting at step 1",
               t->config.train.out);
    return LS_OK;
}
