/* The memory plan beside what a run takes, and beside the literature's formulas. Nothing but tiny
 * models is allocated: a plan is made by walking the trainer's own code. */
#include "../support/config_words.h"
#include "../support/extent.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "tokens.h"
#include "train/trainer.h"

#include <lockstep/compare.h>
#include <lockstep/train/recorded.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- recipes --------------------------------------------------------------------------------- */

/* The recipe in a layout, without data: plans need none. */
static struct ls_config config_of(const char *recipe, const char *layout)
{
    return config_of_words("%s %s", recipe, layout);
}

static struct ls_memory_plan plan_of(const char *recipe, const char *layout)
{
    struct ls_config config = config_of(recipe, layout);
    struct ls_memory_plan plan;
    struct ls_error error = {0};
    if (ls_plan(&config, &plan, &error))
        fail_msg("%s %s: %s", recipe, layout, error.text);
    return plan;
}

static void near(const char *what, double bytes, double formula, double within)
{
    if (bytes < formula * (1 - within) || bytes > formula * (1 + within))
        fail_msg("%s: the plan has %.0f bytes, the formula gives %.0f: %.4f of it", what, bytes,
                 formula, bytes / formula);
}

/* ---- ZeRO ------------------------------------------------------------------------------------ */

/* Figure 1 of Rajbhandari et al. 2020: 16 bytes a parameter (here 18: gradients are float32), of
 * which stage 1 shards 12, stage 2 also the gradients, stage 3 all. The table of the head is not
 * tied, which would have a second gradient. */
CASE(test_state_is_that_of_the_zero_paper)
{
    static const char recipe[] = "model.preset=gpt2-124m model.vocab=50257 model.tied=false "
                                 "batch.global=64 numerics.leaf_sequences=1";
    const double n = 64;
    struct ls_config config = config_of(recipe, "");
    struct ls_numerics numerics = ls_config_numerics(&config);
    struct ls_params params;
    struct ls_error error = {0};
    assert_int_equal(ls_params_init(&params, &config.model, &numerics, NULL, &error), LS_OK);
    const double p = (double)params.elements;
    ls_params_release(&params);
    const struct {
        const char *layout;
        double parameters, gradients, optimizer; /* bytes a parameter */
    } stages[] = {
        {"parallel.dp_shard=64", 6, 4, 8},
        {"parallel.dp_shard=64 numerics.precision=fp32", 4, 4, 8},
        {"parallel.dp_shard=64 parallel.zero=1", 2 + 4 / n, 4 / n, 8 / n},
        {"parallel.dp_shard=64 parallel.zero=2", 2 + 4 / n, 4 / n, 8 / n},
        {"parallel.dp_shard=64 parallel.zero=3", 6 / n, 4 / n, 8 / n},
        {"parallel.dp_shard=64 parallel.zero=3 optim.moments=bf16", 6 / n, 4 / n, 4 / n},
    };
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        struct ls_memory_plan plan = plan_of(recipe, stages[i].layout);
        near(stages[i].layout, (double)plan.bytes[LS_MEMORY_PARAMETERS], stages[i].parameters * p,
             0.02);
        near(stages[i].layout, (double)plan.bytes[LS_MEMORY_GRADIENTS], stages[i].gradients * p,
             0.02);
        near(stages[i].layout, (double)plan.bytes[LS_MEMORY_OPTIMIZER], stages[i].optimizer * p,
             0.02);
    }
}

/* What is frozen takes 2 bytes a parameter, 4 in fp32, and nothing else; what is trained, here
 * adapters or one block, takes what it always does. */
CASE(test_what_is_frozen_takes_its_values)
{
    static const char recipe[] = "model.preset=llama-8b data.sequence=512 batch.global=8 "
                                 "batch.micro=1 numerics.leaf_sequences=1";
    static const char *const trained[] = {"lora.rank=16 lora.targets=q_proj,v_proj",
                                          "train.frozen=wte.*,head.*,norm_f.*,h.?.*,h.[12]?.*,"
                                          "h.30.*"};
    static const char *const precisions[] = {"numerics.precision=bf16", "numerics.precision=fp32"};
    for (int i = 0; i < 4; i++) {
        char words[256];
        snprintf(words, sizeof words, "%s %s", trained[i / 2], precisions[i % 2]);
        struct ls_config config = config_of(recipe, words);
        struct ls_memory_plan plan = plan_of(recipe, words);
        struct ls_numerics numerics = ls_config_numerics(&config);
        struct ls_params params;
        struct ls_error error = {0};
        assert_int_equal(ls_params_init(&params, &config.model, &numerics, NULL, &error), LS_OK);
        double all = (double)params.weights, some = (double)params.trained;
        ls_params_release(&params);
        assert_true(some > 0 && some < all / 30);
        near(words, (double)(plan.bytes[LS_MEMORY_PARAMETERS] + plan.bytes[LS_MEMORY_OPTIMIZER]),
             (i % 2 ? 4 : 2) * all + (i % 2 ? 8 : 12) * some, 0.001);
        near(words, (double)plan.bytes[LS_MEMORY_GRADIENTS], 4 * some, 0.001);
    }
}

/* QLoRA: matrices of the blocks in 36 or 68 bytes for 64 values, to the byte, and nothing else of
 * them; whatever they are computed in. */
CASE(test_a_base_in_few_bits_takes_its_blocks)
{
    static const char recipe[] = "model.preset=llama-8b data.sequence=512 batch.global=8 "
                                 "batch.micro=1 numerics.leaf_sequences=1 lora.rank=16";
    static const char *const precisions[] = {"numerics.precision=bf16", "numerics.precision=fp32"};
    static const struct {
        const char *words;
        int64_t bytes; /* of 64 values */
    } bases[] = {{"lora.base=nf4", 36}, {"lora.base=int8", 68}};
    for (int i = 0; i < 4; i++) {
        char words[256];
        int64_t values = 0, each = i % 2 ? 4 : 2;
        struct ls_error error = {0};
        struct ls_params params;
        snprintf(words, sizeof words, "%s", precisions[i % 2]);
        struct ls_memory_plan none = plan_of(recipe, words);
        snprintf(words, sizeof words, "%s %s", precisions[i % 2], bases[i / 2].words);
        struct ls_memory_plan plan = plan_of(recipe, words);
        struct ls_config config = config_of(recipe, words);
        struct ls_numerics numerics = ls_config_numerics(&config);
        assert_int_equal(ls_params_init(&params, &config.model, &numerics, NULL, &error), LS_OK);
        for (int p = 0; p < params.count; p++)
            values += params.list[p].hidden ? ls_param_elements(&params.list[p]) : 0;
        ls_params_release(&params);
        assert_int_equal((int64_t)none.total - (int64_t)plan.total,
                         values * each - values / 64 * bases[i / 2].bytes);
        assert_int_equal((int64_t)none.bytes[LS_MEMORY_PARAMETERS] -
                             (int64_t)plan.bytes[LS_MEMORY_PARAMETERS],
                         (int64_t)none.total - (int64_t)plan.total);
    }
}

/* Workers that a rank computes in turn, and the global parameters, share what is frozen: beside it
 * each has what it trains. */
CASE(test_workers_hold_what_is_frozen_once)
{
    static const char recipe[] = "model.preset=llama-8b data.sequence=512 batch.global=8 "
                                 "batch.micro=1 numerics.leaf_sequences=1 lora.rank=16";
    static const char *const kinds[] = {"lora.base=nf4 numerics.precision=bf16",
                                        "lora.base=int8 numerics.precision=bf16",
                                        "numerics.precision=bf16", "numerics.precision=fp16"};
    static const char *const layouts[] = {
        "", "parallel.tp=2", "parallel.dp_shard=4 parallel.zero=1",
        "parallel.dp_shard=4 parallel.zero=2", "parallel.dp_shard=4 parallel.zero=3"};
    for (int i = 0; i < 20; i++) {
        size_t optimizer[2];
        char words[512];
        snprintf(words, sizeof words, "%s %s", kinds[i % 4], layouts[i / 4]);
        struct ls_memory_plan sync = plan_of(recipe, words);
        for (int more = 0; more < 2; more++) {
            snprintf(words, sizeof words, "%s %s async.mode=diloco async.workers=%d", kinds[i % 4],
                     layouts[i / 4], 2 + more);
            struct ls_memory_plan plan = plan_of(recipe, words);
            assert_int_equal(plan.bytes[LS_MEMORY_PARAMETERS], sync.bytes[LS_MEMORY_PARAMETERS]);
            optimizer[more] = plan.bytes[LS_MEMORY_OPTIMIZER];
        }
        assert_int_equal(optimizer[1] - optimizer[0], sync.bytes[LS_MEMORY_OPTIMIZER]);
    }
    /* In a tier, where its copies come and go, each unit has its own. */
    struct ls_memory_plan sync = plan_of(recipe, "numerics.precision=bf16 "
                                                 "memory.offload.parameters=host");
    struct ls_memory_plan plan =
        plan_of(recipe, "numerics.precision=bf16 memory.offload.parameters=host async.mode=diloco "
                        "async.workers=2");
    assert_true(plan.tiers[LS_TIER_HOST] >= 2 * sync.tiers[LS_TIER_HOST]);
}

/* Muon: one state of a block's matrix, two of the rest, which is wherever AdamW's is; and beside
 * its states what it works in, of the largest matrix alone: a copy that it orthogonalises, its next
 * one, two of the smaller side squared, and where ranks meet the parts that come. */
CASE(test_muon_has_one_state_of_a_matrix)
{
    static const char recipe[] = "model.preset=gpt2-124m model.vocab=50257 model.tied=false "
                                 "batch.global=64 batch.micro=1 numerics.leaf_sequences=1";
    static const struct {
        const char *layout;
        double ranks;
    } layouts[] = {{"", 1},
                   {"parallel.dp=64", 1},
                   {"parallel.dp_shard=64 parallel.zero=1", 64},
                   {"parallel.dp_shard=64 parallel.zero=3", 64},
                   {"parallel.tp=4", 4}};
    const double hidden = 12.0 * 12 * 768 * 768, largest = 4.0 * 768 * 3072, gram = 4.0 * 768 * 768;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char words[200];
        snprintf(words, sizeof words, "%s optim.name=muon", layouts[i].layout);
        struct ls_memory_plan muon = plan_of(recipe, words);
        struct ls_memory_plan adamw = plan_of(recipe, layouts[i].layout);
        near(words, (double)(adamw.bytes[LS_MEMORY_OPTIMIZER] - muon.bytes[LS_MEMORY_OPTIMIZER]),
             4 * hidden / layouts[i].ranks, 0.001);
        near(words, (double)(muon.bytes[LS_MEMORY_WORKSPACE] - adamw.bytes[LS_MEMORY_WORKSPACE]),
             (*layouts[i].layout ? 3 : 2) * largest + 2 * gram, 0.001);
        strcat(words, " optim.moments=bf16");
        near(words, (double)plan_of(recipe, words).bytes[LS_MEMORY_OPTIMIZER],
             (double)muon.bytes[LS_MEMORY_OPTIMIZER] / 2, 0.001);
    }
}

/* Two bytes a moment instead of four, wherever it is held: to the byte, and nothing else moves. The
 * arena hands out multiples of 64 bytes. */
CASE(test_bf16_moments_have_two_bytes)
{
    static const char recipe[] = "model.preset=gpt2-124m model.vocab=50257 batch.global=64 "
                                 "batch.micro=1 numerics.seq_tiles=2";
    static const struct {
        const char *words;
        size_t states;
    } optimizers[] = {{"optim.name=adamw", 2}, {"optim.name=lion", 1}, {"optim.name=sgd", 1}};
    static const char *const layouts[] = {"",
                                          "parallel.dp_shard=64 parallel.zero=1",
                                          "parallel.dp_shard=64 parallel.zero=2",
                                          "parallel.dp_shard=64 parallel.zero=3",
                                          "parallel.tp=4",
                                          "parallel.pp=3",
                                          "parallel.cp=2",
                                          "parallel.dp=8",
                                          ("parallel.tp=2 parallel.pp=2 parallel.dp_shard=3 "
                                           "parallel.zero=1 batch.global=48")};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
            char words[200];
            snprintf(words, sizeof words, "%s %s", layouts[i], optimizers[o].words);
            struct ls_memory_plan wide = plan_of(recipe, words);
            snprintf(words, sizeof words, "%s %s optim.moments=bf16", layouts[i],
                     optimizers[o].words);
            struct ls_memory_plan half = plan_of(recipe, words);
            size_t elements = wide.bytes[LS_MEMORY_OPTIMIZER] / optimizers[o].states / 4;
            size_t want = optimizers[o].states * (size_t)ls_round_up(2 * (int64_t)elements, 64);
            if (elements == 0 || half.bytes[LS_MEMORY_OPTIMIZER] != want)
                fail_msg("%s: %zu bytes of moments, expected %zu of %zu elements", words,
                         half.bytes[LS_MEMORY_OPTIMIZER], want, elements);
            half.bytes[LS_MEMORY_OPTIMIZER] = wide.bytes[LS_MEMORY_OPTIMIZER];
            assert_memory_equal(half.bytes, wide.bytes, sizeof half.bytes);
        }
}

/* One gradient, however many leaves and micro-batches; a second one where a leaf that is not the
 * first lasts several micro-batches. */
CASE(test_gradients_are_one)
{
    static const char recipe[] = "model.preset=gpt2-tiny model.vocab=257 batch.global=16";
    double one = (double)plan_of(recipe, "batch.micro=16").bytes[LS_MEMORY_GRADIENTS];
    static const struct {
        const char *keys;
        double times;
    } cases[] = {{"batch.micro=1", 1},
                 {"batch.micro=1 numerics.mode=fast", 1},
                 {"batch.micro=4 numerics.leaf_sequences=4", 1},
                 {"batch.micro=2 numerics.leaf_sequences=4", 2},
                 {"batch.micro=2 numerics.leaf_sequences=16", 1},
                 {"batch.micro=2 numerics.leaf_sequences=4 parallel.dp=4", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        near(cases[i].keys, (double)plan_of(recipe, cases[i].keys).bytes[LS_MEMORY_GRADIENTS],
             one * cases[i].times, 0.001);
}

/* What order costs beside mode fast: nothing on one rank, nor at the largest dp that a recipe
 * admits by default, with micro-batches of a leaf in both modes. */
CASE(test_order_costs_little)
{
    static const struct {
        const char *recipe;
        int64_t leaves; /* at least: 16, and 64 from 8B parameters */
    } recipes[] = {
        {"model.preset=gpt2-tiny data.sequence=64 batch.global=16", 16},
        {"model.preset=gpt2-124m data.sequence=1024 batch.global=512", 16},
        {"model.preset=gpt2-350m data.sequence=1024 batch.global=512", 16},
        {"model.preset=gpt2-774m data.sequence=1024 batch.global=512", 16},
        {"model.preset=gpt2-1558m data.sequence=1024 batch.global=1024", 16},
        {"model.preset=llama-tiny data.sequence=64 batch.global=16", 16},
        {"model.preset=llama-1b data.sequence=8192 batch.global=256", 16},
        {"model.preset=llama-3b data.sequence=8192 batch.global=256", 16},
        {"model.preset=llama-8b data.sequence=8192 batch.global=512", 64},
        {"model.preset=llama-70b data.sequence=8192 batch.global=1024", 64},
        {"model.preset=llama-405b data.sequence=8192 batch.global=2048", 64},
    };
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        char words[200];
        const char *vocab =
            strstr(recipes[i].recipe, "llama") ? "model.vocab=128256" : "model.vocab=50257";
        struct ls_config config = config_of(recipes[i].recipe, vocab);
        int64_t leaves = config.batch.global / config.numerics.leaf_sequences;
        assert_true(leaves >= recipes[i].leaves);
        for (int zero = -1; zero <= 3; zero++) {
            snprintf(words, sizeof words, "%s parallel.dp=%ld parallel.zero=%d batch.micro=%ld",
                     vocab, zero < 0 ? 1L : (long)leaves, (int)ls_max(zero, 0),
                     (long)config.numerics.leaf_sequences);
            double ordered = (double)plan_of(recipes[i].recipe, words).total;
            strcat(words, " numerics.mode=fast");
            double fast = (double)plan_of(recipes[i].recipe, words).total;
            print_message("%-62s dp %4ld, zero %2d: %7.1f GiB, %.3f of fast\n", recipes[i].recipe,
                          zero < 0 ? 1L : (long)leaves, zero, ordered / 0x1p30, ordered / fast);
            if (ordered > fast * (zero < 0 ? 1.35 : 1.10))
                fail_msg("%s %s: ordered takes %.3f of fast", recipes[i].recipe, words,
                         ordered / fast);
        }
    }
}

/* ---- activations ----------------------------------------------------------------------------- */

/* A value of memory.recompute: what a block or a segment of blocks keeps, and the blocks of a
 * segment (0: the square root of a stage's, rounded up). */
struct policy {
    const char *name;
    enum ls_recompute keeps;
    int64_t segment;
    bool partition; /* memory.partition_activations */
};
static const struct policy policies[] = {
    {"none", LS_RECOMPUTE_NONE, 1, false},    {"selective", LS_RECOMPUTE_SELECTIVE, 1, false},
    {"full", LS_RECOMPUTE_FULL, 1, false},    {"every:2", LS_RECOMPUTE_FULL, 2, false},
    {"every:3", LS_RECOMPUTE_FULL, 3, false}, {"sqrt", LS_RECOMPUTE_FULL, 0, false},
    {"full", LS_RECOMPUTE_FULL, 1, true},     {"every:2", LS_RECOMPUTE_FULL, 2, true},
    {"sqrt", LS_RECOMPUTE_FULL, 0, true},
};
enum { POLICIES = sizeof policies / sizeof *policies };

/* Bytes of a micro-batch, before tensor parallel: `whole` of values of the stream, `cut` of those
 * of which a rank has its heads' or its ffn's part; and their statistics, in float32. */
struct kept {
    int64_t whole, cut, whole_statistics, cut_statistics;
};

/* By the shapes of the values that a block, or the segment that it begins, keeps. */
static struct kept kept_of(const struct ls_layout *l, enum ls_recompute keeps)
{
    const struct ls_model_config *m = &l->model;
    int64_t rows = l->micro_sequences * l->sequence / l->size[LS_AXIS_CP];
    int64_t width = rows * (int64_t)ls_dtype_bytes(l->numerics.act);
    int64_t o = m->heads * m->head_dim, qkv = o + 2 * m->kv_heads * m->head_dim;
    int64_t f = m->act == LS_ACT_SWIGLU ? 2 * m->ffn : m->ffn, g = m->ffn, h = m->channels;
    int64_t norms = 4 * rows * 2 * (m->arch == LS_GPT2 ? 2 : 1); /* mean and rstd, or rstd */
    switch (keeps) {
    case LS_RECOMPUTE_NONE: /* a1, h1, a2, out */
        return (struct kept){width * 4 * h, width * (qkv + o + f + g), norms, 4 * rows * m->heads};
    case LS_RECOMPUTE_SELECTIVE: /* h1, out */
        return (struct kept){width * 2 * h, width * (qkv + f), norms, 0};
    default: /* the input */
        return (struct kept){width * h, 0, 0, 0};
    }
}

/* Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", count
 * s b h (10 + 24 / t) bytes of a block, and 5 a s^2 b / t of attention's matrices, which selective
 * recomputation gives up and which never exist here; full recomputation keeps 2 s b h. Here
 * dropout's masks are drawn again (2), and selective recomputation gives up what else costs little:
 * the norms' outputs (4), attention's (2) and the activation's (8). */
CASE(test_formulas_are_korthikantis_less_what_is_given_up)
{
    static const struct {
        enum ls_recompute keeps;
        int64_t whole, cut, masks, norms, attention, activation;
    } book[] = {{LS_RECOMPUTE_NONE, 10, 24, 2, 0, 0, 0},
                {LS_RECOMPUTE_SELECTIVE, 10, 24, 2, 4, 2, 8},
                {LS_RECOMPUTE_FULL, 2, 0, 0, 0, 0, 0}};
    static struct ls_layout l;
    struct ls_error error = {0};
    struct ls_config config =
        config_of("model.preset=gpt2-124m model.vocab=50257 batch.global=8", "batch.micro=4");
    assert_int_equal(ls_config_layout(&config, 0, &l, &error), LS_OK);
    const int64_t sbh = 1024 * 4 * 768;
    for (size_t i = 0; i < sizeof book / sizeof *book; i++) {
        struct kept kept = kept_of(&l, book[i].keeps);
        assert_int_equal(kept.whole, sbh * (book[i].whole - book[i].masks - book[i].norms));
        assert_int_equal(kept.cut, sbh * (book[i].cut - book[i].attention - book[i].activation));
    }
}

/* What the blocks of a stage keep of a micro-batch by the policy. */
static int64_t stage_kept(const struct ls_layout *l, const struct policy *policy, int64_t blocks)
{
    struct kept kept = kept_of(l, policy->keeps);
    int64_t tp = l->size[LS_AXIS_TP], segment = policy->segment;
    int64_t shares = l->sp || policy->partition ? tp : 1;
    while (policy->segment == 0 && segment * segment < blocks)
        segment++;
    return ls_ceil_div(blocks, segment) *
           ((kept.whole + kept.whole_statistics) / shares + (kept.cut + kept.cut_statistics) / tp);
}

/* Activations of the first stage of 12 or 24 blocks, in the plan and by the formula, which counts
 * blocks alone. */
struct depth {
    int64_t planned, formula;
};
static struct depth depth_of(const char *recipe, const char *layout, const struct policy *policy,
                             int64_t blocks)
{
    static struct ls_layout l;
    struct ls_memory_plan plan;
    struct ls_error error = {0};
    struct ls_config config = config_of_words(
        "%s model.layers=%ld batch.global=64 %s memory.recompute=%s "
        "memory.partition_activations=%s",
        recipe, (long)blocks, layout, policy->name, policy->partition ? "true" : "false");
    if (ls_config_layout(&config, 0, &l, &error) || ls_plan_rank(&config, &l, 0, &plan, &error))
        fail_msg("%s memory.recompute=%s: %s", layout, policy->name, error.text);
    int64_t first_end = ls_min(l.stage_first[1], blocks + 1); /* layer 0 is the embedding */
    return (struct depth){(int64_t)plan.bytes[LS_MEMORY_ACTIVATIONS],
                          plan.live * stage_kept(&l, policy, first_end - 1)};
}

/* What twelve more blocks keep. */
static struct depth twelve_more(const char *recipe, const char *layout, const struct policy *policy)
{
    struct depth few = depth_of(recipe, layout, policy, 12);
    struct depth many = depth_of(recipe, layout, policy, 24);
    return (struct depth){many.planned - few.planned, many.formula - few.formula};
}

static const char gpt2[] = "model.preset=gpt2-124m model.vocab=50257";
static const char llama[] = "model.arch=llama model.vocab=50257 model.channels=768 model.heads=12 "
                            "model.kv_heads=4 model.ffn=2048 model.context=1024";

static void check_kept(const char *recipe, const char *layout)
{
    for (int i = 0; i < POLICIES; i++) {
        struct depth kept = twelve_more(recipe, layout, &policies[i]);
        if (kept.planned != kept.formula)
            fail_msg("%s %s memory.recompute=%s: blocks keep %ld bytes, the formula gives %ld",
                     recipe, layout, policies[i].name, (long)kept.planned, (long)kept.formula);
    }
}

CASE(test_blocks_keep_what_the_formula_says)
{
#ifdef LS_MEMORY_CHECK
    skip(); /* a guard lies behind every value of a debug build */
#endif
    static const char *const layouts[] = {
        "batch.micro=1",
        "batch.micro=4 model.dropout=0.1",
        "batch.micro=4 numerics.precision=fp32",
        "batch.micro=4 parallel.tp=4 parallel.sp=false",
        "batch.micro=4 parallel.tp=4 parallel.sp=true",
        "batch.micro=1 parallel.pp=4",
        "batch.micro=1 parallel.pp=4 parallel.schedule=gpipe",
        "batch.micro=1 parallel.cp=2 numerics.seq_tiles=2",
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        check_kept(gpt2, layouts[i]);
        check_kept(llama, layouts[i]);
    }
}

/* The broken twin: no policy's plan passes for another's. */
CASE(test_another_policy_is_seen)
{
    struct depth kept[POLICIES];
    for (int i = 0; i < POLICIES; i++)
        kept[i] = twelve_more(gpt2, "batch.micro=4 parallel.tp=4 parallel.sp=false", &policies[i]);
    for (int i = 0; i < POLICIES * POLICIES; i++)
        if (i / POLICIES != i % POLICIES)
            assert_int_not_equal(kept[i / POLICIES].planned, kept[i % POLICIES].formula);
}

/* What a block of the middle takes where it and those before it give up that much. */
static struct ls_layer_bytes middle_of(const struct ls_layout *l, const struct ls_params *params,
                                       enum ls_recompute first, enum ls_recompute middle)
{
    enum { BLOCK = 6 };
    unsigned char recompute[LS_LAYOUT_LAYERS_MAX + 2];
    struct ls_arena measure;
    struct ls_model *model;
    struct ls_layer_bytes bytes;
    struct ls_error error = {0};
    memset(recompute, first, sizeof recompute);
    memset(recompute + BLOCK, middle, sizeof recompute - BLOCK);
    struct ls_model_options options = {.config = &l->model,
                                       .numerics = &l->numerics,
                                       .params = params,
                                       .sequences = l->micro_sequences,
                                       .tokens = l->sequence,
                                       .slots = 1,
                                       .training = true,
                                       .recompute = recompute};
    ls_arena_measure(&measure);
    assert_int_equal(ls_model_new(&options, &measure, &model, &error), LS_OK);
    ls_model_layer_bytes(model, BLOCK, &bytes);
    ls_model_free(model);
    return bytes;
}

/* What a block does not keep is made again, and nothing else: both together are what it keeps
 * without recomputation. A block inside of a segment keeps nothing at all. */
static void check_again(const char *recipe)
{
    static struct ls_layout l;
    struct ls_params params;
    struct ls_error error = {0};
    struct ls_config config = config_of(recipe, "batch.micro=2 batch.global=8 model.layers=12");
    assert_int_equal(ls_config_layout(&config, 0, &l, &error), LS_OK);
    assert_int_equal(ls_params_init(&params, &l.model, &l.numerics, NULL, &error), LS_OK);
    struct ls_layer_bytes none = middle_of(&l, &params, LS_RECOMPUTE_NONE, LS_RECOMPUTE_NONE);
    assert_int_equal(none.again, 0);
    for (int policy = LS_RECOMPUTE_SELECTIVE; policy <= LS_RECOMPUTE_JOIN; policy++) {
        enum ls_recompute middle = (enum ls_recompute)policy;
        struct ls_layer_bytes given = middle_of(&l, &params, LS_RECOMPUTE_FULL, middle);
        assert_int_equal(given.kept + given.again, none.kept);
        assert_int_equal(given.kept == 0, middle == LS_RECOMPUTE_JOIN);
    }
    ls_params_release(&params);
}

CASE(test_what_is_not_kept_is_made_again)
{
    check_again(gpt2);
    check_again(llama);
}

CASE(test_live_micro_batches)
{
    static const char recipe[] = "model.preset=gpt2-124m model.vocab=50257 batch.global=16 "
                                 "batch.micro=1";
    assert_int_equal(plan_of(recipe, "parallel.pp=4").live, 4);
    assert_int_equal(plan_of(recipe, "parallel.pp=4 parallel.schedule=gpipe").live, 16);
    assert_int_equal(plan_of(recipe, "").live, 1);
}

/* ---- what is taken --------------------------------------------------------------------------- */

static void drawing_recipes(const char *directory, struct ls_config recipes[3])
{
    static const char *const texts[3] = {
        "model.arch=gpt2 model.layers=4 model.channels=64 model.heads=4 model.context=64 "
        "model.dropout=0.1 data.sequence=64 batch.global=24 numerics.precision=bf16",
        "model.arch=llama model.layers=3 model.channels=64 model.heads=8 model.kv_heads=2 "
        "model.ffn=128 model.context=64 data.sequence=64 batch.global=16 numerics.precision=fp32 "
        "model.tied=true optim.name=lion",
        "model.arch=gpt2 model.layers=4 model.channels=64 model.heads=4 model.context=512 "
        "data.sequence=512 numerics.seq_tiles=4 batch.global=8 optim.name=sgd",
    };
    for (int i = 0; i < 3; i++)
        recipes[i] = config_of_words(
            "%s model.vocab=300 log.progress=off parallel.threads=1 data.train=u16:%s/tokens.bin",
            texts[i], directory);
}

struct taken {
    const struct ls_config *config;
    const struct ls_layout *layout;
};

/* Each rank's arena is full to the byte, and is what anybody can plan for that rank. */
static int taken_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct taken *taken = user;
    struct ls_trainer *t = NULL;
    struct ls_memory_plan plan;
    int status = ls_trainer_new(taken->config, world, NULL, &t, error);
    if (!status)
        status = ls_plan_rank(taken->config, taken->layout, ls_comm_rank(world), &plan, error);
    if (!status) {
        size_t sum = 0;
        for (int kind = 0; kind < LS_MEMORY_KINDS; kind++)
            sum += plan.bytes[kind];
        const struct ls_arena *arena = &t->memory.arena;
        if (sum != plan.total || arena->used != sum || arena->size != sum || arena->peak != sum)
            status = ls_error_set(error, LS_EINVAL,
                                  "planned %zu bytes, their sum is %zu; taken %zu of %zu, at most "
                                  "%zu",
                                  plan.total, sum, arena->used, arena->size, arena->peak);
    }
    ls_trainer_free(t);
    return status;
}

CASE(test_the_plan_is_what_is_taken)
{
    const int count = 120 / check_every(6, 3);
    struct ls_config recipes[3], drawn;
    struct ls_layout *layout = malloc(sizeof *layout);
    int made = 0;
    assert_non_null(layout);
    drawing_recipes(*state, recipes);
    for (int i = 0; i < count; i++) {
        const struct ls_draw draw = {.seed = 5, .index = (uint64_t)i, .ranks_max = 8};
        struct ls_error error = {0};
        char text[600];
        if (!ls_draw_layout(&recipes[i % 3], &draw, &drawn))
            continue;
        ls_config_layout_text(&drawn, NULL, text, sizeof text);
        struct taken taken = {.config = &drawn, .layout = layout};
        if (ls_config_layout(&drawn, 0, layout, &error) ||
            ls_world_run((int)layout->ranks, taken_body, &taken, &error))
            fail_msg("recipe %d, %s: %s", i % 3, text, error.text);
        made++;
    }
    static const char *const frozen[] = {
        "lora.base=nf4 numerics.precision=bf16", "lora.base=int8 parallel.tp=2",
        "parallel.dp_shard=2 parallel.zero=3", "parallel.dp_shard=2 parallel.zero=1"};
    for (int i = 0; i < 4; i++) {
        struct ls_config config = config_of_words(
            "model.layers=2 model.channels=128 model.heads=4 model.ffn=128 model.context=64 "
            "model.vocab=300 data.sequence=64 batch.global=8 lora.rank=4 async.mode=diloco "
            "async.workers=3 log.progress=off parallel.threads=1 data.train=u16:%s/tokens.bin %s",
            (char *)*state, frozen[i]);
        struct taken taken = {.config = &config, .layout = layout};
        struct ls_error error = {0};
        if (ls_config_layout(&config, 0, layout, &error) ||
            ls_world_run((int)layout->ranks, taken_body, &taken, &error))
            fail_msg("workers, %s: %s", frozen[i], error.text);
    }
    free(layout);
    assert_true(made >= count * 5 / 6);
}

/* Every rank of a pipeline rank takes the same, so that one plan speaks for all. */
CASE(test_ranks_of_a_pipeline_rank_take_the_same)
{
    struct ls_config recipes[3], drawn;
    struct ls_layout *layout = malloc(sizeof *layout);
    assert_non_null(layout);
    drawing_recipes(*state, recipes);
    for (int i = 0; i < 60; i++) {
        const struct ls_draw draw = {.seed = 6, .index = (uint64_t)i, .ranks_max = 16};
        struct ls_error error = {0};
        if (!ls_draw_layout(&recipes[i % 3], &draw, &drawn) ||
            ls_config_layout(&drawn, 0, layout, &error))
            continue;
        struct ls_memory_plan first, plan;
        for (int64_t rank = 0; rank < layout->ranks; rank++) {
            assert_int_equal(ls_plan_rank(&drawn, layout, rank, &plan, &error), LS_OK);
            if (rank % (layout->ranks / layout->size[LS_AXIS_PP]) == 0)
                first = plan;
            assert_memory_equal(plan.bytes, first.bytes, sizeof plan.bytes);
        }
    }
    free(layout);
}

/* ---- when ------------------------------------------------------------------------------------ */

struct seen {
    const struct ls_memory_plan *plan;
    size_t most[LS_MEMORY_KINDS];
    int64_t moments;
    enum ls_memory_phase last;
};

/* Nothing is in use that was not planned. */
static int within_visit(void *user, const struct ls_memory_moment *moment, struct ls_error *error)
{
    struct seen *seen = user;
    size_t sum = 0;
    for (int kind = 0; kind < LS_MEMORY_KINDS; kind++) {
        size_t bytes = moment->bytes[kind];
        sum += bytes;
        seen->most[kind] = bytes > seen->most[kind] ? bytes : seen->most[kind];
        if (bytes > seen->plan->bytes[kind])
            return ls_error_set(error, LS_EINVAL, "%s: %s, %zu bytes in use of %zu",
                                ls_memory_moment_text(moment).text,
                                ls_memory_name((enum ls_memory_kind)kind), bytes,
                                seen->plan->bytes[kind]);
    }
    assert_int_equal(sum, moment->all);
    seen->moments++;
    seen->last = moment->phase;
    return LS_OK;
}

static struct seen seen_of(const struct ls_config *config, int64_t rank,
                           struct ls_memory_plan *plan)
{
    static struct ls_layout layout;
    struct seen seen = {.plan = plan};
    struct ls_error error = {0};
    char text[600];
    ls_config_layout_text(config, NULL, text, sizeof text);
    if (ls_config_layout(config, 0, &layout, &error) ||
        ls_plan_rank(config, &layout, rank % layout.ranks, plan, &error) ||
        ls_memory_timeline(config, &layout, rank % layout.ranks, within_visit, &seen, &error))
        fail_msg("%s: %s", text, error.text);
    assert_int_equal(seen.last, LS_MEMORY_UPDATE);
    return seen;
}

CASE(test_what_is_in_use_was_planned)
{
    struct ls_config recipes[3], drawn;
    drawing_recipes(*state, recipes);
    for (int i = 0; i < 120; i++) {
        const struct ls_draw draw = {.seed = 7, .index = (uint64_t)i, .ranks_max = 8};
        struct ls_memory_plan plan;
        if (ls_draw_layout(&recipes[i % 3], &draw, &drawn))
            seen_of(&drawn, i, &plan);
    }
    /* The head's gradient and the table's are the two largest, and neighbours in time. */
    static const char *const tied[] = {"parallel.zero=1", "parallel.zero=2", "parallel.zero=3"};
    for (size_t i = 0; i < sizeof tied / sizeof tied[0]; i++) {
        struct ls_memory_plan plan;
        drawn = config_of("model.preset=gpt2-124m model.vocab=50257 batch.global=64 batch.micro=4 "
                          "parallel.dp=4",
                          tied[i]);
        seen_of(&drawn, 0, &plan);
    }
}

/* On one rank all that is kept is in use before the first backward, all buffers of gradients when
 * the tree is deepest, and the workspace in the layer that needs most. */
CASE(test_all_that_is_planned_is_used)
{
    struct ls_config recipes[3];
    drawing_recipes(*state, recipes);
    for (int i = 0; i < 2; i++) {
        struct ls_memory_plan plan;
        struct ls_config config = recipes[i];
        config.batch.micro = 1;
        config.batch.global = 16;
        struct seen seen = seen_of(&config, 0, &plan);
        assert_int_equal(seen.most[LS_MEMORY_ACTIVATIONS], plan.bytes[LS_MEMORY_ACTIVATIONS]);
        near("gradients", (double)seen.most[LS_MEMORY_GRADIENTS],
             (double)plan.bytes[LS_MEMORY_GRADIENTS], 0.001);
        near("workspace", (double)seen.most[LS_MEMORY_WORKSPACE],
             (double)plan.bytes[LS_MEMORY_WORKSPACE], 0.05);
        int64_t layers = config.model.layers + 2;
        assert_true(seen.moments >= 16 * 3 * (layers - 1));
    }
}

/* ---- what is frozen below -------------------------------------------------------------------- */

static int lowest_visit(void *user, const struct ls_memory_moment *moment, struct ls_error *error)
{
    int *lowest = user;
    if (moment->phase >= LS_MEMORY_AGAIN && moment->layer >= 0 && moment->layer < *lowest)
        *lowest = moment->layer;
    return LS_OK;
}

/* Operations of a step, as the trainer records them. */
static double flops_of(const struct ls_config *config, const struct ls_layout *layout)
{
    struct ls_recording recording;
    struct ls_error error = {0};
    int64_t leaves[] = {layout->ramp.full}, begins[1];
    double flops = 0;
    ls_recording_init(&recording);
    recording.wants_works = true;
    assert_ok(ls_record_steps(config, layout, 0, 1, leaves, &recording, begins, &error), error);
    for (int64_t i = 0; i < recording.done_count; i++)
        flops += recording.works[recording.done[i].work].flops;
    ls_recording_release(&recording);
    return flops;
}

/* Below the lowest layer that is trained nothing is computed but the forward, and the plan says so.
 * Segments of layers that are made again reach below it. */
CASE(test_the_backward_ends_where_nothing_is_trained_below)
{
    static const struct {
        const char *keys;
        int lowest;
    } cases[] = {{"", 0},
                 {"train.frozen=wte.*", 1},
                 {"lora.rank=2", 1},
                 {"train.frozen=wte.*,h.0.*,h.2.*,*.attn.q.*", 2},
                 {"train.frozen=wte.*,h.?.* memory.recompute=sqrt", 11},
                 {"train.frozen=wte.*,h.*", 13}};
    static struct ls_layout layout;
    double flops[6];
    for (int i = 0; i < 6; i++) {
        int lowest = 100;
        struct ls_error error = {0};
        struct ls_config config = config_of(
            "model.arch=llama model.layers=12 model.channels=64 model.heads=2 model.vocab=100 "
            "model.vocab_multiple=4 model.context=64 data.sequence=64 batch.global=2",
            cases[i].keys);
        assert_int_equal(ls_model_lowest_trained(&config.model), cases[i].lowest);
        if (ls_config_layout(&config, 0, &layout, &error) ||
            ls_memory_timeline(&config, &layout, 0, lowest_visit, &lowest, &error))
            fail_msg("%s: %s", cases[i].keys, error.text);
        if (i != 4)
            assert_int_equal(lowest, cases[i].lowest);
        flops[i] = flops_of(&config, &layout);
    }
    /* The forward is a third of all. */
    assert_true(flops[5] > 0.3 * flops[0] && flops[5] < 0.4 * flops[0]);
    assert_true(flops[3] < flops[1] && flops[4] < 0.55 * flops[0]);
}

SUITE_MAIN(tokens_setup, scratch_teardown)
