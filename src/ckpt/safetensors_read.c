/* Reads safetensors: every size and place in a file's header is checked. */
#include "ckpt/format.h"

#include <lockstep/base/hub.h>
#include <lockstep/base/json.h>
#include <lockstep/base/words.h>

#include <stdlib.h>
#include <string.h>

/* shape and its element count times bits, in bytes. */
static int parse_shape(struct ls_tensor_view *view, const json_t *shape, unsigned bits,
                       const char *label, struct ls_error *error)
{
    size_t dims = json_array_size(shape);
    if (!json_is_array(shape) || dims > LS_TENSOR_DIMS_MAX)
        return ls_error_set(
            error, LS_ECKPT, "%s: tensor %.200s: expected a shape of at most %d dims, found %s",
            label, view->name, LS_TENSOR_DIMS_MAX, json_is_array(shape) ? "more" : "no list");
    size_t total_bits = bits;
    for (size_t i = 0; i < dims; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return ls_error_set(error, LS_ECKPT,
                                "%s: tensor %.200s: dim %zu of the shape is not a count", label,
                                view->name, i);
        view->shape[i] = json_integer_value(dim);
        if (!ls_size_mul(total_bits, (size_t)view->shape[i], &total_bits))
            return ls_error_set(error, LS_ECKPT,
                                "%s: tensor %.200s: the shape's size overflows 64 bits", label,
                                view->name);
    }
    if (total_bits % 8)
        return ls_error_set(error, LS_ECKPT,
                            "%s: tensor %.200s: %zu elements of %u bits do not fill whole bytes",
                            label, view->name, total_bits / bits, bits);
    view->dims = (int)dims;
    view->bytes = total_bits / 8;
    return LS_OK;
}

/* One "name": {"dtype", "shape", "data_offsets"} into view; the file's data begin at byte `data`.
 */
static int parse_tensor(struct ls_tensor_view *view, const char *name, const json_t *info,
                        size_t data, size_t data_bytes, const char *label, struct ls_error *error)
{
    *view = (struct ls_tensor_view){.name = name};
    const char *dtype_name = json_string_value(json_object_get(info, "dtype"));
    const struct ckpt_dtype *dtype = dtype_name ? ckpt_dtype_named(dtype_name) : NULL;
    if (!dtype)
        return ls_error_set(error, LS_ECKPT,
                            "%s: tensor %.200s: expected a dtype such as F32 or BF16, found %.40s",
                            label, name, dtype_name ? dtype_name : "none");
    view->dtype_name = dtype->name;
    view->dtype_known = dtype->known;
    view->dtype = dtype->dtype;
    int status = parse_shape(view, json_object_get(info, "shape"), dtype->bits, label, error);
    if (status)
        return status;
    const json_t *offsets = json_object_get(info, "data_offsets");
    const json_t *begin_json = json_array_get(offsets, 0), *end_json = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin_json) || !json_is_integer(end_json))
        return ls_error_set(error, LS_ECKPT,
                            "%s: tensor %.200s: expected data_offsets [begin, end]", label, name);
    long long begin = json_integer_value(begin_json), end = json_integer_value(end_json);
    if (begin < 0 || end < begin)
        return ls_error_set(error, LS_ECKPT,
                            "%s: tensor %.200s: data_offsets [%lld, %lld] run backwards", label,
                            name, begin, end);
    if ((unsigned long long)(end - begin) != view->bytes)
        return ls_error_set(error, LS_ECKPT,
                            "%s: tensor %.200s: dtype %s and its shape make %zu bytes, its "
                            "data_offsets [%lld, %lld] hold %lld",
                            label, name, view->dtype_name, view->bytes, begin, end, end - begin);
    if ((unsigned long long)end > data_bytes)
        return ls_error_set(error, LS_ECKPT,
                            "%s: tensor %.200s ends at byte %lld of the data, and the file has "
                            "%zu: it is truncated or damaged",
                            label, name, end, data_bytes);
    view->at = (int64_t)data + begin;
    return LS_OK;
}

static int compare_by_place(const void *a, const void *b)
{
    const struct ls_tensor_view *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int compare_by_name(const void *a, const void *b)
{
    return strcmp((*(struct ls_tensor_view *const *)a)->name,
                  (*(struct ls_tensor_view *const *)b)->name);
}

/* Every byte of the data belongs to one tensor. */
static int check_cover(const struct ls_safetensors *file, size_t data, size_t data_bytes,
                       const char *label, struct ls_error *error)
{
    size_t end = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct ls_tensor_view *view = &file->views[i];
        size_t begin = (size_t)view->at - data;
        if (begin != end)
            return ls_error_set(error, LS_ECKPT,
                                "%s: tensor %.200s begins at byte %zu of the data, expected %zu: "
                                "%s",
                                label, view->name, begin, end,
                                begin > end ? "a hole" : "it overlaps another tensor");
        end += view->bytes;
    }
    if (end != data_bytes)
        return ls_error_set(error, LS_ECKPT,
                            "%s: the tensors end at byte %zu of the data, and the file has %zu",
                            label, end, data_bytes);
    return LS_OK;
}

static int check_metadata(const json_t *metadata, const char *label, struct ls_error *error)
{
    if (!metadata)
        return LS_OK;
    const char *key = "";
    const json_t *value;
    bool good = json_is_object(metadata);
    /* The macro's cast drops const only to iterate. */
    json_object_foreach((json_t *)metadata, key, value)
    {
        good = json_is_string(value);
        if (!good)
            break;
    }
    return good ? LS_OK
                : ls_error_set(error, LS_ECKPT,
                               "%s: %s must map strings to strings; its key \"%.100s\" does not",
                               label, CKPT_METADATA_KEY, key ? key : "");
}

/* Says what a file is whose first bytes are no length of a header. */
static int no_header(struct ls_stored_file *from, uint64_t claimed, struct ls_error *error)
{
    const char *label = ls_stored_file_name(from);
    char first[32];
    int64_t bytes = ls_min(ls_stored_file_bytes(from), sizeof first);
    int status = ls_stored_file_read(from, 0, bytes, first, error);
    const char *pointer = status ? NULL : ls_lfs_pointer(first, (size_t)bytes);
    if (status)
        return status;
    if (pointer)
        return ls_error_set(error, LS_ECKPT, "%s: %s", label, pointer);
    return ls_error_set(error, LS_ECKPT,
                        "%s: the header claims %llu bytes, at most %d are allowed: this is no "
                        "safetensors file",
                        label, (unsigned long long)claimed, CKPT_HEADER_BYTES_MAX);
}

/* The length of the JSON header, which the file begins with. */
static int header_length(struct ls_stored_file *from, size_t *length, struct ls_error *error)
{
    const char *label = ls_stored_file_name(from);
    size_t size = (size_t)ls_stored_file_bytes(from);
    unsigned char bytes[CKPT_LENGTH_BYTES];
    uint64_t claimed = 0;
    if (size < sizeof bytes)
        return ls_error_set(error, LS_ECKPT,
                            "%s: %zu bytes long, expected a safetensors file (8 bytes and a "
                            "header at least)",
                            label, size);
    int status = ls_stored_file_read(from, 0, sizeof bytes, bytes, error);
    if (status)
        return status;
    for (int i = CKPT_LENGTH_BYTES - 1; i >= 0; i--)
        claimed = claimed << 8 | bytes[i];
    if (claimed > CKPT_HEADER_BYTES_MAX)
        return no_header(from, claimed, error);
    if (claimed > size - sizeof bytes)
        return ls_error_set(error, LS_ECKPT,
                            "%s: the header claims %llu bytes, the file has %zu: it is truncated",
                            label, (unsigned long long)claimed, size - sizeof bytes);
    *length = (size_t)claimed;
    return LS_OK;
}

/* The JSON header, and where the data begin. */
static int parse_header(struct ls_safetensors *file, size_t *data, struct ls_error *error)
{
    const char *label = ls_stored_file_name(file->file);
    size_t length = 0;
    int status = header_length(file->file, &length, error);
    if (status)
        return status;
    char *text = malloc(length + 1);
    if (!text)
        return ls_no_memory(error, "for the header of %s", label);
    json_error_t where;
    status = ls_stored_file_read(file->file, CKPT_LENGTH_BYTES, (int64_t)length, text, error);
    if (!status && (length == 0 || text[0] != '{'))
        status = ls_error_set(error, LS_ECKPT, "%s: the header does not start with {", label);
    if (!status)
        file->header = ls_json_load(text, length, JSON_REJECT_DUPLICATES, &where);
    if (!status && !file->header)
        status = ls_error_set(error, LS_ECKPT, "%s: the header is not valid JSON: %s (byte %d)",
                              label, where.text, where.position);
    free(text);
    *data = CKPT_LENGTH_BYTES + length;
    return status ? status
                  : check_metadata(json_object_get(file->header, CKPT_METADATA_KEY), label, error);
}

static int parse(struct ls_safetensors *file, struct ls_error *error)
{
    const char *label = ls_stored_file_name(file->file), *name;
    size_t data;
    int status = parse_header(file, &data, error);
    if (status)
        return status;
    size_t data_bytes = (size_t)ls_stored_file_bytes(file->file) - data;
    size_t keys = json_object_size(file->header);
    file->views = calloc(keys + 1, sizeof *file->views);
    file->by_name = calloc(keys + 1, sizeof *file->by_name);
    if (!file->views || !file->by_name)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for %zu tensors", label, keys);
    json_t *info;
    json_object_foreach(file->header, name, info)
    {
        if (!strcmp(name, CKPT_METADATA_KEY))
            continue;
        status =
            parse_tensor(&file->views[file->count], name, info, data, data_bytes, label, error);
        if (status)
            return status;
        file->count++;
    }
    qsort(file->views, file->count, sizeof *file->views, compare_by_place);
    for (size_t i = 0; i < file->count; i++)
        file->by_name[i] = &file->views[i];
    qsort(file->by_name, file->count, sizeof *file->by_name, compare_by_name);
    return check_cover(file, data, data_bytes, label, error);
}

int ckpt_parse(struct ls_safetensors **out, struct ls_stored_file *from, struct ls_error *error)
{
    struct ls_safetensors *file = calloc(1, sizeof *file);
    *out = NULL;
    if (!file) {
        int status = ls_no_memory(error, "to open %s", ls_stored_file_name(from));
        ls_stored_file_close(from);
        return status;
    }
    file->file = from;
    int status = parse(file, error);
    if (status)
        ls_safetensors_close(file);
    else
        *out = file;
    return status;
}

int ls_safetensors_open(struct ls_safetensors **out, const char *path, struct ls_error *error)
{
    struct ls_stored_file *file;
    *out = NULL;
    int status = ls_stored_file_open(&file, path, LS_ECKPT, error);
    return status ? status : ckpt_parse(out, file, error);
}

void ls_safetensors_close(struct ls_safetensors *file)
{
    if (!file)
        return;
    ls_stored_file_close(file->file);
    json_decref(file->header);
    free(file->views);
    free(file->by_name);
    free(file);
}

struct ls_stored_file *ls_safetensors_file(const struct ls_safetensors *file)
{
    return file->file;
}

size_t ls_safetensors_count(const struct ls_safetensors *file)
{
    return file->count;
}

const struct ls_tensor_view *ls_safetensors_at(const struct ls_safetensors *file, size_t i)
{
    LS_ASSERT(i < file->count);
    return &file->views[i];
}

const struct ls_tensor_view *ls_safetensors_find(const struct ls_safetensors *file,
                                                 const char *name)
{
    struct ls_tensor_view wanted = {.name = name}, *key = &wanted;
    struct ls_tensor_view **found =
        bsearch(&key, file->by_name, file->count, sizeof *file->by_name, compare_by_name);
    return found ? *found : NULL;
}

const char *ls_safetensors_metadata(const struct ls_safetensors *file, const char *key)
{
    return json_string_value(
        json_object_get(json_object_get(file->header, CKPT_METADATA_KEY), key));
}

int ckpt_expect(const char *name, const char *dtype_name, int dims, const int64_t *shape,
                enum ls_dtype dtype, int dims_expected, const int64_t *shape_expected,
                struct ls_error *error)
{
    const struct ls_shape_text expected = ls_shape_text(dims_expected, shape_expected);
    if (!dtype_name)
        return ls_error_set(error, LS_ECKPT, "tensor %.200s is missing, expected %s %s", name,
                            ls_dtype_name(dtype), expected.text);
    const struct ls_shape_text found = ls_shape_text(dims, shape);
    if (!strcmp(dtype_name, ls_dtype_name(dtype)) && !strcmp(expected.text, found.text))
        return LS_OK;
    return ls_error_set(error, LS_ECKPT, "tensor %.200s is %s %s, expected %s %s", name, dtype_name,
                        found.text, ls_dtype_name(dtype), expected.text);
}

int ls_safetensors_require(const struct ls_safetensors *file, const char *name, enum ls_dtype dtype,
                           int dims, const int64_t *shape, const struct ls_tensor_view **view,
                           struct ls_error *error)
{
    const struct ls_tensor_view *found = ls_safetensors_find(file, name);
    int status = ckpt_expect(name, found ? found->dtype_name : NULL, found ? found->dims : 0,
                             found ? found->shape : NULL, dtype, dims, shape, error);
    *view = status ? NULL : found;
    return status;
}
