/* Tokenizers against GPT-2's and another implementation's results; malformed vocabularies. */
#include "../support/extent.h"
#include "support.h"

#include "data/tokenizer_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define GOLDEN "test/data/golden/"

static struct ls_tokenizer *tokenizer_new(const char *spec)
{
    struct ls_error error = {0};
    struct ls_tokenizer *tokenizer;
    assert_ok(ls_tokenizer_new(spec, &tokenizer, &error), error);
    return tokenizer;
}

static struct ls_encoder *encoder_new(const struct ls_tokenizer *tokenizer)
{
    struct ls_error error = {0};
    struct ls_encoder *encoder;
    assert_ok(ls_encoder_new(tokenizer, &encoder, &error), error);
    return encoder;
}

static void assert_ids_equal(const struct ls_token_list *found, const int32_t *expected,
                             int64_t count, const char *what)
{
    for (int64_t i = 0; i < count && i < found->count; i++)
        if (found->ids[i] != expected[i])
            fail_msg("%s: id %lld is %d, expected %d", what, (long long)i, found->ids[i],
                     expected[i]);
    if (found->count != count)
        fail_msg("%s: %lld ids, expected %lld", what, (long long)found->count, (long long)count);
}

CASE(test_byte_tokenizer)
{
    struct ls_tokenizer *tokenizer = tokenizer_new("byte");
    assert_int_equal(ls_tokenizer_vocabulary(tokenizer), 257);
    assert_int_equal(ls_tokenizer_eod(tokenizer), 256);
    assert_string_equal(ls_tokenizer_name(tokenizer), "byte");
    struct ls_encoder *encoder = encoder_new(tokenizer);
    struct ls_token_list ids = {0};
    struct ls_text text = {0};
    struct ls_error error = {0};
    assert_ok(ls_encode(encoder, "A\0\xff", 3, &ids, &error), error);
    assert_ids_equal(&ids, (int32_t[]){65, 0, 255}, 3, "A 00 ff");
    assert_ok(ls_decode(tokenizer, (int32_t[]){65, 256}, 2, &text, &error), error);
    assert_int_equal(text.count, 14);
    assert_memory_equal(text.bytes, "A<|endoftext|>", 14);
    assert_int_equal(ls_decode(tokenizer, (int32_t[]){65, 257}, 2, &text, &error), LS_EDATA);
    assert_text_contains(error.text, "token 1: id 257");
    ls_text_release(&text);
    ls_token_list_release(&ids);
    ls_encoder_free(encoder);
    ls_tokenizer_free(tokenizer);
}

/* ---- parity with the reference -------------------------------------------------------------- */

/* "48 65" pairs of digits without spaces; returns bytes written over hex. */
static size_t unhex(char *hex, size_t digits)
{
    for (size_t i = 0; i + 1 < digits; i += 2) {
        char pair[3] = {hex[i], hex[i + 1], 0};
        hex[i / 2] = (char)strtol(pair, NULL, 16);
    }
    return digits / 2;
}

/* Returns how many cases there were. shift is added to every expected id: a broken twin. */
static int check_cases(const char *path, const struct ls_tokenizer *tokenizer, int shift,
                       int *differing)
{
    struct ls_text file = support_read(path);
    struct ls_encoder *encoder = encoder_new(tokenizer);
    struct ls_token_list ids = {0};
    struct ls_text decoded = {0};
    struct ls_error error = {0};
    int cases = 0;
    *differing = 0;
    for (char *line = file.bytes, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = 0;
        char *tab = strchr(line, '\t');
        assert_non_null(tab);
        size_t bytes = unhex(line, (size_t)(tab - line));
        ids.count = 0;
        decoded.count = 0;
        assert_ok(ls_encode(encoder, line, bytes, &ids, &error), error);
        int64_t expected_count = 0;
        bool same = true;
        for (char *at = tab + 1; *at;) {
            int32_t expected = (int32_t)strtol(at, &at, 10) + shift;
            if (*at == ' ')
                at++;
            same = same && expected_count < ids.count && ids.ids[expected_count] == expected;
            expected_count++;
        }
        if (!same || expected_count != ids.count) {
            (*differing)++;
            if (!shift)
                print_error("%s: case %d (%zu bytes \"%.*s\"): %lld ids, expected %lld: %s\n", path,
                            cases, bytes, (int)bytes, line, (long long)ids.count,
                            (long long)expected_count, tab + 1);
        }
        assert_ok(ls_decode(tokenizer, ids.ids, ids.count, &decoded, &error), error);
        assert_int_equal(decoded.count, bytes);
        if (bytes)
            assert_memory_equal(decoded.bytes, line, bytes);
        cases++;
    }
    ls_text_release(&decoded);
    ls_token_list_release(&ids);
    ls_encoder_free(encoder);
    ls_text_release(&file);
    return cases;
}

CASE(test_golden_small)
{
    struct ls_tokenizer *tokenizer = tokenizer_new("test/data/golden");
    assert_string_equal(ls_tokenizer_name(tokenizer), "gpt2");
    int differing, cases = check_cases(GOLDEN "small_cases.txt", tokenizer, 0, &differing);
    assert_int_equal(differing, 0);
    assert_true(cases > 200);
    check_cases(GOLDEN "small_cases.txt", tokenizer, 1, &differing);
    assert_true(differing > 200); /* the comparison can fail */
    ls_tokenizer_free(tokenizer);
}

CASE(test_golden_gpt2)
{
    const char *folder = support_gpt2();
    if (!folder)
        skip();
    struct ls_tokenizer *tokenizer = tokenizer_new(folder);
    assert_int_equal(ls_tokenizer_vocabulary(tokenizer), 50257);
    assert_int_equal(ls_tokenizer_eod(tokenizer), 50256);
    int differing;
    assert_true(check_cases(GOLDEN "gpt2_cases.txt", tokenizer, 0, &differing) > 200);
    assert_int_equal(differing, 0);
    ls_tokenizer_free(tokenizer);
}

static size_t put_character(unsigned char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (unsigned char)code;
        return 1;
    }
    size_t bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = bytes - 1; i > 0; i--) {
        out[i] = (unsigned char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (unsigned char)(leads[bytes] | code);
    return bytes;
}

/* Letters, numbers and white space, as golden_tokenizer.py found them; the rest is 'O'. */
static char *golden_classes(void)
{
    char *expected = malloc(0x110000);
    memset(expected, 'O', 0x110000);
    struct ls_text file = support_read(GOLDEN "unicode_classes.txt");
    for (char *line = file.bytes; *line; line = strchr(line, '\n') + 1) {
        char class;
        unsigned first, last;
        assert_int_equal(sscanf(line, "%c %x %x", &class, &first, &last), 3);
        memset(expected + first, class, last - first + 1);
    }
    ls_text_release(&file);
    return expected;
}

static bool matches(const struct data_splitter *splitter, void *split_state,
                    const unsigned char *text, size_t bytes)
{
    struct ls_error error = {0};
    struct data_range found;
    assert_ok(data_split_find(splitter, split_state, text, bytes, 0, &found, &error), error);
    return found.begin == 0 && found.end == bytes;
}

/* The code point after this one: above the scripts of U+3400 one in 61 in `make check`. */
static uint32_t next_code(uint32_t code)
{
    return code + (code < 0x3400 ? 1 : (uint32_t)check_every(61, 61));
}

/* By our own table, and by the classes of translated patterns. */
CASE(test_every_code_point_is_classified_as_in_the_reference)
{
    static const struct {
        char class;
        const char *pattern;
    } classes[] = {{'L', "\\p{L}"}, {'N', "\\p{N}"}, {'S', "\\s"}, {'O', "[^\\s\\p{L}\\p{N}]"}};
    char *expected = golden_classes();
    struct ls_error error = {0};
    int wrong = 0;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        struct data_splitter *splitter;
        void *split_state;
        assert_ok(data_splitter_new(classes[i].pattern, DATA_ONIGURUMA, false, &splitter, &error),
                  error);
        assert_ok(data_split_state_new(splitter, &split_state, &error), error);
        for (uint32_t code = 0; code < 0x110000; code = next_code(code)) {
            unsigned char text[4];
            if (code >= 0xd800 && code < 0xe000)
                continue;
            char class = expected[code];
            int category = data_category(code);
            bool ours = classes[i].class == 'S' ? data_is_space(code)
                        : classes[i].class == 'O'
                            ? class == 'O'
                            : data_category_within(category, (char[]){classes[i].class, 0});
            bool theirs = matches(splitter, split_state, text, put_character(text, code));
            bool is = class == classes[i].class;
            if ((ours != is || theirs != is) && wrong++ < 5)
                print_error("U+%04X is %c: table %d, pattern %s %d\n", code, class, ours,
                            classes[i].pattern, theirs);
        }
        data_split_state_free(split_state);
        data_splitter_free(splitter);
    }
    assert_int_equal(wrong, 0);
    free(expected);
}

/* ---- scanners against patterns --------------------------------------------------------------- */

static const char *const patterns[] = {"gpt2",   "r50k_base", "cl100k_base", "o200k_base",
                                       "llama3", "qwen",      "tekken"};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

struct pair {
    struct data_splitter *scanned, *matched;
    void *state;
};

static void pair_make(struct pair *pair, const char *name, enum data_pattern_syntax syntax)
{
    struct ls_error error = {0};
    const char *pattern = data_pattern_named(name);
    assert_non_null(pattern);
    assert_ok(data_splitter_new(pattern, syntax, true, &pair->scanned, &error), error);
    assert_ok(data_splitter_new(pattern, syntax, false, &pair->matched, &error), error);
    assert_ok(data_split_state_new(pair->matched, &pair->state, &error), error);
    assert_false(data_splitter_covers(pair->matched));
}

static void pair_init(struct pair *pair, const char *name)
{
    pair_make(pair, name, DATA_FANCY);
    assert_true(data_splitter_covers(pair->scanned));
}

static void pair_release(struct pair *pair)
{
    data_split_state_free(pair->state);
    data_splitter_free(pair->scanned);
    data_splitter_free(pair->matched);
}

/* Where they part; bytes: nowhere. */
static size_t first_difference(const struct pair *pair, const unsigned char *text, size_t bytes)
{
    struct ls_error error = {0};
    struct data_range a, b;
    for (size_t at = 0; at < bytes; at = a.end) {
        assert_ok(data_split_find(pair->scanned, NULL, text, bytes, at, &a, &error), error);
        assert_ok(data_split_find(pair->matched, pair->state, text, bytes, at, &b, &error), error);
        if (a.begin != b.begin || a.end != b.end)
            return at;
    }
    return bytes;
}

static size_t in_form(const char *form, uint32_t code, unsigned char *text)
{
    size_t at = 0;
    for (; *form; form++)
        if (*form == '*')
            at += put_character(text + at, code);
        else
            text[at++] = (unsigned char)*form;
    return at;
}

CASE(test_scanners_know_every_code_point)
{
    static const char *const forms[] = {"*A*a*1* *!*\n*", "a*a **\r*'*s'*'S*"};
    unsigned char text[64];
    for (int i = 0; i < PATTERNS; i++) {
        struct pair pair;
        pair_init(&pair, patterns[i]);
        int wrong = 0;
        for (uint32_t code = 0; code < 0x110000; code = next_code(code))
            for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
                size_t bytes = code >= 0xd800 && code < 0xe000 ? 0 : in_form(forms[f], code, text);
                if (first_difference(&pair, text, bytes) < bytes && wrong++ < 5)
                    print_error("%s: U+%04X in \"%s\"\n", patterns[i], code, forms[f]);
            }
        assert_int_equal(wrong, 0);
        pair_release(&pair);
    }
}

/* A text of characters that patterns treat apart. */
static size_t pattern_text(uint32_t number, unsigned char *text, size_t characters)
{
    static const uint32_t codes[] = {
        'a', 'A', 's', 'S',     0x17f,  '\'',   ' ',    ' ',   '\n', '\r',   '\t', '1',
        '2', '/', '!', 0x301,   0x1c5,  0x2b0,  0x4e2d, 0x661, 0xa0, 0x3000, 0x85, 'l',
        'e', 'v', 'R', 0x1f600, 0x2160, 0x200d, 'd',    'm',   't',  0x3b1,  0x391};
    size_t at = 0;
    for (uint32_t i = 0; i < characters; i++) {
        uint32_t random[4];
        ls_philox(ls_philox_key_of(3, "pattern"), (uint32_t[4]){number, i, 0, 0}, random);
        at += put_character(text + at, codes[random[0] % (sizeof codes / sizeof *codes)]);
    }
    return at;
}

CASE(test_scanners_cut_as_patterns_do)
{
    unsigned char text[64];
    int twin = 0; /* another pattern's scanner is caught */
    for (int i = 0; i < PATTERNS; i++) {
        struct pair pair, other;
        pair_init(&pair, patterns[i]);
        pair_init(&other, patterns[(i + 2) % PATTERNS]);
        struct pair crossed = {other.scanned, pair.matched, pair.state};
        for (uint32_t n = 0; n < (check_all() ? 50000 : 5000); n++) {
            size_t bytes = pattern_text(n, text, 1 + n % 12);
            size_t at = first_difference(&pair, text, bytes);
            if (at < bytes)
                fail_msg("%s: text %u \"%.*s\" at %zu", patterns[i], n, (int)bytes, text, at);
            twin += n < 1000 && first_difference(&crossed, text, bytes) < bytes;
        }
        pair_release(&pair);
        pair_release(&other);
    }
    assert_true(twin > 1000);
}

/* A tokenizer.json made of a rank file has its pattern, which Oniguruma reads: in that of
 * cl100k_base {1,3}+ is a repetition, so it is not scanned there. */
CASE(test_scanners_cut_as_oniguruma_does)
{
    static const char digits[] = "835806";
    struct ls_error error = {0};
    unsigned char text[64];
    for (int i = 0; i < PATTERNS; i++) {
        struct pair pair;
        struct data_range found;
        pair_make(&pair, patterns[i], DATA_ONIGURUMA);
        bool scanned = data_splitter_covers(pair.scanned);
        assert_int_equal(scanned, strcmp(patterns[i], "cl100k_base") != 0);
        for (uint32_t n = 0; n < (check_all() ? 50000 : 5000) && scanned; n++) {
            size_t bytes = pattern_text(n, text, 1 + n % 12);
            size_t at = first_difference(&pair, text, bytes);
            if (at < bytes)
                fail_msg("%s: text %u \"%.*s\" at %zu", patterns[i], n, (int)bytes, text, at);
        }
        if (!scanned) {
            assert_ok(data_split_find(pair.scanned, pair.state, (const unsigned char *)digits,
                                      strlen(digits), 0, &found, &error),
                      error);
            assert_int_equal(found.end, strlen(digits));
        }
        pair_release(&pair);
    }
}

/* Of every class: how many characters it has, and the sum of their numbers, as the `tokenizers`
 * library 0.23 has them (tools/interop_tokenizer.py --classes prints this table). */
static const struct {
    const char *pattern;
    int count;
    uint32_t sum;
} classes[] = {
    {"\\w", 144671, 2736728200u},
    {"\\W", 967393, 3589823352u},
    {"[\\w]", 144665, 2736727091u},
    {"\\d", 760, 39891450u},
    {"\\s", 25, 141586u},
    {"\\p{Han}", 99030, 3983948558u},
    {"\\p{Hiragana}", 381, 33455756u},
    {"\\p{Katakana}", 321, 9165001u},
    {"\\p{Hangul}", 11739, 566124223u},
    {"\\p{Thai}", 86, 312105u},
    {"\\p{Hebrew}", 134, 3087732u},
    {"\\p{Greek}", 518, 15787342u},
    {"\\p{Latin}", 1487, 27421744u},
    {"\\p{Cyrillic}", 508, 12793574u},
    {"\\p{Arabic}", 1373, 71326622u},
    {"\\p{Devanagari}", 164, 2397130u},
    {"\\p{L}", 141028, 2356027370u},
    {"\\p{M}", 2501, 316771473u},
    {"\\p{N}", 1911, 110651895u},
    {"\\p{P}", 855, 28835015u},
    {"\\p{S}", 8514, 620170451u},
    {"\\p{Lu}", 1858, 86924357u},
    {"\\p{Lo}", 136477, 2144631008u},
};

CASE(test_classes_hold_what_they_hold_there)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i += (size_t)check_every(3, 3)) {
        struct ls_error error = {0};
        struct data_splitter *splitter;
        void *split_state;
        int count = 0;
        uint32_t sum = 0;
        assert_ok(data_splitter_new(classes[i].pattern, DATA_ONIGURUMA, false, &splitter, &error),
                  error);
        assert_ok(data_split_state_new(splitter, &split_state, &error), error);
        for (uint32_t code = 0; code < 0x110000; code++) {
            unsigned char text[4];
            bool surrogate = code >= 0xd800 && code < 0xe000;
            if (!surrogate && matches(splitter, split_state, text, put_character(text, code))) {
                count++;
                sum += code;
            }
        }
        if (count != classes[i].count || sum != classes[i].sum)
            fail_msg("%s: %d characters, sum %u; expected %d, %u", classes[i].pattern, count, sum,
                     classes[i].count, classes[i].sum);
        data_split_state_free(split_state);
        data_splitter_free(splitter);
    }
}

/* Of every normalizer: how many characters it changes, and a hash of what becomes of each, as
 * tools/interop_tokenizer.py --classes prints them of the `tokenizers` library. */
CASE(test_normalizers_change_what_they_change_there)
{
    static const struct {
        const char *name;
        struct data_normalizer step;
        int changed;
        uint32_t hash;
    } cases[] = {
        {"NFC",
         {.kind = DATA_UNICODE_FORM, .form = UTF8PROC_STABLE | UTF8PROC_COMPOSE},
         1120,
         3675048896u},
        {"NFD",
         {.kind = DATA_UNICODE_FORM, .form = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
         13232,
         782558740u},
        {"NFKC",
         {.kind = DATA_UNICODE_FORM, .form = UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_COMPOSE},
         4794,
         3455078742u},
        {"NFKD",
         {.kind = DATA_UNICODE_FORM,
          .form = UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE},
         16894,
         2898359127u},
        {"Lowercase", {.kind = DATA_LOWERCASE}, 1488, 202161059u},
        {"StripAccents", {.kind = DATA_STRIP_ACCENTS}, 2097, 3940255677u},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct data_normalizers normalizers = {.count = 1, .step = {cases[i].step}};
        struct data_normal_scratch scratch;
        struct ls_error error = {0};
        int changed = 0;
        uint32_t hash = 0;
        assert_ok(data_normal_scratch_init(&scratch, &normalizers, &error), error);
        for (uint32_t code = 0; code < 0x110000; code++) {
            unsigned char text[4];
            struct data_string out;
            if (code >= 0xd800 && code < 0xe000)
                continue;
            const struct data_string in = {text, put_character(text, code)};
            size_t first = 0;
            assert_ok(data_normalize(&normalizers, &scratch, in, true, &out, &first, &error),
                      error);
            changed += out.count != in.count || memcmp(out.bytes, in.bytes, in.count) != 0;
            for (size_t k = 0; k < out.count; k++)
                hash = 31 * hash + out.bytes[k];
            hash *= 31; /* and a zero behind it */
        }
        if (changed != cases[i].changed || hash != cases[i].hash)
            fail_msg("%s: %d characters change, hash %u; expected %d, %u", cases[i].name, changed,
                     hash, cases[i].changed, cases[i].hash);
        data_normal_scratch_release(&scratch);
    }
}

/* What Oniguruma reads in another way than PCRE2: the matches are those there. */
CASE(test_what_oniguruma_reads_in_another_way)
{
    static const struct {
        const char *pattern, *text;
        size_t bytes; /* of the match at its beginning; 0: there is none at all */
    } cases[] = {
        {"xa{,3}", "xaaaaa", 4},
        {"a{2,3}?", "aaaa", 2},
        {"a{1}b", "ab", 2},
        {"a{", "a{", 2},
        {"a{,}", "a{,}", 4},
        {"a{b}", "a{b}", 4},
        {"a{2,}", "aaaa", 4},
        {"\\w+", "z\xc2\xb2\xe2\x92\xb6.", 6},
        {"xa{2}?b", "xaab", 4},
        {"xa{2}?b", "xb", 2},
        {"xa{2}??a", "xaaa", 2},
        {"xa{2,3}+b", "xaaaaaab", 8},
        {"x\xc3\xa9{2}?b", "xb", 2},
        {"x\xc3\xa9{2}?b",
         "x\xc3\xa9\xc3\xa9"
         "b",
         6},
        {"x(?:ab|(c)){2}?d", "xabcd", 5},
        {"x(?:ab|(c)){2}?d", "xd", 2},
        {"x[a-c]{2}{2}d", "xabcad", 6},
        {"x\\w{2}?.", "x..", 2},
        {"(?i:'s|'t)", "'\xc5\xbf", 3},
        {"(?:x|(?i)a|b)c", "Bc", 2},
        {"(?:(?i)a)b|c", "C", 0},
        {"(?>x*y|)y", "xy", 0}, /* PCRE2 10.42 would find y, and not the next two */
        {"(?=ab)x?a", "ab", 1},
        {"(?:x|)[^ ]+a", "xab", 2},
        {"(?:ab?)+b", "abab", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        struct data_splitter *splitter;
        void *split_state;
        struct data_range found;
        assert_ok(data_splitter_new(cases[i].pattern, DATA_ONIGURUMA, false, &splitter, &error),
                  error);
        assert_ok(data_split_state_new(splitter, &split_state, &error), error);
        assert_ok(data_split_find(splitter, split_state, (const unsigned char *)cases[i].text,
                                  strlen(cases[i].text), 0, &found, &error),
                  error);
        size_t none = strlen(cases[i].text);
        struct data_range expected = {cases[i].bytes ? 0 : none,
                                      cases[i].bytes ? cases[i].bytes : none};
        if (found.begin != expected.begin || found.end != expected.end)
            fail_msg("%s in %s: [%zu, %zu), expected %zu bytes", cases[i].pattern, cases[i].text,
                     found.begin, found.end, cases[i].bytes);
        data_split_state_free(split_state);
        data_splitter_free(splitter);
    }
}

CASE(test_patterns_that_are_refused)
{
    static const struct {
        const char *pattern, *says;
    } cases[] = {
        {"\\p{Runic}+", "this property (at character 3)"},
        {"\\h+", "this escape"},
        {"\\bx", "this escape"},
        {"(?:ba){1}?x", "a repetition of {1} (at character 10)"},
        {"a{3,1}", "a repetition whose least is above its most"},
        {"[^\\S]", "a negated class in brackets"},
        {"[a[b]]", "brackets in brackets"},
        {"[a-z&&b]", "the && of brackets"},
        {"^a", "\"^\""},
        {"a{1,1}+", "a repetition of {1}"},
        {"(?<name>a)", "this kind of group"},
        {"(a)\\1", "this escape"},
        {"a\\", "a backslash at the end"},
        {"a*", "may match an empty text"},
        {"", "may match an empty text"},
        {"(a", "missing closing parenthesis"},
        {"(?:a??|b){1,2}?a", "a repetition of what may match an empty text (at character 10)"},
        {"(?:b|a*(?=b)|c)+", "a repetition of what may match an empty text (at character 16)"},
        {"a(?i)|b", "(?i) behind the beginning of a branch (at character 3)"},
        {"(?i:ss)", "this letter behind s or f within (?i) (at character 6)"},
        {"(?i:(?:f)(?:i))", "this letter behind s or f within (?i) (at character 13)"},
        {"(?i)\xc3\x9f", "a character beyond ASCII within (?i) (at character 5)"},
        {"(?i:[\\p{Lu}])", "this escape within (?i)"},
        {"[]a]", "\"]\" at the beginning of brackets (at character 2)"},
        {"[\\s-z]", "a range of a class (at character 4)"},
        {"[!-\\w]", "a range of a class (at character 3)"},
        {"\\p{Mn}", "this property"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ls_error error = {0};
        struct data_splitter *splitter;
        int status = data_splitter_new(cases[i].pattern, DATA_ONIGURUMA, true, &splitter, &error);
        if (status != LS_ENOTSUP && status != LS_EDATA)
            fail_msg("%s: %s", cases[i].pattern, ls_status_name(status));
        assert_text_contains(error.text, cases[i].says);
        assert_text_contains(error.text, cases[i].pattern);
    }
}

/* ---- any bytes ------------------------------------------------------------------------------ */

CASE(test_utf8_validation)
{
    static const struct {
        const char *text;
        size_t bytes, valid;
    } cases[] = {
        {"", 0, 0},
        {"abcdefghijk", 11, 11},
        {"abcdefgh\xff", 9, 8},
        {"\xc2\x80\xdf\xbf", 4, 4},
        {"\xc0\x80", 2, 0},          /* overlong */
        {"\xc1\xbf", 2, 0},          /* overlong */
        {"\xe0\x9f\xbf", 3, 0},      /* overlong */
        {"\xe0\xa0\x80", 3, 3},      /* U+0800 */
        {"\xed\x9f\xbf", 3, 3},      /* U+D7FF */
        {"\xed\xa0\x80", 3, 0},      /* a surrogate */
        {"\xf0\x8f\xbf\xbf", 4, 0},  /* overlong */
        {"\xf0\x90\x80\x80", 4, 4},  /* U+10000 */
        {"\xf4\x8f\xbf\xbf", 4, 4},  /* U+10FFFF */
        {"\xf4\x90\x80\x80", 4, 0},  /* above */
        {"\xf5\x80\x80\x80", 4, 0},  /* above */
        {"a\xe4\xb8", 3, 1},         /* cut off */
        {"a\xe4\xb8\xad\x80", 5, 4}, /* a continuation alone */
        {"\xe4\xb8\x41", 3, 0},      /* continued by a letter */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (ls_utf8_valid((const unsigned char *)cases[i].text, cases[i].bytes) != cases[i].valid)
            fail_msg("case %zu: expected %zu valid bytes", i, cases[i].valid);
}

/* Bytes of many kinds: text, UTF-8 torn and whole, noise. */
static size_t random_text(struct ls_philox_key key, uint32_t number, unsigned char *text,
                          size_t bytes_max)
{
    size_t at = 0;
    for (uint32_t block = 0; at + 8 < bytes_max; block++) {
        uint32_t random[4];
        ls_philox(key, (uint32_t[4]){number, block, 0, 0}, random);
        switch (random[0] % 8) {
        case 0:
            text[at++] = (unsigned char)random[1];
            break;
        case 1:
            text[at++] = ' ';
            break;
        case 2:
            at += put_character(text + at, random[1] % 0xd800);
            break;
        case 3:
            at += put_character(text + at, 0xe000 + random[1] % (0x110000 - 0xe000));
            break;
        case 4:
            text[at++] = "\n\t '0"[random[1] % 5];
            break;
        default:
            text[at++] = (unsigned char)('a' + random[1] % 26);
        }
    }
    return at;
}

/* decode(encode(x)) = x for any bytes; and encoding in two parts at data_last_cut gives the ids of
 * the whole. */
CASE(test_any_bytes_round_trip_and_cut)
{
    struct ls_tokenizer *tokenizer = tokenizer_new("test/data/golden");
    struct ls_encoder *encoder = encoder_new(tokenizer);
    struct ls_token_list whole = {0}, parts = {0};
    struct ls_text decoded = {0};
    struct ls_error error = {0};
    unsigned char text[400];
    int cuts = 0;
    for (uint32_t n = 0; n < 3000; n++) {
        size_t bytes = random_text(ls_philox_key_of(1, "text"), n, text, 16 + n % 384);
        whole.count = parts.count = 0;
        decoded.count = 0;
        assert_ok(ls_encode(encoder, text, bytes, &whole, &error), error);
        assert_ok(ls_decode(tokenizer, whole.ids, whole.count, &decoded, &error), error);
        assert_int_equal(decoded.count, bytes);
        assert_memory_equal(decoded.bytes, text, bytes);
        for (size_t cut = bytes; (cut = data_last_cut(tokenizer, text, cut)) > 0; cuts++) {
            parts.count = 0;
            assert_ok(ls_encode(encoder, text, cut, &parts, &error), error);
            assert_ok(ls_encode(encoder, text + cut, bytes - cut, &parts, &error), error);
            assert_ids_equal(&parts, whole.ids, whole.count, "cut text");
        }
    }
    assert_true(cuts > 1000);
    ls_text_release(&decoded);
    ls_token_list_release(&parts);
    ls_token_list_release(&whole);
    ls_encoder_free(encoder);
    ls_tokenizer_free(tokenizer);
}

CASE(test_invalid_utf8_is_kept_byte_by_byte)
{
    struct ls_tokenizer *tokenizer = tokenizer_new("test/data/golden");
    struct ls_encoder *encoder = encoder_new(tokenizer);
    struct ls_token_list ids = {0};
    struct ls_error error = {0};
    const int32_t *byte_id = tokenizer->bpe.byte_id;
    assert_ok(ls_encode(encoder, "x\xe4\xb8y", 4, &ids, &error), error);
    assert_ids_equal(&ids, (int32_t[]){byte_id['x'], byte_id[0xe4], byte_id[0xb8], byte_id['y']}, 4,
                     "x e4 b8 y");
    ls_token_list_release(&ids);
    ls_encoder_free(encoder);
    ls_tokenizer_free(tokenizer);
}

/* The heap for long pieces and the scan for short ones are two ways to one result. */
CASE(test_long_and_short_merging_agree)
{
    struct ls_tokenizer *tokenizer = tokenizer_new("test/data/golden");
    struct data_bpe_scratch scratch;
    struct ls_error error = {0};
    assert_ok(data_bpe_scratch_init(&scratch, &error), error);
    struct ls_token_list heap = {0}, scan = {0};
    unsigned char piece[40];
    for (uint32_t n = 0; n < 5000; n++) {
        for (size_t i = 0; i < sizeof piece; i += 4) {
            uint32_t random[4];
            ls_philox(ls_philox_key_of(2, "piece"), (uint32_t[4]){n, (uint32_t)i, 0, 0}, random);
            for (size_t k = 0; k < 4; k++) /* few letters: many merges */
                piece[i + k] = (unsigned char)"the =\n"[random[k] % (n % 2 ? 6 : 3)];
        }
        size_t bytes = 1 + n % sizeof piece;
        heap.count = scan.count = 0;
        assert_ok(data_bpe_encode_long(&tokenizer->bpe, &scratch, piece, bytes, &heap, &error),
                  error);
        assert_ok(data_bpe_encode(&tokenizer->bpe, &scratch, piece, bytes, &scan, &error), error);
        assert_ids_equal(&heap, scan.ids, scan.count, "heap against scan");
    }
    ls_token_list_release(&scan);
    ls_token_list_release(&heap);
    data_bpe_scratch_release(&scratch);
    ls_tokenizer_free(tokenizer);
}

/* A word of a megabyte: neither the stack nor time runs out. */
CASE(test_very_long_word)
{
    struct ls_tokenizer *tokenizer = tokenizer_new("test/data/golden");
    struct ls_encoder *encoder = encoder_new(tokenizer);
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);
    memset(text, 'a', BYTES);
    struct ls_token_list ids = {0};
    struct ls_text decoded = {0};
    struct ls_error error = {0};
    assert_ok(ls_encode(encoder, text, BYTES, &ids, &error), error);
    assert_ok(ls_decode(tokenizer, ids.ids, ids.count, &decoded, &error), error);
    assert_int_equal(decoded.count, BYTES);
    assert_memory_equal(decoded.bytes, text, BYTES);
    ls_text_release(&decoded);
    ls_token_list_release(&ids);
    free(text);
    ls_encoder_free(encoder);
    ls_tokenizer_free(tokenizer);
}

/* ---- files that are wrong ------------------------------------------------------------------- */

static int parse(const char *vocab, size_t vocab_bytes, const char *merges, struct ls_error *error)
{
    struct data_bpe bpe;
    int32_t eod;
    int status =
        data_bpe_parse(&bpe, (struct data_named_text){"vocab.json", vocab, vocab_bytes},
                       (struct data_named_text){"merges.txt", merges, strlen(merges)}, &eod, error);
    if (!status)
        data_bpe_release(&bpe);
    return status;
}

/* vocab with the first `from` replaced by `to`. */
static int parse_replaced(const struct ls_text *vocab, const char *from, const char *to,
                          const char *merges, struct ls_error *error)
{
    char *copy = malloc(vocab->count + strlen(to) + 1);
    const char *at = strstr(vocab->bytes, from);
    assert_non_null(at);
    size_t head = (size_t)(at - vocab->bytes);
    memcpy(copy, vocab->bytes, head);
    strcpy(copy + head, to);
    strcat(copy, at + strlen(from));
    int status = parse(copy, strlen(copy), merges, error);
    free(copy);
    return status;
}

CASE(test_malformed_vocabularies)
{
    struct ls_text vocab = support_read(GOLDEN "vocab.json");
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"{", "[{", "vocab.json:"}, /* not JSON */
        {"\"!\":0,", "\"!\":0,\"!\":0,", "duplicate object key"},
        {"\"!\":0,", "\"!\":1,", "ids are unique"},
        {"\"!\":0,", "\"!\":-1,", "without holes"},
        {"\"!\":0,", "\"!\":100000,", "without holes"},
        {"\"!\":0,", "\"!\":\"0\",", "not an integer"},
        {"\"!\":0,", "\"!\":0.0,", "not an integer"},
        {"\"!\":0,", "\"\":0,", "the empty token"},
        {"\"!\":0,", "\"!!!!\":0,", "byte 33 (\"\\x21\") has no token"},
        {"\"!\":0,", "\"\\u4e2d\":0,", "represents no byte"},
        {"\"!\":0,", "\"a b\":0,", "represents no byte"},
        {"<|endoftext|>", "<|end|>", "no token \"<|endoftext|>\""},
    };
    struct ls_error error = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int status = parse_replaced(&vocab, cases[i].from, cases[i].to, "#version: 0.2\n", &error);
        if (status != LS_EDATA)
            fail_msg("case %zu (%s): %s", i, cases[i].says, ls_status_name(status));
        assert_text_contains(error.text, cases[i].says);
    }
    assert_int_equal(parse("", 0, "", &error), LS_EDATA);
    assert_int_equal(parse("[]", 2, "", &error), LS_EDATA);
    assert_text_contains(error.text, "expected an object");
    assert_int_equal(parse("{}", 2, "", &error), LS_EDATA);
    assert_int_equal(parse(vocab.bytes, vocab.count / 2, "", &error), LS_EDATA);
    ls_text_release(&vocab);
}

CASE(test_malformed_merges)
{
    struct ls_text vocab = support_read(GOLDEN "vocab.json");
    static const struct {
        const char *merges, *says;
    } cases[] = {
        {"#version: 0.2\na a\nab\n", "merges.txt:3: \"ab\" is not a merge"},
        {"#version: 0.2\na  a\n", "merges.txt:2:"},
        {"#version: 0.2\na a a\n", "merges.txt:2:"},
        {"#version: 0.2\n a\n", "merges.txt:2:"},
        {"#version: 0.2\na \n", "merges.txt:2:"},
        {"#version: 0.2\n\na a\n", "merges.txt:2:"},
        {"#version: 0.2\na a\nqzx a\n", "merges.txt:3: token \"qzx\" is not in the vocabulary"},
        {"#version: 0.2\nq z\n", "the merged token \"qz\" is not in the vocabulary"},
        {"#version: 0.2\na a\nt h\na a\n", "merges.txt:4: this pair"},
    };
    struct ls_error error = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int status = parse(vocab.bytes, vocab.count, cases[i].merges, &error);
        if (status != LS_EDATA)
            fail_msg("case %zu (%s): %s", i, cases[i].says, ls_status_name(status));
        assert_text_contains(error.text, cases[i].says);
    }
    /* What is allowed: no version line, no last line end, none at all, DOS line ends. */
    assert_ok(parse(vocab.bytes, vocab.count, "a a\nt h", &error), error);
    assert_ok(parse(vocab.bytes, vocab.count, "", &error), error);
    assert_ok(parse(vocab.bytes, vocab.count, "#version: 0.2\r\na a\r\n", &error), error);
    ls_text_release(&vocab);
}

CASE(test_specs)
{
    struct ls_error error = {0};
    struct ls_tokenizer *tokenizer;
    assert_int_equal(ls_tokenizer_new("bytes", &tokenizer, &error), LS_EDATA);
    assert_text_contains(error.text, "expected \"byte\"");
    assert_int_equal(ls_tokenizer_new("/nowhere/a.json,/nowhere/b.txt", &tokenizer, &error),
                     LS_EIO);
    assert_text_contains(error.text, "/nowhere/a.json");
    assert_int_equal(ls_tokenizer_new(GOLDEN "vocab.json,/nowhere/b.txt", &tokenizer, &error),
                     LS_EIO);
    assert_text_contains(error.text, "/nowhere/b.txt");

    /* The spec that a tokenizer reports makes it again. */
    tokenizer = tokenizer_new(GOLDEN "vocab.json," GOLDEN "merges.txt");
    struct ls_tokenizer *again = tokenizer_new(ls_tokenizer_spec(tokenizer));
    assert_int_equal(ls_tokenizer_spec(tokenizer)[0], '/');
    assert_string_equal(ls_tokenizer_spec(again), ls_tokenizer_spec(tokenizer));
    ls_tokenizer_free(again);
    ls_tokenizer_free(tokenizer);
}

/* ---- memory that fails ---------------------------------------------------------------------- */

/* All but the reading of vocab.json: jansson 2.14 goes on with part of a string where memory for
 * the whole is missing. */
static int split_and_encode(void *user, struct ls_error *error)
{
    const struct ls_tokenizer *tokenizer = user;
    struct data_splitter *splitter = NULL;
    struct ls_encoder *encoder = NULL;
    struct ls_token_list ids = {0};
    struct ls_text text = {0};
    static const char word[] =
        "the the aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    int status = data_splitter_new(DATA_PATTERN_GPT2, DATA_ONIGURUMA, true, &splitter, error);
    if (!status)
        status = ls_encoder_new(tokenizer, &encoder, error);
    if (!status)
        status = ls_encode(encoder, word, sizeof word - 1, &ids, error);
    if (!status)
        status = ls_decode(tokenizer, ids.ids, ids.count, &text, error);
    ls_text_release(&text);
    ls_token_list_release(&ids);
    ls_encoder_free(encoder);
    data_splitter_free(splitter);
    return status;
}

CASE(test_every_allocation_may_fail)
{
    if (!support_counts_allocations())
        skip();
    struct ls_tokenizer *tokenizer = tokenizer_new("test/data/golden");
    assert_true(support_fail_each_allocation(split_and_encode, tokenizer) >= 7);
    ls_tokenizer_free(tokenizer);
}

SUITE_MAIN(NULL, NULL)
