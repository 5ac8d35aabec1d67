/* Writes a checkpoint aside, and gives it its name when all of it is on the disk. */
#include "ckpt/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct ls_checkpoint_writer {
    const struct ls_checkpoint_state *state;
    const struct ls_fault *fault;
    struct ls_safetensors_writer *tensors; /* of the part that is being written, or NULL */
    enum ls_checkpoint_part part;
    struct {
        bool written;
        uint64_t size;
        char digest[33];
    } parts[CKPT_PARTS];
    char parent[PATH_MAX], directory[PATH_MAX], temporary[PATH_MAX];
};

int ls_checkpoint_writer_open(struct ls_checkpoint_writer **out, const char *run_directory,
                              const struct ls_checkpoint_state *state, const struct ls_fault *fault,
                              struct ls_error *error)
{
    *out = NULL;
    LS_ASSERT(state->step >= 0 && state->recipe_digest && state->recipe && state->fingerprint &&
              state->hash);
    struct ls_checkpoint_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for a checkpoint writer",
                            run_directory);
    writer->state = state;
    writer->fault = fault;
    char name[40];
    snprintf(name, sizeof name, CKPT_STEP_FORMAT, (long long)state->step);
    int status = ls_path_join(writer->parent, run_directory, CKPT_DIRECTORY, error);
    status = status ? status : ls_path_join(writer->directory, writer->parent, name, error);
    strcat(name, ".tmp");
    status = status ? status : ls_path_join(writer->temporary, writer->parent, name, error);
    status = status ? status : ckpt_remove_directory(writer->temporary, error);
    status = status ? status : ls_directory_add(writer->parent, fault, error);
    status = status ? status : ls_directory_add(writer->temporary, fault, error);
    if (status) {
        free(writer);
        return status;
    }
    *out = writer;
    return LS_OK;
}

int ls_checkpoint_writer_begin(struct ls_checkpoint_writer *writer, enum ls_checkpoint_part part,
                               const struct ls_tensor_entry *entries, size_t count,
                               struct ls_safetensors_writer **tensors, struct ls_error *error)
{
    LS_ASSERT(!writer->tensors && !writer->parts[part].written);
    char path[PATH_MAX];
    *tensors = NULL;
    int status = ls_path_join(path, writer->temporary, ckpt_part_files[part], error);
    if (status)
        return status;
    status =
        ls_safetensors_writer_open(tensors, path, entries, count, NULL, 0, writer->fault, error);
    writer->tensors = *tensors;
    writer->part = part;
    return status;
}

int ls_checkpoint_writer_end(struct ls_checkpoint_writer *writer, struct ls_error *error)
{
    LS_ASSERT(writer->tensors);
    struct ls_safetensors_writer *tensors = writer->tensors;
    writer->tensors = NULL;
    int status = ls_safetensors_writer_commit(tensors, &writer->parts[writer->part].size,
                                              writer->parts[writer->part].digest, error);
    writer->parts[writer->part].written = status == LS_OK;
    return status;
}

/* state.json as an object; NULL without memory or where a string is not UTF-8. */
static json_t *state_object(const struct ls_checkpoint_writer *writer)
{
    const struct ls_checkpoint_state *state = writer->state;
    json_t *files = json_object();
    for (int i = 0; i < CKPT_PARTS; i++)
        json_object_set_new(files, ckpt_part_files[i],
                            json_pack("{s:I, s:s}", "size", (json_int_t)writer->parts[i].size,
                                      "xxh3_128", writer->parts[i].digest));
    return json_pack("{s:s, s:i, s:I, s:I, s:I, s:b, s:f, s:I, s:I, s:s, s:s, s:s, s:o, s:s}",
                     "format", CKPT_FORMAT_NAME, "version", CKPT_STATE_VERSION, "step",
                     (json_int_t)state->step, "samples", (json_int_t)state->samples, "tokens",
                     (json_int_t)state->tokens, "fresh", state->fresh, "loss_scale",
                     state->loss_scale, "loss_scale_good_steps", (json_int_t)state->good_steps,
                     "loss_scale_hysteresis", (json_int_t)state->hysteresis, "hash", state->hash,
                     "fingerprint", state->fingerprint, "recipe_digest", state->recipe_digest,
                     "files", files, "recipe", state->recipe);
}

static int write_state(const struct ls_checkpoint_writer *writer, struct ls_error *error)
{
    char path[PATH_MAX];
    int status = ls_path_join(path, writer->temporary, CKPT_STATE_FILE, error);
    if (status)
        return status;
    json_t *object = state_object(writer);
    char digest[33], *text = NULL;
    if (object && ckpt_state_digest(object, digest) &&
        !json_object_set_new(object, CKPT_STATE_DIGEST, json_string(digest)))
        text = json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    if (!text)
        return ls_error_set(error, LS_EINVAL,
                            "%s: the recipe, fingerprint and hash must be UTF-8 and the loss scale "
                            "finite",
                            path);
    struct ls_atomic_file file;
    status = ls_atomic_file_open(&file, path, writer->fault, error);
    if (!status) {
        ls_atomic_file_write(&file, text, strlen(text));
        ls_atomic_file_write(&file, "\n", 1);
        status = ls_atomic_file_commit(&file, error);
    }
    free(text);
    return status;
}

/* rename(2), or where a checkpoint of this step stands there already, an exchange with it: at every
 * moment one whole checkpoint has the name. */
static int give_name(struct ls_checkpoint_writer *writer, struct ls_error *error)
{
    int failure = ls_fault_check(writer->fault, "rename");
    struct stat status;
    bool exists = !failure && lstat(writer->directory, &status) == 0;
    if (!failure && renameat2(AT_FDCWD, writer->temporary, AT_FDCWD, writer->directory,
                              exists ? RENAME_EXCHANGE : 0))
        failure = errno;
    if (failure == EINVAL && exists) { /* a file system without exchange */
        int code = ckpt_remove_directory(writer->directory, error);
        if (code)
            return code;
        failure = rename(writer->temporary, writer->directory) ? errno : 0;
        exists = false;
    }
    if (failure)
        return ls_error_errno(error, failure, "%s: cannot rename into place", writer->directory);
    if (exists)
        ckpt_remove_directory(writer->temporary, NULL); /* else the next write or prune does */
    writer->temporary[0] = '\0';
    return ls_directory_sync(writer->parent, writer->fault, error);
}

int ls_checkpoint_writer_commit(struct ls_checkpoint_writer *writer, struct ls_error *error)
{
    LS_ASSERT(!writer->tensors);
    int status = LS_OK;
    for (int i = 0; i < CKPT_PARTS; i++)
        if (!writer->parts[i].written)
            status = ls_error_set(error, LS_EINVAL, "%s: %s was not written", writer->directory,
                                  ckpt_part_files[i]);
    status = status ? status : write_state(writer, error);
    status = status ? status : give_name(writer, error);
    ls_checkpoint_writer_abort(writer);
    return status;
}

void ls_checkpoint_writer_abort(struct ls_checkpoint_writer *writer)
{
    if (!writer)
        return;
    ls_safetensors_writer_abort(writer->tensors);
    if (writer->temporary[0])
        ckpt_remove_directory(writer->temporary, NULL); /* else it stays as .tmp, never taken */
    free(writer);
}

static int save_part(struct ls_checkpoint_writer *writer, enum ls_checkpoint_part part,
                     const struct ls_tensor_entry *entries, size_t count, struct ls_error *error)
{
    struct ls_safetensors_writer *tensors;
    int status = ls_checkpoint_writer_begin(writer, part, entries, count, &tensors, error);
    status = status ? status : ckpt_write_all(tensors, error);
    return status ? status : ls_checkpoint_writer_end(writer, error);
}

int ls_checkpoint_save(const char *run_directory, const struct ls_checkpoint_state *state,
                       const struct ls_tensor_entry *model, size_t model_count,
                       const struct ls_tensor_entry *optimizer, size_t optimizer_count,
                       const struct ls_fault *fault, struct ls_error *error)
{
    struct ls_checkpoint_writer *writer;
    int status = ls_checkpoint_writer_open(&writer, run_directory, state, fault, error);
    if (status)
        return status;
    status = save_part(writer, LS_CKPT_MODEL, model, model_count, error);
    status =
        status ? status : save_part(writer, LS_CKPT_OPTIMIZER, optimizer, optimizer_count, error);
    if (status) {
        ls_checkpoint_writer_abort(writer);
        return status;
    }
    return ls_checkpoint_writer_commit(writer, error);
}
