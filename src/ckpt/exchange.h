/* Private to ckpt: files between machines. */
#ifndef CKPT_EXCHANGE_H
#define CKPT_EXCHANGE_H

#include "ckpt/format.h"

/* A file of one rank's folder that another one's is to have. */
struct ckpt_move {
    const char *name;
    int64_t size;
    int from, to;
};
/* Collective, with the same moves on all ranks, which are made in their order. directory: of the
 * same path on each machine, or each rank's own. */
int ckpt_files_move(const char *directory, struct ls_comm *comm, const struct ckpt_move *moves,
                    size_t count, struct ls_error *error);

#endif
