/* Which checkpoint a user means: a run's directory or one of its checkpoints, and a step. */
#include "format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool holds(const char *directory, const char *name)
{
    char path[PATH_MAX];
    return ckpt_path(path, directory, name, NULL) == LS_OK && access(path, F_OK) == 0;
}

int ls_checkpoint_run(const char *path, char run[PATH_MAX], struct ls_error *error)
{
    bool checkpoint = holds(path, CKPT_STATE_FILE) && !holds(path, CKPT_DIRECTORY);
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (!checkpoint && length < PATH_MAX) {
        snprintf(run, PATH_MAX, "%.*s", (int)length, path);
        return LS_OK;
    }
    /* RUN/checkpoints/step-...; by the directories themselves, so that it may be a link, or "." */
    char above[PATH_MAX + 8];
    snprintf(above, sizeof above, "%.*s/../..", (int)length, path);
    if (length >= PATH_MAX || !realpath(above, run))
        return ls_error_errno(error, length >= PATH_MAX ? ENAMETOOLONG : errno,
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
                        "step %.100s: %.300s has no such checkpoint; it has %s%s: expected one of "
                        "them, or latest",
                        which, run, steps.count ? "those of the steps " : "", steps.text);
}

int ls_checkpoint_choose(struct ls_checkpoint **out, const char *path, const char *which,
                         const struct ls_log *log, struct ls_error *error)
{
    char run[PATH_MAX], directory[PATH_MAX];
    *out = NULL;
    int code = ls_checkpoint_run(path, run, error);
    if (code)
        return code;
    bool checkpoint = holds(path, CKPT_STATE_FILE) && !holds(path, CKPT_DIRECTORY);
    if (!which && checkpoint)
        return ls_checkpoint_open(out, path, error);
    if (!which || strcmp(which, "latest") == 0) {
        code = ls_checkpoint_find_latest(out, run, log, error);
        return code || *out ? code
                            : ls_error_set(error, LS_ECKPT,
                                           "%.500s holds no checkpoint: train it first (lockstep "
                                           "train)",
                                           run);
    }
    size_t digits = strspn(which, "0123456789");
    if (digits == 0 || digits > 18 || which[digits])
        return ls_error_set(error, LS_ECONFIG,
                            "step %.100s: expected the number of a step, or latest", which);
    if (snprintf(directory, sizeof directory, "%s/" CKPT_DIRECTORY "/step-%08lld", run,
                 strtoll(which, NULL, 10)) >= (int)sizeof directory)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", run);
    if (access(directory, F_OK) != 0)
        return refuse(run, which, error);
    return ls_checkpoint_open(out, directory, error);
}
