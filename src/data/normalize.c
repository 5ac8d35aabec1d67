/* Normalizers: what a tokenizer does to a text before it cuts it. */
#include "data/tokenizer_private.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* A chain of replacements in a stranger's file could fill the memory from a few bytes. */
enum { GROWTH_MAX = 64 };

int data_normal_scratch_init(struct data_normal_scratch *scratch,
                             const struct data_normalizers *normalizers, struct ls_error *error)
{
    int status = LS_OK;
    *scratch = (struct data_normal_scratch){0};
    for (int i = 0; i < normalizers->count && !status; i++)
        if (normalizers->step[i].splitter)
            status = data_split_state_new(normalizers->step[i].splitter, &scratch->state[i], error);
    return status;
}

void data_normal_scratch_release(struct data_normal_scratch *scratch)
{
    for (int i = 0; i < 2; i++)
        ls_text_release(&scratch->text[i]);
    for (int i = 0; i < DATA_STEPS_MAX; i++)
        data_split_state_free(scratch->state[i]);
    free(scratch->codes);
    *scratch = (struct data_normal_scratch){0};
}

void data_normalizers_release(struct data_normalizers *normalizers)
{
    for (int i = 0; i < normalizers->count; i++) {
        free(normalizers->step[i].text);
        data_splitter_free(normalizers->step[i].splitter);
    }
    *normalizers = (struct data_normalizers){0};
}

static int growth_check(size_t bytes, size_t most, struct ls_error *error)
{
    return bytes <= most
               ? LS_OK
               : ls_error_set(error, LS_EDATA,
                              "the tokenizer's normalizer makes %zu bytes of a text: expected at "
                              "most %zu, which is %d times the text and 1 MiB",
                              bytes, most, GROWTH_MAX);
}

/* most: bytes that the text may become. What is put in the place of a match stands where the last
 * character of the match does. */
static int replace(const struct data_normalizer *step, void *state, struct data_string text,
                   size_t most, struct ls_text *out, size_t *first, struct ls_error *error)
{
    struct data_range found;
    size_t kept = 0;
    for (size_t at = 0; at < text.count; at = found.end) {
        int status =
            data_split_find(step->splitter, state, text.bytes, text.count, at, &found, error);
        if (!status && at < *first)
            kept = out->count + (found.begin < *first ? found.begin : *first) - at;
        if (!status)
            status = data_text_put(out, text.bytes + at, found.begin - at, error);
        if (!status && found.begin < text.count)
            status = data_text_put(out, step->text, step->text_bytes, error);
        if (!status && found.end <= *first)
            kept = out->count;
        if (!status)
            status = growth_check(out->count, most, error);
        if (status)
            return status;
    }
    *first = kept;
    return LS_OK;
}

/* ---- Unicode's normal forms ------------------------------------------------------------------ */

/* Bytes of text[bytes] at its beginning that every form leaves as they are, and that end before a
 * character that may go on with another one: ASCII, but for its last character. */
static size_t ascii_length(const unsigned char *text, size_t bytes)
{
    size_t at = 0;
    uint64_t eight;
    while (bytes - at >= sizeof eight) {
        memcpy(&eight, text + at, sizeof eight);
        if (eight & 0x8080808080808080u)
            break;
        at += sizeof eight;
    }
    while (at < bytes && text[at] < 0x80)
        at++;
    return at == bytes || at == 0 ? at : at - 1;
}

static int codes_room(struct data_normal_scratch *scratch, size_t codes, struct ls_error *error)
{
    if (codes <= scratch->codes_room)
        return LS_OK;
    free(scratch->codes);
    scratch->codes = malloc(codes * sizeof *scratch->codes);
    scratch->codes_room = scratch->codes ? codes : 0;
    return scratch->codes ? LS_OK : ls_no_memory(error, "to normalize a text");
}

/* One stretch of text that ends where ASCII does not go on with anything. */
static int form_stretch(struct data_normal_scratch *scratch, int form, struct data_string text,
                        struct ls_text *out, struct ls_error *error)
{
    utf8proc_option_t options = (utf8proc_option_t)form;
    utf8proc_ssize_t count =
        utf8proc_decompose(text.bytes, (utf8proc_ssize_t)text.count, scratch->codes,
                           (utf8proc_ssize_t)scratch->codes_room, options);
    if (count > (utf8proc_ssize_t)scratch->codes_room) {
        int status = codes_room(scratch, (size_t)count, error);
        if (status)
            return status;
        count = utf8proc_decompose(text.bytes, (utf8proc_ssize_t)text.count, scratch->codes, count,
                                   options);
    }
    if (count >= 0)
        count = utf8proc_normalize_utf32(scratch->codes, count, options);
    if (count < 0)
        return ls_error_set(error, LS_EDATA, "a text cannot be normalized: %s",
                            utf8proc_errmsg(count));
    int status = data_text_reserve(out, 4 * (size_t)count, error);
    for (utf8proc_ssize_t i = 0; i < count && !status; i++)
        out->count += (size_t)utf8proc_encode_char(scratch->codes[i],
                                                   (utf8proc_uint8_t *)out->bytes + out->count);
    return status;
}

/* A stretch, cut at the characters that the reference leaves as and where they are: nothing goes
 * past them, and nothing joins them. */
static int form_parts(struct data_normal_scratch *scratch, int form, struct data_string text,
                      struct ls_text *out, struct ls_error *error)
{
    size_t first = 0, at, bytes;
    int status = LS_OK;
    for (at = 0; at < text.count && !status; at += bytes) {
        uint32_t code = data_utf8_decode(text.bytes + at, &bytes);
        bool compatible = form & UTF8PROC_COMPAT && data_is_later_compatible(code);
        if (!data_is_later_mark(code) && !compatible)
            continue;
        if (at > first)
            status = form_stretch(scratch, form,
                                  (struct data_string){text.bytes + first, at - first}, out, error);
        if (!status)
            status = data_text_put(out, text.bytes + at, bytes, error);
        first = at + bytes;
    }
    if (!status && at > first)
        status = form_stretch(scratch, form, (struct data_string){text.bytes + first, at - first},
                              out, error);
    return status;
}

/* Stretches of ASCII are copied, others go through utf8proc. Two ASCII characters in a row part a
 * text: no form joins the second with what comes before. */
static int unicode_form(struct data_normal_scratch *scratch, int form, struct data_string text,
                        struct ls_text *out, struct ls_error *error)
{
    int status = codes_room(scratch, 256, error);
    for (size_t at = 0; at < text.count && !status;) {
        size_t plain = ascii_length(text.bytes + at, text.count - at), end;
        status = data_text_put(out, text.bytes + at, plain, error);
        at += plain;
        for (end = at + (at < text.count); end < text.count; end++)
            if (text.bytes[end] < 0x80 && text.bytes[end - 1] < 0x80 && end - 1 > at)
                break;
        if (!status && end > at)
            status = form_parts(scratch, form, (struct data_string){text.bytes + at, end - at}, out,
                                error);
        at = end;
    }
    return status;
}

/* Character by character, whatever stands around it: as in the reference, a final sigma is none. */
static int lowercase(struct data_string text, struct ls_text *out, struct ls_error *error)
{
    int status = LS_OK;
    for (size_t at = 0, bytes; at < text.count && !status; at += bytes) {
        uint32_t small[2], code = data_utf8_decode(text.bytes + at, &bytes);
        int count = data_lowercase(code, small);
        status = data_text_reserve(out, 8, error);
        for (int i = 0; i < count && !status; i++)
            out->count += (size_t)utf8proc_encode_char((utf8proc_int32_t)small[i],
                                                       (utf8proc_uint8_t *)out->bytes + out->count);
    }
    return status;
}

static int strip_accents(struct data_string text, struct ls_text *out, struct ls_error *error)
{
    int status = LS_OK;
    for (size_t at = 0, bytes; at < text.count && !status; at += bytes)
        if (!data_is_accent(data_utf8_decode(text.bytes + at, &bytes)))
            status = data_text_put(out, text.bytes + at, bytes, error);
    return status;
}

static bool is_ascii(struct data_string text)
{
    return ascii_length(text.bytes, text.count) == text.count;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* A step that goes on character by character, or by those that belong together. */
static int characters(const struct data_normalizer *step, struct data_normal_scratch *scratch,
                      struct data_string text, struct ls_text *out, struct ls_error *error)
{
    out->count = 0;
    if (step->kind == DATA_LOWERCASE)
        return lowercase(text, out, error);
    if (step->kind == DATA_STRIP_ACCENTS)
        return strip_accents(text, out, error);
    return unicode_form(scratch, step->form, text, out, error);
}

/* *first becomes the bytes of the result that its characters became, up to a whole character. */
static int characters_first(const struct data_normalizer *step, struct data_normal_scratch *scratch,
                            struct data_string text, struct ls_text *out, size_t *first,
                            struct ls_error *error)
{
    int status = characters(step, scratch, (struct data_string){text.bytes, *first}, out, error);
    *first = out->count;
    if (!status)
        status = characters(step, scratch, text, out, error);
    while (*first < out->count && ((unsigned char)out->bytes[*first] & 0xc0) == 0x80)
        ++*first; /* which the next one was joined to */
    return status;
}

int data_normalize(const struct data_normalizers *normalizers, struct data_normal_scratch *scratch,
                   struct data_string text, bool begins, struct data_string *out, size_t *first,
                   struct ls_error *error)
{
    const size_t most = GROWTH_MAX * text.count + ((size_t)1 << 20);
    int status = LS_OK;
    *out = text;
    for (int i = 0; i < normalizers->count && !status; i++) {
        const struct data_normalizer *step = &normalizers->step[i];
        struct ls_text *to = &scratch->text[i % 2];
        bool nothing = out->count == 0 || (step->kind == DATA_PREPEND && !begins) ||
                       ((step->kind == DATA_UNICODE_FORM || step->kind == DATA_STRIP_ACCENTS) &&
                        is_ascii(*out));
        if (nothing)
            continue;
        if (out->bytes == (unsigned char *)to->bytes)
            to = &scratch->text[(i + 1) % 2];
        to->count = 0;
        if (step->kind == DATA_PREPEND) {
            status = data_text_put(to, step->text, step->text_bytes, error);
            if (!status)
                status = data_text_put(to, out->bytes, out->count, error);
            *first += *first ? step->text_bytes : 0;
        } else if (step->kind == DATA_REPLACE) {
            status = replace(step, scratch->state[i], *out, most, to, first, error);
        } else {
            status = characters_first(step, scratch, *out, to, first, error);
        }
        if (!status)
            status = growth_check(to->count, most, error);
        *out = (struct data_string){(unsigned char *)to->bytes, to->count};
    }
    return status;
}
