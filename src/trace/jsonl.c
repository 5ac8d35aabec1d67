#include <lockstep/trace.h>

#include "append.h"
#include "text.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORD_BYTES_MAX = 1 << 16 };

struct ls_jsonl {
    struct trace_append file;
    struct trace_text text;
    char buffer[RECORD_BYTES_MAX];
};

/* Cuts off what follows the last newline. */
static int cut_torn_line(struct trace_append *file, struct ls_error *error)
{
    char block[4096];
    int64_t end = file->size;
    while (end > 0) {
        int64_t begin = ls_max(0, end - (int64_t)sizeof block);
        ssize_t got = pread(file->fd, block, (size_t)(end - begin), begin);
        if (got != end - begin)
            return ls_error_errno(error, got < 0 ? errno : EIO, "%s: cannot read", file->path);
        const char *newline = memrchr(block, '\n', (size_t)got);
        if (newline) {
            end = begin + (newline - block) + 1;
            break;
        }
        end = begin;
    }
    if (end < file->size && ftruncate(file->fd, end))
        return ls_error_errno(error, errno, "%s: cannot cut off the torn last line", file->path);
    file->size = end;
    return LS_OK;
}

int ls_jsonl_open(struct ls_jsonl **out, const char *path, struct ls_error *error)
{
    *out = NULL;
    struct ls_jsonl *jsonl = malloc(sizeof *jsonl);
    if (!jsonl)
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for its buffer", path);
    int code = trace_append_open(&jsonl->file, path, 0, error);
    if (code) {
        free(jsonl);
        return code;
    }
    code = cut_torn_line(&jsonl->file, error);
    if (code) {
        ls_jsonl_close(jsonl, NULL);
        return code;
    }
    *out = jsonl;
    return LS_OK;
}

void ls_jsonl_begin(struct ls_jsonl *jsonl)
{
    jsonl->text = (struct trace_text){.data = jsonl->buffer, .size = sizeof jsonl->buffer};
    trace_text_put(&jsonl->text, "{");
}

static void put_key(struct trace_text *text, const char *key)
{
    if (text->used > 1)
        trace_text_put(text, ", ");
    trace_text_json(text, key);
    trace_text_put(text, ": ");
}

void ls_jsonl_int(struct ls_jsonl *jsonl, const char *key, int64_t value)
{
    put_key(&jsonl->text, key);
    trace_text_printf(&jsonl->text, "%lld", (long long)value);
}

void ls_jsonl_float(struct ls_jsonl *jsonl, const char *key, float value)
{
    put_key(&jsonl->text, key);
    char shortest[32];
    int digits = 6;
    while (digits < 9 && isfinite(value)) {
        snprintf(shortest, sizeof shortest, "%.*g", digits, (double)value);
        if (strtof(shortest, NULL) == value)
            break;
        digits++;
    }
    trace_text_number(&jsonl->text, (double)value, digits);
}

void ls_jsonl_double(struct ls_jsonl *jsonl, const char *key, double value)
{
    put_key(&jsonl->text, key);
    trace_text_number(&jsonl->text, value, 17);
}

void ls_jsonl_string(struct ls_jsonl *jsonl, const char *key, const char *value)
{
    put_key(&jsonl->text, key);
    trace_text_json(&jsonl->text, value);
}

int ls_jsonl_end(struct ls_jsonl *jsonl, struct ls_error *error)
{
    trace_text_put(&jsonl->text, "}\n");
    if (jsonl->text.overflow)
        return ls_error_set(error, LS_EINVAL, "%s: a record is over %d bytes; shorten its strings",
                            jsonl->file.path, RECORD_BYTES_MAX);
    return trace_append_write(&jsonl->file, jsonl->text.data, jsonl->text.used, error);
}

int ls_jsonl_close(struct ls_jsonl *jsonl, struct ls_error *error)
{
    if (!jsonl)
        return LS_OK;
    int code = trace_append_close(&jsonl->file, error);
    free(jsonl);
    return code;
}

/* Where the first line with key > value begins; the file's end where there is none. */
static int find_first_after(FILE *in, const char *path, const char *key, int64_t value,
                            int64_t *offset, struct ls_error *error)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    int code = LS_OK;
    *offset = 0;
    for (int64_t number = 1; (length = getline(&line, &capacity, in)) > 0; number++) {
        if (line[length - 1] != '\n')
            break; /* torn */
        json_error_t where;
        json_t *record = json_loadb(line, (size_t)length, 0, &where);
        json_t *field = json_object_get(record, key);
        bool after = json_is_integer(field) && json_integer_value(field) > value;
        bool is_object = json_is_object(record);
        json_decref(record);
        if (!is_object) {
            code = ls_error_set(error, LS_EDATA,
                                "%s:%lld: expected one JSON object (%s); remove the line", path,
                                (long long)number, record ? "found another value" : where.text);
            break;
        }
        if (after)
            break;
        *offset += length;
    }
    free(line);
    return code;
}

int ls_jsonl_truncate_after(const char *path, const char *key, int64_t value,
                            struct ls_error *error)
{
    FILE *file = fopen(path, "r+e");
    if (!file)
        return errno == ENOENT ? LS_OK : ls_error_errno(error, errno, "%s: cannot open", path);
    int64_t offset;
    int code = find_first_after(file, path, key, value, &offset, error);
    if (!code && ferror(file))
        code = ls_error_errno(error, EIO, "%s: cannot read", path);
    if (!code && ftruncate(fileno(file), offset))
        code = ls_error_errno(error, errno, "%s: cannot truncate", path);
    fclose(file);
    return code;
}
