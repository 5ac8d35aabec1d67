/* Digests of a store: those that xxHash gives for each block of the files, whatever was written and
 * cut; and every byte that differs is found, in the store and in the list itself. */
#include "data/data_private.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static char prefix[300], text_path[300];

static int setup(void **state)
{
    support_setup(state);
    snprintf(prefix, sizeof prefix, "%s/c", support_folder);
    snprintf(text_path, sizeof text_path, "%s/text.txt", support_folder);
    return 0;
}

/* A store of documents of so many bytes; its text is lines of drawn letters. */
static void prepare(size_t bytes, double validation, enum ls_prepare_records records)
{
    struct ls_error error = {0};
    struct ls_prepare_report report;
    const char *inputs[] = {text_path};
    struct ls_prepare_config config = {.inputs = inputs,
                                       .inputs_count = 1,
                                       .output = prefix,
                                       .tokenizer = "byte",
                                       .validation = validation,
                                       .records = records,
                                       .append_eod = true,
                                       .workers = 2};
    if (records == LS_RECORDS_TEXT) {
        char *text = malloc(bytes);
        for (size_t i = 0; i < bytes; i++)
            text[i] = i % 61 == 60 ? '\n' : (char)('a' + ls_hash64(&i, sizeof i, 1) % 26);
        scratch_write(text_path, text, bytes);
        free(text);
    }
    assert_ok(ls_data_prepare(&config, &report, &error), error);
}

/* Each file of the store against xxHash's own function of a whole block. Returns all blocks. */
static int64_t assert_sums(const char *store, bool masked)
{
    struct ls_error error = {0};
    struct ls_sums *sums;
    int64_t blocks = 0;
    char path[600];
    assert_ok(ls_sums_open(support_path(store), &sums, &error), error);
    assert_non_null(sums);
    struct ls_text list;
    snprintf(path, sizeof path, "%s/%s.sums", support_folder, store);
    list = support_read(path);
    for (int file = 0; file < (masked ? 3 : 2); file++) {
        snprintf(path, sizeof path, "%s/%s%s", support_folder, store, ls_sums_suffix(file));
        struct ls_text bytes = support_read(path);
        assert_int_equal(ls_sums_bytes(sums, file), bytes.count);
        int64_t count = ls_ceil_div((int64_t)bytes.count, LS_SUMS_BLOCK_BYTES);
        assert_int_equal(ls_sums_blocks(sums, file), count);
        for (int64_t i = 0; i < count; i++) {
            char *at = bytes.bytes + i * LS_SUMS_BLOCK_BYTES, hex[34];
            size_t here = ls_sums_block_bytes(sums, file, i);
            assert_ok(ls_sums_check(sums, file, i, at, here, &error), error);
            XXH128_hash_t hash = XXH3_128bits(at, here);
            snprintf(hex, sizeof hex, "%016llx%016llx\n", (unsigned long long)hash.high64,
                     (unsigned long long)hash.low64);
            assert_text_contains(list.bytes, hex);
            at[here / 2] ^= 1; /* the twin */
            assert_int_equal(ls_sums_check(sums, file, i, at, here, &error), LS_EDATA);
            assert_text_contains(error.text, ls_sums_suffix(file));
        }
        blocks += count;
        ls_text_release(&bytes);
    }
    assert_int_equal(ls_sums_bytes(sums, LS_SUMS_MASK) >= 0, masked);
    ls_text_release(&list);
    ls_sums_free(sums);
    return blocks;
}

CASE_WITH(test_digests_are_those_of_the_files, setup, support_teardown)
{
    enum { TOKENS = LS_SUMS_BLOCK_BYTES / 2 };
    /* Some bytes; one token less than a block, a block, one more (a token ends the document). */
    static const struct {
        size_t bytes;
        int64_t blocks;
    } cases[] = {{1, 2}, {TOKENS - 2, 2}, {TOKENS - 1, 2}, {TOKENS, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        prepare(cases[i].bytes, 0, LS_RECORDS_TEXT);
        assert_int_equal(assert_sums("c_train", false), cases[i].blocks);
    }
}

/* The tail of the only document is cut off again, behind a whole block and within the first one. */
CASE_WITH(test_digests_of_what_was_cut, setup, support_teardown)
{
    prepare(LS_SUMS_BLOCK_BYTES / 2 + 5000, 0.001, LS_RECORDS_TEXT);
    assert_int_equal(assert_sums("c_train", false), 3);
    assert_int_equal(assert_sums("c_valid", false), 2);
    prepare(LS_SUMS_BLOCK_BYTES / 2 + 5000, 0.5, LS_RECORDS_TEXT);
    assert_int_equal(assert_sums("c_train", false), 2);
    assert_int_equal(assert_sums("c_valid", false), 2);
}

CASE_WITH(test_digests_of_a_mask, setup, support_teardown)
{
    snprintf(text_path, sizeof text_path, "%s/pairs.jsonl", support_folder);
    FILE *file = fopen(text_path, "w");
    for (int i = 0; i < 100; i++)
        fprintf(file, "{\"prompt\": \"%d + 1 =\", \"completion\": \" %d\"}\n", i, i + 1);
    fclose(file);
    prepare(0, 0.1, LS_RECORDS_PAIRS);
    assert_int_equal(assert_sums("c_train", true), 3);
    assert_int_equal(assert_sums("c_valid", true), 3);
}

CASE_WITH(test_a_store_may_have_none, setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_sums *sums;
    assert_int_equal(ls_sums_open(prefix, &sums, &error), LS_OK);
    assert_null(sums);
    prepare(100, 0, LS_RECORDS_TEXT);
    static const char *const names[] = {"c_train", "c_train.bin", "c_train.idx"};
    for (int i = 0; i < 3; i++) {
        assert_ok(ls_sums_open(support_path(names[i]), &sums, &error), error);
        assert_int_equal(ls_sums_bytes(sums, LS_SUMS_BIN), 202);
        assert_int_equal(ls_sums_check(sums, LS_SUMS_BIN, 1, "", 0, &error), LS_EINVAL);
        assert_int_equal(ls_sums_check(sums, LS_SUMS_BIN, 0, "", 0, &error), LS_EDATA);
        ls_sums_free(sums);
    }
}

/* ---- the list itself ------------------------------------------------------------------------- */

static void assert_refused(const char *text, size_t bytes, const char *says)
{
    struct ls_error error = {0};
    struct ls_sums *sums;
    assert_int_equal(ls_sums_parse("x.sums", text, bytes, &sums, &error), LS_EDATA);
    assert_null(sums);
    assert_text_contains(error.text, says);
}

CASE_WITH(test_a_damaged_list_is_refused, setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_sums *sums;
    prepare(100, 0, LS_RECORDS_TEXT);
    struct ls_text list = support_read(support_path("c_train.sums"));
    assert_ok(ls_sums_parse("x.sums", list.bytes, list.count, &sums, &error), error);
    ls_sums_free(sums);
    for (size_t cut = 0; cut < list.count; cut++)
        assert_refused(list.bytes, cut, "x.sums:");
    for (size_t i = 0; i < list.count; i++) {
        list.bytes[i] ^= 1;
        assert_refused(list.bytes, list.count, "x.sums:");
        list.bytes[i] ^= 1;
    }
    ls_text_release(&list);
}

/* Good ends behind bad lines: what else than the digest finds them. */
CASE_WITH(test_bad_lines_are_named, setup, support_teardown)
{
#define DIGEST "0123456789abcdef0123456789abcdef\n"
    static const struct {
        const char *lines, *says;
    } cases[] = {
        {"lockstep sums 2 4194304\nbin 0\n", "x.sums:1: damaged or not a list of digests: expected "
                                             "lockstep sums 1 4194304"},
        {"lockstep sums 1 4194304\nbins 0\n", "x.sums:2"},
        {"lockstep sums 1 4194304\nbin 0\nbin 0\n", "x.sums:3"},
        {"lockstep sums 1 4194304\nbin -1\n", "x.sums:2"},
        {"lockstep sums 1 4194304\nbin 01\n" DIGEST, "x.sums:2"},
        {"lockstep sums 1 4194304\nbin 9999999999999999999\n", "x.sums:2"},
        {"lockstep sums 1 4194304\nbin 999999999999999999\n" DIGEST, "x.sums:4"},
        {"lockstep sums 1 4194304\nbin 4194305\n" DIGEST, "x.sums:4"},
        {"lockstep sums 1 4194304\nbin 1\n" DIGEST DIGEST, "x.sums:4"},
        {"lockstep sums 1 4194304\nbin 1\n0123456789ABCDEF0123456789abcdef\n", "x.sums:3"},
    };
#undef DIGEST
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        XXH128_hash_t hash = XXH3_128bits(cases[i].lines, strlen(cases[i].lines));
        int count = snprintf(text, sizeof text, "%send %016llx%016llx\n", cases[i].lines,
                             (unsigned long long)hash.high64, (unsigned long long)hash.low64);
        assert_refused(text, (size_t)count, cases[i].says);
    }
}

SUITE_MAIN(NULL, NULL)
