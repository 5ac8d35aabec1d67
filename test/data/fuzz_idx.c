/* Megatron's index: any bytes, as the index of a .bin file of any length. */
#include "data/private.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ls_error error = {0};
    struct data_tokens tokens;
    uint16_t bin_bytes = 0;
    if (bytes < sizeof bin_bytes)
        return 0;
    memcpy(&bin_bytes, data, sizeof bin_bytes);
    int rc = data_idx_parse("x.idx", data + 2, bytes - 2, "x.bin", bin_bytes, &tokens, &error);
    LS_ASSERT(rc == LS_OK || (rc == LS_EDATA && error.text[0]));
    LS_ASSERT(rc != LS_OK ||
              tokens.tokens * (int64_t)ls_dtype_bytes(tokens.dtype) == (int64_t)bin_bytes);
    return 0;
}
