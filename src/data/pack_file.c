/* The packing of a token store: PREFIX.pack says which documents share a sample (data.packing=
 * best_fit, lockstep/data/pack.h).
 *
 *     bytes 0-7    "LSPACK\0\1": the last is the version
 *     bytes 8-15   tokens of PREFIX.bin
 *     bytes 16-23  XXH3-64 of the ends of documents in PREFIX.idx (below)
 *     bytes 24-31  T, the targets of a sample
 *     bytes 32-39  samples
 *     bytes 40-47  pieces: documents, or parts of them
 *     bytes 48-55  XXH3-64 of all that follows
 *     then         int64 [samples + 1]: pieces before each sample, and all of them
 *     then         int64 [pieces]: the first token of each
 *     then         int32 [pieces]: its targets, which are the tokens behind the first one
 *
 * The ends are int64, one behind the other; their digest's seed is that of the lengths (int32).
 * Numbers are little-endian. The ends tie a packing to its store: one prepared anew has others. */
#include "data/data_private.h"

#include <lockstep/net.h>

#include <xxhash.h>

static const char magic[8] = "LSPACK\0\1";

size_t data_pack_bytes(int64_t samples, int64_t pieces)
{
    return DATA_PACK_HEADER_BYTES + 8 * ((size_t)samples + 1) + 12 * (size_t)pieces;
}

void data_pack_header(unsigned char *file, int64_t tokens, int64_t samples, int64_t pieces,
                      const struct data_ends *ends)
{
    const size_t behind = data_pack_bytes(samples, pieces) - DATA_PACK_HEADER_BYTES;
    const uint64_t digest = XXH3_64bits(file + DATA_PACK_HEADER_BYTES, behind);
    memcpy(file, magic, sizeof magic);
    memcpy(file + 8, &ends->tokens, 8);
    memcpy(file + 16, &ends->digest, 8);
    memcpy(file + 24, &tokens, 8);
    memcpy(file + 32, &samples, 8);
    memcpy(file + 40, &pieces, 8);
    memcpy(file + 48, &digest, 8);
}

void data_pack_of(const unsigned char *file, struct data_pack *pack)
{
    const int64_t samples = (int64_t)data_load_u64(file + 32);
    const int64_t pieces = (int64_t)data_load_u64(file + 40);
    *pack = (struct data_pack){.tokens = (int64_t)data_load_u64(file + 24),
                               .samples = samples,
                               .pieces = pieces,
                               .before = file + DATA_PACK_HEADER_BYTES};
    pack->firsts = pack->before + 8 * (samples + 1);
    pack->counts = pack->firsts + 8 * pieces;
}

/* Whether a sample's pieces are within the store, and fit. */
static bool sample_fits(const struct data_pack *pack, int64_t sample, int64_t store_tokens)
{
    int64_t used = 0, end = data_pack_before(pack, sample + 1);
    int64_t at = data_pack_before(pack, sample);
    if (at >= end || end > pack->pieces)
        return false;
    for (; at < end && used <= pack->tokens; at++) {
        int64_t first, count;
        data_pack_piece(pack, at, &first, &count);
        if (count < 1 || count > pack->tokens || first < 0 || first >= store_tokens - count)
            return false;
        used += count;
    }
    return used <= pack->tokens;
}

static bool samples_fit(const struct data_pack *pack, int64_t store_tokens)
{
    bool fit =
        data_pack_before(pack, 0) == 0 && data_pack_before(pack, pack->samples) == pack->pieces;
    for (int64_t i = 0; i < pack->samples && fit; i++)
        fit = sample_fits(pack, i, store_tokens);
    return fit;
}

int data_pack_again(const char *name, const char *what, int64_t tokens, struct ls_error *error)
{
    int prefix = (int)ls_max((int64_t)strlen(name) - 5, 0);
    if (ls_url_is(name))
        ls_error_suffix(error,
                        ". Make %s where the store lies on a disk: lockstep data pack STORE "
                        "--sequence %lld; then upload STORE.pack under this name",
                        what, (long long)tokens);
    else
        ls_error_suffix(error, ". Make %s: lockstep data pack %.*s --sequence %lld", what, prefix,
                        name, (long long)tokens);
    return LS_EDATA;
}

/* What ties it to this store and this length. */
static int belongs(const char *name, const unsigned char *file, const struct data_ends *ends,
                   int64_t tokens, struct ls_error *error)
{
    int64_t of = (int64_t)data_load_u64(file + 8), found = (int64_t)data_load_u64(file + 24);
    if (of != ends->tokens || data_load_u64(file + 16) != ends->digest)
        return ls_error_set(error, LS_EDATA,
                            "%s: the packing of another store: it is of %lld tokens and the store "
                            "has %lld%s",
                            name, (long long)of, (long long)ends->tokens,
                            of == ends->tokens ? ", in documents of other lengths" : "");
    if (found != tokens)
        return ls_error_set(error, LS_EDATA,
                            "%s: packed for sequences of %lld tokens, and %lld are asked for", name,
                            (long long)found, (long long)tokens);
    return LS_OK;
}

int data_pack_parse(const char *name, const unsigned char *file, size_t bytes,
                    const struct data_ends *ends, int64_t tokens, struct data_pack *pack,
                    struct ls_error *error)
{
    *pack = (struct data_pack){0};
    if (bytes < DATA_PACK_HEADER_BYTES || memcmp(file, magic, 6) != 0)
        return ls_error_set(error, LS_EDATA,
                            "%s: not a packing of documents: it does not begin with \"LSPACK\" and "
                            "a header of %d bytes",
                            name, DATA_PACK_HEADER_BYTES);
    if (memcmp(file, magic, sizeof magic) != 0)
        return ls_error_set(error, LS_EDATA, "%s: version %u of the packing; expected %d", name,
                            file[7], magic[7]);
    int status = belongs(name, file, ends, tokens, error);
    if (status)
        return data_pack_again(name, "it again", tokens, error);
    int64_t samples = (int64_t)data_load_u64(file + 32), pieces = (int64_t)data_load_u64(file + 40);
    bool sized = samples >= 1 && pieces >= samples && pieces < (int64_t)(bytes / 12) &&
                 data_pack_bytes(samples, pieces) == bytes;
    uint64_t digest = XXH3_64bits(file + DATA_PACK_HEADER_BYTES, bytes - DATA_PACK_HEADER_BYTES);
    if (sized)
        data_pack_of(file, pack);
    if (sized && digest == data_load_u64(file + 48) && samples_fit(pack, ends->tokens))
        return LS_OK;
    ls_error_set(error, LS_EDATA, "%s: damaged: %s", name,
                 sized ? "it is not what was written"
                       : "its size is not that of its samples and pieces");
    return data_pack_again(name, "it again", tokens, error);
}
