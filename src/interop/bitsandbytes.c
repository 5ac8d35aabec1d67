/* Matrices of 4 bits as transformers saves a model that it loaded with load_in_4bit (bitsandbytes,
 * QuantState.as_dict): "NAME" U8 [n / 2, 1], two codes of NF4 a byte (the same bytes as BF16, F16
 * or F32 with bnb_4bit_quant_storage, which FSDP needs), and beside it
 *
 *   NAME.absmax                             F32, of each 64 values; or, nested, U8:
 *   NAME.nested_absmax, .nested_quant_map   F32, of each 256 of them; F32 [256]
 *   NAME.quant_map                          F32 [16]
 *   NAME.quant_state.bitsandbytes__nf4      U8: JSON
 *
 * A nested absmax is map[code] * nested_absmax + offset, each rounded to float32. */
#include "interop/bitsandbytes.h"

#include <stdlib.h>
#include <string.h>

#define STATE "quant_state.bitsandbytes__"

static const char *const companions[] = {"absmax",    "nested_absmax", "nested_quant_map",
                                         "quant_map", STATE "nf4",     NULL};

bool bnb_matrix_of(const char *name, char matrix[LS_PARAM_NAME_MAX + 64])
{
    const char *end = strstr(name, ".weight.");
    if (!end)
        return false;
    end += strlen(".weight");
    snprintf(matrix, LS_PARAM_NAME_MAX + 64, "%.*s", (int)(end - name), name);
    for (const char *const *word = companions; *word; word++)
        if (!strcmp(end + 1, *word))
            return true;
    return false;
}

/* ---- config.json ----------------------------------------------------------------------------- */

#define KEY "quantization_config"

int bnb_config_take(json_t *description, const char *name, bool *found, struct ls_error *error)
{
    static const struct {
        const char *key, *values[5];
    } expected[] = {
        {"load_in_4bit", {"true"}},
        {"bnb_4bit_quant_type", {"\"nf4\""}},
        {"bnb_4bit_quant_storage", {"\"uint8\"", "\"bfloat16\"", "\"float16\"", "\"float32\""}}};
    const json_t *config = json_object_get(description, KEY);
    const char *method = json_string_value(json_object_get(config, "quant_method"));
    if (!method)
        return LS_OK; /* it is null, or refused with the other keys */
    if (strcmp(method, "bitsandbytes") != 0)
        return ls_error_set(error, LS_ECONFIG,
                            "%.300s: " KEY ".quant_method = %.60s: expected weights in F32, BF16 "
                            "or F16, or NF4 of bitsandbytes: take the model that was quantised, or "
                            "write its weights so with dequantize() and save_pretrained of "
                            "transformers",
                            name, method);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const json_t *value = json_object_get(config, expected[i].key);
        const char *const *fits = expected[i].values;
        while (value && *fits && strcmp(interop_json_text(value).text, *fits) != 0)
            fits++;
        if (!*fits)
            return ls_error_set(error, LS_ECONFIG,
                                "%.300s: " KEY ".%s = %s: expected %s: of bitsandbytes' forms "
                                "NF4 is read",
                                name, expected[i].key, interop_json_text(value).text,
                                expected[i].values[0]);
    }
    json_object_del(description, KEY);
    *found = true;
    return LS_OK;
}

/* ---- a matrix -------------------------------------------------------------------------------- */

struct finding {
    const struct ls_safetensors *file;
    const struct ls_tensor_view *codes;
    const char *path;
    int64_t count; /* of values */
    struct ls_error *error;
};

static int refuse(const struct finding *f, const char *word, const char *what)
{
    return ls_error_set(f->error, LS_ECKPT, "%.300s: tensor %.100s%s%s: %s", f->path,
                        f->codes->name, *word ? "." : "", word, what);
}

/* Where a companion with so many elements begins; 0 with the error. */
static int64_t companion(const struct finding *f, const char *word, enum ls_dtype dtype,
                         int64_t count)
{
    char name[LS_PARAM_NAME_MAX + 128], what[96];
    snprintf(name, sizeof name, "%s.%s", f->codes->name, word);
    const struct ls_tensor_view *view = ls_safetensors_find(f->file, name);
    if (view && view->dtype_known && view->dtype == dtype &&
        view->bytes == (size_t)count * ls_dtype_bytes(dtype))
        return view->at;
    snprintf(what, sizeof what, "expected %s [%ld]", ls_dtype_name(dtype), (long)count);
    refuse(f, word, view ? what : "is missing");
    return 0;
}

/* The values of a companion of so many float32. */
static int floats_read(const struct finding *f, const char *word, int64_t count, float *values)
{
    int64_t at = companion(f, word, LS_F32, count);
    return at ? ls_stored_file_read(ls_safetensors_file(f->file), at,
                                    count * (int64_t)sizeof *values, values, f->error)
              : LS_ECKPT;
}

static int64_t number_of(const json_t *state, const char *key)
{
    return json_integer_value(json_object_get(state, key));
}

static int nested_find(const struct finding *f, const json_t *state, int64_t blocks,
                       struct nf4_view *out)
{
    out->nested_block = number_of(state, "nested_blocksize");
    out->offset = (float)json_number_value(json_object_get(state, "nested_offset"));
    if (out->nested_block < 1 || !json_is_number(json_object_get(state, "nested_offset")))
        return refuse(f, STATE "nf4", "expected nested_blocksize and nested_offset");
    out->absmax = companion(f, "absmax", LS_U8, blocks);
    if (out->absmax)
        out->nested_absmax =
            companion(f, "nested_absmax", LS_F32, ls_ceil_div(blocks, out->nested_block));
    return out->nested_absmax ? floats_read(f, "nested_quant_map", 256, out->nested_map) : LS_ECKPT;
}

/* Where its absmax are, by what the state says. */
static int state_read(const struct finding *f, const json_t *state, const int64_t shape[2],
                      struct nf4_view *out)
{
    const char *type = json_string_value(json_object_get(state, "quant_type"));
    const json_t *size = json_object_get(state, "shape");
    int64_t blocks = ls_ceil_div(f->count, LS_BLOCK_VALUES);
    char what[128];
    if (!type || strcmp(type, "nf4") != 0 || number_of(state, "blocksize") != LS_BLOCK_VALUES)
        return refuse(f, STATE "nf4", "expected quant_type nf4 and blocksize 64");
    snprintf(what, sizeof what, "config.json makes its shape [%ld, %ld]", (long)shape[0],
             (long)shape[1]);
    if (json_array_size(size) != 2 || json_integer_value(json_array_get(size, 0)) != shape[0] ||
        json_integer_value(json_array_get(size, 1)) != shape[1])
        return refuse(f, STATE "nf4", what);
    float map[16];
    int status = floats_read(f, "quant_map", 16, map);
    if (status)
        return status;
    if (memcmp(map, ls_nf4_map(), sizeof map) != 0)
        return refuse(f, "quant_map", "another map than NF4's");
    if (json_object_get(state, "nested_blocksize"))
        return nested_find(f, state, blocks, out);
    out->absmax = companion(f, "absmax", LS_F32, blocks);
    return out->absmax ? LS_OK : LS_ECKPT;
}

static const struct ls_tensor_view *state_find(const struct ls_safetensors *file, const char *codes)
{
    char name[LS_PARAM_NAME_MAX + 128];
    snprintf(name, sizeof name, "%s." STATE "nf4", codes);
    return ls_safetensors_find(file, name);
}

bool bnb_is_codes(const struct ls_safetensors *file, const struct ls_tensor_view *view)
{
    return (view->dtype_known && view->dtype == LS_U8) || state_find(file, view->name);
}

int bnb_find(const struct ls_safetensors *file, const struct ls_tensor_view *codes,
             const char *path, const int64_t shape[2], struct nf4_view *out, struct ls_error *error)
{
    const struct finding f = {file, codes, path, shape[0] * shape[1], error};
    char name[LS_PARAM_NAME_MAX + 128];
    json_t *state = NULL;
    *out = (struct nf4_view){.codes = codes->at};
    const struct ls_tensor_view *text = state_find(file, codes->name);
    if (!text)
        return refuse(&f, "",
                      "is U8 and has no quant_state.bitsandbytes__nf4 beside it: expected F32, "
                      "BF16, F16 or NF4 of bitsandbytes");
    if ((int64_t)codes->bytes != ls_ceil_div(f.count, 2))
        return refuse(&f, "", "it has another number of bytes than half the matrix's values");
    enum { STATE_BYTES_MAX = 64 << 10 };
    char *json = malloc(STATE_BYTES_MAX);
    if (!json)
        return ls_no_memory(error, "to read %.300s", path);
    snprintf(name, sizeof name, "%.60s: %.100s", path, text->name);
    int status = text->bytes <= STATE_BYTES_MAX
                     ? ls_stored_file_read(ls_safetensors_file(file), text->at,
                                           (int64_t)text->bytes, json, error)
                     : ls_error_set(error, LS_ECKPT, "%s: %zu bytes of JSON, expected at most %d",
                                    name, text->bytes, STATE_BYTES_MAX);
    if (!status)
        status = ls_json_parse(name, json, text->bytes, LS_ECKPT, &state, error);
    free(json);
    if (!status)
        status = state_read(&f, state, shape, out);
    json_decref(state);
    return status;
}

/* ---- values ---------------------------------------------------------------------------------- */

enum { TOGETHER = 128 }; /* blocks that are read at once */

/* absmax[count] of blocks from `block` on, at most TOGETHER. */
static int absmax_read(struct ls_stored_file *file, const struct nf4_view *view, int64_t block,
                       int64_t count, float *absmax, struct ls_error *error)
{
    unsigned char codes[TOGETHER];
    float nested[TOGETHER];
    if (!view->nested_block)
        return ls_stored_file_read(file, view->absmax + 4 * block, 4 * count, absmax, error);
    int64_t first = block / view->nested_block;
    int64_t last = (block + count - 1) / view->nested_block;
    int status = ls_stored_file_read(file, view->absmax + block, count, codes, error);
    if (!status)
        status = ls_stored_file_read(file, view->nested_absmax + 4 * first, 4 * (last - first + 1),
                                     nested, error);
    for (int64_t i = 0; i < count && !status; i++) {
        float scaled =
            view->nested_map[codes[i]] * nested[(block + i) / view->nested_block - first];
        absmax[i] = scaled + view->offset;
    }
    return status;
}

int bnb_read(struct ls_stored_file *file, const struct nf4_view *view, int64_t first, int64_t count,
             float *values, struct ls_error *error)
{
    const float *map = ls_nf4_map();
    unsigned char codes[TOGETHER * LS_BLOCK_VALUES / 2];
    float absmax[TOGETHER];
    int status = LS_OK;
    for (int64_t at = first, end = first + count; at < end && !status;) {
        int64_t block = at / LS_BLOCK_VALUES, begin = at / 2;
        int64_t stop = ls_min((block + TOGETHER) * LS_BLOCK_VALUES, end);
        status = absmax_read(file, view, block, ls_ceil_div(stop, LS_BLOCK_VALUES) - block, absmax,
                             error);
        if (!status)
            status = ls_stored_file_read(file, view->codes + begin, ls_ceil_div(stop, 2) - begin,
                                         codes, error);
        for (; at < stop && !status; at++)
            values[at - first] = map[codes[at / 2 - begin] >> (at % 2 ? 0 : 4) & 15] *
                                 absmax[at / LS_BLOCK_VALUES - block];
    }
    return status;
}
