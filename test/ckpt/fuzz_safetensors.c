/* libFuzzer: any bytes as a safetensors file. What is accepted must lie inside the bytes. */
#include "ckpt/format.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct ls_error error = {0};
    struct ls_safetensors *file = calloc(1, sizeof *file);
    LS_ASSERT(file);
    file->bytes = bytes;
    file->size = size;
    int code = ckpt_parse(file, "fuzz", &error);
    LS_ASSERT(code == LS_OK ? error.code == LS_OK : code == error.code && error.text[0]);
    size_t total = 0;
    for (size_t i = 0; code == LS_OK && i < ls_safetensors_count(file); i++) {
        const struct ls_tensor_view *view = ls_safetensors_at(file, i);
        const uint8_t *data = view->data;
        LS_ASSERT(data >= bytes && data + view->bytes <= bytes + size);
        LS_ASSERT(ls_safetensors_find(file, view->name) == view);
        LS_ASSERT(view->dims >= 0 && view->dims <= LS_TENSOR_DIMS_MAX);
        total += view->bytes;
    }
    LS_ASSERT(total <= size);
    ls_safetensors_metadata(file, "format");
    ls_safetensors_close(file);
    return 0;
}
