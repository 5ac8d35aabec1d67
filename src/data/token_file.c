/* Headers of token files. Fields are not aligned in them, so they are loaded by memcpy. Files are
 * little-endian, as are the machines that Lockstep runs on. */
#include "data/data_private.h"

#include <stdio.h>

const char *const data_suffixes[] = {".bin",  ".idx",       ".mask", ".weights",
                                     ".sums", ".tokenizer", NULL};

int data_store_path(char path[PATH_MAX], const char *store, const char *suffix,
                    struct ls_error *error)
{
    bool ending = ls_path_ends(store, ".bin") || ls_path_ends(store, ".idx");
    int stem = (int)strnlen(store, PATH_MAX) - (ending ? 4 : 0);
    return snprintf(path, PATH_MAX, "%.*s%s", stem, store, suffix) < PATH_MAX
               ? LS_OK
               : ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", store);
}

/* ---- Megatron ------------------------------------------------------------------------------- */

/* Position = Megatron's number (indexed_dataset.py, class DType). */
static const struct {
    bool integer;
    enum ls_dtype dtype;
} idx_dtypes[] = {{0},
                  {true, LS_U8},
                  {true, LS_I8},
                  {true, LS_I16},
                  {true, LS_I32},
                  {true, LS_I64},
                  {false, LS_F64},
                  {false, LS_F32},
                  {true, LS_U16}};
enum { IDX_DTYPES = sizeof idx_dtypes / sizeof idx_dtypes[0] };

enum ls_dtype ls_token_dtype(int64_t vocabulary)
{
    return vocabulary < DATA_VOCABULARY_U16_MAX ? LS_U16 : LS_I32;
}

int data_idx_dtype_code(enum ls_dtype dtype)
{
    for (int code = 1; code < IDX_DTYPES; code++)
        if (idx_dtypes[code].integer && idx_dtypes[code].dtype == dtype)
            return code;
    return 0;
}

int data_idx_sequences(struct data_idx_check *check, const unsigned char *lengths,
                       const unsigned char *pointers, int64_t count, struct ls_error *error)
{
    int64_t token_bytes = (int64_t)ls_dtype_bytes(check->idx->tokens.dtype);
    for (int64_t i = 0; i < count; i++, check->sequences++) {
        int32_t length = (int32_t)data_load_u32(lengths + 4 * i);
        int64_t pointer = (int64_t)data_load_u64(pointers + 8 * i);
        if (length < 0 || pointer != check->bytes)
            return ls_error_set(error, LS_EDATA,
                                "%s: sequence %lld has length %d at byte %lld; expected a length "
                                "of 0 or more at byte %lld. The index is damaged: make it again",
                                check->name, (long long)check->sequences, length,
                                (long long)pointer, (long long)check->bytes);
        check->bytes += length * token_bytes;
        if (check->bytes > check->bin_bytes)
            return ls_error_set(error, LS_EDATA,
                                "%s: sequence %lld ends at byte %lld, but %s has %lld bytes: it is "
                                "truncated or belongs to another index",
                                check->name, (long long)check->sequences, (long long)check->bytes,
                                check->bin_name, (long long)check->bin_bytes);
    }
    return LS_OK;
}

int data_idx_documents(struct data_idx_check *check, const unsigned char *documents, int64_t count,
                       struct ls_error *error)
{
    int64_t sequences = check->idx->tokens.sequences;
    for (int64_t i = 0; i < count; i++, check->documents++) {
        int64_t first = (int64_t)data_load_u64(documents + 8 * i);
        bool begins = check->documents == 0;
        if (first < check->last || first > sequences || (begins && first != 0))
            return ls_error_set(error, LS_EDATA,
                                "%s: document %lld begins at sequence %lld; expected %lld to %lld. "
                                "The index is damaged: make it again",
                                check->name, (long long)check->documents, (long long)first,
                                (long long)check->last, (long long)(begins ? 0 : sequences));
        check->last = first;
    }
    return LS_OK;
}

int data_idx_end(const struct data_idx_check *check, struct ls_error *error)
{
    if (check->bytes != check->bin_bytes)
        return ls_error_set(error, LS_EDATA,
                            "%s: %lld bytes, but its index %s describes %lld: it is damaged or "
                            "belongs to another index",
                            check->bin_name, (long long)check->bin_bytes, check->name,
                            (long long)check->bytes);
    if (check->documents > 0 && check->last != check->idx->tokens.sequences)
        return ls_error_set(error, LS_EDATA,
                            "%s: the last document ends at sequence %lld of %lld. The index is "
                            "damaged: make it again",
                            check->name, (long long)check->last,
                            (long long)check->idx->tokens.sequences);
    return LS_OK;
}

int data_idx_header(const char *name, const unsigned char *idx, int64_t bytes, int64_t bin_bytes,
                    struct data_idx *out, struct ls_error *error)
{
    if (bytes < DATA_IDX_HEADER_BYTES)
        return ls_error_set(error, LS_EDATA,
                            "%s: truncated: %lld bytes, the header of a Megatron index has %d",
                            name, (long long)bytes, DATA_IDX_HEADER_BYTES);
    if (memcmp(idx, DATA_IDX_MAGIC, 9) != 0)
        return ls_error_set(error, LS_EDATA,
                            "%s: not a Megatron index: it does not begin with \"MMIDIDX\"", name);
    uint64_t version = data_load_u64(idx + 9);
    unsigned code = idx[17];
    uint64_t sequences = data_load_u64(idx + 18), documents = data_load_u64(idx + 26);
    if (version != DATA_IDX_VERSION)
        return ls_error_set(error, LS_EDATA, "%s: version %llu of the index; expected %d", name,
                            (unsigned long long)version, DATA_IDX_VERSION);
    if (code >= IDX_DTYPES || !idx_dtypes[code].integer)
        return ls_error_set(error, LS_EDATA,
                            "%s: dtype %u holds no tokens; expected 1 (u8), 2 (i8), 3 (i16), "
                            "4 (i32), 5 (i64) or 8 (u16)",
                            name, code);
    uint64_t left = (uint64_t)bytes - DATA_IDX_HEADER_BYTES;
    /* Divided, not multiplied: the counts may be anything. */
    bool fits = sequences <= left / 12 && documents <= (left - 12 * sequences) / 8;
    uint64_t rest = fits ? left - 12 * sequences - 8 * documents : 0;
    if (!fits || (rest != 0 && rest != sequences))
        return ls_error_set(
            error, LS_EDATA, "%s: %lld bytes do not fit %llu sequences and %llu document marks: %s",
            name, (long long)bytes, (unsigned long long)sequences, (unsigned long long)documents,
            fits ? "there is more than they need" : "truncated");
    int64_t token_bytes = (int64_t)ls_dtype_bytes(idx_dtypes[code].dtype);
    *out = (struct data_idx){.tokens = {idx_dtypes[code].dtype, bin_bytes / token_bytes,
                                        (int64_t)sequences,
                                        documents > 0 ? (int64_t)documents - 1 : 0},
                             .marks = (int64_t)documents};
    return LS_OK;
}

bool data_idx_next(const struct data_idx *idx, struct data_idx_walk *walk, int64_t *first,
                   int64_t *count)
{
    int64_t marked = idx->tokens.documents, end = walk->sequence + 1;
    if (walk->document == (marked ? marked : idx->tokens.sequences))
        return false;
    walk->document++;
    if (marked)
        end = (int64_t)data_load_u64(idx->documents + 8 * walk->document);
    *first = walk->token;
    for (; walk->sequence < end; walk->sequence++)
        walk->token += (int32_t)data_load_u32(idx->lengths + 4 * walk->sequence);
    *count = walk->token - *first;
    return true;
}

int data_idx_parse(const char *name, const unsigned char *idx, size_t bytes, const char *bin_name,
                   int64_t bin_bytes, struct data_idx *out, struct ls_error *error)
{
    struct data_idx_check check = {
        .name = name, .bin_name = bin_name, .bin_bytes = bin_bytes, .idx = out};
    int status = data_idx_header(name, idx, (int64_t)bytes, bin_bytes, out, error);
    if (status)
        return status;
    int64_t sequences = out->tokens.sequences;
    const unsigned char *pointers = idx + data_idx_pointers_at(out);
    out->lengths = idx + DATA_IDX_HEADER_BYTES;
    out->documents = idx + data_idx_documents_at(out);
    status = data_idx_sequences(&check, out->lengths, pointers, sequences, error);
    if (!status)
        status = data_idx_documents(&check, out->documents, out->marks, error);
    return status ? status : data_idx_end(&check, error);
}

/* ---- llm.c ---------------------------------------------------------------------------------- */

int data_llmc_parse(const char *name, const unsigned char *file, int64_t file_bytes, bool *is_llmc,
                    struct data_tokens *out, struct ls_error *error)
{
    static const struct {
        uint32_t magic, version;
        enum ls_dtype dtype;
    } kinds[] = {{20240520, 1, LS_U16}, {20240801, 7, LS_I32}};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    *is_llmc = false;
    if (file_bytes < 4)
        return LS_OK;
    uint32_t magic = data_load_u32(file);
    int kind = 0;
    while (kind < KINDS && kinds[kind].magic != magic)
        kind++;
    if (kind == KINDS)
        return LS_OK;
    *is_llmc = true;
    if (file_bytes < DATA_LLMC_HEADER_BYTES)
        return ls_error_set(error, LS_EDATA,
                            "%s: truncated: %lld bytes, the header of an llm.c file has %d", name,
                            (long long)file_bytes, DATA_LLMC_HEADER_BYTES);
    uint32_t version = data_load_u32(file + 4), tokens = data_load_u32(file + 8);
    if (version != kinds[kind].version)
        return ls_error_set(error, LS_EDATA, "%s: version %u of llm.c's magic %u; expected %u",
                            name, version, magic, kinds[kind].version);
    int64_t expected =
        DATA_LLMC_HEADER_BYTES + (int64_t)tokens * (int64_t)ls_dtype_bytes(kinds[kind].dtype);
    if (file_bytes != expected)
        return ls_error_set(error, LS_EDATA,
                            "%s: %lld bytes, but the header promises %u tokens, which make %lld: "
                            "%s",
                            name, (long long)file_bytes, tokens, (long long)expected,
                            file_bytes < expected ? "truncated" : "more than it should hold");
    *out = (struct data_tokens){kinds[kind].dtype, tokens, 0, 0};
    return LS_OK;
}
