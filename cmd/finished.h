/* What `lockstep eval` and `lockstep generate` have in common: a finished run in a layout. */
#ifndef CMD_FINISHED_H
#define CMD_FINISHED_H

#include "cmd.h"

#include <lockstep/infer.h>

/* What a rank does with the run, and what the command line said. */
struct finished_job {
    enum ls_finished_use use;
    const struct cmd_args *args;
    const char *data; /* the word that is no key: NULL if there is none */
    const char *keys[CMD_WORDS_MAX + 1];
    int key_count;
    struct ls_config config;
    enum ls_quantize quantize;
    int (*act)(struct finished_job *job, struct ls_finished *finished, struct ls_comm *world,
               struct ls_error *error);
    void *user;
};
/* The words are a run, keys and, of an evaluation, data. */
int finished_words(struct finished_job *job, struct ls_error *error);
/* --no-special-tokens and --special-tokens: how prompts and texts become tokens. */
int finished_encode(const struct cmd_args *args, struct ls_encode_options *encode,
                    struct ls_error *error);
/* After that: opens the run that the first word names, in the layout of the words with keys and of
 * --threads, and acts on every rank of the world. */
int finished_run(struct finished_job *job, struct ls_error *error);

#endif
