/* Where a run's folder is while the run goes on, and what a killed run left in it and elsewhere. */
#include "train/run_folder.h"
#include "train/step_replay.h"

#include <lockstep/base/file.h>
#include <lockstep/ckpt.h>
#include <lockstep/device/tier.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int run_folder_find(const struct ls_lock *lock, char *out, const struct ls_log *log, bool *in_place,
                    struct ls_error *error)
{
    char now[PATH_MAX];
    *in_place = ls_lock_in_place(lock, now);
    if (!now[0] || strlen(now) >= LS_CONFIG_TEXT_BYTES)
        return ls_error_set(error, LS_EIO,
                            "%s was removed while the run wrote to it, or moved to where the run "
                            "cannot find it",
                            out);
    if (strcmp(out, now))
        ls_log(log, LS_LOG_WARNING,
               "%s was moved while the run writes to it, and is now %s: the run saves there and "
               "ends",
               out, now);
    memmove(out, now, strlen(now) + 1);
    return LS_OK;
}

int run_folder_stays(const struct ls_lock *lock, const struct ls_config *config,
                     struct ls_error *error)
{
    char now[PATH_MAX];
    if (!lock->held || ls_lock_in_place(lock, now))
        return LS_OK;
    if (!now[0])
        return ls_config_reject(config, LS_EIO, "train.out", error,
                                "the folder was removed while the run started, or moved to where "
                                "the run cannot find it: start again");
    return ls_config_reject(config, LS_EIO, "train.out", error,
                            "the folder was moved while the run started, and is now %.300s: start "
                            "again with train.out=%.300s",
                            now, now);
}

static bool holds(const struct ls_config *config, const char *name)
{
    char path[PATH_MAX];
    return !ls_path_join(path, config->train.out, name, NULL) && access(path, F_OK) == 0;
}

int run_folder_check(const struct ls_config *config, struct ls_error *error)
{
    struct ls_run_token token; /* taken before config.yaml is written */
    bool run = ls_run_token_read(config->train.out, &token, NULL) || token.start > 0 ||
               holds(config, "checkpoints") || holds(config, "metrics.jsonl");
    return run || !holds(config, "config.yaml")
               ? LS_OK
               : ls_config_reject(config, LS_ECONFIG, "train.out", error,
                                  "the folder has a config.yaml that is of no run, and that of the "
                                  "run would replace it: name another directory");
}

void run_folder_sweep(const struct ls_config *config, const struct ls_log *log)
{
    static const struct {
        const char *folder, *prefix;
    } places[] = {{"", "config.yaml"},
                  {"", "metrics.prom"},
                  {"/checkpoints", "best"},
                  {"/tokenizer", ""},
                  {"/trace", "rank-"}};
    struct ls_error error = {0};
    const char *out = config->train.out;
    char path[PATH_MAX];
    int files = 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, sizeof path, "%s%s", out, places[i].folder);
        files += ls_atomic_file_sweep(path, places[i].prefix);
    }
    if (files > 0)
        ls_log(log, LS_LOG_INFO, "%s: removed %s that a killed run left half-written", out,
               ls_counted(files, "file").text);
    if (ls_checkpoint_prune(out, 0, -1, &error)) /* those of checkpoints */
        ls_log(log, LS_LOG_WARNING, "%s", error.text);
}

static void tiers_sweep(const char *folder, const struct ls_log *log)
{
    char replay[PATH_MAX];
    int tiers = *folder ? ls_tier_sweep(folder) : 0;
    if (*folder && !ls_path_join(replay, folder, REPLAY_FOLDER, NULL)) {
        int replayed = ls_tier_sweep(replay);
        if (replayed > 0)
            rmdir(replay);
        tiers += replayed;
    }
    if (tiers > 0)
        ls_log(log, LS_LOG_INFO, "%s: removed %s that killed ranks left", folder,
               ls_counted(tiers, "offload file").text);
}

void run_folder_sweep_tiers(const struct ls_config *config, const struct ls_log *log)
{
    char path[PATH_MAX];
    struct ls_config *before = malloc(sizeof *before);
    tiers_sweep(config->memory.file, log);
    if (before && !ls_path_join(path, config->train.out, "config.yaml", NULL)) {
        ls_config_defaults(before);
        if (!ls_config_load_file(before, path, NULL))
            tiers_sweep(before->memory.file, log);
    }
    free(before);
}

static int set_aside(const char *run, int64_t step, struct ls_error *error)
{
    char directory[PATH_MAX], aside[PATH_MAX];
    int status = ls_checkpoint_path(directory, run, step, error);
    if (status)
        return status;
    if (snprintf(aside, sizeof aside, "%s.old", directory) >= (int)sizeof aside)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", directory);
    ls_directory_remove(aside);
    return rename(directory, aside)
               ? ls_error_errno(error, errno, "%s: cannot be renamed to %s", directory, aside)
               : LS_OK;
}

/* The run's checkpoints behind that step; adds how many there are to *count. */
static int later_set_aside(const char *run, int64_t step, int *count, struct ls_error *error)
{
    int64_t *steps, found;
    int status = ls_checkpoint_steps(run, &steps, &found, error);
    for (int64_t i = 0; i < found && steps[i] > step && !status; i++) {
        status = set_aside(run, steps[i], error);
        *count += !status;
    }
    free(steps);
    return status;
}

int run_folder_go_back(const struct ls_config *config, int64_t step, const struct ls_log *log,
                       struct ls_error *error)
{
    int workers = config->async.mode == LS_CONFIG_SYNC ? 0 : (int)ls_config_workers(config);
    int count = 0, theirs = 0;
    char run[PATH_MAX];
    int status = later_set_aside(config->train.out, step, &count, error);
    for (int worker = 0; worker < workers && !status; worker++) {
        snprintf(run, sizeof run, "%s/workers/%04d", config->train.out, worker);
        status = later_set_aside(run, step, &theirs, error);
    }
    if (!status && count > 0)
        ls_log(log, LS_LOG_WARNING,
               "%s: %s of steps behind %lld set aside, as step-*.old: the run computes these steps "
               "again. Remove them if you do not need them",
               config->train.out, ls_counted(count, "checkpoint").text, (long long)step);
    return status;
}
