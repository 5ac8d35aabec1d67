/* Reading a chat template and its special tokens. */
#include "chat/chat_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/json.h>
#include <lockstep/base/key.h>

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
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

/* The templates of a folder: its files or, if there is none of them, those of its
 * tokenizer_config.json. */
struct folder {
    const char *directory; /* NULL: there is none */
    const char *config_path;
    const json_t *members; /* chat_template of tokenizer_config.json; NULL: the files count */
    json_t *files;         /* their names, without the folder's and the ending */
};

/* Puts a template's text into *found, if the folder has one of that name. */
static int file_named(const struct folder *f, const char *name, struct found *found,
                      struct ls_error *error)
{
    char path[PATH_MAX], member[PATH_MAX];
    snprintf(member, sizeof member, LS_CHAT_FOLDER "/%s.jinja", name);
    int status = ls_path_inside(path, f->directory, member, error);
    if (!status && access(path, F_OK) != 0 && !strcmp(name, "default"))
        status = ls_path_inside(path, f->directory, "chat_template.jinja", error);
    return status || access(path, F_OK) != 0 ? status : file_take(path, found, error);
}

/* The last of a list of names and templates, the one of an object of them, or the only one. */
static const json_t *member_named(const json_t *members, const char *wanted)
{
    if (json_is_object(members))
        return json_object_get(members, wanted);
    if (!json_is_array(members))
        return strcmp(wanted, "default") ? NULL : members;
    for (size_t i = json_array_size(members); i > 0; i--) {
        const json_t *each = json_array_get(members, i - 1);
        const char *name = json_string_value(json_object_get(each, "name"));
        if (name && !strcmp(name, wanted))
            return json_object_get(each, "template");
    }
    return NULL;
}

static int template_take(const struct folder *f, const char *name, struct found *found,
                         struct ls_error *error)
{
    if (!f->directory)
        return LS_OK;
    if (!f->members)
        return file_named(f, name, found, error);
    const json_t *text = member_named(f->members, name);
    if (!text || json_is_null(text))
        return LS_OK;
    if (!json_is_string(text))
        return ls_error_set(error, LS_EDATA, "%.300s: chat_template: expected a string",
                            f->config_path);
    snprintf(found->name, sizeof found->name, "%.300s: chat_template", f->config_path);
    found->text = (struct chat_string){json_string_value(text), json_string_length(text)};
    return LS_OK;
}

static void folder_open(struct folder *f, const char *directory, const char *config_path,
                        const json_t *config)
{
    char path[PATH_MAX];
    *f = (struct folder){directory, config_path, NULL, directory ? ls_chat_files(directory) : NULL};
    bool files = json_array_size(f->files) > 0 ||
                 (directory && (ls_path_inside(path, directory, "chat_template.jinja", NULL) ||
                                access(path, F_OK) == 0));
    if (!files)
        f->members = json_object_get(config, "chat_template");
}

/* The names of its templates, for an error. */
static void names_list(const struct folder *f, char *list, size_t bytes)
{
    const char *key;
    json_t *each;
    size_t i;
    struct found usual = {.file = NULL};
    list[0] = '\0';
    if (!template_take(f, "default", &usual, NULL) && usual.text.bytes)
        ls_string_add(list, bytes, ", ", "default");
    free(usual.file);
    json_array_foreach(f->files, i, each)
    {
        const char *name = json_string_value(each) + strlen(LS_CHAT_FOLDER "/");
        ls_string_add(list, bytes, ", ", "%.*s", (int)(strlen(name) - strlen(".jinja")), name);
    }
    json_object_foreach((json_t *)(uintptr_t)f->members, key, each)
    {
        if (strcmp(key, "default") != 0)
            ls_string_add(list, bytes, ", ", "%s", key);
    }
    json_array_foreach(f->members, i, each)
    {
        const char *name = json_string_value(json_object_get(each, "name"));
        if (name && strcmp(name, "default") != 0)
            ls_string_add(list, bytes, ", ", "%s", name);
    }
}

/* The template that the caller names: a file, or one of the folder. */
static int wanted_take(const struct folder *f, const char *wanted, struct found *found,
                       struct ls_error *error)
{
    char list[512];
    struct stat about;
    bool file = stat(wanted, &about) == 0 && !S_ISDIR(about.st_mode);
    if (strchr(wanted, '/'))
        return file_take(wanted, found, error);
    int status = template_take(f, wanted, found, error);
    if (!status && found->text.bytes && file)
        return ls_error_set(error, LS_ECONFIG,
                            "%.300s is a file here and the name of a template of %.300s: write "
                            "./%.300s for the file",
                            wanted, f->directory, wanted);
    if (status || found->text.bytes)
        return status;
    names_list(f, list, sizeof list);
    return file || !*list ? file_take(wanted, found, error)
                          : ls_error_set(error, LS_EDATA,
                                         "%.300s: no such file, and no such template of %.300s, "
                                         "which has %s",
                                         wanted, f->directory, list);
}

/* The default one and the one for tools. */
static int usual_take(const struct folder *f, struct found *found, struct found *with_tools,
                      struct ls_error *error)
{
    char list[512];
    int status = template_take(f, "default", found, error);
    if (!status)
        status = template_take(f, "tool_use", with_tools, error);
    if (status || found->text.bytes || with_tools->text.bytes)
        return status;
    names_list(f, list, sizeof list);
    return *list ? ls_error_set(error, LS_EDATA,
                                "%.300s: none of its chat templates is named \"default\" or "
                                "\"tool_use\": choose one of %s (--chat-template)",
                                f->directory, list)
                 : ls_error_set(error, LS_EDATA,
                                "%.300s: no chat template: expected chat_template.jinja, or "
                                "chat_template in tokenizer_config.json, or a template's file "
                                "(--chat-template)",
                                f->directory ? f->directory : "");
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

/* Whether transformers gives a token that the files do not say: by the class, which follows from
 * the family in config.json if it is not said either. */
static bool has_default(const char *directory, const json_t *config, const char *token)
{
    static const char words[] = "GPT2Tokenizer|LlamaTokenizer|CodeLlamaTokenizer|GemmaTokenizer|"
                                "Qwen2Tokenizer|gpt2|gemma|gemma2|gemma3_text|qwen2|qwen3";
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    char path[PATH_MAX], word[64] = "";
    struct ls_error why = {0};
    json_t *model = NULL;
    if (!class && !ls_path_join(path, directory, "config.json", NULL) && access(path, F_OK) == 0)
        ls_json_read(path, LS_EDATA, &model, &why);
    if (!class)
        class = json_string_value(json_object_get(model, "model_type"));
    if (class)
        snprintf(word, sizeof word, "%.*s",
                 (int)(strlen(class) - (ls_path_ends(class, "Fast") ? strlen("Fast") : 0)), class);
    json_decref(model);
    return ls_word_among(words, word) &&
           (strcmp(token, "bos_token") != 0 || strncasecmp(word, "qwen", 4) != 0);
}

/* A template must not read a token as nothing that transformers knows. */
static int tokens_check(const char *directory, const json_t *config, const struct ls_chat *chat,
                        struct ls_error *error)
{
    static const char *const tokens[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        size_t length = strlen(tokens[i]);
        const struct chat_string texts[] = {chat->t.text, chat->with_tools.text};
        bool read = (texts[0].bytes && memmem(texts[0].bytes, texts[0].count, tokens[i], length)) ||
                    (texts[1].bytes && memmem(texts[1].bytes, texts[1].count, tokens[i], length));
        if (directory && read && !json_object_get(config, tokens[i]) &&
            has_default(directory, config, tokens[i]))
            return ls_error_set(error, LS_EDATA,
                                "%.300s: the chat template reads %s, and tokenizer_config.json "
                                "does not say it: transformers would take the one of the "
                                "tokenizer's class; write it there, or null for none",
                                directory, tokens[i]);
    }
    return LS_OK;
}

int ls_chat_open(const char *directory, const char *wanted, struct ls_chat **out,
                 struct ls_error *error)
{
    char path[PATH_MAX];
    struct found found = {.file = NULL}, with_tools = {.file = NULL};
    struct folder folder;
    json_t *config = NULL;
    int status = LS_OK;
    *out = NULL;
    if (directory)
        status = ls_tokenizer_settings_read(directory, path, &config, error);
    folder_open(&folder, directory, path, config);
    if (!status)
        status = wanted ? wanted_take(&folder, wanted, &found, error)
                        : usual_take(&folder, &found, &with_tools, error);
    json_t *tokens = status ? NULL : config ? tokens_of(config) : json_object();
    if (!status)
        status = chat_make(&found, &with_tools, tokens, out, error);
    if (!status)
        status = tokens_check(directory, config, *out, error);
    if (status) {
        ls_chat_free(*out);
        *out = NULL;
    }
    free(found.file);
    free(with_tools.file);
    json_decref(folder.files);
    json_decref(config);
    return status;
}
