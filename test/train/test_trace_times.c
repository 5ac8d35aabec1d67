/* Where a step's time went is the same by a run's traces as by its records, and all of it is in
 * spans. Both read one clock, which stands still but for what the test says that a part takes. */
#include "../../src/comm/thread.h"
#include "../../src/train/trainer.h"
#include "../support/config_words.h"
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "tokens.h"
#include "trace_read.h"

#include <lockstep/data.h>
#include <lockstep/planner/profile.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Microseconds. */
enum { LOAD_US = 3000, FORWARD_US = 7000, WEIGHTS_US = 11000, WAIT_US = 2000, UPDATE_US = 5000 };

static _Thread_local int64_t clock_us; /* of the rank */
static bool twin;                      /* the traces' clock goes faster */
static bool between;                   /* another twin: time goes by between spans */

WRAPPED(ls_now_s);
double __wrap_ls_now_s(void)
{
    clock_us += between;
    return 1e6 + 1e-6 * (double)clock_us;
}

/* Traces ask the system. */
WRAPPED(clock_gettime);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    if (clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, now);
    int64_t us = (twin ? 11 : 10) * clock_us / 10;
    *now = (struct timespec){1000000 + us / 1000000, us % 1000000 * 1000};
    return 0;
}

WRAPPED(ls_loader_take);
int __wrap_ls_loader_take(struct ls_loader *loader, const int32_t **inputs, const int32_t **targets,
                          double *wait_s, struct ls_error *error)
{
    int status = __real_ls_loader_take(loader, inputs, targets, wait_s, error);
    clock_us += LOAD_US;
    *wait_s += 1e-6 * LOAD_US;
    return status;
}

WRAPPED(ls_layer_forward);
int __wrap_ls_layer_forward(struct ls_model *model, struct ls_ops *ops, int layer,
                            const struct ls_micro_batch *batch, const struct ls_gradient *gradient,
                            struct ls_error *error)
{
    clock_us += FORWARD_US;
    return __real_ls_layer_forward(model, ops, layer, batch, gradient, error);
}

WRAPPED(ls_layer_backward_weight);
int __wrap_ls_layer_backward_weight(struct ls_model *model, struct ls_ops *ops, int layer,
                                    const struct ls_micro_batch *batch,
                                    const struct ls_gradient *gradient, struct ls_error *error)
{
    clock_us += WEIGHTS_US;
    return __real_ls_layer_backward_weight(model, ops, layer, batch, gradient, error);
}

WRAPPED(ls_optimizer_step);
int __wrap_ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                             const struct ls_slice *slices, int count,
                             const struct ls_optim_step *step, struct ls_error *error)
{
    clock_us += UPDATE_US;
    return __real_ls_optimizer_step(optimizer, ops, slices, count, step, error);
}

WRAPPED(comm_thread_wait);
int __wrap_comm_thread_wait(struct ls_comm *comm, void *operation, struct ls_error *error)
{
    if (ls_comm_size(comm) > 1) /* alone it waits for nobody, and has no span */
        clock_us += WAIT_US;
    return __real_comm_thread_wait(comm, operation, error);
}

/* Ranks share one core, so who waits sleeps: no clock would end a spin. */
WRAPPED(sysconf);
long __wrap_sysconf(int name)
{
    return name == _SC_NPROCESSORS_ONLN ? 1 : __real_sysconf(name);
}

/* Every transfer is waited for, so that each step has the same parts. */
WRAPPED(ls_test);
bool __wrap_ls_test(struct ls_request *request)
{
    return false;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int run_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    return ls_run(user, world, NULL, NULL, error);
}

/* Microseconds of a rank's steps that no span within them covers. */
static double uncovered_us(const struct ls_config *config, int rank)
{
    enum { ROOM = 4000 };
    static struct span spans[ROOM];
    json_t *root = trace_of(config, rank);
    size_t count = spans_of(root, spans, ROOM), steps = 0;
    double gaps = 0;
    for (size_t i = 0; i < count; i++) {
        double end = spans[i].begin;
        if (!is(spans[i].event, "cat", "step"))
            continue;
        for (size_t j = i + 1; j < count && spans[j].begin < spans[i].end; j++) {
            gaps += fmax(spans[j].begin - end, 0);
            end = fmax(end, spans[j].end);
        }
        gaps += fmax(spans[i].end - end, 0);
        steps++;
    }
    assert_true(steps > 0);
    json_decref(root);
    return gaps;
}

static double uncovered_most_us;

/* By the traces of a run, and by its records alone. */
static void profiles_make(const char *directory, const char *layout, struct ls_profile *traced,
                          struct ls_profile *recorded)
{
    struct ls_error error = {0};
    char command[PATH_MAX + 64];
    struct ls_config config = config_of_words(
        "model.arch=gpt2 model.layers=2 model.channels=64 model.heads=4 model.vocab=50 "
        "model.context=32 batch.global=8 train.steps=8 parallel.threads=1 log.trace=true "
        "comm.timeout_s=0 "
        "data.train=u16:%s/tokens.bin train.out=%s/run %s",
        directory, directory, layout);
    if (ls_world_run((int)ls_config_ranks(&config), run_body, &config, &error) ||
        ls_profile_read(traced, config.train.out, &error))
        fail_msg("%s: %s", layout, error.text);
    uncovered_most_us = 0;
    for (int rank = 0; rank < ls_config_ranks(&config); rank++)
        uncovered_most_us = fmax(uncovered_most_us, uncovered_us(&config, rank));
    snprintf(command, sizeof command, "rm -r '%s/run/trace'", directory);
    assert_int_equal(system(command), 0);
    if (ls_profile_read(recorded, config.train.out, &error))
        fail_msg("%s: %s", layout, error.text);
    snprintf(command, sizeof command, "rm -r '%s/run'", directory);
    assert_int_equal(system(command), 0);
    assert_true(traced->trace.ranks > 0 && recorded->trace.ranks == 0);
    assert_true(traced->steps > 3 && traced->steps == recorded->steps);
}

static int64_t us_of(const struct ls_profile_row *row)
{
    return row->measured ? llround(1e6 * row->median_s) : 0;
}

/* Ranks do the same, so their clocks agree though none waits for another's. */
static const char *const layouts[] = {"", "parallel.dp=2 parallel.zero=2",
                                      "parallel.tp=2 batch.micro=2"};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

CASE_WITH(test_traces_and_records_agree, tokens_setup, scratch_teardown)
{
    static struct ls_profile traced, recorded;
    for (int i = 0; i < LAYOUTS; i++) {
        int64_t waits = 0;
        profiles_make(*state, layouts[i], &traced, &recorded);
        if (us_of(&traced.step) != us_of(&recorded.step))
            fail_msg("%s: a step: %ld us by the traces, %ld by the records", layouts[i],
                     (long)us_of(&traced.step), (long)us_of(&recorded.step));
        for (int part = 0; part < LS_PROFILE_PARTS; part++) {
            int64_t a = us_of(&traced.part[part]), b = us_of(&recorded.part[part]);
            if (a != b)
                fail_msg("%s: %s: %ld us by the traces, %ld by the records", layouts[i],
                         ls_profile_part_name(part), (long)a, (long)b);
            waits += part >= LS_PROFILE_WAIT ? a : 0;
        }
        if (uncovered_most_us > 1)
            fail_msg("%s: no span has %g us of a rank's steps", layouts[i], uncovered_most_us);
        assert_int_equal(us_of(&traced.part[LS_PROFILE_DATA]), LOAD_US);
        assert_int_equal(us_of(&traced.part[LS_PROFILE_OPTIMIZER]), UPDATE_US);
        assert_true(us_of(&traced.part[LS_PROFILE_COMPUTE]) >= FORWARD_US + WEIGHTS_US);
        assert_true(i == 0 || waits >= WAIT_US);
    }
}

CASE_WITH(test_another_clock_is_seen, tokens_setup, scratch_teardown)
{
    static struct ls_profile traced, recorded;
    twin = true;
    profiles_make(*state, layouts[1], &traced, &recorded);
    twin = false;
    assert_true(us_of(&traced.step) != us_of(&recorded.step));
    assert_true(us_of(&traced.part[LS_PROFILE_DATA]) != us_of(&recorded.part[LS_PROFILE_DATA]));
}

CASE_WITH(test_time_between_spans_is_seen, tokens_setup, scratch_teardown)
{
    static struct ls_profile traced, recorded;
    between = true;
    profiles_make(*state, layouts[1], &traced, &recorded);
    between = false;
    assert_true(uncovered_most_us > 1);
}

int main(void)
{
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 1);
    return suite_run(NULL, NULL);
}
