/* Documents of a corpus, judged by threads and taken in the order of the input.
 *
 *     corpus -> batches of about a mebibyte -> work on any thread -> take, in order
 *
 * Batches go round a ring, so what is taken does not depend on the number of threads. */
#include "data/corpus_private.h"
#include "data/tokenizer_private.h"

#include <lockstep/base/helper_thread.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    BATCH_BYTES = 1 << 20,
    BATCH_DOCUMENTS = 1024,
    READ_BYTES = 1 << 18,
    DOCUMENT_BYTES_MAX = 256 << 20, /* held whole, as a record is */
};

struct batch {
    struct data_document *documents; /* [BATCH_DOCUMENTS], whose memory is used again */
    char *results;
    int count;
    bool worked;
    int status;
    struct ls_error error;
};
/* Batch n lives in batches[n % ring]; taken <= posted <= taken + ring. */
struct run {
    const struct data_documents *config;
    struct batch *batches;
    int ring;
    size_t result_bytes; /* aligned */
    int64_t read;        /* documents */
    bool end;
    struct ls_text spare; /* scratch of a text that is not UTF-8 */
    int64_t posted, claimed, taken;
    pthread_mutex_t mutex; /* posted, claimed, stop, batch.worked */
    pthread_cond_t changed;
    bool stop;
    struct worker {
        struct run *run;
        int index;
        pthread_t thread;
        bool started;
    } * workers;
};

/* ---- reading --------------------------------------------------------------------------------- */

/* Bytes that are no UTF-8 become U+FFFD, each. */
static int make_utf8(struct run *run, struct ls_text *text, struct ls_error *error)
{
    const unsigned char *bytes = (const unsigned char *)text->bytes;
    size_t at = data_utf8_valid(bytes, text->count);
    if (at == text->count)
        return LS_OK;
    run->spare.count = 0;
    int status = data_text_put(&run->spare, bytes, at, error);
    while (at < text->count && !status) {
        status = data_text_put(&run->spare, "\xef\xbf\xbd", 3, error);
        size_t valid = data_utf8_valid(bytes + at + 1, text->count - at - 1);
        if (!status)
            status = data_text_put(&run->spare, bytes + at + 1, valid, error);
        at += 1 + valid;
    }
    text->count = 0;
    return status ? status : data_text_put(text, run->spare.bytes, run->spare.count, error);
}

/* The next document; *found is false at the end. */
static int read_document(struct run *run, struct data_document *document, bool *found,
                         struct ls_error *error)
{
    struct data_corpus *corpus = run->config->corpus;
    enum data_part part = DATA_MORE;
    int status = LS_OK;
    document->text.count = document->line.count = 0;
    while (!status && part == DATA_MORE) {
        status = data_corpus_read(corpus, READ_BYTES, &document->text, &part, error);
        if (!status && document->text.count > DOCUMENT_BYTES_MAX)
            status = ls_error_set(error, LS_EDATA,
                                  "%.300s: a document of more than %d MiB: expected JSONL, or a "
                                  "smaller file",
                                  data_corpus_path(corpus, data_corpus_place(corpus).path),
                                  DOCUMENT_BYTES_MAX >> 20);
    }
    *found = !status && part == DATA_DOCUMENT_END;
    if (!*found)
        return status;
    const struct ls_text *line = data_corpus_line(corpus);
    document->number = run->read++;
    document->place = data_corpus_place(corpus);
    status = data_text_put(&document->line, line->bytes, line->count, error);
    return status || line->count > 0 ? status : make_utf8(run, &document->text, error);
}

static int fill_batch(struct run *run, struct batch *batch, struct ls_error *error)
{
    size_t bytes = 0;
    int status = LS_OK;
    bool found = true;
    batch->count = 0;
    batch->worked = false;
    while (!status && found && batch->count < BATCH_DOCUMENTS && bytes < BATCH_BYTES) {
        struct data_document *document = &batch->documents[batch->count];
        document->result = batch->results + (size_t)batch->count * run->result_bytes;
        status = read_document(run, document, &found, error);
        if (!status && found && document->number >= run->config->skip) {
            bytes += document->text.count;
            batch->count++;
        }
        if (run->config->stop && *run->config->stop)
            break;
    }
    run->end = !found;
    return status;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void work_batch(const struct run *run, int worker, struct batch *batch)
{
    batch->status = LS_OK;
    for (int i = 0; i < batch->count && !batch->status; i++)
        batch->status =
            run->config->work(run->config->user, worker, &batch->documents[i], &batch->error);
}

static void *work(void *user)
{
    struct worker *worker = user;
    struct run *run = worker->run;
    pthread_mutex_lock(&run->mutex);
    for (;;) {
        while (!run->stop && run->claimed == run->posted)
            pthread_cond_wait(&run->changed, &run->mutex);
        if (run->stop)
            break;
        struct batch *batch = &run->batches[run->claimed++ % run->ring];
        pthread_mutex_unlock(&run->mutex);
        work_batch(run, worker->index, batch);
        pthread_mutex_lock(&run->mutex);
        batch->worked = true;
        pthread_cond_broadcast(&run->changed);
    }
    pthread_mutex_unlock(&run->mutex);
    return NULL;
}

static int run_init(struct run *run, const struct data_documents *config, struct ls_error *error)
{
    *run = (struct run){.config = config, .ring = 2 * config->workers + 1};
    run->result_bytes = (size_t)ls_round_up((int64_t)config->result_bytes + 1, 16);
    pthread_mutex_init(&run->mutex, NULL);
    pthread_cond_init(&run->changed, NULL);
    run->batches = calloc((size_t)run->ring, sizeof *run->batches);
    run->workers = calloc((size_t)config->workers, sizeof *run->workers);
    bool enough = run->batches && run->workers;
    for (int i = 0; enough && i < run->ring; i++) {
        struct batch *batch = &run->batches[i];
        batch->documents = calloc(BATCH_DOCUMENTS, sizeof *batch->documents);
        batch->results = calloc(BATCH_DOCUMENTS, run->result_bytes);
        enough = batch->documents && batch->results;
    }
    if (!enough)
        return ls_error_set(error, LS_ENOMEM, "no memory for %d workers", config->workers);
    for (int i = 0; i < config->workers; i++) {
        struct worker *worker = &run->workers[i];
        *worker = (struct worker){.run = run, .index = i};
        int failure = ls_helper_start(&worker->thread, work, worker);
        if (failure)
            return ls_error_errno(error, failure, "worker %d of %d cannot be started", i,
                                  config->workers);
        worker->started = true;
    }
    return LS_OK;
}

static void run_release(struct run *run)
{
    pthread_mutex_lock(&run->mutex);
    run->stop = true;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->mutex);
    for (int i = 0; run->workers && i < run->config->workers; i++)
        if (run->workers[i].started)
            pthread_join(run->workers[i].thread, NULL);
    for (int i = 0; run->batches && i < run->ring; i++) {
        struct batch *batch = &run->batches[i];
        for (int j = 0; batch->documents && j < BATCH_DOCUMENTS; j++) {
            ls_text_release(&batch->documents[j].text);
            ls_text_release(&batch->documents[j].line);
        }
        free(batch->documents);
        free(batch->results);
    }
    free(run->batches);
    free(run->workers);
    ls_text_release(&run->spare);
    pthread_cond_destroy(&run->changed);
    pthread_mutex_destroy(&run->mutex);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int post_batches(struct run *run, struct ls_error *error)
{
    int status = LS_OK;
    while (!status && !run->end && run->posted - run->taken < run->ring) {
        status = fill_batch(run, &run->batches[run->posted % run->ring], error);
        if (run->config->stop && *run->config->stop)
            return ls_error_set(error, LS_ESTOPPED, "stopped by a signal");
        pthread_mutex_lock(&run->mutex);
        run->posted += status == LS_OK;
        pthread_cond_broadcast(&run->changed);
        pthread_mutex_unlock(&run->mutex);
    }
    return status;
}

static int take_batch(struct run *run, struct ls_error *error)
{
    struct batch *batch = &run->batches[run->taken % run->ring];
    pthread_mutex_lock(&run->mutex);
    while (!batch->worked)
        pthread_cond_wait(&run->changed, &run->mutex);
    pthread_mutex_unlock(&run->mutex);
    if (batch->status)
        return ls_error_set(error, batch->status, "%s", batch->error.text);
    int status = LS_OK;
    for (int i = 0; i < batch->count && !status; i++)
        status = run->config->take(run->config->user, &batch->documents[i], error);
    run->taken++;
    return status;
}

int data_documents_run(const struct data_documents *config, struct ls_error *error)
{
    struct run run;
    int status = run_init(&run, config, error);
    while (!status) {
        status = post_batches(&run, error);
        if (status || run.taken == run.posted)
            break;
        status = take_batch(&run, error);
    }
    if (config->read)
        *config->read = run.read;
    run_release(&run);
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
