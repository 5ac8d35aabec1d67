/* Opens a checkpoint by what describes it: the manifest, or state.json of version 1. Every field is
 * checked, and that each file is there with its size. */
#include "ckpt/format.h"
#include "ckpt/read_ahead.h"

#include <lockstep/base/json.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int get_int(const json_t *object, const char *path, const char *key, int64_t *out,
                   struct ls_error *error)
{
    const json_t *value = json_object_get(object, key);
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= 0)
        return LS_OK;
    return ls_error_set(error, LS_ECKPT, "%s: expected a count under \"%s\", found %s", path, key,
                        value ? "something else" : "none");
}

static int get_string(const json_t *object, const char *path, const char *key, const char **out,
                      struct ls_error *error)
{
    *out = json_string_value(json_object_get(object, key));
    return *out ? LS_OK
                : ls_error_set(error, LS_ECKPT, "%s: expected a string under \"%s\"", path, key);
}

/* Is every byte of this object as it was written, by a version that is known here? */
static int check_object(json_t *object, const struct ckpt_version *of, const char *path,
                        struct ls_error *error)
{
    const char *format, *written;
    char kept[33], digest[33];
    int64_t version;
    int status = get_string(object, path, "format", &format, error);
    if (!status && strcmp(format, CKPT_FORMAT_NAME))
        status = ls_error_set(error, LS_ECKPT, "%s: the format is \"%.40s\", expected \"%s\"", path,
                              format, CKPT_FORMAT_NAME);
    status = status ? status : get_int(object, path, "version", &version, error);
    if (!status && (version < of->oldest || version > of->version))
        status = ls_error_set(error, LS_ECKPT,
                              "%s: version %lld, this program reads up to %d; use the program that "
                              "wrote it",
                              path, (long long)version, of->version);
    status = status ? status : get_string(object, path, of->digest, &written, error);
    if (status)
        return status;
    snprintf(kept, sizeof kept, "%s", written); /* the object is about to lose it */
    if (!ckpt_object_digest(object, of->digest, digest))
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to check it", path);
    return strcmp(digest, kept) ? ls_error_set(error, LS_ECKPT,
                                               "%s: the digest is %s, \"%s\" says %s: the file is "
                                               "damaged",
                                               path, digest, of->digest, kept)
                                : LS_OK;
}

static int read_state(struct ckpt_opened *opened, const char *path, struct ls_error *error)
{
    const json_t *object = opened->manifest;
    struct ls_checkpoint_state *state = &opened->checkpoint.state;
    int status = get_int(object, path, "step", &state->step, error);
    status = status ? status : get_int(object, path, "samples", &state->samples, error);
    status = status ? status : get_int(object, path, "tokens", &state->tokens, error);
    status = status ? status : get_string(object, path, "hash", &state->hash, error);
    status = status ? status : get_string(object, path, "fingerprint", &state->fingerprint, error);
    status =
        status ? status : get_string(object, path, "recipe_digest", &state->recipe_digest, error);
    status = status ? status : get_string(object, path, "recipe", &state->recipe, error);
    const json_t *scale = json_object_get(object, "loss_scale");
    state->loss_scale = json_number_value(scale);
    if (!status && !json_is_number(scale))
        status = ls_error_set(error, LS_ECKPT, "%s: expected a number under \"loss_scale\"", path);
    state->fresh = json_is_true(json_object_get(object, "fresh"));
    state->good_steps = json_integer_value(json_object_get(object, "loss_scale_good_steps"));
    state->hysteresis = json_integer_value(json_object_get(object, "loss_scale_hysteresis"));
    const char *layout = json_string_value(json_object_get(object, "layout"));
    state->layout = layout ? layout : "";
    state->start = json_integer_value(json_object_get(object, "start"));
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The first of the folders that has the file with its size; none: what is wrong in the first. This
 * is the one place where a name becomes a path. */
static int file_find(struct ckpt_file *file, const char *const *folders, int count,
                     const char *described, struct ls_error *error)
{
    struct ls_error first = {0};
    if (count < 0) {
        char path[PATH_MAX];
        int code = ls_path_join(path, folders[0], file->name, error);
        file->path = code ? NULL : strdup(path);
        return code || file->path ? code : ls_error_set(error, LS_ENOMEM, "%s: no memory", path);
    }
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        struct ls_error here = {0};
        uint64_t size;
        int status = ls_path_join(path, folders[i], file->name, &here);
        status = status ? status : ckpt_file_size(path, &size, &here);
        if (!status && size == file->size) {
            file->path = strdup(path);
            return file->path ? LS_OK
                              : ls_error_set(error, LS_ENOMEM, "%s: no memory to open it", path);
        }
        if (!status)
            ls_error_set(&here, LS_ECKPT, "%s: %llu bytes long, %s says %llu", path,
                         (unsigned long long)size, described, (unsigned long long)file->size);
        first = i == 0 ? here : first;
    }
    return ls_error_copy(error, first.code, &first);
}

static int read_files(struct ckpt_opened *opened, const struct ckpt_version *of, const char *path,
                      const char *const *folders, int count, struct ls_error *error)
{
    json_t *files = json_object_get(opened->manifest, "files"), *object;
    const char *name;
    int64_t size, header = 0;
    if (!json_is_object(files))
        return ls_error_set(error, LS_ECKPT, "%s: expected an object under \"files\"", path);
    opened->files = calloc(json_object_size(files) + 1, sizeof *opened->files);
    if (!opened->files)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for its files", path);
    json_object_foreach(files, name, object)
    {
        struct ckpt_file *file = &opened->files[opened->file_count];
        const char *digest = of->version == 1 ? "xxh3_128" : "header_xxh3_128";
        *file = (struct ckpt_file){.name = name};
        int status = get_int(object, path, "size", &size, error);
        status = status ? status : get_string(object, path, digest, &file->digest, error);
        if (!status && of->version > 1)
            status = get_int(object, path, "header_bytes", &header, error);
        if (!status && (header > size || strchr(name, '/') || name[0] == '.'))
            status = ls_error_set(error, LS_ECKPT,
                                  "%s: expected a file's name and a header within its size", path);
        file->size = (uint64_t)size;
        file->covered = (uint64_t)(of->version == 1 ? size : header);
        status = status ? status : file_find(file, folders, count, of->file, error);
        if (status) {
            ls_error_prefix(error, "%.100s", name);
            return status;
        }
        /* Pieces name their file: by this they find it. */
        json_object_set_new(object, "index", json_integer((json_int_t)opened->file_count++));
    }
    return LS_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static bool get_counts(const json_t *list, int *dims, int64_t *counts)
{
    size_t count = json_array_size(list);
    bool good = json_is_array(list) && count <= LS_TENSOR_DIMS_MAX;
    for (size_t i = 0; i < count && good; i++) {
        const json_t *value = json_array_get(list, i);
        counts[i] = json_integer_value(value);
        good = json_is_integer(value) && counts[i] >= 0;
    }
    *dims = (int)count;
    return good;
}

/* False if it is no part of the tensor in a file that is there. */
static bool read_piece(const struct ckpt_opened *opened, const struct ls_stored_tensor *tensor,
                       const json_t *object, struct ckpt_piece *piece)
{
    int shape_dims, offset_dims;
    const char *name = json_string_value(json_object_get(object, "file"));
    const json_t *files = json_object_get(opened->manifest, "files");
    const json_t *index = name ? json_object_get(json_object_get(files, name), "index") : NULL;
    piece->file = (size_t)json_integer_value(index);
    piece->digest = json_string_value(json_object_get(object, "xxh3_128"));
    bool good = index && piece->digest &&
                get_counts(json_object_get(object, "shape"), &shape_dims, piece->shape) &&
                get_counts(json_object_get(object, "offsets"), &offset_dims, piece->offset) &&
                shape_dims == tensor->dims && offset_dims == tensor->dims;
    for (int i = 0; i < tensor->dims && good; i++)
        good = piece->offset[i] <= tensor->shape[i] &&
               piece->shape[i] <= tensor->shape[i] - piece->offset[i];
    return good;
}

static int read_tensor(const struct ckpt_opened *opened, struct ls_stored_tensor *tensor,
                       const char *name, const json_t *object, const char *path,
                       struct ls_error *error)
{
    const char *dtype_name = json_string_value(json_object_get(object, "dtype"));
    const struct ckpt_dtype *dtype = dtype_name ? ckpt_dtype_named(dtype_name) : NULL;
    const json_t *fqn = json_object_get(object, "fqn");
    const json_t *pieces = json_object_get(object, "pieces");
    size_t count = json_array_size(pieces), elements = 1, covered = 0;
    *tensor = (struct ls_stored_tensor){.name = name, .fqn = fqn ? json_string_value(fqn) : name};
    bool good = dtype && dtype->known && tensor->fqn &&
                get_counts(json_object_get(object, "shape"), &tensor->dims, tensor->shape);
    for (int i = 0; i < tensor->dims && good; i++)
        good = ls_size_mul(elements, (size_t)tensor->shape[i], &elements) && elements < INT64_MAX;
    if (!good)
        return ls_error_set(error, LS_ECKPT,
                            "%s: tensor %.200s: expected a dtype such as F32, a shape of at most "
                            "%d dims and, if there is an fqn, a name",
                            path, name, LS_TENSOR_DIMS_MAX);
    tensor->dtype = dtype->dtype;
    tensor->pieces = calloc(count + 1, sizeof *tensor->pieces);
    if (!tensor->pieces)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for %zu pieces", path, count);
    for (; tensor->count < count; tensor->count++) {
        struct ckpt_piece *piece = &tensor->pieces[tensor->count];
        size_t part = 1;
        if (!read_piece(opened, tensor, json_array_get(pieces, tensor->count), piece))
            return ls_error_set(error, LS_ECKPT,
                                "%s: tensor %.200s: piece %zu is no part of it in one of the "
                                "files: expected file, offsets, shape and xxh3_128",
                                path, name, tensor->count);
        for (int i = 0; i < tensor->dims; i++)
            part *= (size_t)piece->shape[i]; /* at most that of the whole */
        covered = part > elements - covered ? elements + 1 : covered + part;
        if (covered > elements)
            break;
    }
    if (covered != elements) /* a reader finds each element; so none is there twice */
        return ls_error_set(error, LS_ECKPT,
                            "%s: tensor %.200s: its pieces have %s elements than the tensor: "
                            "expected each once",
                            path, name, covered > elements ? "more" : "fewer");
    return LS_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ls_stored_tensor *)a)->name,
                  ((const struct ls_stored_tensor *)b)->name);
}

static int read_tensors(struct ckpt_opened *opened, int part, const char *path,
                        struct ls_error *error)
{
    json_t *tensors = json_object_get(opened->manifest, ckpt_part_names[part]), *object;
    const char *name;
    if (!json_is_object(tensors))
        return ls_error_set(error, LS_ECKPT, "%s: expected an object under \"%s\"", path,
                            ckpt_part_names[part]);
    struct ls_stored_tensor *list = calloc(json_object_size(tensors) + 1, sizeof *list);
    opened->tensors[part] = list;
    if (!list)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for its tensors", path);
    json_object_foreach(tensors, name, object)
    {
        int status =
            read_tensor(opened, &list[opened->tensor_count[part]++], name, object, path, error);
        if (status)
            return status;
    }
    qsort(list, opened->tensor_count[part], sizeof *list, by_name);
    return LS_OK;
}

/* Of version 1: a file's header says which tensors it has, each in one piece. */
static int list_tensors(struct ckpt_opened *opened, int part, struct ls_error *error)
{
    static const char *const names[CKPT_PARTS] = {"model.safetensors", "optimizer.safetensors"};
    size_t f = 0;
    while (f < opened->file_count && strcmp(opened->files[f].name, names[part]))
        f++;
    if (f == opened->file_count)
        return ls_error_set(error, LS_ECKPT, "%s: expected %s among its files",
                            opened->checkpoint.directory, names[part]);
    struct ckpt_file *file = &opened->files[f];
    int status = ckpt_file_touch(file, error);
    size_t count = status ? 0 : ls_safetensors_count(file->tensors);
    struct ls_stored_tensor *list = calloc(count + 1, sizeof *list);
    opened->tensors[part] = list;
    if (!status && !list)
        status = ls_error_set(error, LS_ENOMEM, "%s: no memory for its tensors", file->path);
    for (size_t i = 0; i < count && !status; i++) {
        const struct ls_tensor_view *view = ls_safetensors_at(file->tensors, i);
        struct ckpt_piece *piece = calloc(1, sizeof *piece);
        list[i] = (struct ls_stored_tensor){.name = view->name,
                                            .fqn = view->name,
                                            .dtype = view->dtype,
                                            .dims = view->dims,
                                            .count = 1,
                                            .pieces = piece};
        opened->tensor_count[part]++;
        if (!piece || !view->dtype_known)
            return ls_error_set(error, piece ? LS_ECKPT : LS_ENOMEM, "%s: tensor %.200s: %s",
                                file->path, view->name,
                                piece ? "expected a dtype such as F32" : "no memory for it");
        memcpy(list[i].shape, view->shape, sizeof view->shape);
        *piece = (struct ckpt_piece){.file = f, .at = view->at};
        memcpy(piece->shape, view->shape, sizeof view->shape);
    }
    qsort(list, opened->tensor_count[part], sizeof *list, by_name);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

void ckpt_opened_free(struct ckpt_opened *opened)
{
    if (!opened)
        return;
    read_ahead_free(opened->ahead);
    for (int part = 0; part < CKPT_PARTS; part++) {
        for (size_t i = 0; i < opened->tensor_count[part]; i++)
            free(opened->tensors[part][i].pieces);
        free(opened->tensors[part]);
    }
    for (size_t i = 0; i < opened->file_count; i++) {
        ls_safetensors_close(opened->files[i].tensors);
        free(opened->files[i].path);
    }
    free(opened->files);
    json_decref(opened->manifest);
    free(opened);
}

/* What directory has of them; the current one, if none. */
static const struct ckpt_version *version_of(const char *directory)
{
    char path[PATH_MAX];
    for (const struct ckpt_version *v = ckpt_versions; v->file; v++)
        if (!ls_path_join(path, directory, v->file, NULL) && access(path, F_OK) == 0)
            return v;
    return ckpt_versions;
}

int ckpt_describe(struct ckpt_opened **out, const char *directory, const char *const *folders,
                  int count, struct ls_error *error)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    const struct ckpt_version *of = version_of(directory);
    *out = NULL;
    struct ckpt_opened *opened = calloc(1, sizeof *opened);
    if (!opened)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to open it", directory);
    snprintf(opened->checkpoint.directory, PATH_MAX, "%s", directory);
    int status = ls_path_join(path, directory, of->file, error);
    uint64_t size;
    if (!status && access(path, F_OK) && access(directory, F_OK) == 0)
        status = ckpt_file_size(path, &size, error); /* damage; a wrong name is none */
    if (!status)
        status = ls_file_read(path, CKPT_MANIFEST_BYTES_MAX, LS_ECKPT, &text, &bytes, error);
    if (!status)
        status = ls_json_parse(path, text, bytes, LS_ECKPT, &opened->manifest, error);
    free(text);
    status = status ? status : check_object(opened->manifest, of, path, error);
    status = status ? status : read_state(opened, path, error);
    status = status ? status
                    : read_files(opened, of, path, count > 0 ? folders : &directory,
                                 count ? count : 1, error);
    for (int part = 0; part < CKPT_PARTS && !status && of->version > 1; part++)
        status = read_tensors(opened, part, path, error);
    if (status) {
        ckpt_opened_free(opened);
        return status;
    }
    *out = opened;
    return LS_OK;
}

int ls_checkpoint_open_among(struct ls_checkpoint **out, const char *directory,
                             const char *const *folders, int count, struct ls_error *error)
{
    struct ckpt_opened *opened;
    char named[PATH_MAX];
    *out = NULL;
    bool follow = ckpt_best_follow(directory, named);
    int status = ckpt_describe(&opened, follow ? named : directory, folders, count, error);
    bool listed = !status && opened->tensors[LS_CKPT_MODEL];
    for (int part = 0; !status && !listed && part < CKPT_PARTS; part++)
        status = list_tensors(opened, part, error);
    if (status) {
        ckpt_opened_free(opened);
        return status;
    }
    *out = &opened->checkpoint;
    return LS_OK;
}

int ls_checkpoint_open(struct ls_checkpoint **out, const char *directory, struct ls_error *error)
{
    return ls_checkpoint_open_among(out, directory, NULL, 0, error);
}

int ls_checkpoint_visit(const char *directory, ls_checkpoint_visitor *visit, void *user,
                        struct ls_error *error)
{
    struct ckpt_opened *opened;
    char named[PATH_MAX];
    bool follow = ckpt_best_follow(directory, named);
    int status = ckpt_describe(&opened, follow ? named : directory, NULL, 0, error);
    if (!status)
        visit(user, opened->checkpoint.directory, &opened->checkpoint.state);
    ckpt_opened_free(opened);
    return status;
}

void ls_checkpoint_close(struct ls_checkpoint *checkpoint)
{
    ckpt_opened_free((struct ckpt_opened *)checkpoint);
}
