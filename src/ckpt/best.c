/* RUN/checkpoints/best: a file that names the checkpoint with the lowest validation loss. A file
 * and not a link, so that every way of copying a run keeps it. */
#include "ckpt/format.h"

#include <lockstep/base/json.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int best_path(char path[PATH_MAX], const char *run_directory, struct ls_error *error)
{
    char parent[PATH_MAX];
    int status = ls_path_join(parent, run_directory, CKPT_DIRECTORY, error);
    return status ? status : ls_path_join(path, parent, CKPT_BEST_FILE, error);
}

/* Of the file at path; false if it is absent or not what we write. */
static bool parse(const char *path, struct ls_checkpoint_best *best)
{
    json_t *object;
    if (ls_json_read(path, LS_ECKPT, &object, NULL))
        return false;
    const json_t *step = json_object_get(object, "step");
    const json_t *loss = json_object_get(object, "validation_loss");
    const json_t *sequences = json_object_get(object, "sequences");
    bool good = json_is_integer(step) && json_integer_value(step) >= 0 && json_is_number(loss) &&
                json_is_integer(sequences);
    *best = (struct ls_checkpoint_best){.step = json_integer_value(step),
                                        .loss = json_number_value(loss),
                                        .sequences = json_integer_value(sequences)};
    json_decref(object);
    return good;
}

bool ckpt_best_follow(const char *path, char directory[PATH_MAX])
{
    struct ls_checkpoint_best best;
    struct stat status;
    if (stat(path, &status) || !S_ISREG(status.st_mode) || !parse(path, &best))
        return false;
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) : 1;
    return snprintf(directory, PATH_MAX, "%.*s/" CKPT_STEP_FORMAT, folder, slash ? path : ".",
                    (long long)best.step) < PATH_MAX;
}

int ls_checkpoint_path(char path[PATH_MAX], const char *run_directory, int64_t step,
                       struct ls_error *error)
{
    if (snprintf(path, PATH_MAX, "%s/" CKPT_DIRECTORY "/" CKPT_STEP_FORMAT, run_directory,
                 (long long)step) >= PATH_MAX)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", run_directory);
    return LS_OK;
}

bool ls_checkpoint_there(const char *run_directory, int64_t step)
{
    char path[PATH_MAX];
    struct stat status;
    return !ls_checkpoint_path(path, run_directory, step, NULL) && stat(path, &status) == 0;
}

int ls_checkpoint_best_read(const char *run_directory, struct ls_checkpoint_best *best, bool *found,
                            struct ls_error *error)
{
    char path[PATH_MAX];
    int status = best_path(path, run_directory, error);
    *found = !status && parse(path, best) && ls_checkpoint_there(run_directory, best->step);
    return status;
}

int ls_checkpoint_best_write(const char *run_directory, const struct ls_checkpoint_best *best,
                             struct ls_error *error)
{
    char path[PATH_MAX], text[160];
    int status = best_path(path, run_directory, error);
    if (!status && best->step < 0)
        return unlink(path) && errno != ENOENT
                   ? ls_error_errno(error, errno, "%s: cannot remove", path)
                   : LS_OK;
    int bytes = snprintf(text, sizeof text,
                         "{\"step\": %lld, \"validation_loss\": %.17g, \"sequences\": %lld}\n",
                         (long long)best->step, best->loss, (long long)best->sequences);
    return status ? status : ls_file_put(path, text, (size_t)bytes, NULL, error);
}
