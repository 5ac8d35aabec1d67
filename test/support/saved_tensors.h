/* A file of safetensors from tensors in memory. */
#ifndef TEST_SUPPORT_SAVED_TENSORS_H
#define TEST_SUPPORT_SAVED_TENSORS_H

#include <lockstep/ckpt.h>

/* Writes the whole file from the data of its entries. */
static inline int tensors_save(const char *path, const struct ls_tensor_entry *entries,
                               size_t count, struct ls_error *error)
{
    struct ls_safetensors_writer *writer;
    const struct ls_tensor_entry *e;
    int status = ls_safetensors_writer_open(&writer, path, entries, count, NULL, 0, NULL, error);
    if (status)
        return status;
    while (!status && (e = ls_safetensors_writer_next(writer))) {
        size_t bytes = ls_dtype_bytes(e->dtype);
        for (int d = 0; d < e->dims; d++)
            bytes *= (size_t)e->shape[d];
        status = ls_safetensors_writer_append(writer, e->data, bytes, error);
    }
    if (!status)
        return ls_safetensors_writer_commit(writer, error);
    ls_safetensors_writer_abort(writer);
    return status;
}

#endif
