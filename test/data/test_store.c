/* Token stores of every kind, and damaged ones. */
#include "support.h"

#include "data/data_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- files made by hand, from the formats' descriptions ------------------------------------- */

static unsigned char *put(unsigned char *at, const void *value, size_t bytes)
{
    memcpy(at, value, bytes);
    return at + bytes;
}

/* Three documents over four sequences of 3, 0, 2 and 4 tokens of two bytes. */
struct index_fields {
    char magic[9];
    uint64_t version;
    uint8_t dtype;
    uint64_t sequences, marks;
    int32_t length[4];
    int64_t pointer[4], mark[4];
    uint64_t modes; /* bytes behind it all */
};
static const struct index_fields good_index = {
    "MMIDIDX", 1, 8, 4, 4, {3, 0, 2, 4}, {0, 6, 6, 10}, {0, 1, 3, 4}, 0};
enum { INDEX_TOKENS = 9 };

static size_t make_index(const struct index_fields *f, unsigned char out[256])
{
    unsigned char *at = put(out, f->magic, 9);
    at = put(at, &f->version, 8);
    at = put(at, &f->dtype, 1);
    at = put(at, &f->sequences, 8);
    at = put(at, &f->marks, 8);
    at = put(at, f->length, sizeof f->length);
    at = put(at, f->pointer, sizeof f->pointer);
    at = put(at, f->mark, sizeof f->mark);
    memset(at, 0, 16);
    return (size_t)(at - out) + f->modes;
}

static void write_megatron(const char *name, const struct index_fields *fields, const void *tokens,
                           size_t bytes)
{
    unsigned char index[256];
    char file[64];
    snprintf(file, sizeof file, "%s.idx", name);
    scratch_write(support_path(file), index, make_index(fields, index));
    snprintf(file, sizeof file, "%s.bin", name);
    scratch_write(support_path(file), tokens, bytes);
}

static void write_llmc(const char *name, uint32_t magic, uint32_t version, uint32_t count,
                       const void *tokens, size_t bytes)
{
    unsigned char file[2048] = {0};
    put(put(put(file, &magic, 4), &version, 4), &count, 4);
    memcpy(file + 1024, tokens, bytes);
    scratch_write(support_path(name), file, 1024 + bytes);
}

static struct ls_token_store *open_store(const char *spec)
{
    struct ls_error error = {0};
    struct ls_token_store *store;
    assert_ok(ls_token_store_open(spec, &store, &error), error);
    return store;
}

static void assert_tokens(const struct ls_token_store *store, const int32_t *expected,
                          int64_t count)
{
    struct ls_error error = {0};
    int32_t ids[64];
    assert_int_equal(ls_token_store_tokens(store), count);
    /* Every part of it, too: parts may cross from file to file. */
    for (int64_t first = 0; first < count; first++)
        for (int64_t n = 0; first + n <= count; n++) {
            assert_ok(ls_token_store_read(store, first, n, INT32_MAX, ids, &error), error);
            for (int64_t i = 0; i < n; i++)
                if (ids[i] != expected[first + i])
                    fail_msg("token %lld is %d, expected %d", (long long)(first + i), ids[i],
                             expected[first + i]);
        }
}

/* ---- reading -------------------------------------------------------------------------------- */

CASE(test_megatron)
{
    static const uint16_t tokens[] = {5, 6, 0, 7, 0, 65535, 9, 10, 0};
    static const int32_t expected[] = {5, 6, 0, 7, 0, 65535, 9, 10, 0};
    write_megatron("a", &good_index, tokens, sizeof tokens);
    static const char *const names[] = {"a", "a.bin", "a.idx"};
    for (int i = 0; i < 3; i++) {
        struct ls_token_store *store = open_store(support_path(names[i]));
        assert_tokens(store, expected, INDEX_TOKENS);
        struct ls_token_file file = ls_token_store_file(store, 0);
        assert_int_equal(file.kind, LS_TOKENS_MEGATRON);
        assert_int_equal(file.dtype, LS_U16);
        assert_int_equal(file.sequences, 4);
        assert_int_equal(file.documents, 3);
        assert_int_equal(file.tokens, INDEX_TOKENS);
        assert_string_equal(file.path, support_path("a.bin"));
        ls_token_store_close(store);
    }
    struct index_fields with_modes = good_index;
    with_modes.modes = 4;
    write_megatron("modes", &with_modes, tokens, sizeof tokens);
    ls_token_store_close(open_store(support_path("modes")));
}

CASE(test_every_integer_dtype)
{
    static const struct {
        uint8_t code;
        size_t bytes;
    } dtypes[] = {{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
    static const int32_t expected[] = {1, 2, 3, 4, 5, 6, 7, 8, 99};
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
        struct index_fields fields = good_index;
        unsigned char tokens[INDEX_TOKENS * 8];
        for (int i = 0; i < INDEX_TOKENS; i++) {
            int64_t id = expected[i];
            memcpy(tokens + (size_t)i * dtypes[d].bytes, &id, dtypes[d].bytes);
        }
        fields.dtype = dtypes[d].code;
        for (int i = 0; i < 4; i++)
            fields.pointer[i] = fields.pointer[i] / 2 * (int64_t)dtypes[d].bytes;
        write_megatron("d", &fields, tokens, INDEX_TOKENS * dtypes[d].bytes);
        struct ls_token_store *store = open_store(support_path("d"));
        assert_tokens(store, expected, INDEX_TOKENS);
        ls_token_store_close(store);
    }
}

CASE(test_llmc_raw_and_lists)
{
    static const uint16_t narrow[] = {1, 2, 3};
    static const uint32_t wide[] = {100000, 4};
    write_llmc("gpt2.bin", 20240520, 1, 3, narrow, sizeof narrow);
    write_llmc("llama.bin", 20240801, 7, 2, wide, sizeof wide);
    scratch_write(support_path("nano.bin"), narrow, sizeof narrow);

    struct ls_token_store *store = open_store(support_path("gpt2.bin"));
    assert_tokens(store, (int32_t[]){1, 2, 3}, 3);
    assert_int_equal(ls_token_store_file(store, 0).kind, LS_TOKENS_LLMC);
    ls_token_store_close(store);

    char spec[2048];
    snprintf(spec, sizeof spec, "u16:%s,%s,%s", support_path("nano.bin"), support_path("llama.bin"),
             support_path("gpt2.bin"));
    store = open_store(spec);
    assert_tokens(store, (int32_t[]){1, 2, 3, 100000, 4, 1, 2, 3}, 8);
    assert_int_equal(ls_token_store_files(store), 3);
    ls_token_store_close(store);
}

CASE(test_samples)
{
    uint16_t tokens[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    scratch_write(support_path("n.bin"), tokens, sizeof tokens);
    char spec[700];
    snprintf(spec, sizeof spec, "u16:%s", support_path("n.bin"));
    struct ls_token_store *store = open_store(spec);
    struct ls_error error = {0};
    static const int64_t expected[][2] = {{1, 8}, {2, 4}, {3, 2}, {4, 2}, {5, 1}, {8, 1}};
    int64_t samples;
    for (int i = 0; i < 6; i++) {
        assert_ok(ls_token_store_samples(store, expected[i][0], &samples, &error), error);
        assert_int_equal(samples, expected[i][1]);
    }
    assert_int_equal(ls_token_store_samples(store, 9, &samples, &error), LS_EDATA);
    assert_text_contains(error.text, "sequence longer than the corpus");
    assert_text_contains(error.text, "need 10 tokens, the store holds 9");
    assert_int_equal(ls_token_store_samples(store, 0, &samples, &error), LS_EINVAL);

    int32_t inputs[8], targets[8];
    for (int i = 0; i < 2; i++)
        assert_ok(ls_sample_read(store, i, 4, 9, inputs + 4 * i, targets + 4 * i, &error), error);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(inputs[i], i);
        assert_int_equal(targets[i], i + 1);
    }
    /* T = 1: nothing of a sample overlaps with itself. */
    assert_ok(ls_sample_read(store, 7, 1, 9, inputs, targets, &error), error);
    assert_int_equal(inputs[0], 7);
    assert_int_equal(targets[0], 8);
    ls_token_store_close(store);
}

CASE(test_ids_past_the_vocabulary)
{
    uint16_t narrow[] = {1, 2, 50257};
    uint32_t wide[] = {1, 0x80000000u, 2};
    struct ls_error error = {0};
    int32_t ids[8];
    write_llmc("narrow.bin", 20240520, 1, 3, narrow, sizeof narrow);
    write_llmc("wide.bin", 20240801, 7, 3, wide, sizeof wide);
    struct ls_token_store *store = open_store(support_path("narrow.bin"));
    assert_ok(ls_token_store_read(store, 0, 3, 50258, ids, &error), error);
    assert_ok(ls_token_store_read(store, 0, 2, 3, ids, &error), error);
    assert_int_equal(ls_token_store_read(store, 1, 2, 50257, ids, &error), LS_EDATA);
    assert_text_contains(error.text, "narrow.bin: token 2 has id 50257; the vocabulary has 50257");
    assert_int_equal(ls_token_store_read(store, 2, 2, 50258, ids, &error), LS_EINVAL);
    assert_int_equal(ls_token_store_read(store, -1, 2, 50258, ids, &error), LS_EINVAL);
    ls_token_store_close(store);
    store = open_store(support_path("wide.bin"));
    assert_int_equal(ls_token_store_read(store, 0, 3, INT32_MAX, ids, &error), LS_EDATA);
    assert_text_contains(error.text, "token 1 has id");
    ls_token_store_close(store);
}

/* ---- what is wrong is said ------------------------------------------------------------------ */

static int open_fails(const char *spec, struct ls_error *error)
{
    struct ls_token_store *store = NULL;
    int status = ls_token_store_open(spec, &store, error);
    assert_null(store);
    return status;
}

#define BROKEN(change, says)                                                                       \
    do {                                                                                           \
        struct index_fields f = good_index;                                                        \
        change;                                                                                    \
        write_megatron("broken", &f, tokens, sizeof tokens);                                       \
        int rc_ = open_fails(support_path("broken"), &error);                                      \
        if (rc_ != LS_EDATA)                                                                       \
            fail_msg("%s: %s", #change, ls_status_name(rc_));                                      \
        assert_text_contains(error.text, says);                                                    \
    } while (0)

CASE(test_broken_index)
{
    uint16_t tokens[INDEX_TOKENS] = {0};
    struct ls_error error = {0};
    BROKEN(f.magic[0] = 'X', "does not begin with \"MMIDIDX\"");
    BROKEN(f.magic[8] = 1, "does not begin with \"MMIDIDX\"");
    BROKEN(f.version = 2, "version 2 of the index; expected 1");
    BROKEN(f.dtype = 0, "dtype 0 holds no tokens");
    BROKEN(f.dtype = 6, "dtype 6 holds no tokens");
    BROKEN(f.dtype = 9, "dtype 9 holds no tokens");
    BROKEN(f.dtype = 4, "expected a length of 0 or more at byte 12");
    BROKEN(f.sequences = 5, "truncated");
    BROKEN(f.sequences = 3, "more than they need");
    BROKEN(f.sequences = UINT64_MAX, "truncated");
    BROKEN(f.sequences = UINT64_MAX / 12 + 1, "truncated");
    BROKEN(f.marks = 5, "truncated");
    BROKEN(f.marks = UINT64_MAX / 8 + 4, "truncated");
    BROKEN(f.length[2] = -1, "sequence 2 has length -1");
    BROKEN(f.length[2] = 3, "sequence 3 has length 4 at byte 10");
    BROKEN(f.length[3] = 5, "it is truncated or belongs to another index");
    BROKEN(f.length[3] = 3, "but its index");
    BROKEN(f.pointer[0] = 2, "sequence 0 has length 3 at byte 2");
    BROKEN(f.pointer[3] = INT64_MIN, "sequence 3");
    BROKEN(f.mark[0] = 1, "document 0 begins at sequence 1");
    BROKEN(f.mark[2] = 0, "document 2 begins at sequence 0");
    BROKEN(f.mark[3] = 5, "document 3 begins at sequence 5");
    BROKEN(f.mark[3] = 3, "the last document ends at sequence 3 of 4");
    BROKEN(f.modes = 1, "more than they need");
}

CASE(test_truncated_files)
{
    uint16_t tokens[INDEX_TOKENS] = {0};
    struct ls_error error = {0};
    unsigned char index[256];
    size_t bytes = make_index(&good_index, index);
    scratch_write(support_path("t.bin"), tokens, sizeof tokens);
    for (size_t n = 0; n < bytes; n++) {
        scratch_write(support_path("t.idx"), index, n);
        if (open_fails(support_path("t"), &error) != LS_EDATA)
            fail_msg("an index of %zu of %zu bytes was taken", n, bytes);
    }
    scratch_write(support_path("t.idx"), index, bytes);
    ls_token_store_close(open_store(support_path("t")));
    for (size_t n = 0; n < sizeof tokens; n++) {
        scratch_write(support_path("t.bin"), tokens, n);
        assert_int_equal(open_fails(support_path("t"), &error), LS_EDATA);
        assert_text_contains(error.text, "t.bin");
    }
}

CASE(test_broken_llmc_and_others)
{
    uint16_t tokens[3] = {1, 2, 3};
    struct ls_error error = {0};
    write_llmc("v.bin", 20240520, 2, 3, tokens, 6);
    assert_int_equal(open_fails(support_path("v.bin"), &error), LS_EDATA);
    assert_text_contains(error.text, "version 2");
    write_llmc("short.bin", 20240520, 1, 4, tokens, 6);
    assert_int_equal(open_fails(support_path("short.bin"), &error), LS_EDATA);
    assert_text_contains(error.text, "truncated");
    write_llmc("long.bin", 20240801, 7, 1, tokens, 6);
    assert_int_equal(open_fails(support_path("long.bin"), &error), LS_EDATA);
    assert_text_contains(error.text, "more than it should hold");
    scratch_write(support_path("head.bin"), "\x28\xd7\x34\x01",
                  4); /* 20240520 + 2: an evaluation set */
    assert_int_equal(open_fails(support_path("head.bin"), &error), LS_EDATA);
    assert_text_contains(error.text, "not a token store");
    scratch_write(support_path("head.bin"), "\x98\xd7\x34\x01", 4);
    assert_int_equal(open_fails(support_path("head.bin"), &error), LS_EDATA);

    scratch_write(support_path("odd.bin"), "abc", 3);
    char spec[700];
    snprintf(spec, sizeof spec, "u16:%s", support_path("odd.bin"));
    assert_int_equal(open_fails(spec, &error), LS_EDATA);
    assert_text_contains(error.text, "not a whole number of uint16");
    assert_int_equal(open_fails(support_path("odd.bin"), &error), LS_EDATA);
    assert_text_contains(error.text, "u16:");
    scratch_write(support_path("empty.bin"), "", 0);
    assert_int_equal(open_fails(support_path("empty.bin"), &error), LS_EDATA);
    assert_int_equal(open_fails(support_path("absent"), &error), LS_EIO);
    assert_text_contains(error.text, "absent");
    scratch_write(support_path("made_train.idx"), "", 0);
    assert_int_equal(open_fails(support_path("made"), &error), LS_EIO);
    assert_text_contains(error.text, "made_train?");
    assert_int_equal(open_fails("", &error), LS_EINVAL);
    snprintf(spec, sizeof spec, "u16:%s,", support_path("odd.bin"));
    scratch_write(support_path("odd.bin"), "abcd", 4);
    assert_int_equal(open_fails(spec, &error), LS_EINVAL);
}

/* The digest is of the tokens, wherever they lie, and of how many there are. */
CASE(test_digests)
{
    enum { TOKENS = 20000, HALF = 2 * TOKENS / 2 };
    static uint16_t tokens[TOKENS];
    const struct {
        const char *what, *spec;
        int altered, count;
        bool same;
    } cases[] = {
        {"the same", "u16:all.bin", -1, TOKENS, true},
        {"the same in two files", "u16:left.bin,u16:right.bin", -1, TOKENS, true},
        {"the first token", "u16:all.bin", 0, TOKENS, false},
        {"the last token", "u16:all.bin", TOKENS - 1, TOKENS, false},
        {"one token fewer", "u16:all.bin", -1, TOKENS - 1, false},
    };
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)(i * 7919);
    char first[33] = "";
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct ls_token_store *store;
        struct ls_error error = {0};
        char digest[33], spec[1024];
        if (cases[c].altered >= 0)
            tokens[cases[c].altered] ^= 1;
        scratch_write(support_path("all.bin"), tokens, 2 * (size_t)cases[c].count);
        scratch_write(support_path("left.bin"), tokens, HALF);
        scratch_write(support_path("right.bin"), (char *)tokens + HALF, sizeof tokens - HALF);
        if (cases[c].altered >= 0)
            tokens[cases[c].altered] ^= 1;
        if (strchr(cases[c].spec, ','))
            snprintf(spec, sizeof spec, "u16:%s,u16:%s", support_path("left.bin"),
                     support_path("right.bin"));
        else
            snprintf(spec, sizeof spec, "u16:%s", support_path("all.bin"));
        assert_ok(ls_token_store_open(spec, &store, &error), error);
        assert_ok(ls_token_store_digest(store, digest, &error), error);
        ls_token_store_close(store);
        if (c == 0)
            memcpy(first, digest, sizeof first);
        if ((strcmp(first, digest) == 0) != cases[c].same)
            fail_msg("%s: %s beside %s", cases[c].what, digest, first);
    }
}

/* 10^12 tokens, in a file with a hole: opening them and reading any takes no memory to speak of. */
CASE(test_a_trillion_tokens)
{
    enum { SEQUENCE = 4096 };
    const int64_t tokens = 1000000000000;
    char spec[700];
    struct ls_error error = {0};
    struct ls_blend *blend;
    struct rusage usage;
    int64_t samples;
    scratch_write(support_path("huge.bin"), "", 0);
    if (truncate(support_path("huge.bin"), 2 * tokens)) {
        print_message("skipped: this file system has no such large files\n");
        skip();
    }
    snprintf(spec, sizeof spec, "u16:%s", support_path("huge.bin"));
    struct ls_token_store *store = open_store(spec);
    assert_int_equal(ls_token_store_tokens(store), tokens);
    assert_ok(ls_token_store_samples(store, SEQUENCE, &samples, &error), error);
    assert_ok(ls_blend_of_one(samples, 1, true, &blend, &error), error);
    for (int64_t number = 1000000000; number < 1000000100; number++) {
        int32_t inputs[SEQUENCE], targets[SEQUENCE];
        struct ls_blend_place place = ls_blend_at(blend, number);
        assert_int_equal(place.epoch, number / samples);
        assert_ok(ls_sample_read(store, place.sample, SEQUENCE, 2, inputs, targets, &error), error);
        assert_int_equal(inputs[SEQUENCE - 1], 0);
    }
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    assert_in_range(usage.ru_maxrss, 0, 512 << 10); /* KiB */
    ls_blend_free(blend);
    ls_token_store_close(store);
    unlink(support_path("huge.bin"));
}

SUITE_MAIN(support_setup, support_teardown)
