/* A test program that starts itself again as the ranks of an MPI job. */
#ifndef TEST_SUPPORT_MPIRUN_H
#define TEST_SUPPORT_MPIRUN_H

#include <lockstep/comm.h>

#include <stddef.h>

/* The environment variable that tells a rank what to do. */
#define MPIRUN_MODE "LS_TEST_RANK"

/* Skips the test where there is no mpirun, or the build has no MPI. */
void mpirun_or_skip(void);
/* Runs program as ranks processes with MPIRUN_MODE=mode; returns the launcher's exit code. What the
 * job printed is in output[bytes], terminated and cut. */
int mpirun(const char *program, int ranks, const char *mode, char *output, size_t bytes);
/* The same where every rank is mpirun_rank and has to end well; skips as mpirun_or_skip does. */
void mpirun_checks(const char *program, int ranks);

/* Jobs that are started from here on go on when a rank dies (ls_mpi_survives). */
void mpirun_survives(void);

/* What a rank's main returns: body's status over all ranks, its error printed. */
int mpirun_rank(int (*body)(struct ls_comm *world, struct ls_error *error));

#endif
