/* What layouts of GPT-2 124M keep on a rank, up to 64 ranks, against the formulas of
 * lockstep/plan/moves.h, within 2 %. Nothing is allocated: the plan is measured by walking the
 * trainer's own code, and test_trainer shows that it is what a run takes. */
#include "../support/scratch.h"
#include "train/trainer.h"

#include <lockstep/plan/moves.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- recipes --------------------------------------------------------------------------------- */

static void keys_set(struct ls_config *config, const char *text)
{
    char copy[512], *save = NULL;
    struct ls_error error = {0};
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        if (ls_config_set(config, word, &error))
            fail_msg("%s", error.text);
}

static void config_make(struct ls_config *config, const char *directory, const char *recipe,
                        const char *layout)
{
    struct ls_error error = {0};
    char data[600];
    ls_config_defaults(config);
    keys_set(config, recipe);
    keys_set(config, layout);
    snprintf(data, sizeof data, "data.train=u16:%s/tokens.bin", directory);
    if (ls_config_set(config, data, &error) || ls_train_resolve(config, &error))
        fail_msg("%s: %s", layout, error.text);
}

static int tokens_write(void **state)
{
    uint16_t tokens[30000];
    for (int i = 0; i < 30000; i++)
        tokens[i] = (uint16_t)(i * 7919 % 300);
    if (scratch_setup(state))
        return -1;
    scratch_write(scratch_path(*state, "tokens.bin"), tokens, sizeof tokens);
    return 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void expect_near(const char *layout, const char *what, size_t planned, int64_t formula)
{
    double ratio = (double)planned / (double)formula;
    if (ratio < 0.98 || ratio > 1.02)
        fail_msg("%s: %s takes %zu bytes, by formula %ld: %.4f of it", layout, what, planned,
                 (long)formula, ratio);
}

static void test_memory_of_a_rank_equals_the_formulas(void **state)
{
    static const char recipe[] = "model.preset=gpt2-124m model.vocab=50257 batch.global=64 "
                                 "batch.micro=1 log.progress=off";
    static const char *const layouts[] = {
        "",
        "numerics.precision=fp32",
        "parallel.dp_replicate=64",
        "parallel.dp_shard=64 parallel.zero=1",
        "parallel.dp_shard=64 parallel.zero=2",
        "parallel.dp_shard=64 parallel.zero=3",
        "parallel.dp_shard=8 parallel.dp_replicate=2 parallel.zero=2 batch.micro=2",
        "parallel.tp=4 parallel.sp=true",
        "parallel.pp=4",
        "parallel.pp=4 parallel.tp=2 parallel.dp_shard=4 parallel.zero=3",
    };
    struct ls_layout *layout = malloc(sizeof *layout);
    assert_non_null(layout);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        struct ls_config config;
        struct ls_memory_plan plan;
        struct ls_layout_memory formula;
        struct ls_error error = {0};
        config_make(&config, *state, recipe, layouts[i]);
        if (ls_config_layout(&config, 0, layout, &error))
            fail_msg("%s: %s", layouts[i], error.text);
        for (int64_t pp = 0; pp < layout->size[LS_AXIS_PP]; pp++) {
            int64_t coordinates[LS_AXES] = {[LS_AXIS_PP] = pp};
            int64_t rank = ls_layout_rank(layout, coordinates);
            if (memory_plan(&config, layout, coordinates, &plan, &error) ||
                ls_layout_memory(layout, rank, 2, &formula, &error))
                fail_msg("%s: %s", layouts[i], error.text);
            expect_near(layouts[i], "parameters", plan.parameters, formula.parameters);
            expect_near(layouts[i], "gradients", plan.gradients, formula.gradients);
            expect_near(layouts[i], "the optimizer", plan.optimizer, formula.optimizer);
        }
    }
    free(layout);
}

/* Activations kept for the backward: what twelve more blocks add, since the rest of the buffers
 * (logits, what a block computes in) does not grow with them. */
static void activations_of(const char *directory, const char *layout_keys, int layers,
                           int64_t *planned, int64_t *formula)
{
    struct ls_layout *layout = malloc(sizeof *layout);
    struct ls_config config;
    struct ls_memory_plan plan;
    struct ls_layout_memory memory;
    struct ls_error error = {0};
    char recipe[200];
    snprintf(recipe, sizeof recipe,
             "model.preset=gpt2-124m model.layers=%d model.vocab=50257 batch.global=64 "
             "log.progress=off",
             layers);
    config_make(&config, directory, recipe, layout_keys);
    int64_t coordinates[LS_AXES] = {0};
    if (!layout || ls_config_layout(&config, 0, layout, &error) ||
        memory_plan(&config, layout, coordinates, &plan, &error) ||
        ls_layout_memory(layout, 0, 2, &memory, &error))
        fail_msg("%s: %s", layout_keys, error.text);
    *planned = (int64_t)plan.activations;
    *formula = memory.activations;
    free(layout);
}

static void test_activations_equal_the_formula(void **state)
{
    static const char *const layouts[] = {
        "batch.micro=1",
        "batch.micro=4",
        "batch.micro=4 numerics.precision=fp32",
        "batch.micro=4 parallel.tp=4 parallel.sp=false",
        "batch.micro=4 parallel.tp=4 parallel.sp=true",
        "batch.micro=1 parallel.pp=4",
        "batch.micro=1 parallel.pp=4 parallel.schedule=gpipe",
        "batch.micro=1 parallel.cp=2 numerics.seq_tiles=2 numerics.leaf_sequences=1",
    };
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        int64_t planned[2], formula[2];
        activations_of(*state, layouts[i], 12, &planned[0], &formula[0]);
        activations_of(*state, layouts[i], 24, &planned[1], &formula[1]);
        expect_near(layouts[i], "what twelve more blocks keep", (size_t)(planned[1] - planned[0]),
                    formula[1] - formula[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_of_a_rank_equals_the_formulas),
        cmocka_unit_test(test_activations_equal_the_formula),
    };
    return cmocka_run_group_tests(tests, tokens_write, scratch_teardown);
}
