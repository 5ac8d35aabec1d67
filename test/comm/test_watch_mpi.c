/* Processes that are late, stopped, killed or elsewhere: the others name them, and the job ends.
 * Those that get on are not late. Under a launcher this program is one rank; by itself it starts
 * itself under mpirun. */

#include "../support/late.h"
#include "../support/mpirun.h"
#include "../support/suite.h"
#include "../support/turned_clock.h"

#include <lockstep/comm.h>

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SHARED_FILE "WATCH_SHARED"

enum { EXIT_LATE = 19, RANKS = 3, COUNT = 1000 };

static const char *program;

/* ---- one rank -------------------------------------------------------------------------------- */

/* Until the others, which wait, have looked after a turn of the clock, or found somebody late. */
static void turn_and_await(double seconds)
{
    double now_s = turned_turn(seconds);
    turned_await(0, now_s);
    turned_await(2, now_s);
}

/* Rank 1 stops the others, which wait for it, for twice the time that they have. */
static void stop_others(const uint64_t pids[RANKS])
{
    turn_and_await(turned_step_s);
    for (int go_on = 0; go_on < 2; go_on++)
        for (int r = 0; r < RANKS; r += 2) {
            kill((pid_t)pids[r], go_on ? SIGCONT : SIGSTOP);
            if (!go_on && !await_stopped((pid_t)pids[r]))
                abort();
            if (!go_on && r == 2)
                turned_turn(2 * turned_timeout_s);
        }
    turn_and_await(turned_step_s / 2);
}

/* Rank 1 does something else; the others and it go on to what never ends. */
static int misbehave(struct ls_comm *group, const char *mode, const uint64_t pids[RANKS],
                     struct ls_error *error)
{
    static float buffer[COUNT * RANKS];
    int rank = ls_comm_rank(group);
    struct ls_call_site here = {"step.c", 88}, there = {"other.c", 99};
    ls_comm_label(group, "h.3.mlp");
    if (rank == 1 && strcmp(mode, "stop") == 0)
        raise(SIGSTOP);
    if (rank == 0 && strcmp(mode, "stop") == 0 && await_stopped((pid_t)pids[1]))
        atomic_store(&turned->rank[1].away, INT_MAX);
    if (rank == 1 && strcmp(mode, "kill") == 0)
        raise(SIGKILL);
    if (rank == 1 && strcmp(mode, "others") == 0)
        stop_others(pids);
    if (rank == 1 && strcmp(mode, "slow") == 0) {
        ls_progress_reads(true);
        ls_progress_read(5 << 20);
        turned_stay(1, RANKS - 1);
    }
    for (int i = 0; rank == 1 && strcmp(mode, "gets on") == 0 && i < 30; i++) {
        ls_progress();
        turn_and_await(turned_step_s);
    }
    if (strcmp(mode, "pairs") == 0)
        return rank == 1 ? ls_recv_start(group, buffer, COUNT, LS_F32, 0, 7, NULL, there, error)
                         : ls_all_reduce_start(group, buffer, COUNT, NULL, here, error);
    if (rank == 1 && strcmp(mode, "skip") == 0)
        return ls_barrier_at(group, there, error); /* of the second group's ranks, not the first */
    if (strcmp(mode, "recv") == 0)
        return rank == 0   ? ls_recv_start(group, buffer, COUNT, LS_F32, 1, 5, NULL, here, error)
               : rank == 1 ? (turned_stay(1, RANKS - 1), LS_OK)
                           : LS_OK;
    return ls_all_reduce_start(group, buffer, COUNT, NULL, here, error);
}

static int rank_main(const char *mode)
{
    struct ls_comm *world, *group = NULL;
    struct ls_error error = {0};
    uint64_t own = (uint64_t)getpid(), pids[RANKS];
    turned_share(getenv(SHARED_FILE));
    turned->ranks = strcmp(mode, "gets on") && strcmp(mode, "others") ? RANKS : 0;
    int status = ls_comm_mpi_new(&world, &error);
    if (status == LS_OK) {
        ls_comm_set_check(world, false);
        ls_comm_set_timeout(world, turned_timeout_s);
        status = ls_all_gather(world, &own, pids, 1, LS_U64, &error);
    }
    if (status == LS_OK)
        status = ls_comm_split(world, 0, ls_comm_rank(world), &group, &error);
    if (status == LS_OK) {
        ls_comm_set_name(group, "tp");
        status = ls_barrier_at(group, (struct ls_call_site){"first.c", 1}, &error);
    }
    if (status == LS_OK)
        status = misbehave(group, mode, pids, &error);
    if (status == LS_OK)
        status = ls_barrier(group, &error);
    if (status == LS_OK && strcmp(mode, "gets on") == 0 && ls_comm_rank(world) != 1 &&
        !turned_polls)
        status = ls_error_set(&error, LS_EINVAL, "no wait has said that it ran");
    if (status != LS_OK) {
        fprintf(stderr, "rank %d says: %s\n", ls_comm_rank(world), error.text);
        if (ls_comm_dump_claim(world))
            ls_comm_dump(world, stderr);
        turned_say();
        bool all = !strcmp(mode, "pairs") || !strcmp(mode, "skip");
        turned_stay(ls_comm_rank(world), all ? RANKS : RANKS - 1); /* before the job ends */
    }
    if (status != LS_OK && strcmp(mode, "slow") != 0)
        ls_mpi_abort(EXIT_LATE);
    ls_comm_free(group);
    ls_comm_free(world);
    ls_mpi_finish();
    return status == LS_OK ? 0 : EXIT_LATE;
}

/* ---- the launcher ---------------------------------------------------------------------------- */

/* How the job ends. */
static int job(const char *mode, char *output, size_t bytes)
{
    char path[] = "/tmp/lockstep-watch-XXXXXX";
    mpirun_or_skip();
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    setenv(SHARED_FILE, path, 1);
    int status = mpirun(program, RANKS, mode, output, bytes);
    unlink(path);
    return status;
}

/* The job ends with code (0: with any but 0), and what it said holds all of the texts. */
static void expect(const char *mode, int code, const char *const *texts)
{
    static char output[65536];
    int status = job(mode, output, sizeof output);
    if (code ? status != code : status == 0)
        fail_msg("%s: the job ended with %d, expected %d; it said:\n%s", mode, status, code,
                 output);
    for (; *texts; texts++)
        if (!strstr(output, *texts) ||
            (strstr(*texts, "timed out") && !says_waited(strstr(output, *texts), turned_timeout_s)))
            fail_msg("%s: '%s' is not in:\n%s", mode, *texts, output);
}

#define EXPECT(mode, code, ...) expect(mode, code, (const char *[]){__VA_ARGS__, NULL})

static const char late[] = "all_reduce of 1000 F32 [h.3.mlp] (step.c:88): timed out after ";

CASE(test_a_stopped_process_is_named)
{
    EXPECT("stop", EXIT_LATE, "rank 0 says", "rank 2 says", late, "at #1 of tp (3 ranks)",
           "late is rank 1: its process", "is stopped; it has left #0 of tp: barrier (first.c:1)",
           "\nrank 1: #0 of tp: barrier (first.c:1): done",
           "\nrank 2: #1 of tp: all_reduce of 1000 F32 [h.3.mlp] (step.c:88)");
}

/* Without MPI_Abort: freeing and finishing do not hang either. The status is that of the process,
 * or of the leak checker. */
CASE(test_a_slow_process_is_named)
{
    EXPECT("slow", 0, "rank 0 says", "rank 2 says", late,
           "late is rank 1: it has left #0 of tp: barrier (first.c:1), for",
           "; it reads a checkpoint, 5.0 MiB so far in ");
}

static void expect_none_late(const char *mode)
{
    static char output[65536];
    int status = job(mode, output, sizeof output);
    if (status != 0 || strstr(output, "says"))
        fail_msg("the job ended with %d; it said:\n%s", status, output);
}

CASE(test_a_process_that_gets_on_is_not_late)
{
    expect_none_late("gets on");
}

/* A machine that stood still blames nobody for the time. */
CASE(test_who_did_not_run_does_not_count_the_time)
{
    expect_none_late("others");
}

CASE(test_another_operation_is_named)
{
    EXPECT("pairs", EXIT_LATE, "rank 0 says", "rank 1 says", "rank 2 says", late,
           "late is rank 1: it ", "late is rank 0: it ",
           "#0 of tp: recv of 1000 F32 [h.3.mlp] from rank 0 with tag 7 (other.c:99), for",
           "#1 of tp: all_reduce of 1000 F32 [h.3.mlp] (step.c:88), for");
}

CASE(test_a_missing_send_is_named)
{
    EXPECT("recv", EXIT_LATE, "rank 0 says",
           "recv of 1000 F32 [h.3.mlp] from rank 1 with tag 5 (step.c:88): timed out after ",
           "at #0 of tp", "late is rank 1: it has left #0 of tp: barrier (first.c:1)");
}

CASE(test_a_skipped_collective_is_named)
{
    EXPECT("skip", EXIT_LATE, "rank 0 says", "rank 2 says", late, "late is rank 1: it ",
           "#1 of tp: barrier (other.c:99), for");
}

CASE(test_a_killed_process_ends_the_job)
{
    EXPECT("kill", 0, "");
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (getenv(MPIRUN_MODE))
        return rank_main(getenv(MPIRUN_MODE));
    return suite_run(NULL, NULL);
}
