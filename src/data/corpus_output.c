/* What a corpus tool writes: one file, or a folder of parts that a stopped job goes on with. */
#include "data/corpus_private.h"

#include <lockstep/base/json.h>
#include <lockstep/base/temporary.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- reading --------------------------------------------------------------------------------- */

static int note_bad(void *user, const struct ls_error *why, struct ls_error *error)
{
    struct data_reading *reading = user;
    (void)error;
    ++*reading->skipped;
    if (reading->config->skipped)
        reading->config->skipped(reading->config->user, why->text);
    return LS_OK;
}

int data_reading_open(struct data_reading *reading, struct data_corpus **out,
                      struct ls_error *error)
{
    const struct ls_corpus_config *config = reading->config;
    const struct data_corpus_config corpus = {.inputs = config->inputs,
                                              .count = config->inputs_count,
                                              .json_key =
                                                  config->json_key ? config->json_key : "text",
                                              .bad = config->skip_bad ? note_bad : NULL,
                                              .user = reading,
                                              .keep_lines = reading->keep_lines,
                                              .lines_alone = reading->lines_alone};
    *out = NULL;
    if (config->inputs_count < 1)
        return ls_error_set(error, LS_EINVAL, "no input; name files or folders");
    if (config->workers < 1 || config->workers > 1024)
        return ls_error_set(error, LS_EINVAL, "%d workers; expected 1 to 1024", config->workers);
    return data_corpus_open(&corpus, out, error);
}

struct line {
    const char *key;
    const struct ls_text *text;
};

static int write_line(const void *context, FILE *file, struct ls_error *error)
{
    const struct line *line = context;
    (void)error;
    fputc('{', file);
    ls_json_string(file, line->key, strlen(line->key));
    fputs(": ", file);
    ls_json_string(file, line->text->bytes, line->text->count);
    fputc('}', file);
    return LS_OK;
}

int data_jsonl_line(const char *key, const struct ls_text *text, struct ls_text *line,
                    struct ls_error *error)
{
    char *bytes;
    size_t count;
    int status = ls_text_write(write_line, &(struct line){key, text}, &bytes, &count, error);
    if (!status)
        status = data_text_put(line, bytes, count, error);
    free(bytes);
    return status;
}

/* Appends the document's record: JSONL's own line, or {"KEY": text} of a file. */
static int document_put(const struct data_document *document, const char *key,
                        struct ls_atomic_file *file, struct ls_error *error)
{
    struct ls_text made = {0};
    const struct ls_text *line = &document->line;
    if (line->count == 0) {
        int status = data_jsonl_line(key ? key : "text", &document->text, &made, error);
        line = &made;
        if (status)
            return status;
    }
    ls_atomic_file_write(file, line->bytes, line->count);
    ls_atomic_file_write(file, "\n", 1);
    ls_text_release(&made);
    return file->error.code ? ls_error_copy(error, file->error.code, &file->error) : LS_OK;
}

/* ---- what is read ---------------------------------------------------------------------------- */

static int spare_corpus(const void *of, const char *path, struct ls_error *error)
{
    return data_corpus_spare(of, path, error);
}

static int list_corpus(const void *of, FILE *file, struct ls_error *error)
{
    const struct data_corpus *corpus = of;
    (void)error;
    for (size_t i = 0; i < data_corpus_paths(corpus); i++)
        data_job_input(file, data_corpus_path(corpus, i),
                       data_corpus_is_jsonl(corpus, i) ? "JSONL" : "text");
    return LS_OK;
}

static const char *pipe_of_corpus(const void *of)
{
    const struct data_corpus *corpus = of;
    struct stat file;
    for (size_t i = 0; i < data_corpus_paths(corpus); i++)
        if (stat(data_corpus_path(corpus, i), &file) == 0 && !S_ISREG(file.st_mode))
            return data_corpus_path(corpus, i);
    return NULL;
}

struct data_inputs data_corpus_inputs(const struct data_corpus *corpus)
{
    return (struct data_inputs){corpus, spare_corpus, list_corpus, pipe_of_corpus};
}

/* ---- writing --------------------------------------------------------------------------------- */

static int open_file(struct ls_atomic_file *file, bool *open, const char *path,
                     const struct data_inputs *inputs, struct ls_error *error)
{
    if (ls_path_ends(path, ".gz") || ls_path_ends(path, ".zst"))
        return ls_error_set(error, LS_EINVAL,
                            "%.300s: what is written is not packed, and would be refused by that "
                            "name: expected a name without .gz and .zst, or - for a pipe to gzip",
                            path);
    int status = inputs->spare(inputs->of, path, error);
    if (!status)
        status = ls_atomic_file_open(file, path, NULL, error);
    if (!status)
        ls_atomic_file_hold(file);
    *open = !status;
    return status;
}

/* Both names are of one file: the documents and the list would be written over each other. */
static int apart(const struct data_corpus_output *output, const char *list, struct ls_error *error)
{
    struct stat kept, removed;
    bool same = !fstat(output->kept.fd, &kept) && !fstat(output->removed.fd, &removed) &&
                S_ISREG(kept.st_mode) && kept.st_ino == removed.st_ino &&
                kept.st_dev == removed.st_dev;
    return same ? ls_error_set(error, LS_EINVAL,
                               "%.300s: the list of what is removed and the output are one file; "
                               "nothing was written: choose another name for one of them",
                               list)
                : LS_OK;
}

static int open_folder(struct data_corpus_output *output, const char *job, struct ls_error *error)
{
    const struct ls_corpus_config *config = output->config;
    char *what;
    if (asprintf(&what, DATA_JOB_BEGINS "%s\nkey %s\npart documents %lld\nbad records %s\n", job,
                 config->json_key ? config->json_key : "text",
                 (long long)output->folder.part_documents,
                 config->skip_bad ? "skipped" : "stop") < 0)
        return ls_no_memory(error, "to write %s", config->output);
    int status = data_folder_open(&output->folder, ".jsonl", what, &output->inputs, error);
    free(what);
    return status;
}

int data_corpus_output_open(struct data_corpus_output *output,
                            const struct ls_corpus_config *config, const struct data_inputs *inputs,
                            const char *list, const char *job, int64_t *skip,
                            struct ls_error *error)
{
    struct stat at;
    int64_t documents = config->part_documents ? config->part_documents : LS_PART_DOCUMENTS;
    bool folder = ls_path_ends(config->output, "/") ||
                  (stat(config->output, &at) == 0 && S_ISDIR(at.st_mode));
    *output = (struct data_corpus_output){
        .config = config,
        .inputs = *inputs,
        .folder = {.path = folder ? config->output : NULL, .part_documents = documents},
        .removes = true};
    *skip = 0;
    if (documents < 1)
        return ls_error_set(error, LS_EINVAL, "parts of %lld documents", (long long)documents);
    if (folder && list)
        return ls_error_set(error, LS_EINVAL,
                            "%.300s: a folder has its own lists, NNNNNN.removed.jsonl; another one "
                            "goes with an output that is a file",
                            config->output);
    int status;
    if (folder) {
        status = open_folder(output, job, error);
        *skip = output->folder.parts * documents;
    } else {
        status = open_file(&output->kept, &output->kept_open, config->output, inputs, error);
        if (!status && list)
            status = open_file(&output->removed, &output->removed_open, list, inputs, error);
        if (!status && list)
            status = apart(output, list, error);
    }
    return status;
}

int data_corpus_output_commit(struct data_corpus_output *output, struct ls_error *error)
{
    int status = output->removed_open ? ls_atomic_file_commit(&output->removed, error) : LS_OK;
    output->removed_open = false;
    if (!status && output->kept_open) {
        status = ls_atomic_file_commit(&output->kept, error);
        output->kept_open = false;
    }
    return status;
}

void data_corpus_output_release(struct data_corpus_output *output)
{
    if (output->removed_open)
        ls_atomic_file_abort(&output->removed);
    if (output->kept_open)
        ls_atomic_file_abort(&output->kept);
    ls_lock_release(&output->folder.lock);
    output->kept_open = output->removed_open = false;
}

/* The part that is open is whole, and another one begins. */
static int next_part(struct data_corpus_output *output, int64_t part, struct ls_error *error)
{
    char path[PATH_MAX];
    int status = data_corpus_output_commit(output, error);
    if (!status)
        status = data_folder_part(&output->folder, part, ".jsonl", path, error);
    if (!status)
        status = open_file(&output->kept, &output->kept_open, path, &output->inputs, error);
    if (!status && output->removes)
        status = data_folder_part(&output->folder, part, DATA_REMOVED_JSONL, path, error);
    if (!status && output->removes)
        status = open_file(&output->removed, &output->removed_open, path, &output->inputs, error);
    return status;
}

struct removal {
    const struct data_corpus_output *output;
    const struct data_document *document;
    ls_writer *why;
    const void *context;
};

static int write_removal(const void *context, FILE *file, struct ls_error *error)
{
    const struct removal *removal = context;
    char place[PATH_MAX + 32];
    data_place_text(removal->output->inputs.of, removal->document->place, place);
    fprintf(file, "{\"number\": %lld, \"document\": ", (long long)removal->document->number);
    ls_json_string(file, place, strlen(place));
    return removal->why(removal->context, file, error);
}

int data_corpus_output_put(struct data_corpus_output *output, const struct data_document *document,
                           ls_writer *why, const void *context, struct ls_error *error)
{
    const struct removal removal = {output, document, why, context};
    char *line = NULL;
    size_t bytes;
    if (data_folder_has(&output->folder, document->number))
        return LS_OK;
    int64_t part = data_folder_begins(&output->folder, document->number);
    int status = part < 0 ? LS_OK : next_part(output, part, error);
    if (!status && !why)
        return document_put(document, output->config->json_key, &output->kept, error);
    if (!status && output->removed_open)
        status = ls_text_write(write_removal, &removal, &line, &bytes, error);
    if (line && ls_atomic_file_write(&output->removed, line, bytes))
        status = ls_error_copy(error, output->removed.error.code, &output->removed.error);
    free(line);
    return status;
}
