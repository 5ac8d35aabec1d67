/* Megatron's indexed dataset (megatron/core/datasets/indexed_dataset.py), written aside. */
#include "data/private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 1 << 18,
    SEQUENCE_TOKENS_MAX = 1 << 30, /* lengths are int32; longer documents are several sequences */
};

int data_write_all(int fd, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    while (count > 0) {
        ssize_t n = write(fd, at, count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        at += n;
        count -= (size_t)n;
    }
    return 0;
}

int data_writer_init(struct data_writer *writer, const char *prefix, enum ls_dtype dtype,
                     struct ls_error *error)
{
    *writer = (struct data_writer){.fd = -1, .dtype = dtype};
    long process = (long)getpid();
    writer->prefix = strdup(prefix);
    if (asprintf(&writer->bin_temporary, "%s.bin.tmp-%ld", prefix, process) < 0)
        writer->bin_temporary = NULL;
    if (asprintf(&writer->idx_temporary, "%s.idx.tmp-%ld", prefix, process) < 0)
        writer->idx_temporary = NULL;
    writer->buffer = malloc(BUFFER_BYTES);
    if (!writer->prefix || !writer->bin_temporary || !writer->idx_temporary || !writer->buffer)
        return ls_error_set(error, LS_ENOMEM, "no memory to write %s.bin", prefix);
    writer->fd = open(writer->bin_temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (writer->fd < 0)
        return ls_error_errno(error, errno, "%s: cannot be written", writer->bin_temporary);
    return LS_OK;
}

void data_writer_release(struct data_writer *writer)
{
    if (!writer->prefix)
        return;
    if (writer->fd >= 0)
        close(writer->fd);
    if (writer->bin_temporary)
        unlink(writer->bin_temporary);
    if (writer->idx_temporary)
        unlink(writer->idx_temporary);
    free(writer->prefix);
    free(writer->bin_temporary);
    free(writer->idx_temporary);
    free(writer->buffer);
    ls_token_list_release(&writer->lengths);
    free(writer->documents);
    *writer = (struct data_writer){.fd = -1};
}

/* ---- tokens --------------------------------------------------------------------------------- */

static int flush(struct data_writer *writer, struct ls_error *error)
{
    int failure = data_write_all(writer->fd, writer->buffer, writer->buffered);
    if (failure)
        return ls_error_errno(error, failure, "%s: cannot be written", writer->bin_temporary);
    writer->buffered = 0;
    return LS_OK;
}

int data_writer_append(struct data_writer *writer, const int32_t *ids, int64_t count,
                       struct ls_error *error)
{
    size_t token_bytes = ls_dtype_bytes(writer->dtype);
    for (int64_t i = 0; i < count; i++) {
        if (writer->buffered + token_bytes > BUFFER_BYTES) {
            int rc = flush(writer, error);
            if (rc)
                return rc;
        }
        if (writer->dtype == LS_U16) {
            uint16_t id = (uint16_t)ids[i];
            memcpy(writer->buffer + writer->buffered, &id, sizeof id);
        } else {
            memcpy(writer->buffer + writer->buffered, &ids[i], sizeof ids[i]);
        }
        writer->buffered += token_bytes;
    }
    writer->tokens += count;
    return LS_OK;
}

int data_writer_read(struct data_writer *writer, int64_t first, int64_t count, int32_t *ids,
                     struct ls_error *error)
{
    int rc = flush(writer, error);
    if (rc)
        return rc;
    size_t token_bytes = ls_dtype_bytes(writer->dtype), bytes = (size_t)count * token_bytes;
    unsigned char *at = (unsigned char *)ids;
    for (size_t done = 0; done < bytes;) {
        ssize_t n =
            pread(writer->fd, at + done, bytes - done, (off_t)((size_t)first * token_bytes + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return ls_error_errno(error, n < 0 ? errno : EIO, "%s: cannot be read back",
                                  writer->bin_temporary);
        done += (size_t)n;
    }
    if (writer->dtype == LS_U16)
        for (int64_t i = count; i-- > 0;) { /* widened in place, from the end */
            uint16_t id;
            memcpy(&id, at + 2 * i, sizeof id);
            ids[i] = id;
        }
    return LS_OK;
}

/* ---- documents ------------------------------------------------------------------------------ */

static int add_document(struct data_writer *writer, struct ls_error *error)
{
    if (writer->documents_count == writer->documents_capacity) {
        int64_t capacity = ls_max(1024, writer->documents_capacity * 3 / 2);
        int64_t *documents = realloc(writer->documents, (size_t)capacity * sizeof *documents);
        if (!documents)
            return ls_error_set(error, LS_ENOMEM, "no memory for the index of %lld documents",
                                (long long)capacity);
        writer->documents = documents;
        writer->documents_capacity = capacity;
    }
    writer->documents[writer->documents_count++] = writer->lengths.count;
    return LS_OK;
}

int data_writer_end_document(struct data_writer *writer, struct ls_error *error)
{
    int64_t left = writer->tokens - writer->document_first;
    if (left == 0)
        return LS_OK;
    for (; left > 0; left -= SEQUENCE_TOKENS_MAX) {
        int rc = data_ids_reserve(&writer->lengths, 1, error);
        if (rc)
            return rc;
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

int data_writer_truncate(struct data_writer *writer, int64_t tokens, int64_t documents,
                         struct ls_error *error)
{
    int rc = flush(writer, error);
    if (rc)
        return rc;
    writer->document_first = data_writer_document_first(writer, documents);
    writer->lengths.count = documents > 0 ? writer->documents[documents - 1] : 0;
    writer->documents_count = documents;
    writer->tokens = tokens;
    off_t bytes = (off_t)(tokens * (int64_t)ls_dtype_bytes(writer->dtype));
    if (ftruncate(writer->fd, bytes) != 0 || lseek(writer->fd, bytes, SEEK_SET) < 0)
        return ls_error_errno(error, errno, "%s: cannot be cut", writer->bin_temporary);
    return LS_OK;
}

/* ---- the index ------------------------------------------------------------------------------ */

static void write_index(const struct data_writer *writer, FILE *file)
{
    uint64_t version = DATA_IDX_VERSION;
    uint8_t code = (uint8_t)data_idx_dtype_code(writer->dtype);
    uint64_t sequences = (uint64_t)writer->lengths.count;
    uint64_t marks = (uint64_t)writer->documents_count + 1;
    fwrite(DATA_IDX_MAGIC, 9, 1, file);
    fwrite(&version, sizeof version, 1, file);
    fwrite(&code, sizeof code, 1, file);
    fwrite(&sequences, sizeof sequences, 1, file);
    fwrite(&marks, sizeof marks, 1, file);
    fwrite(writer->lengths.ids, sizeof *writer->lengths.ids, (size_t)sequences, file);
    int64_t pointer = 0;
    for (uint64_t i = 0; i < sequences; i++) {
        fwrite(&pointer, sizeof pointer, 1, file);
        pointer += writer->lengths.ids[i] * (int64_t)ls_dtype_bytes(writer->dtype);
    }
    int64_t first = 0;
    fwrite(&first, sizeof first, 1, file);
    fwrite(writer->documents, sizeof *writer->documents, (size_t)writer->documents_count, file);
}

int data_writer_finish(struct data_writer *writer, struct ls_error *error)
{
    int rc = flush(writer, error);
    if (rc)
        return rc;
    if (fsync(writer->fd) != 0)
        return ls_error_errno(error, errno, "%s: cannot be written", writer->bin_temporary);
    FILE *file = fopen(writer->idx_temporary, "wbe");
    if (!file)
        return ls_error_errno(error, errno, "%s: cannot be written", writer->idx_temporary);
    errno = 0;
    write_index(writer, file);
    int failure = ferror(file) ? (errno ? errno : EIO) : 0;
    if (!failure && (fflush(file) != 0 || fsync(fileno(file)) != 0))
        failure = errno;
    if (fclose(file) != 0 && !failure)
        failure = errno;
    if (failure)
        return ls_error_errno(error, failure, "%s: cannot be written", writer->idx_temporary);
    return LS_OK;
}

static int rename_to(const char *from, const char *prefix, const char *suffix,
                     struct ls_error *error)
{
    char *to;
    if (asprintf(&to, "%s%s", prefix, suffix) < 0)
        return ls_error_set(error, LS_ENOMEM, "no memory to rename %s", from);
    int rc = LS_OK;
    if (rename(from, to) != 0)
        rc = ls_error_errno(error, errno, "%s cannot be renamed to %s", from, to);
    free(to);
    return rc;
}

int data_writer_publish(struct data_writer *writer, struct ls_error *error)
{
    int rc = rename_to(writer->bin_temporary, writer->prefix, ".bin", error);
    return rc ? rc : rename_to(writer->idx_temporary, writer->prefix, ".idx", error);
}
