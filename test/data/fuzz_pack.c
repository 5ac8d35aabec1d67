/* A store's packing: any bytes, alone or behind a header that fits them, as the packing of a store
 * with one document of any length. */
#include "data/data_private.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { OWN = 6 }; /* the length, T, samples, and which header */
    struct ls_error error = {0};
    struct data_pack pack;
    if (bytes < OWN)
        return 0;
    const int32_t length = data[0] | data[1] << 8;
    const int64_t tokens = data[2] + 1, samples = data[3];
    const struct data_ends ends = {length, data[1]};
    const size_t behind = bytes - OWN;
    const bool fits = data[4] % 4 && behind >= 8 * ((size_t)samples + 1) &&
                      (behind - 8 * ((size_t)samples + 1)) % 12 == 0;
    unsigned char *file = calloc(1, DATA_PACK_HEADER_BYTES + behind);
    if (!file)
        return 0;
    memcpy(file + DATA_PACK_HEADER_BYTES, data + OWN, behind);
    if (fits)
        data_pack_header(file, tokens, samples, (int64_t)(behind - 8 * ((size_t)samples + 1)) / 12,
                         &ends);
    else
        memcpy(file, data + OWN, (size_t)ls_min((int64_t)behind, DATA_PACK_HEADER_BYTES));
    int status = data_pack_parse("x.pack", file, DATA_PACK_HEADER_BYTES + behind, &ends, tokens,
                                 &pack, &error);
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && error.text[0]));
    for (int64_t i = 0; status == LS_OK && i < pack.pieces; i++) {
        int64_t first, count;
        data_pack_piece(&pack, i, &first, &count);
        LS_ASSERT(first >= 0 && count >= 1 && count <= tokens && first + count < length);
    }
    free(file);
    return 0;
}
