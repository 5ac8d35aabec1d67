/* Random numbers, bf16, ordered sums, digests and errors. */
#include <lockstep/base.h>
#include <lockstep/base/file.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "../support/suite.h"
#include "../support/wrapped.h"

/* Known answers from the Random123 distribution's kat_vectors. */
CASE(test_philox_known_answers)
{
    uint32_t out[4];
    ls_philox((struct ls_philox_key){{0, 0}}, (uint32_t[4]){0, 0, 0, 0}, out);
    uint32_t zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_memory_equal(out, zero, sizeof out);
    ls_philox((struct ls_philox_key){{0xa4093822, 0x299f31d0}},
              (uint32_t[4]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, out);
    uint32_t pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    assert_memory_equal(out, pi, sizeof out);
}

CASE(test_normal_is_by_index_and_normal)
{
    struct ls_philox_key key = ls_philox_key_of(7, "init:test");
    enum { N = 100000 };
    static float all[N], part[1001];
    ls_normal_fill(key, 0, N, 0, 1, all);
    ls_normal_fill(key, 333, 1001, 0, 1, part);
    assert_memory_equal(part, all + 333, sizeof part);
    double sum = 0, squares = 0, fourth = 0;
    for (int i = 0; i < N; i++) {
        sum += all[i];
        squares += (double)all[i] * all[i];
        fourth += pow(all[i], 4);
    }
    assert_true(fabs(sum / N) < 0.02);
    assert_true(fabs(squares / N - 1) < 0.02);
    assert_true(fabs(fourth / N - 3) < 0.15);
}

CASE(test_bf16_rounds_to_nearest_even)
{
    assert_int_equal(ls_f32_to_bf16(1.0f), 0x3f80);
    assert_int_equal(ls_f32_to_bf16(1.00390625f), 0x3f80); /* tie to even */
    assert_int_equal(ls_f32_to_bf16(1.01171875f), 0x3f82); /* tie to even, upwards */
    assert_int_equal(ls_f32_to_bf16(1.0040f), 0x3f81);
    assert_int_equal(ls_f32_to_bf16(INFINITY), 0x7f80);
    assert_true(isnan(ls_bf16_to_f32(ls_f32_to_bf16(NAN))));
    assert_int_equal(ls_f32_to_bf16(3.4e38f), 0x7f80);
}

CASE(test_tree)
{
    assert_int_equal(ls_tree_split(2), 1);
    assert_int_equal(ls_tree_split(3), 2);
    assert_int_equal(ls_tree_split(8), 4);
    assert_int_equal(ls_tree_split(9), 8);
    float values[6] = {1e8f, 1, -1e8f, 1, 1, 1};
    float expected = ((values[0] + values[1]) + (values[2] + values[3])) + (values[4] + values[5]);
    assert_true(ls_tree_sum(values, 6) == expected);
}

CASE(test_exact_sum_ignores_order)
{
    enum { N = 2000 };
    struct ls_exact_sum forward = {0}, backward = {0}, halves[2] = {{{0}, 0}, {{0}, 0}};
    static double values[N];
    struct ls_philox_key key = ls_philox_key_of(1, "exact");
    for (int i = 0; i < N; i++) {
        uint32_t bits[4];
        ls_philox(key, (uint32_t[4]){(uint32_t)i, 0, 0, 0}, bits);
        values[i] = ldexp((double)bits[0] - 0x1p31, (int)(bits[1] % 200) - 100);
    }
    for (int i = 0; i < N; i++) {
        ls_exact_add(&forward, values[i]);
        ls_exact_add(&backward, values[N - 1 - i]);
        ls_exact_add(&halves[i & 1], values[i]);
    }
    ls_exact_merge(&halves[0], &halves[1]);
    assert_true(ls_exact_value(&forward) == ls_exact_value(&backward));
    assert_true(ls_exact_value(&forward) == ls_exact_value(&halves[0]));
    struct ls_exact_sum cancel = {0};
    ls_exact_add(&cancel, 1e300);
    ls_exact_add(&cancel, 3.5);
    ls_exact_add(&cancel, -1e300);
    assert_true(ls_exact_value(&cancel) == 3.5);
    ls_exact_add(&cancel, -7.25);
    assert_true(ls_exact_value(&cancel) == -3.75);
    ls_exact_add(&cancel, 3.75);
    assert_true(ls_exact_value(&cancel) == 0);
    ls_exact_add(&cancel, INFINITY);
    assert_true(isnan(ls_exact_value(&cancel)));
}

CASE(test_digest_commutes_and_sees_place)
{
    struct ls_digest ab = {0}, ba = {0}, moved = {0};
    ls_digest_piece(&ab, "w", 0, 0, "abc", 3);
    ls_digest_piece(&ab, "w", 1, 0, "def", 3);
    ls_digest_piece(&ba, "w", 1, 0, "def", 3);
    ls_digest_piece(&ba, "w", 0, 0, "abc", 3);
    ls_digest_piece(&moved, "w", 1, 0, "abc", 3);
    ls_digest_piece(&moved, "w", 0, 0, "def", 3);
    assert_memory_equal(&ab, &ba, sizeof ab);
    assert_memory_not_equal(&ab, &moved, sizeof ab);
}

static uint64_t murmur_finalizer(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

/* The definition, float by float. */
static struct ls_digest floats_plain(const char *name, int64_t first, int64_t count,
                                     const float *values)
{
    XXH128_hash_t key = XXH3_128bits(name, strlen(name));
    struct ls_digest digest = {0, 0};
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        uint64_t place = key.low64 + (uint64_t)(first + i) * 0x9e3779b97f4a7c15u;
        uint64_t x = murmur_finalizer(place ^ ((uint64_t)bits << 32 | bits));
        digest.low += x;
        digest.high += murmur_finalizer(x ^ key.high64);
    }
    return digest;
}

CASE(test_digest_of_floats_is_its_definition)
{
    float values[100];
    struct ls_philox_key key = ls_philox_key_of(7, "values");
    ls_normal_fill(key, 0, 100, 0, 1, values);
    for (int count = 0; count <= 100; count++) {
        const int64_t first = ((int64_t)1 << 33) - 50;
        struct ls_digest digest = {0, 0}, plain = floats_plain("w", first, count, values);
        ls_digest_floats(&digest, "w", first, count, values);
        assert_memory_equal(&digest, &plain, sizeof plain);
    }
}

CASE(test_digest_of_floats_sees_value_place_and_name)
{
    float values[37];
    for (int i = 0; i < 37; i++)
        values[i] = (float)(i % 5) - 2.0f;
    struct ls_digest whole = {0}, cut = {0}, moved = {0}, changed = {0}, renamed = {0}, each = {0};
    ls_digest_floats(&whole, "w", 100, 37, values);
    for (int i = 0; i < 37; i++) /* no loop is wide */
        ls_digest_floats(&each, "w", 100 + i, 1, values + i);
    assert_memory_equal(&whole, &each, sizeof whole);
    ls_digest_floats(&cut, "w", 111, 26, values + 11);
    ls_digest_floats(&cut, "w", 100, 11, values);
    assert_memory_equal(&whole, &cut, sizeof whole);
    ls_digest_floats(&moved, "w", 101, 37, values);
    ls_digest_floats(&renamed, "v", 100, 37, values);
    values[3] = -values[3]; /* one bit */
    ls_digest_floats(&changed, "w", 100, 37, values);
    assert_memory_not_equal(&whole, &moved, sizeof whole);
    assert_memory_not_equal(&whole, &renamed, sizeof whole);
    assert_memory_not_equal(&whole, &changed, sizeof whole);
}

/* What is there stays, and no more is asked of the system than a few times. */
CASE(test_bytes_grow)
{
    char *bytes = NULL;
    size_t room = 0, before, grown = 0;
    assert_true(ls_bytes_grow(&bytes, 0, &room));
    assert_null(bytes);
    for (size_t i = 0; i < 100000; i++) {
        before = room;
        assert_true(ls_bytes_grow(&bytes, i + 1, &room));
        assert_true(room > i);
        grown += room != before;
        bytes[i] = (char)(i % 127);
    }
    for (size_t i = 0; i < 100000; i++)
        assert_int_equal(bytes[i], i % 127);
    assert_in_range(grown, 2, 20);
#ifndef __SANITIZE_ADDRESS__ /* it ends a program that asks for so much */
    before = room;
    assert_false(ls_bytes_grow(&bytes, SIZE_MAX / 2, &room));
    assert_int_equal(room, before);
#endif
    assert_int_equal(bytes[99999], 99999 % 127);
    free(bytes);
}

CASE(test_strings_are_added)
{
    char text[16] = "";
    ls_string_add(text, sizeof text, ", ", "%d", 1);
    assert_string_equal(text, "1");
    ls_string_add(text, sizeof text, ", ", "%s", "two");
    assert_string_equal(text, "1, two");
    ls_string_add(text, sizeof text, "", "%c", '!');
    assert_string_equal(text, "1, two!");
    ls_string_add(text, sizeof text, " and ", "%s", "three and more");
    assert_string_equal(text, "1, two! and thr");
    ls_string_add(text, sizeof text, ", ", "four");
    assert_string_equal(text, "1, two! and thr");
}

CASE(test_errors)
{
    struct ls_error error = {0};
    assert_int_equal(ls_error_set(&error, LS_EDATA, "bad %d", 3), LS_EDATA);
    ls_error_prefix(&error, "file %s", "x");
    assert_string_equal(error.text, "file x: bad 3");
    assert_int_equal(ls_error_suffix(&error, "; mend %s", "it"), LS_EDATA);
    assert_string_equal(error.text, "file x: bad 3; mend it");
    ls_error_set(&error, LS_EDATA, "%0*d", (int)sizeof error.text, 0);
    ls_error_suffix(&error, "; the end is kept");
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    assert_string_equal(strchr(error.text, ';'), "; the end is kept");
    assert_int_equal(ls_error_refuse(&error, LS_ELAYOUT, "a.b", "3", "expected %d", 4), LS_ELAYOUT);
    assert_string_equal(error.text, "a.b = 3: expected 4");
    assert_string_equal(error.key, "a.b");
    assert_string_equal(error.text + error.reason, "expected 4");
    ls_error_prefix(&error, "x\n");
    ls_error_suffix(&error, " or 5");
    assert_string_equal(error.text, "x\\n: a.b = 3: expected 4 or 5");
    assert_string_equal(error.text + error.reason, "expected 4 or 5");
    assert_int_equal(ls_error_errno(&error, 28, "writing %s", "y"), LS_ENOSPC);
    assert_int_equal(error.cause, LS_CAUSE_OTHER);
    assert_int_equal(ls_error_errno(&error, EROFS, "writing %s", "z"), LS_EIO);
    assert_int_equal(ls_error_prefix(&error, "in"), LS_EIO);
    assert_int_equal(error.cause, LS_CAUSE_READ_ONLY);
    assert_string_equal(error.key, "");
    assert_int_equal(error.reason, 0);
    assert_int_equal(error.line, 0);
    assert_int_equal(ls_no_memory(&error, "for %d ranks", 7), LS_ENOMEM);
    assert_int_equal(error.code, LS_ENOMEM);
    assert_string_equal(error.text, "no memory for 7 ranks");
    assert_int_equal(ls_no_memory(NULL, "for it"), LS_ENOMEM);
    assert_int_equal(ls_exit_code(LS_OK), 0);
    assert_int_equal(ls_exit_code(LS_ECONFIG), 2);
    assert_int_equal(ls_exit_code(LS_ENOTSUP), 22);
    assert_int_equal(ls_exit_code(LS_EBUSY), 23);
    const char *keys[] = {"optim.lr", "optim.beta1", "model.layers"};
    assert_string_equal(ls_nearest("optim.lrr", keys, 3), "optim.lr");
    assert_null(ls_nearest("zzzzzz", keys, 3));
    assert_string_equal(ls_meant("optim.lr", " (none)").text, "; did you mean optim.lr?");
    assert_string_equal(ls_meant(NULL, " (none)").text, " (none)");
    const char *words[] = {"adamw", "sgd", "lion", "gelu_tanh"};
    assert_null(ls_nearest("muon", words, 4));
    assert_string_equal(ls_nearest("adam", words, 4), "adamw");
    assert_string_equal(ls_nearest("sdg", words, 4), "sgd");
    assert_string_equal(ls_nearest("LION", words, 4), "lion");
    assert_string_equal(ls_nearest("gelu", words, 4), "gelu_tanh");
    assert_null(ls_nearest("", words, 4));
}

CASE(test_paths_are_joined_by_one_slash)
{
    char path[PATH_MAX];
    struct ls_error error = {0};
    assert_ok(ls_path_join(path, "parts/", "0001", &error), error);
    assert_string_equal(path, "parts/0001");
    assert_ok(ls_path_join(path, "parts", "0001", &error), error);
    assert_string_equal(path, "parts/0001");
}

/* What other programs ask for: the key, the file and its line, the cause, whatever is put around
 * the text, and none of it of the error before. */
CASE(test_parts_of_errors)
{
    struct ls_error error = {0}, copy;
    char file[32];
    assert_int_equal(ls_error_line(&error, LS_EDATA, "a b.txt", 7, "expected %d", 3), LS_EDATA);
    assert_string_equal(error.text, "a b.txt:7: expected 3");
    ls_error_prefix(&error, "rank 2");
    ls_error_suffix(&error, "; mend it");
    assert_string_equal(error.text, "rank 2: a b.txt:7: expected 3; mend it");
    assert_int_equal(ls_error_place(&error, file, sizeof file), 7);
    assert_string_equal(file, "a b.txt");
    assert_int_equal(ls_error_place(&error, NULL, 0), 7);
    ls_error_refuse(&error, LS_ECONFIG, "optim.lr", "x", "expected a number");
    assert_int_equal(ls_error_place(&error, file, sizeof file), 0);
    assert_string_equal(file, "");
    ls_error_at(&error, "run.yaml", 3, 5);
    assert_string_equal(error.text, "run.yaml:3:5: optim.lr = x: expected a number");
    assert_string_equal(error.key, "optim.lr");
    assert_string_equal(error.text + error.reason, "expected a number");
    assert_int_equal(ls_error_place(&error, file, sizeof file), 3);
    assert_string_equal(file, "run.yaml");
    static const char tail[] = "/run.yaml";
    char names[2][600], found[600];
    for (size_t i = 0; i < 2; i++) { /* a name that is whole, and one of which the end counts */
        size_t bytes = i ? sizeof names[i] - 1 : 400;
        memset(names[i], 'd', bytes);
        strcpy(names[i] + bytes - strlen(tail), tail);
        ls_error_refuse(&error, LS_ECONFIG, "optim.lr", "x", "%900s", "expected a number");
        ls_error_at(&error, names[i], 3, 5);
        assert_int_equal(ls_error_place(&error, found, sizeof found), 3);
        assert_int_equal(strlen(found), i ? 500 : 400);
        assert_string_equal(found + (i ? 3 : 0), names[i] + bytes - strlen(found) + (i ? 3 : 0));
        assert_memory_equal(found, i ? "..." : "ddd", 3);
        assert_memory_equal(error.text + strlen(found), ":3:5: optim.lr = x: ", 20);
        ls_error_prefix(&error, "%.*s", 390, names[i]);
        ls_error_prefix(&error, "%.*s", 390, names[i]); /* nothing of the reason is left */
        assert_int_equal(strlen(error.text), sizeof error.text - 1);
        assert_string_equal(error.text + error.reason, "");
        assert_int_equal(ls_error_place(&error, found, sizeof found), 3);
    }
    ls_error_refuse(&error, LS_ECONFIG, "optim.lr", "x", "expected a number");
    ls_error_blame(&error, LS_CAUSE_FAULTY, "node1");
    assert_int_equal(ls_error_copy(&copy, LS_EBUSY, &error), LS_EBUSY);
    assert_int_equal(copy.code, LS_EBUSY);
    assert_int_equal(copy.cause, LS_CAUSE_FAULTY);
    assert_string_equal(copy.host, "node1");
    ls_error_set(&error, LS_ECONFIG, "a is wrong");
    ls_error_about(&error, "a", 2);
    ls_error_prefix(&error, "command line");
    error.unfiled = (int)strlen("command line: ");
    ls_error_unplace(&error);
    assert_string_equal(error.text, "a is wrong");
    assert_string_equal(error.text + error.reason, "is wrong");
    assert_int_equal(error.cause, LS_CAUSE_OTHER);
}

/* Whatever an error quotes, no byte of it commands a terminal, and what can be read stays. */
CASE(test_errors_are_escaped)
{
    static const char *const cases[][2] = {
        {"plain text: \\n stays", "plain text: \\n stays"},
        {"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"},
        {"a\nb\tc\r", "a\\nb\\tc\\x0d"},
        {"\x7f\x01", "\\x7f\\x01"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc2\x9b"
         "2J",
         "\\xc2\\x9b"
         "2J"},
        {"\xff\xfe", "\\xff\\xfe"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
        {"\xe2\x80\xae"
         "abc",
         "\\xe2\\x80\\xae"
         "abc"},
        {"cut \xc3", "cut \\xc3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ls_error error = {0};
        ls_error_set(&error, LS_EDATA, "%s", cases[i][0]);
        assert_string_equal(error.text, cases[i][1]);
        ls_error_set(&error, LS_EDATA, "%s", error.text);
        assert_string_equal(error.text, cases[i][1]);
    }
    char kept[32];
    ls_escape("a\nb\x1b", 4, "\n", kept, sizeof kept);
    assert_string_equal(kept, "a\nb\\x1b");
    struct ls_error error;
    char hostile[2000];
    memset(hostile, 0x1b, sizeof hostile - 1);
    hostile[sizeof hostile - 1] = '\0';
    ls_error_set(&error, LS_EDATA, "%s", hostile);
    assert_true(strlen(error.text) < sizeof error.text && strspn(error.text, "\\x1b") > 1000);
}

static int formats; /* calls of snprintf */

WRAPPED(snprintf);
int __wrap_snprintf(char *out, size_t bytes, const char *format, ...)
{
    va_list args;
    formats++;
    va_start(args, format);
    int length = vsnprintf(out, bytes, format, args);
    va_end(args);
    return length;
}

/* Millions of errors are made where records are bad: their characters are copied, not printed. */
CASE(test_escaping_prints_no_character)
{
    char text[64], shown[64];
    formats = 0;
    snprintf(text, sizeof text, "caf\xc3\xa9 %d\n\x1b", 7);
    assert_int_equal(formats, 1); /* they are counted */
    formats = 0;
    ls_escape(text, strlen(text), "", shown, sizeof shown);
    assert_string_equal(shown, "caf\xc3\xa9 7\\n\\x1b");
    assert_int_equal(formats, 0);
}

SUITE_MAIN(NULL, NULL)
