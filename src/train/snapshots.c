/* Checkpoints in memory, and from there on the disk. */
#include "train/snapshots.h"

#include "train/sink.h"
#include "train/workers.h"

#include <lockstep/base/words.h>
#include <lockstep/ckpt/interval.h>

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- folders --------------------------------------------------------------------------------- */

int snapshots_find(const struct ls_config *config, const struct ls_run_token *token,
                   char folder[PATH_MAX], struct ls_error *error)
{
    enum { HOST_BYTES = 64 };
    char name[160], host[HOST_BYTES] = "localhost";
    gethostname(host, sizeof host - 1);
    host[strcspn(host, "/")] = '\0';
    snprintf(name, sizeof name, "lockstep-%ld-%.16s-%s", (long)geteuid(), token->run, host);
    return ls_path_join(folder, config->snapshot.folder, name, error);
}

/* FOLDER/run names the run's folder. */
static int owner_write(const char *folder, const char *out, struct ls_error *error)
{
    char path[PATH_MAX], run[PATH_MAX];
    int status = ls_path_join(path, folder, "run", error);
    const char *owner = ls_path_absolute(out, run) ? run : out;
    return status ? status : ls_file_put(path, owner, strlen(owner), NULL, error);
}

/* When a snapshot was last taken there, or it was made. */
static time_t changed_at(const char *folder)
{
    char path[PATH_MAX];
    struct stat about;
    if (!ls_path_join(path, folder, "checkpoints", NULL) && !stat(path, &about))
        return about.st_mtime;
    return stat(folder, &about) ? time(NULL) : about.st_mtime;
}

static int folder_own(const char *folder, struct ls_error *error)
{
    struct stat status;
    if (lstat(folder, &status))
        return ls_error_errno(error, errno, "%s: cannot look at it", folder);
    if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid())
        return ls_error_set(error, LS_EIO, "%s: it is not a folder of this user", folder);
    return LS_OK;
}

bool snapshots_foreign(const char *folder, struct ls_error *error)
{
    struct stat status;
    return !lstat(folder, &status) && folder_own(folder, error);
}

/* Whether the run that took the snapshots in folder has begun anew, or is gone for a day: it may be
 * moved, or on a file system that is not mounted. */
static bool is_stale(const char *folder)
{
    enum { DAY_S = 24 * 3600 };
    char path[PATH_MAX], *run = NULL;
    struct ls_run_token taken, now;
    size_t bytes;
    bool stale = false;
    if (!ls_path_join(path, folder, "run", NULL) &&
        !ls_file_read(path, PATH_MAX, LS_EIO, &run, &bytes, NULL) &&
        !ls_run_token_read(folder, &taken, NULL) && !ls_run_token_read(run, &now, NULL)) {
        bool old = time(NULL) - changed_at(folder) > DAY_S;
        stale = now.start ? strcmp(now.run, taken.run) != 0 : old;
    }
    free(run);
    return stale;
}

static void stale_remove(const struct ls_config *config, const char *own)
{
    char prefix[32], path[PATH_MAX];
    snprintf(prefix, sizeof prefix, "lockstep-%ld-", (long)geteuid());
    DIR *stream = opendir(config->snapshot.folder);
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        if (!strncmp(entry->d_name, prefix, strlen(prefix)) &&
            !ls_path_join(path, config->snapshot.folder, entry->d_name, NULL) &&
            strcmp(path, own) != 0 && !folder_own(path, NULL) && is_stale(path))
            ls_directory_remove(path);
    if (stream)
        closedir(stream);
}

/* Nobody else may read it, or have made it. */
static int folder_make(const char *folder, struct ls_error *error)
{
    if (mkdir(folder, S_IRWXU) && errno != EEXIST)
        return ls_error_errno(error, errno, "%s: cannot create", folder);
    return folder_own(folder, error);
}

/* Without snapshots. */
static void nameless_open(struct snapshots *snapshots, struct ls_trainer *trainer)
{
    if (!ls_memory_saves(&trainer->config))
        return;
    snapshots->nameless = trainer->saves > 0;
    if (snapshots->nameless)
        snapshots->trainer = trainer;
    else
        ls_log(snapshots->log, LS_LOG_INFO,
               "steps wait while checkpoints are written: memory has no room for a copy of the "
               "state (checkpoint.async=auto)");
}

int snapshots_open(struct snapshots *snapshots, struct ls_trainer *trainer, const char *folder,
                   const struct ls_run_token *token, const struct ls_log *log,
                   struct ls_error *error)
{
    const struct ls_config *config = &trainer->config;
    bool first = ls_comm_first_on_machine(trainer->whole);
    struct ls_error why = {0};
    int status = LS_OK;
    uint64_t machines = first;
    *snapshots = (struct snapshots){.log = log, .first = first, .spare = -1};
    snprintf(snapshots->folder, sizeof snapshots->folder, "%s", folder);
    snapshots->named = trainer->state->from_snapshot ? ls_trainer_steps(trainer) : -1;
    if (first && !trainer->state->from_snapshot)
        ls_directory_remove(folder);
    if (first)
        stale_remove(config, folder);
    if (first && config->snapshot.every != 0)
        status = fit_snapshots(config, &trainer->layout, trainer->whole,
                               trainer->state->from_snapshot, &why);
    if (first && config->snapshot.every != 0 && !status) {
        status = folder_make(folder, &why);
        status = status ? status : ls_run_token_write(folder, token, &why);
        status = status ? status : owner_write(folder, config->train.out, &why);
        if (!status)
            ls_checkpoint_prune(folder, 0, -1, NULL); /* what was not finished */
        if (!status)
            status = ls_checkpoint_remove_others(folder, snapshots->named, &why);
        if (!status && trainer->workers)
            status = workers_snapshots_open(trainer, folder, snapshots->named, token, &why);
    }
    status = ls_comm_agree(trainer->whole, status, &why);
    if (status && !sink_refused(status))
        return ls_error_copy(error, status, &why);
    if (status && snapshots->named >= 0)
        ls_log(log, LS_LOG_WARNING,
               "no snapshots are taken: %s. That of step %ld stays until a checkpoint is saved",
               why.text, (long)snapshots->named);
    else if (status)
        ls_log(log, LS_LOG_WARNING, "no snapshots are taken: %s", why.text);
    else if (config->snapshot.every != 0)
        snapshots->trainer = trainer;
    status = ls_all_reduce_u64(trainer->whole, &machines, 1, error);
    if (!status && snapshots->trainer && trainer->workers)
        status = workers_snapshots_comms(trainer, error);
    snapshots->machines = (double)machines;
    if (!status)
        nameless_open(snapshots, trainer);
    return status;
}

/* ---- how often ------------------------------------------------------------------------------- */

bool snapshots_due(const struct snapshots *snapshots, int64_t step)
{
    int64_t every = snapshots->trainer ? snapshots->trainer->config.snapshot.every : 0;
    if (every != LS_CONFIG_AUTO)
        return train_due(step, every);
    if (snapshots->begun_s == 0) /* then its cost is known */
        return true;
    return !snapshots->refused && snapshots->every_s > 0 &&
           ls_now_s() - snapshots->begun_s >= snapshots->every_s;
}

/* One that was held up costs more than the next will: of the last two the cheaper one counts, and
 * the second follows the first at once. */
void snapshots_weigh(struct snapshots *snapshots, double cost_s)
{
    const struct ls_config *config = &snapshots->trainer->config;
    double failures = config->snapshot.failures * snapshots->machines;
    double between_s = failures > 0 ? 3600 / failures : INFINITY, before_s = snapshots->before_s;
    if (cost_s == before_s) /* no other was taken */
        return;
    snapshots->before_s = cost_s;
    if (before_s == 0) {
        snapshots->every_s = cost_s;
        return;
    }
    snapshots->every_s = ls_snapshot_interval(fmin(cost_s, before_s), between_s);
    if (snapshots->weighed++ == 0 && config->snapshot.every == LS_CONFIG_AUTO)
        ls_log(snapshots->log, LS_LOG_INFO, "a snapshot costs %s: one is taken every %s",
               ls_duration(fmin(cost_s, before_s)).text, ls_duration(snapshots->every_s).text);
}

/* ---- taking and storing ---------------------------------------------------------------------- */

/* One warning of those that follow each other: they may be as many as steps. */
static void missed_tell(struct snapshots *snapshots, int64_t step, const struct ls_error *why)
{
    bool tries = snapshots->trainer->config.snapshot.every != LS_CONFIG_AUTO;
    if (snapshots->missed++ > 0)
        return;
    if (snapshots->nameless)
        ls_log(snapshots->log, LS_LOG_WARNING,
               "steps wait while the checkpoint of step %ld is written: %s. The next one is "
               "written beside steps again if there is room",
               (long)step, why->text);
    else
        ls_log(snapshots->log, LS_LOG_WARNING, "no snapshot of step %ld: %s. The run continues%s",
               (long)step, why->text,
               tries ? ", and tries again when the next one is due" : ", and takes no more");
}

static void missed_end(struct snapshots *snapshots)
{
    if (snapshots->missed > 0)
        ls_log(snapshots->log, LS_LOG_WARNING,
               "snapshots are taken again: there is one of step %ld; %ld before it are missing",
               (long)snapshots->named, (long)snapshots->missed);
    snapshots->missed = 0;
}

/* Of the one before the newest, unless a checkpoint is still being copied from it. */
static int64_t spare_take(struct snapshots *snapshots)
{
    int64_t spare = snapshots->spare;
    snapshots->spare = -1; /* it goes in any case */
    return spare == snapshots_storing(snapshots) ? -1 : spare;
}

static void named(struct snapshots *snapshots, int64_t step, double cost_s)
{
    if (snapshots->nameless)
        return;
    snapshots->spare = snapshots->named;
    snapshots->named = step;
    snapshots->cost_s = cost_s;
    missed_end(snapshots);
}

static void storing_begins(struct snapshots *snapshots)
{
    snapshots->stored_s = snapshots->begun_s;
    snapshots->held_up = 0;
}

/* It has its name at once: the next meeting may be far. */
static int workers_take(struct snapshots *snapshots, struct ls_error *error)
{
    struct ls_trainer *t = snapshots->trainer;
    int status = workers_snapshot(t, snapshots->folder, snapshots->named, spare_take(snapshots),
                                  snapshots->stores, error);
    if (!status)
        named(snapshots, ls_trainer_steps(t), ls_now_s() - snapshots->begun_s);
    if (!status && snapshots->stores)
        storing_begins(snapshots);
    return status;
}

/* Collective. Memory that was free when the run started may not be now, until the first copy has
 * taken it. */
static int room_look(const struct snapshots *snapshots, struct ls_error *error)
{
    const struct ls_trainer *t = snapshots->trainer;
    bool asks = snapshots->first && !t->state->maps;
    int64_t free = asks ? ls_device_memory().free : 0;
    int status = LS_OK;
    if (free > 0 && t->saves > free)
        status = ls_error_set(error, LS_ENOSPC,
                              "a copy of the state takes %s, and %s of this machine's memory are "
                              "free",
                              ls_bytes((double)t->saves).text, ls_bytes((double)free).text);
    return ls_comm_agree(t->whole, status, error);
}

int snapshots_take(struct snapshots *snapshots, bool stored, const struct ls_digest *hash,
                   struct ls_error *error)
{
    struct ls_error why = {0};
    struct ls_trainer *t = snapshots->trainer;
    snapshots->begun_s = ls_now_s();
    snapshots->stores = stored;
    int status = snapshots->nameless ? room_look(snapshots, &why) : LS_OK;
    if (!status && t->workers)
        status = workers_take(snapshots, &why);
    else if (!status)
        status = ls_saving_begin(&snapshots->newest, t->state,
                                 snapshots->nameless ? NULL : snapshots->folder, snapshots->named,
                                 spare_take(snapshots), stored, hash, &why);
    snapshots->refused = sink_refused(status);
    if (snapshots->refused)
        missed_tell(snapshots, ls_trainer_steps(t), &why);
    else if (status && error)
        *error = why;
    return snapshots->refused ? LS_OK : status;
}

int snapshots_name(struct snapshots *snapshots, struct ls_error *error)
{
    struct ls_error why = {0};
    struct ls_saving *saving = snapshots->newest;
    if (!saving)
        return LS_OK;
    snapshots->newest = NULL;
    int status = ls_saving_keep(saving, &why);
    snapshots->refused = sink_refused(status);
    if (!status)
        named(snapshots, ls_saving_step(saving), ls_saving_cost_s(saving));
    if (snapshots->refused) {
        missed_tell(snapshots, ls_saving_step(saving), &why);
        status = LS_OK;
    } else if (status && error) {
        *error = why;
    }
    if (!status && snapshots->stores) { /* of a snapshot that was refused it says what failed */
        snapshots->storing = saving;
        storing_begins(snapshots);
    } else {
        ls_saving_free(saving);
    }
    return status;
}

int64_t snapshots_storing(const struct snapshots *snapshots)
{
    if (snapshots->storing)
        return ls_saving_step(snapshots->storing);
    bool workers = snapshots->trainer && snapshots->trainer->workers;
    return workers ? workers_storing(snapshots->trainer) : -1;
}

void snapshots_cancel(struct snapshots *snapshots)
{
    if (snapshots->storing)
        ls_saving_cancel(snapshots->storing);
    else if (snapshots_storing(snapshots) >= 0)
        workers_store_cancel(snapshots->trainer);
}

int snapshots_stored(struct snapshots *snapshots, bool wait, int64_t *step, double *save_s,
                     struct ls_error *error)
{
    struct ls_saving *saving = snapshots->storing;
    struct ls_trainer *t = snapshots->trainer;
    int64_t storing = snapshots_storing(snapshots);
    *step = -1;
    if (storing < 0)
        return LS_OK;
    int64_t busy = !wait && !(saving ? ls_saving_done(saving) : workers_stored(t));
    int status = ls_all_reduce_max(t->whole, &busy, error);
    if (status || busy)
        return status;
    *step = storing;
    status = saving ? ls_saving_store(saving, error) : workers_store(t, error);
    *save_s = ls_now_s() - snapshots->stored_s;
    snapshots->storing = NULL;
    ls_saving_free(saving);
    return status;
}

void snapshots_held_up(struct snapshots *snapshots, int64_t due)
{
    if (++snapshots->held_up == 1)
        ls_log(snapshots->log, LS_LOG_INFO,
               "the checkpoint due after step %ld will be that of a later step: that of step %ld "
               "is still being written",
               (long)due, (long)snapshots_storing(snapshots));
    if (snapshots->held_up == 2)
        ls_log(snapshots->log, LS_LOG_WARNING,
               "the checkpoint of step %ld is still being written to %s after %s, and two more "
               "were due since: steps go on without them. Look at the disk",
               (long)snapshots_storing(snapshots), snapshots->trainer->config.train.out,
               ls_duration(ls_now_s() - snapshots->stored_s).text);
}

void snapshots_outdated(struct snapshots *snapshots)
{
    if ((snapshots->trainer && !snapshots->nameless) || snapshots->named < 0)
        return;
    snapshots->named = -1;
    if (snapshots->first)
        ls_directory_remove(snapshots->folder);
}

void snapshots_void(struct snapshots *snapshots, struct ls_comm *world)
{
    struct ls_error why = {0};
    int status = LS_OK;
    if (snapshots->first && !ls_directory_remove(snapshots->folder))
        status = ls_error_set(&why, LS_EIO,
                              "%.800s: cannot remove this folder, whose snapshots may be damaged, "
                              "too: remove it before the run goes on",
                              snapshots->folder);
    if (ls_comm_agree(world, status, &why) == LS_EIO)
        ls_log(snapshots->log, LS_LOG_WARNING, "%s", why.text);
}

void snapshots_close(struct snapshots *snapshots, bool stay)
{
    ls_saving_free(snapshots->newest);
    ls_saving_free(snapshots->storing);
    if (snapshots->trainer && snapshots->trainer->workers)
        workers_store_drop(snapshots->trainer);
    if (snapshots->first && !stay)
        ls_directory_remove(snapshots->folder);
    *snapshots = (struct snapshots){0};
}
