/* lockstep/parallel/context.h - context parallel: a sequence's tokens among cp ranks. */
#ifndef LOCKSTEP_PARALLEL_CONTEXT_H
#define LOCKSTEP_PARALLEL_CONTEXT_H

#include <lockstep/comm.h>
#include <lockstep/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ls_cp_method { LS_CP_ALL_GATHER, LS_CP_RING };

struct ls_cp {
    struct ls_comm *comm; /* borrowed; its size and rank are cp's */
    int size, rank;
    enum ls_cp_method method;
};

#ifdef __cplusplus
}
#endif
#endif
