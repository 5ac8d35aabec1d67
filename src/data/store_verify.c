/* Whether a store is what was prepared: index, mask, tokenizer, ids, digests. */
#include "data/data_file.h"
#include "data/data_private.h"

#include <lockstep/data/store_tools.h>

#include <errno.h>
#include <stdlib.h>

enum { READ_TOKENS = 1 << 16 };

static int check_ids(struct data_stored *stored, const volatile int *stop, struct ls_error *error)
{
    const int32_t *ids;
    int64_t all = stored->file.tokens;
    int status = LS_OK;
    for (int64_t at = 0, here = 0; at < all && !status; at += here) {
        here = ls_min(READ_TOKENS, all - at);
        status = data_stored_ids(stored, at, here, &ids, error);
        if (!status)
            status = data_tool_step(stop, "", "tokens", at + here, all, error);
    }
    return status;
}

static int check_blocks(const struct ls_sums *sums, enum ls_sums_file file, struct data_file *data,
                        const volatile int *stop, struct ls_error *error)
{
    int64_t blocks = ls_sums_blocks(sums, file);
    if (data_file_bytes(data) != ls_sums_bytes(sums, file))
        return ls_error_set(error, LS_EDATA,
                            "%s: %lld bytes; when it was prepared it had %lld. Copy the store "
                            "again, or prepare the data again",
                            data_file_name(data), (long long)data_file_bytes(data),
                            (long long)ls_sums_bytes(sums, file));
    unsigned char *block = malloc(LS_SUMS_BLOCK_BYTES);
    int status = block ? LS_OK : ls_no_memory(error, "to check %s", data_file_name(data));
    for (int64_t i = 0; i < blocks && !status; i++) {
        size_t bytes = ls_sums_block_bytes(sums, file, i);
        status = data_file_read(data, i * LS_SUMS_BLOCK_BYTES, (int64_t)bytes, block, error);
        if (!status)
            status = ls_sums_check(sums, file, i, block, bytes, error);
        if (!status)
            status = data_tool_step(stop, "", "blocks", i + 1, blocks, error);
    }
    free(block);
    return status;
}

/* One file of the store: it is there if it was there when the digests were made. */
static int check_file(const struct ls_sums *sums, enum ls_sums_file file, const char *bin,
                      const volatile int *stop, struct ls_error *error)
{
    char path[PATH_MAX];
    struct data_file *data = NULL;
    if (ls_sums_bytes(sums, file) < 0)
        return LS_OK;
    int status = data_store_path(path, bin, ls_sums_suffix(file), error);
    if (!status)
        status = data_file_open(path, NULL, &data, error);
    if (!status && !data)
        status = ls_error_errno(error, ENOENT, "%.300s", path);
    if (!status)
        status = check_blocks(sums, file, data, stop, error);
    data_file_close(data);
    return status;
}

static int check_digests(const struct data_stored *stored, const volatile int *stop,
                         struct ls_store_check *out, struct ls_error *error)
{
    struct ls_sums *sums = NULL;
    const char *bin = stored->file.path;
    int status = stored->file.kind == LS_TOKENS_MEGATRON ? ls_sums_open(bin, &sums, error) : LS_OK;
    bool masked = sums && ls_sums_bytes(sums, LS_SUMS_MASK) >= 0;
    if (sums && stored->file.masked != masked)
        status = ls_error_set(error, LS_EDATA,
                              "%.*s.mask: the store had %s mask when it was prepared. %s the mask, "
                              "or prepare the data again",
                              (int)strlen(bin) - 4, bin, masked ? "a" : "no",
                              masked ? "Restore" : "Remove");
    if (!status && sums && !stored->file.weighted && ls_sums_bytes(sums, LS_SUMS_WEIGHTS) >= 0)
        status = ls_error_set(error, LS_EDATA,
                              "%.*s.weights: the store had weights when it was prepared. Restore "
                              "the file, or prepare the data again",
                              (int)strlen(bin) - 4, bin);
    for (int file = 0; sums && file < LS_SUMS_FILES && !status; file++) {
        status = check_file(sums, file, bin, stop, error);
        out->blocks += ls_sums_blocks(sums, file);
    }
    ls_sums_free(sums);
    return status;
}

int ls_store_verify(const char *store, const char *tokenizer, const volatile int *stop,
                    struct ls_store_check *out, struct ls_error *error)
{
    struct data_stored stored;
    *out = (struct ls_store_check){0};
    int status = data_stored_open(&stored, store, tokenizer, error);
    if (!status) {
        *out = (struct ls_store_check){
            .tokens = stored.file.tokens,
            .documents = stored.file.documents,
            .counted = stored.file.counted,
            .vocabulary = stored.tokenizer ? stored.vocabulary : 0,
        };
        status = check_digests(&stored, stop, out, error);
    }
    if (!status)
        status = check_ids(&stored, stop, error);
    data_stored_release(&stored);
    return status;
}
