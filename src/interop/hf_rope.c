/* Rotary positions in config.json: rope_theta and rope_scaling as transformers 4 writes them, and
 * rope_parameters as transformers 5 does. Where both are, rope_scaling counts, as there. A family
 * whose blocks with a window turn by a base of their own (model.rope_local_theta) has
 * rope_local_base_freq beside the first two, and a group for each kind of block in the third. */
#include "interop/interop_private.h"

#include <math.h>
#include <stdlib.h>
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

static const json_t *type_of(const json_t *group)
{
    const json_t *type = json_object_get(group, "rope_type");
    return type ? type : json_object_get(group, "type");
}

/* A length at the top of the file wins over the group's in transformers 5, and not in 4; where each
 * kind of blocks has a group, it counts in neither. */
static int context_check(const struct interop_keys *keys, const struct kind *kind,
                         const json_t *group, const char *said)
{
    static const char name[] = "original_max_position_embeddings";
    const json_t *top = json_object_get(keys->description, name);
    const json_t *own = json_object_get(group, name);
    bool counts = kind->scaling == LS_ROPE_LLAMA3 || kind->scaling == LS_ROPE_YARN;
    if (!counts || json_is_null(top) || !top || json_equal(top, own) ||
        ls_family_reads(keys->arch, "rope_local_theta"))
        return LS_OK;
    return ls_error_set(keys->error, LS_ECONFIG,
                        "%.300s: %s = %s: versions of transformers differ in what that is beside "
                        "%s: expected the same number there, or no such key",
                        keys->name, name, interop_json_text(top).text, said);
}

static int group_import(struct interop_keys *keys, const json_t *group, const char *said)
{
    const json_t *type = type_of(group);
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
    int status =
        kind->scaling >= 0 ? interop_key_set(keys, "rope_scaling", kind->name, "rope_type") : LS_OK;
    if (!status)
        status = context_check(keys, kind, group, said);
    return status ? status : members_import(keys, kind, group, said);
}

static bool is_empty(const json_t *group)
{
    return !group || json_is_null(group) || (json_is_object(group) && !json_object_size(group));
}

/* From the group, else from the file's own key, else the usual one. */
static int theta_import(struct interop_keys *keys, const char *key, const json_t *group,
                        const char *name, const char *usual)
{
    const json_t *theta = json_object_get(group, "rope_theta");
    theta = theta ? theta : json_object_get(keys->description, name);
    if (theta && !json_is_null(theta))
        return number_set(keys, key, name, theta);
    return interop_key_set(keys, key, usual, name);
}

/* The base of blocks with a window, where rope_theta is the name of all blocks' in transformers 4:
 * version 5 gives it to the others alone. */
static int theta_shared(struct interop_keys *keys, const json_t *local, const char *usual)
{
    const json_t *theta = json_object_get(keys->description, "rope_theta");
    bool said = json_object_get(local, "rope_theta") != NULL;
    if (!said && json_is_number(theta) && json_number_value(theta) != strtod(usual, NULL))
        return ls_error_set(keys->error, LS_ECONFIG,
                            "%.300s: rope_theta = %s: versions of transformers differ in what base "
                            "blocks with a window have: expected it in "
                            "rope_parameters.sliding_attention too",
                            keys->name, interop_json_text(theta).text);
    return theta_import(keys, "rope_local_theta", local, "rope_theta", usual);
}

/* Blocks with a window; blocks without take rope_scaling's members over those of their own group.
 */
static int kinds_import(struct interop_keys *keys, const json_t *scaling, const json_t *parameters)
{
    const json_t *local = json_object_get(parameters, "sliding_attention");
    const json_t *full = json_object_get(parameters, "full_attention");
    if (!is_empty(parameters) && !json_is_object(full) && !json_is_object(local))
        return ls_error_set(keys->error, LS_ECONFIG,
                            "%.300s: rope_parameters = %s: expected full_attention and "
                            "sliding_attention there",
                            keys->name, interop_json_text(parameters).text);
    json_t *group = json_is_object(full) ? json_copy((json_t *)full) : json_object();
    if (json_is_object(scaling))
        json_object_update(group, (json_t *)scaling);
    const struct ls_family_hf *hf = &ls_family_of(keys->arch)->hf;
    int status = theta_import(keys, "rope_theta", group, "rope_theta", hf->rope_theta);
    if (!status)
        status =
            group_import(keys, is_empty(scaling) || json_is_object(scaling) ? group : scaling,
                         is_empty(scaling) ? "rope_parameters.full_attention" : "rope_scaling");
    if (!status && hf->rope_local_theta)
        status = theta_import(keys, "rope_local_theta", local, hf->rope_local_theta, "10000");
    else if (!status)
        status = theta_shared(keys, local, hf->rope_theta);
    const char *word = json_string_value(type_of(local));
    if (!status && type_of(local) && (!word || strcmp(word, kinds[0].name) != 0))
        status =
            ls_error_set(keys->error, LS_ECONFIG,
                         "%.300s: rope_parameters.sliding_attention.rope_type = %s: expected %s",
                         keys->name, interop_json_text(type_of(local)).text, kinds[0].name);
    if (!status && !is_empty(local))
        status = members_import(keys, &kinds[0], local, "rope_parameters.sliding_attention");
    json_decref(group);
    return status;
}

int interop_rope_import(struct interop_keys *keys)
{
    const json_t *scaling = json_object_get(keys->description, "rope_scaling");
    const json_t *parameters = json_object_get(keys->description, "rope_parameters");
    if (ls_family_reads(keys->arch, "rope_local_theta"))
        return kinds_import(keys, scaling, parameters);
    const json_t *group = is_empty(scaling) ? parameters : scaling;
    const char *usual = ls_family_of(keys->arch)->hf.rope_theta;
    int status = theta_import(keys, "rope_theta", group, "rope_theta", usual ? usual : "10000");
    if (!status && group && !json_is_null(group))
        status = group_import(keys, group, is_empty(scaling) ? "rope_parameters" : "rope_scaling");
    return status;
}

/* What transformers 4.48 to 4.57 take for yarn's factor, whatever "factor" says. */
void interop_rope_tell(const json_t *description, const char *name, const struct ls_log *log)
{
    const json_t *scaling = json_object_get(description, "rope_scaling");
    const json_t *parameters = json_object_get(description, "rope_parameters");
    const json_t *full = json_object_get(parameters, "full_attention");
    const json_t *group = !is_empty(scaling) ? scaling : full ? full : parameters;
    const char *type = json_string_value(type_of(group));
    double factor = json_number_value(json_object_get(group, "factor"));
    double original = json_number_value(json_object_get(group, "original_max_position_embeddings"));
    double context = json_number_value(json_object_get(description, "max_position_embeddings"));
    if (!type || strcmp(type, "yarn") != 0 || original <= 0 || factor <= 0 || context <= 0 ||
        fabs(factor * original - context) <= 1e-6 * context)
        return;
    ls_log(log, LS_LOG_WARNING,
           "%s: yarn's factor is %g, and transformers 4.48 to 4.57 take max_position_embeddings / "
           "original_max_position_embeddings = %.0f / %.0f = %g instead: expected "
           "max_position_embeddings = %.0f, with which all versions have one model",
           name, factor, context, original, context / original, factor * original);
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
    double local = config->model.rope_local_theta;
    if (local > 0) {
        const char *name = ls_family_of(config->model.arch)->hf.rope_local_theta;
        if (name)
            json_object_set_new(description, name, json_real(local));
        group = json_pack("{s:o, s:{s:s, s:f}}", "full_attention", group, "sliding_attention",
                          "rope_type", kinds[0].name, "rope_theta", local);
    }
    json_object_set_new(description, "rope_parameters", group);
}
