/* Documents that fail rules of quality: the table of rules, and the removal. */
#include "data/filter_measure.h"

#include <lockstep/trace.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)FILTER_RULES <= (int)LS_FILTER_RULES_MAX, "LS_FILTER_RULES_MAX holds all");

/* The groups of a rule, and the one that is used by default. */
#define GOPHER        "gopher"
#define ANY           "gopher any"
#define REPEAT        "gopher any repetition"
#define DEFAULT_RULES "any"

/* Order of enum filter_measure. */
static const struct ls_filter_rule rules[FILTER_RULES] = {
    {"characters-min", "length", false, 200, "characters"},
    {"characters-max", "length", true, 1000000, "characters"},
    {"words-min", ANY, false, 50, "words"},
    {"words-max", ANY, true, 100000, "words"},
    {"word-length-min", GOPHER, false, 3, "characters of a word, on average"},
    {"word-length-max", GOPHER, true, 10, "characters of a word, on average"},
    {"hashes-max", ANY, true, 0.1, "signs # for each word"},
    {"ellipses-max", ANY, true, 0.1, "ellipses for each word"},
    {"bullet-lines-max", ANY, true, 0.9, "share of lines that begin with a bullet"},
    {"ellipsis-lines-max", ANY, true, 0.3, "share of lines that end with an ellipsis"},
    {"alphabetic-min", ANY, false, 0.8, "share of words with a letter"},
    {"stop-words-min", GOPHER, false, 2, "of the, be, to, of, and, that, have, with"},
    {"duplicate-lines-max", REPEAT, true, 0.3, "share of lines that repeat an earlier one"},
    {"duplicate-paragraphs-max", REPEAT, true, 0.3, "the same of paragraphs"},
    {"duplicate-line-characters-max", REPEAT, true, 0.2, "share of characters in such lines"},
    {"duplicate-paragraph-characters-max", REPEAT, true, 0.2, "the same of paragraphs"},
    {"top-2-gram-max", REPEAT, true, 0.2, "share of characters in the most frequent 2-gram"},
    {"top-3-gram-max", REPEAT, true, 0.18, "the same of 3-grams"},
    {"top-4-gram-max", REPEAT, true, 0.16, "the same of 4-grams"},
    {"duplicate-5-grams-max", REPEAT, true, 0.15, "share of characters in repeated 5-grams"},
    {"duplicate-6-grams-max", REPEAT, true, 0.14, "the same of 6-grams"},
    {"duplicate-7-grams-max", REPEAT, true, 0.13, "the same of 7-grams"},
    {"duplicate-8-grams-max", REPEAT, true, 0.12, "the same of 8-grams"},
    {"duplicate-9-grams-max", REPEAT, true, 0.11, "the same of 9-grams"},
    {"duplicate-10-grams-max", REPEAT, true, 0.1, "the same of 10-grams"},
    {"sentences-min", "c4", false, 3, "sentences in lines that C4 keeps"},
    {"lorem-ipsum-max", "c4", true, 0, "times that it says lorem ipsum"},
    {"braces-max", "c4", true, 0, "curly brackets"},
};

const struct ls_filter_rule *ls_filter_rules(int *count)
{
    *count = FILTER_RULES;
    return rules;
}

/* ---- which rules ----------------------------------------------------------------------------- */

/* Whether the list of groups, with spaces between, has this one. */
static bool in_group(const char *groups, const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || strchr(name, ' '))
        return false;
    for (const char *at = groups; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, name, length) == 0 && (at[length] == ' ' || !at[length]))
            return true;
    }
    return false;
}

static int unknown(const char *name, struct ls_error *error)
{
    const char *names[FILTER_RULES + 5] = {"any", "gopher", "repetition", "c4", "length"};
    for (int i = 0; i < FILTER_RULES; i++)
        names[5 + i] = rules[i].name;
    const char *near = ls_nearest(name, names, FILTER_RULES + 5);
    return ls_error_set(error, LS_ECONFIG,
                        "no rule and no group of rules \"%.100s\"%s: expected names with "
                        "commas, of which a rule's may end in =BOUND",
                        name, ls_meant(near, "").text);
}

static int use_rule(struct ls_filter *filter, int rule, const char *bound, struct ls_error *error)
{
    char *end;
    filter->used[rule] = true;
    if (!bound)
        return LS_OK;
    errno = 0;
    filter->bound[rule] = strtod(bound, &end);
    if (*bound && !*end && !errno && isfinite(filter->bound[rule]) && filter->bound[rule] >= 0)
        return LS_OK;
    return ls_error_set(error, LS_ECONFIG, "%s = %.100s: expected a number from 0 on",
                        rules[rule].name, bound);
}

/* One name of the list, as a text of its own. */
static int use(struct ls_filter *filter, char *name, struct ls_error *error)
{
    char *bound = strchr(name, '=');
    bool found = false;
    if (bound)
        *bound++ = '\0';
    for (int i = 0; i < FILTER_RULES; i++)
        if (strcmp(rules[i].name, name) == 0)
            return use_rule(filter, i, bound, error);
    for (int i = 0; i < FILTER_RULES && !bound; i++)
        if (in_group(rules[i].group, name))
            found = filter->used[i] = true;
    return found ? LS_OK : unknown(name, error);
}

int ls_filter_parse(const char *text, struct ls_filter *out, struct ls_error *error)
{
    char *names = strdup(text ? text : DEFAULT_RULES), *rest = names;
    *out = (struct ls_filter){0};
    for (int i = 0; i < FILTER_RULES; i++)
        out->bound[i] = rules[i].bound;
    int status = names ? LS_OK : ls_no_memory(error, "for the rules");
    while (rest && !status)
        status = use(out, strsep(&rest, ","), error);
    free(names);
    return status;
}

/* ---- judging --------------------------------------------------------------------------------- */

struct filtering {
    const struct ls_filter *filter;
    struct ls_filter_report *report;
    struct filter_scratch *scratch; /* by worker */
    struct data_corpus *corpus;
    struct data_corpus_output output;
};
struct judged {
    double value[FILTER_RULES];
};

static int judge(void *user, int worker, struct data_document *document, struct ls_error *error)
{
    struct filtering *f = user;
    struct judged *judged = document->result;
    return filter_measure(&f->scratch[worker], f->filter->used, &document->text, judged->value,
                          error);
}

static bool fails(const struct ls_filter *filter, const struct judged *judged, int rule)
{
    double value = judged->value[rule], bound = filter->bound[rule];
    return filter->used[rule] && (rules[rule].most ? value > bound : value < bound);
}

struct removal {
    const struct ls_filter *filter;
    const struct judged *judged;
    int first;
};

static int write_removal(const void *context, FILE *file, struct ls_error *error)
{
    const struct removal *removal = context;
    const struct ls_filter *filter = removal->filter;
    const struct judged *judged = removal->judged;
    (void)error;
    fputs(", \"rules\": \"", file);
    for (int i = removal->first; i < FILTER_RULES; i++)
        if (fails(filter, judged, i))
            fprintf(file, "%s%s", i > removal->first ? "," : "", rules[i].name);
    fprintf(file, "\", \"value\": %.6g, \"bound\": %.6g}\n", judged->value[removal->first],
            filter->bound[removal->first]);
    return LS_OK;
}

static int decide(void *user, const struct data_document *document, struct ls_error *error)
{
    struct filtering *f = user;
    const struct judged *judged = document->result;
    struct removal removal = {f->filter, judged, -1};
    for (int i = FILTER_RULES; i-- > 0;)
        if (fails(f->filter, judged, i)) {
            removal.first = i;
            f->report->failed[i]++;
        }
    if (removal.first < 0)
        return data_corpus_output_put(&f->output, document, NULL, NULL, error);
    f->report->first[removal.first]++;
    f->report->corpus.removed++;
    return data_corpus_output_put(&f->output, document, write_removal, &removal, error);
}

/* ---- parts that are there -------------------------------------------------------------------- */

/* Counts a document that was removed in an earlier call. */
static void count_removed(void *user, const struct ls_record *record)
{
    struct ls_filter_report *report = user;
    const char *at = ls_record_text(record, "rules");
    bool first = true;
    for (size_t length; at && *at; at += length + (at[length] == ',')) {
        length = strcspn(at, ",");
        for (int i = 0; i < FILTER_RULES; i++)
            if (strlen(rules[i].name) == length && strncmp(rules[i].name, at, length) == 0) {
                report->failed[i]++;
                report->first[i] += first;
                report->corpus.removed += first;
                first = false;
            }
    }
}

static int count_parts(struct filtering *f, struct ls_error *error)
{
    char path[PATH_MAX];
    int status = LS_OK;
    for (int64_t i = 0; i < f->output.folder.parts && !status; i++) {
        bool torn;
        status = data_folder_part(&f->output.folder, i, DATA_REMOVED_JSONL, path, error);
        if (!status)
            status = ls_jsonl_each(path, count_removed, f->report, &torn, error);
    }
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* The rules with their bounds, by which a folder's job is known. */
static void job_text(const struct ls_filter *filter, char *text, size_t bytes)
{
    snprintf(text, bytes, "filter:");
    for (int i = 0; i < FILTER_RULES; i++)
        if (filter->used[i])
            ls_string_add(text, bytes, " ", "%s=%.17g", rules[i].name, filter->bound[i]);
    LS_ASSERT(strlen(text) + 1 < bytes);
}

static int run(struct filtering *f, const struct ls_corpus_config *config, struct ls_error *error)
{
    const struct data_documents documents = {.corpus = f->corpus,
                                             .skip = f->report->corpus.resumed,
                                             .read = &f->report->corpus.documents,
                                             .workers = config->workers,
                                             .stop = config->stop,
                                             .result_bytes = sizeof(struct judged),
                                             .work = judge,
                                             .take = decide,
                                             .user = f};
    int status = count_parts(f, error);
    if (!status)
        status = data_documents_run(&documents, error);
    return status ? status : data_corpus_output_commit(&f->output, error);
}

int ls_corpus_filter(const struct ls_corpus_config *config, const struct ls_filter *filter,
                     const char *list, struct ls_filter_report *report, struct ls_error *error)
{
    struct filtering f = {.filter = filter, .report = report};
    struct data_reading reading = {
        .config = config, .skipped = &report->corpus.skipped, .keep_lines = true};
    char job[FILTER_RULES * 80];
    *report = (struct ls_filter_report){0};
    int status = data_reading_open(&reading, &f.corpus, error);
    if (!status)
        f.scratch = calloc((size_t)config->workers, sizeof *f.scratch);
    if (!status && !f.scratch)
        status = ls_no_memory(error, "for %d workers", config->workers);
    job_text(filter, job, sizeof job);
    const struct data_inputs inputs = data_corpus_inputs(f.corpus);
    if (!status)
        status = data_corpus_output_open(&f.output, config, &inputs, list, job,
                                         &report->corpus.resumed, error);
    if (!status)
        status = run(&f, config, error);
    report->corpus.resumed = ls_min(report->corpus.resumed, report->corpus.documents);
    data_corpus_output_release(&f.output);
    for (int i = 0; f.scratch && i < config->workers; i++)
        filter_scratch_release(&f.scratch[i]);
    free(f.scratch);
    data_corpus_close(f.corpus);
    return status;
}
