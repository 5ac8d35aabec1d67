/* Distributed tensors among processes. Under a launcher this program is one rank and runs the
 * checks; by itself it starts itself under mpirun. */
#include "../support/mpirun.h"
#include "../support/suite.h"
#include "pairs.h"

#include <stdlib.h>

static const char *program;

/* ---- one rank -------------------------------------------------------------------------------- */

static int rank_run(struct ls_comm *comm, struct ls_error *error)
{
    static const char *const placements[] = {"R,R",   "S0,R",  "R,S0",    "S0,S1",
                                             "S1,S0", "S1,S1", "S0/2,S0", "P,P",
                                             "P,S0",  "S1,P",  "Pmax,S1", "Pavg,P"};
    struct pairs pairs = {"11x7", "2x2", placements, sizeof placements / sizeof *placements, 0};
    ls_comm_set_check(comm, true);
    return pairs_body(comm, &pairs, error);
}

/* ---- the launcher ---------------------------------------------------------------------------- */

CASE(test_four_processes)
{
    mpirun_checks(program, 4);
}

int main(int argc, char **argv)
{
    (void)argc;
    program = argv[0];
    if (getenv(MPIRUN_MODE))
        return mpirun_rank(rank_run);
    return suite_run(NULL, NULL);
}
