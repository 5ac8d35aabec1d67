/* The pipeline's runtime over processes. Under a launcher this program is one rank and runs the
 * checks; by itself it starts itself under mpirun for 2 and 4 ranks. */
#include "../support/mpirun.h"
#include "../support/suite.h"
#include "hashed.h"

#include <stdlib.h>

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

static int rank_run(struct ls_comm *comm, struct ls_error *error)
{
    int status = LS_OK;
    for (int kind = 0; kind < LS_SCHEDULE_KINDS && status == LS_OK; kind++) {
        bool is_v = kind == LS_SCHEDULE_ZBV || kind == LS_SCHEDULE_DUALPIPEV;
        int v = is_v ? 2 : kind == LS_SCHEDULE_INTERLEAVED ? 3 : 1;
        status = check(comm, (enum ls_schedule_kind)kind, v, 2 * ls_comm_size(comm) + 1, error);
    }
    if (status == LS_OK)
        status = check(comm, LS_SCHEDULE_GPIPE, 1, 3 * LS_PIPELINE_SENDS, error);
    return status;
}

/* ---- the launcher ---------------------------------------------------------------------------- */

CASE(test_2_ranks)
{
    mpirun_checks(program, 2);
}

CASE(test_4_ranks)
{
    mpirun_checks(program, 4);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (getenv(MPIRUN_MODE) || ls_mpi_launched())
        return mpirun_rank(rank_run);
    return suite_run(NULL, NULL);
}
