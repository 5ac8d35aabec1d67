/* Log-probabilities of given tokens: minus the losses of an evaluation, bit for bit, in every
 * layout, whichever texts stand together; and so the entropies of what they are of. */
#include "../support/examples.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/told.h"
#include "small_runs.h"

#include "infer/infer_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 5, SEQUENCE = 256, TEXTS = 9 };

/* Texts that are the beginnings of an evaluation's samples. */
static const int64_t lengths[TEXTS] = {257, 2, 64, 65, 66, 1, 200, 130, 257};

struct scores {
    float evaluated[SAMPLES][SEQUENCE]; /* of target t */
    float scored[TEXTS][SEQUENCE + 1];
    float entropies[TEXTS][SEQUENCE + 1];
    bool likeliest[TEXTS];
    double loss;
};

struct job {
    struct finished_job at;
    struct scores *out;
    bool reversed; /* the texts are given in the other order */
};

static int samples_read(const struct ls_token_store *store, int32_t ids[SAMPLES][SEQUENCE + 1],
                        struct ls_error *error)
{
    int status = LS_OK;
    for (int i = 0; i < SAMPLES && !status; i++)
        status = ls_token_store_read(store, i * SEQUENCE, SEQUENCE + 1, 257, ids[i], error);
    return status;
}

static int evaluated_take(struct ls_runner *runner, const struct ls_token_store *store,
                          struct scores *out, struct ls_error *error)
{
    struct ls_eval_report report;
    float *logprobs = NULL;
    int status = ls_runner_evaluate(runner, store, SAMPLES, &report, &logprobs, error);
    if (!status)
        memcpy(out->evaluated, logprobs, sizeof out->evaluated);
    out->loss = status ? 0 : report.loss;
    free(logprobs);
    return status;
}

static int scored_take(const struct job *job, struct ls_runner *runner,
                       int32_t ids[SAMPLES][SEQUENCE + 1], struct scores *out,
                       struct ls_error *error)
{
    struct ls_scored texts[TEXTS];
    for (int i = 0; i < TEXTS; i++)
        texts[job->reversed ? TEXTS - 1 - i : i] =
            (struct ls_scored){.ids = ids[i % SAMPLES],
                               .count = lengths[i],
                               .first = i == 7 ? 100 : 0,
                               .logprobs = out->scored[i],
                               .entropies = out->entropies[i]};
    int status = ls_runner_score(runner, texts, TEXTS, error);
    for (int i = 0; i < TEXTS; i++)
        out->likeliest[i] = texts[job->reversed ? TEXTS - 1 - i : i].likeliest;
    return status;
}

static int score_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_finished *finished = NULL;
    struct ls_token_store *store = NULL;
    struct scores *mine = calloc(1, sizeof *mine);
    int32_t ids[SAMPLES][SEQUENCE + 1];
    int status = ls_token_store_open(job->at.config.data.valid, &store, error);
    if (!status)
        status = samples_read(store, ids, error);
    if (!status)
        status =
            ls_finished_new(&job->at.config, job->at.path, NULL, world, NULL, &finished, error);
    if (!status)
        status = evaluated_take(ls_finished_runner(finished), store, mine, error);
    if (!status)
        status = scored_take(job, ls_finished_runner(finished), ids, mine, error);
    if (ls_comm_rank(world) == ls_comm_size(world) - 1) /* all ranks know the same */
        *job->out = *mine;
    ls_finished_free(finished);
    ls_token_store_close(store);
    free(mine);
    return status;
}

static struct scores *scores_of(const char *directory, int run, const keys_t keys, bool reversed)
{
    struct scores *out = calloc(1, sizeof *out);
    struct job job = {.out = out, .reversed = reversed};
    told_clear();
    finished_in(&job.at, directory, run, LS_TO_EVALUATE, keys, score_body, NULL);
    told_expect("windows of texts", TEXTS);
    return out;
}

/* ---- bits ------------------------------------------------------------------------------------ */

static bool same(float a, float b)
{
    return !memcmp(&a, &b, sizeof a);
}

/* Made once for all tests. */
static const struct scores *one_rank(const char *directory, int run)
{
    static struct scores *made[RUNS];
    if (!made[run])
        made[run] = scores_of(directory, run, (keys_t){NULL}, false);
    return made[run];
}

CASE(test_a_text_has_the_log_probabilities_of_an_evaluation)
{
    for (int run = 0; run < RUNS; run++) {
        const struct scores *out = one_rank(*state, run);
        double sum = 0;
        for (int i = 0; i < SAMPLES * SEQUENCE; i++)
            sum -= (double)out->evaluated[i / SEQUENCE][i % SEQUENCE];
        sum /= SAMPLES * SEQUENCE;
        if (!(fabs(sum - out->loss) < 1e-6 * out->loss))
            fail_msg("run %d: the mean log-probability is %g, the loss %g", run, sum, out->loss);
        for (int i = 0; i < TEXTS; i++)
            for (int64_t t = i == 7 ? 100 : 1; t < lengths[i]; t++)
                if (!same(out->scored[i][t], out->evaluated[i % SAMPLES][t - 1]))
                    fail_msg("run %d, text %d, token %ld: %.9g, in an evaluation %.9g", run, i,
                             (long)t, (double)out->scored[i][t],
                             (double)out->evaluated[i % SAMPLES][t - 1]);
        assert_true(same(out->scored[7][99], 0)); /* not asked for */
        assert_true(same(out->entropies[7][99], 0));
        for (int64_t t = 1; t < lengths[0]; t++)
            assert_true(out->entropies[0][t] > 0 && out->entropies[0][t] < logf(257));
        assert_true(out->likeliest[5]); /* nothing to be wrong about */
    }
}

CASE(test_one_log_probability_in_every_layout)
{
    static const keys_t layouts[] = {
        {"parallel.tp=2"},
        {"parallel.tp=4", "parallel.pp=2"},
        {"parallel.pp=4"},
        {"parallel.dp=3"},
        {"parallel.cp=2"},
        {"parallel.cp=2", "parallel.cp_method=ring", "parallel.tp=2"},
        {"parallel.tp=2", "parallel.sp=true"},
        {"numerics.isa=plain"},
        {"parallel.pp=2", "parallel.cp=2", "parallel.dp=2"},
    };
    for (int run = 0; run < RUNS; run++) {
        const struct scores *one = one_rank(*state, run);
        if (run > 0)
            assert_memory_not_equal(one->scored, one_rank(*state, run - 1)->scored,
                                    sizeof one->scored);
        for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
            if (!check_pair(run, (int)i, 9))
                continue;
            struct scores *out = scores_of(*state, run, layouts[i], i % 2);
            if (memcmp(out->evaluated, one->evaluated, sizeof one->evaluated))
                fail_msg("run %d, %s: other log-probabilities", run, layout_text(layouts[i]));
            if (memcmp(out->scored, one->scored, sizeof one->scored))
                fail_msg("run %d, %s: other scores", run, layout_text(layouts[i]));
            if (memcmp(out->entropies, one->entropies, sizeof one->entropies))
                fail_msg("run %d, %s: other entropies", run, layout_text(layouts[i]));
            assert_memory_equal(out->likeliest, one->likeliest, sizeof one->likeliest);
            free(out);
        }
    }
}

/* ---- the likeliest, windows, and what is refused --------------------------------------------- */

struct asking {
    struct finished_job at;
};

/* The token of the largest log-probability of all that may follow; of equal ones the lowest. */
static int likeliest_of(struct ls_runner *runner, int32_t *ids, int64_t count, int32_t *best,
                        bool *said, struct ls_error *error)
{
    enum { VOCABULARY = 257 };
    static __thread struct ls_scored texts[VOCABULARY];
    static __thread int32_t all[VOCABULARY][SEQUENCE];
    static __thread float logprobs[VOCABULARY][SEQUENCE];
    for (int v = 0; v < VOCABULARY; v++) {
        memcpy(all[v], ids, (size_t)count * sizeof *ids);
        all[v][count] = v;
        texts[v] = (struct ls_scored){
            .ids = all[v], .count = count + 1, .first = count, .logprobs = logprobs[v]};
    }
    int status = ls_runner_score(runner, texts, VOCABULARY, error);
    *best = 0;
    for (int32_t v = 1; v < VOCABULARY; v++)
        if (logprobs[v][count] > logprobs[*best][count])
            *best = v;
    *said = true;
    for (int32_t v = 0; v < VOCABULARY; v++)
        *said = *said && texts[v].likeliest == (v == *best);
    return status;
}

static int likeliest_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct asking *asking = user;
    struct ls_finished *finished = NULL;
    enum { LENGTH = 5 };
    int32_t ids[LENGTH] = {5, 80};
    int status =
        ls_finished_new(&asking->at.config, asking->at.path, NULL, world, NULL, &finished, error);
    for (int i = 2; i < LENGTH && !status; i++) {
        bool said = false;
        status = likeliest_of(ls_finished_runner(finished), ids, i, &ids[i], &said, error);
        if (!status && !said)
            status =
                ls_error_set(error, LS_EINVAL, "token %d is not said to be the likeliest", ids[i]);
    }
    ls_finished_free(finished);
    return status;
}

/* A vocabulary whose numbers are no floats: nothing is made of the text. */
static int wide_refused(struct ls_runner *runner, struct ls_scored *text, struct ls_error *error)
{
    const struct ls_layout *own = runner->parts.layout;
    struct ls_layout wide = *own;
    wide.model.vocab = 1 << 24;
    runner->parts.layout = &wide;
    int status = ls_runner_score(runner, text, 1, error);
    runner->parts.layout = own;
    if (status == LS_ECONFIG && strstr(error->text, "model.vocab = 16777216: "))
        return LS_OK;
    return ls_error_set(error, LS_EINVAL, "a vocabulary of 2^24 tokens is taken");
}

/* The same text as one, and in windows: those who have enough before them are the same. */
static int window_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    enum { LONG = 700 };
    struct asking *asking = user;
    struct ls_finished *finished = NULL;
    static __thread int32_t ids[LONG];
    static __thread float window[SEQUENCE + 1];
    for (int i = 0; i < LONG; i++)
        ids[i] = i * i % 251;
    struct ls_text_request request = {
        .tokens = {.ids = ids, .count = LONG}, .first = 1, .whole = true};
    struct ls_text_requests requests = {.list = &request, .count = 1};
    struct ls_request_score *score = NULL;
    int status =
        ls_finished_new(&asking->at.config, asking->at.path, NULL, world, NULL, &finished, error);
    struct ls_runner *runner = status ? NULL : ls_finished_runner(finished);
    if (!status)
        status = ls_runner_score_requests(runner, &requests, false, &score, error);
    static const int begins[] = {0, SEQUENCE, LONG - SEQUENCE - 1};
    static const int firsts[] = {1, SEQUENCE + 1, 2 * SEQUENCE + 1};
    for (int w = 0; w < 3 && !status; w++) {
        struct ls_scored text = {.ids = ids + begins[w],
                                 .count = SEQUENCE + 1,
                                 .first = firsts[w] - begins[w],
                                 .logprobs = window};
        status = ls_runner_score(runner, &text, 1, error);
        for (int64_t t = text.first; t < text.count && !status; t++)
            if (!same(window[t], score->logprobs[begins[w] + t]))
                status = ls_error_set(error, LS_EINVAL, "window %d, token %ld", w, (long)t);
    }
    if (!status && score->tokens != LONG - 1)
        status = ls_error_set(error, LS_EINVAL, "%ld tokens scored", (long)score->tokens);
    ls_request_scores_free(score, 1);
    score = NULL;
    request.whole = false;
    request.line = 12;
    request.first = LONG - 3;
    if (!status && (ls_runner_score_requests(runner, &requests, false, &score, error) != LS_EDATA ||
                    !strstr(error->text, "line 12 has 700 tokens")))
        status = ls_error_set(error, LS_EINVAL, "a request that is too long is taken");
    if (!status)
        status = ls_runner_score_requests(runner, &requests, true, &score, error);
    if (!status && score->tokens != 3)
        status = ls_error_set(error, LS_EINVAL, "%ld tokens scored of 3", (long)score->tokens);
    ls_request_scores_free(score, 1);
    ids[4] = 257;
    struct ls_scored outside = {.ids = ids, .count = 5, .logprobs = window};
    if (!status && (ls_runner_score(runner, &outside, 1, error) != LS_EDATA ||
                    !strstr(error->text, "token 257 is not in the model's vocabulary of 257")))
        status = ls_error_set(error, LS_EINVAL, "a token outside of the vocabulary is taken");
    ids[4] = 0;
    if (!status)
        status = wide_refused(runner, &outside, error);
    ls_finished_free(finished);
    return status;
}

/* One in `every` of the runs, from the first one on. */
static void run_each(const char *directory, const keys_t keys, int every,
                     int (*body)(struct ls_comm *world, void *user, struct ls_error *error))
{
    for (int run = 0; run < RUNS; run += every) {
        struct asking asking = {0};
        finished_in(&asking.at, directory, run, LS_TO_EVALUATE, keys, body, NULL);
    }
}

CASE(test_the_likeliest_token_is_known)
{
    run_each(*state, (keys_t){NULL}, check_every(11, 11), likeliest_body);
    run_each(*state, (keys_t){"parallel.tp=2"}, check_every(12, 12), likeliest_body);
}

CASE(test_long_texts_are_scored_in_windows)
{
    run_each(*state, (keys_t){NULL}, check_every(4, 4), window_body);
    run_each(*state, (keys_t){"parallel.dp=2"}, check_every(5, 5), window_body);
}

/* ---- samples of documents -------------------------------------------------------------------- */

struct packing {
    struct finished_job at;
    const char *packed; /* a store that says where documents end */
};

/* One runner takes samples of both kinds, in any order. */
static int packing_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct packing *job = user;
    struct ls_finished *finished = NULL;
    struct ls_token_store *plain = NULL, *packed = NULL;
    struct ls_eval_report first, between, last;
    int status = ls_token_store_open(job->at.config.data.valid, &plain, error);
    if (!status)
        status = ls_token_store_open(job->packed, &packed, error);
    if (!status)
        status = ls_token_store_pack(packed, SEQUENCE, error);
    if (!status)
        status =
            ls_finished_new(&job->at.config, job->at.path, NULL, world, NULL, &finished, error);
    struct ls_runner *runner = finished ? ls_finished_runner(finished) : NULL;
    if (!status)
        status = ls_runner_evaluate(runner, plain, 1, &first, NULL, error);
    if (!status)
        status = ls_runner_evaluate(runner, packed, 0, &between, NULL, error);
    if (!status)
        status = ls_runner_evaluate(runner, plain, 1, &last, NULL, error);
    if (!status && (memcmp(&first.loss, &last.loss, sizeof first.loss) || between.tokens != 5))
        status = ls_error_set(error, LS_ENUMERIC, "losses %.17g and %.17g; %ld tokens", first.loss,
                              last.loss, (long)between.tokens);
    ls_finished_free(finished);
    ls_token_store_close(plain);
    ls_token_store_close(packed);
    return status;
}

CASE(test_packed_samples_may_follow_others)
{
    char packed[320];
    texts_prepare(*state, "two", "{\"text\": \"ab\"}\n{\"text\": \"abc\"}\n");
    snprintf(packed, sizeof packed, "%s", scratch_path(*state, "two_train"));
    struct packing job = {.packed = packed};
    finished_in(&job.at, *state, 0, LS_TO_EVALUATE, (keys_t){NULL}, packing_body, NULL);
}

SUITE_MAIN(runs_setup, scratch_teardown)
