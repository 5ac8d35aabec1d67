/* A run's metrics.prom has its newest figures: those of metrics.jsonl. */
#include <lockstep/comm.h>
#include <lockstep/trace/picture.h>
#include <lockstep/train.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "../support/prom.h"
#include "../support/scratch.h"
#include "../support/suite.h"

enum { TOKENS = 3000, STEPS = 5 };

static struct ls_config config_of(const char *directory)
{
    struct ls_config config;
    struct ls_error error = {0};
    static uint16_t tokens[TOKENS];
    char words[7][700];
    int count = 0;
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)(i * 7 % 50);
    scratch_write(scratch_path(directory, "tokens.bin"), tokens, sizeof tokens);
    snprintf(words[count++], 700, "data.train=u16:%s/tokens.bin", directory);
    snprintf(words[count++], 700, "data.valid=u16:%s/tokens.bin", directory);
    snprintf(words[count++], 700, "train.out=%s/a \"quoted\" \\ name/", directory);
    static const char *const rest[] = {"model.layers=1",      "model.channels=32", "model.heads=2",
                                       "model.vocab=50",      "model.context=16",  "batch.global=4",
                                       "eval.every=2",        "eval.samples=8",    "train.steps=5",
                                       "optim.warmup_steps=3"};
    ls_config_defaults(&config);
    int status = LS_OK;
    for (int i = 0; i < count && !status; i++)
        status = ls_config_set(&config, words[i], &error);
    for (size_t i = 0; i < sizeof rest / sizeof rest[0] && !status; i++)
        status = ls_config_set(&config, rest[i], &error);
    if (!status)
        status = ls_train_resolve(&config, &error);
    if (status)
        fail_msg("%s", error.text);
    return config;
}

static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    return ls_run(user, world, NULL, NULL, error);
}

static void assert_value(const char *text, const char *name, double expected)
{
    char begin[128];
    snprintf(begin, sizeof begin, "%s{run=\"a \\\"quoted\\\" \\\\ name\"} ", name);
    double value = prom_value(text, begin);
    if (!(fabs(value - expected) <= 1e-6 * fabs(expected)))
        fail_msg("%s is %.9g, expected %.9g", name, value, expected);
}

CASE_WITH(test_newest_figures, scratch_setup, scratch_teardown)
{
    struct ls_config config = config_of(*state);
    struct ls_error error = {0};
    assert_ok(ls_world_run(1, run_body, &config, &error), error);
    char path[1200], command[1400];
    struct ls_run_curves run;
    snprintf(path, sizeof path, "%s/metrics.jsonl", config.train.out);
    assert_ok(ls_run_curves_read(&run, "", path, &error), error);
    assert_int_equal(run.loss.count, STEPS);
    assert_int_equal(run.validation.count, 3); /* after 2, 4 and the last */
    snprintf(path, sizeof path, "%s/metrics.prom", config.train.out);
    char *text = scratch_read(path, NULL);
    assert_prom(text);
    assert_value(text, "lockstep_steps_total", STEPS);
    assert_value(text, "lockstep_samples_total", STEPS * 4);
    assert_value(text, "lockstep_tokens_total", STEPS * 4 * 16);
    assert_value(text, "lockstep_skipped_steps_total", 0);
    assert_value(text, "lockstep_loss", run.loss.y[STEPS - 1]);
    assert_value(text, "lockstep_learning_rate", run.lr.y[STEPS - 1]);
    assert_value(text, "lockstep_validation_loss", run.validation.y[2]);
    assert_true(prom_value(text, "lockstep_step_seconds{") > 0);
    assert_true(prom_value(text, "lockstep_memory_bytes{") > 0);
    free(text);
    ls_run_curves_release(&run);
    snprintf(command, sizeof command, "tools/check-prom.py '%s' 1>&2", path);
    int code = WEXITSTATUS(system(command));
    if (code != 77) /* it says loudly that it was skipped */
        assert_int_equal(code, 0);
}

SUITE_MAIN(NULL, NULL)
