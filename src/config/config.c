/* Defaults, overrides, and the texts of errors about keys. */
#include "config/config_private.h"

#include <lockstep/base/formatted.h>

#include <string.h>

static const char typed[] = "command line"; /* where overrides are, for all we know */

void ls_config_defaults(struct ls_config *config)
{
    memset(config, 0, sizeof *config);
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        char why[256];
        LS_ASSERT(config_parse(config, key, key->initial, false, why, sizeof why));
    }
}

const struct ls_config_key *ls_config_key_of(const char *name)
{
    int index = config_index(name);
    LS_ASSERT(index >= 0);
    return &ls_config_keys(NULL)[index];
}

bool ls_config_is_given(const struct ls_config *config, const char *name)
{
    return config->origin[config_index(name)].line != 0;
}

const char *ls_config_resume_path(const struct ls_config *config)
{
    const struct ls_config_train *train = &config->train;
    if (!strcmp(train->resume, "auto"))
        return train->resume_else[0] ? train->resume_else : NULL;
    return strcmp(train->resume, "never") ? train->resume : NULL;
}

void ls_config_where(const struct ls_config *config, const char *name, char *text, size_t bytes)
{
    int index = config_index(name);
    LS_ASSERT(index >= 0);
    const struct ls_config_origin *origin = &config->origin[index];
    if (origin->line > 0)
        snprintf(text, bytes, "%s:%d:%d", config->path, origin->line, origin->column);
    else if (origin->line == LS_CONFIG_FROM_MODEL && !strncmp(name, "lora.", strlen("lora.")))
        snprintf(text, bytes, "%s", config->lora.from);
    else if (origin->line == LS_CONFIG_FROM_MODEL)
        snprintf(text, bytes, "%s",
                 *config->model_keys.from ? config->model_keys.from : "the model");
    else
        snprintf(text, bytes, "%s", origin->line == LS_CONFIG_FROM_OVERRIDE ? typed : "default");
}

/* Puts before an error where its key was given. */
static int place_put(struct ls_error *error, const char *where, bool filed)
{
    int status = ls_error_prefix(error, "%.200s", where);
    if (error && !filed)
        error->unfiled = (int)strlen(where) + 2;
    return status;
}

static int key_place_put(const struct ls_config *config, const char *name, struct ls_error *error)
{
    char where[LS_CONFIG_TEXT_BYTES + 32];
    const struct ls_config_origin *origin = &config->origin[config_index(name)];
    if (origin->line > 0)
        return ls_error_at(error, config->path, origin->line, origin->column);
    ls_config_where(config, name, where, sizeof where);
    return place_put(error, where, origin->line == LS_CONFIG_FROM_MODEL);
}

int config_locate(const struct ls_config *config, int code, struct ls_error *error)
{
    bool given = code && error && error->key[0] && ls_config_is_given(config, error->key);
    return given ? key_place_put(config, error->key, error) : code;
}

int ls_config_reject(const struct ls_config *config, int code, const char *name,
                     struct ls_error *error, const char *format, ...)
{
    if (!error)
        return code;
    char value[4 * LS_CONFIG_TEXT_BYTES], reason[768];
    LS_FORMAT(reason, format);
    const struct ls_config_key *key = ls_config_key_of(name);
    ls_config_value(config, key, value, sizeof value);
    ls_error_refuse(error, code, key->name, value, "%s", reason);
    return key_place_put(config, key->name, error);
}

int ls_config_blame(const struct ls_config *config, const char *name, struct ls_error *error)
{
    if (!error)
        return LS_ECONFIG;
    ls_error_prefix(error, "%s", name);
    ls_error_about(error, name, strlen(name) + strlen(": "));
    return key_place_put(config, name, error);
}

int ls_config_require(const struct ls_config *config, const char *name, struct ls_error *error)
{
    const struct ls_config_key *key = ls_config_key_of(name);
    LS_ASSERT(config_is_text(key));
    const char *text = config_slot(config, key);
    if (*text)
        return LS_OK;
    char help[LS_CONFIG_HELP_BYTES];
    ls_config_key_help(key, help);
    ls_error_set(error, LS_ECONFIG, "%s is not set: expected %s", name, help);
    ls_error_about(error, name, strlen(name) + strlen(" "));
    place_put(error, config->path[0] ? config->path : typed, config->path[0]);
    return LS_ECONFIG;
}

int ls_config_require_data(const struct ls_config *config, struct ls_error *error)
{
    return config->data.blend[0] ? LS_OK : ls_config_require(config, "data.train", error);
}

static int assign(struct ls_config *config, const char *assignment, struct ls_error *error)
{
    const char *equals = strchr(assignment, '=');
    if (!equals)
        return ls_error_set(error, LS_ECONFIG,
                            "\"%.100s\": expected key=value, such as optim.lr=3e-4", assignment);
    char name[64];
    size_t length = (size_t)(equals - assignment);
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1),
             assignment);
    int index = config_index(name);
    if (index < 0)
        return config_unknown(name, error);
    char why[256];
    const struct ls_config_key *key = &ls_config_keys(NULL)[index];
    if (!config_parse(config, key, equals + 1, false, why, sizeof why))
        return ls_error_refuse(error, LS_ECONFIG, key->name, equals + 1, "expected %s", why);
    config->origin[index] = (struct ls_config_origin){LS_CONFIG_FROM_OVERRIDE, 0};
    return LS_OK;
}

int ls_config_set(struct ls_config *config, const char *assignment, struct ls_error *error)
{
    int status = assign(config, assignment, error);
    if (status)
        place_put(error, typed, false);
    return status;
}
