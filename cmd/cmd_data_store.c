/* lockstep data split, merge, detokenize, verify, stats: parsing and printing only. */
#include "cmd.h"
#include "stores.h"

#include <lockstep/base/file.h>
#include <lockstep/base/meter.h>
#include <lockstep/base/words.h>
#include <lockstep/data/corpus_tools.h>

#include <string.h>

static int required(const struct cmd_args *args, const char *option, const char *what,
                    const char **value, struct ls_error *error)
{
    *value = cmd_args_value(args, option);
    if (args->words < 1)
        return ls_error_set(error, LS_ECONFIG, "STORE is missing: the token store to read");
    return *value ? LS_OK
                  : ls_error_set(error, LS_ECONFIG, "%s %s is missing (--help shows the options)",
                                 option, what);
}

/* What the arguments say of it. */
static int read_job(const struct cmd_args *args, const char *what, struct ls_store_job *job,
                    struct ls_error *error)
{
    *job = (struct ls_store_job){.part_documents = LS_PART_DOCUMENTS};
    int status = required(args, "--output", what, &job->output, error);
    return status ? status
                  : cmd_args_int(args, "--part-documents", 1, INT64_C(1) << 40,
                                 &job->part_documents, error);
}

static void print_resumed(FILE *file, int64_t documents)
{
    if (documents > 0)
        fprintf(file, "; %lld were done before", (long long)documents);
    fputc('\n', file);
}

static void print_part(const char *name, const struct ls_store_part *part)
{
    cmd_print("%s  %s, %s", name, ls_counted(part->documents, "document").text,
              ls_counted(part->tokens, "token").text);
    if (part->counted < part->tokens)
        cmd_print(", %lld of them count", (long long)part->counted);
    print_resumed(stdout, part->resumed);
}

int cmd_data_merge(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_store_part part;
    struct ls_store_job job;
    int status = read_job(args, "PREFIX", &job, error);
    if (status)
        return status;
    job.stop = cmd_stop_begin();
    status = ls_store_merge(args->word, args->words, &job, &part, error);
    ls_meter_clear();
    if (!status)
        print_part(job.output, &part);
    return status;
}

static bool is_jsonl(const char *path)
{
    return strncmp(path, "jsonl:", strlen("jsonl:")) == 0 || ls_path_ends(path, ".jsonl") ||
           ls_path_ends(path, ".jsonl.gz") || ls_path_ends(path, ".jsonl.zst");
}

/* The name of part i, a folder if they are in folders. */
static void part_name(const char *output, int i, const char *ending, char name[PATH_MAX])
{
    bool folder = ls_path_ends(output, "/");
    snprintf(name, PATH_MAX, "%s%s%d%s", output, folder ? "" : "_", i, folder ? "/" : ending);
}

static int split_corpus(const char *input, const struct ls_shares *shares,
                        const struct ls_store_job *job, bool skips, struct ls_error *error)
{
    char name[PATH_MAX];
    int64_t documents[LS_PARTS_MAX], skipped = 0;
    struct ls_corpus_report report;
    const struct ls_corpus_config config = {.inputs = &input,
                                            .inputs_count = 1,
                                            .output = job->output,
                                            .part_documents = job->part_documents,
                                            .workers = 1,
                                            .skip_bad = skips,
                                            .skipped = records_skipped,
                                            .user = &skipped,
                                            .stop = job->stop};
    int status = ls_corpus_split(&config, shares, documents, &report, error);
    ls_meter_clear();
    for (int i = 0; i < shares->count && !status; i++) {
        part_name(job->output, i, ".jsonl", name);
        cmd_print("%s  %s\n", name, ls_counted(documents[i], "document").text);
    }
    if (!status && report.resumed > 0)
        printf("%lld were done before\n", (long long)report.resumed);
    if (!status)
        records_print_skipped(report.skipped);
    return status;
}

int cmd_data_split(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_store_part parts[LS_PARTS_MAX];
    struct ls_shares shares;
    struct ls_store_job job;
    const char *text;
    bool skips = false;
    int status = read_job(args, "PREFIX", &job, error);
    if (!status)
        status = required(args, "--parts", "N", &text, error);
    if (!status && ls_shares_parse(text, &shares, error))
        status = ls_error_prefix(error, "--parts");
    if (!status)
        status = records_skip(args, &skips, error);
    if (status)
        return status;
    job.stop = cmd_stop_begin();
    if (is_jsonl(args->word[0]))
        return split_corpus(args->word[0], &shares, &job, skips, error);
    status = ls_store_split(args->word[0], &shares, &job, parts, error);
    ls_meter_clear();
    for (int i = 0; i < shares.count && !status; i++) {
        char name[PATH_MAX];
        part_name(job.output, i, "", name);
        print_part(name, &parts[i]);
    }
    return status;
}

int cmd_data_detokenize(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_detokenize_report report;
    struct ls_store_job job;
    int status = read_job(args, "FILE", &job, error);
    if (!status)
        status = records_workers(args, &job.workers, error);
    if (status)
        return status;
    job.stop = cmd_stop_begin();
    status = ls_store_detokenize(args->word[0], cmd_args_value(args, "--tokenizer"),
                                 cmd_args_value(args, "--json-keys"), &job, &report, error);
    ls_meter_clear();
    if (status || strcmp(job.output, "-") == 0)
        return status;
    cmd_print("%s  %s, %s", job.output, ls_counted(report.documents, "document").text,
              ls_counted(report.tokens, "token").text);
    if (report.resumed == 0) /* those that were done before are not read again */
        cmd_print(", %s of text", ls_counted(report.text_bytes, "byte").text);
    print_resumed(stdout, report.resumed);
    return LS_OK;
}

/* Visits the stores of all words, if there is one; what: what is done with them. */
static int words_each(const struct cmd_args *args, const char *what, const volatile int **stop,
                      int (*visit)(void *user, const char *store, struct ls_error *), void *user,
                      struct ls_error *error)
{
    int status = LS_OK;
    if (args->words < 1)
        return ls_error_set(error, LS_ECONFIG, "STORE is missing: the token store to %s", what);
    *stop = cmd_stop_begin();
    for (int i = 0; i < args->words && !status; i++)
        status = stores_each(args->word[i], visit, user, error);
    return status;
}

/* ---- verify ---------------------------------------------------------------------------------- */

struct verification {
    const char *tokenizer;
    const volatile int *stop;
    int first; /* status of the first store that is not as it was; LS_OK: all are */
};

static void print_check(const char *store, const struct ls_store_check *check)
{
    cmd_print("whole    %s: ", store);
    if (check->documents > 0)
        cmd_print("%s, ", ls_counted(check->documents, "document").text);
    cmd_print("%s", ls_counted(check->tokens, "token").text);
    if (check->counted < check->tokens)
        cmd_print(" (%lld count)", (long long)check->counted);
    if (check->vocabulary > 0)
        cmd_print(", ids below %lld", (long long)check->vocabulary);
    else
        cmd_print(", no tokenizer recorded");
    if (check->blocks > 0)
        cmd_print(", digests of %s\n", ls_counted(check->blocks, "block").text);
    else
        cmd_print(", no digests\n");
}

static int verify_one(void *user, const char *store, struct ls_error *error)
{
    struct verification *v = user;
    struct ls_store_check check;
    struct ls_error found = {0};
    int status = ls_store_verify(store, v->tokenizer, v->stop, &check, &found);
    ls_meter_clear();
    if (status == LS_ESTOPPED || status == LS_ENOMEM)
        return ls_error_copy(error, status, &found);
    if (status)
        cmd_print("%s  %s: %s\n", status == LS_EDATA ? "DAMAGED" : "FAILED ", store, found.text);
    else
        print_check(store, &check);
    v->first = v->first ? v->first : status;
    return LS_OK;
}

int cmd_data_verify(const struct cmd_args *args, struct ls_error *error)
{
    struct verification v = {.tokenizer = cmd_args_value(args, "--tokenizer")};
    int status = words_each(args, "check", &v.stop, verify_one, &v, error);
    return status ? status : v.first ? ls_exit_code(v.first) : LS_OK;
}

/* ---- stats ----------------------------------------------------------------------------------- */

struct statistics {
    const char *tokenizer, *svg;
    const volatile int *stop;
    int drawn;
};
struct picture {
    const struct ls_store_stats *stats;
    const char *title;
};

static int draw(const void *context, FILE *file, struct ls_error *error)
{
    const struct picture *picture = context;
    return ls_store_stats_draw(picture->stats, picture->title, file, error);
}

static void print_stats(const char *store, const struct ls_store_stats *stats)
{
    double tokens = (double)stats->tokens, documents = (double)stats->documents;
    cmd_print("%s\n", store);
    printf("  documents        %lld\n", (long long)stats->documents);
    printf("  tokens           %lld\n", (long long)stats->tokens);
    if (stats->counted < stats->tokens)
        printf("  that count       %lld\n", (long long)stats->counted);
    printf("  tokens/document  %.1f (%lld to %lld)\n", tokens / documents,
           (long long)stats->shortest, (long long)stats->longest);
    printf("  quantiles       ");
    for (int i = 0; i < LS_STATS_QUANTILES; i++)
        printf(" %.0f%%: %lld", 100 * ls_stats_share[i], (long long)stats->quantile[i]);
    putchar('\n');
    if (stats->text_bytes > 0)
        printf("  tokens/byte      %.4f (%lld bytes of text)\n", tokens / (double)stats->text_bytes,
               (long long)stats->text_bytes);
}

static int stats_one(void *user, const char *store, struct ls_error *error)
{
    struct statistics *s = user;
    struct ls_store_stats stats;
    int status = ls_store_stats(store, s->tokenizer, s->stop, &stats, error);
    ls_meter_clear();
    if (!status && s->svg && s->drawn++ > 0)
        status = ls_error_set(error, LS_ECONFIG,
                              "--svg draws one store: name PREFIX_train or PREFIX_valid");
    if (!status && s->svg)
        status = ls_store_spare(store, s->svg, error);
    if (!status)
        print_stats(store, &stats);
    if (!status && s->svg)
        status = ls_file_write(s->svg, draw, &(struct picture){&stats, store}, error);
    return status;
}

int cmd_data_stats(const struct cmd_args *args, struct ls_error *error)
{
    struct statistics s = {.tokenizer = cmd_args_value(args, "--tokenizer"),
                           .svg = cmd_args_value(args, "--svg")};
    return words_each(args, "measure", &s.stop, stats_one, &s, error);
}
