/* A store's mask: any bytes, alone or behind a good magic, as the mask of a store with one sequence
 * of any length. */
#include "data/data_private.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { COUNTS = 16 }; /* the header's tokens and those that count */
    struct ls_error error = {0};
    if (bytes < 3 + COUNTS)
        return 0;
    int32_t length = data[1] | data[2] << 8;
    struct data_idx idx = {.tokens = {LS_U16, length, 1, 1},
                           .lengths = (const unsigned char *)&length};
    size_t behind = bytes - 3 - COUNTS;
    unsigned char *mask = malloc(DATA_MASK_HEADER_BYTES + behind);
    if (!mask)
        return 0;
    int64_t counts[2];
    memcpy(counts, data + 3, COUNTS);
    data_mask_header(mask, data[0] % 4 ? length : counts[0], counts[1], &length, 1);
    memcpy(mask + DATA_MASK_HEADER_BYTES, data + 3 + COUNTS, behind);
    if (data[0] % 3 == 0)
        memcpy(mask, data + 3, ls_min((int64_t)behind, DATA_MASK_HEADER_BYTES));
    int status = data_mask_parse("x.mask", mask, DATA_MASK_HEADER_BYTES + behind, &idx, &error);
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && error.text[0]));
    LS_ASSERT(status != LS_OK ||
              data_mask_counted(mask + DATA_MASK_HEADER_BYTES, 0, length) == counts[1]);
    free(mask);
    return 0;
}
