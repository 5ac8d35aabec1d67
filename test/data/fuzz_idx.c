/* Megatron's index: any bytes, alone or behind a good magic and version, as the index of a .bin
 * file of any length. */
#include "data/data_private.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const unsigned char good[17] = DATA_IDX_MAGIC "\0\1"; /* the version: 8 bytes, 1 */
    struct ls_error error = {0};
    struct data_idx index;
    uint16_t bin_bytes;
    if (bytes < 3)
        return 0;
    memcpy(&bin_bytes, data + 1, sizeof bin_bytes);
    unsigned char *idx = malloc(bytes + sizeof good);
    if (!idx)
        return 0;
    size_t head = data[0] % 2 ? sizeof good : 0;
    memcpy(idx, good, head);
    memcpy(idx + head, data + 3, bytes - 3);
    int status = data_idx_parse("x.idx", idx, head + bytes - 3, "x.bin", bin_bytes, &index, &error);
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && error.text[0]));
    LS_ASSERT(status != LS_OK ||
              index.tokens.tokens * (int64_t)ls_dtype_bytes(index.tokens.dtype) ==
                  (int64_t)bin_bytes);
    free(idx);
    return 0;
}
