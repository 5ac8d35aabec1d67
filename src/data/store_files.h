/* What a store knows of its index, its mask and its weights. */
#ifndef DATA_STORE_FILES_H
#define DATA_STORE_FILES_H

#include "data/data_file.h"
#include "data/data_private.h"

/* XXH3-64 of all lengths of an index, which a mask has; and of its marks, by that as the seed,
 * which a packing has. */
struct index_digest {
    uint64_t lengths, ends;
};
/* Checks an index as that of a .bin file of so many bytes. digest NULL: only the header is read,
 * and the tokens are those that .bin has room for. lengths and documents of *idx are not set.
 * LS_EDATA names what is wrong. */
int index_read(struct data_file *file, const char *bin_name, int64_t bin_bytes,
               struct data_idx *idx, struct index_digest *digest, struct ls_error *error);
/* Checks a mask of so many tokens, whose index has this digest; NULL: only its header is read.
 * *counted = the tokens that count. */
int mask_read(struct data_file *file, int64_t tokens, const uint64_t *digest, int64_t *counted,
              struct ls_error *error);

/* The weights of a store's tokens: PREFIX.weights has a float32 for each token of PREFIX.bin,
 * little-endian, without a header. The weight of a token multiplies its loss where it is a target.
 */
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
