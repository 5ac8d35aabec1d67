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

/* The data of a companion with so many elements; NULL with the error. */
static const void *companion(const struct finding *f, const char *word, enum ls_dtype dtype,
                             int64_t count)
{
    char name[LS_PARAM_NAME_MAX + 128], what[96];
    snprintf(name, sizeof name, "%s.%s", f->codes->name, word);
    const struct ls_tensor_view *view = ls_safetensors_find(f->file, name);
    if (view && view->dtype_known && view->dtype == dtype &&
        view->bytes == (size_t)count * ls_dtype_bytes(dtype))
        return view->data;
    snprintf(what, sizeof what, "expected %s [%ld]", ls_dtype_name(dtype), (long)count);
    refuse(f, word, view ? what : "is missing");
    return NULL;
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
    if (out->nested_absmax)
        out->nested_map = companion(f, "nested_quant_map", LS_F32, 256);
    return out->nested_map ? LS_OK : LS_ECKPT;
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
    const void *map = companion(f, "quant_map", LS_F32, 16);
    if (!map)
        return LS_ECKPT;
    if (memcmp(map, ls_nf4_map(), 16 * sizeof(float)) != 0)
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
    *out = (struct nf4_view){.codes = codes->data};
    const struct ls_tensor_view *text = state_find(file, codes->name);
    if (!text)
        return refuse(&f, "",
                      "is U8 and has no quant_state.bitsandbytes__nf4 beside it: expected F32, "
                      "BF16, F16 or NF4 of bitsandbytes");
    if ((int64_t)codes->bytes != ls_ceil_div(f.count, 2))
        return refuse(&f, "", "it has another number of bytes than half the matrix's values");
    snprintf(name, sizeof name, "%.60s: %.100s", path, text->name);
    int status = ls_json_parse(name, text->data, text->bytes, LS_ECKPT, &state, error);
    if (!status)
        status = state_read(&f, state, shape, out);
    json_decref(state);
    return status;
}

/* ---- values ---------------------------------------------------------------------------------- */

static float float_at(const void *values, int64_t i)
{
    float value; /* a file need not be aligned */
    memcpy(&value, (const char *)values + (size_t)i * sizeof value, sizeof value);
    return value;
}

static float absmax_at(const struct nf4_view *view, int64_t block)
{
    if (!view->nested_block)
        return float_at(view->absmax, block);
    int code = ((const unsigned char *)view->absmax)[block];
    float scaled = float_at(view->nested_map, code) *
                   float_at(view->nested_absmax, block / view->nested_block);
    return scaled + view->offset;
}

void bnb_read(const struct nf4_view *view, int64_t first, int64_t count, float *values)
{
    const float *map = ls_nf4_map();
    const unsigned char *codes = view->codes;
    for (int64_t at = first, end = first + count; at < end;) {
        int64_t stop = ls_min((at / LS_BLOCK_VALUES + 1) * LS_BLOCK_VALUES, end);
        float absmax = absmax_at(view, at / LS_BLOCK_VALUES);
        for (; at < stop; at++)
            values[at - first] = map[codes[at / 2] >> (at % 2 ? 0 : 4) & 15] * absmax;
    }
}
