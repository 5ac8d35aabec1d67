/* Writes safetensors: the header first, then each tensor as it comes, its size checked. */
#include "ckpt/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Hashed, then written while it is still in the core's own cache. */
enum { CHUNK_BYTES = LS_FILE_STRAIGHT_BYTES };

struct ls_safetensors_writer {
    struct ls_atomic_file file;
    XXH3_state_t *digest;                   /* of the tensor that takes data */
    struct ls_safetensors_digests *digests; /* NULL: nobody asks */
    uint64_t header_bytes;
    char header[33]; /* its digest */
    const struct ls_tensor_entry *entries;
    size_t count, next; /* order[next] takes data, `taken` bytes so far */
    size_t taken;
    const struct ls_tensor_entry *order[];
};

/* The entry's size, with its dims and product checked. */
static int entry_bytes(const struct ls_tensor_entry *entry, size_t *bytes, struct ls_error *error)
{
    *bytes = ls_dtype_bytes(entry->dtype);
    bool good = entry->dims >= 0 && entry->dims <= LS_TENSOR_DIMS_MAX;
    for (int i = 0; good && i < entry->dims; i++)
        good = entry->shape[i] >= 0 && ls_size_mul(*bytes, (size_t)entry->shape[i], bytes);
    return good ? LS_OK
                : ls_error_set(error, LS_EINVAL,
                               "tensor %.200s: a shape of at most %d dims with a product in 64 "
                               "bits is expected",
                               entry->name, LS_TENSOR_DIMS_MAX);
}

static int compare_entries(const void *a, const void *b)
{
    const struct ls_tensor_entry *x = *(const struct ls_tensor_entry *const *)a;
    const struct ls_tensor_entry *y = *(const struct ls_tensor_entry *const *)b;
    const struct ckpt_dtype *x_dtype = ckpt_dtype_of(x->dtype), *y_dtype = ckpt_dtype_of(y->dtype);
    if (x_dtype != y_dtype)
        return x_dtype > y_dtype ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Adds one tensor to the header; *offset moves past it. */
static int header_add(json_t *header, const struct ls_tensor_entry *entry, size_t *offset,
                      struct ls_error *error)
{
    size_t bytes, end;
    int status = entry_bytes(entry, &bytes, error);
    if (status)
        return status;
    if (!ls_size_add(*offset, bytes, &end) || end > INT64_MAX)
        return ls_error_set(error, LS_EINVAL, "tensor %.200s: the file's size overflows 64 bits",
                            entry->name);
    if (json_object_get(header, entry->name))
        return ls_error_set(error, LS_EINVAL, "tensor %.200s: the name is already taken",
                            entry->name);
    json_t *shape = json_array();
    for (int i = 0; i < entry->dims; i++)
        json_array_append_new(shape, json_integer(entry->shape[i]));
    json_t *info = json_pack("{s:s, s:o, s:[I, I]}", "dtype", ls_dtype_name(entry->dtype), "shape",
                             shape, "data_offsets", (json_int_t)*offset, (json_int_t)end);
    if (json_object_set_new(header, entry->name, info))
        return ls_error_set(error, LS_EINVAL, "tensor %.200s: the name is not valid UTF-8",
                            entry->name);
    *offset = end;
    return LS_OK;
}

static int metadata_add(json_t *header, const struct ls_metadata *metadata, size_t count,
                        struct ls_error *error)
{
    json_t *object = json_pack("{s:s}", "format", "pt");
    json_object_set_new(header, CKPT_METADATA_KEY, object);
    for (size_t i = 0; i < count; i++)
        if (json_object_set_new(object, metadata[i].key, json_string(metadata[i].value)))
            return ls_error_set(error, LS_EINVAL, "metadata %.200s: not valid UTF-8",
                                metadata[i].key);
    return LS_OK;
}

static int writer_put(struct ls_safetensors_writer *writer, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    while (bytes > 0) {
        size_t chunk = bytes < CHUNK_BYTES ? bytes : CHUNK_BYTES;
        if (writer->digests)
            ckpt_digest_add(writer->digest, from, chunk);
        int status = ls_atomic_file_write(&writer->file, from, chunk);
        if (status)
            return status;
        from += chunk;
        bytes -= chunk;
    }
    return LS_OK;
}

/* JSON, padded to 8 bytes with spaces; and the bytes of all tensors behind it. */
struct header {
    char *text; /* to be freed */
    size_t length, data;
};

/* order[count]: in the order of their data. */
static int header_make(const struct ls_tensor_entry *const *order, size_t count,
                       const struct ls_metadata *metadata, size_t metadata_count,
                       struct header *out, struct ls_error *error)
{
    json_t *header = json_object();
    *out = (struct header){0};
    int status = header ? metadata_add(header, metadata, metadata_count, error)
                        : ls_no_memory(error, "for the header");
    for (size_t i = 0; !status && i < count; i++)
        status = header_add(header, order[i], &out->data, error);
    char *bare = status ? NULL : json_dumps(header, JSON_COMPACT);
    json_decref(header);
    if (status)
        return status;
    size_t used = bare ? strlen(bare) : 0;
    out->length = (size_t)ls_round_up((int64_t)used, CKPT_ALIGNMENT);
    bool admitted = out->length <= CKPT_HEADER_BYTES_MAX;
    out->text = bare && admitted ? malloc(out->length + 1) : NULL;
    if (out->text)
        snprintf(out->text, out->length + 1, "%-*s", (int)out->length, bare);
    free(bare);
    if (!admitted)
        return ls_error_set(error, LS_EINVAL,
                            "the header takes %zu bytes, the format allows %d; write the tensors "
                            "to several files",
                            used, CKPT_HEADER_BYTES_MAX);
    return out->text ? LS_OK : ls_no_memory(error, "for the header");
}

static void digest_take(XXH3_state_t *digest, char text[33])
{
    XXH128_hash_t hash = XXH3_128bits_digest(digest);
    ls_digest_hex(&(struct ls_digest){.high = hash.high64, .low = hash.low64}, text);
    XXH3_128bits_reset(digest);
}

/* The file keeps a failed write until commit. */
static void put_header(struct ls_safetensors_writer *writer, const struct header *header)
{
    unsigned char length_bytes[CKPT_LENGTH_BYTES];
    for (int i = 0; i < CKPT_LENGTH_BYTES; i++)
        length_bytes[i] = (unsigned char)((uint64_t)header->length >> (8 * i));
    ckpt_digest_add(writer->digest, length_bytes, sizeof length_bytes);
    ckpt_digest_add(writer->digest, header->text, header->length);
    digest_take(writer->digest, writer->header);
    writer->header_bytes = CKPT_LENGTH_BYTES + header->length;
    writer_put(writer, length_bytes, sizeof length_bytes);
    writer_put(writer, header->text, header->length);
}

/* Steps over tensors that are complete, so that next has room or is count. */
static void settle(struct ls_safetensors_writer *writer)
{
    size_t bytes;
    while (writer->next < writer->count &&
           !entry_bytes(writer->order[writer->next], &bytes, NULL) && bytes == writer->taken) {
        if (writer->digests)
            digest_take(writer->digest,
                        writer->digests->tensors[writer->order[writer->next] - writer->entries]);
        writer->next++;
        writer->taken = 0;
    }
}

void ls_safetensors_order(const struct ls_tensor_entry *entries, size_t count,
                          const struct ls_tensor_entry **order)
{
    for (size_t i = 0; i < count; i++)
        order[i] = &entries[i];
    qsort(order, count, sizeof *order, compare_entries);
}

int ckpt_tensors_begin(struct ls_safetensors_writer **out, struct ls_atomic_file *file,
                       const struct ls_tensor_entry *entries, size_t count,
                       const struct ls_metadata *metadata, size_t metadata_count,
                       struct ls_error *error)
{
    *out = NULL;
    struct ls_safetensors_writer *writer =
        calloc(1, sizeof *writer + count * sizeof writer->order[0]);
    XXH3_state_t *digest = XXH3_createState();
    struct header header = {0};
    int status = LS_OK;
    if (!writer || !digest) {
        status = ls_error_set(error, LS_ENOMEM, "%s: no memory for its header", file->path);
        goto fail;
    }
    writer->digest = digest;
    writer->entries = entries;
    writer->count = count;
    XXH3_128bits_reset(digest);
    ls_safetensors_order(entries, count, writer->order);
    status = header_make(writer->order, count, metadata, metadata_count, &header, error);
    if (status) {
        ls_error_prefix(error, "%s", file->path);
        goto fail;
    }
    writer->file = *file;
    put_header(writer, &header);
    free(header.text);
    settle(writer);
    *out = writer;
    return LS_OK;
fail:
    free(header.text);
    XXH3_freeState(digest);
    free(writer);
    ls_atomic_file_abort(file);
    return status;
}

int ls_safetensors_writer_open(struct ls_safetensors_writer **out, const char *path,
                               const struct ls_tensor_entry *entries, size_t count,
                               const struct ls_metadata *metadata, size_t metadata_count,
                               const struct ls_fault *fault, struct ls_error *error)
{
    struct ls_atomic_file file;
    *out = NULL;
    int status = ls_atomic_file_open(&file, path, fault, error);
    return status ? status
                  : ckpt_tensors_begin(out, &file, entries, count, metadata, metadata_count, error);
}

void ls_safetensors_writer_hash(struct ls_safetensors_writer *writer,
                                struct ls_safetensors_digests *digests)
{
    LS_ASSERT(writer->file.size == writer->header_bytes);
    digests->header_bytes = writer->header_bytes;
    memcpy(digests->header, writer->header, sizeof digests->header);
    writer->digests = digests;
    writer->next = 0; /* empty tensors that were stepped over have a digest too */
    settle(writer);
}

const struct ls_tensor_entry *ls_safetensors_writer_next(const struct ls_safetensors_writer *writer)
{
    return writer->next < writer->count ? writer->order[writer->next] : NULL;
}

int ls_safetensors_writer_append(struct ls_safetensors_writer *writer, const void *data,
                                 size_t bytes, struct ls_error *error)
{
    if (bytes == 0)
        return LS_OK;
    const struct ls_tensor_entry *entry = ls_safetensors_writer_next(writer);
    if (!entry)
        return ls_error_set(error, LS_EINVAL, "%s: %zu bytes more, but every tensor is complete",
                            writer->file.path, bytes);
    size_t declared = 0;
    entry_bytes(entry, &declared, NULL);
    if (bytes > declared - writer->taken)
        return ls_error_set(error, LS_EINVAL,
                            "%s: tensor %.200s was declared with %zu bytes, it gets %zu",
                            writer->file.path, entry->name, declared, writer->taken + bytes);
    if (writer_put(writer, data, bytes))
        return ls_error_copy(error, writer->file.error.code, &writer->file.error);
    writer->taken += bytes;
    settle(writer);
    return LS_OK;
}

int ls_safetensors_writer_finish(struct ls_safetensors_writer *writer, uint64_t *size,
                                 struct ls_error *error)
{
    const struct ls_tensor_entry *missing = ls_safetensors_writer_next(writer);
    if (missing)
        return ls_error_set(error, LS_EINVAL,
                            "%s: tensor %.200s has %zu bytes so far, fewer than declared",
                            writer->file.path, missing->name, writer->taken);
    ls_atomic_file_start(&writer->file);
    if (size)
        *size = writer->file.size;
    return LS_OK;
}

int ls_safetensors_writer_commit(struct ls_safetensors_writer *writer, struct ls_error *error)
{
    int status = ls_safetensors_writer_finish(writer, NULL, error);
    status = status ? status : ls_atomic_file_commit(&writer->file, error);
    ls_safetensors_writer_abort(writer);
    return status;
}

int ckpt_tensors_take(struct ls_safetensors_writer *writer, int *fd, struct ls_error *error)
{
    int status = ls_memory_file_take(&writer->file, fd, error);
    ls_safetensors_writer_abort(writer);
    return status;
}

void ls_safetensors_writer_abort(struct ls_safetensors_writer *writer)
{
    if (!writer)
        return;
    ls_atomic_file_abort(&writer->file);
    XXH3_freeState(writer->digest);
    free(writer);
}
