/* What the formats of an export share: a model's tensors as a format has them, read in blocks. */
#ifndef INTEROP_EXPORT_PRIVATE_H
#define INTEROP_EXPORT_PRIVATE_H

#include "interop/interop_private.h"
#include "interop/pump.h"

/* A tensor of a format: rows of our parameters, one below the other. A vector has one column. */
enum { OUT_PARTS_MAX = 4, OUT_NAME_BYTES = LS_PARAM_NAME_MAX + 33 };
struct out_tensor {
    char name[OUT_NAME_BYTES];
    enum ls_dtype dtype; /* LS_I8: GGUF's Q8_0 */
    int64_t rows, cols;  /* of what is stored; rows of padding behind the parts' are zero */
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
    int64_t block;         /* elements of a block: EXPORT_BLOCK, or the longest row of a tensor */
    float *values, *piece; /* [block], and of a part of it */
    struct pump pump;      /* its blocks take `block` float32 */
    struct ls_export_report report;
};
/* Small, so that what is read is still in the cache when it is written. */
enum { EXPORT_BLOCK = 512 << 10 };

/* The number of the tensor's bytes. */
int64_t out_bytes(const struct out_tensor *tensor);
/* Gives the tensor's bytes to put, block by block, in the order of the file, and in the pump's
 * thread. What follows, or closes user, drains the pump first, whatever happened. */
int out_write(struct exporting *ex, const struct out_tensor *tensor, pump_write *put, void *user,
              struct ls_error *error);

/* Such a put: user is a struct ls_atomic_file. */
pump_write out_append;

/* The one file of a format, which write fills: it appears complete or not at all. */
typedef int out_write_file(struct exporting *ex, struct ls_atomic_file *file,
                           struct ls_error *error);
int out_single(struct exporting *ex, out_write_file *write, struct ls_error *error);
/* Tensors [first, end) of the list as a file. */
int out_safetensors(struct exporting *ex, int64_t first, int64_t end, const char *path,
                    struct ls_error *error);
/* A folder of files, of which each makes one or several; it appears complete or not at all. Ends
 * with NULL. */
typedef int out_file(struct exporting *ex, const char *folder, struct ls_error *error);
int out_folder(struct exporting *ex, out_file *const *files, struct ls_error *error);

int export_hf(struct exporting *ex, struct ls_error *error);
int export_llmc(struct exporting *ex, struct ls_error *error);
int export_peft(struct exporting *ex, struct ls_error *error);
int export_gguf(struct exporting *ex, struct ls_error *error);

#endif
