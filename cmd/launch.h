/* Starting the ranks of a configuration: threads of this process, or the processes of an MPI job.
 */
#ifndef CMD_LAUNCH_H
#define CMD_LAUNCH_H

#include <lockstep/train.h>

typedef int launch_body(struct ls_comm *world, void *user, struct ls_error *error);

/* Runs body on every rank; comm.transport auto takes MPI where a launcher started this process. */
int launch_ranks(const struct ls_config *config, launch_body *body, void *user,
                 struct ls_error *error);
/* Reads a configuration from words: at most one file (a word without '='), the rest overrides;
 * `defaults` (may be NULL) are assignments that come before them. Resolves it. */
int launch_config(struct ls_config *config, const char *const *defaults, const char *const *words,
                  int count, struct ls_error *error);
/* What a layout takes on thread ranks of this machine, all of them together, in bytes. LS_ELAYOUT;
 * LS_ENOMEM where that is more than the machine has left. */
int launch_memory(const struct ls_config *config, double *bytes, struct ls_error *error);
/* Ends the process with the exit code of a communication that failed: ranks may still be at work
 * with what the caller holds, so nothing is unwound. */
void launch_end(int status) __attribute__((noreturn));
#endif
