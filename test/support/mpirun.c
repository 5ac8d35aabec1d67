/* Starts a test program again under mpirun, and is its ranks. */
#include "mpirun.h"
#include "child.h"
#include "testing.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

void mpirun_or_skip(void)
{
#ifdef LS_WITH_MPI
    if (system("command -v mpirun >/dev/null 2>&1") == 0)
        return;
    print_message("mpirun is not installed (Debian: openmpi-bin): skipped\n");
#else
    print_message("built without MPI: skipped\n");
#endif
    skip();
}

static void launch(const char *program, int ranks, const char *mode, int output)
{
    char count[16];
    snprintf(count, sizeof count, "%d", ranks);
    setpgid(0, 0);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    setenv("OMPI_MCA_btl", "self,vader", 1);
    setenv(MPIRUN_MODE, mode, 1);
    execlp("mpirun", "mpirun", "-n", count, program, (char *)NULL);
    _exit(127);
}

int mpirun(const char *program, int ranks, const char *mode, char *output, size_t bytes)
{
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = child_fork(SIGTERM);
    if (child == 0)
        launch(program, ranks, mode, ends[1]);
    close(ends[1]);
    size_t used = 0;
    ssize_t got = 1;
    while (got > 0) {
        char rest[1024];
        size_t room = bytes - 1 - used;
        got = read(ends[0], room ? output + used : rest, room ? room : sizeof rest);
        used += room && got > 0 ? (size_t)got : 0;
    }
    output[used] = '\0';
    close(ends[0]);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void mpirun_checks(const char *program, int ranks)
{
    static char output[8192];
    mpirun_or_skip();
    int status = mpirun(program, ranks, "checks", output, sizeof output);
    if (status != 0)
        fail_msg("mpirun -n %d %s ended with %d:\n%s", ranks, program, status, output);
}

void mpirun_survives(void)
{
    setenv("LOCKSTEP_PEAK_FLOPS", "1e12", 1); /* else it is measured */
    setenv("OMP_WAIT_POLICY", "passive", 1);
    setenv("OMPI_MCA_orte_enable_recovery", "1", 1);
}

int mpirun_rank(int (*body)(struct ls_comm *world, struct ls_error *error))
{
    struct ls_comm *world;
    struct ls_error error = {0};
    int status = ls_comm_mpi_new(&world, &error);
    if (status == LS_OK)
        status = body(world, &error);
    if (status != LS_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1; /* without MPI's end: the launcher ends the other ranks */
    }
    ls_comm_free(world);
    ls_mpi_finish();
    return 0;
}
