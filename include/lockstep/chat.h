/* lockstep/chat.h - conversations to texts, by the chat templates of Hugging Face's tokenizers.
 *
 * A model that answers has learned texts of one form: which words, or special tokens, stand around
 * a message, and who says it. The form is a chat template, a program in Jinja's language that lies
 * with the model's tokenizer (tokenizer_config.json, or chat_template.jinja beside it).
 *
 *     struct ls_chat *chat;
 *     ls_chat_open("models/qwen2.5", NULL, &chat, &error);
 *     struct ls_chat_text text = {0};
 *     ls_chat_render(chat, "{\"messages\": [...]}", bytes, true, &text, &error);   // to answer
 *     ls_chat_examples(chat, "{\"messages\": [...]}", bytes, &text, &error);       // to learn from
 *     ls_chat_text_release(&text);
 *     ls_chat_free(chat);
 *
 * What a template may hold is in doc/fine-tuning.md. What is not supported is refused by name, with
 * line and column, when the template is read. A template is a program of strangers: its time,
 * memory and depth are bounded, and it can do nothing but make a text. Everything here is Local.
 */
#ifndef LOCKSTEP_CHAT_H
#define LOCKSTEP_CHAT_H

#include <lockstep/base.h>

#include <limits.h>

LS_C_BEGIN

/* A template and the special tokens that it prints. Immutable: any number of threads may use one.
 */
struct ls_chat;

/* A text in parts: part i is bytes [end of the one before, parts[i].end). Starts from {0}. */
struct ls_chat_text {
    char *bytes; /* UTF-8, not terminated */
    size_t count, capacity;
    struct ls_chat_part {
        size_t end;
        bool counts;        /* the model says this: it is what an example teaches */
        bool ends_document; /* the next part begins another text */
    } * parts;
    int64_t parts_count, parts_room;
};
void ls_chat_text_release(struct ls_chat_text *text);

/* What the files of a folder say of a tokenizer's tokens, as one object: tokenizer_config.json and,
 * unless it has added_tokens_decoder, special_tokens_map.json over it and added_tokens.json as
 * added_tokens_decoder. transformers reads them so. *out is to be released with json_decref, NULL
 * if there is none of the files; path = the first that is there, for errors. LS_EDATA for what is
 * no object or no id; LS_EIO if a file leads out of the folder. */
struct json_t;
int ls_tokenizer_settings_read(const char *directory, char path[PATH_MAX], struct json_t **out,
                               struct ls_error *error);

enum { LS_CHAT_TEMPLATE_BYTES_MAX = 1 << 20 };
/* In a folder, the template of conversations with tools. */
#define LS_CHAT_FOLDER     "additional_chat_templates"
#define LS_CHAT_TOOLS_FILE LS_CHAT_FOLDER "/tool_use.jinja"
/* What a folder has beside chat_template.jinja: the names LS_CHAT_FOLDER "/NAME.jinja", in order,
 * as a list of strings that is to be released with json_decref. */
struct json_t *ls_chat_files(const char *directory);
/* directory holds tokenizer_config.json: its chat_template, or chat_template.jinja beside it, and
 * its special tokens (ls_tokenizer_settings_read). Of several templates the one named "default" is
 * taken and, for a conversation whose `tools` are not null, the one named "tool_use"
 * (LS_CHAT_TOOLS_FILE beside chat_template.jinja). wanted, unless NULL, is the template for all
 * conversations: its name in the folder, or its file; then directory may be NULL or have no
 * tokenizer_config.json. LS_EDATA for a template or a file that cannot be taken, and if there is no
 * template; LS_ECONFIG if wanted is both. */
int ls_chat_open(const char *directory, const char *wanted, struct ls_chat **out,
                 struct ls_error *error);
/* The same from a template's text. tokens: a JSON object such as {"bos_token": "<s>"}, or NULL.
 * name stands in errors. */
int ls_chat_new(const char *name, const char *text, size_t bytes, const char *tokens,
                struct ls_chat **out, struct ls_error *error);
void ls_chat_free(struct ls_chat *chat);
/* date, such as "2026-11-25", is the day that the template's strftime_now gives, at 0:00. It is
 * today in transformers; here it is not defined without this call, so that one conversation has one
 * text whenever it is rendered. Before the template is used. LS_ECONFIG if date is no such day. */
int ls_chat_date_set(struct ls_chat *chat, const char *date, struct ls_error *error);

/* conversation[bytes] is a JSON object whose `messages` is a list of {"role": ..., "content": ...};
 * `tools`, `documents` and the members of `chat_template_kwargs` are variables too, as in
 * transformers. `tools` is null, a list of objects, or a string with one of these as JSON; an empty
 * string is null. *text becomes what the template prints, one part for each stretch that counts or
 * does not; what lies in {% generation %} counts. generation_prompt: ends where the model is to
 * answer. Of {"prompt": [...], "completion": [...]} the first are the messages. LS_EDATA if the
 * conversation is no such object, or the template fails. */
int ls_chat_render(const struct ls_chat *chat, const char *conversation, size_t bytes,
                   bool generation_prompt, struct ls_chat_text *text, struct ls_error *error);

/* Bytes of UTF-8 text without the white space at its end, as Python's rstrip and templates have it.
 */
size_t ls_text_rstrip(const char *text, size_t bytes);

/* The members of a conversation whose values its texts may have; NULL behind them. */
extern const char *const ls_chat_members[];

/* *text becomes what a conversation teaches: texts in which what the assistant says counts.
 *
 * Messages behind the last answer are left out. If the template has {% generation %}, that is one
 * text, and what lies within counts. Otherwise a
 * turn of the assistant counts from the end of the prompt (the messages before, with the generation
 * prompt) to the end of its message. A conversation is one text where each turn, rendered with the
 * messages before it, is how the whole begins. Where a template shows earlier turns in another way
 * (without their reasoning, say), each turn is a text of its own: what the model sees when it
 * answers. An answer of "weight": 0 does not count, nor one of `prompt` in {"prompt": [...],
 * "completion": [...]}, whose messages follow each other. LS_EDATA if no turn is the assistant's,
 * or a prompt is not how its turn begins, or turns that have to be rendered one by one take too
 * long, or there are pictures, films or sounds. */
int ls_chat_examples(const struct ls_chat *chat, const char *conversation, size_t bytes,
                     struct ls_chat_text *text, struct ls_error *error);

LS_C_END
#endif
