/* A place for copies of checkpoints: what directories and buckets have in common. */
#include "ckpt/place_kind.h"

#include "ckpt/format.h"

#include <lockstep/net.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what is copied -------------------------------------------------------------------------- */

static int held_file_open(struct ls_held *held, int directory, const char *name,
                          struct ls_error *error)
{
    struct stat status;
    if (!ls_list_grow(&held->files, held->count, &held->room, sizeof *held->files))
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to copy it", held->directory);
    struct held_file *file = &held->files[held->count];
    snprintf(file->name, sizeof file->name, "%s", name);
    file->fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0)
        return ls_error_errno(error, errno, "%s/%s%s", held->directory, name,
                              errno == EMFILE ? " (a copy holds all files of a checkpoint open)"
                                              : "");
    ls_fd_opened(file->fd);
    held->count++;
    if (fstat(file->fd, &status))
        return ls_error_errno(error, errno, "%s/%s", held->directory, name);
    file->size = (uint64_t)status.st_size;
    return LS_OK;
}

static int last_described(const void *a, const void *b)
{
    const struct held_file *x = a, *y = b;
    int order = ckpt_describes(x->name) - ckpt_describes(y->name);
    return order ? order : strcmp(x->name, y->name);
}

int ls_held_open(struct ls_held **out, const char *directory, struct ls_error *error)
{
    const char *slash = strrchr(directory, '/');
    int status = LS_OK;
    *out = NULL;
    struct ls_held *held = calloc(1, sizeof *held);
    if (!held)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to copy it", directory);
    snprintf(held->directory, sizeof held->directory, "%s", directory);
    held->step = ckpt_step_of(slash ? slash + 1 : directory);
    DIR *stream = opendir(directory);
    if (!stream)
        status = ls_error_errno(error, errno, "%s: cannot open", directory);
    for (struct dirent *entry; !status && (entry = readdir(stream));)
        if (entry->d_name[0] != '.')
            status = held_file_open(held, dirfd(stream), entry->d_name, error);
    if (stream)
        closedir(stream);
    if (!status && held->count > 0)
        qsort(held->files, (size_t)held->count, sizeof *held->files, last_described);
    if (!status &&
        (held->step < 0 || !held->count || !ckpt_describes(held->files[held->count - 1].name)))
        status = ls_error_set(error, LS_ECKPT, "%s is no complete checkpoint", directory);
    if (status) {
        ls_held_close(held);
        return status;
    }
    *out = held;
    return LS_OK;
}

void ls_held_close(struct ls_held *held)
{
    if (!held)
        return;
    for (int64_t i = 0; i < held->count; i++)
        close(held->files[i].fd);
    free(held->files);
    free(held);
}

int held_read(const struct ls_held *held, const struct held_file *file, uint64_t offset,
              void *buffer, size_t bytes, struct ls_error *error)
{
    size_t done;
    int failure = ls_fd_read(file->fd, (int64_t)offset, buffer, bytes, &done);
    if (failure)
        return ls_error_errno(error, failure, "%s/%s: cannot read", held->directory, file->name);
    if (done < bytes)
        return ls_error_set(error, LS_EIO, "%s/%s became shorter while it was copied",
                            held->directory, file->name);
    ls_progress();
    return LS_OK;
}

int place_file_write(const struct ls_place *place, const char *folder, const char *name,
                     const struct place_read *from, struct ls_error *error)
{
    char path[PATH_MAX], *buffer = malloc(place->options.part_bytes);
    struct ls_atomic_file file;
    if (!buffer)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to copy it", name);
    int status = ls_path_join(path, folder, name, error);
    status = status ? status : ls_atomic_file_open(&file, path, place->options.fault, error);
    if (status) {
        free(buffer);
        return status;
    }
    if (from->beside_steps)
        ls_atomic_file_direct(&file);
    for (uint64_t offset = 0; !status && offset < from->size;) {
        size_t bytes = ls_min(from->size - offset, place->options.part_bytes);
        status = ls_net_ends(&place->options.net)
                     ? ls_error_set(error, LS_ESTOPPED, "%s: given up", path)
                     : from->read(from->user, offset, buffer, bytes, error);
        if (!status)
            ls_atomic_file_write(&file, buffer, bytes);
        offset += bytes;
        ls_progress();
    }
    if (status)
        ls_atomic_file_abort(&file);
    else
        status = ls_atomic_file_commit(&file, error);
    free(buffer);
    return status;
}

/* ---- places ---------------------------------------------------------------------------------- */

int ls_place_open(struct ls_place **out, const char *where, const struct ls_place_options *options,
                  struct ls_error *error)
{
    *out = NULL;
    struct ls_place *place = calloc(1, sizeof *place);
    if (!place)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to open it", where);
    if (options)
        place->options = *options;
    if (place->options.part_bytes == 0)
        place->options.part_bytes = (size_t)16 << 20;
    int status = LS_OK;
    if (snprintf(place->where, sizeof place->where, "%s", where) >= (int)sizeof place->where)
        status = ls_error_set(error, LS_ECONFIG, "%.200s...: the name is too long", where);
    if (!status)
        status =
            ls_url_is(where) ? place_s3_open(place, error) : place_directory_open(place, error);
    if (status) {
        ls_place_close(place);
        return status;
    }
    *out = place;
    return LS_OK;
}

void ls_place_close(struct ls_place *place)
{
    if (place && place->s3)
        place_s3_close(place->s3);
    free(place);
}

int steps_add(struct steps_found *found, int64_t step, struct ls_error *error)
{
    if (!ls_list_grow(&found->steps, found->count, &found->room, sizeof *found->steps))
        return ls_no_memory(error, "for a list of checkpoints");
    found->steps[found->count++] = step;
    return LS_OK;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

int ls_place_list(struct ls_place *place, int64_t **steps, size_t *count, struct ls_error *error)
{
    struct steps_found found = {0};
    int status = place->kind->list(place, &found, error);
    if (status)
        found.count = 0;
    if (found.count > 0)
        qsort(found.steps, (size_t)found.count, sizeof *found.steps, newest_first);
    *steps = found.steps;
    *count = (size_t)found.count;
    return status;
}

int ls_place_put(struct ls_place *place, const struct ls_held *held, uint64_t *bytes,
                 struct ls_error *error)
{
    *bytes = 0;
    return place->kind->put(place, held, bytes, error);
}

/* Each byte of the checkpoint is what its digest says, and it is that of the step. */
static int copy_verify(const char *directory, int64_t step, struct ls_error *error)
{
    struct ls_checkpoint *checkpoint;
    int status = ls_checkpoint_open(&checkpoint, directory, error);
    if (!status && checkpoint->state.step != step)
        status = ls_error_set(error, LS_ECKPT, "%s: the checkpoint is of step %lld, expected %lld",
                              directory, (long long)checkpoint->state.step, (long long)step);
    for (int part = 0; part < CKPT_PARTS && !status; part++) {
        status = ls_checkpoint_verify(checkpoint, (enum ls_checkpoint_part)part, error);
        ls_progress();
    }
    ls_checkpoint_close(checkpoint);
    return status;
}

int ls_place_get(struct ls_place *place, int64_t step, const char *run_directory,
                 struct ls_error *error)
{
    char parent[PATH_MAX], directory[PATH_MAX], temporary[PATH_MAX], name[40];
    const struct ls_fault *fault = place->options.fault;
    snprintf(name, sizeof name, CKPT_STEP_FORMAT, (long long)step);
    int status = ls_path_join(parent, run_directory, CKPT_DIRECTORY, error);
    status = status ? status : ls_path_join(directory, parent, name, error);
    strcat(name, ".tmp");
    status = status ? status : ls_path_join(temporary, parent, name, error);
    status = status ? status : ls_directory_add(parent, fault, error);
    status = status ? status : ckpt_remove_directory(temporary, error);
    if (status)
        return status;
    status = ls_directory_add(temporary, fault, error);
    status = status ? status : place->kind->get(place, step, temporary, error);
    status = status ? status : copy_verify(temporary, step, error);
    status = status ? status : ckpt_give_name(temporary, directory, parent, fault, error);
    ckpt_remove_directory(temporary, NULL);
    return status;
}

int ls_place_remove(struct ls_place *place, int64_t step, struct ls_error *error)
{
    return place->kind->remove(place, step, error);
}

int ls_place_owner(struct ls_place *place, char owner[LS_PLACE_OWNER_BYTES], char folder[PATH_MAX],
                   struct ls_error *error)
{
    char text[PLACE_OWNER_BYTES] = "";
    int status = place->kind->owner(place, text, error);
    size_t first = strcspn(text, "\n");
    const char *second = text[first] ? text + first + 1 : "";
    snprintf(owner, LS_PLACE_OWNER_BYTES, "%.*s", (int)ls_min(first, LS_PLACE_OWNER_BYTES - 1),
             text);
    snprintf(folder, PATH_MAX, "%.*s", (int)strcspn(second, "\n"), second);
    return status;
}

int ls_place_own(struct ls_place *place, const char *owner, const char *folder,
                 struct ls_error *error)
{
    char text[PLACE_OWNER_BYTES];
    snprintf(text, sizeof text, "%.64s\n%s\n", owner, folder);
    return place->kind->own(place, text, error);
}

int ls_place_sweep(struct ls_place *place, struct ls_error *error)
{
    return place->kind->sweep(place, error);
}
