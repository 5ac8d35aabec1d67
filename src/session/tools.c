/* What the verbs without ranks share: configurations, lists of texts, texts that others write. */
#include "session/tools.h"

#include <stdlib.h>

/* ---- configurations -------------------------------------------------------------------------- */

static int config_read(const char *path, const struct order_keys *keys, bool data,
                       struct ls_config *config, struct ls_error *error)
{
    ls_config_defaults(config);
    int status = path ? ls_config_load_file(config, path, error) : LS_OK;
    for (int64_t i = 0; i < keys->count && !status; i++)
        status = ls_config_set(config, keys->word[i], error);
    if (!status && !data)
        status = ls_config_set(config, "data.train=", error);
    if (!status && !data)
        status = ls_config_set(config, "data.tokenizer=", error);
    return status ? status : ls_train_resolve(config, error);
}

int tool_config(struct ls_session *s, bool plan, struct ls_config *config, struct ls_error *error)
{
    const char *path = NULL;
    const struct option options[] = {{"config", .text = &path}, {0}};
    struct order_keys keys = {0};
    struct ls_error without = {0};
    int status = options_read(&s->order, options, error);
    if (!status)
        status = order_keys_read(&s->order, &keys, error);
    if (!status)
        status = config_read(path, &keys, true, config, error);
    if (status == LS_EIO && plan && !config_read(path, &keys, false, config, &without))
        status = LS_OK;
    order_keys_release(&keys);
    return status;
}

/* ---- texts ----------------------------------------------------------------------------------- */

int tool_answer_text(struct ls_session *s, const char *key, ls_writer *write, const void *context,
                     struct ls_error *error)
{
    char *text;
    size_t bytes;
    int status = ls_text_write(write, context, &text, &bytes, error);
    json_t *value = status ? NULL : json_stringn(text, bytes);
    if (!status && !value)
        status = ls_no_memory(error, "for a text");
    if (value)
        answer_set(s, key, value);
    free(text);
    return status;
}

int tool_need_texts(struct ls_session *s, const char *name, const char *expected,
                    const char ***texts, int *count, struct ls_error *error)
{
    const json_t *list = NULL;
    const struct option options[] = {{name, .list = &list}, {0}};
    *texts = NULL;
    int status = options_read(&s->order, options, error);
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
        status = ls_no_memory(error, "for %d texts", *count);
    for (int i = 0; i < *count && !status; i++)
        (*texts)[i] = json_string_value(json_array_get(list, (size_t)i));
    return status;
}
