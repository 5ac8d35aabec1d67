/* The recipes that layouts are compared on, and their tokens. */
#include "recipes.h"

#include "../support/examples.h"
#include "../support/extent.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 60000, VOCABULARY = 300, EXAMPLES = 250 };

/* Small, but with everything that layouts cut: heads shared by key/value groups, more layers than
 * stages, padding in the vocabulary, tied tables, clipping and weight decay; leaves of one sequence
 * and of several, batches of 12 leaves, which micro-batches do not divide, and batches that grow.
 * The loss scale of fp16 begins too large, so that some steps are skipped, and grows back. With
 * bf16 moments tp cuts rows of 30 elements, within the 8 whose random bits come together. The other
 * families: norms of heads that ranks share, windows that end inside of a tile, soft caps that
 * bend. Adapters beside some matrices, and beside all; parameters that are frozen, one of them read
 * in a product with others that are not, another one a table of both ends of a pipeline. Frozen
 * matrices in 4 and in 8 bits. Workers that meet after each step, one fragment in turn, and workers
 * of a parameter server. 3 ranks of tp are test_exhaustive's. */
static const char *const common_keys[] = {
    "train.steps=64",      "optim.decay_steps=64",   "optim.lr=2e-3",
    "optim.clip=0.5",      "optim.weight_decay=0.1", "optim.warmup_steps=2",
    "numerics.tp_tiles=4", "log.tensorboard=false",  "log.progress=off",
    "model.vocab=300",     "model.layers=6",         "model.channels=64",
    "model.heads=4",       "model.ffn=128",
};
/* Of `make check`, where the order of sums needs no more: these come before what a recipe says, the
 * others after it. */
static const char *const small_keys[] = {"model.channels=32", "model.ffn=64"};
static const char *const shorter_keys[RECIPES][5] = {
    [1] = {"batch.global=12"},
    [3] = {"batch.global=2"},
    [4] = {"batch.global=4", "numerics.initial_scale_power=25"}, /* of as few tokens */
    [5] = {"batch.global=2"},
    [8] = {"batch.global=12"},
    [9] = {"batch.global=2"},
    [10] = {"model.window=90", "numerics.seq_tiles=2", "data.sequence=256", "model.context=256",
            "batch.global=4"},
    [11] = {"batch.global=2"},
    [12] = {"batch.global=12"},
    [13] = {"batch.global=2"},
    [17] = {"batch.global=4"},
    [18] = {"batch.global=2"},
};
/* Whole blocks of few bits on each of 4 ranks of tp. */
#define BLOCKS "model.channels=64", "model.head_dim=64", "model.ffn=256"
static const char *const recipe_keys[RECIPES][16] = {
    {"model.arch=gpt2", "numerics.precision=fp32", "model.dropout=0.1", "numerics.seq_tiles=2",
     "data.sequence=256", "model.context=256", "batch.global=8", "batch.rampup_start=4",
     "batch.rampup_increment=4", "batch.rampup_samples=4", NULL},
    {"model.arch=gpt2", "numerics.precision=bf16", "numerics.arithmetic=bf16_pairs",
     "numerics.leaf_sequences=3", "data.sequence=64", "model.context=64", "batch.global=24", NULL},
    {"model.arch=gemma3", "numerics.precision=fp32", "model.kv_heads=2", "model.window=50",
     "model.rope_theta=1000000", "numerics.leaf_sequences=2", "data.sequence=128",
     "model.context=128", "batch.global=12", "batch.rampup_start=4", "batch.rampup_increment=4",
     "batch.rampup_samples=8", NULL},
    {"model.arch=llama", "numerics.precision=bf16", "numerics.arithmetic=fma", "model.kv_heads=2",
     "model.tied=true", "numerics.seq_tiles=4", "data.sequence=512", "model.context=512",
     "batch.global=8", "data.packing=documents", NULL},
    {"model.arch=gpt2", "numerics.precision=fp16", "numerics.seq_tiles=3", "data.sequence=384",
     "model.context=384", "batch.global=8", "numerics.initial_scale_power=26",
     "numerics.loss_scale_window=2", "numerics.hysteresis=1", NULL},
    {"model.arch=smollm3", "numerics.precision=fp32", "model.kv_heads=2", "model.channels=48",
     "model.rope_layers=even", "model.head_dim=16", "model.ffn=120", "numerics.seq_tiles=2",
     "data.sequence=256", "model.context=256", "batch.global=8", "optim.moments=bf16", NULL},
    {"model.arch=llama", "numerics.precision=bf16", "numerics.arithmetic=bf16_pairs",
     "model.kv_heads=2", "data.sequence=64", "model.context=64", "batch.global=12",
     "optim.name=muon", "optim.moments=bf16", "optim.adamw_lr=1e-3", NULL},
    {"model.arch=qwen2", "numerics.precision=bf16", "numerics.arithmetic=fma", "model.kv_heads=2",
     "numerics.leaf_sequences=2", "data.sequence=64", "model.context=64", "batch.global=24", NULL},
    {"model.arch=qwen3", "numerics.precision=fp32", "model.kv_heads=1", "model.head_dim=24",
     "numerics.leaf_sequences=3", "data.sequence=64", "model.context=64", "batch.global=24", NULL},
    {"model.arch=olmo3", "numerics.precision=bf16", "numerics.arithmetic=bf16_pairs",
     "model.kv_heads=2", "model.window=90", "model.window_layers=even", "model.rope_theta=500000",
     "numerics.seq_tiles=2", "data.sequence=256", "model.context=256", "batch.global=8", NULL},
    {"model.arch=mistral", "numerics.precision=fp16", "model.kv_heads=2", "model.window=150",
     "numerics.seq_tiles=4", "data.sequence=512", "model.context=512", "batch.global=8", NULL},
    {"model.arch=gemma2", "numerics.precision=fp32", "model.kv_heads=2", "model.head_dim=24",
     "model.window=100", "model.attention_softcap=3", "model.logit_softcap=4",
     "model.query_scale=20", "numerics.seq_tiles=2", "data.sequence=256", "model.context=256",
     "batch.global=8", "data.packing=documents", NULL},
    {"model.arch=phi3", "numerics.precision=bf16", "numerics.arithmetic=bf16_pairs",
     "model.kv_heads=2", "model.window=40", "model.dropout=0.1", "numerics.leaf_sequences=3",
     "data.sequence=64", "model.context=64", "batch.global=24", "lora.rank=3", "lora.alpha=12",
     "lora.targets=qkv_proj,gate_up_proj", NULL},
    {"model.arch=qwen3", "numerics.precision=fp32", "model.kv_heads=1", "numerics.seq_tiles=2",
     "data.sequence=256", "model.context=256", "batch.global=8", "data.packing=documents",
     "lora.rank=5", NULL},
    {"model.arch=llama", "numerics.precision=bf16", "numerics.arithmetic=fma", "model.kv_heads=2",
     "model.tied=true", "numerics.leaf_sequences=2", "data.sequence=64", "model.context=64",
     "batch.global=24", "train.frozen=wte.*,h.0.*,h.1.*,*.attn.v.weight", NULL},
    {"model.arch=gpt2", "numerics.precision=bf16", "numerics.arithmetic=bf16_pairs",
     "model.dropout=0.1", "data.sequence=64", "model.context=64", "batch.global=8",
     "async.mode=diloco", "async.workers=4", "async.sync_every=2", "async.fragments=2",
     "async.mixing=0.25", "async.delta=bf16", NULL},
    {"model.arch=llama", "numerics.precision=fp32", "model.kv_heads=2", "model.tied=true",
     "data.sequence=64", "model.context=64", "batch.global=8", "async.mode=server",
     "async.workers=4", "async.sync_every=1", "async.times=1,2,1,3", "async.staleness=2",
     "async.compensation=0.5", NULL},
    {"model.arch=llama", "numerics.precision=bf16", "numerics.arithmetic=bf16_pairs",
     "model.kv_heads=2", BLOCKS, "data.sequence=64", "model.context=64", "batch.global=8",
     "lora.rank=3", "lora.base=nf4", NULL},
    {"model.arch=gpt2", "numerics.precision=fp32", "model.dropout=0.1", BLOCKS,
     "numerics.seq_tiles=2", "data.sequence=256", "model.context=256", "batch.global=4",
     "lora.rank=5", "lora.targets=c_attn,c_fc", "lora.base=int8", NULL},
};
const char *const recipe_names[RECIPES] = {"gpt2 fp32",   "gpt2 bf16",    "gemma3 fp32",
                                           "llama bf16",  "gpt2 fp16",    "smollm3 bf16 moments",
                                           "llama muon",  "qwen2 bf16",   "qwen3 fp32",
                                           "olmo3 bf16",  "mistral fp16", "gemma2 fp32",
                                           "phi3 lora",   "qwen3 lora",   "llama frozen",
                                           "gpt2 diloco", "llama server", "llama nf4",
                                           "gpt2 int8"};

/* Those of which some tokens count, of two with weights, and those that mix both kinds of tokens.
 */
static const char *const on_examples[RECIPES] = {
    [3] = "examples", [11] = "weighted", [13] = "weighted"};
static const bool on_blends[RECIPES] = {[2] = true, [8] = true};

static void set(struct ls_config *config, const char *assignment)
{
    struct ls_error error = {0};
    if (ls_config_set(config, assignment, &error)) {
        fprintf(stderr, "recipe: %s\n", error.text);
        exit(1);
    }
}

/* Of tokens as targets: some negative, some nothing. */
static void weights_write(const char *folder, int64_t tokens)
{
    char path[512];
    snprintf(path, sizeof path, "%s/weighted_train.weights", folder);
    FILE *file = fopen(path, "wb");
    for (uint32_t i = 0; i < tokens && file; i++) {
        uint32_t counter[4] = {i, 0, 0, 0}, bits[4];
        ls_philox(ls_philox_key_of(5, "weights"), counter, bits);
        float weight = bits[0] % 8 ? 2 * ls_uniform_of(bits[1]) - 0.25f : 0;
        fwrite(&weight, sizeof weight, 1, file);
    }
    if (!file || fclose(file)) {
        fprintf(stderr, "%s: cannot be written\n", path);
        exit(1);
    }
}

/* Examples of prompts and completions of any length. */
static void examples_write(const char *folder)
{
    static char text[EXAMPLES * 600];
    char *at = text;
    for (uint32_t i = 0; i < EXAMPLES; i++) {
        uint32_t counter[4] = {i, 0, 0, 0}, bits[4];
        ls_philox(ls_philox_key_of(5, "examples"), counter, bits);
        at += sprintf(at, "{\"prompt\": \"%0*x\", \"completion\": \"%0*x\"}\n",
                      (int)(bits[0] % 400) + 1, bits[2], (int)(bits[1] % 100) + 1, bits[3]);
    }
    examples_prepare(folder, "examples", text);
    struct ls_prepare_report report = examples_prepare(folder, "weighted", text);
    weights_write(folder, report.train.tokens);
}

void recipe_tokens_write(const char *folder)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tokens.bin", folder);
    FILE *file = fopen(path, "wb");
    struct ls_philox_key key = ls_philox_key_of(5, "tokens");
    for (uint32_t i = 0; i < TOKENS && file; i++) {
        uint32_t counter[4] = {i, 0, 0, 0}, bits[4];
        ls_philox(key, counter, bits);
        /* A skewed distribution, so that there is something to learn. */
        uint16_t token = (uint16_t)((bits[0] % VOCABULARY) * (bits[1] % VOCABULARY) / VOCABULARY);
        fwrite(&token, sizeof token, 1, file);
    }
    if (!file || fclose(file)) {
        fprintf(stderr, "%s: cannot be written\n", path);
        exit(1);
    }
    examples_write(folder);
}

void recipe_config(int recipe, const char *folder, struct ls_config *config)
{
    char key[700];
    struct ls_error error = {0};
    ls_config_defaults(config);
    for (size_t i = 0; i < sizeof common_keys / sizeof *common_keys; i++)
        set(config, common_keys[i]);
    for (size_t i = 0; i < sizeof small_keys / sizeof *small_keys && !check_all(); i++)
        set(config, small_keys[i]);
    for (int i = 0; recipe_keys[recipe][i]; i++)
        set(config, recipe_keys[recipe][i]);
    for (int i = 0; i < 5 && shorter_keys[recipe][i] && !check_all(); i++)
        set(config, shorter_keys[recipe][i]);
    if (on_blends[recipe])
        snprintf(key, sizeof key, "data.blend=0.6 u16:%.250s/tokens.bin 0.4 %.250s/%s_train",
                 folder, folder, recipe == 8 ? "weighted" : "examples");
    else if (on_examples[recipe])
        snprintf(key, sizeof key, "data.train=%s/%s_train", folder, on_examples[recipe]);
    else
        snprintf(key, sizeof key, "data.train=u16:%s/tokens.bin", folder);
    set(config, key);
    snprintf(key, sizeof key, "train.out=%s/none", folder);
    set(config, key);
    if (ls_train_resolve(config, &error)) {
        fprintf(stderr, "recipe: %s\n", error.text);
        exit(1);
    }
}
