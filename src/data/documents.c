/* Documents of a corpus, judged by threads and taken in the order of the input.
 *
 *     corpus -> batches of about a mebibyte -> work on any thread -> take, in order
 *
 * What is taken does not depend on the number of threads (data_work_run). */
#include "data/corpus_private.h"
#include "data/tokenizer_private.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    BATCH_BYTES = 1 << 20,
    BATCH_BYTES_KEPT = 4 << 20, /* beyond them, a batch that is used again gives its memory back */
    BATCH_DOCUMENTS = 1024,
    READ_BYTES = 1 << 18,
    DOCUMENT_BYTES_MAX = 256 << 20, /* held whole, as a record is */
};

struct batch {
    struct data_document *documents; /* [BATCH_DOCUMENTS] */
    char *results;
    int count;
    struct ls_text bytes; /* of each document its text, then its line */
};
struct document_run {
    const struct data_documents *config;
    size_t result_bytes;  /* aligned */
    int64_t read;         /* documents */
    struct ls_text spare; /* scratch of a text that is not UTF-8 */
};

/* ---- reading --------------------------------------------------------------------------------- */

/* Bytes from `begin` on that are no UTF-8 become U+FFFD, each. */
static int make_utf8(struct document_run *run, struct ls_text *text, size_t begin,
                     struct ls_error *error)
{
    const unsigned char *bytes = (const unsigned char *)text->bytes + begin;
    size_t count = text->count - begin, at = ls_utf8_valid(bytes, count);
    if (at == count)
        return LS_OK;
    run->spare.count = 0;
    int status = data_text_put(&run->spare, bytes, at, error);
    while (at < count && !status) {
        status = data_text_put(&run->spare, "\xef\xbf\xbd", 3, error);
        size_t valid = ls_utf8_valid(bytes + at + 1, count - at - 1);
        if (!status)
            status = data_text_put(&run->spare, bytes + at + 1, valid, error);
        at += 1 + valid;
    }
    text->count = begin;
    return status ? status : data_text_put(text, run->spare.bytes, run->spare.count, error);
}

/* The next document, appended to bytes; *found is false at the end. */
static int read_document(struct document_run *run, struct ls_text *bytes,
                         struct data_document *document, bool *found, struct ls_error *error)
{
    struct data_corpus *corpus = run->config->corpus;
    enum data_part part = DATA_MORE;
    int status = LS_OK;
    const size_t begin = bytes->count;
    while (!status && part == DATA_MORE) {
        status = data_corpus_read(corpus, READ_BYTES, bytes, &part, error);
        if (!status && bytes->count - begin > DOCUMENT_BYTES_MAX)
            status = ls_error_set(error, LS_EDATA,
                                  "%.300s: a document of more than %d MiB: expected JSONL, or a "
                                  "smaller file",
                                  data_corpus_path(corpus, data_corpus_found(corpus)->place.path),
                                  DOCUMENT_BYTES_MAX >> 20);
    }
    *found = !status && part == DATA_DOCUMENT_END;
    if (!*found)
        return status;
    const struct data_found *last = data_corpus_found(corpus);
    const struct ls_text *line = &last->line;
    document->number = run->read++;
    document->place = last->place;
    status = line->count > 0 ? LS_OK : make_utf8(run, bytes, begin, error);
    document->text.count = bytes->count - begin;
    document->line.count = line->count;
    return status ? status : data_text_put(bytes, line->bytes, line->count, error);
}

/* The bytes stay where they are from here on. */
static void place_documents(struct batch *batch)
{
    char *at = batch->bytes.bytes;
    for (int i = 0; i < batch->count; i++) {
        struct data_document *document = &batch->documents[i];
        document->text.bytes = at;
        document->line.bytes = at + document->text.count;
        at = document->line.bytes + document->line.count;
    }
}

static int batch_init(const struct document_run *run, struct batch *batch, struct ls_error *error)
{
    if (batch->results)
        return LS_OK;
    batch->documents = calloc(BATCH_DOCUMENTS, sizeof *batch->documents);
    batch->results = batch->documents ? calloc(BATCH_DOCUMENTS, run->result_bytes) : NULL;
    return batch->results ? LS_OK : ls_no_memory(error, "for %d workers", run->config->workers);
}

static void batch_release(void *job)
{
    struct batch *batch = job;
    free(batch->documents);
    free(batch->results);
    ls_text_release(&batch->bytes);
}

static int fill_batch(void *user, void *job, bool *last, struct ls_error *error)
{
    struct document_run *run = user;
    struct batch *batch = job;
    struct ls_text *bytes = &batch->bytes;
    int status = batch_init(run, batch, error);
    bool found = true;
    if (bytes->capacity > BATCH_BYTES_KEPT)
        ls_text_release(bytes);
    batch->count = 0;
    bytes->count = 0;
    while (!status && found && batch->count < BATCH_DOCUMENTS && bytes->count < BATCH_BYTES) {
        struct data_document *document = &batch->documents[batch->count];
        const size_t begin = bytes->count;
        document->result = batch->results + (size_t)batch->count * run->result_bytes;
        status = read_document(run, bytes, document, &found, error);
        if (!status && found && document->number >= run->config->skip)
            batch->count++;
        else
            bytes->count = begin;
        if (run->config->stop && *run->config->stop)
            break;
    }
    place_documents(batch);
    *last = !found;
    return status;
}

/* ---- judging and taking ---------------------------------------------------------------------- */

static int work_batch(void *user, int worker, void *job, struct ls_error *error)
{
    const struct document_run *run = user;
    struct batch *batch = job;
    int status = LS_OK;
    for (int i = 0; i < batch->count && run->config->work && !status; i++)
        status = run->config->work(run->config->user, worker, &batch->documents[i], error);
    return status;
}

static int take_batch(void *user, void *job, struct ls_error *error)
{
    const struct document_run *run = user;
    const struct batch *batch = job;
    int status = LS_OK;
    for (int i = 0; i < batch->count && !status; i++)
        status = run->config->take(run->config->user, &batch->documents[i], error);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

int data_documents_run(const struct data_documents *config, struct ls_error *error)
{
    struct document_run run = {.config = config};
    run.result_bytes = (size_t)ls_round_up((int64_t)config->result_bytes + 1, 16);
    int status = data_work_run(&(struct data_work){.job_bytes = sizeof(struct batch),
                                                   .workers = config->workers,
                                                   .stop = config->stop,
                                                   .stopped = "",
                                                   .fill = fill_batch,
                                                   .work = work_batch,
                                                   .take = take_batch,
                                                   .release = batch_release,
                                                   .user = &run},
                               error);
    if (config->read)
        *config->read = run.read;
    ls_text_release(&run.spare);
    return status;
}

void data_place_text(const struct data_corpus *corpus, struct data_place place,
                     char text[PATH_MAX + 32])
{
    const char *path = data_corpus_path(corpus, place.path);
    if (place.line > 0)
        snprintf(text, PATH_MAX + 32, "%s:%lld", path, (long long)place.line);
    else
        snprintf(text, PATH_MAX + 32, "%s", path);
}
