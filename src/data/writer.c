/* Megatron's indexed dataset (megatron/core/datasets/indexed_dataset.py), written aside. */
#include "data/data_private.h"

#include <lockstep/base/file.h>
#include <lockstep/base/temporary.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 1 << 18,
    SEQUENCE_TOKENS_MAX = 1 << 30, /* lengths are int32; longer documents are several sequences */
};

static const struct data_name *bin(const struct data_writer *writer)
{
    return &writer->files[LS_SUMS_BIN];
}

/* ---- files ---------------------------------------------------------------------------------- */

static int flush(struct data_writer *writer, struct ls_error *error)
{
    int failure = ls_fd_write(writer->fd, writer->buffer, writer->buffered, NULL, NULL);
    if (failure)
        return ls_error_errno(error, failure, "%s: cannot be written", writer->current);
    size_t count = writer->buffered;
    writer->buffered = 0;
    return writer->digested ? data_sums_add(writer->digests, writer->buffer, count, error) : LS_OK;
}

static int put(struct data_writer *writer, const void *bytes, size_t count, struct ls_error *error)
{
    const unsigned char *at = bytes;
    while (count > 0) {
        if (writer->buffered == BUFFER_BYTES) {
            int status = flush(writer, error);
            if (status)
                return status;
        }
        size_t here = (size_t)ls_min((int64_t)count, (int64_t)(BUFFER_BYTES - writer->buffered));
        memcpy(writer->buffer + writer->buffered, at, here);
        writer->buffered += here;
        at += here;
        count -= here;
    }
    return LS_OK;
}

/* file: LS_SUMS_FILES of the list of digests itself. */
static int begin_file(struct data_writer *writer, enum ls_sums_file file, struct ls_error *error)
{
    const char *path = writer->files[file].temporary;
    writer->current = writer->files[file].path;
    writer->digested = file < LS_SUMS_FILES;
    if (writer->digested)
        data_sums_begin(writer->digests, file);
    writer->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (writer->fd < 0) {
        char hint[512];
        int failure = errno;
        ls_path_hint(writer->current, NULL, hint, sizeof hint);
        int status = ls_error_errno(error, failure, "%s: cannot be written", writer->current);
        ls_error_suffix(error, "%s", hint);
        return status;
    }
    ls_temporary_hold(path, writer->fd);
    return LS_OK;
}

static int end_file(struct data_writer *writer, struct ls_error *error)
{
    int status = flush(writer, error);
    int fd = writer->fd;
    writer->fd = -1;
    int failure = status == LS_OK && fsync(fd) != 0 ? errno : 0;
    if (close(fd) != 0 && !failure)
        failure = errno;
    if (!status && failure)
        status = ls_error_errno(error, failure, "%s: cannot be written", writer->current);
    return status || !writer->digested ? status : data_sums_end(writer->digests, error);
}

int data_name_init(struct data_name *name, const char *prefix, const char *suffix,
                   struct ls_error *error)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    bool special = false;
    int status = LS_OK;
    *name = (struct data_name){NULL, NULL};
    bool fits = snprintf(path, sizeof path, "%s%s", prefix, suffix) < (int)sizeof path;
    if (fits)
        status = ls_path_follow(path, &special, error);
    if (!status && !(fits && ls_temporary_name(path, temporary)))
        status = ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", prefix);
    if (!status && special)
        status =
            ls_error_set(error, LS_EIO, "%.300s: expected a file, found a pipe or a device", path);
    if (status)
        return status;
    name->path = strdup(path);
    name->temporary = strdup(temporary);
    return name->path && name->temporary ? LS_OK
                                         : ls_no_memory(error, "to write %s%s", prefix, suffix);
}

int data_name_publish(const struct data_name *name, struct ls_error *error)
{
    return rename(name->temporary, name->path) == 0
               ? LS_OK
               : ls_error_errno(error, errno, "%s cannot be renamed to %s", name->temporary,
                                name->path);
}

void data_name_release(struct data_name *name)
{
    if (name->temporary)
        unlink(name->temporary);
    free(name->temporary);
    free(name->path);
    *name = (struct data_name){NULL, NULL};
}

int data_writer_init(struct data_writer *writer, const char *prefix, enum ls_dtype dtype,
                     struct ls_error *error)
{
    *writer = (struct data_writer){.fd = -1, .dtype = dtype};
    int status = LS_OK;
    for (int i = 0; i <= LS_SUMS_FILES && !status; i++)
        status = data_name_init(&writer->files[i], prefix, ls_sums_suffix(i), error);
    if (!status)
        status = data_sums_new(&writer->digests, error);
    writer->buffer = malloc(BUFFER_BYTES);
    if (!status && !writer->buffer)
        status = ls_no_memory(error, "to write %s.bin", prefix);
    return status;
}

int data_writer_begin(struct data_writer *writer, struct ls_error *error)
{
    return begin_file(writer, LS_SUMS_BIN, error);
}

void data_writer_release(struct data_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    for (int i = 0; i <= LS_SUMS_FILES; i++)
        data_name_release(&writer->files[i]);
    ls_sums_free(writer->digests);
    free(writer->buffer);
    for (int i = 0; i < DATA_RUNS; i++)
        free(writer->runs[i].list);
    ls_token_list_release(&writer->lengths);
    free(writer->documents);
    *writer = (struct data_writer){.fd = -1};
}

/* ---- tokens --------------------------------------------------------------------------------- */

int data_writer_append(struct data_writer *writer, const int32_t *ids, int64_t count,
                       struct ls_error *error)
{
    writer->tokens += count;
    if (writer->dtype != LS_U16)
        return put(writer, ids, (size_t)count * sizeof *ids, error);
    uint16_t narrow[1024];
    for (int64_t done = 0; done < count;) {
        int64_t here = ls_min(count - done, 1024);
        for (int64_t i = 0; i < here; i++)
            narrow[i] = (uint16_t)ids[done + i];
        int status = put(writer, narrow, (size_t)here * sizeof *narrow, error);
        if (status)
            return status;
        done += here;
    }
    return LS_OK;
}

static int read_back(const struct data_writer *writer, int64_t at, void *into, size_t bytes,
                     struct ls_error *error)
{
    size_t done;
    int failure = ls_fd_read(writer->fd, at, into, bytes, &done);
    failure = !failure && done < bytes ? EIO : failure;
    return failure
               ? ls_error_errno(error, failure, "%s: cannot be read back", bin(writer)->temporary)
               : LS_OK;
}

int data_writer_read(struct data_writer *writer, int64_t first, int64_t count, int32_t *ids,
                     struct ls_error *error)
{
    int status = flush(writer, error);
    if (status)
        return status;
    size_t token_bytes = ls_dtype_bytes(writer->dtype), bytes = (size_t)count * token_bytes;
    unsigned char *at = (unsigned char *)ids;
    status = read_back(writer, first * (int64_t)token_bytes, at, bytes, error);
    if (status)
        return status;
    if (writer->dtype == LS_U16)
        for (int64_t i = count; i-- > 0;) { /* widened in place, from the end */
            uint16_t id;
            memcpy(&id, at + 2 * i, sizeof id);
            ids[i] = id;
        }
    return LS_OK;
}

/* ---- which tokens count, and what they weigh ------------------------------------------------ */

/* The value behind the first `count` runs: without any, no token counts, and each weighs 1. */
static float run_value(const struct data_writer *writer, enum data_runs which, int64_t count)
{
    return count > 0 ? writer->runs[which].list[count - 1].value : which == DATA_WEIGHTS ? 1.0f : 0;
}

static int run_put(struct data_writer *writer, enum data_runs which, float value,
                   struct ls_error *error)
{
    struct data_run_list *runs = &writer->runs[which];
    runs->written = true;
    if (runs->count > 0 && runs->list[runs->count - 1].first == writer->tokens)
        runs->count--; /* no token since */
    if (run_value(writer, which, runs->count) == value)
        return LS_OK;
    if (!ls_list_grow(&runs->list, runs->count, &runs->room, sizeof *runs->list))
        return ls_no_memory(error, "for the mask and weights of %s", bin(writer)->path);
    runs->list[runs->count++] = (struct data_run){writer->tokens, value};
    return LS_OK;
}

int data_writer_mark(struct data_writer *writer, bool counts, struct ls_error *error)
{
    return run_put(writer, DATA_MASK, counts, error);
}

int data_writer_weigh(struct data_writer *writer, float weight, struct ls_error *error)
{
    return run_put(writer, DATA_WEIGHTS, weight, error);
}

int data_writer_move_runs(struct data_writer *writer, int64_t first, struct data_writer *to,
                          struct ls_error *error)
{
    int64_t tokens = to->tokens;
    int status = LS_OK;
    for (int which = 0; which < DATA_RUNS; which++) {
        struct data_run_list *runs = &writer->runs[which];
        int64_t kept = 0;
        while (kept < runs->count && runs->list[kept].first <= first)
            kept++;
        to->tokens = 0; /* as if its tokens came now */
        if (!status && runs->written)
            status = run_put(to, which, run_value(writer, which, kept), error);
        for (int64_t i = kept; i < runs->count && !status; i++) {
            to->tokens = runs->list[i].first - first;
            status = run_put(to, which, runs->list[i].value, error);
        }
        runs->count = kept;
    }
    to->tokens = tokens;
    return status;
}

int64_t data_writer_counted(const struct data_writer *writer)
{
    const struct data_run_list *runs = &writer->runs[DATA_MASK];
    int64_t counted = 0;
    if (!runs->written)
        return writer->tokens;
    for (int64_t i = 0; i < runs->count; i++)
        if (runs->list[i].value != 0)
            counted += (i + 1 < runs->count ? runs->list[i + 1].first : writer->tokens) -
                       runs->list[i].first;
    return counted;
}

/* The value of token i; *run is that of the token before. */
static float run_at(const struct data_writer *writer, enum data_runs which, int64_t i, int64_t *run)
{
    const struct data_run_list *runs = &writer->runs[which];
    while (*run < runs->count && runs->list[*run].first <= i)
        ++*run;
    return run_value(writer, which, *run);
}

static int put_mask(struct data_writer *writer, struct ls_error *error)
{
    unsigned char header[DATA_MASK_HEADER_BYTES];
    data_mask_header(header, writer->tokens, data_writer_counted(writer), writer->lengths.ids,
                     writer->lengths.count);
    int status = put(writer, header, sizeof header, error);
    int64_t run = 0;
    for (int64_t first = 0; first < writer->tokens && !status; first += 8) {
        unsigned char byte = 0;
        for (int64_t i = first; i < ls_min(first + 8, writer->tokens); i++)
            byte |= (unsigned char)((run_at(writer, DATA_MASK, i, &run) != 0) << (i - first));
        status = put(writer, &byte, 1, error);
    }
    return status;
}

static int put_weights(struct data_writer *writer, struct ls_error *error)
{
    int64_t run = 0;
    int status = LS_OK;
    for (int64_t i = 0; i < writer->tokens && !status; i++) {
        float weight = run_at(writer, DATA_WEIGHTS, i, &run);
        status = put(writer, &weight, sizeof weight, error);
    }
    return status;
}

/* ---- documents ------------------------------------------------------------------------------ */

static int add_document(struct data_writer *writer, struct ls_error *error)
{
    if (!ls_list_grow(&writer->documents, writer->documents_count, &writer->documents_room,
                      sizeof *writer->documents))
        return ls_no_memory(error, "for the index of %lld documents",
                            (long long)writer->documents_count);
    writer->documents[writer->documents_count++] = writer->lengths.count;
    return LS_OK;
}

int data_writer_end_document(struct data_writer *writer, struct ls_error *error)
{
    int64_t left = writer->tokens - writer->document_first;
    if (left == 0)
        return LS_OK;
    for (; left > 0; left -= SEQUENCE_TOKENS_MAX) {
        int status = data_ids_reserve(&writer->lengths, 1, error);
        if (status)
            return status;
        writer->lengths.ids[writer->lengths.count++] = (int32_t)ls_min(left, SEQUENCE_TOKENS_MAX);
    }
    writer->document_first = writer->tokens;
    return add_document(writer, error);
}

int64_t data_writer_document_first(const struct data_writer *writer, int64_t document)
{
    int64_t sequences = document > 0 ? writer->documents[document - 1] : 0, first = 0;
    for (int64_t i = 0; i < sequences; i++)
        first += writer->lengths.ids[i];
    return first;
}

/* The file was cut to `bytes`, which may be within a block. Writing goes on from there. */
static int digest_tail(struct data_writer *writer, int64_t bytes, struct ls_error *error)
{
    int64_t at = data_sums_cut(writer->digests, bytes);
    int status = LS_OK;
    while (at < bytes && !status) {
        size_t want = (size_t)ls_min(bytes - at, BUFFER_BYTES);
        status = read_back(writer, at, writer->buffer, want, error);
        status = status ? status : data_sums_add(writer->digests, writer->buffer, want, error);
        at += (int64_t)want;
    }
    if (!status && lseek(writer->fd, bytes, SEEK_SET) < 0)
        status = ls_error_errno(error, errno, "%s: cannot be cut", bin(writer)->temporary);
    return status;
}

int data_writer_truncate(struct data_writer *writer, int64_t tokens, int64_t documents,
                         struct ls_error *error)
{
    int status = flush(writer, error);
    if (status)
        return status;
    writer->document_first = data_writer_document_first(writer, documents);
    writer->lengths.count = documents > 0 ? writer->documents[documents - 1] : 0;
    writer->documents_count = documents;
    writer->tokens = tokens;
    off_t bytes = (off_t)(tokens * (int64_t)ls_dtype_bytes(writer->dtype));
    if (ftruncate(writer->fd, bytes) != 0)
        return ls_error_errno(error, errno, "%s: cannot be cut", bin(writer)->temporary);
    return digest_tail(writer, bytes, error);
}

/* ---- the index ------------------------------------------------------------------------------ */

static int put_index(struct data_writer *writer, struct ls_error *error)
{
    unsigned char header[DATA_IDX_HEADER_BYTES];
    uint64_t version = DATA_IDX_VERSION;
    uint64_t sequences = (uint64_t)writer->lengths.count;
    uint64_t marks = (uint64_t)writer->documents_count + 1;
    memcpy(header, DATA_IDX_MAGIC, 9);
    memcpy(header + 9, &version, 8);
    header[17] = (unsigned char)data_idx_dtype_code(writer->dtype);
    memcpy(header + 18, &sequences, 8);
    memcpy(header + 26, &marks, 8);
    int status = put(writer, header, sizeof header, error);
    if (!status)
        status = put(writer, writer->lengths.ids, sequences * sizeof *writer->lengths.ids, error);
    int64_t pointer = 0, first = 0;
    for (uint64_t i = 0; i < sequences && !status; i++) {
        status = put(writer, &pointer, sizeof pointer, error);
        pointer += writer->lengths.ids[i] * (int64_t)ls_dtype_bytes(writer->dtype);
    }
    if (!status)
        status = put(writer, &first, sizeof first, error);
    return status ? status
                  : put(writer, writer->documents,
                        (size_t)writer->documents_count * sizeof *writer->documents, error);
}

static int put_sums(struct data_writer *writer, struct ls_error *error)
{
    struct ls_text text = {0};
    int status = data_sums_text(writer->digests, &text, error);
    if (!status)
        status = put(writer, text.bytes, text.count, error);
    ls_text_release(&text);
    return status;
}

static int write_file(struct data_writer *writer, enum ls_sums_file file,
                      int (*fill)(struct data_writer *, struct ls_error *), struct ls_error *error)
{
    int status = begin_file(writer, file, error);
    if (!status)
        status = fill(writer, error);
    return status ? status : end_file(writer, error);
}

int data_writer_finish(struct data_writer *writer, struct ls_error *error)
{
    int status = end_file(writer, error);
    if (!status)
        status = write_file(writer, LS_SUMS_IDX, put_index, error);
    if (!status && writer->runs[DATA_MASK].written)
        status = write_file(writer, LS_SUMS_MASK, put_mask, error);
    if (!status && writer->runs[DATA_WEIGHTS].written)
        status = write_file(writer, LS_SUMS_WEIGHTS, put_weights, error);
    return status ? status : write_file(writer, LS_SUMS_FILES, put_sums, error);
}

int data_tokenizer_write(const struct ls_tokenizer *tokenizer, const char *path,
                         struct ls_error *error)
{
    char *line, digest[33];
    ls_tokenizer_digest(tokenizer, digest);
    if (asprintf(&line, "%s\n%s\n", ls_tokenizer_spec(tokenizer), digest) < 0)
        return ls_no_memory(error, "to write %s", path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int failure = fd < 0 ? errno : ls_fd_write(fd, line, strlen(line), NULL, NULL);
    if (fd >= 0 && !failure && fsync(fd) != 0)
        failure = errno;
    if (fd >= 0)
        close(fd);
    free(line);
    return failure ? ls_error_errno(error, failure, "%s: cannot be written", path) : LS_OK;
}

void data_writer_clear(const struct data_writer *writer)
{
    char pack[PATH_MAX];
    unlink(writer->files[LS_SUMS_IDX].path);
    for (int i = LS_SUMS_MASK; i <= LS_SUMS_FILES; i++)
        unlink(writer->files[i].path);
    if (!data_store_path(pack, bin(writer)->path, ".pack", NULL))
        unlink(pack);
}

int data_writer_publish(struct data_writer *writer, struct ls_error *error)
{
    int status = data_name_publish(bin(writer), error);
    for (int i = LS_SUMS_MASK; i <= LS_SUMS_FILES && !status; i++)
        if (i == LS_SUMS_FILES || writer->runs[i - LS_SUMS_MASK].written)
            status = data_name_publish(&writer->files[i], error);
    return status ? status : data_name_publish(&writer->files[LS_SUMS_IDX], error);
}
