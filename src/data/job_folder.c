/* A folder of numbered parts: a job that was stopped goes on behind those that are there. */
#include "data/data_private.h"

#include <lockstep/base/temporary.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char record[] = "job.txt";

struct job {
    const char *what;
    const struct data_inputs *inputs;
};

void data_job_input(FILE *file, const char *path, const char *kind)
{
    struct stat input = {0};
    if (stat(path, &input) == 0 && S_ISREG(input.st_mode))
        fprintf(file, "input %s, %s, %lld bytes, changed %lld\n", path, kind,
                (long long)input.st_size, (long long)input.st_mtime);
    else
        fprintf(file, "input %s, %s\n", path, kind);
}

bool data_same_file(const char *a, const char *b)
{
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

static int write_job(const void *context, FILE *file, struct ls_error *error)
{
    const struct job *job = context;
    fputs(job->what, file);
    return job->inputs->list(job->inputs->of, file, error);
}

/* The folder is of this job from here on, or it was. */
static int job_check(const struct data_folder *folder, const struct job *job,
                     struct ls_error *error)
{
    enum { JOB_BYTES_MAX = 256 << 20 };
    char path[PATH_MAX], *text = NULL, *found = NULL;
    size_t bytes, found_bytes;
    int status = ls_path_join(path, folder->path, record, error);
    if (!status && access(path, F_OK) != 0 && folder->parts == 0)
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
                              folder->path);
    const char *pipe = job->inputs->pipe ? job->inputs->pipe(job->inputs->of) : NULL;
    if (!status && folder->parts > 0 && pipe)
        status = ls_error_set(error, LS_EINVAL,
                              "%.300s: has parts, and input %.300s is no regular file, so nothing "
                              "shows whether it has what these parts were made of. Write it to a "
                              "file, and give that; remove the folder, or choose another",
                              folder->path, pipe);
    free(text);
    free(found);
    return status;
}

int data_folder_part(const struct data_folder *folder, int64_t part, const char *suffix,
                     char path[PATH_MAX], struct ls_error *error)
{
    char name[64];
    snprintf(name, sizeof name, "%06lld%s", (long long)part, suffix);
    return ls_path_join(path, folder->path, name, error);
}

int data_folder_open(struct data_folder *folder, const char *last, const char *what,
                     const struct data_inputs *inputs, struct ls_error *error)
{
    char path[PATH_MAX];
    int status = ls_directory_make(folder->path, NULL, error);
    if (!status)
        status = ls_lock_take(&folder->lock, folder->path, NULL, error);
    if (!status)
        ls_atomic_file_sweep(folder->path, "");
    for (bool there = true; !status && there; folder->parts += there) {
        status = data_folder_part(folder, folder->parts, last, path, error);
        there = !status && access(path, F_OK) == 0;
    }
    return status ? status : job_check(folder, &(struct job){what, inputs}, error);
}

bool data_folder_has(const struct data_folder *folder, int64_t document)
{
    return folder->path && document < folder->parts * folder->part_documents;
}

int64_t data_folder_begins(const struct data_folder *folder, int64_t document)
{
    return folder->path && document % folder->part_documents == 0
               ? document / folder->part_documents
               : -1;
}

bool data_folder_tells(const char *folder, const char *name)
{
    char path[PATH_MAX], begin[sizeof DATA_JOB_BEGINS];
    struct stat file;
    if (strcmp(name, record) != 0 && !ls_path_ends(name, DATA_REMOVED_JSONL))
        return false;
    return !ls_path_join(path, folder, record, NULL) && stat(path, &file) == 0 &&
           S_ISREG(file.st_mode) && ls_file_head(path, begin, sizeof begin) &&
           strcmp(begin, DATA_JOB_BEGINS) == 0;
}

const char *data_folder_stopped(const struct data_folder *folder)
{
    return folder->path ? "; the same command goes on behind the parts that are there"
                        : "; nothing was written";
}
