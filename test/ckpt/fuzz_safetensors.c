/* libFuzzer: any bytes as a safetensors file. What is accepted must lie inside the bytes. */
#include "ckpt/format.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct ls_error error = {0};
    struct ls_safetensors *file;
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    LS_ASSERT(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    int code = ls_safetensors_open(&file, path, &error);
    close(fd);
    LS_ASSERT(code == LS_OK ? error.code == LS_OK : code == error.code && error.text[0]);
    size_t total = 0;
    for (size_t i = 0; code == LS_OK && i < ls_safetensors_count(file); i++) {
        const struct ls_tensor_view *view = ls_safetensors_at(file, i);
        LS_ASSERT(view->at > 0 && (size_t)view->at + view->bytes <= size);
        LS_ASSERT(ls_safetensors_find(file, view->name) == view);
        LS_ASSERT(view->dims >= 0 && view->dims <= LS_TENSOR_DIMS_MAX);
        total += view->bytes;
    }
    LS_ASSERT(total <= size);
    if (code == LS_OK)
        ls_safetensors_metadata(file, "format");
    ls_safetensors_close(file);
    return 0;
}
