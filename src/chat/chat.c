/* Reading a chat template and its special tokens. */
#include "chat/chat_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/json.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEMPLATE_MEMORY_BYTES_MAX = 256 << 20 };

void ls_chat_text_release(struct ls_chat_text *text)
{
    free(text->bytes);
    free(text->parts);
    *text = (struct ls_chat_text){0};
}

void ls_chat_free(struct ls_chat *chat)
{
    if (!chat)
        return;
    free(chat->t.name);
    free(chat->with_tools.name);
    chat_arena_release(&chat->t.arena);
    chat_arena_release(&chat->with_tools.arena);
    json_decref(chat->tokens);
    free(chat);
}

/* Jinja reads \r\n and \r as \n, and leaves out one at the end. */
static int text_keep(struct ls_chat_template *t, const char *text, size_t bytes,
                     struct ls_error *error)
{
    char *kept = chat_arena_take(&t->arena, bytes + 1);
    size_t count = 0;
    if (!kept)
        return ls_no_memory(error, "for the template %.300s", t->name);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n')
            continue;
        kept[count++] = text[i] == '\r' ? '\n' : text[i];
    }
    count -= count > 0 && kept[count - 1] == '\n';
    t->text = (struct chat_string){kept, count};
    return LS_OK;
}

/* What a template's text lies in: the file's own, or that of a member of tokenizer_config.json. */
struct found {
    char name[PATH_MAX + 32];
    char *file;              /* owned; NULL: the text is of config */
    struct chat_string text; /* bytes NULL: there is none */
};

static int template_make(struct ls_chat_template *t, const struct found *found,
                         struct ls_error *error)
{
    t->arena.limit = TEMPLATE_MEMORY_BYTES_MAX;
    t->name = strdup(found->name);
    int status = t->name ? LS_OK : ls_no_memory(error, "for a template");
    if (!status && found->text.count > LS_CHAT_TEMPLATE_BYTES_MAX)
        status =
            ls_error_set(error, LS_EDATA, "%.300s: a template of %zu bytes; expected at most %d",
                         found->name, found->text.count, LS_CHAT_TEMPLATE_BYTES_MAX);
    if (!status)
        status = text_keep(t, found->text.bytes, found->text.count, error);
    return status ? status : chat_parse(t, error);
}

/* Takes tokens over. found or with_tools has a text. */
static int chat_make(const struct found *found, const struct found *with_tools, json_t *tokens,
                     struct ls_chat **out, struct ls_error *error)
{
    *out = NULL;
    struct ls_chat *chat = calloc(1, sizeof *chat);
    if (!chat) {
        json_decref(tokens);
        return ls_no_memory(error, "for a template");
    }
    chat->tokens = tokens;
    int status = found->text.bytes ? template_make(&chat->t, found, error) : LS_OK;
    if (!status && with_tools->text.bytes)
        status = template_make(&chat->with_tools, with_tools, error);
    if (status)
        ls_chat_free(chat);
    else
        *out = chat;
    return status;
}

int ls_chat_new(const char *name, const char *text, size_t bytes, const char *tokens,
                struct ls_chat **out, struct ls_error *error)
{
    json_error_t where;
    tokens = tokens ? tokens : "{}";
    json_t *object = ls_json_load(tokens, strlen(tokens), 0, &where);
    *out = NULL;
    if (!json_is_object(object)) {
        json_decref(object);
        return ls_error_set(error, LS_EDATA,
                            "%.300s: special tokens: expected a JSON object of strings", name);
    }
    struct found found = {.text = {text, bytes}};
    snprintf(found.name, sizeof found.name, "%s", name);
    return chat_make(&found, &(struct found){.file = NULL}, object, out, error);
}

int ls_chat_date_set(struct ls_chat *chat, const char *date, struct ls_error *error)
{
    char again[sizeof "2026-11-25"];
    struct tm day = {0};
    const char *end = strptime(date, "%Y-%m-%d", &day);
    if (end && !*end)
        timegm(&day); /* another day for one that its month does not have */
    if (!end || *end || strftime(again, sizeof again, "%Y-%m-%d", &day) != sizeof again - 1 ||
        strcmp(again, date) != 0)
        return ls_error_set(error, LS_ECONFIG, "%.40s: expected a day such as 2026-11-25", date);
    chat->t.day = chat->with_tools.day = day;
    chat->t.dated = chat->with_tools.dated = true;
    return LS_OK;
}

static int file_take(const char *path, struct found *found, struct ls_error *error)
{
    snprintf(found->name, sizeof found->name, "%s", path);
    int status = ls_file_read(path, LS_CHAT_TEMPLATE_BYTES_MAX, LS_EDATA, &found->file,
                              &found->text.count, error);
    found->text.bytes = found->file;
    return status;
}

/* A text of tokenizer_config.json; none leaves *found. */
static int text_take(const json_t *given, const char *path, struct found *found,
                     struct ls_error *error)
{
    if (!given || json_is_null(given))
        return LS_OK;
    if (!json_is_string(given))
        return ls_error_set(error, LS_EDATA, "%.300s: chat_template: expected a string", path);
    snprintf(found->name, sizeof found->name, "%.300s: chat_template", path);
    found->text = (struct chat_string){json_string_value(given), json_string_length(given)};
    return LS_OK;
}

/* Of a list of names and templates, or of an object of them. */
static const json_t *named(const json_t *list, const char *wanted)
{
    if (json_is_object(list))
        return json_object_get(list, wanted);
    for (size_t i = json_array_size(list); i > 0; i--) { /* of two of one name the last */
        const json_t *each = json_array_get(list, i - 1);
        const char *name = json_string_value(json_object_get(each, "name"));
        if (name && !strcmp(name, wanted))
            return json_object_get(each, "template");
    }
    return NULL;
}

/* The templates of tokenizer_config.json. */
static int members_take(const json_t *config, const char *path, struct found *found,
                        struct found *with_tools, struct ls_error *error)
{
    const json_t *given = json_object_get(config, "chat_template");
    if (!json_is_array(given) && !json_is_object(given))
        return text_take(given, path, found, error);
    int status = text_take(named(given, "default"), path, found, error);
    if (!status)
        status = text_take(named(given, "tool_use"), path, with_tools, error);
    if (!status && !found->text.bytes && !with_tools->text.bytes)
        status = ls_error_set(error, LS_EDATA,
                              "%.300s: chat_template: none of its %zu templates is named "
                              "\"default\" or \"tool_use\"; give one as a file",
                              path, json_array_size(given) + json_object_size(given));
    return status;
}

/* chat_template.jinja, and the one for tools; either may be absent. */
static int files_take(const char *directory, struct found *found, struct found *with_tools,
                      struct ls_error *error)
{
    char path[PATH_MAX];
    int status = ls_path_inside(path, directory, "chat_template.jinja", error);
    if (!status && access(path, F_OK) == 0)
        status = file_take(path, found, error);
    if (!status)
        status = ls_path_inside(path, directory, LS_CHAT_TOOLS_FILE, error);
    return status || access(path, F_OK) != 0 ? status : file_take(path, with_tools, error);
}

/* The members NAME_token, which are strings or objects with `content`. */
static json_t *tokens_of(json_t *config)
{
    json_t *tokens = json_object(), *value;
    const char *key;
    json_object_foreach(config, key, value)
    {
        size_t length = strlen(key);
        json_t *content = json_is_object(value) ? json_object_get(value, "content") : value;
        if (length > 6 && !strcmp(key + length - 6, "_token") && json_is_string(content))
            json_object_set(tokens, key, content);
    }
    return tokens;
}

int ls_chat_open(const char *directory, const char *file, struct ls_chat **out,
                 struct ls_error *error)
{
    char path[PATH_MAX];
    struct found found = {.file = NULL}, with_tools = {.file = NULL};
    json_t *config = NULL;
    int status = LS_OK;
    *out = NULL;
    if (directory)
        status = ls_tokenizer_settings_read(directory, path, &config, error);
    if (!status && file)
        status = file_take(file, &found, error);
    else if (!status && directory)
        status = files_take(directory, &found, &with_tools, error);
    if (!status && !found.text.bytes && !with_tools.text.bytes && config)
        status = members_take(config, path, &found, &with_tools, error);
    if (!status && !found.text.bytes && !with_tools.text.bytes)
        status = ls_error_set(
            error, LS_EDATA,
            "%.300s: no chat template: expected chat_template.jinja, or "
            "chat_template in tokenizer_config.json, or a template's file (--chat-template)",
            directory ? directory : "");
    json_t *tokens = status ? NULL : config ? tokens_of(config) : json_object();
    if (!status)
        status = chat_make(&found, &with_tools, tokens, out, error);
    free(found.file);
    free(with_tools.file);
    json_decref(config);
    return status;
}
