/* Regular expressions of the reference tokenizers, by PCRE2. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/pattern_translate.h"

#include <pcre2.h>
#include <stdlib.h>

struct data_pattern {
    pcre2_code *code;
    bool compiled; /* to machine code; else the pattern is interpreted */
};

/* The optimized search of PCRE2 10.42 finds y for (?>x*y|)y in xy, and neither (?=ab)x?a in ab nor
 * (?:x|)[^ ]+a in xab. Other patterns keep it: without it \p{N}+$ is quadratic in a long run. */
static int compile(struct data_pattern *pattern, const char *source, const struct ls_text *text,
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
    pattern->code =
        pcre2_compile((PCRE2_SPTR)bytes, text->count, options, &status, &offset, context);
    pcre2_compile_context_free(context);
    if (!pattern->code) {
        PCRE2_UCHAR message[160] = "";
        pcre2_get_error_message(status, message, sizeof message);
        return ls_error_set(error, LS_EDATA, "pattern \"%.200s\": %s", source,
                            (const char *)message);
    }
    pcre2_pattern_info(pattern->code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty)
        return ls_error_set(error, LS_ENOTSUP,
                            "pattern \"%.200s\": it may match an empty text, which is not "
                            "supported",
                            source);
    pattern->compiled = pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE) == 0;
    return LS_OK;
}

int data_pattern_new(const char *source, enum data_pattern_syntax syntax, struct data_pattern **out,
                     struct ls_error *error)
{
    struct ls_text text = {0};
    bool unoptimized;
    struct data_pattern *pattern = calloc(1, sizeof *pattern);
    *out = NULL;
    if (!pattern)
        return ls_no_memory(error, "for a pattern");
    int status = pattern_translate(source, syntax, &text, &unoptimized, error);
    if (!status)
        status = compile(pattern, source, &text, unoptimized, error);
    ls_text_release(&text);
    if (status) {
        data_pattern_free(pattern);
        return status;
    }
    *out = pattern;
    return LS_OK;
}

void data_pattern_free(struct data_pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    free(pattern);
}

int data_matcher_new(const struct data_pattern *pattern, void **out, struct ls_error *error)
{
    *out = pcre2_match_data_create_from_pattern(pattern->code, NULL);
    return *out ? LS_OK : ls_no_memory(error, "for a pattern");
}

void data_matcher_free(void *matcher)
{
    pcre2_match_data_free(matcher);
}

int data_pattern_find(const struct data_pattern *pattern, void *matcher, const unsigned char *text,
                      size_t bytes, size_t start, struct data_range *found, struct ls_error *error)
{
    int status = PCRE2_ERROR_JIT_STACKLIMIT;
    if (pattern->compiled)
        status = pcre2_jit_match(pattern->code, text, bytes, start, 0, matcher, NULL);
    if (status < 0 && status != PCRE2_ERROR_NOMATCH)
        status = pcre2_match(pattern->code, text, bytes, start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                             matcher, NULL);
    if (status < 0 && status != PCRE2_ERROR_NOMATCH) {
        PCRE2_UCHAR message[160] = "";
        pcre2_get_error_message(status, message, sizeof message);
        return ls_error_set(error, status == PCRE2_ERROR_NOMEMORY ? LS_ENOMEM : LS_EDATA,
                            "the tokenizer's pattern cannot be matched in a text of %zu bytes: %s",
                            bytes, (const char *)message);
    }
    const size_t *place = pcre2_get_ovector_pointer(matcher);
    *found =
        status < 0 ? (struct data_range){bytes, bytes} : (struct data_range){place[0], place[1]};
    return LS_OK;
}
