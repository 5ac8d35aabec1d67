/* Many prompts at once: each token's log-probability has the bits of the training forward, and what
 * becomes of a prompt depends neither on the batch nor on the layout. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/told.h"
#include "../support/wrapped.h"
#include "small_runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPTS = 7, ADDED = 40, LONG = 256 + ADDED };

/* Tokens of each prompt: shorter and longer than blocks of attention and than a step. */
static const int64_t lengths[PROMPTS] = {1, 200, 3, 64, 65, 129, 17};

struct outcome {
    struct ls_finished_choice choice;   /* what drew them */
    struct ls_generated texts[PROMPTS]; /* with copies below */
    int32_t ids[PROMPTS][LONG];
    float logprobs[PROMPTS][LONG];
    char text[PROMPTS][8 * ADDED];
    char told[64]; /* the beginning of what the pieces come to */
    struct ls_generation_report report;
};

struct job {
    struct finished_job at;
    const char *stop, *echo;
    int64_t batch, tokens;
    const int32_t *ends;
    int end_count;
    float temperature;
    struct ls_finished_choice choice;
    struct outcome *out;
};

static int on_done(void *user, int64_t prompt, int64_t sample, const struct ls_generated *text,
                   struct ls_error *error)
{
    struct outcome *out = user;
    assert_int_equal(sample, 0);
    if (text->count > LONG || text->bytes >= sizeof out->text[0])
        return ls_error_set(error, LS_EINVAL, "a text of %ld tokens", (long)text->count);
    memcpy(out->ids[prompt], text->ids, (size_t)text->count * sizeof *text->ids);
    memcpy(out->logprobs[prompt] + 1, text->logprobs + 1,
           (size_t)(text->count - 1) * sizeof(float));
    memcpy(out->text[prompt], text->text, text->bytes);
    out->texts[prompt] = *text;
    out->texts[prompt].ids = out->ids[prompt];
    out->texts[prompt].logprobs = out->logprobs[prompt];
    out->texts[prompt].text = out->text[prompt];
    return LS_OK;
}

static void on_piece(void *user, const char *bytes, size_t count)
{
    struct outcome *out = user;
    size_t used = strlen(out->told);
    snprintf(out->told + used, sizeof out->told - used, "%.*s", (int)count, bytes);
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
                                       .sampling = {.temperature = job->temperature, .top_p = 1},
                                       .seed = 3,
                                       .batch = job->batch,
                                       .ends = job->ends,
                                       .end_count = job->end_count,
                                       .stops = &job->stop,
                                       .stop_count = job->stop ? 1 : 0,
                                       .logprobs = true,
                                       .piece = job->echo ? on_piece : NULL,
                                       .echo = job->echo,
                                       .done = on_done,
                                       .user = job->out};
    struct ls_generation_report report;
    int status =
        ls_finished_new(&job->at.config, job->at.path, &job->choice, world, NULL, &finished, error);
    if (!status)
        status = ls_runner_continue(ls_finished_runner(finished), &generation, &report, error);
    if (!status && ls_comm_rank(world) == 0)
        job->out->report = report;
    ls_finished_free(finished);
    return status;
}

static int job_run(struct job *job, const char *directory, int run, const keys_t keys,
                   struct ls_error *error)
{
    return finished_in(&job->at, directory, run, LS_TO_GENERATE, keys, generate_body, error);
}

static struct outcome *generate(const char *directory, int run, const keys_t keys, struct job job)
{
    job.out = calloc(1, sizeof *job.out);
    job.out->choice = job.choice;
    told_clear();
    job_run(&job, directory, run, keys, NULL);
    told_expect("texts", PROMPTS);
    return job.out;
}

static const struct job plain = {.batch = 3, .tokens = ADDED, .temperature = 1};

/* Made once for all tests. */
static const struct outcome *one_rank(const char *directory, int run)
{
    static struct outcome *made[RUNS];
    if (!made[run])
        made[run] = generate(directory, run, (keys_t){NULL}, plain);
    return made[run];
}

/* ---- the bits of training -------------------------------------------------------------------- */

struct scoring {
    struct finished_job at;
    const struct outcome *drawn;
    bool likeliest; /* drawn at temperature 0 */
};

static int score_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct scoring *scoring = user;
    struct ls_finished *finished = NULL;
    struct ls_scored texts[PROMPTS];
    float found[PROMPTS][LONG];
    int status = ls_finished_new(&scoring->at.config, scoring->at.path, &scoring->drawn->choice,
                                 world, NULL, &finished, error);
    for (int i = 0; i < PROMPTS; i++)
        texts[i] = (struct ls_scored){.ids = scoring->drawn->ids[i],
                                      .count = scoring->drawn->texts[i].count,
                                      .logprobs = found[i]};
    if (!status)
        status = ls_runner_score(ls_finished_runner(finished), texts, PROMPTS, error);
    for (int i = 0; i < PROMPTS && !status; i++)
        for (int64_t t = 1; t < texts[i].count && !status; t++)
            if (memcmp(&found[i][t], &scoring->drawn->logprobs[i][t], sizeof(float)))
                status = ls_error_set(error, LS_ENUMERIC, "prompt %d, token %ld: %.9g, drawn %.9g",
                                      i, (long)t, (double)found[i][t],
                                      (double)scoring->drawn->logprobs[i][t]);
    for (int i = 0; i < PROMPTS && scoring->likeliest && !status; i++)
        texts[i].first = lengths[i];
    if (!status && scoring->likeliest)
        status = ls_runner_score(ls_finished_runner(finished), texts, PROMPTS, error);
    for (int i = 0; i < PROMPTS && scoring->likeliest && !status; i++)
        if (!texts[i].likeliest)
            status = ls_error_set(error, LS_ENUMERIC, "prompt %d: not the likeliest tokens", i);
    ls_finished_free(finished);
    return status;
}

static int scored(const char *directory, int run, const keys_t keys, const struct outcome *drawn,
                  bool likeliest, struct ls_error *error)
{
    struct scoring scoring = {.drawn = drawn, .likeliest = likeliest};
    return finished_in(&scoring.at, directory, run, LS_TO_EVALUATE, keys, score_body, error);
}

CASE(test_generation_has_the_bits_of_training)
{
    static const keys_t layouts[] = {{NULL},
                                     {"parallel.tp=2"},
                                     {"parallel.cp=2", "parallel.dp=2"},
                                     {"parallel.pp=2", "parallel.cp=2", "parallel.cp_method=ring"},
                                     {"numerics.isa=plain"}};
    for (int run = 0; run < RUNS; run++) {
        struct ls_error error = {0};
        const struct outcome *drawn = one_rank(*state, run);
        for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
            if (check_pair(run, (int)i, 5) && scored(*state, run, layouts[i], drawn, false, &error))
                fail_msg("run %d, %s: %s", run, layout_text(layouts[i]), error.text);
        if (run > 0 && !check_all())
            continue;
        static struct outcome other; /* one bit of a log-probability is seen */
        uint32_t bits;
        other = *drawn;
        memcpy(&bits, &other.logprobs[3][70], sizeof bits);
        bits ^= 1;
        memcpy(&other.logprobs[3][70], &bits, sizeof bits);
        assert_int_equal(scored(*state, run, (keys_t){NULL}, &other, false, &error), LS_ENUMERIC);
    }
}

/* One row is multiplied by other kernels than many are. */
CASE(test_so_does_generation_in_int8)
{
    static const keys_t layouts[] = {{NULL}, {"parallel.tp=2"}, {"numerics.isa=plain"}};
    for (int run = 0; run < ADAPTED_RUN; run++)
        for (int q = LS_QUANTIZE_INT8; q <= LS_QUANTIZE_INT8_WEIGHTS; q++) {
            if (!check_pair(run, q, 2))
                continue;
            struct ls_error error = {0};
            struct job job = plain;
            job.choice.quantize = (enum ls_quantize)q;
            struct outcome *drawn = generate(*state, run, (keys_t){NULL}, job);
            for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
                if (check_pair(run / 2 + q, (int)i, 3) &&
                    scored(*state, run, layouts[i], drawn, false, &error))
                    fail_msg("run %d, %s, int8 %d: %s", run, layout_text(layouts[i]), q,
                             error.text);
            drawn->choice.quantize = LS_QUANTIZE_NONE;
            if (run < 2 || check_all())
                assert_int_equal(scored(*state, run, (keys_t){NULL}, drawn, false, &error),
                                 LS_ENUMERIC);
            free(drawn);
        }
}

CASE(test_greedy_text_is_the_likeliest)
{
    for (int run = 0; run < RUNS; run += check_every(5, 5)) {
        struct ls_error error = {0};
        struct job job = plain;
        job.temperature = 0;
        struct outcome *drawn = generate(*state, run, (keys_t){NULL}, job);
        if (scored(*state, run, (keys_t){NULL}, drawn, true, &error))
            fail_msg("run %d: %s", run, error.text);
        free(drawn);
    }
}

/* ---- batches and layouts --------------------------------------------------------------------- */

static bool same(const struct outcome *a, const struct outcome *b)
{
    for (int i = 0; i < PROMPTS; i++)
        if (a->texts[i].count != b->texts[i].count || a->texts[i].finish != b->texts[i].finish ||
            a->texts[i].bytes != b->texts[i].bytes)
            return false;
    return !memcmp(a->ids, b->ids, sizeof a->ids) &&
           !memcmp(a->logprobs, b->logprobs, sizeof a->logprobs) &&
           !memcmp(a->text, b->text, sizeof a->text);
}

CASE(test_texts_depend_neither_on_batch_nor_layout)
{
    static const struct {
        keys_t keys;
        int64_t batch;
    } cases[] = {
        {{NULL}, 1},
        {{NULL}, 2},
        {{NULL}, 100},
        {{"numerics.isa=plain"}, 5},
        {{"parallel.tp=2"}, 4},
        {{"parallel.tp=4", "parallel.pp=2"}, 7},
        {{"parallel.pp=4"}, 2},
    };
    for (int run = 0; run < RUNS; run++) {
        const struct outcome *one = one_rank(*state, run);
        for (int i = 0; i < PROMPTS; i++) {
            assert_int_equal(one->texts[i].count, lengths[i] + ADDED);
            assert_int_equal(one->texts[i].prompt_count, lengths[i]);
            assert_int_equal(one->texts[i].finish, LS_FINISH_LENGTH);
        }
        assert_int_equal(one->report.written, PROMPTS * ADDED);
        assert_int_equal(one->report.read, 1 + 200 + 3 + 64 + 65 + 129 + 17);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            if (!check_pair(run, (int)i, 7))
                continue;
            struct job job = plain;
            job.batch = cases[i].batch;
            struct outcome *out = generate(*state, run, cases[i].keys, job);
            if (!same(one, out))
                fail_msg("run %d, %s, %ld at a time: other texts", run, layout_text(cases[i].keys),
                         (long)job.batch);
            free(out);
        }
        if (run > 0 && !check_all())
            continue;
        struct job other = plain;
        other.temperature = 0.9f;
        struct outcome *out = generate(*state, run, (keys_t){NULL}, other);
        assert_false(same(one, out));
        free(out);
    }
}

/* ---- ends ------------------------------------------------------------------------------------ */

CASE(test_a_text_ends_where_it_is_told_to)
{
    const struct outcome *one = one_rank(*state, 0);
    /* the fifth token that was drawn behind prompt 1 ends it, and whoever draws it */
    int32_t end = one->ids[1][lengths[1] + 4];
    struct job job = plain;
    job.ends = &end;
    job.end_count = 1;
    struct outcome *out = generate(*state, 0, (keys_t){NULL}, job);
    assert_int_equal(out->texts[1].finish, LS_FINISH_END);
    assert_true(out->texts[1].count <= lengths[1] + 5);
    assert_int_equal(out->ids[1][out->texts[1].count - 1], end);
    assert_memory_equal(out->ids[1], one->ids[1], (size_t)out->texts[1].count * sizeof(int32_t));
    free(out);
    /* two of its bytes, drawn one after the other, are a text to stop at */
    char stop[3] = {(char)one->ids[1][lengths[1] + 7], (char)one->ids[1][lengths[1] + 8]};
    if (stop[0] && stop[1]) {
        job = plain;
        job.stop = stop;
        out = generate(*state, 0, (keys_t){"parallel.tp=2"}, job);
        assert_int_equal(out->texts[1].finish, LS_FINISH_STOP);
        assert_true(out->texts[1].bytes <= 7 && !strstr(out->text[1], stop));
        assert_true(out->texts[1].count <= lengths[1] + 9); /* the tokens of the text stay */
        free(out);
    }
    /* 200 tokens, and 57 that the context of 256 lets follow: the last is not fed */
    job = plain;
    job.tokens = 90;
    struct ls_error error = {0};
    job.out = calloc(1, sizeof *job.out);
    assert_int_equal(job_run(&job, *state, 0, (keys_t){NULL}, &error), LS_OK);
    assert_int_equal(job.out->texts[1].finish, LS_FINISH_CONTEXT);
    assert_int_equal(job.out->texts[1].count, 257);
    assert_int_equal(scored(*state, 0, (keys_t){NULL}, job.out, false, &error), LS_OK);
    free(job.out);
}

/* As a folder may ask for: each text ends with its first token. */
CASE(test_any_number_of_tokens_may_be_asked_for)
{
    int32_t ends[257];
    struct ls_error error = {0};
    struct job job = plain;
    for (int32_t i = 0; i < 257; i++)
        ends[i] = i;
    job.ends = ends;
    job.end_count = 257;
    job.tokens = INT64_MAX;
    struct outcome *out = generate(*state, 0, (keys_t){NULL}, job);
    for (int i = 0; i < PROMPTS; i++)
        assert_int_equal(out->texts[i].count, lengths[i] + 1);
    job.out = out;
    job.tokens = 0;
    assert_int_equal(job_run(&job, *state, 0, (keys_t){NULL}, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "0 tokens to add to line 1: expected at least 1"));
    free(out);
}

/* ---- what does not fit ----------------------------------------------------------------------- */

WRAPPED(ls_device_memory);
static int64_t free_bytes, taken_bytes; /* 0: what is there; by others, after each look */
struct ls_device_memory __wrap_ls_device_memory(void)
{
    struct ls_device_memory memory = __real_ls_device_memory();
    if (free_bytes)
        memory.free = free_bytes;
    free_bytes -= taken_bytes;
    return memory;
}

/* Two ranks, with free memory for so many of their decoders' bytes. */
static int generate_within(const char *directory, struct job *job, int64_t bytes,
                           struct ls_error *error)
{
    job->out = calloc(1, sizeof *job->out);
    free_bytes = 2 * bytes;
    int status = job_run(job, directory, 2, (keys_t){"parallel.tp=2"}, error);
    free_bytes = 0;
    return status;
}

CASE(test_a_batch_takes_the_memory_that_is_free)
{
    struct ls_error error = {0};
    struct job job = plain;
    job.echo = "to be";
    struct outcome *one = generate(*state, 2, (keys_t){"parallel.tp=2"}, job);
    assert_int_equal(strncmp(one->told, "to be", 5), 0); /* once, of rank 0 */
    assert_null(strstr(one->told + 5, "to be"));
    job.batch = PROMPTS;
    job.echo = NULL;
    struct outcome *all = generate(*state, 2, (keys_t){"parallel.tp=2"}, job);
    assert_int_equal(all->report.put_back, 0);
    assert_ok(generate_within(*state, &job, (int64_t)all->report.bytes * 3 / 4, &error), error);
    assert_true(job.out->report.bytes <= all->report.bytes * 3 / 4);
    assert_true(job.out->report.blocks < all->report.blocks && job.out->report.blocks >= 4);
    assert_true(same(one, job.out));
    free(job.out);
    job.echo = "to be";
    assert_int_equal(generate_within(*state, &job, 1 << 14, &error), LS_ENOMEM);
    if (!strstr(error.text, "7 texts with room for keys and values of 256 tokens take ") ||
        !strstr(error.text, " is free: "))
        fail_msg("%s", error.text);
    assert_string_equal(job.out->told, "");
    free(job.out);
    free(all);
    free(one);
}

/* By a block after each look: what was found is more than the next look would find. */
CASE(test_memory_that_others_take_meanwhile_is_no_error)
{
    struct ls_error error = {0};
    struct job job = plain;
    job.batch = PROMPTS;
    job.tokens = 2;
    struct outcome *all = generate(*state, 2, (keys_t){NULL}, job);
    job.out = calloc(1, sizeof *job.out);
    free_bytes = (int64_t)all->report.bytes - 1;
    taken_bytes = ls_ceil_div(free_bytes, all->report.blocks);
    int status = job_run(&job, *state, 2, (keys_t){NULL}, &error);
    free_bytes = taken_bytes = 0;
    assert_ok(status, error);
    assert_true(job.out->report.blocks < all->report.blocks);
    assert_true(same(all, job.out));
    free(job.out);
    free(all);
}

SUITE_MAIN(runs_setup, scratch_teardown)
