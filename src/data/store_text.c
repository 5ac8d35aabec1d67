/* The documents of a store as text: detokenize, and how many bytes of text they are. */
#include "data/data_private.h"

#include <lockstep/base/temporary.h>
#include <lockstep/data/store_tools.h>

/* Whether ids[*count] end with these; they go then. */
static void drop_behind(const int32_t *ids, int64_t *count, const int32_t *tail, int tail_count)
{
    if (tail_count > 0 && *count >= tail_count &&
        memcmp(ids + *count - tail_count, tail, (size_t)tail_count * sizeof *ids) == 0)
        *count -= tail_count;
}

int data_stored_text(struct data_stored *stored, int64_t first, int64_t count, struct ls_text *out,
                     struct ls_error *error)
{
    const int32_t *ids;
    int before, behind;
    const struct ls_tokenizer *tokenizer = stored->tokenizer;
    int32_t eod = ls_tokenizer_eod(tokenizer);
    int status = data_stored_ids(stored, first, count, &ids, error);
    if (status)
        return status;
    drop_behind(ids, &count, &eod, eod >= 0);
    const int32_t *tail = ls_tokenizer_around(tokenizer, true, &behind);
    drop_behind(ids, &count, tail, behind);
    const int32_t *head = ls_tokenizer_around(tokenizer, false, &before);
    if (before > 0 && count >= before && memcmp(ids, head, (size_t)before * sizeof *ids) == 0) {
        ids += before;
        count -= before;
    }
    out->count = 0;
    return ls_decode(tokenizer, ids, count, out, error);
}

static int write_documents(struct data_stored *stored, struct ls_atomic_file *file, const char *key,
                           const volatile int *stop, struct ls_detokenize_report *out,
                           struct ls_error *error)
{
    struct ls_text text = {0};
    int64_t first, count;
    int status = LS_OK;
    while (!status && data_stored_next(stored, &first, &count)) {
        status = data_stored_text(stored, first, count, &text, error);
        if (!status)
            status = data_jsonl_put(file, key, &text, error);
        out->documents++;
        out->tokens += count;
        out->text_bytes += (int64_t)text.count;
        if (!status)
            status = data_tool_step(stop, first + count, stored->file.tokens, error);
    }
    ls_text_release(&text);
    return status;
}

int ls_store_detokenize(const char *store, const char *tokenizer, const char *output,
                        const char *json_key, const volatile int *stop,
                        struct ls_detokenize_report *out, struct ls_error *error)
{
    struct data_stored stored;
    struct ls_atomic_file file = {.fd = -1};
    *out = (struct ls_detokenize_report){0};
    int status = data_stored_open(&stored, store, tokenizer, error);
    if (!status && !stored.tokenizer)
        status = ls_error_set(error, LS_EDATA,
                              "%s: no tokenizer is recorded for it: name the one that made it "
                              "(--tokenizer SPEC)",
                              store);
    if (!status)
        status = data_stored_index(&stored, error);
    if (!status)
        status = ls_store_spare(store, output, error);
    if (!status)
        status = ls_atomic_file_open(&file, output, NULL, error);
    if (!status) {
        ls_atomic_file_hold(&file);
        status = write_documents(&stored, &file, json_key ? json_key : "text", stop, out, error);
        if (status)
            ls_atomic_file_abort(&file);
        else
            status = ls_atomic_file_commit(&file, error);
    }
    data_stored_release(&stored);
    return status;
}
