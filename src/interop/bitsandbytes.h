/* Matrices in NF4 of bitsandbytes' files. */
#ifndef INTEROP_BITSANDBYTES_H
#define INTEROP_BITSANDBYTES_H

#include "interop/interop_private.h"

/* LS_ECONFIG if description's quantization_config names another method, or another form of
 * bitsandbytes; otherwise it goes, if it is bitsandbytes', and *found is set. name: of the file. */
int bnb_config_take(json_t *description, const char *name, bool *found, struct ls_error *error);
/* Whether the tensor of that name belongs to a matrix, and to which. */
bool bnb_matrix_of(const char *name, char matrix[LS_PARAM_NAME_MAX + 64]);
/* Whether the tensor is a matrix's codes, in whatever type they are stored, or can be nothing else.
 */
bool bnb_is_codes(const struct ls_safetensors *file, const struct ls_tensor_view *view);
/* What the file has of the matrix whose codes are there. LS_ECKPT with what is wrong. */
int bnb_find(const struct ls_safetensors *file, const struct ls_tensor_view *codes,
             const char *path, const int64_t shape[2], struct nf4_view *out,
             struct ls_error *error);
/* Its values [first, first + count), row-major. */
int bnb_read(struct ls_stored_file *file, const struct nf4_view *view, int64_t first, int64_t count,
             float *values, struct ls_error *error);

#endif
