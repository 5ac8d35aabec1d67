/* lockstep/train/fit.h - what a run asks of a machine, and whether that has it.
 *
 *   ls_memory_fit     what the ranks on a machine plan, beside what it has
 *   ls_memory_fits    whether that fits
 *   ls_memory_changes what could be changed so that it does
 *
 * ls_trainer_new refuses what does not fit (LS_ELAYOUT), unless memory.overcommit is set.
 * Everything here is Local. */
#ifndef LOCKSTEP_TRAIN_FIT_H
#define LOCKSTEP_TRAIN_FIT_H

#include <lockstep/comm.h>
#include <lockstep/config.h>
#include <lockstep/device.h>

LS_C_BEGIN

struct ls_memory_fit {
    int64_t ranks;     /* on this machine */
    int64_t bytes;     /* of all their plans, what goes to the host tier with them; twice with
                        * check.replay, as rank_bytes, since a replayed step has a trainer more;
                        * and snapshots, or saves */
    int64_t snapshots; /* with snapshot.every=N: three times what these ranks write of the state.
                        * With auto they are taken only if there is room */
    int64_t saves;     /* what these ranks write of the state, which is copied for a checkpoint that
                        * is written beside steps (checkpoint.async); 0: steps wait for it. With
                        * auto it is 0 where it does not fit in what is free */
    int64_t beside;    /* what their processes take beside that, at most; no verdict counts it */
    int64_t rank_bytes; /* that the rank takes of its device which takes most */
    struct ls_device_memory machine;
};
/* Whether checkpoints are written beside steps where memory has room for the copy
 * (checkpoint.async): not with snapshots, from which they are written then, and not of workers,
 * whose checkpoint would have its name at their next meeting. */
bool ls_memory_saves(const struct ls_config *config);
/* A replayed step has a trainer of its own (check.replay): how many there are at once. */
int ls_memory_trainers(const struct ls_config *config);
/* Beside the plans a process takes its libraries and a rank its tables. Before the first step a
 * process takes the operands with which it measures the machine's peak (ls_gemm_peak_bytes), and
 * gives them back. From the first step on a rank takes what ops work in (ls_ops_workspace_bytes), a
 * window of a checkpoint's tensors while it is written (rank 0 two), and over MPI what each group
 * sums in (ls_comm_mpi_sum_bytes). Not counted: a sample's decoder (ls_decoder_bytes) and a
 * tokenizer.
 *
 * config is resolved, and layout its layout. Counted are the ranks of world that run on this
 * machine; world NULL: all of the layout's. The errors are those of ls_plan_rank. */
int ls_memory_fit(const struct ls_config *config, const struct ls_layout *layout,
                  const struct ls_comm *world, struct ls_memory_fit *fit, struct ls_error *error);

enum ls_fit {
    LS_FITS,
    LS_FITS_NOT_NOW, /* the machine has it, but other programs hold some of it */
    LS_FITS_NOT,
};
/* What is not known of a machine is not held against a plan. */
enum ls_fit ls_memory_fits(const struct ls_memory_fit *fit);
/* *bytes = what config's layout takes with all its ranks on this machine. LS_ELAYOUT, and LS_ENOMEM
 * if that is more than is free now. config is resolved. */
int ls_memory_here(const struct ls_config *config, double *bytes, struct ls_error *error);
/* Whether each rank keeps within memory.device_budget. */
bool ls_memory_keeps_budget(const struct ls_config *config, const struct ls_memory_fit *fit);

/* Keys of the layout, as one writes them on a command line, and what the ranks on this machine take
 * with them; under memory.device_budget, what a rank takes of its device. */
struct ls_memory_change {
    char keys[192]; /* "parallel.zero=2 memory.recompute=full" */
    int64_t bytes;
};
enum { LS_MEMORY_CHANGES_MAX = 4 };
/* Up to that many changes with which the ranks take at most limit bytes (0: any) and keep within
 * memory.device_budget, the cheapest in time first: memory.recompute, memory.offload (to file where
 * memory.file is set), parallel.zero over the data-parallel ranks that there are, a smaller
 * batch.micro; several together only where no single one is enough. Each was planned: none changes
 * bits. world as above. How many. */
int ls_memory_changes(const struct ls_config *config, const struct ls_layout *layout,
                      const struct ls_comm *world, int64_t limit,
                      struct ls_memory_change changes[LS_MEMORY_CHANGES_MAX]);

LS_C_END
#endif
