/* A process that is stopped within MPI's own call that makes a communicator: the others name it.
 * Under a launcher this program is one rank; by itself it starts itself under mpirun. */
/* check: waits */
#include "../support/mpirun.h"
#include "../support/suite.h"

#include <lockstep/comm.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LS_WITH_MPI
#include <mpi.h>
#endif

enum { EXIT_LATE = 19, RANKS = 3 };

static const char *program;
static bool stops;

#ifdef LS_WITH_MPI
int MPI_Comm_split(MPI_Comm parent, int color, int key, MPI_Comm *group)
{
    if (stops)
        raise(SIGSTOP);
    return PMPI_Comm_split(parent, color, key, group);
}
#endif

static int rank_main(void)
{
    struct ls_comm *world, *group = NULL;
    struct ls_error error = {0};
    int status = ls_comm_mpi_new(&world, &error);
    if (!status) {
        ls_comm_set_timeout(world, 1);
        stops = ls_comm_rank(world) == 1;
        status = ls_comm_split(world, 0, ls_comm_rank(world), &group, &error);
    }
    if (!status)
        return 0;
    fprintf(stderr, "rank %d says: %s\n", ls_comm_rank(world), error.text);
    if (!ls_barrier(world, &error)) /* of no use after that */
        return 1;
    ls_comm_free(world);
    ls_mpi_abort(EXIT_LATE);
    return 1;
}

CASE(test_a_process_that_is_stopped_within_mpi_is_named)
{
    static char output[65536];
    mpirun_or_skip();
    int status = mpirun(program, RANKS, "split", output, sizeof output);
    if (status != EXIT_LATE ||
        !strstr(output, " says: a group of 3 ranks is not made: timed out ") ||
        !strstr(output, "; late is rank 1: its process ") || !strstr(output, " is stopped; "))
        fail_msg("the job ended with %d; it said:\n%s", status, output);
}

int main(int argc, char **argv)
{
    program = argv[0];
    return getenv(MPIRUN_MODE) ? rank_main() : suite_run(NULL, NULL);
}
