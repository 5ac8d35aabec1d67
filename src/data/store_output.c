/* A store made of the documents of others, or a folder of such, each written aside until it is
 * whole. */
#include "data/data_private.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { COPY_TOKENS = 1 << 14 };

/* ---- what is read ---------------------------------------------------------------------------- */

int ls_store_spare(const char *store, const char *path, struct ls_error *error)
{
    char name[PATH_MAX];
    for (const char *const *suffix = data_suffixes; *suffix; suffix++)
        if (!data_store_path(name, store, *suffix, NULL) && data_same_file(name, path))
            return ls_error_set(error, LS_EINVAL,
                                "store %.400s is the output %.400s, which would replace it; "
                                "nothing was written: choose another output",
                                name, path);
    return LS_OK;
}

static int spare_stores(const void *of, const char *path, struct ls_error *error)
{
    const struct data_store_list *stores = of;
    int status = LS_OK;
    for (int i = 0; i < stores->count && !status; i++)
        status = ls_store_spare(stores->names[i], path, error);
    return status;
}

static int list_stores(const void *of, FILE *file, struct ls_error *error)
{
    const struct data_store_list *stores = of;
    char name[PATH_MAX];
    (void)error;
    for (int i = 0; i < stores->count; i++)
        for (const char *const *suffix = data_suffixes; *suffix; suffix++)
            if (!data_store_path(name, stores->names[i], *suffix, NULL) && access(name, F_OK) == 0)
                data_job_input(file, name, "store");
    return LS_OK;
}

struct data_inputs data_store_inputs(const struct data_store_list *stores)
{
    return (struct data_inputs){stores, spare_stores, list_stores, NULL};
}

/* ---- what is written ------------------------------------------------------------------------- */

static int begin_store(struct data_output *output, const char *prefix, struct ls_error *error)
{
    const struct data_making *making = output->making;
    output->open = true;
    int status = data_writer_init(&output->writer, prefix, making->dtype, error);
    if (!status)
        status = data_name_init(&output->recorded, prefix, ".tokenizer", error);
    for (int i = 0; i <= LS_SUMS_FILES && !status; i++)
        status = spare_stores(&making->stores, output->writer.files[i].path, error);
    if (!status)
        status = spare_stores(&making->stores, output->recorded.path, error);
    return status ? status : data_writer_begin(&output->writer, error);
}

/* What a part that was there has. */
static int part_add(struct data_output *output, int64_t i, struct ls_error *error)
{
    char path[PATH_MAX];
    struct data_stored part = {0};
    struct data_folder *folder = &output->folder;
    int status = data_folder_part(folder, i, "", path, error);
    if (!status)
        status = data_stored_open_alone(&part, path, error);
    if (!status)
        status = data_stored_index(&part, error);
    int64_t documents = part.what.tokens.documents, full = folder->part_documents;
    if (!status && documents != full && (i + 1 < folder->parts || documents > full))
        status = ls_error_set(error, LS_EDATA, "%s: %lld documents; expected %lld", path,
                              (long long)documents, (long long)full);
    if (status == LS_EDATA)
        ls_error_suffix(error, ". Remove this part, and the same command makes it again");
    output->done.documents += documents;
    output->done.resumed += documents;
    output->done.tokens += part.file.tokens;
    output->done.counted += part.file.counted;
    data_stored_release(&part);
    return status;
}

static int begin_folder(struct data_output *output, struct ls_error *error)
{
    const struct data_making *making = output->making;
    const struct data_inputs inputs = data_store_inputs(&making->stores);
    char digest[33] = "none", *what;
    if (making->tokenizer)
        ls_tokenizer_digest(making->tokenizer, digest);
    if (asprintf(&what, DATA_JOB_BEGINS "%s\npart documents %lld\ntokenizer %s\n", making->what,
                 (long long)making->part_documents, digest) < 0)
        return ls_no_memory(error, "to write %s", output->prefix);
    output->folder =
        (struct data_folder){.path = output->prefix, .part_documents = making->part_documents};
    int status = data_folder_open(&output->folder, ".idx", what, &inputs, error);
    free(what);
    for (int64_t i = 0; i < output->folder.parts && !status; i++)
        status = part_add(output, i, error);
    return status;
}

int data_output_open(struct data_output *output, const char *prefix,
                     const struct data_making *making, struct ls_error *error)
{
    *output = (struct data_output){.making = making, .writer = {.fd = -1}};
    if (making->part_documents < 1)
        return ls_error_set(error, LS_EINVAL, "parts of %lld documents",
                            (long long)making->part_documents);
    if (snprintf(output->prefix, sizeof output->prefix, "%s", prefix) >= PATH_MAX)
        return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long", prefix);
    return ls_path_ends(prefix, "/") ? begin_folder(output, error)
                                     : begin_store(output, prefix, error);
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
        if (output->making->masked)
            status = data_writer_mark(&output->writer, targets[at] == 0, error);
        if (!status && output->making->weighted)
            status = data_writer_weigh(&output->writer, weights[at], error);
        if (!status)
            status = data_writer_append(&output->writer, ids + at, run, error);
    }
    return status;
}

/* The part that is open is whole, and another one begins. */
static int next_part(struct data_output *output, int64_t part, struct ls_error *error)
{
    char path[PATH_MAX];
    int status = data_output_finish(output, error);
    if (!status)
        status = data_output_publish(output, error);
    if (!status)
        status = data_folder_part(&output->folder, part, "", path, error);
    return status ? status : begin_store(output, path, error);
}

int data_output_copy(struct data_output *output, struct data_stored *from, int64_t first,
                     int64_t count, struct ls_error *error)
{
    const struct data_making *making = output->making;
    int64_t number = output->given++;
    if (data_folder_has(&output->folder, number))
        return LS_OK;
    int64_t part = data_folder_begins(&output->folder, number);
    int status = part < 0 ? LS_OK : next_part(output, part, error);
    for (int64_t at = 0, here = 0; at < count && !status; at += here) {
        const int32_t *ids;
        here = ls_min(count - at, COPY_TOKENS);
        status = data_stored_ids(from, first + at, here, &ids, error);
        if (!status && (making->masked || making->weighted))
            status = copy_marked(output, from, first + at, ids, here, error);
        else if (!status)
            status = data_writer_append(&output->writer, ids, here, error);
    }
    return status ? status : data_writer_end_document(&output->writer, error);
}

int data_output_finish(struct data_output *output, struct ls_error *error)
{
    const struct ls_tokenizer *tokenizer = output->making->tokenizer;
    if (!output->open)
        return LS_OK;
    int status = data_writer_finish(&output->writer, error);
    if (!status && tokenizer)
        status = data_tokenizer_write(tokenizer, output->recorded.temporary, error);
    return status;
}

static void end_store(struct data_output *output)
{
    if (!output->open)
        return;
    data_writer_release(&output->writer);
    data_name_release(&output->recorded);
    output->open = false;
}

int data_output_publish(struct data_output *output, struct ls_error *error)
{
    char folder[PATH_MAX];
    const struct data_writer *writer = &output->writer;
    int status = LS_OK;
    if (!output->open)
        return LS_OK;
    data_writer_clear(writer);
    if (output->making->tokenizer)
        status = data_name_publish(&output->recorded, error);
    else
        unlink(output->recorded.path);
    if (!status)
        status = data_writer_publish(&output->writer, error);
    ls_path_parent(output->recorded.path, folder);
    ls_directory_sync(folder, NULL, NULL);
    if (status)
        return status;
    output->done.documents += writer->documents_count;
    output->done.tokens += writer->tokens;
    output->done.counted += data_writer_counted(writer);
    end_store(output);
    return LS_OK;
}

void data_output_release(struct data_output *output)
{
    end_store(output);
    ls_lock_release(&output->folder.lock);
}
