/* tokenizer.json of every family against the `tokenizers` package: texts, special tokens, decoding,
 * and every code point. tools/golden_tokenizer.py made the files. */
#include "support.h"

#include "data/tokenizer_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define FAMILIES "test/data/golden/families/"

/* A tokenizer under test, with room for what it gives. */
struct subject {
    struct ls_tokenizer *tokenizer;
    struct ls_encoder *encoder;
    struct ls_token_list ids;
    struct ls_text text;
    struct ls_error error;
};

static void subject_init(struct subject *s, const char *spec)
{
    *s = (struct subject){0};
    assert_ok(ls_tokenizer_new(spec, &s->tokenizer, &s->error), s->error);
    assert_ok(ls_encoder_new(s->tokenizer, &s->encoder, &s->error), s->error);
}

static void subject_release(struct subject *s)
{
    ls_text_release(&s->text);
    ls_token_list_release(&s->ids);
    ls_encoder_free(s->encoder);
    ls_tokenizer_free(s->tokenizer);
}

/* ---- golden lines ---------------------------------------------------------------------------- */

/* "48 65" pairs of digits without spaces, in place; returns bytes. */
static size_t unhex(char *hex)
{
    size_t digits = strlen(hex);
    for (size_t i = 0; i + 1 < digits; i += 2) {
        char pair[3] = {hex[i], hex[i + 1], 0};
        hex[i / 2] = (char)strtol(pair, NULL, 16);
    }
    return digits / 2;
}

static int64_t read_ids(char *text, int32_t *ids, int64_t most)
{
    int64_t count = 0;
    for (char *end; *text; text = *end ? end + 1 : end) {
        assert_true(count < most);
        ids[count++] = (int32_t)strtol(text, &end, 10);
        assert_ptr_not_equal(end, text);
    }
    return count;
}

static bool encodes(struct subject *s, const char *text, size_t bytes, bool special,
                    const int32_t *expected, int64_t count)
{
    const struct ls_encode_options options = {.special = special, .around = special};
    s->ids.count = 0;
    assert_ok(ls_encode_with(s->encoder, text, bytes, &options, &s->ids, &s->error), s->error);
    return s->ids.count == count &&
           (count == 0 || memcmp(s->ids.ids, expected, (size_t)count * sizeof *expected) == 0);
}

/* Decoded at once, and as it comes: every piece but the last is whole characters. */
static bool decodes(struct subject *s, const char *text, size_t bytes, bool skip,
                    const int32_t *ids, int64_t count)
{
    struct ls_detokenizer d = {.tokenizer = s->tokenizer, .skip_special = skip};
    s->text.count = 0;
    for (int64_t i = 0; i < count; i++) {
        assert_ok(ls_detokenizer_next(&d, ids[i], &s->text, &s->error), s->error);
        assert_int_equal(data_utf8_valid((unsigned char *)s->text.bytes, s->text.count),
                         s->text.count);
    }
    assert_ok(ls_detokenizer_end(&d, &s->text, &s->error), s->error);
    bool same = s->text.count == bytes && (bytes == 0 || memcmp(s->text.bytes, text, bytes) == 0);
    if (skip)
        return same;
    s->text.count = 0;
    assert_ok(ls_decode(s->tokenizer, ids, count, &s->text, &s->error), s->error);
    return same && s->text.count == bytes;
}

static bool case_holds(struct subject *s, char *line)
{
    int32_t ids[4096];
    char *tab = strchr(line, '\t');
    assert_non_null(tab);
    *tab = '\0';
    int64_t count = read_ids(tab + 1, ids, 4096);
    size_t bytes = unhex(line + 2);
    bool holds = line[0] == 'o' || line[0] == 's'
                     ? encodes(s, line + 2, bytes, line[0] == 's', ids, count)
                     : decodes(s, line + 2, bytes, line[0] == 'k', ids, count);
    if (!holds) {
        print_error("%c \"%.*s\": expected", line[0], (int)bytes, line + 2);
        for (int64_t i = 0; i < count; i++)
            print_error(" %d", ids[i]);
        print_error("; got");
        if (line[0] == 'o' || line[0] == 's')
            for (int64_t i = 0; i < s->ids.count; i++)
                print_error(" %d", s->ids.ids[i]);
        else
            print_error(" \"%.*s\"", (int)s->text.count, s->text.bytes);
        print_error("\n");
    }
    return holds;
}

static size_t put_character(char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = bytes - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)(leads[bytes] | code);
    return bytes;
}

/* point_text of tools/golden_tokenizer.py: the code point at a beginning and an end, behind and
 * before letters, digits, spaces, new lines and marks. */
static size_t point_text(uint32_t code, char *out)
{
    size_t at = 0;
    for (const char *form = "*a*b *1!*\n *'s*"; *form; form++)
        if (*form == '*')
            at += put_character(out + at, code);
        else
            out[at++] = *form;
    return at;
}

/* Of 4096 code points from `first` on. */
static uint32_t points_crc(struct subject *s, uint32_t first)
{
    char text[64];
    uLong crc = 0;
    for (uint32_t code = first; code < first + 0x1000; code++) {
        if (code >= 0xd800 && code < 0xe000)
            continue;
        s->ids.count = 0;
        assert_ok(ls_encode(s->encoder, text, point_text(code, text), &s->ids, &s->error),
                  s->error);
        int32_t count = (int32_t)s->ids.count;
        crc = crc32(crc, (const Bytef *)&count, sizeof count);
        crc = crc32(crc, (const Bytef *)s->ids.ids, (uInt)count * sizeof *s->ids.ids);
    }
    return (uint32_t)crc;
}

/* Lines of a family's file that do not hold. */
static int check_family(const char *name, int *lines)
{
    char path[256];
    struct subject s;
    int wrong = 0;
    snprintf(path, sizeof path, FAMILIES "%s.json", name);
    subject_init(&s, path);
    snprintf(path, sizeof path, FAMILIES "%s.txt", name);
    struct ls_text file = support_read(path);
    *lines = 0;
    for (char *line = file.bytes, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        uint32_t first, crc;
        *end = '\0';
        ++*lines;
        if (line[0] != 'p') {
            wrong += !case_holds(&s, line);
            continue;
        }
        assert_int_equal(sscanf(line, "p %x %x", &first, &crc), 2);
        if (points_crc(&s, first) != crc) {
            print_error("%s: code points from U+%04X\n", name, first);
            wrong++;
        }
    }
    ls_text_release(&file);
    subject_release(&s);
    return wrong;
}

static void test_every_family(void **state)
{
    (void)state;
    static const char *const families[] = {"gpt2",  "llama3", "qwen",   "smollm2", "olmo2",
                                           "o200k", "tekken", "llama2", "mistral", "gemma",
                                           "odd",   "always", "phrases"};
    int wrong = 0;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        int lines, here = check_family(families[i], &lines);
        if (here)
            print_error("%s: %d of %d lines differ\n", families[i], here, lines);
        assert_true(lines > 300);
        wrong += here;
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
