/* The weights of a store's tokens: PREFIX.weights. */
#ifndef DATA_WEIGHTS_FILE_H
#define DATA_WEIGHTS_FILE_H

#include "data/data_file.h"

enum { DATA_WEIGHT_BYTES = 4 }; /* of a token */

/* LS_EDATA unless a file of `bytes` bytes has one weight for each of so many tokens. */
int data_weights_size(const char *name, int64_t bytes, int64_t tokens, struct ls_error *error);
/* LS_EDATA, with the token, if a weight is not finite; weights[0] is that of token `first`. */
int data_weights_finite(const char *name, const float *weights, int64_t first, int64_t count,
                        struct ls_error *error);
/* Checks a file of that many tokens; all: each weight too, not the size alone. */
int data_weights_check(struct data_file *file, int64_t tokens, bool all, struct ls_error *error);
/* weights[count] = those of tokens [first, first + count), each finite. */
int data_weights_read(struct data_file *file, data_file_reader *read, int64_t first, int64_t count,
                      float *weights, struct ls_error *error);

#endif
