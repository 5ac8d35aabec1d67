/* Several ranks load one checkpoint: the newest in which none of them finds damage. */
#include "ckpt/format.h"

#include <stdio.h>

static int agree(struct ls_comm *comm, int status, struct ls_error *error)
{
    return comm ? ls_comm_agree(comm, status, error) : status;
}

/* *value becomes the maximum over ranks. */
static int most(struct ls_comm *comm, int64_t *value, struct ls_error *error)
{
    return comm ? ls_all_reduce_max(comm, value, error) : LS_OK;
}

/* Ranks that read through different file systems, or while another run writes, may have found
 * different checkpoints; step -1: none. */
static int step_agree(const struct ls_checkpoint *checkpoint, struct ls_comm *comm,
                      struct ls_error *error)
{
    int64_t newest = checkpoint ? checkpoint->state.step : -1, oldest = -newest;
    char other[48] = "none";
    int status = most(comm, &newest, error);
    if (!status)
        status = most(comm, &oldest, error);
    if (status || newest == -oldest)
        return status;
    if (oldest < 1)
        snprintf(other, sizeof other, "that of step %ld", (long)-oldest);
    return ls_error_set(error, LS_ECKPT,
                        "ranks found different checkpoints: one rank found the checkpoint of step "
                        "%ld, another %s. The run must be in the same directory on every rank",
                        (long)newest, other);
}

int ls_checkpoint_load(struct ls_checkpoint **checkpoint, struct ls_comm *comm, int status,
                       ls_checkpoint_loader *load, void *user, const struct ls_log *log,
                       struct ls_error *error)
{
    for (;;) {
        struct ls_error why = {0};
        status = agree(comm, status, error);
        if (!status)
            status = step_agree(*checkpoint, comm, error);
        if (status || !*checkpoint)
            return status;
        ls_progress_reads(true);
        status = load(user, *checkpoint, &why);
        ls_progress_reads(false);
        status = agree(comm, status, &why);
        if (!status)
            return LS_OK;
        int64_t damaged = (*checkpoint)->damaged;
        int failed = most(comm, &damaged, error);
        if (failed || !damaged)
            return failed ? failed : ls_error_copy(error, status, &why);
        status = ckpt_older(checkpoint, &why, log, error);
    }
}
