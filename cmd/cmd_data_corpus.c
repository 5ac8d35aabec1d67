/* lockstep data dedup, filter: parsing and printing only. */
#include "cmd.h"
#include "stores.h"

#include <lockstep/base/meter.h>
#include <lockstep/base/words.h>
#include <lockstep/data/corpus_tools.h>
#include <lockstep/device.h>

#include <string.h>

void records_skipped(void *user, const char *why)
{
    enum { SHOWN = 10 };
    int64_t *count = user;
    ls_meter_clear();
    if ((*count)++ < SHOWN)
        fprintf(stderr, "lockstep %s: skipped %s\n", cmd_name(), why);
    else if (*count == SHOWN + 1)
        fprintf(stderr, "lockstep %s: skipped more, not shown here\n", cmd_name());
}

void records_print_skipped(int64_t count)
{
    if (count > 0)
        printf("%s skipped\n", ls_counted(count, "bad record").text);
}

int records_skip(const struct cmd_args *args, bool *skips, struct ls_error *error)
{
    static const struct ls_word on_errors[] = {{"stop", 0}, {"skip", 1}, {0}};
    int value = 0, status = cmd_args_word(args, "--on-error", on_errors, &value, error);
    *skips = value;
    return status;
}

int records_workers(const struct cmd_args *args, int *workers, struct ls_error *error)
{
    int64_t count = ls_max(1, ls_min(256, ls_device_cores()));
    int status = cmd_args_int(args, "--workers", 1, 1024, &count, error);
    *workers = (int)count;
    return status;
}

int records_config(const struct cmd_args *args, const char *output, struct ls_corpus_config *config,
                   int64_t *skipped, struct ls_error *error)
{
    *config = (struct ls_corpus_config){.inputs = args->word,
                                        .inputs_count = args->words,
                                        .output = cmd_args_value(args, "--output"),
                                        .json_key = cmd_args_value(args, "--json-keys"),
                                        .skipped = records_skipped,
                                        .user = skipped};
    if (!config->inputs_count || !config->output)
        return ls_error_set(error, LS_ECONFIG, "%s is missing (--help shows the options)",
                            !config->inputs_count ? "--input PATH..." : output);
    int status = records_skip(args, &config->skip_bad, error);
    return status ? status : records_workers(args, &config->workers, error);
}

static int read_config(const struct cmd_args *args, struct ls_corpus_config *config,
                       int64_t *skipped, struct ls_error *error)
{
    int status = records_config(args, "--output FILE", config, skipped, error);
    config->part_documents = LS_PART_DOCUMENTS;
    return status ? status
                  : cmd_args_int(args, "--part-documents", 1, INT64_C(1) << 40,
                                 &config->part_documents, error);
}

/* Where the report goes: standard output may have the documents. */
static FILE *report_file(const struct ls_corpus_config *config)
{
    return strcmp(config->output, "-") == 0 ? stderr : stdout;
}

static void print_report(FILE *file, const struct ls_corpus_report *report)
{
    fprintf(file, "%s, %lld kept, %lld removed", ls_counted(report->documents, "document").text,
            (long long)(report->documents - report->removed), (long long)report->removed);
    if (report->skipped > 0)
        fprintf(file, "; %s skipped", ls_counted(report->skipped, "bad record").text);
    if (report->resumed > 0)
        fprintf(file, "; %lld were done before", (long long)report->resumed);
    fputc('\n', file);
}

int cmd_data_dedup(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_corpus_config config;
    struct ls_dedup_config dedup = {.list = cmd_args_value(args, "--pairs")};
    struct ls_dedup_report report;
    int64_t skipped = 0, hashes = 128, shingle = 5;
    int status = read_config(args, &config, &skipped, error);
    if (!status)
        status = cmd_args_real(args, "--near", 0.1, 1, &dedup.near, error);
    if (!status)
        status = cmd_args_int(args, "--hashes", 16, 1024, &hashes, error);
    if (!status)
        status = cmd_args_int(args, "--shingle", 1, 32, &shingle, error);
    bool unused = cmd_args_given(args, "--hashes") || cmd_args_given(args, "--shingle");
    if (!status && dedup.near == 0 && unused)
        status = ls_error_set(error, LS_ECONFIG, "--hashes and --shingle need --near SIMILARITY");
    if (status)
        return status;
    dedup.hashes = (int)hashes;
    dedup.shingle = (int)shingle;
    config.stop = cmd_stop_begin();
    status = ls_corpus_dedup(&config, &dedup, &report, error);
    ls_meter_clear();
    if (status)
        return status;
    FILE *file = report_file(&config);
    print_report(file, &report.corpus);
    int64_t kept = report.corpus.documents - report.corpus.removed;
    fprintf(file, "memory of the documents kept: %s, %.0f bytes for each\n",
            ls_bytes((double)report.memory_bytes).text,
            (double)report.memory_bytes / (double)ls_max(kept, 1));
    fprintf(file, "exact duplicates: %lld\n", (long long)report.exact);
    if (dedup.near == 0)
        return LS_OK;
    fprintf(file, "near duplicates: %lld, of similarity %g or more by %d hashes\n",
            (long long)report.near, dedup.near, report.hashes);
    fprintf(file, "%d bands of %d rows: ", report.bands, report.rows);
    fprintf(file, "a pair at %g is compared with probability %.3f, at %g with %.3f\n", dedup.near,
            ls_dedup_probability(dedup.near, report.bands, report.rows), dedup.near / 2,
            ls_dedup_probability(dedup.near / 2, report.bands, report.rows));
    return LS_OK;
}

/* ---- filter ---------------------------------------------------------------------------------- */

static void print_rules(void)
{
    int count;
    const struct ls_filter_rule *rules = ls_filter_rules(&count);
    printf("%-36s %-8s %-22s %s\n", "rule", "bound", "groups", "measure");
    for (int i = 0; i < count; i++)
        printf("%-36s %-8g %-22s %s\n", rules[i].name, rules[i].bound, rules[i].group,
               rules[i].help);
}

static void print_removed(FILE *file, const struct ls_filter *filter,
                          const struct ls_filter_report *report)
{
    int count;
    const struct ls_filter_rule *rules = ls_filter_rules(&count);
    fprintf(file, "%-36s %-8s %10s %10s\n", "rule", "bound", "removed", "failed");
    for (int i = 0; i < count; i++)
        if (filter->used[i])
            fprintf(file, "%-36s %-8g %10lld %10lld\n", rules[i].name, filter->bound[i],
                    (long long)report->first[i], (long long)report->failed[i]);
}

int cmd_data_filter(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_corpus_config config;
    struct ls_filter_report report;
    struct ls_filter filter;
    int64_t skipped = 0;
    if (cmd_args_given(args, "--list")) {
        print_rules();
        return LS_OK;
    }
    int status = read_config(args, &config, &skipped, error);
    if (!status && ls_filter_parse(cmd_args_value(args, "--rules"), &filter, error))
        status = ls_error_prefix(error, "--rules");
    if (status)
        return status;
    config.stop = cmd_stop_begin();
    status = ls_corpus_filter(&config, &filter, cmd_args_value(args, "--explain"), &report, error);
    ls_meter_clear();
    if (status)
        return status;
    print_report(report_file(&config), &report.corpus);
    print_removed(report_file(&config), &filter, &report);
    return LS_OK;
}
