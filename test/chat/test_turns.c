/* What a conversation teaches: the texts of its turns, which come from one run of the template
 * (src/chat/template_prefix.c), beside each turn rendered by itself. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "chat/chat_private.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char tokens[] = "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";

static struct ls_chat *chat_of(const char *text)
{
    struct ls_error error = {0};
    struct ls_chat *chat = NULL;
    if (ls_chat_new("drawn", text, strlen(text), tokens, &chat, &error))
        fail_msg("%s: %s", text, error.text);
    return chat;
}

/* ---- each turn by itself --------------------------------------------------------------------- */

struct plain {
    const struct ls_chat *chat;
    json_t *conversation;
    int64_t count; /* messages up to the last answer */
    char *text;    /* what counts in [], | behind a document */
    size_t bytes, room;
};

static bool answers(const struct plain *p, int64_t i)
{
    json_t *message = json_array_get(json_object_get(p->conversation, "messages"), (size_t)i);
    return !strcmp(json_string_value(json_object_get(message, "role")), "assistant");
}

/* The first `count` messages as text. */
static int render(const struct plain *p, int64_t count, bool prompt, struct ls_chat_text *text)
{
    struct ls_error error = {0};
    json_t *all = json_object_get(p->conversation, "messages"), *first = json_array();
    json_t *fewer = json_copy(p->conversation);
    for (int64_t i = 0; i < count; i++)
        json_array_append(first, json_array_get(all, (size_t)i));
    json_object_set_new(fewer, "messages", first);
    char *shown = json_dumps(fewer, 0);
    int status = ls_chat_render(p->chat, shown, strlen(shown), prompt, text, &error);
    free(shown);
    json_decref(fewer);
    return status;
}

static void put(struct plain *p, const char *bytes, size_t count)
{
    if (p->bytes + count > p->room) {
        p->room = 2 * (p->bytes + count);
        p->text = realloc(p->text, p->room);
        assert_non_null(p->text);
    }
    if (count > 0)
        memcpy(p->text + p->bytes, bytes, count);
    p->bytes += count;
}

/* Of no bytes all are equal, wherever they are. */
static bool equal(const char *a, const char *b, size_t bytes)
{
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

static bool begins(const struct ls_chat_text *text, const struct ls_chat_text *with)
{
    return text->count >= with->count && equal(text->bytes, with->bytes, with->count);
}

/* Puts every turn, behind the one before or as a document; *one: each is how the whole begins. */
static int turns(struct plain *p, bool apart, const struct ls_chat_text *whole, bool *one)
{
    struct ls_chat_text prompt = {0}, answered = {0};
    size_t end = 0;
    int status = LS_OK;
    p->bytes = 0;
    *one = true;
    for (int64_t i = 0; i < p->count && !status && (*one || apart); i++) {
        if (!answers(p, i))
            continue;
        status = render(p, i, true, &prompt);
        status = status ? status : render(p, i + 1, false, &answered);
        if (!status && (!begins(&answered, &prompt) || answered.count == prompt.count))
            status = LS_EDATA;
        *one &= !status && begins(whole, &answered);
        if (status || (!*one && !apart))
            continue;
        put(p, answered.bytes + end, prompt.count - end);
        put(p, "[", 1);
        put(p, answered.bytes + prompt.count, answered.count - prompt.count);
        put(p, apart || i + 1 == p->count ? "]|" : "]", apart || i + 1 == p->count ? 2 : 1);
        end = apart ? 0 : answered.count;
    }
    ls_chat_text_release(&prompt);
    ls_chat_text_release(&answered);
    return status;
}

static int plain_examples(struct plain *p)
{
    struct ls_chat_text whole = {0};
    bool one = true;
    p->count = (int64_t)json_array_size(json_object_get(p->conversation, "messages"));
    while (p->count > 0 && !answers(p, p->count - 1))
        p->count--;
    int status = p->count > 0 ? render(p, p->count, false, &whole) : LS_EDATA;
    status = status ? status : turns(p, false, &whole, &one);
    if (!status && !one)
        status = turns(p, true, &whole, &one);
    ls_chat_text_release(&whole);
    return status;
}

/* Both give the same, or refuse. Returns what they gave. */
static int same_examples(const struct ls_chat *chat, const char *shown, json_t *conversation)
{
    struct plain p = {.chat = chat, .conversation = conversation}, made = {0};
    struct ls_chat_text text = {0};
    struct ls_error error = {0};
    char *line = json_dumps(conversation, 0);
    size_t end = 0;
    int expected = plain_examples(&p);
    int status = ls_chat_examples(chat, line, strlen(line), &text, &error);
    for (int64_t i = 0; i < text.parts_count && !status; i++) {
        const struct ls_chat_part *part = &text.parts[i];
        put(&made, "[", part->counts);
        put(&made, text.bytes + end, part->end - end);
        put(&made, "]", part->counts);
        put(&made, "|", part->ends_document);
        end = part->end;
    }
    if (status != expected ||
        (!status && (made.bytes != p.bytes || !equal(made.text, p.text, p.bytes))))
        fail_msg("%s\n%s\n%d %s\n%.*s\nexpected %d\n%.*s", shown, line, status, error.text,
                 (int)made.bytes, made.text ? made.text : "", expected, (int)p.bytes,
                 p.text ? p.text : "");
    free(p.text);
    free(made.text);
    free(line);
    ls_chat_text_release(&text);
    return status;
}

/* The texts of the first messages that come from the run of all are those of these messages alone.
 * Returns how many came. */
static int same_texts(const struct ls_chat *chat, const char *shown, json_t *conversation,
                      bool prompt)
{
    struct chat_conversation c;
    struct chat_prefixes prefixes = {0};
    struct ls_chat_text whole = {0}, alone = {0};
    struct ls_error error = {0};
    char *line = json_dumps(conversation, 0);
    int made = 0;
    assert_int_equal(chat_conversation_read(&c, chat, line, strlen(line), &error), LS_OK);
    int64_t count = (int64_t)json_array_size(c.messages);
    prefixes.of = calloc((size_t)count + 1, sizeof *prefixes.of);
    assert_non_null(prefixes.of);
    for (int64_t i = 0; i <= count; i++)
        prefixes.of[i].wanted = true;
    int status = chat_conversation_render(&c, count, prompt, &prefixes, &whole, &error);
    for (int64_t i = 0; i <= count && !status; i++) {
        const struct chat_prefix *of = &prefixes.of[i];
        size_t bytes = of->shared + of->count;
        if (!of->made)
            continue;
        made++;
        status = chat_conversation_render(&c, i, prompt, NULL, &alone, &error);
        if (status || bytes != alone.count || !equal(alone.bytes, whole.bytes, of->shared) ||
            (of->count &&
             !equal(alone.bytes + of->shared, prefixes.own.bytes + of->first, of->count)))
            fail_msg("%s\n%s\n%lld messages, prompt %d: %s\n%.*s%.*s\nexpected\n%.*s", shown, line,
                     (long long)i, prompt, status ? error.text : "", (int)of->shared, whole.bytes,
                     (int)of->count, prefixes.own.bytes + of->first, (int)alone.count, alone.bytes);
    }
    bool fails = chat_conversation_render(&c, count, prompt, NULL, &alone, &error) != LS_OK;
    if (fails != (status != LS_OK) ||
        (!fails && (alone.count != whole.count || !equal(alone.bytes, whole.bytes, whole.count))))
        fail_msg("%s\n%s\nthe whole is another text, or fails, beside others", shown, line);
    free(line);
    free(prefixes.of);
    ls_chat_text_release(&prefixes.own);
    ls_chat_text_release(&whole);
    ls_chat_text_release(&alone);
    chat_conversation_release(&c);
    return made;
}

static int same(const struct ls_chat *chat, const char *shown, json_t *conversation, int *made)
{
    *made += same_texts(chat, shown, conversation, false);
    *made += same_texts(chat, shown, conversation, true);
    return same_examples(chat, shown, conversation);
}

/* ---- drawn ----------------------------------------------------------------------------------- */

struct draw {
    struct ls_philox_key key;
    int64_t next;
};

static int below(struct draw *d, int count)
{
    return (int)(ls_random_half(d->key, 0, d->next++) % (uint32_t)count);
}

/* A system's message, perhaps; then turns, mostly those of the user and the assistant. */
static json_t *conversation_of(struct draw *d)
{
    static const char *const roles[] = {"user", "assistant", "tool", "system"};
    static const char *const contents[] = {"a", "b\n", "", " c ", "<think>\nx\n</think>\n\nd", "a"};
    json_t *messages = json_array(), *tools = json_null();
    int count = 1 + below(d, 9), regular = below(d, 4) > 0;
    for (int i = -(below(d, 3) == 0); i < count; i++) {
        int role = i < 0 ? 3 : regular || i == 0 ? i % 2 : below(d, 4);
        json_t *message = json_pack("{ss ss}", "role", roles[role], "content",
                                    contents[below(d, sizeof contents / sizeof *contents)]);
        if (role == 1 && below(d, 6) == 0)
            json_object_set_new(message, "reasoning_content", json_string("r"));
        json_array_append_new(messages, message);
    }
    if (below(d, 4) == 0)
        tools = json_pack("[{s{ss}}]", "function", "name", "f");
    return json_pack("{so so}", "messages", messages, "tools", tools);
}

/* Parts of templates: what stands before, loops that print or only look, and what stands behind. */
static const char *const before[] = {
    "",
    "{{ bos_token }}",
    "{% if messages[0].role == 'system' %}{% set messages = messages[1:] %}{% endif %}",
    "{% set talk = messages[1:] if messages[0].role == 'system' else messages %}",
    "{% set talk = messages %}{% set messages = talk[2:] %}",
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = true %}{% endif "
    "%}",
    "{% if add_generation_prompt %}{% set x = 1 %}{% endif %}",
    "{{ messages|length if messages[-1].role == 'tool' else '' }}",
    "{% if messages[2] %}{{ messages[2].content }}{% endif %}",
    "{% if messages %}!{% endif %}",
    "{% if messages|length == 0 %}{{ raise_exception('none') }}{% endif %}",
    "{% if messages|length > 1 %}{{ messages[1].role }}{% endif %}",
    "{{ 'some' if 2 < messages|length <= 4 else 'few' if 3 > messages|count else 'many' }}",
    "{% set k = messages[1:]|length %}{{ 'x' if k > 2 else 'y' }}{{ k if messages[4] else '' }}",
    "{% set talk = messages[2:] %}{{ 'talk' if talk else 'none' }}",
    "{% set talk = messages[3:] %}{{ 'none' if not talk|length else 'talk' }}",
    "{% set k = messages|length %}",
    "{% set k, talk = messages|length, messages[1:] %}{{ k if messages[3] else '' }}"
    "{{ 'talk' if talk and not talk|length == 1 else 'none' }}",
    "{% set x, messages = 'x', messages[1:] %}{{ x if messages|length else messages }}",
    "{{ messages|length or 'none' if messages[3] else messages[1:]|length > -1 }}",
    "{% macro f(m) %}{% for each in m %}{{ each.role }}{% endfor %}{% endmacro %}{{ f(messages) }}",
    "{% macro f() %}{% for each in messages %}{{ loop.index }}{% endfor %}{% endmacro %}",
    "{% set s = messages|map(attribute='role') %}",
    "{% set s = 'abcdefghijklmnop'|list|map('upper') %}",
    "{% set ns = namespace(n=0, s='', m=messages) %}",
    "{% set text %}{% for m in messages %}{{ m.role[0] }}{% endfor %}{% endset %}{{ text }}",
    "{% for m in messages %}{% if m.role == 'system' %}{% set n.s = m.content %}{% endif %}"
    "{% endfor %}{{ n.s }}",
    "{% for m in messages %}{% set n.i = n.i + 1 %}{% endfor %}",
    "{% for m in messages %}{% if loop.last and m.role == 'user' %}{% set n.u = true %}{% endif %}"
    "{% endfor %}",
    "{% for m in messages %}{% if loop.first %}{% set n.first = loop %}{% endif %}{% endfor %}",
    "{% for m in messages %}{% if m.content == 'a' %}{% break %}{% endif %}{% endfor %}",
    "{% for m in messages %}{% if m.role != 'tool' %}{% continue %}{% endif %}{% else %}0{% endfor "
    "%}",
    "{% for m in messages %}{% if m.content == 'a' %}{% break %}{% endif %}{% else %}-{% endfor %}",
    "{% for m in messages[::-1] %}{% if m.role == 'user' %}{% set n.l = loop.revindex0 %}{% break "
    "%}"
    "{% endif %}{% endfor %}",
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('tool') }}{% endif %}"
    "{% endfor %}",
    "{% for m in messages %}{% set n.i = m.role %}{% endfor %}{% set n.i = 0 %}",
    "{% for m in messages %}{% set n.s = m.role %}{% endfor %}{{ n.s if messages[3] else '' }}",
    "{% for m in messages %}{% if loop.first %}{% set n.a = 1 %}{% else %}{% set n.b = 1 %}{% "
    "endif %}"
    "{% endfor %}"
    "{% for k in n %}{{ k if messages[3] else '' }}{% endfor %}",
    "{% set alias = n %}{% for m in messages %}{% set alias.i = alias.i + 1 %}{% endfor %}",
    "{% set held = [n] %}{% for m in messages %}{% set n.i = n.i + 1 %}{% endfor %}"
    "{{ held[0].i if messages[2] else '' }}",
    "{% for m in messages %}{% set n.due = m.role %}{% endfor %}{{ n if messages[4] else '' }}",
    "{% for m in messages if m.role != 'tool' %}{% set n.i = n.i + 1 %}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{% set n.u = loop.last %}{% endfor %}",
    "{% for m in messages[1:] if m.role == 'user' %}{% set n.s = m.content %}{% break %}{% endfor "
    "%}",
    "{% for m in messages if m.role == 'tool' %}{{ raise_exception('tool') }}{% else %}{% set n.u "
    "= 1 "
    "%}{% endfor %}",
    "{% macro c() %}{% set n.i = n.i + 1 %}{% endmacro %}{% for m in messages if c() != '' %}"
    "{% endfor %}",
    "{% for m in messages if m.role == 'assistant' %}{% if m.content == 'a' and loop.last %}"
    "{% set n.u = true %}{% endif %}{% endfor %}",
    "{% for m in messages %}{% if m.role == 'user' %}{% set n.a = 1 %}{% elif m.content == 'a' %}"
    "{% set n.b = 1 %}{% else %}{% set n.c = 1 %}{% endif %}{% endfor %}"
    "{% set n.a = 0 %}{% set n.b = 0 %}{% set n.c = 0 %}",
    "{% set held = [n] %}{% for m in messages %}{% set n.i = n.i + 1 %}{% endfor %}",
    "{% set u = messages|selectattr('role', 'equalto', 'user')|list %}",
    "{% set u = messages|selectattr('role', 'equalto', 'user') %}{% set v = u|list %}",
    "{% set v = messages|map(attribute='content')|list %}{% set u = v|reject('equalto', 'a')|list "
    "%}",
    "{% set u = messages|selectattr('role', 'equalto', messages[1].role)|list %}",
    "{% set u = messages|list %}{% set n.u = u and false %}",
    "{% set v = messages|rejectattr('content')|list %}{% for m in messages %}{% set n.i = v|length "
    "%}"
    "{% endfor %}",
};
static const char *const within[] = {
    "{{ m.role }}:{{ m.content }};",
    "<{{ m.role }}>{{ m.content|trim }}{{ eos_token if m.role == 'assistant' else '' }}",
    "{{ loop.index }}",
    "{% if loop.first %}^{% endif %}",
    "{% if loop.last %}${% endif %}",
    "{% if not loop.last and m.role == 'assistant' %}\n{% endif %}",
    "{{ loop.previtem.role[0] if loop.previtem else '' }}",
    "{{ loop.nextitem.role[0] if loop.nextitem is defined and m.role == 'tool' else '' }}",
    "{% if m.role == 'tool' and messages[loop.index0 + 1].role != 'tool' %}&{% endif %}",
    "{{ messages[loop.index0 - 1].role[1] if loop.index0 else '' }}",
    "{{ messages[loop.index0 + 2].role[1] if m.role == 'tool' else '' }}",
    "{% set n.i = n.i + 1 %}",
    "{% if n.i is odd %}{% set n = namespace(i=n.i, s='o') %}{{ n.s }}{% endif %}",
    "{% set n.keep = loop %}{{ n.keep.index }}",
    "{{ n.behind }}{{ top }}",
    "{% if loop.first %}{% set n.first = loop %}{% endif %}",
    "{% if n.l is defined and loop.index0 > n.l %}{{ m.reasoning_content }}{% endif %}",
    "{% if n.u and m.role == 'user' %}tools{% endif %}",
    "{% if m.role == 'assistant' and m.reasoning_content %}{{ loop.revindex }}{% endif %}",
    "{% if loop.last and add_generation_prompt %}<assistant>{% endif %}",
    "{% if m.role == 'system' and not loop.first %}{% continue %}{% endif %}",
    "{% if m.content == 'a' and m.role == 'tool' %}{% break %}{% endif %}",
    "{{ s|first if s else '' }}",
    "{% if m.role == 'tool' %}{{ s|first if s else '' }}{% endif %}",
    "{% for o in messages[loop.index:] %}{{ o.role[0] if m.role == 'system' else '' }}{% endfor %}",
    ("{% for o in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ o.role[0] }}"
     "{% endfor %}"),
    "{% set messages = messages[1:] %}",
    "{% if m.role != 'tool' %}{{ f() if f is defined and m.content == '' }}{% endif %}",
    "{% if m == messages[-1] %}.{% endif %}",
    "{% if messages|length > 3 %}+{% endif %}",
    "{{ loop.index if k is defined and k > 2 else '' }}",
    "{% if loop.index != messages|length %},{% endif %}",
    "{% if loop.index0 < messages|length - 1 %};{% endif %}",
    "{% if talk and loop.index == 2 %}{{ 2 < talk|length }}{% endif %}",
    "{% if m == u[-1] %}!{% endif %}",
    "{% if tools and m == u[-1] %}tools{% endif %}",
    "{% if loop.index == 4 %}{{ u|length }}{% endif %}",
    "{% if loop.index == 3 %}{{ v|length if v is defined }}{{ n.u }}{% endif %}",
    "{{ n.due if m.role == 'tool' else '' }}",
    "{% if m.role == 'assistant' and loop.index > 3 %}{{ n|list|join(',') }}{% endif %}",
    "{% if m.role == 'assistant' %}{{ {'i': loop.index, 's': ''} == n }}{% endif %}",
    "{% set v = messages|selectattr('role', 'equalto', 'tool')|list %}{{ v|length if loop.first }}",
};
static const char *const behind[] = {
    "",
    "{% if add_generation_prompt %}assistant:{% endif %}",
    "{% if add_generation_prompt %}<assistant>{% else %}{{ eos_token }}{% endif %}",
    "{% if add_generation_prompt and messages[-1].role != 'assistant' %}assistant:{% endif %}",
    "{{ n.i if n.i > 3 else '' }}",
    "{% if n.keep %}{{ n.keep.last }}{% endif %}",
    "{% if n.first %}{{ n.first.index }}{% endif %}",
    "{% set n.behind = 'x' %}",
    "{% set top = 'y' %}",
    "{{ '!' if messages|length > 4 else '?' if messages else '.' }}",
    "{% for m in messages %}{{ m.role[0] if m.role == 'tool' else '' }}{% endfor %}",
    "{{ x }}",
    "{{ u|length if add_generation_prompt else '' }}",
    "{% set w = messages|selectattr('role')|list %}{{ w|length }}{{ n.i }}",
};
#define ONE_OF(list) (list)[below(d, (int)(sizeof(list) / sizeof *(list)))]

/* Appends what one more template needs; a template of many parts is rarely one that teaches. */
static void template_of(struct draw *d, char *text, size_t size)
{
    static const char *const loops[] = {
        "{% for m in messages %}",
        "{% for m in talk or messages %}",
        "{% for m in (talk if talk is defined else messages) %}",
        "{% for m in messages[1:] %}",
        "{% if messages[0].role %}{% for m in messages %}",
        "{% for m in messages if m.role != 'system' %}",
    };
    size_t at = (size_t)snprintf(text, size, "{%% set n = namespace(i=0, s='') %%}");
    for (int parts = below(d, 3); parts > 0; parts--)
        at += (size_t)snprintf(text + at, size - at, "%s", ONE_OF(before));
    const char *loop = below(d, 3) ? loops[0] : ONE_OF(loops);
    at += (size_t)snprintf(text + at, size - at, "%s%s", loop, within[below(d, 2)]);
    for (int parts = below(d, 3); parts > 0; parts--)
        at += (size_t)snprintf(text + at, size - at, "%s", ONE_OF(within));
    at += (size_t)snprintf(text + at, size - at, "%s{%% endfor %%}%s",
                           below(d, 8) ? "" : "{% else %}none",
                           strncmp(loop, "{% if", 5) ? "" : ",{% endif %}");
    at += (size_t)snprintf(text + at, size - at, "%s", ONE_OF(behind));
    assert_true(at < size);
}

CASE(test_drawn)
{
    int taught = 0, made = 0;
    for (int i = 0; i < 3000; i++) {
        struct draw d = {ls_philox_key_of((uint64_t)i, "turns"), 0};
        char text[4000];
        template_of(&d, text, sizeof text);
        struct ls_chat *chat = chat_of(text);
        for (int k = 0; k < 3; k++) {
            json_t *conversation = conversation_of(&d);
            taught += same(chat, text, conversation, &made) == LS_OK;
            json_decref(conversation);
        }
        ls_chat_free(chat);
    }
    assert_true(taught > 2000);
    assert_true(made > 10000);
}

/* A first loop only counts, or looks; what it left is taken in each way beside the turns. */
CASE(test_values_of_fewer_messages)
{
#define COUNTED "{% for m in messages %}{% set n.i = n.i + 1 %}{% endfor %}"
#define OF(before, beside)                                                                         \
    "{% set n = namespace(i=0) %}" before "{% for m in messages %}{{ m.role }}:{{ m.content }}"    \
    "{% if m.role == 'assistant' %}" beside "{% endif %};{% endfor %}"                             \
    "{% if add_generation_prompt %}assistant:{% endif %}"
    static const char *const templates[] = {
        OF(COUNTED, "{{ n.i }}"),
        OF(COUNTED, "{{ n == {'i': loop.index} }}"),
        OF(COUNTED, "{{ {'i': loop.index} == n }}"),
        OF("{% set held = [n] %}" COUNTED, "{{ [{'i': loop.index}] == held }}"),
        OF("{% set held = [n] %}" COUNTED, "{% for o in held %}{{ o.items()|list }}{% endfor %}"),
        OF("{% set held = [n] %}" COUNTED, "{{ held|map('items')|map('list')|list }}"),
        OF(COUNTED, "{{ n.values()|list }}"),
        OF(COUNTED, "{{ dict(n) }}"),
        OF(COUNTED, "{{ n|dictsort }}"),
        OF("{% set held = [n] %}" COUNTED, "{{ held[0].i }}"),
        OF("{% set other = n %}" COUNTED, "{{ other.i }}"),
        OF("{% set o = namespace(n=n) %}" COUNTED, "{{ o == {'n': {'i': loop.index}} }}"),
        OF("{% for m in messages %}{% if m.content == 'a' %}{% set n.a = 1 %}{% endif %}{% endfor "
           "%}",
           "{{ n|list|join }}"),
        OF("{% for m in messages %}{% if m.content == 'a' %}{% set n.a = 1 %}{% else %}"
           "{% set n.b = 1 %}{% endif %}{% endfor %}{% set n.a = 0 %}{% set n.b = 0 %}",
           "{% for k in n %}{{ k }}{% endfor %}"),
        OF("{% for m in messages if m.role == 'assistant' %}"
           "{% if m.content == 'a' and loop.last %}{% set n.i = 7 %}{% endif %}{% endfor %}",
           "{{ n.i }}"),
        OF("{% for m in messages if m.role == 'assistant' %}"
           "{% if m.content == 'a' and not loop.nextitem %}{% set n.i = 7 %}{% endif %}{% endfor "
           "%}",
           "{{ n.i }}"),
        OF("{% macro c() %}{% set n.i = n.i + 1 %}{% endmacro %}"
           "{% for m in messages if c() %}{% endfor %}",
           "{{ n.i }}"),
        OF("{% set s = 'abcdefghijklmnopq'|list|map('upper') %}"
           "{% for m in messages %}{% set n.i = s|first %}{% endfor %}{% set n.i = 0 %}",
           "{{ s|first }}"),
        OF("{% set u = messages|selectattr('role', 'equalto', 'user')|list %}", "{{ u|length }}"),
        OF("{% set u = messages|map(attribute='role')|list %}", "{{ u[-1] }}"),
        OF("{% set u = messages|list %}{% set v = u|map(attribute='role')|list %}", "{{ v[-1] }}"),
        OF("{% set u = messages|selectattr('role', 'equalto', messages[2].role|upper)|list %}", ""),
        OF("{% set u = messages|selectattr('role')|list|length + messages[2].content|length %}",
           ""),
    };
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        struct ls_chat *chat = chat_of(templates[i]);
        int made = 0;
        for (int k = 0; k < 100; k++) {
            struct draw d = {ls_philox_key_of((uint64_t)k, "fewer"), 0};
            json_t *conversation = conversation_of(&d);
            same(chat, templates[i], conversation, &made);
            json_decref(conversation);
        }
        ls_chat_free(chat);
    }
}

CASE(test_families)
{
    static const char *const names[] = {"chatml",  "gemma2", "llama2",  "llama3", "macros",
                                        "mistral", "olmo2",  "qwen2.5", "qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[100];
        size_t bytes;
        int taught = 0, made = 0;
        snprintf(path, sizeof path, "test/chat/golden/%s.jinja", names[i]);
        char *text = scratch_read(path, &bytes);
        struct ls_chat *chat = chat_of(text);
        for (int k = 0; k < 200; k++) {
            struct draw d = {ls_philox_key_of((uint64_t)k, names[i]), 0};
            json_t *conversation = conversation_of(&d);
            taught += same(chat, names[i], conversation, &made) == LS_OK;
            json_decref(conversation);
        }
        assert_true(taught > 50);
        assert_true(made == 0 ? !strcmp(names[i], "qwen3") : made > 1000);
        ls_chat_free(chat);
        free(text);
    }
}

/* ---- long ------------------------------------------------------------------------------------ */

/* The first question is one of `bytes` letters. */
static char *long_conversation(int turns, size_t bytes)
{
    json_t *messages = json_array(), *first = NULL;
    char *letters = malloc(bytes);
    assert_non_null(letters);
    memset(letters, 'q', bytes);
    first = json_stringn(letters, bytes);
    free(letters);
    for (int i = 0; i < turns; i++) {
        json_t *question = i ? json_string("q") : first;
        json_array_append_new(messages, json_pack("{ss so}", "role", "user", "content", question));
        json_array_append_new(messages,
                              json_pack("{ss ss}", "role", "assistant", "content", "answer"));
    }
    json_t *conversation = json_pack("{so}", "messages", messages);
    char *text = json_dumps(conversation, 0);
    json_decref(conversation);
    return text;
}

/* Each turn by itself would take more steps than a conversation has. */
CASE(test_long)
{
    enum { TURNS = 10000 };
    struct ls_chat *chat =
        chat_of("{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
                "{% if add_generation_prompt %}assistant:{% endif %}");
    struct ls_chat_text text = {0};
    struct ls_error error = {0};
    char *conversation = long_conversation(TURNS, 1);
    assert_ok(ls_chat_examples(chat, conversation, strlen(conversation), &text, &error), error);
    assert_int_equal(text.parts_count, 2 * TURNS);
    for (int64_t i = 0; i < text.parts_count; i++) {
        const struct ls_chat_part *part = &text.parts[i];
        size_t begin = i ? text.parts[i - 1].end : 0;
        struct chat_string shown = {text.bytes + begin, part->end - begin};
        assert_true(chat_string_is(shown, i % 2 ? "answer\n" : "user:q\nassistant:"));
        assert_int_equal(part->counts, i % 2);
        assert_int_equal(part->ends_document, i == 2 * TURNS - 1);
    }
    ls_chat_text_release(&text);
    ls_chat_free(chat);
    free(conversation);
}

/* The steps of one run that gives the texts of all turns. */
static int64_t steps_of(const struct ls_chat *chat, int turns)
{
    struct chat_conversation c;
    struct chat_prefixes prefixes = {.of = calloc(2 * (size_t)turns + 1, sizeof *prefixes.of)};
    struct ls_chat_text text = {0};
    struct ls_error error = {0};
    char *conversation = long_conversation(turns, 1);
    assert_non_null(prefixes.of);
    for (int i = 1; i <= turns; i++)
        prefixes.of[2 * i].wanted = true;
    assert_int_equal(chat_conversation_read(&c, chat, conversation, strlen(conversation), &error),
                     LS_OK);
    assert_ok(chat_conversation_render(&c, 2 * turns, false, &prefixes, &text, &error), error);
    for (int i = 1; i <= turns; i++)
        assert_true(prefixes.of[2 * i].made);
    int64_t steps = c.steps;
    free(prefixes.of);
    free(conversation);
    ls_chat_text_release(&prefixes.own);
    ls_chat_text_release(&text);
    chat_conversation_release(&c);
    return steps;
}

static void takes_linear_steps(const char *template)
{
    struct ls_chat *chat = chat_of(template);
    int64_t steps = steps_of(chat, 1000);
    assert_in_range(steps_of(chat, 2000), steps, 2 * steps + 1000);
    ls_chat_free(chat);
}

/* Twice the turns take twice the steps where a template counts the turns before it prints them, or
 * asks whether there are so many. One that goes through them again behind the text takes more for
 * each turn, and is seen to. */
CASE(test_linear)
{
    static const char *const files[] = {"test/chat/golden/mistral.jinja",
                                        "test/chat/golden/llama3.jinja"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *template = scratch_read(files[i], NULL);
        takes_linear_steps(template);
        free(template);
    }
    takes_linear_steps("{% set tools = [1] %}{% if tools and messages|length != 0 %}"
                       "{% set first, messages = messages[0], messages[1:] %}{{ first.content }};"
                       "{% endif %}{% for m in messages %}{{ m.content }}"
                       ";{% endfor %}");
    struct ls_chat *chat =
        chat_of("{% for m in messages %}{% endfor %}{% for m in messages %}{{ m.content }}"
                "{% endfor %}{% for m in messages %}{% if m.role == 'tool' %}{% endif %}"
                "{% endfor %}");
    assert_true(steps_of(chat, 400) > 3 * steps_of(chat, 200));
    ls_chat_free(chat);
}

/* The messages are read from JSON once, however many renderings there are. */
CASE(test_values_are_made_once)
{
    char *template = scratch_read("test/chat/golden/qwen3.jinja", NULL);
    char *conversation = long_conversation(50, 1000);
    struct ls_chat *chat = chat_of(template);
    struct ls_chat_text text = {0};
    struct ls_error error = {0};
    struct chat_conversation c;
    assert_int_equal(chat_conversation_read(&c, chat, conversation, strlen(conversation), &error),
                     LS_OK);
    assert_int_equal(chat_conversation_render(&c, 100, false, NULL, &text, &error), LS_OK);
    const struct chat_value *items = c.values.items;
    size_t used = c.arena.used;
    for (int64_t count = 100; count > 0; count--)
        assert_int_equal(chat_conversation_render(&c, count, true, NULL, &text, &error), LS_OK);
    assert_ptr_equal(c.values.items, items);
    assert_int_equal(c.values.count, 100);
    assert_int_equal(c.arena.used, used);
    ls_chat_text_release(&text);
    chat_conversation_release(&c);
    ls_chat_free(chat);
    free(conversation);
    free(template);
}

/* A template that looks at all messages is rendered for each turn, within a bound. */
CASE(test_bound)
{
    struct ls_chat *chat = chat_of(
        "{% if messages[-1] %}{% for i in range(1000) %}{% if 'q' in messages[0].content %}"
        "{% endif %}{% endfor %}{% endif %}{% for m in messages %}{{ m.role }}:.{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}");
    struct ls_chat_text text = {0};
    struct ls_error error = {0};
    for (int turns = 2; turns <= 140; turns += 138) {
        char *conversation = long_conversation(turns, 1 << 20);
        int status = ls_chat_examples(chat, conversation, strlen(conversation), &text, &error);
        assert_int_equal(status, turns == 2 ? LS_OK : LS_EDATA);
        free(conversation);
    }
    assert_non_null(strstr(error.text, "the template looks at the whole conversation"));
    ls_chat_text_release(&text);
    ls_chat_free(chat);
}

SUITE_MAIN(NULL, NULL)
