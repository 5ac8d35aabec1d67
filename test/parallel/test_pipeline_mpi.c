/* The pipeline's runtime over processes. Under a launcher this program is one rank and runs the
 * checks; by itself it starts itself under mpirun for 2 and 4 ranks. */
#include "hashed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *program;

/* ---- one rank -------------------------------------------------------------------------------- */

static int check(struct ls_comm *comm, enum ls_schedule_kind kind, int v, int64_t m,
                 struct ls_error *error)
{
    struct ls_schedule schedule;
    int status = ls_schedule_generate(&schedule, kind, ls_comm_size(comm), v, m, error);
    if (status == LS_OK)
        status = hashed_run(
            comm, &(struct hashed_job){.schedule = &schedule, .fail_stage = -1, .steps = 2}, error);
    ls_schedule_release(&schedule);
    return status ? ls_error_prefix(error, "%s", ls_schedule_name(kind)) : LS_OK;
}

static int rank_main(void)
{
    struct ls_comm *comm;
    struct ls_error error = {0};
    int status = ls_comm_mpi_new(&comm, &error);
    for (int kind = 0; kind < LS_SCHEDULE_KINDS && status == LS_OK; kind++) {
        bool is_v = kind == LS_SCHEDULE_ZBV || kind == LS_SCHEDULE_DUALPIPEV;
        int v = is_v ? 2 : kind == LS_SCHEDULE_INTERLEAVED ? 3 : 1;
        status = check(comm, (enum ls_schedule_kind)kind, v, 2 * ls_comm_size(comm) + 1, &error);
    }
    if (status == LS_OK)
        status = check(comm, LS_SCHEDULE_GPIPE, 1, 3 * LS_PIPELINE_SENDS, &error);
    if (status != LS_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1; /* without MPI's end: the launcher ends the other ranks */
    }
    ls_comm_free(comm);
    ls_mpi_finish();
    return 0;
}

/* ---- the launcher ---------------------------------------------------------------------------- */

static void rank_tests(int ranks)
{
    enum { PATIENCE_S = 120 };
    char count[16];
    snprintf(count, sizeof count, "%d", ranks);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setpgid(0, 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
        setenv("OMPI_MCA_btl", "self,vader", 1);
        setenv("LS_TEST_RANK", "1", 1);
        execlp("mpirun", "mpirun", "-n", count, program, (char *)NULL);
        _exit(errno == ENOENT ? 77 : 127);
    }
    int status = 0;
    pid_t ended = 0;
    for (int i = 0; i < PATIENCE_S * 20 && ended == 0; i++) {
        nanosleep(&(struct timespec){0, 50 * 1000 * 1000}, NULL);
        ended = waitpid(child, &status, WNOHANG);
    }
    if (ended == 0) {
        kill(-child, SIGKILL);
        waitpid(child, &status, 0);
        fail_msg("%d ranks did not end in %d s", ranks, PATIENCE_S);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("mpirun is not installed (Debian: openmpi-bin): skipped\n");
        skip();
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("mpirun -n %d %s ended with status %#x", ranks, program, (unsigned)status);
}

static void skip_without_mpi(void)
{
#ifndef LS_WITH_MPI
    print_message("built without MPI: skipped\n");
    skip();
#endif
}

static void test_2_ranks(void **state)
{
    (void)state;
    skip_without_mpi();
    rank_tests(2);
}

static void test_4_ranks(void **state)
{
    (void)state;
    skip_without_mpi();
    rank_tests(4);
}

int main(int argc, char **argv)
{
    (void)argc;
    program = argv[0];
    if (getenv("LS_TEST_RANK") || ls_mpi_launched())
        return rank_main();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_2_ranks),
        cmocka_unit_test(test_4_ranks),
    };
    return cmocka_run_group_tests_name("pipeline_mpi", tests, NULL, NULL);
}
