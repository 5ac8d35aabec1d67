/* A corpus into parts, document by document. */
#include "data/corpus_private.h"

#include <lockstep/base/temporary.h>

#include <limits.h>
#include <stdio.h>

struct splitting {
    const struct ls_corpus_config *config;
    struct ls_corpus_report *report;
    struct ls_shares shares;
    struct ls_atomic_file *files; /* [opened] */
    int opened;
};

static int give(void *user, const struct data_document *document, struct ls_error *error)
{
    struct splitting *s = user;
    s->report->documents++;
    return data_document_put(document, s->config->json_key, &s->files[ls_shares_next(&s->shares)],
                             error);
}

static int open_parts(struct splitting *s, const struct data_corpus *corpus, struct ls_error *error)
{
    char path[PATH_MAX];
    int status = LS_OK;
    for (int i = 0; i < s->shares.count && !status; i++) {
        if (snprintf(path, sizeof path, "%s_%d.jsonl", s->config->output, i) >= (int)sizeof path)
            status = ls_error_set(error, LS_EINVAL, "%.200s...: the path is too long",
                                  s->config->output);
        if (!status)
            status = data_corpus_spare(corpus, path, error);
        if (!status)
            status = ls_atomic_file_open(&s->files[i], path, NULL, error);
        if (!status)
            ls_atomic_file_hold(&s->files[i]);
        s->opened += !status;
    }
    return status;
}

static int check_parts(const struct splitting *s, struct ls_error *error)
{
    for (int i = 0; i < s->shares.count; i++)
        if (s->shares.given[i] == 0)
            return ls_error_set(error, LS_EDATA,
                                "no document for part %d of %d: the input has %lld. Nothing was "
                                "written: use fewer parts",
                                i, s->shares.count, (long long)s->report->documents);
    return LS_OK;
}

int ls_corpus_split(const struct ls_corpus_config *config, const struct ls_shares *shares,
                    int64_t *documents, struct ls_corpus_report *report, struct ls_error *error)
{
    struct ls_atomic_file files[LS_PARTS_MAX];
    struct splitting s = {config, report, *shares, files, 0};
    struct data_reading reading = {config, &report->skipped, true};
    struct data_corpus *corpus;
    *report = (struct ls_corpus_report){0};
    int status = data_reading_open(&reading, &corpus, error), done = 0;
    if (!status)
        status = open_parts(&s, corpus, error);
    const struct data_documents run = {
        .corpus = corpus, .workers = 1, .stop = config->stop, .take = give, .user = &s};
    if (!status)
        status = data_documents_run(&run, error);
    if (!status)
        status = check_parts(&s, error);
    while (done < s.opened && !status)
        status = ls_atomic_file_commit(&files[done++], error);
    while (done < s.opened)
        ls_atomic_file_abort(&files[done++]);
    for (int i = 0; i < shares->count; i++)
        documents[i] = s.shares.given[i];
    data_corpus_close(corpus);
    return status;
}
