/* What the formats of an export share: a model's tensors as a format has them, read in blocks. */
#ifndef EXPORT_PRIVATE_H
#define EXPORT_PRIVATE_H

#include "interop_private.h"

/* A tensor of a format: rows of our parameters, one below the other. A vector has one column. */
enum { OUT_PARTS_MAX = 4 };
struct out_tensor {
    char name[LS_PARAM_NAME_MAX + 1];
    enum ls_dtype dtype;
    int64_t rows, cols; /* of what is stored; rows of padding behind the parts' are zero */
    bool matrix;
    bool transposed;   /* our columns are its rows */
    int64_t head_rows; /* of each head, the two halves of which are in turn there; 0: as here */
    float added;       /* to each value */
    int parts;
    const struct ls_param *part[OUT_PARTS_MAX];
};

struct exporting {
    const struct ls_export *export;
    struct ls_model_source *source;
    struct ls_config config; /* of the source, resolved */
    struct ls_ops ops;
    struct out_tensor *tensors; /* by Hugging Face's names, in the order of the layers */
    int64_t count, room;
    float *values, *block; /* [EXPORT_BLOCK], and of a part of it */
    ls_half *halves;       /* [EXPORT_BLOCK] */
    struct ls_export_report report;
};
enum { EXPORT_BLOCK = 4 << 20 };

/* The number of the tensor's elements and bytes. */
int64_t out_elements(const struct out_tensor *tensor);
int64_t out_bytes(const struct out_tensor *tensor);
/* Gives the tensor's bytes to put, block by block, in the order of the file. */
typedef int out_put(void *user, const void *data, size_t bytes, struct ls_error *error);
int out_write(struct exporting *ex, const struct out_tensor *tensor, out_put *put, void *user,
              struct ls_error *error);

int export_hf(struct exporting *ex, struct ls_error *error);
int export_llmc(struct exporting *ex, struct ls_error *error);
int export_gguf(struct exporting *ex, struct ls_error *error);

#endif
