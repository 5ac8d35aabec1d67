/* The arithmetic of the run that a configuration goes on with. */
#include "../support/checkpoints.h"
#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/ckpt.h>
#include <lockstep/state.h>

#include <stdio.h>
#include <string.h>

#define SMALL                                                                                      \
    "model.layers=1 model.channels=32 model.heads=4 model.context=32 data.tokenizer=byte "         \
    "model.vocab=257 "
#define RECIPE "model: {layers: 1, channels: 32, heads: 4, context: 32, vocab: 257}\n"
#define BF16   "numerics: {precision: bf16}\n"
#define PAIRS  "numerics: {precision: bf16, arithmetic: bf16_pairs}\n"

static void run_write(const char *run, const char *recipe, const char *fingerprint)
{
    static const float value[1] = {1};
    const struct ls_tensor_entry model = {"w", LS_F32, 1, {1}, value};
    const struct ls_tensor_entry moments = {"exp_avg.w", LS_F32, 1, {1}, value};
    const struct ls_checkpoint_state state = {.step = 3,
                                              .loss_scale = 1,
                                              .recipe_digest = "",
                                              .recipe = recipe,
                                              .fingerprint = fingerprint,
                                              .hash = ""};
    struct ls_error error = {0};
    const struct checkpoint_tensors parts[] = {{&model, NULL, 1}, {&moments, NULL, 1}};
    assert_ok(checkpoint_write(run, &state, NULL, parts, NULL, &error), error);
}

static void expect(const char *run, const char *words, int want)
{
    struct ls_config config = config_of_words(SMALL "train.out=%s %s", run, words);
    struct ls_comm *self;
    assert_int_equal(ls_comm_self_new(&self, NULL), LS_OK);
    assert_int_equal(ls_state_recall(&config, self, NULL), LS_OK);
    ls_comm_free(self);
    if (config.numerics.arithmetic != want)
        fail_msg("%s: %d, expected %d", words, config.numerics.arithmetic, want);
}

CASE_WITH(test_of_a_checkpoint, scratch_setup, scratch_teardown)
{
    char words[600];
    const char *run = *state;
    expect(run, "train.resume=auto", LS_CONFIG_AUTO);
    run_write(run, RECIPE PAIRS, "arithmetic bf16_pairs");
    expect(run, "train.resume=auto", LS_ARITHMETIC_BF16_PAIRS);
    expect(run, "train.resume=never", LS_CONFIG_AUTO);
    expect(run, "train.resume=auto numerics.arithmetic=fma", LS_ARITHMETIC_FMA);
    expect(run, "train.resume=auto numerics.precision=fp32", LS_ARITHMETIC_FMA);
    snprintf(words, sizeof words, "train.resume=%s/checkpoints/step-00000003", run);
    expect("elsewhere", words, LS_ARITHMETIC_BF16_PAIRS);
    expect(run, "train.resume=nowhere", LS_CONFIG_AUTO);
}

/* Written before it was a key: the fingerprint says it. */
CASE_WITH(test_of_an_older_checkpoint, scratch_setup, scratch_teardown)
{
    run_write(*state, RECIPE BF16, "numerics.version 3; arithmetic amx; isa amx");
    expect(*state, "train.resume=auto", LS_ARITHMETIC_BF16_PAIRS);
    run_write(*state, RECIPE BF16, "numerics.version 3; arithmetic fma; isa avx2");
    expect(*state, "train.resume=auto", LS_ARITHMETIC_FMA);
}

/* A run that was killed before its first checkpoint; of another precision it says nothing. */
CASE_WITH(test_of_a_start, scratch_setup, scratch_teardown)
{
    const char *path = scratch_path(*state, "config.yaml");
    scratch_write(path, RECIPE PAIRS, strlen(RECIPE PAIRS));
    expect(*state, "train.resume=auto", LS_ARITHMETIC_BF16_PAIRS);
    expect(*state, "train.resume=never", LS_CONFIG_AUTO);
    static const char other[] = RECIPE "numerics: {precision: fp32, arithmetic: fma}\n";
    scratch_write(path, other, strlen(other));
    expect(*state, "train.resume=auto", LS_CONFIG_AUTO);
}

SUITE_MAIN(NULL, NULL)
