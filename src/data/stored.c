/* A store that is there, document by document, for what reads it whole. */
#include "data/data_private.h"
#include "data/store_names.h"

#include <lockstep/base/meter.h>
#include <lockstep/base/words.h>

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
    int status = ls_file_map(path, LS_EDATA, &stored->idx, error);
    if (status)
        return status;
    int64_t bytes = stored->file.tokens * (int64_t)ls_dtype_bytes(stored->file.dtype);
    return data_idx_parse(path, stored->idx.bytes, stored->idx.count, bin, bytes, &stored->what,
                          error);
}

void data_stored_release(struct data_stored *stored)
{
    ls_token_store_close(stored->store);
    ls_tokenizer_free(stored->tokenizer);
    ls_file_unmap(&stored->idx);
    free(stored->ids);
    *stored = (struct data_stored){0};
}

bool data_stored_next(struct data_stored *stored, int64_t *first, int64_t *count)
{
    while (data_idx_next(&stored->what, &stored->walk, first, count))
        if (*count > 0)
            return true;
    return false;
}

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

int data_tool_step(const volatile int *stop, const char *stopped, int64_t done, int64_t all,
                   struct ls_error *error)
{
    ls_meter("tokens", done, all);
    return stop && *stop ? ls_error_set(error, LS_ESTOPPED, "stopped by a signal%s", stopped)
                         : LS_OK;
}
