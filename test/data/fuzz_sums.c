/* A store's list of digests: any bytes; with an odd first byte, lines with a good end behind them.
 */
#include "data/data_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char header[] = "lockstep sums 1 4194304\n";
    enum { HEADER = sizeof header - 1, END = 37 };
    struct ls_error error = {0};
    struct ls_sums *sums;
    if (bytes < 1)
        return 0;
    bool good = data[0] % 2;
    char *text = malloc(HEADER + bytes + END + 1);
    if (!text)
        return 0;
    memcpy(text, header, HEADER);
    memcpy(text + HEADER, data + 1, bytes - 1);
    size_t count = HEADER + bytes - 1;
    XXH128_hash_t whole = XXH3_128bits(text, count);
    snprintf(text + count, END + 1, "end %016llx%016llx\n", (unsigned long long)whole.high64,
             (unsigned long long)whole.low64);
    size_t from = good ? 0 : HEADER;
    int status =
        ls_sums_parse("x.sums", text + from, count - from + (good ? END : 0), &sums, &error);
    LS_ASSERT(status == LS_OK || (status == LS_EDATA && error.text[0] && !sums));
    for (int i = 0; !status && i < LS_SUMS_FILES; i++)
        LS_ASSERT(ls_sums_blocks(sums, i) ==
                  ls_ceil_div(ls_max(ls_sums_bytes(sums, i), 0), LS_SUMS_BLOCK_BYTES));
    ls_sums_free(sums);
    free(text);
    return 0;
}
