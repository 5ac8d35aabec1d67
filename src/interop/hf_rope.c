/* Rotary positions in config.json: rope_theta and rope_scaling as transformers 4 writes them, and
 * rope_parameters as transformers 5 does. Where both are, rope_scaling counts, as there. */
#include "interop/interop_private.h"

#include <string.h>

/* Which members a kind has: theirs, and ours. */
struct member {
    const char *name, *key;
    bool needed;
};
enum { MEMBERS_MAX = 6 };
static const struct kind {
    const char *name;
    int scaling; /* enum ls_rope_kind; -1: none */
    struct member members[MEMBERS_MAX];
} kinds[] = {
    {"default", -1, {{0}}},
    {"linear", LS_ROPE_LINEAR, {{"factor", "rope_factor", true}, {0}}},
    {"llama3",
     LS_ROPE_LLAMA3,
     {{"factor", "rope_factor", true},
      {"low_freq_factor", "rope_low_freq_factor", true},
      {"high_freq_factor", "rope_high_freq_factor", true},
      {"original_max_position_embeddings", "rope_original_context", true},
      {0}}},
    {"yarn",
     LS_ROPE_YARN,
     {{"factor", "rope_factor", true},
      {"original_max_position_embeddings", "rope_original_context", false},
      {"beta_fast", "rope_beta_fast", false},
      {"beta_slow", "rope_beta_slow", false},
      {"attention_factor", "rope_attention_factor", false},
      {0}}},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const struct kind *kind_named(const char *name)
{
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(kinds[i].name, name))
            return &kinds[i];
    return NULL;
}

static const struct kind *kind_of(const struct ls_model_config *model)
{
    bool scaled = model->rope_scaling.factor > 1;
    const struct kind *kind = kinds;
    while (kind->scaling != (scaled ? (int)model->rope_scaling.kind : -1))
        kind++;
    return kind;
}

/* ---- in -------------------------------------------------------------------------------------- */

static int number_set(struct interop_keys *keys, const char *key, const char *said,
                      const json_t *value)
{
    char text[64];
    if (!json_is_number(value))
        return ls_error_set(keys->error, LS_ECONFIG, "%.300s: %s = %s: expected a number",
                            keys->name, said, interop_json_text(value).text);
    snprintf(text, sizeof text, "%.17g", json_number_value(value));
    return interop_key_set(keys, key, text, said);
}

/* A member that the kind does not have changes nothing only where it says so. */
static bool is_harmless(const char *name, const json_t *value)
{
    return ls_word_among("rope_type|type|rope_theta", name) || json_is_null(value) ||
           (!strcmp(name, "partial_rotary_factor") && json_number_value(value) == 1) ||
           (!strcmp(name, "truncate") && json_is_true(value));
}

static int members_import(struct interop_keys *keys, const struct kind *kind, const json_t *group,
                          const char *said)
{
    const char *name;
    const json_t *value;
    int status = LS_OK;
    json_object_foreach((json_t *)group, name, value)
    {
        const struct member *member = kind->members;
        while (member->name && strcmp(member->name, name))
            member++;
        if (!member->name && !is_harmless(name, value))
            return ls_error_set(keys->error, LS_ECONFIG,
                                "%.300s: %s.%.60s = %s is not known here for the kind %s",
                                keys->name, said, name, interop_json_text(value).text, kind->name);
    }
    for (const struct member *member = kind->members; member->name && !status; member++) {
        value = json_object_get(group, member->name);
        bool context = !strcmp(member->key, "rope_original_context");
        if (value && !json_is_null(value))
            status = number_set(keys, member->key, member->name, value);
        else if (member->needed)
            status = ls_error_set(keys->error, LS_ECONFIG, "%.300s: %s.%s is missing", keys->name,
                                  said, member->name);
        else if (context)
            status = number_set(keys, member->key, "max_position_embeddings",
                                json_object_get(keys->description, "max_position_embeddings"));
    }
    return status;
}

static int group_import(struct interop_keys *keys, const json_t *group, const char *said)
{
    const json_t *type = json_object_get(group, "rope_type");
    type = type ? type : json_object_get(group, "type");
    const char *word = type ? json_string_value(type) : "default";
    const struct kind *kind = word ? kind_named(word) : NULL;
    if (!json_is_object(group))
        return ls_error_set(keys->error, LS_ECONFIG, "%.300s: %s = %s: expected an object",
                            keys->name, said, interop_json_text(group).text);
    if (!kind)
        return ls_error_set(keys->error, LS_ECONFIG,
                            "%.300s: %s.rope_type = %s: expected default, linear, llama3 or yarn",
                            keys->name, said, interop_json_text(type).text);
    const struct ls_family_hf *hf = &ls_family_of(keys->arch)->hf;
    if (kind->scaling >= 0 && hf->unscaled)
        return ls_error_set(keys->error, LS_ECONFIG,
                            "%.300s: %s.rope_type = %s: in a %s expected default", keys->name, said,
                            interop_json_text(type).text, hf->model_type);
    int status = LS_OK;
    if (kind->scaling >= 0)
        status = interop_key_set(keys, "rope_scaling", kind->name, "rope_type");
    return status ? status : members_import(keys, kind, group, said);
}

int interop_rope_import(struct interop_keys *keys)
{
    const json_t *root = keys->description;
    const json_t *group = json_object_get(root, "rope_scaling");
    const char *said = "rope_scaling";
    if (!group || json_is_null(group) || (json_is_object(group) && !json_object_size(group))) {
        group = json_object_get(root, "rope_parameters");
        said = "rope_parameters";
    }
    bool given = group && !json_is_null(group);
    const json_t *theta = given ? json_object_get(group, "rope_theta") : NULL;
    theta = theta ? theta : json_object_get(root, "rope_theta");
    int status = LS_OK;
    if (theta && !json_is_null(theta))
        status = number_set(keys, "rope_theta", "rope_theta", theta);
    else
        status = interop_key_set(keys, "rope_theta", "10000", "rope_theta");
    if (!status && given)
        status = group_import(keys, group, said);
    return status;
}

/* ---- out ------------------------------------------------------------------------------------- */

static double member_value(const struct ls_config *config, const char *key)
{
    const struct ls_config_model *model = &config->model_keys;
    const struct {
        const char *key;
        double value;
    } values[] = {{"rope_factor", model->rope_factor},
                  {"rope_low_freq_factor", model->rope_low_freq_factor},
                  {"rope_high_freq_factor", model->rope_high_freq_factor},
                  {"rope_original_context", (double)model->rope_original_context},
                  {"rope_beta_fast", model->rope_beta_fast},
                  {"rope_beta_slow", model->rope_beta_slow},
                  {"rope_attention_factor", model->rope_attention_factor}};
    size_t i = 0;
    while (strcmp(values[i].key, key))
        i++;
    return values[i].value;
}

/* Both spellings: each version of transformers reads its own. */
void interop_rope_export(const struct ls_config *config, json_t *description)
{
    if (!ls_family_reads(config->model.arch, "rope_theta"))
        return;
    const struct kind *kind = kind_of(&config->model);
    double theta = config->model_keys.rope_theta;
    json_t *group = json_pack("{s:s, s:f}", "rope_type", kind->name, "rope_theta", theta);
    for (const struct member *member = kind->members; member->name; member++) {
        double value = member_value(config, member->key);
        bool count = !strcmp(member->key, "rope_original_context");
        if (value > 0) /* 0: automatic, here and there */
            json_object_set_new(group, member->name,
                                count ? json_integer((json_int_t)value) : json_real(value));
    }
    json_t *scaling = json_copy(group);
    json_object_del(scaling, "rope_theta");
    json_object_set_new(description, "rope_theta", json_real(theta));
    json_object_set(description, "rope_scaling", kind->scaling < 0 ? json_null() : scaling);
    json_decref(scaling);
    json_object_set_new(description, "rope_parameters", group);
}
