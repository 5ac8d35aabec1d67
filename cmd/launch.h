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
#endif
