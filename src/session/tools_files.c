/* The verbs convert, import, report and prepare: files of other programs, pages, token stores. */
#include "session/tools.h"

#include <lockstep/chat.h>
#include <lockstep/compare/report.h>
#include <lockstep/convert.h>
#include <lockstep/data.h>
#include <lockstep/interop.h>

#include <stdlib.h>
#include <string.h>

/* ---- convert --------------------------------------------------------------------------------- */

static json_t *items_json(const struct ls_convert *result)
{
    static const char *const fates[] = {
        [LS_CONVERT_KEPT] = "kept",       [LS_CONVERT_ASSUMED] = "assumed",
        [LS_CONVERT_DROPPED] = "dropped", [LS_CONVERT_AUTO] = "auto",
        [LS_CONVERT_LOST] = "lost",       [LS_CONVERT_UNKNOWN] = "unknown",
        [LS_CONVERT_ADVICE] = "advice"};
    json_t *items = json_array();
    for (size_t i = 0; i < result->count; i++) {
        const struct ls_convert_item *item = &result->items[i];
        json_array_append_new(items,
                              json_pack("{s:s,s:s,s:i,s:s,s:s,s:s}", "fate", fates[item->fate],
                                        "theirs", item->theirs, "line", item->line, "key",
                                        item->key, "value", item->value, "why", item->why));
    }
    return items;
}

static int project_read(struct ls_session *s, enum ls_convert_project *project,
                        struct ls_error *error)
{
    static const char expected[] = "deepspeed, megatron or torchtitan";
    const char *name = NULL, *one;
    const struct option options[] = {{"project", .text = &name, .needs = expected}, {0}};
    int status = options_read(&s->order, options, error);
    for (int i = 0; !status && (one = ls_convert_project_name(i)); i++)
        if (!strcmp(one, name)) {
            *project = (enum ls_convert_project)i;
            return LS_OK;
        }
    return status ? status
                  : ls_error_set(error, LS_EINVAL, "convert: project: expected %s", expected);
}

static int convert_options(struct ls_session *s, struct ls_convert_options *options,
                           struct order_keys *keys, struct ls_error *error)
{
    const struct option asked[] = {
        {"ranks", .whole = &options->ranks, .least = 1, .most = INT32_MAX},
        {"allow_loss", .flag = &options->allow_loss},
        {"preset", .text = &options->preset},
        {0}};
    int status = options_read(&s->order, asked, error);
    if (!status)
        status = order_keys_read(&s->order, keys, error);
    options->words = (const char *const *)keys->word;
    options->word_count = (size_t)keys->count;
    return status;
}

static int convert_source(struct ls_session *s, enum ls_convert_project project,
                          const struct ls_convert_options *options, struct ls_convert *result,
                          struct ls_error *error)
{
    const char *file = NULL, *text = NULL;
    const struct option from[] = {{"file", .text = &file}, {"text", .text = &text}, {0}};
    int status = options_read(&s->order, from, error);
    if (status)
        return status;
    if (!file == !text)
        return ls_error_set(error, LS_EINVAL, "convert: expected a file, or a text");
    return file ? ls_convert_file(result, project, file, options, error)
                : ls_convert_text(result, project, "text", text, strlen(text), options, error);
}

static int convert_alone(struct ls_session *s, struct ls_error *error)
{
    enum ls_convert_project project = LS_CONVERT_DEEPSPEED;
    struct ls_convert_options options = {0};
    struct ls_convert result = {0};
    struct order_keys keys = {0};
    int status = project_read(s, &project, error);
    if (!status)
        status = convert_options(s, &options, &keys, error);
    if (!status) {
        status = convert_source(s, project, &options, &result, error);
        answer_set(s, "items", items_json(&result)); /* they say what was refused */
        answer_set(s, "yaml", result.text ? json_string(result.text) : json_null());
        ls_convert_release(&result);
    }
    order_keys_release(&keys);
    return status;
}

/* ---- import and report ----------------------------------------------------------------------- */

static int import_alone(struct ls_session *s, struct ls_error *error)
{
    struct order_keys keys = {0};
    struct ls_log log = {.level_max = LS_LOG_WARNING, .write = session_log, .user = s};
    struct ls_import import = {.log = &log};
    struct ls_import_report report;
    const struct option options[] = {{"from", .text = &import.from, .needs = "a model's folder"},
                                     {"out", .text = &import.run, .needs = "a folder for the run"},
                                     {0}};
    int status = options_read(&s->order, options, error);
    if (!status)
        status = order_keys_read(&s->order, &keys, error);
    import.words = (const char *const *)keys.word;
    import.count = (int)keys.count;
    if (!status)
        status = ls_import(&import, &report, error);
    if (!status) {
        answer_set(s, "family", json_string(ls_arch_name(report.model.arch)));
        answer_set(s, "parameters", json_integer(report.parameters));
    }
    order_keys_release(&keys);
    return status;
}

/* The page of some runs, or the picture of their losses. */
struct shown {
    const char **runs;
    int count;
    bool log;
};

static int page_write(const void *context, FILE *file, struct ls_error *error)
{
    const struct shown *shown = context;
    return ls_report_write(shown->runs, shown->count, file, error);
}

static int curves_draw(const void *context, FILE *file, struct ls_error *error)
{
    const struct shown *shown = context;
    return ls_run_plot_write(shown->runs, shown->count, shown->log, file, error);
}

static int runs_show(struct ls_session *s, const char *key, ls_writer *write,
                     struct ls_error *error)
{
    const char *out = NULL;
    struct shown shown = {0};
    const struct option options[] = {{"out", .text = &out}, {"log", .flag = &shown.log}, {0}};
    int status =
        tool_need_texts(s, "runs", "a list of runs' folders", &shown.runs, &shown.count, error);
    if (!status)
        status = options_read(&s->order, options, error);
    if (!status)
        status = out ? ls_file_write(out, write, &shown, error)
                     : tool_answer_text(s, key, write, &shown, error);
    free(shown.runs);
    return status;
}

static int report_alone(struct ls_session *s, struct ls_error *error)
{
    return runs_show(s, "html", page_write, error);
}

static int plot_alone(struct ls_session *s, struct ls_error *error)
{
    return runs_show(s, "svg", curves_draw, error);
}

/* ---- prepare --------------------------------------------------------------------------------- */

static int prepare_read(struct ls_session *s, struct ls_prepare_config *config,
                        const char **template, struct ls_error *error)
{
    static const struct ls_word words[] = {
        {"text", LS_RECORDS_TEXT}, {"pairs", LS_RECORDS_PAIRS}, {"chat", LS_RECORDS_CHAT}, {0}};
    int64_t workers = ls_max(1, ls_min(256, ls_device_cores()));
    int records = LS_RECORDS_TEXT;
    const struct option options[] = {
        {"output", .text = &config->output, .needs = "where the stores go, a prefix"},
        {"tokenizer", .text = &config->tokenizer, .needs = "\"byte\", or a tokenizer's files"},
        {"validation", .real = &config->validation},
        {"json_key", .text = &config->json_key},
        {"records", .word = &records, .words = words},
        {"skip_bad", .flag = &config->skip_bad},
        {"special_tokens", .flag = &config->around},
        {"append_eod", .flag = &config->append_eod},
        {"workers", .whole = &workers, .least = 1, .most = 1024},
        {"chat_template", .text = template},
        {0}};
    int status = options_read(&s->order, options, error);
    if (!status && !(config->validation >= 0 && config->validation < 1))
        status = ls_error_set(error, LS_EINVAL, "prepare: validation: expected 0 <= share < 1");
    config->records = (enum ls_prepare_records)records;
    config->workers = (int)workers;
    return status;
}

static json_t *split_json(const struct ls_prepare_split *split)
{
    return json_pack("{s:I,s:I,s:I}", "documents", (json_int_t)split->documents, "tokens",
                     (json_int_t)split->tokens, "counted", (json_int_t)split->counted);
}

static int prepare_alone(struct ls_session *s, struct ls_error *error)
{
    const char **inputs = NULL, *template = NULL;
    struct ls_chat *chat = NULL;
    struct ls_prepare_report report;
    struct ls_prepare_config config = {
        .validation = 0.1, .around = true, .append_eod = true, .stop = &s->stop};
    int status = tool_need_texts(s, "inputs", "a list of files and folders", &inputs,
                                 &config.inputs_count, error);
    config.inputs = inputs;
    if (!status)
        status = prepare_read(s, &config, &template, error);
    if (!status && config.records == LS_RECORDS_CHAT)
        status = ls_chat_open(config.tokenizer, template, &chat, error);
    config.chat = chat;
    if (!status)
        status = ls_data_prepare(&config, &report, error);
    if (!status) {
        answer_set(s, "train", split_json(&report.train));
        answer_set(s, "valid", split_json(&report.validation));
        answer_set(s, "text_bytes", json_integer(report.text_bytes));
        answer_set(s, "skipped", json_integer(report.skipped));
        answer_set(s, "unknown", json_integer(report.unknown));
    }
    ls_chat_free(chat);
    free(inputs);
    return status;
}

const struct verb verbs_files[] = {
    {"convert", "project|file|text|ranks|allow_loss|preset|keys", "", VERB_ALONE,
     .alone = convert_alone},
    {"import", "from|out|keys", "", VERB_ALONE, .alone = import_alone},
    {"report", "runs|out", "", VERB_ALONE, .alone = report_alone},
    {"plot", "runs|log", "", VERB_ALONE, .alone = plot_alone},
    {"prepare",
     "inputs|output|tokenizer|validation|json_key|records|chat_template|skip_bad|special_tokens|"
     "append_eod|workers",
     "", VERB_ALONE, .alone = prepare_alone},
    {0}};
