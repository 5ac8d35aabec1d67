/* Documents of files and folders: one a file, or one a line of JSONL. */
#include "data/data_private.h"

#include <lockstep/base/meter.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FOLDERS_DEEP_MAX = 64,
    LINE_READ_BYTES = 1 << 18,
    LINE_BYTES_MAX = 256 << 20, /* a record is held whole, and parsed: no text is that long */
    LOOK_BYTES_MAX = 16 << 20,  /* of a text, to see whether it is records */
};

struct data_corpus {
    struct input {
        char *path;
        const char *given;                         /* by the caller: the file, or a folder above */
        enum as { BY_NAME, AS_JSONL, AS_TEXT } as; /* what is in it */
    } * inputs;
    int64_t paths_count, paths_room;
    size_t at; /* input that is open, or comes next */
    struct data_corpus_config config;
    struct data_source *source; /* NULL: none is open */
    int64_t bytes_read;         /* of all sources */
    bool is_jsonl;
    struct ls_text lines; /* JSONL: bytes read; [lines_at, count) not yet used */
    size_t lines_at;
    bool lines_end;  /* the source has no more */
    bool text_begun; /* not JSONL: some of it was read */
    long long line_number;
    struct data_found found;
};

/* ---- which files ---------------------------------------------------------------------------- */

/* Takes path over. */
static int add_path(struct data_corpus *corpus, char *path, const char *given, enum as as,
                    struct ls_error *error)
{
    if (!ls_list_grow(&corpus->inputs, corpus->paths_count, &corpus->paths_room,
                      sizeof *corpus->inputs)) {
        free(path);
        return ls_no_memory(error, "for the list of input files");
    }
    corpus->inputs[corpus->paths_count++] = (struct input){path, given, as};
    return LS_OK;
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* strcoll, which alphasort uses, would make the order depend on the user's language. */
static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

struct folder {
    dev_t device;
    ino_t inode;
    int depth;
    enum as as;
    const char *given;          /* by the user: this one, or one above */
    const struct folder *above; /* NULL: it is that */
};
static int add_folder(struct data_corpus *corpus, const char *path, struct folder folder,
                      struct ls_error *error);

static int absent(const char *path, struct ls_error *error)
{
    char hint[512];
    int failure = errno;
    ls_path_hint(path, NULL, hint, sizeof hint);
    int status = ls_error_errno(error, failure, "input %.400s", path);
    ls_error_suffix(error, "%s", hint);
    return status;
}

/* jsonl:PATH and text:PATH say what is in it. */
static enum as as_marked(const char **path)
{
    static const char *const marks[] = {[AS_JSONL] = "jsonl:", [AS_TEXT] = "text:"};
    for (int as = AS_JSONL; as <= AS_TEXT; as++)
        if (strncmp(*path, marks[as], strlen(marks[as])) == 0) {
            *path += strlen(marks[as]);
            return (enum as)as;
        }
    return BY_NAME;
}

/* Whether a name ends so, packed or not; compare is strncmp, or strncasecmp for letters of any
 * case. */
static bool is_named(const char *path, const char *ending,
                     int (*compare)(const char *, const char *, size_t))
{
    size_t packing = ls_path_ends(path, ".gz") ? 3 : ls_path_ends(path, ".zst") ? 4 : 0;
    size_t length = strlen(path) - packing, tail = strlen(ending);
    return length >= tail && !compare(path + length - tail, ending, tail);
}

struct advice {
    char text[360];
};
static struct advice as_text(const char *path, const char *given)
{
    struct advice out;
    snprintf(out.text, sizeof out.text, "text:%.300s takes %s", given,
             strcmp(path, given) != 0 ? "all its files as texts" : "it as one text");
    return out;
}

/* A table would be one document of commas. */
static int table_refuse(const char *path, const char *given, struct ls_error *error)
{
    if (!is_named(path, ".csv", strncasecmp) && !is_named(path, ".tsv", strncasecmp))
        return LS_OK;
    return ls_error_set(error, LS_EDATA,
                        "input %.300s: a table, by its name: expected text, or JSON lines in a "
                        "file NAME.jsonl; %s",
                        path, as_text(path, given).text);
}

/* in: the folder that it lies in; NULL: given by the user, so it must be there, may have a mark,
 * and may be "-". */
static int add_input(struct data_corpus *corpus, const char *path, const struct folder *in,
                     struct ls_error *error)
{
    struct stat file;
    enum as as = in ? in->as : as_marked(&path);
    if (!in && strcmp(path, "-") == 0)
        path = "/dev/stdin";
    const char *given = in ? in->given : path;
    if (stat(path, &file) != 0)
        return absent(path, error);
    if (S_ISDIR(file.st_mode) && as == AS_JSONL)
        return ls_error_set(error, LS_EINVAL, "input jsonl:%.400s: expected a file, not a folder",
                            path);
    if (S_ISDIR(file.st_mode))
        return add_folder(
            corpus, path,
            (struct folder){file.st_dev, file.st_ino, in ? in->depth + 1 : 0, as, given, in},
            error);
    if (in && !S_ISREG(file.st_mode))
        return LS_OK;
    int status = as == BY_NAME ? table_refuse(path, given, error) : LS_OK;
    if (status)
        return status;
    char *copy = strdup(path);
    if (!copy)
        return ls_no_memory(error, "for the list of input files");
    return add_path(corpus, copy, given, as, error);
}

/* Links are followed, but not one that leads back to a folder above it. */
static int add_folder(struct data_corpus *corpus, const char *path, struct folder folder,
                      struct ls_error *error)
{
    for (const struct folder *above = folder.above; above; above = above->above)
        if (above->device == folder.device && above->inode == folder.inode)
            return LS_OK;
    if (folder.depth > FOLDERS_DEEP_MAX)
        return ls_error_set(error, LS_EDATA, "input %s: folders are nested more than %d deep", path,
                            FOLDERS_DEEP_MAX);
    struct dirent **entries;
    int count = scandir(path, &entries, visible, by_bytes), status = LS_OK;
    if (count < 0)
        return ls_error_errno(error, errno, "input %s", path);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        char *inside = NULL;
        if (!status && asprintf(&inside, "%s/%s", path, name) < 0) {
            inside = NULL;
            status = ls_no_memory(error, "for the list of input files");
        }
        if (!status && !data_folder_tells(path, name))
            status = add_input(corpus, inside, &folder, error);
        free(inside);
        free(entries[i]);
    }
    free(entries);
    return status;
}

int data_corpus_open(const struct data_corpus_config *config, struct data_corpus **out,
                     struct ls_error *error)
{
    *out = NULL;
    struct data_corpus *corpus = calloc(1, sizeof *corpus);
    if (!corpus)
        return ls_no_memory(error, "to read a corpus");
    corpus->config = *config;
    int status = LS_OK;
    for (int i = 0; i < config->count && !status; i++)
        status = add_input(corpus, config->inputs[i], NULL, error);
    if (status) {
        data_corpus_close(corpus);
        return status;
    }
    *out = corpus;
    return LS_OK;
}

void data_corpus_close(struct data_corpus *corpus)
{
    if (!corpus)
        return;
    data_source_close(corpus->source);
    for (int64_t i = 0; i < corpus->paths_count; i++)
        free(corpus->inputs[i].path);
    free(corpus->inputs);
    ls_text_release(&corpus->lines);
    ls_text_release(&corpus->found.line);
    free(corpus->found.spans.list);
    free(corpus);
}

int data_corpus_spare(const struct data_corpus *corpus, const char *path, struct ls_error *error)
{
    if (access(path, F_OK) != 0)
        return LS_OK;
    for (int64_t i = 0; i < corpus->paths_count; i++)
        if (data_same_file(corpus->inputs[i].path, path))
            return ls_error_set(error, LS_EINVAL,
                                "input %.400s is the output %.400s, which would replace it; "
                                "nothing was written: choose another output, or other inputs",
                                corpus->inputs[i].path, path);
    return LS_OK;
}

/* ---- what is in them ------------------------------------------------------------------------ */

/* Bytes that the source has next, for all to see how far it is. */
static int source_read(struct data_corpus *corpus, char *out, size_t want, size_t *got,
                       struct ls_error *error)
{
    int status = data_source_read(corpus->source, out, want, got, error);
    if (status)
        return status;
    corpus->bytes_read += (int64_t)*got;
    ls_meter("MB read", corpus->bytes_read / 1000000, 0);
    return LS_OK;
}

static const char white[] = {' ', '\t', '\r', '\n'};

/* Whether the first two lines of a text are JSON objects. */
static bool is_records(const char *text, size_t length)
{
    struct ls_text line = {0};
    int records = 0;
    while (records < 2 && length > 0) {
        const char *end = memchr(text, '\n', length);
        size_t here = end ? (size_t)(end - text) : length;
        line.count = 0;
        if (data_text_put(&line, text, here, NULL) || data_record_check(line.bytes, here, NULL))
            break;
        records++;
        text += here + (end ? 1 : 0);
        length -= here + (end ? 1 : 0);
    }
    ls_text_release(&line);
    return records == 2;
}

/* Whether a text begins as a list of JSON objects does. */
static bool is_list(const char *text, size_t length)
{
    static const char begin[] = "[{\"";
    size_t seen = 0;
    for (size_t at = 0; at < length && begin[seen]; at++) {
        if (text[at] == begin[seen])
            seen++;
        else if (!memchr(white, text[at], sizeof white))
            return false;
    }
    return !begin[seen];
}

/* Whether what was read of a text is too short to see whether it is records. */
static bool is_short(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length && memchr(white, text[at], sizeof white))
        at++;
    if (length >= LOOK_BYTES_MAX || (at < length && text[at] != '{' && text[at] != '['))
        return false;
    const char *end = memchr(text, '\n', length);
    return !end || !memchr(end + 1, '\n', length - (size_t)(end + 1 - text));
}

static bool is_utf16(const char *text, size_t length)
{
    return length >= 2 && (!memcmp(text, "\xff\xfe", 2) || !memcmp(text, "\xfe\xff", 2));
}

/* Data sets lie in files NAME.json.gz too, which as texts would be a document each. */
static int text_check(const struct input *input, const char *text, size_t length,
                      struct ls_error *error)
{
    const char *path = input->path;
    if (is_utf16(text, length))
        return ls_error_set(error, LS_EDATA,
                            "%.300s: UTF-16: expected UTF-8: iconv -f UTF-16 -t UTF-8 converts it",
                            path);
    if (input->as == AS_TEXT)
        return LS_OK;
    if (is_list(text, length))
        return ls_error_set(error, LS_EDATA,
                            "%.300s: a list of JSON objects, of which all would be one document: "
                            "expected a file NAME.jsonl with one object a line: jq -c '.[]' "
                            "converts it; %s",
                            path, as_text(path, input->given).text);
    if (!is_records(text, length))
        return LS_OK;
    return ls_error_set(error, LS_EDATA,
                        "%.300s: its lines are JSON objects, but its name does not end in .jsonl, "
                        ".jsonl.gz or .jsonl.zst, so all of it would be one document: rename it, "
                        "or give jsonl:%.300s; %s",
                        path, path, as_text(path, input->given).text);
}

static int read_text(struct data_corpus *corpus, size_t want, struct ls_text *out,
                     enum data_part *part, struct ls_error *error)
{
    const size_t begin = out->count;
    const bool first = !corpus->text_begun;
    size_t got = 0;
    int status = LS_OK;
    corpus->text_begun = true;
    do {
        status = data_text_reserve(out, want, error);
        if (!status)
            status = source_read(corpus, out->bytes + out->count, want, &got, error);
        if (status)
            return status;
        out->count += got;
    } while (first && got > 0 && is_short(out->bytes + begin, out->count - begin));
    *part = out->count > begin ? DATA_MORE : DATA_DOCUMENT_END;
    return first ? text_check(&corpus->inputs[corpus->at], out->bytes + begin, out->count - begin,
                              error)
                 : LS_OK;
}

/* Appends what the source has next to lines; lines_end where that was all. */
static int lines_read(struct data_corpus *corpus, struct ls_error *error)
{
    struct ls_text *lines = &corpus->lines;
    size_t got;
    int status = data_text_reserve(lines, LINE_READ_BYTES, error);
    if (!status)
        status = source_read(corpus, lines->bytes + lines->count, LINE_READ_BYTES, &got, error);
    if (status)
        return status;
    lines->count += got;
    corpus->lines_end = got == 0;
    return LS_OK;
}

/* *line is the next line, borrowed until the next call; NULL with *length 0 at the end, and NULL
 * with another length for a line that is too long, of which nothing is kept. */
static int next_line(struct data_corpus *corpus, char **line, size_t *length,
                     struct ls_error *error)
{
    struct ls_text *lines = &corpus->lines;
    size_t searched = 0; /* of the bytes behind lines_at: no line ends there */
    bool too_long = false;
    for (;;) {
        char *begin = lines->bytes + corpus->lines_at;
        size_t left = lines->count - corpus->lines_at;
        char *end = left > searched ? memchr(begin + searched, '\n', left - searched) : NULL;
        if (end || corpus->lines_end) {
            *length = end ? (size_t)(end - begin) : left;
            corpus->lines_at += *length + (end ? 1 : 0);
            corpus->line_number++;
            *line = (end || left > 0) && !too_long ? begin : NULL;
            *length = too_long ? SIZE_MAX : *length;
            return LS_OK;
        }
        if (left > LINE_BYTES_MAX) {
            too_long = true;
            corpus->lines_at = lines->count;
            left = 0;
            begin = lines->bytes + lines->count;
        }
        searched = left;
        if (corpus->lines_at > 0) {
            memmove(lines->bytes, begin, left);
            lines->count = left;
            corpus->lines_at = 0;
        }
        int status = lines_read(corpus, error);
        if (status)
            return status;
    }
}

static bool blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r", line[i]) || line[i] == 0)
            return false;
    return true;
}

/* Reading a record changes its line. */
static int keep_line(struct data_corpus *corpus, const char *line, size_t length,
                     struct ls_error *error)
{
    corpus->found.line.count = 0;
    if (!corpus->config.keep_lines)
        return LS_OK;
    while (length > 0 && line[length - 1] == '\r')
        length--;
    return data_text_put(&corpus->found.line, line, length, error);
}

static int read_record(struct data_corpus *corpus, char *line, size_t length, struct ls_text *out,
                       struct ls_error *error)
{
    const struct data_corpus_config *config = &corpus->config;
    int status = keep_line(corpus, line, length, error);
    corpus->found.weight = 1;
    if (!status && config->weight_key)
        status = data_record_weight(line, length, config->weight_key, &corpus->found.weight, error);
    if (status)
        return status;
    if (config->records == LS_RECORDS_CHAT)
        return data_record_chat(line, length, config->chat, out, &corpus->found.spans, error);
    if (config->records == LS_RECORDS_PAIRS)
        return data_record_pair(line, length, out, &corpus->found.spans, error);
    if (config->lines_alone) /* most are plain, which is soon seen */
        return data_record_plain(line, length, config->json_key, out)
                   ? LS_OK
                   : data_record_check(line, length, error);
    return data_record_text(line, length, config->json_key, out, error);
}

/* The record of a line; a bad one that is passed over leaves *taken false. */
static int take_record(struct data_corpus *corpus, char *line, size_t length, bool *taken,
                       struct ls_text *out, struct ls_error *error)
{
    const struct data_corpus_config *config = &corpus->config;
    struct ls_error why = {0};
    int status = line ? read_record(corpus, line, length, out, &why)
                      : ls_error_set(&why, LS_EDATA,
                                     "a line of more than %d MiB: expected one JSON object a line",
                                     LINE_BYTES_MAX >> 20);
    *taken = status == LS_OK;
    if (status == LS_OK)
        return LS_OK;
    ls_error_at(&why, corpus->inputs[corpus->at].path, corpus->line_number, 0);
    if (status == LS_EDATA && config->bad)
        return config->bad(config->user, &why, error);
    if (status == LS_EDATA)
        ls_error_suffix(&why, " (use --on-error skip to skip bad records)");
    return ls_error_copy(error, status, &why);
}

/* One document, or DATA_CORPUS_END at the end of this file. */
static int read_jsonl(struct data_corpus *corpus, struct ls_text *out, enum data_part *part,
                      struct ls_error *error)
{
    char *line;
    size_t length;
    for (bool taken = false; !taken;) {
        int status = next_line(corpus, &line, &length, error);
        if (!status && !line && length == 0) {
            *part = DATA_CORPUS_END;
            return LS_OK;
        }
        if (!status && line && blank(line, length))
            continue;
        if (!status)
            status = take_record(corpus, line, length, &taken, out, error);
        if (status)
            return status;
    }
    *part = DATA_DOCUMENT_END;
    return LS_OK;
}

/* A byte order mark, as some editors put before a file. */
static int skip_mark(struct data_corpus *corpus, struct ls_error *error)
{
    static const char mark[] = "\xef\xbb\xbf";
    struct ls_text *lines = &corpus->lines;
    while (lines->count < sizeof mark - 1 && !corpus->lines_end) {
        int status = lines_read(corpus, error);
        if (status)
            return status;
    }
    if (lines->count >= sizeof mark - 1 && memcmp(lines->bytes, mark, sizeof mark - 1) == 0)
        corpus->lines_at = sizeof mark - 1;
    return LS_OK;
}

static void next_file(struct data_corpus *corpus)
{
    data_source_close(corpus->source);
    corpus->source = NULL;
    corpus->at++;
}

int data_corpus_read(struct data_corpus *corpus, size_t want, struct ls_text *out,
                     enum data_part *part, struct ls_error *error)
{
    while ((int64_t)corpus->at < corpus->paths_count) {
        if (!corpus->source) {
            int status = data_source_open(corpus->inputs[corpus->at].path, &corpus->source, error);
            if (status)
                return status;
            corpus->is_jsonl = data_corpus_is_jsonl(corpus, corpus->at);
            if (!corpus->is_jsonl && corpus->config.records != LS_RECORDS_TEXT)
                return ls_error_set(error, LS_EDATA,
                                    "%.300s: expected examples, one JSON object a line, in a file "
                                    "NAME.jsonl",
                                    corpus->inputs[corpus->at].path);
            corpus->lines.count = corpus->lines_at = 0;
            corpus->lines_end = corpus->text_begun = false;
            corpus->line_number = 0;
            corpus->found.line.count = 0;
            status = corpus->is_jsonl ? skip_mark(corpus, error) : LS_OK;
            if (status)
                return status;
        }
        corpus->found.place.path = corpus->at;
        corpus->found.weight = 1;
        int status = corpus->is_jsonl ? read_jsonl(corpus, out, part, error)
                                      : read_text(corpus, want, out, part, error);
        if (status)
            return status;
        corpus->found.place.line = corpus->is_jsonl ? corpus->line_number : 0;
        bool file_end = *part == (corpus->is_jsonl ? DATA_CORPUS_END : DATA_DOCUMENT_END);
        if (file_end)
            next_file(corpus);
        if (!file_end || !corpus->is_jsonl || (int64_t)corpus->at == corpus->paths_count)
            return LS_OK;
    }
    *part = DATA_CORPUS_END;
    return LS_OK;
}

const struct data_found *data_corpus_found(const struct data_corpus *corpus)
{
    return &corpus->found;
}

size_t data_corpus_paths(const struct data_corpus *corpus)
{
    return (size_t)corpus->paths_count;
}

const char *data_corpus_path(const struct data_corpus *corpus, size_t index)
{
    return corpus->inputs[index].path;
}

bool data_corpus_is_jsonl(const struct data_corpus *corpus, size_t index)
{
    const struct input *input = &corpus->inputs[index];
    return input->as == AS_JSONL ||
           (input->as == BY_NAME && is_named(input->path, ".jsonl", strncmp));
}
