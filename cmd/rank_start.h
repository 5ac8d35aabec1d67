/* Starting the ranks of a configuration: threads of this process, or processes of an MPI job. */
#ifndef CMD_RANK_START_H
#define CMD_RANK_START_H

#include <lockstep/train.h>

typedef int ranks_body(struct ls_comm *world, void *user, struct ls_error *error);

/* Call it first, with what main got. */
void ranks_arguments(char **arguments);
/* Runs body on every rank; comm.transport auto takes MPI where a launcher started this process. */
int ranks_run(const struct ls_config *config, ranks_body *body, void *user, struct ls_error *error);
/* Reads a configuration from words: at most one file (a word without '='), the rest overrides;
 * `defaults` (may be NULL) are assignments that come before them. Resolves it. No command generates
 * in a layout of rollouts: without group rollout. */
int ranks_config(struct ls_config *config, const char *const *defaults, const char *const *words,
                 int count, struct ls_error *error);
/* The same for a plan, which needs no data: where it, or its tokenizer, is not there, the
 * configuration without it. *missing is then what lacks; model.vocab has to be set. */
int ranks_plan_config(struct ls_config *config, const char *const *words, int count,
                      struct ls_error *missing, struct ls_error *error);
/* The same with the layout, for those that show all layouts of a run: group rollout stays, and has
 * to be admitted. missing NULL: data has to be there. */
int ranks_layouts(struct ls_config *config, const char *const *words, int count,
                  struct ls_layout *layout, struct ls_error *missing, struct ls_error *error);
/* A table of ranks' memory: ends its head, and a row, behind what names the rank. */
void ranks_memory_head(void);
void ranks_memory_row(const struct ls_memory_plan *plan);
/* Each kind's bytes, then all. */
void ranks_bytes_print(const size_t bytes[LS_MEMORY_KINDS], size_t all);
/* Whether training would start here: the ranks fit, or memory.overcommit is set. */
bool ranks_fit_starts(const struct ls_config *config, const struct ls_memory_fit *fit);
/* Prints "4 ranks on this machine alone would take 3.1 GiB of memory; it has 23.5 GiB, of
 * which 20.2 GiB is free: fits", what the processes take beside that, and, if it does not fit, the
 * changes with which it would. before: of each line. *starts: training is not refused here. */
int ranks_fit_print(const char *before, const struct ls_config *config,
                    const struct ls_layout *layout, bool *starts, struct ls_error *error);
/* Whether a communication failed (LS_ECOMM) or a rank was given up (LS_CAUSE_GIVEN_UP): ranks may
 * still be at work with what the caller holds. */
bool ranks_are_left(int status, const struct ls_error *error);
/* Then tells so and ends the process: nothing is unwound. */
void ranks_end(int status, const struct ls_error *error);
#endif
