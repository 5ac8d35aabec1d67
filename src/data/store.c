/* Token stores: several mapped files read as one stream. */
#include "data/data_private.h"

#include <lockstep/base/file.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct file {
    char *path;
    enum ls_token_file_kind kind;
    struct data_tokens what;
    struct ls_mapping map;
    const unsigned char *tokens; /* inside the mapping */
    struct ls_mapping mask;      /* empty: all tokens count */
    int64_t first;               /* of the stream */
};
struct ls_token_store {
    struct file *files;
    int count;
    int64_t tokens;
    struct data_packing *packing; /* NULL: samples are of the stream */
    int64_t packed_tokens;        /* of its samples */
};

/* ---- opening -------------------------------------------------------------------------------- */

static bool exists(const char *prefix, const char *suffix)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s%s", prefix, suffix);
    return access(path, F_OK) == 0;
}

/* Which tokens count, if a file says so. */
static int open_mask(struct file *file, const char *prefix, const struct data_idx *idx,
                     struct ls_error *error)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s.mask", prefix);
    if (!exists(prefix, ".mask"))
        return LS_OK;
    int status = ls_file_map(path, LS_EDATA, &file->mask, error);
    return status ? status : data_mask_parse(path, file->mask.bytes, file->mask.count, idx, error);
}

static int open_megatron(struct file *file, const char *prefix, struct ls_error *error)
{
    char idx_path[PATH_MAX + 8];
    struct data_idx what = {0};
    snprintf(idx_path, sizeof idx_path, "%s.idx", prefix);
    file->kind = LS_TOKENS_MEGATRON;
    if (asprintf(&file->path, "%s.bin", prefix) < 0) {
        file->path = NULL;
        return ls_error_set(error, LS_ENOMEM, "no memory to open %s", prefix);
    }
    struct ls_mapping idx = {0};
    int status = ls_file_map(file->path, LS_EDATA, &file->map, error);
    if (!status)
        status = ls_file_map(idx_path, LS_EDATA, &idx, error);
    if (!status)
        status = data_idx_parse(idx_path, idx.bytes, idx.count, file->path,
                                (int64_t)file->map.count, &what, error);
    if (!status)
        status = open_mask(file, prefix, &what, error);
    ls_file_unmap(&idx);
    file->what = what.tokens;
    file->tokens = file->map.bytes;
    return status;
}

static int open_raw(struct file *file, const char *path, struct ls_error *error)
{
    file->kind = LS_TOKENS_RAW;
    file->path = strdup(path);
    if (!file->path)
        return ls_error_set(error, LS_ENOMEM, "no memory to open %s", path);
    int status = ls_file_map(path, LS_EDATA, &file->map, error);
    if (!status && file->map.count % 2)
        status = ls_error_set(error, LS_EDATA,
                              "%s: %zu bytes, not a whole number of uint16 tokens: the file is "
                              "truncated or of another kind",
                              path, file->map.count);
    file->what = (struct data_tokens){LS_U16, (int64_t)(file->map.count / 2), 0, 0};
    file->tokens = file->map.bytes;
    return status;
}

static int open_llmc(struct file *file, const char *path, struct ls_error *error)
{
    file->kind = LS_TOKENS_LLMC;
    file->path = strdup(path);
    if (!file->path)
        return ls_error_set(error, LS_ENOMEM, "no memory to open %s", path);
    bool is_llmc;
    int status = ls_file_map(path, LS_EDATA, &file->map, error);
    if (!status)
        status = data_llmc_parse(path, file->map.bytes, (int64_t)file->map.count, &is_llmc,
                                 &file->what, error);
    if (!status && !is_llmc)
        status =
            ls_error_set(error, LS_EDATA,
                         "%s: not a token store: there is no .idx beside it, and it does not "
                         "begin with llm.c's magic 20240520 or 20240801. Headerless uint16 tokens "
                         "are read as u16:%s",
                         path, path);
    if (!status)
        file->tokens = file->map.bytes + DATA_LLMC_HEADER_BYTES;
    return status;
}

/* Neither a pair of that prefix nor a file of that name. */
static int absent(const char *name, struct ls_error *error)
{
    static const char *const endings[] = {".bin", ".idx", NULL};
    char hint[512];
    int failure = errno;
    ls_path_hint(name, endings, hint, sizeof hint);
    int status =
        ls_error_errno(error, failure, "neither %.300s.bin with its .idx nor %.300s", name, name);
    ls_error_suffix(error, "%s", hint);
    return status;
}

/* name is one member of the list; its memory may be changed. */
static int open_one(struct file *file, char *name, struct ls_error *error)
{
    size_t length = strlen(name);
    if (length == 0 || length >= PATH_MAX)
        return ls_error_set(error, LS_EINVAL,
                            "token store: a name of %zu bytes in the list; expected PATH[,PATH...]",
                            length);
    if (strncmp(name, "u16:", 4) == 0)
        return open_raw(file, name + 4, error);
    bool has_suffix = length > 4 && (strcmp(name + length - 4, ".bin") == 0 ||
                                     strcmp(name + length - 4, ".idx") == 0);
    bool is_idx = has_suffix && name[length - 1] == 'x';
    if (has_suffix) {
        char last = name[length - 4];
        name[length - 4] = 0;
        if (is_idx || exists(name, ".idx"))
            return open_megatron(file, name, error);
        name[length - 4] = last;
    } else if (exists(name, ".idx") || exists(name, ".bin")) {
        return open_megatron(file, name, error);
    }
    if (access(name, F_OK) != 0)
        return absent(name, error);
    return open_llmc(file, name, error);
}

int ls_token_store_open(const char *spec, struct ls_token_store **out, struct ls_error *error)
{
    *out = NULL;
    int count = 1, status = LS_OK;
    for (const char *at = spec; (at = strchr(at, ',')) != NULL; at++)
        count++;
    struct ls_token_store *store = calloc(1, sizeof *store);
    char *names = strdup(spec);
    if (store)
        store->files = calloc((size_t)count, sizeof *store->files);
    if (!store || !names || !store->files) {
        status = ls_error_set(error, LS_ENOMEM, "no memory to open %s", spec);
        goto out;
    }
    char *rest = names;
    for (int i = 0; i < count && !status; i++) {
        char *name = strsep(&rest, ",");
        struct file *file = &store->files[store->count++];
        status = open_one(file, name, error);
        file->first = store->tokens;
        store->tokens += file->what.tokens;
    }
out:
    free(names);
    if (status) {
        ls_token_store_close(store);
        return status;
    }
    *out = store;
    return LS_OK;
}

/* The documents of one file, from its index. */
static int pack_file(struct ls_token_store *store, const struct file *file, struct ls_error *error)
{
    char path[PATH_MAX + 8];
    struct ls_mapping idx;
    struct data_idx what;
    if (file->kind != LS_TOKENS_MEGATRON)
        return ls_error_set(error, LS_EDATA,
                            "%s: %s do not say where a document ends: expected Megatron's .bin "
                            "and .idx, as lockstep data prepare writes them",
                            file->path, ls_token_file_kind_name(file->kind));
    snprintf(path, sizeof path, "%.*s.idx", (int)strlen(file->path) - 4, file->path);
    int status = ls_file_map(path, LS_EDATA, &idx, error);
    if (!status)
        status = data_idx_parse(path, idx.bytes, idx.count, file->path, (int64_t)file->map.count,
                                &what, error);
    if (!status)
        status = data_packing_add(store->packing, &what, file->first, error);
    ls_file_unmap(&idx);
    return status;
}

int ls_token_store_pack(struct ls_token_store *store, int64_t sequence_tokens,
                        struct ls_error *error)
{
    if (sequence_tokens < 1 || sequence_tokens > INT32_MAX)
        return ls_error_set(error, LS_EINVAL, "a sequence of %lld tokens",
                            (long long)sequence_tokens);
    LS_ASSERT(!store->packing);
    int status = data_packing_new(sequence_tokens, &store->packing, error);
    for (int i = 0; i < store->count && !status; i++)
        status = pack_file(store, &store->files[i], error);
    store->packed_tokens = sequence_tokens;
    return status ? status : data_packing_finish(store->packing, store->files[0].path, error);
}

bool ls_token_store_packed(const struct ls_token_store *store)
{
    return store->packing != NULL;
}

const struct data_packing *data_store_packing(const struct ls_token_store *store)
{
    return store->packing;
}

void ls_token_store_close(struct ls_token_store *store)
{
    if (!store)
        return;
    for (int i = 0; i < store->count; i++) {
        ls_file_unmap(&store->files[i].map);
        ls_file_unmap(&store->files[i].mask);
        free(store->files[i].path);
    }
    free(store->files);
    data_packing_free(store->packing);
    free(store);
}

/* ---- what is in it -------------------------------------------------------------------------- */

int64_t ls_token_store_tokens(const struct ls_token_store *store)
{
    return store->tokens;
}

int ls_token_store_files(const struct ls_token_store *store)
{
    return store->count;
}

/* How many of tokens [at, at + count) of one file count. */
static int64_t counted_in(const struct file *file, int64_t at, int64_t count)
{
    const unsigned char *mask = file->mask.bytes;
    return mask ? data_mask_counted(mask + DATA_MASK_HEADER_BYTES, at, count) : count;
}

struct ls_token_file ls_token_store_file(const struct ls_token_store *store, int index)
{
    LS_ASSERT(index >= 0 && index < store->count);
    const struct file *file = &store->files[index];
    return (struct ls_token_file){.path = file->path,
                                  .kind = file->kind,
                                  .dtype = file->what.dtype,
                                  .tokens = file->what.tokens,
                                  .sequences = file->what.sequences,
                                  .documents = file->what.documents,
                                  .masked = file->mask.bytes != NULL,
                                  .counted = counted_in(file, 0, file->what.tokens)};
}

const char *ls_token_file_kind_name(enum ls_token_file_kind kind)
{
    static const char *const names[] = {"Megatron indexed dataset", "llm.c tokens",
                                        "headerless tokens"};
    return names[kind];
}

int ls_token_store_samples(const struct ls_token_store *store, int64_t sequence_tokens,
                           int64_t *out, struct ls_error *error)
{
    if (sequence_tokens < 1)
        return ls_error_set(error, LS_EINVAL, "a sequence of %lld tokens; expected at least 1",
                            (long long)sequence_tokens);
    if (store->packing) {
        LS_ASSERT(sequence_tokens == store->packed_tokens);
        *out = data_packing_samples(store->packing);
        return LS_OK;
    }
    int64_t samples = store->tokens > 0 ? (store->tokens - 1) / sequence_tokens : 0;
    if (samples < 1)
        return ls_error_set(error, LS_EDATA,
                            "%s: sequence longer than the corpus: a sequence of %lld tokens and "
                            "its targets need %lld tokens, the store holds %lld. Use a shorter "
                            "sequence or more text",
                            store->files[0].path, (long long)sequence_tokens,
                            (long long)sequence_tokens + 1, (long long)store->tokens);
    *out = samples;
    return LS_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* tokens [at, at + count) of one file. An id that int32 cannot hold becomes -1, which no vocabulary
 * has. */
static void copy_ids(const struct file *file, int64_t at, int64_t count, int32_t *ids)
{
    const unsigned char *from = file->tokens + at * (int64_t)ls_dtype_bytes(file->what.dtype);
    switch (file->what.dtype) {
    case LS_U8:
        for (int64_t i = 0; i < count; i++)
            ids[i] = from[i];
        break;
    case LS_I8:
        for (int64_t i = 0; i < count; i++)
            ids[i] = (signed char)from[i];
        break;
    case LS_U16:
        for (int64_t i = 0; i < count; i++)
            ids[i] = ((const uint16_t *)(const void *)from)[i];
        break;
    case LS_I16:
        for (int64_t i = 0; i < count; i++)
            ids[i] = ((const int16_t *)(const void *)from)[i];
        break;
    case LS_I64:
        for (int64_t i = 0; i < count; i++) {
            int64_t id = ((const int64_t *)(const void *)from)[i];
            ids[i] = id >= 0 && id <= INT32_MAX ? (int32_t)id : -1;
        }
        break;
    default: /* int32; llm.c's uint32 above INT32_MAX is negative here */
        memcpy(ids, from, (size_t)count * sizeof *ids);
        break;
    }
}

static long long raw_id(const struct file *file, int64_t at)
{
    if (file->what.dtype == LS_I64)
        return ((const int64_t *)(const void *)file->tokens)[at];
    int32_t id;
    copy_ids(file, at, 1, &id);
    return id;
}

/* -1 where all are inside. The loop has no branch, so that it costs little beside the copy. */
static int64_t first_outside(const int32_t *ids, int64_t count, int64_t vocabulary)
{
    uint32_t limit = vocabulary > INT32_MAX ? (uint32_t)INT32_MAX + 1 : (uint32_t)vocabulary;
    uint32_t bad = 0;
    for (int64_t i = 0; i < count; i++)
        bad |= (uint32_t)ids[i] >= limit;
    if (!bad)
        return -1;
    int64_t i = 0;
    while ((uint32_t)ids[i] < limit)
        i++;
    return i;
}

int ls_token_store_read(const struct ls_token_store *store, int64_t first, int64_t count,
                        int64_t vocabulary, int32_t *ids, struct ls_error *error)
{
    if (first < 0 || count < 0 || first > store->tokens - count)
        return ls_error_set(error, LS_EINVAL,
                            "tokens %lld to %lld were asked for; the store holds %lld",
                            (long long)first, (long long)(first + count), (long long)store->tokens);
    if (vocabulary < 1)
        return ls_error_set(error, LS_EINVAL, "a vocabulary of %lld", (long long)vocabulary);
    for (int f = 0; f < store->count && count > 0; f++) {
        const struct file *file = &store->files[f];
        int64_t at = first - file->first, here = ls_min(count, file->what.tokens - at);
        if (here <= 0)
            continue;
        copy_ids(file, at, here, ids);
        int64_t bad = first_outside(ids, here, vocabulary);
        if (bad >= 0)
            return ls_error_set(error, LS_EDATA,
                                "%s: token %lld has id %lld; the vocabulary has %lld ids. Use the "
                                "tokenizer that made the store, or a larger vocabulary",
                                file->path, (long long)(at + bad), raw_id(file, at + bad),
                                (long long)vocabulary);
        first += here;
        count -= here;
        ids += here;
    }
    return LS_OK;
}

/* ---- which tokens count --------------------------------------------------------------------- */

/* What of tokens [first, first + count) of the stream lies in a file: the first there and how many,
 * 0 or less where nothing does. */
static int64_t part_in(const struct file *file, int64_t first, int64_t count, int64_t *at)
{
    *at = ls_max(first - file->first, 0);
    return ls_min(first + count - file->first, file->what.tokens) - *at;
}

int64_t ls_token_store_counted(const struct ls_token_store *store, int64_t first, int64_t count)
{
    int64_t counted = 0, at;
    LS_ASSERT(first >= 0 && count >= 0 && first <= store->tokens - count);
    for (int f = 0; f < store->count; f++) {
        int64_t here = part_in(&store->files[f], first, count, &at);
        counted += here > 0 ? counted_in(&store->files[f], at, here) : 0;
    }
    return counted;
}

void ls_token_store_mask(const struct ls_token_store *store, int64_t first, int64_t count,
                         int32_t *targets)
{
    int64_t at;
    LS_ASSERT(first >= 0 && count >= 0 && first <= store->tokens - count);
    for (int f = 0; f < store->count; f++) {
        const struct file *file = &store->files[f];
        int64_t here = part_in(file, first, count, &at);
        if (here > 0 && file->mask.bytes)
            data_mask_apply(file->mask.bytes + DATA_MASK_HEADER_BYTES, at, here,
                            targets + file->first + at - first);
    }
}

void ls_token_store_digest(const struct ls_token_store *store, char text[33])
{
    enum { PIECES = 64, TOKENS = 256 };
    const int64_t tokens = store->tokens, count = ls_min(TOKENS, tokens);
    const int64_t pieces = ls_min(PIECES, ls_ceil_div(tokens, TOKENS));
    struct ls_digest digest = {0, 0};
    for (int64_t i = 0; i < pieces; i++) {
        int32_t ids[TOKENS] = {0}, targets[TOKENS] = {0};
        int64_t first = pieces > 1 ? (tokens - count) * i / (pieces - 1) : 0;
        ls_token_store_read(store, first, count, INT32_MAX, ids, NULL);
        ls_token_store_mask(store, first, count, targets);
        ls_digest_piece(&digest, "tokens", tokens, first, ids, sizeof ids);
        ls_digest_piece(&digest, "mask", tokens, first, targets, sizeof targets);
    }
    ls_digest_hex(&digest, text);
}
