/* The files beside a tokenizer.json: which tokens begin, end and fill up a text. Other keys of them
 * are for other programs, or for chat templates. */
#include "data/tokenizer_json.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

const char *const data_document_ends[] = {"<|endoftext|>", "<|end_of_text|>", NULL};
static const char *const text_ends[] = {"</s>", "<eos>", NULL};

static int32_t id_of(const struct ls_tokenizer *t, const char *text)
{
    const struct data_added_token *added = data_added_of_text(&t->added, text);
    struct data_string token = {(const unsigned char *)text, strlen(text)};
    return added ? added->id : data_bpe_token(&t->bpe, token);
}

/* The id of "TOKEN" or {"content": "TOKEN"}; as it was where the key is absent or null. */
static void role_read(struct data_json *j, const char *key, int32_t *id)
{
    const json_t *value = json_object_get(j->root, key);
    if (json_is_object(value))
        value = json_object_get(value, "content");
    const char *text = json_string_value(value);
    if (!value || json_is_null(value))
        return;
    if (!text)
        data_json_wrong(j, key, "expected a token's text");
    else
        *id = id_of(j->tokenizer, text);
}

/* Makes ids[*count] begin (or, at_end, end) with id, or not, as the key says; as they were where it
 * is absent. */
static void around_set(struct data_json *j, const char *key, int32_t id, int32_t *ids, int *count,
                       bool at_end)
{
    const json_t *value = json_object_get(j->root, key);
    int place = at_end ? *count - 1 : 0, from = at_end ? *count : 0;
    bool there = *count > 0 && id >= 0 && ids[place] == id, wanted = json_is_true(value);
    if (wanted && id < 0)
        return; /* no token is named */
    if (wanted && !there && *count == DATA_AROUND_MAX)
        data_json_refuse(j, key, "so many tokens around a text");
    if (!json_is_boolean(value) || wanted == there || j->status)
        return;
    if (wanted) {
        memmove(ids + from + 1, ids + from, (size_t)(*count - from) * sizeof *ids);
        ids[from] = id;
        ++*count;
    } else {
        memmove(ids + place, ids + place + 1, (size_t)(*count - place - 1) * sizeof *ids);
        --*count;
    }
}

static bool puts_prefix(const struct ls_tokenizer *t)
{
    bool puts = false;
    for (int i = 0; i < t->normalizers.count; i++)
        puts = puts || t->normalizers.step[i].kind == DATA_PREPEND;
    for (int i = 0; i < t->pre_count; i++)
        puts = puts || t->pre[i].kind == DATA_PREFIX_SPACE ||
               (t->pre[i].kind == DATA_METASPACE && t->pre[i].prepend != DATA_NEVER);
    return puts;
}

/* Some classes of transformers 5 make the steps of such a tokenizer themselves, by
 * add_prefix_space, and take only the vocabulary from tokenizer.json. The others do not ask for the
 * key. */
static void prefix_check(struct data_json *j)
{
    static const struct {
        const char *name;
        enum data_form form;
        bool absent; /* what counts then */
    } makers[] = {{"GPT2Tokenizer", DATA_BYTE_CHARACTERS, false},
                  {"Qwen2Tokenizer", DATA_BYTE_CHARACTERS, false},
                  {"LlamaTokenizer", DATA_CHARACTERS, true},
                  {"CodeLlamaTokenizer", DATA_CHARACTERS, true}};
    const json_t *key = json_object_get(j->root, "add_prefix_space");
    const char *class = json_string_value(json_object_get(j->root, "tokenizer_class"));
    bool given = json_is_boolean(key), puts = puts_prefix(j->tokenizer);
    for (size_t i = 0; class && i < sizeof makers / sizeof *makers; i++) {
        size_t length = strlen(makers[i].name);
        bool is = strncmp(class, makers[i].name, length) == 0 &&
                  (!class[length] || strcmp(class + length, "Fast") == 0);
        bool wanted = given ? json_is_true(key) : makers[i].absent;
        if (is && makers[i].form == j->tokenizer->bpe.form && wanted != puts)
            data_json_wrong(j, "add_prefix_space",
                            "%s%s, but tokenizer.json puts %s space in front of a text; with "
                            "tokenizer_class %.40s transformers goes by the one, and tokenizers by "
                            "the other: expected %s, or a folder that transformers saved again",
                            given ? "" : "absent, which means ", wanted ? "true" : "false",
                            puts ? "a" : "no", class, puts ? "true" : "false");
    }
}

static void config_read(struct data_json *j)
{
    struct ls_tokenizer *t = j->tokenizer;
    role_read(j, "bos_token", &t->bos);
    role_read(j, "eos_token", &t->eos);
    role_read(j, "pad_token", &t->pad);
    around_set(j, "add_bos_token", t->bos, t->before, &t->before_count, false);
    around_set(j, "add_eos_token", t->eos, t->after, &t->after_count, true);
    prefix_check(j);
    data_json_flag(j, "the file", j->root, "split_special_tokens", &t->split_special);
    if (t->split_special)
        ls_digest_piece(&t->digest, "split_special_tokens", 0, 0, "", 0);
}

static int32_t first_of(const struct ls_tokenizer *t, const char *const *names)
{
    int32_t id = -1;
    for (int i = 0; names[i] && id < 0; i++)
        id = id_of(t, names[i]);
    return id;
}

int data_tokenizer_configure(struct ls_tokenizer *t, struct data_settings settings,
                             struct ls_error *error)
{
    struct data_json j = {
        .path = settings.name, .root = settings.root, .tokenizer = t, .error = error};
    t->bos = t->eos = t->pad = -1;
    if (j.root)
        config_read(&j);
    t->eod = first_of(t, data_document_ends);
    if (t->eod < 0)
        t->eod = t->eos >= 0 ? t->eos : first_of(t, text_ends);
    return j.status;
}

/* ---- may a text be cut? ---------------------------------------------------------------------- */

/* Spaces become meta spaces before a text is cut. */
static bool spaces_replaced(const struct ls_tokenizer *t)
{
    for (int i = 0; i < t->normalizers.count; i++) {
        const struct data_normalizer *step = &t->normalizers.step[i];
        const char *literal = step->splitter ? data_splitter_literal(step->splitter) : NULL;
        if (literal && strcmp(literal, " ") == 0 && strcmp(step->text, DATA_META_SPACE) == 0)
            return true;
    }
    return false;
}

static bool steps_allow(const struct ls_tokenizer *t, bool replaced)
{
    bool parts = false, characters = t->bpe.form == DATA_CHARACTERS;
    for (int i = 0; i < t->pre_count; i++) {
        const struct data_pre_tokenizer *pre = &t->pre[i];
        const char *literal = pre->splitter ? data_splitter_literal(pre->splitter) : NULL;
        bool nothing = replaced && literal && strcmp(literal, " ") == 0; /* finds none */
        if (pre->kind == DATA_SPLIT && !pre->parts && !pre->digits && !nothing)
            return false;
        if (pre->kind == DATA_METASPACE && !characters)
            return false; /* merges go on over bytes of meta spaces, and over ends of lines */
        parts = parts || (pre->kind == DATA_SPLIT && pre->parts) || pre->kind == DATA_METASPACE;
    }
    return parts || (replaced && characters);
}

bool data_tokenizer_may_cut(const struct ls_tokenizer *t)
{
    bool replaced = spaces_replaced(t), prepends = false;
    for (int i = 0; i < t->normalizers.count; i++) {
        if (t->normalizers.step[i].form & UTF8PROC_COMPAT)
            return false; /* it makes spaces of what is none */
        if (t->normalizers.step[i].kind == DATA_STRIP_ACCENTS)
            return false; /* spaces come together that marks parted */
        prepends = prepends || t->normalizers.step[i].kind == DATA_PREPEND;
        const struct data_splitter *splitter = t->normalizers.step[i].splitter;
        const char *literal = splitter ? data_splitter_literal(splitter) : NULL;
        if (splitter && !(replaced && literal && strcmp(literal, " ") == 0))
            return false;
    }
    for (int64_t i = 0; i < t->added.count; i++) {
        const struct data_added_token *token = &t->added.tokens[i];
        if (token->rstrip || (prepends && !token->special))
            return false; /* a text begins behind it */
        if (token->single_word && data_is_ascii_space(token->content[0]))
            return false; /* it looks at what is before the cut */
        for (size_t k = 1; k < token->content_bytes; k++)
            if (strchr(" \t\n\v\f\r", token->content[k]) && token->content[k - 1] > 32)
                return false;
    }
    if (t->bpe.form == DATA_CHARACTERS && (t->bpe.whole_first || !t->bpe.words_part))
        return false;
    return steps_allow(t, replaced);
}
