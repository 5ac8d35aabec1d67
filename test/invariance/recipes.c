#include "recipes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 60000, VOCABULARY = 300 };

/* Small, but with everything that layouts cut: heads shared by key/value groups, more layers than
 * stages, padding in the vocabulary, tied tables, clipping and weight decay. */
static const char *const common_keys[] = {
    "train.steps=64",      "optim.decay_steps=64",   "optim.lr=2e-3",
    "optim.clip=0.5",      "optim.weight_decay=0.1", "optim.warmup_steps=2",
    "numerics.tp_tiles=4", "log.tensorboard=false",  "log.progress=off",
    "model.vocab=300",     "model.layers=6",         "model.channels=64",
    "model.heads=4",       "model.ffn=128",          "comm.timeout_s=60",
};
static const char *const recipe_keys[RECIPES][12] = {
    {"model.arch=gpt2", "numerics.precision=fp32", "model.dropout=0.1", "numerics.seq_tiles=2",
     "data.sequence=256", "model.context=256", "batch.global=8", NULL},
    {"model.arch=gpt2", "numerics.precision=bf16", "numerics.leaf_sequences=2", "data.sequence=64",
     "model.context=64", "batch.global=32", NULL},
    {"model.arch=llama", "numerics.precision=fp32", "model.kv_heads=2", "numerics.seq_tiles=1",
     "data.sequence=128", "model.context=128", "batch.global=16", NULL},
    {"model.arch=llama", "numerics.precision=bf16", "model.kv_heads=2", "model.tied=true",
     "numerics.seq_tiles=4", "data.sequence=512", "model.context=512", "batch.global=8", NULL},
};
const char *const recipe_names[RECIPES] = {"gpt2 fp32", "gpt2 bf16", "llama fp32", "llama bf16"};

static void set(struct ls_config *config, const char *assignment)
{
    struct ls_error error = {0};
    if (ls_config_set(config, assignment, &error)) {
        fprintf(stderr, "recipe: %s\n", error.text);
        exit(1);
    }
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
}

void recipe_config(const struct recipe_run *run, struct ls_config *config)
{
    char key[700];
    struct ls_error error = {0};
    ls_config_defaults(config);
    for (size_t i = 0; i < sizeof common_keys / sizeof *common_keys; i++)
        set(config, common_keys[i]);
    for (int i = 0; recipe_keys[run->recipe][i]; i++)
        set(config, recipe_keys[run->recipe][i]);
    snprintf(key, sizeof key, "data.train=u16:%s/tokens.bin", run->folder);
    set(config, key);
    snprintf(key, sizeof key, "train.out=%s/%s", run->folder, run->out ? run->out : "none");
    set(config, key);
    if (run->keys)
        config->parallel = *run->keys;
    config->parallel.threads = run->threads > 0 ? run->threads : 1;
    config->batch.micro = run->micro_sequences;
    if (run->resume)
        set(config, "train.resume=auto");
    if (ls_train_resolve(config, &error)) {
        fprintf(stderr, "recipe: %s\n", error.text);
        exit(1);
    }
}

/* ---- drawing --------------------------------------------------------------------------------- */

static uint32_t draw(uint64_t seed, uint64_t index, uint32_t what, uint32_t below)
{
    uint32_t bits[4];
    ls_philox(ls_philox_key_of(seed, "layouts"), (uint32_t[4]){(uint32_t)index, what, 0, 0}, bits);
    return bits[0] % below;
}

/* What layout number `index` must have: the ten pairs of the mesh's axes, then six schedules, then
 * three stages of ZeRO, and so on from the front. */
static void ask(struct ls_layout_sample *sample, uint64_t index)
{
    enum { PAIRS = 10, SCHEDULES = 6, STAGES = 3, ALL = PAIRS + SCHEDULES + STAGES };
    int which = (int)(index % ALL);
    sample->zero = sample->schedule = -1;
    for (int a = 0, n = 0; a < LS_AXES; a++)
        for (int b = a + 1; b < LS_AXES; b++, n++)
            if (n == which)
                sample->least[a] = sample->least[b] = 2;
    if (which >= PAIRS && which < PAIRS + SCHEDULES) {
        sample->schedule = which - PAIRS;
        sample->least[LS_AXIS_PP] = 2;
    } else if (which >= PAIRS + SCHEDULES) {
        sample->zero = 1 + which - PAIRS - SCHEDULES;
        sample->least[LS_AXIS_DP_SHARD] = 2;
    }
}

bool layout_draw(const struct ls_config *recipe, uint64_t seed, uint64_t index, bool mpi,
                 struct drawn *drawn)
{
    struct ls_layout_request request;
    ls_config_layout_request(recipe, 0, &request);
    *drawn = (struct drawn){.mpi = mpi && draw(seed, index, 0, 5) == 0,
                            .threads = 1 + (int)(draw(seed, index, 1, 4) == 0)};
    struct ls_layout_sample sample = {
        .seed = seed, .index = index, .ranks_max = drawn->mpi ? 8 : 16};
    ask(&sample, index);
    return ls_layout_sample(&request, &sample, &drawn->keys, &drawn->micro_sequences,
                            &drawn->layout);
}

void layout_text(const struct drawn *d, char *text, size_t bytes)
{
    const struct ls_layout *l = &d->layout;
    int used = snprintf(text, bytes, "%s", d->mpi ? "mpi" : "threads");
    for (int axis = 0; axis < LS_AXES && used < (int)bytes; axis++)
        if (l->size[axis] > 1)
            used += snprintf(text + used, bytes - (size_t)used, " %s=%ld",
                             ls_axis_name((enum ls_layout_axis)axis), (long)l->size[axis]);
    if (used < (int)bytes)
        snprintf(text + used, bytes - (size_t)used,
                 " zero=%d%s%s schedule=%s chunks=%ld micro=%ld persist=%ld prefetch=%ld "
                 "reshard=%d overlap=%ld threads=%d",
                 l->zero, l->sp ? " sp" : "", l->cp_method == LS_CP_RING ? " ring" : "",
                 ls_schedule_name((enum ls_schedule_kind)l->schedule), (long)l->chunks,
                 (long)l->micro_sequences, (long)l->persist, (long)l->prefetch,
                 l->reshard_after_forward, (long)l->tp_overlap, d->threads);
}

/* ---- coverage -------------------------------------------------------------------------------- */

void coverage_add(struct coverage *c, const struct drawn *d)
{
    bool has[COVER_AXES];
    for (int i = 0; i < LS_AXES; i++)
        has[i] = d->layout.size[i] > 1;
    has[LS_AXES] = d->layout.sp;
    has[LS_AXES + 1] = d->layout.zero > 0;
    for (int i = 0; i < COVER_AXES; i++)
        for (int j = 0; j < COVER_AXES; j++)
            c->pair[i][j] += has[i] && has[j];
    if (has[LS_AXIS_PP])
        c->schedule[d->layout.schedule]++;
    if (has[LS_AXIS_DP_SHARD])
        c->zero[d->layout.zero]++;
    c->ring += has[LS_AXIS_CP] && d->layout.cp_method == LS_CP_RING;
    c->threads += d->threads > 1;
    c->mpi += d->mpi;
    c->count++;
}

int coverage_print(const struct coverage *c, bool mpi)
{
    static const char *const names[COVER_AXES] = {"pp", "dp_replicate", "dp_shard", "cp",
                                                  "tp", "sp",           "zero"};
    int missing = c->ring == 0;
    printf("covered:");
    for (int i = 0; i < COVER_AXES; i++) {
        printf(" %s %d", names[i], c->pair[i][i]);
        for (int j = 0; j <= i; j++)
            if (c->pair[i][j] == 0) {
                printf(" [%s with %s: none]", names[j], names[i]);
                missing++;
            }
    }
    for (int i = 0; i < LS_LAYOUT_CSV; i++) {
        printf(" %s %d", ls_schedule_name((enum ls_schedule_kind)i), c->schedule[i]);
        missing += c->schedule[i] == 0;
    }
    printf(" zero 0/1/2/3 %d/%d/%d/%d ring %d, two threads %d, mpi %d\n", c->zero[0], c->zero[1],
           c->zero[2], c->zero[3], c->ring, c->threads, c->mpi);
    for (int i = 0; i < 4; i++)
        missing += c->zero[i] == 0;
    return missing + (mpi && c->mpi == 0);
}
