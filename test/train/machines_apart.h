/* Ranks that may each be on a machine of their own, by what the linker puts in the place of
 * ls_comm_on_machine and ls_comm_first_on_machine (Makefile, "wrap"). Included by the one file of
 * such a test.
 */
#ifndef TEST_TRAIN_MACHINES_APART_H
#define TEST_TRAIN_MACHINES_APART_H

#include "../support/wrapped.h"

#include <lockstep/comm.h>

#include <stdbool.h>

static bool apart; /* each rank is on a machine of its own */

WRAPPED(ls_comm_on_machine);
bool __wrap_ls_comm_on_machine(const struct ls_comm *comm, int world_rank)
{
    return apart ? world_rank == ls_comm_rank(comm) : __real_ls_comm_on_machine(comm, world_rank);
}
WRAPPED(ls_comm_first_on_machine);
bool __wrap_ls_comm_first_on_machine(const struct ls_comm *comm)
{
    return apart || __real_ls_comm_first_on_machine(comm);
}

#endif
