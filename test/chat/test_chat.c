/* Chat templates: what they print, beside transformers' Jinja (tools/golden_chat.py); what of it
 * counts; what is refused; what hostile ones may take. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/chat.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN "test/chat/golden/"
static const char tokens[] = "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";

static json_t *golden(const char *name)
{
    char path[200];
    json_error_t where;
    snprintf(path, sizeof path, GOLDEN "%s", name);
    json_t *all = json_load_file(path, JSON_ALLOW_NUL, &where);
    if (!all)
        fail_msg("%s:%d: %s", path, where.line, where.text);
    return all;
}

static struct ls_chat *chat_of(const char *name, const char *text, size_t bytes)
{
    struct ls_error error = {0};
    struct ls_chat *chat = NULL;
    if (ls_chat_new(name, text, bytes, tokens, &chat, &error))
        fail_msg("%.*s: %s", (int)bytes, text, error.text);
    return chat;
}

static struct ls_chat *family(const char *name)
{
    char path[200];
    struct ls_error error = {0};
    struct ls_chat *chat = NULL;
    size_t bytes;
    snprintf(path, sizeof path, GOLDEN "%s.jinja", name);
    char *text = scratch_read(path, &bytes);
    assert_ok(ls_chat_new(path, text, bytes, tokens, &chat, &error), error);
    free(text);
    return chat;
}

/* The template's text for the conversation is the reference's, or both refuse. */
static void same_text(const struct ls_chat *chat, const char *shown, const char *conversation,
                      bool prompt, const json_t *expected)
{
    struct ls_chat_text text = {0};
    struct ls_error error = {0};
    int status = ls_chat_render(chat, conversation, strlen(conversation), prompt, &text, &error);
    if (json_is_null(expected)) {
        if (status != LS_EDATA)
            fail_msg("%s: not refused, but \"%.*s\"", shown, (int)text.count, text.bytes);
    } else if (status) {
        fail_msg("%s: %s", shown, error.text);
    } else if (text.count != json_string_length(expected) ||
               (text.count && memcmp(text.bytes, json_string_value(expected), text.count) != 0)) {
        fail_msg("%s:\n%.*s\nexpected\n%s", shown, (int)text.count, text.bytes,
                 json_string_value(expected));
    }
    size_t end = 0;
    for (int64_t i = 0; i < text.parts_count; i++) {
        assert_true(text.parts[i].end > end);
        end = text.parts[i].end;
    }
    assert_int_equal(end, text.count);
    ls_chat_text_release(&text);
}

/* What the template prints for the conversation, or a part of why it refuses it. */
static void expect_text(const struct ls_chat *chat, const char *conversation, int status,
                        const char *expected)
{
    struct ls_chat_text text = {0};
    struct ls_error error = {0};
    int got = ls_chat_render(chat, conversation, strlen(conversation), false, &text, &error);
    bool same = text.count == strlen(expected) &&
                (!text.count || !memcmp(text.bytes, expected, text.count));
    if (got != status || !(got ? strstr(error.text, expected) != NULL : same))
        fail_msg("%s: %s \"%.*s\", expected \"%s\"", conversation, error.text, (int)text.count,
                 text.bytes, expected);
    ls_chat_text_release(&text);
}

/* The same of a template. */
static void expect_print(const char *template, const char *conversation, int status,
                         const char *expected)
{
    struct ls_chat *chat = chat_of("x", template, strlen(template));
    expect_text(chat, conversation, status, expected);
    ls_chat_free(chat);
}

CASE(test_language)
{
    json_t *all = golden("expressions.json");
    char *conversation = json_dumps(json_array_get(all, 0), JSON_ENCODE_ANY);
    for (size_t i = 1; i < json_array_size(all); i++) {
        json_t *text = json_array_get(json_array_get(all, i), 0);
        struct ls_chat *chat = chat_of("x", json_string_value(text), json_string_length(text));
        same_text(chat, json_string_value(text), conversation, false,
                  json_array_get(json_array_get(all, i), 1));
        ls_chat_free(chat);
    }
    free(conversation);
    json_decref(all);
}

CASE(test_families)
{
    json_t *all = golden("rendered.json"), *each, *texts;
    size_t i;
    const char *name;
    int64_t printed = 0;
    json_array_foreach(all, i, each)
    {
        char *conversation = json_dumps(json_object_get(each, "conversation"), 0);
        json_object_foreach(json_object_get(each, "texts"), name, texts)
        {
            struct ls_chat *chat = family(name);
            for (size_t prompt = 0; prompt < 2; prompt++) {
                char shown[100];
                snprintf(shown, sizeof shown, "%s, conversation %zu", name, i);
                same_text(chat, shown, conversation, prompt, json_array_get(texts, prompt));
                printed += !json_is_null(json_array_get(texts, prompt));
            }
            ls_chat_free(chat);
        }
        free(conversation);
    }
    assert_true(printed > 170);
    json_decref(all);
}

/* ---- what counts ----------------------------------------------------------------------------- */

/* The text with what counts in brackets, and | where a document ends. */
static void marked(const struct ls_chat_text *text, char *out, size_t size)
{
    size_t begin = 0, at = 0;
    assert_true(text->count + 4 * (size_t)text->parts_count < size);
    for (int64_t i = 0; i < text->parts_count; i++) {
        const struct ls_chat_part *part = &text->parts[i];
        at += (size_t)snprintf(out + at, size - at, "%s%.*s%s%s", part->counts ? "[" : "",
                               (int)(part->end - begin), text->bytes + begin,
                               part->counts ? "]" : "", part->ends_document ? "|" : "");
        begin = part->end;
    }
    assert_int_equal(begin, text->count);
}

/* What counts of the conversation's text, or a part of why there is none. */
static void expect_examples(const struct ls_chat *chat, const char *conversation, int status,
                            const char *expected)
{
    struct ls_chat_text text = {0};
    struct ls_error error = {0};
    char shown[1000] = "";
    int got = ls_chat_examples(chat, conversation, strlen(conversation), &text, &error);
    if (!got)
        marked(&text, shown, sizeof shown);
    if (got != status || (got ? !strstr(error.text, expected) : strcmp(shown, expected) != 0))
        fail_msg("%s: %s \"%s\", expected \"%s\"", conversation, error.text, shown, expected);
    ls_chat_text_release(&text);
}

#define CONVERSATION                                                                               \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "                                   \
    "{\"role\": \"assistant\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}, "    \
    "{\"role\": \"assistant\", \"content\": \"d\"}, {\"role\": \"user\", \"content\": \"e\"}]}"

CASE(test_what_counts)
{
    static const char *const expected[][2] = {
        {"olmo2", "<s><|user|>\na\n<|assistant|>\n[b</s>]\n"
                  "<|user|>\nc\n<|assistant|>\n[d</s>]|"},
        {"llama2", "<s>[INST] a [/INST][ b </s>]<s>[INST] c [/INST][ d </s>]|"},
        {"gemma2",
         "<s><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\n[b<end_of_turn>\n]"
         "<start_of_turn>user\nc<end_of_turn>\n<start_of_turn>model\n[d<end_of_turn>\n]|"},
        {"mistral", "<s>[INST] a[/INST][ b</s>][INST] c[/INST][ d</s>]|"},
        /* The last turn alone shows its (empty) reasoning, so each is a text of its own. */
        {"qwen3", "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
                  "[<think>\n\n</think>\n\nb<|im_end|>\n]|"
                  "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
                  "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"
                  "[<think>\n\n</think>\n\nd<|im_end|>\n]|"},
        {"marked", "<user>a\n<assistant>[b</s>\n]<user>c\n<assistant>[d</s>\n]|"},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct ls_chat *chat = family(expected[i][0]);
        struct ls_chat_text text = {0};
        struct ls_error error = {0};
        char shown[1000];
        for (int again = 0; again < 2; again++) { /* the text is used again */
            if (ls_chat_examples(chat, CONVERSATION, strlen(CONVERSATION), &text, &error))
                fail_msg("%s: %s", expected[i][0], error.text);
            marked(&text, shown, sizeof shown);
            assert_string_equal(shown, expected[i][1]);
        }
        ls_chat_text_release(&text);
        ls_chat_free(chat);
    }
}

/* The template's own variables end with the generation; one within another changes nothing; nothing
 * counts where nothing is printed. */
CASE(test_generations)
{
    static const char *const cases[][2] = {
        {"{% set x = 1 %}{% generation %}{{ x }}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
         "[12]1|"},
        {"{% for m in messages if m.role == 'assistant' %}{{ m.role[:1] }}{% generation %}"
         "{% set said = m.content %}{{ said }}{{ loop.index }}{% endgeneration %}{{ said }}"
         "{% endfor %}",
         "a[b1]a[d2]|"},
        {"x{% generation %}a{% generation %}b{% endgeneration %}c{% endgeneration %}y", "x[abc]y|"},
        {"{% generation %}a{% endgeneration %}{% generation %}b{% endgeneration %}", "[a][b]|"},
        {"{% macro f(x) %}<{{ x }}>{% endmacro %}{% generation %}{{ f(1) }}{% endgeneration %}\n",
         "[<1>]|"},
        {"a{% generation %}{% endgeneration %}{% generation %}b{% endgeneration %}", "a[b]|"},
        /* What is behind the last answer's message is left out. */
        {"{% for m in messages %}{% if m.role == 'user' %}{{ m.content }};{% else %}"
         "{% generation %}{{ m.content }}{% endgeneration %}.{% endif %}{% endfor %}",
         "a;[b].c;[d].|"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_chat *chat = chat_of("x", cases[i][0], strlen(cases[i][0]));
        expect_examples(chat, CONVERSATION, LS_OK, cases[i][1]);
        ls_chat_free(chat);
    }
}

/* What asks for a completion, and an answer of weight 0, are seen and not learned. */
CASE(test_what_does_not_count)
{
#define SAYS(role, content) "{\"role\": \"" role "\", \"content\": \"" content "\""
    static const char *const cases[][2] = {
        {"{\"messages\": [" SAYS("assistant", "a") ", \"weight\": 0}, " SAYS(
             "user", "b") "}, " SAYS("assistant",
                                     "c") ", \"weight\": 1}, " SAYS("assistant",
                                                                    "d") ", \"weight\": 0}]}",
         "assistant:a;user:b;assistant:[c;]|"},
        {"{\"prompt\": [" SAYS("assistant", "a") "}, " SAYS(
             "user", "b") "}], \"completion\": [" SAYS("assistant",
                                                       "c") "}, " SAYS("user",
                                                                       "d") "}, " SAYS("assistant",
                                                                                       "e") "}]}",
         "assistant:a;user:b;assistant:[c;]user:d;assistant:[e;]|"},
        {"{\"images\": [], \"image\": null, \"messages\": [" SAYS("assistant", "c") "}]}",
         "assistant:[c;]|"},
    };
    static const char talk[] = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
                               "{% if add_generation_prompt %}assistant:{% endif %}";
    struct ls_chat *chat = chat_of("x", talk, strlen(talk));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_examples(chat, cases[i][0], LS_OK, cases[i][1]);
    expect_text(chat, cases[1][0], LS_OK, "assistant:a;user:b;");
    ls_chat_free(chat);
    /* Where the template marks what counts, of that what lies behind the prompt. */
    static const char *const marked[][2] = {
        {"{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}"
         "{{ m.content }};{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}"
         "{% if add_generation_prompt %}assistant:{% endif %}",
         "assistant:a;user:b;assistant:[c;]user:d;assistant:[e;]|"},
        {"{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}=\xc3\xa9"
         "{{ m.content }};{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}"
         "{% if add_generation_prompt %}=\xc3\xa8{% endif %}",
         "=\xc3\xa9"
         "a;b;=[\xc3\xa9"
         "c;]d;[=\xc3\xa9"
         "e;]|"},
    };
    for (size_t i = 0; i < sizeof marked / sizeof *marked; i++) {
        chat = chat_of("x", marked[i][0], strlen(marked[i][0]));
        expect_examples(chat, cases[1][0], LS_OK, marked[i][1]);
        ls_chat_free(chat);
    }
}

#define ANSWERED "\"messages\": [" SAYS("assistant", "a") "}]"

CASE(test_bad_conversations)
{
    static const char *const bad[][3] = {
        {"chatml", "[]", "expected {\"messages\""},
        {"chatml", "{\"messages\": ", "column 13"},
        {"chatml", "{\"messages\": []}", "\"messages\" is empty: expected one at least"},
        {"chatml", "{\"messages\": {}}", "expected {\"messages\""},
        {"chatml", "{\"messages\": [1]}", "message 1: expected an object with a string \"role\""},
        {"chatml", "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}",
         "no message has the role \"assistant\""},
        {"chatml", "{\"conversations\": [], \"id\": 7}",
         "the record has \"conversations\", \"id\": expected {\"messages\""},
        {"chatml", "{\"prompt\": [], \"completion\": []}", "\"prompt\", \"completion\": expected"},
        {"chatml", "{\"images\": [\"a.png\"], " ANSWERED "}", "the record has images: only text"},
        {"chatml", "{\"audio\": {}, " ANSWERED "}", "the record has audios: only text"},
        {"chatml",
         "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
         "\"a\"}, "
         "{\"type\": \"input_image\"}]}]}",
         "message 1: its content has a part of type input_image: only text"},
        {"chatml", "{\"tools\": {}, " ANSWERED "}",
         "\"tools\" is no list: expected a list of objects, or a string of JSON with that"},
        {"chatml", "{\"tools\": [{}, \"{}\"], " ANSWERED "}",
         "\"tools\": element 2 is no object: expected a list of objects"},
        {"chatml", "{\"tools\": \"[1]\", " ANSWERED "}", "\"tools\": element 1 is no object"},
        {"chatml", "{\"tools\": \"[{]\", " ANSWERED "}", "\"tools\": column 3 of the string: "},
        {"chatml", "{\"messages\": [" SAYS("assistant", "a") ", \"weight\": 0.5}]}",
         "message 1: weight: expected 0 or 1"},
        {"chatml", "{\"messages\": [" SAYS("assistant", "a") ", \"weight\": 0}]}",
         "no message has the role \"assistant\" and counts"},
        {"marked",
         "{\"messages\": [" SAYS("assistant", "a") ", \"weight\": 0}, " SAYS("assistant",
                                                                             "b") "}]}",
         "message 1: it is not to be learned, and the template's {% generation %}"},
        {"chatml", "{\"messages\": [{\"role\": \"assistant\", \"content\": 1}]}",
         "+ cannot be used between two values, an integer and a string"},
        {"llama2",
         "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, "
         "{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": "
         "\"x\"}]}",
         "llama2.jinja:1:491: the template refuses the conversation: a user and an assistant"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ls_chat *chat = family(bad[i][0]);
        expect_examples(chat, bad[i][1], LS_EDATA, bad[i][2]);
        ls_chat_free(chat);
    }
    /* A prompt that the turn does not begin with. */
    const char *thinks = "{% for m in messages %}{{ m.content }}{% endfor %}"
                         "{% if add_generation_prompt %}<think>{% endif %}";
    struct ls_chat *chat = chat_of("x", thinks, strlen(thinks));
    expect_examples(chat, CONVERSATION, LS_EDATA,
                    "message 2: the template's prompt for this turn is not how");
    ls_chat_free(chat);
}

/* Records of tables and of clients' libraries have every key, and other names for a thought. */
CASE(test_null_and_other_names)
{
    static const char keys[] = "{% for m in messages %}{% if 'tool_calls' in m %}calls{% endif %}"
                               "{{ m.reasoning_content }}<{{ m.content }}>{{ m.thinking }}"
                               "{% endfor %}";
    static const char *const cases[][2] = {
        {"{\"role\": \"assistant\", \"content\": null, \"tool_calls\": null}", "<>"},
        {"{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": []}", "calls<a>"},
        {"{\"role\": \"assistant\", \"content\": \"a\", \"thinking\": \"b\"}", "b<a>b"},
        {"{\"role\": \"assistant\", \"content\": \"a\", \"reasoning\": \"b\"}", "b<a>b"},
        {"{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": \"c\", "
         "\"thinking\": "
         "\"b\"}",
         "c<a>b"},
        {"{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": \"c\"}", "c<a>c"},
    };
    struct ls_chat *chat = chat_of("x", keys, strlen(keys));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char record[300];
        snprintf(record, sizeof record, "{\"messages\": [%s]}", cases[i][0]);
        expect_text(chat, record, LS_OK, cases[i][1]);
    }
    ls_chat_free(chat);
}

/* Tools come as a list, or as a string of JSON with one. */
CASE(test_tools)
{
    static const char template[] =
        "{% if tools %}{% for t in tools %}{{ t.name }};{% endfor %}{% endif %}{{ tools is none }}";
    static const char *const cases[][2] = {
        {"[{\"name\": \"f\"}, {\"name\": \"g\"}]", "f;g;False"},
        {"\"[{\\\"name\\\": \\\"f\\\", \\\"most\\\": 18446744073709551616}]\"", "f;False"},
        {"\" [{\\\"name\\\": \\\"\\\\u00e9\\\"}] \"", "\xc3\xa9;False"},
        {"\"[]\"", "False"},
        {"\"null\"", "True"},
        {"\"\"", "True"},
        {"null", "True"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char record[300];
        snprintf(record, sizeof record, "{\"tools\": %s, " ANSWERED "}", cases[i][0]);
        expect_print(template, record, LS_OK, cases[i][1]);
    }
}

/* A null is absent for templates that ask whether a key is there, and none for those that ask
 * whether its value is. */
CASE(test_null_is_none)
{
    static const char record[] =
        "{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [1]}, "
        "{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": null, "
        "\"x\": {\"y\": null}}]}";
    static const char *const cases[][2] = {
        {"{% for m in messages %}{% if m.content is none %}calls{% endif %}{% if m['content'] is "
         "not "
         "none %}{{ m.content }}{% endif %}{% endfor %}",
         "callsa"},
        {"{% for m in messages %}{% if m.tool_calls is defined and m.tool_calls is not none %}1"
         "{% endif %}{% if m.tool_calls is not none %}2{% endif %}{{ m.tool_calls == none }}"
         "{% endfor %}",
         "12FalseTrue"},
        {"{{ 'content' in messages[0] }}{{ messages[0].content is defined }}{{ messages[0].content "
         "}}"
         "{{ messages[0].get('content') is none }}{{ messages[0].nope is none }}",
         "FalseFalseTrueFalse"},
        {"{{ messages[1] | tojson }}{{ messages[1].x.y }}{{ messages[1].x.y is defined }}",
         "{\"role\": \"assistant\", \"content\": \"a\", \"x\": {\"y\": null}}NoneTrue"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_print(cases[i][0], record, LS_OK, cases[i][1]);
}

/* A template cannot print an integer that int64 does not hold; what it does not print may be one.
 */
CASE(test_large_integers)
{
    static const char plain[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    struct ls_chat *chat = chat_of("x", plain, strlen(plain));
    expect_examples(chat,
                    "{\"id\": 18446744073709551616, \"messages\": "
                    "[{\"role\": \"assistant\", \"content\": \"x\"}]}",
                    LS_OK, "[x]|");
    expect_examples(
        chat, "{\"messages\": [{\"role\": \"assistant\", \"content\": 18446744073709551616}]}",
        LS_EDATA, "a number of 2^63 or more: expected");
    ls_chat_free(chat);
}

/* As Python has it, to the last digit; what is not computed so is refused. */
CASE(test_arithmetic)
{
    static const char *const cases[][2] = {
        {"{{ 1e3 // 0.1 }}", "9999.0"},
        {"{{ -(3 // 0.1) }}", "-29.0"},
        {"{{ -0.5 % 1e-5 }}", "4.0901526957015655e-17"},
        {"{{ true % 1e-5 }}", "9.999999999918198e-06"},
        {"{{ 7.5 % -2 }} {{ -7.5 // 2 }}", "-0.5 -4.0"},
        {"{{ 1 % -0.5 }} {{ -(1 // 1e3) }} {{ +(1 % -0.5) }}", "-0.0 -0.0 -0.0"},
        {"{{ 1e16 is divisibleby 3 }} {{ 9.0 is divisibleby 3 }}", "False True"},
        {"{{ 9007199254740993 == 9007199254740992.0 }}", "False"},
        {"{{ 9007199254740993 > 9007199254740992.0 }}", "True"},
        {"{{ 9007199254740992.0 >= 9007199254740993 }}", "False"},
        {"{{ 2 < 2.5 }} {{ -2 <= -2.5 }} {{ 3 == 3.0 }} {{ 5 < 1e300 }}", "True False True True"},
        {"{{ range(3)|list }} {{ range(5)[1:3]|list }} {{ range(3)[1] }}", "[0, 1, 2] [1, 2] 1"},
        {"{{ range(3) == [0, 1, 2] }} {{ range(3) == range(3) }} {{ 2 in range(3) }}",
         "False True True"},
        {"{{ range(2) is sequence }} {{ range(2)|length }}", "True 2"},
        {"{{ ['<'|safe, '<'] }}", "[Markup('<'), '<']"},
        {"{{ ['<'|safe]|tojson }} {{ ['a'|safe]|join }}", "[\"<\"] a"},
    };
    static const char *const bad[][2] = {
        {"{{ 9007199254740993 / 3 }}", "x:1:21: / of an integer of more than 53 bits"},
        {"{{ range(3) }}", "what range and filters such as map"},
        {"{{ [range(3)]|tojson }}", "has no text: expected |list behind it"},
        {"{{ [0] + range(3) }}", "+ cannot be used between two values"},
        {"{{ {'a': 1} in {'b': 2} }}", "a mapping cannot be a key"},
        {"{{ 1 < [] }}", "x:1:6: an integer and a list have no order"},
        {"{{ 5|length }}", "an integer has no length"},
        {"{{ 'a'|int(1, 2, 3, 4) }}", "int takes at most "},
        {"{{ nope.strip() }}", "nope is undefined, so it has no strip()"},
        {"{{ messages[9].content.strip() }}", "an element behind the last is undefined: expected"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_print(cases[i][0], CONVERSATION, LS_OK, cases[i][1]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_print(bad[i][0], CONVERSATION, LS_EDATA, bad[i][1]);
}

/* Letters whose case is not one letter, or not always the same. */
CASE(test_letters_that_have_no_case)
{
    static const char *const bad[][2] = {
        {"{{ 'a\xc4\xb0'|lower }}", "x:1:10: the letter U+0130 cannot be made lower case here"},
        {"{{ '\xce\xa3'.lower() }}", "the letter U+03A3 cannot be made lower case here"},
        {"{{ ['\xce\xa3', 'a']|sort }}", "the letter U+03A3 cannot be made lower case here"},
        {"{{ '\xc3\x9f'|upper }}", "letters outside ASCII cannot be made upper case here"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_print(bad[i][0], CONVERSATION, LS_EDATA, bad[i][1]);
}

/* Jinja would escape the other string as if it were HTML. */
CASE(test_safe_beside_plus)
{
    expect_print("{{ '<' + ('a'|safe) }}", CONVERSATION, LS_EDATA,
                 "x:1:8: + beside what |safe gave");
}

/* strftime_now is there on a day that is given, and formats it as Python does. */
CASE(test_dates)
{
    static const char *const cases[][3] = {
        {"2024-02-29", "%d %B %Y, %a %A %b, %Y-%m-%d, %-d.%-m.%y, %j %U %W %V %u %w, %H:%M:%S %p%%",
         "29 February 2024, Thu Thursday Feb, 2024-02-29, 29.2.24, 060 08 09 09 4 4, 00:00:00 AM%"},
        {"2026-11-05", "%B %d, %Y|%e|%D|%F|%T|%x|%c|",
         "November 05, 2026| 5|11/05/26|2026-11-05|"
         "00:00:00|11/05/26|Thu Nov  5 00:00:00 2026|"},
        {"1999-12-31", "", ""},
        {"1999-12-31", "%Z", NULL},
        {"1999-12-31", "%f", NULL},
        {"1999-12-31", "%", NULL},
        {"1999-12-31", "%-", NULL},
        {"1999-12-31", "%Ey", NULL},
    };
    static const char *const bad[] = {"",          "today",       "2026-02-29", "2026-13-01",
                                      "2026-1-01", "2026-01-01 ", "26-01-01"};
    struct ls_error error = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char template[200];
        snprintf(template, sizeof template, "{{ strftime_now('%s') }}{{ strftime_now is defined }}",
                 cases[i][1]);
        struct ls_chat *chat = chat_of("x", template, strlen(template));
        expect_text(chat, CONVERSATION, LS_EDATA, "x:1:4: strftime_now is not defined, because");
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
            assert_int_equal(ls_chat_date_set(chat, bad[k], &error), LS_ECONFIG);
        assert_non_null(strstr(error.text, "26-01-01: expected a day such as 2026-11-25"));
        assert_int_equal(ls_chat_date_set(chat, cases[i][0], &error), LS_OK);
        snprintf(template, sizeof template, "%sTrue", cases[i][2] ? cases[i][2] : "");
        expect_text(chat, CONVERSATION, cases[i][2] ? LS_OK : LS_EDATA,
                    cases[i][2] ? template : "");
        ls_chat_free(chat);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

CASE(test_refused_templates)
{
    static const char *const bad[][2] = {
        {"a\n{% call f(x) %}{% endcall %}", "x:2:4: the tag \"call\" is not supported"},
        {"{% for a in b %}{% macro f(x) %}{% endmacro %}{% endfor %}",
         "x:1:20: a macro within a loop, a macro, a generation or a set is not supported"},
        {"{% set a %}{% macro f(x) %}{% endmacro %}{% endset %}",
         "x:1:15: a macro within a loop, a macro, a generation or a set is not supported"},
        {"{% generation %}{% macro f(x) %}{% endmacro %}{% endgeneration %}",
         "x:1:20: a macro within a loop, a macro, a generation or a set is not supported"},
        {"{% macro f(a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q) %}{% endmacro %}",
         "more than 16 arguments"},
        {"{% macro f(a=1, b) %}{% endmacro %}",
         "x:1:17: a parameter without a default behind one with a default"},
        {"{% macro f(a, b, a=1) %}{% endmacro %}", "x:1:18: the parameter \"a\" already exists"},
        {"{% macro f(a) %}{{ varargs }}{% endmacro %}",
         "x:1:20: a macro's variable \"varargs\" is not supported"},
        {"{% macro f(caller) %}{{ caller }}{{ kwargs.a }}{% endmacro %}",
         "x:1:37: a macro's variable \"kwargs\" is not supported"},
        {"{{ '\\N{DASH}' }}", "x:1:5: names of characters are not supported: write \\u...."},
        {"{% for a in b %}{% endfor %}{% macro f() %}{% break %}{% endmacro %}",
         "there is no loop to break or to continue"},
        {"{% include 'x' %}", "the tag \"include\" is not supported: expected if, for, set"},
        {"{{ a|groupby }}", "x:1:6: the filter \"groupby\" is not supported"},
        {"{{ a is callable }}", "x:1:9: the test \"callable\" is not supported"},
        {"{{ a.__class__ }} {{ a.mro() }}", "x:1:24: the method \"mro\" is not supported"},
        {"{{ 2 ** 3 }}", "x:1:6: the operator \"**\" is not supported"},
        {"{{ f(*a) }}", "an argument that begins with \"*\" is not supported"},
        {"{{ (f)(1) }}", "f"},
        {"{{ a[0](1) }}", "x:1:8: a call of something that has no name is not supported"},
        {"{% for x in a recursive %}{% endfor %}", "\"recursive\" is not supported"},
        {"{% if a %}", "x:1:4: \"if\" has no end: expected {% endif %}"},
        {"{% for a in b %}{% if c %}{% endfor %}", "\"endfor\" is out of place"},
        {"{% endif %}", "\"endif\" is out of place"},
        {"{% if %}x{% endif %}", "x:1:7: expected an expression, found the end of the tag"},
        {"{{ a b }}", "x:1:6: expected the end of the tag, found b"},
        {"{{ 'a }}", "x:1:4: the string has no end '"},
        {"{{ a", "x:1:5: the template ends within a tag: expected }}"},
        {"x {# a", "x:1:3: the comment has no end"},
        {"{{ a ! }}", "x:1:6: a character that has no meaning here"},
        {"{{ \xc3\xa9 }}", "x:1:4: a character that has no meaning here"},
        {"{{ '\\xg1' }}", "\\x needs 2 hexadecimal digits"},
        {"{{ '\\ud800' }}", "no character has this number"},
        {"{{ 99999999999999999999 }}", "x:1:4: a number that does not fit 64 bits"},
        {"{{ 12abc }}", "a number that does not fit 64 bits, or is"},
        {"{{ f(a=1, 2) }}", "an argument without a name behind one with a name"},
        {"{{ f(1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17) }}", "more than 16 arguments"},
        {"{% break %}", "there is no loop to break or to continue"},
        {"{{ a[] }}", "expected an index within the brackets"},
        {"{% set 1 = 2 %}", "x:1:8: expected a name, found 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ls_chat *chat = NULL;
        struct ls_error error = {0};
        int status = ls_chat_new("x", bad[i][0], strlen(bad[i][0]), NULL, &chat, &error);
        if (!strcmp(bad[i][1], "f")) { /* brackets around a name change nothing */
            assert_int_equal(status, LS_OK);
            ls_chat_free(chat);
            continue;
        }
        if (status != LS_EDATA || !strstr(error.text, bad[i][1]))
            fail_msg("%s: %s, \"%s\" does not contain \"%s\"", bad[i][0], ls_status_name(status),
                     error.text, bad[i][1]);
        assert_null(chat);
    }
}

static char *repeat(const char *text, size_t times, const char *last)
{
    size_t bytes = strlen(text);
    char *out = malloc(bytes * times + strlen(last) + 1);
    assert_non_null(out);
    for (size_t i = 0; i < times; i++)
        memcpy(out + i * bytes, text, bytes);
    strcpy(out + bytes * times, last);
    return out;
}

/* Each operation on a long string, a million times: what it does costs its bytes, whatever it is.
 */
CASE(test_every_operation_costs)
{
    static const char *const operations[] = {"s.find('y')",
                                             "s.startswith(s)",
                                             "s.find('y')",
                                             "s.startswith(s)",
                                             "s < s ~ ''",
                                             "s.endswith(s)",
                                             "s.strip('x')",
                                             "s.strip()",
                                             "s.count('y')",
                                             "s.split('y')",
                                             "s|length",
                                             "s|trim",
                                             "'y' in s",
                                             "[s]|map(attribute=t)|list|length",
                                             "s|tojson(true)|length",
                                             "[s]|string|length",
                                             "s == t",
                                             "s > t",
                                             "s[-1]",
                                             "s[5:7]",
                                             "s|float(0)",
                                             "[s, t]|sort|length",
                                             "{s: 1, t ~ 'x': 2}|dictsort|length",
                                             "s.lower()|length",
                                             "s.rstrip()",
                                             "s.rfind('y')",
                                             "s is in [t]",
                                             "s is eq t",
                                             "('y', s) is in [t]",
                                             "s|first",
                                             "s|last",
                                             "[s, s]|join|length",
                                             "s.replace('y', 'z')|length",
                                             "s.isdigit()",
                                             "s.upper()|length",
                                             "s|title|length"};
    static const char frame[] = "{%% set s = 'x' * 1000000 %%}{%% set t = 'x' * 1000000 %%}"
                                "{%% set digits = '1' * 1000000 %%}"
                                "{%% for i in range(1000000) %%}{%% set y = %s %%}{%% endfor %%}";
    int refused = 0, count = (int)(sizeof operations / sizeof *operations);
    for (int i = 0; i < (check_all() ? count : 2); i++) {
        char text[400];
        struct ls_chat *chat = NULL;
        struct ls_chat_text out = {0};
        struct ls_error error = {0};
        snprintf(text, sizeof text, frame, operations[i]);
        if (ls_chat_new("x", text, strlen(text), NULL, &chat, &error))
            continue; /* not an operation here */
        int status = ls_chat_render(chat, CONVERSATION, strlen(CONVERSATION), true, &out, &error);
        refused++;
        if (status != LS_EDATA)
            fail_msg("%s: %s %s", operations[i], ls_status_name(status), error.text);
        ls_chat_text_release(&out);
        ls_chat_free(chat);
    }
    print_message("%d operations on a long string\n", refused);
    assert_true(refused >= 2);
}

/* Templates that would take for ever, or everything. */
CASE(test_hostile_templates)
{
    static const char *const loops[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(1000000000000) %}{% endfor %}",
        "{% set ns = namespace(x='x') %}{% for a in range(64) %}{% set ns.x = ns.x + ns.x %}"
        "{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for a in range(64) %}{% set ns.x = ns.x + ns.x %}"
        "{% endfor %}",
        "{{ 'x' * 1000000000000 }}",
        "{% set ns = namespace(x=[]) %}{% for a in range(1000) %}{% set ns.x = [ns.x] %}"
        "{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[], y=[]) %}{% for a in range(1000) %}{% set ns.x = [ns.x, ns.x] "
        "%}"
        "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
        "{% set ns = namespace(x=[], y=[]) %}{% for a in range(100) %}{% set ns.x = [ns.x, ns.x] %}"
        "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
        "{% set ns = namespace(x=[]) %}{% for a in range(100) %}{% set ns.x = [ns.x, ns.x] %}"
        "{% endfor %}{{ ns.x }}",
        "{% for a in range(100000) %}{{ 'x' * 10000 }}{% endfor %}",
        "{{ [1]|tojson(indent=100000000)|indent(1000000000) }}",
        "{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ ns.x.x.x.x == ns }}{{ ns }}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(x) %}{{ g(x) }}{% endmacro %}{% macro g(x) %}{{ f(x) }}{% endmacro %}{{ f(1) "
        "}}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) "
        "}}",
        "{% macro f(n, m=n and f(n - 1) ~ f(n - 1)) %}{% endmacro %}{{ f(60) }}",
        "{% macro f(n) %}xx{% if n %}{% set y = f(n - 1) %}{{ y ~ y }}{% endif %}{% endmacro %}"
        "{{ f(40) }}",
        "{% macro f() %}{% for a in range(100000) %}{% endfor %}{% endmacro %}"
        "{% for a in range(100000) %}{{ f() }}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i += (size_t)check_every(3, 3)) {
        struct ls_chat *chat = chat_of("x", loops[i], strlen(loops[i]));
        struct ls_chat_text text = {0};
        struct ls_error error = {0};
        int status = ls_chat_render(chat, CONVERSATION, strlen(CONVERSATION), true, &text, &error);
        if (status != LS_EDATA)
            fail_msg("%s: %s", loops[i], ls_status_name(status));
        ls_chat_text_release(&text);
        ls_chat_free(chat);
    }
}

/* Templates that are nested deep, or large. */
CASE(test_deep_templates)
{
    static const char *const deep[][2] = {
        {"{{ ", "("},
        {"{{ ", "["},
        {"{{ ", "-"},
        {"{{ ", "not "},
        {"{{ a", ".a"},
        {"{{ a", "[0]"},
        {"{{ 1", " + 1"},
        {"{{ a", "|trim"},
        {"{{ a", " or a"},
        {"{{ ", "{1:"},
        {"", "{% if a %}"},
        {"", "{% for a in b %}"},
        {"{{ a", " if a else a"},
        {"{{ a ", "is a "},
    };
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
        struct ls_chat *chat = NULL;
        struct ls_error error = {0};
        char *middle = repeat(deep[i][1], 50000, " }}");
        char *text = repeat(deep[i][0], 1, middle);
        int status = ls_chat_new("x", text, strlen(text), NULL, &chat, &error);
        if (status != LS_EDATA)
            fail_msg("%s%s...: %s", deep[i][0], deep[i][1], ls_status_name(status));
        free(middle);
        free(text);
    }
    char *large = repeat("x", LS_CHAT_TEMPLATE_BYTES_MAX + 1, "");
    struct ls_chat *chat = NULL;
    struct ls_error error = {0};
    assert_int_equal(ls_chat_new("x", large, strlen(large), NULL, &chat, &error), LS_EDATA);
    free(large);
}

/* ---- where templates lie --------------------------------------------------------------------- */

#define WITH_TOOLS "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": []}"

static void opens_for(const char *conversation, const char *directory, const char *file,
                      const char *expected)
{
    struct ls_chat *chat = NULL;
    struct ls_chat_text text = {0};
    struct ls_error error = {0};
    int status = ls_chat_open(directory, file, &chat, &error);
    if (!status)
        status = ls_chat_render(chat, conversation, strlen(conversation), false, &text, &error);
    const char *got = status ? error.text : text.bytes;
    size_t count = status ? strlen(error.text) : text.count;
    if (status ? !strstr(got, expected)
               : count != strlen(expected) || memcmp(got, expected, count) != 0)
        fail_msg("\"%.*s\", expected \"%s\"", (int)count, got, expected);
    ls_chat_text_release(&text);
    ls_chat_free(chat);
}

static void opens(const char *directory, const char *file, const char *expected)
{
    opens_for(CONVERSATION, directory, file, expected);
}

static void config_write(const char *directory, const char *text)
{
    scratch_write(scratch_path(directory, "tokenizer_config.json"), text, strlen(text));
}

/* A stranger's folder does not lead out of itself. */
CASE_WITH(test_links_stay_in_the_folder, scratch_setup, scratch_teardown)
{
    static const char *const names[] = {"tokenizer_config.json", "chat_template.jinja"};
    char folder[300], secret[300];
    snprintf(folder, sizeof folder, "%s", scratch_path(*state, "linked"));
    snprintf(secret, sizeof secret, "%s", scratch_path(*state, "secret"));
    assert_int_equal(mkdir(folder, 0700), 0);
    scratch_write(secret, "{}", 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(symlink(secret, scratch_path(folder, names[i])), 0);
        opens(folder, NULL, "secret, which is not in the folder: put a copy in its place");
        assert_int_equal(unlink(scratch_path(folder, names[i])), 0);
    }
}

CASE_WITH(test_folders, scratch_setup, scratch_teardown)
{
    const char *folder = *state;
    char file[300], template[300];
    snprintf(template, sizeof template, "%s/chat_template.jinja", folder);
    snprintf(file, sizeof file, "%s/own.jinja", folder);
    opens(folder, NULL, "no chat template: expected chat_template.jinja, or chat_template in");
    opens(folder, file, "own.jinja");
    config_write(folder, "{\"bos_token\": {\"content\": \"<B>\", \"lstrip\": false}, "
                         "\"eos_token\": \"<E>\", \"pad_token\": null, \"x\": 1, "
                         "\"chat_template\": \"{{ bos_token ~ eos_token ~ pad_token }}1\"}");
    opens(folder, NULL, "<B><E>1");
    config_write(folder, "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"t\"}, "
                         "{\"name\": \"default\", \"template\": \"d{{ bos_token }}\"}]}");
    opens(folder, NULL, "d");
    opens_for(WITH_TOOLS, folder, NULL, "t");
    config_write(folder, "{\"chat_template\": {\"tool_use\": \"t\", \"default\": \"d\"}}");
    opens(folder, NULL, "d");
    opens_for(WITH_TOOLS, folder, NULL, "t");
    config_write(folder, "{\"chat_template\": {\"rag\": \"t\"}}");
    opens(folder, NULL, "named \"default\" or \"tool_use\": choose one of rag");
    config_write(folder, "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"t\"}]}");
    opens_for(WITH_TOOLS, folder, NULL, "t");
    opens(folder, NULL, "the only template is \"tool_use\", and the conversation has no tools");
    char map[300]; /* over tokenizer_config.json, unless that has all added tokens */
    snprintf(map, sizeof map, "%s/special_tokens_map.json", folder);
    static const char named[] = "{\"eos_token\": \"<M>\", \"bos_token\": null}";
    scratch_write(map, named, sizeof named - 1);
    config_write(folder, "{\"bos_token\": \"<B>\", \"eos_token\": \"<E>\", "
                         "\"chat_template\": \"{{ bos_token ~ eos_token }}\"}");
    opens(folder, NULL, "<B><M>");
    config_write(folder, "{\"eos_token\": \"<E>\", \"added_tokens_decoder\": {}, "
                         "\"chat_template\": \"{{ bos_token ~ eos_token }}\"}");
    opens(folder, NULL, "<E>");
    scratch_write(map, "{\"eos_token\": 5}", 16);
    config_write(folder, "{\"chat_template\": \"t\"}");
    opens(folder, NULL, "special_tokens_map.json: eos_token: expected a token's text");
    assert_int_equal(unlink(map), 0);
    config_write(folder, "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"t\"}]}");
    opens(folder, NULL, "none of its chat templates is named \"default\"");
    config_write(folder, "{\"chat_template\": 1}");
    opens(folder, NULL, "tokenizer_config.json: chat_template: expected a string");
    config_write(folder, "{\"chat_template\": \"{{ a|nope }}\"}");
    opens(folder, NULL, "tokenizer_config.json: chat_template:1:6: the filter \"nope\"");
    config_write(folder, "{\"chat_template\"");
    opens(folder, NULL, "tokenizer_config.json:1:");
    config_write(folder, "[]");
    opens(folder, NULL, "expected an object");
    config_write(folder, "{\"bos_token\": \"<B>\", \"chat_template\": \"no\"}");
    scratch_write(template, "{{ bos_token }}2", 16); /* newer, and so first */
    opens(folder, NULL, "<B>2");
    opens_for(WITH_TOOLS, folder, NULL, "<B>2");
    assert_int_equal(mkdir(scratch_path(folder, "additional_chat_templates"), 0700), 0);
    scratch_write(scratch_path(folder, LS_CHAT_TOOLS_FILE), "{{ bos_token }}4", 16);
    opens_for(WITH_TOOLS, folder, NULL, "<B>4");
    opens_for("{\"messages\": [{\"role\": \"user\"}], \"tools\": null}", folder, NULL, "<B>2");
    assert_int_equal(unlink(template), 0);
    opens_for(WITH_TOOLS, folder, NULL, "<B>4");
    opens(folder, NULL, "tool_use.jinja: the only template is \"tool_use\"");
    scratch_write(template, "{{ bos_token }}2", 16);
    scratch_write(file, "{{ bos_token }}3", 16);
    opens(folder, file, "<B>3");
    opens_for(WITH_TOOLS, folder, file, "<B>3");
    opens(NULL, file, "3");
}

/* transformers has tokens by the class of the tokenizer, which follows from config.json too. */
CASE_WITH(test_tokens_that_no_file_says, scratch_setup, scratch_teardown)
{
    const char *folder = *state, *refused = "reads eos_token, and tokenizer_config.json does not";
    scratch_write(scratch_path(folder, "chat_template.jinja"), "x{{ eos_token }}", 16);
    opens(folder, NULL, "x");
    config_write(folder, "{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}");
    opens(folder, NULL, "x");
    config_write(folder, "{\"tokenizer_class\": \"GemmaTokenizerFast\"}");
    opens(folder, NULL, refused);
    config_write(folder, "{\"tokenizer_class\": \"GPT2Tokenizer\", \"eos_token\": null}");
    opens(folder, NULL, "x");
    config_write(folder, "{}");
    opens(folder, NULL, "x");
    scratch_write(scratch_path(folder, "config.json"), "{\"model_type\": \"olmo2\"}", 23);
    opens(folder, NULL, "x");
    scratch_write(scratch_path(folder, "config.json"), "{\"model_type\": \"qwen2\"}", 23);
    opens(folder, NULL, refused);
    config_write(folder, "{\"eos_token\": \"<E>\"}");
    opens(folder, NULL, "x<E>");
}

/* transformers takes the name of a template in the place of its text. */
CASE_WITH(test_templates_have_names, scratch_setup, scratch_teardown)
{
    const char *folder = *state;
    config_write(folder, "{\"chat_template\": {\"rag\": \"r\", \"default\": \"d\"}}");
    opens(folder, "rag", "r");
    opens_for(WITH_TOOLS, folder, "rag", "r");
    opens(folder, "default", "d");
    opens(folder, "tools", "tools: no such file, and no such template of ");
    opens(folder, "tools", "which has default, rag");
    config_write(folder, "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}]}");
    opens(folder, "rag", "r");
    config_write(folder, "{\"chat_template\": {\"Makefile\": \"m\"}}");
    opens(folder, "Makefile", "Makefile is a file here and the name of a template of ");
    assert_int_equal(mkdir(scratch_path(folder, LS_CHAT_FOLDER), 0700), 0);
    scratch_write(scratch_path(folder, LS_CHAT_FOLDER "/rag.jinja"), "R", 1);
    opens(folder, "rag", "R");
    opens(folder, NULL, "choose one of rag");
    scratch_write(scratch_path(folder, "chat_template.jinja"), "D", 1);
    opens(folder, NULL, "D");
    opens(folder, "x", "which has default, rag");
}

SUITE_MAIN(NULL, NULL)
