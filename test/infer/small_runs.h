/* Small runs of every family, trained for a step, and their layouts: with a byte tokenizer and a
 * context of 256. The last one has adapters. */
#ifndef TEST_INFER_SMALL_RUNS_H
#define TEST_INFER_SMALL_RUNS_H

#include <lockstep/infer.h>
#include <lockstep/train.h>

enum { TOKENS = 3000, KEYS_MAX = 6, ROOM = 600, RUNS = 12, ADAPTED_RUN = 11 };

/* Keys of a layout, to a NULL. */
typedef const char *keys_t[KEYS_MAX];

/* cmocka set-up: *state is a directory with tokens.bin and the runs run0, run1, ..., trained on one
 * rank. */
int runs_setup(void **state);
/* A key that must be good. */
void run_key(struct ls_config *config, const char *key);
/* The configuration of a run in a layout. */
struct ls_config run_config(const char *directory, int run, const keys_t keys);
/* What ranks are given of a finished run begins with it. */
struct finished_job {
    struct ls_config config;
    char path[ROOM];
    int words; /* that samples have; 0: as the run was told */
};
/* Runs body, which gets the job, on the ranks of a layout, each with a thread and sampling from
 * the whole distribution. error NULL: a failure fails the test. */
int finished_in(struct finished_job *job, const char *directory, int run, enum ls_finished_use use,
                const keys_t keys,
                int (*body)(struct ls_comm *world, void *user, struct ls_error *error),
                struct ls_error *error);
/* Prompts of so many tokens, each in `most` of the ids. */
void prompts_make(const int64_t *lengths, int count, struct ls_text_request *list, int32_t *ids,
                  int most);
/* "pp=2 tp=2", for texts. */
const char *layout_text(const keys_t keys);

#endif
