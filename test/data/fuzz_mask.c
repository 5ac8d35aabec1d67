/* A store's mask: any bytes, alone or behind a good magic, as the mask of a store with one sequence
 * of any length. */
#include "data/data_private.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { COUNTS = 16 }; /* the header's tokens and those that count */
    struct ls_error error = {0};
    if (bytes < 3 + COUNTS)
        return 0;
    int32_t length = data[1] | data[2] << 8;
    size_t behind = bytes - 3 - COUNTS;
    unsigned char *mask = malloc(DATA_MASK_HEADER_BYTES + behind);
    if (!mask)
        return 0;
    int64_t counts[2], counted, found = -1;
    memcpy(counts, data + 3, COUNTS);
    data_mask_header(mask, data[0] % 4 ? length : counts[0], counts[1], &length, 1);
    memcpy(mask + DATA_MASK_HEADER_BYTES, data + 3 + COUNTS, behind);
    if (data[0] % 3 == 0)
        memcpy(mask, data + 3, ls_min((int64_t)behind, DATA_MASK_HEADER_BYTES));
    const uint64_t digest = XXH3_64bits(&length, sizeof length);
    const unsigned char *bits = mask + DATA_MASK_HEADER_BYTES;
    int status = data_mask_check("x.mask", mask, (int64_t)(DATA_MASK_HEADER_BYTES + behind), length,
                                 &digest, &counted, &error);
    if (!status) {
        bool clean = length % 8 == 0 || bits[length / 8] >> length % 8 == 0;
        found = data_mask_counted(bits, 0, length);
        status = data_mask_check_counted("x.mask", found, counted, clean, &error);
    }
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && error.text[0]));
    LS_ASSERT(status != LS_OK || found == counts[1]);
    free(mask);
    return 0;
}
