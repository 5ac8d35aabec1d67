/* What lies beside a store's tokens, read in pieces: Megatron's index, the mask and the weights.
 * Their memory does not grow with them. */
#include "data/store_files.h"

#include <lockstep/base/words.h>

#include <math.h>
#include <xxhash.h>

enum { PIECE = 4096 }; /* sequences, documents, bytes of a mask, weights */

static int sequences_read(struct data_file *file, struct data_idx_check *check, uint64_t *digest,
                          struct ls_error *error)
{
    unsigned char lengths[4 * PIECE], pointers[8 * PIECE];
    const struct data_idx *idx = check->idx;
    int status = LS_OK;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return ls_error_set(error, LS_ENOMEM, "%.300s: no memory to check it", check->name);
    XXH3_64bits_reset(state);
    for (int64_t i = 0; i < idx->tokens.sequences && !status; i += PIECE) {
        int64_t count = ls_min(PIECE, idx->tokens.sequences - i);
        status = data_file_read(file, DATA_IDX_HEADER_BYTES + 4 * i, 4 * count, lengths, error);
        if (!status)
            status =
                data_file_read(file, data_idx_pointers_at(idx) + 8 * i, 8 * count, pointers, error);
        if (!status)
            status = data_idx_sequences(check, lengths, pointers, count, error);
        XXH3_64bits_update(state, lengths, (size_t)(4 * count));
    }
    *digest = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return status;
}

static int documents_read(struct data_file *file, struct data_idx_check *check,
                          struct index_digest *digest, struct ls_error *error)
{
    unsigned char marks[8 * PIECE];
    int status = LS_OK;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return ls_error_set(error, LS_ENOMEM, "%.300s: no memory to check it", check->name);
    XXH3_64bits_reset_withSeed(state, digest->lengths);
    for (int64_t i = 0; i < check->idx->marks && !status; i += PIECE) {
        int64_t count = ls_min(PIECE, check->idx->marks - i);
        status = data_file_read(file, data_idx_documents_at(check->idx) + 8 * i, 8 * count, marks,
                                error);
        if (!status)
            status = data_idx_documents(check, marks, count, error);
        if (!status && check->idx->tokens.documents > 0)
            XXH3_64bits_update(state, marks, (size_t)(8 * count));
    }
    digest->ends = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return status;
}

int index_read(struct data_file *file, const char *bin_name, int64_t bin_bytes,
               struct data_idx *idx, struct index_digest *digest, struct ls_error *error)
{
    unsigned char header[DATA_IDX_HEADER_BYTES] = {0};
    const char *name = data_file_name(file);
    int64_t bytes = data_file_bytes(file);
    struct data_idx_check check = {
        .name = name, .bin_name = bin_name, .bin_bytes = bin_bytes, .idx = idx};
    int status = LS_EDATA;
    for (int left = data_file_tries(file); status == LS_EDATA && left > 0; left--) {
        status = data_file_peek(file, 0, ls_min(bytes, sizeof header), header, error);
        if (!status)
            status = data_idx_header(name, header, bytes, bin_bytes, idx, error);
    }
    int64_t token_bytes = status ? 1 : (int64_t)ls_dtype_bytes(idx->tokens.dtype);
    if (!status && !digest && bin_bytes % token_bytes)
        status = ls_error_set(error, LS_EDATA,
                              "%s: %lld bytes, not a whole number of tokens of %lld bytes: it is "
                              "truncated or belongs to another index than %s",
                              bin_name, (long long)bin_bytes, (long long)token_bytes, name);
    if (status || !digest)
        return status;
    status = sequences_read(file, &check, &digest->lengths, error);
    if (!status)
        status = documents_read(file, &check, digest, error);
    return status ? status : data_idx_end(&check, error);
}

int mask_read(struct data_file *file, int64_t tokens, const uint64_t *digest, int64_t *counted,
              struct ls_error *error)
{
    unsigned char header[DATA_MASK_HEADER_BYTES] = {0}, bits[PIECE];
    const char *name = data_file_name(file);
    int64_t bytes = data_file_bytes(file), found = 0;
    bool clean = true;
    int status = LS_EDATA;
    for (int left = data_file_tries(file); status == LS_EDATA && left > 0; left--) {
        status = data_file_peek(file, 0, ls_min(bytes, sizeof header), header, error);
        if (!status)
            status = data_mask_check(name, header, bytes, tokens, digest, counted, error);
    }
    if (status || !digest)
        return status;
    for (int64_t i = 0; i < tokens && !status; i += 8 * PIECE) {
        int64_t count = ls_min(8 * PIECE, tokens - i);
        status = data_file_read(file, DATA_MASK_HEADER_BYTES + i / 8, ls_ceil_div(count, 8), bits,
                                error);
        found += status ? 0 : data_mask_counted(bits, 0, count);
        clean = count % 8 == 0 || bits[count / 8] >> count % 8 == 0;
    }
    return status ? status : data_mask_check_counted(name, found, *counted, clean, error);
}

/* ---- weights --------------------------------------------------------------------------------- */

int data_weights_size(const char *name, int64_t bytes, int64_t tokens, struct ls_error *error)
{
    if (bytes % DATA_WEIGHT_BYTES == 0 && bytes / DATA_WEIGHT_BYTES == tokens)
        return LS_OK;
    return ls_error_set(error, LS_EDATA,
                        "%s: %lld bytes: the store has %lld tokens, and a float32 weight for each "
                        "takes %lld. Write the weights again, or remove the file to weigh all "
                        "tokens alike",
                        name, (long long)bytes, (long long)tokens,
                        (long long)tokens * DATA_WEIGHT_BYTES);
}

int data_weights_finite(const char *name, const float *weights, int64_t first, int64_t count,
                        struct ls_error *error)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(weights[i]))
            return ls_error_set(error, LS_EDATA,
                                "%s: the weight of token %lld is %g: expected a finite number. "
                                "Write the weights again",
                                name, (long long)(first + i), ls_shown((double)weights[i]));
    return LS_OK;
}

int data_weights_read(struct data_file *file, data_file_reader *read, int64_t first, int64_t count,
                      float *weights, struct ls_error *error)
{
    int status = read(file, first * DATA_WEIGHT_BYTES, count * DATA_WEIGHT_BYTES, weights, error);
    return status ? status
                  : data_weights_finite(data_file_name(file), weights, first, count, error);
}

int data_weights_check(struct data_file *file, int64_t tokens, bool all, struct ls_error *error)
{
    float weights[PIECE];
    int status = data_weights_size(data_file_name(file), data_file_bytes(file), tokens, error);
    for (int64_t i = 0; i < tokens && all && !status; i += PIECE)
        status =
            data_weights_read(file, data_file_read, i, ls_min(PIECE, tokens - i), weights, error);
    return status;
}
