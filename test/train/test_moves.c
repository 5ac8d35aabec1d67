/* What the trainer moves and keeps is what plan says beforehand: bytes by group and kind of
 * operation, rank by rank, to the byte; memory within 2%. */
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

enum { TOKENS = 40000 };

#define GPT2                                                                                       \
    "model.arch=gpt2 model.vocab=50 model.vocab_multiple=16 model.layers=3 model.channels=64 "     \
    "model.heads=4 model.context=64 batch.global=8 parallel.threads=1 "
#define LLAMA                                                                                      \
    "model.arch=llama model.vocab=50 model.vocab_multiple=16 model.layers=2 model.channels=64 "    \
    "model.heads=4 model.kv_heads=2 model.ffn=96 model.context=256 batch.global=4 "                \
    "parallel.threads=1 "

/* ---- layouts -----------------------------------------------------------------------------------
 */

static const char *const layouts[] = {
    GPT2 "parallel.dp=3 batch.global=12 numerics.precision=fp32",
    GPT2 "parallel.dp=2 parallel.zero=1 batch.micro=2",
    GPT2 "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=2 batch.micro=1",
    GPT2 "parallel.dp=4 parallel.zero=3 batch.micro=1 parallel.prefetch=0",
    GPT2 "parallel.dp=2 parallel.zero=3 batch.micro=2 parallel.persist=100 model.tied=false",
    GPT2 "parallel.dp=2 parallel.zero=3 batch.micro=2 parallel.reshard_after_forward=false",
    GPT2 "parallel.dp=2 parallel.zero=2 batch.micro=3 batch.global=6 numerics.mode=fast "
         "numerics.reduce=bf16",
    GPT2 "parallel.dp=2 parallel.zero=2 batch.micro=4 batch.global=12",
    GPT2 "parallel.dp=2 parallel.zero=3 batch.micro=2 batch.global=10 parallel.pp=2",
    GPT2 "parallel.tp=2 batch.micro=4 batch.global=6",
    GPT2 "parallel.tp=4 parallel.sp=false batch.micro=4",
    GPT2 "parallel.tp=2 batch.micro=2 parallel.tp_overlap=2",
    GPT2 "parallel.pp=3 batch.micro=1",
    GPT2 "parallel.pp=2 batch.micro=2 parallel.schedule=interleaved",
    GPT2 "parallel.pp=2 batch.micro=1 parallel.schedule=zbv parallel.tp=2",
    GPT2 "parallel.pp=2 batch.micro=1 parallel.schedule=zb-h1 parallel.dp=2 parallel.zero=3",
    LLAMA "parallel.cp=2 numerics.seq_tiles=2 parallel.dp=2",
    LLAMA "parallel.cp=2 numerics.seq_tiles=2 parallel.cp_method=ring parallel.dp=2 "
          "parallel.zero=1",
    LLAMA "parallel.tp=4",
    LLAMA "parallel.tp=4 parallel.cp=2 numerics.seq_tiles=2",
    LLAMA "parallel.tp=2 parallel.cp=2 parallel.pp=2 numerics.seq_tiles=2 parallel.zero=2",
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static int data_setup(void **state)
{
    if (scratch_setup(state))
        return -1;
    static uint16_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)(i * 7 % 50);
    scratch_write(scratch_path(*state, "tokens.bin"), tokens, sizeof tokens);
    return 0;
}

static struct ls_config config_of(const char *directory, const char *words)
{
    struct ls_config config;
    struct ls_error error = {0};
    char text[1200], data[600], out[600], *save = NULL;
    snprintf(data, sizeof data, "data.train=u16:%s/tokens.bin", directory);
    snprintf(out, sizeof out, "train.out=%s/run", directory);
    snprintf(text, sizeof text, "%s", words);
    ls_config_defaults(&config);
    int status = ls_config_set(&config, data, &error);
    if (!status)
        status = ls_config_set(&config, out, &error);
    for (char *word = strtok_r(text, " ", &save); word && !status;
         word = strtok_r(NULL, " ", &save))
        status = ls_config_set(&config, word, &error);
    if (!status)
        status = ls_train_resolve(&config, &error);
    if (status)
        fail_msg("%s", error.text);
    return config;
}

/* ---- bytes -------------------------------------------------------------------------------------
 */

struct counts {
    int64_t sent[LS_GROUPS][LS_COMM_KINDS], operations[LS_GROUPS][LS_COMM_KINDS];
};

static void count_group(const struct ls_comm *comm, enum ls_layout_group group,
                        struct counts *counts)
{
    struct ls_comm_stats stats;
    if (!comm)
        return;
    ls_comm_get_stats(comm, &stats);
    for (int kind = 0; kind < LS_COMM_OTHER; kind++) {
        counts->sent[group][kind] = stats.kind[kind].sent_bytes;
        counts->operations[group][kind] = stats.kind[kind].operations;
    }
}

static struct counts measured(const struct ls_trainer *t)
{
    struct counts counts = {0};
    count_group(t->groups.tp, LS_GROUP_TP, &counts);
    count_group(t->tp.sharers_comm, LS_GROUP_SHARERS, &counts);
    count_group(t->groups.cp, LS_GROUP_CP, &counts);
    count_group(t->groups.shard, LS_GROUP_SHARD, &counts);
    count_group(t->groups.replicate, LS_GROUP_REPLICATE, &counts);
    count_group(t->groups.pp, LS_GROUP_PP, &counts);
    count_group(t->groups.dp, LS_GROUP_DP, &counts);
    count_group(t->groups.dp_shard, LS_GROUP_DP_SHARD, &counts);
    count_group(t->groups.dp_replicate, LS_GROUP_DP_REPLICATE, &counts);
    return counts;
}

struct derived {
    const struct ls_layout *layout;
    int64_t rank;
    struct counts counts;
};

static int add_move(void *user, const struct ls_move *move, struct ls_error *error)
{
    (void)error;
    struct derived *derived = user;
    derived->counts.sent[move->group][move->kind] +=
        ls_move_bytes(derived->layout, derived->rank, move);
    derived->counts.operations[move->group][move->kind]++;
    return LS_OK;
}

/* Where each move is one operation: ZeRO moves a unit's tensors in several, and so do products that
 * are cut to overlap; and a group of one moves nothing, but counts. */
static bool counts_operations(const struct ls_layout *layout, enum ls_layout_group group)
{
    bool whole = group == LS_GROUP_CP || group == LS_GROUP_PP || group == LS_GROUP_SHARERS ||
                 (group == LS_GROUP_TP && layout->tp_overlap == 1);
    return whole && ls_group_size(layout, group) > 1;
}

static int compare(const struct ls_layout *layout, const struct counts *before,
                   const struct counts *after, const struct counts *derived, struct ls_error *error)
{
    for (int g = 0; g < LS_GROUPS; g++)
        for (int kind = 0; kind < LS_COMM_OTHER; kind++) {
            enum ls_layout_group group = (enum ls_layout_group)g;
            int64_t sent = after->sent[g][kind] - before->sent[g][kind];
            int64_t operations = after->operations[g][kind] - before->operations[g][kind];
            if (!counts_operations(layout, group))
                operations = derived->operations[g][kind];
            if (sent != derived->sent[g][kind] || operations != derived->operations[g][kind])
                return ls_error_set(
                    error, LS_ECOMM, "%s by %s: %ld operations of %ld bytes, derived %ld of %ld",
                    ls_group_name(group), ls_comm_kind_name((enum ls_comm_kind)kind),
                    (long)operations, (long)sent, (long)derived->operations[g][kind],
                    (long)derived->sent[g][kind]);
        }
    return LS_OK;
}

/* Two steps, then one that is measured. */
static int steps_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    const struct ls_config *config = user;
    struct ls_trainer *t = NULL;
    struct ls_step_report report;
    struct counts before = {0}, after = {0};
    int status = ls_trainer_new(config, world, NULL, &t, error);
    for (int step = 0; step < 3 && !status; step++) {
        before = after;
        status = ls_trainer_step(t, &report, error);
        after = status ? after : measured(t);
    }
    struct derived derived = {.layout = status ? NULL : &t->layout, .rank = ls_comm_rank(world)};
    if (!status)
        status =
            ls_layout_moves(&t->layout, t->layout.leaves, derived.rank, add_move, &derived, error);
    if (!status)
        status = compare(&t->layout, &before, &after, &derived.counts, error);
    ls_trainer_free(t);
    return status;
}

static void test_bytes_are_those_derived(void **state)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct ls_config config = config_of(*state, layouts[i]);
        struct ls_error error = {0};
        if (ls_world_run((int)ls_config_ranks(&config), steps_body, &config, &error))
            fail_msg("%s\n%s", layouts[i], error.text);
    }
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static void near(const char *layout, const char *what, size_t planned, int64_t formula)
{
    if ((double)planned < 0.98 * (double)formula || (double)planned > 1.02 * (double)formula)
        fail_msg("%s\n%s: %zu bytes are taken, the formula gives %ld", layout, what, planned,
                 (long)formula);
}

static void test_memory_is_that_of_the_formulas(void **state)
{
    static const char *const keys[] = {
        "",
        "numerics.precision=fp32 parallel.tp=4",
        "parallel.dp=8 parallel.zero=1",
        "parallel.dp=8 parallel.zero=2 parallel.tp=2",
        "parallel.dp=8 parallel.zero=3",
        "parallel.dp=8 parallel.zero=3 parallel.persist=10000 parallel.pp=3",
        "parallel.dp=4 parallel.zero=3 parallel.reshard_after_forward=false "
        "numerics.precision=fp32",
        "parallel.cp=2 numerics.seq_tiles=2 parallel.dp=2 parallel.zero=1 model.tied=false",
        "parallel.cp=2 numerics.seq_tiles=4 parallel.cp_method=ring parallel.tp=2",
        "parallel.pp=4 parallel.schedule=zb-h1 model.dropout=0.1",
        "parallel.pp=2 parallel.schedule=zbv parallel.tp=2 parallel.sp=false",
        "parallel.pp=3 parallel.schedule=interleaved batch.micro=4 parallel.tp_overlap=2 "
        "parallel.tp=4",
        "model.preset=llama-1b model.context=1024 parallel.tp=8 numerics.tp_tiles=8",
        "model.preset=llama-1b model.context=1024 parallel.tp=16 numerics.tp_tiles=16 "
        "numerics.seq_tiles=4 parallel.cp=2",
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char words[400];
        snprintf(words, sizeof words, "%s batch.global=32 %s %s",
                 strstr(keys[i], "preset") ? "" : "model.preset=gpt2-124m",
                 strstr(keys[i], "micro") ? "" : "batch.micro=1", keys[i]);
        struct ls_config config = config_of(*state, words);
        static struct ls_layout layout;
        struct ls_error error = {0};
        if (ls_config_layout(&config, 0, &layout, &error))
            fail_msg("%s", error.text);
        for (int64_t pp = 0; pp < layout.size[LS_AXIS_PP]; pp++) {
            int64_t at[LS_AXES] = {[LS_AXIS_PP] = pp};
            struct ls_memory_plan plan = {0};
            struct ls_layout_memory memory;
            if (memory_plan(&config, &layout, at, &plan, &error) ||
                ls_layout_memory(&layout, ls_layout_rank(&layout, at), 2, &memory, &error))
                fail_msg("%s", error.text);
            near(words, "parameters", plan.parameters, memory.parameters);
            near(words, "gradients", plan.gradients, memory.gradients);
            near(words, "optimizer", plan.optimizer, memory.optimizer);
            near(words, "activations", plan.activations, memory.activations + memory.work);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bytes_are_those_derived, data_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_memory_is_that_of_the_formulas, data_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
