/* Runs that train from other programs' models. */
#ifndef TEST_INTEROP_TRAINED_H
#define TEST_INTEROP_TRAINED_H

#include <lockstep/train.h>

/* cmocka set-up: a scratch directory with tokens. */
int tokens_setup(void **state);
/* The resolved configuration of a run as below. */
int train_config(const char *directory, const char *words, struct ls_config *config,
                 struct ls_error *error);
/* Trains on them in fp32, 4 sequences of 16 tokens a step. words: with spaces between. */
int train_words(const char *directory, const char *words, struct ls_error *error);
/* The same fails, for one step into DIRECTORY/none where words do not say else, and says text. */
void train_refused(const char *directory, const char *words, const char *text);
/* The hash of what DIRECTORY/RUN ends with; fails the test where it does not. It lives until the
 * fourth call after. */
const char *trained(const char *directory, const char *run, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
