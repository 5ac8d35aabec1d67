/* Token stores: several files, wherever they lie, read as one stream. */
#include "data/store_files.h"
#include "data/store_names.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct file {
    char *path;
    enum ls_token_file_kind kind;
    struct data_tokens what;
    struct data_file *data;
    int64_t header_bytes;      /* before its tokens */
    struct data_file *mask;    /* NULL: all tokens count */
    struct data_file *weights; /* NULL: each is 1 */
    struct ls_sums *sums;      /* of what lies elsewhere; NULL: none are known */
    int64_t counted;
    int64_t first; /* of the stream */
};
struct ls_token_store {
    struct file *files;
    int count;
    int64_t tokens;
    struct data_remote *remote;
    bool elsewhere;               /* a file is */
    struct data_packing *packing; /* NULL: samples are of the stream */
    int64_t packed_tokens;        /* of its samples */
};

/* ---- opening -------------------------------------------------------------------------------- */

/* A name that is being opened. */
struct opening {
    struct file *file;
    struct data_remote *remote;
    const struct ls_net_options *net;
};

static int beside_open(const struct opening *o, const char *prefix, const char *suffix,
                       struct data_file **out, struct ls_error *error)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s%s", prefix, suffix);
    return data_file_open(path, o->remote, out, error);
}

/* Which tokens count, if a file says so. */
static int mask_open(const struct opening *o, const char *prefix, const uint64_t *digest,
                     struct ls_error *error)
{
    struct file *file = o->file;
    file->counted = file->what.tokens;
    int status = beside_open(o, prefix, ".mask", &file->mask, error);
    return status || !file->mask
               ? status
               : mask_read(file->mask, file->what.tokens, digest, &file->counted, error);
}

/* What its tokens weigh, if a file says so. */
static int weights_open(const struct opening *o, const char *prefix, bool all,
                        struct ls_error *error)
{
    struct file *file = o->file;
    int status = beside_open(o, prefix, ".weights", &file->weights, error);
    return status || !file->weights
               ? status
               : data_weights_check(file->weights, file->what.tokens, all, error);
}

/* What is fetched is held against the sums. */
static int sums_expect(const struct file *file, struct data_file *data, enum ls_sums_file which,
                       struct ls_error *error)
{
    int64_t bytes = ls_sums_bytes(file->sums, which);
    if (bytes != data_file_bytes(data))
        return ls_error_set(error, LS_EDATA,
                            "%.300s: %lld bytes, and the store's .sums knows %lld: a copy that is "
                            "not complete, or one of another store",
                            data_file_name(data), (long long)data_file_bytes(data),
                            (long long)bytes);
    data_file_expect(data, file->sums, which);
    return LS_OK;
}

/* The sums of a store elsewhere; a local one is read as it is (lockstep data verify checks it). */
static int sums_open(const struct opening *o, const char *prefix, struct ls_error *error)
{
    struct file *file = o->file;
    char path[PATH_MAX + 8], *text;
    size_t bytes;
    bool there;
    if (!data_file_is_remote(file->data))
        return LS_OK;
    snprintf(path, sizeof path, "%s.sums", prefix);
    int status = LS_EDATA;
    for (int left = data_file_tries(file->data); status == LS_EDATA && left > 0; left--) {
        status = data_small_read(path, o->net, LS_SUMS_BYTES_MAX, &there, &text, &bytes, error);
        if (!status && there)
            status = ls_sums_parse(path, text, bytes, &file->sums, error);
        free(text);
    }
    if (!status && there)
        status = sums_expect(file, file->data, LS_SUMS_BIN, error);
    return status;
}

/* idx is open, and closed here. */
static int open_megatron(const struct opening *o, const char *prefix, struct data_file *idx,
                         struct ls_error *error)
{
    struct file *file = o->file;
    struct data_idx what = {0};
    struct index_digest digest;
    file->kind = LS_TOKENS_MEGATRON;
    int status = beside_open(o, prefix, ".bin", &file->data, error);
    if (!status && !file->data)
        status = ls_error_set(error, LS_EIO, "%.300s.bin: there is no such file", prefix);
    /* Elsewhere the index may be larger than what a rank reads in all; sums know its store. */
    bool all = !status && !data_file_is_remote(file->data);
    if (!status)
        status = sums_open(o, prefix, error);
    if (!status)
        status = index_read(idx, data_file_name(file->data), data_file_bytes(file->data), &what,
                            all ? &digest : NULL, error);
    file->what = what.tokens;
    if (!status)
        status = mask_open(o, prefix, all ? &digest.lengths : NULL, error);
    if (!status && file->sums && file->mask)
        status = sums_expect(file, file->mask, LS_SUMS_MASK, error);
    if (!status)
        status = weights_open(o, prefix, all, error);
    /* Weights may be written later than the store, which then does not know them. */
    if (!status && file->weights && file->sums && ls_sums_bytes(file->sums, LS_SUMS_WEIGHTS) >= 0)
        status = sums_expect(file, file->weights, LS_SUMS_WEIGHTS, error);
    data_file_close(idx);
    return status;
}

static int open_raw(const struct opening *o, const char *path, struct ls_error *error)
{
    struct file *file = o->file;
    file->kind = LS_TOKENS_RAW;
    int status = data_file_open(path, o->remote, &file->data, error);
    if (!status && !file->data) {
        char hint[512];
        ls_path_hint(path, NULL, hint, sizeof hint);
        status = ls_error_set(error, LS_EIO, "%.300s: there is no such file", path);
        ls_error_suffix(error, "%s", hint);
    }
    int64_t bytes = status ? 0 : data_file_bytes(file->data);
    if (!status && bytes % 2)
        status = ls_error_set(error, LS_EDATA,
                              "%s: %lld bytes, not a whole number of uint16 tokens: the file is "
                              "truncated or of another kind",
                              path, (long long)bytes);
    file->what = (struct data_tokens){LS_U16, bytes / 2, 0, 0};
    file->counted = bytes / 2;
    return status;
}

static int open_llmc(const struct opening *o, const char *path, struct ls_error *error)
{
    struct file *file = o->file;
    unsigned char header[DATA_LLMC_HEADER_BYTES] = {0};
    bool is_llmc = false;
    int64_t bytes = data_file_bytes(file->data);
    file->kind = LS_TOKENS_LLMC;
    int status = data_file_peek(file->data, 0, ls_min(bytes, sizeof header), header, error);
    if (!status)
        status = data_llmc_parse(path, header, bytes, &is_llmc, &file->what, error);
    if (!status && !is_llmc)
        status =
            ls_error_set(error, LS_EDATA,
                         "%s: not a token store: there is no .idx beside it, and it does not "
                         "begin with llm.c's magic 20240520 or 20240801. `lockstep data prepare` "
                         "makes a store of text; headerless uint16 tokens are read as u16:%s",
                         path, path);
    file->header_bytes = DATA_LLMC_HEADER_BYTES;
    file->counted = file->what.tokens;
    return status;
}

/* Neither a pair of that prefix nor a file of that name. */
static int absent(const char *name, struct ls_error *error)
{
    char hint[512] = "";
    if (!ls_url_is(name) && !store_name_prepared(name, hint, sizeof hint))
        ls_path_hint(name, data_suffixes, hint, sizeof hint);
    int status =
        ls_error_errno(error, ENOENT, "neither %.300s.bin with its .idx nor %.300s", name, name);
    ls_error_suffix(error, "%s", hint);
    return status;
}

/* A file of that very name, or none. */
static int open_other(const struct opening *o, const char *name, struct ls_error *error)
{
    int status = data_file_open(name, o->remote, &o->file->data, error);
    if (status)
        return status;
    return o->file->data ? open_llmc(o, name, error) : absent(name, error);
}

/* name is one member of the list; its memory may be changed. */
static int open_one(const struct opening *o, char *name, struct ls_error *error)
{
    size_t length = strlen(name);
    struct data_file *idx = NULL, *bin = NULL;
    const char *tokens = store_name_bare(name);
    if (tokens)
        return open_raw(o, tokens, error);
    bool is_idx = ls_path_ends(name, ".idx"), is_bin = ls_path_ends(name, ".bin");
    char *end = is_idx || is_bin ? name + length - 4 : name + length, last = *end;
    *end = '\0';
    int status = beside_open(o, name, ".idx", &idx, error);
    if (!status && idx)
        return open_megatron(o, name, idx, error);
    if (!status && !is_bin)
        status = beside_open(o, name, ".bin", &bin, error);
    bool lacks_index = bin || is_idx;
    data_file_close(bin);
    if (!status && lacks_index)
        return ls_error_errno(error, ENOENT, "%.300s.idx", name);
    *end = last;
    return status ? status : open_other(o, name, error);
}

static int files_open(struct ls_token_store *store, const struct store_names *names,
                      const struct ls_net_options *net, struct ls_error *error)
{
    int status = LS_OK;
    for (int i = 0; i < names->count && !status; i++) {
        struct file *file = &store->files[store->count++];
        const struct opening o = {file, store->remote, net};
        status = open_one(&o, names->list[i], error);
        if (status)
            break;
        file->path = strdup(data_file_name(file->data));
        if (!file->path)
            return ls_no_memory(error, "to open %.300s", names->list[i]);
        store->elsewhere |= data_file_is_remote(file->data);
        file->first = store->tokens;
        store->tokens += file->what.tokens;
    }
    return status;
}

int ls_token_store_open_with(const char *spec, const struct ls_store_options *options,
                             struct ls_token_store **out, struct ls_error *error)
{
    static const struct ls_net_options usual;
    struct store_names names;
    *out = NULL;
    const struct ls_net_options *net = options ? &options->net : &usual;
    int status = store_names_find(spec, net, &names, error);
    struct ls_token_store *store = calloc(1, sizeof *store);
    if (store)
        store->files = calloc((size_t)names.count + 1, sizeof *store->files);
    if (!status && (!store || !store->files))
        status = ls_no_memory(error, "to open %.300s", spec);
    if (!status)
        status = data_remote_new(options, &store->remote, error);
    if (!status)
        status = files_open(store, &names, net, error);
    store_names_release(&names);
    if (status)
        ls_token_store_close(store);
    else
        *out = store;
    return status;
}

int ls_token_store_open(const char *spec, struct ls_token_store **out, struct ls_error *error)
{
    return ls_token_store_open_with(spec, NULL, out, error);
}

/* *all[*bytes] = the whole file, to be freed. */
static int whole_read(struct data_file *file, unsigned char **all, int64_t *bytes,
                      struct ls_error *error)
{
    *bytes = data_file_bytes(file);
    *all = malloc((size_t)*bytes + 1);
    return *all ? data_file_read(file, 0, *bytes, *all, error)
                : ls_error_set(error, LS_ENOMEM, "%.300s: no memory for its %lld bytes",
                               data_file_name(file), (long long)*bytes);
}

/* The packing that lies beside a file. */
static int pack_read(struct ls_token_store *store, const struct file *file, struct data_file *idx,
                     struct ls_error *error)
{
    char path[PATH_MAX];
    struct data_file *pack = NULL;
    struct data_idx what = {0};
    struct index_digest digest = {0};
    unsigned char *all = NULL;
    int64_t bytes;
    int status = index_read(idx, file->path, data_file_bytes(file->data), &what, &digest, error);
    const struct data_ends ends = {what.tokens.tokens, digest.ends};
    if (!status)
        status = data_store_path(path, file->path, ".pack", error);
    if (!status)
        status = data_file_open(path, store->remote, &pack, error);
    if (!status && !pack) {
        ls_error_set(error, LS_EDATA, "%.300s: the store is not packed for best_fit", path);
        status = data_pack_again(path, "the packing", store->packed_tokens, error);
    }
    if (!status)
        status = whole_read(pack, &all, &bytes, error);
    data_file_close(pack);
    if (!status)
        return data_packing_add_pack(store->packing, path, all, (size_t)bytes, &ends, file->first,
                                     error);
    free(all);
    return status;
}

/* The documents of a file, from all of its index. */
static int documents_read(struct ls_token_store *store, const struct file *file,
                          struct data_file *idx, struct ls_error *error)
{
    struct data_idx what;
    unsigned char *all;
    int64_t bytes;
    int status = whole_read(idx, &all, &bytes, error);
    if (!status)
        status = data_idx_parse(data_file_name(idx), all, (size_t)bytes, file->path,
                                data_file_bytes(file->data), &what, error);
    if (!status)
        status = data_packing_add(store->packing, &what, file->first, error);
    free(all);
    return status;
}

/* The samples of one file. */
static int pack_file(struct ls_token_store *store, const struct file *file, bool best_fit,
                     struct ls_error *error)
{
    char path[PATH_MAX];
    struct data_file *idx = NULL;
    if (file->kind != LS_TOKENS_MEGATRON)
        return ls_error_set(error, LS_EDATA,
                            "%s: %s do not say where a document ends: expected Megatron's .bin "
                            "and .idx, as lockstep data prepare writes them",
                            file->path, ls_token_file_kind_name(file->kind));
    int status = data_store_path(path, file->path, ".idx", error);
    if (!status)
        status = data_file_open(path, store->remote, &idx, error);
    if (!status && !idx)
        status = ls_error_errno(error, ENOENT, "%.300s", path);
    if (!status && file->sums)
        status = sums_expect(file, idx, LS_SUMS_IDX, error);
    if (!status)
        status = (best_fit ? pack_read : documents_read)(store, file, idx, error);
    data_file_close(idx);
    return status;
}

static int store_pack(struct ls_token_store *store, int64_t sequence_tokens, bool best_fit,
                      struct ls_error *error)
{
    if (sequence_tokens < 1 || sequence_tokens > INT32_MAX)
        return ls_error_set(error, LS_EINVAL, "a sequence of %lld tokens",
                            (long long)sequence_tokens);
    LS_ASSERT(!store->packing);
    store->packed_tokens = sequence_tokens;
    int status = data_packing_new(sequence_tokens, &store->packing, error);
    for (int i = 0; i < store->count && !status; i++)
        status = pack_file(store, &store->files[i], best_fit, error);
    return status ? status : data_packing_finish(store->packing, store->files[0].path, error);
}

int ls_token_store_pack(struct ls_token_store *store, int64_t sequence_tokens,
                        struct ls_error *error)
{
    return store_pack(store, sequence_tokens, false, error);
}

int ls_token_store_pack_best_fit(struct ls_token_store *store, int64_t sequence_tokens,
                                 struct ls_error *error)
{
    return store_pack(store, sequence_tokens, true, error);
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
    data_remote_stop(store->remote);
    for (int i = 0; i < store->count; i++) {
        data_file_close(store->files[i].data);
        data_file_close(store->files[i].mask);
        data_file_close(store->files[i].weights);
        ls_sums_free(store->files[i].sums);
        free(store->files[i].path);
    }
    data_remote_free(store->remote);
    free(store->files);
    data_packing_free(store->packing);
    free(store);
}

bool data_store_elsewhere(const struct ls_token_store *store)
{
    return store->elsewhere;
}

void ls_token_store_stop_on(struct ls_token_store *store, const volatile int *stop)
{
    data_remote_stop_on(store->remote, stop);
}

int ls_token_store_look(const struct ls_token_store *store, struct ls_error *error)
{
    int status = LS_OK;
    for (int i = 0; i < store->count && !status; i++) {
        status = data_file_look(store->files[i].data, error);
        if (!status && store->files[i].mask)
            status = data_file_look(store->files[i].mask, error);
        if (!status && store->files[i].weights)
            status = data_file_look(store->files[i].weights, error);
    }
    return status;
}

bool ls_token_store_traffic(const struct ls_token_store *store, struct ls_store_traffic *traffic)
{
    *traffic = data_remote_traffic(store->remote);
    return store->elsewhere;
}

bool ls_token_store_warning(const struct ls_token_store *store, char *text, size_t bytes)
{
    return data_remote_warning(store->remote, text, bytes);
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
                                  .masked = file->mask != NULL,
                                  .weighted = file->weights != NULL,
                                  .counted = file->counted};
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

/* What is read at once on its way to ids: small enough for the stack and the first cache. */
enum { PART_BYTES = 1 << 15, DIGEST_TOKENS = 256 };

/* ids[count] of tokens as they are in a file. An id that int32 cannot hold becomes -1, which no
 * vocabulary has. */
static void ids_of(enum ls_dtype dtype, const unsigned char *from, int64_t count, int32_t *ids)
{
    switch (dtype) {
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

/* ids[count] = tokens [at, at + count) of one file. */
static int read_ids(const struct file *file, data_file_reader *read, int64_t at, int64_t count,
                    int32_t *ids, struct ls_error *error)
{
    _Alignas(8) unsigned char part[PART_BYTES];
    int64_t token_bytes = (int64_t)ls_dtype_bytes(file->what.dtype),
            most = PART_BYTES / token_bytes;
    int status = LS_OK;
    for (int64_t done = 0; done < count && !status; done += most) {
        int64_t here = ls_min(most, count - done);
        status = read(file->data, file->header_bytes + (at + done) * token_bytes,
                      here * token_bytes, part, error);
        if (!status)
            ids_of(file->what.dtype, part, here, ids + done);
    }
    return status;
}

/* For errors: the id of one token; -1 if it cannot be read. */
static long long raw_id(const struct file *file, int64_t at)
{
    int64_t wide = -1;
    int32_t id = -1;
    if (file->what.dtype == LS_I64)
        return data_file_read(file->data, file->header_bytes + at * 8, 8, &wide, NULL) ? -1 : wide;
    return read_ids(file, data_file_read, at, 1, &id, NULL) ? -1 : id;
}

/* -1 if all are inside. The loop has no branch, so that it costs little beside the copy. */
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

/* What of tokens [first, first + count) of the stream lies in a file: the first there and how many,
 * 0 or less where nothing does. */
static int64_t part_in(const struct file *file, int64_t first, int64_t count, int64_t *at)
{
    *at = ls_max(first - file->first, 0);
    return ls_min(first + count - file->first, file->what.tokens) - *at;
}

/* What is done with such a part, which is [to, to + count) of what is asked for. */
typedef int part_work(void *user, const struct file *file, int64_t at, int64_t count, int64_t to,
                      struct ls_error *error);

static int parts_each(const struct ls_token_store *store, int64_t first, int64_t count,
                      part_work *work, void *user, struct ls_error *error)
{
    int status = LS_OK;
    LS_ASSERT(first >= 0 && count >= 0 && first <= store->tokens - count);
    for (int f = 0; f < store->count && !status; f++) {
        const struct file *file = &store->files[f];
        int64_t at, here = part_in(file, first, count, &at);
        if (here > 0)
            status = work(user, file, at, here, file->first + at - first, error);
    }
    return status;
}

/* What is asked of tokens, each by itself. */
struct asked {
    data_file_reader *read;
    int32_t *ids;
    int64_t vocabulary; /* that they must be in; 0: any */
    int32_t *targets;   /* become -1 if the token does not count; NULL: they are counted */
    int64_t counted;    /* of the tokens so far */
    float *weights;
    float usual; /* where a file has none */
};

static int ids_part(void *user, const struct file *file, int64_t at, int64_t count, int64_t to,
                    struct ls_error *error)
{
    const struct asked *asked = user;
    int32_t *ids = asked->ids + to;
    int status = read_ids(file, asked->read, at, count, ids, error);
    int64_t bad = status || !asked->vocabulary ? -1 : first_outside(ids, count, asked->vocabulary);
    return bad < 0 ? status
                   : ls_error_set(error, LS_EDATA,
                                  "%s: token %lld has id %lld; the vocabulary has %lld ids. Use "
                                  "the tokenizer that made the store, or a larger vocabulary",
                                  file->path, (long long)(at + bad), raw_id(file, at + bad),
                                  (long long)asked->vocabulary);
}

int ls_token_store_read(const struct ls_token_store *store, int64_t first, int64_t count,
                        int64_t vocabulary, int32_t *ids, struct ls_error *error)
{
    struct asked asked = {.read = data_file_read, .ids = ids, .vocabulary = vocabulary};
    if (first < 0 || count < 0 || first > store->tokens - count)
        return ls_error_set(error, LS_EINVAL,
                            "tokens %lld to %lld were asked for; the store holds %lld",
                            (long long)first, (long long)(first + count), (long long)store->tokens);
    if (vocabulary < 1)
        return ls_error_set(error, LS_EINVAL, "a vocabulary of %lld", (long long)vocabulary);
    return parts_each(store, first, count, ids_part, &asked, error);
}

/* ---- which tokens count --------------------------------------------------------------------- */

static int mask_part(void *user, const struct file *file, int64_t at, int64_t count, int64_t to,
                     struct ls_error *error)
{
    struct asked *asked = user;
    unsigned char bits[PART_BYTES];
    int status = LS_OK;
    if (!file->mask) {
        asked->counted += count;
        return LS_OK;
    }
    for (int64_t here; count > 0 && !status; at += here, to += here, count -= here) {
        here =
            ls_min(count, 8 * PART_BYTES - at % 8); /* bits begin with that of token at - at % 8 */
        status = asked->read(file->mask, DATA_MASK_HEADER_BYTES + at / 8,
                             ls_ceil_div(at % 8 + here, 8), bits, error);
        if (!status && asked->targets)
            data_mask_apply(bits, at % 8, here, asked->targets + to);
        else if (!status)
            asked->counted += data_mask_counted(bits, at % 8, here);
    }
    return status;
}

int ls_token_store_counted(const struct ls_token_store *store, int64_t first, int64_t count,
                           int64_t *counted, struct ls_error *error)
{
    struct asked asked = {.read = data_file_read};
    int status = parts_each(store, first, count, mask_part, &asked, error);
    *counted = asked.counted;
    return status;
}

int ls_token_store_mask(const struct ls_token_store *store, int64_t first, int64_t count,
                        int32_t *targets, struct ls_error *error)
{
    struct asked asked = {.read = data_file_read, .targets = targets};
    return parts_each(store, first, count, mask_part, &asked, error);
}

bool ls_token_store_weighted(const struct ls_token_store *store)
{
    bool weighted = false;
    for (int f = 0; f < store->count; f++)
        weighted |= store->files[f].weights != NULL;
    return weighted;
}

static int weigh_part(void *user, const struct file *file, int64_t at, int64_t count, int64_t to,
                      struct ls_error *error)
{
    const struct asked *asked = user;
    float *weights = asked->weights + to;
    for (int64_t i = 0; i < count && !file->weights; i++)
        weights[i] = asked->usual;
    return file->weights ? data_weights_read(file->weights, asked->read, at, count, weights, error)
                         : LS_OK;
}

int ls_token_store_weights(const struct ls_token_store *store, int64_t first, int64_t count,
                           float *weights, struct ls_error *error)
{
    struct asked asked = {.read = data_file_read, .weights = weights, .usual = 1};
    return parts_each(store, first, count, weigh_part, &asked, error);
}

void ls_token_store_prefetch(const struct ls_token_store *store, int64_t first, int64_t count)
{
    int64_t at;
    first = ls_min(first, store->tokens);
    count = ls_min(count, store->tokens - first);
    for (int f = 0; f < store->count && store->elsewhere; f++) {
        const struct file *file = &store->files[f];
        int64_t here = part_in(file, first, count, &at);
        int64_t bytes = (int64_t)ls_dtype_bytes(file->what.dtype);
        if (here > 0)
            data_file_want(file->data, file->header_bytes + at * bytes, here * bytes);
        if (here > 0 && file->mask)
            data_file_want(file->mask, DATA_MASK_HEADER_BYTES + at / 8,
                           ls_ceil_div(at % 8 + here, 8));
        if (here > 0 && file->weights)
            data_file_want(file->weights, at * DATA_WEIGHT_BYTES, here * DATA_WEIGHT_BYTES);
    }
}

/* ---- the digest ------------------------------------------------------------------------------ */

int ls_token_store_digest(const struct ls_token_store *store, char text[33], struct ls_error *error)
{
    enum { PIECES = 64 };
    const int64_t tokens = store->tokens, count = ls_min(DIGEST_TOKENS, tokens);
    const int64_t pieces = ls_min(PIECES, ls_ceil_div(tokens, DIGEST_TOKENS));
    struct ls_digest digest = {0, 0};
    int status = LS_OK;
    for (int64_t i = 0; i < pieces && !status; i++) {
        int32_t ids[DIGEST_TOKENS] = {0}, targets[DIGEST_TOKENS] = {0};
        float weights[DIGEST_TOKENS] = {0};
        int64_t first = pieces > 1 ? (tokens - count) * i / (pieces - 1) : 0;
        /* Of what is elsewhere these alone are fetched. */
        struct asked asked = {
            .read = data_file_peek, .ids = ids, .targets = targets, .weights = weights};
        status = parts_each(store, first, count, ids_part, &asked, error);
        if (!status)
            status = parts_each(store, first, count, mask_part, &asked, error);
        if (!status)
            status = parts_each(store, first, count, weigh_part, &asked, error);
        ls_digest_piece(&digest, "tokens", tokens, first, ids, sizeof ids);
        ls_digest_piece(&digest, "mask", tokens, first, targets, sizeof targets);
        if (ls_token_store_weighted(store))
            ls_digest_piece(&digest, "weights", tokens, first, weights, sizeof weights);
    }
    ls_digest_hex(&digest, text);
    return status;
}
