/* The bucketed reduction among 1 to 8 thread ranks: its bits are the tree over ranks, however the
 * gradient is handed over. */
#include <lockstep/parallel.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3 };

/* A gradient whose sum depends on the order. */
static float value_of(int rank, int step, int64_t i)
{
    uint32_t out[4];
    ls_philox(ls_philox_key_of(9, "gradient"),
              (uint32_t[4]){(uint32_t)i, (uint32_t)rank, (uint32_t)step, 0}, out);
    return (ls_uniform_of(out[0]) - 0.5f) * (float)(1 << (out[1] % 12));
}

struct job {
    int64_t elements, bucket_bytes;
    int missing_rank; /* this rank never reports the last range; -1: none */
    double waited_s;  /* of rank 0 */
    int64_t reduced;  /* operations of rank 0 */
};

static int compare(int ranks, int step, int64_t elements, const float *gradient,
                   struct ls_error *error)
{
    for (int64_t i = 0; i < elements; i++) {
        float parts[8];
        for (int r = 0; r < ranks; r++)
            parts[r] = value_of(r, step, i);
        float expected = ls_tree_sum(parts, ranks);
        if (memcmp(&gradient[i], &expected, sizeof expected))
            return ls_error_set(error, LS_EINVAL, "%d ranks, step %d, element %ld: %a, tree %a",
                                ranks, step, (long)i, (double)gradient[i], (double)expected);
    }
    return LS_OK;
}

static int steps_run(struct ls_comm *comm, struct job *job, struct ls_dp *dp, float *gradient,
                     struct ls_error *error)
{
    int rank = ls_comm_rank(comm), status = LS_OK;
    for (int step = 0; step < STEPS && !status; step++) {
        for (int64_t i = 0; i < job->elements; i++)
            gradient[i] = value_of(rank, step, i);
        /* Odd pieces: every rank hands over other ranges, and some of them are empty. */
        int64_t piece = 1 + (job->elements * (rank + 3)) / 53, begin = job->elements;
        int64_t lowest = rank == job->missing_rank ? 1 : 0;
        while (begin > lowest && !status) {
            begin = ls_max(begin - piece, lowest);
            status = ls_dp_ready(dp, gradient, begin, error);
            if (!status)
                status = ls_dp_ready(dp, gradient, begin, error);
        }
        if (!status)
            status = ls_dp_finish(dp, rank == 0 ? &job->waited_s : NULL, error);
        if (!status)
            status = compare(ls_comm_size(comm), step, job->elements, gradient, error);
    }
    return status;
}

static int rank_body(struct ls_comm *comm, void *user, struct ls_error *error)
{
    struct job *job = user;
    struct ls_dp *dp = NULL;
    float *gradient = malloc((size_t)job->elements * sizeof *gradient);
    struct ls_comm_stats before, after;
    ls_comm_get_stats(comm, &before);
    int status = ls_dp_new(comm, job->elements, job->bucket_bytes, &dp, error);
    if (!status)
        status = steps_run(comm, job, dp, gradient, error);
    ls_comm_get_stats(comm, &after);
    if (ls_comm_rank(comm) == 0)
        job->reduced = after.operations - before.operations;
    /* A failed rank's peers may still read its gradient: it goes when all have ended. */
    if (status)
        ls_comm_agree(comm, status, &(struct ls_error){0});
    ls_dp_free(dp);
    free(gradient);
    return status;
}

static void check(int ranks, int64_t elements, int64_t bucket_bytes, int64_t buckets)
{
    struct job job = {.elements = elements, .bucket_bytes = bucket_bytes, .missing_rank = -1};
    struct ls_error error = {0};
    if (ls_world_run(ranks, rank_body, &job, &error))
        fail_msg("%s", error.text);
    if (ranks == 1) {
        assert_true(job.waited_s == 0); /* nothing moves, nothing waits */
        assert_int_equal(job.reduced, 0);
    } else {
        assert_int_equal(job.reduced, STEPS * buckets);
    }
}

static void test_bits_are_the_tree(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks *= 2) {
        check(ranks, 20011, 4096 * 4, 5);         /* several buckets, the last short */
        check(ranks, 20011, 1 << 20, 1);          /* one bucket, not full */
        check(ranks, 4096, 4096 * 4, 1);          /* exactly one */
        check(ranks, 5, 4, 1);                    /* less than the least bucket */
        check(ranks, 10000, 64, 10000 / 320 + 1); /* raised to what can be pending */
    }
}

static void test_ranks_that_are_no_power_of_two(void **state)
{
    (void)state;
    check(3, 3001, 1024 * 4, 3);
    check(7, 3001, 1024 * 4, 3);
}

/* The broken twin: a range that is never reported must not pass for a reduced gradient. */
static void test_a_forgotten_range_is_seen(void **state)
{
    (void)state;
    for (int missing = 0; missing < 2; missing++) {
        struct job job = {.elements = 5000, .bucket_bytes = 4096, .missing_rank = missing};
        struct ls_error error = {0};
        int status = ls_world_run(2, rank_body, &job, &error);
        if (status != LS_ECOMM || !strstr(error.text, "bucket"))
            fail_msg("rank %d forgot a range: status %d, %s", missing, status, error.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_are_the_tree),
        cmocka_unit_test(test_ranks_that_are_no_power_of_two),
        cmocka_unit_test(test_a_forgotten_range_is_seen),
    };
    return cmocka_run_group_tests_name("dp", tests, NULL, NULL);
}
