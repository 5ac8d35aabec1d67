/* A folder of Hugging Face's as a source: config.json, and the safetensors that hold the weights,
 * in one file or in shards that an index lists. */
#include "interop/bitsandbytes.h"

#include <stdlib.h>
#include <string.h>

#define SINGLE "model.safetensors"
#define INDEX  "model.safetensors.index.json"

struct shard {
    char name[NAME_MAX + 1];
    struct ls_safetensors *file;
};

struct folder {
    char config_path[PATH_MAX];
    json_t *config;
    json_t *index; /* NULL: a single file */
    enum ls_arch arch;
    bool quantised; /* by config.json, with bitsandbytes */
    struct shard *shards;
    int64_t count, room;
};

/* Values that models of old keep in their files and nobody needs. */
static const char *const buffers[] = {"attn.bias", "attn.masked_bias", "rotary_emb.inv_freq", NULL};

static bool is_buffer(const char *name)
{
    for (const char *const *end = buffers; *end; end++) {
        size_t length = strlen(name), tail = strlen(*end);
        const char *at = name + length - tail;
        if (length >= tail && !strcmp(at, *end) && (at == name || at[-1] == '.'))
            return true;
    }
    return false;
}

/* ---- the files ------------------------------------------------------------------------------- */

static void folder_close(struct ls_model_source *source)
{
    struct folder *f = source->data;
    for (int64_t i = 0; i < f->count; i++)
        ls_safetensors_close(f->shards[i].file);
    json_decref(f->config);
    json_decref(f->index);
    free(f->shards);
}

static int shard_open(struct ls_model_source *source, const char *name, struct ls_error *error)
{
    struct folder *f = source->data;
    char path[PATH_MAX];
    int status = ls_path_inside(path, source->path, name, error);
    if (status)
        return status;
    if (!ls_list_grow(&f->shards, f->count, &f->room, sizeof *f->shards))
        return ls_error_set(error, LS_ENOMEM, "%.300s: no memory to open it", path);
    struct shard *shard = &f->shards[f->count];
    snprintf(shard->name, sizeof shard->name, "%s", name);
    status = ls_safetensors_open(&shard->file, path, error);
    f->count += status == LS_OK;
    return status;
}

static const struct shard *shard_named(const struct folder *f, const char *name)
{
    for (int64_t i = 0; i < f->count; i++)
        if (!strcmp(f->shards[i].name, name))
            return &f->shards[i];
    return NULL;
}

/* A file of the folder itself. */
static bool name_is_plain(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length <= NAME_MAX && !strchr(name, '/') && name[0] != '.';
}

static int shards_open(struct ls_model_source *source, struct ls_error *error)
{
    struct folder *f = source->data;
    const json_t *map = json_object_get(f->index, "weight_map");
    const char *tensor;
    const json_t *value;
    int status = LS_OK;
    if (!json_is_object(map))
        return ls_error_set(error, LS_ECKPT,
                            "%.300s/%s: weight_map = %s: expected {tensor: file, ...}",
                            source->path, INDEX, interop_json_text(map).text);
    json_object_foreach((json_t *)map, tensor, value)
    {
        const char *name = json_string_value(value);
        if (!name || !name_is_plain(name))
            return ls_error_set(error, LS_ECKPT,
                                "%.300s/%s: tensor %.100s is in %s: expected the name of a file in "
                                "this folder",
                                source->path, INDEX, tensor, interop_json_text(value).text);
        if (!shard_named(f, name))
            status = shard_open(source, name, error);
        if (status) {
            ls_error_prefix(error, "%.200s/%s lists it", source->path, INDEX);
            return status;
        }
        if (!ls_safetensors_find(shard_named(f, name)->file, tensor))
            return ls_error_set(error, LS_ECKPT,
                                "%.300s/%s: tensor %.100s is not in %.100s, where it should be",
                                source->path, INDEX, tensor, name);
    }
    return LS_OK;
}

static int weights_open(struct ls_model_source *source, struct ls_error *error)
{
    struct folder *f = source->data;
    char path[PATH_MAX];
    if (interop_exists(source->path, SINGLE))
        return shard_open(source, SINGLE, error);
    int status = ls_path_inside(path, source->path, SINGLE, error); /* a link to nothing */
    if (!status)
        status = ls_path_inside(path, source->path, INDEX, error);
    if (status)
        return status;
    if (interop_exists(source->path, INDEX)) {
        status = ls_json_read(path, LS_ECKPT, &f->index, error);
        return status ? status : shards_open(source, error);
    }
    bool pickled = interop_exists(source->path, "pytorch_model.bin") ||
                   interop_exists(source->path, "pytorch_model.bin.index.json");
    return ls_error_set(error, LS_ECKPT, "%.300s: holds neither %s nor %s%s", source->path, SINGLE,
                        INDEX,
                        pickled ? ", and pytorch_model.bin can hold programs and is not read: load "
                                  "it with transformers and write it with save_pretrained"
                                : "");
}

static int folder_configure(const struct ls_model_source *source, struct interop_keys *keys)
{
    const struct folder *f = source->data;
    keys->name = f->config_path;
    keys->description = f->config;
    keys->arch = f->arch;
    return interop_keys_import(keys);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Where a tensor is; NULL if no file has it. Names may have the family's prefix or lack it. */
static const struct ls_tensor_view *tensor_find(const struct folder *f, const char *name,
                                                const struct shard **shard)
{
    const char *prefix = ls_family_of(f->arch)->hf.prefix;
    size_t length = prefix ? strlen(prefix) : 0;
    char longer[LS_PARAM_NAME_MAX + 64] = "";
    if (prefix)
        snprintf(longer, sizeof longer, "%s%s", prefix, name);
    bool shorter = length > 0 && !strncmp(name, prefix, length);
    const char *const spellings[] = {name, longer, shorter ? name + length : ""};
    for (int s = 0; s < 3; s++)
        for (int64_t i = 0; i < f->count && *spellings[s]; i++) {
            const struct ls_tensor_view *view =
                ls_safetensors_find(f->shards[i].file, spellings[s]);
            *shard = &f->shards[i];
            if (view)
                return view;
        }
    return NULL;
}

static int dtype_check(const struct ls_model_source *source, const struct shard *shard,
                       const struct ls_tensor_view *view, struct ls_error *error)
{
    bool good = view->dtype_known &&
                (view->dtype == LS_F32 || view->dtype == LS_BF16 || view->dtype == LS_F16);
    return good ? LS_OK
                : ls_error_set(error, LS_ECKPT,
                               "%.300s/%s: tensor %.100s is %s: expected F32, BF16 or F16",
                               source->path, shard->name, view->name, view->dtype_name);
}

/* The head's matrix may lie beside the table that it is tied to, or in its place. */
#define HEAD "lm_head.weight"
static const struct ls_tensor_view *param_find(const struct ls_model_source *source,
                                               const struct ls_param *param, const char *name,
                                               const struct shard **shard)
{
    const struct ls_params *params = &source->params;
    const struct ls_tensor_view *found = tensor_find(source->data, name, shard);
    int64_t place = param - params->list;
    bool tied = place == params->tied_param || place == params->shared_param;
    return found || !tied ? found : tensor_find(source->data, HEAD, shard);
}

/* A matrix in NF4, whose rows are those of the model. */
static int nf4_locate(const struct ls_model_source *source, const struct shard *shard,
                      const struct ls_tensor_view *view, const struct ls_elsewhere *there,
                      struct source_view *out, struct ls_error *error)
{
    char path[PATH_MAX];
    const int64_t shape[2] = {there->rows, there->cols};
    *out = (struct source_view){.file = ls_safetensors_file(shard->file),
                                .dtype = LS_U8,
                                .rows = there->rows,
                                .cols = there->cols,
                                .first = there->first};
    int status = ls_path_inside(path, source->path, shard->name, error);
    return status ? status : bnb_find(shard->file, view, path, shape, &out->nf4, error);
}

/* The tensor of a name in the shape that config.json makes it. view: NULL if no file has it. */
static int tensor_check(const struct ls_model_source *source, const struct shard *shard,
                        const struct ls_tensor_view *view, const char *name, int dims,
                        const int64_t shape[2], struct ls_error *error)
{
    if (!view)
        return ls_error_set(error, LS_ECKPT, "%.300s: tensor %.100s %s is missing%s", source->path,
                            name, ls_shape_text(dims, shape).text,
                            strcmp(name, HEAD) ? ""
                                               : ": a model without its head, as AutoModel saves "
                                                 "it, has nothing to predict tokens with: save it "
                                                 "with AutoModelForCausalLM");
    bool good = view->dims == dims;
    for (int i = 0; i < dims && good; i++)
        good = view->shape[i] == shape[i];
    if (!good)
        return ls_error_set(
            error, LS_ECKPT, "%.300s/%s: tensor %.100s is %s, and config.json makes it %s",
            source->path, shard->name, view->name, ls_shape_text(view->dims, view->shape).text,
            ls_shape_text(dims, shape).text);
    return dtype_check(source, shard, view, error);
}

static int folder_locate(const struct ls_model_source *source, const struct ls_param *param,
                         struct source_view *out, struct ls_error *error)
{
    struct ls_elsewhere there;
    const struct ls_tensor_view *view;
    if (!ls_param_elsewhere(&source->params, &source->model, param, &there))
        return ls_error_set(error, LS_ECONFIG, "%s: the files of %s have no such parameter",
                            param->name, ls_family_of(source->model.arch)->hf.model_type);
    bool matrix = param->matrix;
    const int64_t shape[2] = {there.transposed ? there.cols : there.rows,
                              there.transposed ? there.rows : there.cols};
    const struct shard *shard;
    view = param_find(source, param, there.name, &shard);
    if (view && param->hidden && bnb_is_codes(shard->file, view))
        return nf4_locate(source, shard, view, &there, out, error);
    int status = tensor_check(source, shard, view, there.name, matrix ? 2 : 1, shape, error);
    if (status)
        return status;
    *out = (struct source_view){.file = ls_safetensors_file(shard->file),
                                .at = view->at,
                                .dtype = view->dtype,
                                .rows = there.rows,
                                .cols = there.cols,
                                .first = there.first,
                                .transposed = there.transposed};
    return LS_OK;
}

/* ---- the check ------------------------------------------------------------------------------- */

static bool shapes_agree(const struct ls_tensor_view *a, const struct ls_tensor_view *b)
{
    return !strcmp(a->dtype_name, b->dtype_name) && a->dims == b->dims &&
           !memcmp(a->shape, b->shape, (size_t)a->dims * sizeof a->shape[0]);
}

/* Whether both have the same type, shape and bytes. */
static int tensors_compare(const struct shard *shards[2], const struct ls_tensor_view *views[2],
                           bool *same, struct ls_error *error)
{
    enum { PIECE = 256 << 10 };
    *same = shapes_agree(views[0], views[1]);
    if (!*same)
        return LS_OK;
    char *pieces = malloc(2 * (size_t)PIECE);
    int status = pieces ? LS_OK : ls_no_memory(error, "to compare %s", views[0]->name);
    for (int64_t at = 0, all = (int64_t)views[0]->bytes; at < all && *same && !status;
         at += PIECE) {
        int64_t count = ls_min(PIECE, all - at);
        for (int i = 0; i < 2 && !status; i++)
            status = ls_stored_file_read(ls_safetensors_file(shards[i]->file), views[i]->at + at,
                                         count, pieces + (ptrdiff_t)i * PIECE, error);
        *same = !status && !memcmp(pieces, pieces + PIECE, (size_t)count);
    }
    free(pieces);
    return status;
}

static int head_check(const struct ls_model_source *source, const char *table,
                      struct ls_error *error)
{
    const struct shard *shards[2];
    const struct ls_tensor_view *head = tensor_find(source->data, HEAD, &shards[0]);
    const struct ls_tensor_view *rows = tensor_find(source->data, table, &shards[1]);
    bool same;
    if (!head || !rows)
        return LS_OK;
    const struct ls_tensor_view *views[] = {head, rows};
    int status = tensors_compare(shards, views, &same, error);
    if (status || same)
        return status;
    return ls_error_set(error, LS_ECKPT,
                        "%.300s: %s is not %.100s, and config.json ties the two: "
                        "tie_word_embeddings should be false, or the file is another model's",
                        source->path, head->name, rows->name);
}

/* A tensor that a file before has too is the same there: of two, programs take one or the other. */
static int once_check(const struct ls_model_source *source, int64_t s,
                      const struct ls_tensor_view *view, struct ls_error *error)
{
    const struct folder *f = source->data;
    for (int64_t before = 0; before < s; before++) {
        const struct shard *shards[] = {&f->shards[before], &f->shards[s]};
        const struct ls_tensor_view *views[] = {ls_safetensors_find(shards[0]->file, view->name),
                                                view};
        if (!views[0])
            continue;
        bool same;
        int status = tensors_compare(shards, views, &same, error);
        if (status)
            return status;
        if (!same)
            return ls_error_set(error, LS_ECKPT,
                                "%.300s: tensor %.100s is in %s and, of another type, shape or "
                                "value, in %s: expected it once: remove the one that is wrong",
                                source->path, view->name, shards[0]->name, shards[1]->name);
    }
    return LS_OK;
}

/* Every tensor of the files is one that the model has, or that nobody needs. */
static int strangers_check(const struct ls_model_source *source, const json_t *expected,
                           struct ls_error *error)
{
    const struct folder *f = source->data;
    for (int64_t s = 0; s < f->count; s++)
        for (size_t i = 0; i < ls_safetensors_count(f->shards[s].file); i++) {
            const struct ls_tensor_view *view = ls_safetensors_at(f->shards[s].file, i);
            const char *name = view->name;
            char matrix[LS_PARAM_NAME_MAX + 64];
            bool beside = bnb_matrix_of(name, matrix) && json_object_get(expected, matrix);
            if (!json_object_get(expected, name) && !is_buffer(name) && !beside)
                return ls_error_set(error, LS_ECKPT,
                                    "%.300s/%s: tensor %.100s does not belong to a model of "
                                    "the family %s",
                                    source->path, f->shards[s].name, name, ls_arch_name(f->arch));
            int status = once_check(source, s, view, error);
            if (status)
                return status;
        }
    return LS_OK;
}

static int folder_check(const struct ls_model_source *source, struct ls_error *error)
{
    const struct ls_params *params = &source->params;
    json_t *expected = json_object();
    const struct shard *shard;
    struct ls_elsewhere there;
    const struct folder *f = source->data;
    bool codes = false;
    int status = LS_OK;
    for (int i = 0; i < params->count; i++) {
        if (!ls_param_elsewhere(params, &source->model, &params->list[i], &there))
            continue; /* an adapter */
        const struct ls_tensor_view *found =
            param_find(source, &params->list[i], there.name, &shard);
        json_object_set_new(expected, found->name, json_true());
        codes |= params->list[i].hidden && bnb_is_codes(shard->file, found);
    }
    if (f->quantised && !codes)
        status = ls_error_set(error, LS_ECONFIG,
                              "%.300s: quantization_config is of bitsandbytes, and the files hold "
                              "no matrix in NF4: remove the key if the weights are as they were "
                              "trained, or take the files that were quantised",
                              f->config_path);
    if (!status && params->tied_param >= 0) {
        const struct ls_param *table = &params->list[params->tied_param];
        const struct ls_tensor_view *head = tensor_find(source->data, HEAD, &shard);
        if (head)
            json_object_set_new(expected, head->name, json_true());
        ls_param_elsewhere(params, &source->model, table, &there);
        status = head_check(source, there.name, error);
    }
    if (!status)
        status = strangers_check(source, expected, error);
    json_decref(expected);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum ls_dtype folder_dtype(const struct folder *f)
{
    for (int64_t s = 0; s < f->count; s++)
        for (size_t i = 0; i < ls_safetensors_count(f->shards[s].file); i++) {
            const struct ls_tensor_view *view = ls_safetensors_at(f->shards[s].file, i);
            if (view->dims == 2 && view->dtype_known && !bnb_is_codes(f->shards[s].file, view))
                return view->dtype == LS_BF16 || view->dtype == LS_F16 ? view->dtype : LS_F32;
        }
    return LS_F32;
}

static int folder_open(struct ls_model_source *source, struct ls_error *error)
{
    struct folder *f = source->data;
    int status = ls_path_inside(f->config_path, source->path, "config.json", error);
    if (!status)
        status = ls_json_read(f->config_path, LS_ECONFIG, &f->config, error);
    if (!status)
        status = interop_family(f->config, f->config_path, &f->arch, error);
    if (!status)
        status = bnb_config_take(f->config, f->config_path, &f->quantised, error);
    if (status)
        return status;
    interop_keys_unknown(f->config, f->arch, f->config_path, source->log);
    interop_rope_tell(f->config, f->config_path, source->log);
    status = weights_open(source, error);
    source->dtype = status ? LS_F32 : folder_dtype(f);
    source->tokenizer = interop_has_tokenizer(source->path) ? source->path : NULL;
    source->folder = source->path;
    return status;
}

const struct source_kind source_hf = {.data_bytes = sizeof(struct folder),
                                      .open = folder_open,
                                      .close = folder_close,
                                      .configure = folder_configure,
                                      .check = folder_check,
                                      .locate = folder_locate};
