/* What lies in a tier comes back as it was: every way to put the optimizer, gradients, activations
 * and parameters elsewhere, in every kind of layout, gives the hashes of one rank that keeps all.
 */
/* check: disk */
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "offload.h"
#include "tokens.h"

#include <lockstep/compare.h>
#include <lockstep/device/tier.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, WORDS_MAX = 900 };

static struct ls_proof reference[OFFLOAD_RECIPES][STEPS];
static bool is_known[OFFLOAD_RECIPES];

static void prove(const struct ls_config *config, const char *what, struct ls_proof proof[STEPS])
{
    struct ls_error error = {0};
    if (ls_proof_threads(config, STEPS, proof, &error))
        fail_msg("%s: %s", what, error.text);
}

static void check(const char *directory, enum offload_recipe recipe, const char *layout,
                  const char *words)
{
    char what[WORDS_MAX];
    struct ls_proof proof[STEPS];
    snprintf(what, sizeof what, "%s %s %s", offload_recipe_names[recipe], layout, words);
    if (!is_known[recipe]) {
        struct ls_config one = offload_config(directory, recipe, "", "");
        prove(&one, offload_recipe_names[recipe], reference[recipe]);
        is_known[recipe] = true;
    }
    struct ls_config config = offload_config(directory, recipe, layout, words);
    prove(&config, what, proof);
    int64_t step = ls_proof_differs(reference[recipe], proof, STEPS);
    if (step)
        fail_msg("%s: step %ld has other bits than one rank that keeps all", what, (long)step);
}

/* ---- what was covered ----------------------------------------------------------------------- */

enum { LAYOUTS = 27, POLICIES = 4 };

/* How often each key had each kind in each layout, and each kind of another key. */
static struct {
    int layout[LAYOUTS][OFFLOAD_KEYS][LS_TIER_KINDS];
    int recipe[OFFLOAD_RECIPES][OFFLOAD_KEYS][LS_TIER_KINDS];
    int policy[POLICIES][OFFLOAD_KEYS][LS_TIER_KINDS];
    int way[OFFLOAD_WAYS];
    int runs;
} covered;

static const char *const policies[POLICIES] = {"none", "full", "selective", "every:3"};

static void cover_add(int layout, int recipe, int policy, int way)
{
    for (int k = 0; k < OFFLOAD_KEYS; k++) {
        int kind = offload_kind(way, k);
        covered.layout[layout][k][kind]++;
        covered.recipe[recipe][k][kind]++;
        covered.policy[policy][k][kind]++;
    }
    covered.way[way]++;
    covered.runs++;
}

/* Ranks that share whole parameters keep them. */
static bool keeps_parameters(const char *words)
{
    bool whole = strstr(words, "zero=1") || strstr(words, "zero=2");
    return whole && (strstr(words, "dp_shard=") || strstr(words, "cp="));
}

static void cover_line(const char *name, int counts[OFFLOAD_KEYS][LS_TIER_KINDS], bool all)
{
    char text[100] = "";
    for (int k = 0; k < OFFLOAD_KEYS; k++)
        for (int kind = 0; kind < LS_TIER_KINDS; kind++) {
            size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s%d", kind ? "/" : "  ", counts[k][kind]);
            bool refused = k == 3 && kind > 0 && keeps_parameters(name);
            if (all && !counts[k][kind] && !refused)
                fail_msg("%s: memory.offload.%s=%s was never run", name, offload_keys[k],
                         ls_tier_name((enum ls_tier_kind)kind));
        }
    print_message("%s  %s\n", text, *name ? name : "one rank");
}

/* ---- every way, and every layout ------------------------------------------------------------ */

static const struct {
    enum offload_recipe recipe;
    const char *words;
} layouts[LAYOUTS] = {
    {GPT2_FP32, ""},
    {GPT2_FP32, "parallel.pp=2 parallel.schedule=gpipe"},
    {GPT2_BF16, "parallel.pp=3 parallel.schedule=1f1b"},
    {GPT2_FP32, "parallel.pp=2 parallel.schedule=zb-h1"},
    {GPT2_BF16, "parallel.pp=2 parallel.schedule=zbv batch.micro=1"},
    {GPT2_FP16_SGD, "parallel.pp=2 parallel.schedule=interleaved"},
    {GPT2_FP32, "parallel.pp=2 parallel.schedule=dualpipev"},
    {GPT2_BF16, "parallel.dp_shard=2 parallel.zero=0"},
    {GPT2_FP32, "parallel.dp_shard=2 parallel.zero=1"},
    {GPT2_BF16, "parallel.dp_shard=4 parallel.zero=2"},
    {GPT2_FP32, "parallel.dp_shard=2 parallel.zero=3"},
    {GPT2_FP16_SGD, "parallel.dp_shard=2 parallel.zero=3 parallel.prefetch=0"},
    {GPT2_BF16, "parallel.dp_shard=2 parallel.zero=3 parallel.pp=2 batch.micro=1"},
    {GPT2_FP32, "parallel.dp_replicate=2 parallel.zero=0"},
    {GPT2_BF16_PARTS, "batch.micro=1"},
    {GPT2_BF16_PARTS, "batch.micro=1 parallel.dp_shard=2 parallel.zero=2"},
    {GPT2_BF16_PARTS, "batch.micro=4 parallel.pp=2"},
    {GPT2_FP32, "parallel.tp=2 parallel.sp=false"},
    {GPT2_BF16, "parallel.tp=4 parallel.sp=true batch.micro=4"},
    {GPT2_FP32, "parallel.tp=2 parallel.sp=false parallel.pp=2 parallel.schedule=zbv "
                "memory.partition_activations=true"},
    {LLAMA_FP32_LION, ""},
    {LLAMA_FP32_LION, "parallel.cp=2"},
    {LLAMA_BF16_MOMENTS, "parallel.cp=2 parallel.cp_method=ring parallel.pp=2"},
    {LLAMA_BF16_MOMENTS, "parallel.dp_shard=2 parallel.zero=1"},
    {LLAMA_TIED_SGD, "parallel.pp=2"},
    {LLAMA_TIED_SGD, "parallel.tp=2 parallel.sp=false parallel.dp_shard=2 parallel.zero=3"},
    {LLAMA_BF16_MOMENTS, "parallel.tp=2 parallel.cp=2 parallel.zero=2"},
};

/* Run number n of a layout: another way, policy and ratio than those before. */
static void run_one(const char *directory, int layout, int way, int n)
{
    char words[WORDS_MAX];
    enum offload_recipe recipe = layouts[layout].recipe;
    int policy = (n + layout) % POLICIES;
    way %= keeps_parameters(layouts[layout].words) ? OFFLOAD_WAYS / LS_TIER_KINDS : OFFLOAD_WAYS;
    offload_words(way, (n + layout) % 3 == 1 ? 0.5 : 1, words, sizeof words);
    size_t used = strlen(words);
    bool partition = strstr(layouts[layout].words, "partition") != NULL;
    policy = partition ? 1 : policy;
    snprintf(words + used, sizeof words - used, "memory.recompute=%s memory.check=%s",
             policies[policy], (n + layout) % 5 == 2 ? "true" : "false");
    check(directory, recipe, layouts[layout].words, words);
    cover_add(layout, recipe, policy, way);
}

/* All ways on one rank for a GPT-2, some for a Llama; in other layouts some of them, so that each
 * key has each of its values in each layout. */
CASE_WITH(test_every_way_in_every_layout, tokens_setup, scratch_teardown)
{
    /* One in so many ways, and one in so many of the layouts that have few. What is covered is
     * said of all of them alone. */
    int part = check_every(14, 14);
    for (int layout = 0; layout < LAYOUTS; layout++) {
        bool all = !*layouts[layout].words;
        int every = layouts[layout].recipe == GPT2_FP32 ? part : 4 * part; /* meets all digits */
        if (!all && layout % part)
            continue;
        for (int n = 0; n < (all ? OFFLOAD_WAYS : 3); n += all ? every : 1) {
            /* In three runs all of 0, 1, 2 in each of the four digits. */
            int first = (layout * 2 + n) % 3, second = (layout / 3 + n) % 3, third = (n * 2) % 3;
            int fourth = (layout + n * 2) % 3;
            run_one(*state, layout, all ? n : first + 3 * second + 9 * third + 27 * fourth, n);
        }
    }
    print_message("%d runs in %d layouts of %d recipes%s\n", covered.runs, LAYOUTS, WIDE,
                  part > 1 ? " (NOT all: CHECK=all)" : "");
    assert_int_equal(scratch_count(scratch_path(*state, "offload")), 0); /* no file stays */
    if (part > 1)
        return;
    print_message("optimizer, gradients, activations, parameters: runs with none/host/file\n");
    for (int i = 0; i < LAYOUTS; i++)
        cover_line(layouts[i].words, covered.layout[i], true);
    for (int i = 0; i < WIDE; i++)
        cover_line(offload_recipe_names[i], covered.recipe[i], true);
    for (int i = 0; i < POLICIES; i++)
        cover_line(policies[i], covered.policy[i], true);
    for (int way = 0; way < OFFLOAD_WAYS; way++)
        assert_true(covered.way[way] >= 1);
}

CASE_WITH(test_tensors_of_several_windows, tokens_setup, scratch_teardown)
{
    static const int ways[] = {1, 3, 2 + 3 * 2 + 9 + 27 * 2};
    char words[WORDS_MAX];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i += (size_t)check_every(2, 2)) {
        offload_words(ways[i], 1, words, sizeof words);
        check(*state, WIDE, "", words);
    }
}

SUITE_MAIN(NULL, NULL)
