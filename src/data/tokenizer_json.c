/* tokenizer.json, as the `tokenizers` package writes it: the model, the added tokens and, by
 * tokenizer_steps.c, what a text goes through. Whatever is not supported is refused by name. */
#include "data/tokenizer_json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDS_MAX = 1 << 24 };

/* ---- values and refusals --------------------------------------------------------------------- */

static void fail(struct data_json *j, int code, const char *where, const char *behind,
                 const char *format, va_list arguments)
{
    char what[512];
    vsnprintf(what, sizeof what, format, arguments);
    if (!j->status)
        j->status = ls_error_set(j->error, code, "%s: %s: %s%s", j->path, where, what, behind);
}

void data_json_refuse(struct data_json *j, const char *where, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(j, LS_ENOTSUP, where, " is not supported", format, arguments);
    va_end(arguments);
}

void data_json_wrong(struct data_json *j, const char *where, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(j, LS_EDATA, where, "", format, arguments);
    va_end(arguments);
}

void data_json_no_memory(struct data_json *j)
{
    if (!j->status)
        j->status = ls_error_set(j->error, LS_ENOMEM, "%s: no memory to read it", j->path);
}

void data_json_keys(struct data_json *j, const char *where, const json_t *object,
                    const char *const *known)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        data_json_wrong(j, where, "expected an object");
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        int i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i])
            data_json_refuse(j, where, "\"%.80s\"", key);
    }
}

void data_json_flag(struct data_json *j, const char *where, const json_t *object, const char *key,
                    bool *out)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_boolean(value))
        *out = json_is_true(value);
    else if (value && !json_is_null(value))
        data_json_wrong(j, where, "\"%s\": expected true or false", key);
}

void data_json_text(struct data_json *j, const char *where, const json_t *object, const char *key,
                    const char **out)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_string(value))
        *out = json_string_value(value);
    else
        data_json_wrong(j, where, "\"%s\": expected a string", key);
}

const char *data_json_type(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "";
}

/* ---- added tokens ---------------------------------------------------------------------------- */

static int32_t id_read(struct data_json *j, const char *where, const json_t *value)
{
    long long number = json_integer_value(value);
    if (json_is_integer(value) && number >= 0 && number < IDS_MAX)
        return (int32_t)number;
    data_json_wrong(j, where, "its id: expected an integer from 0 to %d", IDS_MAX - 1);
    return 0;
}

void data_json_added_flags(struct data_json *j, const char *where, const json_t *object,
                           struct data_added_token *token)
{
    data_json_flag(j, where, object, "special", &token->special);
    token->normalized = !token->special;
    data_json_flag(j, where, object, "normalized", &token->normalized);
    data_json_flag(j, where, object, "single_word", &token->single_word);
    data_json_flag(j, where, object, "lstrip", &token->lstrip);
    data_json_flag(j, where, object, "rstrip", &token->rstrip);
}

static void added_read(struct data_json *j, const char *where, const json_t *object)
{
    const char *content = "";
    struct data_added_token token = {0};
    data_json_keys(
        j, where, object,
        KEYS("id", "content", "single_word", "lstrip", "rstrip", "special", "normalized"));
    token.id = id_read(j, where, json_object_get(object, "id"));
    data_json_text(j, where, object, "content", &content);
    token.content = (char *)(uintptr_t)content;
    token.content_bytes = strlen(content);
    data_json_added_flags(j, where, object, &token);
    if (!j->status)
        j->status = data_added_put(&j->tokenizer->added, j->path, &token, j->error);
}

static void added_tokens_read(struct data_json *j, struct data_settings settings)
{
    json_t *list = json_object_get(j->root, "added_tokens"), *item;
    const json_t *vocab = json_object_get(json_object_get(j->root, "model"), "vocab");
    size_t i;
    if (list && !json_is_array(list))
        data_json_wrong(j, "added_tokens", "expected an array");
    json_array_foreach(list, i, item)
    {
        char where[64];
        snprintf(where, sizeof where, "added_tokens[%zu]", i);
        added_read(j, where, item);
        if (j->status)
            return;
    }
    if (json_is_object(vocab)) /* else the model is refused */
        data_json_settings_tokens(j, settings);
    if (!j->status)
        j->status = data_added_index(&j->tokenizer->added, j->path, j->error);
}

/* ---- the model ------------------------------------------------------------------------------- */

static int64_t vocabulary_size(struct data_json *j, const json_t *vocab)
{
    const char *token;
    json_t *value;
    int64_t size = 0;
    if (!json_is_object(vocab))
        data_json_wrong(j, "model.vocab", "expected an object that maps tokens to ids");
    json_object_foreach((json_t *)(uintptr_t)vocab, token, value)
    {
        char where[160];
        snprintf(where, sizeof where, "model.vocab: token \"%.100s\"", token);
        size = ls_max(size, (int64_t)id_read(j, where, value) + 1);
        if (!*token || strlen(token) > DATA_TOKEN_BYTES_MAX)
            data_json_wrong(j, where, "expected 1 to %d bytes", DATA_TOKEN_BYTES_MAX);
        if (j->status)
            break;
    }
    return size;
}

static void tokens_by_id(struct data_json *j, const json_t *vocab, struct data_string *tokens)
{
    const char *token;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)vocab, token, value)
    {
        int32_t id = (int32_t)json_integer_value(value);
        if (tokens[id].bytes)
            data_json_wrong(j, "model.vocab",
                            "id %d belongs to \"%.100s\" and to \"%.100s\"; ids are unique", id,
                            (const char *)tokens[id].bytes, token);
        tokens[id] = (struct data_string){(const unsigned char *)token, strlen(token)};
    }
}

static bool is_added(const void *user, int32_t id)
{
    return data_added_of_id(user, id) != NULL;
}

/* Both sides of a merge, "a b" or ["a", "b"]. */
static bool merge_sides(const json_t *item, struct data_string *left, struct data_string *right)
{
    if (json_is_array(item)) {
        const json_t *a = json_array_get(item, 0), *b = json_array_get(item, 1);
        if (json_array_size(item) != 2 || !json_is_string(a) || !json_is_string(b))
            return false;
        *left = (struct data_string){(const unsigned char *)json_string_value(a),
                                     json_string_length(a)};
        *right = (struct data_string){(const unsigned char *)json_string_value(b),
                                      json_string_length(b)};
        return left->count > 0 && right->count > 0;
    }
    const char *text = json_string_value(item), *space = text ? strchr(text, ' ') : NULL;
    if (!space || space == text || !space[1] || strchr(space + 1, ' '))
        return false;
    *left = (struct data_string){(const unsigned char *)text, (size_t)(space - text)};
    *right = (struct data_string){(const unsigned char *)space + 1, strlen(space + 1)};
    return true;
}

static void merges_read(struct data_json *j, const json_t *merges)
{
    struct data_byte_map map;
    data_byte_map_init(&map);
    json_t *item;
    size_t i;
    json_array_foreach(merges, i, item)
    {
        struct data_string left, right;
        char where[PATH_MAX + 64];
        snprintf(where, sizeof where, "model.merges[%zu]", i);
        if (!merge_sides(item, &left, &right))
            data_json_wrong(j, where, "expected \"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"]");
        if (j->status)
            return;
        j->status = data_bpe_merge(&j->tokenizer->bpe, &map, left, right, (int32_t)i, j->error);
        if (j->status) {
            ls_error_prefix(j->error, "%s: %s", j->path, where);
            return;
        }
    }
}

static void bpe_make(struct data_json *j, const json_t *vocab, struct data_bpe_model *made)
{
    made->vocabulary = vocabulary_size(j, vocab);
    if (j->status)
        return;
    struct data_string *tokens = calloc((size_t)made->vocabulary + 1, sizeof *tokens);
    made->tokens = tokens;
    if (tokens)
        tokens_by_id(j, vocab, tokens);
    else
        data_json_no_memory(j);
    if (!j->status)
        j->status = data_bpe_init(&j->tokenizer->bpe, made, j->error);
    free(tokens);
}

/* Keys whose value changes how a text is encoded, in a way that is not supported. */
static void model_unsupported(struct data_json *j, const json_t *model)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++)
        if (json_string_length(json_object_get(model, affixes[i])) > 0)
            data_json_refuse(j, "model", "\"%s\"", affixes[i]);
    if (json_number_value(json_object_get(model, "dropout")) != 0)
        data_json_refuse(j, "model", "a \"dropout\" above 0");
}

/* Whether each byte has a symbol, so that nothing is unknown. */
static bool bytes_complete(const struct data_bpe *bpe)
{
    bool complete = true;
    for (int byte = 0; byte < 256; byte++)
        complete &= bpe->byte_id[byte] >= 0;
    return complete;
}

static void unknown_read(struct data_json *j, const json_t *unknown, const json_t *vocab)
{
    const char *text = json_string_value(unknown);
    const json_t *id = text ? json_object_get(vocab, text) : NULL;
    struct data_bpe *bpe = &j->tokenizer->bpe;
    if (!j->status && unknown && !json_is_null(unknown)) {
        if (id)
            bpe->unknown = (int32_t)json_integer_value(id);
        else if (!text || !bytes_complete(bpe))
            data_json_wrong(j, "model.unk_token", "\"%.80s\" is not in model.vocab",
                            text ? text : "");
    }
    /* The spaces around a character that is left out come together. */
    bpe->words_part = bpe->words_part && (bpe->unknown >= 0 || bytes_complete(bpe));
}

static void model_read(struct data_json *j)
{
    const json_t *model = json_object_get(j->root, "model"), *type = json_object_get(model, "type");
    const json_t *merges = json_object_get(model, "merges");
    const json_t *vocab = json_object_get(model, "vocab");
    struct data_bpe_model made = {.name = j->path,
                                  .form = j->byte_level ? DATA_BYTE_CHARACTERS : DATA_CHARACTERS,
                                  .merges = (int64_t)json_array_size(merges),
                                  .is_added = is_added,
                                  .user = &j->tokenizer->added};
    if (!json_is_object(model))
        data_json_wrong(j, "model", "expected an object");
    if (type ? strcmp(data_json_type(model), "BPE") != 0 : !merges)
        data_json_refuse(j, "model.type", "\"%.80s\" (only BPE is)", data_json_type(model));
    data_json_keys(j, "model", model,
                   KEYS("type", "dropout", "unk_token", "continuing_subword_prefix",
                        "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab",
                        "merges"));
    model_unsupported(j, model);
    if (!json_is_array(merges))
        data_json_wrong(j, "model.merges", "expected an array");
    data_json_flag(j, "model", model, "ignore_merges", &made.whole_first);
    data_json_flag(j, "model", model, "fuse_unk", &made.fuse_unknown);
    data_json_flag(j, "model", model, "byte_fallback", &made.byte_fallback);
    if (made.byte_fallback && j->byte_level)
        data_json_refuse(j, "model", "\"byte_fallback\" with a ByteLevel pre-tokenizer");
    bpe_make(j, vocab, &made);
    unknown_read(j, json_object_get(model, "unk_token"), vocab);
    merges_read(j, merges);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* An added token that the model has too has the same id there, and no other has an id of it. */
static void added_check(struct data_json *j)
{
    struct ls_tokenizer *t = j->tokenizer;
    const json_t *vocab = json_object_get(json_object_get(j->root, "model"), "vocab");
    t->vocabulary = t->bpe.vocabulary;
    for (int64_t i = 0; i < t->added.count && !j->status; i++) {
        const struct data_added_token *token = &t->added.tokens[i];
        const json_t *id = json_object_get(vocab, token->content);
        struct data_string other = token->id < t->bpe.vocabulary
                                       ? data_string(&t->bpe.tokens, token->id)
                                       : (struct data_string){NULL, 0};
        if (id ? json_integer_value(id) != token->id : other.count > 0)
            data_json_wrong(j, "added_tokens", "\"%.80s\" has id %d, but not so in model.vocab",
                            token->content, token->id);
        t->vocabulary = ls_max(t->vocabulary, (int64_t)token->id + 1);
    }
}

void data_json_added_match(struct data_json *j)
{
    struct ls_tokenizer *t = j->tokenizer;
    struct data_normal_scratch scratch;
    if (j->status)
        return;
    j->status = data_normal_scratch_init(&scratch, &t->normalizers, j->error);
    for (int64_t i = 0; i < t->added.count && !j->status; i++) {
        struct data_added_token *token = &t->added.tokens[i];
        struct data_string text = {(unsigned char *)token->content, token->content_bytes};
        size_t first = 0;
        if (token->normalized)
            j->status =
                data_normalize(&t->normalizers, &scratch, text, true, &text, &first, j->error);
        if (text.count == 0)
            data_json_wrong(j, "added_tokens", "\"%.80s\" is empty once it is normalized",
                            token->content);
        token->matched = j->status ? NULL : malloc(text.count);
        if (!token->matched) {
            data_json_no_memory(j);
            break;
        }
        memcpy(token->matched, text.bytes, text.count);
        token->matched_bytes = text.count;
    }
    data_normal_scratch_release(&scratch);
    if (!j->status)
        j->status = data_added_finish(&t->added, j->path, j->error);
}

static void tokenizer_read(struct data_json *j, struct data_settings settings)
{
    data_json_keys(j, "the file", j->root,
                   KEYS("version", "truncation", "padding", "added_tokens", "normalizer",
                        "pre_tokenizer", "post_processor", "decoder", "model"));
    added_tokens_read(j, settings);
    data_json_pre_tokenizers(j);
    model_read(j);
    added_check(j);
    data_json_normalizers(j);
    data_json_added_match(j);
    data_json_post_processors(j);
    data_json_decoders(j);
}

int data_tokenizer_parse_json(struct ls_tokenizer *tokenizer, struct data_named_text file,
                              struct data_settings settings, struct ls_error *error)
{
    struct data_json j = {.path = file.name, .tokenizer = tokenizer, .error = error};
    j.status = ls_json_parse(file.name, file.bytes, file.count, LS_EDATA, &j.root, error);
    if (!j.status)
        tokenizer_read(&j, settings);
    json_decref(j.root);
    if (!j.status)
        j.status = data_tokenizer_configure(tokenizer, settings, error);
    if (!j.status)
        tokenizer->may_cut = data_tokenizer_may_cut(tokenizer);
    return j.status;
}
