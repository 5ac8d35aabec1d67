/* A conversation as a template has it: read from JSON, made its variables, and rendered. */
#include "chat/chat_private.h"

#include <lockstep/base/json.h>

#include <math.h>

enum { RUN_MEMORY_BYTES_MAX = 256 << 20 };

const char *const ls_chat_members[] = {
    "messages", "prompt", "completion", "tools", "documents", "chat_template_kwargs", NULL};

void chat_conversation_release(struct chat_conversation *c)
{
    chat_arena_release(&c->arena);
    json_decref(c->object);
}

/* What a model thought before it answered has the names that templates read, as in transformers. */
static void message_settle(json_t *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *thought = NULL;
    for (int i = 0; i < 3 && (!thought || json_is_null(thought)); i++)
        thought = json_object_get(message, names[i]);
    if (!thought || json_is_null(thought))
        return;
    json_object_set(message, names[0], thought);
    if (!json_object_get(message, names[1]))
        json_object_set(message, names[1], thought);
}

int chat_media_refuse(const struct chat_conversation *c, struct ls_error *error)
{
    static const char *const words[] = {"image", "video", "audio"};
    static const char refusal[] = "only text is taken: leave it out, or skip the record";
    const json_t *message, *part;
    size_t m, p;
    for (int w = 0; w < 3; w++) {
        char several[16];
        snprintf(several, sizeof several, "%ss", words[w]);
        const json_t *one = json_object_get(c->object, words[w]);
        if (json_array_size(json_object_get(c->object, several)) > 0 || (one && !json_is_null(one)))
            return ls_error_set(error, LS_EDATA, "the record has %s: %s", several, refusal);
        json_array_foreach(c->messages, m, message)
        {
            json_array_foreach(json_object_get(message, "content"), p, part)
            {
                const char *type = json_string_value(json_object_get(part, "type"));
                if (type && strstr(type, words[w]))
                    return ls_error_set(error, LS_EDATA,
                                        "message %zu: its content has a part of type %.40s: %s",
                                        m + 1, type, refusal);
            }
        }
    }
    return LS_OK;
}

/* {"prompt": [...], "completion": [...]} are messages too. */
static void completion_join(struct chat_conversation *c)
{
    json_t *prompt = json_object_get(c->object, "prompt");
    json_t *completion = json_object_get(c->object, "completion");
    if (c->messages || json_array_size(prompt) == 0 || !json_is_array(completion))
        return;
    c->prompt = (int64_t)json_array_size(prompt);
    json_array_extend(prompt, completion);
    c->messages = prompt;
}

/* What to write in place of a record of another form. */
static int no_messages(const struct chat_conversation *c, struct ls_error *error)
{
    const char *key;
    const json_t *value;
    char keys[200] = "";
    if (json_is_array(c->messages))
        return ls_error_set(error, LS_EDATA, "\"messages\" is empty: expected one at least");
    json_object_foreach(c->object, key, value) if (strlen(keys) < 100)
        ls_string_add(keys, sizeof keys, ", ", "\"%.40s\"", key);
    return ls_error_set(error, LS_EDATA,
                        "the record has %s: expected {\"messages\": [{\"role\": ..., "
                        "\"content\": ...}, ...]}",
                        *keys ? keys : "no keys");
}

/* "weight", as in OpenAI's files: whether an answer is learned. */
static int weight_check(const json_t *message, size_t number, struct ls_error *error)
{
    const json_t *weight = json_object_get(message, "weight");
    double value = json_number_value(weight);
    if (!weight || json_is_null(weight) || (json_is_number(weight) && (value == 0 || value == 1)))
        return LS_OK;
    return ls_error_set(error, LS_EDATA, "message %zu: weight: expected 0 or 1", number);
}

/* Of JSON, with its integers of any size; NULL: it is none. */
static json_t *load(struct chat_conversation *c, const char *text, size_t bytes, size_t flags,
                    json_error_t *where)
{
    json_t *loaded = json_loadb(text, bytes, flags | JSON_ALLOW_NUL, where);
    if (!loaded && json_error_code(where) == json_error_numeric_overflow) {
        loaded = ls_json_load(text, bytes, flags | JSON_ALLOW_NUL, where);
        c->rounded = true;
    }
    return loaded;
}

/* Tables hold tools as a string of JSON, which TRL decodes too, and as an empty one if there are
 * none. */
static int tools_settle(struct chat_conversation *c, struct ls_error *error)
{
    static const char expected[] = "expected a list of objects, or a string of JSON with that";
    const json_t *each;
    json_t *tools = json_object_get(c->object, "tools");
    json_error_t where;
    size_t i;
    if (json_is_string(tools)) {
        size_t bytes = json_string_length(tools);
        tools =
            bytes ? load(c, json_string_value(tools), bytes, JSON_DECODE_ANY, &where) : json_null();
        if (!tools)
            return ls_error_set(error, LS_EDATA, "\"tools\": column %d of the string: %s: %s",
                                where.column, where.text, expected);
        if (json_object_set_new(c->object, "tools", tools))
            return ls_no_memory(error, "for a conversation");
    }
    if (!tools || json_is_null(tools))
        return LS_OK;
    if (!json_is_array(tools))
        return ls_error_set(error, LS_EDATA, "\"tools\" is no list: %s", expected);
    json_array_foreach(tools, i, each)
    {
        if (!json_is_object(each))
            return ls_error_set(error, LS_EDATA, "\"tools\": element %zu is no object: %s", i + 1,
                                expected);
    }
    return LS_OK;
}

int chat_conversation_read(struct chat_conversation *c, const struct ls_chat *chat,
                           const char *text, size_t bytes, struct ls_error *error)
{
    json_error_t where;
    *c = (struct chat_conversation){.chat = chat, .arena = {.limit = RUN_MEMORY_BYTES_MAX}};
    c->object = load(c, text, bytes, 0, &where);
    if (!c->object)
        return ls_error_set(error, LS_EDATA, "column %d: %s: expected a JSON object", where.column,
                            where.text);
    int status = tools_settle(c, error);
    if (status)
        return status;
    const json_t *tools = json_object_get(c->object, "tools");
    c->t = chat->with_tools.name && tools && !json_is_null(tools) ? &chat->with_tools : &chat->t;
    if (!c->t->name)
        return ls_error_set(error, LS_EDATA,
                            "%.300s: the only template is \"tool_use\", and the conversation has "
                            "no tools: give one for it as a file",
                            chat->with_tools.name);
    c->messages = json_object_get(c->object, "messages");
    completion_join(c);
    if (!json_is_array(c->messages) || json_array_size(c->messages) == 0)
        return no_messages(c, error);
    size_t i;
    json_t *each;
    json_array_foreach(c->messages, i, each)
    {
        if (!json_is_string(json_object_get(each, "role")))
            return ls_error_set(error, LS_EDATA,
                                "message %zu: expected an object with a string \"role\"", i + 1);
        status = weight_check(each, i + 1, error);
        if (status)
            return status;
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

/* The values of the first `count` messages, made once: no template changes them. */
static int values_make(struct chat_conversation *c, int64_t count, struct ls_error *error)
{
    struct chat_run run = {
        .t = c->t, .rounded = c->rounded, .arena = c->arena, .error = error, .steps = 1 << 20};
    struct chat_value messages = {.kind = CHAT_LIST, .list = &c->values};
    for (int64_t i = c->values.count; i < count && !run.status; i++) {
        struct chat_value message = message_value(&run, json_array_get(c->messages, (size_t)i));
        if (!run.status)
            chat_list_add(&run, messages, message);
    }
    c->arena = run.arena;
    return run.status;
}

/* What transformers gives a template: messages (the first `count` of them), tools and documents,
 * which may be None, the special tokens, and what chat_template_kwargs has. */
static void variables_make(struct chat_run *run, const struct chat_conversation *c, int64_t count,
                           bool generation_prompt)
{
    static const char *const others[] = {"tools", "documents", NULL};
    const struct chat_value none = {.kind = CHAT_NONE};
    struct chat_dict *to = &run->scope->variables;
    struct chat_value messages = chat_list_new(run);
    run->rounded = c->rounded;
    if (!run->status)
        *messages.list =
            (struct chat_list){.items = c->values.items, .count = count, .room = count};
    for (int i = 0; others[i]; i++)
        chat_dict_set(run, to, chat_text_value(chat_string_of(others[i])), none);
    variables_set(run, c->chat->tokens, NULL);
    variables_set(run, c->object, others);
    variables_set(run, json_object_get(c->object, "chat_template_kwargs"), NULL);
    chat_dict_set(run, to, chat_text_value(chat_string_of("messages")), messages);
    chat_dict_set(run, to, chat_text_value(chat_string_of("add_generation_prompt")),
                  chat_bool_value(generation_prompt));
}

int chat_conversation_render(struct chat_conversation *c, int64_t count, bool generation_prompt,
                             struct chat_prefixes *prefixes, struct ls_chat_text *text,
                             struct ls_error *error)
{
    struct chat_scope scope = {.outer = NULL};
    int status = values_make(c, count, error);
    if (status)
        return status;
    struct chat_run run = {.t = c->t,
                           .arena = {.limit = RUN_MEMORY_BYTES_MAX - c->arena.used},
                           .scope = &scope,
                           .error = error,
                           .steps = 1 << 20};
    variables_make(&run, c, count, generation_prompt);
    if (!run.status && prefixes)
        chat_prefixes_begin(&run, prefixes);
    if (!run.status)
        chat_render(c->t, &run, text);
    c->steps += CHAT_STEPS_MAX - run.steps + (prefixes ? prefixes->steps : 0);
    chat_arena_release(&run.arena);
    return run.status;
}

int ls_chat_render(const struct ls_chat *chat, const char *conversation, size_t bytes,
                   bool generation_prompt, struct ls_chat_text *text, struct ls_error *error)
{
    struct chat_conversation c;
    int status = chat_conversation_read(&c, chat, conversation, bytes, error);
    if (!status)
        status =
            chat_conversation_render(&c, c.prompt ? c.prompt : (int64_t)json_array_size(c.messages),
                                     generation_prompt, NULL, text, error);
    chat_conversation_release(&c);
    return status;
}
