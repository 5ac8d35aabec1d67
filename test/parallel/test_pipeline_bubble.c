/* What schedules idle when they run: thread ranks whose stages sleep, so that all of them are
 * concurrent on any number of cores, beside the papers' formulas. This is a measurement, and needs
 * an idle machine: it is made with CHECK=all. What schedules idle by their tables is
 * plan/test_simulate's. */
/* check: cores */
#include "../support/extent.h"

#include <lockstep/parallel/pipeline.h>
#include <lockstep/planner/closed_forms.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <time.h>

enum { RANKS = 4, MICRO_BATCHES = 8, TRIES = 5 };
static const double work_s = 0.075; /* of a rank and micro-batch, all chunks */

struct trial {
    const struct ls_schedule *schedule;
    const struct ls_schedule_costs *costs;
    struct ls_rehearsal result;
};

static int rehearse(struct ls_comm *comm, void *user, struct ls_error *error)
{
    struct trial *trial = user;
    struct ls_rehearsal result;
    int status = ls_pipeline_rehearse(comm, trial->schedule, trial->costs, 1000, &result, error);
    if (status == LS_OK && ls_comm_rank(comm) == 0)
        trial->result = result;
    return status;
}

static struct ls_rehearsal measure(enum ls_schedule_kind kind, int chunks,
                                   const struct ls_stage_cost *stage)
{
    struct ls_schedule schedule;
    struct ls_error error = {0};
    double third = work_s / 3 / chunks;
    struct ls_schedule_costs costs = {.stage = stage, .all = {third, third, third}};
    struct trial trial = {.schedule = &schedule, .costs = &costs};
    if (ls_schedule_generate(&schedule, kind, RANKS, chunks, MICRO_BATCHES, &error) ||
        ls_world_run(RANKS, rehearse, &trial, &error))
        fail_msg("%s", error.text);
    ls_schedule_release(&schedule);
    return trial.result;
}

/* Idle time is what the papers say within 5%, and a half percent of the step for waking up. Other
 * programs on the machine only ever add idle time: of some tries the best counts. */
static bool is_near(double measured, double theory)
{
    return fabs(measured - theory) <= 0.05 * theory + 0.005;
}

/* How much longer than asked a sleep of one action takes, as a share of it: the machine's part of
 * what is measured. Ranks wait for each other, so their delays add up: from what is granted
 * for waking up on the machine is too busy to say anything. */
enum { PROBES = 40 };
static const double late_max = 0.005;

static double sleeps_late(void)
{
    double third = work_s / 3, begin = ls_now_s();
    struct timespec time = {.tv_nsec = (long)(third * 1e9)};
    for (int i = 0; i < PROBES; i++)
        nanosleep(&time, NULL);
    return (ls_now_s() - begin) / (PROBES * third) - 1;
}

static void check(enum ls_schedule_kind kind, int chunks, bool of_rank, double theory)
{
    double best = INFINITY, late = sleeps_late();
    for (int i = 0; i < TRIES && !is_near(best, theory); i++) {
        struct ls_rehearsal result = measure(kind, chunks, NULL);
        best = fmin(best, of_rank ? result.bubble_rank : result.bubble);
    }
    if (is_near(best, theory))
        return;
    late = fmax(late, sleeps_late());
    if (late > late_max) {
        print_message("SKIPPED: idle time: the machine is busy, sleeps take %.1f%% too long\n",
                      100 * late);
        skip();
    }
    fail_msg("%s: %.4f idle, expected %.4f", ls_schedule_name(kind), best, theory);
}

static void test_idle_share(void **state)
{
    (void)state;
    const double far = RANKS - 1, m = MICRO_BATCHES;
    static const enum ls_schedule_kind kinds[] = {LS_SCHEDULE_GPIPE, LS_SCHEDULE_1F1B,
                                                  LS_SCHEDULE_INTERLEAVED, LS_SCHEDULE_ZB_H1};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int chunks = kinds[k] == LS_SCHEDULE_INTERLEAVED ? 2 : 1;
        check(kinds[k], chunks, false,
              ls_bubble_share(kinds[k], RANKS, chunks, MICRO_BATCHES,
                              (struct ls_pass_times){1, 1, 1}));
    }
    /* No rank idles between its first and its last action. */
    check(LS_SCHEDULE_ZBV, 2, true, 0);
    /* As long as ZBV, with one rank busy from the first action to the last. */
    check(LS_SCHEDULE_DUALPIPEV, 2, false, far / (6 * m + far));
}

/* The twin: stages that are not balanced idle more, and it is seen. */
static void test_an_unbalanced_stage_is_seen(void **state)
{
    (void)state;
    double third = work_s / 3;
    const struct ls_stage_cost stage[RANKS] = {{third, third, third},
                                               {third, third, third},
                                               {third * 1.3, third * 1.3, third * 1.3},
                                               {third, third, third}};
    struct ls_rehearsal result = measure(LS_SCHEDULE_1F1B, 1, stage);
    assert_true(!is_near(result.bubble, 3 / 11.0));
}

int main(void)
{
    if (!check_all()) {
        print_message("idle time is measured with CHECK=all, on an idle machine\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_share),
        cmocka_unit_test(test_an_unbalanced_stage_is_seen),
    };
    return cmocka_run_group_tests_name("pipeline_bubble", tests, NULL, NULL);
}
