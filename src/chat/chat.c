/* Conversations to texts: reading a template and its special tokens, and what a conversation
 * teaches. */
#include "chat/chat_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/json.h>

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TEMPLATE_MEMORY_BYTES_MAX = 256 << 20,
    RUN_MEMORY_BYTES_MAX = 256 << 20,
};

struct ls_chat {
    struct ls_chat_template t;
    json_t *tokens; /* an object: bos_token and so on */
};

void ls_chat_text_release(struct ls_chat_text *text)
{
    free(text->bytes);
    free(text->parts);
    *text = (struct ls_chat_text){0};
}

/* ---- reading a template --------------------------------------------------------------------- */

void ls_chat_free(struct ls_chat *chat)
{
    if (!chat)
        return;
    free(chat->t.name);
    chat_arena_release(&chat->t.arena);
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
        return ls_error_set(error, LS_ENOMEM, "no memory for the template %.300s", t->name);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n')
            continue;
        kept[count++] = text[i] == '\r' ? '\n' : text[i];
    }
    count -= count > 0 && kept[count - 1] == '\n';
    t->text = (struct chat_string){kept, count};
    return LS_OK;
}

/* Takes tokens over. */
static int chat_make(const char *name, struct chat_string text, json_t *tokens,
                     struct ls_chat **out, struct ls_error *error)
{
    *out = NULL;
    struct ls_chat *chat = calloc(1, sizeof *chat);
    if (!chat) {
        json_decref(tokens);
        return ls_error_set(error, LS_ENOMEM, "no memory for the template %.300s", name);
    }
    chat->tokens = tokens;
    chat->t.arena.limit = TEMPLATE_MEMORY_BYTES_MAX;
    chat->t.name = strdup(name);
    int rc = chat->t.name ? LS_OK : ls_error_set(error, LS_ENOMEM, "no memory for a template");
    if (!rc && text.count > LS_CHAT_TEMPLATE_BYTES_MAX)
        rc = ls_error_set(error, LS_EDATA, "%.300s: a template of %zu bytes; expected at most %d",
                          name, text.count, LS_CHAT_TEMPLATE_BYTES_MAX);
    if (!rc)
        rc = text_keep(&chat->t, text.bytes, text.count, error);
    if (!rc)
        rc = chat_parse(&chat->t, error);
    if (rc)
        ls_chat_free(chat);
    else
        *out = chat;
    return rc;
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
    return chat_make(name, (struct chat_string){text, bytes}, object, out, error);
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
    chat->t.day = day;
    chat->t.dated = true;
    return LS_OK;
}

/* What a template's text lies in: the file's own, or that of a member of tokenizer_config.json. */
struct found {
    char name[PATH_MAX + 32];
    char *file; /* owned; NULL: the text is of config */
    struct chat_string text;
};

static int file_take(const char *path, struct found *found, struct ls_error *error)
{
    snprintf(found->name, sizeof found->name, "%s", path);
    int rc = ls_file_read(path, LS_CHAT_TEMPLATE_BYTES_MAX, LS_EDATA, &found->file,
                          &found->text.count, error);
    found->text.bytes = found->file;
    return rc;
}

/* The template of tokenizer_config.json; none leaves *found. */
static int member_take(json_t *config, const char *path, struct found *found,
                       struct ls_error *error)
{
    json_t *given = json_object_get(config, "chat_template"), *each;
    size_t i;
    if (json_is_array(given)) {
        json_t *chosen = NULL;
        json_array_foreach(given, i, each)
        {
            const char *name = json_string_value(json_object_get(each, "name"));
            if (name && !strcmp(name, "default"))
                chosen = json_object_get(each, "template");
        }
        if (!chosen)
            return ls_error_set(error, LS_EDATA,
                                "%.300s: chat_template: none of its %zu templates is named "
                                "\"default\"; give one as a file",
                                path, json_array_size(given));
        given = chosen;
    }
    if (!given || json_is_null(given))
        return LS_OK;
    if (!json_is_string(given))
        return ls_error_set(error, LS_EDATA, "%.300s: chat_template: expected a string", path);
    snprintf(found->name, sizeof found->name, "%.300s: chat_template", path);
    found->text = (struct chat_string){json_string_value(given), json_string_length(given)};
    return LS_OK;
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
    char path[PATH_MAX], beside[PATH_MAX];
    struct found found = {.file = NULL};
    json_t *config = NULL;
    int rc = LS_OK;
    *out = NULL;
    if (directory)
        rc = ls_path_inside(path, directory, "tokenizer_config.json", error);
    if (directory && !rc)
        rc = ls_path_inside(beside, directory, "chat_template.jinja", error);
    if (directory && !rc && access(path, F_OK) == 0)
        rc = ls_json_read(path, LS_EDATA, &config, error);
    if (!rc && file)
        rc = file_take(file, &found, error);
    else if (!rc && directory && access(beside, F_OK) == 0)
        rc = file_take(beside, &found, error);
    else if (!rc && config)
        rc = member_take(config, path, &found, error);
    if (!rc && !found.text.bytes)
        rc = ls_error_set(error, LS_EDATA,
                          "%.300s: no chat template: expected chat_template.jinja, or "
                          "chat_template in tokenizer_config.json, or a file that is named",
                          directory ? directory : "");
    json_t *tokens = rc ? NULL : config ? tokens_of(config) : json_object();
    if (!rc)
        rc = chat_make(found.name, found.text, tokens, out, error);
    free(found.file);
    json_decref(config);
    return rc;
}

/* ---- a conversation ------------------------------------------------------------------------- */

/* A conversation, and the templates' variables of it. */
struct conversation {
    const struct ls_chat *chat;
    json_t *object, *messages;
    bool rounded; /* an integer is too large for int64, and its last digits are lost */
};

static void conversation_release(struct conversation *c)
{
    json_decref(c->object);
}

/* What a model thought before it answered has one name. */
static void message_settle(json_t *message)
{
    static const char *const names[] = {"thinking", "reasoning"};
    for (int i = 0; i < 2; i++) {
        json_t *own = json_object_get(message, "reasoning_content");
        if ((!own || json_is_null(own)) && json_is_string(json_object_get(message, names[i])))
            json_object_set(message, "reasoning_content", json_object_get(message, names[i]));
    }
}

static int conversation_read(struct conversation *c, const struct ls_chat *chat, const char *text,
                             size_t bytes, struct ls_error *error)
{
    json_error_t where;
    *c = (struct conversation){.chat = chat,
                               .object = json_loadb(text, bytes, JSON_ALLOW_NUL, &where)};
    if (!c->object && json_error_code(&where) == json_error_numeric_overflow) {
        c->object = ls_json_load(text, bytes, JSON_ALLOW_NUL, &where);
        c->rounded = true;
    }
    if (!c->object)
        return ls_error_set(error, LS_EDATA, "column %d: %s: expected a JSON object", where.column,
                            where.text);
    c->messages = json_object_get(c->object, "messages");
    if (!json_is_array(c->messages) || json_array_size(c->messages) == 0)
        return ls_error_set(error, LS_EDATA,
                            "expected {\"messages\": [{\"role\": ..., \"content\": ...}, ...]}");
    size_t i;
    json_t *each;
    json_array_foreach(c->messages, i, each)
    {
        if (!json_is_string(json_object_get(each, "role")))
            return ls_error_set(error, LS_EDATA,
                                "message %zu: expected an object with a string \"role\"", i + 1);
        message_settle(each);
    }
    return LS_OK;
}

/* A value of JSON as one of templates; as deep as jansson reads. */
static struct chat_value value_of(struct chat_run *run, json_t *from)
{
    struct chat_value out = {.kind = CHAT_NONE};
    const char *key;
    json_t *each;
    size_t i;
    if (json_is_boolean(from))
        return chat_bool_value(json_is_true(from));
    if (json_is_integer(from))
        return chat_int_value(json_integer_value(from));
    if (json_is_real(from))
        return (struct chat_value){.kind = CHAT_FLOAT,
                                   .rounded = run->rounded && fabs(json_real_value(from)) >= 0x1p63,
                                   .real = json_real_value(from)};
    if (json_is_string(from))
        return chat_text_value(
            (struct chat_string){json_string_value(from), json_string_length(from)});
    if (json_is_array(from)) {
        out = chat_list_new(run);
        json_array_foreach(from, i, each) chat_list_add(run, out, value_of(run, each));
    } else if (json_is_object(from)) {
        out = chat_dict_new(run);
        json_object_foreach(from, key, each) if (!run->status)
            chat_dict_set(run, out.dict, chat_text_value(chat_string_of(key)), value_of(run, each));
    }
    return out;
}

/* Of a message null is an absent key, which is none too: records of tables and of clients'
 * libraries have every key, and a client's calls of tools have no content. */
static struct chat_value message_value(struct chat_run *run, json_t *message)
{
    struct chat_value out = chat_dict_new(run), nulls = chat_list_new(run);
    const char *key;
    json_t *each;
    json_object_foreach(message, key, each)
    {
        if (run->status)
            return out;
        struct chat_value name = chat_text_value(chat_string_of(key));
        if (json_is_null(each))
            chat_list_add(run, nulls, name);
        else
            chat_dict_set(run, out.dict, name, value_of(run, each));
    }
    if (!run->status)
        out.dict->nulls = nulls.list;
    return out;
}

static void variables_set(struct chat_run *run, json_t *object, const char *const *only)
{
    const char *key;
    json_t *each;
    json_object_foreach(object, key, each)
    {
        bool taken = !only;
        for (int i = 0; only && only[i]; i++)
            taken |= !strcmp(only[i], key);
        if (taken && !run->status)
            chat_dict_set(run, &run->scope->variables, chat_text_value(chat_string_of(key)),
                          value_of(run, each));
    }
}

/* What transformers gives a template: messages (the first `count` of them), tools and documents,
 * which may be None, the special tokens, and what chat_template_kwargs has. */
static void variables_make(struct chat_run *run, const struct conversation *c, int64_t count,
                           bool generation_prompt)
{
    static const char *const others[] = {"tools", "documents", NULL};
    const struct chat_value none = {.kind = CHAT_NONE};
    struct chat_dict *to = &run->scope->variables;
    struct chat_value messages = chat_list_new(run);
    run->rounded = c->rounded;
    for (int64_t i = 0; i < count && !run->status; i++)
        chat_list_add(run, messages, message_value(run, json_array_get(c->messages, (size_t)i)));
    for (int i = 0; others[i]; i++)
        chat_dict_set(run, to, chat_text_value(chat_string_of(others[i])), none);
    variables_set(run, c->chat->tokens, NULL);
    variables_set(run, c->object, others);
    variables_set(run, json_object_get(c->object, "chat_template_kwargs"), NULL);
    chat_dict_set(run, to, chat_text_value(chat_string_of("messages")), messages);
    chat_dict_set(run, to, chat_text_value(chat_string_of("add_generation_prompt")),
                  chat_bool_value(generation_prompt));
}

/* The first `count` messages as text. */
static int render(const struct conversation *c, int64_t count, bool generation_prompt,
                  struct ls_chat_text *text, struct ls_error *error)
{
    struct chat_scope scope = {.outer = NULL};
    struct chat_run run = {.t = &c->chat->t,
                           .arena = {.limit = RUN_MEMORY_BYTES_MAX},
                           .scope = &scope,
                           .error = error,
                           .steps = 1 << 20};
    variables_make(&run, c, count, generation_prompt);
    if (!run.status)
        chat_render(&c->chat->t, &run, text);
    chat_arena_release(&run.arena);
    return run.status;
}

int ls_chat_render(const struct ls_chat *chat, const char *conversation, size_t bytes,
                   bool generation_prompt, struct ls_chat_text *text, struct ls_error *error)
{
    struct conversation c;
    int rc = conversation_read(&c, chat, conversation, bytes, error);
    if (!rc)
        rc = render(&c, (int64_t)json_array_size(c.messages), generation_prompt, text, error);
    conversation_release(&c);
    return rc;
}

/* ---- what it teaches ------------------------------------------------------------------------ */

static bool begins_with(const struct ls_chat_text *text, const struct ls_chat_text *with)
{
    return with->count <= text->count &&
           (with->count == 0 || memcmp(text->bytes, with->bytes, with->count) == 0);
}

static int part_add(struct ls_chat_text *text, size_t end, bool counts, bool ends_document,
                    struct ls_error *error)
{
    size_t begin = text->parts_count ? text->parts[text->parts_count - 1].end : 0;
    if (end == begin && !ends_document)
        return LS_OK;
    if (!ls_list_grow(&text->parts, text->parts_count, &text->parts_room, sizeof *text->parts))
        return ls_error_set(error, LS_ENOMEM, "no memory for a conversation");
    text->parts[text->parts_count++] = (struct ls_chat_part){end, counts, ends_document};
    return LS_OK;
}

static int bytes_add(struct ls_chat_text *text, const char *bytes, size_t count,
                     struct ls_error *error)
{
    if (text->count + count > text->capacity) {
        size_t capacity = 2 * (text->count + count);
        char *more = realloc(text->bytes, capacity);
        if (!more)
            return ls_error_set(error, LS_ENOMEM, "no memory for a conversation");
        text->bytes = more;
        text->capacity = capacity;
    }
    if (count > 0)
        memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
    return LS_OK;
}

/* The texts of one turn: the prompt, what it becomes with the answer, and the whole conversation.
 */
struct turns {
    struct ls_chat_text prompt, answered, whole;
};

/* Message i is an answer: its prompt, and both together. */
static int turn_render(const struct conversation *c, int64_t i, struct turns *turns,
                       struct ls_error *error)
{
    int rc = render(c, i, true, &turns->prompt, error);
    if (!rc)
        rc = render(c, i + 1, false, &turns->answered, error);
    if (!rc && (!begins_with(&turns->answered, &turns->prompt) ||
                turns->answered.count == turns->prompt.count))
        rc = ls_error_set(error, LS_EDATA,
                          "message %lld: the template's prompt for this turn is not how the turn "
                          "begins, so it does not show which of it the model says; a template with "
                          "{%% generation %%} tells",
                          (long long)i + 1);
    return rc;
}

static bool answers(const struct conversation *c, int64_t i)
{
    json_t *message = json_array_get(c->messages, (size_t)i);
    return !strcmp(json_string_value(json_object_get(message, "role")), "assistant");
}

/* One text of all turns, if that is what each sees; *one is false if it is not. */
static int one_text(const struct conversation *c, int64_t count, struct turns *turns,
                    struct ls_chat_text *text, bool *one, struct ls_error *error)
{
    int rc = render(c, count, false, &turns->whole, error);
    *one = true;
    for (int64_t i = 0; i < count && !rc && *one; i++) {
        if (!answers(c, i))
            continue;
        rc = turn_render(c, i, turns, error);
        *one = !rc && begins_with(&turns->whole, &turns->answered);
        if (!rc && *one)
            rc = part_add(text, turns->prompt.count, false, false, error);
        if (!rc && *one)
            rc = part_add(text, turns->answered.count, true, i + 1 == count, error);
    }
    return rc || !*one ? rc : bytes_add(text, turns->whole.bytes, turns->whole.count, error);
}

/* A text of each turn. */
static int many_texts(const struct conversation *c, int64_t count, struct turns *turns,
                      struct ls_chat_text *text, struct ls_error *error)
{
    int rc = LS_OK;
    for (int64_t i = 0; i < count && !rc; i++) {
        if (!answers(c, i))
            continue;
        size_t begin = text->count;
        rc = turn_render(c, i, turns, error);
        if (!rc)
            rc = bytes_add(text, turns->answered.bytes, turns->answered.count, error);
        if (!rc)
            rc = part_add(text, begin + turns->prompt.count, false, false, error);
        if (!rc)
            rc = part_add(text, text->count, true, true, error);
    }
    return rc;
}

/* The template says itself what counts. */
static int marked_text(const struct conversation *c, int64_t count, struct ls_chat_text *text,
                       struct ls_error *error)
{
    bool counts = false;
    int rc = render(c, count, false, text, error);
    for (int64_t i = 0; i < text->parts_count && !rc; i++)
        counts |= text->parts[i].counts;
    if (!rc && !counts)
        rc = ls_error_set(error, LS_EDATA,
                          "nothing lies within the template's {%% generation %%}: no turn is to be "
                          "learned");
    if (!rc)
        text->parts[text->parts_count - 1].ends_document = true;
    return rc;
}

int ls_chat_examples(const struct ls_chat *chat, const char *conversation, size_t bytes,
                     struct ls_chat_text *text, struct ls_error *error)
{
    struct conversation c;
    struct turns turns = {0};
    bool one = true;
    text->count = 0;
    text->parts_count = 0;
    int rc = conversation_read(&c, chat, conversation, bytes, error);
    int64_t count = rc ? 0 : (int64_t)json_array_size(c.messages);
    while (count > 0 && !answers(&c, count - 1))
        count--; /* what comes behind the last answer teaches nothing */
    if (!rc && count == 0)
        rc = ls_error_set(error, LS_EDATA,
                          "no message has the role \"assistant\": there is nothing to learn");
    if (!rc && chat->t.marks) {
        rc = marked_text(&c, count, text, error);
    } else if (!rc) {
        rc = one_text(&c, count, &turns, text, &one, error);
        if (!rc && !one) {
            text->parts_count = 0;
            rc = many_texts(&c, count, &turns, text, error);
        }
    }
    ls_chat_text_release(&turns.prompt);
    ls_chat_text_release(&turns.answered);
    ls_chat_text_release(&turns.whole);
    conversation_release(&c);
    return rc;
}
