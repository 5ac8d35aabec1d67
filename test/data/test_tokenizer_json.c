/* tokenizer.json of every family against the `tokenizers` package: texts, special tokens, decoding,
 * and every code point. tools/golden_tokenizer.py made the files. */
#include "../support/extent.h"
#include "support.h"

#include "data/tokenizer_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define GOLDEN   "test/data/golden/"
#define FAMILIES GOLDEN "families/"

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
        assert_int_equal(ls_utf8_valid((unsigned char *)s->text.bytes, s->text.count),
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
 * before letters, digits, spaces, new lines and marks; between marks of a higher and a lower
 * combining class, and behind a letter that Unicode 13 joins with one. */
static size_t point_text(uint32_t code, char *out)
{
    size_t at = 0;
    for (const char *form = "*a*b *1!*\n *'s* \u0345*\u0334\U00011935*"; *form; form++)
        if (*form == '*')
            at += put_character(out + at, code);
        else
            out[at++] = *form;
    return at;
}

/* Of 4096 code points from `first` on. */
static uint32_t points_crc(struct subject *s, uint32_t first)
{
    char text[96];
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

/* Whether 4096 code points are tried: in `make check` the first three times so many, and of the
 * others one in sixty-four, not the same of each tokenizer. */
static bool points_tried(const char *path, uint32_t first)
{
    size_t turn = (first >> 12) + ls_hash64(path, strlen(path), 0) % 1000;
    return first < 0x3000 || turn % (size_t)check_every(64, 64) == 0;
}

/* Lines of a tokenizer's file that do not hold. */
static int check_lines(const char *spec, const char *path, int *lines)
{
    struct subject s;
    int wrong = 0;
    subject_init(&s, spec);
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
        if (points_tried(path, first) && points_crc(&s, first) != crc) {
            print_error("%s: code points from U+%04X\n", spec, first);
            wrong++;
        }
    }
    ls_text_release(&file);
    subject_release(&s);
    return wrong;
}

static const char *const families[] = {"gpt2",  "llama3", "qwen",    "smollm2", "olmo2",
                                       "o200k", "tekken", "llama2",  "mistral", "gemma",
                                       "odd",   "always", "phrases", "words",   "accents"};
enum { FAMILIES_COUNT = sizeof families / sizeof *families };

static void family_path(char path[256], const char *name, const char *ending)
{
    snprintf(path, 256, FAMILIES "%s.%s", name, ending);
}

CASE(test_every_family)
{
    int wrong = 0;
    for (size_t i = 0; i < FAMILIES_COUNT; i++) {
        char spec[256], path[256];
        family_path(spec, families[i], "json");
        family_path(path, families[i], "txt");
        int lines, here = check_lines(spec, path, &lines);
        if (here)
            print_error("%s: %d of %d lines differ\n", families[i], here, lines);
        assert_true(lines > 300);
        wrong += here;
    }
    assert_int_equal(wrong, 0);
}

/* The same tokens as rank files of each pattern. */
CASE(test_rank_files)
{
    static const char *const patterns[] = {"r50k_base", "cl100k_base", "o200k_base", "llama3",
                                           "qwen"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char spec[256], path[256];
        snprintf(spec, sizeof spec, "%s:" GOLDEN "tokens.tiktoken", patterns[i]);
        snprintf(path, sizeof path, GOLDEN "ranks_%s.txt", patterns[i]);
        int lines;
        assert_int_equal(check_lines(spec, path, &lines), 0);
        assert_true(lines > 300);
    }
    struct subject s;
    subject_init(&s, "llama3:" GOLDEN "tokens.tiktoken");
    int32_t base = (int32_t)s.tokenizer->bpe.vocabulary;
    assert_int_equal(ls_tokenizer_id(s.tokenizer, "<|eot_id|>"), base + 9);
    assert_int_equal(ls_tokenizer_id(s.tokenizer, "<|reserved_special_token_247|>"), base + 255);
    assert_int_equal(ls_tokenizer_vocabulary(s.tokenizer), base + 256);
    assert_int_equal(ls_tokenizer_eod(s.tokenizer), base + 1);
    subject_release(&s);
}

/* ---- any bytes ------------------------------------------------------------------------------- */

/* Words, runs of spaces, special tokens, and bytes that are no UTF-8. */
static size_t mixed_text(uint32_t number, char *text)
{
    static const char *const parts[] = {
        " ",    "  ",   "the ",         "a",  "\n",        "\n\n\n",  "12 ",
        "!",    "\t",   "\xe4\xb8\xad", "'s", "<s>",       " <mask>", "<sep> ",
        "\xff", "\xe4", "\xe2\x96\x81", "-",  "e\xcc\x81", "word",    " word "};
    size_t at = 0;
    for (uint32_t i = 0; i < 24; i++) {
        uint32_t random[4];
        ls_philox(ls_philox_key_of(4, "mixed"), (uint32_t[4]){number, i, 0, 0}, random);
        const char *part = parts[random[0] % (sizeof parts / sizeof *parts)];
        memcpy(text + at, part, strlen(part));
        at += strlen(part);
    }
    return at;
}

/* In two parts at data_last_cut, the ids are those of the whole. `odd` may not be cut, nor may what
 * merges over spaces; twin: the second part forgets that it goes on. */
CASE(test_texts_may_be_cut)
{
    static const char *const uncut[] = {"odd", "phrases", "words", "accents"};
    int twin = 0;
    for (size_t i = 0; i < FAMILIES_COUNT; i++) {
        char path[256], text[512];
        struct subject s;
        struct ls_token_list parts = {0};
        int cuts = 0;
        family_path(path, families[i], "json");
        subject_init(&s, path);
        for (uint32_t n = 0; n < 1000; n += (uint32_t)check_every(16, 8)) {
            size_t bytes = mixed_text(n, text);
            s.ids.count = 0;
            assert_ok(ls_encode(s.encoder, text, bytes, &s.ids, &s.error), s.error);
            for (size_t cut = bytes;
                 (cut = data_last_cut(s.tokenizer, (unsigned char *)text, cut)) > 0; cuts++)
                for (int continued = 0; continued < 2; continued++) {
                    const struct ls_encode_options options = {.continued = continued};
                    parts.count = 0;
                    assert_ok(ls_encode(s.encoder, text, cut, &parts, &s.error), s.error);
                    assert_ok(ls_encode_with(s.encoder, text + cut, bytes - cut, &options, &parts,
                                             &s.error),
                              s.error);
                    bool same =
                        parts.count == s.ids.count &&
                        memcmp(parts.ids, s.ids.ids, (size_t)parts.count * sizeof *parts.ids) == 0;
                    if (continued && !same)
                        fail_msg("%s: text %u cut at %zu", families[i], n, cut);
                    twin += !same;
                }
        }
        bool may = true;
        for (size_t k = 0; k < sizeof uncut / sizeof *uncut; k++)
            may = may && strcmp(families[i], uncut[k]) != 0;
        if ((cuts > 1000 / check_every(16, 8)) != may)
            fail_msg("%s: %d cuts", families[i], cuts);
        ls_token_list_release(&parts);
        subject_release(&s);
    }
    assert_true(twin > 100);
}

/* What is not UTF-8 comes back, where nothing is normalized and every byte has a token. */
CASE(test_any_bytes_come_back)
{
    static const char *const keeping[] = {"llama3", "o200k", "gpt2", "mistral", "llama2"};
    for (size_t i = 0; i < sizeof keeping / sizeof *keeping; i++) {
        char path[256], text[512];
        struct subject s;
        family_path(path, keeping[i], "json");
        subject_init(&s, path);
        for (uint32_t n = 0; n < 1000; n++) {
            size_t bytes = 0, all = mixed_text(n, text);
            for (size_t at = 0; at < all; at++) /* U+2581 comes back as a space */
                if (memcmp(text + at, "\xe2\x96\x81", 3) == 0)
                    at += 2;
                else
                    text[bytes++] = text[at];
            s.ids.count = 0;
            s.text.count = 0;
            assert_ok(ls_encode(s.encoder, text, bytes, &s.ids, &s.error), s.error);
            assert_ok(ls_decode(s.tokenizer, s.ids.ids, s.ids.count, &s.text, &s.error), s.error);
            /* The prefix of a text that begins with a byte that is no text is not put. */
            size_t lost = s.text.count + 1 == bytes && text[0] == ' ';
            assert_int_equal(s.text.count, bytes - lost);
            assert_memory_equal(s.text.bytes, text + lost, bytes - lost);
        }
        assert_int_equal(ls_encoder_unknown(s.encoder), 0);
        subject_release(&s);
    }
}

/* A character that the vocabulary lacks is counted. */
CASE(test_unknown_characters_are_counted)
{
    struct subject s;
    subject_init(&s, FAMILIES "always.json");
    static const char text[] = "a \xf0\x9f\xa6\x8a b \xff";
    assert_ok(ls_encode(s.encoder, text, sizeof text - 1, &s.ids, &s.error), s.error);
    assert_int_equal(ls_encoder_unknown(s.encoder), 2);
    assert_ok(ls_encode(s.encoder, text, sizeof text - 1, &s.ids, &s.error), s.error);
    assert_int_equal(ls_encoder_unknown(s.encoder), 4);
    subject_release(&s);
}

/* 100,000 of one character: a quadratic path would take hours, and tools/run-tests.py would end it.
 */
CASE(test_long_runs)
{
    enum { RUN = 100000 };
    static const char *const characters[] = {"a", " ",        "\n", "=", "1", "\xe4\xb8\xad",
                                             "'", "\xcc\x81", "A"};
    char *text = malloc(3 * RUN + 1);
    for (size_t i = 0; i < FAMILIES_COUNT; i++) {
        char path[256];
        struct subject s;
        family_path(path, families[i], "json");
        subject_init(&s, path);
        for (size_t c = 0; c < sizeof characters / sizeof *characters; c++) {
            size_t length = strlen(characters[c]);
            for (int k = 0; k < RUN; k++)
                memcpy(text + length * (size_t)k, characters[c], length);
            text[length * RUN] = 'x';
            s.ids.count = 0;
            assert_ok(ls_encode(s.encoder, text, length * RUN + 1, &s.ids, &s.error), s.error);
            assert_true(s.ids.count > 0);
        }
        subject_release(&s);
    }
    free(text);
}

SUITE_MAIN(NULL, NULL)
