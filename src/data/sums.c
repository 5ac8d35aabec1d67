/* Digests of a store's files, block by block: made while they are written, read, and checked. */
#include "data/data_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

enum { VERSION = 1, DIGEST_DIGITS = 32 };

struct digests {
    int64_t bytes; /* -1: there is no such file */
    struct ls_digest *list;
    int64_t count, room;
};
struct ls_sums {
    char *name; /* of the file that they are from; NULL of those being made */
    struct digests files[LS_SUMS_FILES];
    struct digests *current; /* of the file that is being written */
    XXH3_state_t *block;     /* its last block, which is not whole */
};

static const char *const words[LS_SUMS_FILES] = {"bin", "idx", "mask", "weights"};

static struct ls_digest digest_of(XXH128_hash_t hash)
{
    return (struct ls_digest){hash.low64, hash.high64};
}

const char *ls_sums_suffix(enum ls_sums_file file)
{
    return data_suffixes[file];
}

static struct ls_sums *sums_new(void)
{
    struct ls_sums *sums = calloc(1, sizeof *sums);
    for (int i = 0; sums && i < LS_SUMS_FILES; i++)
        sums->files[i].bytes = -1;
    return sums;
}

void ls_sums_free(struct ls_sums *sums)
{
    if (!sums)
        return;
    for (int i = 0; i < LS_SUMS_FILES; i++)
        free(sums->files[i].list);
    XXH3_freeState(sums->block);
    free(sums->name);
    free(sums);
}

static int add_digest(struct digests *of, struct ls_digest digest, struct ls_error *error)
{
    if (!ls_list_grow(&of->list, of->count, &of->room, sizeof *of->list))
        return ls_no_memory(error, "for the digests of %lld blocks", (long long)of->count);
    of->list[of->count++] = digest;
    return LS_OK;
}

/* ---- making --------------------------------------------------------------------------------- */

int data_sums_new(struct ls_sums **out, struct ls_error *error)
{
    *out = sums_new();
    if (*out)
        (*out)->block = XXH3_createState();
    return *out && (*out)->block ? LS_OK : ls_no_memory(error, "for the digests of a store");
}

void data_sums_begin(struct ls_sums *sums, enum ls_sums_file file)
{
    sums->current = &sums->files[file];
    data_sums_cut(sums, 0);
}

int64_t data_sums_cut(struct ls_sums *sums, int64_t bytes)
{
    sums->current->count = bytes / LS_SUMS_BLOCK_BYTES;
    sums->current->bytes = sums->current->count * LS_SUMS_BLOCK_BYTES;
    XXH3_128bits_reset(sums->block);
    return sums->current->bytes;
}

int data_sums_add(struct ls_sums *sums, const void *bytes, size_t count, struct ls_error *error)
{
    struct digests *of = sums->current;
    const unsigned char *at = bytes;
    int status = LS_OK;
    while (count > 0 && !status) {
        int64_t left = LS_SUMS_BLOCK_BYTES - of->bytes % LS_SUMS_BLOCK_BYTES;
        size_t here = (size_t)ls_min((int64_t)count, left);
        XXH3_128bits_update(sums->block, at, here);
        of->bytes += (int64_t)here;
        at += here;
        count -= here;
        if ((int64_t)here == left) {
            status = add_digest(of, digest_of(XXH3_128bits_digest(sums->block)), error);
            XXH3_128bits_reset(sums->block);
        }
    }
    return status;
}

int data_sums_end(struct ls_sums *sums, struct ls_error *error)
{
    struct digests *of = sums->current;
    return of->bytes % LS_SUMS_BLOCK_BYTES == 0
               ? LS_OK
               : add_digest(of, digest_of(XXH3_128bits_digest(sums->block)), error);
}

static int write_text(const void *context, FILE *file, struct ls_error *error)
{
    const struct ls_sums *sums = context;
    char hex[DIGEST_DIGITS + 1];
    (void)error;
    fprintf(file, "lockstep sums %d %d\n", VERSION, LS_SUMS_BLOCK_BYTES);
    for (int i = 0; i < LS_SUMS_FILES; i++) {
        const struct digests *of = &sums->files[i];
        if (of->bytes < 0)
            continue;
        fprintf(file, "%s %lld\n", words[i], (long long)of->bytes);
        for (int64_t j = 0; j < of->count; j++) {
            ls_digest_hex(&of->list[j], hex);
            fprintf(file, "%s\n", hex);
        }
    }
    return LS_OK;
}

int data_sums_text(const struct ls_sums *sums, struct ls_text *text, struct ls_error *error)
{
    char *lines = NULL, hex[DIGEST_DIGITS + 1];
    size_t bytes = 0;
    int status = ls_text_write(write_text, sums, &lines, &bytes, error);
    if (!status)
        status = data_text_put(text, lines, bytes, error);
    if (!status) {
        struct ls_digest whole = digest_of(XXH3_128bits(lines, bytes));
        ls_digest_hex(&whole, hex);
        status = data_text_put(text, "end ", 4, error);
    }
    if (!status)
        status = data_text_put(text, hex, DIGEST_DIGITS, error);
    if (!status)
        status = data_text_put(text, "\n", 1, error);
    free(lines);
    return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

struct reader {
    const char *name, *at, *end;
    int64_t line; /* from 1, of the line that was taken last */
};

/* The next line without its end. False: there is none, or it has no end. */
static bool take_line(struct reader *reader, const char **line, size_t *length)
{
    size_t left = (size_t)(reader->end - reader->at);
    const char *end = left > 0 ? memchr(reader->at, '\n', left) : NULL;
    reader->line++;
    if (!end)
        return false;
    *line = reader->at;
    *length = (size_t)(end - reader->at);
    reader->at = end + 1;
    return true;
}

static int bad_line(const struct reader *reader, const char *expected, struct ls_error *error)
{
    return ls_error_line(
        error, LS_EDATA, reader->name, reader->line,
        "damaged or not a list of digests: expected %s. Prepare the data again, or "
        "remove the file: the store is then read without digests",
        expected);
}

static bool starts(const char *line, size_t length, const char *word)
{
    size_t bytes = strlen(word);
    return length > bytes && memcmp(line, word, bytes) == 0;
}

/* All of text[length] as a number of at most 18 digits, without zeros in front. */
static bool read_number(const char *text, size_t length, int64_t *out)
{
    *out = 0;
    if (length < 1 || length > 18 || (text[0] == '0' && length > 1))
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *out = *out * 10 + (text[i] - '0');
    }
    return true;
}

static bool read_digest(const char *text, size_t length, struct ls_digest *out)
{
    uint64_t half[2] = {0, 0};
    if (length != DIGEST_DIGITS)
        return false;
    for (int i = 0; i < DIGEST_DIGITS; i++) {
        const char *digits = "0123456789abcdef";
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit)
            return false;
        half[i / 16] = half[i / 16] << 4 | (uint64_t)(digit - digits);
    }
    *out = (struct ls_digest){half[1], half[0]};
    return true;
}

static int read_header(struct reader *reader, struct ls_error *error)
{
    const char *line;
    char expected[64];
    size_t length;
    snprintf(expected, sizeof expected, "lockstep sums %d %d", VERSION, LS_SUMS_BLOCK_BYTES);
    if (take_line(reader, &line, &length) && length == strlen(expected) &&
        memcmp(line, expected, length) == 0)
        return LS_OK;
    return bad_line(reader, expected, error);
}

/* The digests behind "WORD N", the line that was taken last. */
static int read_file(struct reader *reader, const char *number, size_t length, struct digests *of,
                     struct ls_error *error)
{
    const char *line;
    struct ls_digest digest;
    int64_t bytes;
    if (of->bytes >= 0 || !read_number(number, length, &bytes))
        return bad_line(reader, "the bytes of a file, once", error);
    of->bytes = bytes;
    int status = LS_OK;
    for (int64_t left = ls_ceil_div(bytes, LS_SUMS_BLOCK_BYTES); left > 0 && !status; left--)
        status = take_line(reader, &line, &length) && read_digest(line, length, &digest)
                     ? add_digest(of, digest, error)
                     : bad_line(reader, "the digest of a block, 32 hexadecimal digits", error);
    return status;
}

static int read_end(struct reader *reader, const char *begin, const char *line, size_t length,
                    struct ls_error *error)
{
    struct ls_digest whole = digest_of(XXH3_128bits(begin, (size_t)(line - begin))), found;
    if (reader->at == reader->end && read_digest(line + 4, length - 4, &found) &&
        found.low == whole.low && found.high == whole.high)
        return LS_OK;
    return bad_line(reader, "\"end\" with the digest of all lines before, and nothing behind",
                    error);
}

static int read_lines(struct reader *reader, struct ls_sums *sums, struct ls_error *error)
{
    const char *begin = reader->at, *line;
    size_t length;
    int status = read_header(reader, error);
    while (!status && take_line(reader, &line, &length)) {
        int file = 0;
        if (starts(line, length, "end "))
            return read_end(reader, begin, line, length, error);
        while (file < LS_SUMS_FILES &&
               !(starts(line, length, words[file]) && line[strlen(words[file])] == ' '))
            file++;
        if (file == LS_SUMS_FILES)
            return bad_line(reader, "bin N, idx N, mask N, weights N or end", error);
        size_t skip = strlen(words[file]) + 1;
        status = read_file(reader, line + skip, length - skip, &sums->files[file], error);
    }
    return status ? status : bad_line(reader, "a line \"end\": it is cut off", error);
}

int ls_sums_parse(const char *name, const char *text, size_t bytes, struct ls_sums **out,
                  struct ls_error *error)
{
    struct reader reader = {name, text, text + bytes, 0};
    struct ls_sums *sums = sums_new();
    *out = NULL;
    if (sums)
        sums->name = strdup(name);
    int status = sums && sums->name ? read_lines(&reader, sums, error)
                                    : ls_error_set(error, LS_ENOMEM, "%s: no memory", name);
    if (status)
        ls_sums_free(sums);
    else
        *out = sums;
    return status;
}

int ls_sums_open(const char *store, struct ls_sums **out, struct ls_error *error)
{
    char path[PATH_MAX], *text;
    size_t bytes;
    *out = NULL;
    int status = data_store_path(path, store, ".sums", error);
    if (status || access(path, F_OK) != 0)
        return status;
    status = ls_file_read(path, LS_SUMS_BYTES_MAX, LS_EDATA, &text, &bytes, error);
    if (!status)
        status = ls_sums_parse(path, text, bytes, out, error);
    free(text);
    return status;
}

/* ---- checking ------------------------------------------------------------------------------- */

int64_t ls_sums_bytes(const struct ls_sums *sums, enum ls_sums_file file)
{
    return sums->files[file].bytes;
}

int64_t ls_sums_blocks(const struct ls_sums *sums, enum ls_sums_file file)
{
    return sums->files[file].count;
}

size_t ls_sums_block_bytes(const struct ls_sums *sums, enum ls_sums_file file, int64_t block)
{
    const struct digests *of = &sums->files[file];
    LS_ASSERT(block >= 0 && block < of->count);
    return (size_t)ls_min(LS_SUMS_BLOCK_BYTES, of->bytes - block * LS_SUMS_BLOCK_BYTES);
}

int ls_sums_check(const struct ls_sums *sums, enum ls_sums_file file, int64_t block,
                  const void *bytes, size_t count, struct ls_error *error)
{
    const struct digests *of = &sums->files[file];
    if (block < 0 || block >= of->count)
        return ls_error_set(error, LS_EINVAL, "%s: block %lld of %s; it has %lld", sums->name,
                            (long long)block, words[file], (long long)of->count);
    size_t expected = ls_sums_block_bytes(sums, file, block);
    struct ls_digest found = digest_of(XXH3_128bits(bytes, count));
    if (count == expected && found.low == of->list[block].low && found.high == of->list[block].high)
        return LS_OK;
    int stem = (int)strlen(sums->name) - (ls_path_ends(sums->name, ".sums") ? 5 : 0);
    return ls_error_set(
        error, LS_EDATA,
        "%.*s.%s: block %lld, %zu bytes from byte %lld on, is not what was "
        "prepared (%zu bytes, another digest than in %s). The file is damaged or was "
        "changed: copy it again, or prepare the data again",
        stem, sums->name, words[file], (long long)block, expected,
        (long long)block * LS_SUMS_BLOCK_BYTES, count, sums->name);
}
