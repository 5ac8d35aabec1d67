/* Commands of several ranks run late: ops, collectives and transfers are kept, each rank's in its
 * queue, until the host waits for them. Every layout gives the bits of one rank whose queue runs
 * them at once: so the order of the queue is all that a step relies on. */
#include "../support/config_words.h"
#include "../support/late_queue.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "tokens.h"

#include <lockstep/compare.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2 };
#define TINY                                                                                       \
    "model.vocab=260 model.vocab_multiple=16 model.layers=4 model.channels=32 model.heads=4 "      \
    "model.context=32 data.sequence=32 batch.global=8 parallel.threads=1 "                         \
    "numerics.leaf_sequences=1 "
#define GPT2  TINY "model.arch=gpt2 numerics.precision=bf16 model.dropout=0.1 "
#define LLAMA TINY "model.arch=llama model.kv_heads=2 model.ffn=64 numerics.tp_tiles=4 "
#define CUT                                                                                        \
    LLAMA "numerics.precision=bf16 numerics.seq_tiles=2 model.context=256 data.sequence=256 "
#define MUON LLAMA "optim.name=muon "
#define LORA LLAMA "lora.rank=4 numerics.precision=bf16 "
#define FP16 LLAMA "numerics.precision=fp16 "
static const struct {
    const char *recipe, *layout;
} cases[] = {
    {GPT2, "parallel.dp=2"},
    {GPT2, "parallel.dp=4 parallel.zero=1 batch.micro=2"},
    {GPT2, "parallel.dp=2 parallel.zero=2 batch.micro=1"},
    {GPT2, "parallel.dp=4 parallel.zero=3 parallel.prefetch=2 memory.recompute=full"},
    {GPT2, "parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=3 batch.micro=1"},
    {GPT2, "parallel.pp=2 batch.micro=1"},
    {GPT2, "parallel.pp=2 batch.micro=1 parallel.schedule=zb-h1 parallel.dp=2"},
    {GPT2, "parallel.pp=2 batch.micro=2 parallel.schedule=interleaved parallel.chunks=2"},
    {GPT2, "memory.offload.optimizer=host memory.offload.activations=host"},
    {GPT2, "parallel.dp=2 parallel.zero=3 memory.offload.parameters=host "
           "memory.offload.gradients=host memory.offload.optimizer=host"},
    {CUT, "parallel.tp=2"},
    {CUT, "parallel.tp=4 parallel.sp=true parallel.tp_overlap=2"},
    {CUT, "parallel.cp=2"},
    {CUT, "parallel.cp=2 parallel.cp_method=ring parallel.tp=2"},
    {CUT, "parallel.tp=2 parallel.pp=2 parallel.dp=2 parallel.zero=1 batch.micro=1"},
    {MUON, "parallel.dp=2 parallel.tp=2 parallel.zero=3"},
    {LORA, "parallel.tp=2 parallel.sp=true parallel.dp=2"},
    {FP16, "parallel.tp=2 parallel.dp=2 parallel.zero=2 parallel.sp=true"},
};
enum { CASES = sizeof cases / sizeof *cases };

static int prove(const char *directory, const char *recipe, const char *layout,
                 struct ls_proof proof[STEPS], struct ls_error *error)
{
    struct ls_config config = config_of_words("data.train=u16:%s/tokens.bin train.out=%s/run %s %s",
                                              directory, directory, recipe, layout);
    return ls_proof_threads(&config, STEPS, proof, error);
}

/* Whether the layout, run late, has the bits of one rank. */
static bool same_late(const char *directory, int i)
{
    static struct ls_proof one[STEPS];
    static const char *recipe = ""; /* whose one rank gave that */
    struct ls_proof many[STEPS];
    struct ls_error error = {0};
    if (strcmp(recipe, cases[i].recipe) && prove(directory, cases[i].recipe, "", one, &error))
        fail_msg("%s: %s", cases[i].recipe, error.text);
    recipe = cases[i].recipe;
    late = late_open = true;
    int status = prove(directory, cases[i].recipe, cases[i].layout, many, &error);
    late = late_open = false;
    if (status)
        print_message("%s: %s\n", cases[i].layout, error.text);
    return !status && !ls_proof_differs(one, many, STEPS);
}

/* The host waits once in a step for losses and norm, and where ranks agree that each has its batch,
 * for what the step before left; with offload also for what disks say of the update, and of what
 * follows it. */
CASE(test_layouts_run_late)
{
    for (int i = 0; i < CASES; i++) {
        late_steps = late_step_waits = 0;
        if (!same_late(*state, i))
            fail_msg("%s %s: other bits where commands run late", cases[i].recipe, cases[i].layout);
        int64_t waits = (strstr(cases[i].layout, "offload") ? 4 : 2) * late_steps;
        if (late_steps == 0 || late_step_waits > waits)
            fail_msg("%s: the host waits %ld times in %ld steps", cases[i].layout,
                     (long)late_step_waits, (long)late_steps);
    }
}

/* ---- submitted again ------------------------------------------------------------------------- */

/* A rank's commands of one step, but for words that the host exchanges. */
static _Thread_local struct ls_command_list kept;
static _Thread_local struct ls_queue *used;
static _Thread_local bool keeps;
static bool forgets; /* a broken twin, which leaves one out */

static void keep(struct ls_queue *queue, const struct ls_command *command)
{
    struct ls_comm_told told;
    bool words = ls_comm_command(command, &told) && !told.waits && told.operation.site.line == 0;
    used = queue;
    if (keeps && !words)
        assert_true(ls_command_list_add(&kept, command));
}

static int kept_run(struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t i = 0; i < kept.count && !status; i++) {
        const struct ls_command command = ls_command_list_get(&kept, i);
        struct ls_work work;
        if (!forgets || !ls_command_work(&command, &work) || work.kind != LS_WORK_UPDATE)
            status = ls_command_run(used, &command, error);
    }
    return status;
}

static int again_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct ls_trainer *t;
    struct ls_step_report report;
    int status = ls_trainer_new(user, world, NULL, &t, error);
    if (!status)
        status = ls_trainer_step(t, &report, error);
    const struct ls_arena memory = *late_queue.arena;
    unsigned char *before = malloc(memory.size), *after = malloc(memory.size);
    memcpy(before, memory.base, memory.size);
    keeps = true;
    if (!status)
        status = ls_trainer_step(t, &report, error);
    keeps = false;
    if (!status)
        status = ls_barrier(world, error);
    memcpy(after, memory.base, memory.size);
    memcpy(memory.base, before, memory.size);
    if (!status)
        status = ls_barrier(world, error);
    if (!status)
        status = kept_run(error);
    if (!status)
        status = ls_barrier(world, error);
    if (!status && kept.count < 50)
        status = ls_error_set(error, LS_EINVAL, "%ld commands were kept", (long)kept.count);
    if (!status && memcmp(before, after, memory.size) == 0)
        status = ls_error_set(error, LS_EINVAL, "a step changed nothing");
    if (!status && memcmp(memory.base, after, memory.size) != 0)
        status = ls_error_set(error, LS_ENUMERIC, "its commands give other bits");
    ls_command_list_release(&kept);
    free(before);
    free(after);
    ls_trainer_free(t);
    return status;
}

static int again(const char *directory, const char *recipe, const char *layout, int ranks,
                 struct ls_error *error)
{
    struct ls_config config = config_of_words("data.train=u16:%s/tokens.bin train.out=%s/run %s %s",
                                              directory, directory, recipe, layout);
    late_watch = keep;
    int status = ls_world_run(ranks, again_body, &config, error);
    late_watch = NULL;
    return status;
}

/* Of layouts that have all in the arena, and nothing under way between two steps. */
CASE(test_a_step_of_ranks_is_its_commands)
{
    struct ls_error error = {0};
    if (again(*state, GPT2, "parallel.dp=2 batch.micro=1", 2, &error) ||
        again(*state, CUT, "parallel.tp=2 parallel.cp=2 parallel.cp_method=ring", 4, &error) ||
        again(*state, GPT2, "parallel.pp=2 batch.micro=2", 2, &error))
        fail_msg("%s", error.text);
}

CASE(test_a_lost_command_is_seen)
{
    struct ls_error error = {0};
    forgets = true;
    assert_int_equal(again(*state, GPT2, "parallel.dp=2 batch.micro=1", 2, &error), LS_ENUMERIC);
    forgets = false;
}

/* ---- broken twins ---------------------------------------------------------------------------- */

static bool unqueued; /* collectives and transfers run at once, before what was submitted */
WRAPPED(ls_comm_set_queue);
void __wrap_ls_comm_set_queue(struct ls_comm *comm, struct ls_queue *queue)
{
    __real_ls_comm_set_queue(comm, unqueued ? NULL : queue);
}
WRAPPED(ls_tier_set_queue);
void __wrap_ls_tier_set_queue(struct ls_tier *tier, struct ls_queue *queue)
{
    __real_ls_tier_set_queue(tier, unqueued ? NULL : queue);
}

CASE(test_what_is_in_no_queue_is_seen)
{
    static const int seen[] = {0, 8, 10, 12};
    unqueued = true;
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
        assert_false(same_late(*state, seen[i]));
    unqueued = false;
}

CASE(test_a_host_that_does_not_wait_is_seen)
{
    late_deaf = true;
    assert_false(same_late(*state, 0));
    late_deaf = false;
}

SUITE_MAIN(tokens_setup, scratch_teardown)
