/* Event files: TensorFlow's record framing (tsl/lib/io/record_writer.h) around Event messages
 * (tensorflow/core/util/event.proto), of which five fields are needed. */
#include <lockstep/trace.h>

#include "trace/append.h"

#include <errno.h>
#include <fcntl.h>
#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUMMARY_BYTES_MAX = 1 << 14, HEADER_BYTES = 12, FOOTER_BYTES = 4, EVENT_BYTES_MAX = 64 };

struct ls_tensorboard {
    struct trace_append file;
    char summary[SUMMARY_BYTES_MAX];
    char record[HEADER_BYTES + EVENT_BYTES_MAX + SUMMARY_BYTES_MAX + FOOTER_BYTES];
};

/* What is put together in a buffer of fixed size. */
struct bytes {
    char *data;
    size_t size, used;
    bool overflow;
};

static void put_bytes(struct bytes *out, const void *data, size_t count)
{
    out->overflow |= count > out->size - out->used;
    if (out->overflow)
        return;
    memcpy(out->data + out->used, data, count);
    out->used += count;
}

static uint32_t masked_crc32c(const void *data, size_t bytes)
{
    /* ISA-L takes and gives the register without the complements of the CRC-32C that is in use. */
    uint32_t crc = ~crc32_iscsi((unsigned char *)data, (int)bytes, 0xffffffffu);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void put_little_endian(struct bytes *out, uint64_t value, int bytes)
{
    unsigned char out_bytes[8];
    for (int i = 0; i < bytes; i++)
        out_bytes[i] = (unsigned char)(value >> (8 * i));
    put_bytes(out, out_bytes, (size_t)bytes);
}

static size_t varint_encode(uint64_t value, unsigned char out[10])
{
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        out[n++] = (unsigned char)(value | 0x80);
    out[n++] = (unsigned char)value;
    return n;
}

static void put_varint(struct bytes *out, uint64_t value)
{
    unsigned char bytes[10];
    put_bytes(out, bytes, varint_encode(value, bytes));
}

/* A length-delimited protobuf field. */
static void put_field(struct bytes *out, int tag, const void *data, size_t bytes)
{
    put_varint(out, (uint64_t)tag);
    put_varint(out, bytes);
    put_bytes(out, data, bytes);
}

/* Frames one Event { wall_time = 1, step = 2, field } and appends it to the file. */
static int write_event(struct ls_tensorboard *board, double wall_time_s, int64_t step,
                       int field_tag, const void *field, size_t field_bytes, struct ls_error *error)
{
    struct bytes out = {.data = board->record, .size = sizeof board->record};
    out.used = HEADER_BYTES;
    uint64_t wall_time_bits;
    memcpy(&wall_time_bits, &wall_time_s, sizeof wall_time_bits);
    put_varint(&out, 0x09);
    put_little_endian(&out, wall_time_bits, 8);
    if (step != 0) { /* proto3 leaves out what has its default */
        put_varint(&out, 0x10);
        put_varint(&out, (uint64_t)step);
    }
    put_field(&out, field_tag, field, field_bytes);
    size_t data_bytes = out.used - HEADER_BYTES;
    put_little_endian(&out, masked_crc32c(board->record + HEADER_BYTES, data_bytes), 4);
    LS_ASSERT(!out.overflow);
    struct bytes header = {.data = board->record, .size = HEADER_BYTES};
    put_little_endian(&header, data_bytes, 8);
    put_little_endian(&header, masked_crc32c(board->record, 8), 4);
    return trace_append_write(&board->file, board->record, out.used, error);
}

/* Opens a new file: the first free <n> of the name. */
static int open_new(struct trace_append *file, const char *directory, double wall_time_s,
                    struct ls_error *error)
{
    char host[256] = "localhost", path[PATH_MAX];
    gethostname(host, sizeof host - 1);
    for (int n = 0;; n++) {
        int length = snprintf(path, sizeof path, "%s/events.out.tfevents.%010lld.%s.%ld.%d",
                              directory, (long long)wall_time_s, host, (long)getpid(), n);
        if (length >= (int)sizeof path)
            return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", directory);
        int status = trace_append_open(file, path, O_EXCL, error);
        if (status != LS_EIO || errno != EEXIST)
            return status;
    }
}

int ls_tensorboard_open(struct ls_tensorboard **out, const char *directory, double wall_time_s,
                        int64_t purge_step, struct ls_error *error)
{
    static const char version[] = "brain.Event:2";
    static const char session_start[] = {0x08, 0x01}; /* SessionLog { status = START } */
    *out = NULL;
    struct ls_tensorboard *board = malloc(sizeof *board);
    if (!board)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for an event buffer", directory);
    int code = open_new(&board->file, directory, wall_time_s, error);
    if (code) {
        free(board);
        return code;
    }
    code = write_event(board, wall_time_s, 0, 0x1a, version, sizeof version - 1, error);
    if (!code && purge_step >= 0)
        code = write_event(board, wall_time_s, purge_step, 0x3a, session_start,
                           sizeof session_start, error);
    if (code) {
        unlink(board->file.path);
        ls_tensorboard_close(board, NULL);
        return code;
    }
    *out = board;
    return LS_OK;
}

int ls_tensorboard_scalars(struct ls_tensorboard *board, double wall_time_s, int64_t step,
                           const struct ls_scalar *scalars, size_t count, struct ls_error *error)
{
    struct bytes summary = {.data = board->summary, .size = sizeof board->summary};
    for (size_t i = 0; i < count; i++) {
        size_t tag_bytes = strlen(scalars[i].tag);
        unsigned char scratch[10];
        /* Value { tag = 1 (string), simple_value = 2 (fp32) } */
        size_t value_bytes = 1 + varint_encode(tag_bytes, scratch) + tag_bytes + 1 + 4;
        put_varint(&summary, 0x0a);
        put_varint(&summary, value_bytes);
        put_field(&summary, 0x0a, scalars[i].tag, tag_bytes);
        uint32_t value_bits;
        memcpy(&value_bits, &scalars[i].value, sizeof value_bits);
        put_varint(&summary, 0x15);
        put_little_endian(&summary, value_bits, 4);
    }
    if (summary.overflow)
        return ls_error_set(error, LS_EINVAL, "%s: the tags of step %lld are over %d bytes",
                            board->file.path, (long long)step, SUMMARY_BYTES_MAX);
    return write_event(board, wall_time_s, step, 0x2a, summary.data, summary.used, error);
}

int ls_tensorboard_close(struct ls_tensorboard *board, struct ls_error *error)
{
    if (!board)
        return LS_OK;
    int status = trace_append_close(&board->file, error);
    free(board);
    return status;
}
