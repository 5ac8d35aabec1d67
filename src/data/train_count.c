/* The words of a corpus, counted by threads, each in a table of its own. Tables are joined at the
 * end, and counts are sums, so the result does not depend on the threads. */
#include "data/train_private.h"

#include <stdlib.h>

enum { WORD_BYTES_MAX = 1 << 30 }; /* longer ones are cut, as the encoder does */

/* A part of the text. */
struct part {
    struct ls_text text;
    size_t *ends; /* of the documents in it, or of their parts */
    int64_t ends_count, ends_room;
};
struct counting {
    const struct data_splitter *splitter;
    struct ls_train_tokenizer_report *report;
    struct data_parts parts;
    struct data_words *words; /* [workers] */
};

/* ---- a part of the text ---------------------------------------------------------------------- */

static int end_put(void *user, void *filled, size_t begin, bool ends, struct ls_error *error)
{
    struct counting *counting = user;
    struct part *part = filled;
    (void)begin;
    if (!ls_list_grow(&part->ends, part->ends_count, &part->ends_room, sizeof *part->ends))
        return ls_no_memory(error, "to read a corpus");
    part->ends[part->ends_count++] = part->text.count;
    counting->report->documents += ends;
    return LS_OK;
}

/* Where a cut changes no word. */
static size_t words_cut(const struct ls_tokenizer *none, const unsigned char *text, size_t bytes)
{
    (void)none;
    return data_split_last_cut(text, bytes, true);
}

static int part_fill(void *user, void *job, bool *last, struct ls_error *error)
{
    struct counting *counting = user;
    struct part *part = job;
    part->ends_count = 0;
    int status = data_part_read(&counting->parts, &part->text, part, error);
    counting->report->text_bytes += (int64_t)part->text.count;
    *last = counting->parts.end;
    return status;
}

/* ---- counting it ----------------------------------------------------------------------------- */

static int word_count(struct data_words *words, const unsigned char *bytes, size_t count,
                      struct ls_error *error)
{
    int status = LS_OK;
    for (size_t here; count > 0 && !status; bytes += here, count -= here) {
        here = (size_t)ls_min((int64_t)count, WORD_BYTES_MAX);
        if (here > 1) /* a byte has no neighbour to merge with */
            status = data_words_add(words, bytes, here, 1, error);
    }
    return status;
}

/* Bytes that are no part of a character become tokens by themselves. */
static int document_count(const struct counting *counting, struct data_words *words,
                          const unsigned char *text, size_t bytes, struct ls_error *error)
{
    int status = LS_OK;
    while (bytes > 0 && !status) {
        size_t valid = ls_utf8_valid(text, bytes);
        for (size_t at = 0, end; at < valid && !status; at = end) {
            end = data_split_end(counting->splitter, text, valid, at);
            status = word_count(words, text + at, end - at, error);
        }
        valid += valid < bytes;
        text += valid;
        bytes -= valid;
    }
    return status;
}

static int part_count(void *user, int worker, void *job, struct ls_error *error)
{
    const struct counting *counting = user;
    const struct part *part = job;
    size_t begin = 0;
    int status = LS_OK;
    for (int64_t i = 0; i < part->ends_count && !status; begin = part->ends[i++])
        status =
            document_count(counting, &counting->words[worker],
                           (unsigned char *)part->text.bytes + begin, part->ends[i] - begin, error);
    return status;
}

static void part_release(void *job)
{
    struct part *part = job;
    ls_text_release(&part->text);
    free(part->ends);
}

/* ---- all of it ------------------------------------------------------------------------------- */

int data_words_count(const struct ls_train_tokenizer_config *config, struct data_corpus *corpus,
                     const struct data_splitter *splitter, struct data_words *words,
                     struct ls_train_tokenizer_report *report, struct ls_error *error)
{
    struct counting counting = {.splitter = splitter,
                                .report = report,
                                .words =
                                    calloc((size_t)config->corpus.workers, sizeof *counting.words)};
    counting.parts =
        (struct data_parts){.corpus = corpus, .cut = words_cut, .put = end_put, .user = &counting};
    int status =
        counting.words ? LS_OK : ls_no_memory(error, "for %d workers", config->corpus.workers);
    if (!status)
        status = data_work_run(&(struct data_work){.job_bytes = sizeof(struct part),
                                                   .workers = config->corpus.workers,
                                                   .stop = config->corpus.stop,
                                                   .stopped = "; nothing was written",
                                                   .fill = part_fill,
                                                   .work = part_count,
                                                   .release = part_release,
                                                   .user = &counting},
                               error);
    if (counting.words)
        *words = counting.words[0];
    for (int i = 1; counting.words && i < config->corpus.workers; i++) {
        if (!status)
            status = data_words_join(words, &counting.words[i], error);
        data_words_release(&counting.words[i]);
    }
    report->words = words->count;
    free(counting.words);
    ls_text_release(&counting.parts.carry);
    return status;
}
