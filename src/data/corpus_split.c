/* A corpus into parts, document by document. */
#include "data/corpus_private.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

struct splitting {
    struct ls_corpus_report *report;
    struct ls_shares shares;
    struct part {
        char path[PATH_MAX];
        struct ls_corpus_config config; /* whose output is path */
        struct data_corpus_output output;
    } * parts; /* [shares.count] */
};

static int give(void *user, const struct data_document *document, struct ls_error *error)
{
    struct splitting *s = user;
    struct data_document given = *document;
    int part = ls_shares_next(&s->shares);
    struct data_corpus_output *output = &s->parts[part].output;
    given.number = s->shares.given[part] - 1;
    s->report->documents++;
    s->report->resumed += data_folder_has(&output->folder, given.number);
    return data_corpus_output_put(output, &given, NULL, NULL, error);
}

static int open_parts(struct splitting *s, const struct ls_corpus_config *config,
                      const struct data_corpus *corpus, struct ls_error *error)
{
    const char *name = ls_path_ends(config->output, "/") ? "%s%d/" : "%s_%d.jsonl";
    const struct data_inputs inputs = data_corpus_inputs(corpus);
    char job[DATA_SPLIT_JOB_BYTES];
    int64_t skip;
    int status = LS_OK;
    s->parts = calloc((size_t)s->shares.count, sizeof *s->parts);
    if (!s->parts)
        return ls_no_memory(error, "to split a corpus");
    for (int i = 0; i < s->shares.count && !status; i++) {
        struct part *part = &s->parts[i];
        if (snprintf(part->path, sizeof part->path, name, config->output, i) >= PATH_MAX)
            return ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long",
                                config->output);
        part->config = *config;
        part->config.output = part->path;
        data_split_job(&s->shares, i, job);
        status =
            data_corpus_output_open(&part->output, &part->config, &inputs, NULL, job, &skip, error);
        part->output.removes = false;
    }
    return status;
}

static int check_parts(const struct splitting *s, struct ls_error *error)
{
    for (int i = 0; i < s->shares.count; i++)
        if (s->shares.given[i] == 0)
            return ls_error_set(error, LS_EDATA,
                                "no document for part %d of %d: the input has %lld. Use fewer "
                                "parts",
                                i, s->shares.count, (long long)s->report->documents);
    return LS_OK;
}

int ls_corpus_split(const struct ls_corpus_config *config, const struct ls_shares *shares,
                    int64_t *documents, struct ls_corpus_report *report, struct ls_error *error)
{
    struct splitting s = {.report = report, .shares = *shares};
    struct data_reading reading = {
        .config = config, .skipped = &report->skipped, .keep_lines = true, .lines_alone = true};
    struct data_corpus *corpus;
    *report = (struct ls_corpus_report){0};
    int status = data_reading_open(&reading, &corpus, error);
    if (!status)
        status = open_parts(&s, config, corpus, error);
    const struct data_documents run = {
        .corpus = corpus, .workers = 1, .stop = config->stop, .take = give, .user = &s};
    if (!status)
        status = data_documents_run(&run, error);
    if (!status)
        status = check_parts(&s, error);
    for (int i = 0; i < shares->count && !status; i++)
        status = data_corpus_output_commit(&s.parts[i].output, error);
    for (int i = 0; i < shares->count; i++) {
        documents[i] = s.shares.given[i];
        if (s.parts)
            data_corpus_output_release(&s.parts[i].output);
    }
    free(s.parts);
    data_corpus_close(corpus);
    return status;
}
