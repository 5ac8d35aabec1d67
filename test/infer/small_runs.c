/* Small runs of every family, trained for a step, and their layouts. */
#include "small_runs.h"

#include "../support/scratch.h"
#include "../support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where there are fewer key/value heads than heads, the widest cut has more ranks than them. */
static const char *const models[RUNS][10] = {
    {"numerics.precision=fp32", "model.arch=gpt2", "model.heads=4", "model.tied=true",
     "model.layers=3", "model.ffn=96"},
    {"numerics.precision=fp32", "model.arch=llama", "model.heads=4", "model.kv_heads=2",
     "model.layers=2", "model.ffn=56", "model.rope_factor=4", "model.rope_original_context=64"},
    {"numerics.precision=bf16", "model.arch=gpt2", "model.heads=4", "model.layers=3"},
    {"numerics.precision=bf16", "model.arch=smollm3", "model.heads=4", "model.layers=2",
     "model.ffn=56", "model.rope_layers=even"},
    {"numerics.precision=fp16", "model.arch=qwen2", "model.heads=4", "model.kv_heads=2",
     "model.layers=2", "model.ffn=56", "model.tied=true"},
    {"numerics.precision=bf16", "model.arch=qwen3", "model.heads=4", "model.kv_heads=2",
     "model.head_dim=16", "model.layers=2", "model.ffn=56"},
    {"numerics.precision=bf16", "model.arch=gemma2", "model.heads=4", "model.kv_heads=2",
     "model.layers=2", "model.ffn=56", "model.window=40"},
    {"numerics.precision=fp32", "model.arch=gemma3", "model.heads=4", "model.kv_heads=1",
     "model.head_dim=16", "model.layers=2", "model.ffn=56", "model.window=30",
     "model.window_layers=even", "model.rope_theta=1000000"},
    {"numerics.precision=fp32", "model.arch=mistral", "model.heads=4", "model.kv_heads=2",
     "model.layers=2", "model.ffn=56", "model.window=70"},
    {"numerics.precision=bf16", "model.arch=phi3", "model.heads=4", "model.kv_heads=2",
     "model.layers=2", "model.ffn=56", "model.window=50"},
    {"numerics.precision=bf16", "model.arch=olmo3", "model.heads=4", "model.kv_heads=2",
     "model.layers=2", "model.ffn=56", "model.window=30", "model.window_layers=even",
     "model.rope_theta=500000"},
    [ADAPTED_RUN] = {"numerics.precision=bf16", "model.arch=llama", "model.heads=4",
                     "model.kv_heads=2", "model.layers=2", "model.ffn=56", "lora.rank=3",
                     "optim.lr=0.1"},
};

static const char *const recipe[] = {"model.vocab_multiple=8",
                                     "model.channels=32",
                                     "model.context=256",
                                     "data.sequence=256",
                                     "data.tokenizer=byte",
                                     "numerics.tp_tiles=4",
                                     "numerics.seq_tiles=2",
                                     "model.init_std=0.3",
                                     "batch.global=4",
                                     "train.steps=1",
                                     "parallel.threads=1",
                                     "log.tensorboard=false",
                                     "log.progress=off",
                                     "sample.tokens=40",
                                     "sample.temperature=1",
                                     "train.save_first=true",
                                     NULL};

void run_key(struct ls_config *config, const char *key)
{
    struct ls_error error = {0};
    if (ls_config_set(config, key, &error))
        fail_msg("%s: %s", key, error.text);
}

static void set_all(struct ls_config *config, const char *const *keys, int count)
{
    for (int i = 0; i < count && keys[i]; i++)
        run_key(config, keys[i]);
}

struct ls_config run_config(const char *directory, int run, const keys_t keys)
{
    struct ls_config config;
    struct ls_error error = {0};
    char text[3][ROOM];
    snprintf(text[0], ROOM, "data.train=u16:%s/tokens.bin", directory);
    snprintf(text[1], ROOM, "data.valid=u16:%s/tokens.bin", directory);
    snprintf(text[2], ROOM, "train.out=%s/run%d", directory, run);
    ls_config_defaults(&config);
    for (int i = 0; i < 3; i++)
        run_key(&config, text[i]);
    set_all(&config, recipe, (int)(sizeof recipe / sizeof recipe[0]));
    set_all(&config, models[run], 9);
    set_all(&config, keys, KEYS_MAX);
    assert_ok(ls_train_resolve(&config, &error), error);
    return config;
}

static int train_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    return ls_run(user, world, NULL, NULL, error);
}

/* The runs, trained for a step on one rank. */
int runs_setup(void **state)
{
    if (scratch_setup(state))
        return -1;
    uint16_t tokens[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)(i * i % 251);
    scratch_write(scratch_path(*state, "tokens.bin"), tokens, sizeof tokens);
    for (int run = 0; run < RUNS; run++) {
        struct ls_error error = {0};
        struct ls_config config = run_config(*state, run, (keys_t){NULL});
        if (ls_world_run(1, train_body, &config, &error)) {
            print_error("run %d: %s\n", run, error.text);
            return -1;
        }
    }
    return 0;
}

int finished_in(struct finished_job *job, const char *directory, int run, enum ls_finished_use use,
                const keys_t keys,
                int (*body)(struct ls_comm *world, void *user, struct ls_error *error),
                struct ls_error *error)
{
    struct ls_error own = {0}, *told = error ? error : &own;
    int count = 0;
    snprintf(job->path, ROOM, "%s/run%d", directory, run);
    while (count < KEYS_MAX && keys[count])
        count++;
    int status = ls_finished_configure(job->path, use, keys, count, &job->config, told);
    job->config.parallel.threads = 1;
    job->config.sample.temperature = job->config.sample.top_p = 1;
    job->config.sample.top_k = 0;
    if (job->words)
        job->config.sample.tokens = job->words;
    if (!status)
        status = ls_world_run((int)ls_config_ranks(&job->config), body, job, told);
    if (status && !error)
        fail_msg("run %d, %s: %s", run, layout_text(keys), own.text);
    return status;
}

void prompts_make(const int64_t *lengths, int count, struct ls_text_request *list, int32_t *ids,
                  int most)
{
    for (int i = 0; i < count; i++, ids += most) {
        for (int64_t t = 0; t < lengths[i]; t++)
            ids[t] = (int32_t)((t * t + 7 * i + t / 3) % 251);
        list[i] = (struct ls_text_request){
            .line = i + 1, .tokens = {ids, lengths[i], lengths[i]}, .first = lengths[i]};
    }
}

const char *layout_text(const keys_t keys)
{
    static char text[ROOM];
    snprintf(text, sizeof text, "one rank");
    for (int i = 0, at = 0; i < KEYS_MAX && keys[i]; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s ", keys[i] + strlen("parallel."));
    return text;
}
