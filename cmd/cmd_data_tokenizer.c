/* lockstep data train-tokenizer: parsing and printing only. */
#include "cmd.h"
#include "stores.h"

#include <lockstep/base/meter.h>
#include <lockstep/base/words.h>
#include <lockstep/data/train_tokenizer.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The members of a list with commas between; text is changed. */
static int list_read(char *text, const char **list, int *count, struct ls_error *error)
{
    for (char *rest = text, *one; (one = strsep(&rest, ","));) {
        if (*count == LS_TRAIN_SPECIAL_MAX)
            return ls_error_set(error, LS_ECONFIG, "--special: more than %d tokens",
                                LS_TRAIN_SPECIAL_MAX);
        if (!*one)
            return ls_error_set(error, LS_ECONFIG,
                                "--special: an empty token in the list; expected TOKEN[,TOKEN...]");
        list[(*count)++] = one;
    }
    return LS_OK;
}

static int config_read(const struct cmd_args *args, struct ls_train_tokenizer_config *config,
                       int64_t *skipped, struct ls_error *error)
{
    const char *pattern = cmd_args_value(args, "--pattern");
    *config = (struct ls_train_tokenizer_config){.pattern = pattern ? pattern : "gpt2",
                                                 .frequency_min = LS_TRAIN_FREQUENCY_DEFAULT};
    int status = records_config(args, "--output DIR", &config->corpus, skipped, error);
    if (!status && !cmd_args_given(args, "--vocab"))
        status = ls_error_set(error, LS_ECONFIG, "--vocab N is missing (--help shows the options)");
    if (!status)
        status =
            cmd_args_int(args, "--vocab", 257, LS_TRAIN_VOCABULARY_MAX, &config->vocabulary, error);
    return status
               ? status
               : cmd_args_int(args, "--min-frequency", 1, INT64_MAX, &config->frequency_min, error);
}

static void report_print(const struct ls_train_tokenizer_config *config,
                         const struct ls_train_tokenizer_report *report)
{
    double bytes = (double)report->text_bytes;
    cmd_print("%s/tokenizer.json  %s, %s\n", config->corpus.output,
              ls_counted(report->vocabulary, "id").text, ls_counted(report->merges, "merge").text);
    if (report->vocabulary < config->vocabulary)
        printf("fewer than %" PRId64 ": no pair of tokens occurs %s any more\n", config->vocabulary,
               ls_counted(config->frequency_min, "time").text);
    printf("%.0f bytes of text in %s, %s, counted in %.2f s (%.1f MB/s), merged in %.2f s\n", bytes,
           ls_counted(report->documents, "document").text,
           ls_counted(report->words, "distinct word").text, report->count_seconds,
           bytes / 1e6 / report->count_seconds, report->merge_seconds);
    records_print_skipped(report->skipped);
}

int cmd_data_train_tokenizer(const struct cmd_args *args, struct ls_error *error)
{
    struct ls_train_tokenizer_config config;
    struct ls_train_tokenizer_report report;
    const char *special[LS_TRAIN_SPECIAL_MAX] = {"<|endoftext|>"}, *given;
    char *text = NULL;
    int64_t skipped = 0;
    int count = 0;
    int status = config_read(args, &config, &skipped, error);
    if (!status && (given = cmd_args_value(args, "--special"))) {
        text = strdup(given);
        status = text ? list_read(text, special, &count, error)
                      : ls_no_memory(error, "for special tokens");
    }
    if (!status) {
        config.special = special;
        config.special_count = count ? count : 1;
        config.corpus.stop = cmd_stop_begin();
        status = ls_train_tokenizer(&config, &report, error);
        ls_meter_clear();
    }
    if (!status)
        report_print(&config, &report);
    free(text);
    return status;
}
