/* Adapters in PEFT's files: adapter_config.json and adapter_model.safetensors, as lora.from reads
 * them. */
#include "interop/interop_private.h"

#include <lockstep/base/hub.h>

#include <math.h>
#include <string.h>

#define DESCRIPTION "adapter_config.json"
#define WEIGHTS     "adapter_model.safetensors"
#define PICKLED     "adapter_model.bin"

/* ---- adapter_config.json --------------------------------------------------------------------- */

/* Keys that say what is trained, or change no result. Every other one must be empty. */
static const char harmless[] =
    "peft_type|task_type|base_model_name_or_path|revision|r|lora_alpha|lora_dropout|"
    "target_modules|exclude_modules|layers_to_transform|layers_pattern|use_rslora|fan_in_fan_out|"
    "inference_mode|init_lora_weights|auto_mapping|peft_version|runtime_config|loftq_config|"
    "megatron_core|qalora_group_size|ensure_weight_tying|eva_config";
/* First values that leave the model as it is. With others PEFT changes its matrices (PiSSA, OLoRA,
 * CorDA, LoftQ, LoRA-GA), also when it loads the adapters. */
static const char plain_inits[] = "gaussian|eva|orthogonal|mica";

static bool is_empty(const json_t *value)
{
    const char *text = json_string_value(value);
    return json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (text && (!*text || !strcmp(text, "none")));
}

static int features_check(const json_t *description, const char *path, struct ls_error *error)
{
    const char *name;
    const json_t *value;
    json_object_foreach((json_t *)description, name, value)
    {
        if (!ls_word_among(harmless, name) && !is_empty(value))
            return ls_error_set(error, LS_ECONFIG,
                                "%.300s: %.60s = %s: such adapters are not supported: expected the "
                                "key to be empty",
                                path, name, interop_json_text(value).text);
    }
    const json_t *init = json_object_get(description, "init_lora_weights");
    if (json_is_string(init) && !ls_word_among(plain_inits, json_string_value(init)))
        return ls_error_set(error, LS_ECONFIG,
                            "%.300s: init_lora_weights = %s: such adapters belong to matrices that "
                            "PEFT changes when it loads them: expected adapters of the model "
                            "itself: save_pretrained makes them with "
                            "path_initial_model_for_weight_conversion",
                            path, interop_json_text(init).text);
    const json_t *type = json_object_get(description, "peft_type");
    if (!json_is_string(type) || strcmp(json_string_value(type), "LORA"))
        return ls_error_set(error, LS_ECONFIG, "%.300s: peft_type = %s: expected \"LORA\"", path,
                            interop_json_text(type).text);
    return LS_OK;
}

/* What follows the last number between dots: "self_attn.q_proj" of
 * "model.layers.0.self_attn.q_proj"; all of a name that has none. */
static const char *within_block(const char *name)
{
    const char *within = name;
    for (const char *part = name, *dot; (dot = strchr(part, '.')); part = dot + 1)
        if (dot > part && strspn(part, "0123456789") == (size_t)(dot - part))
            within = dot + 1;
    return within;
}

static int too_long(const char *path, const char *what, size_t bytes, struct ls_error *error)
{
    return ls_error_set(error, LS_ECONFIG,
                        "%.300s: %s: expected at most %zu characters together, as lora.targets "
                        "takes",
                        path, what, bytes - 1);
}

/* "self_attn.q_proj,mlp.up_proj", of the tensors' names: whatever pattern chose them, they are what
 * is there. */
static int targets_found(const char *folder, char *text, size_t bytes, struct ls_error *error)
{
    char path[PATH_MAX], name[LS_PARAM_NAME_MAX + 64];
    struct ls_safetensors *file = NULL;
    size_t used = 0;
    int status = ls_path_inside(path, folder, WEIGHTS, error);
    if (!status)
        status = ls_safetensors_open(&file, path, error);
    *text = '\0';
    for (size_t t = 0; !status && used < bytes && t < ls_safetensors_count(file); t++) {
        snprintf(name, sizeof name, "%s", ls_safetensors_at(file, t)->name);
        char *end = strstr(name, ".lora_");
        if (end)
            *end = '\0'; /* others belong to no target: peft_check names them */
        if (end && !ls_word_among(text, within_block(name)))
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "|" : "",
                                     within_block(name));
    }
    ls_safetensors_close(file);
    for (char *c = text; (c = strchr(c, '|'));)
        *c = ',';
    if (!status && used >= bytes)
        return too_long(path, "the names of its matrices", bytes, error);
    return status || used > 0 ? status
                              : ls_error_set(error, LS_ECONFIG,
                                             "%.300s: expected tensors of adapters, lora_A and "
                                             "lora_B, of a few matrices in each block",
                                             path);
}

/* Target_modules of every block: a list of names without a block's number, and nothing left out. */
static bool names_of_all_blocks(const json_t *description)
{
    static const char *const fewer[] = {"exclude_modules", "layers_to_transform"};
    const json_t *targets = json_object_get(description, "target_modules");
    for (size_t i = 0; i < sizeof fewer / sizeof *fewer; i++) {
        const json_t *value = json_object_get(description, fewer[i]);
        if (value && (json_is_integer(value) || !is_empty(value)))
            return false;
    }
    for (size_t i = 0; i < json_array_size(targets); i++) {
        const char *word = json_string_value(json_array_get(targets, i));
        if (word && within_block(word) != word)
            return false;
    }
    return json_is_array(targets);
}

/* "q_proj,v_proj". */
static int targets_text(const struct interop_keys *keys, char *text, size_t bytes)
{
    const json_t *targets = json_object_get(keys->description, "target_modules");
    const char *word = json_string_value(targets);
    size_t used = 0;
    if (word || (json_array_size(targets) > 0 && !names_of_all_blocks(keys->description)))
        return targets_found(keys->config->lora.from, text, bytes, keys->error);
    for (size_t i = 0; i < json_array_size(targets) && used < bytes; i++) {
        word = json_string_value(json_array_get(targets, i));
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%s", i ? "," : "", word ? word : "?");
    }
    if (used >= bytes)
        return too_long(keys->name, "target_modules", bytes, keys->error);
    return used > 0
               ? LS_OK
               : ls_error_set(keys->error, LS_ECONFIG,
                              "%.300s: target_modules = %s: expected a list of names, a pattern or "
                              "\"all-linear\"",
                              keys->name, interop_json_text(targets).text);
}

/* rsLoRA (Kalajdzievski 2023) counts adapters alpha / sqrt(rank) times. */
static int keys_set(struct interop_keys *keys, const struct ls_log *log)
{
    const json_t *d = keys->description, *scaled = json_object_get(d, "use_rslora");
    char text[LS_CONFIG_TEXT_BYTES];
    double rank = json_number_value(json_object_get(d, "r"));
    double alpha = json_number_value(json_object_get(d, "lora_alpha"));
    double dropout = json_number_value(json_object_get(d, "lora_dropout"));
    if (scaled && !json_is_boolean(scaled) && !json_is_null(scaled))
        return ls_error_set(keys->error, LS_ECONFIG,
                            "%.300s: use_rslora = %s: expected true or false", keys->name,
                            interop_json_text(scaled).text);
    if (json_is_true(scaled))
        alpha *= sqrt(rank);
    if (!(rank >= 1) || !(alpha > 0))
        return ls_error_set(keys->error, LS_ECONFIG,
                            "%.300s: r = %s, lora_alpha = %s: expected numbers above 0", keys->name,
                            interop_json_text(json_object_get(d, "r")).text,
                            interop_json_text(json_object_get(d, "lora_alpha")).text);
    if (dropout > 0)
        ls_log(log, LS_LOG_WARNING, "%s: lora_dropout = %g is not applied", keys->name, dropout);
    snprintf(text, sizeof text, "%.17g", rank);
    int status = interop_key_set(keys, "lora.rank", text, "r");
    snprintf(text, sizeof text, "%.17g", alpha);
    if (!status)
        status = interop_key_set(keys, "lora.alpha", text, "lora_alpha");
    if (!status)
        status = targets_text(keys, text, sizeof text);
    return status ? status : interop_key_set(keys, "lora.targets", text, "target_modules");
}

static int folder_check(const char *folder, struct ls_error *error)
{
    char hub[LS_HUB_HINT_BYTES];
    ls_hub_hint(folder, hub);
    if (*hub)
        return ls_error_set(error, LS_EIO, "%.300s: there is no such folder%s", folder, hub);
    if (interop_exists(folder, PICKLED) && !interop_exists(folder, WEIGHTS))
        return ls_error_set(error, LS_ECKPT,
                            "%.300s: " PICKLED " can hold programs and is not read: expected "
                            "" WEIGHTS ", which save_pretrained of peft writes: load the adapters "
                            "with peft and save them again",
                            folder);
    return LS_OK;
}

int peft_configure(struct ls_config *config, struct ls_config *scratch, const struct ls_log *log,
                   struct ls_error *error)
{
    char path[PATH_MAX];
    json_t *description = NULL;
    int status = folder_check(config->lora.from, error);
    if (!status)
        status = ls_path_inside(path, config->lora.from, DESCRIPTION, error);
    if (!status)
        status = ls_json_read(path, LS_ECONFIG, &description, error);
    if (!status)
        status = features_check(description, path, error);
    struct interop_keys keys = {.name = path,
                                .description = description,
                                .config = config,
                                .scratch = scratch,
                                .error = error};
    if (!status)
        status = keys_set(&keys, log);
    json_decref(description);
    return status;
}

/* ---- the values ------------------------------------------------------------------------------ */

int ls_model_source_adapt(struct ls_model_source *source, const char *folder,
                          struct ls_error *error)
{
    char path[PATH_MAX];
    int status = ls_path_inside(path, folder, WEIGHTS, error);
    if (!status)
        status = ls_safetensors_open(&source->adapters, path, error);
    if (!status)
        snprintf(source->adapters_path, sizeof source->adapters_path, "%s", path);
    return status;
}

int peft_locate(const struct ls_model_source *source, const struct ls_param *param,
                struct source_view *out, struct ls_error *error)
{
    struct ls_elsewhere there;
    char name[LS_PARAM_NAME_MAX + 64];
    const char *path = source->adapters_path;
    LS_ASSERT(ls_param_adapter(&source->params, &source->model, param, &there));
    snprintf(name, sizeof name, PEFT_PREFIX "%s", there.name);
    const struct ls_tensor_view *view = ls_safetensors_find(source->adapters, name);
    const int64_t shape[2] = {there.rows, there.cols};
    if (!view)
        return ls_error_set(error, LS_ECKPT,
                            "%.300s: tensor %.100s %s is missing: the adapters are of another "
                            "model, or not of every block",
                            path, name, ls_shape_text(2, shape).text);
    if (view->dims != 2 || view->shape[0] != shape[0] || view->shape[1] != shape[1])
        return ls_error_set(error, LS_ECKPT,
                            "%.300s: tensor %.100s is %s, and this model makes it %s: the adapters "
                            "are of another model",
                            path, name, ls_shape_text(view->dims, view->shape).text,
                            ls_shape_text(2, shape).text);
    if (!view->dtype_known || !(view->dtype == LS_F32 || ls_is_act(view->dtype)))
        return ls_error_set(error, LS_ECKPT,
                            "%.300s: tensor %.100s is %s: expected F32, BF16 or F16", path, name,
                            view->dtype_name);
    *out = (struct source_view){.file = ls_safetensors_file(source->adapters),
                                .at = view->at,
                                .dtype = view->dtype,
                                .rows = there.rows,
                                .cols = there.cols,
                                .first = there.first};
    return LS_OK;
}

/* Where no adapter of the model has this name. */
static int stranger(const struct ls_model_source *source, const char *name, struct ls_error *error)
{
    return strstr(name, ".lora_")
               ? ls_error_set(error, LS_ECKPT,
                              "%.300s: tensor %.100s does not belong to this model: the "
                              "adapters are those of another model",
                              source->adapters_path, name)
               : ls_error_set(error, LS_ECKPT,
                              "%.300s: tensor %.100s is no adapter but a tensor of the model "
                              "itself: expected lora_A and lora_B alone: load the adapters with "
                              "peft, and save them with save_embedding_layers=False if only they "
                              "were trained; otherwise save what merge_and_unload() gives",
                              source->adapters_path, name);
}

int peft_check(const struct ls_model_source *source, struct ls_error *error)
{
    const struct ls_params *params = &source->params;
    json_t *expected = json_object();
    struct ls_elsewhere there;
    int status = LS_OK;
    for (int i = 0; i < params->count; i++) {
        char name[LS_PARAM_NAME_MAX + 64];
        if (!ls_param_adapter(params, &source->model, &params->list[i], &there))
            continue;
        snprintf(name, sizeof name, PEFT_PREFIX "%s", there.name);
        json_object_set_new(expected, name, json_true());
    }
    for (size_t t = 0; t < ls_safetensors_count(source->adapters) && !status; t++) {
        const char *name = ls_safetensors_at(source->adapters, t)->name;
        if (!json_object_get(expected, name))
            status = stranger(source, name, error);
    }
    json_decref(expected);
    return status;
}
