/* Files of prompts and of texts to score: lines of text, or JSON lines. */
#include "infer/infer_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/json.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILE_BYTES_MAX = 1 << 30, /* requests are held whole */
    STOPS_MAX = 64,
    COUNT_MAX = 1 << 30,
};

/* A line of a file of prompts named .jsonl. */
#define PROMPT_OF_IDS "{\"prompt\": [1, 2, 3]}"

/* A file under work. */
struct reading {
    const char *name;
    int64_t line;
    enum ls_request_kind kind;
    struct ls_text_reader by;
    struct ls_encoder *encoder; /* NULL without a tokenizer */
    struct ls_token_list scratch;
    int32_t first; /* what begins a text that has no context (front_first) */
    struct ls_text_requests *out;
    struct ls_error *error;
};

static int reading_open(struct reading *r)
{
    return r->by.tokenizer ? ls_encoder_new(r->by.tokenizer, &r->encoder, r->error) : LS_OK;
}

/* After a failure nothing of the requests is left. */
static int reading_close(struct reading *r, int status)
{
    ls_token_list_release(&r->scratch);
    ls_encoder_free(r->encoder);
    if (status && r->out)
        ls_requests_release(r->out);
    return status;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static int tokens_append(struct reading *r, struct ls_token_list *list, const int32_t *ids,
                         int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (!ls_list_grow(&list->ids, list->count, &list->capacity, sizeof *list->ids))
            return ls_no_memory(r->error, "for %ld tokens", (long)count);
        list->ids[list->count++] = ids[i];
    }
    return LS_OK;
}

/* The id; -1 if value is no id of the model. */
static int32_t id_of(const struct reading *r, const json_t *value)
{
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    return id >= 0 && id < r->by.vocabulary ? (int32_t)id : -1;
}

/* Into scratch. A tokenizer may give ids that the model has no row for. */
static int text_encode(struct reading *r, const char *text, size_t bytes,
                       const struct ls_encode_options *options)
{
    if (!r->encoder)
        return ls_error_set(r->error, LS_ECONFIG, NO_TOKENIZER "; or give lists of token ids%s",
                            r->kind == LS_PROMPTS && !r->by.listed ? ", as in " PROMPT_OF_IDS
                                                                     " in a file named .jsonl"
                                                                   : "");
    r->scratch.count = 0;
    int status = ls_encode_with(r->encoder, text, bytes, options, &r->scratch, r->error);
    for (int64_t i = 0; i < r->scratch.count && !status; i++)
        if (r->scratch.ids[i] >= r->by.vocabulary)
            status = ls_error_set(r->error, LS_EDATA,
                                  "the text has token %d, which is not in the model's vocabulary "
                                  "of %ld",
                                  r->scratch.ids[i], (long)r->by.vocabulary);
    return status;
}

static int text_append(struct reading *r, struct ls_token_list *list, const char *text,
                       size_t bytes)
{
    int status = text_encode(r, text, bytes, &r->by.encode);
    return status ? status : tokens_append(r, list, r->scratch.ids, r->scratch.count);
}

static int ids_append(struct reading *r, struct ls_token_list *list, const json_t *ids,
                      const char *key)
{
    int status = LS_OK;
    for (size_t i = 0; i < json_array_size(ids) && !status; i++) {
        int32_t id = id_of(r, json_array_get(ids, i));
        status = id >= 0 ? tokens_append(r, list, &id, 1)
                         : ls_error_set(r->error, LS_EDATA,
                                        "\"%s\", value %zu: expected token ids from 0 to %ld", key,
                                        i + 1, (long)r->by.vocabulary - 1);
    }
    return status;
}

/* ---- what begins a text to score ------------------------------------------------------------- */

/* Nothing is put behind such a text: what counts is how it goes on. */
struct front {
    const int32_t *ids;
    int count;
};

/* What the tokenizer puts in front of a text. */
static struct front front_own(const struct reading *r)
{
    struct front front = {0};
    if (r->by.tokenizer && r->by.encode.around)
        front.ids = ls_tokenizer_around(r->by.tokenizer, false, &front.count);
    return front;
}

/* The token that stands for an empty context. A tokenizer.json by itself names no bos, but may put
 * it in front. */
static int32_t first_of(const struct ls_tokenizer *tokenizer)
{
    int count;
    const int32_t *before = ls_tokenizer_around(tokenizer, false, &count);
    const int32_t ids[] = {ls_tokenizer_bos(tokenizer), count ? before[0] : -1,
                           ls_tokenizer_eos(tokenizer), ls_tokenizer_eod(tokenizer)};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i] >= 0)
            return ids[i];
    return -1;
}

static int front_first(struct reading *r, struct front *out)
{
    r->first = r->by.tokenizer ? first_of(r->by.tokenizer) : -1;
    *out = (struct front){&r->first, 1};
    if (r->first < 0)
        return ls_error_set(r->error, LS_ECONFIG,
                            "the context is empty, and no tokenizer is known whose bos_token, "
                            "eos_token or end-of-document token could stand for it: give a token "
                            "id as the context");
    return r->first < r->by.vocabulary
               ? LS_OK
               : ls_error_set(r->error, LS_EDATA,
                              "the context is empty, and the tokenizer's token for the beginning, "
                              "%d, is not in the model's vocabulary of %ld: give a token id as the "
                              "context",
                              r->first, (long)r->by.vocabulary);
}

/* A text that is written with its beginning gets no second one. */
static int text_score_append(struct reading *r, struct ls_token_list *list, struct front front,
                             const char *text, size_t bytes)
{
    const struct ls_encode_options options = {.special = r->by.encode.special};
    int status = text_encode(r, text, bytes, &options);
    bool begun = front.count && r->scratch.count && r->scratch.ids[0] == front.ids[0];
    if (!status && !begun)
        status = tokens_append(r, list, front.ids, front.count);
    return status ? status : tokens_append(r, list, r->scratch.ids, r->scratch.count);
}

/* ---- members of an object -------------------------------------------------------------------- */

/* The text or ids under key. */
static int value_of(struct reading *r, const json_t *record, const char *key, const json_t **out)
{
    *out = json_object_get(record, key);
    if (!*out)
        return ls_error_set(r->error, LS_EDATA,
                            "no key \"%s\": expected one, with a string or a list of token ids",
                            key);
    if (!json_is_string(*out) && !json_is_array(*out))
        return ls_error_set(r->error, LS_EDATA, "\"%s\": expected a string or a list of token ids",
                            key);
    return LS_OK;
}

static int value_append(struct reading *r, struct ls_token_list *list, struct front front,
                        const json_t *value, const char *key)
{
    if (json_is_string(value))
        return text_score_append(r, list, front, json_string_value(value),
                                 json_string_length(value));
    int status = tokens_append(r, list, front.ids, front.count);
    return status ? status : ids_append(r, list, value, key);
}

static int count_of(struct reading *r, const json_t *record, const char *key, int64_t *out)
{
    const json_t *value = json_object_get(record, key);
    if (!value)
        return LS_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > COUNT_MAX)
        return ls_error_set(r->error, LS_EDATA, "\"%s\": expected a whole number from 1 to %d", key,
                            COUNT_MAX);
    *out = json_integer_value(value);
    return LS_OK;
}

static int stop_add(struct reading *r, struct ls_text_request *request, const json_t *value)
{
    const char *text = json_string_value(value);
    if (!text || !text[0] || strlen(text) != json_string_length(value))
        return ls_error_set(r->error, LS_EDATA,
                            "\"stop\": expected a string that is not empty and has no zero, or a "
                            "list of such");
    char *copy = strdup(text);
    if (!copy)
        return ls_no_memory(r->error, "for a text to stop at");
    request->stops[request->stop_count++] = copy;
    return LS_OK;
}

/* Where the text that is made ends. */
static int limits_take(struct reading *r, struct ls_text_request *request, const json_t *record)
{
    const json_t *value = json_object_get(record, "stop");
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    int status = count_of(r, record, "max_tokens", &request->tokens_max);
    if (status || !value)
        return status;
    if (count > STOPS_MAX)
        return ls_error_set(r->error, LS_EDATA, "\"stop\": %zu texts, at most %d are taken", count,
                            STOPS_MAX);
    request->stops = calloc(count + 1, sizeof *request->stops);
    if (!request->stops)
        return ls_no_memory(r->error, "for texts to stop at");
    for (size_t i = 0; i < count && !status; i++)
        status = stop_add(r, request, json_is_array(value) ? json_array_get(value, i) : value);
    return status;
}

/* ---- one request ----------------------------------------------------------------------------- */

/* An empty prompt begins with a new line. */
static int prompt_text(struct reading *r, struct ls_text_request *request, const char *text,
                       size_t bytes)
{
    int status = text_append(r, &request->tokens, bytes ? text : "\n", bytes ? bytes : 1);
    request->first = request->tokens.count;
    return status;
}

static int prompt_take(struct reading *r, struct ls_text_request *request, const json_t *record)
{
    const json_t *prompt;
    int status = value_of(r, record, "prompt", &prompt);
    if (!status && json_is_string(prompt))
        status = prompt_text(r, request, json_string_value(prompt), json_string_length(prompt));
    else if (!status)
        status = ids_append(r, &request->tokens, prompt, "prompt");
    request->first = request->tokens.count;
    if (!status && request->tokens.count == 0)
        status = ls_error_set(r->error, LS_EDATA, "\"prompt\": expected at least one token");
    return status ? status : limits_take(r, request, record);
}

/* Both as text: encoded as one, of which the context's tokens are those that it has alone, as far
 * as they leave one to be scored. A single token is scored as if it had no context. */
static int pair_encode(struct reading *r, struct ls_text_request *request, const json_t *context,
                       const json_t *continuation)
{
    size_t a = json_string_length(context), b = json_string_length(continuation);
    const char *before = json_string_value(context);
    size_t kept = ls_text_rstrip(before, a);
    struct front front = front_own(r);
    struct ls_token_list alone = {0};
    char *whole = malloc(a + b + 1);
    if (!whole)
        return ls_no_memory(r->error, "for a text of %zu bytes", a + b);
    memcpy(whole, before, a);
    memcpy(whole + a, json_string_value(continuation), b);
    int status = kept ? text_score_append(r, &alone, front, before, kept) : LS_OK;
    if (!status && kept)
        status = text_score_append(r, &request->tokens, front, whole, a + b);
    if (!status && request->tokens.count < 2) {
        request->tokens.count = 0;
        status = front_first(r, &front);
        if (!status)
            status = text_score_append(r, &request->tokens, front, whole, a + b);
    }
    request->first = ls_max(ls_min(alone.count, request->tokens.count - 1), 1);
    ls_token_list_release(&alone);
    free(whole);
    return status;
}

static int pair_take(struct reading *r, struct ls_text_request *request, const json_t *record)
{
    const json_t *context, *continuation;
    int status = value_of(r, record, "context", &context);
    if (!status)
        status = value_of(r, record, "continuation", &continuation);
    if (status)
        return status;
    if (!json_array_size(continuation) && !json_string_length(continuation))
        return ls_error_set(r->error, LS_EDATA, "\"continuation\" holds nothing to score");
    if (json_is_string(context) && json_is_string(continuation)) {
        status = pair_encode(r, request, context, continuation);
    } else {
        struct front front = json_is_string(context) ? front_own(r) : (struct front){0};
        status = value_append(r, &request->tokens, front, context, "context");
        if (!status && request->tokens.count == 0) {
            status = front_first(r, &front);
            if (!status)
                status = tokens_append(r, &request->tokens, front.ids, front.count);
        }
        request->first = request->tokens.count;
        if (!status)
            status =
                value_append(r, &request->tokens, (struct front){0}, continuation, "continuation");
    }
    return status;
}

static int text_take(struct reading *r, struct ls_text_request *request, const json_t *record)
{
    const json_t *text;
    struct front front;
    int status = value_of(r, record, "text", &text);
    request->first = 1;
    request->whole = true;
    if (!status)
        status = front_first(r, &front);
    return status ? status : value_append(r, &request->tokens, front, text, "text");
}

static int tokens_take(struct reading *r, struct ls_text_request *request, const json_t *record)
{
    const json_t *tokens = json_object_get(record, "tokens");
    request->first = 1;
    if (!json_is_array(tokens))
        return ls_error_set(r->error, LS_EDATA, "\"tokens\": expected a list of token ids");
    int status = ids_append(r, &request->tokens, tokens, "tokens");
    if (!status)
        status = count_of(r, record, "prompt_tokens", &request->first);
    if (!status && request->tokens.count == 0)
        status = ls_error_set(r->error, LS_EDATA, "\"tokens\": expected at least one token");
    if (!status && request->first > request->tokens.count)
        status = ls_error_set(r->error, LS_EDATA, "\"prompt_tokens\" is %ld, of %ld tokens in all",
                              (long)request->first, (long)request->tokens.count);
    return status;
}

static int score_take(struct reading *r, struct ls_text_request *request, const json_t *record)
{
    if (json_object_get(record, "continuation"))
        return pair_take(r, request, record);
    if (json_object_get(record, "tokens"))
        return tokens_take(r, request, record);
    if (json_object_get(record, "text"))
        return text_take(r, request, record);
    return ls_error_set(r->error, LS_EDATA,
                        "expected \"context\" and \"continuation\", \"text\", or \"tokens\"");
}

/* ---- conversations --------------------------------------------------------------------------- */

static int conversation_check(struct reading *r, const json_t *record)
{
    const json_t *messages = json_object_get(record, "messages");
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    return role && !strcmp(role, "assistant")
               ? ls_error_set(r->error, LS_EDATA,
                              "\"messages\": the last one is the assistant's: expected one that it "
                              "is to answer")
               : LS_OK;
}

/* record is what line[bytes] holds. */
static int conversation_take(struct reading *r, struct ls_text_request *request,
                             const json_t *record, const char *line, size_t bytes)
{
    struct ls_chat_text text = {0};
    int status = conversation_check(r, record);
    if (!status)
        status = ls_chat_render(r->by.chat, line, bytes, true, &text, r->error);
    if (!status && text.count == 0)
        status = ls_error_set(r->error, LS_EDATA, "the chat template makes no text of it");
    if (!status)
        status = text_append(r, &request->tokens, text.bytes, text.count);
    ls_chat_text_release(&text);
    request->first = request->tokens.count;
    return status ? status : limits_take(r, request, record);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static int object_of(struct reading *r, const char *line, size_t bytes, json_t **out)
{
    const char *example = r->by.chat              ? ", {\"messages\": [...]}"
                          : r->kind == LS_PROMPTS ? ", {\"prompt\": \"TEXT\"} or " PROMPT_OF_IDS
                                                  : "";
    const char *lines = r->by.chat && ls_path_ends(r->name, ".json") ? "" : " a line";
    json_error_t where;
    *out = ls_json_load(line, bytes, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &where);
    if (!*out && json_error_code(&where) == json_error_out_of_memory)
        return ls_no_memory(r->error, "for a record");
    if (*out && json_is_object(*out))
        return LS_OK;
    int status =
        r->by.listed ? ls_error_set(r->error, LS_EDATA, "expected a JSON object")
        : *out ? ls_error_set(r->error, LS_EDATA, "expected one JSON object%s%s", lines, example)
               : ls_error_set(r->error, LS_EDATA, "column %d: %s: expected one JSON object%s%s",
                              where.column, where.text, lines, example);
    json_decref(*out);
    *out = NULL;
    return status;
}

static int request_read(struct reading *r, struct ls_text_request *request, const char *line,
                        size_t bytes)
{
    json_t *record;
    bool objects = r->by.listed || ls_path_ends(r->name, ".jsonl");
    if (r->kind == LS_PROMPTS && !r->by.chat && !objects)
        return prompt_text(r, request, line, bytes);
    int status = object_of(r, line, bytes, &record);
    if (!status)
        status = r->kind == LS_SCORES ? score_take(r, request, record)
                 : r->by.chat         ? conversation_take(r, request, record, line, bytes)
                                      : prompt_take(r, request, record);
    json_decref(record);
    return status;
}

static int line_take(void *user, const char *line, size_t bytes)
{
    struct reading *r = user;
    struct ls_text_requests *out = r->out;
    if (!ls_list_grow(&out->list, out->count, &out->room, sizeof *out->list))
        return ls_no_memory(r->error, "for %ld requests", (long)out->count);
    struct ls_text_request *request = &out->list[out->count++];
    *request = (struct ls_text_request){.line = r->line};
    return request_read(r, request, line, bytes);
}

/* Calls take for each line that is not blank, without its end. */
static int lines_each(struct reading *r, const char *text, size_t bytes,
                      int (*take)(void *user, const char *line, size_t bytes), void *user)
{
    int status = LS_OK;
    for (size_t at = 0; at < bytes && !status;) {
        const char *line = text + at, *end = memchr(line, '\n', bytes - at);
        size_t length = end ? (size_t)(end - line) : bytes - at, blank = 0;
        at += length + 1;
        r->line++;
        if (length > 0 && line[length - 1] == '\r')
            length--;
        while (blank < length && (line[blank] == ' ' || line[blank] == '\t'))
            blank++;
        if (blank < length)
            status = take(user, line, length);
        ls_progress();
    }
    if (status != LS_EDATA && status != LS_ECONFIG)
        return status;
    if (r->by.listed)
        ls_error_prefix(r->error, "%s", ls_request_name(r->out, r->out->count - 1).text);
    else
        ls_error_at(r->error, r->name, r->line, 0);
    return status;
}

struct ls_request_name ls_request_name(const struct ls_text_requests *requests, int64_t i)
{
    struct ls_request_name out;
    if (requests->alone)
        snprintf(out.text, sizeof out.text, "%.60s", requests->alone);
    else if (requests->listed)
        snprintf(out.text, sizeof out.text, "%.32s[%ld]", requests->listed, (long)i);
    else
        snprintf(out.text, sizeof out.text, "line %ld", (long)requests->list[i].line);
    return out;
}

/* ---- files ----------------------------------------------------------------------------------- */

int ls_requests_parse(const char *name, const char *text, size_t bytes, enum ls_request_kind kind,
                      const struct ls_text_reader *reader, struct ls_text_requests *out,
                      struct ls_error *error)
{
    static const char mark[] = "\xef\xbb\xbf"; /* some editors put it before a file */
    struct reading r = {.name = name, .kind = kind, .by = *reader, .out = out, .error = error};
    *out = (struct ls_text_requests){.listed = reader->listed ? name : NULL};
    if (bytes >= strlen(mark) && !memcmp(text, mark, strlen(mark))) {
        text += strlen(mark);
        bytes -= strlen(mark);
    }
    int status = reading_open(&r);
    if (r.by.chat)
        r.by.encode.around = false;
    if (!status && r.by.chat && ls_path_ends(name, ".json")) {
        r.line = 1;
        status = line_take(&r, text, bytes);
        if (status == LS_EDATA)
            ls_error_prefix(error, "%.300s", name);
    } else if (!status) {
        status = lines_each(&r, text, bytes, line_take, &r);
    }
    if (!status && out->count == 0)
        status = ls_error_set(error, LS_EDATA, "%.300s holds no %s: expected one a line", name,
                              kind == LS_PROMPTS ? "prompts" : "requests");
    return reading_close(&r, status);
}

int ls_requests_read(const char *path, enum ls_request_kind kind,
                     const struct ls_text_reader *reader, struct ls_text_requests *out,
                     struct ls_error *error)
{
    char *text;
    size_t bytes;
    *out = (struct ls_text_requests){0};
    int status = ls_file_read(path, FILE_BYTES_MAX, LS_EDATA, &text, &bytes, error);
    if (!status)
        status = ls_requests_parse(path, text, bytes, kind, reader, out, error);
    free(text);
    return status;
}

int ls_prompt_encode(const char *text, const struct ls_text_reader *reader,
                     struct ls_text_requests *out, struct ls_error *error)
{
    struct reading r = {.name = "", .by = *reader, .out = out, .error = error};
    *out = (struct ls_text_requests){.alone = "the prompt"};
    int status = reading_open(&r);
    r.line = 1;
    if (!status)
        status = line_take(&r, text, strlen(text));
    return reading_close(&r, status);
}

int64_t prompt_added(const struct ls_text_request *request, int64_t tokens)
{
    const int64_t most = (int64_t)1 << 40;
    return ls_min(request->tokens_max ? request->tokens_max : tokens, most);
}

/* The last token that is added needs no room. */
int ls_prompts_truncate(struct ls_text_requests *prompts, int64_t context, int64_t tokens,
                        int64_t *cut, struct ls_error *error)
{
    *cut = 0;
    for (int64_t i = 0; i < prompts->count; i++) {
        struct ls_text_request *request = &prompts->list[i];
        int64_t added = prompt_added(request, tokens), kept = context + 1 - added;
        int64_t left_out = request->tokens.count - kept;
        if (left_out <= 0)
            continue;
        if (kept < 2)
            return ls_error_set(error, LS_EDATA,
                                "%s has %ld tokens, and %ld are to be added (max_tokens, "
                                "--tokens): the model's context of %ld has no room for the prompt: "
                                "expected at most %ld to be added",
                                ls_request_name(prompts, i).text, (long)request->tokens.count,
                                (long)added, (long)context, (long)context - 1);
        memmove(request->tokens.ids, request->tokens.ids + left_out,
                (size_t)kept * sizeof *request->tokens.ids);
        request->tokens.count = request->first = kept;
        ++*cut;
    }
    return LS_OK;
}

void ls_requests_release(struct ls_text_requests *requests)
{
    for (int64_t i = 0; i < requests->count; i++) {
        struct ls_text_request *request = &requests->list[i];
        ls_token_list_release(&request->tokens);
        for (int s = 0; s < request->stop_count; s++)
            free(request->stops[s]);
        free(request->stops);
    }
    free(requests->list);
    *requests = (struct ls_text_requests){0};
}

/* ---- one text -------------------------------------------------------------------------------- */

int ls_token_text_read(const char *path, const struct ls_text_reader *reader,
                       struct ls_token_list *out, struct ls_error *error)
{
    struct reading r = {.name = path, .by = *reader, .error = error};
    char *text = NULL;
    size_t bytes;
    *out = (struct ls_token_list){0};
    int status = reading_open(&r);
    if (!status)
        status = ls_file_read(path, FILE_BYTES_MAX, LS_EDATA, &text, &bytes, error);
    if (!status) {
        status = text_append(&r, out, text, bytes);
        if (!status && out->count < 2)
            status = ls_error_set(error, LS_EDATA,
                                  "at least two tokens are expected, one before another");
        if (status == LS_EDATA || status == LS_ECONFIG)
            ls_error_prefix(error, "%.300s", path);
    }
    free(text);
    if (status)
        ls_token_list_release(out);
    return reading_close(&r, status);
}

/* ---- tokens, one a line ---------------------------------------------------------------------- */

struct token_lines {
    struct reading reading;
    struct ls_token_list *out;
};

static int token_take(void *user, const char *line, size_t bytes)
{
    struct token_lines *lines = user;
    struct reading *r = &lines->reading;
    json_t *record;
    int status = object_of(r, line, bytes, &record);
    int32_t id = id_of(r, json_object_get(record, "id"));
    if (!status && id < 0)
        status = ls_error_set(r->error, LS_EDATA, "\"id\": expected a token id from 0 to %ld",
                              (long)r->by.vocabulary - 1);
    if (!status)
        status = tokens_append(r, lines->out, &id, 1);
    json_decref(record);
    return status;
}

int ls_token_lines_read(const char *path, int64_t vocabulary, struct ls_token_list *out,
                        struct ls_error *error)
{
    struct token_lines lines = {
        .reading = {.name = path, .by = {.vocabulary = vocabulary}, .error = error}, .out = out};
    char *text;
    size_t bytes;
    *out = (struct ls_token_list){0};
    int status = ls_file_read(path, FILE_BYTES_MAX, LS_EDATA, &text, &bytes, error);
    if (status)
        return status;
    status = lines_each(&lines.reading, text, bytes, token_take, &lines);
    if (!status && out->count < 2)
        status = ls_error_set(error, LS_EDATA, "%.300s holds %s: expected two at least, one a line",
                              path, out->count ? "one token" : "no tokens");
    if (status)
        ls_token_list_release(out);
    free(text);
    return status;
}
