/* Examples of fine-tuning and texts, as tokens. */
#include "examples.h"

#include "scratch.h"
#include "testing.h"

#include <limits.h>

#include <stdio.h>
#include <string.h>

static struct ls_prepare_report prepare_records(const char *folder, const char *name,
                                                enum ls_prepare_records records, const char *lines)
{
    char path[PATH_MAX], output[PATH_MAX];
    const char *inputs[] = {path};
    const struct ls_prepare_config config = {.inputs = inputs,
                                             .inputs_count = 1,
                                             .output = output,
                                             .tokenizer = "byte",
                                             .records = records,
                                             .append_eod = true,
                                             .workers = 1};
    struct ls_prepare_report report;
    struct ls_error error = {0};
    snprintf(path, sizeof path, "%s/%s.jsonl", folder, name);
    snprintf(output, sizeof output, "%s/%s", folder, name);
    scratch_write(path, lines, strlen(lines));
    assert_ok(ls_data_prepare(&config, &report, &error), error);
    return report;
}

struct ls_prepare_report examples_prepare(const char *folder, const char *name, const char *lines)
{
    return prepare_records(folder, name, LS_RECORDS_PAIRS, lines);
}

struct ls_prepare_report texts_prepare(const char *folder, const char *name, const char *lines)
{
    return prepare_records(folder, name, LS_RECORDS_TEXT, lines);
}
