/* Processes that end with the test program, however that ends: a test that is killed leaves no job
 * behind. */
#ifndef TEST_SUPPORT_CHILD_H
#define TEST_SUPPORT_CHILD_H

#include <sys/types.h>

/* Forks: 0 in the child, which is sent `signal` when this program ends, whatever it executes by
 * then. SIGTERM asks mpirun to end its ranks, the stopped ones too; SIGKILL is for all others. */
pid_t child_fork(int signal);

#endif
