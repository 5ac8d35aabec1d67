/* Distributed tensors among processes. Under a launcher this program is one rank and runs the
 * checks; by itself it starts itself under mpirun. */
#include "pairs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *program;

/* ---- one rank -------------------------------------------------------------------------------- */

static int rank_main(void)
{
    static const char *const placements[] = {"R,R",   "S0,R",  "R,S0",    "S0,S1",
                                             "S1,S0", "S1,S1", "S0/2,S0", "P,P",
                                             "P,S0",  "S1,P",  "Pmax,S1", "Pavg,P"};
    struct pairs pairs = {"11x7", "2x2", placements, sizeof placements / sizeof *placements, 0};
    struct ls_comm *comm;
    struct ls_error error = {0};
    int status = ls_comm_mpi_new(&comm, &error);
    if (status == LS_OK) {
        ls_comm_set_check(comm, true);
        status = pairs_body(comm, &pairs, &error);
    }
    if (status != LS_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1; /* without MPI's end: the launcher ends the other ranks */
    }
    ls_comm_free(comm);
    ls_mpi_finish();
    return 0;
}

/* ---- the launcher ---------------------------------------------------------------------------- */

static void test_four_processes(void **state)
{
    enum { PATIENCE_S = 120 };
    (void)state;
#ifndef LS_WITH_MPI
    print_message("built without MPI: skipped\n");
    skip();
#endif
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setpgid(0, 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
        setenv("OMPI_MCA_btl", "self,vader", 1);
        setenv("LS_TEST_RANK", "1", 1);
        execlp("mpirun", "mpirun", "-n", "4", program, (char *)NULL);
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
        fail_msg("4 ranks did not end in %d s", PATIENCE_S);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("mpirun is not installed (Debian: openmpi-bin): skipped\n");
        skip();
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("mpirun -n 4 %s ended with status %#x", program, (unsigned)status);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_four_processes)};
    (void)argc;
    program = argv[0];
    if (getenv("LS_TEST_RANK"))
        return rank_main();
    return cmocka_run_group_tests_name("dtensor: mpi", tests, NULL, NULL);
}
