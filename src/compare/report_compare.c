/* Two runs side by side: whether they are equal, their figures, and how they were configured. */
#include "compare/report_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- equal, or not --------------------------------------------------------------------------- */

static void step_say(struct report *report, const struct ls_run_record *record, const char *label,
                     int64_t step)
{
    const struct ls_recorded_step *recorded = ls_run_record_at(record, step);
    char loss[32] = "";
    if (recorded->has_loss)
        snprintf(loss, sizeof loss, " loss bits %08x", recorded->loss_bits);
    ls_html_print(report->file, "p", "mono", "%s:%s%s%s", label, loss,
                  recorded->has_hash ? " hash " : "", recorded->hash);
}

/* As `lockstep diff --no-rerun --force` has it: from what was recorded. */
static void equality_say(struct report *report, const struct ls_run_record *a,
                         const struct ls_run_record *b)
{
    struct ls_run_difference found;
    char keys[700];
    int recipe = ls_config_recipe_diff(&a->config, &b->config, keys, sizeof keys);
    ls_run_records_compare(a, b, &found);
    if (recipe)
        ls_html_print(report->file, "p", NULL,
                      "The recipes differ, so the numbers differ too: %d key%s differ%s.", recipe,
                      recipe == 1 ? "" : "s", recipe == 1 ? "s" : "");
    if (found.compared == 0) {
        ls_html_print(report->file, "p", NULL, "They recorded no step in common.");
        return;
    }
    if (found.step == 0 && found.equal)
        ls_html_print(report->file, "p", "verdict",
                      "Equal up to step %ld: %s compared bit by bit, the state's hash last "
                      "at step %ld.",
                      (long)found.last, ls_counted(found.compared, "step").text, (long)found.equal);
    else if (found.step == 0)
        ls_html_print(report->file, "p", "verdict",
                      "Equal losses up to step %ld: %s compared bit by bit, no hash among "
                      "them.",
                      (long)found.last, ls_counted(found.compared, "step").text);
    if (found.step == 0)
        return;
    ls_html_print(report->file, "p", recipe ? NULL : "warn",
                  "The records differ at step %ld, in %s%s%s", (long)found.step,
                  found.loss && found.hash ? "loss and hash"
                  : found.loss             ? "the loss"
                                           : "the hash",
                  recipe ? "." : ", though the recipes are one: ",
                  recipe ? "" : "`lockstep diff` finds the first tensor.");
    step_say(report, a, "A", found.step);
    step_say(report, b, "B", found.step);
}

static int equality(struct report *report)
{
    struct ls_run_record *records = calloc(2, sizeof *records);
    struct ls_error problem = {0};
    int status = records ? LS_OK : ls_error_set(&problem, LS_ENOMEM, "no memory to compare runs");
    for (int r = 0; r < 2 && !status; r++)
        status = ls_run_record_read(&records[r], report->runs[r].directory, &problem);
    if (!status)
        equality_say(report, &records[0], &records[1]);
    else
        ls_html_print(report->file, "p", "warn", "They cannot be compared: %s", problem.text);
    for (int r = 0; r < 2 && records; r++)
        ls_run_record_release(&records[r]);
    free(records);
    return status == LS_ENOMEM ? ls_error_set(report->error, status, "%s", problem.text) : LS_OK;
}

/* ---- figures --------------------------------------------------------------------------------- */

static double best_validation(const struct report_run *run)
{
    double best = NAN;
    for (int64_t i = 0; i < run->evals.count; i++)
        best = fmin(best, report_eval(run, i)->loss);
    return best;
}

static double last_loss(const struct report_run *run)
{
    for (int64_t i = run->count; i > 0; i--)
        if (isfinite(run->points[i - 1].loss))
            return run->points[i - 1].loss;
    return NAN;
}

/* A row of two numbers, and how the second relates to the first. */
static void row(struct ls_html_table *table, const char *name, double a, double b,
                struct report_text (*text)(double value))
{
    ls_html_cell(table, "%s", name);
    ls_html_cell(table, "%s", isfinite(a) ? text(a).text : "–");
    ls_html_cell(table, "%s", isfinite(b) ? text(b).text : "–");
    if (isfinite(a) && isfinite(b) && a != 0)
        ls_html_cell(table, "%.3f", b / a);
    else
        ls_html_cell(table, "–");
}

static struct report_text loss_text(double value)
{
    struct report_text out;
    snprintf(out.text, sizeof out.text, "%.4f", value);
    return out;
}

static int figures(struct report *report)
{
    static const struct ls_html_column columns[] = {{"Figure", LS_HTML_TEXT},
                                                    {"A", LS_HTML_NUMBER},
                                                    {"B", LS_HTML_NUMBER},
                                                    {"B / A", LS_HTML_NUMBER}};
    const struct report_run *a = &report->runs[0], *b = &report->runs[1];
    struct report_speed sa, sb;
    struct ls_html_table table;
    int status = report_speed_of(a, &sa, report->error);
    if (!status)
        status = report_speed_of(b, &sb, report->error);
    if (status)
        return status;
    ls_html_table_begin(&table, report->file, "Figures of both", columns, 4);
    row(&table, "steps recorded", (double)a->steps, (double)b->steps, report_count);
    row(&table, "training loss, last", last_loss(a), last_loss(b), loss_text);
    row(&table, "validation loss, best", best_validation(a), best_validation(b), loss_text);
    row(&table, "tokens a second, median", sa.tokens_per_s_median, sb.tokens_per_s_median,
        report_count);
    row(&table, "a step, median", sa.percentile[3], sb.percentile[3], report_seconds);
    row(&table, "a step, 95th percentile", sa.percentile[5], sb.percentile[5], report_seconds);
    row(&table, "share of the machine's rate", sa.peak_share_mean, sb.peak_share_mean,
        report_share);
    ls_html_table_end(&table);
    return LS_OK;
}

/* ---- configurations -------------------------------------------------------------------------- */

static int configurations(struct report *report)
{
    static const struct ls_html_column columns[] = {{"Key", LS_HTML_WORD},
                                                    {"A", LS_HTML_TEXT},
                                                    {"B", LS_HTML_TEXT},
                                                    {"Part of the", LS_HTML_TEXT}};
    const struct report_run *a = &report->runs[0], *b = &report->runs[1];
    enum { BYTES = 4 * LS_CONFIG_TEXT_BYTES };
    struct ls_html_table table;
    int different = 0;
    if (!a->configured || !b->configured) {
        ls_html_print(report->file, "p", "note",
                      "The configurations are not compared: one was not read.");
        return LS_OK;
    }
    char *text = malloc(2 * BYTES);
    if (!text)
        return ls_error_set(report->error, LS_ENOMEM, "no memory to compare configurations");
    ls_html_table_begin(&table, report->file, "Keys in which the configurations differ", columns,
                        4);
    for (const struct ls_config_key *key = ls_config_keys(NULL); key->name; key++) {
        ls_config_compared_value(&a->config, key, text, BYTES);
        ls_config_compared_value(&b->config, key, text + BYTES, BYTES);
        if (!strcmp(text, text + BYTES))
            continue;
        ls_config_value(&a->config, key, text, BYTES);
        ls_config_value(&b->config, key, text + BYTES, BYTES);
        different++;
        ls_html_cell(&table, "%s", key->name);
        ls_html_cell(&table, "%s", text);
        ls_html_cell(&table, "%s", text + BYTES);
        ls_html_cell(&table, "%s", report_config_part(key->part));
    }
    ls_html_table_end(&table);
    if (!different)
        ls_html_print(report->file, "p", "note", "None differs.");
    free(text);
    return LS_OK;
}

int report_comparison(struct report *report)
{
    int status = equality(report);
    if (!status)
        status = figures(report);
    return status ? status : configurations(report);
}
