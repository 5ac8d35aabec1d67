/* A store that is there, document by document, for what reads it whole. */
#include "data/store_files.h"
#include "data/store_names.h"

#include <lockstep/base/meter.h>
#include <lockstep/base/words.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* The one that is given, or the one that is recorded; it must be the recorded one, unchanged. */
static int open_tokenizer(struct data_stored *stored, const char *spec, struct ls_error *error)
{
    int status = LS_OK;
    if (spec)
        status = ls_tokenizer_new(spec, &stored->tokenizer, error);
    else if (data_tokenizer_recorded(stored->name))
        status = ls_tokenizer_new_for_store(stored->name, &stored->tokenizer, error);
    if (!status && stored->tokenizer)
        status = ls_tokenizer_stores_check(stored->tokenizer, stored->name, error);
    if (!status && stored->tokenizer)
        stored->vocabulary = ls_tokenizer_vocabulary(stored->tokenizer);
    return status;
}

static int stem(const char *name)
{
    bool ending = ls_path_ends(name, ".bin") || ls_path_ends(name, ".idx");
    return (int)strlen(name) - (ending ? 4 : 0);
}

/* A folder or a pattern stands for all stores that it has, and a path beside it for none of them.
 */
static int one_check(const struct data_stored *stored, struct ls_error *error)
{
    const char *tokens = store_name_bare(stored->name), *path = stored->file.path;
    const char *name = tokens ? tokens : stored->name;
    int files = ls_token_store_files(stored->store), length = stem(name);
    if (files == 1 && length == stem(path) && !strncmp(name, path, (size_t)length))
        return LS_OK;
    return ls_error_set(error, LS_EINVAL,
                        "%.300s: expected one store, not a folder or a pattern; it stands for %s, "
                        "of which the first is %.*s: name each (a shell does so of FOLDER/*.idx)",
                        stored->name, ls_counted(files, "store").text, stem(path), path);
}

int data_stored_open_alone(struct data_stored *stored, const char *name, struct ls_error *error)
{
    *stored = (struct data_stored){.name = name, .vocabulary = (int64_t)INT32_MAX + 1};
    int parted = store_names_comma_check(name, error);
    if (parted)
        return parted;
    if (strchr(name, ','))
        return ls_error_set(error, LS_EINVAL, "%.300s: expected one store, not a list", name);
    const char *tokens = store_name_bare(name);
    if (ls_url_is(tokens ? tokens : name))
        return ls_error_set(error, LS_EINVAL,
                            "%.300s: expected a store on this host's disks: copy it, or mount the "
                            "bucket",
                            name);
    int status = ls_token_store_open(name, &stored->store, error);
    if (status)
        return status;
    stored->file = ls_token_store_file(stored->store, 0);
    return one_check(stored, error);
}

int data_stored_open(struct data_stored *stored, const char *name, const char *spec,
                     struct ls_error *error)
{
    int status = data_stored_open_alone(stored, name, error);
    return status ? status : open_tokenizer(stored, spec, error);
}

int data_stored_index(struct data_stored *stored, struct ls_error *error)
{
    char path[PATH_MAX + 8];
    const char *bin = stored->file.path;
    if (stored->file.kind != LS_TOKENS_MEGATRON)
        return ls_error_set(error, LS_EDATA,
                            "%s: %s do not say where a document ends: expected Megatron's .bin "
                            "and .idx, as lockstep data prepare writes them",
                            bin, ls_token_file_kind_name(stored->file.kind));
    snprintf(path, sizeof path, "%.*s.idx", (int)strlen(bin) - 4, bin);
    struct index_digest digest;
    int64_t bytes = stored->file.tokens * (int64_t)ls_dtype_bytes(stored->file.dtype);
    int status = data_file_open(path, NULL, &stored->idx, error);
    if (!status && !stored->idx)
        status = ls_error_errno(error, ENOENT, "%.300s", path);
    if (!status)
        status = index_read(stored->idx, bin, bytes, &stored->what, &digest, error);
    if (!status)
        stored->ends = (struct data_ends){stored->what.tokens.tokens, digest.ends};
    return status;
}

void data_stored_release(struct data_stored *stored)
{
    ls_token_store_close(stored->store);
    ls_tokenizer_free(stored->tokenizer);
    data_file_close(stored->idx);
    free(stored->piece);
    free(stored->ids);
    *stored = (struct data_stored){0};
}

/* ---- documents one by one -------------------------------------------------------------------- */

/* Items of an index that were read last: those from a multiple of PIECE on. */
enum { PIECE = 4096 };
struct data_stored_piece {
    struct items {
        int64_t first;                  /* -1: none */
        unsigned char bytes[8 * PIECE]; /* as in the file */
    } lengths, marks;
};

/* *value = item `at` of `all`, of so many bytes each, the first of them at byte `place` of the
 * index. An index that was written to meanwhile is refused. */
static int item_at(struct data_stored *stored, struct items *items, int bytes, int64_t place,
                   int64_t all, int64_t at, int64_t *value, struct ls_error *error)
{
    const int64_t first = at - at % PIECE;
    int status = LS_OK;
    if (first != items->first) {
        status = data_file_read(stored->idx, place + bytes * first,
                                bytes * ls_min(PIECE, all - first), items->bytes, error);
        status = status ? status : data_file_look(stored->idx, error);
        items->first = status ? -1 : first;
    }
    const unsigned char *item = items->bytes + bytes * (at - first);
    *value = bytes == 4 ? (int32_t)data_load_u32(item) : (int64_t)data_load_u64(item);
    return status;
}

/* The tokens of the document that the walk is at, which goes on to the next one. */
static int document_read(struct data_stored *stored, int64_t *count, struct ls_error *error)
{
    struct data_idx_walk *walk = &stored->walk;
    struct data_stored_piece *piece = stored->piece;
    const struct data_tokens *all = &stored->what.tokens;
    int64_t end = walk->sequence + 1, tokens;
    int status = LS_OK;
    *count = 0;
    walk->document++;
    if (all->documents)
        status = item_at(stored, &piece->marks, 8, data_idx_documents_at(&stored->what),
                         stored->what.marks, walk->document, &end, error);
    for (; walk->sequence < end && !status; walk->sequence++) {
        status = item_at(stored, &piece->lengths, 4, DATA_IDX_HEADER_BYTES, all->sequences,
                         walk->sequence, &tokens, error);
        *count += tokens;
    }
    walk->token += *count;
    return status;
}

static int piece_new(struct data_stored *stored, struct ls_error *error)
{
    stored->piece = malloc(sizeof *stored->piece);
    if (!stored->piece)
        return ls_no_memory(error, "to read %.300s", data_file_name(stored->idx));
    stored->piece->lengths.first = stored->piece->marks.first = -1;
    return LS_OK;
}

bool data_stored_next(struct data_stored *stored, int64_t *first, int64_t *count, int *status,
                      struct ls_error *error)
{
    const struct data_tokens *what = &stored->what.tokens;
    const int64_t all = what->documents ? what->documents : what->sequences;
    *count = 0;
    *status = stored->piece ? LS_OK : piece_new(stored, error);
    while (!*status && *count == 0 && stored->walk.document < all) {
        *first = stored->walk.token;
        *status = document_read(stored, count, error);
    }
    if (*count > 0)
        return *status == LS_OK;
    free(stored->piece);
    stored->piece = NULL;
    return false;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

int data_stored_ids(struct data_stored *stored, int64_t first, int64_t count, const int32_t **ids,
                    struct ls_error *error)
{
    if (count > stored->ids_room) {
        free(stored->ids);
        stored->ids_room = 0;
        stored->ids = malloc((size_t)count * sizeof *stored->ids);
        if (!stored->ids)
            return ls_error_set(error, LS_ENOMEM, "%s: no memory for %lld tokens", stored->name,
                                (long long)count);
        stored->ids_room = count;
    }
    *ids = stored->ids;
    return ls_token_store_read(stored->store, first, count, stored->vocabulary, stored->ids, error);
}

int data_tool_step(const volatile int *stop, const char *stopped, const char *what, int64_t done,
                   int64_t all, struct ls_error *error)
{
    ls_meter(what, done, all);
    return stop && *stop ? ls_error_set(error, LS_ESTOPPED, "stopped by a signal%s", stopped)
                         : LS_OK;
}
