/* Documents of files and folders: one a file, or one a line of JSONL. */
#include "data/private.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FOLDERS_DEEP_MAX = 64, LINE_READ_BYTES = 1 << 18 };

struct data_corpus {
    char **paths;
    size_t paths_count, paths_capacity;
    size_t at; /* path that is open, or comes next */
    const char *json_key;
    struct data_source *source; /* NULL: none is open */
    bool is_jsonl;
    struct ls_text lines; /* JSONL: bytes read; [lines_at, count) not yet used */
    size_t lines_at;
    bool lines_end; /* the source has no more */
    long long line_number;
};

/* ---- which files ---------------------------------------------------------------------------- */

/* Takes path over. */
static int add_path(struct data_corpus *corpus, char *path, struct ls_error *error)
{
    if (corpus->paths_count == corpus->paths_capacity) {
        size_t capacity = corpus->paths_capacity ? 2 * corpus->paths_capacity : 64;
        char **paths = realloc(corpus->paths, capacity * sizeof *paths);
        if (!paths) {
            free(path);
            return ls_error_set(error, LS_ENOMEM, "no memory for the list of input files");
        }
        corpus->paths = paths;
        corpus->paths_capacity = capacity;
    }
    corpus->paths[corpus->paths_count++] = path;
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

static int add_folder(struct data_corpus *corpus, const char *folder, int depth,
                      struct ls_error *error);

/* named: given by the user, so it must be there. Links to folders are followed only then: within a
 * folder they may lead round in circles. */
static int add_input(struct data_corpus *corpus, const char *path, bool named, int depth,
                     struct ls_error *error)
{
    struct stat status, link;
    if (stat(path, &status) != 0 || lstat(path, &link) != 0)
        return ls_error_errno(error, errno, "input %s", path);
    if (S_ISDIR(status.st_mode))
        return named || !S_ISLNK(link.st_mode) ? add_folder(corpus, path, depth, error) : LS_OK;
    if (!named && !S_ISREG(status.st_mode))
        return LS_OK;
    char *copy = strdup(path);
    if (!copy)
        return ls_error_set(error, LS_ENOMEM, "no memory for the list of input files");
    return add_path(corpus, copy, error);
}

static int add_folder(struct data_corpus *corpus, const char *folder, int depth,
                      struct ls_error *error)
{
    if (depth > FOLDERS_DEEP_MAX)
        return ls_error_set(error, LS_EDATA, "input %s: folders lie more than %d deep", folder,
                            FOLDERS_DEEP_MAX);
    struct dirent **entries;
    int count = scandir(folder, &entries, visible, by_bytes), rc = LS_OK;
    if (count < 0)
        return ls_error_errno(error, errno, "input %s", folder);
    for (int i = 0; i < count; i++) {
        char *path = NULL;
        if (!rc && asprintf(&path, "%s/%s", folder, entries[i]->d_name) < 0) {
            path = NULL;
            rc = ls_error_set(error, LS_ENOMEM, "no memory for the list of input files");
        }
        if (!rc)
            rc = add_input(corpus, path, false, depth + 1, error);
        free(path);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

int data_corpus_open(const char *const *inputs, int count, const char *json_key,
                     struct data_corpus **out, struct ls_error *error)
{
    *out = NULL;
    struct data_corpus *corpus = calloc(1, sizeof *corpus);
    if (!corpus)
        return ls_error_set(error, LS_ENOMEM, "no memory to read a corpus");
    corpus->json_key = json_key;
    int rc = LS_OK;
    for (int i = 0; i < count && !rc; i++)
        rc = add_input(corpus, inputs[i], true, 0, error);
    if (rc) {
        data_corpus_close(corpus);
        return rc;
    }
    *out = corpus;
    return LS_OK;
}

void data_corpus_close(struct data_corpus *corpus)
{
    if (!corpus)
        return;
    data_source_close(corpus->source);
    for (size_t i = 0; i < corpus->paths_count; i++)
        free(corpus->paths[i]);
    free(corpus->paths);
    ls_text_release(&corpus->lines);
    free(corpus);
}

/* ---- what is in them ------------------------------------------------------------------------ */

static bool named_jsonl(const char *path)
{
    static const char *const suffixes[] = {".jsonl", ".jsonl.gz", ".jsonl.zst"};
    size_t length = strlen(path);
    for (int i = 0; i < 3; i++) {
        size_t tail = strlen(suffixes[i]);
        if (length >= tail && strcmp(path + length - tail, suffixes[i]) == 0)
            return true;
    }
    return false;
}

static int read_text(struct data_corpus *corpus, size_t want, struct ls_text *out,
                     enum data_part *part, struct ls_error *error)
{
    size_t got;
    int rc = data_text_reserve(out, want, error);
    if (!rc)
        rc = data_source_read(corpus->source, out->bytes + out->count, want, &got, error);
    if (rc)
        return rc;
    out->count += got;
    *part = got > 0 ? DATA_MORE : DATA_DOCUMENT_END;
    return LS_OK;
}

/* *line is the next line, borrowed until the next call; NULL at the end. */
static int next_line(struct data_corpus *corpus, const char **line, size_t *length,
                     struct ls_error *error)
{
    struct ls_text *lines = &corpus->lines;
    size_t searched = 0; /* of the bytes behind lines_at: no line ends there */
    for (;;) {
        char *begin = lines->bytes + corpus->lines_at;
        size_t left = lines->count - corpus->lines_at;
        char *end = left > searched ? memchr(begin + searched, '\n', left - searched) : NULL;
        if (end || corpus->lines_end) {
            *line = left > 0 ? begin : NULL;
            *length = end ? (size_t)(end - begin) : left;
            corpus->lines_at += *length + (end ? 1 : 0);
            corpus->line_number++;
            return LS_OK;
        }
        searched = left;
        if (corpus->lines_at > 0) {
            memmove(lines->bytes, begin, left);
            lines->count = left;
            corpus->lines_at = 0;
        }
        size_t got;
        int rc = data_text_reserve(lines, LINE_READ_BYTES, error);
        if (!rc)
            rc = data_source_read(corpus->source, lines->bytes + lines->count, LINE_READ_BYTES,
                                  &got, error);
        if (rc)
            return rc;
        lines->count += got;
        corpus->lines_end = got == 0;
    }
}

static int json_text(struct data_corpus *corpus, const char *line, size_t length,
                     struct ls_text *out, struct ls_error *error)
{
    const char *path = corpus->paths[corpus->at];
    json_error_t where;
    json_t *root = json_loadb(line, length, JSON_ALLOW_NUL, &where);
    if (!root)
        return ls_error_set(error, LS_EDATA,
                            "%s:%lld: column %d: %s; expected one JSON object a line", path,
                            corpus->line_number, where.column, where.text);
    json_t *text = json_object_get(root, corpus->json_key);
    int rc = LS_OK;
    if (!json_is_string(text))
        rc =
            ls_error_set(error, LS_EDATA,
                         "%s:%lld: no string under the key \"%s\"; expected one JSON object a line "
                         "with the text under that key",
                         path, corpus->line_number, corpus->json_key);
    if (!rc)
        rc = data_text_reserve(out, json_string_length(text), error);
    if (!rc && json_string_length(text) > 0) {
        memcpy(out->bytes + out->count, json_string_value(text), json_string_length(text));
        out->count += json_string_length(text);
    }
    json_decref(root);
    return rc;
}

static bool blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r", line[i]) || line[i] == 0)
            return false;
    return true;
}

/* One document, or DATA_CORPUS_END at the end of this file. */
static int read_jsonl(struct data_corpus *corpus, struct ls_text *out, enum data_part *part,
                      struct ls_error *error)
{
    const char *line;
    size_t length;
    do {
        int rc = next_line(corpus, &line, &length, error);
        if (rc)
            return rc;
    } while (line && blank(line, length));
    *part = line ? DATA_DOCUMENT_END : DATA_CORPUS_END;
    return line ? json_text(corpus, line, length, out, error) : LS_OK;
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
    while (corpus->at < corpus->paths_count) {
        if (!corpus->source) {
            int rc = data_source_open(corpus->paths[corpus->at], &corpus->source, error);
            if (rc)
                return rc;
            corpus->is_jsonl = named_jsonl(corpus->paths[corpus->at]);
            corpus->lines.count = corpus->lines_at = 0;
            corpus->lines_end = false;
            corpus->line_number = 0;
        }
        int rc = corpus->is_jsonl ? read_jsonl(corpus, out, part, error)
                                  : read_text(corpus, want, out, part, error);
        if (rc)
            return rc;
        bool file_end = *part == (corpus->is_jsonl ? DATA_CORPUS_END : DATA_DOCUMENT_END);
        if (file_end)
            next_file(corpus);
        if (!file_end || !corpus->is_jsonl || corpus->at == corpus->paths_count)
            return LS_OK;
    }
    *part = DATA_CORPUS_END;
    return LS_OK;
}
