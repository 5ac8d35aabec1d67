/* Checkpoints of values in memory, and what one holds. */
#include "checkpoints.h"
#include "saved_tensors.h"

#include "scratch.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static size_t entry_bytes(const struct ls_tensor_entry *entry)
{
    size_t bytes = ls_dtype_bytes(entry->dtype);
    for (int dim = 0; dim < entry->dims; dim++)
        bytes *= (size_t)entry->shape[dim];
    return bytes;
}

static int part_write(struct ls_checkpoint_writer *writer, int part,
                      const struct checkpoint_tensors *tensors, struct ls_error *error)
{
    struct ls_safetensors_writer *file;
    const struct ls_tensor_entry *next;
    if (tensors->count == 0)
        return LS_OK;
    int status = ls_checkpoint_writer_begin(writer, (enum ls_checkpoint_part)part, tensors->entries,
                                            tensors->boxes, tensors->count, &file, error);
    while (!status && (next = ls_safetensors_writer_next(file)))
        status = ls_safetensors_writer_append(file, next->data, entry_bytes(next), error);
    return status ? status : ls_checkpoint_writer_end(writer, error);
}

int checkpoint_write(const char *run, const struct ls_checkpoint_state *about, struct ls_comm *comm,
                     const struct checkpoint_tensors *parts, const struct ls_fault *fault,
                     struct ls_error *error)
{
    struct ls_checkpoint_writer *writer;
    int status =
        ls_checkpoint_writer_open(&writer, run, about, -1, LS_CKPT_SHARED, comm, fault, error);
    if (status)
        return status;
    for (int part = 0; part < 2 && !status; part++)
        status = part_write(writer, part, &parts[part], error);
    return ls_checkpoint_writer_commit(writer, status, error);
}

/* ---- digests --------------------------------------------------------------------------------- */

static void digest_of(const void *bytes, size_t count, char text[33])
{
    XXH128_hash_t hash = XXH3_128bits(bytes, count);
    snprintf(text, 33, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}

/* Sets the field that is the digest of the others, and writes it. */
static void object_write(json_t *object, const char *field, const char *path)
{
    char digest[33];
    json_object_del(object, field);
    char *text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
    assert_non_null(text);
    digest_of(text, strlen(text), digest);
    free(text);
    json_object_set_new(object, field, json_string(digest));
    assert_int_equal(json_dump_file(object, path, JSON_INDENT(1)), 0);
}

void manifest_edit(const char *directory, void (*edit)(json_t *manifest, void *user), void *user)
{
    const char *path = scratch_path(directory, "manifest.json");
    json_t *manifest = json_load_file(path, 0, NULL);
    assert_non_null(manifest);
    edit(manifest, user);
    object_write(manifest, "manifest_xxh3_128", path);
    json_decref(manifest);
}

/* ---- version 1 ------------------------------------------------------------------------------- */

void old_checkpoint_write(const char *run, const struct ls_checkpoint_state *about,
                          const struct checkpoint_tensors *parts)
{
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
    struct ls_error error = {0};
    char directory[PATH_MAX], path[PATH_MAX + 32], digest[33];
    json_t *files = json_object();
    snprintf(directory, sizeof directory, "%s/checkpoints/step-%08lld", run,
             (long long)about->step);
    assert_ok(ls_directory_make(directory, NULL, &error), error);
    for (int part = 0; part < 2; part++) {
        size_t bytes;
        snprintf(path, sizeof path, "%s/%s", directory, names[part]);
        assert_ok(tensors_save(path, parts[part].entries, parts[part].count, &error), error);
        char *text = scratch_read(path, &bytes);
        digest_of(text, bytes, digest);
        free(text);
        json_object_set_new(files, names[part],
                            json_pack("{s:I, s:s}", "size", (json_int_t)bytes, "xxh3_128", digest));
    }
    json_t *object = json_pack(
        "{s:s, s:i, s:I, s:I, s:I, s:b, s:f, s:I, s:I, s:s, s:s, s:s, s:o, s:s}", "format",
        "lockstep checkpoint", "version", 1, "step", (json_int_t)about->step, "samples",
        (json_int_t)about->samples, "tokens", (json_int_t)about->tokens, "fresh", about->fresh,
        "loss_scale", about->loss_scale, "loss_scale_good_steps", (json_int_t)about->good_steps,
        "loss_scale_hysteresis", (json_int_t)about->hysteresis, "hash", about->hash, "fingerprint",
        about->fingerprint, "recipe_digest", about->recipe_digest, "files", files, "recipe",
        about->recipe);
    assert_non_null(object);
    snprintf(path, sizeof path, "%s/state.json", directory);
    object_write(object, "state_xxh3_128", path);
    json_decref(object);
}

void old_checkpoint_copy(const char *directory, const char *run)
{
    struct ls_checkpoint *checkpoint = checkpoint_open(directory);
    struct checkpoint_tensors parts[2];
    struct ls_tensor_entry *entries[2];
    for (int part = 0; part < 2; part++) {
        const struct ls_stored_tensor *list;
        size_t count = ls_checkpoint_tensors(checkpoint, (enum ls_checkpoint_part)part, &list);
        entries[part] = calloc(count + 1, sizeof *entries[part]);
        for (size_t i = 0; i < count; i++) {
            struct ls_tensor_entry *entry = &entries[part][i];
            *entry = (struct ls_tensor_entry){
                .name = list[i].name, .dtype = list[i].dtype, .dims = list[i].dims};
            memcpy(entry->shape, list[i].shape, sizeof entry->shape);
            entry->data =
                checkpoint_tensor(checkpoint, (enum ls_checkpoint_part)part, list[i].name, NULL);
        }
        parts[part] = (struct checkpoint_tensors){entries[part], NULL, count};
    }
    old_checkpoint_write(run, &checkpoint->state, parts);
    for (int part = 0; part < 2; part++) {
        for (size_t i = 0; i < parts[part].count; i++)
            free((void *)entries[part][i].data);
        free(entries[part]);
    }
    ls_checkpoint_close(checkpoint);
}

/* ---- what one holds -------------------------------------------------------------------------- */

struct ls_checkpoint *checkpoint_open(const char *directory)
{
    struct ls_error error = {0};
    struct ls_checkpoint *checkpoint;
    assert_ok(ls_checkpoint_open(&checkpoint, directory, &error), error);
    return checkpoint;
}

size_t stored_tensor_bytes(const struct ls_stored_tensor *tensor)
{
    size_t bytes = ls_dtype_bytes(tensor->dtype);
    for (int dim = 0; dim < tensor->dims; dim++)
        bytes *= (size_t)tensor->shape[dim];
    return bytes;
}

void *checkpoint_tensor(struct ls_checkpoint *checkpoint, enum ls_checkpoint_part part,
                        const char *name, const struct ls_stored_tensor **tensor)
{
    const struct ls_stored_tensor *list, *found = NULL;
    size_t count = ls_checkpoint_tensors(checkpoint, part, &list);
    struct ls_error error = {0};
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i].name, name))
            found = &list[i];
    if (!found)
        fail_msg("%s has no tensor %s", checkpoint->directory, name);
    size_t bytes = stored_tensor_bytes(found);
    void *values = malloc(bytes + 1);
    assert_ok(ls_checkpoint_read(checkpoint, found, 0,
                                 (int64_t)(bytes / ls_dtype_bytes(found->dtype)), values, &error),
              error);
    if (tensor)
        *tensor = found;
    return values;
}

void expect_same_checkpoints(const char *a, const char *b, const char *what)
{
    struct ls_checkpoint *one = checkpoint_open(a), *other = checkpoint_open(b);
    for (int p = 0; p < 2; p++) {
        enum ls_checkpoint_part part = (enum ls_checkpoint_part)p;
        const struct ls_stored_tensor *list, *others, *found;
        size_t count = ls_checkpoint_tensors(one, part, &list);
        if (count != ls_checkpoint_tensors(other, part, &others))
            fail_msg("%s: %s and %s have not as many tensors", what, a, b);
        for (size_t i = 0; i < count; i++) {
            void *x = checkpoint_tensor(one, part, list[i].name, NULL);
            void *y = checkpoint_tensor(other, part, list[i].name, &found);
            size_t bytes = stored_tensor_bytes(&list[i]);
            if (bytes != stored_tensor_bytes(found) || found->dtype != list[i].dtype ||
                memcmp(x, y, bytes))
                fail_msg("%s: %s of %s is not that of %s", what, list[i].name, b, a);
            free(x);
            free(y);
        }
    }
    ls_checkpoint_close(one);
    ls_checkpoint_close(other);
}
