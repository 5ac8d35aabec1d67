/* What `lockstep eval` and `lockstep generate` have in common: a finished run in a layout. */
#ifndef CMD_FINISHED_H
#define CMD_FINISHED_H

#include "cmd.h"

#include <lockstep/infer.h>

/* What a rank does with the run, and what the command line said. */
struct finished_job {
    const char *command; /* "eval" */
    enum ls_finished_use use;
    struct cmd_args args;
    const char *data; /* the word that is no key: NULL where there is none */
    struct ls_config config;
    int (*act)(struct finished_job *job, struct ls_finished *finished, bool first,
               struct ls_error *error);
    void *user;
};
/* After cmd_args_read: opens the run that the first word names, in the layout of the words with
 * keys and of --threads, and acts on every rank; first is true on rank 0. */
int finished_run(struct finished_job *job, struct ls_error *error);
/* The exit code, after the words for a failure. */
int finished_end(const struct finished_job *job, int status, const struct ls_error *error);

#endif
