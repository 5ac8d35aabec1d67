/* Bytes of plain, gzip and Zstandard files. */
#include "data/data_private.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { PACKED_BYTES = 1 << 17 };

struct data_source {
    char *path;
    int fd;
    z_stream *gz;
    ZSTD_DCtx *zstd;
    unsigned char *packed; /* gzip and zstd: [PACKED_BYTES] */
    ZSTD_inBuffer input;   /* of it */
    bool in_member;        /* gzip: false between members */
    size_t frame_left;     /* zstd: 0 at the end of a frame */
    bool begun;            /* some of it was read */
};

static int open_gzip(struct data_source *source, struct ls_error *error)
{
    source->gz = calloc(1, sizeof *source->gz);
    source->packed = malloc(PACKED_BYTES);
    source->input = (ZSTD_inBuffer){source->packed, 0, 0};
    if (!source->gz || !source->packed || inflateInit2(source->gz, MAX_WBITS + 16) != Z_OK)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to unpack", source->path);
    return LS_OK;
}

static int open_zstd(struct data_source *source, struct ls_error *error)
{
    source->zstd = ZSTD_createDCtx();
    source->packed = malloc(PACKED_BYTES);
    source->input = (ZSTD_inBuffer){source->packed, 0, 0};
    source->frame_left = 1;
    if (!source->zstd || !source->packed)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to unpack", source->path);
    /* any window that zstd --long makes */
    ZSTD_DCtx_setParameter(source->zstd, ZSTD_d_windowLogMax,
                           ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
    return LS_OK;
}

/* What begins as one of these is no text, whatever its name; a tar has its sign farther in. */
static int signs_check(const struct data_source *source, const char *bytes, size_t count,
                       struct ls_error *error)
{
    static const struct {
        const char *sign, *name;
        size_t length, at;
    } kinds[] = {
        {"PAR1", "Parquet", 4, 0},
        {"ARROW1", "Arrow", 6, 0},
        {"PK\3\4", "zip", 4, 0},
        {"1AY&SY", "bzip2", 6, 4},
        {"\xfd"
         "7zXZ",
         "xz", 6, 0},
        {"7z\xbc\xaf\x27\x1c", "7-Zip", 6, 0},
        {"ustar", "tar", 5, 257},
        {"%PDF-", "PDF", 5, 0},
        {"\x93NUMPY", "numpy", 6, 0},
        {"SQLite format 3", "SQLite", 16, 0},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (count >= kinds[i].at + kinds[i].length &&
            memcmp(bytes + kinds[i].at, kinds[i].sign, kinds[i].length) == 0)
            return ls_error_set(error, LS_EDATA,
                                "%s: %s files are not read: expected text or JSON lines, plain, "
                                ".gz or .zst (tools/parquet_to_jsonl.py makes them of Parquet)",
                                source->path, kinds[i].name);
    return LS_OK;
}

/* Taken as they stand, the packed bytes would be text. */
static int packed_check(const struct data_source *source, const char *bytes, size_t count,
                        struct ls_error *error)
{
    static const struct {
        const char *bytes, *name, *ending;
    } kinds[] = {{"\x1f\x8b\x08", "gzip", ".gz"}, {"\x28\xb5\x2f\xfd", "Zstandard", ".zst"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t length = strlen(kinds[i].bytes);
        if (count >= length && memcmp(bytes, kinds[i].bytes, length) == 0)
            return ls_error_set(error, LS_EDATA,
                                "%s: %s data, and its name does not end in %s: rename it, or "
                                "unpack it first",
                                source->path, kinds[i].name, kinds[i].ending);
    }
    return LS_OK;
}

int data_source_open(const char *path, struct data_source **out, struct ls_error *error)
{
    *out = NULL;
    int status = LS_OK;
    struct data_source *source = calloc(1, sizeof *source);
    if (!source)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to open it", path);
    int64_t size;
    source->fd = -1;
    source->path = strdup(path);
    if (!source->path)
        status = ls_error_set(error, LS_ENOMEM, "%s: no memory to open it", path);
    else
        status = ls_file_open(path, LS_FILE_PIPE, LS_EDATA, &source->fd, &size, error);
    if (status)
        source->fd = -1;
    else if (ls_path_ends(path, ".gz"))
        status = open_gzip(source, error);
    else if (ls_path_ends(path, ".zst"))
        status = open_zstd(source, error);
    if (status) {
        data_source_close(source);
        return status;
    }
    *out = source;
    return LS_OK;
}

void data_source_close(struct data_source *source)
{
    if (!source)
        return;
    if (source->fd >= 0)
        close(source->fd);
    if (source->gz)
        inflateEnd(source->gz);
    free(source->gz);
    ZSTD_freeDCtx(source->zstd);
    free(source->packed);
    free(source->path);
    free(source);
}

static int read_plain(struct data_source *source, void *buffer, size_t bytes, size_t *got,
                      struct ls_error *error)
{
    ssize_t n;
    do
        n = read(source->fd, buffer, bytes);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return ls_error_errno(error, errno, "%s: cannot be read", source->path);
    *got = (size_t)n;
    return LS_OK;
}

/* More packed bytes where none are left; *end: there are no more. */
static int input_fill(struct data_source *source, bool *end, struct ls_error *error)
{
    size_t packed = 0;
    *end = false;
    if (source->input.pos < source->input.size)
        return LS_OK;
    int status = read_plain(source, source->packed, PACKED_BYTES, &packed, error);
    source->input = (ZSTD_inBuffer){source->packed, packed, 0};
    *end = packed == 0;
    return status;
}

/* Between members. gzread would take all that is behind one for padding, whatever it is. */
static int member_begin(struct data_source *source, struct ls_error *error)
{
    const bool first = source->gz->total_in == 0;
    const unsigned char byte = source->packed[source->input.pos];
    source->in_member = byte == 0x1f;
    if (source->in_member)
        inflateReset(source->gz);
    else if (first)
        return ls_error_set(error, LS_EDATA, "%s: not gzip data, as its name says", source->path);
    else if (byte != 0)
        return ls_error_set(error, LS_EDATA,
                            "%s: gzip data damaged: what follows a whole member is none",
                            source->path);
    else
        source->input.pos++; /* padding */
    return LS_OK;
}

static int member_read(struct data_source *source, struct ls_error *error)
{
    z_stream *gz = source->gz;
    gz->next_in = source->packed + source->input.pos;
    gz->avail_in = (uInt)(source->input.size - source->input.pos);
    int code = inflate(gz, Z_NO_FLUSH);
    source->input.pos = source->input.size - gz->avail_in;
    source->in_member = code != Z_STREAM_END;
    if (code == Z_OK || code == Z_STREAM_END)
        return LS_OK;
    if (code == Z_MEM_ERROR)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to unpack", source->path);
    return ls_error_set(error, LS_EDATA, "%s: gzip data damaged: %s", source->path,
                        gz->msg ? gz->msg : zError(code));
}

static int read_gzip(struct data_source *source, void *buffer, size_t bytes, size_t *got,
                     struct ls_error *error)
{
    z_stream *gz = source->gz;
    const uInt room = (uInt)ls_min((int64_t)bytes, 1 << 30);
    gz->next_out = buffer;
    gz->avail_out = room;
    while (gz->avail_out == room) {
        bool end;
        int status = input_fill(source, &end, error);
        if (!status && end && (source->in_member || gz->total_in == 0))
            return ls_error_set(error, LS_EDATA, "%s: gzip data truncated", source->path);
        if (status || end)
            return status;
        status = source->in_member ? member_read(source, error) : member_begin(source, error);
        if (status)
            return status;
    }
    *got = room - gz->avail_out;
    return LS_OK;
}

static int read_zstd(struct data_source *source, void *buffer, size_t bytes, size_t *got,
                     struct ls_error *error)
{
    ZSTD_outBuffer output = {buffer, bytes, 0};
    while (output.pos == 0) {
        bool end;
        int status = input_fill(source, &end, error);
        if (status)
            return status;
        if (end && source->frame_left != 0)
            return ls_error_set(error, LS_EDATA, "%s: Zstandard data truncated", source->path);
        if (end)
            break;
        source->frame_left = ZSTD_decompressStream(source->zstd, &output, &source->input);
        if (ZSTD_getErrorCode(source->frame_left) == ZSTD_error_memory_allocation)
            return ls_error_set(error, LS_ENOMEM, "%s: no memory to unpack", source->path);
        if (ZSTD_isError(source->frame_left))
            return ls_error_set(error, LS_EDATA, "%s: Zstandard data damaged: %s", source->path,
                                ZSTD_getErrorName(source->frame_left));
    }
    *got = output.pos;
    return LS_OK;
}

int data_source_read(struct data_source *source, void *buffer, size_t bytes, size_t *got,
                     struct ls_error *error)
{
    const bool first = !source->begun, plain = !source->gz && !source->zstd;
    *got = 0;
    int status = source->gz     ? read_gzip(source, buffer, bytes, got, error)
                 : source->zstd ? read_zstd(source, buffer, bytes, got, error)
                                : read_plain(source, buffer, bytes, got, error);
    source->begun = true;
    if (!status && first && plain)
        status = packed_check(source, buffer, *got, error);
    return status || !first ? status : signs_check(source, buffer, *got, error);
}
