/* Thread ranks that are late: who waits names them, and nothing hangs. A rank is late until the
 * others have said so, however long that takes. */
#include "../support/late.h"
#include "../support/suite.h"
#include "../support/turned_clock.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static int to_tell; /* ranks that shall be told who is late */

/* The clock turns by itself where some rank is to be late. */
static void clock_begin(int count, int count_to_tell)
{
    turned_begin(count_to_tell ? count : 0);
    to_tell = count_to_tell;
}

/* The error is LS_ECOMM and holds all of the texts. */
static int expect(int status, const struct ls_error *got, const char *const *texts,
                  struct ls_error *error)
{
    if (status != LS_ECOMM)
        return ls_error_set(error, LS_ENUMERIC, "got %d, expected LS_ECOMM: %.300s", status,
                            got->text);
    for (; *texts; texts++)
        if (!strstr(got->text, *texts))
            return ls_error_set(error, LS_ENUMERIC, "'%s' is not in '%.700s'", *texts, got->text);
        else if (strstr(*texts, "timed out") && !says_waited(got->text, turned_timeout_s))
            return ls_error_set(error, LS_ENUMERIC, "it did not wait: %.700s", got->text);
    return LS_OK;
}

#define EXPECT(status, got, error, ...)                                                            \
    expect(status, got, (const char *[]){__VA_ARGS__, NULL}, error)

static void run_ranks(int n, int told_ranks,
                      int (*body)(struct ls_comm *, void *, struct ls_error *))
{
    struct ls_error error = {0};
    clock_begin(n, told_ranks);
    if (ls_world_run(n, body, NULL, &error) != LS_OK)
        fail_msg("%d ranks: %s", n, error.text);
}

/* A group of all ranks, backwards, that has passed barrier #0. */
static int group_new(struct ls_comm *world, struct ls_comm **group, struct ls_error *error)
{
    ls_comm_set_timeout(world, turned_timeout_s);
    int status = ls_comm_split(world, 0, -ls_comm_rank(world), group, error);
    if (status != LS_OK)
        return status;
    ls_comm_set_name(*group, "tp");
    return ls_barrier_at(*group, (struct ls_call_site){"first.c", 1}, error);
}

/* ---- one rank computes too long -------------------------------------------------------------- */

/* Behind a timeout others fail for reasons of their own: in every place that the group kept. */
static int fail_otherwise(struct ls_comm *group, struct ls_error *error)
{
    enum { PLACES = 4 };
    struct ls_request requests[PLACES];
    float buffer[PLACES][8] = {{0}};
    int status = LS_OK;
    for (int i = 0; i < PLACES && !status; i++)
        status = ls_all_reduce_start(group, buffer[i], 1 + ls_comm_rank(group), &requests[i],
                                     LS_HERE, error);
    for (int i = 0; i < PLACES && !status; i++) {
        struct ls_error got = {0};
        int failed = ls_wait(&requests[i], &got);
        if (failed != LS_ECOMM || got.cause != LS_CAUSE_OTHER)
            status = ls_error_set(error, LS_ENUMERIC, "got %d, cause %d: %.300s", failed,
                                  (int)got.cause, got.text);
    }
    return status;
}

static int body_stalls(struct ls_comm *world, void *user, struct ls_error *error)
{
    float buffer[100] = {0};
    struct ls_comm *group;
    struct ls_error got = {0};
    struct ls_call_site here = {"step.c", 88};
    int status = group_new(world, &group, error);
    if (status != LS_OK)
        return status;
    ls_comm_label(group, "h.3.attn.qkv");
    if (ls_comm_rank(world) == 1)
        turned_stay(1, to_tell);
    status = ls_all_reduce_start(group, buffer, 100, NULL, here, &got);
    turned_say();
    status = EXPECT(status, &got, error,
                    "all_reduce of 100 F32 [h.3.attn.qkv] (step.c:88): ", "timed out after ",
                    "at #1 of tp (4 ranks)",
                    "late is rank 2 (of the world: 1): it has left #0 of tp: barrier (first.c:1)");
    /* The group counts on: the next collective is one for all. */
    if (status == LS_OK)
        status = ls_all_reduce(group, buffer, 100, error);
    if (status == LS_OK)
        status = fail_otherwise(group, error);
    ls_comm_free(group);
    return status;
}

CASE(test_a_rank_that_stalls_is_named_on_all)
{
    run_ranks(4, 3, body_stalls);
}

/* ---- one rank works for long, and says so ---------------------------------------------------- */

/* The last rank says so four times before it would be late. The others look each time. */
static void work_and_say_so(int times, int rank)
{
    for (int i = 0; i < times; i++) {
        double now_s = turned_turn(turned_step_s);
        ls_progress();
        for (int r = 0; r < rank; r++)
            turned_await(r, now_s);
    }
}

/* Rank 2 waits for rank 3 in a pair of their own, the others for rank 2. */
static int body_gets_on(struct ls_comm *world, void *user, struct ls_error *error)
{
    float buffer[10] = {0};
    int rank = ls_comm_rank(world);
    ls_comm_set_timeout(world, turned_timeout_s);
    int status = ls_barrier(world, error);
    if (rank == 3)
        work_and_say_so(12, rank);
    if (status == LS_OK && rank == 3)
        status = ls_send(world, buffer, 10, LS_F32, 2, 0, error);
    if (status == LS_OK && rank == 2)
        status = ls_recv(world, buffer, 10, LS_F32, 3, 0, error);
    if (status == LS_OK && rank < 2)
        status = rank ? ls_recv(world, buffer, 10, LS_F32, 2, 0, error)
                      : ls_recv(world, buffer, 10, LS_F32, 1, 0, error);
    if (status == LS_OK && (rank == 1 || rank == 2))
        status = ls_send(world, buffer, 10, LS_F32, rank - 1, 0, error);
    return status == LS_OK ? ls_barrier(world, error) : status;
}

CASE(test_a_rank_that_gets_on_is_not_late)
{
    run_ranks(4, 0, body_gets_on);
}

/* It got on for a while: the time counts from there, also for who waits for one that waits. */
static atomic_bool stuck;

static int body_gets_stuck(struct ls_comm *world, void *user, struct ls_error *error)
{
    float buffer[10] = {0};
    int rank = ls_comm_rank(world);
    struct ls_error got = {0};
    ls_comm_set_timeout(world, turned_timeout_s);
    int status = ls_barrier_at(world, (struct ls_call_site){"first.c", 1}, error);
    if (rank == 2) {
        ls_progress_reads(true);
        work_and_say_so(8, rank);
        ls_progress_read(3 << 20);
        atomic_store(&stuck, true);
        turned_stay(rank, to_tell);
        return status;
    }
    status = ls_recv(world, buffer, 10, LS_F32, rank + 1, 0, &got);
    bool early = !atomic_load(&stuck);
    turned_say();
    if (early)
        return ls_error_set(error, LS_ENUMERIC, "rank %d did not wait: %s", rank, got.text);
    status = rank ? EXPECT(status, &got, error, "timed out after ", "late is rank 2:")
                  : EXPECT(status, &got, error, "timed out after ",
                           "late is rank 1:", "in the end for rank 2 of the world",
                           "it reads a checkpoint, 3.0 MiB so far in ");
    turned_stay(rank, to_tell);
    return status;
}

CASE(test_a_rank_that_gets_stuck_is_named)
{
    run_ranks(3, 2, body_gets_stuck);
}

/* ---- who waits for one that waits ------------------------------------------------------------ */

/* Rank 0 waits for rank 1, in one group; rank 1 for rank 2, in another; and that for rank 3, which
 * sleeps. All name it. */
static int body_chain(struct ls_comm *world, void *user, struct ls_error *error)
{
    float buffer[10] = {0};
    struct ls_comm *pair;
    struct ls_error got = {0};
    struct ls_call_site here = {"step.c", 88};
    static const char end[] =
        "; in the end for rank 3 of the world: it has left #0 of pp: barrier (first.c:2)";
    int rank = ls_comm_rank(world);
    ls_comm_set_timeout(world, turned_timeout_s);
    int status = ls_comm_split(world, (rank + 3) % 4 / 2, rank, &pair, error); /* 1 2 and 3 0 */
    if (status != LS_OK)
        return status;
    ls_comm_set_name(pair, "pp");
    status = ls_barrier_at(world, (struct ls_call_site){"first.c", 1}, error);
    if (status == LS_OK)
        status = ls_barrier_at(pair, (struct ls_call_site){"first.c", 2}, error);
    if (status == LS_OK && rank == 0)
        status = ls_recv_start(world, buffer, 10, LS_F32, 1, 0, NULL, here, &got);
    else if (status == LS_OK && rank == 1)
        status = ls_all_reduce_start(pair, buffer, 10, NULL, here, &got);
    else if (status == LS_OK && rank == 2)
        status = ls_recv_start(world, buffer, 10, LS_F32, 3, 0, NULL, here, &got);
    else
        turned_stay(rank, to_tell);
    turned_say();
    if (rank == 2)
        status = EXPECT(status, &got, error, "timed out", "late is rank 3:");
    else if (rank < 2)
        status = EXPECT(status, &got, error, "timed out", "late is rank ", end);
    turned_stay(rank, to_tell);
    ls_comm_free(pair);
    return status;
}

CASE(test_the_end_of_a_chain_is_named)
{
    run_ranks(4, 3, body_chain);
}

/* ---- other orders on different ranks --------------------------------------------------------- */

static int body_crossed(struct ls_comm *world, void *user, struct ls_error *error)
{
    float buffer[100] = {0};
    struct ls_error got = {0};
    struct ls_call_site here = {"step.c", 88}, there = {"other.c", 99};
    int rank = ls_comm_rank(world);
    ls_comm_set_timeout(world, turned_timeout_s);
    int status = ls_barrier(world, error);
    if (status != LS_OK)
        return status;
    if (rank == 0)
        status = EXPECT(ls_all_reduce_start(world, buffer, 100, NULL, here, &got), &got, error,
                        "all_reduce of 100 F32 (step.c:88): timed out",
                        "at #1 of world (2 ranks); late is rank 1: it ",
                        " #0 of world: recv of 100 F32 from rank 0 with tag 3 (other.c:99)");
    else
        status = EXPECT(ls_recv_start(world, buffer, 100, LS_F32, 0, 3, NULL, there, &got), &got,
                        error, "recv of 100 F32 from rank 0 with tag 3 (other.c:99): timed out",
                        "at #0 of world (2 ranks); late is rank 0: it ",
                        " #1 of world: all_reduce of 100 F32 (step.c:88)");
    turned_say();
    turned_stay(rank, to_tell);
    return status;
}

CASE(test_a_recv_against_a_collective)
{
    run_ranks(2, 2, body_crossed);
}

/* Rank 1 leaves out the first of two collectives: by their sequence number the second, of another
 * count, meets the first, and both are named before a byte moves. */
static int body_skips(struct ls_comm *world, void *user, struct ls_error *error)
{
    float buffer[100] = {0};
    struct ls_error got = {0};
    struct ls_call_site first = {"step.c", 88}, second = {"step.c", 89};
    ls_comm_set_timeout(world, turned_timeout_s);
    int status = ls_comm_rank(world) == 1
                     ? ls_all_reduce_start(world, buffer, 60, NULL, second, &got)
                     : ls_all_reduce_start(world, buffer, 100, NULL, first, &got);
    status = EXPECT(status, &got, error, "mismatch", " calls all_reduce of 100 F32 (step.c:88)",
                    "rank 1 calls all_reduce of 60 F32 (step.c:89)");
    if (status != LS_OK || ls_comm_rank(world) == 1) {
        turned_stay(ls_comm_rank(world), to_tell);
        return status;
    }
    /* And where it does not come to one more, it is late. */
    got = (struct ls_error){0};
    status = ls_all_reduce_start(world, buffer, 60, NULL, second, &got);
    turned_say();
    return EXPECT(status, &got, error,
                  "at #1 of world (3 ranks); late is rank 1: it has failed in #0");
}

CASE(test_a_skipped_collective)
{
    run_ranks(3, 2, body_skips);
}

/* Both ends time out at a pair of their own; what comes afterwards finds its partner. */
static int body_late_pair(struct ls_comm *world, void *user, struct ls_error *error)
{
    float value = 7, got_value = 0;
    struct ls_error got = {0};
    struct ls_request request;
    ls_comm_set_timeout(world, turned_timeout_s);
    int status = LS_OK;
    if (ls_comm_rank(world) == 0) {
        status = ls_send_start(world, &value, 1, LS_F32, 1, 5, &request, LS_HERE, error);
        if (status == LS_OK)
            status = EXPECT(ls_wait(&request, &got), &got, error,
                            "late is rank 1: it has called nothing yet");
        turned_say();
    } else {
        turned_stay(ls_comm_rank(world), to_tell);
    }
    if (status == LS_OK)
        status = ls_barrier(world, error);
    if (status == LS_OK && ls_comm_rank(world) == 0)
        status = ls_send(world, &value, 1, LS_F32, 1, 5, error);
    if (status == LS_OK && ls_comm_rank(world) == 1)
        status = ls_recv(world, &got_value, 1, LS_F32, 0, 5, error);
    if (status == LS_OK && ls_comm_rank(world) == 1 && got_value != value)
        status = ls_error_set(error, LS_ENUMERIC, "received %g, expected %g", (double)got_value,
                              (double)value);
    return status;
}

CASE(test_a_late_pair)
{
    run_ranks(2, 1, body_late_pair);
}

/* ---- a rank that never comes back ------------------------------------------------------------ */

static atomic_bool released, gone;
static pthread_key_t thread_end; /* its value: where to say that the rank is away for good */

static void on_thread_end(void *away)
{
    atomic_store((atomic_int *)away, INT_MAX);
}

static int body_sleeps_for_ever(struct ls_comm *world, void *user, struct ls_error *error)
{
    ls_comm_set_timeout(world, turned_timeout_s);
    atomic_int *away = &turned->rank[ls_comm_rank(world)].away;
    if (ls_comm_rank(world) == 2) {
        atomic_store(away, INT_MAX);
        while (!atomic_load(&released))
            await_pause();
        int status = ls_barrier(world, error);
        atomic_store(&gone, true);
        return status;
    }
    pthread_setspecific(thread_end, away);
    return ls_barrier_at(world, (struct ls_call_site){"step.c", 5}, error);
}

CASE(test_a_world_returns_without_it)
{
    struct ls_error error = {0};
    assert_int_equal(pthread_key_create(&thread_end, on_thread_end), 0);
    clock_begin(3, 1);
    int status = ls_world_run(3, body_sleeps_for_ever, NULL, &error);
    atomic_store(&released, true);
    assert_int_equal(status, LS_ECOMM);
    assert_int_equal(error.cause, LS_CAUSE_GIVEN_UP);
    if (!strstr(error.text, "rank 0: barrier (step.c:5): timed out") ||
        !strstr(error.text, "late is rank 2: it has called nothing yet") ||
        !strstr(error.text, "; rank 2 did not return"))
        fail_msg("the world said: %s", error.text);
    /* It finds that the others have left, and its thread frees what is left of the world. */
    while (!atomic_load(&gone))
        await_pause();
}

/* ---- the record ------------------------------------------------------------------------------ */

struct lines {
    int count[2];
    char last[2][512];
};

static void take_lines(struct ls_comm *world, struct lines *lines)
{
    char text[512];
    FILE *file = tmpfile();
    ls_comm_dump(world, file);
    rewind(file);
    while (fgets(text, sizeof text, file)) {
        int rank = strncmp(text, "rank 1:", 7) == 0;
        lines->count[rank]++;
        snprintf(lines->last[rank], sizeof lines->last[rank], "%s", text);
    }
    fclose(file);
}

static int body_dumps(struct ls_comm *world, void *user, struct ls_error *error)
{
    enum { MANY = 100 };
    atomic_int *claims = user;
    float buffer[8] = {0};
    struct lines lines = {{0}, {""}};
    struct ls_request request = {0};
    int status = LS_OK, rank = ls_comm_rank(world);
    for (int i = 0; i < MANY && status == LS_OK; i++)
        status =
            ls_all_reduce_start(world, buffer, 8, NULL, (struct ls_call_site){"many.c", 1}, error);
    ls_comm_label(world, "wte");
    if (status == LS_OK)
        status = ls_all_gather_start(world, &buffer[rank], buffer, 1, LS_F32, &request,
                                     (struct ls_call_site){"some/folder/last.c", 2}, error);
    ls_comm_label(world, NULL);
    if (status == LS_OK && rank == 0) {
        take_lines(world, &lines);
        if (lines.count[0] != LS_COMM_FLIGHT + 1 ||
            !strstr(lines.last[0], "rank 0: #100 of world: all_gather of 1 F32 [wte] "
                                   "(some/folder/last.c:2): started for 0.") ||
            lines.count[1] < LS_COMM_FLIGHT || !strstr(lines.last[1], "rank 1: #"))
            status = ls_error_set(error, LS_ENUMERIC, "%d and %d lines, the last '%s' and '%s'",
                                  lines.count[0], lines.count[1], lines.last[0], lines.last[1]);
    }
    if (status == LS_OK)
        status = ls_wait(&request, error);
    atomic_fetch_add(claims, ls_comm_dump_claim(world));
    return status;
}

CASE(test_the_last_operations_of_all_ranks)
{
    struct ls_error error = {0};
    atomic_int claims = 0;
    clock_begin(2, 0);
    assert_ok(ls_world_run(2, body_dumps, &claims, &error), error);
    assert_int_equal(atomic_load(&claims), 1);
}

SUITE_MAIN(NULL, NULL)
