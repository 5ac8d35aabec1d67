/* Adapters alone, as peft's from_pretrained reads them. */
#include "interop/export_private.h"

#include <string.h>

/* ---- adapter_config.json --------------------------------------------------------------------- */

/* The words of lora.targets, or every matrix once. */
static json_t *targets_list(const struct ls_config *config)
{
    json_t *list = json_array();
    char name[LS_LORA_TARGET_BYTES], text[LS_CONFIG_TEXT_BYTES], words[1024] = ",", *save = NULL;
    snprintf(text, sizeof text, "%s", config->lora.targets);
    bool all = !strcmp(text, "all") || !strcmp(text, "all-linear");
    for (char *word = strtok_r(text, ", ", &save); !all && word; word = strtok_r(NULL, ", ", &save))
        json_array_append_new(list, json_string(word));
    for (int i = 0; all && ls_lora_target(config->model.arch, i, name); i++) {
        char own[LS_LORA_TARGET_BYTES + 2];
        snprintf(own, sizeof own, ",%s,", name);
        if (!strstr(words, own))
            json_array_append_new(list, json_string(name));
        ls_string_add(words, sizeof words, "", "%s,", name);
    }
    return list;
}

static int description_write(struct exporting *ex, const char *folder, struct ls_error *error)
{
    const struct ls_config *config = &ex->config;
    const struct ls_lora *lora = &config->model.lora;
    const struct ls_params *params = &ex->source->params;
    struct ls_elsewhere matrix = {0};
    for (int i = 0; i < params->count && !*matrix.name; i++)
        if (params->list[i].hidden)
            ls_param_elsewhere(params, &config->model, &params->list[i], &matrix);
    json_t *alpha = lora->alpha == (double)(int64_t)lora->alpha
                        ? json_integer((json_int_t)lora->alpha)
                        : json_real(lora->alpha);
    json_t *description =
        json_pack("{s:s, s:s, s:s, s:I, s:o, s:f, s:o, s:s, s:b, s:b}", "peft_type", "LORA",
                  "task_type", "CAUSAL_LM", "base_model_name_or_path", config->model_keys.from, "r",
                  (json_int_t)lora->rank, "lora_alpha", alpha, "lora_dropout", 0.0,
                  "target_modules", targets_list(config), "bias", "none", "fan_in_fan_out",
                  matrix.transposed, "inference_mode", 1);
    json_t *model = json_object(); /* refused where Hugging Face's files cannot say it */
    int status = interop_keys_export(config, model, error);
    json_decref(model);
    if (!status)
        return interop_json_write(description, folder, "adapter_config.json", ex->export->fault,
                                  error);
    json_decref(description);
    return status;
}

/* ---- the folder ------------------------------------------------------------------------------ */

static int weights_write(struct exporting *ex, const char *folder, struct ls_error *error)
{
    char path[PATH_MAX];
    int status = ls_path_join(path, folder, "adapter_model.safetensors", error);
    return status ? status : out_safetensors(ex, 0, ex->count, path, error);
}

int export_peft(struct exporting *ex, struct ls_error *error)
{
    static out_file *const files[] = {description_write, weights_write, NULL};
    return out_folder(ex, files, error);
}
