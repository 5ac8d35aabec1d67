/* The documents of a store as text: detokenize, and how many bytes of text they are. */
#include "data/corpus_private.h"

#include <lockstep/base/meter.h>

#include <stdio.h>
#include <stdlib.h>

/* Whether ids[*count] end with these; they go then. */
static void drop_behind(const int32_t *ids, int64_t *count, const int32_t *tail, int tail_count)
{
    if (tail_count > 0 && *count >= tail_count &&
        memcmp(ids + *count - tail_count, tail, (size_t)tail_count * sizeof *ids) == 0)
        *count -= tail_count;
}

int data_stored_text(struct data_stored *stored, int64_t first, int64_t count, struct ls_text *out,
                     struct ls_error *error)
{
    const int32_t *ids;
    int before, behind;
    const struct ls_tokenizer *tokenizer = stored->tokenizer;
    int32_t eod = ls_tokenizer_eod(tokenizer);
    int status = data_stored_ids(stored, first, count, &ids, error);
    if (status)
        return status;
    drop_behind(ids, &count, &eod, eod >= 0);
    const int32_t *tail = ls_tokenizer_around(tokenizer, true, &behind);
    drop_behind(ids, &count, tail, behind - (behind > 0 && tail[behind - 1] == eod));
    const int32_t *head = ls_tokenizer_around(tokenizer, false, &before);
    if (before > 0 && count >= before && memcmp(ids, head, (size_t)before * sizeof *ids) == 0) {
        ids += before;
        count -= before;
    }
    out->count = 0;
    return ls_decode(tokenizer, ids, count, out, error);
}

/* ---- detokenize ------------------------------------------------------------------------------ */

enum { BATCH_TOKENS = 1 << 16, BATCH_DOCUMENTS = 256 };

struct detokenize {
    struct data_stored stored;   /* whose walk is that of the calling thread */
    struct data_stored *readers; /* [workers], which have buffers of their own */
    const char *key;
    const struct ls_store_job *job;
    struct data_corpus_output output;
    struct ls_detokenize_report *report;
    int64_t done; /* tokens */
};
/* Documents that follow each other, as lines. */
struct batch {
    struct piece {
        int64_t number, first, count;
        size_t text_bytes, end; /* of its line in lines */
    } pieces[BATCH_DOCUMENTS];
    int count;
    struct ls_text text, lines;
};

/* Those of parts that are there are passed over. */
static int fill_batch(void *user, void *taken, bool *last, struct ls_error *error)
{
    struct detokenize *d = user;
    struct batch *batch = taken;
    int64_t tokens = 0, first, count;
    int status = LS_OK;
    batch->count = 0;
    *last = false;
    while (!*last && batch->count < BATCH_DOCUMENTS && tokens < BATCH_TOKENS) {
        *last = !data_stored_next(&d->stored, &first, &count, &status, error);
        if (*last)
            break;
        int64_t number = d->report->documents++;
        d->report->tokens += count;
        if (data_folder_has(&d->output.folder, number)) {
            d->report->resumed++;
            d->done += count;
            continue;
        }
        batch->pieces[batch->count++] = (struct piece){number, first, count, 0, 0};
        tokens += count;
    }
    return status;
}

static int work_batch(void *user, int worker, void *taken, struct ls_error *error)
{
    struct detokenize *d = user;
    struct batch *batch = taken;
    int status = LS_OK;
    batch->lines.count = 0;
    for (int i = 0; i < batch->count && !status; i++) {
        struct piece *piece = &batch->pieces[i];
        status =
            data_stored_text(&d->readers[worker], piece->first, piece->count, &batch->text, error);
        if (!status)
            status = data_jsonl_line(d->key, &batch->text, &batch->lines, error);
        piece->text_bytes = batch->text.count;
        piece->end = batch->lines.count;
    }
    return status;
}

static int take_batch(void *user, void *taken, struct ls_error *error)
{
    struct detokenize *d = user;
    const struct batch *batch = taken;
    int status = LS_OK;
    size_t begin = 0;
    for (int i = 0; i < batch->count && !status; i++) {
        const struct piece *piece = &batch->pieces[i];
        const struct data_document document = {
            .number = piece->number,
            .line = {.bytes = batch->lines.bytes + begin, .count = piece->end - begin}};
        status = data_corpus_output_put(&d->output, &document, NULL, NULL, error);
        begin = piece->end;
        d->report->text_bytes += (int64_t)piece->text_bytes;
        d->done += piece->count;
    }
    ls_meter("tokens", d->done, d->stored.file.tokens);
    return status;
}

static void batch_release(void *taken)
{
    struct batch *batch = taken;
    ls_text_release(&batch->text);
    ls_text_release(&batch->lines);
}

static int decode_all(struct detokenize *d, struct ls_error *error)
{
    int workers = d->job->workers;
    d->readers = calloc((size_t)workers, sizeof *d->readers);
    if (!d->readers)
        return ls_no_memory(error, "for %d workers", workers);
    for (int i = 0; i < workers; i++)
        d->readers[i] = d->stored; /* before it has a buffer */
    int status =
        data_work_run(&(struct data_work){.job_bytes = sizeof(struct batch),
                                          .workers = workers,
                                          .stop = d->job->stop,
                                          .stopped = data_folder_stopped(&d->output.folder),
                                          .fill = fill_batch,
                                          .work = work_batch,
                                          .take = take_batch,
                                          .release = batch_release,
                                          .user = d},
                      error);
    for (int i = 0; i < workers; i++)
        free(d->readers[i].ids);
    free(d->readers);
    return status;
}

static int open_all(struct detokenize *d, const char *store, const char *tokenizer,
                    const struct ls_corpus_config *config, const struct data_inputs *inputs,
                    struct ls_error *error)
{
    char what[64], digest[33];
    int64_t skip;
    if (d->job->workers < 1 || d->job->workers > 1024)
        return ls_error_set(error, LS_EINVAL, "%d workers; expected 1 to 1024", d->job->workers);
    int status = data_stored_open(&d->stored, store, tokenizer, error);
    if (!status && !d->stored.tokenizer)
        status = ls_error_set(error, LS_EDATA,
                              "%s: no tokenizer is recorded for it: name the one that made it "
                              "(--tokenizer SPEC)",
                              store);
    if (!status)
        status = data_stored_index(&d->stored, error);
    if (status)
        return status;
    ls_tokenizer_digest(d->stored.tokenizer, digest);
    snprintf(what, sizeof what, "detokenize: tokenizer %s", digest);
    status = data_corpus_output_open(&d->output, config, inputs, NULL, what, &skip, error);
    d->output.removes = false;
    return status;
}

int ls_store_detokenize(const char *store, const char *tokenizer, const char *json_key,
                        const struct ls_store_job *job, struct ls_detokenize_report *out,
                        struct ls_error *error)
{
    struct detokenize d = {.key = json_key ? json_key : "text", .job = job, .report = out};
    const struct ls_corpus_config config = {
        .output = job->output, .json_key = json_key, .part_documents = job->part_documents};
    const struct data_store_list stores = {&store, 1};
    const struct data_inputs inputs = data_store_inputs(&stores);
    *out = (struct ls_detokenize_report){0};
    int status = open_all(&d, store, tokenizer, &config, &inputs, error);
    if (!status)
        status = decode_all(&d, error);
    if (!status)
        status = data_corpus_output_commit(&d.output, error);
    data_corpus_output_release(&d.output);
    data_stored_release(&d.stored);
    return status;
}
