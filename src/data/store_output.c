/* A store made of the documents of others, written aside until it is whole. */
#include "data/data_private.h"

#include <lockstep/data/store_tools.h>

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPY_TOKENS = 1 << 14 };

int ls_store_spare(const char *store, const char *path, struct ls_error *error)
{
    struct stat output, input;
    static const char *const suffixes[] = {".bin",     ".idx",  ".mask",
                                           ".weights", ".sums", ".tokenizer"};
    int stem = (int)strnlen(store, PATH_MAX);
    if (ls_path_ends(store, ".bin") || ls_path_ends(store, ".idx"))
        stem -= 4;
    if (stat(path, &output) != 0)
        return LS_OK;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char name[PATH_MAX + 16];
        snprintf(name, sizeof name, "%.*s%s", stem, store, suffixes[i]);
        if (stat(name, &input) == 0 && input.st_dev == output.st_dev &&
            input.st_ino == output.st_ino)
            return ls_error_set(error, LS_EINVAL,
                                "store %.400s is the output %.400s, which would replace it; "
                                "nothing was written: choose another output",
                                name, path);
    }
    return LS_OK;
}

int data_output_init(struct data_output *output, const char *prefix, enum ls_dtype dtype,
                     const struct ls_tokenizer *tokenizer, const char *const *stores, int count,
                     struct ls_error *error)
{
    *output = (struct data_output){.tokenizer = tokenizer};
    int status = data_writer_init(&output->writer, prefix, dtype, error);
    if (!status)
        status = data_name_init(&output->recorded, prefix, ".tokenizer", error);
    for (int j = 0; j < count && !status; j++) {
        for (int i = 0; i <= LS_SUMS_FILES && !status; i++)
            status = ls_store_spare(stores[j], output->writer.files[i].path, error);
        status = status ? status : ls_store_spare(stores[j], output->recorded.path, error);
    }
    return status ? status : data_writer_begin(&output->writer, error);
}

/* Tokens that all count, or all do not, and weigh the same. */
static int64_t run_length(const int32_t *targets, const float *weights, int64_t count)
{
    int64_t length = 1;
    while (length < count && targets[length] == targets[0] && weights[length] == weights[0])
        length++;
    return length;
}

static int copy_marked(struct data_output *output, const struct data_stored *from, int64_t first,
                       const int32_t *ids, int64_t count, struct ls_error *error)
{
    int32_t targets[COPY_TOKENS] = {0};
    float weights[COPY_TOKENS];
    int status = ls_token_store_mask(from->store, first, count, targets, error);
    if (!status)
        status = ls_token_store_weights(from->store, first, count, weights, error);
    for (int64_t at = 0, run = 0; at < count && !status; at += run) {
        run = run_length(targets + at, weights + at, count - at);
        if (output->masked)
            status = data_writer_mark(&output->writer, targets[at] == 0, error);
        if (!status && output->weighted)
            status = data_writer_weigh(&output->writer, weights[at], error);
        if (!status)
            status = data_writer_append(&output->writer, ids + at, run, error);
    }
    return status;
}

int data_output_copy(struct data_output *output, struct data_stored *from, int64_t first,
                     int64_t count, struct ls_error *error)
{
    int status = LS_OK;
    for (int64_t at = 0, here = 0; at < count && !status; at += here) {
        const int32_t *ids;
        here = ls_min(count - at, COPY_TOKENS);
        status = data_stored_ids(from, first + at, here, &ids, error);
        if (!status && (output->masked || output->weighted))
            status = copy_marked(output, from, first + at, ids, here, error);
        else if (!status)
            status = data_writer_append(&output->writer, ids, here, error);
    }
    return status ? status : data_writer_end_document(&output->writer, error);
}

int data_output_finish(struct data_output *output, struct ls_error *error)
{
    int status = data_writer_finish(&output->writer, error);
    if (!status && output->tokenizer)
        status = data_tokenizer_write(output->tokenizer, output->recorded.temporary, error);
    return status;
}

int data_output_publish(struct data_output *output, struct ls_error *error)
{
    char folder[PATH_MAX];
    int status = LS_OK;
    data_writer_clear(&output->writer);
    if (output->tokenizer)
        status = data_name_publish(&output->recorded, error);
    else
        unlink(output->recorded.path);
    if (!status)
        status = data_writer_publish(&output->writer, error);
    ls_path_parent(output->recorded.path, folder);
    ls_directory_sync(folder, NULL, NULL);
    return status;
}

void data_output_release(struct data_output *output)
{
    data_writer_release(&output->writer);
    data_name_release(&output->recorded);
    *output = (struct data_output){.writer = {.fd = -1}};
}
