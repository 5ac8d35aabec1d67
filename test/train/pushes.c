/* What a parameter server's workers push, by definition. */
#include "pushes.h"
#include "../support/testing.h"

#include <lockstep/config/inputs.h>
#include <lockstep/data/blend.h>
#include <stdio.h>
#include <string.h>

enum { PUSHERS_MAX = 16 };

static int64_t least_of(const int64_t *values, int count)
{
    int64_t least = values[0];
    for (int i = 1; i < count; i++)
        least = values[i] < least ? values[i] : least;
    return least;
}

void pushes_expect(int workers, int bound, const int64_t *order, int count,
                   struct push_expected *out)
{
    struct push_expected at[PUSHERS_MAX];
    int64_t clock[PUSHERS_MAX] = {0}, next = workers;
    bool waits[PUSHERS_MAX] = {false};
    for (int w = 0; w < workers; w++)
        at[w] = (struct push_expected){.ticket = w};
    for (int e = 0; e < count; e++) {
        int64_t pusher = order[e];
        assert_in_range(pusher, 0, workers - 1);
        assert_false(waits[pusher]);
        out[e] = at[pusher];
        clock[pusher]++;
        waits[pusher] = true;
        for (int w = 0; w < workers; w++) {
            if (!waits[w] || (bound >= 0 && clock[w] > least_of(clock, workers) + bound))
                continue;
            waits[w] = false;
            at[w] = (struct push_expected){next++, clock[w], e + 1};
        }
    }
}

void pushes_order(int workers, int bound, const int64_t *times, int count, int64_t *order)
{
    int64_t done[PUSHERS_MAX], clock[PUSHERS_MAX] = {0};
    bool waits[PUSHERS_MAX] = {false};
    for (int w = 0; w < workers; w++)
        done[w] = times[w];
    for (int e = 0; e < count; e++) {
        int first = -1;
        for (int w = 0; w < workers; w++)
            if (!waits[w] && (first < 0 || done[w] < done[first]))
                first = w;
        const int64_t now = done[first];
        order[e] = bound == 0 ? e % workers : first; /* all of a clock are added together */
        clock[first]++;
        waits[first] = true;
        for (int w = 0; w < workers; w++) {
            if (!waits[w] || (bound >= 0 && clock[w] > least_of(clock, workers) + bound))
                continue;
            waits[w] = false;
            done[w] = now + times[w];
        }
    }
}

const char *pushes_wrong(const struct workers_run *run)
{
    static char text[200];
    struct push_expected expected[WORKERS_STEPS_MAX];
    const struct ls_config *config = &run->config;
    struct ls_training_data data;
    struct ls_error error = {0};
    int64_t order[WORKERS_STEPS_MAX], timed[WORKERS_STEPS_MAX], times[PUSHERS_MAX];
    int64_t batch = config->batch.global, workers = config->async.workers;
    const char *wrong = NULL;
    for (int e = 0; e < run->steps; e++)
        order[e] = run->told[e].worker;
    pushes_expect((int)workers, (int)config->async.staleness, order, run->steps, expected);
    assert_in_range(workers, 1, PUSHERS_MAX);
    assert_int_equal(ls_config_times(config, times, &error), LS_OK);
    pushes_order((int)workers, (int)config->async.staleness, times, run->steps, timed);
    if (config->async.order == LS_CONFIG_BY_CLOCK)
        memcpy(timed, order, sizeof timed);
    assert_ok(ls_training_data_open(config, NULL, &data, &error), error);
    for (int e = run->first; e < run->steps && !wrong; e++) {
        const struct workers_told *told = &run->told[e];
        struct ls_digest digest = {0, 0};
        char ledger[33];
        ls_blend_ledger(data.blend, expected[e].ticket * batch, batch, &digest);
        ls_digest_hex(&digest, ledger);
        wrong = order[e] != timed[e]                         ? "worker"
                : told->ticket != expected[e].ticket         ? "ticket"
                : told->clock != expected[e].clock           ? "clock"
                : told->staleness != e - expected[e].version ? "staleness"
                : told->samples != (e + 1) * batch           ? "samples"
                : told->sequences != batch                   ? "sequences"
                : strcmp(told->ledger, ledger) != 0          ? "ledger"
                                                             : NULL;
        if (wrong)
            snprintf(text, sizeof text, "step %d: its %s is not that of the push of worker %ld",
                     e + 1, wrong, (long)told->worker);
    }
    ls_training_data_close(&data);
    return wrong ? text : NULL;
}
