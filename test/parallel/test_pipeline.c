/* The runtime over thread ranks: whatever the table, every stage sees the same inputs, the same
 * gradients and the same order of micro-batches as one rank that computes them one by one. Stages
 * are hashes, so a wrong, stale or missing number anywhere changes all that follows. */
#include <lockstep/parallel/pipeline.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT_MAX = 48, STAGES_MAX = 64 };

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t words[3] = {a, b, c};
    return ls_hash64(words, sizeof words, 7);
}

/* Micro-batches differ in size, and one is empty. */
static int64_t count_of(void *user, int64_t micro_batch)
{
    (void)user;
    return micro_batch % 5 == 3 ? 0 : COUNT_MAX - micro_batch % 7;
}

static uint64_t first_input(int64_t micro_batch, int64_t i)
{
    return mix(1, (uint64_t)micro_batch, (uint64_t)i);
}
static uint64_t forward_of(uint64_t x, int stage)
{
    return mix(x, 2, (uint64_t)stage);
}
/* The gradient of a stage's input depends on its input too, as a real one does. */
static uint64_t backward_of(uint64_t d_y, uint64_t x, int stage)
{
    return mix(d_y, x, (uint64_t)stage);
}
/* A sum whose order matters. */
static uint64_t weight_of(uint64_t sum, uint64_t x, uint64_t d_y)
{
    return mix(sum, x, d_y);
}

/* ---- one rank, one by one -------------------------------------------------------------------- */

static void reference(int stages, int64_t micro_batches, uint64_t *weights)
{
    static uint64_t x[STAGES_MAX + 1][COUNT_MAX];
    memset(weights, 0, (size_t)stages * sizeof *weights);
    for (int64_t m = 0; m < micro_batches; m++) {
        int64_t count = count_of(NULL, m);
        for (int64_t i = 0; i < count; i++) {
            x[0][i] = first_input(m, i);
            for (int s = 0; s < stages; s++)
                x[s + 1][i] = forward_of(x[s][i], s);
            uint64_t d = x[stages][i];
            for (int s = stages - 1; s >= 0; s--) {
                weights[s] = weight_of(weights[s], x[s][i], d);
                d = backward_of(d, x[s][i], s);
            }
        }
    }
}

/* ---- the same as a pipeline ------------------------------------------------------------------ */

struct job {
    const struct ls_schedule *schedule;
    uint64_t *weights; /* [stages] written by the rank of each */
    int fail_stage;    /* whose forward of micro-batch 1 fails; -1: none */
    bool shake;        /* sleep now and then */
    int steps;
    double wait_s, elapsed_s;
};

/* A chunk's saved micro-batches, in the slots of the table. */
struct chunk {
    int stage, slots;
    int32_t *slot;
    uint64_t *output;          /* [slots][COUNT_MAX] */
    const uint64_t **x, **d_y; /* [m] as given to forward and backward */
};

struct rank {
    struct job *job;
    struct chunk *chunk;
    uint64_t input_gradient[COUNT_MAX]; /* one for all: overwritten by every backward */
    int actions;
    int64_t next_index;
};

static uint64_t x_of(const struct rank *rank, int c, int64_t m, int64_t i)
{
    return rank->chunk[c].stage == 0 ? first_input(m, i) : rank->chunk[c].x[m][i];
}

static void shake(struct rank *rank, int c, int64_t m)
{
    uint64_t draw = mix((uint64_t)rank->chunk[c].stage, (uint64_t)m, (uint64_t)rank->actions++);
    if (rank->job->shake && draw % 4 == 0)
        usleep((useconds_t)(draw % 211));
}

static int forward(void *user, int c, int64_t m, const void *input, const void **output,
                   struct ls_error *error)
{
    struct rank *rank = user;
    struct chunk *chunk = &rank->chunk[c];
    uint64_t *y = chunk->output + (int64_t)chunk->slot[m] * COUNT_MAX;
    shake(rank, c, m);
    if (chunk->stage == rank->job->fail_stage && m == 1)
        return ls_error_set(error, LS_ENUMERIC, "made to fail");
    chunk->x[m] = input;
    bool last = chunk->stage == rank->job->schedule->stages - 1;
    if ((input == NULL) != (chunk->stage == 0) || (output == NULL) != last)
        return ls_error_set(error, LS_EINVAL, "stage %d: input %p, output %p", chunk->stage, input,
                            (void *)output);
    for (int64_t i = 0; i < count_of(NULL, m); i++)
        y[i] = forward_of(x_of(rank, c, m, i), chunk->stage);
    if (output)
        *output = y;
    return LS_OK;
}

static int backward_input(void *user, int c, int64_t m, const void *output_gradient,
                          const void **input_gradient, struct ls_error *error)
{
    struct rank *rank = user;
    struct chunk *chunk = &rank->chunk[c];
    uint64_t *y = chunk->output + (int64_t)chunk->slot[m] * COUNT_MAX;
    shake(rank, c, m);
    chunk->d_y[m] = output_gradient;
    bool last = chunk->stage == rank->job->schedule->stages - 1;
    if ((output_gradient == NULL) != last || (input_gradient == NULL) != (chunk->stage == 0))
        return ls_error_set(error, LS_EINVAL, "stage %d: gradient %p, to write %p", chunk->stage,
                            output_gradient, (void *)input_gradient);
    /* What this may overwrite is overwritten: its own result sent on, gradients sent back. The last
     * stage keeps its output, from which its gradient comes. */
    memset(rank->input_gradient, 0xdb, sizeof rank->input_gradient);
    if (!last)
        memset(y, 0xdb, COUNT_MAX * sizeof *y);
    for (int64_t i = 0; i < count_of(NULL, m); i++)
        rank->input_gradient[i] =
            backward_of(last ? y[i] : chunk->d_y[m][i], x_of(rank, c, m, i), chunk->stage);
    if (input_gradient)
        *input_gradient = rank->input_gradient;
    return LS_OK;
}

static int backward_weight(void *user, int c, int64_t m, struct ls_error *error)
{
    struct rank *rank = user;
    struct chunk *chunk = &rank->chunk[c];
    const uint64_t *y = chunk->output + (int64_t)chunk->slot[m] * COUNT_MAX;
    uint64_t *sum = &rank->job->weights[chunk->stage];
    bool last = chunk->stage == rank->job->schedule->stages - 1;
    (void)error;
    shake(rank, c, m);
    for (int64_t i = 0; i < count_of(NULL, m); i++)
        *sum = weight_of(*sum, x_of(rank, c, m, i), last ? y[i] : chunk->d_y[m][i]);
    return LS_OK;
}

static int backward(void *user, int c, int64_t m, const void *output_gradient,
                    const void **input_gradient, struct ls_error *error)
{
    int code = backward_input(user, c, m, output_gradient, input_gradient, error);
    return code ? code : backward_weight(user, c, m, error);
}

/* Actions are announced in the order of the list. */
static int before(void *user, int64_t index, struct ls_error *error)
{
    struct rank *rank = user;
    if (index != rank->next_index)
        return ls_error_set(error, LS_EINVAL, "action %ld comes after %ld", (long)index,
                            (long)rank->next_index - 1);
    rank->next_index++;
    return LS_OK;
}

static void rank_init(struct rank *rank, struct job *job, int index)
{
    const struct ls_schedule *schedule = job->schedule;
    size_t m = (size_t)schedule->micro_batches;
    *rank = (struct rank){.job = job};
    rank->chunk = calloc((size_t)schedule->chunks, sizeof *rank->chunk);
    for (int c = 0; c < schedule->chunks; c++) {
        struct chunk *chunk = &rank->chunk[c];
        chunk->stage = ls_schedule_stage(schedule, index, c);
        chunk->slot = calloc(m, sizeof *chunk->slot);
        chunk->slots = ls_schedule_slots(schedule, index, c, LS_SLOT_SAVED, chunk->slot);
        chunk->output = calloc((size_t)chunk->slots * COUNT_MAX, sizeof *chunk->output);
        chunk->x = calloc(m, sizeof *chunk->x);
        chunk->d_y = calloc(m, sizeof *chunk->d_y);
    }
}

static void rank_release(struct rank *rank)
{
    for (int c = 0; c < rank->job->schedule->chunks; c++) {
        struct chunk *chunk = &rank->chunk[c];
        free(chunk->slot);
        free(chunk->output);
        free(chunk->x);
        free(chunk->d_y);
    }
    free(rank->chunk);
}

static int run_steps(struct ls_pipeline *pipeline, struct rank *rank, struct ls_error *error)
{
    const struct ls_pipeline_ops ops = {rank,     forward, backward_input, backward_weight,
                                        backward, before};
    int code = LS_OK;
    for (int step = 0; step < rank->job->steps && code == LS_OK; step++) {
        rank->next_index = 0;
        for (int c = 0; c < rank->job->schedule->chunks; c++)
            rank->job->weights[rank->chunk[c].stage] = 0;
        code = ls_pipeline_run(pipeline, &ops, error);
    }
    return code;
}

static int rank_body(struct ls_comm *world, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct rank rank;
    struct ls_comm *comm;
    int split = ls_comm_split(world, 0, ls_comm_rank(world), &comm, error);
    if (split)
        return split;
    struct ls_pipeline_options options = {.schedule = job->schedule,
                                          .comm = comm,
                                          .dtype = LS_U64,
                                          .count_max = COUNT_MAX,
                                          .count = count_of};
    struct ls_pipeline *pipeline = NULL;
    struct ls_arena arena;
    ls_arena_measure(&arena);
    int code = ls_pipeline_new(&options, &arena, &pipeline, error);
    ls_pipeline_free(pipeline);
    size_t bytes = arena.peak;
    if (code == LS_OK)
        code = ls_arena_init(&arena, bytes, error);
    if (code == LS_OK)
        code = ls_pipeline_new(&options, &arena, &pipeline, error);
    if (code)
        return code;
    assert_int_equal(arena.used, bytes); /* what was measured is what is taken */
    rank_init(&rank, job, ls_comm_rank(comm));
    code = run_steps(pipeline, &rank, error);
    struct ls_pipeline_stats stats;
    ls_pipeline_get_stats(pipeline, &stats);
    if (ls_comm_rank(comm) == 0) {
        job->wait_s = stats.wait_s;
        job->elapsed_s = stats.elapsed_s;
    }
    /* After a failure this ends what is pending: buffers are free again, and peers fail too. */
    ls_comm_free(comm);
    rank_release(&rank);
    ls_pipeline_free(pipeline);
    ls_arena_release(&arena);
    return code;
}

/* The stage whose sum differs from one rank's, -1: none. */
static int run(const struct ls_schedule *schedule, bool shaken)
{
    uint64_t expected[STAGES_MAX], weights[STAGES_MAX];
    struct job job = {
        .schedule = schedule, .weights = weights, .fail_stage = -1, .shake = shaken, .steps = 2};
    struct ls_error error = {0};
    assert_true(schedule->stages <= STAGES_MAX);
    reference(schedule->stages, schedule->micro_batches, expected);
    if (ls_world_run(schedule->ranks, rank_body, &job, &error))
        fail_msg("%s", error.text);
    assert_true(job.wait_s >= 0 && job.wait_s <= job.elapsed_s);
    for (int s = 0; s < schedule->stages; s++)
        if (weights[s] != expected[s])
            return s;
    return -1;
}

static void check(enum ls_schedule_kind kind, int p, int v, int64_t m, bool shaken)
{
    struct ls_schedule schedule;
    struct ls_error error = {0};
    if (ls_schedule_generate(&schedule, kind, p, v, m, &error) ||
        ls_schedule_validate(&schedule, &error))
        fail_msg("%s", error.text);
    int wrong = run(&schedule, shaken);
    if (wrong >= 0)
        fail_msg("%s, %d ranks, %d chunks, %ld micro-batches: stage %d sums up something else",
                 ls_schedule_name(kind), p, v, (long)m, wrong);
    ls_schedule_release(&schedule);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_one_rank(void **state)
{
    (void)state;
    check(LS_SCHEDULE_1F1B, 1, 1, 5, false);
    check(LS_SCHEDULE_GPIPE, 1, 1, 5, false);
    check(LS_SCHEDULE_INTERLEAVED, 1, 3, 5, false);
    check(LS_SCHEDULE_ZB_H1, 1, 1, 1, false);
    check(LS_SCHEDULE_ZBV, 1, 2, 5, false);
    check(LS_SCHEDULE_DUALPIPEV, 1, 2, 4, false);
}

static void test_every_schedule(void **state)
{
    static const int ranks[] = {2, 3, 4, 7};
    (void)state;
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
static void test_few_and_many_micro_batches(void **state)
{
    (void)state;
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
static void test_a_table_from_a_file(void **state)
{
    (void)state;
    static const char text[] = "0F0,3F0,0F1,3I0,3F1,0I0,3W0,0W0,3I1,0I1,3W1,0W1\n"
                               "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n";
    struct ls_schedule schedule;
    struct ls_error error = {0};
    if (ls_schedule_parse(&schedule, "text", text, sizeof text - 1, 2, 2, 2, &error) ||
        ls_schedule_validate(&schedule, &error))
        fail_msg("%s", error.text);
    assert_int_equal(run(&schedule, true), -1);
    ls_schedule_release(&schedule);
}

/* The broken twin: weight gradients in another order are another sum. */
static void test_swapped_weight_gradients_are_seen(void **state)
{
    (void)state;
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
    assert_int_equal(run(&schedule, false), 2);
    ls_schedule_release(&schedule);
}

static void test_a_failing_stage_ends_the_run(void **state)
{
    (void)state;
    for (int stage = 0; stage < 4; stage++) {
        uint64_t weights[STAGES_MAX];
        struct ls_schedule schedule;
        struct ls_error error = {0};
        ls_schedule_generate(&schedule, LS_SCHEDULE_1F1B, 4, 1, 8, &error);
        struct job job = {
            .schedule = &schedule, .weights = weights, .fail_stage = stage, .steps = 1};
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

static void test_a_group_of_another_size_is_refused(void **state)
{
    (void)state;
    struct ls_schedule schedule;
    struct ls_error error = {0};
    ls_schedule_generate(&schedule, LS_SCHEDULE_1F1B, 4, 1, 8, &error);
    assert_int_equal(ls_world_run(2, wrong_size_body, &schedule, &error), LS_EINVAL);
    assert_non_null(strstr(error.text, "4 ranks"));
    ls_schedule_release(&schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_every_schedule),
        cmocka_unit_test(test_few_and_many_micro_batches),
        cmocka_unit_test(test_a_table_from_a_file),
        cmocka_unit_test(test_swapped_weight_gradients_are_seen),
        cmocka_unit_test(test_a_failing_stage_ends_the_run),
        cmocka_unit_test(test_a_group_of_another_size_is_refused),
    };
    return cmocka_run_group_tests_name("pipeline", tests, NULL, NULL);
}
