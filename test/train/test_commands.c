/* A step is its commands: kept while it runs, and submitted again on memory as it was before the
 * step, they give the step's bits. So nothing else writes what a step computes with. */
#include "../support/config_words.h"
#include "../support/examples.h"
#include "../support/scratch.h"
#include "../support/wrapped.h"

#include <lockstep/train.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is kept of a step ------------------------------------------------------------------ */

enum { LOST = 20 };
static struct ls_command_list kept;
static bool keeps, forgets; /* forgets: a broken twin, which leaves one out */
static const struct ls_ops *used;
static struct ls_arena *memory; /* the trainer's: the last that was taken, but for workspaces */

WRAPPED(ls_submit);
int __wrap_ls_submit(struct ls_ops *ops, const struct ls_command *command, struct ls_error *error)
{
    used = ops;
    if (keeps && forgets && kept.count == LOST)
        forgets = false;
    else if (keeps)
        assert_true(ls_command_list_add(&kept, command));
    return __real_ls_submit(ops, command, error);
}

WRAPPED(ls_arena_init);
int __wrap_ls_arena_init(struct ls_arena *arena, size_t size, struct ls_error *error)
{
    if (size != ls_ops_workspace_bytes(1))
        memory = arena;
    return __real_ls_arena_init(arena, size, error);
}

/* ---- tests ----------------------------------------------------------------------------------- */

#define TINY                                                                                       \
    "model.vocab=260 model.vocab_multiple=16 model.layers=2 model.channels=64 model.heads=4 "      \
    "model.context=64 data.sequence=64 batch.global=4 parallel.threads=1 "
#define PACKED "data.packing=documents"
#define GATED  TINY "model.kv_heads=2 model.ffn=128 "
static const char *const recipes[] = {
    TINY "model.arch=gpt2 numerics.precision=fp32",
    TINY "model.arch=gpt2 numerics.precision=bf16 model.dropout=0.1 batch.micro=2",
    TINY "model.arch=gpt2 numerics.precision=fp16 optim.name=muon",
    TINY "model.arch=gpt2 numerics.precision=bf16 " PACKED,
    GATED "model.arch=llama numerics.precision=bf16 memory.recompute=full",
    GATED "model.arch=llama numerics.precision=fp32 optim.name=sgd optim.clip=0.1 batch.micro=1",
    GATED "model.arch=llama numerics.precision=bf16 " PACKED,
    GATED "model.arch=gemma2 model.window=16 numerics.precision=bf16 optim.moments=bf16",
    GATED "model.arch=qwen3 numerics.precision=bf16 optim.name=lion",
    GATED "model.arch=olmo2 numerics.precision=bf16 memory.recompute=selective",
    GATED "model.arch=phi3 numerics.precision=bf16",
};
enum { RECIPES = sizeof recipes / sizeof *recipes };

/* Documents of many lengths. */
static int setup(void **state)
{
    static char text[200 * 128];
    char *at = text;
    if (scratch_setup(state))
        return -1;
    for (int i = 0; i < 200; i++)
        at += sprintf(at, "{\"prompt\": \"\", \"completion\": \"%0*d\"}\n", 1 + i * 7 % 40, i);
    examples_prepare(*state, "some", text);
    return 0;
}

/* A step and the same again from its commands. */
static bool same_again(const char *words, const char *directory)
{
    struct ls_config config = config_of_words("%s data.train=%s/some_train", words, directory);
    struct ls_error error = {0};
    struct ls_step_report report;
    struct ls_trainer *t = NULL;
    struct ls_comm *self = NULL;
    if (ls_comm_self_new(&self, &error) || ls_trainer_new(&config, self, NULL, &t, &error) ||
        ls_trainer_step(t, &report, &error))
        fail_msg("%s: %s", words, error.text);
    unsigned char *before = malloc(memory->size), *after = malloc(memory->size);
    assert_true(before && after);
    memcpy(before, memory->base, memory->size);
    keeps = true;
    if (ls_trainer_step(t, &report, &error))
        fail_msg("%s: %s", words, error.text);
    keeps = false;
    memcpy(after, memory->base, memory->size);
    memcpy(memory->base, before, memory->size);
    struct ls_ops ops = *used;
    for (int64_t i = 0; i < kept.count; i++) {
        const struct ls_command command = ls_command_list_get(&kept, i);
        if (__real_ls_submit(&ops, &command, &error))
            fail_msg("%s: %s", words, error.text);
    }
    bool same = memcmp(memory->base, after, memory->size) == 0;
    bool moved = memcmp(before, after, memory->size) != 0;
    assert_true(moved && kept.count > 50);
    ls_command_list_release(&kept);
    ls_trainer_free(t);
    ls_comm_free(self);
    free(before);
    free(after);
    return same;
}

static void test_commands_are_the_step(void **state)
{
    for (int i = 0; i < RECIPES; i++)
        if (!same_again(recipes[i], *state))
            fail_msg("%s: its commands give other bits", recipes[i]);
}

static void test_a_lost_command_is_seen(void **state)
{
    forgets = true;
    assert_false(same_again(recipes[0], *state));
    assert_false(forgets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands_are_the_step),
        cmocka_unit_test(test_a_lost_command_is_seen),
    };
    return cmocka_run_group_tests_name("commands of a step", tests, setup, scratch_teardown);
}
