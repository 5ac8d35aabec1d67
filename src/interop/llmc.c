/* llm.c's model_*.bin as a source: GPT-2's weights in float32 (version 3) or bf16 (version 5). */
#include "interop/llmc_layout.h"

#include <stdlib.h>
#include <string.h>

const struct llmc_array llmc_arrays[LLMC_ARRAYS] = {
    {"wte.weight", false, 0, LLMC_VOCAB_PADDED, 1},
    {"wpe.weight", false, 0, LLMC_CONTEXT, 1},
    {"ln_1.weight", true, 1, 0, 0},
    {"ln_1.bias", true, 1, 0, 0},
    {"attn.c_attn.weight", true, 3, 0, 1},
    {"attn.c_attn.bias", true, 3, 0, 0},
    {"attn.c_proj.weight", true, 1, 0, 1},
    {"attn.c_proj.bias", true, 1, 0, 0},
    {"ln_2.weight", true, 1, 0, 0},
    {"ln_2.bias", true, 1, 0, 0},
    {"mlp.c_fc.weight", true, 4, 0, 1},
    {"mlp.c_fc.bias", true, 4, 0, 0},
    {"mlp.c_proj.weight", true, 1, 0, 4},
    {"mlp.c_proj.bias", true, 1, 0, 0},
    {"ln_f.weight", false, 1, 0, 0},
    {"ln_f.bias", false, 1, 0, 0},
};

struct llmc {
    struct ls_stored_file *file;
    int32_t header[LLMC_HEADER_INTS];
    json_t *description; /* as config.json would be */
};

static int64_t rows_of(const struct llmc_array *array, const int32_t *header)
{
    return array->field ? header[array->field] : (int64_t)array->times * header[LLMC_CHANNELS];
}

int64_t llmc_elements(const struct llmc_array *array, const int32_t *header)
{
    int64_t cols = array->cols ? (int64_t)array->cols * header[LLMC_CHANNELS] : 1;
    return rows_of(array, header) * cols;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void llmc_close(struct ls_model_source *source)
{
    struct llmc *l = source->data;
    ls_stored_file_close(l->file);
    json_decref(l->description);
}

static int refuse(const struct ls_model_source *source, struct ls_error *error)
{
    const char *what = ls_path_ends(source->path, ".gguf") ? "GGUF files are written, but not read"
                       : ls_path_ends(source->path, ".safetensors")
                           ? "one file of a model, whose folder is what to name"
                           : "a file, and no llm.c model";
    return ls_error_set(error, LS_ECKPT,
                        "%.300s: %s: expected a run's folder (train.out of its configuration), a "
                        "folder with config.json, or an llm.c model",
                        source->path, what);
}

static int file_open(struct ls_model_source *source, struct ls_error *error)
{
    struct llmc *l = source->data;
    const int64_t bytes = sizeof l->header;
    int status = ls_stored_file_open(&l->file, source->path, LS_ECKPT, error);
    if (status)
        return status;
    int64_t there = ls_min(ls_stored_file_bytes(l->file), bytes);
    status = ls_stored_file_read(l->file, 0, there, l->header, error);
    if (status)
        return status;
    if (l->header[0] != LLMC_MAGIC)
        return refuse(source, error);
    return there == bytes ? LS_OK
                          : ls_error_set(error, LS_ECKPT,
                                         "%.300s: %lld bytes long: the header of an llm.c model "
                                         "has %lld: it is cut",
                                         source->path, (long long)there, (long long)bytes);
}

static int header_check(struct ls_model_source *source, struct ls_error *error)
{
    struct llmc *l = source->data;
    const int32_t *h = l->header;
    if (h[1] != LLMC_VERSION_F32 && h[1] != LLMC_VERSION_BF16)
        return ls_error_set(error, LS_ECKPT, "%.300s: version %d: expected %d (fp32) or %d (bf16)",
                            source->path, h[1], LLMC_VERSION_F32, LLMC_VERSION_BF16);
    for (int i = LLMC_CONTEXT; i < LLMC_FIELDS; i++)
        if (h[i] < 1 || h[i] > 1 << 22)
            return ls_error_set(error, LS_ECKPT, "%.300s: the header's integer %d is %d",
                                source->path, i, h[i]);
    if (h[LLMC_VOCAB] > h[LLMC_VOCAB_PADDED])
        return ls_error_set(error, LS_ECKPT, "%.300s: %d tokens, padded to %d", source->path,
                            h[LLMC_VOCAB], h[LLMC_VOCAB_PADDED]);
    source->dtype = h[1] == LLMC_VERSION_F32 ? LS_F32 : LS_BF16;
    return LS_OK;
}

static int size_check(const struct ls_model_source *source, struct ls_error *error)
{
    const struct llmc *l = source->data;
    size_t expected = sizeof l->header, part;
    for (int i = 0; i < LLMC_ARRAYS; i++) {
        size_t layers = llmc_arrays[i].layers ? (size_t)l->header[LLMC_LAYERS] : 1;
        bool good = ls_size_mul((size_t)llmc_elements(&llmc_arrays[i], l->header), layers, &part) &&
                    ls_size_mul(part, ls_dtype_bytes(source->dtype), &part) &&
                    ls_size_add(expected, part, &expected);
        if (!good)
            return ls_error_set(error, LS_ECKPT, "%.300s: its header says more than 2^64 bytes",
                                source->path);
    }
    size_t found = (size_t)ls_stored_file_bytes(l->file);
    return expected == found
               ? LS_OK
               : ls_error_set(error, LS_ECKPT, "%.300s: %zu bytes long, its header says %zu",
                              source->path, found, expected);
}

static int llmc_open(struct ls_model_source *source, struct ls_error *error)
{
    struct llmc *l = source->data;
    int status = file_open(source, error);
    if (!status)
        status = header_check(source, error);
    if (!status)
        status = size_check(source, error);
    if (status)
        return status;
    l->description = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i}", "model_type", "gpt2", "n_layer",
                               l->header[LLMC_LAYERS], "n_embd", l->header[LLMC_CHANNELS], "n_head",
                               l->header[LLMC_HEADS], "n_positions", l->header[LLMC_CONTEXT],
                               "vocab_size", l->header[LLMC_VOCAB]);
    return l->description
               ? LS_OK
               : ls_error_set(error, LS_ENOMEM, "%.300s: no memory to open it", source->path);
}

static int llmc_configure(const struct ls_model_source *source, struct interop_keys *keys)
{
    const struct llmc *l = source->data;
    keys->name = source->path;
    keys->description = l->description;
    int status = interop_family(l->description, source->path, &keys->arch, keys->error);
    return status ? status : interop_keys_import(keys);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* The array and the layer of a name such as "h.3.ln_1.weight". */
static const struct llmc_array *array_named(const char *name, int64_t *layer)
{
    char *end;
    *layer = strncmp(name, "h.", 2) ? -1 : strtoll(name + 2, &end, 10);
    const char *rest = *layer < 0 ? name : end + 1;
    const struct llmc_array *array = llmc_arrays;
    while (array->layers != (*layer >= 0) || strcmp(array->name, rest)) {
        array++;
        LS_ASSERT(array < llmc_arrays + LLMC_ARRAYS); /* those of GPT-2 are all there */
    }
    return array;
}

static int llmc_locate(const struct ls_model_source *source, const struct ls_param *param,
                       struct source_view *out, struct ls_error *error)
{
    const struct llmc *l = source->data;
    struct ls_elsewhere there;
    int64_t layer, offset = 0;
    (void)error;
    LS_ASSERT(ls_param_elsewhere(&source->params, &source->model, param, &there));
    const struct llmc_array *array = array_named(there.name, &layer);
    for (const struct llmc_array *before = llmc_arrays; before < array; before++)
        offset += llmc_elements(before, l->header) * (before->layers ? source->model.layers : 1);
    offset += ls_max(layer, 0) * llmc_elements(array, l->header);
    offset *= (int64_t)ls_dtype_bytes(source->dtype);
    *out = (struct source_view){.file = l->file,
                                .at = (int64_t)sizeof l->header + offset,
                                .dtype = source->dtype,
                                .rows = rows_of(array, l->header),
                                .cols = there.cols,
                                .first = there.first};
    return LS_OK;
}

const struct source_kind source_llmc = {.data_bytes = sizeof(struct llmc),
                                        .open = llmc_open,
                                        .close = llmc_close,
                                        .configure = llmc_configure,
                                        .locate = llmc_locate};
