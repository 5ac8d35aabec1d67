/* The mask of a token store: PREFIX.mask says which tokens count as targets, a bit each.
 *
 *     bytes 0-7    "LSMASK\0\1": the last is the version
 *     bytes 8-15   tokens of PREFIX.bin
 *     bytes 16-23  tokens that count
 *     bytes 24-31  XXH3-64 of the lengths in PREFIX.idx (int32, one behind the other)
 *     then         bit i % 8 (1 << i % 8) of byte i / 8 is token i; what is left of the last byte
 * is 0
 *
 * Numbers are little-endian. The lengths tie a mask to its store: one prepared anew has others. */
#include "data/data_private.h"

#include <xxhash.h>

static const char magic[8] = "LSMASK\0\1";

void data_mask_header(unsigned char header[DATA_MASK_HEADER_BYTES], int64_t tokens, int64_t counted,
                      const int32_t *lengths, int64_t sequences)
{
    const uint64_t digest = XXH3_64bits(lengths, (size_t)sequences * sizeof *lengths);
    memcpy(header, magic, sizeof magic);
    memcpy(header + 8, &tokens, 8);
    memcpy(header + 16, &counted, 8);
    memcpy(header + 24, &digest, 8);
}

/* The bits from `first` on, at most 64 of `count`; those behind are 0. */
static uint64_t bits_at(const unsigned char *bits, int64_t first, int64_t count)
{
    uint64_t word = 0;
    count = ls_min(count, 64 - first % 8);
    memcpy(&word, bits + first / 8, (size_t)ls_ceil_div(first % 8 + count, 8));
    word >>= first % 8;
    return count < 64 ? word & (((uint64_t)1 << count) - 1) : word;
}

int64_t data_mask_counted(const unsigned char *bits, int64_t first, int64_t count)
{
    int64_t counted = 0;
    for (int64_t done = 0; done < count;) {
        counted += __builtin_popcountll(bits_at(bits, first + done, count - done));
        done += ls_min(count - done, 64 - (first + done) % 8);
    }
    return counted;
}

void data_mask_apply(const unsigned char *bits, int64_t first, int64_t count, int32_t *targets)
{
    for (int64_t i = 0; i < count; i++)
        if (!(bits[(first + i) / 8] >> (first + i) % 8 & 1))
            targets[i] = -1;
}

int data_mask_check(const char *name, const unsigned char *header, int64_t bytes, int64_t tokens,
                    const uint64_t *lengths, int64_t *counted, struct ls_error *error)
{
    if (bytes < DATA_MASK_HEADER_BYTES || memcmp(header, magic, 6) != 0)
        return ls_error_set(error, LS_EDATA,
                            "%s: not a mask of tokens: it does not begin with \"LSMASK\" and a "
                            "header of %d bytes",
                            name, DATA_MASK_HEADER_BYTES);
    if (memcmp(header, magic, sizeof magic) != 0)
        return ls_error_set(error, LS_EDATA, "%s: version %u of the mask; expected %d", name,
                            header[7], magic[7]);
    int64_t of = (int64_t)data_load_u64(header + 8);
    *counted = (int64_t)data_load_u64(header + 16);
    if (of != tokens || (lengths && data_load_u64(header + 24) != *lengths))
        return ls_error_set(error, LS_EDATA,
                            "%s: a mask of another store: it is of %lld tokens and the store has "
                            "%lld%s. Prepare the data again, or remove the mask to count all "
                            "tokens",
                            name, (long long)of, (long long)tokens,
                            of == tokens ? ", in sequences of other lengths" : "");
    int64_t expected = DATA_MASK_HEADER_BYTES + ls_ceil_div(tokens, 8);
    if (bytes != expected)
        return ls_error_set(error, LS_EDATA, "%s: %lld bytes; a mask of %lld tokens has %lld", name,
                            (long long)bytes, (long long)tokens, (long long)expected);
    return LS_OK;
}

int data_mask_check_counted(const char *name, int64_t found, int64_t counted, bool clean,
                            struct ls_error *error)
{
    if (found != counted || !clean)
        return ls_error_set(error, LS_EDATA,
                            "%s: damaged: it counts %lld tokens and says %lld. Prepare the data "
                            "again",
                            name, (long long)found, (long long)counted);
    return LS_OK;
}
