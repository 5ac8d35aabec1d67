/* What is made again in front of the backward has the bits of what was kept: every policy, in every
 * kind of layout, gives the hash of one rank that keeps all. */
#include "../support/config_words.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "tokens.h"

#include <lockstep/compare.h>
#include <lockstep/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2 };

#define GPT2                                                                                       \
    "model.arch=gpt2 model.vocab=50 model.layers=6 model.channels=64 model.heads=4 "               \
    "model.context=64 model.dropout=0.1 batch.global=8 batch.micro=1 parallel.threads=1 "
#define LLAMA                                                                                      \
    "model.arch=llama model.vocab=50 model.layers=5 model.channels=64 model.heads=4 "              \
    "model.kv_heads=2 model.ffn=96 model.context=256 model.dropout=0.1 batch.global=4 "            \
    "batch.micro=1 numerics.seq_tiles=2 parallel.threads=1 "

static const char *const policies[] = {"full", "selective", "every:2",
                                       "sqrt", "0-1,3",     "selective;full@0"};
static const char *const layouts[][2] = {
    {GPT2, ""},
    {GPT2, "parallel.tp=2 parallel.sp=false"},
    {GPT2, "parallel.tp=2 parallel.sp=false memory.partition_activations=true"},
    {GPT2, "parallel.tp=2 parallel.sp=true parallel.tp_overlap=2 batch.micro=2"},
    {GPT2, "parallel.pp=2 parallel.schedule=zb-h1"},
    {GPT2, "parallel.pp=2 parallel.schedule=zbv parallel.tp=2 parallel.sp=false "
           "memory.partition_activations=true"},
    {GPT2, "parallel.pp=2 parallel.schedule=interleaved"},
    {GPT2, "parallel.pp=2 parallel.schedule=dualpipev"},
    {GPT2, "parallel.dp=2 parallel.zero=3"},
    {GPT2, "parallel.dp=2 parallel.zero=3 parallel.prefetch=0 parallel.pp=2"},
    {LLAMA, ""},
    {LLAMA, "parallel.cp=2"},
    {LLAMA, "parallel.cp=2 parallel.cp_method=ring parallel.schedule=zbv parallel.pp=2"},
    {LLAMA, "parallel.tp=4"},
};
enum { POLICIES = sizeof policies / sizeof *policies, LAYOUTS = sizeof layouts / sizeof *layouts };

static struct ls_config config_of(const char *directory, const char *recipe, const char *layout,
                                  const char *policy)
{
    return config_of_words(
        "data.train=u16:%s/tokens.bin train.out=%s/run %s %s memory.recompute=%s", directory,
        directory, recipe, layout, policy);
}

static void prove(const char *directory, const char *recipe, const char *layout, const char *policy,
                  struct ls_proof proof[STEPS])
{
    struct ls_config config = config_of(directory, recipe, layout, policy);
    struct ls_error error = {0};
    if (ls_proof_threads(&config, STEPS, proof, &error))
        fail_msg("%s memory.recompute=%s: %s", layout, policy, error.text);
}

CASE_WITH(test_every_policy_has_the_bits_of_none, tokens_setup, scratch_teardown)
{
    struct ls_proof kept[STEPS], again[STEPS];
    const char *recipe = NULL;
    for (int l = 0; l < LAYOUTS; l++) {
        if (recipe != layouts[l][0])
            prove(*state, layouts[l][0], "", "none", kept);
        recipe = layouts[l][0];
        for (int p = 0; p < POLICIES; p++) {
            if (!check_pair(l, p, POLICIES))
                continue;
            prove(*state, recipe, layouts[l][1], policies[p], again);
            int64_t step = ls_proof_differs(kept, again, STEPS);
            if (step)
                fail_msg("%s memory.recompute=%s: step %ld has other bits than one rank that keeps "
                         "all",
                         layouts[l][1], policies[p], (long)step);
        }
    }
}

/* What is given up takes no memory: the plan is smaller, policy by policy. */
CASE_WITH(test_less_is_kept, tokens_setup, scratch_teardown)
{
    static const char *const from_most[] = {"none", "selective", "full"};
    size_t before = SIZE_MAX;
    for (size_t p = 0; p < sizeof from_most / sizeof *from_most; p++) {
        struct ls_config config =
            config_of(*state, GPT2, "model.layers=12 batch.micro=8", from_most[p]);
        struct ls_memory_plan plan;
        struct ls_error error = {0};
        assert_ok(ls_plan(&config, &plan, &error), error);
        if (plan.total >= before)
            fail_msg("memory.recompute=%s keeps %zu bytes, what gives up less keeps %zu",
                     from_most[p], plan.total, before);
        before = plan.total;
    }
}

CASE_WITH(test_bad_policies_are_refused, tokens_setup, scratch_teardown)
{
    static const struct {
        const char *policy, *text;
    } bad[] = {
        {"half", "half: expected none, full, selective, sqrt, every:K or a list"},
        {"every:0", "every:0: expected every:K with a number of blocks from 1"},
        {"every:x", "every:x: expected every:K"},
        {"0-6", "0-6: there is no block 6: they are 0 to 5"},
        {"99999999999999", "there is no block 99999999999999: they are 0 to 5"},
        {"none;;full", "a part is empty: expected none, full"},
        {"3-1", "3-1: a range ends before it begins"},
        {"0-", "0-: expected a number after the dash"},
        {"0,,1", "0,,1: expected a list such as 0-3,7"},
        {"full@2", "full@2: there is no stage 2: they are 0 to 1"},
        {"full@", "full@: expected a list"},
        {"none;", ": expected none, full"},
        {"", ": expected none, full"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ls_config config = config_of(*state, GPT2, "parallel.pp=2", bad[i].policy);
        struct ls_memory_plan plan;
        struct ls_error error = {0};
        assert_int_equal(ls_plan(&config, &plan, &error), LS_ELAYOUT);
        if (!strstr(error.text, "memory.recompute = ") || !strstr(error.text, bad[i].text))
            fail_msg("memory.recompute=%s: %s", bad[i].policy, error.text);
    }
}

SUITE_MAIN(NULL, NULL)
