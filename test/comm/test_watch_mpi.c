/* Processes that are late, stopped, killed or elsewhere: the others name them, and the job ends.
 * Those that get on are not late, by a clock that the test turns. Under a launcher this program is
 * one rank; by itself it starts itself under mpirun. */

#include "../support/await.h"
#include "../support/late.h"
#include "../support/mpirun.h"
#include "../support/wrapped.h"

#include <lockstep/comm.h>

#include "comm/flight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHARED_FILE "WATCH_SHARED"

enum { EXIT_LATE = 19, RANKS = 3, COUNT = 1000, TIMEOUT_MS = 500 };

static const char *program;

/* ---- what the processes share ---------------------------------------------------------------- */

static struct {
    atomic_int said;                         /* ranks that found somebody late */
    atomic_bool turned;                      /* the clock is this one, otherwise the machine's */
    atomic_llong clock_us, looked_us[RANKS]; /* when a rank began to wait, or looked who is late */
} * shared;

static void share(const char *mode)
{
    long long begin_us = 0;
    int file = open(getenv(SHARED_FILE), O_RDWR | O_CLOEXEC);
    void *found = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || found == MAP_FAILED)
        abort();
    close(file);
    shared = found;
    atomic_compare_exchange_strong(&shared->clock_us, &begin_us, 1000000000);
    shared->turned = !strcmp(mode, "gets on") || !strcmp(mode, "others");
}

/* Who asks again and again, to wait awake for a while, gets on. */
WRAPPED(ls_now_s);
double __wrap_ls_now_s(void)
{
    return shared && shared->turned ? 1e-6 * (double)atomic_fetch_add(&shared->clock_us, 1)
                                    : __real_ls_now_s();
}

static void looked(const struct ls_comm *comm, double now_s)
{
    if (shared)
        atomic_store(&shared->looked_us[comm->world_ranks[comm->rank]], llround(now_s * 1e6));
}

WRAPPED(flight_wait_begin);
void __wrap_flight_wait_begin(struct flight_wait *wait, const struct ls_comm *comm, double now_s)
{
    __real_flight_wait_begin(wait, comm, now_s);
    looked(comm, now_s);
}

WRAPPED(flight_wait_moved);
void __wrap_flight_wait_moved(struct flight_wait *wait, const struct ls_comm *comm, double now_s)
{
    __real_flight_wait_moved(wait, comm, now_s);
    looked(comm, now_s);
}

WRAPPED(flight_wait_look);
bool __wrap_flight_wait_look(struct flight_wait *wait, const struct ls_comm *comm,
                             const struct flight_late *late, double now_s)
{
    bool waits = __real_flight_wait_look(wait, comm, late, now_s);
    looked(comm, now_s);
    return waits;
}

static long long clock_turn(int ms)
{
    return atomic_fetch_add(&shared->clock_us, 1000LL * ms) + 1000LL * ms;
}

/* Until the others, which wait, have looked since then, or found somebody late. */
static void await_looks(long long since_us)
{
    for (int r = 0; r < RANKS; r += r ? 1 : 2) /* 0 and 2 */
        while (atomic_load(&shared->looked_us[r]) < since_us && !atomic_load(&shared->said))
            await_pause();
}

static void await_stopped(pid_t pid)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    while (state != 'T') {
        await_pause();
        FILE *file = fopen(path, "re");
        if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            abort();
        fclose(file);
    }
}

static void await_said(int ranks)
{
    while (atomic_load(&shared->said) < ranks)
        await_pause();
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* Rank 1 stops the others, which wait for it, for twice the time that they have. */
static int stop_others(struct ls_comm *group, struct ls_error *error)
{
    uint64_t own = (uint64_t)getpid(), pids[RANKS];
    int status = ls_all_gather(group, &own, pids, 1, LS_U64, error);
    if (status != LS_OK || ls_comm_rank(group) != 1)
        return status;
    await_looks(clock_turn(TIMEOUT_MS / 4));
    for (int go_on = 0; go_on < 2; go_on++)
        for (int r = 0; r < RANKS; r += 2) {
            kill((pid_t)pids[r], go_on ? SIGCONT : SIGSTOP);
            if (!go_on)
                await_stopped((pid_t)pids[r]);
            if (!go_on && r == 2)
                clock_turn(2 * TIMEOUT_MS);
        }
    await_looks(clock_turn(TIMEOUT_MS / 8));
    return LS_OK;
}

/* Rank 1 does something else; the others and it go on to what never ends. */
static int misbehave(struct ls_comm *group, const char *mode, struct ls_error *error)
{
    static float buffer[COUNT * RANKS];
    int rank = ls_comm_rank(group);
    struct ls_call_site here = {"step.c", 88}, there = {"other.c", 99};
    ls_comm_label(group, "h.3.mlp");
    if (rank == 1 && strcmp(mode, "stop") == 0)
        raise(SIGSTOP);
    if (rank == 1 && strcmp(mode, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(mode, "others") == 0 && stop_others(group, error) != LS_OK)
        return LS_ECOMM;
    if (rank == 1 && strcmp(mode, "slow") == 0)
        await_said(RANKS - 1);
    for (int i = 0; rank == 1 && strcmp(mode, "gets on") == 0 && i < 30; i++) {
        ls_progress();
        await_looks(clock_turn(TIMEOUT_MS / 4));
    }
    if (strcmp(mode, "pairs") == 0)
        return rank == 1 ? ls_recv_start(group, buffer, COUNT, LS_F32, 0, 7, NULL, there, error)
                         : ls_all_reduce_start(group, buffer, COUNT, NULL, here, error);
    if (rank == 1 && strcmp(mode, "skip") == 0)
        return ls_barrier_at(group, there, error); /* of the second group's ranks, not the first */
    if (strcmp(mode, "recv") == 0)
        return rank == 0   ? ls_recv_start(group, buffer, COUNT, LS_F32, 1, 5, NULL, here, error)
               : rank == 1 ? (await_said(RANKS - 1), LS_OK)
                           : LS_OK;
    return ls_all_reduce_start(group, buffer, COUNT, NULL, here, error);
}

static int rank_main(const char *mode)
{
    struct ls_comm *world, *group = NULL;
    struct ls_error error = {0};
    share(mode);
    int status = ls_comm_mpi_new(&world, &error);
    if (status == LS_OK) {
        ls_comm_set_check(world, false);
        ls_comm_set_timeout(world, 1e-3 * TIMEOUT_MS);
        status = ls_comm_split(world, 0, ls_comm_rank(world), &group, &error);
    }
    if (status == LS_OK) {
        ls_comm_set_name(group, "tp");
        status = ls_barrier_at(group, (struct ls_call_site){"first.c", 1}, &error);
    }
    if (status == LS_OK)
        status = misbehave(group, mode, &error);
    if (status == LS_OK)
        status = ls_barrier(group, &error);
    if (status != LS_OK) {
        fprintf(stderr, "rank %d says: %s\n", ls_comm_rank(world), error.text);
        if (ls_comm_dump_claim(world))
            ls_comm_dump(world, stderr);
        atomic_fetch_add(&shared->said, 1);
        bool all = !strcmp(mode, "pairs") || !strcmp(mode, "skip");
        await_said(all ? RANKS : RANKS - 1); /* before the job ends */
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
    assert_true(file >= 0 && ftruncate(file, sizeof *shared) == 0);
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
            (strstr(*texts, "timed out") && !says_waited(strstr(output, *texts), 0.5)))
            fail_msg("%s: '%s' is not in:\n%s", mode, *texts, output);
}

#define EXPECT(mode, code, ...) expect(mode, code, (const char *[]){__VA_ARGS__, NULL})

static const char late[] = "all_reduce of 1000 F32 [h.3.mlp] (step.c:88): timed out after ";

static void test_a_stopped_process_is_named(void **state)
{
    (void)state;
    EXPECT("stop", EXIT_LATE, "rank 0 says", "rank 2 says", late, "at #1 of tp (3 ranks)",
           "late is rank 1: its process", "is stopped; it has left #0 of tp: barrier (first.c:1)",
           "\nrank 1: #0 of tp: barrier (first.c:1): done",
           "\nrank 2: #1 of tp: all_reduce of 1000 F32 [h.3.mlp] (step.c:88)");
}

/* Without MPI_Abort: freeing and finishing do not hang either. The status is that of the process,
 * or of the leak checker. */
static void test_a_slow_process_is_named(void **state)
{
    (void)state;
    EXPECT("slow", 0, "rank 0 says", "rank 2 says", late,
           "late is rank 1: it has left #0 of tp: barrier (first.c:1), for");
}

static void expect_none_late(const char *mode)
{
    static char output[65536];
    int status = job(mode, output, sizeof output);
    if (status != 0 || strstr(output, "says"))
        fail_msg("the job ended with %d; it said:\n%s", status, output);
}

static void test_a_process_that_gets_on_is_not_late(void **state)
{
    (void)state;
    expect_none_late("gets on");
}

/* A machine that stood still blames nobody for the time. */
static void test_who_did_not_run_does_not_count_the_time(void **state)
{
    (void)state;
    expect_none_late("others");
}

static void test_another_operation_is_named(void **state)
{
    (void)state;
    EXPECT("pairs", EXIT_LATE, "rank 0 says", "rank 1 says", "rank 2 says", late,
           "late is rank 1: it ", "late is rank 0: it ",
           "#0 of tp: recv of 1000 F32 [h.3.mlp] from rank 0 with tag 7 (other.c:99), for",
           "#1 of tp: all_reduce of 1000 F32 [h.3.mlp] (step.c:88), for");
}

static void test_a_missing_send_is_named(void **state)
{
    (void)state;
    EXPECT("recv", EXIT_LATE, "rank 0 says",
           "recv of 1000 F32 [h.3.mlp] from rank 1 with tag 5 (step.c:88): timed out after ",
           "at #0 of tp", "late is rank 1: it has left #0 of tp: barrier (first.c:1)");
}

static void test_a_skipped_collective_is_named(void **state)
{
    (void)state;
    EXPECT("skip", EXIT_LATE, "rank 0 says", "rank 2 says", late, "late is rank 1: it ",
           "#1 of tp: barrier (other.c:99), for");
}

static void test_a_killed_process_ends_the_job(void **state)
{
    (void)state;
    EXPECT("kill", 0, "");
}

int main(int argc, char **argv)
{
    (void)argc;
    program = argv[0];
    if (getenv(MPIRUN_MODE))
        return rank_main(getenv(MPIRUN_MODE));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stopped_process_is_named),
        cmocka_unit_test(test_a_slow_process_is_named),
        cmocka_unit_test(test_a_process_that_gets_on_is_not_late),
        cmocka_unit_test(test_who_did_not_run_does_not_count_the_time),
        cmocka_unit_test(test_another_operation_is_named),
        cmocka_unit_test(test_a_missing_send_is_named),
        cmocka_unit_test(test_a_skipped_collective_is_named),
        cmocka_unit_test(test_a_killed_process_ends_the_job),
    };
    return cmocka_run_group_tests_name("comm: watch over mpi", tests, NULL, NULL);
}
