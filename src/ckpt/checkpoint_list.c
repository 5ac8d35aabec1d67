/* The checkpoints of a run: the newest that is whole, all of them, and which are removed. */
#include "ckpt/format.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int64_t ckpt_step_of(const char *name)
{
    if (strncmp(name, "step-", 5) || strlen(name) < 13 || strlen(name) > 5 + 18 ||
        strspn(name + 5, "0123456789") != strlen(name + 5))
        return -1;
    return strtoll(name + 5, NULL, 10);
}

bool ckpt_is_leftover(const char *name)
{
    char stem[64];
    size_t length = strlen(name);
    if (length < 4 || length >= sizeof stem || strcmp(name + length - 4, ".tmp"))
        return false;
    snprintf(stem, sizeof stem, "%.*s", (int)(length - 4), name);
    return ckpt_step_of(stem) >= 0;
}

static int is_checkpoint_entry(const struct dirent *entry)
{
    return ckpt_step_of(entry->d_name) >= 0;
}

static int is_leftover_entry(const struct dirent *entry)
{
    return ckpt_is_leftover(entry->d_name);
}

static int newest_first(const struct dirent **a, const struct dirent **b)
{
    int64_t x = ckpt_step_of((*a)->d_name), y = ckpt_step_of((*b)->d_name);
    return (x < y) - (x > y);
}

static void list_free(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

/* The entries of RUN/checkpoints that select picks, newest first; *count is 0 if there is no
 * such directory. parent gets its path. */
static int list(struct dirent ***entries, int *count, char parent[PATH_MAX],
                const char *run_directory, int (*select)(const struct dirent *),
                struct ls_error *error)
{
    *entries = NULL;
    *count = 0;
    int status = ls_path_join(parent, run_directory, CKPT_DIRECTORY, error);
    if (status)
        return status;
    int found = scandir(parent, entries, select, newest_first);
    if (found < 0)
        return errno == ENOENT ? LS_OK : ls_error_errno(error, errno, "%s: cannot list", parent);
    *count = found;
    return LS_OK;
}

/* One walk over the run's checkpoints of steps below `below`. *gone: how many a run that goes on
 * removed meanwhile. newest: what is wrong with the newest one, as far as known. */
static int find_once(struct ckpt_opened **out, const char *run_directory, int64_t below,
                     struct ls_error *newest, const struct ls_log *log, int *gone,
                     struct ls_error *error)
{
    struct dirent **entries;
    char parent[PATH_MAX], directory[PATH_MAX];
    int count;
    *gone = 0;
    int code = list(&entries, &count, parent, run_directory, is_checkpoint_entry, error);
    if (code)
        return code;
    for (int i = 0; i < count && !*out; i++) {
        struct ls_error damage = {0};
        struct ls_checkpoint *opened = NULL;
        struct stat status;
        if (ckpt_step_of(entries[i]->d_name) >= below)
            continue;
        code = ls_path_join(directory, parent, entries[i]->d_name, &damage);
        code = code ? code : ls_checkpoint_open(&opened, directory, &damage);
        *out = (struct ckpt_opened *)opened;
        if (code && stat(directory, &status) && errno == ENOENT) {
            ++*gone;
        } else if (code == LS_ECKPT) {
            ls_log(log, LS_LOG_WARNING, "skipping a damaged checkpoint: %s", damage.text);
            *newest = newest->code ? *newest : damage;
        } else if (code) { /* it may be whole: an older one is not taken in its place */
            list_free(entries, count);
            return ls_error_copy(error, code, &damage);
        }
    }
    list_free(entries, count);
    if (!*out && newest->code)
        return ls_error_set(error, newest->code,
                            "%.300s: none of %d checkpoints can be read (move them away to start "
                            "afresh); the newest: %.600s",
                            parent, count, newest->text);
    return LS_OK;
}

static int find(struct ls_checkpoint **out, const char *run_directory, int64_t below,
                struct ls_error *newest, const struct ls_log *log, struct ls_error *error)
{
    enum { WALKS_MAX = 10 };
    struct ckpt_opened *opened = NULL;
    int gone = 1, code = LS_OK;
    for (int walk = 0; walk < WALKS_MAX && gone > 0 && !opened && !code; walk++)
        code = find_once(&opened, run_directory, below, newest, log, &gone, error);
    *out = opened ? &opened->checkpoint : NULL;
    if (opened) {
        snprintf(opened->run, sizeof opened->run, "%s", run_directory);
        opened->newest = *newest;
    }
    return code;
}

int ls_checkpoint_find_latest(struct ls_checkpoint **out, const char *run_directory,
                              const struct ls_log *log, struct ls_error *error)
{
    struct ls_error newest = {0};
    return find(out, run_directory, INT64_MAX, &newest, log, error);
}

int ckpt_older(struct ls_checkpoint **checkpoint, const struct ls_error *damage,
               const struct ls_log *log, struct ls_error *error)
{
    struct ckpt_opened *opened = (struct ckpt_opened *)*checkpoint;
    struct ls_error newest = opened->newest.code ? opened->newest : *damage;
    int64_t step = opened->checkpoint.state.step;
    char run[PATH_MAX];
    struct stat status;
    bool gone = stat(opened->checkpoint.directory, &status) && errno == ENOENT;
    snprintf(run, sizeof run, "%s", opened->run);
    ckpt_opened_free(opened);
    *checkpoint = NULL;
    if (!run[0])
        return ls_error_copy(error, damage->code, damage);
    if (gone) { /* a run that goes on removed it, and has newer ones */
        int found = ls_checkpoint_find_latest(checkpoint, run, log, error);
        return found || *checkpoint ? found : ls_error_copy(error, damage->code, damage);
    }
    ls_log(log, LS_LOG_WARNING, "skipping a damaged checkpoint: %s", damage->text);
    return find(checkpoint, run, step, &newest, log, error);
}

int ls_checkpoint_steps(const char *run_directory, int64_t **steps, int64_t *count,
                        struct ls_error *error)
{
    struct dirent **entries;
    char parent[PATH_MAX];
    int found;
    int status = list(&entries, &found, parent, run_directory, is_checkpoint_entry, error);
    *steps = malloc(((size_t)found + 1) * sizeof **steps);
    *count = *steps ? found : 0;
    if (!status && !*steps)
        status = ls_no_memory(error, "for the steps of %d checkpoints", found);
    for (int i = 0; i < *count; i++)
        (*steps)[i] = ckpt_step_of(entries[i]->d_name);
    list_free(entries, found);
    return status;
}

int64_t ckpt_newest_below(const char *run_directory, int64_t below)
{
    int64_t *steps, count, i = 0;
    int status = ls_checkpoint_steps(run_directory, &steps, &count, NULL);
    while (i < count && steps[i] >= below)
        i++;
    int64_t newest = !status && i < count ? steps[i] : -1;
    free(steps);
    return newest;
}

int ls_checkpoint_list(const char *run_directory, ls_checkpoint_visitor *visit, void *user,
                       struct ls_error *error)
{
    int64_t *steps, count;
    char directory[PATH_MAX];
    int status = ls_checkpoint_steps(run_directory, &steps, &count, error);
    for (int64_t i = 0; i < count && !status; i++) {
        status = ls_checkpoint_path(directory, run_directory, steps[i], error);
        if (!status)
            ls_checkpoint_visit(directory, visit, user, NULL);
    }
    free(steps);
    return status;
}

int ls_checkpoint_count(const char *run_directory, int *count, struct ls_error *error)
{
    struct dirent **entries;
    char parent[PATH_MAX];
    int status = list(&entries, count, parent, run_directory, is_checkpoint_entry, error);
    list_free(entries, *count);
    return status;
}

int ckpt_remove_checkpoint(const char *directory, struct ls_error *error)
{
    char leftover[PATH_MAX];
    if (snprintf(leftover, sizeof leftover, "%s.tmp", directory) >= (int)sizeof leftover)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", directory);
    if (rename(directory, leftover))
        return ls_error_errno(error, errno, "%s: cannot remove", directory);
    return ckpt_remove_directory(leftover, error);
}

/* Removes all but the newest keep checkpoints that are whole, as many behind the step `saved`, and
 * those of `count` steps. */
static int others_remove(const char *run_directory, int64_t keep, int64_t saved,
                         const int64_t *steps, int64_t count, struct ls_error *error)
{
    struct dirent **entries;
    char parent[PATH_MAX], directory[PATH_MAX];
    int found;
    int status = list(&entries, &found, parent, run_directory, is_checkpoint_entry, error);
    int64_t kept[2] = {0, 0};
    for (int i = 0; !status && i < found; i++) {
        struct ckpt_opened *opened = NULL;
        const int64_t step = ckpt_step_of(entries[i]->d_name);
        const int behind = step > saved;
        bool stays = false;
        for (int64_t k = 0; k < count; k++)
            stays |= steps[k] == step;
        status = ls_path_join(directory, parent, entries[i]->d_name, error);
        if (!status && kept[behind] >= keep && !stays)
            status = ckpt_remove_checkpoint(directory, error);
        else if (!status && kept[behind] < keep)
            kept[behind] += ckpt_describe(&opened, directory, NULL, 0, NULL) == LS_OK;
        ckpt_opened_free(opened);
    }
    list_free(entries, found);
    return status;
}

int ls_checkpoint_remove_others(const char *run_directory, int64_t step, struct ls_error *error)
{
    return others_remove(run_directory, 0, -1, &step, 1, error);
}

int ls_checkpoint_retain(const char *run_directory, const int64_t *steps, int64_t count,
                         struct ls_error *error)
{
    int status = ls_checkpoint_prune(run_directory, 0, -1, error);
    return status ? status : others_remove(run_directory, 0, -1, steps, count, error);
}

int ls_checkpoint_prune(const char *run_directory, int64_t keep, int64_t saved,
                        struct ls_error *error)
{
    struct dirent **entries;
    char parent[PATH_MAX], directory[PATH_MAX];
    struct ls_checkpoint_best best;
    bool has_best;
    int count;
    int status = list(&entries, &count, parent, run_directory, is_leftover_entry, error);
    for (int i = 0; !status && i < count; i++) {
        status = ls_path_join(directory, parent, entries[i]->d_name, error);
        status = status ? status : ckpt_remove_directory(directory, error);
    }
    list_free(entries, count);
    if (status || keep <= 0)
        return status;
    status = ls_checkpoint_best_read(run_directory, &best, &has_best, error);
    const int64_t stay[] = {saved, has_best ? best.step : saved};
    return status ? status : others_remove(run_directory, keep, saved, stay, 2, error);
}
