/* A parameter server beside its definition (doc/async.md), push by push and bit for bit, on a run
 * of one rank: who pushes which batch; its gradient, which a synchronous trainer computes on the
 * parameters of the version that the worker pulled; the correction for what others changed since;
 * and the learning rate.
 *
 * Broken twins, each of which one of these checks must find: two events in another order, a worker
 * that takes parameters of one version too early, a correction from the wrong version, a batch that
 * is taken twice. */
#include "../support/scratch.h"
#include "../support/suite.h"
#include "../support/wrapped.h"
#include "pushes.h"
#include "tokens.h"
#include "train/parameter_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS = 9, AT = 5 }; /* pushes; the twins' */

static enum { HONEST, SWAPPED, EARLY, WRONG_VERSION, TWICE } twin;

/* ---- what a run did -------------------------------------------------------------------------- */

/* An update: masters before it, and the gradient, of all parameters. */
struct update {
    float *masters, *gradient;
    float lr;
};
static struct {
    struct ls_trainer *trainer;
    struct update updates[EVENTS];
    int count;
    int64_t elements;
} seen;
/* The synchronous trainer's. */
static const struct ls_optimizer *plain;
static struct update plain_update;

static void update_take(struct update *update, const struct ls_slice *slices, int count,
                        const struct ls_optim_step *step)
{
    int64_t elements = 0;
    for (int i = 0; i < count; i++)
        elements += slices[i].part->count;
    if (!update->masters)
        update->masters = malloc((size_t)elements * sizeof(float));
    if (!update->gradient)
        update->gradient = malloc((size_t)elements * sizeof(float));
    assert_true(update->masters && update->gradient);
    update->lr = step->lr;
    seen.elements = elements;
    elements = 0;
    for (int i = 0; i < count; i++) {
        const struct ls_zero_slice *part = slices[i].part;
        size_t bytes = (size_t)part->count * sizeof(float);
        memcpy(update->masters + elements, slices[i].master, bytes);
        memcpy(update->gradient + elements, step->gradient + part->gradient, bytes);
        elements += part->count;
    }
}

static void update_release(struct update *update)
{
    free(update->masters);
    free(update->gradient);
    *update = (struct update){0};
}

WRAPPED(ls_optimizer_step);
int __wrap_ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                             const struct ls_slice *slices, int count,
                             const struct ls_optim_step *step, struct ls_error *error)
{
    bool is_plain = optimizer == plain;
    update_take(is_plain ? &plain_update : &seen.updates[seen.count++], slices, count, step);
    return __real_ls_optimizer_step(optimizer, ops, slices, count, step, error);
}

/* ---- twins ----------------------------------------------------------------------------------- */

WRAPPED(ls_arrivals_worker);
int __wrap_ls_arrivals_worker(const struct ls_arrivals *arrivals, int64_t event)
{
    if (twin == SWAPPED && (event == AT || event == AT + 1))
        event = AT + AT + 1 - event;
    return __real_ls_arrivals_worker(arrivals, event);
}

/* Where a parameter of the unit begins among all; -1: not there. */
static int64_t offset_of(const struct ls_state *unit, const float *master)
{
    int64_t offset = 0;
    for (int i = 0; i < unit->params->count; i++) {
        if (unit->slices[i].master == master)
            return offset;
        offset += unit->slices[i].part->count;
    }
    return -1;
}

WRAPPED(ls_copy);
void __wrap_ls_copy(struct ls_ops *ops, size_t bytes, const void *from, void *to)
{
    const struct ls_trainer *t = seen.trainer;
    int64_t offset = -1;
    bool early = twin == EARLY && seen.count == AT;
    for (int k = 0; early && offset < 0 && k < t->workers->each; k++)
        offset = offset_of(&t->units[k], to);
    if (offset >= 0) /* as they were before the push that was the last */
        from = seen.updates[AT - 1].masters + offset;
    __real_ls_copy(ops, bytes, from, to);
}

WRAPPED(ls_compensate);
void __wrap_ls_compensate(struct ls_ops *ops, float *gradient, const float *now, const float *then,
                          int64_t count, float lambda)
{
    if (twin == WRONG_VERSION && seen.count == AT)
        then = seen.updates[AT - 1].masters + offset_of(workers_outer(seen.trainer), now);
    __real_ls_compensate(ops, gradient, now, then, count, lambda);
}

WRAPPED(workers_place);
int64_t __wrap_workers_place(const struct workers *workers, int worker, int64_t samples,
                             int64_t batch)
{
    bool twice = twin == TWICE && samples == AT * batch;
    return __real_workers_place(workers, worker, twice ? samples - batch : samples, batch);
}

/* ---- the reference --------------------------------------------------------------------------- */

/* A step of synchronous training with the parameters of a version, on one batch of the run. */
static int plain_step(struct ls_trainer *t, const float *masters, int64_t ticket,
                      struct ls_step_report *report, struct ls_error *error)
{
    struct ls_state *state = t->state;
    for (int i = 0; i < state->params->count; i++) {
        memcpy(state->slices[i].master, masters, (size_t)state->slices[i].part->count * 4);
        masters += state->slices[i].part->count;
    }
    state->step = ticket;
    state->samples = ticket * t->config.batch.global;
    const int32_t *inputs, *targets;
    double wait_s;
    int status = t->posted ? ls_loader_take(t->loader, &inputs, &targets, &wait_s, error) : LS_OK;
    t->posted = false; /* what it had asked for is the next batch's */
    if (!status)
        status = ls_state_publish(state, error);
    if (!status)
        status = ls_state_settle(state, error);
    return status ? status : ls_trainer_step(t, report, error);
}

/* g + ((lambda g) g) (now - then), rounded after each operation. */
static float corrected(float g, float now, float then, float lambda)
{
    volatile float a = lambda * g, b = a * g, c = now - then, d = b * c;
    return g + d;
}

struct reference {
    const struct workers_run *run;
    struct ls_config config; /* of the synchronous trainer */
    char wrong[200];
};

static int push_check(struct reference *r, struct ls_trainer *t, int e,
                      const struct push_expected *push, struct ls_error *error)
{
    const struct ls_config *config = &r->run->config;
    const struct update *update = &seen.updates[e];
    const float *then = seen.updates[push->version].masters;
    float lambda = (float)config->async.compensation, lr = (float)config->optim.lr;
    int64_t staleness = e - push->version;
    struct ls_step_report report;
    int status = plain_step(t, then, push->ticket, &report, error);
    if (status)
        return status;
    if (config->async.staleness_lr == LS_CONFIG_INVERSE && staleness > 1)
        lr /= (float)staleness;
    const char *what = report.loss_bits != r->run->told[e].loss ? "loss"
                       : update->lr != lr                       ? "learning rate"
                                                                : NULL;
    for (int64_t i = 0; i < seen.elements && !what; i++) {
        float g = plain_update.gradient[i];
        if (lambda > 0)
            g = corrected(g, update->masters[i], then[i], lambda);
        what = memcmp(&g, &update->gradient[i], sizeof g) ? "gradient" : NULL;
    }
    if (what)
        snprintf(r->wrong, sizeof r->wrong, "push %d: its %s is not as defined", e, what);
    return LS_OK;
}

static int reference_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct reference *r = user;
    struct push_expected pushes[EVENTS];
    struct ls_trainer *t = NULL;
    int64_t order[EVENTS];
    for (int e = 0; e < EVENTS; e++)
        order[e] = r->run->told[e].worker;
    pushes_expect((int)r->run->config.async.workers, (int)r->run->config.async.staleness, order,
                  EVENTS, pushes);
    int status = ls_trainer_new(&r->config, world, NULL, &t, error);
    plain = status ? NULL : &t->state->optimizer;
    for (int e = 0; e < EVENTS && !status && !*r->wrong; e++)
        status = push_check(r, t, e, &pushes[e], error);
    ls_trainer_free(t);
    plain = NULL;
    return status;
}

static void trainer_keep(struct ls_trainer *trainer)
{
    seen.trainer = trainer;
}

/* What is wrong with a run of that recipe, "" if nothing. The text lives until the next call. */
static const char *wrong_of(const char *directory, const char *recipe)
{
    static struct reference r;
    struct workers_run run = {
        .config = workers_config(directory,
                                 "async.mode=server async.workers=3 async.sync_every=9 "
                                 "train.steps=9 optim.schedule=constant model.tied=false %s",
                                 recipe),
        .made = trainer_keep};
    struct ls_error error = {0};
    memset(&seen, 0, sizeof seen);
    r = (struct reference){.run = &run, .config = run.config};
    r.config.async.mode = LS_CONFIG_SYNC;
    r.config.async.workers = 1;
    workers_run_well(&run);
    const char *pushes = pushes_wrong(&run);
    twin = HONEST;
    assert_int_equal(seen.count, EVENTS);
    if (pushes)
        snprintf(r.wrong, sizeof r.wrong, "%s", pushes);
    else if (ls_world_run(1, reference_body, &r, &error))
        fail_msg("%s", error.text);
    for (int e = 0; e < EVENTS; e++)
        update_release(&seen.updates[e]);
    update_release(&plain_update);
    return r.wrong;
}

/* ---- tests ----------------------------------------------------------------------------------- */

#define SLOW "async.times=1,2,4 "

CASE(test_pushes_are_as_defined)
{
    static const char *const recipes[] = {
        SLOW,
        SLOW "async.compensation=0.5 optim.name=sgd",
        SLOW "async.compensation=2 async.staleness_lr=inverse async.staleness=1",
        "async.staleness=0 async.compensation=1 model.dropout=0.1",
        SLOW "async.staleness=2 async.staleness_lr=inverse optim.name=muon model.arch=llama "
             "model.ffn=32 numerics.precision=bf16 async.compensation=1",
    };
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        const char *wrong = wrong_of(*state, recipes[i]);
        if (*wrong)
            fail_msg("%s: %s", recipes[i], wrong);
    }
}

static void expect_found(const char *directory, int which, const char *words)
{
    twin = which;
    const char *wrong = wrong_of(directory, SLOW "async.compensation=1");
    if (!strstr(wrong, words))
        fail_msg("twin %d: \"%s\", expected %s", which, wrong, words);
}

CASE(test_two_events_in_another_order_are_found)
{
    expect_found(*state, SWAPPED, "step 6: its worker is not that");
}

CASE(test_parameters_of_a_version_too_early_are_found)
{
    expect_found(*state, EARLY, "its loss is not as defined");
}

CASE(test_a_correction_from_the_wrong_version_is_found)
{
    expect_found(*state, WRONG_VERSION, "push 5: its gradient is not as defined");
}

CASE(test_a_batch_that_is_taken_twice_is_found)
{
    expect_found(*state, TWICE, "its loss is not as defined");
}

SUITE_MAIN(tokens_setup, scratch_teardown)
