/* Samples of whole documents: each target of each document once, in its document, as many documents
 * as fit. */
#include "../support/examples.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 32, DOCUMENTS = 400 };

static int64_t begins[DOCUMENTS + 1]; /* of documents, in the stream */

/* Pairs of many lengths: shorter than T, as long, and several times as long. */
static int setup(void **state)
{
    support_setup(state);
    char *text = malloc(DOCUMENTS * 400), *at = text;
    assert_non_null(text);
    for (uint32_t i = 0; i < DOCUMENTS; i++) {
        uint32_t bits[4];
        ls_philox(ls_philox_key_of(9, "lengths"), (uint32_t[4]){i, 0, 0, 0}, bits);
        int prompt = (int)(bits[0] % (i % 7 ? 12 : 120)), answer = 1 + (int)(bits[1] % 9);
        if (i % 50 == 3)
            prompt = T - 2, answer = 1; /* with its end: T + 1 tokens */
        at += sprintf(at, "{\"prompt\": \"%0*d\", \"completion\": \"%0*d\"}\n", prompt + 1, 1,
                      answer, 2);
        begins[i + 1] = begins[i] + prompt + 1 + answer + 1;
    }
    struct ls_prepare_report report = examples_prepare(support_folder, "c", text);
    free(text);
    assert_int_equal(report.train.tokens, begins[DOCUMENTS]);
    return 0;
}

static struct ls_token_store *store_open(const char *spec, int64_t *samples)
{
    struct ls_error error = {0};
    struct ls_token_store *store;
    assert_ok(ls_token_store_open(spec, &store, &error), error);
    assert_false(ls_token_store_packed(store));
    assert_ok(ls_token_store_pack(store, T, &error), error);
    assert_true(ls_token_store_packed(store));
    assert_ok(ls_token_store_samples(store, T, samples, &error), error);
    return store;
}

/* Where the stream is read on: the next document with targets, and its next input. */
struct reader {
    int64_t document, token;
};

/* One sample against the documents, which follow from their begins alone. */
static void check_sample(const struct ls_token_store *store, int64_t sample, const int32_t *ids,
                         const int32_t *masked, struct reader *at)
{
    struct ls_error error = {0};
    int32_t inputs[T], targets[T], starts[T];
    int64_t used = 0, counted = 0;
    assert_ok(ls_sample_read(store, sample, T, 257, inputs, targets, &error), error);
    ls_sample_starts(store, sample, starts);
    while (at->document < DOCUMENTS) {
        int64_t left = begins[at->document + 1] - 1 - at->token, here = ls_min(left, T);
        if (used + here > T)
            break;
        for (int64_t i = 0; i < here; i++) {
            assert_int_equal(inputs[used + i], ids[at->token + i]);
            assert_int_equal(targets[used + i], masked[at->token + i + 1]);
            assert_int_equal(starts[used + i], used);
            counted += targets[used + i] >= 0;
        }
        used += here;
        at->token += here;
        if (here == left)
            at->token = begins[++at->document];
    }
    assert_true(used > 0);
    for (int64_t i = used; i < T; i++) {
        assert_int_equal(inputs[i], 0);
        assert_int_equal(targets[i], -1);
        assert_int_equal(starts[i], used);
    }
    assert_int_equal(support_sample_counted(store, sample, T), counted);
}

CASE(test_documents_are_packed)
{
    struct ls_error error = {0};
    char spec[300];
    int64_t samples, tokens = begins[DOCUMENTS];
    snprintf(spec, sizeof spec, "%s/c_train", support_folder);
    struct ls_token_store *store = store_open(spec, &samples);
    int32_t *ids = calloc((size_t)tokens, sizeof *ids),
            *masked = calloc((size_t)tokens, sizeof *ids);
    assert_true(ids && masked);
    assert_ok(ls_token_store_read(store, 0, tokens, 257, ids, &error), error);
    memcpy(masked, ids, (size_t)tokens * sizeof *ids);
    support_mask(store, 0, tokens, masked);
    struct reader at = {0, 0};
    for (int64_t i = 0; i < samples; i++)
        check_sample(store, i, ids, masked, &at);
    assert_int_equal(at.document, DOCUMENTS); /* all of them, and no more */
    assert_in_range(samples * T, tokens - DOCUMENTS, 2 * tokens);
    free(ids);
    free(masked);
    ls_token_store_close(store);
}

/* What the loader gives, for whole sequences and for segments of them. */
CASE(test_loader)
{
    struct ls_error error = {0};
    char spec[700];
    int64_t samples;
    snprintf(spec, sizeof spec, "%s/c_train,%s/c_train", support_folder,
             support_folder); /* two are one stream */
    struct ls_token_store *store = store_open(spec, &samples);
    struct ls_token_segment part = {T / 2, T / 4};
    struct ls_loader *loader;
    struct ls_blend *blend;
    assert_ok(ls_blend_of_one(samples, 3, true, &blend, &error), error);
    struct ls_loader_config config = {.blend = blend,
                                      .stores = (const struct ls_token_store *const *)&store,
                                      .sequence_tokens = T,
                                      .vocabulary = 257,
                                      .sequences_max = 4,
                                      .segments = &part,
                                      .segment_count = 1,
                                      .depth = 1};
    assert_ok(ls_loader_new(&config, &loader, &error), error);
    struct ls_sample_run runs[] = {{5, 1}, {9, 2}}, batch = {4, 8};
    assert_int_equal(ls_loader_post_runs(loader, runs, 2, batch), LS_OK);
    const int32_t *inputs, *targets;
    assert_ok(ls_loader_take(loader, &inputs, &targets, NULL, &error), error);
    const int32_t *got = ls_loader_starts(loader);
    const int64_t numbers[] = {5, 9, 10};
    for (int i = 0; i < 3; i++) {
        int32_t in[T], out[T], starts[T];
        int64_t sample = ls_blend_at(blend, numbers[i]).sample;
        assert_ok(ls_sample_read(store, sample, T, 257, in, out, &error), error);
        ls_sample_starts(store, sample, starts);
        assert_memory_equal(got + i * T, starts, sizeof starts);
        assert_memory_equal(inputs + i * T / 4, in + T / 2, T / 4 * sizeof *in);
        assert_memory_equal(targets + i * T / 4, out + T / 2, T / 4 * sizeof *in);
    }
    int64_t counted = 0;
    for (int64_t i = 0; i < batch.count; i++)
        counted += support_sample_counted(store, ls_blend_at(blend, batch.first + i).sample, T);
    assert_int_equal(ls_loader_counted(loader)[0], counted);
    ls_loader_free(loader);
    ls_blend_free(blend);
    ls_token_store_close(store);
}

CASE(test_refused)
{
    struct ls_error error = {0};
    struct ls_token_store *store;
    char path[300], spec[320];
    uint16_t tokens[40] = {0};
    snprintf(path, sizeof path, "%s/raw.bin", support_folder);
    snprintf(spec, sizeof spec, "u16:%s", path);
    scratch_write(path, tokens, sizeof tokens);
    assert_ok(ls_token_store_open(spec, &store, &error), error);
    assert_int_equal(ls_token_store_pack(store, T, &error), LS_EDATA);
    assert_text_contains(error.text, "raw.bin: headerless tokens do not say where a document ends");
    ls_token_store_close(store);
    /* Documents of one token have no target. */
    const char *inputs[] = {path};
    char output[300];
    snprintf(path, sizeof path, "%s/one.txt", support_folder);
    snprintf(output, sizeof output, "%s/one", support_folder);
    scratch_write(path, "x", 1);
    struct ls_prepare_config config = {
        .inputs = inputs, .inputs_count = 1, .output = output, .tokenizer = "byte", .workers = 1};
    struct ls_prepare_report report;
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    snprintf(spec, sizeof spec, "%s_train", output);
    assert_ok(ls_token_store_open(spec, &store, &error), error);
    assert_int_equal(ls_token_store_pack(store, T, &error), LS_EDATA);
    assert_text_contains(error.text, "one_train.bin: no document has two tokens");
    ls_token_store_close(store);
}

SUITE_MAIN(setup, support_teardown)
