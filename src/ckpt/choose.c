/* Which checkpoint a user means: a run's directory or one of its checkpoints, and a step. */
#include "ckpt/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool holds(const char *directory, const char *name)
{
    char path[PATH_MAX];
    return ls_path_join(path, directory, name, NULL) == LS_OK && access(path, F_OK) == 0;
}

/* The directory of the checkpoint that path itself is, or names; false if it is a run. */
static bool is_checkpoint(const char *path, char directory[PATH_MAX])
{
    if (ckpt_best_follow(path, directory))
        return true;
    snprintf(directory, PATH_MAX, "%s", path);
    bool described = false;
    for (const struct ckpt_version *v = ckpt_versions; v->file; v++)
        described |= holds(path, v->file);
    return strlen(path) < PATH_MAX && described && !holds(path, CKPT_DIRECTORY);
}

bool ls_checkpoint_is_one(const char *path)
{
    char real[PATH_MAX];
    return is_checkpoint(path, real) || (!holds(path, CKPT_DIRECTORY) && realpath(path, real) &&
                                         ckpt_step_of(strrchr(real, '/') + 1) >= 0);
}

/* Whether path is the folder of a run's checkpoints; run: that it is of. */
static bool is_inside(const char *path, char run[PATH_MAX])
{
    char folder[PATH_MAX];
    struct stat own, of_run;
    int count = 0;
    ls_path_parent(path, run);
    return !ls_path_join(folder, run, CKPT_DIRECTORY, NULL) && !stat(path, &own) &&
           !stat(folder, &of_run) && own.st_ino == of_run.st_ino && own.st_dev == of_run.st_dev &&
           !ls_checkpoint_count(run, &count, NULL) && count > 0;
}

int ls_checkpoint_run(const char *path, char run[PATH_MAX], struct ls_error *error)
{
    char directory[PATH_MAX], above[PATH_MAX + 8];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    bool checkpoint = is_checkpoint(path, directory);
    struct stat found;
    if (!checkpoint && !stat(path, &found) && !S_ISDIR(found.st_mode))
        return ls_error_set(error, LS_EDATA, "%.500s is a file, not a run's directory", path);
    if (!checkpoint && length < PATH_MAX && is_inside(path, run))
        return LS_OK;
    if (!checkpoint && length < PATH_MAX) {
        snprintf(run, PATH_MAX, "%.*s", (int)length, path);
        return LS_OK;
    }
    /* By the directories themselves, so that path may be a link, or "." */
    snprintf(above, sizeof above, "%s/../..", directory);
    if (!checkpoint || !realpath(above, run))
        return ls_error_errno(error, checkpoint ? errno : ENAMETOOLONG,
                              "%.500s: the run of this checkpoint", path);
    return LS_OK;
}

struct steps {
    char text[256];
    size_t used;
    int count;
};

static void add_step(void *user, const char *directory, const struct ls_checkpoint_state *state)
{
    struct steps *steps = user;
    (void)directory;
    if (steps->used + 24 < sizeof steps->text)
        steps->used += (size_t)snprintf(steps->text + steps->used, sizeof steps->text - steps->used,
                                        "%s%lld", steps->count ? ", " : "", (long long)state->step);
    steps->count++;
}

static int refuse(const char *run, const char *which, struct ls_error *error)
{
    struct steps steps = {.text = "none"};
    ls_checkpoint_list(run, add_step, &steps, NULL);
    return ls_error_set(error, LS_ECKPT,
                        "step %.100s: %.300s has no such checkpoint; it has %s%s: expected %s, or "
                        "latest",
                        which, run,
                        steps.count > 1 ? "those of the steps "
                        : steps.count   ? "that of step "
                                        : "",
                        steps.text, steps.count == 1 ? "that" : "one of them");
}

/* Of which, the directory. */
static int directory_of(const char *run, const char *which, char directory[PATH_MAX],
                        struct ls_error *error)
{
    struct ls_checkpoint_best best = {.step = -1};
    bool found = true;
    int status = LS_OK;
    if (strcmp(which, "best") == 0)
        status = ls_checkpoint_best_read(run, &best, &found, error);
    else if (which[0] && strlen(which) <= 18 && strspn(which, "0123456789") == strlen(which))
        best.step = strtoll(which, NULL, 10);
    if (!status && !found)
        status = ls_error_set(
            error, LS_ECKPT, "%.500s has no best checkpoint: train.keep_best = true keeps it", run);
    if (!status && best.step < 0)
        status = ls_error_set(error, LS_ECONFIG,
                              "step %.100s: expected the number of a step, latest or best", which);
    if (!status)
        status = ls_checkpoint_path(directory, run, best.step, error);
    if (!status && access(directory, F_OK) != 0)
        status = refuse(run, which, error);
    return status;
}

int ls_checkpoint_choose(struct ls_checkpoint **out, const char *path, const char *which,
                         const struct ls_log *log, struct ls_error *error)
{
    char run[PATH_MAX], directory[PATH_MAX];
    *out = NULL;
    int status = ls_checkpoint_run(path, run, error);
    if (status)
        return status;
    if (!which && is_checkpoint(path, directory))
        return ls_checkpoint_open(out, directory, error);
    if (which && strcmp(which, "latest") != 0) {
        status = directory_of(run, which, directory, error);
        return status ? status : ls_checkpoint_open(out, directory, error);
    }
    status = ls_checkpoint_find_latest(out, run, log, error);
    if (status || *out)
        return status;
    return ls_error_set(error, LS_ECKPT,
                        "%.500s holds no checkpoint: train it first (lockstep train)", run);
}

/* Opens it only if it is a run. */
int ls_checkpoint_newest(const char *path, char directory[PATH_MAX], struct ls_error *error)
{
    struct ls_checkpoint *newest;
    char of[PATH_MAX];
    bool run = !is_checkpoint(path, directory) &&
               (holds(path, CKPT_DIRECTORY) || holds(path, "config.yaml") || is_inside(path, of));
    int status = run ? ls_checkpoint_choose(&newest, path, NULL, NULL, error) : LS_OK;
    if (!run && snprintf(directory, PATH_MAX, "%s", path) >= PATH_MAX)
        return ls_error_errno(error, ENAMETOOLONG, "%.500s", path);
    if (run && !status) {
        snprintf(directory, PATH_MAX, "%s", newest->directory);
        ls_checkpoint_close(newest);
    }
    return status;
}
