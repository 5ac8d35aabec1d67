/* Tokens that the files beside a tokenizer.json, or beside vocab.json and merges.txt, add to it, in
 * the order of transformers: those of added_tokens_decoder by their ids, then special ones that are
 * named and are no token yet. */
#include "data/tokenizer_json.h"

#include <lockstep/base/file.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct adding {
    struct data_json *j; /* of the settings */
    const json_t *vocab; /* the model's; NULL: of two files, which is the tokenizer's */
    json_t *known;       /* places in the list of added tokens, by text */
    int64_t of_file;     /* so many of them are of tokenizer.json */
    int64_t next;        /* the next new id */
};

static int flags_of(const struct data_added_token *token)
{
    return token->special | token->normalized << 1 | token->single_word << 2 | token->lstrip << 3 |
           token->rstrip << 4;
}

/* Another meaning of ids or texts than the file's. */
static void meaning_change(struct adding *a, const struct data_added_token *token)
{
    ls_digest_piece(&a->j->tokenizer->digest, "added", token->id, flags_of(token), token->content,
                    token->content_bytes);
}

static void flags_replace(struct adding *a, struct data_added_token *old,
                          const struct data_added_token *token)
{
    int was = flags_of(old);
    old->special = old->special || token->special;
    old->normalized = token->normalized;
    old->single_word = token->single_word;
    old->lstrip = token->lstrip;
    old->rstrip = token->rstrip;
    if (flags_of(old) != was)
        meaning_change(a, old);
}

static int32_t own_id(const struct adding *a, const struct data_added_token *token)
{
    const json_t *own = json_object_get(a->vocab, token->content);
    struct data_string text = {(const unsigned char *)token->content, token->content_bytes};
    if (a->vocab)
        return own ? (int32_t)json_integer_value(own) : -1;
    return data_bpe_token(&a->j->tokenizer->bpe, text);
}

/* In place of an id that the settings do not give: of a token that has a role, or is in a list. */
enum { NAMED = -1, LISTED = -2 };

/* id: the one that the settings give, or one of these. */
static void token_add(struct adding *a, const char *where, struct data_added_token *token,
                      int64_t id)
{
    struct data_json *j = a->j;
    struct data_added *added = &j->tokenizer->added;
    const json_t *place = json_object_get(a->known, token->content);
    const int32_t own = own_id(a, token);
    struct data_added_token *old = place ? &added->tokens[json_integer_value(place)] : NULL;
    token->id = old ? old->id : own >= 0 ? own : (int32_t)a->next;
    if (!old && own < 0 && !a->vocab && !j->status)
        j->status = data_pair_refuse(j->path, where, j->error);
    if (id >= 0 && id != token->id)
        data_json_wrong(j, where, "\"%.80s\" has id %d %s", token->content, token->id,
                        !a->vocab         ? "in vocab.json"
                        : old || own >= 0 ? "in tokenizer.json"
                                          : "behind those of tokenizer.json");
    if (j->status)
        return;
    if (old && id >= 0)
        flags_replace(a, old, token);
    /* What the settings add is special if it has a role, as in transformers. */
    if (old && id == NAMED && !old->special && token->special &&
        json_integer_value(place) >= a->of_file) {
        old->special = true;
        meaning_change(a, old);
    }
    if (old)
        return;
    a->next += own < 0;
    json_object_set_new(a->known, token->content, json_integer((json_int_t)added->count));
    meaning_change(a, token);
    j->status = data_added_put(added, j->path, token, j->error);
}

/* "TOKEN", or {"content": "TOKEN", ...}; special: unless it is an object that says otherwise. */
static void value_add(struct adding *a, const char *where, const json_t *value, bool special,
                      int64_t id)
{
    struct data_added_token token = {.special = special};
    const char *content = json_string_value(value);
    if (json_is_object(value)) {
        data_json_text(a->j, where, value, "content", &content);
        data_json_added_flags(a->j, where, value, &token);
        token.special = token.special || special;
    }
    token.content = (char *)(uintptr_t)content;
    token.content_bytes = content ? strlen(content) : 0;
    if (token.content_bytes)
        token_add(a, where, &token, id);
}

/* ---- added_tokens_decoder -------------------------------------------------------------------- */

struct entry {
    int64_t id;
    const char *key;
    const json_t *value;
};

static int by_id(const void *a, const void *b)
{
    int64_t x = ((const struct entry *)a)->id, y = ((const struct entry *)b)->id;
    return (x > y) - (x < y);
}

/* {"ID": {"content": TEXT, ...}}; with "file" if it is of another file beside the settings. */
static void decoder_add(struct adding *a, const json_t *decoder)
{
    size_t count = json_object_size(decoder), n = 0;
    const char *settings_path = a->j->path;
    struct entry *entries = malloc((count + 1) * sizeof *entries);
    const char *key;
    json_t *value;
    if (!entries)
        data_json_no_memory(a->j);
    if (decoder && !json_is_null(decoder) && !json_is_object(decoder))
        data_json_wrong(a->j, "added_tokens_decoder",
                        "expected an object, {ID: {\"content\": TEXT}}");
    json_object_foreach((json_t *)(uintptr_t)decoder, key, value)
    {
        char *end;
        if (!entries)
            break;
        entries[n] = (struct entry){strtoll(key, &end, 10), key, value};
        if (*end || end == key || entries[n].id < 0 || !json_is_object(value))
            data_json_wrong(a->j, "added_tokens_decoder",
                            "\"%.80s\": expected an id, and an object with \"content\"", key);
        n++;
    }
    if (entries)
        qsort(entries, n, sizeof *entries, by_id);
    for (size_t i = 0; i < n && !a->j->status; i++) {
        char where[128], path[PATH_MAX];
        const char *file = json_string_value(json_object_get(entries[i].value, "file"));
        ls_path_parent(settings_path, path);
        ls_string_add(path, sizeof path, "/", "%s", file ? file : "");
        a->j->path = file ? path : settings_path;
        snprintf(where, sizeof where, "%s%.80s", file ? "" : "added_tokens_decoder.",
                 entries[i].key);
        value_add(a, where, entries[i].value, false, entries[i].id);
    }
    a->j->path = settings_path;
    free(entries);
}

/* ---- named tokens ---------------------------------------------------------------------------- */

static const char *const roles[] = {"bos_token", "eos_token", "unk_token",  "sep_token",
                                    "pad_token", "cls_token", "mask_token", NULL};

static void named_add(struct adding *a, const json_t *settings)
{
    static const char *const lists[] = {"extra_special_tokens", "additional_special_tokens"};
    const char *key;
    json_t *value;
    size_t i;
    for (const char *const *role = roles; *role; role++)
        value_add(a, *role, json_object_get(settings, *role), true, NAMED);
    json_object_foreach((json_t *)(uintptr_t)settings, key, value)
    {
        size_t length = strlen(key);
        if (length > 6 && !strcmp(key + length - 6, "_token") && json_is_string(value))
            value_add(a, key, value, true, NAMED);
    }
    for (int l = 0; l < 2; l++) {
        json_t *list = json_object_get(settings, lists[l]);
        json_array_foreach(list, i, value) value_add(a, lists[l], value, true, LISTED);
        if (json_is_object(list))
            json_object_foreach(list, key, value) value_add(a, lists[l], value, true, LISTED);
    }
}

/* Those of tokenizer.json. What the model lacks has the id that tokenizers gives it: behind as many
 * as model.vocab has, and behind the added tokens before it. */
static void file_tokens(struct adding *a, struct data_json *j)
{
    const struct data_added *added = &j->tokenizer->added;
    for (int64_t i = 0; i < added->count; i++) {
        const struct data_added_token *token = &added->tokens[i];
        if (a->vocab && token->id != a->next && !json_object_get(a->vocab, token->content))
            data_json_wrong(
                j, "added_tokens",
                "\"%.80s\" has id %d, but tokenizers gives it %lld, the next one behind "
                "model.vocab and the added tokens before it: expected a file that "
                "save_pretrained of transformers wrote",
                token->content, token->id, (long long)a->next);
        json_object_set_new(a->known, token->content, json_integer((json_int_t)i));
        a->next = ls_max(a->next, (int64_t)token->id + 1);
    }
}

void data_json_settings_tokens(struct data_json *j, struct data_settings settings)
{
    const json_t *vocab = json_object_get(json_object_get(j->root, "model"), "vocab");
    struct data_json of_settings = {
        .path = settings.name, .tokenizer = j->tokenizer, .error = j->error};
    struct adding a = {.j = &of_settings,
                       .vocab = vocab,
                       .known = json_object(),
                       .of_file = j->tokenizer->added.count,
                       .next = (int64_t)json_object_size(vocab)};
    file_tokens(&a, j);
    if (settings.root && !j->status) {
        decoder_add(&a, json_object_get(settings.root, "added_tokens_decoder"));
        named_add(&a, settings.root);
        j->status = of_settings.status;
    }
    json_decref(a.known);
}

/* ---- vocab.json and merges.txt --------------------------------------------------------------- */

int data_pair_refuse(const char *path, const char *where, struct ls_error *error)
{
    return ls_error_set(error, LS_ENOTSUP,
                        "%s: %s: vocab.json and merges.txt are read as GPT-2's, without it: "
                        "expected tokenizer.json beside them, which save_pretrained of "
                        "transformers writes",
                        path, where);
}

/* Whether DATA_PAIR_EOD is bos, eos or unk: each is where the settings do not name another. */
static bool is_default(const json_t *settings)
{
    static const char *const own[] = {"bos_token", "eos_token", "unk_token"};
    bool has = false;
    for (int i = 0; i < 3; i++) {
        const json_t *value = json_object_get(settings, own[i]);
        const json_t *content = json_is_object(value) ? json_object_get(value, "content") : value;
        has = has || !value ||
              (json_is_string(content) && !strcmp(json_string_value(content), DATA_PAIR_EOD));
    }
    return has;
}

int data_pair_tokens(struct ls_tokenizer *t, struct data_settings settings, struct ls_error *error)
{
    struct data_json j = {.path = settings.name, .tokenizer = t, .error = error};
    const struct data_added_token token = {.content = DATA_PAIR_EOD,
                                           .content_bytes = strlen(DATA_PAIR_EOD),
                                           .id = t->eod,
                                           .special = true};
    if (is_default(settings.root))
        j.status = data_added_put(&t->added, j.path, &token, error);
    data_json_settings_tokens(&j, settings);
    if (!j.status)
        j.status = data_added_index(&t->added, j.path, error);
    data_json_added_match(&j);
    return j.status;
}
