/* The mean of checkpoints, against plain C; and which models have none. */
#include "../support/checkpoints.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "trained.h"

#include <lockstep/interop.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL                                                                                      \
    "model.channels=32 model.heads=4 model.context=16 model.vocab=61 train.save_every=2 "          \
    "train.keep=9 "
#define STEP(n) "checkpoints/step-0000000" #n
enum { MODELS = 3 };

static char paths[MODELS][600];

/* Of a run that is cut, one that is not, and an earlier step, which is named as the best. */
static void models_make(const char *directory)
{
    const struct ls_checkpoint_best best = {.step = 2, .loss = 1, .sequences = 8};
    struct ls_error error = {0};
    trained(directory, "a", MODEL "model.layers=2 train.steps=4 parallel.tp=2 parallel.dp=2");
    trained(directory, "b", MODEL "model.layers=2 train.steps=3 model.seed=7");
    snprintf(paths[0], sizeof paths[0], "%s/a", directory);
    snprintf(paths[1], sizeof paths[1], "%s/b/" STEP(3), directory);
    snprintf(paths[2], sizeof paths[2], "%s/a/checkpoints/best", directory);
    assert_ok(ls_checkpoint_best_write(paths[0], &best, &error), error);
}

static int average(const char *const *from, int count, const double *weights, const char *run,
                   struct ls_error *error)
{
    struct ls_import_report report;
    const struct ls_import what = {.from = from[0],
                                   .run = run,
                                   .others = from + 1,
                                   .other_count = count - 1,
                                   .weights = weights};
    return ls_import(&what, &report, error);
}

/* Elements of the checkpoint that are not the mean of the models' in that order. */
static int64_t wrong(const char *directory, const int order[MODELS], const double *weights)
{
    struct ls_checkpoint *mean = checkpoint_open(directory), *models[MODELS];
    char path[2000];
    int64_t found = 0;
    const struct ls_stored_tensor *list;
    size_t count = ls_checkpoint_tensors(mean, LS_CKPT_MODEL, &list);
    assert_true(mean->state.fresh && count > 20);
    for (int m = 0; m < MODELS; m++) {
        snprintf(path, sizeof path, "%s%s", paths[m], m == 0 ? "/" STEP(4) : "");
        models[m] = checkpoint_open(path);
    }
    for (size_t i = 0; i < count; i++) {
        float *values[MODELS], *is = checkpoint_tensor(mean, LS_CKPT_MODEL, list[i].name, NULL);
        for (int m = 0; m < MODELS; m++)
            values[m] = checkpoint_tensor(models[m], LS_CKPT_MODEL, list[i].name, NULL);
        for (size_t e = 0; e < stored_tensor_bytes(&list[i]) / sizeof(float); e++) {
            double sum = 0, all = 0;
            for (int m = 0; m < MODELS; m++) {
                sum = fma(weights[m], values[order[m]][e], sum);
                all += weights[m];
            }
            float expected = (float)(sum / all);
            found += memcmp(&expected, &is[e], sizeof expected) != 0;
        }
        for (int m = 0; m < MODELS; m++)
            free(values[m]);
        free(is);
    }
    for (int m = 0; m < MODELS; m++)
        ls_checkpoint_close(models[m]);
    ls_checkpoint_close(mean);
    return found;
}

/* The twin is the mean of the first two with their weights exchanged: it has other bits. */
CASE_WITH(test_means, tokens_setup, scratch_teardown)
{
    static const double weights[][MODELS] = {{1, 1, 1}, {0.3, 0.2, 0.5}, {3, 0, 1e-9}};
    static const int order[MODELS] = {0, 1, 2}, twin[MODELS] = {1, 0, 2};
    models_make(*state);
    const char *const from[MODELS] = {paths[0], paths[1], paths[2]};
    for (int i = 0; i < 3; i++) {
        char name[32], made[700];
        struct ls_error error = {0};
        snprintf(name, sizeof name, "mean%d", i);
        snprintf(made, sizeof made, "%s/%s/" STEP(0), (const char *)*state, name);
        assert_ok(
            average(from, MODELS, i == 0 ? NULL : weights[i], scratch_path(*state, name), &error),
            error);
        assert_int_equal(wrong(made, order, weights[i]), 0);
        assert_true(i == 0 || wrong(made, twin, weights[i]) > 1000);
    }
    trained(*state, "on", "train.steps=2 parallel.dp=2 model.from=%s",
            scratch_path(*state, "mean1"));
}

static void expect_refused(const char *directory, const char *other, int code, const char *words)
{
    struct ls_error error = {0};
    const char *const from[] = {paths[0], other};
    const char *made = scratch_path(directory, "none");
    int status = average(from, 2, NULL, made, &error);
    if (status != code || !strstr(error.text, words))
        fail_msg("expected %d, %s, found %d: %s", code, words, status, error.text);
    assert_int_equal(access(made, F_OK), -1);
}

CASE_WITH(test_other_models_are_refused, tokens_setup, scratch_teardown)
{
    char away[600];
    models_make(*state);
    trained(*state, "more", MODEL "model.layers=3 train.steps=2");
    trained(*state, "heads", MODEL "model.layers=2 model.heads=2 train.steps=2");
    expect_refused(*state, scratch_path(*state, "more"), LS_ECONFIG, "model.layers: 2 here, 3");
    expect_refused(*state, scratch_path(*state, "heads"), LS_ECONFIG, "model.heads: 4 here, 2");
    expect_refused(*state, scratch_path(*state, "nowhere"), LS_EIO, "nowhere");
    snprintf(away, sizeof away, "%s/a/away", (const char *)*state);
    assert_int_equal(rename(scratch_path(*state, "a/" STEP(2)), away), 0);
    expect_refused(*state, paths[2], LS_EIO, "checkpoints/best: the run of this checkpoint: ");
    size_t size;
    const char *path =
        scratch_path(*state, "b/" STEP(2) "/shard-00001-model-00001-of-00001.safetensors");
    char *data = scratch_read(path, &size);
    data[size - 3] ^= 1;
    scratch_write(path, data, size);
    free(data);
    expect_refused(*state, scratch_path(*state, "b/" STEP(2)), LS_ECKPT, "shard-00001-model");
}

SUITE_MAIN(NULL, NULL)
