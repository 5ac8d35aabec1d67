/* What tokens weigh: from records to PREFIX.weights, from that to samples, and files that are
 * refused. */
#include "support.h"

#include "data/data_private.h"

#include <lockstep/data/store_tools.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS_MAX = 200 };

static const char texts[] = "{\"text\": \"heavy\", \"weight\": 2.5}\n"
                            "{\"text\": \"plain\", \"weight\": null}\n"
                            "{\"text\": \"wrong\", \"weight\": -1e-3, \"nan\": [\"NaN\"]}\n"
                            "{\"text\": \"nothing\", \"weight\": 0}\n";
static const char pairs[] =
    "{\"prompt\": \"is it?\", \"completion\": \"yes\", \"reward\": 0.5}\n"
    "{\"prompt\": \"is it?\", \"completion\": \"no\", \"reward\": -0.25, \"weight\": \"none\"}\n";

static struct ls_prepare_report report; /* of what was prepared last */

static int prepare(const char *lines, enum ls_prepare_records records, const char *key,
                   double validation, struct ls_error *error)
{
    char input[300], output[300];
    snprintf(input, sizeof input, "%s", support_path("x.jsonl"));
    snprintf(output, sizeof output, "%s", support_path("c"));
    scratch_write(input, lines, strlen(lines));
    const char *inputs[] = {input};
    struct ls_prepare_config config = {.inputs = inputs,
                                       .inputs_count = 1,
                                       .output = output,
                                       .tokenizer = "byte",
                                       .records = records,
                                       .weight_key = key,
                                       .validation = validation,
                                       .append_eod = true,
                                       .workers = 2};
    *error = (struct ls_error){0};
    return ls_data_prepare(&config, &report, error);
}

static struct ls_token_store *store_of(const char *name)
{
    struct ls_token_store *store;
    struct ls_error error = {0};
    assert_ok(ls_token_store_open(support_path(name), &store, &error), error);
    return store;
}

/* A run of tokens of one weight, to {0, 0}. */
struct run {
    int64_t count;
    float weight;
};

static void expect(const char *name, const struct run *runs)
{
    struct ls_token_store *store = store_of(name);
    struct ls_error error = {0};
    float weights[TOKENS_MAX];
    int64_t tokens = ls_token_store_tokens(store), at = 0;
    assert_ok(ls_token_store_weights(store, 0, tokens, weights, &error), error);
    assert_true(ls_token_store_weighted(store) && ls_token_store_file(store, 0).weighted);
    for (; runs->count; runs++)
        for (int64_t end = at + runs->count; at < end; at++)
            if (weights[at] != runs->weight)
                fail_msg("%s, token %ld: %g, expected %g", name, (long)at, (double)weights[at],
                         (double)runs->weight);
    assert_int_equal(at, tokens);
    ls_token_store_close(store);
}

/* Each record's tokens, and the end of its document, weigh what it says. */
CASE_WITH(test_records_say_what_they_weigh, support_setup, support_teardown)
{
    struct ls_error error = {0};
    assert_ok(prepare(texts, LS_RECORDS_TEXT, "weight", 0, &error), error);
    expect("c_train", (struct run[]){{6, 2.5f}, {6, 1}, {6, -1e-3f}, {8, 0}, {0, 0}});
    assert_ok(prepare(texts, LS_RECORDS_TEXT, "weight", 0.5, &error), error);
    expect("c_train", (struct run[]){{6, 2.5f}, {6, -1e-3f}, {0, 0}});
    expect("c_valid", (struct run[]){{6, 1}, {8, 0}, {0, 0}});
    /* The tail of the store is held out, in the middle of a document. */
    assert_ok(
        prepare("{\"text\": \"abcdef\", \"weight\": 3}", LS_RECORDS_TEXT, "weight", 0.4, &error),
        error);
    expect("c_train", (struct run[]){{5, 3}, {0, 0}});
    expect("c_valid", (struct run[]){{3, 3}, {0, 0}});
    /* Beside a mask, by any key. */
    assert_ok(prepare(pairs, LS_RECORDS_PAIRS, "reward", 0, &error), error);
    expect("c_train", (struct run[]){{10, 0.5f}, {9, -0.25f}, {0, 0}});
    assert_false(report.alike);
    /* A key that no record has. */
    assert_ok(prepare(pairs, LS_RECORDS_PAIRS, "reword", 0.5, &error), error);
    expect("c_train", (struct run[]){{10, 1}, {0, 0}});
    assert_true(report.alike);
    /* What is prepared without weights has none of those before. */
    assert_ok(prepare(pairs, LS_RECORDS_PAIRS, NULL, 0, &error), error);
    assert_int_not_equal(access(support_path("c_train.weights"), F_OK), 0);
    assert_false(report.alike);
}

CASE_WITH(test_bad_records, support_setup, support_teardown)
{
    static const char *const bad[][2] = {
        {"{\"text\": \"x\", \"weight\": \"2\"}", "\"weight\" is a string: expected a number"},
        {"{\"text\": \"x\", \"weight\": 1e39}", "\"weight\" is 1e+39: expected a weight that"},
        {"{\"text\": \"x\", \"weight\": NaN}", "expected one JSON object a line"},
    };
    struct ls_error error;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(prepare(bad[i][0], LS_RECORDS_TEXT, "weight", 0, &error), LS_EDATA);
        assert_text_contains(error.text, "x.jsonl:1: ");
        assert_text_contains(error.text, bad[i][1]);
    }
}

/* Weights that another program wrote: of a list of stores one has some, and samples take those of
 * their targets, packed or not. */
CASE_WITH(test_weights_of_samples, support_setup, support_teardown)
{
    enum { T = 5 };
    struct ls_error error = {0};
    char spec[700], digest[2][33];
    uint16_t plain[20] = {0};
    float all[TOKENS_MAX], weights[T], written[26];
    assert_ok(prepare(texts, LS_RECORDS_TEXT, NULL, 0, &error), error);
    struct ls_token_store *store = store_of("c_train");
    assert_int_equal(ls_token_store_tokens(store), 26);
    assert_false(ls_token_store_weighted(store));
    assert_ok(ls_token_store_digest(store, digest[0], &error), error);
    ls_token_store_close(store);
    for (int i = 0; i < 26; i++)
        written[i] = (float)(i - 4) / 8;
    scratch_write(support_path("c_train.weights"), written, sizeof written);
    scratch_write(support_path("plain.bin"), plain, sizeof plain);
    store = store_of("c_train");
    assert_ok(ls_token_store_digest(store, digest[1], &error), error);
    assert_string_not_equal(digest[0], digest[1]);
    /* It is not what was opened any more. */
    written[3] = 7;
    scratch_write(support_path("c_train.weights"), written, sizeof written);
    assert_int_equal(ls_token_store_look(store, &error), LS_EDATA);
    assert_text_contains(error.text, "c_train.weights: changed");
    ls_token_store_close(store);
    snprintf(spec, sizeof spec, "%s,u16:%s", support_path("c_train"), support_path("plain.bin"));
    assert_ok(ls_token_store_open(spec, &store, &error), error);
    assert_ok(ls_token_store_weights(store, 0, 46, all, &error), error);
    for (int i = 0; i < 46; i++)
        assert_true(all[i] == (i < 26 ? written[i] : 1));
    for (int s = 0; s < 9; s++) {
        assert_ok(ls_sample_weights(store, s, T, weights, &error), error);
        assert_memory_equal(weights, all + s * T + 1, sizeof weights);
    }
    ls_token_store_close(store);
    /* Documents of 6, 6, 6 and 8 tokens: 5 targets of each of the first three, and padding. */
    store = store_of("c_train");
    float packed[12];
    assert_ok(ls_token_store_pack(store, 12, &error), error);
    assert_ok(ls_sample_weights(store, 0, 12, packed, &error), error);
    assert_memory_equal(packed, written + 1, 5 * sizeof *packed);
    assert_memory_equal(packed + 5, written + 7, 5 * sizeof *packed);
    assert_true(packed[10] == 0 && packed[11] == 0);
    ls_token_store_close(store);
}

CASE_WITH(test_bad_files, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_token_store *store;
    float weights[27] = {0};
    assert_ok(prepare(texts, LS_RECORDS_TEXT, NULL, 0, &error), error);
    static const size_t bytes[] = {0, 25 * 4, 27 * 4, 26 * 4 + 1};
    for (size_t i = 0; i < 4; i++) {
        scratch_write(support_path("c_train.weights"), weights, bytes[i]);
        assert_int_equal(ls_token_store_open(support_path("c_train"), &store, &error), LS_EDATA);
        assert_text_contains(error.text, "the store has 26 tokens, and a float32 weight for each "
                                         "takes 104");
    }
    weights[25] = NAN;
    scratch_write(support_path("c_train.weights"), weights, 26 * 4);
    assert_int_equal(ls_token_store_open(support_path("c_train"), &store, &error), LS_EDATA);
    assert_text_contains(error.text, "c_train.weights: the weight of token 25 is nan");
}

/* Stores made of others keep weights; one that lost them is not what was prepared. */
CASE_WITH(test_tools_keep_weights, support_setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_store_part part;
    struct ls_store_check check;
    char one[300], two[300], merged[300];
    assert_ok(prepare(texts, LS_RECORDS_TEXT, "weight", 0.5, &error), error);
    assert_ok(ls_store_verify(support_path("c_train"), NULL, NULL, &check, &error), error);
    assert_int_equal(unlink(support_path("c_valid.weights")), 0);
    assert_int_equal(ls_store_verify(support_path("c_valid"), NULL, NULL, &check, &error),
                     LS_EDATA);
    assert_text_contains(error.text, "c_valid.weights: the store had weights");
    snprintf(one, sizeof one, "%s", support_path("c_train"));
    snprintf(two, sizeof two, "%s", support_path("c_valid"));
    snprintf(merged, sizeof merged, "%s", support_path("merged"));
    assert_ok(ls_store_merge((const char *const[]){one, two}, 2,
                             &(struct ls_store_job){.output = merged}, &part, &error),
              error);
    expect("merged", (struct run[]){{6, 2.5f}, {6, -1e-3f}, {14, 1}, {0, 0}});
    const struct ls_token_store *store = store_of("merged");
    assert_false(ls_token_store_file(store, 0).masked);
    ls_token_store_close((struct ls_token_store *)(uintptr_t)store);
    /* A byte of them that changes is found. */
    struct ls_text bytes = support_read(support_path("merged.weights"));
    bytes.bytes[1] ^= 1;
    scratch_write(support_path("merged.weights"), bytes.bytes, bytes.count);
    ls_text_release(&bytes);
    assert_int_equal(ls_store_verify(merged, NULL, NULL, &check, &error), LS_EDATA);
    assert_text_contains(error.text, "merged.weights: block 0");
}

SUITE_MAIN(NULL, NULL)
