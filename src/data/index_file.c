/* Megatron's index and the mask beside it, read in pieces: their memory does not grow with them. */
#include "data/index_file.h"

#include <xxhash.h>

enum { PIECE = 4096 }; /* sequences, documents */

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
                          struct ls_error *error)
{
    unsigned char marks[8 * PIECE];
    int status = LS_OK;
    for (int64_t i = 0; i < check->idx->marks && !status; i += PIECE) {
        int64_t count = ls_min(PIECE, check->idx->marks - i);
        status = data_file_read(file, data_idx_documents_at(check->idx) + 8 * i, 8 * count, marks,
                                error);
        if (!status)
            status = data_idx_documents(check, marks, count, error);
    }
    return status;
}

int index_read(struct data_file *file, const struct data_file *bin, struct data_idx *idx,
               uint64_t *digest, struct ls_error *error)
{
    unsigned char header[DATA_IDX_HEADER_BYTES] = {0};
    const char *name = data_file_name(file), *bin_name = data_file_name(bin);
    int64_t bytes = data_file_bytes(file), bin_bytes = data_file_bytes(bin);
    struct data_idx_check check = {
        .name = name, .bin_name = bin_name, .bin_bytes = bin_bytes, .idx = idx};
    int status = data_file_peek(file, 0, ls_min(bytes, sizeof header), header, error);
    if (!status)
        status = data_idx_header(name, header, bytes, bin_bytes, idx, error);
    int64_t token_bytes = status ? 1 : (int64_t)ls_dtype_bytes(idx->tokens.dtype);
    if (!status && !digest && bin_bytes % token_bytes)
        status = ls_error_set(error, LS_EDATA,
                              "%s: %lld bytes, not a whole number of tokens of %lld bytes: it is "
                              "truncated or belongs to another index than %s",
                              bin_name, (long long)bin_bytes, (long long)token_bytes, name);
    if (status || !digest)
        return status;
    status = sequences_read(file, &check, digest, error);
    if (!status)
        status = documents_read(file, &check, error);
    return status ? status : data_idx_end(&check, error);
}

int mask_read(struct data_file *file, int64_t tokens, const uint64_t *digest, int64_t *counted,
              struct ls_error *error)
{
    unsigned char header[DATA_MASK_HEADER_BYTES] = {0}, bits[PIECE];
    const char *name = data_file_name(file);
    int64_t bytes = data_file_bytes(file), found = 0;
    bool clean = true;
    int status = data_file_peek(file, 0, ls_min(bytes, sizeof header), header, error);
    if (!status)
        status = data_mask_check(name, header, bytes, tokens, digest, counted, error);
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
