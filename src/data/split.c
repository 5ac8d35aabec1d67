/* Pre-tokenizers: where a text is cut before byte-pair merging. Published patterns are scanned
 * (scan.c), others matched by PCRE2, literals searched. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/pattern_translate.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LINES        "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORDS(numbers)                                                                             \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" LINES
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(contractions, numbers)                                                               \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" contractions "|[^\\r\\n\\p{L}\\p{N}]?" UPPER      \
    "+" LOWER "*" contractions "|" numbers "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" LINES

/* The published patterns, and what scans them. Named ones are those of rank files. */
static const struct known {
    const char *name, *pattern;
    struct data_scan_rules rules;
} known[] = {
    {"gpt2", DATA_PATTERN_GPT2, {.form = DATA_SCAN_GPT2}},
    {"r50k_base",
     "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s",
     {.form = DATA_SCAN_GPT2}},
    {"cl100k_base",
     "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+|"
     " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
     {.form = DATA_SCAN_WORDS, .digits = 3, .final_spaces = true}},
    {"o200k_base",
     CASED(CONTRACTIONS "?", "\\p{N}{1,3}"),
     {.form = DATA_SCAN_CASED, .digits = 3, .contractions = true}},
    {"llama3", WORDS("\\p{N}{1,3}"), {.form = DATA_SCAN_WORDS, .digits = 3}},
    {"qwen", WORDS("\\p{N}"), {.form = DATA_SCAN_WORDS, .digits = 1}},
    {"tekken", CASED("", "\\p{N}"), {.form = DATA_SCAN_CASED, .digits = 1}},
};
enum { KNOWN = sizeof known / sizeof *known };

struct data_splitter {
    const struct data_scan_rules *rules; /* NULL: not scanned */
    unsigned char *classes;
    pcre2_code *code; /* of a pattern; NULL: not matched */
    bool compiled;    /* to machine code; else the pattern is interpreted */
    char *literal;    /* NULL: not searched */
    size_t literal_bytes;
};

const char *data_pattern_named(const char *name)
{
    for (int i = 0; i < KNOWN; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].pattern;
    return NULL;
}

/* The optimized search of PCRE2 10.42 finds y for (?>x*y|)y in xy, and neither (?=ab)x?a in ab nor
 * (?:x|)[^ ]+a in xab. Other patterns keep it: without it \p{N}+$ is quadratic in a long run. */
static int compile(struct data_splitter *splitter, const char *source, const struct ls_text *text,
                   bool unoptimized, struct ls_error *error)
{
    int status;
    PCRE2_SIZE offset;
    uint32_t empty = 0;
    uint32_t options = PCRE2_UTF | PCRE2_UCP | (unoptimized ? PCRE2_NO_START_OPTIMIZE : 0);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return ls_no_memory(error, "for a pattern");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    const char *bytes = text->bytes ? text->bytes : "";
    splitter->code =
        pcre2_compile((PCRE2_SPTR)bytes, text->count, options, &status, &offset, context);
    pcre2_compile_context_free(context);
    if (!splitter->code) {
        PCRE2_UCHAR message[160] = "";
        pcre2_get_error_message(status, message, sizeof message);
        return ls_error_set(error, LS_EDATA, "pattern \"%.200s\": %s", source,
                            (const char *)message);
    }
    pcre2_pattern_info(splitter->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty)
        return ls_error_set(error, LS_ENOTSUP,
                            "pattern \"%.200s\": it may match an empty text, which is not "
                            "supported",
                            source);
    splitter->compiled = pcre2_jit_compile(splitter->code, PCRE2_JIT_COMPLETE) == 0;
    return LS_OK;
}

static int pattern_make(struct data_splitter *splitter, const char *source,
                        enum data_pattern_syntax syntax, struct ls_error *error)
{
    struct ls_text text = {0};
    bool unoptimized;
    int status = pattern_translate(source, syntax, &text, &unoptimized, error);
    if (!status)
        status = compile(splitter, source, &text, unoptimized, error);
    ls_text_release(&text);
    return status;
}

static struct data_splitter *splitter_new(struct ls_error *error)
{
    struct data_splitter *splitter = calloc(1, sizeof *splitter);
    if (!splitter)
        ls_no_memory(error, "for a tokenizer");
    return splitter;
}

int data_splitter_new(const char *pattern, enum data_pattern_syntax syntax, bool scanned,
                      struct data_splitter **out, struct ls_error *error)
{
    struct data_splitter *splitter = splitter_new(error);
    *out = NULL;
    if (!splitter)
        return LS_ENOMEM;
    /* {1,3}+ is a repetition in Oniguruma, and possessive where the scanners read it. */
    bool repeats = syntax == DATA_ONIGURUMA && strstr(pattern, "{1,3}+");
    for (int i = 0; i < KNOWN && scanned && !repeats; i++)
        if (strcmp(known[i].pattern, pattern) == 0)
            splitter->rules = &known[i].rules;
    int status = LS_OK;
    if (splitter->rules) {
        splitter->classes = data_scan_classes_new(error);
        status = splitter->classes ? LS_OK : LS_ENOMEM;
    } else {
        status = pattern_make(splitter, pattern, syntax, error);
    }
    if (status) {
        data_splitter_free(splitter);
        return status;
    }
    *out = splitter;
    return LS_OK;
}

int data_splitter_new_literal(const char *literal, size_t bytes, struct data_splitter **out,
                              struct ls_error *error)
{
    struct data_splitter *splitter = splitter_new(error);
    *out = NULL;
    if (!splitter)
        return LS_ENOMEM;
    splitter->literal = malloc(bytes + 1);
    splitter->literal_bytes = bytes;
    if (!splitter->literal) {
        data_splitter_free(splitter);
        return ls_no_memory(error, "for a tokenizer");
    }
    memcpy(splitter->literal, literal, bytes);
    splitter->literal[bytes] = '\0';
    *out = splitter;
    return LS_OK;
}

void data_splitter_free(struct data_splitter *splitter)
{
    if (!splitter)
        return;
    pcre2_code_free(splitter->code);
    free(splitter->classes);
    free(splitter->literal);
    free(splitter);
}

bool data_splitter_covers(const struct data_splitter *splitter)
{
    return splitter->rules != NULL;
}

const char *data_splitter_literal(const struct data_splitter *splitter)
{
    return splitter->literal;
}

size_t data_split_end(const struct data_splitter *splitter, const unsigned char *text, size_t bytes,
                      size_t start)
{
    return data_scan_next(splitter->rules, splitter->classes, text, bytes, start);
}

int data_split_state_new(const struct data_splitter *splitter, void **out, struct ls_error *error)
{
    const pcre2_code *code = splitter->code;
    *out = code ? pcre2_match_data_create_from_pattern(code, NULL) : NULL;
    return *out || !code ? LS_OK : ls_no_memory(error, "for a pattern");
}

void data_split_state_free(void *state)
{
    pcre2_match_data_free(state);
}

static int match(const struct data_splitter *splitter, void *state, const unsigned char *text,
                 size_t bytes, size_t start, struct data_range *found, struct ls_error *error)
{
    int status = PCRE2_ERROR_JIT_STACKLIMIT;
    if (splitter->compiled)
        status = pcre2_jit_match(splitter->code, text, bytes, start, 0, state, NULL);
    if (status < 0 && status != PCRE2_ERROR_NOMATCH)
        status = pcre2_match(splitter->code, text, bytes, start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                             state, NULL);
    if (status < 0 && status != PCRE2_ERROR_NOMATCH) {
        PCRE2_UCHAR message[160] = "";
        pcre2_get_error_message(status, message, sizeof message);
        return ls_error_set(error, status == PCRE2_ERROR_NOMEMORY ? LS_ENOMEM : LS_EDATA,
                            "the tokenizer's pattern cannot be matched in a text of %zu bytes: %s",
                            bytes, (const char *)message);
    }
    const size_t *place = pcre2_get_ovector_pointer(state);
    *found =
        status < 0 ? (struct data_range){bytes, bytes} : (struct data_range){place[0], place[1]};
    return LS_OK;
}

int data_split_find(const struct data_splitter *splitter, void *state, const unsigned char *text,
                    size_t bytes, size_t start, struct data_range *found, struct ls_error *error)
{
    *found = (struct data_range){bytes, bytes};
    if (start >= bytes)
        return LS_OK;
    if (splitter->rules) {
        *found = (struct data_range){
            start, data_scan_next(splitter->rules, splitter->classes, text, bytes, start)};
        return LS_OK;
    }
    if (splitter->code)
        return match(splitter, state, text, bytes, start, found, error);
    const unsigned char *at =
        memmem(text + start, bytes - start, splitter->literal, splitter->literal_bytes);
    if (at)
        *found =
            (struct data_range){(size_t)(at - text), (size_t)(at - text) + splitter->literal_bytes};
    return LS_OK;
}

/* No piece of a scanned pattern goes on from a visible ASCII character to a space, or from an ASCII
 * letter or digit to other white space, and none looks further than that. */
size_t data_split_last_cut(const unsigned char *text, size_t bytes, bool lines)
{
    for (size_t i = bytes; i-- > 1;) {
        unsigned char before = text[i - 1], letter = before | 0x20;
        bool alphanumeric = (before >= '0' && before <= '9') || (letter >= 'a' && letter <= 'z');
        if (text[i] == ' ' && before > 32 && before < 127)
            return i;
        if (lines && text[i] >= 9 && text[i] <= 13 && alphanumeric)
            return i;
    }
    return 0;
}
