/* Collectives among threads: results, orders of sums, ranks that fail or leave. */
/* check: threads */
#include "../support/await.h"
#include "../support/extent.h"
#include "../support/suite.h"
#include "checks.h"
#include "comm/thread.h"

#include <fenv.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

static int body_all(struct ls_comm *comm, void *user, struct ls_error *error)
{
    return check_comm(comm, error);
}

static void run_ranks(int n, int (*body)(struct ls_comm *, void *, struct ls_error *), void *user)
{
    struct ls_error error = {0};
    if (ls_world_run(n, body, user, &error) != LS_OK)
        fail_msg("%d ranks: %s", n, error.text);
}

CASE(test_every_operation)
{
    const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 16};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (check_all() || i < 3 || i == 4 || i == 7)
            run_ranks(sizes[i], body_all, NULL);
}

static int body_million(struct ls_comm *comm, void *user, struct ls_error *error)
{
    return check_operations(comm, 1000000, error);
}

CASE(test_a_million_elements)
{
    run_ranks(2, body_million, NULL);
    if (check_all())
        run_ranks(5, body_million, NULL);
}

/* The rank and its threads. */
static int body_modes(struct ls_comm *comm, void *user, struct ls_error *error)
{
    int others = 0;
    (void)comm;
    (void)user;
#pragma omp parallel num_threads(2) reduction(+ : others)
    {
        volatile float tiny = FLT_MIN;
        others += fegetround() != FE_TONEAREST;
        tiny /= 2;
        others += tiny <= 0;
    }
    return others ? ls_error_set(error, LS_ENUMERIC, "%d modes are the caller's", others) : LS_OK;
}

/* A caller that rounds upwards, and one that flushes subnormal numbers to zero. */
CASE(test_ranks_compute_in_the_modes_of_the_language)
{
    assert_int_equal(fesetround(FE_UPWARD), 0);
    run_ranks(2, body_modes, NULL);
    assert_int_equal(fegetround(), FE_UPWARD);
    fesetenv(FE_DFL_ENV);
#if defined(__SSE2__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
    run_ranks(2, body_modes, NULL);
    fesetenv(FE_DFL_ENV);
#endif
}

CASE(test_self)
{
    struct ls_comm *comm;
    struct ls_error error = {0};
    assert_int_equal(ls_comm_self_new(&comm, &error), LS_OK);
    assert_string_equal(ls_transport_name(ls_comm_transport(comm)), "self");
    if (check_comm(comm, &error) != LS_OK)
        fail_msg("self: %s", error.text);
    ls_comm_free(comm);
}

/* The broken twin: adding in rank order, as a ring does, gives other bits than the tree for these
 * values. Were it equal, the checks above would prove nothing about order. */
CASE(test_rank_order_is_another_sum)
{
    float values[8] = {1e8f, 1, -1e8f, 1, 3, 1e-3f, 7, -5};
    float ring = values[0];
    for (int r = 1; r < 8; r++)
        ring += values[r];
    float tree = ls_tree_sum(values, 8);
    if (memcmp(&ring, &tree, sizeof ring) == 0)
        fail_msg("ring order %a equals the tree's %a", (double)ring, (double)tree);
}

/* ---- ranks that leave ------------------------------------------------------------------------ */

/* How many ranks wait for others to come to an operation of the group. */
static int waiters(struct ls_comm *comm)
{
    struct thread_group *group = ((struct thread_comm *)comm)->group;
    int count = 0;
    pthread_mutex_lock(&group->world->lock);
    for (const struct thread_op *op = group->live; op; op = op->next)
        count += op->state == OP_POSTING ? op->waiters : 0;
    pthread_mutex_unlock(&group->world->lock);
    return count;
}

/* Rank 1 fails by itself; the others are in a collective that it never joins, in a group of theirs
 * where ranks count backwards, in a recv from it, or wait for what they started. */
static int body_one_fails(struct ls_comm *comm, void *user, struct ls_error *error)
{
    int where = *(int *)user, rank = ls_comm_rank(comm);
    const char *named = where == 1 ? "rank 2 (of the world: 1)" : "rank 1 has left the group";
    const char *reason = where == 1 ? "freed" : "it failed with LS_EDATA: shard 1 is damaged";
    struct ls_comm *group;
    struct ls_request request;
    float buffer[1000] = {0};
    int status = ls_comm_split(comm, 0, -rank, &group, error);
    if (status != LS_OK)
        return status;
    if (rank == 1) {
        while (waiters(comm) + waiters(group) < ls_comm_size(comm) - 1)
            await_pause();
        status = ls_error_set(error, LS_EDATA, "shard 1 is damaged");
    } else if (where == 0) {
        status = ls_all_reduce(comm, buffer, 1000, error);
    } else if (where == 1) {
        status = ls_barrier(group, error);
    } else if (where == 2) {
        status = ls_recv(comm, buffer, 1000, LS_F32, 1, 0, error);
    } else {
        status = ls_all_reduce_start(comm, buffer, 1000, &request, LS_HERE, error);
        status = status == LS_OK ? ls_wait(&request, error) : status;
    }
    ls_comm_free(group);
    if (rank == 1)
        return status;
    if (status != LS_ECOMM || !strstr(error->text, named) || !strstr(error->text, reason))
        return ls_error_set(error, LS_ENUMERIC, "case %d, rank %d: got %d, %.500s", where, rank,
                            status, error->text);
    /* Later operations fail, too. */
    status = ls_barrier(comm, error);
    return status == LS_OK ? ls_error_set(error, LS_ENUMERIC, "passed a barrier without rank 1")
                           : status;
}

CASE(test_a_failing_rank_is_named)
{
    for (int where = 0; where < 4; where++) {
        struct ls_error error = {0};
        int status = ls_world_run(4, body_one_fails, &where, &error);
        assert_string_equal(error.text, "rank 1: shard 1 is damaged");
        assert_int_equal(status, LS_EDATA);
    }
}

static bool has_left(struct ls_comm *comm, int rank)
{
    struct ls_world *world = ((struct thread_comm *)comm)->group->world;
    pthread_mutex_lock(&world->lock);
    bool left = world->ranks[rank].left;
    pthread_mutex_unlock(&world->lock);
    return left;
}

/* Whom the group has noted, without a look at its other ranks. */
static int first_that_left(struct ls_comm *comm)
{
    struct thread_group *group = ((struct thread_comm *)comm)->group;
    pthread_mutex_lock(&group->world->lock);
    int first = group->left_first;
    pthread_mutex_unlock(&group->world->lock);
    return first;
}

/* Rank 2 returns. Where they come in turn, rank 1 calls when rank 2 has left, and leaves for that
 * reason; rank 0 calls after both. */
static int body_one_returns(struct ls_comm *comm, void *user, struct ls_error *error)
{
    const bool *in_turn = user;
    int rank = ls_comm_rank(comm);
    if (rank == 2)
        return first_that_left(comm) < 0 ? LS_OK : LS_EDATA; /* the others wait for it */
    while (*in_turn && !has_left(comm, rank + 1))
        await_pause();
    if (*in_turn && first_that_left(comm) != 2)
        return ls_error_set(error, LS_EDATA, "rank %d left first", first_that_left(comm));
    return ls_barrier_at(comm, (struct ls_call_site){"late.c", 7}, error);
}

CASE(test_an_early_return_is_named)
{
    for (int in_turn = 0; in_turn < 2; in_turn++) {
        struct ls_error error = {0};
        assert_int_equal(ls_world_run(3, body_one_returns, &(bool){in_turn}, &error), LS_ECOMM);
        assert_string_equal(error.text, "rank 0: barrier (late.c:7): rank 2 has left the group: "
                                        "it has returned");
    }
}

/* Rank 0 starts an operation, and frees the group without waiting: its buffer is its own again, so
 * nobody may touch it. */
static int body_frees_early(struct ls_comm *comm, void *user, struct ls_error *error)
{
    struct ls_comm *group;
    struct ls_request request;
    float buffer[100] = {0};
    int status = ls_comm_split(comm, 0, ls_comm_rank(comm), &group, error);
    if (status == LS_OK && ls_comm_rank(comm) == 0)
        status = ls_all_reduce_start(group, buffer, 100, &request, LS_HERE, error);
    if (status == LS_OK && ls_comm_rank(comm) == 1) {
        while (first_that_left(group) != 0)
            await_pause();
        status = ls_all_reduce(group, buffer, 100, error);
        status = status == LS_ECOMM && strstr(error->text, "freed its communicator")
                     ? LS_OK
                     : ls_error_set(error, LS_ENUMERIC, "got %d: %.400s", status, error->text);
    }
    ls_comm_free(group);
    return status == LS_OK ? ls_barrier(comm, error) : status;
}

CASE(test_a_freed_group_is_named)
{
    run_ranks(2, body_frees_early, NULL);
}

/* All have started; rank 0 frees the group and its buffer without waiting. The others still get
 * their sums, and nobody touches the buffer afterwards (the address sanitizer watches). */
static int body_frees_when_ready(struct ls_comm *comm, void *user, struct ls_error *error)
{
    enum { COUNT = 300000 };
    struct ls_comm *group;
    struct ls_request request;
    float *buffer = malloc(COUNT * sizeof *buffer);
    if (!buffer)
        return ls_error_set(error, LS_ENOMEM, "no memory for a check");
    for (int i = 0; i < COUNT; i++)
        buffer[i] = (float)(i % 100);
    int status = ls_comm_split(comm, 0, ls_comm_rank(comm), &group, error);
    if (status == LS_OK)
        status = ls_all_reduce_start(group, buffer, COUNT, &request, LS_HERE, error);
    if (status == LS_OK)
        status = ls_barrier(comm, error);
    if (status == LS_OK && ls_comm_rank(comm) > 0) {
        status = ls_wait(&request, error);
        for (int i = 0; i < COUNT && status == LS_OK; i++)
            if (buffer[i] != (float)(i % 100 * 4))
                status = ls_error_set(error, LS_ENUMERIC, "element %d is %g, expected %d", i,
                                      (double)buffer[i], i % 100 * 4);
    }
    ls_comm_free(group);
    free(buffer);
    return status;
}

CASE(test_freeing_ends_what_all_have_started)
{
    for (int i = 0; i < 20; i++)
        run_ranks(4, body_frees_when_ready, NULL);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static int body_arguments(struct ls_comm *comm, void *user, struct ls_error *error)
{
    float buffer[4] = {0};
    struct ls_error got = {0};
    int refused = 0;
    refused += ls_all_reduce(comm, buffer, -1, &got) == LS_EINVAL;
    refused += ls_all_reduce(comm, NULL, 4, &got) == LS_EINVAL;
    refused += ls_all_gather(comm, buffer, buffer, INT64_MAX / 2, LS_F32, &got) == LS_EINVAL;
    refused += ls_broadcast(comm, buffer, 4, LS_F32, 2, &got) == LS_EINVAL;
    refused += ls_send(comm, buffer, 4, LS_F32, -1, 0, &got) == LS_EINVAL;
    refused += ls_send(comm, buffer, 4, LS_F32, 0, LS_COMM_TAG_MAX + 1, &got) == LS_EINVAL;
    if (refused != 6)
        return ls_error_set(error, LS_ENUMERIC, "%d of 6 bad calls were refused", refused);
    return ls_all_reduce(comm, buffer, 4, error);
}

CASE(test_arguments)
{
    struct ls_error error = {0};
    struct ls_world *world;
    struct ls_comm *comm, *again;
    run_ranks(2, body_arguments, NULL);
    assert_int_equal(ls_world_new(0, &world, &error), LS_EINVAL);
    assert_int_equal(ls_world_new(2, &world, &error), LS_OK);
    assert_int_equal(ls_comm_thread_new(world, 2, &comm, &error), LS_EINVAL);
    assert_int_equal(ls_comm_thread_new(world, 1, &comm, &error), LS_OK);
    assert_int_equal(ls_comm_thread_new(world, 1, &again, &error), LS_EINVAL);
    ls_comm_free(comm);
    ls_world_free(world);
}

/* A send and a recv of different lengths. */
static int body_short_recv(struct ls_comm *comm, void *user, struct ls_error *error)
{
    float buffer[8] = {0};
    struct ls_call_site here = {"s.c", 1}, there = {"r.c", 2};
    int status = ls_comm_rank(comm) == 0
                     ? ls_send_start(comm, buffer, 8, LS_F32, 1, 3, NULL, here, error)
                     : ls_recv_start(comm, buffer, 7, LS_F32, 0, 3, NULL, there, error);
    if (status != LS_ECOMM || !strstr(error->text, "send of 8 F32 to rank 1 with tag 3 (s.c:1)") ||
        !strstr(error->text, "recv of 7 F32 from rank 0 with tag 3 (r.c:2)"))
        return ls_error_set(error, LS_ENUMERIC, "got %d: %.400s", status, error->text);
    return LS_OK;
}

CASE(test_lengths_of_send_and_recv)
{
    run_ranks(2, body_short_recv, NULL);
}

SUITE_MAIN(NULL, NULL)
