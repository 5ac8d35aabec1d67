/* The steps of a tokenizer.json: normalizers, pre-tokenizers, post-processors and decoders. */
#include "data/tokenizer_json.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

enum { WHERE_BYTES = 256 };

/* A step, or each one of a sequence under `key`. */
typedef void read_step(struct data_json *j, const char *where, const json_t *step);

static void each_step(struct data_json *j, const char *where, const json_t *step, const char *key,
                      read_step *read)
{
    if (!step || json_is_null(step) || j->status)
        return;
    if (strcmp(data_json_type(step), "Sequence") != 0) {
        read(j, where, step);
        return;
    }
    const json_t *list = json_object_get(step, key);
    json_t *item;
    size_t i;
    data_json_keys(j, where, step, KEYS("type", key));
    if (!json_is_array(list))
        data_json_wrong(j, where, "\"%s\": expected an array", key);
    json_array_foreach(list, i, item)
    {
        char inner[WHERE_BYTES];
        if (snprintf(inner, sizeof inner, "%s.%s[%zu]", where, key, i) >= WHERE_BYTES)
            data_json_refuse(j, key, "a sequence in so many sequences");
        each_step(j, inner, item, key, read);
    }
}

/* {"String": TEXT} or {"Regex": PATTERN}. */
static void pattern_read(struct data_json *j, const char *where, const json_t *step,
                         struct data_splitter **out)
{
    const json_t *pattern = json_object_get(step, "pattern");
    const json_t *literal = json_object_get(pattern, "String");
    const json_t *regex = json_object_get(pattern, "Regex");
    if (json_object_size(pattern) != 1 || !(json_is_string(literal) || json_is_string(regex)) ||
        (literal && json_string_length(literal) == 0))
        data_json_wrong(
            j, where,
            "\"pattern\": expected {\"String\": TEXT}, not empty, or {\"Regex\": PATTERN}");
    if (j->status)
        return;
    j->status =
        literal ? data_splitter_new_literal(json_string_value(literal), json_string_length(literal),
                                            out, j->error)
                : data_splitter_new(json_string_value(regex), DATA_ONIGURUMA, true, out, j->error);
    if (j->status)
        ls_error_prefix(j->error, "%s: %s", j->path, where);
}

/* ---- normalizers ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int options;
} forms[] = {
    {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
    {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_COMPOSE},
    {"NFKD", UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE},
};

static void text_copy(struct data_json *j, const char *where, const json_t *object, const char *key,
                      struct data_normalizer *step)
{
    const char *text = "";
    data_json_text(j, where, object, key, &text);
    step->text_bytes = strlen(text);
    step->text = strdup(text);
    if (!step->text)
        data_json_no_memory(j);
}

static void normalizer_read(struct data_json *j, const char *where, const json_t *object)
{
    struct data_normalizers *normalizers = &j->tokenizer->normalizers;
    const char *type = data_json_type(object);
    if (normalizers->count == DATA_STEPS_MAX) {
        data_json_refuse(j, where, "a sequence of more than %d normalizers", DATA_STEPS_MAX);
        return;
    }
    struct data_normalizer *step = &normalizers->step[normalizers->count++];
    *step = (struct data_normalizer){0};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(type, forms[i].name) == 0) {
            step->kind = DATA_UNICODE_FORM;
            step->form = forms[i].options;
            data_json_keys(j, where, object, KEYS("type"));
            return;
        }
    if (strcmp(type, "Lowercase") == 0 || strcmp(type, "StripAccents") == 0) {
        step->kind = type[0] == 'L' ? DATA_LOWERCASE : DATA_STRIP_ACCENTS;
        data_json_keys(j, where, object, KEYS("type"));
    } else if (strcmp(type, "Prepend") == 0) {
        step->kind = DATA_PREPEND;
        data_json_keys(j, where, object, KEYS("type", "prepend"));
        text_copy(j, where, object, "prepend", step);
    } else if (strcmp(type, "Replace") == 0) {
        step->kind = DATA_REPLACE;
        data_json_keys(j, where, object, KEYS("type", "pattern", "content"));
        text_copy(j, where, object, "content", step);
        pattern_read(j, where, object, &step->splitter);
    } else {
        data_json_refuse(j, where,
                         "type \"%.80s\" (NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Prepend, "
                         "Replace and Sequence are)",
                         type);
    }
}

void data_json_normalizers(struct data_json *j)
{
    each_step(j, "normalizer", json_object_get(j->root, "normalizer"), "normalizers",
              normalizer_read);
}

/* ---- pre-tokenizers -------------------------------------------------------------------------- */

static struct data_pre_tokenizer *step_new(struct data_json *j, const char *where)
{
    struct ls_tokenizer *t = j->tokenizer;
    if (j->byte_level)
        data_json_refuse(j, where, "a step behind ByteLevel");
    if (t->pre_count == DATA_STEPS_MAX)
        data_json_refuse(j, where, "a sequence of more than %d pre-tokenizers", DATA_STEPS_MAX);
    struct data_pre_tokenizer *step = j->status ? &j->none : &t->pre[t->pre_count++];
    *step = (struct data_pre_tokenizer){0};
    return step;
}

static void splitter_make(struct data_json *j, struct data_pre_tokenizer *step, const char *pattern,
                          enum data_pattern_syntax syntax)
{
    if (!j->status)
        j->status = data_splitter_new(pattern, syntax, true, &step->splitter, j->error);
}

static void byte_level_read(struct data_json *j, const char *where, const json_t *object)
{
    bool prefix = true, regex = true;
    data_json_keys(j, where, object, KEYS("type", "add_prefix_space", "trim_offsets", "use_regex"));
    data_json_flag(j, where, object, "add_prefix_space", &prefix);
    data_json_flag(j, where, object, "use_regex", &regex);
    if (j->byte_level)
        data_json_refuse(j, where, "a second ByteLevel");
    if (prefix)
        step_new(j, where)->kind = DATA_PREFIX_SPACE;
    if (regex) {
        struct data_pre_tokenizer *step = step_new(j, where);
        step->parts = true;
        splitter_make(j, step, DATA_PATTERN_GPT2, DATA_ONIGURUMA);
    }
    j->byte_level = true;
}

/* A new step with the behavior that the object names, or `otherwise` if that is not NULL. */
static struct data_pre_tokenizer *behavior_read(struct data_json *j, const char *where,
                                                const json_t *object, const char *otherwise)
{
    static const char *const behaviors[] = {
        [DATA_ISOLATED] = "Isolated",        [DATA_REMOVED] = "Removed",
        [DATA_CONTIGUOUS] = "Contiguous",    [DATA_WITH_PREVIOUS] = "MergedWithPrevious",
        [DATA_WITH_NEXT] = "MergedWithNext",
    };
    struct data_pre_tokenizer *step = step_new(j, where);
    const char *behavior = otherwise ? otherwise : "";
    int i = DATA_ISOLATED;
    if (!otherwise || json_object_get(object, "behavior"))
        data_json_text(j, where, object, "behavior", &behavior);
    while (i <= DATA_WITH_NEXT && strcmp(behavior, behaviors[i]) != 0)
        i++;
    if (i > DATA_WITH_NEXT)
        data_json_refuse(j, where, "behavior \"%.80s\"", behavior);
    step->behavior = i;
    return step;
}

static void split_read(struct data_json *j, const char *where, const json_t *object)
{
    data_json_keys(j, where, object, KEYS("type", "pattern", "behavior", "invert"));
    struct data_pre_tokenizer *step = behavior_read(j, where, object, NULL);
    data_json_flag(j, where, object, "invert", &step->invert);
    pattern_read(j, where, object, &step->splitter);
    /* Pieces of a scanned pattern have nothing between them. */
    if (!j->status && data_splitter_covers(step->splitter))
        step->parts =
            step->behavior == DATA_ISOLATED || (step->behavior == DATA_REMOVED && step->invert);
}

static void digits_read(struct data_json *j, const char *where, const json_t *object)
{
    bool individual = false;
    data_json_keys(j, where, object, KEYS("type", "individual_digits"));
    data_json_flag(j, where, object, "individual_digits", &individual);
    struct data_pre_tokenizer *step = step_new(j, where);
    step->behavior = individual ? DATA_ISOLATED : DATA_CONTIGUOUS;
    step->digits = true;
    /* Here the reference asks other tables than its patterns do: those know Unicode 17. */
    splitter_make(j, step, "[\\p{N}\U00011de0-\U00011de9\U00016ff4-\U00016ff6]", DATA_ONIGURUMA);
}

/* ASCII's, and the punctuation of an older Unicode than ours: without what came later, and with
 * what is none any more. tools/golden_tokenizer.py --punctuation prints what came later. */
#define LATER_PUNCTUATION                                                                          \
    "\u061d\u09fd\u0a76\u0c77\u0c84\u1b4e-\u1b4f\u1b7d-\u1b7f\u2e43-\u2e4f\u2e52-\u2e5d"           \
    "\U00010d6e\U00010ead\U00010f55-\U00010f59\U00010f86-\U00010f89\U000113d4-\U000113d5"          \
    "\U000113d7-\U000113d8\U0001144b-\U0001144f\U0001145a-\U0001145b\U0001145d"                    \
    "\U00011660-\U0001166c\U000116b9\U0001183b\U00011944-\U00011946\U000119e2"                     \
    "\U00011a3f-\U00011a46\U00011a9a-\U00011a9c\U00011a9e-\U00011aa2\U00011b00-\U00011b09"         \
    "\U00011be1\U00011c41-\U00011c45\U00011c70-\U00011c71\U00011ef7-\U00011ef8"                    \
    "\U00011f43-\U00011f4f\U00011fff\U00012ff1-\U00012ff2\U00016d6d-\U00016d6f"                    \
    "\U00016e97-\U00016e9a\U00016fe2\U0001e5ff\U0001e95e-\U0001e95f"
#define PUNCTUATION "(?![" LATER_PUNCTUATION "])[\\p{P}$+<=>\\^`|~\u166d\U000111c9]"

static void punctuation_read(struct data_json *j, const char *where, const json_t *object)
{
    data_json_keys(j, where, object, KEYS("type", "behavior"));
    splitter_make(j, behavior_read(j, where, object, "Isolated"), PUNCTUATION, DATA_ONIGURUMA);
}

/* Whitespace keeps words and what lies between them and spaces; WhitespaceSplit all but spaces. */
static void whitespace_read(struct data_json *j, const char *where, const json_t *object)
{
    bool words = strcmp(data_json_type(object), "Whitespace") == 0;
    data_json_keys(j, where, object, KEYS("type"));
    struct data_pre_tokenizer *step = step_new(j, where);
    step->behavior = DATA_REMOVED;
    step->invert = true;
    splitter_make(j, step, words ? "\\w+|[^\\w\\s]+" : "[^\\s]+", DATA_FANCY);
}

/* prepend_scheme, or add_prefix_space of older files. */
static int scheme_read(struct data_json *j, const char *where, const json_t *object)
{
    static const char *const schemes[] = {
        [DATA_NEVER] = "never", [DATA_FIRST] = "first", [DATA_ALWAYS] = "always"};
    bool prefix = true;
    int out = DATA_NEVER;
    data_json_flag(j, where, object, "add_prefix_space", &prefix);
    const char *scheme = prefix ? "always" : "never", *replacement = "";
    data_json_text(j, where, object, "replacement", &replacement);
    if (strcmp(replacement, DATA_META_SPACE) != 0)
        data_json_refuse(j, where, "the replacement \"%.20s\" (U+2581 is)", replacement);
    if (json_object_get(object, "prepend_scheme"))
        data_json_text(j, where, object, "prepend_scheme", &scheme);
    while (out <= DATA_ALWAYS && strcmp(scheme, schemes[out]) != 0)
        out++;
    if (out > DATA_ALWAYS)
        data_json_wrong(j, where, "\"prepend_scheme\": expected first, always or never");
    if (!prefix && out != DATA_NEVER)
        data_json_wrong(j, where, "\"add_prefix_space\" contradicts \"prepend_scheme\"");
    return out;
}

#define METASPACE_KEYS                                                                             \
    KEYS("type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep")

static void metaspace_read(struct data_json *j, const char *where, const json_t *object)
{
    data_json_keys(j, where, object, METASPACE_KEYS);
    for (int i = 0; i < j->tokenizer->pre_count; i++)
        if (j->tokenizer->pre[i].kind == DATA_METASPACE)
            data_json_refuse(j, where, "a second Metaspace");
    struct data_pre_tokenizer *step = step_new(j, where);
    step->prepend = scheme_read(j, where, object);
    step->kind = DATA_METASPACE;
    step->parts = true;
    data_json_flag(j, where, object, "split", &step->parts);
}

static void pre_tokenizer_read(struct data_json *j, const char *where, const json_t *object)
{
    static const struct {
        const char *type;
        read_step *read;
    } kinds[] = {{"ByteLevel", byte_level_read},
                 {"Split", split_read},
                 {"Digits", digits_read},
                 {"Metaspace", metaspace_read},
                 {"Punctuation", punctuation_read},
                 {"Whitespace", whitespace_read},
                 {"WhitespaceSplit", whitespace_read}};
    const char *type = data_json_type(object);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(type, kinds[i].type) == 0) {
            kinds[i].read(j, where, object);
            return;
        }
    data_json_refuse(j, where,
                     "type \"%.80s\" (ByteLevel, Split, Digits, Metaspace, Punctuation, "
                     "Whitespace, WhitespaceSplit and Sequence are)",
                     type);
}

void data_json_pre_tokenizers(struct data_json *j)
{
    each_step(j, "pre_tokenizer", json_object_get(j->root, "pre_tokenizer"), "pretokenizers",
              pre_tokenizer_read);
}

/* ---- post-processors ------------------------------------------------------------------------- */

/* {"SpecialToken": {"id": NAME}}: the ids of that name in special_tokens. */
static void special_read(struct data_json *j, const char *where, const json_t *object,
                         const json_t *special, bool behind)
{
    struct ls_tokenizer *t = j->tokenizer;
    const char *name = json_string_value(json_object_get(object, "id"));
    const json_t *ids = name ? json_object_get(json_object_get(special, name), "ids") : NULL;
    int *count = behind ? &t->after_count : &t->before_count;
    json_t *id;
    size_t i;
    if (!json_is_array(ids))
        data_json_wrong(j, where, "a special token has no ids in \"special_tokens\"");
    json_array_foreach(ids, i, id)
    {
        long long number = json_integer_value(id);
        if (!json_is_integer(id) || number < 0 || number >= t->vocabulary)
            data_json_wrong(j, where,
                            "\"special_tokens\": expected ids of the vocabulary, 0 to %lld",
                            (long long)t->vocabulary - 1);
        if (*count == DATA_AROUND_MAX)
            data_json_refuse(j, where, "a template of so many special tokens");
        if (!j->status)
            (behind ? t->after : t->before)[(*count)++] = (int32_t)number;
    }
}

static void template_read(struct data_json *j, const char *where, const json_t *object)
{
    const json_t *single = json_object_get(object, "single");
    json_t *item;
    size_t i;
    bool behind = false;
    data_json_keys(j, where, object, KEYS("type", "single", "pair", "special_tokens"));
    if (!json_is_array(single))
        data_json_wrong(j, where, "\"single\": expected an array");
    if (j->templates++)
        data_json_refuse(j, where, "a second TemplateProcessing");
    json_array_foreach(single, i, item)
    {
        const json_t *special = json_object_get(item, "SpecialToken");
        const json_t *sequence = json_object_get(item, "Sequence");
        if (!special == !sequence)
            data_json_wrong(j, where, "\"single\": expected SpecialToken or Sequence");
        if (sequence && behind)
            data_json_refuse(j, where, "a template that repeats its text");
        if (special)
            special_read(j, where, special, json_object_get(object, "special_tokens"), behind);
        behind = behind || sequence;
    }
    if (!behind)
        data_json_refuse(j, where, "a template without its text");
}

static void post_processor_read(struct data_json *j, const char *where, const json_t *object)
{
    const char *type = data_json_type(object);
    if (strcmp(type, "TemplateProcessing") == 0)
        template_read(j, where, object);
    else if (strcmp(type, "ByteLevel") != 0) /* which trims offsets, and changes no id */
        data_json_refuse(j, where,
                         "type \"%.80s\" (ByteLevel, TemplateProcessing and Sequence are)", type);
}

void data_json_post_processors(struct data_json *j)
{
    each_step(j, "post_processor", json_object_get(j->root, "post_processor"), "processors",
              post_processor_read);
}

/* ---- decoders -------------------------------------------------------------------------------- */

static void decoder_replace(struct data_json *j, const char *where, const json_t *object)
{
    const json_t *pattern = json_object_get(json_object_get(object, "pattern"), "String");
    data_json_keys(j, where, object, KEYS("type", "pattern", "content"));
    if (json_string_length(pattern) == 0)
        data_json_refuse(j, where, "a pattern that is no string");
    if (j->decoding.replaced || j->fused)
        data_json_refuse(j, where, "a Replace behind %s", j->fused ? "Fuse" : "another one");
    data_json_text(j, where, object, "content", &j->decoding.with);
    j->decoding.replaced = json_string_value(pattern);
}

static void decoder_strip(struct data_json *j, const char *where, const json_t *object)
{
    const json_t *start = json_object_get(object, "start"), *stop = json_object_get(object, "stop");
    const char *content = "";
    data_json_keys(j, where, object, KEYS("type", "content", "start", "stop"));
    data_json_text(j, where, object, "content", &content);
    if (strlen(content) != 1 || (unsigned char)content[0] >= 0x80)
        data_json_refuse(j, where, "a content other than one ASCII character");
    if (!json_is_integer(start) || json_integer_value(start) < 0 ||
        json_integer_value(start) > INT32_MAX || !json_is_integer(stop))
        data_json_wrong(j, where, "\"start\" and \"stop\": expected whole numbers");
    if (json_integer_value(stop) != 0 || !j->fused || j->tokenizer->strip_count)
        data_json_refuse(j, where, "a Strip other than one of the text's beginning, behind Fuse");
    j->tokenizer->strip = content[0];
    j->tokenizer->strip_count = (int)json_integer_value(start);
}

static void decoder_metaspace(struct data_json *j, const char *where, const json_t *object)
{
    data_json_keys(j, where, object, METASPACE_KEYS);
    j->tokenizer->strip_meta = scheme_read(j, where, object) != DATA_NEVER;
    if (j->decoding.replaced || j->fused)
        data_json_refuse(j, where, "a Metaspace behind another decoder");
    j->decoding.replaced = DATA_META_SPACE;
    j->decoding.with = " ";
}

static void decoder_read(struct data_json *j, const char *where, const json_t *object)
{
    const char *type = data_json_type(object);
    j->decoders++;
    if (strcmp(type, "Replace") == 0) {
        decoder_replace(j, where, object);
    } else if (strcmp(type, "Strip") == 0) {
        decoder_strip(j, where, object);
    } else if (strcmp(type, "Metaspace") == 0 && !j->byte_level) {
        decoder_metaspace(j, where, object);
    } else if (strcmp(type, "ByteLevel") == 0 && j->byte_level) {
        j->bytes_decoded = j->decoding.byte_level = true;
    } else if (strcmp(type, "Fuse") == 0) {
        j->fused = true;
        data_json_keys(j, where, object, KEYS("type"));
    } else if (strcmp(type, "ByteFallback") == 0 && !j->byte_level && !j->fused) {
        j->decoding.byte_fallback = true;
        data_json_keys(j, where, object, KEYS("type"));
    } else {
        data_json_refuse(j, where, "type \"%.80s\" with this pre-tokenizer and in this place",
                         type);
    }
}

void data_json_decoders(struct data_json *j)
{
    each_step(j, "decoder", json_object_get(j->root, "decoder"), "decoders", decoder_read);
    if (j->decoders == 0 || j->bytes_decoded != j->byte_level)
        data_json_refuse(j, "decoder",
                         j->byte_level ? "other than ByteLevel behind a ByteLevel pre-tokenizer"
                                       : "none (which joins tokens with spaces)");
    if (j->byte_level && (j->decoding.replaced || j->tokenizer->strip_count))
        data_json_refuse(j, "decoder", "Replace or Strip beside ByteLevel");
    if (!j->status)
        j->status = data_decoding_init(j->tokenizer, &j->decoding, j->error);
}
