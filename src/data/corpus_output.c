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
                                              .keep_lines = reading->keep_lines};
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
    fputs("}\n", file);
    return LS_OK;
}

int data_jsonl_put(struct ls_atomic_file *file, const char *key, const struct ls_text *text,
                   struct ls_error *error)
{
    char *bytes;
    size_t count;
    int status = ls_text_write(write_line, &(struct line){key, text}, &bytes, &count, error);
    if (!status && ls_atomic_file_write(file, bytes, count))
        status = ls_error_set(error, file->error.code, "%s", file->error.text);
    free(bytes);
    return status;
}

int data_document_put(const struct data_document *document, const char *key,
                      struct ls_atomic_file *file, struct ls_error *error)
{
    if (document->line.count == 0)
        return data_jsonl_put(file, key ? key : "text", &document->text, error);
    ls_atomic_file_write(file, document->line.bytes, document->line.count);
    if (ls_atomic_file_write(file, "\n", 1))
        return ls_error_set(error, file->error.code, "%s", file->error.text);
    return LS_OK;
}

/* ---- a folder's job -------------------------------------------------------------------------- */

/* What is made there, of what: the same text is the same job. */
struct job {
    const char *what;
    const struct ls_corpus_config *config;
    int64_t part_documents;
    const struct data_corpus *corpus;
};

static int write_job(const void *context, FILE *file, struct ls_error *error)
{
    const struct job *job = context;
    (void)error;
    fprintf(file, "lockstep data %s\nkey %s\npart documents %lld\nbad records %s\n", job->what,
            job->config->json_key ? job->config->json_key : "text", (long long)job->part_documents,
            job->config->skip_bad ? "skipped" : "stop");
    for (size_t i = 0; i < data_corpus_paths(job->corpus); i++) {
        struct stat input = {0};
        const char *path = data_corpus_path(job->corpus, i);
        const char *kind = data_corpus_is_jsonl(job->corpus, i) ? "JSONL" : "text";
        if (stat(path, &input) == 0 && S_ISREG(input.st_mode))
            fprintf(file, "input %s, %s, %lld bytes, changed %lld\n", path, kind,
                    (long long)input.st_size, (long long)input.st_mtime);
        else
            fprintf(file, "input %s, %s\n", path, kind);
    }
    return LS_OK;
}

/* The folder is of this job from here on, or it was. */
static int job_check(const struct data_corpus_output *output, const struct job *job,
                     struct ls_error *error)
{
    enum { JOB_BYTES_MAX = 256 << 20 };
    char path[PATH_MAX], *text = NULL, *found = NULL;
    size_t bytes, found_bytes;
    int status = ls_path_join(path, output->config->output, "job.txt", error);
    if (!status && access(path, F_OK) != 0 && output->parts == 0)
        return ls_file_write(path, write_job, job, error);
    if (!status)
        status = ls_text_write(write_job, job, &text, &bytes, error);
    if (!status && access(path, F_OK) == 0)
        status = ls_file_read(path, JOB_BYTES_MAX, LS_EDATA, &found, &found_bytes, error);
    if (!status && !(found && found_bytes == bytes && memcmp(found, text, bytes) == 0))
        status = ls_error_set(error, LS_EINVAL,
                              "%.300s: its parts are of another job (other options or inputs, or "
                              "inputs that have changed; job.txt has them). Remove the folder, or "
                              "choose another",
                              output->config->output);
    free(text);
    free(found);
    return status;
}

int data_corpus_output_part(const struct data_corpus_output *output, int64_t part, bool removed,
                            char path[PATH_MAX], struct ls_error *error)
{
    char name[64];
    snprintf(name, sizeof name, "%06lld%s.jsonl", (long long)part, removed ? ".removed" : "");
    return ls_path_join(path, output->config->output, name, error);
}

static int open_folder(struct data_corpus_output *output, const struct job *job,
                       struct ls_error *error)
{
    char path[PATH_MAX];
    int status = ls_directory_make(output->config->output, NULL, error);
    if (!status)
        status = ls_lock_take(&output->lock, output->config->output, NULL, error);
    if (!status)
        ls_atomic_file_sweep(output->config->output, "");
    for (bool there = true; !status && there; output->parts += there) {
        status = data_corpus_output_part(output, output->parts, false, path, error);
        there = !status && access(path, F_OK) == 0;
    }
    return status ? status : job_check(output, job, error);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int open_file(struct ls_atomic_file *file, bool *open, const char *path,
                     const struct data_corpus *corpus, struct ls_error *error)
{
    int status = data_corpus_spare(corpus, path, error);
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

int data_corpus_output_open(struct data_corpus_output *output,
                            const struct ls_corpus_config *config, const struct data_corpus *corpus,
                            const char *list, const char *job, int64_t *skip,
                            struct ls_error *error)
{
    struct stat at;
    size_t length = strlen(config->output);
    int64_t documents = config->part_documents ? config->part_documents : LS_PART_DOCUMENTS;
    *output = (struct data_corpus_output){
        .config = config, .corpus = corpus, .part_documents = documents, .part = -1};
    output->folder = (length > 0 && config->output[length - 1] == '/') ||
                     (stat(config->output, &at) == 0 && S_ISDIR(at.st_mode));
    *skip = 0;
    if (documents < 1)
        return ls_error_set(error, LS_EINVAL, "parts of %lld documents", (long long)documents);
    if (output->folder && list)
        return ls_error_set(error, LS_EINVAL,
                            "%.300s: a folder has its own lists, NNNNNN.removed.jsonl; another one "
                            "goes with an output that is a file",
                            config->output);
    int status;
    if (output->folder) {
        status = open_folder(output, &(struct job){job, config, documents, corpus}, error);
        *skip = output->parts * documents;
    } else {
        status = open_file(&output->kept, &output->kept_open, config->output, corpus, error);
        if (!status && list)
            status = open_file(&output->removed, &output->removed_open, list, corpus, error);
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
    ls_lock_release(&output->lock);
    output->kept_open = output->removed_open = false;
}

/* The part that is open is whole, and another one begins. */
static int next_part(struct data_corpus_output *output, int64_t part, struct ls_error *error)
{
    char path[PATH_MAX];
    int status = data_corpus_output_commit(output, error);
    output->part = part;
    if (!status)
        status = data_corpus_output_part(output, part, false, path, error);
    if (!status)
        status = open_file(&output->kept, &output->kept_open, path, output->corpus, error);
    if (!status)
        status = data_corpus_output_part(output, part, true, path, error);
    return status ? status
                  : open_file(&output->removed, &output->removed_open, path, output->corpus, error);
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
    data_place_text(removal->output->corpus, removal->document->place, place);
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
    int64_t part = document->number / output->part_documents;
    int status = LS_OK;
    if (output->folder && part < output->parts)
        return LS_OK;
    if (output->folder && part != output->part)
        status = next_part(output, part, error);
    if (!status && !why)
        return data_document_put(document, output->config->json_key, &output->kept, error);
    if (!status && output->removed_open)
        status = ls_text_write(write_removal, &removal, &line, &bytes, error);
    if (line && ls_atomic_file_write(&output->removed, line, bytes))
        status = ls_error_set(error, output->removed.error.code, "%s", output->removed.error.text);
    free(line);
    return status;
}
