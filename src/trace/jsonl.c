/* JSON lines: a record is written as one line; a torn last line is cut off. */
#include <lockstep/base/file.h>
#include <lockstep/base/json.h>
#include <lockstep/base/meter.h>
#include <lockstep/trace.h>

#include "trace/append.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RECORD_BYTES_MAX = 1 << 16, WAITING_BYTES_MAX = 4 << 20 };

struct ls_jsonl {
    struct trace_append file;
    FILE *record; /* into text */
    char *text;
    size_t bytes;
    char *waiting; /* whole lines that the system refused */
    size_t waiting_bytes;
    int64_t lost;
};

/* Cuts off what follows the last newline. */
static int cut_torn_line(struct trace_append *file, struct ls_error *error)
{
    char block[4096];
    int64_t end = file->size;
    while (end > 0) {
        int64_t begin = ls_max(0, end - (int64_t)sizeof block);
        size_t got, expected = (size_t)(end - begin);
        int failure = ls_fd_read(file->fd, begin, block, expected, &got);
        if (failure || got < expected)
            return ls_error_errno(error, failure ? failure : EIO, "%s: cannot read", file->path);
        const char *newline = memrchr(block, '\n', got);
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
    struct ls_jsonl *jsonl = calloc(1, sizeof *jsonl);
    if (jsonl)
        jsonl->record = open_memstream(&jsonl->text, &jsonl->bytes);
    if (!jsonl || !jsonl->record) {
        free(jsonl);
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for its buffer", path);
    }
    int status = trace_append_open(&jsonl->file, path, 0, error);
    if (!status)
        status = cut_torn_line(&jsonl->file, error);
    if (status)
        ls_jsonl_close(jsonl, NULL);
    else
        *out = jsonl;
    return status;
}

void ls_jsonl_begin(struct ls_jsonl *jsonl)
{
    rewind(jsonl->record);
    fputc('{', jsonl->record);
}

/* Where the value goes. */
static FILE *member(struct ls_jsonl *jsonl, const char *key)
{
    if (ftell(jsonl->record) > 1)
        fputs(", ", jsonl->record);
    ls_json_string(jsonl->record, key, strlen(key));
    fputs(": ", jsonl->record);
    return jsonl->record;
}

void ls_jsonl_int(struct ls_jsonl *jsonl, const char *key, int64_t value)
{
    fprintf(member(jsonl, key), "%lld", (long long)value);
}

void ls_jsonl_float(struct ls_jsonl *jsonl, const char *key, float value)
{
    char shortest[32];
    int digits = 6;
    while (digits < 9 && isfinite(value)) {
        snprintf(shortest, sizeof shortest, "%.*g", digits, (double)value);
        if (strtof(shortest, NULL) == value)
            break;
        digits++;
    }
    ls_json_number(member(jsonl, key), (double)value, digits);
}

void ls_jsonl_double(struct ls_jsonl *jsonl, const char *key, double value)
{
    ls_json_number(member(jsonl, key), value, 17);
}

void ls_jsonl_string(struct ls_jsonl *jsonl, const char *key, const char *value)
{
    ls_json_string(member(jsonl, key), value, strlen(value));
}

/* The record that was ended last waits, behind those that do already. */
static void keep(struct ls_jsonl *jsonl)
{
    size_t all = jsonl->waiting_bytes + jsonl->bytes;
    char *more = all > WAITING_BYTES_MAX ? NULL : realloc(jsonl->waiting, all);
    if (!more) {
        jsonl->lost++;
        return;
    }
    memcpy(more + jsonl->waiting_bytes, jsonl->text, jsonl->bytes);
    jsonl->waiting = more;
    jsonl->waiting_bytes = all;
}

int ls_jsonl_flush(struct ls_jsonl *jsonl, struct ls_error *error)
{
    if (jsonl->waiting_bytes == 0)
        return LS_OK;
    int status = trace_append_write(&jsonl->file, jsonl->waiting, jsonl->waiting_bytes, error);
    if (!status)
        jsonl->waiting_bytes = 0;
    return status;
}

int ls_jsonl_end(struct ls_jsonl *jsonl, struct ls_error *error)
{
    fputs("}\n", jsonl->record);
    if (fflush(jsonl->record) || ferror(jsonl->record))
        return ls_error_set(error, LS_ENOMEM, "%s: no memory for a record", jsonl->file.path);
    if (jsonl->bytes > RECORD_BYTES_MAX)
        return ls_error_set(error, LS_EINVAL, "%s: a record is over %d bytes; shorten its strings",
                            jsonl->file.path, RECORD_BYTES_MAX);
    int status = ls_jsonl_flush(jsonl, error);
    if (!status)
        status = trace_append_write(&jsonl->file, jsonl->text, jsonl->bytes, error);
    if (status)
        keep(jsonl);
    return status;
}

int64_t ls_jsonl_lost(const struct ls_jsonl *jsonl)
{
    return jsonl->lost;
}

const char *ls_jsonl_line(const struct ls_jsonl *jsonl, size_t *bytes)
{
    *bytes = jsonl->bytes;
    return jsonl->text;
}

int ls_jsonl_close(struct ls_jsonl *jsonl, struct ls_error *error)
{
    if (!jsonl)
        return LS_OK;
    int status = ls_jsonl_flush(jsonl, error);
    int closed = trace_append_close(&jsonl->file, status ? NULL : error);
    fclose(jsonl->record);
    free(jsonl->text);
    free(jsonl->waiting);
    free(jsonl);
    return status ? status : closed;
}

/* ---- reading back ---- */

/* Calls visit with each record of the file; a result other than 0 ends the walk. *end is where it
 * stopped: the line that was not accepted, or the end of the last whole line. *torn: a last line
 * that is not whole was left out. */
static int walk(const char *path, int (*visit)(void *user, const json_t *record), void *user,
                int64_t *end, bool *torn, struct ls_error *error)
{
    enum { MB = 1000000 };
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    int fd;
    int64_t size;
    *end = 0;
    *torn = false;
    int status = ls_file_open(path, 0, LS_EDATA, &fd, &size, error);
    if (status)
        return status;
    FILE *in = fdopen(fd, "r");
    if (!in) {
        close(fd);
        return ls_error_set(error, LS_ENOMEM, "%s: no memory to read it", path);
    }
    int64_t all = ls_ceil_div(size, MB);
    for (int64_t number = 1; !status && (length = getline(&line, &capacity, in)) > 0; number++) {
        *torn = line[length - 1] != '\n';
        if (*torn)
            break;
        json_error_t where;
        json_t *record = ls_json_load(line, (size_t)length, 0, &where);
        int stop = 0;
        if (!json_is_object(record))
            status = ls_error_line(error, LS_EDATA, path, number,
                                   "expected one JSON object (%s); remove the line",
                                   record ? "found another value" : where.text);
        else
            stop = visit(user, record);
        json_decref(record);
        if (stop)
            break;
        *end += length;
        ls_meter("MB of records", *end / MB, all);
    }
    ls_meter("MB of records", all, all);
    free(line);
    if (!status && ferror(in))
        status = ls_error_errno(error, EIO, "%s: cannot read", path);
    fclose(in);
    return status;
}

struct shower {
    ls_record_visitor *visit;
    void *user;
    const char *key; /* NULL: all are shown */
    int64_t most;    /* of key: what is above ends the walk */
};

static int show_one(void *user, const json_t *record)
{
    const struct shower *shower = user;
    const struct ls_record *shown = (const struct ls_record *)record;
    bool ends = shower->key && ls_record_whole(shown, shower->key, shower->most) > shower->most;
    if (!ends && shower->visit)
        shower->visit(shower->user, shown);
    return ends;
}

void ls_record_show(const char *line, size_t bytes, ls_record_visitor *visit, void *user)
{
    json_error_t where;
    json_t *record = ls_json_load(line, bytes, 0, &where);
    if (json_is_object(record))
        visit(user, (const struct ls_record *)record);
    json_decref(record);
}

bool ls_record_number(const struct ls_record *record, const char *key, double *value)
{
    const json_t *field = json_object_get((const json_t *)record, key);
    *value = json_is_number(field) ? json_number_value(field) : (double)NAN;
    return field != NULL;
}

double ls_record_value(const struct ls_record *record, const char *key)
{
    double value;
    ls_record_number(record, key, &value);
    return value;
}

int64_t ls_record_whole(const struct ls_record *record, const char *key, int64_t otherwise)
{
    double value = ls_record_value(record, key);
    return fabs(value) < 0x1p53 && value == floor(value) ? (int64_t)value : otherwise;
}

const char *ls_record_text(const struct ls_record *record, const char *key)
{
    return json_string_value(json_object_get((const json_t *)record, key));
}

const char *ls_record_string(const struct ls_record *record, const char *key)
{
    const char *found = ls_record_text(record, key);
    return found ? found : "";
}

double ls_record_time_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int ls_jsonl_each(const char *path, ls_record_visitor *visit, void *user, bool *torn,
                  struct ls_error *error)
{
    int64_t end;
    return walk(path, show_one, &(struct shower){visit, user, NULL, 0}, &end, torn, error);
}

int ls_jsonl_each_to(const char *path, const char *key, int64_t value, ls_record_visitor *visit,
                     void *user, int64_t *end, struct ls_error *error)
{
    bool torn;
    *end = 0;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return LS_OK;
    struct shower shower = {visit, user, key, value};
    return walk(path, show_one, &shower, end, &torn, error);
}

int ls_jsonl_cut(const char *path, int64_t end, struct ls_error *error)
{
    return truncate(path, end) && errno != ENOENT
               ? ls_error_errno(error, errno, "%s: cannot truncate", path)
               : LS_OK;
}

int ls_jsonl_truncate_after(const char *path, const char *key, int64_t value,
                            ls_record_visitor *visit, void *user, struct ls_error *error)
{
    int64_t end;
    int status = ls_jsonl_each_to(path, key, value, visit, user, &end, error);
    return status ? status : ls_jsonl_cut(path, end, error);
}

/* ---- series ---- */

struct collector {
    struct ls_series *series;
    const char *x_key;
    const char *const *y_keys;
    int count;
    int64_t room[LS_SERIES_MAX];
    bool no_memory;
};

static bool series_add(struct ls_series *series, int64_t *room, double x, double y)
{
    int64_t count = (int64_t)series->count, room_x = *room;
    if (!ls_list_grow(&series->x, count, &room_x, sizeof *series->x) ||
        !ls_list_grow(&series->y, count, room, sizeof *series->y))
        return false;
    series->x[series->count] = x;
    series->y[series->count++] = y;
    return true;
}

static void collect(void *user, const struct ls_record *record)
{
    struct collector *collector = user;
    const double x = (double)ls_record_whole(record, collector->x_key, -1);
    const bool event = ls_record_text(record, "event") != NULL;
    double y;
    for (int i = 0; i < collector->count && !collector->no_memory && x >= 0; i++) {
        struct ls_series *series = &collector->series[i];
        bool has = ls_record_number(record, collector->y_keys[i], &y);
        if (event && !has) /* it may come late: steps went on while a checkpoint was saved */
            continue;
        while (series->count &&
               (series->x[series->count - 1] > x || (has && series->x[series->count - 1] == x)))
            series->count--;
        if (has)
            collector->no_memory = !series_add(series, &collector->room[i], x, y);
    }
}

int ls_series_read(struct ls_series *series, const char *path, const char *x_key,
                   const char *const *y_keys, int count, struct ls_error *error)
{
    LS_ASSERT(count <= LS_SERIES_MAX);
    struct collector collector = {series, x_key, y_keys, count, {0}, false};
    bool torn;
    for (int i = 0; i < count; i++)
        series[i] = (struct ls_series){0};
    int status = ls_jsonl_each(path, collect, &collector, &torn, error);
    if (!status && collector.no_memory)
        status = ls_error_set(error, LS_ENOMEM, "%s: no memory for its points", path);
    for (int i = 0; i < count && status; i++)
        ls_series_release(&series[i]);
    return status;
}

void ls_series_release(struct ls_series *series)
{
    free(series->x);
    free(series->y);
    *series = (struct ls_series){0};
}
