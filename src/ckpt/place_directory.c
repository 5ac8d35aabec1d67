/* Copies of checkpoints in a directory, such as one on another disk. */
#include "ckpt/format.h"
#include "ckpt/place_kind.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int copy_path(const struct ls_place *place, int64_t step, const char *ending,
                     char path[PATH_MAX], struct ls_error *error)
{
    char name[40];
    snprintf(name, sizeof name, CKPT_STEP_FORMAT "%s", (long long)step, ending);
    return ls_path_join(path, place->where, name, error);
}

static void visit_nothing(void *user, const char *directory,
                          const struct ls_checkpoint_state *state)
{
    (void)user;
    (void)directory;
    (void)state;
}

static int list(struct ls_place *place, struct steps_found *found, struct ls_error *error)
{
    char path[PATH_MAX];
    int status = LS_OK;
    DIR *stream = opendir(place->where);
    if (!stream)
        return ls_error_errno(error, errno, "%s: cannot list", place->where);
    for (struct dirent *entry; !status && (entry = readdir(stream));) {
        int64_t step = ckpt_step_of(entry->d_name);
        if (step >= 0 && !ls_path_join(path, place->where, entry->d_name, NULL) &&
            !ls_checkpoint_visit(path, visit_nothing, NULL, NULL))
            status = steps_add(found, step, error);
    }
    closedir(stream);
    return status;
}

/* ---- to the directory ------------------------------------------------------------------------ */

struct reading {
    const struct ls_held *held;
    const struct held_file *file;
};

static int read_held(void *user, uint64_t offset, void *buffer, size_t bytes,
                     struct ls_error *error)
{
    const struct reading *reading = user;
    return held_read(reading->held, reading->file, offset, buffer, bytes, error);
}

static int files_write(const struct ls_place *place, const struct ls_held *held,
                       const char *temporary, uint64_t *bytes, struct ls_error *error)
{
    int status = LS_OK;
    ckpt_room_wait();
    for (int64_t i = 0; i < held->count && !status; i++) {
        struct reading reading = {held, &held->files[i]};
        const struct place_read from = {read_held, &reading, held->files[i].size, true};
        status = place_file_write(place, temporary, held->files[i].name, &from, error);
        *bytes += held->files[i].size;
    }
    return status;
}

/* Whether the place has a whole copy with the same manifest. */
static bool is_there(const char *directory, const struct ls_held *held)
{
    const struct held_file *last = &held->files[held->count - 1];
    char path[PATH_MAX], *there = NULL, *mine = malloc(last->size + 1);
    size_t bytes = 0;
    bool same = mine && !ls_checkpoint_visit(directory, visit_nothing, NULL, NULL) &&
                !ls_path_join(path, directory, last->name, NULL) &&
                !ls_file_read(path, CKPT_MANIFEST_BYTES_MAX, LS_ECKPT, &there, &bytes, NULL) &&
                bytes == last->size && !held_read(held, last, 0, mine, bytes, NULL) &&
                !memcmp(there, mine, bytes);
    free(there);
    free(mine);
    return same;
}

static int put(struct ls_place *place, const struct ls_held *held, uint64_t *bytes,
               struct ls_error *error)
{
    char directory[PATH_MAX], temporary[PATH_MAX];
    int status = copy_path(place, held->step, "", directory, error);
    status = status ? status : copy_path(place, held->step, ".tmp", temporary, error);
    if (status || is_there(directory, held))
        return status;
    status = ckpt_remove_directory(temporary, error);
    status = status ? status : ls_directory_add(temporary, place->options.fault, error);
    status = status ? status : files_write(place, held, temporary, bytes, error);
    status = status
                 ? status
                 : ckpt_give_name(temporary, directory, place->where, place->options.fault, error);
    ckpt_remove_directory(temporary, NULL);
    return status;
}

/* ---- from it --------------------------------------------------------------------------------- */

static int get(struct ls_place *place, int64_t step, const char *to, struct ls_error *error)
{
    char directory[PATH_MAX];
    struct ls_held *held = NULL;
    uint64_t bytes = 0;
    int status = copy_path(place, step, "", directory, error);
    status = status ? status : ls_held_open(&held, directory, error);
    status = status ? status : files_write(place, held, to, &bytes, error);
    ls_held_close(held);
    return status;
}

static int take_away(struct ls_place *place, int64_t step, struct ls_error *error)
{
    char directory[PATH_MAX];
    int status = copy_path(place, step, "", directory, error);
    if (status || access(directory, F_OK))
        return status;
    return ckpt_remove_checkpoint(directory, error);
}

static int sweep(struct ls_place *place, struct ls_error *error)
{
    char path[PATH_MAX];
    int status = LS_OK;
    DIR *stream = opendir(place->where);
    if (!stream)
        return ls_error_errno(error, errno, "%s: cannot list", place->where);
    for (struct dirent *entry; !status && (entry = readdir(stream));)
        if (ckpt_is_leftover(entry->d_name)) {
            status = ls_path_join(path, place->where, entry->d_name, error);
            status = status ? status : ckpt_remove_directory(path, error);
        }
    closedir(stream);
    return status;
}

static int owner_get(struct ls_place *place, char owner[PLACE_OWNER_BYTES], struct ls_error *error)
{
    enum { OWNER_BYTES_MAX = 2 * PLACE_OWNER_BYTES };
    char path[PATH_MAX], *text;
    size_t bytes;
    int status = ls_path_join(path, place->where, PLACE_OWNER, error);
    if (status || (access(path, F_OK) && errno == ENOENT))
        return status;
    status = ls_file_read(path, OWNER_BYTES_MAX, LS_EIO, &text, &bytes, error);
    if (!status)
        snprintf(owner, PLACE_OWNER_BYTES, "%s", text);
    if (!status)
        free(text);
    return status;
}

static int owner_put(struct ls_place *place, const char *owner, struct ls_error *error)
{
    char path[PATH_MAX];
    struct ls_atomic_file file;
    int status = ls_path_join(path, place->where, PLACE_OWNER, error);
    status = status ? status : ls_atomic_file_open(&file, path, place->options.fault, error);
    if (status)
        return status;
    ls_atomic_file_printf(&file, "%s", owner);
    return ls_atomic_file_commit(&file, error);
}

static const struct place_kind directory_kind = {.list = list,
                                                 .put = put,
                                                 .get = get,
                                                 .remove = take_away,
                                                 .sweep = sweep,
                                                 .owner = owner_get,
                                                 .own = owner_put};

int place_directory_open(struct ls_place *place, struct ls_error *error)
{
    static const char probe[] = ".lockstep-probe";
    const struct place_read nothing = {0};
    char path[PATH_MAX];
    int status = ls_directory_add(place->where, place->options.fault, error);
    status = status ? status : place_file_write(place, place->where, probe, &nothing, error);
    status = status ? status : ls_path_join(path, place->where, probe, error);
    if (!status)
        unlink(path);
    place->kind = &directory_kind;
    return status;
}
