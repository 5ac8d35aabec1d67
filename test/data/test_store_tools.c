/* Whole stores: verify finds each damage; what merge and split write is what a plain loop over the
 * documents gives; text comes back; quantiles are those of sorted lengths. */
#include "../support/cut_before_read.h"
#include "../support/svg.h"
#include "../support/xml.h"
#include "data/data_private.h"
#include "support.h"

#include <lockstep/data/pack.h>
#include <lockstep/data/store_tools.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DOCUMENTS = 300, TEXT_MAX = 1 << 16 };

/* Document i of a store is this text: of 1 to some 40 bytes, drawn by seed and i. */
static void text_of(uint64_t seed, int i, char text[64])
{
    uint64_t key[2] = {seed, (uint64_t)i};
    uint64_t drawn = ls_hash64(key, sizeof key, 3);
    snprintf(text, 64, "%.*s%d", (int)(drawn % 37), "abcdefghijklmnopqrstuvwxyzabcdefghijklmnop",
             i);
}

static void prepare(const char *name, const char *input, enum ls_prepare_records records)
{
    struct ls_error error = {0};
    struct ls_prepare_report report;
    char prefix[300];
    snprintf(prefix, sizeof prefix, "%s/%s", support_folder, name);
    const struct ls_prepare_config config = {.inputs = &input,
                                             .inputs_count = 1,
                                             .output = prefix,
                                             .tokenizer = "byte",
                                             .records = records,
                                             .append_eod = true,
                                             .workers = 1};
    assert_ok(ls_data_prepare(&config, &report, &error), error);
}

/* NAME_train of drawn documents. */
static void prepare_drawn(const char *name, uint64_t seed, int documents, bool pairs)
{
    char text[64];
    const char *input = support_path("drawn.jsonl");
    FILE *file = fopen(input, "w");
    for (int i = 0; i < documents; i++) {
        text_of(seed, i, text);
        if (pairs)
            fprintf(file, "{\"prompt\": \"%d\", \"completion\": \"%s\"}\n", i, text);
        else
            fprintf(file, "{\"text\": \"%s\"}\n", text);
    }
    fclose(file);
    prepare(name, input, pairs ? LS_RECORDS_PAIRS : LS_RECORDS_TEXT);
}

/* A store's tokens in one string: '|' ends a document; what does not count has its top bit. */
static void store_text(const char *name, char text[TEXT_MAX])
{
    struct ls_error error = {0};
    struct ls_token_store *store;
    assert_ok(ls_token_store_open(support_path(name), &store, &error), error);
    int64_t tokens = ls_token_store_tokens(store);
    int32_t ids[TEXT_MAX], targets[TEXT_MAX] = {0};
    assert_in_range(tokens, 1, TEXT_MAX - 1);
    assert_ok(ls_token_store_read(store, 0, tokens, 257, ids, &error), error);
    support_mask(store, 0, tokens, targets);
    for (int64_t i = 0; i < tokens; i++)
        text[i] = ids[i] == 256 ? '|' : (char)(targets[i] < 0 ? ids[i] ^ 0x80 : ids[i]);
    text[tokens] = 0;
    ls_token_store_close(store);
}

static void assert_whole(const char *name)
{
    struct ls_error error = {0};
    struct ls_store_check check;
    assert_ok(ls_store_verify(support_path(name), NULL, NULL, &check, &error), error);
    assert_true(check.blocks >= 2 && check.vocabulary == 257);
}

static void assert_damaged(const char *name, const char *says)
{
    struct ls_error error = {0};
    struct ls_store_check check;
    int status = ls_store_verify(support_path(name), NULL, NULL, &check, &error);
    if (status != LS_EDATA)
        fail_msg("%s: %s, expected LS_EDATA", ls_status_name(status), error.text);
    assert_text_contains(error.text, says);
}

/* ---- verify ---------------------------------------------------------------------------------- */

/* Each byte of each file, changed alone. */
CASE_WITH(test_every_changed_byte_is_found, support_setup, support_teardown)
{
    static const char *const suffixes[] = {".bin", ".idx", ".mask", ".sums"};
    prepare_drawn("c", 1, 3, true);
    assert_whole("c_train");
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "c_train%s", suffixes[i]);
        struct ls_text bytes = support_read(support_path(name));
        for (size_t at = 0; at < bytes.count; at++) {
            bytes.bytes[at] ^= 1;
            scratch_write(support_path(name), bytes.bytes, bytes.count);
            assert_damaged("c_train", "c_train.");
            bytes.bytes[at] ^= 1;
        }
        scratch_write(support_path(name), bytes.bytes, bytes.count);
        ls_text_release(&bytes);
    }
    assert_whole("c_train");
}

CASE_WITH(test_what_does_not_belong_is_found, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_store_check check;
    prepare_drawn("c", 1, 3, true);
    prepare_drawn("d", 1, 3, false);
    assert_int_equal(rename(support_path("c_train.mask"), support_path("kept")), 0);
    assert_damaged("c_train", "c_train.mask"); /* all tokens would count */
    assert_int_equal(rename(support_path("kept"), support_path("c_train.mask")), 0);
    assert_whole("c_train");

    /* A mask of good form where there was none. */
    struct ls_text idx = support_read(support_path("d_train.idx"));
    struct ls_text bin = support_read(support_path("d_train.bin"));
    int32_t lengths[3];
    memcpy(lengths, idx.bytes + DATA_IDX_HEADER_BYTES, sizeof lengths);
    unsigned char mask[512] = {0};
    size_t bytes = DATA_MASK_HEADER_BYTES + (bin.count / 2 + 7) / 8;
    data_mask_header(mask, (int64_t)bin.count / 2, 0, lengths, 3);
    scratch_write(support_path("d_train.mask"), mask, bytes);
    assert_damaged("d_train", "had no mask when it was prepared");
    remove(support_path("d_train.mask"));

    /* Without digests the ids remain, and without a tokenizer any id is good. */
    remove(support_path("d_train.sums"));
    bin.bytes[4] = 1;
    bin.bytes[5] = 1;
    scratch_write(support_path("d_train.bin"), bin.bytes, bin.count);
    assert_damaged("d_train", "token 2 has id 257");
    remove(support_path("d.tokenizer"));
    assert_ok(ls_store_verify(support_path("d_train"), NULL, NULL, &check, &error), error);
    assert_true(check.vocabulary == 0 && check.blocks == 0 && check.documents == 3);
    assert_int_equal(ls_store_verify(support_path("d_train"), "byte", NULL, &check, &error),
                     LS_EDATA);
    ls_text_release(&idx);
    ls_text_release(&bin);

    /* Another tokenizer's digest. */
    scratch_write(support_path("c.tokenizer"), "byte\n0123456789abcdef0123456789abcdef\n", 38);
    assert_damaged("c_train", "changed since");
    volatile int stop = 1;
    assert_int_equal(ls_store_verify(support_path("d_train"), NULL, &stop, &check, &error),
                     LS_ESTOPPED);
}

/* ---- merge and split ------------------------------------------------------------------------- */

static int merge(const char *first, const char *second, const char *output, struct ls_error *error)
{
    struct ls_store_part part;
    char names[3][300];
    snprintf(names[0], sizeof names[0], "%s/%s", support_folder, first);
    snprintf(names[1], sizeof names[1], "%s/%s", support_folder, second);
    snprintf(names[2], sizeof names[2], "%s/%s", support_folder, output);
    const char *stores[] = {names[0], names[1]};
    return ls_store_merge(stores, 2, &(struct ls_store_job){.output = names[2]}, &part, error);
}

CASE_WITH(test_merged_is_one_behind_the_other, support_setup, support_teardown)
{
    static char a[TEXT_MAX], b[TEXT_MAX], both[2 * TEXT_MAX], m[TEXT_MAX];
    struct ls_error error = {0};
    for (int masked = 0; masked < 4; masked++) { /* neither, the first, the second, both */
        prepare_drawn("a", 1, 200, masked & 1);
        prepare_drawn("b", 2, 100, masked & 2);
        assert_ok(merge("a_train", "b_train.bin", "m", &error), error);
        store_text("a_train", a);
        store_text("b_train", b);
        store_text("m", m);
        snprintf(both, sizeof both, "%s%s", a, b);
        assert_string_equal(m, both);
        assert_int_equal(access(support_path("m.mask"), F_OK), masked ? 0 : -1);
        assert_whole("m");
    }
}

CASE_WITH(test_merge_refuses, support_setup, support_teardown)
{
    struct ls_error error = {0};
    char names[2048];
    prepare_drawn("a", 1, 20, false);
    prepare_drawn("b", 2, 20, false);
    assert_int_equal(merge("a_train", "b_train", "a_train", &error), LS_EINVAL);
    assert_text_contains(error.text, "which would replace it");
    assert_int_equal(merge("a_train", "nothing", "m", &error), LS_EIO);
    assert_int_equal(merge("a_train,b_train", "b_train", "m", &error), LS_EINVAL);
    scratch_write(support_path("raw"), "ab", 2);
    char raw[300];
    snprintf(raw, sizeof raw, "u16:%s/raw", support_folder);
    struct ls_store_part part;
    const char *stores[] = {raw};
    struct ls_store_job job = {.output = support_path("m")};
    assert_int_equal(ls_store_merge(stores, 1, &job, &part, &error), LS_EDATA);
    assert_text_contains(error.text, "do not say where a document ends");
    scratch_write(support_path("b.tokenizer"), "byte\n0123456789abcdef0123456789abcdef\n", 38);
    assert_int_equal(merge("a_train", "b_train", "m", &error), LS_EDATA);
    assert_text_contains(error.text, "its tokenizer is byte");
    volatile int stop = 1;
    const char *one[] = {support_path("a_train")};
    job = (struct ls_store_job){.output = support_path("m"), .stop = &stop};
    assert_int_equal(ls_store_merge(one, 1, &job, &part, &error), LS_ESTOPPED);
    support_list(support_folder, names);
    assert_null(strstr(names, "m."));
}

/* What stands for several stores is none of them: not the first one alone, without a word. */
CASE_WITH(test_a_folder_is_no_store, support_setup, support_teardown)
{
    char names[4][300];
    prepare_drawn("a", 1, 20, false);
    prepare_drawn("b", 2, 20, false);
    snprintf(names[0], sizeof names[0], "%s", support_folder);
    snprintf(names[1], sizeof names[1], "%s/", support_folder);
    snprintf(names[2], sizeof names[2], "%s/*_train", support_folder);
    snprintf(names[3], sizeof names[3], "%s/a_trai?", support_folder);
    for (int i = 0; i < 4; i++) {
        const char *stores[] = {names[i]};
        struct ls_error error = {0};
        struct ls_store_part part;
        struct ls_store_check check;
        struct ls_store_stats stats;
        const struct ls_store_job job = {.output = support_path("m")};
        assert_int_equal(ls_store_merge(stores, 1, &job, &part, &error), LS_EINVAL);
        assert_text_contains(error.text, "expected one store");
        assert_int_equal(ls_store_verify(names[i], NULL, NULL, &check, &error), LS_EINVAL);
        assert_int_equal(ls_store_stats(names[i], NULL, NULL, &stats, &error), LS_EINVAL);
    }
}

/* A list has no way to name a store whose path has a comma: that is said, whichever part is there.
 */
CASE_WITH(test_a_comma_in_a_path, support_setup, support_teardown)
{
    char lists[5][1024];
    mkdir(support_path("x,y"), 0777);
    prepare_drawn("x,y/a", 1, 20, true);
    prepare_drawn("b", 1, 20, true);
    snprintf(lists[0], sizeof lists[0], "%s/x,y/a_train", support_folder);
    snprintf(lists[1], sizeof lists[1], "%s/x,y/a_train,%s/b_train", support_folder,
             support_folder);
    snprintf(lists[2], sizeof lists[2], "%s/b_train,%s/x,y/a_train", support_folder,
             support_folder);
    snprintf(lists[3], sizeof lists[3], "u16:%s/x,y/a_train.bin", support_folder);
    snprintf(lists[4], sizeof lists[4], "%s/x,y", support_folder);
    for (int i = 0; i < 5; i++) {
        struct ls_error error = {0};
        struct ls_token_store *store;
        struct ls_store_stats stats;
        assert_int_equal(ls_token_store_open(lists[i], &store, &error), LS_EINVAL);
        assert_text_contains(error.text, i < 4 ? "x,y/a_train" : "x,y");
        assert_text_contains(error.text, "name it by a link without a comma");
        assert_int_equal(ls_store_stats(lists[i], NULL, NULL, &stats, &error), LS_EINVAL);
        assert_text_contains(error.text, "name it by a link without a comma");
    }
    struct ls_error error = {0};
    struct ls_token_store *store;
    symlink(support_path("x,y"), support_path("link"));
    snprintf(lists[0], sizeof lists[0], "%s/link/a_train,%s/b_train", support_folder,
             support_folder);
    assert_ok(ls_token_store_open(lists[0], &store, &error), error);
    assert_int_equal(ls_token_store_files(store), 2);
    ls_token_store_close(store);
    snprintf(lists[0], sizeof lists[0], "%s/no,%s/b_train", support_folder, support_folder);
    assert_int_equal(ls_token_store_open(lists[0], &store, &error), LS_EIO);
    assert_text_contains(error.text, "neither ");
}

/* The n-th write fails, for all n: nothing is left. */
CASE_WITH(test_a_full_disk_leaves_nothing, support_setup, support_teardown)
{
    struct ls_error error = {0};
    char before[2048], names[2048];
    prepare_drawn("a", 1, 20, true);
    support_list(support_folder, before);
    int status = LS_ENOSPC;
    long n = 0;
    for (; status == LS_ENOSPC; n++) {
        support_fail_output(n, ENOSPC);
        status = merge("a_train", "a_train", "m", &error);
        support_fail_output(-1, 0);
        support_list(support_folder, names);
        /* Renaming has begun: what has its name is whole, and without .idx it is no store. */
        if (status && !strstr(names, "m.tokenizer"))
            assert_string_equal(names, before);
        assert_null(strstr(names, ".tmp"));
        if (status)
            assert_null(strstr(names, "m.idx"));
    }
    assert_ok(status, error);
    assert_true(n > 8);
    assert_whole("m");
}

enum { TOOLS = 6 };
static int tool_run(int tool, struct ls_error *error)
{
    struct ls_store_check check;
    struct ls_store_stats stats;
    struct ls_store_part parts[2];
    struct ls_detokenize_report text;
    struct ls_pack_report pack;
    const char *store = support_path("c_train");
    const struct ls_store_job job = {.output = support_path("o"), .workers = 1};
    const struct ls_shares half = {.count = 2, .weight = {1, 1}};
    switch (tool) {
    case 0:
        return ls_store_verify(store, NULL, NULL, &check, error);
    case 1:
        return ls_store_stats(store, NULL, NULL, &stats, error);
    case 2:
        return ls_store_merge(&store, 1, &job, parts, error);
    case 3:
        return ls_store_split(store, &half, &job, parts, error);
    case 4:
        return ls_store_detokenize(store, NULL, NULL, &job, &text, error);
    default:
        return ls_store_pack(store, 8, NULL, &pack, error);
    }
}

/* A file of the store is cut before the n-th read, for all n: its name and no SIGBUS. What was read
 * before may be all that a tool needs of it. */
CASE_WITH(test_a_store_that_is_cut_meanwhile, support_setup, support_teardown)
{
    static const char *const suffixes[] = {".bin", ".idx", ".mask"};
    struct ls_error error = {0};
    int refused[TOOLS] = {0};
    prepare_drawn("c", 1, 4100, true); /* its index is read in two pieces */
    for (int tool = 0; tool < TOOLS; tool++)
        for (int file = 0; file < 3; file++) {
            char name[64], path[512];
            bool past = false;
            snprintf(name, sizeof name, "c_train%s", suffixes[file]);
            snprintf(path, sizeof path, "%s/%s", support_folder, name);
            struct ls_text bytes = support_read(path);
            for (long n = 0; !past; n += n < 5 ? 1 : n) {
                cut.n = n;
                cut.path = path;
                cut.bytes = n % 2 ? (off_t)bytes.count - 1 : 0;
                int status = tool_run(tool, &error);
                past = cut.n >= 0; /* it reads less often */
                cut.n = -1;
                scratch_write(path, bytes.bytes, bytes.count);
                if (!status)
                    continue;
                assert_int_equal(status, LS_EDATA);
                assert_text_contains(error.text, name);
                refused[tool]++;
            }
            ls_text_release(&bytes);
        }
    for (int tool = 0; tool < TOOLS; tool++)
        assert_true(refused[tool] > 10);
}

/* The part of item i, in whole numbers: which lags most. */
static int reference_part(const int64_t *weights, int count, int64_t *given, int64_t i)
{
    int64_t all = 0, best = 0;
    int part = -1;
    for (int j = 0; j < count; j++)
        all += weights[j];
    for (int j = 0; j < count; j++) {
        int64_t lag = (i + 1) * weights[j] - all * given[j];
        if (part < 0 || lag > best) {
            part = j;
            best = lag;
        }
    }
    given[part]++;
    return part;
}

CASE_WITH(test_split_is_a_loop_over_documents, support_setup, support_teardown)
{
    static char whole[TEXT_MAX], expected[3][TEXT_MAX], found[TEXT_MAX];
    static const struct {
        const char *text;
        int count;
        int64_t weights[3];
    } cases[] = {{"2", 2, {1, 1}}, {"0.9,0.1", 2, {9, 1}}, {"5,1.5,3.5", 3, {10, 3, 7}}};
    struct ls_error error = {0};
    for (int c = 0; c < 6; c++) {
        struct ls_store_part parts[LS_PARTS_MAX];
        struct ls_shares shares;
        int64_t given[3] = {0}, i = 0;
        int count = cases[c % 3].count;
        prepare_drawn("c", 5, DOCUMENTS, c >= 3);
        store_text("c_train", whole);
        for (int j = 0; j < 3; j++)
            expected[j][0] = 0;
        for (char *at = whole; *at; at += strcspn(at, "|") + 1, i++) {
            int part = reference_part(cases[c % 3].weights, count, given, i);
            strncat(expected[part], at, strcspn(at, "|") + 1);
        }
        assert_int_equal(i, DOCUMENTS);
        assert_ok(ls_shares_parse(cases[c % 3].text, &shares, &error), error);
        assert_int_equal(shares.count, count);
        const struct ls_store_job job = {.output = support_path("s")};
        assert_ok(ls_store_split(support_path("c_train"), &shares, &job, parts, &error), error);
        for (int j = 0; j < count; j++) {
            char name[8];
            snprintf(name, sizeof name, "s_%d", j);
            store_text(name, found);
            assert_string_equal(found, expected[j]);
            assert_int_equal(parts[j].documents, given[j]);
            assert_whole(name);
        }
    }
}

CASE_WITH(test_shares, support_setup, support_teardown)
{
    static const char *const bad[] = {"",       "1",   "0",    "65",    "2.5",   "1,0",
                                      "1,",     ",1",  "-1,2", "1,a",   "1e3,1", "0.0000001,1",
                                      "2147,1", ".,1", "1 ,2", "nan,1", "1..2,1"};
    struct ls_error error = {0};
    struct ls_shares shares;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (ls_shares_parse(bad[i], &shares, &error) != LS_ECONFIG)
            fail_msg("\"%s\" was taken", bad[i]);
        assert_text_contains(error.text, "expected the number of parts");
    }
    /* At every prefix two parts have their shares but for less than one item. */
    assert_ok(ls_shares_parse("0.7,0.3", &shares, &error), error);
    int64_t first = 0;
    for (int64_t i = 1; i <= 1000; i++) {
        first += ls_shares_next(&shares) == 0;
        assert_in_range(first * 10 - 7 * i + 10, 1, 19);
    }
    struct ls_store_part parts[LS_PARTS_MAX];
    char names[2048];
    prepare_drawn("c", 5, 3, false);
    assert_ok(ls_shares_parse("4", &shares, &error), error);
    const struct ls_store_job job = {.output = support_path("s")};
    assert_int_equal(ls_store_split(support_path("c_train"), &shares, &job, parts, &error),
                     LS_EDATA);
    assert_text_contains(error.text, "no document for part 3 of 4: the store has 3");
    support_list(support_folder, names);
    assert_null(strstr(names, "s_"));
}

/* ---- detokenize and stats -------------------------------------------------------------------- */

CASE_WITH(test_text_comes_back, support_setup, support_teardown)
{
    static const char lines[] = "{\"text\": \"a \\\"quote\\\", a \\\\ and a\\nline\"}\n"
                                "{\"text\": \"\\u0000 \\u001b[31m \\u007f\"}\n"
                                "{\"text\": \"gr\\u00fc\\u00dfe \xe4\xb8\x96\"}\n";
    static const char expected[] = "{\"text\": \"a \\\"quote\\\", a \\\\ and a\\nline\"}\n"
                                   "{\"text\": \"\\u0000 \\u001b[31m \x7f\"}\n"
                                   "{\"text\": \"gr\xc3\xbc\xc3\x9f"
                                   "e \xe4\xb8\x96\"}\n";
    struct ls_error error = {0};
    struct ls_detokenize_report report;
    scratch_write(support_path("in.jsonl"), lines, sizeof lines - 1);
    prepare("c", support_path("in.jsonl"), LS_RECORDS_TEXT);
    struct ls_store_job job = {.output = support_path("out.jsonl"), .workers = 2};
    assert_ok(ls_store_detokenize(support_path("c_train"), NULL, NULL, &job, &report, &error),
              error);
    struct ls_text found = support_read(support_path("out.jsonl"));
    assert_string_equal(found.bytes, expected);
    ls_text_release(&found);
    assert_int_equal(report.documents, 3);
    /* Again into tokens: the same store. */
    prepare("d", support_path("out.jsonl"), LS_RECORDS_TEXT);
    support_same(support_read(support_path("c_train.bin")),
                 support_read(support_path("d_train.bin")));
    /* Bytes that JSON cannot hold, and a key of the user's. */
    scratch_write(support_path("x.bin"), "a\xff", 2);
    prepare("c", support_path("x.bin"), LS_RECORDS_TEXT);
    job.output = support_path("out.jsonl");
    assert_ok(ls_store_detokenize(support_path("c_train"), NULL, "k\"", &job, &report, &error),
              error);
    found = support_read(support_path("out.jsonl"));
    assert_string_equal(found.bytes, "{\"k\\\"\": \"a\xef\xbf\xbd\"}\n");
    ls_text_release(&found);
    static const char *const own[] = {"c_train.bin", "c_train.idx", "c_train.sums"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        job.output = support_path(own[i]);
        assert_int_equal(
            ls_store_detokenize(support_path("c_train"), NULL, NULL, &job, &report, &error),
            LS_EINVAL);
        assert_text_contains(error.text, "which would replace it");
    }
    assert_whole("c_train");
    remove(support_path("c.tokenizer"));
    job.output = support_path("no.jsonl");
    assert_int_equal(
        ls_store_detokenize(support_path("c_train"), NULL, NULL, &job, &report, &error), LS_EDATA);
    assert_text_contains(error.text, "no tokenizer is recorded");
    volatile int stop = 1;
    job.stop = &stop;
    assert_int_equal(
        ls_store_detokenize(support_path("c_train"), "byte", NULL, &job, &report, &error),
        LS_ESTOPPED);
    assert_int_equal(access(support_path("no.jsonl"), F_OK), -1);
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

CASE_WITH(test_stats_are_those_of_sorted_lengths, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_store_stats stats;
    for (int documents = 1; documents <= DOCUMENTS; documents += 1 + documents / 3) {
        int lengths[DOCUMENTS], all = 0, shorter = 0;
        char text[64];
        prepare_drawn("c", (uint64_t)documents, documents, false);
        for (int i = 0; i < documents; i++) {
            text_of((uint64_t)documents, i, text);
            all += lengths[i] = (int)strlen(text) + 1;
        }
        qsort(lengths, (size_t)documents, sizeof *lengths, ascending);
        assert_ok(ls_store_stats(support_path("c_train"), NULL, NULL, &stats, &error), error);
        assert_int_equal(stats.tokens, all);
        assert_int_equal(stats.documents, documents);
        assert_int_equal(stats.text_bytes, all - documents);
        assert_int_equal(stats.shortest, lengths[0]);
        assert_int_equal(stats.longest, lengths[documents - 1]);
        for (int q = 0; q < LS_STATS_QUANTILES; q++) {
            int percent = (int)(100 * ls_stats_share[q] + 0.5), i = 0;
            while (100 * (i + 1) < percent * documents)
                i++;
            assert_int_equal(stats.quantile[q], lengths[i]);
        }
        for (int bin = 0; bin < 8; bin++) {
            int here = 0;
            for (int i = 0; i < documents; i++)
                here += lengths[i] >> bin == 1;
            assert_int_equal(stats.bin[bin], here);
            shorter += here;
        }
        assert_int_equal(shorter, documents);
    }
}

static int draw(const void *stats, FILE *file, struct ls_error *error)
{
    return ls_store_stats_draw(stats, "runs/a_rather_long_name_of_a_store_train & more", file,
                               error);
}

/* One bar, a few, and all there can be; few documents, and many. */
CASE(test_histograms_can_be_read)
{
    struct ls_error error = {0};
    static const int lasts[] = {0, 1, 4, 11, 30, 62};
    for (size_t i = 0; i < sizeof lasts / sizeof *lasts; i++)
        for (int64_t most = 1; most < (int64_t)1 << 40; most *= 900) {
            struct ls_store_stats stats = {.shortest = 1, .longest = (int64_t)1 << lasts[i]};
            char *svg;
            size_t bytes;
            int bars = 0;
            for (int bin = 0; bin <= lasts[i]; bin++)
                stats.bin[bin] = most / (1 + bin);
            assert_ok(ls_text_write(draw, &stats, &svg, &bytes, &error), error);
            assert_xml(svg);
            assert_svg_texts(svg);
            for (const char *at = svg; (at = strstr(at, "class=\"ls-f0\"")); at++)
                bars++;
            assert_int_equal(bars, lasts[i] + 1);
            free(svg);
        }
}

SUITE_MAIN(NULL, NULL)
