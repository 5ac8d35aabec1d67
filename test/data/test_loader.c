/* The loader gives what was asked for, in order, ahead of time. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A store of 1001 tokens, token i being i % 997: 100 samples of 10. */
enum { TOKENS = 1001, T = 10, VOCABULARY = 997, MAX = 7, DEPTH = 3 };

static struct ls_token_store *make_store(int bad_at)
{
    uint16_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)(i % 997);
    if (bad_at >= 0)
        tokens[bad_at] = 60000;
    char path[300], spec[320];
    snprintf(path, sizeof path, "%s/tokens.bin", support_folder);
    snprintf(spec, sizeof spec, "u16:%s", path);
    scratch_write(path, tokens, sizeof tokens);
    struct ls_error error = {0};
    struct ls_token_store *store;
    assert_ok(ls_token_store_open(spec, &store, &error), error);
    return store;
}

static struct ls_blend *shuffled, *in_order; /* all samples of the store */

static struct ls_loader *make_loader(struct ls_token_store *const *store)
{
    struct ls_error error = {0};
    struct ls_loader *loader;
    struct ls_loader_config config = {.blend = shuffled,
                                      .stores = (const struct ls_token_store *const *)store,
                                      .sequence_tokens = T,
                                      .vocabulary = VOCABULARY,
                                      .sequences_max = MAX,
                                      .depth = DEPTH};
    assert_ok(ls_loader_new(&config, &loader, &error), error);
    return loader;
}

/* What the loader has to give for one number of the run. */
static void read_at(const struct ls_token_store *store, const struct ls_blend *blend,
                    int64_t number, int32_t *inputs, int32_t *targets)
{
    struct ls_error error = {0};
    int64_t sample = ls_blend_at(blend, number).sample;
    assert_ok(ls_sample_read(store, sample, T, VOCABULARY, inputs, targets, &error), error);
}

static int setup(void **state)
{
    struct ls_error error = {0};
    support_setup(state);
    assert_ok(ls_blend_of_one((TOKENS - 1) / T, 5, true, &shuffled, &error), error);
    assert_ok(ls_blend_of_one((TOKENS - 1) / T, 0, false, &in_order, &error), error);
    return 0;
}

static int teardown(void **state)
{
    ls_blend_free(shuffled);
    ls_blend_free(in_order);
    return support_teardown(state);
}

/* Whatever is posted comes back in order, over several epochs, and equals what is read at once. */
CASE(test_loader_gives_what_was_posted)
{
    struct ls_token_store *store = make_store(-1);
    struct ls_loader *loader = make_loader(&store);
    struct ls_error error = {0};
    int32_t inputs[MAX * T], targets[MAX * T];
    long allocations = support_allocations();
    for (int64_t step = 0, posted = 0; step < 200; step++) {
        for (; posted < step + 1 + step % DEPTH; posted++)
            assert_int_equal(ls_loader_post(loader, 3 * posted, posted % (MAX + 1)), LS_OK);
        const int32_t *taken_inputs, *taken_targets;
        double wait_s = -1;
        assert_ok(ls_loader_take(loader, &taken_inputs, &taken_targets, &wait_s, &error), error);
        assert_true(wait_s >= 0);
        int64_t count = step % (MAX + 1);
        for (int64_t i = 0; i < count; i++)
            read_at(store, shuffled, 3 * step + i, inputs + i * T, targets + i * T);
        assert_memory_equal(taken_inputs, inputs, (size_t)count * T * sizeof *inputs);
        assert_memory_equal(taken_targets, targets, (size_t)count * T * sizeof *targets);
        for (int64_t i = 0; i < count * T; i++)
            if (targets[i] != (inputs[i] + 1) % 997)
                fail_msg("input %d has target %d", inputs[i], targets[i]);
    }
    assert_int_equal(support_allocations() - allocations, 0);
    ls_loader_free(loader);
    ls_token_store_close(store);
}

/* Runs of samples of any length, of which two parts are handed out in another order. */
CASE(test_runs_and_segments)
{
    struct ls_token_store *store = make_store(-1);
    struct ls_token_segment parts[] = {{T / 2, T - T / 2 - 1}, {0, 2}};
    int64_t row = parts[0].count + parts[1].count;
    struct ls_loader_config config = {.blend = in_order,
                                      .stores = (const struct ls_token_store *const *)&store,
                                      .sequence_tokens = T,
                                      .vocabulary = VOCABULARY,
                                      .sequences_max = 4,
                                      .segments = parts,
                                      .segment_count = 2,
                                      .depth = 1};
    struct ls_error error = {0};
    struct ls_loader *loader;
    assert_ok(ls_loader_new(&config, &loader, &error), error);
    struct ls_sample_run runs[] = {{3, 2}, {10, 1}, {7, 1}};
    struct ls_sample_run too_many[] = {{3, 2}, {10, 3}}, none[5] = {{0, 0}};
    struct ls_sample_run past_the_end[] = {{3, 2}, {INT64_MAX, 1}};
    assert_int_equal(ls_loader_post_runs(loader, too_many, 2, runs[0]), LS_EINVAL);
    assert_int_equal(ls_loader_post_runs(loader, none, 5, runs[0]), LS_EINVAL);
    assert_int_equal(ls_loader_post_runs(loader, past_the_end, 2, runs[0]), LS_EINVAL);
    assert_int_equal(ls_loader_post_runs(loader, runs, 3, runs[0]), LS_OK);
    const int32_t *inputs, *targets;
    assert_ok(ls_loader_take(loader, &inputs, &targets, NULL, &error), error);
    const int64_t samples[] = {3, 4, 10, 7};
    for (int i = 0; i < 4; i++) {
        int32_t in[T], out[T];
        read_at(store, in_order, samples[i], in, out);
        const int32_t *got = inputs + i * row, *got_targets = targets + i * row;
        assert_memory_equal(got, in + parts[0].first, (size_t)parts[0].count * sizeof *in);
        assert_memory_equal(got + parts[0].count, in, 2 * sizeof *in);
        assert_memory_equal(got_targets + parts[0].count, out, 2 * sizeof *in);
    }
    ls_loader_free(loader);
    ls_token_store_close(store);
}

/* What was taken stays as it is while the next ones are read ahead. */
CASE(test_taken_batch_is_not_overwritten)
{
    struct ls_token_store *store = make_store(-1);
    struct ls_loader *loader = make_loader(&store);
    struct ls_error error = {0};
    const int32_t *inputs, *targets;
    int32_t copy[MAX * T];
    assert_int_equal(ls_loader_post(loader, 0, MAX), LS_OK);
    for (int64_t step = 0; step < 50; step++) {
        assert_ok(ls_loader_take(loader, &inputs, &targets, NULL, &error), error);
        memcpy(copy, inputs, sizeof copy);
        int64_t ahead = step == 49 ? 0 : DEPTH;
        while (ahead > 0 && ls_loader_post(loader, 7 * step + 100 * ahead, MAX) == LS_OK)
            ahead--;
        usleep(200);
        assert_memory_equal(copy, inputs, sizeof copy);
    }
    ls_loader_free(loader);
    ls_token_store_close(store);
}

CASE(test_limits)
{
    struct ls_token_store *store = make_store(-1);
    struct ls_loader *loader = make_loader(&store);
    struct ls_error error = {0};
    const int32_t *inputs, *targets;
    assert_int_equal(ls_loader_take(loader, &inputs, &targets, NULL, &error), LS_EINVAL);
    assert_text_contains(error.text, "nothing was posted");
    for (int i = 0; i < DEPTH; i++)
        assert_int_equal(ls_loader_post(loader, i, 1), LS_OK);
    assert_int_equal(ls_loader_post(loader, 9, 1), LS_EINVAL);
    assert_ok(ls_loader_take(loader, &inputs, &targets, NULL, &error), error);
    assert_int_equal(ls_loader_post(loader, 9, 1), LS_OK);
    assert_ok(ls_loader_take(loader, &inputs, &targets, NULL, &error), error);
    assert_int_equal(ls_loader_post(loader, -1, 1), LS_EINVAL);
    assert_int_equal(ls_loader_post(loader, 0, MAX + 1), LS_EINVAL);
    assert_int_equal(ls_loader_post(loader, 0, -1), LS_EINVAL);
    assert_int_equal(ls_loader_post(loader, INT64_MAX, 1), LS_EINVAL);
    ls_loader_free(loader); /* with requests still queued */

    struct ls_loader_config config = {.blend = in_order,
                                      .stores = (const struct ls_token_store *const *)&store,
                                      .sequence_tokens = T,
                                      .vocabulary = 997,
                                      .sequences_max = 1};
    assert_int_equal(ls_loader_new(&config, &loader, &error), LS_EINVAL);
    config.depth = 1;
    config.sequences_max = 0;
    assert_int_equal(ls_loader_new(&config, &loader, &error), LS_EINVAL);
    config.sequences_max = INT64_MAX;
    assert_int_equal(ls_loader_new(&config, &loader, &error), LS_EINVAL);
    ls_token_store_close(store);
}

/* An error belongs to its request: the ones before and after it are whole. */
CASE(test_bad_token_is_reported_where_it_is_taken)
{
    struct ls_token_store *store = make_store(555);
    struct ls_loader *loader = make_loader(&store);
    struct ls_error error = {0};
    const int32_t *inputs, *targets;
    int failures = 0;
    for (int64_t step = 0; step < 100; step++) {
        assert_int_equal(ls_loader_post(loader, step, 1), LS_OK);
        int status = ls_loader_take(loader, &inputs, &targets, NULL, &error);
        if (status) {
            assert_int_equal(status, LS_EDATA);
            assert_text_contains(error.text, "token 555 has id 60000; the vocabulary has 997");
            failures++;
        }
    }
    assert_int_equal(failures, 1);
    ls_loader_free(loader);
    ls_token_store_close(store);
}

/* Two sources by weight, of which one ends: each sample is its source's, targets are counted by
 * source, and what is read ahead behind the end is an error only for who takes it. */
CASE(test_a_blend_is_loaded)
{
    struct ls_error error = {0};
    const struct ls_blend_source sources[] = {{"a", 100, 0.25}, {"b", 100, 0.5}};
    const struct ls_blend_entry entries[] = {{0, 1, 0, INT64_MAX}, {1, 2, 0, INT64_MAX}};
    struct ls_blend *blend;
    assert_ok(
        ls_blend_new(&(struct ls_blend_config){sources, 2, entries, 2, 7, true}, &blend, &error),
        error);
    assert_int_equal(ls_blend_end(blend), 75);
    struct ls_token_store *stores[] = {make_store(-1), make_store(-1)};
    struct ls_loader *loader;
    struct ls_loader_config config = {.blend = blend,
                                      .stores = (const struct ls_token_store *const *)stores,
                                      .sequence_tokens = T,
                                      .vocabulary = VOCABULARY,
                                      .sequences_max = 5,
                                      .depth = 2};
    assert_ok(ls_loader_new(&config, &loader, &error), error);
    for (int64_t first = 0; first < 80; first += 5) {
        const int32_t *inputs, *targets;
        int64_t counted[2] = {0};
        assert_int_equal(ls_loader_post(loader, first, 5), LS_OK);
        int status = ls_loader_take(loader, &inputs, &targets, NULL, &error);
        if (first >= 75) {
            assert_int_equal(status, LS_EDATA);
            assert_text_contains(error.text, "the data ends: its sources have 75 samples");
            break;
        }
        assert_ok(status, error);
        for (int64_t i = 0; i < 5; i++) {
            int32_t in[T], out[T];
            int source = ls_blend_at(blend, first + i).source;
            read_at(stores[source], blend, first + i, in, out);
            assert_memory_equal(inputs + i * T, in, sizeof in);
            assert_memory_equal(targets + i * T, out, sizeof out);
            counted[source] += T;
        }
        assert_memory_equal(ls_loader_counted(loader), counted, sizeof counted);
    }
    ls_loader_free(loader);
    ls_blend_free(blend);
    ls_token_store_close(stores[0]);
    ls_token_store_close(stores[1]);
}

CASE(test_every_allocation_may_fail)
{
    if (!support_counts_allocations())
        skip();
    struct ls_token_store *store = make_store(-1);
    struct ls_loader_config config = {.blend = in_order,
                                      .stores = (const struct ls_token_store *const *)&store,
                                      .sequence_tokens = T,
                                      .vocabulary = 997,
                                      .sequences_max = 2,
                                      .depth = 2};
    int failed = 0;
    for (long n = 0; n < 8; n++) {
        struct ls_loader *loader = NULL;
        struct ls_error error = {0};
        long live = support_live();
        support_fail_allocation(n);
        int status = ls_loader_new(&config, &loader, &error);
        support_fail_allocation(-1);
        failed += status != LS_OK;
        ls_loader_free(loader);
        assert_true(support_live() - live <=
                    1); /* a thread's own memory is kept by the C library */
    }
    assert_true(failed >= 3);
    ls_token_store_close(store);
}

SUITE_MAIN(setup, teardown)
