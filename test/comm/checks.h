/* Checks that hold for any transport: thread ranks and MPI processes run the same ones. */
#ifndef TEST_COMM_CHECKS_H
#define TEST_COMM_CHECKS_H

#include <lockstep/comm.h>

/* Collective. Each returns LS_OK, or LS_ENUMERIC with both operands in the text. */

/* Every operation, blocking and not, on count elements. */
int check_operations(struct ls_comm *comm, int64_t count, struct ls_error *error);
/* Many operations pending at once, waited for in another order, all results as if blocking. */
int check_many_pending(struct ls_comm *comm, struct ls_error *error);
/* Integer, exact and maximum; agreement on one rank's failure. */
int check_agreement(struct ls_comm *comm, struct ls_error *error);
/* Groups of every third rank, backwards, and of neighbours; all work at once. */
int check_splits(struct ls_comm *comm, struct ls_error *error);
/* Each kind of mismatch is an error on all ranks that names both ranks and both call sites. */
int check_mismatch(struct ls_comm *comm, struct ls_error *error);
/* A transfer ends while every rank sleeps. */
int check_overlap(struct ls_comm *comm, struct ls_error *error);
/* So do as many sends and receives as may be pending, short and long, to neighbours and oneself. */
int check_many_pairs(struct ls_comm *comm, struct ls_error *error);
/* Bytes and operations are counted. */
int check_stats(struct ls_comm *comm, struct ls_error *error);
/* All of them, on awkward counts. */
int check_comm(struct ls_comm *comm, struct ls_error *error);

#endif
