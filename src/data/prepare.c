/* Corpora to token stores: the calling thread reads and writes, worker threads encode between.
 *
 *     documents -> jobs of about a mebibyte -> ids -> train and validation store
 *
 * Jobs go round a ring in the order of the text, so the output does not depend on the workers. A
 * long document is cut where a cut does not change its ids. */
#include "data/data_private.h"

#include <lockstep/base/temporary.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    WORKERS_MAX = 1024,
    SHARE_UNIT = 1000000, /* the validation share is counted in millionths, exactly */
    COPY_TOKENS = 1 << 16,
};

/* text [previous end, end) of one document, and ids [previous ids_end, ids_end). */
struct segment {
    size_t end;
    int64_t ids_end;
    bool ends_document, ends_record, counts;
    float weight; /* of its tokens as targets */
};
struct job {
    struct ls_text text;
    struct segment *segments;
    int64_t segments_count, segments_room;
    struct ls_token_list ids;
    bool continues; /* its first text goes on from the last one of the job before */
};
struct prepare {
    const struct ls_prepare_config *config;
    struct ls_prepare_report *report;
    struct ls_tokenizer *tokenizer;
    struct data_writer train, validation;
    struct data_parts parts;
    struct ls_encoder **encoders;  /* [workers] */
    int64_t share;                 /* of SHARE_UNIT */
    int64_t records;               /* not empty, and ended */
    int64_t documents;             /* of the record that is written */
    int64_t last_documents;        /* of the last of records */
    struct data_name recorded;     /* PREFIX.tokenizer */
    struct ls_atomic_file skipped; /* the list of bad records; open once there is one */
};

/* ---- filling and encoding jobs -------------------------------------------------------------- */

static int add_segment(struct job *job, const struct segment *segment, struct ls_error *error)
{
    if (!ls_list_grow(&job->segments, job->segments_count, &job->segments_room,
                      sizeof *job->segments))
        return ls_no_memory(error, "to read a corpus");
    job->segments[job->segments_count++] = *segment;
    return LS_OK;
}

static int segments_put(void *user, void *part, size_t begin, bool ends, struct ls_error *error)
{
    const struct prepare *prepare = user;
    struct job *job = part;
    const struct data_found *found = data_corpus_found(prepare->parts.corpus);
    const struct data_spans *spans = &found->spans;
    if (!ends)
        return add_segment(job, &(struct segment){.end = job->text.count, .weight = 1}, error);
    struct segment last = {.end = job->text.count,
                           .ends_document = true,
                           .ends_record = true,
                           .counts = true,
                           .weight = found->weight};
    int status = LS_OK;
    for (int64_t i = 0; i < spans->count && !status; i++) {
        const struct data_span *span = &spans->list[i];
        last = (struct segment){.end = begin + span->end,
                                .ends_document = span->ends_document,
                                .ends_record = i + 1 == spans->count,
                                .counts = span->counts,
                                .weight = last.weight};
        status = add_segment(job, &last, error);
    }
    return status || spans->count > 0 ? status : add_segment(job, &last, error);
}

static int fill_job(void *user, void *filled, bool *last, struct ls_error *error)
{
    struct prepare *prepare = user;
    struct job *job = filled;
    job->segments_count = 0;
    job->ids.count = 0;
    job->continues = prepare->parts.open;
    int status = data_part_read(&prepare->parts, &job->text, job, error);
    *last = prepare->parts.end;
    return status;
}

/* The last token that is put behind a text is what ends the document, which then is not put there
 * twice. Conversations have none. */
static bool eod_is_behind(const struct prepare *prepare)
{
    const struct ls_prepare_config *config = prepare->config;
    int count;
    const int32_t *behind = ls_tokenizer_around(prepare->tokenizer, true, &count);
    return config->append_eod && config->around && config->records != LS_RECORDS_CHAT &&
           count > 0 && behind[count - 1] == ls_tokenizer_eod(prepare->tokenizer);
}

static int encode_job(void *user, int worker, void *filled, struct ls_error *error)
{
    const struct prepare *prepare = user;
    struct job *job = filled;
    int before;
    ls_tokenizer_around(prepare->tokenizer, false, &before);
    bool behind = eod_is_behind(prepare), continued = job->continues;
    bool chat = prepare->config->records == LS_RECORDS_CHAT;
    size_t begin = 0;
    int status = LS_OK;
    for (int64_t i = 0; i < job->segments_count && !status; i++) {
        struct segment *segment = &job->segments[i];
        const struct ls_encode_options options = {.continued = continued,
                                                  .unfinished = !segment->ends_document,
                                                  .around = prepare->config->around && !chat,
                                                  .special = chat}; /* templates write them */
        const bool begins = segment->end > begin && !continued;
        if (segment->end > begin)
            status = ls_encode_with(prepare->encoders[worker], job->text.bytes + begin,
                                    segment->end - begin, &options, &job->ids, error);
        if (begins && options.around && i > 0 && !job->segments[i - 1].ends_document)
            job->segments[i - 1].ids_end += before; /* an empty prompt has them */
        job->ids.count -= behind && segment->ends_document && segment->end > begin;
        segment->ids_end = job->ids.count;
        continued = !segment->ends_document && (continued || begins);
        begin = segment->end;
    }
    return status;
}

/* ---- bad records ---------------------------------------------------------------------------- */

static int skipped_path(const struct prepare *prepare, char path[PATH_MAX], struct ls_error *error)
{
    int length = snprintf(path, PATH_MAX, "%s.skipped.txt", prepare->config->output);
    return length < PATH_MAX ? LS_OK
                             : ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long",
                                            prepare->config->output);
}

/* Notes a record that is passed over. */
static int skip_record(void *user, const struct ls_error *why, struct ls_error *error)
{
    struct prepare *prepare = user;
    char path[PATH_MAX];
    int status = LS_OK;
    if (prepare->report->skipped == 0) {
        status = skipped_path(prepare, path, error);
        if (!status)
            status = ls_atomic_file_open(&prepare->skipped, path, NULL, error);
        if (status)
            prepare->skipped.fd = -1;
        else
            ls_atomic_file_hold(&prepare->skipped);
    }
    if (status)
        return status;
    prepare->report->skipped++;
    if (prepare->config->skipped)
        prepare->config->skipped(prepare->config->user, why->text);
    status = ls_atomic_file_printf(&prepare->skipped, "%s\n", why->text);
    return status ? ls_error_copy(error, status, &prepare->skipped.error) : LS_OK;
}

/* The list of an earlier preparation goes where this one has none. */
static int publish_skipped(struct prepare *prepare, struct ls_error *error)
{
    char path[PATH_MAX];
    if (prepare->report->skipped > 0)
        return ls_atomic_file_commit(&prepare->skipped, error);
    if (skipped_path(prepare, path, NULL) == LS_OK)
        unlink(path);
    return LS_OK;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* The store that the next record belongs to: every 1/share-th is held out, evenly. */
static struct data_writer *writer_of(struct prepare *prepare)
{
    int64_t i = prepare->records;
    bool held_out = (i + 1) * prepare->share / SHARE_UNIT > i * prepare->share / SHARE_UNIT;
    return held_out ? &prepare->validation : &prepare->train;
}

static int end_document(struct prepare *prepare, struct data_writer *writer, struct ls_error *error)
{
    if (writer->tokens == writer->document_first)
        return LS_OK;
    int32_t eod = ls_tokenizer_eod(prepare->tokenizer), last = -1;
    bool chat = prepare->config->records == LS_RECORDS_CHAT;
    int status = LS_OK;
    if (prepare->config->append_eod && chat) /* the template may have ended the turn with it */
        status = data_writer_read(writer, writer->tokens - 1, 1, &last, error);
    if (prepare->config->append_eod && chat && last != eod && !status)
        status = data_writer_mark(writer, false, error);
    if (prepare->config->append_eod && last != eod && !status)
        status = data_writer_append(writer, &eod, 1, error);
    return status ? status : data_writer_end_document(writer, error);
}

/* One of which nothing was written is none. */
static void end_record(struct prepare *prepare)
{
    if (prepare->documents == 0)
        return;
    prepare->records++;
    prepare->last_documents = prepare->documents;
    prepare->documents = 0;
}

static int write_job(void *user, void *encoded, struct ls_error *error)
{
    struct prepare *prepare = user;
    const struct job *job = encoded;
    int status = LS_OK;
    int64_t begin = 0;
    for (int64_t i = 0; i < job->segments_count && !status; i++) {
        const struct segment *segment = &job->segments[i];
        struct data_writer *writer = writer_of(prepare);
        if (prepare->config->records != LS_RECORDS_TEXT)
            status = data_writer_mark(writer, segment->counts, error);
        if (!status && prepare->config->weight_key)
            status = data_writer_weigh(writer, segment->weight, error);
        if (!status)
            status =
                data_writer_append(writer, job->ids.ids + begin, segment->ids_end - begin, error);
        begin = segment->ids_end;
        if (!status && segment->ends_document && writer->tokens > writer->document_first) {
            status = end_document(prepare, writer, error);
            prepare->documents++;
        }
        if (segment->ends_record)
            end_record(prepare);
    }
    prepare->report->text_bytes += (int64_t)job->text.count;
    return status;
}

static void job_release(void *taken)
{
    struct job *job = taken;
    ls_text_release(&job->text);
    ls_token_list_release(&job->ids);
    free(job->segments);
}

static int encode_all(struct prepare *prepare, struct ls_error *error)
{
    const struct ls_prepare_config *config = prepare->config;
    prepare->encoders = calloc((size_t)config->workers, sizeof *prepare->encoders);
    if (!prepare->encoders)
        return ls_no_memory(error, "for %d workers", config->workers);
    int status = LS_OK;
    for (int i = 0; i < config->workers && !status; i++)
        status = ls_encoder_new(prepare->tokenizer, &prepare->encoders[i], error);
    if (!status)
        status = data_work_run(&(struct data_work){.job_bytes = sizeof(struct job),
                                                   .workers = config->workers,
                                                   .stop = config->stop,
                                                   .stopped = "; nothing was written",
                                                   .fill = fill_job,
                                                   .work = encode_job,
                                                   .take = write_job,
                                                   .release = job_release,
                                                   .user = prepare},
                               error);
    for (int i = 0; i < config->workers && !status; i++)
        prepare->report->unknown += ls_encoder_unknown(prepare->encoders[i]);
    return status;
}

static void encoding_release(struct prepare *prepare)
{
    for (int i = 0; prepare->encoders && i < prepare->config->workers; i++)
        ls_encoder_free(prepare->encoders[i]);
    free(prepare->encoders);
    ls_text_release(&prepare->parts.carry);
}

/* ---- holding out the tail of a few documents ------------------------------------------------ */

/* *cut, which lies behind `first`, moves back to the last end of a line since `first`, if any. */
static int cut_at_line(struct prepare *prepare, int64_t first, int64_t *cut, int32_t *block,
                       struct ls_error *error)
{
    for (int64_t end = *cut; end > first;) {
        int64_t begin = ls_max(first, end - COPY_TOKENS);
        int status = data_writer_read(&prepare->train, begin, end - begin, block, error);
        if (status)
            return status;
        for (int64_t i = end; i > begin; i--)
            if (data_token_ends_line(prepare->tokenizer, block[i - 1 - begin])) {
                *cut = i;
                return LS_OK;
            }
        end = begin;
    }
    return LS_OK;
}

static int move_document(struct prepare *prepare, int64_t first, int64_t end, int32_t *block,
                         struct ls_error *error)
{
    int status = LS_OK;
    while (first < end && !status) {
        int64_t count = ls_min(COPY_TOKENS, end - first);
        status = data_writer_read(&prepare->train, first, count, block, error);
        if (!status)
            status = data_writer_append(&prepare->validation, block, count, error);
        first += count;
    }
    return status ? status : data_writer_end_document(&prepare->validation, error);
}

/* Documents [first, ...) become the validation's, from token cut on in the first of them. */
static int move_tail(struct prepare *prepare, int64_t first, int64_t cut, int32_t *block,
                     struct ls_error *error)
{
    struct data_writer *train = &prepare->train;
    int64_t documents = train->documents_count;
    int status = data_writer_move_runs(train, cut, &prepare->validation, error);
    for (int64_t i = first; i < documents && !status; i++)
        status = move_document(prepare, ls_max(cut, data_writer_document_first(train, i)),
                               data_writer_document_first(train, i + 1), block, error);
    if (!status)
        status = data_writer_truncate(train, cut, first, error);
    return status ? status : end_document(prepare, train, error);
}

/* Examples are whole: the last one. */
static int hold_out_example(struct prepare *prepare, int32_t *block, struct ls_error *error)
{
    struct data_writer *train = &prepare->train;
    int64_t last = train->documents_count - prepare->last_documents;
    if (last < 1)
        return ls_error_set(error, LS_EDATA,
                            "one example: none can be held out for validation; add more, or hold "
                            "out 0");
    return move_tail(prepare, last, data_writer_document_first(train, last), block, error);
}

static int hold_out_part(struct prepare *prepare, int32_t *block, struct ls_error *error)
{
    struct data_writer *train = &prepare->train;
    int64_t tokens = train->tokens, documents = train->documents_count;
    if (tokens < 2)
        return ls_error_set(error, LS_EDATA,
                            "%lld token of text: too little to hold out a share of %g for "
                            "validation; add more text, or hold out 0",
                            (long long)tokens, prepare->config->validation);
    /* At least a token of text, and no end of a document alone. */
    int64_t eod = prepare->config->append_eod ? 1 : 0;
    int64_t held_out = (int64_t)((double)tokens * prepare->config->validation + 0.5);
    int64_t cut = tokens - ls_min(ls_max(held_out, 1 + eod), tokens - 1);
    int64_t document = documents - 1;
    while (data_writer_document_first(train, document) >= cut)
        document--;
    if (document + 1 < documents && data_writer_document_first(train, document + 1) - cut <= eod)
        cut = data_writer_document_first(train, ++document);
    int status =
        cut_at_line(prepare, data_writer_document_first(train, document), &cut, block, error);
    return status ? status : move_tail(prepare, document, cut, block, error);
}

static int hold_out_tail(struct prepare *prepare, struct ls_error *error)
{
    int32_t *block = malloc(COPY_TOKENS * sizeof *block);
    if (!block)
        return ls_no_memory(error, "to hold out a share for validation");
    int status = prepare->config->records == LS_RECORDS_TEXT
                     ? hold_out_part(prepare, block, error)
                     : hold_out_example(prepare, block, error);
    free(block);
    return status;
}

/* ---- bringing it to disk -------------------------------------------------------------------- */

/* All is on disk under temporary names. */
static int publish(struct prepare *prepare, struct ls_error *error)
{
    int status = publish_skipped(prepare, error);
    if (status) /* a store that is there stays */
        return status;
    data_writer_clear(&prepare->train);
    data_writer_clear(&prepare->validation);
    if (prepare->share == 0)
        unlink(prepare->validation.files[LS_SUMS_BIN].path);
    status = data_name_publish(&prepare->recorded, error);
    if (!status && prepare->share > 0)
        status = data_writer_publish(&prepare->validation, error);
    if (!status)
        status = data_writer_publish(&prepare->train, error);
    char folder[PATH_MAX]; /* where the names live, which must reach the disk too */
    ls_path_parent(prepare->recorded.path, folder);
    ls_directory_sync(folder, NULL, NULL);
    return status;
}

static int finish(struct prepare *prepare, struct ls_error *error)
{
    if (prepare->train.tokens + prepare->validation.tokens == 0)
        return ls_error_set(error, LS_EDATA,
                            "empty corpus: the inputs hold no text%s; nothing was written",
                            prepare->report->skipped ? " but bad records" : "");
    int status = LS_OK;
    if (prepare->share > 0 && prepare->validation.tokens == 0)
        status = hold_out_tail(prepare, error);
    if (!status)
        status = data_writer_finish(&prepare->train, error);
    if (!status && prepare->share > 0)
        status = data_writer_finish(&prepare->validation, error);
    if (!status)
        status = data_tokenizer_write(prepare->tokenizer, prepare->recorded.temporary, error);
    return status ? status : publish(prepare, error);
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* corpora/, . and .. would give files whose names begin with _train. */
static bool is_folder(const char *prefix)
{
    const char *slash = strrchr(prefix, '/'), *name = slash ? slash + 1 : prefix;
    return !*name || !strcmp(name, ".") || !strcmp(name, "..");
}

static int check(const struct ls_prepare_config *config, struct ls_error *error)
{
    if (config->inputs_count < 1)
        return ls_error_set(error, LS_EINVAL, "no input; name files or folders");
    if (is_folder(config->output))
        return ls_error_set(error, LS_EINVAL,
                            "output \"%.300s\": a folder; expected how the files' names "
                            "begin, such as corpus, for corpus_train.bin and others",
                            config->output);
    if (config->records == LS_RECORDS_CHAT && !config->chat)
        return ls_error_set(error, LS_EINVAL, "conversations need a chat template");
    if (!(config->validation >= 0 && config->validation < 1))
        return ls_error_set(error, LS_EINVAL,
                            "a validation share of %g; expected 0 or more, below 1",
                            config->validation);
    if (config->workers < 1 || config->workers > WORKERS_MAX)
        return ls_error_set(error, LS_EINVAL, "prepare: %d workers; expected 1 to %d",
                            config->workers, WORKERS_MAX);
    return LS_OK;
}

/* Publishing replaces or removes all of these. */
static int spare_inputs(const struct prepare *prepare, const struct data_corpus *corpus,
                        struct ls_error *error)
{
    char skipped[PATH_MAX];
    int status = skipped_path(prepare, skipped, error);
    for (int i = 0; i <= LS_SUMS_FILES && !status; i++) {
        status = data_corpus_spare(corpus, prepare->train.files[i].path, error);
        if (!status)
            status = data_corpus_spare(corpus, prepare->validation.files[i].path, error);
    }
    if (!status)
        status = data_corpus_spare(corpus, prepare->recorded.path, error);
    return status ? status : data_corpus_spare(corpus, skipped, error);
}

static int open_outputs(struct prepare *prepare, const struct data_corpus *corpus,
                        struct ls_error *error)
{
    const char *prefix = prepare->config->output;
    char *train, *validation;
    if (asprintf(&train, "%s_train", prefix) < 0)
        train = NULL;
    if (asprintf(&validation, "%s_valid", prefix) < 0)
        validation = NULL;
    int status = data_name_init(&prepare->recorded, prefix, ".tokenizer", error);
    if (!status && (!train || !validation))
        status = ls_no_memory(error, "to write %s", prefix);
    enum ls_dtype dtype = ls_token_dtype(ls_tokenizer_vocabulary(prepare->tokenizer));
    if (!status)
        status = data_writer_init(&prepare->train, train, dtype, error);
    if (!status)
        status = data_writer_init(&prepare->validation, validation, dtype, error);
    if (!status)
        status = spare_inputs(prepare, corpus, error);
    if (!status)
        status = data_writer_begin(&prepare->train, error);
    if (!status && prepare->share > 0)
        status = data_writer_begin(&prepare->validation, error);
    free(train);
    free(validation);
    return status;
}

static void report_split(const struct data_writer *writer, struct ls_prepare_split *split)
{
    *split = (struct ls_prepare_split){writer->documents_count, writer->tokens,
                                       data_writer_counted(writer)};
}

int ls_data_prepare(const struct ls_prepare_config *config, struct ls_prepare_report *report,
                    struct ls_error *error)
{
    double began_s = ls_now_s();
    *report = (struct ls_prepare_report){0};
    struct prepare prepare = {.config = config,
                              .report = report,
                              .train = {.fd = -1},
                              .validation = {.fd = -1},
                              .skipped = {.fd = -1}};
    struct data_corpus_config reading = {.inputs = config->inputs,
                                         .count = config->inputs_count,
                                         .json_key = config->json_key ? config->json_key : "text",
                                         .records = config->records,
                                         .weight_key = config->weight_key,
                                         .chat = config->chat,
                                         .bad = config->skip_bad ? skip_record : NULL,
                                         .user = &prepare};
    prepare.share = (int64_t)(config->validation * SHARE_UNIT + 0.5);
    struct data_corpus *corpus = NULL;
    int status = check(config, error);
    if (!status)
        status = ls_tokenizer_new(config->tokenizer, &prepare.tokenizer, error);
    if (!status && config->append_eod && ls_tokenizer_eod(prepare.tokenizer) < 0)
        status =
            ls_error_set(error, LS_EINVAL,
                         "prepare: %s has no token that ends a document; name one as eos_token in "
                         "tokenizer_config.json beside it, or use --no-append-eod",
                         ls_tokenizer_spec(prepare.tokenizer));
    if (!status)
        status = data_corpus_open(&reading, &corpus, error);
    if (!status)
        status = open_outputs(&prepare, corpus, error);
    prepare.parts = (struct data_parts){.corpus = corpus,
                                        .cut = data_last_cut,
                                        .tokenizer = prepare.tokenizer,
                                        .put = segments_put,
                                        .user = &prepare};
    if (!status)
        status = encode_all(&prepare, error);
    encoding_release(&prepare);
    if (!status)
        status = finish(&prepare, error);
    report_split(&prepare.train, &report->train);
    report_split(&prepare.validation, &report->validation);
    report->alike = config->weight_key && !prepare.train.runs[DATA_WEIGHTS].count &&
                    !prepare.validation.runs[DATA_WEIGHTS].count;
    report->seconds = ls_now_s() - began_s;
    data_writer_release(&prepare.validation);
    data_writer_release(&prepare.train);
    data_name_release(&prepare.recorded);
    ls_atomic_file_abort(&prepare.skipped);
    data_corpus_close(corpus);
    ls_tokenizer_free(prepare.tokenizer);
    return status;
}
