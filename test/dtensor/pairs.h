/* Redistribution between all pairs of some placements: thread ranks and MPI processes run the same
 * check. */
#ifndef TEST_DTENSOR_PAIRS_H
#define TEST_DTENSOR_PAIRS_H

#include "cases.h"

struct pairs {
    const char *shape, *mesh;
    const char *const *placements;
    int count;
    int shift; /* rank 1 gives what lies this many elements on: the broken twin */
};

bool pairs_has_partial(const struct ls_dtensor_spec *spec);
/* Collective. From each of the placements to each: the parts and the whole have the values that
 * they must have, LS_ENUMERIC with both operands otherwise. user is a struct pairs. */
int pairs_body(struct ls_comm *comm, void *user, struct ls_error *error);

#endif
