/* The files beside a tokenizer: what they say of its tokens, as one object, and which templates
 * there are. */
#include "chat/chat_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/json.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* *out = the object of a file; NULL if there is no such file. */
static int member_read(const char *directory, const char *name, char path[PATH_MAX], json_t **out,
                       struct ls_error *error)
{
    *out = NULL;
    int status = ls_path_inside(path, directory, name, error);
    if (status || access(path, F_OK) != 0)
        return status;
    status = ls_json_read(path, LS_EDATA, out, error);
    if (!status && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        status = ls_error_set(error, LS_EDATA, "%.300s: expected an object", path);
    }
    return status;
}

static bool is_named(const json_t *settings, const char *token)
{
    static const char *const lists[] = {"extra_special_tokens", "additional_special_tokens"};
    const char *key;
    const json_t *value;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)settings, key, value)
    {
        const json_t *content = json_is_object(value) ? json_object_get(value, "content") : value;
        if (json_is_string(content) && !strcmp(json_string_value(content), token))
            return true;
    }
    for (int l = 0; l < 2; l++)
        json_array_foreach(json_object_get(settings, lists[l]), i,
                           value) if (json_is_string(value) &&
                                      !strcmp(json_string_value(value), token)) return true;
    return false;
}

/* The members of special_tokens_map.json. */
static int map_take(json_t *settings, json_t *map, const char *path, struct ls_error *error)
{
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value)
    {
        const json_t *content = json_is_object(value) ? json_object_get(value, "content") : value;
        if (json_is_null(value))
            continue;
        if (!json_is_string(content) && !json_is_array(value))
            return ls_error_set(error, LS_EDATA, "%.300s: %.80s: expected a token's text", path,
                                name);
        json_object_set(settings, name, value);
    }
    return LS_OK;
}

/* {TOKEN: ID} of added_tokens.json as {"ID": {"content": TOKEN, "file": its name, ...}}. */
static int added_take(json_t *settings, const json_t *added, const char *path,
                      struct ls_error *error)
{
    json_t *decoder = json_object();
    const char *token;
    const json_t *id;
    json_object_foreach((json_t *)(uintptr_t)added, token, id)
    {
        char key[32];
        bool special = is_named(settings, token);
        if (!json_is_integer(id)) {
            json_decref(decoder);
            return ls_error_set(error, LS_EDATA, "%.300s: \"%.80s\": expected an id", path, token);
        }
        snprintf(key, sizeof key, "%lld", (long long)json_integer_value(id));
        json_object_set_new(decoder, key,
                            json_pack("{s:s, s:s, s:b, s:b}", "content", token, "file",
                                      "added_tokens.json", "special", special, "normalized",
                                      !special));
    }
    json_object_set_new(settings, "added_tokens_decoder", decoder);
    return LS_OK;
}

int ls_tokenizer_settings_read(const char *directory, char path[PATH_MAX], json_t **out,
                               struct ls_error *error)
{
    char beside[PATH_MAX];
    json_t *map = NULL, *added = NULL;
    int status = member_read(directory, "tokenizer_config.json", path, out, error);
    bool whole = json_object_get(*out, "added_tokens_decoder");
    if (!status && !whole)
        status = member_read(directory, "special_tokens_map.json", beside, &map, error);
    if (!status && map && !*out) {
        *out = json_object();
        snprintf(path, PATH_MAX, "%s", beside);
    }
    if (!status && map)
        status = map_take(*out, map, beside, error);
    if (!status && !whole)
        status = member_read(directory, "added_tokens.json", beside, &added, error);
    if (!status && added && !*out) {
        *out = json_object();
        snprintf(path, PATH_MAX, "%s", beside);
    }
    if (!status && added)
        status = added_take(*out, added, beside, error);
    json_decref(map);
    json_decref(added);
    if (status) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

static int is_template(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');
    return end && end > entry->d_name && !strcmp(end, ".jinja") && !strchr(entry->d_name, '\n');
}

json_t *ls_chat_files(const char *directory)
{
    char path[PATH_MAX];
    struct dirent **entries;
    json_t *list = json_array();
    int count = ls_path_join(path, directory, LS_CHAT_FOLDER, NULL) == LS_OK
                    ? scandir(path, &entries, is_template, alphasort)
                    : -1;
    for (int i = 0; i < count; i++) {
        json_array_append_new(list, json_sprintf(LS_CHAT_FOLDER "/%s", entries[i]->d_name));
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return list;
}
