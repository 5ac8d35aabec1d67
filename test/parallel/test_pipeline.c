/* The runtime over thread ranks: whatever the table, every stage sees the same inputs, the same
 * gradients and the same order of micro-batches as one rank that computes them one by one. */
#include "../support/suite.h"
#include "hashed.h"

#include <string.h>

static int rank_body(struct ls_comm *comm, void *user, struct ls_error *error)
{
    return hashed_run(comm, user, error);
}

static int run(const struct ls_schedule *schedule, bool shaken, struct ls_error *error)
{
    struct hashed_job job = {.schedule = schedule, .fail_stage = -1, .shake = shaken, .steps = 2};
    return ls_world_run(schedule->ranks, rank_body, &job, error);
}

static void check(enum ls_schedule_kind kind, int p, int v, int64_t m, bool shaken)
{
    struct ls_schedule schedule;
    struct ls_error error = {0};
    if (ls_schedule_generate(&schedule, kind, p, v, m, &error) ||
        ls_schedule_validate(&schedule, &error) || run(&schedule, shaken, &error))
        fail_msg("%s, %d ranks, %d chunks, %ld micro-batches: %s", ls_schedule_name(kind), p, v,
                 (long)m, error.text);
    ls_schedule_release(&schedule);
}

/* ---- tests ---------------------------------------------------------------------------------- */

CASE(test_one_rank)
{
    check(LS_SCHEDULE_1F1B, 1, 1, 5, false);
    check(LS_SCHEDULE_GPIPE, 1, 1, 5, false);
    check(LS_SCHEDULE_INTERLEAVED, 1, 3, 5, false);
    check(LS_SCHEDULE_ZB_H1, 1, 1, 1, false);
    check(LS_SCHEDULE_ZBV, 1, 2, 5, false);
    check(LS_SCHEDULE_DUALPIPEV, 1, 2, 4, false);
}

CASE(test_every_schedule)
{
    static const int ranks[] = {2, 3, 4, 7};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        int p = ranks[i];
        for (int shaken = 0; shaken < 2; shaken++) {
            check(LS_SCHEDULE_GPIPE, p, 1, 2 * p + 1, shaken);
            check(LS_SCHEDULE_1F1B, p, 1, 2 * p + 1, shaken);
            check(LS_SCHEDULE_INTERLEAVED, p, 2, 2 * p, shaken);
            check(LS_SCHEDULE_INTERLEAVED, p, 3, 2 * p + 1, shaken);
            check(LS_SCHEDULE_ZB_H1, p, 1, 2 * p + 1, shaken);
            check(LS_SCHEDULE_ZBV, p, 2, 2 * p + 1, shaken);
            check(LS_SCHEDULE_DUALPIPEV, p, 2, 2 * p + 1, shaken);
        }
    }
}

/* Fewer micro-batches than ranks, and more than a rank may have sends under way. */
CASE(test_few_and_many_micro_batches)
{
    for (int m = 1; m <= 3; m++) {
        check(LS_SCHEDULE_GPIPE, 5, 1, m, false);
        check(LS_SCHEDULE_1F1B, 5, 1, m, false);
        check(LS_SCHEDULE_INTERLEAVED, 5, 2, m, false);
        check(LS_SCHEDULE_ZB_H1, 5, 1, m, false);
        check(LS_SCHEDULE_ZBV, 5, 2, m, false);
    }
    check(LS_SCHEDULE_GPIPE, 3, 1, 3 * LS_PIPELINE_SENDS, true);
    check(LS_SCHEDULE_INTERLEAVED, 3, 4, 3 * LS_PIPELINE_SENDS, false);
}

/* A table from a file may place stages as it likes. */
CASE(test_a_table_from_a_file)
{
    static const char text[] = "0F0,3F0,0F1,3I0,3F1,0I0,3W0,0W0,3I1,0I1,3W1,0W1\n"
                               "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n";
    struct ls_schedule schedule;
    struct ls_error error = {0};
    if (ls_schedule_parse(&schedule, "text", text, sizeof text - 1, 2, 2, 2, &error) ||
        ls_schedule_validate(&schedule, &error))
        fail_msg("%s", error.text);
    assert_ok(run(&schedule, true, &error), error);
    ls_schedule_release(&schedule);
}

/* The broken twin: weight gradients in another order are another sum. */
CASE(test_swapped_weight_gradients_are_seen)
{
    struct ls_schedule schedule;
    struct ls_error error = {0};
    assert_int_equal(ls_schedule_generate(&schedule, LS_SCHEDULE_ZB_H1, 3, 1, 6, &error), LS_OK);
    int64_t end = schedule.first[3];
    struct ls_action last = schedule.actions[end - 1], next_to_last = schedule.actions[end - 2];
    assert_int_equal(last.kind, LS_ACTION_W);
    assert_int_equal(next_to_last.kind, LS_ACTION_W);
    schedule.actions[end - 1] = next_to_last;
    schedule.actions[end - 2] = last;
    assert_int_equal(ls_schedule_validate(&schedule, &error), LS_ELAYOUT);
    assert_int_equal(run(&schedule, false, &error), LS_ENUMERIC);
    assert_non_null(strstr(error.text, "stage 2 sums up"));
    ls_schedule_release(&schedule);
}

CASE(test_a_failing_stage_ends_the_run)
{
    for (int stage = 0; stage < 4; stage++) {
        struct ls_schedule schedule;
        struct ls_error error = {0};
        ls_schedule_generate(&schedule, LS_SCHEDULE_1F1B, 4, 1, 8, &error);
        struct hashed_job job = {.schedule = &schedule, .fail_stage = stage, .steps = 1};
        int status = ls_world_run(4, rank_body, &job, &error);
        if (status != LS_ENUMERIC || !strstr(error.text, "F1: made to fail"))
            fail_msg("stage %d: status %d, %s", stage, status, error.text);
        ls_schedule_release(&schedule);
    }
}

static int wrong_size_body(struct ls_comm *comm, void *user, struct ls_error *error)
{
    struct ls_arena arena;
    struct ls_pipeline *pipeline;
    ls_arena_measure(&arena);
    return ls_pipeline_new(
        &(struct ls_pipeline_options){.schedule = user, .comm = comm, .count_max = 1}, &arena,
        &pipeline, error);
}

CASE(test_a_group_of_another_size_is_refused)
{
    struct ls_schedule schedule;
    struct ls_error error = {0};
    ls_schedule_generate(&schedule, LS_SCHEDULE_1F1B, 4, 1, 8, &error);
    assert_int_equal(ls_world_run(2, wrong_size_body, &schedule, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "4 ranks"));
    ls_schedule_release(&schedule);
}

SUITE_MAIN(NULL, NULL)
