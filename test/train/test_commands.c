/* A step is its commands. Kept while it runs, and submitted again on memory as it was before the
 * step, they give the step's bits: nothing else writes what a step computes with. Run late, when
 * the host waits for them, they give its bits too: the host waits before it reads. */
#include "../support/config_words.h"
#include "../support/examples.h"
#include "../support/extent.h"
#include "../support/late_queue.h"
#include "../support/scratch.h"
#include "../support/suite.h"

#include <lockstep/train.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what is kept of a step ------------------------------------------------------------------ */

static struct ls_command_list kept;
static bool keeps, forgets; /* forgets: a broken twin, which leaves the last one out */
static struct ls_queue *used;

static void keep(struct ls_queue *queue, const struct ls_command *command)
{
    used = queue;
    if (keeps)
        assert_true(ls_command_list_add(&kept, command));
}

/* ---- recipes --------------------------------------------------------------------------------- */

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
    GATED "model.arch=smollm3 model.rope_layers=even numerics.precision=bf16 "
          "memory.recompute=full",
    GATED "model.arch=llama numerics.precision=fp32 optim.name=sgd optim.clip=0.1 batch.micro=1",
    GATED "model.arch=llama numerics.precision=bf16 " PACKED,
    GATED "model.arch=gemma3 model.window=16 model.window_layers=even numerics.precision=bf16 "
          "optim.moments=bf16",
    GATED "model.arch=qwen3 numerics.precision=bf16 optim.name=lion",
    GATED "model.arch=olmo3 model.window=16 model.window_layers=even numerics.precision=bf16 "
          "memory.recompute=selective",
    GATED "model.arch=phi3 numerics.precision=bf16",
    TINY "model.arch=gpt2 numerics.precision=bf16 memory.recompute=full memory.check=true",
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

/* A trainer of that recipe, and what it needs. */
struct tried {
    const char *words;
    struct ls_comm *self;
    struct ls_trainer *t;
    struct ls_step_report report;
    struct ls_error error;
};

static void must(const struct tried *tried, int status)
{
    if (status)
        fail_msg("%s: %s", tried->words, tried->error.text);
}

/* It has made a step. */
static void begin(struct tried *tried, const char *words, const char *directory)
{
    *tried = (struct tried){.words = words};
    struct ls_config config = config_of_words(
        "%s data.train=%s/some_train data.valid=%s/some_train", words, directory, directory);
    must(tried, ls_comm_self_new(&tried->self, &tried->error));
    must(tried, ls_trainer_new(&config, tried->self, NULL, &tried->t, &tried->error));
    if (late_open) /* the host makes them, of what is on the device */
        must(tried, ls_trainer_digests_enable(tried->t, &tried->error));
    must(tried, ls_trainer_step(tried->t, &tried->report, &tried->error));
}

static void end(struct tried *tried)
{
    ls_trainer_free(tried->t);
    ls_comm_free(tried->self);
}

/* ---- submitted again ------------------------------------------------------------------------- */

/* A step and the same again from its commands. */
static bool same_again(const char *words, const char *directory)
{
    struct tried tried;
    late_watch = keep;
    begin(&tried, words, directory);
    const struct ls_arena *memory = late_queue.arena;
    unsigned char *before = malloc(memory->size), *after = malloc(memory->size);
    assert_true(before && after);
    memcpy(before, memory->base, memory->size);
    keeps = true;
    must(&tried, ls_trainer_step(tried.t, &tried.report, &tried.error));
    keeps = false;
    memcpy(after, memory->base, memory->size);
    memcpy(memory->base, before, memory->size);
    for (int64_t i = 0; i < kept.count - forgets; i++) {
        const struct ls_command command = ls_command_list_get(&kept, i);
        must(&tried, ls_command_run(used, &command, &tried.error));
    }
    bool same = memcmp(memory->base, after, memory->size) == 0;
    bool moved = memcmp(before, after, memory->size) != 0;
    assert_true(moved && kept.count > 50);
    ls_command_list_release(&kept);
    late_watch = NULL;
    end(&tried);
    free(before);
    free(after);
    return same;
}

CASE(test_commands_are_the_step)
{
    for (int i = 0; i < RECIPES; i++)
        if (!same_again(recipes[i], *state))
            fail_msg("%s: its commands give other bits", recipes[i]);
}

CASE(test_a_lost_command_is_seen)
{
    forgets = true;
    assert_false(same_again(recipes[0], *state));
    forgets = false;
}

/* ---- run late -------------------------------------------------------------------------------- */

/* All that a run tells: two steps, with open memory the digests of their tensors, an evaluation, a
 * text, the state. */
struct told {
    struct ls_step_report steps[2];
    struct ls_digest digests[200], hash;
    int digests_count;
    struct ls_eval_report evaluation;
    char text[200];
};

static void tell(const char *words, const char *directory, struct told *told)
{
    struct tried tried;
    char name[200], *text;
    memset(told, 0, sizeof *told);
    begin(&tried, words, directory);
    told->steps[0] = tried.report;
    must(&tried, ls_trainer_evaluate(tried.t, &told->evaluation, &tried.error));
    must(&tried, ls_trainer_sample(tried.t, "0000", &text, &tried.error));
    assert_true(strlen(text) > 4);
    snprintf(told->text, sizeof told->text, "%s", text);
    free(text);
    must(&tried, ls_trainer_step(tried.t, &told->steps[1], &tried.error));
    told->digests_count = ls_trainer_digest_count(tried.t);
    assert_true(told->digests_count <= 200);
    for (int i = 0; i < told->digests_count; i++)
        ls_trainer_digest(tried.t, i, name, sizeof name, &told->digests[i]);
    must(&tried, ls_trainer_hash(tried.t, &told->hash, &tried.error));
    end(&tried);
}

/* Whether all that is told is the same when commands run late. */
static bool same_late(const char *words, const char *directory)
{
    struct told now, then;
    tell(words, directory, &now);
    late = true;
    tell(words, directory, &then);
    late = false;
    bool same = now.digests_count == then.digests_count &&
                memcmp(now.digests, then.digests, sizeof now.digests) == 0 &&
                memcmp(&now.hash, &then.hash, sizeof now.hash) == 0 &&
                strcmp(now.text, then.text) == 0 &&
                memcmp(&now.evaluation, &then.evaluation, sizeof now.evaluation) == 0;
    for (int i = 0; i < 2; i++)
        same &= now.steps[i].loss_bits == then.steps[i].loss_bits &&
                now.steps[i].grad_norm == then.steps[i].grad_norm;
    return same;
}

CASE(test_late_commands_are_the_step)
{
    for (int i = 0; i < 2 * RECIPES; i++) {
        if (!check_pair(i % RECIPES, i / RECIPES, 2))
            continue;
        late_queue.waits = 0;
        late_open = i / RECIPES;
        if (!same_late(recipes[i % RECIPES], *state))
            fail_msg("%s: other bits where commands run late", recipes[i % RECIPES]);
        assert_true(late_queue.waits > 2);
    }
    late_open = false;
}

/* ---- broken twins ---------------------------------------------------------------------------- */

static enum { TOUCHES_NOTHING, READS, WRITES } host;
WRAPPED(ls_layer_backward_weight);
int __wrap_ls_layer_backward_weight(struct ls_model *model, struct ls_ops *ops, int layer,
                                    const struct ls_micro_batch *batch,
                                    const struct ls_gradient *gradient, struct ls_error *error)
{
    if (host == READS && layer == 2)
        (void)*(const volatile char *)ls_model_output(model, layer, batch->slot);
    if (host == WRITES && layer == 2)
        *(volatile float *)gradient->flat = 0;
    return __real_ls_layer_backward_weight(model, ops, layer, batch, gradient, error);
}

/* What the host may do where memory is open, and not where it is the device's. */
CASE(test_a_host_that_touches_memory_faults)
{
    for (int does = READS; does <= WRITES; does++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL);
            host = does;
            _exit(same_late(recipes[0], *state) ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
}

CASE(test_a_host_that_does_not_wait_is_seen)
{
    late_deaf = true;
    assert_false(same_late(recipes[0], *state));
    late_deaf = false;
}

SUITE_MAIN(setup, scratch_teardown)
