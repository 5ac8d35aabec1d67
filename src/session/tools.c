/* What the verbs without ranks share: configurations, lists of texts, and texts that others write.
 */
#include "session/tools.h"

#include <stdlib.h>
#include <string.h>

/* ---- keys ------------------------------------------------------------------------------------ */

/* "group.key=value" */
static char *word_of(const char *group, const char *key, const json_t *value)
{
    char *text = NULL, *word = NULL;
    if (json_is_string(value))
        text = strdup(json_string_value(value));
    else
        text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    if (text && asprintf(&word, "%s.%s=%s", group, key, text) < 0)
        word = NULL;
    free(text);
    return word;
}

static int group_words(const char *group, const json_t *keys, struct tool_words *words,
                       struct ls_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)keys, key, value)
    {
        bool fits = ls_list_grow(&words->word, words->count, &words->room, sizeof *words->word);
        char *word = fits ? word_of(group, key, value) : NULL;
        if (!word)
            return ls_error_set(error, LS_ENOMEM, "no memory for the keys");
        words->word[words->count++] = word;
    }
    return LS_OK;
}

int tool_words(const json_t *keys, struct tool_words *words, struct ls_error *error)
{
    const char *group;
    json_t *value;
    int status = LS_OK;
    json_object_foreach((json_t *)keys, group, value)
    {
        if (!json_is_object(value))
            return ls_error_set(error, LS_ECONFIG,
                                "keys: %s: expected a group with its keys, such as {\"train\": "
                                "{\"steps\": 3}}",
                                group);
        status = group_words(group, value, words, error);
        if (status)
            return status;
    }
    return LS_OK;
}

void tool_words_release(struct tool_words *words)
{
    for (int64_t i = 0; i < words->count; i++)
        free(words->word[i]);
    free(words->word);
    *words = (struct tool_words){0};
}

/* ---- configurations -------------------------------------------------------------------------- */

static int config_read(const char *path, const struct tool_words *words, bool data,
                       struct ls_config *config, struct ls_error *error)
{
    ls_config_defaults(config);
    int status = path ? ls_config_load_file(config, path, error) : LS_OK;
    for (int64_t i = 0; i < words->count && !status; i++)
        status = ls_config_set(config, words->word[i], error);
    if (!status && !data)
        status = ls_config_set(config, "data.train=", error);
    if (!status && !data)
        status = ls_config_set(config, "data.tokenizer=", error);
    return status ? status : ls_train_resolve(config, error);
}

/* Keys are not a command line's here. */
static void place_drop(struct ls_error *error)
{
    static const char place[] = "command line: ";
    size_t length = sizeof place - 1;
    if (error && !strncmp(error->text, place, length))
        memmove(error->text, error->text + length, strlen(error->text + length) + 1);
}

int tool_config(struct ls_session *s, bool plan, struct ls_config **out, struct ls_error *error)
{
    const char *path = NULL;
    const json_t *keys = NULL;
    struct tool_words words = {0};
    struct ls_error without = {0};
    struct ls_config *config = calloc(1, sizeof *config);
    *out = NULL;
    int status = config ? option_text(&s->order, "config", &path, error)
                        : ls_error_set(error, LS_ENOMEM, "no memory for a configuration");
    if (!status)
        status = option_of_type(&s->order, "keys", JSON_OBJECT, &keys, error);
    if (!status && keys)
        status = tool_words(keys, &words, error);
    if (!status)
        status = config_read(path, &words, true, config, error);
    if (status == LS_EIO && plan && !config_read(path, &words, false, config, &without))
        status = LS_OK;
    tool_words_release(&words);
    if (status) {
        place_drop(error);
        free(config);
        return status;
    }
    *out = config;
    return LS_OK;
}

/* ---- texts ----------------------------------------------------------------------------------- */

int tool_answer_text(struct ls_session *s, const char *key, tool_write *write, const void *context,
                     struct ls_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (!file)
        return ls_error_set(error, LS_ENOMEM, "no memory for a text");
    int status = write(context, file, error);
    if (fclose(file) && !status)
        status = ls_error_set(error, LS_ENOMEM, "no memory for a text");
    json_t *value = status ? NULL : json_stringn(text, bytes);
    if (!status && !value)
        status = ls_error_set(error, LS_ENOMEM, "no memory for a text");
    if (value)
        answer_set(s, key, value);
    free(text);
    return status;
}

int tool_need_text(struct ls_session *s, const char *name, const char *expected, const char **value,
                   struct ls_error *error)
{
    int status = option_text(&s->order, name, value, error);
    if (status || (*value && **value))
        return status;
    return ls_error_set(error, LS_EINVAL, "%s: %s: expected %s", s->order.verb->name, name,
                        expected);
}

int tool_need_texts(struct ls_session *s, const char *name, const char *expected,
                    const char ***texts, int *count, struct ls_error *error)
{
    const json_t *list = NULL;
    *texts = NULL;
    int status = option_of_type(&s->order, name, JSON_ARRAY, &list, error);
    *count = list ? (int)json_array_size(list) : 0;
    bool good = *count > 0;
    for (int i = 0; i < *count; i++)
        good = good && json_is_string(json_array_get(list, (size_t)i));
    if (!status && !good)
        status = ls_error_set(error, LS_EINVAL, "%s: %s: expected %s", s->order.verb->name, name,
                              expected);
    if (!status)
        *texts = malloc((size_t)*count * sizeof **texts);
    if (!status && !*texts)
        status = ls_error_set(error, LS_ENOMEM, "no memory for %d texts", *count);
    for (int i = 0; i < *count && !status; i++)
        (*texts)[i] = json_string_value(json_array_get(list, (size_t)i));
    return status;
}
