/* Nothing above ops and comm touches a device's memory by a pointer of the host: a recorded step
 * has addresses in its place, and who touches one faults. */
#include "../support/config_words.h"
#include "../support/suite.h"
#include "../support/wrapped.h"

#include <lockstep/nn.h>
#include <lockstep/train/recorded.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define TINY                                                                                       \
    "model.arch=gpt2 model.vocab=50 model.vocab_multiple=16 model.layers=3 model.channels=64 "     \
    "model.heads=4 model.context=64 batch.global=8 parallel.threads=1 "
static const char *const layouts[] = {
    TINY,
    TINY "parallel.dp=2 parallel.zero=3 batch.micro=2",
    TINY "parallel.tp=2 parallel.pp=2 memory.recompute=full",
    TINY "parallel.tp=2 parallel.dp=2 parallel.zero=1 optim.name=muon optim.moments=bf16",
    TINY "numerics.precision=fp16 optim.clip=1",
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* ---- broken twins --------------------------------------------------------------------------- */

static bool reads_what_a_layer_made, reads_positions;
WRAPPED(ls_layer_backward_weight);
WRAPPED(ls_iota);
int __wrap_ls_layer_backward_weight(struct ls_model *model, struct ls_ops *ops, int layer,
                                    const struct ls_micro_batch *batch,
                                    const struct ls_gradient *gradient, struct ls_error *error)
{
    if (reads_what_a_layer_made && layer == 2) {
        const volatile char *output = ls_model_output(model, layer, batch->slot);
        (void)output[0];
    }
    return __real_ls_layer_backward_weight(model, ops, layer, batch, gradient, error);
}

/* The positions of packed documents' tokens, behind the command that writes them. */
void __wrap_ls_iota(struct ls_ops *ops, int64_t count, int32_t first, int32_t *to)
{
    __real_ls_iota(ops, count, first, to);
    if (reads_positions)
        (void)*(const volatile int32_t *)to;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Two steps of the last rank, in a process of its own: its exit status. */
static int steps_run(const char *words)
{
    struct ls_config config = config_of_words("%s", words);
    struct ls_layout layout;
    struct ls_error error = {0};
    if (ls_config_layout(&config, 0, &layout, &error))
        fail_msg("%s: %s", words, error.text);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct ls_recording recording;
        int64_t leaves[2] = {layout.ramp.full, layout.ramp.full}, begins[2];
        ls_recording_init(&recording);
        signal(SIGSEGV, SIG_DFL);
        _exit(ls_record_steps(&config, &layout, layout.ranks - 1, 2, leaves, &recording, begins,
                              &error));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

CASE(test_steps_touch_nothing)
{
    for (int i = 0; i < LAYOUTS; i++)
        assert_int_equal(steps_run(layouts[i]), 0);
}

/* With what each may have: grouped keys, a window, adapters, packed documents. */
CASE(test_no_family_touches_anything)
{
    static const char *const additions[] = {
        "", "model.tied=false parallel.tp=2 model.kv_heads=2", "parallel.pp=2 batch.micro=2",
        "lora.rank=4 memory.recompute=full parallel.dp=2 parallel.zero=3",
        "data.packing=documents parallel.dp=2"};
    for (int arch = 0; arch < LS_ARCHES; arch++)
        for (size_t i = 0; i < sizeof additions / sizeof *additions; i++) {
            char words[1024];
            snprintf(words, sizeof words, TINY "model.arch=%s %s", ls_arch_name((enum ls_arch)arch),
                     additions[i]);
            if (steps_run(words))
                fail_msg("%s: the host touches what a step made", words);
        }
}

static void assert_faults(bool *reads, const char *words)
{
    *reads = true;
    int status = steps_run(words);
    *reads = false;
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
}

CASE(test_a_read_by_the_host_faults)
{
    assert_faults(&reads_what_a_layer_made, layouts[0]);
    assert_faults(&reads_positions, TINY "data.packing=documents parallel.dp=2");
}

SUITE_MAIN(NULL, NULL)
