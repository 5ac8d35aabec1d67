/* Several samples of each prompt: each is what a decoder of its own, fed token by token, draws with
 * the sample's own numbers, and has the log-probabilities of training, in any layout. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "nn/text_blocks.h"
#include "small_runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPTS = 3, SAMPLES = 4, TEXTS = PROMPTS * SAMPLES, ADDED = 20, LONG = 304 };
enum { SEED = 5 };

/* Their ends are in a block of attention, at its end and behind it. */
static const int64_t lengths[PROMPTS] = {10, 128, 129};

struct outcome {
    int64_t count[TEXTS];
    enum ls_finish finish[TEXTS];
    int32_t ids[TEXTS][LONG];
    float logprobs[TEXTS][LONG];
    int calls;
    struct ls_generation_report report;
};

struct job {
    struct finished_job at;
    int64_t samples, batch, cache_tokens, tokens;
    bool everywhere, slides;
    int interrupted; /* the rank that is, in a first try, counted from 1; 0: none */
    struct outcome *out;
};

static const struct job plain = {.samples = SAMPLES, .batch = 5, .tokens = ADDED};

static int on_done(void *user, int64_t prompt, int64_t sample, const struct ls_generated *text,
                   struct ls_error *error)
{
    struct outcome *out = user;
    int64_t i = prompt * SAMPLES + sample;
    if (text->count > LONG || sample >= SAMPLES)
        return ls_error_set(error, LS_EINVAL, "sample %ld of %ld tokens", (long)sample,
                            (long)text->count);
    out->count[i] = text->count;
    out->finish[i] = text->finish;
    out->calls++;
    memcpy(out->ids[i], text->ids, (size_t)text->count * sizeof *text->ids);
    if (text->logprobs)
        memcpy(out->logprobs[i] + 1, text->logprobs + 1, (size_t)(text->count - 1) * sizeof(float));
    return LS_OK;
}

static const struct ls_sampling sampling = {.temperature = 1, .top_p = 1};

/* All ranks end with the one that is interrupted, before a text has ended. */
static int interrupted_try(struct ls_runner *runner, const struct ls_generation *generation,
                           const struct job *job, int rank, struct ls_error *error)
{
    const volatile int flag = rank == job->interrupted - 1;
    struct ls_error stopped = {0};
    struct ls_generation_report report;
    ls_runner_set_interrupt(runner, &flag);
    int status = ls_runner_continue(runner, generation, &report, &stopped);
    ls_runner_set_interrupt(runner, NULL);
    if (status == LS_ESTOPPED && job->out->calls == 0)
        return LS_OK;
    return ls_error_set(error, LS_EINVAL, "rank %d was to end: %d, after %d texts: %s", rank,
                        status, job->out->calls, stopped.text);
}

static int generate_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_finished *finished = NULL;
    struct ls_text_request list[PROMPTS];
    int32_t ids[PROMPTS][LONG];
    prompts_make(lengths, PROMPTS, list, ids[0], LONG);
    const struct ls_text_requests prompts = {.list = list, .count = PROMPTS};
    struct ls_generation generation = {.prompts = &prompts,
                                       .tokens = job->tokens,
                                       .sampling = sampling,
                                       .seed = SEED,
                                       .samples = job->samples,
                                       .batch = job->batch,
                                       .cache_tokens = job->cache_tokens,
                                       .logprobs = !job->slides,
                                       .slides = job->slides,
                                       .done = on_done,
                                       .user = job->out,
                                       .everywhere = job->everywhere};
    struct ls_generation_report report;
    int status =
        ls_finished_new(&job->at.config, job->at.path, NULL, world, NULL, &finished, error);
    if (!status && job->interrupted)
        status = interrupted_try(ls_finished_runner(finished), &generation, job,
                                 ls_comm_rank(world), error);
    if (job->interrupted)
        status = ls_comm_agree(world, status, error);
    if (!status)
        status = ls_runner_continue(ls_finished_runner(finished), &generation, &report, error);
    if (!status && ls_comm_rank(world) == 0)
        job->out->report = report;
    ls_finished_free(finished);
    return status;
}

static struct outcome *generate(const char *directory, int run, const keys_t keys, struct job job)
{
    job.out = calloc(1, sizeof *job.out);
    finished_in(&job.at, directory, run, LS_TO_GENERATE, keys, generate_body, NULL);
    assert_int_equal(job.out->calls, PROMPTS * job.samples);
    return job.out;
}

/* ---- what each should be --------------------------------------------------------------------- */

struct reference {
    struct finished_job at;
    const struct outcome *drawn;
    int64_t other; /* the twin: sample i draws the numbers of sample i ^ other */
    int wrong;     /* tokens that are not as drawn, and log-probabilities */
};

static int32_t draw(const struct reference *ref, int i, int64_t at, const float *logits)
{
    int32_t order[300];
    uint32_t sample = (uint32_t)(i % SAMPLES ^ ref->other), bits[4];
    uint32_t counter[4] = {(uint32_t)at, (uint32_t)(i / SAMPLES), 0, sample};
    ls_philox(ls_philox_key_of(SEED, "generate"), counter, bits);
    return ls_sample(&sampling, logits, 257, order, ls_uniform_of(bits[0]));
}

static int text_check(struct reference *ref, struct ls_runner *runner, int i,
                      struct ls_error *error)
{
    int64_t prompt = lengths[i / SAMPLES];
    const float *logits = NULL;
    int status = ls_runner_restart(runner, error);
    for (int64_t t = 0; t + 1 < prompt + ADDED && !status; t++) {
        status = ls_runner_next(runner, ref->drawn->ids[i][t], &logits, error);
        if (!status && t + 1 >= prompt)
            ref->wrong += draw(ref, i, t + 1 - prompt, logits) != ref->drawn->ids[i][t + 1];
    }
    return status;
}

static int scores_check(struct reference *ref, struct ls_runner *runner, struct ls_error *error)
{
    struct ls_scored texts[TEXTS];
    static float found[TEXTS][LONG];
    for (int i = 0; i < TEXTS; i++)
        texts[i] = (struct ls_scored){
            .ids = ref->drawn->ids[i], .count = ref->drawn->count[i], .logprobs = found[i]};
    int status = ls_runner_score(runner, texts, TEXTS, error);
    for (int i = 0; i < TEXTS; i++)
        for (int64_t t = 1; t < texts[i].count; t++)
            ref->wrong += memcmp(&found[i][t], &ref->drawn->logprobs[i][t], sizeof(float)) != 0;
    return status;
}

static int reference_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct reference *ref = user;
    struct ls_finished *finished = NULL;
    int status =
        ls_finished_new(&ref->at.config, ref->at.path, NULL, world, NULL, &finished, error);
    for (int i = 0; i < TEXTS && !status; i++)
        status = text_check(ref, ls_finished_runner(finished), i, error);
    if (!status && !ref->other)
        status = scores_check(ref, ls_finished_runner(finished), error);
    ls_finished_free(finished);
    return status;
}

static int wrong(const char *directory, int run, const struct outcome *drawn, int64_t other)
{
    struct reference ref = {.drawn = drawn, .other = other};
    finished_in(&ref.at, directory, run, LS_TO_GENERATE, (keys_t){NULL}, reference_body, NULL);
    return ref.wrong;
}

CASE(test_each_sample_draws_its_own_numbers)
{
    for (int run = 0; run < RUNS; run += check_every(8, 7)) {
        struct outcome *drawn = generate(*state, run, (keys_t){NULL}, plain);
        for (int i = 0; i < TEXTS; i++)
            assert_int_equal(drawn->count[i], lengths[i / SAMPLES] + ADDED);
        assert_int_equal(drawn->report.written, TEXTS * ADDED);
        assert_int_equal(wrong(*state, run, drawn, 0), 0);
        assert_true(wrong(*state, run, drawn, 1) > TEXTS);
        free(drawn);
    }
}

/* ---- shared memory --------------------------------------------------------------------------- */

static void expect_same(const struct outcome *a, const struct outcome *b, const char *what)
{
    if (memcmp(a->count, b->count, sizeof a->count) || memcmp(a->ids, b->ids, sizeof a->ids) ||
        memcmp(a->finish, b->finish, sizeof a->finish))
        fail_msg("%s: other texts", what);
    if (memcmp(a->logprobs, b->logprobs, sizeof a->logprobs))
        fail_msg("%s: other log-probabilities", what);
}

/* Prompts of 128 tokens and 20 tokens added: the first 127 are of all samples, and each has a copy
 * of their last block and one more. */
CASE(test_samples_share_their_prompt)
{
    struct job job = plain;
    job.batch = TEXTS;
    struct outcome *all = generate(*state, 1, (keys_t){NULL}, job);
    assert_int_equal(all->report.read, 10 + 128 + 129);
    /* 1 each of the first; 1 and 2 each of the second; 2 and 1 each of the third */
    assert_true(all->report.blocks_used <= SAMPLES + (1 + 2 * SAMPLES) + (2 + SAMPLES));
    assert_int_equal(all->report.blocks_used, all->report.blocks);
    assert_int_equal(all->report.put_back, 0);
    job.cache_tokens = INT64_MAX; /* no more is taken than the longest texts fill, of 148 tokens */
    struct outcome *bounded = generate(*state, 1, (keys_t){NULL}, job);
    assert_int_equal(bounded->report.blocks, TEXTS * 3);
    expect_same(all, bounded, "as much memory as there may be");
    free(bounded);
    free(all);
}

CASE(test_neither_memory_nor_layout_changes_bits)
{
    static const struct {
        keys_t keys;
        int64_t batch, cache_tokens;
    } cases[] = {
        {{NULL}, 1, 0},
        {{NULL}, 3, 192},
        {{NULL}, TEXTS, 192},
        {{NULL}, TEXTS, 448},
        {{"parallel.tp=2"}, TEXTS, 640},
        {{"parallel.tp=4", "parallel.pp=2"}, 7, 256},
        {{"parallel.pp=2"}, TEXTS, 0},
        {{"parallel.dp=2"}, 4, 0},
        {{"parallel.dp=4", "parallel.tp=2"}, 2, 192},
        {{"parallel.dp=3", "parallel.pp=2"}, TEXTS, 0},
    };
    for (int run = 0; run < RUNS; run += check_every(8, 7)) {
        struct outcome *one = generate(*state, run, (keys_t){NULL}, plain);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            char what[ROOM];
            struct job job = plain;
            job.batch = cases[i].batch;
            job.cache_tokens = cases[i].cache_tokens;
            struct outcome *out = generate(*state, run, cases[i].keys, job);
            snprintf(what, sizeof what, "run %d, %s, %ld at a time in %ld tokens", run,
                     layout_text(cases[i].keys), (long)job.batch, (long)job.cache_tokens);
            expect_same(one, out, what);
            if (job.cache_tokens)
                assert_int_equal(out->report.blocks, job.cache_tokens / LS_ATTENTION_BLOCK);
            assert_true(out->report.blocks_used <= out->report.blocks);
            if (job.batch == TEXTS && job.cache_tokens == 448)
                assert_true(out->report.put_back > 0);
            free(out);
        }
        free(one);
    }
}

/* The context is 256: a text that comes to its end goes on with the newer half. */
CASE(test_texts_that_outgrow_the_context_begin_again)
{
    struct job job = plain;
    job.slides = true;
    job.tokens = LONG - 129;
    struct outcome *one = generate(*state, 0, (keys_t){NULL}, job);
    job.batch = TEXTS;
    job.cache_tokens = 512; /* of 12 texts, each of which comes to 256 */
    struct outcome *out = generate(*state, 0, (keys_t){NULL}, job);
    assert_int_equal(out->count[TEXTS - 1], LONG);
    assert_true(out->report.put_back > 0);
    expect_same(one, out, "texts that slide");
    free(out);
    free(one);
}

/* ---- broken twins ---------------------------------------------------------------------------- */

/* The text that comes to others' blocks forgets that they have them. */
static bool forgets;

WRAPPED(text_blocks_share);
void __wrap_text_blocks_share(struct text_blocks *b, int64_t from, int64_t to, int64_t tokens)
{
    __real_text_blocks_share(b, from, to, tokens);
    int64_t last = b->held[to] - 1;
    if (forgets && from != to && last >= 0)
        b->users[b->table[to * b->width + last]] = 1;
}

CASE(test_a_shared_block_that_is_written_is_seen)
{
    struct job job = plain;
    job.batch = TEXTS;
    struct outcome *one = generate(*state, 1, (keys_t){NULL}, job);
    forgets = true;
    struct outcome *twin = generate(*state, 1, (keys_t){NULL}, job);
    forgets = false;
    /* the samples of a prompt write one over the other from its end on */
    assert_memory_not_equal(one->logprobs, twin->logprobs, sizeof one->logprobs);
    free(twin);
    free(one);
}

/* ---- one rank is interrupted ----------------------------------------------------------------- */

/* Copies that do not work together end too, and all may go on. */
CASE(test_all_copies_end_with_the_one_that_is_interrupted)
{
    static const keys_t layouts[] = {
        {"parallel.dp=2"}, {"parallel.dp=2", "parallel.pp=2"}, {"parallel.tp=2"}};
    struct outcome *one = generate(*state, 0, (keys_t){NULL}, plain);
    for (int i = 0; i < 3; i++) {
        struct job job = plain;
        job.interrupted = i == 1 ? 4 : 2;
        struct outcome *again = generate(*state, 0, layouts[i], job);
        expect_same(one, again, "after an interruption");
        free(again);
    }
    free(one);
}

/* ---- results on all ranks -------------------------------------------------------------------- */

/* Each rank compares what it hears with what one rank alone wrote. */
struct hearing {
    struct finished_job at;
    const struct outcome *one;
};

static int hearing_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct hearing *hearing = user;
    struct outcome *mine = calloc(1, sizeof *mine);
    struct job job = plain;
    job.at = hearing->at;
    job.everywhere = true;
    job.out = mine;
    int status = generate_body(world, &job, error);
    if (!status &&
        (mine->calls != TEXTS || memcmp(mine->ids, hearing->one->ids, sizeof mine->ids) ||
         memcmp(mine->logprobs, hearing->one->logprobs, sizeof mine->logprobs)))
        status =
            ls_error_set(error, LS_ENUMERIC, "%d texts, of others than one rank's", mine->calls);
    free(mine);
    return status;
}

CASE(test_all_ranks_may_hear_of_all_texts)
{
    static const keys_t layouts[] = {{"parallel.dp=2", "parallel.tp=2"}, {"parallel.pp=2"}};
    for (int i = 0; i < 2; i++) {
        struct hearing hearing = {.one = generate(*state, 0, (keys_t){NULL}, plain)};
        finished_in(&hearing.at, *state, 0, LS_TO_GENERATE, layouts[i], hearing_body, NULL);
        free((void *)hearing.one);
    }
}

/* ---- a draw alone ---------------------------------------------------------------------------- */

static int by_logit(const void *a, const void *b, void *user)
{
    const float *logits = user;
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (logits[i] != logits[j])
        return logits[i] > logits[j] ? -1 : 1;
    return i < j ? -1 : i > j;
}

/* What ls_sample says, by a sort of comparisons: its last token that is kept if u is 1. */
static int32_t drawn_plainly(const struct ls_sampling *how, const float *logits, int64_t vocab,
                             int32_t *order, float u)
{
    for (int64_t i = 0; i < vocab; i++)
        order[i] = (int32_t)i;
    qsort_r(order, (size_t)vocab, sizeof *order, by_logit, (void *)logits);
    double total = 0, reach = 0;
    int64_t kept = how->top_k ? how->top_k : vocab, last = 0;
    for (int64_t i = 0; i < kept; i++)
        total += exp((logits[order[i]] - (double)logits[order[0]]) / how->temperature);
    double whole = total;
    for (int64_t i = 0; i < kept && reach < how->top_p * whole; i++, last = i)
        reach += exp((logits[order[i]] - (double)logits[order[0]]) / how->temperature);
    total = how->top_p < 1 ? reach : total;
    kept = how->top_p < 1 ? last : kept;
    reach = 0;
    for (int64_t i = 0; i < kept; i++) {
        reach += exp((logits[order[i]] - (double)logits[order[0]]) / how->temperature);
        if (u * total < reach)
            return order[i];
    }
    return order[kept - 1];
}

/* Equal ones, zeros of both signs and infinities among them. */
CASE(test_draws_are_those_of_sorted_logits)
{
    enum { VOCAB = 1000, DRAWS = 400 };
    static const float odd[] = {0, -0.0F, -INFINITY, 1, -1, 1e-40F, -1e-40F};
    static const struct ls_sampling how[] = {{1, 1, 0}, {0.7F, 0.9F, 0}, {2, 1, 5}, {1, 0.5F, 40}};
    float logits[VOCAB];
    int32_t order[VOCAB];
    for (uint32_t draw = 0; draw < DRAWS; draw++) {
        uint32_t counter[4] = {draw}, bits[4];
        int64_t vocab = draw % 10 ? VOCAB : 41;
        for (uint32_t i = 0; i < vocab; i++) {
            counter[1] = i;
            ls_philox(ls_philox_key_of(SEED, "logits"), counter, bits);
            logits[i] = bits[0] % 4 ? 8 * ls_uniform_of(bits[1]) - 4 : odd[bits[1] % 7];
        }
        float u = draw % 9 ? ls_uniform_of(bits[2]) : 1;
        const struct ls_sampling *one = &how[draw % 4];
        int32_t expected = drawn_plainly(one, logits, vocab, order, u);
        assert_int_equal(ls_sample(one, logits, vocab, order, u), expected);
    }
}

/* Numbers at the ends of what belongs to a token, and beside them: of tokens that are all alike,
 * where the end is hit exactly, and of others, near and far. */
CASE(test_draws_at_the_ends_of_tokens_are_those_of_sorted_logits)
{
    enum { VOCAB = 128 };
    static const float steps[] = {0, 1.0F / 4096, 0.03F, 0.5F};
    float logits[VOCAB];
    int32_t order[VOCAB];
    for (int kind = 0; kind < 4; kind++) {
        struct ls_sampling how = {.temperature = kind % 2 ? 0.7F : 1, .top_p = 1};
        double total = 0, reach = 0;
        for (int i = 0; i < VOCAB; i++) {
            logits[i * 37 % VOCAB] = 3 - steps[kind] * (float)i; /* descends in steps of 37 */
            total += exp(-(double)steps[kind] * i / how.temperature);
        }
        for (int i = 0; i < VOCAB; i++) {
            float end = (float)(reach / total);
            const float near[] = {end, nextafterf(end, 0), nextafterf(end, 1)};
            reach += exp(-(double)steps[kind] * i / how.temperature);
            for (int j = 0; j < 3; j++) {
                int32_t expected = drawn_plainly(&how, logits, VOCAB, order, near[j]);
                assert_int_equal(ls_sample(&how, logits, VOCAB, order, near[j]), expected);
            }
        }
    }
}

/* logits[count + more], of which the last are found: with them the likeliest tokens have half of
 * all together, to the last bit of a sum. */
static void halves_make(float *logits, int64_t count, int64_t more, int32_t *order)
{
    const struct ls_sampling how = {.temperature = 1, .top_p = 1};
    drawn_plainly(&how, logits, count, order, 0); /* order */
    double top = logits[order[0]], all = 0, front = 0, least = 0;
    for (int64_t i = 0; i < count; i++)
        all += exp(logits[order[i]] - top);
    for (int64_t i = 0; front <= all - front; i++) {
        least = exp(logits[order[i]] - top);
        front += least;
    }
    double rest = front - (all - front);
    for (int64_t k = count; k < count + more; k++) {
        logits[k] = (float)(top + log(fmin(rest, least / 2)));
        while (exp(logits[k] - top) > rest)
            logits[k] = nextafterf(logits[k], -INFINITY);
        rest -= exp(logits[k] - top);
    }
}

/* Half of the sum that is added in the order of ids. */
static int32_t drawn_by_id(const float *logits, int64_t vocab, const int32_t *order)
{
    double top = logits[order[0]], total = 0, reach = 0;
    for (int64_t i = 0; i < vocab; i++)
        total += exp(logits[i] - top);
    for (int64_t i = 0; i < vocab; i++) {
        reach += exp(logits[order[i]] - top);
        if (0.5 * total < reach)
            return order[i];
    }
    return order[vocab - 1];
}

/* The number falls so near to the end of a token that sums in another order draw another one. */
CASE(test_draws_within_rounding_are_those_of_sorted_logits)
{
    enum { VOCAB = 300, MORE = 8, DRAWS = 60 };
    const struct ls_sampling how = {.temperature = 1, .top_p = 1};
    float logits[VOCAB + MORE];
    int32_t order[VOCAB + MORE];
    int others = 0;
    for (uint32_t draw = 0; draw < DRAWS; draw++) {
        for (uint32_t i = 0; i < VOCAB; i++) {
            uint32_t counter[4] = {draw, i}, bits[4];
            ls_philox(ls_philox_key_of(SEED, "halves"), counter, bits);
            logits[i] = 4 * ls_uniform_of(bits[0]);
        }
        halves_make(logits, VOCAB, MORE, order);
        int32_t expected = drawn_plainly(&how, logits, VOCAB + MORE, order, 0.5F);
        others += drawn_by_id(logits, VOCAB + MORE, order) != expected;
        assert_int_equal(ls_sample(&how, logits, VOCAB + MORE, order, 0.5F), expected);
    }
    assert_true(others > DRAWS / 10);
}

CASE(test_nothing_is_drawn_of_logits_that_are_not_finite)
{
    static const struct ls_sampling how[] = {{0, 1, 0}, {1, 1, 0}, {1, 0.9F, 0}, {1, 1, 2}};
    static const float bad[] = {NAN, -NAN, INFINITY};
    int32_t order[4];
    for (int i = 0; i < 4 * 3 * 4; i++) {
        float logits[] = {1, 2, -INFINITY, 0};
        assert_in_range(ls_sample(&how[i % 4], logits, 4, order, 0.5F), 0, 1);
        logits[i / 12] = bad[i / 4 % 3];
        assert_int_equal(ls_sample(&how[i % 4], logits, 4, order, 0.5F), -1);
    }
    const float none[] = {-INFINITY, -INFINITY};
    assert_int_equal(ls_sample(&how[1], none, 2, order, 0.5F), -1);
}

SUITE_MAIN(runs_setup, scratch_teardown)
