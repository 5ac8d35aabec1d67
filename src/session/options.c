/* What an order says: options and arrays, checked. */
#include "session/session_private.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------- */

static bool whole_read(const struct option *option, const json_t *value)
{
    int64_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < option->least || number > option->most)
        return false;
    *option->whole = number;
    return true;
}

/* False: it is not what is expected. */
static bool value_read(const struct option *option, const json_t *value)
{
    const char *text = json_string_value(value);
    bool whole_text = text && strlen(text) == json_string_length(value); /* without NUL */
    if (option->whole)
        return whole_read(option, value);
    if (option->word)
        return whole_text && ls_word_read(option->words, text, option->word);
    if (option->real) {
        *option->real = json_number_value(value);
        return json_is_number(value);
    }
    if (option->flag) {
        *option->flag = json_is_true(value);
        return json_is_boolean(value);
    }
    if (option->list) {
        *option->list = value;
        return json_is_array(value);
    }
    *option->text = text;
    return whole_text && (!option->needs || *text);
}

static int refuse(const struct order *order, const struct option *option, struct ls_error *error)
{
    char expected[256];
    const char *kind = option->real   ? "a number"
                       : option->flag ? "true or false"
                       : option->text ? "a text"
                                      : "a list";
    snprintf(expected, sizeof expected, "%s", option->needs ? option->needs : kind);
    if (option->whole)
        snprintf(expected, sizeof expected, "a whole number from %lld to %lld",
                 (long long)option->least, (long long)option->most);
    if (option->word)
        ls_words_expected(option->words, NULL, expected, sizeof expected);
    return ls_error_set(error, LS_EINVAL, "%s: %s: expected %s", order->verb->name, option->name,
                        expected);
}

int options_read(const struct order *order, const struct option *options, struct ls_error *error)
{
    for (const struct option *option = options; option->name; option++) {
        const json_t *value = json_object_get(order->options, option->name);
        bool absent = !value || json_is_null(value);
        if (absent ? option->needs != NULL : !value_read(option, value))
            return refuse(order, option, error);
    }
    return LS_OK;
}

int option_temperature(const struct order *order, double *value, struct ls_error *error)
{
    const struct option options[] = {{"temperature", .real = value}, {0}};
    int status = options_read(order, options, error);
    if (!status && !((float)*value >= FLT_MIN && isfinite((float)*value)))
        status = ls_error_set(error, LS_EINVAL,
                              "%s: temperature: expected a number above 0, at least %g",
                              order->verb->name, (double)FLT_MIN);
    return status;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* The key of that name; NULL: there is none, as the configuration will say. */
static const struct ls_config_key *key_find(const char *name)
{
    const struct ls_config_key *keys = ls_config_keys(NULL);
    int index = ls_config_key_index(keys, name);
    return index < 0 ? NULL : &keys[index];
}

/* What stands behind "=", to be freed; NULL: no memory. As in a file, null is a text without
 * characters. */
static char *value_text(const struct ls_config_key *key, const json_t *value)
{
    bool is_text = key && key->type >= LS_CONFIG_STRING && key->type <= LS_CONFIG_BLEND;
    if (json_is_string(value))
        return strdup(json_string_value(value));
    if (json_is_null(value) && is_text)
        return strdup("");
    return json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
}

/* *word = "group.key=value" */
static int word_make(const char *name, const json_t *value, char **word, struct ls_error *error)
{
    const struct ls_config_key *key = key_find(name);
    bool one = !json_is_array(value) && !json_is_object(value);
    if (!one && key && key->type != LS_CONFIG_BLEND) {
        ls_error_set(error, LS_ECONFIG,
                     "%s: expected one value, not a list or a map (a list is a text with commas "
                     "between: \"a,b\")",
                     name);
        return ls_error_about(error, name, strlen(name) + strlen(": "));
    }
    char *text = value_text(key, value);
    if (!text || asprintf(word, "%s=%s", name, text) < 0)
        *word = NULL;
    free(text);
    return *word ? LS_OK : ls_no_memory(error, "for the keys");
}

static int group_read(const char *group, json_t *values, struct order_keys *keys,
                      struct ls_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach(values, key, value)
    {
        char *name, *word = NULL;
        if (!ls_list_grow(&keys->word, keys->count, &keys->room, sizeof *keys->word) ||
            asprintf(&name, "%s.%s", group, key) < 0)
            return ls_no_memory(error, "for the keys");
        int status = word_make(name, value, &word, error);
        free(name);
        if (status)
            return status;
        keys->word[keys->count++] = word;
    }
    return LS_OK;
}

int order_keys_read(const struct order *order, struct order_keys *keys, struct ls_error *error)
{
    const char *group;
    json_t *groups = json_object_get(order->options, "keys"), *value;
    int status = LS_OK;
    if (groups && !json_is_object(groups) && !json_is_null(groups))
        return ls_error_set(error, LS_EINVAL, "%s: keys: expected an object", order->verb->name);
    json_object_foreach(groups, group, value)
    {
        if (!json_is_object(value))
            return ls_error_set(error, LS_ECONFIG,
                                "keys: %s: expected a group with its keys, such as {\"train\": "
                                "{\"steps\": 3}}",
                                group);
        status = group_read(group, value, keys, error);
        if (status)
            return status;
    }
    return LS_OK;
}

void order_keys_release(struct order_keys *keys)
{
    for (int64_t i = 0; i < keys->count; i++)
        free(keys->word[i]);
    free(keys->word);
    *keys = (struct order_keys){0};
}

/* ---- arrays ---------------------------------------------------------------------------------- */

const struct ls_array *order_array(const struct order *order, const char *name)
{
    for (int i = 0; i < order->array_count; i++)
        if (!strcmp(order->arrays[i].name, name))
            return &order->arrays[i];
    return NULL;
}

int order_array_check(const struct order *order, const char *name, const char *dtype, int dims,
                      struct ls_error *error)
{
    const struct ls_array *array = order_array(order, name);
    if (!array)
        return LS_OK;
    bool sized = array->dims == dims;
    for (int i = 0; i < array->dims && sized; i++)
        sized = array->shape[i] >= 0;
    if (sized && !strcmp(array->dtype, dtype) && array->data)
        return LS_OK;
    return ls_error_set(error, LS_EINVAL, "%s: %s: expected an array of %s with %d dimension%s",
                        order->verb->name, name, dtype, dims, dims == 1 ? "" : "s");
}
