/* The words of a corpus, counted by threads: each takes the next part of the text while it holds
 * the lock, and counts it in a table of its own. Tables are joined at the end, and counts are sums,
 * so the result does not depend on the threads. */
#include "data/train_private.h"

#include <lockstep/base/helper_thread.h>

#include <stdlib.h>

enum {
    PART_BYTES = 1 << 20,
    READ_BYTES_MIN = 1 << 16,
    WORD_BYTES_MAX = 1 << 30, /* longer ones are cut, as the encoder does */
};

struct counting {
    const struct ls_train_tokenizer_config *config;
    const struct data_splitter *splitter;
    pthread_mutex_t mutex; /* all that follows */
    struct data_corpus *corpus;
    struct ls_text carry; /* of a document that was cut */
    bool end;
    int64_t documents, text_bytes;
    int status;
    struct ls_error error;
};
struct counter {
    struct counting *counting;
    struct data_words words;
    struct ls_text text;
    size_t *ends; /* of the documents in text, or of their parts */
    int64_t ends_count, ends_room;
    pthread_t thread;
    bool started;
};

/* ---- taking a part of the text --------------------------------------------------------------- */

static int end_add(struct counter *counter, size_t end, struct ls_error *error)
{
    if (!ls_list_grow(&counter->ends, counter->ends_count, &counter->ends_room,
                      sizeof *counter->ends))
        return ls_error_set(error, LS_ENOMEM, "no memory to read a corpus");
    counter->ends[counter->ends_count++] = end;
    return LS_OK;
}

/* The document's text since begin does not end in this part: what follows a place where a cut
 * changes no word is carried over. *cut is false where there is no such place yet. */
static int document_cut(struct counter *counter, size_t begin, bool *cut, struct ls_error *error)
{
    struct ls_text *text = &counter->text;
    size_t bytes = text->count - begin;
    size_t keep = data_split_last_cut((unsigned char *)text->bytes + begin, bytes, true);
    *cut = keep > 0 || bytes == 0;
    if (keep == 0)
        return LS_OK;
    int status =
        data_text_put(&counter->counting->carry, text->bytes + begin + keep, bytes - keep, error);
    text->count = begin + keep;
    return status ? status : end_add(counter, text->count, error);
}

static int part_read(struct counter *counter, struct ls_error *error)
{
    struct counting *counting = counter->counting;
    struct ls_text *text = &counter->text;
    text->count = 0;
    counter->ends_count = 0;
    int status = data_text_put(text, counting->carry.bytes, counting->carry.count, error);
    counting->carry.count = 0;
    size_t begin = 0, goal = PART_BYTES;
    while (!status && !counting->end) {
        if (text->count >= goal) {
            bool cut;
            status = document_cut(counter, begin, &cut, error);
            if (status || cut)
                break;
            goal = 2 * text->count;
        }
        enum data_part part;
        size_t want = text->count < goal ? goal - text->count : 0;
        status = data_corpus_read(counting->corpus, (size_t)ls_max((int64_t)want, READ_BYTES_MIN),
                                  text, &part, error);
        counting->end = !status && part == DATA_CORPUS_END;
        if (!status && part == DATA_DOCUMENT_END) {
            counting->documents += 1;
            status = end_add(counter, text->count, error);
            begin = text->count;
        }
    }
    counting->text_bytes += (int64_t)text->count;
    return status;
}

/* False: there is none, or none any more. */
static bool part_take(struct counter *counter)
{
    struct counting *counting = counter->counting;
    const volatile int *stop = counting->config->stop;
    pthread_mutex_lock(&counting->mutex);
    if (stop && *stop && !counting->status)
        counting->status =
            ls_error_set(&counting->error, LS_ESTOPPED, "stopped by a signal; nothing was written");
    bool takes = !counting->status && !counting->end;
    if (takes)
        counting->status = part_read(counter, &counting->error);
    takes = takes && !counting->status;
    pthread_mutex_unlock(&counting->mutex);
    return takes;
}

/* ---- counting it ----------------------------------------------------------------------------- */

static int word_count(struct counter *counter, const unsigned char *bytes, size_t count,
                      struct ls_error *error)
{
    int status = LS_OK;
    for (size_t here; count > 0 && !status; bytes += here, count -= here) {
        here = (size_t)ls_min((int64_t)count, WORD_BYTES_MAX);
        if (here > 1) /* a byte has no neighbour to merge with */
            status = data_words_add(&counter->words, bytes, here, 1, error);
    }
    return status;
}

/* Bytes that are no part of a character become tokens by themselves. */
static int document_count(struct counter *counter, const unsigned char *text, size_t bytes,
                          struct ls_error *error)
{
    int status = LS_OK;
    while (bytes > 0 && !status) {
        size_t valid = data_utf8_valid(text, bytes);
        for (size_t at = 0, end; at < valid && !status; at = end) {
            end = data_split_end(counter->counting->splitter, text, valid, at);
            status = word_count(counter, text + at, end - at, error);
        }
        valid += valid < bytes;
        text += valid;
        bytes -= valid;
    }
    return status;
}

static void *count_parts(void *user)
{
    struct counter *counter = user;
    struct counting *counting = counter->counting;
    struct ls_error error = {0};
    int status = LS_OK;
    while (!status && part_take(counter)) {
        size_t begin = 0;
        for (int64_t i = 0; i < counter->ends_count && !status; i++) {
            status = document_count(counter, (unsigned char *)counter->text.bytes + begin,
                                    counter->ends[i] - begin, &error);
            begin = counter->ends[i];
        }
    }
    pthread_mutex_lock(&counting->mutex);
    if (status && !counting->status) {
        counting->status = status;
        counting->error = error;
    }
    pthread_mutex_unlock(&counting->mutex);
    return NULL;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* The caller's thread counts too. */
static int counters_run(struct counter *counters, int count, struct ls_error *error)
{
    int failure = 0;
    for (int i = 1; i < count && !failure; i++) {
        failure = ls_helper_start(&counters[i].thread, count_parts, &counters[i]);
        counters[i].started = !failure;
    }
    if (!failure)
        count_parts(&counters[0]);
    struct counting *counting = counters[0].counting;
    pthread_mutex_lock(&counting->mutex);
    if (failure && !counting->status)
        counting->status =
            ls_error_errno(&counting->error, failure, "one of %d workers cannot be started", count);
    pthread_mutex_unlock(&counting->mutex);
    for (int i = 1; i < count; i++)
        if (counters[i].started)
            pthread_join(counters[i].thread, NULL);
    return counting->status ? ls_error_set(error, counting->status, "%s", counting->error.text)
                            : LS_OK;
}

static void counters_free(struct counter *counters, int count)
{
    for (int i = 0; counters && i < count; i++) {
        data_words_release(&counters[i].words);
        ls_text_release(&counters[i].text);
        free(counters[i].ends);
    }
    free(counters);
}

int data_words_count(const struct ls_train_tokenizer_config *config, struct data_corpus *corpus,
                     const struct data_splitter *splitter, struct data_words *words,
                     struct ls_train_tokenizer_report *report, struct ls_error *error)
{
    struct counting counting = {.config = config, .splitter = splitter, .corpus = corpus};
    struct counter *counters = calloc((size_t)config->workers, sizeof *counters);
    if (!counters)
        return ls_error_set(error, LS_ENOMEM, "no memory for %d workers", config->workers);
    pthread_mutex_init(&counting.mutex, NULL);
    for (int i = 0; i < config->workers; i++)
        counters[i].counting = &counting;
    int status = counters_run(counters, config->workers, error);
    *words = counters[0].words;
    counters[0].words = (struct data_words){0};
    for (int i = 1; i < config->workers && !status; i++) {
        status = data_words_join(words, &counters[i].words, error);
        data_words_release(&counters[i].words);
    }
    report->documents = counting.documents;
    report->text_bytes = counting.text_bytes;
    report->words = words->count;
    counters_free(counters, config->workers);
    ls_text_release(&counting.carry);
    pthread_mutex_destroy(&counting.mutex);
    return status;
}
