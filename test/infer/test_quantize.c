/* Models of int8: the same loss and text in every layout and on every instruction set, near to
 * those of the model that they come from, in a fraction of its memory; what cannot be int8. */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "small_runs.h"

#include <lockstep/infer.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 5, WORDS = 60 };

struct job {
    struct finished_job at;
    enum ls_finished_use use;
    struct ls_finished_choice choice;
    double loss;
    char *text;
};

static int evaluate(struct job *job, struct ls_runner *runner, struct ls_comm *world,
                    struct ls_error *error)
{
    struct ls_token_store *store = NULL;
    struct ls_eval_report report;
    int status = ls_token_store_open(job->at.config.data.valid, &store, error);
    if (!status)
        status = ls_runner_evaluate(runner, store, SEQUENCES, &report, NULL, error);
    if (!status && ls_comm_rank(world) == 0)
        job->loss = report.loss;
    ls_token_store_close(store);
    return status;
}

static int sample(struct job *job, struct ls_runner *runner, struct ls_error *error)
{
    char *text = NULL;
    int status = ls_runner_sample(runner, "to be", &text, error);
    if (text)
        job->text = text;
    return status;
}

static int body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_finished *finished = NULL;
    int status =
        ls_finished_new(&job->at.config, job->at.path, &job->choice, world, NULL, &finished, error);
    struct ls_runner *runner = status ? NULL : ls_finished_runner(finished);
    if (!status && job->use == LS_TO_EVALUATE)
        status = evaluate(job, runner, world, error);
    else if (!status)
        status = sample(job, runner, error);
    ls_finished_free(finished);
    return status;
}

static double loss_of(const char *directory, int run, enum ls_quantize quantize, const keys_t keys)
{
    struct job job = {.at.words = WORDS, .use = LS_TO_EVALUATE, .choice.quantize = quantize};
    finished_in(&job.at, directory, run, job.use, keys, body, NULL);
    return job.loss;
}

static char *text_of(const char *directory, int run, enum ls_quantize quantize, const keys_t keys)
{
    struct job job = {.at.words = WORDS, .use = LS_TO_GENERATE, .choice.quantize = quantize};
    finished_in(&job.at, directory, run, job.use, keys, body, NULL);
    return job.text;
}

/* Those that cut the model alone, which generation takes too, come first. */
static const keys_t layouts[] = {
    {"parallel.tp=2"},
    {"parallel.tp=4"},
    {"parallel.pp=2", "parallel.tp=2"},
    {"numerics.isa=plain"},
    {"numerics.isa=avx2"},
    {"parallel.dp=3"},
    {"parallel.cp=2"},
    {"parallel.tp=2", "parallel.sp=true", "parallel.tp_overlap=2"},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0], MODEL_CUTS = 5 };

static bool runs_here(const keys_t keys)
{
    return !keys[0] || strcmp(keys[0], "numerics.isa=avx2") != 0 || ls_isa_best() >= LS_ISA_AVX2;
}

CASE(test_layouts_give_the_same_bits)
{
    for (int run = 0; run < ADAPTED_RUN; run++)
        for (int q = LS_QUANTIZE_INT8; q <= LS_QUANTIZE_INT8_WEIGHTS; q++) {
            if (!check_pair(run, q, 2))
                continue;
            double one = loss_of(*state, run, (enum ls_quantize)q, (keys_t){NULL});
            char *text = text_of(*state, run, (enum ls_quantize)q, (keys_t){NULL});
            for (int i = 0; i < LAYOUTS; i++) {
                if (!runs_here(layouts[i]) || !check_pair(run, i, LAYOUTS))
                    continue;
                double loss = loss_of(*state, run, (enum ls_quantize)q, layouts[i]);
                if (memcmp(&loss, &one, sizeof one) != 0)
                    fail_msg("run %d, %s: loss %.17g: expected %.17g", run, layout_text(layouts[i]),
                             loss, one);
                if (i >= MODEL_CUTS)
                    continue;
                char *other = text_of(*state, run, (enum ls_quantize)q, layouts[i]);
                assert_string_equal(other, text);
                free(other);
            }
            free(text);
        }
}

/* Rounding moves the loss, and by little: less where weights alone are rounded. */
CASE(test_the_loss_is_near)
{
    double off[3] = {0};
    for (int run = 0; run < ADAPTED_RUN; run += check_every(3, 3)) {
        double loss = loss_of(*state, run, LS_QUANTIZE_NONE, (keys_t){NULL});
        for (int q = LS_QUANTIZE_INT8; q <= LS_QUANTIZE_INT8_WEIGHTS; q++) {
            double moved = loss_of(*state, run, (enum ls_quantize)q, (keys_t){NULL}) - loss;
            print_message("run %d: loss %.6f, %s %+.6f\n", run, loss,
                          q == LS_QUANTIZE_INT8 ? "int8" : "weights", moved);
            assert_true(moved != 0 && fabs(moved) < 0.01 * loss);
            off[q] += fabs(moved);
        }
    }
    assert_true(off[LS_QUANTIZE_INT8] > 0 && off[LS_QUANTIZE_INT8_WEIGHTS] > 0);
}

CASE(test_adapters_are_refused)
{
    struct ls_error error = {0};
    struct job job = {.use = LS_TO_EVALUATE, .choice.quantize = LS_QUANTIZE_INT8_WEIGHTS};
    assert_int_equal(
        finished_in(&job.at, *state, ADAPTED_RUN, LS_TO_EVALUATE, (keys_t){NULL}, body, &error),
        LS_ECONFIG);
    assert_non_null(strstr(error.text, "a model with adapters is not quantised: export it"));
}

CASE(test_names)
{
    int value = -1;
    assert_false(ls_word_read(ls_quantizes, "int4", &value));
    assert_int_equal(value, -1);
    assert_true(ls_word_read(ls_quantizes, "int8-weights", &value));
    assert_int_equal(value, LS_QUANTIZE_INT8_WEIGHTS);
}

SUITE_MAIN(runs_setup, scratch_teardown)
