/* The report's lists: evaluations, checkpoints, events, and the configuration. */
#include "compare/report_private.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int report_columns(const struct report *report, struct ls_html_column first, const char *alone,
                   enum ls_html_cells cells, struct ls_html_column last,
                   struct ls_html_column columns[LS_REPORT_RUNS_MAX + 2])
{
    int count = 0;
    columns[count++] = first;
    for (int r = 0; r < report->count; r++)
        columns[count++] = (struct ls_html_column){
            report->count == 1 && alone ? alone : report->runs[r].label, cells};
    if (last.name)
        columns[count++] = last;
    return count;
}

/* What a table scrolls in where it is long. False: the list is empty, and the note says so. */
static bool list_begin(struct report *report, const struct report_list *list, const char *note)
{
    if (list->count == 0) {
        ls_html_print(report->file, "p", "note", "%s", note);
        return false;
    }
    fputs("<div class=\"tall\">\n", report->file);
    return true;
}

/* Lists are bounded: what is shown of them is said. */
static void list_end(struct ls_html_table *table, struct report *report,
                     const struct report_list *list, const char *what)
{
    ls_html_table_end(table);
    fputs("</div>\n", report->file);
    if (list->all > list->count)
        ls_html_print(report->file, "p", "note", "%s of %s %s are shown.",
                      report_count((double)list->count).text, report_count((double)list->all).text,
                      what);
}

/* ---- evaluations and checkpoints ------------------------------------------------------------- */

static void number_cell(struct ls_html_table *table, const char *format, double value)
    __attribute__((format(printf, 2, 0)));
static void number_cell(struct ls_html_table *table, const char *format, double value)
{
    char text[64] = "–";
    if (isfinite(value))
        snprintf(text, sizeof text, format, value);
    ls_html_cell(table, "%s", text);
}

int report_evaluations(struct report *report, const struct report_run *run)
{
    static const struct ls_html_column columns[] = {
        {"After step", LS_HTML_NUMBER}, {"Loss (nats)", LS_HTML_NUMBER},
        {"Perplexity", LS_HTML_NUMBER}, {"Bits a byte", LS_HTML_NUMBER},
        {"Sequences", LS_HTML_NUMBER},  {"Took", LS_HTML_NUMBER}};
    struct ls_html_table table;
    if (!list_begin(report, &run->evals,
                    "None recorded (eval.every says how often, data.valid on what)."))
        return LS_OK;
    ls_html_stack_begin(&table, report->file, "Losses on the validation data", columns, 6);
    for (int64_t i = 0; i < run->evals.count; i++) {
        const struct report_eval *eval = report_eval(run, i);
        ls_html_cell(&table, "%s", report_count((double)eval->step).text);
        number_cell(&table, "%.4f", eval->loss);
        number_cell(&table, "%.3f", exp(eval->loss));
        number_cell(&table, "%.4f", eval->bits_per_byte);
        number_cell(&table, "%.0f", eval->sequences);
        ls_html_cell(&table, "%s",
                     isfinite(eval->eval_s) ? report_seconds(eval->eval_s).text : "–");
    }
    list_end(&table, report, &run->evals, "evaluations");
    return LS_OK;
}

int report_checkpoints(struct report *report, const struct report_run *run)
{
    static const struct ls_html_column columns[] = {{"Checkpoint", LS_HTML_WORD},
                                                    {"Tokens", LS_HTML_NUMBER},
                                                    {"Hash of the state", LS_HTML_WORD},
                                                    {"Made by", LS_HTML_TEXT}};
    struct ls_html_table table;
    if (!list_begin(report, &run->checkpoints, "The directory holds no whole checkpoint."))
        return LS_OK;
    ls_html_stack_begin(&table, report->file, "Whole checkpoints, newest first", columns, 4);
    for (int64_t i = 0; i < run->checkpoints.count; i++) {
        const struct report_checkpoint *checkpoint = report_checkpoint(run, i);
        ls_html_cell(&table, "%s", checkpoint->name);
        ls_html_cell(&table, "%s", report_count((double)checkpoint->tokens).text);
        ls_html_cell(&table, "%s", *checkpoint->hash ? checkpoint->hash : "not computed");
        ls_html_cell(&table, "%s", checkpoint->fingerprint);
    }
    list_end(&table, report, &run->checkpoints, "checkpoints");
    return LS_OK;
}

/* ---- events ---------------------------------------------------------------------------------- */

static int is_text(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && !strcmp(dot, ".txt");
}

/* What ranks left in log/: their first lines, folded. */
static void logs_print(struct report *report, const struct report_run *run)
{
    enum { FILES = 8 };
    char path[PATH_MAX + 16], file_path[PATH_MAX + 300];
    struct dirent **entries;
    snprintf(path, sizeof path, "%s/log", run->directory);
    int count = scandir(path, &entries, is_text, alphasort);
    for (int i = 0; i < count; i++) {
        char text[4000];
        snprintf(file_path, sizeof file_path, "%s/%s", path, entries[i]->d_name);
        if (i < FILES && ls_file_head(file_path, text, sizeof text)) {
            char summary[300];
            snprintf(summary, sizeof summary, "log/%s", entries[i]->d_name);
            ls_html_fold_begin(report->file, summary);
            ls_html_pre(report->file, text);
            ls_html_fold_end(report->file);
        }
        free(entries[i]);
    }
    if (count > FILES)
        ls_html_print(report->file, "p", "note", "%d of %d files in log/ are shown.", FILES, count);
    if (count >= 0)
        free(entries);
}

static void events_print(struct report *report, const struct report_run *run)
{
    static const struct ls_html_column columns[] = {
        {"After step", LS_HTML_NUMBER}, {"What", LS_HTML_TEXT}, {"Time (UTC)", LS_HTML_WORD}};
    struct ls_html_table table;
    if (!list_begin(report, &run->events, "None recorded."))
        return;
    ls_html_table_begin(&table, report->file,
                        "Starts, saves, signals, failures, skipped steps, warnings, hashes",
                        columns, 3);
    for (int64_t i = 0; i < run->events.count; i++) {
        const struct report_event *event = report_event(run, i);
        struct report_text time = report_time(event->time);
        ls_html_cell(&table, "%s", event->step >= 0 ? report_count((double)event->step).text : "–");
        ls_html_cell(&table, "%s", event->text);
        ls_html_cell(&table, "%s", *time.text ? time.text : "–");
    }
    list_end(&table, report, &run->events, "events");
}

int report_events(struct report *report, const struct report_run *run)
{
    events_print(report, run);
    logs_print(report, run);
    return LS_OK;
}

/* ---- configuration --------------------------------------------------------------------------- */

const char *report_config_part(enum ls_config_part part)
{
    return part == LS_CONFIG_RECIPE ? "recipe" : part == LS_CONFIG_LAYOUT ? "layout" : "run";
}

struct value {
    char text[LS_CONFIG_VALUE_BYTES];
};

static const char *value_of(const struct ls_config *config, const struct ls_config_key *key,
                            struct value *value)
{
    ls_config_value(config, key, value->text, sizeof value->text);
    return value->text;
}

/* What the configuration would be had it said no more than its preset, or, without one, than what
 * has no default. */
static void base_of(const struct ls_config *config, struct ls_config *base)
{
    struct ls_config resolved;
    const struct ls_config_model *given = &config->model_keys;
    struct ls_config_model *to = &resolved.model_keys, *from = &base->model_keys;
    ls_config_defaults(base);
    resolved = *base;
    memcpy(to->preset, given->preset, sizeof to->preset);
    if (!*given->preset) {
        to->arch = given->arch;
        to->layers = given->layers;
        to->channels = given->channels;
        to->heads = given->heads;
        to->context = given->context;
    }
    if (ls_config_resolve(&resolved, given->vocab, NULL))
        return;
    if (!*given->preset) {
        to->arch = from->arch;
        to->layers = to->channels = to->heads = to->context = 0;
    }
    *base = resolved;
}

/* A table for each part of the configuration in which something differs. */
static void differences(struct report *report, const struct report_run *run,
                        const struct ls_config *base, enum ls_config_part part)
{
    static const struct ls_html_column columns[] = {
        {"Key", LS_HTML_WORD}, {"Value", LS_HTML_TEXT}, {"Default", LS_HTML_TEXT}};
    char caption[64];
    struct ls_html_table table = {.file = NULL};
    struct value text[2];
    snprintf(caption, sizeof caption, "What differs from the defaults: %s",
             report_config_part(part));
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        const char *value = value_of(&run->config, key, &text[0]);
        const char *initial = value_of(base, key, &text[1]);
        bool preset = !strcmp(key->name, "model.preset") && *run->config.model_keys.preset;
        if (key->part != part || (!preset && !strcmp(value, initial)))
            continue;
        if (!table.file)
            ls_html_table_begin(&table, report->file, caption, columns, 3);
        ls_html_cell(&table, "%s", key->name);
        ls_html_cell_text(&table, value);
        ls_html_cell_text(&table, preset ? "–" : initial);
    }
    if (table.file)
        ls_html_table_end(&table);
}

static int whole(struct report *report, const struct report_run *run)
{
    char *text;
    int status = ls_config_text(&run->config, &text, report->error);
    if (status)
        return status;
    ls_html_fold_begin(report->file, "The whole configuration, as resolved");
    ls_html_pre(report->file, text);
    ls_html_fold_end(report->file);
    free(text);
    return LS_OK;
}

int report_configuration(struct report *report, const struct report_run *run)
{
    struct ls_config base;
    if (!run->configured) {
        ls_html_print(report->file, "p", "note", "config.yaml was not read: %s",
                      run->config_problem);
        return LS_OK;
    }
    base_of(&run->config, &base);
    for (int part = LS_CONFIG_RECIPE; part <= LS_CONFIG_RUN; part++)
        differences(report, run, &base, (enum ls_config_part)part);
    return whole(report, run);
}
