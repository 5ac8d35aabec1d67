/* tokenizer.json, or vocab.json and merges.txt, as GGUF's metadata of a tokenizer. */
#include "interop/gguf.h"

#include <lockstep/chat.h>
#include <lockstep/data.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Normalizers and pre-tokenizers, as far as GGUF can have them. */
struct steps {
    const char *pattern; /* that splits; NULL: none, "": none that GGUF has */
    bool bytes;          /* ByteLevel */
    bool digits;         /* each by itself, before the pattern */
    bool meta;           /* spaces become U+2581 */
    bool space;          /* one is put in front of a text */
    const char *other;   /* the first that GGUF has nothing like; NULL: none */
};

/* What a folder says of its tokenizer. Borrowed strings are the JSON's. */
struct vocabulary {
    json_t *root, *vocab, *settings, *description; /* those that are there */
    struct ls_tokenizer *tokenizer;                /* what we read of them */
    struct ls_error why;                           /* no tokenizer: what is wrong with them */
    json_t *merges;                                /* "a b" or ["a", "b"] */
    int64_t count;
    const char **tokens; /* [count]; NULL: no token has this id */
    enum gguf_token *types;
    float *scores;
    json_t *templates; /* NAME: a chat template */
    bool pieces;       /* of characters, with bytes for what is missing (SentencePiece's) */
    struct steps steps;
    const char *split;
};

/* ---- what a text goes through ---------------------------------------------------------------- */

#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define REST    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SHORT   "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT2    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
static const struct {
    const char *pattern;
    bool whole; /* ignore_merges: a word that is a token is not put together */
    bool digits;
    const char *name;
} splits[] = {
    {GPT2, false, false, "gpt-2"},
    {GPT2, false, true, "smollm"},
    {SHORT "|" LETTERS "|\\p{N}{1,3}|" REST, true, false, "llama-bpe"},
    {SHORT "|" LETTERS "|\\p{N}{1,3}|" REST, false, false, "dbrx"},
    {SHORT "|" LETTERS "|\\p{N}|" REST, false, false, "qwen2"},
};

static bool is(const json_t *object, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value && !strcmp(value, text);
}

/* Two patterns are one that GGUF has no name for. */
static void pattern_add(struct steps *s, const char *pattern)
{
    s->pattern = s->pattern ? "" : pattern;
}

/* Whether GGUF has this step before the merges of bytes. llama.cpp leaves out NFC, which Qwen's
 * tokenizers have and most texts are in. */
static bool byte_step(struct steps *s, const json_t *step)
{
    if (is(step, "type", "ByteLevel")) {
        s->bytes = true;
        s->space = !json_is_false(json_object_get(step, "add_prefix_space"));
        if (!json_is_false(json_object_get(step, "use_regex")))
            pattern_add(s, GPT2);
        return true;
    }
    if (is(step, "type", "Digits") && json_is_true(json_object_get(step, "individual_digits")))
        return s->digits = !s->pattern;
    if (is(step, "type", "Split")) {
        const char *regex =
            json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex"));
        bool parts =
            is(step, "behavior", "Isolated") ||
            (is(step, "behavior", "Removed") && json_is_true(json_object_get(step, "invert")));
        pattern_add(s, regex && parts ? regex : "");
        return true;
    }
    return is(step, "type", "NFC");
}

/* Whether a Metaspace, which the tokenizer was made with, puts a space in front of a text. */
static bool metaspace_puts(const json_t *step)
{
    const json_t *scheme = json_object_get(step, "prepend_scheme");
    return scheme ? !is(step, "prepend_scheme", "never")
                  : !json_is_false(json_object_get(step, "add_prefix_space"));
}

/* The same before the merges of pieces, where llama.cpp writes spaces as U+2581 and splits nothing.
 */
static bool piece_step(struct steps *s, const json_t *step)
{
    static const char meta_space[] = "\u2581";
    bool of_space = is(json_object_get(step, "pattern"), "String", " ");
    if (is(step, "type", "Metaspace")) {
        s->space = s->space || metaspace_puts(step);
        return s->meta = true;
    }
    if (is(step, "type", "Replace") && of_space && is(step, "content", meta_space))
        return s->meta = true;
    if (is(step, "type", "Prepend") && is(step, "prepend", meta_space))
        return s->space = true;
    return is(step, "type", "Split") && of_space && s->meta; /* finds none */
}

static void step_read(struct vocabulary *v, const json_t *step)
{
    const json_t *several = json_object_get(step, "normalizers"), *one;
    const char *type = json_string_value(json_object_get(step, "type"));
    size_t i;
    several = several ? several : json_object_get(step, "pretokenizers");
    json_array_foreach(several, i, one) step_read(v, one);
    if (several || !json_is_object(step) || v->steps.other)
        return;
    if (!(v->pieces ? piece_step(&v->steps, step) : byte_step(&v->steps, step)))
        v->steps.other = type ? type : "";
}

/* GGUF's name for these steps; NULL if it has none. */
static const char *split_of(const struct vocabulary *v)
{
    const struct steps *s = &v->steps;
    bool whole = json_is_true(json_object_get(json_object_get(v->root, "model"), "ignore_merges"));
    if (!v->root)
        return "gpt-2";
    if (v->pieces)
        return s->meta ? "default" : NULL;
    for (size_t i = 0; i < sizeof splits / sizeof *splits && s->bytes && s->pattern; i++)
        if (!strcmp(splits[i].pattern, s->pattern) && splits[i].whole == whole &&
            splits[i].digits == s->digits)
            return splits[i].name;
    return NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

static json_t *json_of(const char *folder, const char *name)
{
    char path[PATH_MAX];
    json_t *value = NULL;
    if (interop_exists(folder, name) && ls_path_join(path, folder, name, NULL) == LS_OK)
        ls_json_read(path, LS_EDATA, &value, NULL);
    return value;
}

/* merges.txt as the list that tokenizer.json has. */
static json_t *merges_of(const char *folder)
{
    char path[PATH_MAX], *text = NULL, *save = NULL;
    size_t bytes;
    json_t *list = json_array();
    if (ls_path_join(path, folder, "merges.txt", NULL) ||
        ls_file_read(path, 64 << 20, LS_EDATA, &text, &bytes, NULL))
        return list;
    for (char *line = strtok_r(text, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save))
        if (strncmp(line, "#version", strlen("#version")))
            json_array_append_new(list, json_string(line));
    free(text);
    return list;
}

/* The text of a file; NULL if the folder has none. */
static json_t *template_of(const char *folder, const char *file)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    bool found =
        interop_exists(folder, file) && ls_path_join(path, folder, file, NULL) == LS_OK &&
        ls_file_read(path, LS_CHAT_TEMPLATE_BYTES_MAX, LS_EDATA, &text, &bytes, NULL) == LS_OK;
    json_t *template = found ? json_stringn(text, bytes) : NULL;
    free(text);
    return template;
}

#define TEMPLATE_KEY "tokenizer.chat_template"

/* As llama.cpp's converter writes names: a letter beyond ASCII is one sign too. length: of
 * written, in bytes. */
static void template_add(json_t *templates, const char *written, size_t length, json_t *template)
{
    char name[GGUF_KEY_BYTES_MAX - sizeof TEMPLATE_KEY];
    size_t count = 0;
    for (size_t c = 0; c < length && count + 1 < sizeof name; c++)
        if (((unsigned char)written[c] & 0xc0) != 0x80)
            name[count++] = isalnum((unsigned char)written[c]) ? written[c] : '_';
    name[count] = '\0';
    if (count > 0 && json_is_string(template))
        json_object_set(templates, name, template);
}

/* additional_chat_templates/NAME.jinja beside chat_template.jinja. */
static void templates_add(json_t *templates, const char *folder)
{
    json_t *files = ls_chat_files(folder), *each;
    size_t i;
    json_array_foreach(files, i, each)
    {
        const char *file = json_string_value(each), *begin = strchr(file, '/') + 1;
        json_t *template = template_of(folder, file);
        template_add(templates, begin, (size_t)(strrchr(begin, '.') - begin), template);
        json_decref(template);
    }
    json_decref(files);
}

/* The files count before a member of the settings, which is one template, or several by name. */
static json_t *templates_of(const char *folder, const json_t *settings)
{
    json_t *templates = json_object(), *given = json_object_get(settings, "chat_template"), *each;
    const char *name;
    size_t i;
    json_t *file = template_of(folder, "chat_template.jinja");
    if (file) {
        json_object_set_new(templates, "default", file);
        templates_add(templates, folder);
        return templates;
    }
    if (json_is_string(given))
        json_object_set(templates, "default", given);
    json_array_foreach(given, i, each)
    {
        const json_t *called = json_object_get(each, "name");
        template_add(templates, json_string_value(called), json_string_length(called),
                     json_object_get(each, "template"));
    }
    json_object_foreach(given, name, each) template_add(templates, name, strlen(name), each);
    return templates;
}

static void vocabulary_read(struct vocabulary *v, const char *folder)
{
    char path[PATH_MAX];
    v->description = json_of(folder, "config.json");
    v->root = json_of(folder, "tokenizer.json");
    ls_tokenizer_settings_read(folder, path, &v->settings, NULL);
    v->templates = templates_of(folder, v->settings);
    if (interop_has_tokenizer(folder))
        ls_tokenizer_new(folder, &v->tokenizer, &v->why);
    if (v->root) {
        const json_t *model = json_object_get(v->root, "model");
        v->vocab = json_incref(json_object_get(model, "vocab"));
        v->merges = json_incref(json_object_get(model, "merges"));
        v->pieces = json_is_true(json_object_get(model, "byte_fallback"));
    } else {
        v->vocab = json_of(folder, "vocab.json");
        v->merges = merges_of(folder);
    }
    step_read(v, json_object_get(v->root, "normalizer"));
    step_read(v, json_object_get(v->root, "pre_tokenizer"));
    v->split = split_of(v);
}

static void vocabulary_release(struct vocabulary *v)
{
    json_decref(v->root);
    json_decref(v->vocab);
    json_decref(v->merges);
    json_decref(v->settings);
    json_decref(v->description);
    json_decref(v->templates);
    ls_tokenizer_free(v->tokenizer);
    free(v->tokens);
    free(v->types);
    free(v->scores);
}

static void token_set(struct vocabulary *v, const json_t *id, const char *token,
                      enum gguf_token type)
{
    json_int_t i = json_integer_value(id);
    if (!json_is_integer(id) || i < 0 || i >= v->count || !token)
        return;
    v->tokens[i] = token;
    v->types[i] = type;
}

/* What the files beside tokenizer.json name, if the tokenizer has it as an added token: by the id
 * and the meaning that it has there. */
static void settings_set(struct vocabulary *v, const json_t *value, const char *unknown)
{
    const char *text = json_string_value(value), *key;
    int32_t id = text ? ls_tokenizer_id(v->tokenizer, text) : -1;
    json_t *each;
    size_t i;
    if (id >= 0 && id < v->count && !(unknown && !strcmp(text, unknown))) {
        v->tokens[id] = text;
        v->types[id] = ls_tokenizer_is_special(v->tokenizer, id) ? GGUF_CONTROL : GGUF_USER_DEFINED;
    }
    if (json_is_object(value))
        json_object_foreach((json_t *)(uintptr_t)value, key, each) settings_set(v, each, unknown);
    json_array_foreach(value, i, each) settings_set(v, each, unknown);
}

/* Of two that meet early the whole has a high score. */
static void scores_set(struct vocabulary *v)
{
    size_t i;
    const json_t *merge;
    for (int64_t t = 0; t < v->count; t++)
        v->scores[t] = v->types[t] == GGUF_NORMAL ? -1e6f : 0;
    json_array_foreach(v->merges, i, merge)
    {
        char whole[512];
        const char *pair = json_string_value(merge), *space = pair ? strchr(pair, ' ') : NULL;
        const char *a = json_string_value(json_array_get(merge, 0));
        const char *b = json_string_value(json_array_get(merge, 1));
        if (space)
            snprintf(whole, sizeof whole, "%.*s%s", (int)(space - pair), pair, space + 1);
        else
            snprintf(whole, sizeof whole, "%s%s", a ? a : "", b ? b : "");
        const json_t *id = json_object_get(v->vocab, whole);
        json_int_t t = json_integer_value(id);
        if (id && t >= 0 && t < v->count && v->scores[t] == -1e6f)
            v->scores[t] = -(float)i;
    }
}

static int tokens_set(struct vocabulary *v, int64_t count, struct ls_error *error)
{
    const char *token;
    const json_t *id;
    size_t i;
    v->count = count;
    v->tokens = calloc((size_t)count, sizeof *v->tokens);
    v->types = calloc((size_t)count, sizeof *v->types);
    v->scores = calloc((size_t)count, sizeof *v->scores);
    if (!v->tokens || !v->types || !v->scores)
        return ls_no_memory(error, "for a vocabulary");
    const char *unknown =
        json_string_value(json_object_get(json_object_get(v->root, "model"), "unk_token"));
    json_object_foreach(v->vocab, token, id)
    {
        bool byte = v->pieces && strlen(token) == 6 && !strncmp(token, "<0x", 3);
        bool none = unknown && !strcmp(token, unknown);
        token_set(v, id, token, none ? GGUF_UNKNOWN : byte ? GGUF_BYTE : GGUF_NORMAL);
    }
    const json_t *added = json_object_get(v->root, "added_tokens"), *one;
    json_array_foreach(added, i, one)
    {
        const char *content = json_string_value(json_object_get(one, "content"));
        bool special = json_is_true(json_object_get(one, "special"));
        bool none = unknown && content && !strcmp(content, unknown);
        token_set(v, json_object_get(one, "id"), content,
                  none      ? GGUF_UNKNOWN
                  : special ? GGUF_CONTROL
                            : GGUF_USER_DEFINED);
    }
    settings_set(v, v->settings, unknown);
    json_int_t end = json_integer_value(json_object_get(v->vocab, "<|endoftext|>"));
    if (!v->root && end > 0 && end < count)
        v->types[end] = GGUF_CONTROL;
    if (v->pieces)
        scores_set(v);
    return LS_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void tokens_put(struct gguf_metadata *metadata, const struct vocabulary *v)
{
    gguf_put_array(metadata, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)v->count);
    for (int64_t i = 0; i < v->count; i++) {
        char none[32];
        snprintf(none, sizeof none, "[PAD%lld]", (long long)i);
        const char *token = v->tokens[i] ? v->tokens[i] : none;
        gguf_write_string(metadata->stream, token, strlen(token));
    }
    gguf_put_array(metadata, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)v->count);
    for (int64_t i = 0; i < v->count; i++)
        gguf_write_u32(metadata->stream, v->tokens[i] ? v->types[i] : GGUF_UNUSED);
    if (!v->pieces)
        return;
    gguf_put_array(metadata, "tokenizer.ggml.scores", GGUF_F32, (uint64_t)v->count);
    for (int64_t i = 0; i < v->count; i++)
        gguf_write_f32(metadata->stream, v->scores[i]);
}

static void merges_put(struct gguf_metadata *metadata, const json_t *merges)
{
    size_t i;
    const json_t *merge;
    gguf_put_array(metadata, "tokenizer.ggml.merges", GGUF_STRING, json_array_size(merges));
    json_array_foreach(merges, i, merge)
    {
        const char *text = json_string_value(merge);
        const char *a = json_string_value(json_array_get(merge, 0));
        const char *b = json_string_value(json_array_get(merge, 1));
        if (text) {
            gguf_write_string(metadata->stream, text, strlen(text));
            continue;
        }
        gguf_write_u64(metadata->stream, (a ? strlen(a) : 0) + 1 + (b ? strlen(b) : 0));
        fprintf(metadata->stream, "%s %s", a ? a : "", b ? b : "");
    }
}

/* The token that is put in front of a text, or behind it; -1: none that the model has. */
static int32_t around_of(const struct vocabulary *v, bool behind)
{
    int count;
    const int32_t *ids = ls_tokenizer_around(v->tokenizer, behind, &count);
    return count == 1 && *ids < v->count ? *ids : -1;
}

/* What config.json calls the id; -1: nothing. */
static int64_t id_described(const struct vocabulary *v, const char *key)
{
    const json_t *id = json_object_get(v->description, key);
    return json_is_integer(id) ? json_integer_value(id) : -1;
}

/* The first that it lists: of those the tokenizer's own settings say which is meant, if they do. */
static int64_t id_listed(const struct vocabulary *v, const char *key)
{
    const json_t *id = json_array_get(json_object_get(v->description, key), 0);
    return json_is_integer(id) ? json_integer_value(id) : -1;
}

enum { ID_SOURCES = 5 };
/* The first of them that the model has. */
static void id_put(struct gguf_metadata *metadata, const struct vocabulary *v, const char *key,
                   const int64_t ids[ID_SOURCES])
{
    for (int i = 0; i < ID_SOURCES; i++)
        if (ids[i] >= 0 && ids[i] < v->count) {
            gguf_put_u32(metadata, key, (uint32_t)ids[i]);
            return;
        }
}

/* An absent key is no answer: llama.cpp then takes token 11 or 1 for the beginning of a text and 11
 * or 2 for its end, and puts one in front for some ways to split a text and none for others. If no
 * file names them, both are what lies between documents, behind which a text begins here too. */
static void ids_put(struct gguf_metadata *metadata, const struct vocabulary *v)
{
    const struct ls_tokenizer *t = v->tokenizer;
    const int32_t front = around_of(v, false), behind = around_of(v, true);
    const int32_t between = ls_tokenizer_eod(t);
    const int64_t begin[] = {front, id_described(v, "bos_token_id"), ls_tokenizer_bos(t),
                             id_listed(v, "bos_token_id"), between};
    const int64_t end[] = {behind, id_described(v, "eos_token_id"), ls_tokenizer_eos(t),
                           id_listed(v, "eos_token_id"), between};
    const int64_t pad[] = {id_described(v, "pad_token_id"), id_listed(v, "pad_token_id"), -1, -1,
                           -1};
    id_put(metadata, v, "tokenizer.ggml.bos_token_id", begin);
    id_put(metadata, v, "tokenizer.ggml.eos_token_id", end);
    id_put(metadata, v, "tokenizer.ggml.padding_token_id", pad);
    gguf_put_bool(metadata, "tokenizer.ggml.add_bos_token", front >= 0);
    gguf_put_bool(metadata, "tokenizer.ggml.add_eos_token", behind >= 0);
}

/* The default one has a key of its own; the names of the others are a list. */
static void templates_put(struct gguf_metadata *metadata, json_t *templates)
{
    const char *name;
    json_t *template, *chosen = json_incref(json_object_get(templates, "default"));
    if (chosen)
        gguf_put_string(metadata, TEMPLATE_KEY, json_string_value(chosen));
    json_decref(chosen);
    json_object_del(templates, "default");
    json_object_foreach(templates, name, template)
    {
        char key[GGUF_KEY_BYTES_MAX];
        snprintf(key, sizeof key, TEMPLATE_KEY ".%s", name);
        gguf_put_string(metadata, key, json_string_value(template));
    }
    if (json_object_size(templates) > 0)
        gguf_put_array(metadata, "tokenizer.chat_templates", GGUF_STRING,
                       json_object_size(templates));
    json_object_foreach(templates, name, template)
        gguf_write_string(metadata->stream, name, strlen(name));
}

/* Why the file gets no tokenizer; NULL: it gets one. */
static const char *lacks(struct vocabulary *v)
{
    int front, behind;
    if (v->why.text[0])
        return v->why.text;
    if (!v->tokenizer || !json_is_object(v->vocab) || !json_is_array(v->merges))
        return "none came with the model that is BPE of a tokenizer.json, or of vocab.json and "
               "merges.txt";
    ls_tokenizer_around(v->tokenizer, false, &front);
    ls_tokenizer_around(v->tokenizer, true, &behind);
    if (front > 1 || behind > 1)
        return "this one puts several tokens in front of a text or behind it, and GGUF has one";
    if (v->steps.other) {
        ls_error_set(&v->why, LS_ENOTSUP, "GGUF has nothing like the step %.80s of tokenizer.json",
                     v->steps.other);
        return v->why.text;
    }
    if (v->steps.space && !v->pieces)
        return "tokenizer.json puts a space in front of a text (add_prefix_space of ByteLevel), "
               "and GGUF has that for pieces with byte fallback alone";
    return v->split ? NULL : "GGUF has no name for the way in which this one splits text";
}

int gguf_put_tokenizer(struct gguf_metadata *metadata, const struct exporting *ex,
                       struct ls_error *error)
{
    const char *folder = ex->source->folder;
    struct vocabulary v = {0};
    int status = folder ? interop_files_check(folder, error) : LS_OK;
    if (status)
        return status;
    if (folder)
        vocabulary_read(&v, folder);
    const char *lack = lacks(&v);
    if (lack) {
        ls_log(ex->export->log, LS_LOG_WARNING, "the file has no tokenizer: %s", lack);
        gguf_put_string(metadata, "tokenizer.ggml.model", "no_vocab");
    } else {
        status = tokens_set(&v, ex->config.model.vocab, error);
    }
    if (!lack && !status) {
        gguf_put_string(metadata, "tokenizer.ggml.model", v.pieces ? "llama" : "gpt2");
        gguf_put_string(metadata, "tokenizer.ggml.pre", v.split);
        tokens_put(metadata, &v);
        if (v.pieces)
            gguf_put_bool(metadata, "tokenizer.ggml.add_space_prefix", v.steps.space);
        else
            merges_put(metadata, v.merges);
        ids_put(metadata, &v);
        templates_put(metadata, v.templates);
    }
    vocabulary_release(&v);
    return status;
}
