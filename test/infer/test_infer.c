/* A trained model at work in every layout: one loss, the same logits and one text, bit for bit, of
 * a finished run and of the trainer itself. Logits that are gathered in another order are seen. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/told.h"
#include "../support/wrapped.h"
#include "small_runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 8, VOCABULARY = 260, FED = 70 };
enum { SEQUENCES = 5 }; /* of an evaluation: no multiple of any number of ranks */

/* ---- what a layout makes of a run ------------------------------------------------------------ */

struct outcome {
    struct ls_eval_report report;
    char *text;
    char *sample;
    bool has_logits[RANKS_MAX];
    float logits[RANKS_MAX][FED][VOCABULARY];
};

struct job {
    struct finished_job at;
    struct outcome *out;
};

static void outcome_free(struct outcome *out)
{
    free(out->text);
    free(out->sample);
    free(out);
}

static int evaluate_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_finished *finished = NULL;
    struct ls_eval_report report;
    struct ls_token_store *store = NULL;
    int status = ls_token_store_open(job->at.config.data.valid, &store, error);
    if (!status)
        status =
            ls_finished_new(&job->at.config, job->at.path, NULL, world, NULL, &finished, error);
    for (int turn = 0; turn < 2 && !status; turn++) /* the second uses the first's buffers */
        status = ls_runner_evaluate(ls_finished_runner(finished), store, SEQUENCES, &report, NULL,
                                    error);
    if (!status && ls_finished_step(finished) != 1)
        status = ls_error_set(error, LS_EINVAL, "step %ld", (long)ls_finished_step(finished));
    if (!status && ls_comm_rank(world) == 0)
        job->out->report = report;
    ls_finished_free(finished);
    ls_token_store_close(store);
    return status;
}

/* The logits after each of some tokens, on the ranks that have them. */
static int logits_read(struct ls_runner *runner, int rank, struct outcome *out,
                       struct ls_error *error)
{
    int status = ls_runner_restart(runner, error);
    for (int i = 0; i < FED && !status; i++) {
        const float *logits = NULL;
        status = ls_runner_next(runner, i * 37 % 250, &logits, error);
        out->has_logits[rank] = logits != NULL;
        if (!status && logits)
            memcpy(out->logits[rank][i], logits, 257 * sizeof *logits);
    }
    return status;
}

static int text_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_finished *finished = NULL;
    char *text = NULL;
    int status =
        ls_finished_new(&job->at.config, job->at.path, NULL, world, NULL, &finished, error);
    struct ls_runner *runner = status ? NULL : ls_finished_runner(finished);
    if (!status)
        status = logits_read(runner, ls_comm_rank(world), job->out, error);
    if (!status)
        status = ls_runner_sample(runner, "to be", &text, error);
    if (text)
        job->out->text = text;
    ls_finished_free(finished);
    return status;
}

static void job_run(const char *directory, int run, enum ls_finished_use use, const keys_t keys,
                    struct outcome *out)
{
    /* Longer than the context; in `make check` of every other run. */
    struct job job = {.at.words = check_all() || run % 2 ? 300 : 100, .out = out};
    finished_in(&job.at, directory, run, use, keys,
                use == LS_TO_EVALUATE ? evaluate_body : text_body, NULL);
}

/* ---- layouts of a finished run --------------------------------------------------------------- */

/* Those that cut the model alone, which generation takes too, come first. */
static const keys_t layouts[] = {
    {"parallel.tp=2"},
    {"parallel.tp=4"},
    {"parallel.pp=2"},
    {"parallel.pp=4"},
    {"parallel.pp=2", "parallel.tp=2"},
    {"parallel.tp=4", "parallel.pp=2"},
    {"parallel.dp=3"},
    {"parallel.cp=2"},
    {"parallel.cp=2", "parallel.cp_method=ring"},
    {"parallel.tp=2", "parallel.sp=true", "parallel.tp_overlap=2"},
    {"numerics.isa=plain"},
    {"parallel.tp=2", "parallel.sp=false"},
    {"parallel.pp=2", "parallel.dp=2", "parallel.tp=2"},
    {"parallel.pp=2", "parallel.cp=2", "parallel.dp=2"},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0], MODEL_CUTS = 6 };

/* Made once for all tests. */
static const struct outcome *one_rank(const char *directory, int run)
{
    static struct outcome *made[RUNS];
    if (made[run])
        return made[run];
    struct outcome *one = made[run] = calloc(1, sizeof *one);
    job_run(directory, run, LS_TO_EVALUATE, (keys_t){NULL}, one);
    job_run(directory, run, LS_TO_GENERATE, (keys_t){NULL}, one);
    assert_true(one->report.loss > 0 && one->report.sequences == SEQUENCES);
    assert_true(one->has_logits[0] && strlen(one->text) > strlen("to be"));
    return one;
}

/* Which ranks have other logits than one rank; *holders: how many have any. */
static int logits_differ(const struct outcome *one, const struct outcome *out, int *holders)
{
    int other = 0;
    *holders = 0;
    for (int rank = 0; rank < RANKS_MAX; rank++) {
        if (!out->has_logits[rank])
            continue;
        ++*holders;
        other += memcmp(out->logits[rank], one->logits[0], sizeof one->logits[0]) != 0;
    }
    return other;
}

CASE(test_one_loss)
{
    for (int run = 0; run < RUNS; run++) {
        const struct outcome *one = one_rank(*state, run);
        for (int i = 0; i < LAYOUTS; i++) {
            if (!check_pair(run, i, RUNS))
                continue;
            struct outcome *out = calloc(1, sizeof *out);
            told_clear();
            job_run(*state, run, LS_TO_EVALUATE, layouts[i], out);
            told_expect("tensors", TOLD_SOME);
            told_expect("sequences", SEQUENCES);
            if (memcmp(&out->report, &one->report, sizeof out->report))
                fail_msg("run %d, %s: loss %.17g, of one rank %.17g", run, layout_text(layouts[i]),
                         out->report.loss, one->report.loss);
            outcome_free(out);
        }
    }
}

CASE(test_one_text)
{
    for (int run = 0; run < RUNS; run++) {
        const struct outcome *one = one_rank(*state, run);
        for (int i = 0; i < MODEL_CUTS; i++) {
            if (!check_pair(run, i, MODEL_CUTS))
                continue;
            const char *what = layout_text(layouts[i]);
            struct outcome *out = calloc(1, sizeof *out);
            int holders = 0, tp = strstr(what, "tp=4") ? 4 : strstr(what, "tp=2") ? 2 : 1;
            job_run(*state, run, LS_TO_GENERATE, layouts[i], out);
            int other = logits_differ(one, out, &holders);
            if (other || holders != tp)
                fail_msg("run %d, %s: %d ranks have logits, %d of them others than one rank", run,
                         what, holders, other);
            if (strcmp(out->text, one->text))
                fail_msg("run %d, %s: \"%s\", of one rank \"%s\"", run, what, out->text, one->text);
            outcome_free(out);
        }
    }
}

/* ---- a trainer ------------------------------------------------------------------------------- */

static int trainer_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_trainer *trainer = NULL;
    struct ls_eval_report report;
    char *text = NULL;
    bool resumed = false, first = ls_comm_rank(world) == 0;
    int status = ls_trainer_new(&job->at.config, world, NULL, &trainer, error);
    if (!status)
        status = ls_trainer_resume(trainer, &resumed, error);
    if (!status && !resumed)
        status = ls_error_set(error, LS_EINVAL, "there was no checkpoint");
    for (int turn = 0; turn < 2 && !status; turn++) {
        free(text);
        text = NULL;
        status = ls_trainer_evaluate(trainer, &report, error);
        if (!status)
            status = ls_trainer_sample(trainer, "to be", &text, error);
    }
    if (!status && (text != NULL) != first)
        status = ls_error_set(error, LS_EINVAL, "text on the wrong rank");
    if (!status && first)
        job->out->report = report;
    if (first)
        job->out->sample = text;
    else
        free(text);
    ls_trainer_free(trainer);
    return status;
}

/* It trains with the model and the weights that it evaluates and samples with. */
CASE(test_a_trainer_does_what_its_finished_run_does)
{
    static const keys_t cuts[] = {
        {NULL},
        {"parallel.tp=4"},
        {"parallel.pp=2", "parallel.schedule=zbv"},
        {"parallel.dp_shard=4", "parallel.zero=3"},
        {"parallel.dp_shard=2", "parallel.zero=3", "parallel.reshard_after_forward=false"},
        {"parallel.cp=2", "parallel.tp=2", "parallel.dp_shard=2", "parallel.zero=2"},
        {"parallel.pp=2", "parallel.tp=2", "parallel.dp_shard=2", "parallel.zero=3"},
    };
    for (int run = 0; run < RUNS; run += check_every(2, 2)) {
        const struct outcome *one = one_rank(*state, run);
        struct outcome *before = NULL;
        for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
            if (i > 0 && !check_pair(run / 2, (int)i, 6))
                continue;
            struct ls_error error = {0};
            struct outcome *out = calloc(1, sizeof *out);
            struct job job = {.at.config = run_config(*state, run, cuts[i]), .out = out};
            run_key(&job.at.config, "train.resume=auto");
            job.at.config.eval.samples = SEQUENCES;
            if (ls_world_run((int)ls_config_ranks(&job.at.config), trainer_body, &job, &error))
                fail_msg("run %d, %s: %s", run, layout_text(cuts[i]), error.text);
            if (memcmp(&out->report, &one->report, sizeof out->report))
                fail_msg("run %d, %s: loss %.17g, of the finished run %.17g", run,
                         layout_text(cuts[i]), out->report.loss, one->report.loss);
            if (before && strcmp(before->sample, out->sample))
                fail_msg("run %d, %s: \"%s\", of one rank \"%s\"", run, layout_text(cuts[i]),
                         out->sample, before->sample);
            if (before)
                outcome_free(out);
            else
                before = out;
        }
        assert_true(strlen(before->sample) > strlen("to be"));
        outcome_free(before);
    }
}

/* ---- a broken twin --------------------------------------------------------------------------- */

/* Gathers the parts of the vocabulary in the wrong order. */
static bool swaps;

WRAPPED(ls_all_gather_start);
int __wrap_ls_all_gather_start(struct ls_comm *comm, const void *input, void *output, int64_t count,
                               enum ls_dtype dtype, struct ls_request *request,
                               struct ls_call_site site, struct ls_error *error)
{
    int status =
        __real_ls_all_gather_start(comm, input, output, count, dtype, request, site, error);
    size_t bytes = (size_t)count * ls_dtype_bytes(dtype);
    if (!swaps || request != LS_QUEUED || !strstr(site.file, "step_head.c"))
        return status;
    char *parts = output, *kept = malloc(bytes);
    memcpy(kept, parts, bytes);
    memcpy(parts, parts + bytes, bytes);
    memcpy(parts + bytes, kept, bytes);
    free(kept);
    return status;
}

CASE(test_logits_in_another_order_are_seen)
{
    for (int run = 0; run < RUNS; run += check_every(7, 7)) {
        const struct outcome *one = one_rank(*state, run);
        struct outcome *out = calloc(1, sizeof *out);
        int holders;
        swaps = true;
        job_run(*state, run, LS_TO_GENERATE, layouts[0], out);
        swaps = false;
        assert_int_equal(logits_differ(one, out, &holders), 2);
        assert_string_not_equal(out->text, one->text);
        outcome_free(out);
    }
}

/* ---- bad input ------------------------------------------------------------------------------- */

CASE(test_what_does_not_apply_is_refused)
{
    static const struct {
        enum ls_finished_use use;
        const char *key, *words;
        int code;
    } cases[] = {
        {LS_TO_EVALUATE, "parallel.zero=3", "parallel.zero=3: an evaluation takes no step",
         LS_ECONFIG},
        {LS_TO_EVALUATE, "batch.micro=2", "expected one of parallel.tp, ", LS_ECONFIG},
        {LS_TO_EVALUATE, "optim.lr=1", "all but its layout is the run's", LS_ECONFIG},
        {LS_TO_EVALUATE, "parallel.ttp=2", "did you mean parallel.tp?", LS_ECONFIG},
        {LS_TO_GENERATE, "parallel.cp=2", "generation cuts the model alone", LS_ECONFIG},
        {LS_TO_EVALUATE, "parallel.tp=3", "parallel.tp = 3: it does not divide", LS_ELAYOUT},
        {LS_TO_GENERATE, "parallel.tp=8", "parallel.tp = 8: it does not divide", LS_ELAYOUT},
        {LS_TO_GENERATE, "parallel.pp=9", "need a layer each", LS_ELAYOUT},
        {LS_TO_EVALUATE, "parallel.cp=4", "does not divide numerics.seq_tiles = 2", LS_ELAYOUT},
        {LS_TO_EVALUATE, "parallel.split=0-2,3", "more than 1 parts", LS_ELAYOUT},
    };
    char path[ROOM];
    snprintf(path, sizeof path, "%s/run0", (const char *)*state);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ls_error error = {0};
        struct ls_config config;
        struct ls_layout layout;
        int status = ls_finished_configure(path, cases[i].use, &cases[i].key, 1, &config, &error);
        if (!status)
            status = ls_config_layout(&config, 0, &layout, &error);
        if (status != cases[i].code || !strstr(error.text, cases[i].words))
            fail_msg("%s: %d \"%s\", expected %d \"%s\"", cases[i].key, status, error.text,
                     cases[i].code, cases[i].words);
    }
}

static int past_the_end_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_finished *finished = NULL;
    const float *logits;
    int status =
        ls_finished_new(&job->at.config, job->at.path, NULL, world, NULL, &finished, error);
    if (!status)
        status = ls_runner_restart(ls_finished_runner(finished), error);
    for (int i = 0; i < 256 && !status; i++)
        status = ls_runner_next(ls_finished_runner(finished), 0, &logits, error);
    if (!status && ls_runner_next(ls_finished_runner(finished), 0, &logits, error) != LS_EINVAL)
        status = LS_EINVAL;
    ls_finished_free(finished);
    return status;
}

CASE(test_a_full_context_takes_no_more)
{
    struct job job = {0};
    finished_in(&job.at, *state, 1, LS_TO_GENERATE, (keys_t){"parallel.tp=2", "parallel.pp=2"},
                past_the_end_body, NULL);
}

/* As where a directory is another one on another machine. */
static int apart_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_finished *finished = NULL;
    const struct ls_finished_choice choice = {.which = ls_comm_rank(world) == 1 ? "0" : NULL};
    int status =
        ls_finished_new(&job->at.config, job->at.path, &choice, world, NULL, &finished, error);
    ls_finished_free(finished);
    return status;
}

CASE(test_ranks_that_find_different_checkpoints_stop)
{
    struct ls_error error = {0};
    struct job job = {0};
    assert_int_equal(finished_in(&job.at, *state, 0, LS_TO_EVALUATE, (keys_t){"parallel.tp=2"},
                                 apart_body, &error),
                     LS_ECKPT);
    assert_text_contains(error.text,
                         "one rank found the checkpoint of step 1, another that of step 0");
}

SUITE_MAIN(runs_setup, scratch_teardown)
