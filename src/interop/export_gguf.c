/* A GGUF file: its head, made in memory, then each tensor as it comes. */
#include "interop/gguf.h"

#include <stdlib.h>
#include <string.h>

#define ROPE_FREQS "rope_freqs.weight"

/* A tensor as the file has it: our rows are its rows; vectors and positions are float32. */
static int tensor_rename(struct exporting *ex, struct out_tensor *tensor, struct ls_error *error)
{
    enum ls_arch arch = ex->config.model.arch;
    const struct ls_family_gguf *family = &ls_family_of(arch)->gguf;
    const char *name = tensor->name;
    bool qk = strstr(name, "self_attn.q_proj.") || strstr(name, "self_attn.k_proj.");
    bool norm = !tensor->matrix && strstr(name, "norm") != NULL;
    if (tensor->transposed) {
        int64_t rows = tensor->cols;
        tensor->cols = tensor->rows;
        tensor->rows = rows;
        tensor->transposed = false;
    }
    if (qk && family->interleaved)
        tensor->head_rows = ex->config.model.head_dim;
    tensor->added = norm && family->norm_plus_one ? 1 : 0;
    char there[LS_PARAM_NAME_MAX + 1];
    if (!gguf_name(arch, name, there))
        return ls_error_set(error, LS_ECONFIG, "%s: GGUF has no name for it", name);
    memcpy(tensor->name, there, sizeof there);
    if (!tensor->matrix || !strncmp(there, "position_embd.", strlen("position_embd.")))
        tensor->dtype = LS_F32;
    if (tensor->dtype == LS_I8 && tensor->cols % GGUF_Q8_VALUES)
        tensor->dtype = LS_F16; /* as llama.cpp does */
    return LS_OK;
}

/* Matrices that cannot be int8 for the length of their rows. */
static void fallback_warn(const struct exporting *ex)
{
    const struct out_tensor *first = NULL;
    int64_t count = 0;
    for (int64_t i = ex->count - 1; i >= 0 && ex->export->dtype == LS_I8; i--)
        if (ex->tensors[i].dtype == LS_F16) {
            first = &ex->tensors[i];
            count++;
        }
    if (first)
        ls_log(ex->export->log, LS_LOG_WARNING,
               "%lld of %lld tensors are fp16 instead of int8, because their rows are not "
               "whole blocks of %d: a row of %s has %lld",
               (long long)count, (long long)ex->count, GGUF_Q8_VALUES, first->name,
               (long long)first->cols);
}

/* ---- llama3's frequencies -------------------------------------------------------------------- */

static bool has_freqs(const struct exporting *ex)
{
    const struct ls_model_config *model = &ex->config.model;
    return ls_family_reads(model->arch, "rope_theta") && model->rope_scaling.factor > 1 &&
           model->rope_scaling.kind == LS_ROPE_LLAMA3;
}

/* What each frequency is divided by: from the table of angles itself. */
static void freqs_fill(const struct exporting *ex, float *factors)
{
    const struct ls_model_config *model = &ex->config.model;
    const struct ls_rope_scaling *s = &model->rope_scaling;
    for (int64_t i = 0; i < model->head_dim / 2; i++)
        factors[i] = (float)(1 / ls_rope_scaled(model->head_dim, model->rope_theta, s, i));
}

/* ---- the head -------------------------------------------------------------------------------- */

static uint32_t type_of(enum ls_dtype dtype)
{
    return dtype == LS_F32 ? 0 : dtype == LS_F16 ? 1 : dtype == LS_I8 ? 8 : 30;
}

static void info_write(FILE *stream, const char *name, const int64_t shape[2], enum ls_dtype dtype,
                       uint64_t offset)
{
    int dims = shape[0] > 0 ? 2 : 1;
    gguf_write_string(stream, name, strlen(name));
    gguf_write_u32(stream, (uint32_t)dims);
    gguf_write_u64(stream, (uint64_t)shape[1]); /* the fastest first */
    if (dims == 2)
        gguf_write_u64(stream, (uint64_t)shape[0]);
    gguf_write_u32(stream, type_of(dtype));
    gguf_write_u64(stream, offset);
}

static void infos_write(const struct exporting *ex, FILE *stream)
{
    uint64_t offset = 0;
    for (int64_t i = 0; i < ex->count; i++) {
        const struct out_tensor *tensor = &ex->tensors[i];
        const int64_t shape[2] = {tensor->matrix ? tensor->rows : 0,
                                  tensor->matrix ? tensor->cols : tensor->rows};
        info_write(stream, tensor->name, shape, tensor->dtype, offset);
        offset += (uint64_t)ls_round_up(out_bytes(tensor), GGUF_ALIGNMENT);
    }
    if (has_freqs(ex))
        info_write(stream, ROPE_FREQS, (const int64_t[2]){0, ex->config.model.head_dim / 2}, LS_F32,
                   offset);
}

/* How many metadata there are is known once they are written. */
static int head_write(const void *context, FILE *stream, struct ls_error *error)
{
    const struct exporting *ex = context;
    struct gguf_metadata metadata = {.stream = stream};
    fputs("GGUF", stream);
    gguf_write_u32(stream, GGUF_VERSION);
    gguf_write_u64(stream, (uint64_t)ex->count + has_freqs(ex));
    long count_at = ftell(stream);
    gguf_write_u64(stream, 0);
    gguf_put_model(&metadata, ex);
    int status = gguf_put_tokenizer(&metadata, ex, error);
    infos_write(ex, stream);
    long end = ftell(stream);
    fseek(stream, count_at, SEEK_SET);
    gguf_write_u64(stream, metadata.count);
    fseek(stream, end, SEEK_SET);
    return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

static int file_pad(struct ls_atomic_file *file, struct ls_error *error)
{
    static const char zeros[GGUF_ALIGNMENT];
    uint64_t rest = file->size % GGUF_ALIGNMENT;
    return rest ? out_append(file, zeros, GGUF_ALIGNMENT - rest, error) : LS_OK;
}

/* A tensor, and zeros up to where the next one begins. */
static int tensor_write(struct exporting *ex, const struct out_tensor *tensor,
                        struct ls_atomic_file *file, struct ls_error *error)
{
    int64_t bytes = out_bytes(tensor);
    size_t rest = (size_t)(ls_round_up(bytes, GGUF_ALIGNMENT) - bytes);
    int status = out_write(ex, tensor, out_append, file, error);
    if (status || rest == 0)
        return status;
    memset(pump_take(&ex->pump), 0, rest);
    return pump_put(&ex->pump, out_append, file, rest, error);
}

static int tensors_write(struct exporting *ex, struct ls_atomic_file *file, struct ls_error *error)
{
    int status = file_pad(file, error);
    for (int64_t i = 0; i < ex->count && !status; i++)
        status = tensor_write(ex, &ex->tensors[i], file, error);
    status = pump_drain(&ex->pump, status, error);
    if (status || !has_freqs(ex))
        return status;
    size_t bytes = (size_t)ex->config.model.head_dim / 2 * sizeof *ex->values;
    freqs_fill(ex, ex->values);
    status = out_append(file, ex->values, bytes, error);
    return status ? status : file_pad(file, error);
}

static int file_write(struct exporting *ex, struct ls_atomic_file *file, struct ls_error *error)
{
    char *text;
    size_t bytes;
    int status = ls_text_write(head_write, ex, &text, &bytes, error);
    if (!status)
        status = out_append(file, text, bytes, error);
    free(text);
    return status ? status : tensors_write(ex, file, error);
}

static bool has_key(const struct ls_family *family, const char *key)
{
    const struct ls_gguf_key *row = family->gguf.keys;
    while (row && row->name && strcmp(row->key, key))
        row++;
    return row && row->name;
}

/* What llama.cpp computes without asking the file. */
static int model_check(const struct exporting *ex, struct ls_error *error)
{
    const struct ls_config *config = &ex->config;
    const struct ls_model_config *model = &config->model;
    const struct ls_family *family = ls_family_of(model->arch);
    bool scaled = ls_family_reads(model->arch, "query_scale");
    int64_t by_width = family->gguf.layers_by_width;
    double divided = scaled && model->layers == by_width ? (double)(model->channels / model->heads)
                                                         : (double)model->head_dim;
    const struct {
        bool good;
        const char *key, *expected;
    } demands[] = {
        {model->act == family->act, "model.activation", "that of the family's published models"},
        {!scaled || model->query_scale == divided, "model.query_scale",
         "model.head_dim; channels / heads where a published model of so many layers has it"},
        {!family->gguf.tied || model->tied, "model.tied", "true"},
        {model->window == 0 ||
             interop_layers_agree(model, model->window_layers, family->window_layers),
         "model.window_layers", "those of the family's published models"},
        {model->rope_local_theta == 0 || model->window > 0, "model.window", "a window"},
        {interop_layers_agree(model, model->rope_layers, family->rope_layers), "model.rope_layers",
         "those of the family's published models"},
        {!has_freqs(ex) || family->gguf.frequencies, "model.rope_scaling",
         "default, linear or yarn"},
        {model->rope_local_theta == 0 || has_key(family, "rope_local_theta") ||
             model->rope_local_theta == model->rope_theta,
         "model.rope_local_theta", "model.rope_theta"},
    };
    for (size_t i = 0; i < sizeof demands / sizeof *demands; i++)
        if (!demands[i].good)
            return ls_config_reject(config, LS_ECONFIG, demands[i].key, error, "GGUF's %s has %s",
                                    family->gguf.architecture, demands[i].expected);
    return LS_OK;
}

/* llama.cpp knows OLMo 2 with a head of its own: the table, once more. */
static int head_add(struct exporting *ex, struct ls_error *error)
{
    if (!ls_family_of(ex->config.model.arch)->gguf.head || !ex->config.model.tied)
        return LS_OK;
    if (!ls_list_grow(&ex->tensors, ex->count, &ex->room, sizeof *ex->tensors))
        return ls_no_memory(error, "for a list of tensors");
    int64_t table = 0;
    while (strcmp(ex->tensors[table].name, "token_embd.weight"))
        LS_ASSERT(++table < ex->count);
    struct out_tensor *head = &ex->tensors[ex->count++];
    *head = ex->tensors[table];
    snprintf(head->name, sizeof head->name, "output.weight");
    return LS_OK;
}

/* What llama.cpp makes of another architecture's name: Mistral without its window. */
static void window_warn(const struct exporting *ex)
{
    const struct ls_model_config *model = &ex->config.model;
    if (model->window > 0 && model->window < model->context &&
        !has_key(ls_family_of(model->arch), "window"))
        ls_log(ex->export->log, LS_LOG_WARNING,
               "GGUF's %s has no window: there, text of more than %lld tokens is another model's",
               ls_family_of(model->arch)->gguf.architecture, (long long)model->window);
}

int export_gguf(struct exporting *ex, struct ls_error *error)
{
    const struct ls_family *family = ls_family_of(ex->config.model.arch);
    json_t *description = json_object();
    if (!family->gguf.architecture) {
        json_decref(description);
        return ls_config_reject(&ex->config, LS_ECONFIG, "model.arch", error,
                                "GGUF has no such architecture here");
    }
    int status = interop_keys_export(&ex->config, description, error); /* a model of that family */
    json_decref(description);
    if (!status)
        status = model_check(ex, error);
    window_warn(ex);
    for (int64_t i = 0; i < ex->count && !status; i++)
        status = tensor_rename(ex, &ex->tensors[i], error);
    if (!status)
        status = head_add(ex, error);
    if (status)
        return status;
    fallback_warn(ex);
    return out_single(ex, file_write, error);
}
