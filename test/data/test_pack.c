/* Best-fit packing: the samples are those of a plain reference, which looks at every open sample
 * for each document; each target is in one of them; a packing that is not whole, or of another
 * store, is refused. */
#include "../support/extent.h"
#include "support.h"

#include <lockstep/data/pack.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DOCUMENTS_MAX = 400, TOKENS_MAX = 60000, SAMPLES_MAX = 8000 };

static char store[300];

static int setup(void **state)
{
    support_setup(state);
    snprintf(store, sizeof store, "%s/c", support_folder);
    return 0;
}

/* ---- stores ---------------------------------------------------------------------------------- */

/* Documents of so many tokens, which are numbered through: token i has id i. */
struct corpus {
    int count;
    int64_t tokens[DOCUMENTS_MAX], first[DOCUMENTS_MAX];
};

static void put(unsigned char **at, const void *bytes, size_t count)
{
    memcpy(*at, bytes, count);
    *at += count;
}

/* As Megatron writes them, each document in two sequences, of which one may be empty. */
static void store_write(struct corpus *c, const char *prefix)
{
    static unsigned char idx[34 + DOCUMENTS_MAX * 2 * 12 + (DOCUMENTS_MAX + 1) * 8];
    static uint16_t ids[TOKENS_MAX];
    unsigned char *at = idx;
    char path[320];
    int64_t sequences = 2 * c->count, marks = c->count + 1, tokens = 0, byte = 0;
    put(&at, "MMIDIDX\0\0\1\0\0\0\0\0\0\0\10", 18);
    put(&at, &sequences, 8);
    put(&at, &marks, 8);
    for (int i = 0; i < c->count; i++) {
        const int32_t half[2] = {(int32_t)(c->tokens[i] / 3),
                                 (int32_t)(c->tokens[i] - c->tokens[i] / 3)};
        c->first[i] = tokens;
        tokens += c->tokens[i];
        put(&at, half, 8);
    }
    for (int i = 0; i < c->count; i++)
        for (int half = 0; half < 2; half++) {
            put(&at, &byte, 8);
            byte += 2 * (half ? c->tokens[i] - c->tokens[i] / 3 : c->tokens[i] / 3);
        }
    for (int64_t mark = 0; mark <= sequences; mark += 2)
        put(&at, &mark, 8);
    assert_in_range(tokens, 0, TOKENS_MAX);
    for (int64_t i = 0; i < tokens; i++)
        ids[i] = (uint16_t)i;
    snprintf(path, sizeof path, "%s.idx", prefix);
    scratch_write(path, idx, (size_t)(at - idx));
    snprintf(path, sizeof path, "%s.bin", prefix);
    scratch_write(path, ids, (size_t)tokens * 2);
}

static void corpus_draw(struct corpus *c, uint32_t round, int64_t longest)
{
    c->count = 1 + (int)(round * 37 % DOCUMENTS_MAX);
    for (uint32_t i = 0; i < (uint32_t)c->count; i++) {
        uint32_t bits[4];
        ls_philox(ls_philox_key_of(round, "documents"), (uint32_t[4]){i, 0, 0, 0}, bits);
        c->tokens[i] = bits[0] % (bits[1] % 5 ? longest / 4 + 2 : longest);
    }
    c->tokens[0] = 2 + round % 3;
}

/* ---- the reference --------------------------------------------------------------------------- */

/* What a twin of the reference gets wrong. */
enum wrong { RIGHT, FIRST_FIT, FILLED_FIRST, ASCENDING, WRONGS };
struct piece {
    int64_t first, count;
};
struct sample {
    struct piece pieces[DOCUMENTS_MAX];
    int count, filled; /* filled: when it last got one */
    int64_t room;
};
struct reference {
    struct sample *samples; /* [SAMPLES_MAX] */
    int count;
};

static int by_size(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count) - (x->count > y->count)
                                : (x->first > y->first) - (x->first < y->first);
}

static int by_first(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static int samples_by_first(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    return by_first(x->pieces, y->pieces);
}

static bool better(const struct sample *a, const struct sample *b, enum wrong wrong)
{
    if (wrong == FIRST_FIT)
        return false;
    if (a->room != b->room)
        return a->room < b->room;
    return wrong == FILLED_FIRST ? a->filled < b->filled : a->filled > b->filled;
}

static void piece_put(struct reference *r, const struct piece *piece, int clock, int64_t tokens,
                      enum wrong wrong)
{
    struct sample *best = NULL;
    for (int i = 0; i < r->count; i++)
        if (r->samples[i].room >= piece->count && (!best || better(&r->samples[i], best, wrong)))
            best = &r->samples[i];
    if (!best) {
        assert_in_range(r->count, 0, SAMPLES_MAX - 1);
        best = &r->samples[r->count++];
        *best = (struct sample){.room = tokens};
    }
    best->room -= piece->count;
    best->filled = clock;
    best->pieces[best->count++] = *piece;
}

static void reference_pack(struct reference *r, const struct corpus *c, int64_t tokens,
                           enum wrong wrong)
{
    static struct piece rests[DOCUMENTS_MAX];
    int rest_count = 0, clock = 0;
    r->count = 0;
    for (int i = 0; i < c->count; i++) {
        struct piece piece = {c->first[i], tokens};
        for (; c->first[i] + c->tokens[i] - 1 - piece.first >= tokens; piece.first += tokens)
            piece_put(r, &piece, ++clock, tokens, RIGHT);
        piece.count = c->first[i] + c->tokens[i] - 1 - piece.first;
        if (piece.count > 0)
            rests[rest_count++] = piece;
    }
    if (wrong != ASCENDING)
        qsort(rests, (size_t)rest_count, sizeof *rests, by_size);
    for (int i = 0; i < rest_count; i++)
        piece_put(r, &rests[i], ++clock, tokens, wrong);
    for (int i = 0; i < r->count; i++)
        qsort(r->samples[i].pieces, (size_t)r->samples[i].count, sizeof *rests, by_first);
    qsort(r->samples, (size_t)r->count, sizeof *r->samples, samples_by_first);
}

/* ---- what is read ---------------------------------------------------------------------------- */

static struct ls_token_store *store_open(const char *spec, int64_t tokens, int64_t *samples)
{
    struct ls_error error = {0};
    struct ls_token_store *opened;
    assert_ok(ls_token_store_open(spec, &opened, &error), error);
    assert_ok(ls_token_store_pack_best_fit(opened, tokens, &error), error);
    assert_true(ls_token_store_packed(opened));
    assert_ok(ls_token_store_samples(opened, tokens, samples, &error), error);
    return opened;
}

/* Whether the sample is the reference's. */
static bool sample_equal(const struct ls_token_store *opened, int64_t sample, int64_t tokens,
                         const struct sample *expected)
{
    static int32_t inputs[TOKENS_MAX], targets[TOKENS_MAX], starts[TOKENS_MAX];
    struct ls_error error = {0};
    int64_t used = 0, counted;
    bool same = true;
    assert_ok(ls_sample_read(opened, sample, tokens, TOKENS_MAX, inputs, targets, &error), error);
    ls_sample_starts(opened, sample, starts);
    for (int i = 0; i < expected->count; i++) {
        const struct piece *piece = &expected->pieces[i];
        for (int64_t k = 0; k < piece->count; k++) {
            same = same && inputs[used + k] == piece->first + k;
            same = same && targets[used + k] == piece->first + k + 1 && starts[used + k] == used;
        }
        used += piece->count;
    }
    assert_ok(ls_sample_counted(opened, sample, tokens, &counted, &error), error);
    same = same && counted == used;
    for (int64_t k = used; k < tokens; k++)
        same = same && inputs[k] == 0 && targets[k] == -1 && starts[k] == used;
    return same;
}

static bool samples_equal(const struct ls_token_store *opened, int64_t tokens, int64_t samples,
                          const struct reference *r)
{
    bool same = samples == r->count;
    for (int64_t i = 0; i < samples && same; i++)
        same = sample_equal(opened, i, tokens, &r->samples[i]);
    return same;
}

static void report_check(const struct ls_pack_report *report, const struct corpus *c,
                         int64_t tokens)
{
    struct ls_error error = {0};
    struct ls_token_store *opened;
    int64_t samples, cut = 0, stream_cut = 0, documents = 0, targets = 0;
    assert_ok(ls_token_store_open(store, &opened, &error), error);
    assert_ok(ls_token_store_pack(opened, tokens, &error), error);
    assert_ok(ls_token_store_samples(opened, tokens, &samples, &error), error);
    ls_token_store_close(opened);
    assert_int_equal(report->order_samples, samples);
    for (int i = 0; i < c->count; i++) {
        bool crosses = false;
        for (int64_t k = c->first[i] + 1; k < c->first[i] + c->tokens[i] - 1; k++)
            crosses = crosses || k % tokens == 0; /* input k begins another sample */
        documents += c->tokens[i] > 1;
        targets += ls_max(c->tokens[i] - 1, 0);
        cut += c->tokens[i] - 1 > tokens;
        stream_cut += crosses;
    }
    assert_int_equal(report->documents, documents);
    assert_int_equal(report->targets, targets);
    assert_int_equal(report->cut, cut);
    assert_int_equal(report->stream_cut, stream_cut);
}

CASE_WITH(test_samples_are_the_references, setup, support_teardown)
{
    static const int64_t lengths[] = {1, 2, 7, 64, 65, 130, 1000, 5000};
    static struct corpus c;
    struct reference r = {.samples = malloc(SAMPLES_MAX * sizeof *r.samples)};
    int differ[WRONGS] = {0};
    assert_non_null(r.samples);
    for (uint32_t round = 1; round < 33; round += (uint32_t)check_every(5, 1)) {
        const int64_t tokens = lengths[round % 8];
        struct ls_error error = {0};
        struct ls_pack_report report;
        int64_t samples;
        corpus_draw(&c, round, tokens < 7 ? 30 : ls_min(2 * tokens, 300));
        store_write(&c, store);
        assert_ok(ls_store_pack(store, tokens, NULL, &report, &error), error);
        struct ls_token_store *opened = store_open(store, tokens, &samples);
        assert_int_equal(report.samples, samples);
        report_check(&report, &c, tokens);
        for (int wrong = RIGHT; wrong < WRONGS; wrong++) {
            reference_pack(&r, &c, tokens, (enum wrong)wrong);
            bool same = samples_equal(opened, tokens, samples, &r);
            if (wrong == RIGHT && !same)
                fail_msg("round %u: sequences of %ld tokens differ", round, (long)tokens);
            differ[wrong] += !same;
        }
        ls_token_store_close(opened);
    }
    for (int wrong = RIGHT + 1; wrong < WRONGS; wrong++)
        assert_true(differ[wrong] > 0);
    free(r.samples);
}

/* The samples of two stores follow one another. */
CASE_WITH(test_a_list_of_stores, setup, support_teardown)
{
    enum { T = 40 };
    static struct corpus c;
    struct ls_error error = {0};
    struct ls_pack_report report;
    struct reference r = {.samples = malloc(SAMPLES_MAX * sizeof *r.samples)};
    char both[1000];
    int64_t samples, all;
    corpus_draw(&c, 9, 100);
    store_write(&c, store);
    assert_ok(ls_store_pack(store, T, NULL, &report, &error), error);
    reference_pack(&r, &c, T, RIGHT);
    snprintf(both, sizeof both, "%s,%s.idx,%s.bin", store, store, store);
    ls_token_store_close(store_open(store, T, &samples));
    struct ls_token_store *opened = store_open(both, T, &all);
    assert_int_equal(all, 3 * samples);
    for (int64_t i = 0; i < all; i++)
        assert_true(sample_equal(opened, i, T, &r.samples[i % samples]));
    ls_token_store_close(opened);
    free(r.samples);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void assert_refused(int64_t tokens, const char *says)
{
    struct ls_error error = {0};
    struct ls_token_store *opened;
    assert_ok(ls_token_store_open(store, &opened, &error), error);
    int status = ls_token_store_pack_best_fit(opened, tokens, &error);
    ls_token_store_close(opened);
    if (status != LS_EDATA)
        fail_msg("%s (%s), expected LS_EDATA", ls_status_name(status), error.text);
    assert_text_contains(error.text, says);
}

CASE_WITH(test_another_store_or_length, setup, support_teardown)
{
    static struct corpus c = {3, {5, 9, 4}, {0}};
    struct ls_error error = {0};
    struct ls_pack_report report;
    char command[400];
    store_write(&c, store);
    snprintf(command, sizeof command, "lockstep data pack %s --sequence 16", store);
    assert_refused(16, "c.pack: the store is not packed for best_fit");
    assert_refused(16, command);
    assert_ok(ls_store_pack(store, 8, NULL, &report, &error), error);
    assert_refused(16, "packed for sequences of 8 tokens, and 16 are asked for");
    assert_refused(16, command);
    c.tokens[0] = 4;
    c.tokens[1] = 10;
    store_write(&c, store);
    assert_refused(8, "the packing of another store: it is of 18 tokens and the store has 18, in "
                      "documents of other lengths");
    c.tokens[1] = 11;
    store_write(&c, store);
    assert_refused(8, "it is of 18 tokens and the store has 19. Make it again: lockstep");
}

/* Any bit that flips, and any cut, is seen. */
CASE_WITH(test_damage, setup, support_teardown)
{
    static struct corpus c = {4, {5, 9, 4, 30}, {0}};
    struct ls_error error = {0};
    struct ls_pack_report report;
    char path[320];
    store_write(&c, store);
    assert_ok(ls_store_pack(store, 8, NULL, &report, &error), error);
    snprintf(path, sizeof path, "%s.pack", store);
    struct ls_text file = support_read(path);
    for (size_t i = 0; i < file.count; i++) {
        file.bytes[i] ^= (char)(1 << i % 8);
        scratch_write(path, file.bytes, file.count);
        assert_refused(8, "c.pack: ");
        file.bytes[i] ^= (char)(1 << i % 8);
        scratch_write(path, file.bytes, i);
        assert_refused(8, "c.pack: ");
    }
    file.bytes[7] = 2;
    scratch_write(path, file.bytes, file.count);
    assert_refused(8, "version 2 of the packing; expected 1");
    ls_text_release(&file);
}

CASE_WITH(test_what_cannot_be_packed, setup, support_teardown)
{
    static struct corpus c = {3, {1, 0, 1}, {0}};
    struct ls_error error = {0};
    struct ls_pack_report report;
    char path[320], spec[330];
    int stop = 1;
    store_write(&c, store);
    assert_int_equal(ls_store_pack(store, 8, NULL, &report, &error), LS_EDATA);
    assert_text_contains(error.text, "c.bin: no document has two tokens");
    assert_int_equal(ls_store_pack(store, 0, NULL, &report, &error), LS_EINVAL);
    assert_text_contains(error.text, "a sequence of 0 tokens; expected 1 to 16777216");
    assert_int_equal(ls_store_pack(store, (1 << 24) + 1, NULL, &report, &error), LS_EINVAL);
    snprintf(spec, sizeof spec, "u16:%s.bin", store);
    assert_int_equal(ls_store_pack(spec, 8, NULL, &report, &error), LS_EDATA);
    assert_text_contains(error.text, "headerless tokens do not say where a document ends");
    snprintf(spec, sizeof spec, "%s/no", support_folder);
    assert_int_equal(ls_store_pack(spec, 8, NULL, &report, &error), LS_EIO);
    c.tokens[0] = 5;
    store_write(&c, store);
    assert_int_equal(ls_store_pack(store, 8, &stop, &report, &error), LS_ESTOPPED);
    support_fail_output(0, ENOSPC);
    assert_int_equal(ls_store_pack(store, 8, NULL, &report, &error), LS_ENOSPC);
    support_fail_output(-1, 0);
    char names[2048];
    support_list(support_folder, names);
    assert_string_equal(names, "c.bin c.idx ");
    /* The longest sequence there may be. */
    assert_ok(ls_store_pack(store, 1 << 24, NULL, &report, &error), error);
    assert_int_equal(report.samples, 1);
    /* An older packing stays if the new one cannot be written. */
    snprintf(path, sizeof path, "%s.pack", store);
    assert_ok(ls_store_pack(store, 8, NULL, &report, &error), error);
    struct ls_text old = support_read(path);
    support_fail_output(0, ENOSPC);
    assert_int_equal(ls_store_pack(store, 16, NULL, &report, &error), LS_ENOSPC);
    support_fail_output(-1, 0);
    support_same(support_read(path), old);
}

static int pack(void *user, struct ls_error *error)
{
    (void)user;
    struct ls_pack_report report;
    return ls_store_pack(store, 8, NULL, &report, error);
}

static int packed_read(void *user, struct ls_error *error)
{
    (void)user;
    struct ls_token_store *opened;
    int status = ls_token_store_open(store, &opened, error);
    if (!status)
        status = ls_token_store_pack_best_fit(opened, 8, error);
    ls_token_store_close(opened);
    return status;
}

CASE_WITH(test_every_allocation_may_fail, setup, support_teardown)
{
    static struct corpus c = {4, {5, 9, 4, 30}, {0}};
    store_write(&c, store);
    assert_true(support_fail_each_allocation(pack, NULL) > 5);
    assert_true(support_fail_each_allocation(packed_read, NULL) > 5);
}

/* Data that is prepared anew has no packing. */
CASE_WITH(test_prepare_removes_it, setup, support_teardown)
{
    struct ls_error error = {0};
    struct ls_prepare_report report;
    struct ls_pack_report packed;
    char path[320], train[320], pack[330];
    const char *inputs[] = {path};
    snprintf(path, sizeof path, "%s/a.txt", support_folder);
    scratch_write(path, "abc", 3);
    struct ls_prepare_config config = {
        .inputs = inputs, .inputs_count = 1, .output = store, .tokenizer = "byte", .workers = 1};
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    snprintf(train, sizeof train, "%s_train", store);
    snprintf(pack, sizeof pack, "%s.pack", train);
    assert_ok(ls_store_pack(train, 8, NULL, &packed, &error), error);
    assert_int_equal(access(pack, F_OK), 0);
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    assert_int_equal(access(pack, F_OK), -1);
}

SUITE_MAIN(NULL, NULL)
