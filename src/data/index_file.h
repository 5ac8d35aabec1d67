/* What a store knows of its index and its mask. */
#ifndef DATA_INDEX_FILE_H
#define DATA_INDEX_FILE_H

#include "data/data_file.h"
#include "data/data_private.h"

/* Checks an index as that of bin. *digest = XXH3-64 of all its lengths; NULL: only the header is
 * read, and the tokens are those that bin has room for. lengths and documents of *idx are not set.
 * LS_EDATA names what is wrong. */
int index_read(struct data_file *file, const struct data_file *bin, struct data_idx *idx,
               uint64_t *digest, struct ls_error *error);
/* Checks a mask of so many tokens, whose index has this digest; NULL: only its header is read.
 * *counted = the tokens that count. */
int mask_read(struct data_file *file, int64_t tokens, const uint64_t *digest, int64_t *counted,
              struct ls_error *error);

#endif
