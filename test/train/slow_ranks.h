/* Ranks that are slow by a clock that the test turns, in runs that watch for drift: what the linker
 * puts in the place of the update and of the loader (Makefile, "wrap"). Nothing takes time but
 * updates and samples, whatever the machine does; a wait ends when the slowest rank has come as
 * far. Included by the one file of such a test; each rank sets `here` to its number.
 */
#ifndef TEST_TRAIN_SLOW_RANKS_H
#define TEST_TRAIN_SLOW_RANKS_H

#include "../support/turned_clock.h"

#include <lockstep/train.h>

/* Of config_of_words, with the directory of tokens_setup twice behind it: ten steps in RUN/run. */
#define SLOW_RANKS_RUN                                                                             \
    "model.layers=2 model.channels=32 model.heads=2 model.vocab=50 model.context=16 "              \
    "batch.global=4 batch.micro=1 train.steps=10 log.drift_every=8 log.tensorboard=false "         \
    "data.train=u16:%s/tokens.bin train.out=%s/run "

enum { BASE_MS = 60, RANKS_MAX = 4, FAIL = -1 };

static int update_ms[RANKS_MAX], input_ms[RANKS_MAX]; /* of each rank */
static _Thread_local int here;

static _Thread_local int64_t updates, takes; /* how many of each the rank has done */

static void works_for(int ms)
{
    turned_ahead_ns += 1000000 * (int64_t)ms;
}

WRAPPED(ls_optimizer_step);
int __wrap_ls_optimizer_step(struct ls_optimizer *optimizer, struct ls_ops *ops,
                             const struct ls_slice *slices, int count,
                             const struct ls_optim_step *step, struct ls_error *error)
{
    if (update_ms[here] == FAIL && step->step == 4)
        return ls_error_set(error, LS_EIO, "rank %d fails", here);
    updates++;
    works_for((int)ls_max(update_ms[here], 0));
    return __real_ls_optimizer_step(optimizer, ops, slices, count, step, error);
}

WRAPPED(ls_loader_take);
int __wrap_ls_loader_take(struct ls_loader *loader, const int32_t **inputs, const int32_t **targets,
                          double *wait_s, struct ls_error *error)
{
    int status = __real_ls_loader_take(loader, inputs, targets, wait_s, error);
    takes++;
    works_for(input_ms[here]);
    *wait_s = 1e-3 * input_ms[here];
    return status;
}

static void await_slowest(void)
{
    int64_t update = 0, input = 0;
    for (int i = 0; i < RANKS_MAX; i++) {
        update = ls_max(update, update_ms[i]);
        input = ls_max(input, input_ms[i]);
    }
    turned_ahead_ns = ls_max(turned_ahead_ns, 1000000 * (updates * update + takes * input));
}

static void slow(int base_ms, int rank, int ms)
{
    turned_before_wait = await_slowest;
    for (int i = 0; i < RANKS_MAX; i++) {
        update_ms[i] = i == rank ? ms : base_ms;
        input_ms[i] = 0;
    }
}

#endif
